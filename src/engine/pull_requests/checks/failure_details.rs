//! What GitHub knows about failing checks: logs of workflow jobs, and outputs of other Apps.

use domain::feedback::PullRequestId;
use domain::red_checks::{ActionsJob, FailedCheck, HeadCheck};
use domain::time::Timestamp;
use vendors::scm::{GitHub, LOG_WRITE_DELAY};

use crate::app::App;

/// Maximum number of job logs that are read.
const MAX_LOGS: usize = 10;

/// Reads the details of failing checks. Secrets are redacted.
pub(super) async fn read(
    app: &App,
    github: &GitHub,
    pull: &PullRequestId,
    failing: &[HeadCheck],
    now: Timestamp,
) -> Result<Vec<FailedCheck>, String> {
    let mut failures = Vec::new();
    for (at, check) in failing.iter().enumerate() {
        let log = match check.job.filter(|_| at < MAX_LOGS) {
            Some(job) => read_log(github, pull, job, now).await?,
            None => None,
        };
        let redact = |text: &str| app.secrets.redactor.sanitize(text);
        failures.push(FailedCheck {
            name: redact(&check.name),
            url: check.url.as_deref().map(redact),
            title: redact(&check.title),
            summary: redact(&check.summary),
            log,
        });
    }
    Ok(failures)
}

/// Reads the end of a job's log. `None` if it has none.
async fn read_log(
    github: &GitHub,
    pull: &PullRequestId,
    job: ActionsJob,
    now: Timestamp,
) -> Result<Option<String>, String> {
    let log = github.job_log_tail(&pull.repo, job.id).await;
    let log = log.map_err(|error| error.to_string())?;
    let is_new = |at: Timestamp| now.since(at) < LOG_WRITE_DELAY;
    match log {
        None if job.ended_at.is_some_and(is_new) => Err("the log is not written yet".to_owned()),
        log => Ok(log),
    }
}
