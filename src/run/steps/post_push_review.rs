//! Review after the push: repeats until no finding is open or the passes are used up.
//!
//! A pass first runs the run's own review, unless it reviewed this tree before, and then waits for
//! the external reviewers named by the repository. Findings are fixed, checked by the guard, pushed
//! and reviewed again. The pull request stays a draft while it is not approved. One comment on it
//! shows the state of the review. See docs/behaviour.md#review-after-the-push.

mod evaluation;
mod external_reviewers;

use std::time::Duration;

use serde_json::{Map, Value, json};

use external_reviewers::GitHubSession;

use super::review::{implement, review};
use super::{push, verify};
use crate::blocking_finding::BlockingFinding;
use crate::context::{Checkout, PUSH_RESERVE, RunContext, StepOutcome};
use crate::failure::RunFailure;
use crate::pull_request::{self, ReviewStatus};
use crate::repo_config::ExternalReviewConfig;
use crate::retry::{RETRY_TIMEOUT, retry};
use domain::external_reviewers::ReviewInputs;
use domain::report::FailureCode;
use vendors::scm::{GitHub, PullRequestState};

/// Minimum time left for another fix.
const MIN_FIX_TIME: Duration = Duration::from_secs(5 * 60);

/// Maximum number of findings listed.
const MAX_LISTED: usize = 50;

/// Executes the step.
pub(super) async fn execute(
    run: &mut RunContext,
    inputs: &Map<String, Value>,
) -> Result<StepOutcome, RunFailure> {
    let inputs = ReviewInputs::read(inputs).map_err(RunFailure::other)?;
    let Some(number) = run.publication.pull.as_ref().map(|pull| pull.number) else {
        return Ok(StepOutcome::Skipped("No open pull request"));
    };
    let mut review = PostPushReview {
        number,
        reviewers: run.repo_config.settings.reviewers.with_overrides(&inputs),
        passes: 0,
        fix_count: 0,
    };
    if let Err(failure) = review.run_passes(run).await {
        if must_fail_run(&failure) {
            return Err(failure);
        }
        // The pull request exists; record that its review is incomplete.
        let finding =
            BlockingFinding::unfixable("The review after the push was aborted", &failure.reason);
        run.review.unresolved.push(finding.summary_line());
        if let Ok(session) = GitHubSession::open(&mut run.connections, &run.workspace).await {
            review.publish(run, run.checkout()?, &session.github).await;
        }
    }
    for finding in &run.review.unresolved {
        run.reporting.log(&format!("Open finding: {finding}"));
    }
    Ok(StepOutcome::Passed(json!({
        "approved": run.review.unresolved.is_empty(),
        "unresolved": run.review.unresolved,
        "passes": review.passes,
        "mended": review.fix_count,
    })))
}

/// Review after the push of one pull request.
struct PostPushReview {
    number: u64,
    reviewers: ExternalReviewConfig,
    passes: u32,
    fix_count: u32,
}

/// Action after a pass.
enum NextAction {
    /// Everything is approved, or the open findings cannot be fixed now.
    Finish,
    Fix(Vec<BlockingFinding>),
}

impl PostPushReview {
    async fn run_passes(&mut self, run: &mut RunContext) -> Result<(), RunFailure> {
        loop {
            self.passes += 1;
            let NextAction::Fix(findings) = self.pass(run).await? else {
                return Ok(());
            };
            let failure = match self.fix(run, &findings).await {
                Ok(true) => continue,
                Ok(false) => return Ok(()),
                Err(failure) if must_fail_run(&failure) => return Err(failure),
                Err(failure) => failure,
            };
            let finding = BlockingFinding::unfixable("Fixing stopped early", &failure.reason);
            run.review.unresolved.push(finding.summary_line());
            let session = GitHubSession::open(&mut run.connections, &run.workspace).await?;
            self.publish(run, run.checkout()?, &session.github).await;
            return Ok(());
        }
    }

    /// Reviews the head of the branch and publishes the state of the review.
    async fn pass(&self, run: &mut RunContext) -> Result<NextAction, RunFailure> {
        let commit = run.checkout()?.head_commit.clone();
        let mut findings = self.own_findings(run, &commit).await?;
        store_findings(run, &findings);
        let mut session = GitHubSession::open(&mut run.connections, &run.workspace).await?;
        let log = |line: &str| run.reporting.log(line);
        let pull = retry(&log, retry_timeout(run), async || {
            session.github.pull(&run.dispatch.repo, self.number).await
        });
        let pull = pull.await.map_err(RunFailure::other)?;
        if pull.state != PullRequestState::Open {
            run.reporting.log("The pull request is no longer open");
            return Ok(NextAction::Finish);
        }
        if findings.is_empty() && !self.reviewers.is_empty() {
            // Some reviewers skip drafts.
            if let Err(error) = push::update_draft_state(run, &session.github, &pull).await {
                run.reporting
                    .log(&format!("Failed to update the draft state: {error}"));
            }
            findings = external_reviewers::collect_findings(
                run,
                &mut session,
                &self.reviewers,
                &pull,
                &commit,
            )
            .await?;
        }
        let fixable = findings.iter().filter(|finding| finding.is_fixable());
        let fixable: Vec<BlockingFinding> = fixable.cloned().collect();
        let mut next = NextAction::Finish;
        let (git, branch) = (&run.workspace.git, run.dispatch.branch());
        let moved = external_reviewers::branch_moved_finding(git, branch, &session, &commit);
        if let Some(moved) = moved.await {
            findings.push(moved);
        } else if !fixable.is_empty() && self.passes < run.dispatch.max_iterations() {
            if run.limits.time_left() > PUSH_RESERVE + MIN_FIX_TIME {
                next = NextAction::Fix(fixable);
            } else {
                let problem = "not enough time is left in this run";
                findings.push(BlockingFinding::unfixable(
                    "Findings were not fixed",
                    problem,
                ));
            }
        }
        store_findings(run, &findings);
        self.publish(run, run.checkout()?, &session.github).await;
        Ok(next)
    }

    /// Returns the findings of the run's own review. A tree is reviewed only once.
    async fn own_findings(
        &self,
        run: &mut RunContext,
        commit: &str,
    ) -> Result<Vec<BlockingFinding>, RunFailure> {
        let tree = run.workspace.git.resolve_tree(commit).await;
        let tree = tree.map_err(RunFailure::other)?;
        if let Some(previous) = &run.review.last {
            let is_complete = previous.findings.is_empty()
                || previous.findings.iter().any(BlockingFinding::is_fixable);
            if previous.tree == tree && is_complete {
                return Ok(previous.findings.clone());
            }
        }
        review(run, &format!("gap-analysis.{}", self.passes), &tree).await
    }

    /// Lets the agent fix findings and pushes the result. Returns false if nothing changed. No
    /// repository access exists while the agent works.
    async fn fix(
        &mut self,
        run: &mut RunContext,
        findings: &[BlockingFinding],
    ) -> Result<bool, RunFailure> {
        run.workspace.kill_orphan_processes().await?;
        let (git, commit) = (&run.workspace.git, &run.checkout()?.head_commit);
        // Changes by scripts since the push are not part of the fix.
        let restored = git.checkout(run.dispatch.branch(), commit).await;
        restored.map_err(RunFailure::other)?;
        git.exclude_untracked().await.map_err(RunFailure::other)?;
        // Keeps the summary of the whole change for the pull request.
        let summary = run.change.summary.clone();
        let staged = implement(run, &format!("mend.{}", self.passes), findings).await;
        run.change.summary = summary;
        let message = pull_request::fix_commit_message(&run.dispatch);
        let Some(commit) = push::guarded_commit(run, &staged?, &message).await? else {
            run.reporting.log("The agent made no further changes");
            return Ok(false);
        };
        let access = run.connections.fetch_repo_access(&run.workspace).await?;
        push::move_branch(run, &access, &commit).await?;
        drop(access);
        self.fix_count += 1;
        verify::rerun(run, &format!("verify.{}", self.passes)).await?;
        Ok(true)
    }

    /// Publishes the state of the review: draft state and comment of the pull request.
    async fn publish(&self, run: &RunContext, checkout: &Checkout, github: &GitHub) {
        let (git, commit) = (&run.workspace.git, &checkout.head_commit);
        let changes = git.changes(&checkout.fork_point, commit).await;
        let status = ReviewStatus {
            commit,
            unresolved: &run.review.unresolved,
            fix_count: self.fix_count,
        };
        let (marker, body) = pull_request::gap_analysis_comment(
            &run.dispatch,
            &run.reporting,
            &status,
            &changes.unwrap_or_default(),
        );
        // The comment is about the whole change. An approved merge says nothing about it.
        let is_quiet = run.dispatch.merges_base_branch()
            && run.review.unresolved.is_empty()
            && self.fix_count == 0;
        let log = |line: &str| run.reporting.log(line);
        let result = retry(&log, retry_timeout(run), async || {
            let pull = github.pull(&run.dispatch.repo, self.number).await?;
            push::update_draft_state(run, github, &pull).await?;
            if is_quiet {
                return Ok(());
            }
            let comment = github.upsert_comment(&run.dispatch.repo, self.number, &marker, &body);
            comment.await.map(drop)
        });
        if let Err(error) = result.await {
            run.reporting
                .log(&format!("Failed to publish the review: {error}"));
        }
    }
}

/// Whether a failure fails the run even though the pull request is open.
fn must_fail_run(failure: &RunFailure) -> bool {
    matches!(
        failure.code,
        Some(FailureCode::SensitiveFilesBlocked | FailureCode::VerifyFailed)
    )
}

fn store_findings(run: &mut RunContext, findings: &[BlockingFinding]) {
    let lines = findings
        .iter()
        .take(MAX_LISTED)
        .map(BlockingFinding::summary_line);
    run.review.unresolved = lines.collect();
    if findings.len() > MAX_LISTED {
        let more = findings.len() - MAX_LISTED;
        run.review.unresolved.push(format!("and {more} more"));
    }
}

/// Returns the retry timeout of GitHub requests, which leaves time to report.
fn retry_timeout(run: &RunContext) -> Duration {
    RETRY_TIMEOUT.min(run.limits.time_left() / 2)
}
