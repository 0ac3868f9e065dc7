//! The end of a workflow run's log, for people to read.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::http::{Request, VendorError, VendorErrorKind, run_blocking_if_large};
use domain::ids::Repo;
use domain::time::Timestamp;

use super::GitHub;
use super::workflow_runs::COMPLETED;

/// How much of a failed job's log do we show?
const EXCERPT_LINES: usize = 60;
const EXCERPT_BYTES: usize = 6_000;

/// How long after its job's end may a log take to be written? It is not found before.
const LOG_WRITTEN_WITHIN: Duration = Duration::from_secs(30);

/// How long is a log asked for before its run is told of without it?
pub const LOG_READ_TIMEOUT: Duration = Duration::from_secs(10 * 60);

/// What a run's log has to say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkflowRunLog {
    /// The run is still at it, or its log is not written yet; ask again.
    NotReady,
    /// No job ever began.
    Empty,
    Excerpt(String),
}

/// A log that is too long stays so.
fn is_passing(error: &VendorError) -> bool {
    !error.is_permanent() && !matches!(error.kind, VendorErrorKind::Decode(_))
}

impl GitHub {
    /// Where the first failed job of a run failed, or that its last job ended, and the end of that
    /// job's log, redacted. A log that cannot be had leaves the first line alone.
    ///
    /// `waited` is for how long it has been asked for in vain.
    ///
    /// # Errors
    /// What reading the jobs failed with, or the log, when a later try may do better.
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
        let url = self.repo_url(repo, &format!("/actions/jobs/{}/logs", job.id));
        let request = Request::get("reading the job's log", url).redirect_without_authorization();
        let log = self.send(repo, request).await;
        Ok(WorkflowRunLog::Excerpt(match log {
            Ok(log) => {
                let end = run_blocking_if_large(log.body().len(), move || tail(&log.text())).await;
                format!("{}\n\n{end}", job.headline())
            }
            Err(error) if error.status() == Some(404) && waited < LOG_WRITTEN_WITHIN => {
                return Ok(WorkflowRunLog::NotReady);
            }
            Err(error) if is_passing(&error) && waited < LOG_READ_TIMEOUT => return Err(error),
            Err(error) => format!("{} ({error})", job.headline()),
        }))
    }
}

/// The last lines, without the host's time stamps and colours, and without the groups in which it
/// repeats each step's script and variables.
fn tail(log: &str) -> String {
    let mut grouped = false;
    let mut lines: Vec<String> = log.lines().map(plain).collect();
    lines.retain(|line| {
        grouped = (grouped || line.starts_with("##[group]")) && !line.starts_with("##[endgroup]");
        !grouped && !line.starts_with("##[endgroup]")
    });
    let mut bytes = 0;
    let mut kept: Vec<String> = lines
        .into_iter()
        .rev()
        .take(EXCERPT_LINES)
        .take_while(|line| {
            bytes += line.len() + 1;
            bytes <= EXCERPT_BYTES
        })
        .collect();
    kept.reverse();
    kept.join("\n")
}

fn plain(line: &str) -> String {
    let line = match line.split_once(' ') {
        Some((stamp, rest)) if Timestamp::parse(stamp).is_some() => rest,
        _ => line,
    };
    let mut plain = String::with_capacity(line.len());
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        if c == '\u{1b}' {
            // A colour: everything up to its closing letter.
            chars.by_ref().find(char::is_ascii_alphabetic);
        } else if !c.is_control() || c == '\t' {
            plain.push(c);
        }
    }
    plain.truncate(plain.floor_char_boundary(1000));
    plain
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
    fn an_excerpt_is_the_plain_end_of_the_log() {
        let mut log = String::new();
        for number in 0..500 {
            log += &format!("2026-11-21T01:00:00.1234567Z \u{1b}[31mline {number}\u{1b}[0m\n");
        }
        let excerpt = tail(&log);
        assert_eq!(excerpt.lines().count(), EXCERPT_LINES);
        assert!(excerpt.starts_with("line 440\n") && excerpt.ends_with("line 499"));
        assert!(tail(&"x".repeat(100_000)).len() <= 1000);
        let grouped = "1\n##[group]Run it\nenv:\n##[endgroup]\n2\n##[group]open\n3";
        assert_eq!(tail(grouped), "1\n2");
    }
}
