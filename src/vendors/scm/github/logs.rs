//! Log excerpt of a workflow run.

use std::borrow::Cow;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::http::{Request, Response, VendorError, VendorErrorKind, run_blocking_if_large};
use domain::ids::Repo;
use domain::red_checks::MAX_LOG_BYTES as MAX_FAILURE_LOG;
use domain::sanitize::{log_line, log_tail};
use domain::time::Timestamp;

use super::GitHub;
use super::workflow_runs::COMPLETED;

/// Maximum time between the end of a job and the availability of its log. Until then the host returns 404.
pub const LOG_WRITE_DELAY: Duration = Duration::from_secs(30);

/// Maximum time for which reading a log is retried. After it the run is reported without the log.
pub const LOG_READ_TIMEOUT: Duration = Duration::from_secs(10 * 60);

/// Log excerpt of a workflow run, or its absence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkflowRunLog {
    /// The run has not ended, or the host has not written the log yet. Retry later.
    NotReady,
    /// No job was started.
    Empty,
    /// Headline and last lines of the log.
    Excerpt(String),
}

/// Returns whether a retry can succeed. A log that is too large (a decode error) stays too large.
fn is_transient(error: &VendorError) -> bool {
    !error.is_permanent() && !matches!(error.kind, VendorErrorKind::Decode(_))
}

impl GitHub {
    /// Returns the redacted end of a job's log, at most 32 KiB. `None` if there is no log, or if it is too large.
    ///
    /// # Errors
    /// Fails if the log cannot be read now.
    pub async fn job_log_tail(
        &self,
        repo: &Repo,
        job_id: u64,
    ) -> Result<Option<String>, VendorError> {
        match self.job_log(repo, job_id).await {
            Ok(log) => {
                let size = log.body().len();
                let tail = run_blocking_if_large(size, move || {
                    let text = String::from_utf8_lossy(log.body());
                    log.sanitized_with(&text, |text| Cow::Owned(long_tail(text)))
                });
                Ok(Some(tail.await))
            }
            Err(error) if !is_transient(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn job_log(&self, repo: &Repo, job_id: u64) -> Result<Response, VendorError> {
        let url = self.repo_url(repo, &format!("/actions/jobs/{job_id}/logs"));
        let request = Request::get("reading the job's log", url).redirect_without_authorization();
        self.send(repo, request).await
    }

    /// Returns an excerpt of a run's log: a headline with the first failed job and step, or with the last job
    /// if none failed, and the redacted last lines of that job's log. If the log cannot be read, the excerpt
    /// has only the headline with the error.
    ///
    /// `waited` is the time since the first attempt.
    ///
    /// # Errors
    /// Fails if the list of jobs cannot be read, or if the log cannot be read and a retry may succeed.
    pub async fn log_excerpt(
        &self,
        repo: &Repo,
        run_id: u64,
        waited: Duration,
    ) -> Result<WorkflowRunLog, VendorError> {
        let url = self.repo_url(
            repo,
            &format!("/actions/runs/{run_id}/jobs?filter=latest&per_page=100"),
        );
        let jobs = self
            .read_all(repo, "listing the run's jobs", url, |page: JobPage| {
                page.jobs
            })
            .await?;
        if !jobs.iter().all(Job::is_completed) {
            return Ok(WorkflowRunLog::NotReady);
        }
        let failed = jobs.iter().find(|job| job.has_failed());
        let Some(job) = failed.or(jobs.last()) else {
            return Ok(WorkflowRunLog::Empty);
        };
        let log = self.job_log(repo, job.id).await;
        Ok(WorkflowRunLog::Excerpt(match log {
            Ok(log) => {
                let end = run_blocking_if_large(log.body().len(), move || {
                    let text = String::from_utf8_lossy(log.body());
                    log.sanitized_with(&text, |text| Cow::Owned(tail(text)))
                });
                let end = end.await;
                format!("{}\n\n{end}", job.headline())
            }
            Err(error) if error.status() == Some(404) && waited < LOG_WRITE_DELAY => {
                return Ok(WorkflowRunLog::NotReady);
            }
            Err(error) if is_transient(&error) && waited < LOG_READ_TIMEOUT => return Err(error),
            Err(error) => format!("{} ({error})", job.headline()),
        }))
    }
}

/// Returns the last lines without timestamps, and without the groups that repeat each step's script and
/// variables.
fn tail(log: &str) -> String {
    log_tail(own_lines(log).into_iter())
}

/// Returns the lines that the steps of a job printed.
fn own_lines(log: &str) -> Vec<&str> {
    let mut grouped = false;
    let mut lines: Vec<&str> = log.lines().map(without_timestamp).collect();
    lines.retain(|line| {
        grouped = (grouped || line.starts_with("##[group]")) && !line.starts_with("##[endgroup]");
        !grouped && !line.starts_with("##[endgroup]")
    });
    lines
}

/// Like [`tail`], of a log for a run that repairs the failure.
fn long_tail(log: &str) -> String {
    let (mut bytes, mut kept) = (0, Vec::new());
    for line in own_lines(log).into_iter().rev().map(log_line) {
        bytes += line.len() + 1;
        if bytes > MAX_FAILURE_LOG {
            break;
        }
        kept.push(line);
    }
    kept.reverse();
    kept.join("\n")
}

fn without_timestamp(line: &str) -> &str {
    match line.split_once(' ') {
        Some((timestamp, rest)) if Timestamp::parse(timestamp).is_some() => rest,
        _ => line,
    }
}

#[derive(Serialize, Deserialize)]
struct JobPage {
    jobs: Vec<Job>,
}

#[derive(Serialize, Deserialize)]
struct Job {
    id: u64,
    name: String,
    status: String,
    conclusion: Option<String>,
    #[serde(default)]
    steps: Vec<JobStep>,
}

#[derive(Serialize, Deserialize)]
struct JobStep {
    name: String,
    conclusion: Option<String>,
}

impl Job {
    fn is_completed(&self) -> bool {
        self.status == COMPLETED
    }

    fn has_failed(&self) -> bool {
        is_failure(self.conclusion.as_deref())
    }

    fn headline(&self) -> String {
        let step = self
            .steps
            .iter()
            .find(|step| is_failure(step.conclusion.as_deref()));
        match step {
            Some(step) => format!("{} failed in step {}", self.name, step.name),
            None if self.has_failed() => format!("{} failed", self.name),
            None => format!("{} ended", self.name),
        }
    }
}

fn is_failure(conclusion: Option<&str>) -> bool {
    matches!(
        conclusion,
        Some("failure" | "timed_out" | "cancelled" | "startup_failure")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn returns_the_plain_end_of_the_log() {
        let mut log = String::new();
        for number in 0..500 {
            log += &format!("2026-11-21T01:00:00.1234567Z \u{1b}[31mline {number}\u{1b}[0m\n");
        }
        let excerpt = tail(&log);
        assert_eq!(excerpt.lines().count(), 60);
        assert!(excerpt.starts_with("line 440\n") && excerpt.ends_with("line 499"));
        assert!(tail(&"x".repeat(100_000)).len() <= 1000);
        let grouped = "1\n##[group]Run it\nenv:\n##[endgroup]\n2\n##[group]open\n3";
        assert_eq!(tail(grouped), "1\n2");
    }
}
