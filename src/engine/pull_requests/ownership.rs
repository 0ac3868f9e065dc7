//! Verification of the pull request that a run reports.
//!
//! A run can report any URL. It counts if GitHub confirms that the pull request with this number in
//! the job's repository has the job's branch as its head, and has this URL. The result is stored
//! with the job until then, and the lookup is repeated while GitHub does not respond.

use std::time::Duration;

use crate::app::{App, Vendors};
use domain::feedback::PullRequestId;
use domain::job::{Job, PullRequestRef};
use domain::limits;
use domain::report::ResultReport;
use domain::transition::JobEvent;
use store::StoreResult;
use vendors::http::VendorError;
use vendors::scm::PullRequest;

use crate::run_monitor;

use super::changed_files;

/// Timeout of the lookup; the run's request waits for it.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(10);

/// Looks up the pull request of a job's held result and its files, and applies the result if GitHub responds.
/// Returns the warnings for the run.
pub(crate) async fn verify_held_result(app: &App, job: &Job) -> StoreResult<Vec<String>> {
    let Some(held) = &job.unconfirmed_result else {
        return Ok(Vec::new());
    };
    let claimed = held
        .report
        .pr_url
        .as_deref()
        .and_then(PullRequestRef::from_url);
    let (looked_up, files) = match &claimed {
        Some(claimed) => {
            let pull = PullRequestId::new(&job.repo, claimed.number);
            let lookup = look_up(&app.vendors, job, claimed);
            tokio::join!(
                tokio::time::timeout(LOOKUP_TIMEOUT, lookup),
                changed_files::look_up(&app.vendors, &pull),
            )
        }
        None => {
            let refusal = "it is not the URL of a pull request".to_owned();
            (Ok(Ok(Err(refusal))), None)
        }
    };
    let confirmed = match looked_up {
        Ok(Ok(confirmed)) => confirmed,
        // After permanent errors for this long, the lookup is abandoned, as for runs without a
        // report.
        Ok(Err(error))
            if error.is_permanent()
                && app.core.now().since(held.since) >= limits::OUTCOME_LOOKUP_TIMEOUT =>
        {
            Err(format!("it could not be looked up: {error}"))
        }
        unanswered => {
            let error = match unanswered {
                Ok(Err(error)) => error.to_string(),
                _ => "no response in time".to_owned(),
            };
            tracing::warn!(job_id = %job.id, issue = %job.issue.key, team = %job.team, error, "Failed to look up the reported pull request; retrying.");
            let warning = "prUrl is not confirmed yet: the repository host did not respond";
            return Ok(vec![warning.to_owned()]);
        }
    };
    let pull = confirmed.as_ref().ok();
    let pull = pull.map(|pull| PullRequestId::new(&job.repo, pull.number));
    if let Some(pull) = &pull {
        changed_files::store_looked_up(app, pull.clone(), files).await?;
    }
    let (report, warnings) = with_confirmed_pull(&held.report, confirmed);
    run_monitor::apply_event(&app.core, job, JobEvent::ResultReported { report }).await?;
    // Until now events about it were those of a foreign pull request.
    if let Some(pull) = pull {
        app.live.reconciliation.note_changed(vec![pull]);
        app.live.notifiers.follow_up.notify_one();
    }
    Ok(warnings)
}

/// Result with the confirmed URL or without any, and the warnings for the run.
fn with_confirmed_pull(
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

/// Looks up the pull request. Returns the reason if it is not the job's.
async fn look_up(
    vendors: &Vendors,
    job: &Job,
    claimed: &PullRequestRef,
) -> Result<Result<PullRequestRef, String>, VendorError> {
    let page = vendors.pull_url(&job.repo, claimed.number);
    let Some(github) = &vendors.github else {
        // Without GitHub only the URL can be checked.
        return Ok(match claimed.matches_url(&page) {
            true => Ok(claimed.clone()),
            false => Err(format!("its URL is not {page}")),
        });
    };
    match github.pull(&job.repo, claimed.number).await {
        Ok(pull) => Ok(verify(job, claimed, pull, &page)),
        Err(error) if error.is_not_found() => Ok(Err(format!(
            "{} has no pull request #{}",
            job.repo, claimed.number
        ))),
        Err(error) => Err(error),
    }
}

fn verify(
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
            "{name} has the branch {}, not {}",
            pull.head_branch, job.branch
        ));
    }
    // A renamed repository serves its pull requests under its new name.
    if !claimed.matches_url(&pull.url) && !claimed.matches_url(page) {
        return Err(format!("its URL is not {}", pull.url));
    }
    let PullRequest { number, url, .. } = pull;
    Ok(PullRequestRef { number, url })
}
