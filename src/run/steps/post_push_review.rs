//! Reviews what was pushed, until nothing is left open or the passes are used up.
//!
//! A pass asks the run's own review first, unless it has judged this very tree, and then waits for
//! the reviewers outside that the repository names. What somebody found wrong is mended, guarded
//! and pushed on top, and looked at again. Whatever has not been approved at the end leaves the
//! pull request a draft; one comment on it tells how the review stands. (spec: *What the service
//! does*, *Limits*)

mod judge;
mod outside;

use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::time::Instant;

use outside::Door;

use super::review::{Finding, implement, review};
use super::{RESERVE, push, verify};
use crate::patience::{PATIENCE, persist};
use crate::pull_request::{self, Reviewed};
use crate::repo_config::Reviewers;
use crate::run::{Failure, Run, StepOutcome};
use domain::report::FailureCode;
use domain::reviewers::ReviewInputs;
use vendors::scm::{GitHub, PullState};

/// Less time than this is not enough to mend anything.
const MENDING: Duration = Duration::from_secs(5 * 60);

/// So many findings are told one by one.
const MAX_TOLD: usize = 50;

pub(super) async fn perform(
    run: &mut Run,
    inputs: &Map<String, Value>,
) -> Result<StepOutcome, Failure> {
    let inputs = ReviewInputs::read(inputs).map_err(Failure::other)?;
    let Some(number) = run.found.pull.as_ref().map(|pull| pull.number) else {
        return Ok(StepOutcome::Skipped("there is no open pull request"));
    };
    let mut reviewing = Reviewing {
        number,
        reviewers: run.found.repo_config.settings.reviewers.with(&inputs),
        passes: 0,
        mended: 0,
    };
    if let Err(failure) = reviewing.finish(run).await {
        if is_of_its_own(&failure) {
            return Err(failure);
        }
        // The pull request is there; that nobody has approved it is all that there is to tell.
        let finding = Finding::closed("The review after the push broke off", &failure.reason);
        run.found.unresolved.push(finding.line());
        if let Ok(door) = Door::open(run).await {
            reviewing.tell(run, &door.host, &run.found.start).await;
        }
    }
    for finding in &run.found.unresolved {
        run.console.say(&format!("left open: {finding}"));
    }
    Ok(StepOutcome::Passed(json!({
        "approved": run.found.unresolved.is_empty(),
        "unresolved": run.found.unresolved,
        "passes": reviewing.passes,
        "mended": reviewing.mended,
    })))
}

/// The review of one pull request.
struct Reviewing {
    number: u64,
    reviewers: Reviewers,
    passes: u32,
    mended: u32,
}

/// What comes after a pass.
enum Next {
    /// Nothing more: all is approved, or what is left cannot be mended now.
    Nothing,
    Mend(Vec<Finding>),
}

impl Reviewing {
    async fn finish(&mut self, run: &mut Run) -> Result<(), Failure> {
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
            let stopped = Finding::closed("Mending ended early", &failure.reason);
            run.found.unresolved.push(stopped.line());
            let door = Door::open(run).await?;
            self.tell(run, &door.host, &run.found.start).await;
            return Ok(());
        }
    }

    /// Looks at what is on the branch, and tells how it stands.
    async fn pass(&self, run: &mut Run) -> Result<Next, Failure> {
        let commit = run.found.start.clone();
        let mut findings = self.own_findings(run, &commit).await?;
        note(run, &findings);
        let mut door = Door::open(run).await?;
        let say = |line: &str| run.console.say(line);
        let pull = persist(&say, patience(run), async || {
            door.host.pull(&run.repo, self.number).await
        });
        let pull = pull.await.map_err(Failure::other)?;
        if pull.state != PullState::Open {
            run.console.say("the pull request is not open any more");
            return Ok(Next::Nothing);
        }
        if findings.is_empty() && !self.reviewers.is_empty() {
            // Some reviewers do not look at drafts.
            if let Err(error) = push::flag(run, &door.host, &pull).await {
                run.console.say(&format!("the draft flag: {error}"));
            }
            findings = outside::ask(run, &mut door, &self.reviewers, &pull, &commit).await?;
        }
        let mendable = findings.iter().filter(|finding| finding.is_mendable());
        let mendable: Vec<Finding> = mendable.cloned().collect();
        let mut next = Next::Nothing;
        if let Some(moved) = outside::moved(run, &door, &commit).await {
            findings.push(moved);
        } else if !mendable.is_empty() && self.passes < run.max_iterations() {
            if time_left(run) > RESERVE + MENDING {
                next = Next::Mend(mendable);
            } else {
                let problem = "the run's time is nearly used up";
                findings.push(Finding::closed("Nothing more was mended", problem));
            }
        }
        note(run, &findings);
        self.tell(run, &door.host, &commit).await;
        Ok(next)
    }

    /// What the run's own review says. A tree that it has judged is not paid for again.
    async fn own_findings(&self, run: &mut Run, commit: &str) -> Result<Vec<Finding>, Failure> {
        let tree = run.git.tree_of(commit).await.map_err(Failure::other)?;
        if let Some(known) = &run.found.reviewed {
            let is_verdict =
                known.findings.is_empty() || known.findings.iter().any(Finding::is_mendable);
            if known.tree == tree && is_verdict {
                return Ok(known.findings.clone());
            }
        }
        review(run, &format!("gap-analysis.{}", self.passes), &tree).await
    }

    /// Lets the agent mend what was found, and pushes it; false when it changed nothing. No access
    /// to the repository exists while it works.
    async fn mend(&mut self, run: &mut Run, findings: &[Finding]) -> Result<bool, Failure> {
        let (branch, commit) = (run.config.branch.clone(), run.found.start.clone());
        run.settle().await?;
        // What scripts have changed or made since is not the agent's work.
        let restored = run.git.checkout(&branch, &commit).await;
        restored.map_err(Failure::other)?;
        run.git.ignore_present().await.map_err(Failure::other)?;
        // The pull request's summary is of the whole change.
        let summary = run.found.summary.clone();
        let staged = implement(run, &format!("mend.{}", self.passes), findings).await;
        run.found.summary = summary;
        let message = pull_request::mending_message(run);
        let Some(commit) = push::guarded_commit(run, &staged?, &message).await? else {
            run.console.say("the agent mended nothing more");
            return Ok(false);
        };
        let access = run.open_access().await?;
        push::move_branch(run, &access, &commit).await?;
        drop(access);
        self.mended += 1;
        verify::again(run, &format!("verify.{}", self.passes)).await?;
        Ok(true)
    }

    /// Tells on the pull request how its review stands: by its draft flag, and in one comment.
    async fn tell(&self, run: &Run, host: &GitHub, commit: &str) {
        let changes = run.git.changes(&run.found.fork_point, commit).await;
        let reviewed = Reviewed {
            commit,
            unresolved: &run.found.unresolved,
            mended: self.mended,
        };
        let (marker, body) =
            pull_request::gap_analysis(run, &reviewed, &changes.unwrap_or_default());
        let say = |line: &str| run.console.say(line);
        let told = persist(&say, patience(run), async || {
            let pull = host.pull(&run.repo, self.number).await?;
            push::flag(run, host, &pull).await?;
            host.upsert_comment(&run.repo, self.number, &marker, &body)
                .await
        });
        if let Err(error) = told.await {
            run.console
                .say(&format!("the review could not be told: {error}"));
        }
    }
}

/// Failures that the spec has words for, whatever else became of the run.
fn is_of_its_own(failure: &Failure) -> bool {
    matches!(
        failure.code,
        Some(FailureCode::SensitiveFilesBlocked | FailureCode::VerifyFailed)
    )
}

fn note(run: &mut Run, findings: &[Finding]) {
    let lines = findings.iter().take(MAX_TOLD).map(Finding::line);
    run.found.unresolved = lines.collect();
    if findings.len() > MAX_TOLD {
        let more = findings.len() - MAX_TOLD;
        run.found.unresolved.push(format!("and {more} more"));
    }
}

/// How long is the host asked again? There must be time to report in the end.
fn patience(run: &Run) -> Duration {
    PATIENCE.min(time_left(run) / 2)
}

fn time_left(run: &Run) -> Duration {
    run.deadline.saturating_duration_since(Instant::now())
}
