//! Checks of commits: workflow runs, and reports of another App.

use fake_vendors::{CheckKind, CheckReport, FakeRepo, RunSnapshot};

use super::event::CheckEnd;
use super::world::World;

/// File of the workflow that checks commits.
pub const WORKFLOW: &str = "ci.yml";

/// Failures of a check.
const FAILURES: [&str; 3] = [
    "the cart is empty",
    "the price is missing",
    "the sum is wrong",
];

impl World {
    /// Workflow runs that check a commit.
    pub fn checking_runs(&self, project: usize, sha: &str) -> Vec<RunSnapshot> {
        let mut runs = self.repo(project).runs();
        runs.retain(|run| {
            let known = self.checking.get(&(project, run.id));
            known.is_some_and(|(commit, _)| commit == sha)
        });
        runs
    }

    /// Ends the workflow run that checks a commit.
    pub fn end_check(&self, project: usize, sha: &str, end: CheckEnd) -> bool {
        let mut runs = self.checking_runs(project, sha).into_iter();
        let Some(run) = runs.find(|run| run.status != "completed") else {
            return false;
        };
        let repo = self.repo(project);
        let log = match end {
            CheckEnd::Red(failure) => FAILURES[failure],
            CheckEnd::Green | CheckEnd::Cancelled => "",
        };
        repo.write_job_log(run.id, log).unwrap();
        repo.complete_run(run.id, conclusion(end));
        true
    }

    /// Another App reports on a commit.
    pub fn report_check(&self, project: usize, sha: &str, end: CheckEnd) -> bool {
        let summary = match end {
            CheckEnd::Red(failure) => FAILURES[failure],
            CheckEnd::Green | CheckEnd::Cancelled => "",
        };
        let report = CheckReport {
            name: "quality",
            app: "quality-app",
            kind: CheckKind::CheckRun,
            conclusion: Some(conclusion(end)),
            summary,
            text: "",
            url: None,
        };
        self.repo(project).report_check(sha, report).unwrap();
        true
    }
}

fn conclusion(end: CheckEnd) -> &'static str {
    match end {
        CheckEnd::Green => "success",
        CheckEnd::Red(_) => "failure",
        CheckEnd::Cancelled => "cancelled",
    }
}

/// Whether no check of a commit has failed or runs.
pub fn is_green(repo: &FakeRepo, sha: &str) -> bool {
    let passed =
        |(_, conclusion): &(String, Option<String>)| conclusion.as_deref() == Some("success");
    repo.checks(sha).iter().all(passed)
}

/// Names of the failed checks of a commit whose checks have all ended.
pub fn failed_checks(repo: &FakeRepo, sha: &str) -> Vec<String> {
    let checks = repo.checks(sha);
    if checks.iter().any(|(_, conclusion)| conclusion.is_none()) {
        return Vec::new();
    }
    let failed = checks
        .into_iter()
        .filter(|(_, conclusion)| conclusion.as_deref() == Some("failure"));
    failed.map(|(name, _)| name).collect()
}
