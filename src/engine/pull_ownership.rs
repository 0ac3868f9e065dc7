//! Whose pull request it is that a run reports.
//!
//! A run can report any address. It counts when the repository host confirms that the pull request of
//! this number in the job's repository has the job's branch as its head and is found at this address.
//! The lookup is part of judging the result, and as durable: the result is stored with the job, and
//! while the host gives no answer it is asked again.

use std::time::Duration;

use crate::app::App;
use domain::job::{Job, PullRequestRef};
use domain::limits;
use domain::report::ResultReport;
use domain::transition::JobEvent;
use store::StoreResult;
use vendors::http::VendorError;
use vendors::scm::PullRequest;

use super::run_monitor;

/// How long does the run's own request wait for the host?
const ANSWERED_WITHIN: Duration = Duration::from_secs(10);

/// Looks up the pull request of a job's held result, and judges the result if the host answers.
/// Returns what the run is warned of.
pub(super) async fn verify_held_result(app: &App, job: &Job) -> StoreResult<Vec<String>> {
    let Some(held) = &job.unconfirmed_result else {
        return Ok(Vec::new());
    };
    let claimed = held
        .report
        .pr_url
        .as_deref()
        .and_then(PullRequestRef::from_url);
    let looked_up = match &claimed {
        Some(claimed) => tokio::time::timeout(ANSWERED_WITHIN, look_up(app, job, claimed)).await,
        None => Ok(Ok(
            Err("it is not the address of a pull request".to_owned()),
        )),
    };
    let confirmed = match looked_up {
        Ok(Ok(confirmed)) => confirmed,
        // As with what a run left behind: what is refused for a day is not waited for any longer.
        Ok(Err(error))
            if error.is_permanent()
                && app.now().since(held.since) >= limits::OUTCOME_LOOKUP_TIMEOUT =>
        {
            Err(format!("it could not be looked up: {error}"))
        }
        unanswered => {
            let error = match unanswered {
                Ok(Err(error)) => error.to_string(),
                _ => "no answer in time".to_owned(),
            };
            tracing::warn!(job_id = %job.id, issue = %job.issue.key, team = %job.team, error, "The pull request of a result could not be looked up; it is tried again.");
            let later = "prUrl is not confirmed yet: the repository host did not answer";
            return Ok(vec![later.to_owned()]);
        }
    };
    let (report, warnings) = weighed(&held.report, confirmed);
    run_monitor::apply_event(app, job, JobEvent::ResultReported { report }).await?;
    Ok(warnings)
}

/// The result as it counts, and what the run is warned of.
fn weighed(
    report: &ResultReport,
    confirmed: Result<PullRequestRef, String>,
) -> (ResultReport, Vec<String>) {
    let report = report.clone();
    match confirmed {
        Ok(pull) => {
            let pr_url = Some(pull.url);
            (ResultReport { pr_url, ..report }, Vec::new())
        }
        Err(why) => {
            let warning = format!("prUrl is ignored: {why}");
            let reason = format!("the pull request that the run reported is not its own: {why}");
            let report = ResultReport {
                pr_url: None,
                failure_reason: report.failure_reason.or(Some(reason)),
                ..report
            };
            (report, vec![warning])
        }
    }
}

/// The pull request as the host has it, or why it is not the job's.
async fn look_up(
    app: &App,
    job: &Job,
    claimed: &PullRequestRef,
) -> Result<Result<PullRequestRef, String>, VendorError> {
    let page = app.pull_url(&job.repo, claimed.number);
    let Some(github) = &app.github else {
        // Nobody to ask: its address is all that can be checked.
        return Ok(match claimed.matches_url(&page) {
            true => Ok(claimed.clone()),
            false => Err(format!("its address is not {page}")),
        });
    };
    match github.pull(&job.repo, claimed.number).await {
        Ok(pull) => Ok(own(job, claimed, pull, &page)),
        Err(error) if error.is_not_found() => Ok(Err(format!(
            "{} has no pull request #{}",
            job.repo, claimed.number
        ))),
        Err(error) => Err(error),
    }
}

fn own(
    job: &Job,
    claimed: &PullRequestRef,
    pull: PullRequest,
    page: &str,
) -> Result<PullRequestRef, String> {
    let name = format!("pull request #{} of {}", pull.number, job.repo);
    if !pull.is_from_own_repo {
        return Err(format!("{name} comes from another repository"));
    }
    if pull.head_branch != job.branch {
        return Err(format!(
            "{name} is of the branch {}, not {}",
            pull.head_branch, job.branch
        ));
    }
    // A repository that was renamed has its pages at its new name.
    if !claimed.matches_url(&pull.url) && !claimed.matches_url(page) {
        return Err(format!("its address is not {}", pull.url));
    }
    let PullRequest { number, url, .. } = pull;
    Ok(PullRequestRef { number, url })
}
