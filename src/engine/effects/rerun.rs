//! Reruns of failed jobs, once per workflow run and head commit.

use super::{EffectFailure, EffectOutcome, github};
use crate::app::App;
use domain::feedback::PullRequestId;
use vendors::scm::{PullRequestState, RerunOutcome};

/// Runs the failed jobs of a workflow run again. A run whose failed jobs have run again before, or run now, is left
/// alone: that was an earlier attempt of this effect, or a person. So is a run of a commit that is no longer the head
/// of an open pull request.
pub(super) async fn rerun_failed_jobs(
    app: &App,
    pull: &PullRequestId,
    head: &str,
    run: u64,
) -> Result<EffectOutcome, EffectFailure> {
    let (github, repo) = (github(&app.vendors)?, &pull.repo);
    match github.checking_run(repo, run, head).await? {
        None => return Ok(EffectOutcome::Gone("the run no longer exists".to_owned())),
        Some(found) if found.attempt > 1 || !found.is_completed || found.has_succeeded => {
            return Ok(EffectOutcome::Done);
        }
        Some(_) => {}
    }
    let current = github.pull(repo, pull.number).await?;
    if current.state != PullRequestState::Open || current.head_sha != head {
        let reason = "the commit is no longer the head of an open pull request";
        return Ok(EffectOutcome::Gone(reason.to_owned()));
    }
    match github.rerun_failed_jobs(repo, run).await? {
        RerunOutcome::Requested => {
            app.live.metrics.ci_reruns.add(1);
            tracing::info!(%repo, head, run, "Requested a rerun of failed jobs.");
            Ok(EffectOutcome::Done)
        }
        RerunOutcome::Refused(reason) => {
            tracing::info!(%repo, head, run, reason, "GitHub refused a rerun of failed jobs.");
            Ok(EffectOutcome::Gone(reason))
        }
    }
}
