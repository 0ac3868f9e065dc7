//! Evaluation of external reviewers: check runs, reviews and review threads of a commit. Sends no
//! requests.
//!
//! Everything but a clear approval by the right App is a finding: a missing or unfinished reviewer,
//! or an unusual conclusion. A managed review of Claude Code always concludes `neutral` and reports
//! severities in a marker; other text is not evaluated.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use crate::blocking_finding::BlockingFinding;
use crate::repo_config::{ExternalReviewConfig, ReviewCheck};
use domain::external_reviewers::CLAUDE_APP;
use domain::feedback::is_marked_blocking;
use vendors::scm::{CheckRun, PullRequestReview, ReviewThread};

/// Check run of the managed review of Claude Code.
const CLAUDE_CHECK: &str = "Claude Code Review";

/// Marker before the severity counts in the last line of the check run's text.
const SEVERITY_MARKER: &str = "<!-- bughunter-severity:";

/// External reviewer that a run waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ExternalReviewer {
    /// Reviewer that reports a check run or commit status.
    Check(ReviewCheck),
    /// Managed review of Claude Code.
    ClaudeCodeReview,
}

/// Returns every reviewer to wait for.
pub(super) fn expected_reviewers(reviewers: &ExternalReviewConfig) -> Vec<ExternalReviewer> {
    let checks = reviewers
        .checks
        .iter()
        .cloned()
        .map(ExternalReviewer::Check);
    let claude = reviewers
        .claude_code_review
        .then_some(ExternalReviewer::ClaudeCodeReview);
    checks.chain(claude).collect()
}

impl ExternalReviewer {
    /// Returns the name of the reviewer's check run.
    pub(super) fn name(&self) -> &str {
        match self {
            ExternalReviewer::Check(check) => &check.name,
            ExternalReviewer::ClaudeCodeReview => CLAUDE_CHECK,
        }
    }

    /// Whether a check run is by this reviewer: name and App match.
    fn is_reported_by(&self, run: &CheckRun) -> bool {
        run.name == self.name()
            && match self {
                ExternalReviewer::Check(check) => check.accepts_app(&run.app_slug),
                ExternalReviewer::ClaudeCodeReview => run.app_slug == CLAUDE_APP,
            }
    }

    /// Evaluates the reviewer's check runs on the commit.
    fn evaluate(&self, runs: &[CheckRun]) -> Vec<BlockingFinding> {
        let own: Vec<&CheckRun> = runs.iter().filter(|run| self.is_reported_by(run)).collect();
        if own.is_empty() {
            let others = runs.iter().filter(|run| run.name == self.name());
            let others: Vec<&str> = others.map(|run| run.app_slug.as_str()).collect();
            let problem = match others[..] {
                [] => "it reported no check run for this commit in time".to_owned(),
                _ => format!(
                    "the check run of this name was reported by {}, which is not accepted",
                    others.join(", ")
                ),
            };
            let title = format!("{} did not review", self.name());
            return vec![BlockingFinding::unfixable(&title, &problem)];
        }
        own.into_iter()
            .filter_map(|run| self.evaluate_run(run))
            .collect()
    }

    fn evaluate_run(&self, run: &CheckRun) -> Option<BlockingFinding> {
        let name = self.name();
        match (self, run.conclusion.as_deref()) {
            (_, None) => Some(BlockingFinding::unfixable(
                &format!("{name} did not finish"),
                "it was still running when the wait timed out",
            )),
            (ExternalReviewer::Check(_), Some("success" | "neutral")) => None,
            (ExternalReviewer::Check(_), Some("failure")) => {
                let output = [&run.title, &run.summary, &run.text].map(|text| text.trim());
                let output: Vec<&str> =
                    output.into_iter().filter(|text| !text.is_empty()).collect();
                let problem = match output[..] {
                    [] => "it gave no details".to_owned(),
                    _ => output.join("\n"),
                };
                Some(BlockingFinding::fixable(
                    &format!("{name} failed"),
                    "",
                    &problem,
                ))
            }
            (ExternalReviewer::ClaudeCodeReview, Some("success" | "neutral")) => {
                evaluate_severity(run)
            }
            (_, Some(other)) => Some(BlockingFinding::unfixable(
                &format!("{name} gave no result"),
                &format!("its conclusion is {other}"),
            )),
        }
    }
}

/// Severity counts of a managed review.
#[derive(Deserialize)]
struct Severity {
    /// Number of findings that must be fixed.
    normal: u64,
}

fn evaluate_severity(run: &CheckRun) -> Option<BlockingFinding> {
    let severity = run.text.rsplit_once(SEVERITY_MARKER).and_then(|(_, rest)| {
        let (numbers, _) = rest.split_once("-->")?;
        serde_json::from_str(numbers.trim()).ok()
    });
    match severity {
        Some(Severity { normal: 0 }) => None,
        Some(Severity { normal }) => {
            let title = format!("{CLAUDE_CHECK} found {normal} important issue(s)");
            let (text, _) = run.text.rsplit_once(SEVERITY_MARKER).unwrap_or_default();
            Some(BlockingFinding::fixable(
                &title,
                "",
                &format!("{}\n{text}", run.summary),
            ))
        }
        None => Some(BlockingFinding::unfixable(
            &format!("{CLAUDE_CHECK} could not be read"),
            "its check run has no severity marker",
        )),
    }
}

/// Whether a reviewer has not reported, or has not finished.
pub(super) fn is_pending(reviewers: &[ExternalReviewer], runs: &[CheckRun]) -> bool {
    reviewers.iter().any(|reviewer| {
        let mut own = runs
            .iter()
            .filter(|run| reviewer.is_reported_by(run))
            .peekable();
        own.peek().is_none() || own.any(|run| run.conclusion.is_none())
    })
}

/// Returns the findings of all reviewers about a commit.
pub(super) fn evaluate(
    reviewers: &[ExternalReviewer],
    commit: &str,
    runs: &[CheckRun],
    reviews: &[PullRequestReview],
    threads: &[ReviewThread],
) -> Vec<BlockingFinding> {
    let apps = reporting_apps(reviewers, runs);
    let thread_findings = evaluate_threads(&apps, threads);
    let has_claude_thread = threads.iter().any(|thread| {
        thread.app_slug.as_deref() == Some(CLAUDE_APP) && is_blocking_thread(&apps, thread)
    });
    let mut findings = Vec::new();
    for reviewer in reviewers {
        let mut own = reviewer.evaluate(runs);
        if *reviewer == ExternalReviewer::ClaudeCodeReview && has_claude_thread {
            // Its review threads hold the details; the count would repeat them.
            own.retain(|finding| !finding.is_fixable());
        }
        findings.extend(own);
    }
    findings.extend(evaluate_reviews(&apps, commit, reviews));
    findings.extend(thread_findings);
    findings
}

/// Returns the Apps whose reviews and threads are accepted: those that report accepted check runs.
fn reporting_apps(reviewers: &[ExternalReviewer], runs: &[CheckRun]) -> BTreeSet<String> {
    let accepted = runs.iter().filter(|run| {
        reviewers
            .iter()
            .any(|reviewer| reviewer.is_reported_by(run))
    });
    accepted.map(|run| run.app_slug.clone()).collect()
}

/// Returns a finding for each App whose last review of this commit requests changes. Comments do
/// not replace an earlier review; dismissed reviews do not count.
fn evaluate_reviews(
    apps: &BTreeSet<String>,
    commit: &str,
    reviews: &[PullRequestReview],
) -> Vec<BlockingFinding> {
    let mut latest: BTreeMap<&str, &PullRequestReview> = BTreeMap::new();
    for review in reviews {
        let decisive_states = ["APPROVED", "CHANGES_REQUESTED", "DISMISSED"];
        if let Some(app) = review.app_slug.as_deref().filter(|app| apps.contains(*app))
            && decisive_states.contains(&review.state.as_str())
        {
            latest.insert(app, review);
        }
    }
    latest
        .into_iter()
        .filter(|(_, review)| review.state == "CHANGES_REQUESTED" && review.commit == commit)
        .map(|(app, review)| {
            BlockingFinding::fixable(&format!("{app} requests changes"), "", &review.body)
        })
        .collect()
}

fn evaluate_threads(apps: &BTreeSet<String>, threads: &[ReviewThread]) -> Vec<BlockingFinding> {
    let blocking = threads
        .iter()
        .filter(|thread| is_blocking_thread(apps, thread));
    blocking
        .map(|thread| {
            let app = thread.app_slug.as_deref().unwrap_or_default();
            let line = thread.line.map(|line| format!(":{line}"));
            let location = format!("{}{}", thread.path, line.unwrap_or_default());
            let title = format!("Review comment by {app}");
            BlockingFinding::fixable(&title, &location, &thread.body)
        })
        .collect()
}

/// Whether a thread blocks: open, marked as blocking, by an accepted App, and at a line that did
/// not change since.
fn is_blocking_thread(apps: &BTreeSet<String>, thread: &ReviewThread) -> bool {
    !thread.is_resolved
        && !thread.is_outdated
        && thread
            .app_slug
            .as_ref()
            .is_some_and(|app| apps.contains(app))
        && is_marked_blocking(&thread.body)
}
