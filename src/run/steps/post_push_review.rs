//! Reviews what was pushed, until nothing is left open or the passes are used up.
//!
//! A pass asks the run's own review first, unless it has judged this very tree, and then waits for
//! the reviewers outside that the repository names. What somebody found wrong is mended, guarded
//! and pushed on top, and looked at again. Whatever has not been approved at the end leaves the
//! pull request a draft; one comment on it tells how the review stands. (spec: *What the service
//! does*, *Limits*)

mod evaluation;
mod external_reviewers;

use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::time::Instant;

use external_reviewers::GitHubSession;

use super::review::{BlockingFinding, implement, review};
use super::{PUSH_RESERVE, push, verify};
use crate::context::{RunContext, RunFailure, StepOutcome};
use crate::pull_request::{self, ReviewStatus};
use crate::repo_config::ExternalReviewConfig;
use crate::retry::{RETRY_TIMEOUT, retry};
use domain::external_reviewers::ReviewInputs;
use domain::report::FailureCode;
use vendors::scm::{GitHub, PullRequestState};

/// Less time than this is not enough to mend anything.
const MENDING: Duration = Duration::from_secs(5 * 60);

/// So many findings are told one by one.
const MAX_TOLD: usize = 50;

pub(super) async fn execute(
    run: &mut RunContext,
    inputs: &Map<String, Value>,
) -> Result<StepOutcome, RunFailure> {
    let inputs = ReviewInputs::read(inputs).map_err(RunFailure::other)?;
    let Some(number) = run.state.pull.as_ref().map(|pull| pull.number) else {
        return Ok(StepOutcome::Skipped("there is no open pull request"));
    };
    let mut reviewing = Reviewing {
        number,
        reviewers: run
            .state
            .repo_config
            .settings
            .reviewers
            .with_overrides(&inputs),
        passes: 0,
        mended: 0,
    };
    if let Err(failure) = reviewing.finish(run).await {
        if is_of_its_own(&failure) {
            return Err(failure);
        }
        // The pull request is there; that nobody has approved it is all that there is to tell.
        let finding =
            BlockingFinding::unfixable("The review after the push broke off", &failure.reason);
        run.state.unresolved.push(finding.summary_line());
        if let Ok(door) = GitHubSession::open(run).await {
            reviewing
                .tell(run, &door.github, &run.state.head_commit)
                .await;
        }
    }
    for finding in &run.state.unresolved {
        run.console.log(&format!("left open: {finding}"));
    }
    Ok(StepOutcome::Passed(json!({
        "approved": run.state.unresolved.is_empty(),
        "unresolved": run.state.unresolved,
        "passes": reviewing.passes,
        "mended": reviewing.mended,
    })))
}

/// The review of one pull request.
struct Reviewing {
    number: u64,
    reviewers: ExternalReviewConfig,
    passes: u32,
    mended: u32,
}

/// What comes after a pass.
enum Next {
    /// Nothing more: all is approved, or what is left cannot be mended now.
    Nothing,
    Mend(Vec<BlockingFinding>),
}

impl Reviewing {
    async fn finish(&mut self, run: &mut RunContext) -> Result<(), RunFailure> {
        loop {
            self.passes += 1;
            let Next::Mend(findings) = self.pass(run).await? else {
                return Ok(());
            };
            let failure = match self.mend(run, &findings).await {
                Ok(true) => continue,
                Ok(false) => return Ok(()),
                Err(failure) if is_of_its_own(&failure) => return Err(failure),
                Err(failure) => failure,
            };
            let stopped = BlockingFinding::unfixable("Mending ended early", &failure.reason);
            run.state.unresolved.push(stopped.summary_line());
            let door = GitHubSession::open(run).await?;
            self.tell(run, &door.github, &run.state.head_commit).await;
            return Ok(());
        }
    }

    /// Looks at what is on the branch, and tells how it stands.
    async fn pass(&self, run: &mut RunContext) -> Result<Next, RunFailure> {
        let commit = run.state.head_commit.clone();
        let mut findings = self.own_findings(run, &commit).await?;
        note(run, &findings);
        let mut door = GitHubSession::open(run).await?;
        let say = |line: &str| run.console.log(line);
        let pull = retry(&say, patience(run), async || {
            door.github.pull(&run.repo, self.number).await
        });
        let pull = pull.await.map_err(RunFailure::other)?;
        if pull.state != PullRequestState::Open {
            run.console.log("the pull request is not open any more");
            return Ok(Next::Nothing);
        }
        if findings.is_empty() && !self.reviewers.is_empty() {
            // Some reviewers do not look at drafts.
            if let Err(error) = push::update_draft_state(run, &door.github, &pull).await {
                run.console.log(&format!("the draft flag: {error}"));
            }
            findings = external_reviewers::collect_findings(
                run,
                &mut door,
                &self.reviewers,
                &pull,
                &commit,
            )
            .await?;
        }
        let mendable = findings.iter().filter(|finding| finding.is_fixable());
        let mendable: Vec<BlockingFinding> = mendable.cloned().collect();
        let mut next = Next::Nothing;
        if let Some(moved) = external_reviewers::branch_moved_finding(run, &door, &commit).await {
            findings.push(moved);
        } else if !mendable.is_empty() && self.passes < run.max_iterations() {
            if time_left(run) > PUSH_RESERVE + MENDING {
                next = Next::Mend(mendable);
            } else {
                let problem = "the run's time is nearly used up";
                findings.push(BlockingFinding::unfixable(
                    "Nothing more was mended",
                    problem,
                ));
            }
        }
        note(run, &findings);
        self.tell(run, &door.github, &commit).await;
        Ok(next)
    }

    /// What the run's own review says. A tree that it has judged is not paid for again.
    async fn own_findings(
        &self,
        run: &mut RunContext,
        commit: &str,
    ) -> Result<Vec<BlockingFinding>, RunFailure> {
        let tree = run
            .git
            .resolve_tree(commit)
            .await
            .map_err(RunFailure::other)?;
        if let Some(known) = &run.state.last_review {
            let is_verdict =
                known.findings.is_empty() || known.findings.iter().any(BlockingFinding::is_fixable);
            if known.tree == tree && is_verdict {
                return Ok(known.findings.clone());
            }
        }
        review(run, &format!("gap-analysis.{}", self.passes), &tree).await
    }

    /// Lets the agent mend what was found, and pushes it; false when it changed nothing. No access
    /// to the repository exists while it works.
    async fn mend(
        &mut self,
        run: &mut RunContext,
        findings: &[BlockingFinding],
    ) -> Result<bool, RunFailure> {
        let (branch, commit) = (run.config.branch.clone(), run.state.head_commit.clone());
        run.kill_orphan_processes().await?;
        // What scripts have changed or made since is not the agent's work.
        let restored = run.git.checkout(&branch, &commit).await;
        restored.map_err(RunFailure::other)?;
        run.git
            .exclude_untracked()
            .await
            .map_err(RunFailure::other)?;
        // The pull request's summary is of the whole change.
        let summary = run.state.summary.clone();
        let staged = implement(run, &format!("mend.{}", self.passes), findings).await;
        run.state.summary = summary;
        let message = pull_request::fix_commit_message(run);
        let Some(commit) = push::guarded_commit(run, &staged?, &message).await? else {
            run.console.log("the agent mended nothing more");
            return Ok(false);
        };
        let access = run.fetch_repo_access().await?;
        push::move_branch(run, &access, &commit).await?;
        drop(access);
        self.mended += 1;
        verify::rerun(run, &format!("verify.{}", self.passes)).await?;
        Ok(true)
    }

    /// Tells on the pull request how its review stands: by its draft flag, and in one comment.
    async fn tell(&self, run: &RunContext, host: &GitHub, commit: &str) {
        let changes = run.git.changes(&run.state.fork_point, commit).await;
        let reviewed = ReviewStatus {
            commit,
            unresolved: &run.state.unresolved,
            fix_count: self.mended,
        };
        let (marker, body) =
            pull_request::gap_analysis_comment(run, &reviewed, &changes.unwrap_or_default());
        let say = |line: &str| run.console.log(line);
        let told = retry(&say, patience(run), async || {
            let pull = host.pull(&run.repo, self.number).await?;
            push::update_draft_state(run, host, &pull).await?;
            host.upsert_comment(&run.repo, self.number, &marker, &body)
                .await
        });
        if let Err(error) = told.await {
            run.console
                .log(&format!("the review could not be told: {error}"));
        }
    }
}

/// Failures that the spec has words for, whatever else became of the run.
fn is_of_its_own(failure: &RunFailure) -> bool {
    matches!(
        failure.code,
        Some(FailureCode::SensitiveFilesBlocked | FailureCode::VerifyFailed)
    )
}

fn note(run: &mut RunContext, findings: &[BlockingFinding]) {
    let lines = findings
        .iter()
        .take(MAX_TOLD)
        .map(BlockingFinding::summary_line);
    run.state.unresolved = lines.collect();
    if findings.len() > MAX_TOLD {
        let more = findings.len() - MAX_TOLD;
        run.state.unresolved.push(format!("and {more} more"));
    }
}

/// How long is the host asked again? There must be time to report in the end.
fn patience(run: &RunContext) -> Duration {
    RETRY_TIMEOUT.min(time_left(run) / 2)
}

fn time_left(run: &RunContext) -> Duration {
    run.deadline.saturating_duration_since(Instant::now())
}
