//! Results of Apps on a commit: check runs and the older commit statuses.

use serde::{Deserialize, Serialize};

use crate::http::VendorError;
use domain::ids::Repo;
use domain::time::Timestamp;

use super::GitHub;
use super::reviews::User;

/// Result of an App on a commit. The name does not prove the origin: any App and any workflow job can use
/// any name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckRun {
    /// Id.
    pub id: u64,
    /// Name of the check run, or context of the commit status.
    pub name: String,
    /// Slug of the App. `github-actions` for workflow jobs. Empty if a person created the status.
    pub app_slug: String,
    /// Conclusion of the check run, or `success` or `failure` of a commit status. `None` until completed.
    pub conclusion: Option<String>,
    /// Title of the output, or description of the commit status.
    pub title: String,
    /// Summary of the output, in Markdown.
    pub summary: String,
    /// Details of the output, in Markdown.
    pub text: String,
    /// Address of the details, as its author gave it.
    pub details_url: Option<String>,
    /// Id of the check suite. `None` for commit statuses.
    pub suite: Option<u64>,
    /// Time of the end. `None` until completed, and for commit statuses.
    pub completed_at: Option<Timestamp>,
}

impl GitHub {
    /// Lists the latest check run of each App and name on a commit.
    ///
    /// # Errors
    /// Fails if a page cannot be read.
    pub async fn check_runs(&self, repo: &Repo, sha: &str) -> Result<Vec<CheckRun>, VendorError> {
        let url = self.repo_url(
            repo,
            &format!("/commits/{sha}/check-runs?filter=latest&per_page=100"),
        );
        let runs = self
            .read_all(repo, "listing check runs", url, |page: Page| {
                page.check_runs
            })
            .await?;
        Ok(runs.into_iter().map(WireCheckRun::translate).collect())
    }

    /// Lists the latest commit status of each App and context on a commit, converted to check runs.
    ///
    /// # Errors
    /// Fails if a page cannot be read.
    pub async fn commit_statuses(
        &self,
        repo: &Repo,
        sha: &str,
    ) -> Result<Vec<CheckRun>, VendorError> {
        let url = self.repo_url(repo, &format!("/commits/{sha}/statuses?per_page=100"));
        let statuses = self
            .read_all(
                repo,
                "listing commit statuses",
                url,
                |page: Vec<WireStatus>| page,
            )
            .await?;
        let mut latest: Vec<CheckRun> = Vec::new();
        // The host lists the newest first.
        for status in statuses.into_iter().map(WireStatus::translate) {
            let is_same_check =
                |run: &CheckRun| (&run.name, &run.app_slug) == (&status.name, &status.app_slug);
            if !latest.iter().any(is_same_check) {
                latest.push(status);
            }
        }
        Ok(latest)
    }
}

#[derive(Serialize, Deserialize)]
struct Page {
    check_runs: Vec<WireCheckRun>,
}

#[derive(Serialize, Deserialize)]
struct WireCheckRun {
    #[serde(default)]
    id: u64,
    name: String,
    status: String,
    conclusion: Option<String>,
    #[serde(default)]
    app: Option<App>,
    #[serde(default)]
    output: Output,
    #[serde(default)]
    details_url: Option<String>,
    #[serde(default)]
    check_suite: Option<Suite>,
    #[serde(default)]
    completed_at: Option<Timestamp>,
}

#[derive(Serialize, Deserialize)]
struct Suite {
    id: u64,
}

#[derive(Serialize, Deserialize)]
struct App {
    #[serde(default)]
    slug: Option<String>,
}

#[derive(Serialize, Deserialize, Default)]
struct Output {
    title: Option<String>,
    summary: Option<String>,
    text: Option<String>,
}

impl WireCheckRun {
    fn translate(self) -> CheckRun {
        let is_completed = self.status == "completed";
        CheckRun {
            id: self.id,
            name: self.name,
            app_slug: self.app.and_then(|app| app.slug).unwrap_or_default(),
            conclusion: self.conclusion.filter(|_| is_completed),
            title: self.output.title.unwrap_or_default(),
            summary: self.output.summary.unwrap_or_default(),
            text: self.output.text.unwrap_or_default(),
            details_url: self.details_url,
            suite: self.check_suite.map(|suite| suite.id),
            completed_at: self.completed_at,
        }
    }
}

#[derive(Serialize, Deserialize)]
struct WireStatus {
    #[serde(default)]
    id: u64,
    context: String,
    state: String,
    #[serde(default)]
    description: Option<String>,
    #[serde(default)]
    target_url: Option<String>,
    #[serde(default)]
    creator: Option<User>,
}

impl WireStatus {
    fn translate(self) -> CheckRun {
        let conclusion = match self.state.as_str() {
            "pending" => None,
            "error" => Some("failure".to_owned()),
            _ => Some(self.state),
        };
        CheckRun {
            id: self.id,
            name: self.context,
            app_slug: self
                .creator
                .as_ref()
                .and_then(User::app_slug)
                .unwrap_or_default(),
            conclusion,
            title: self.description.unwrap_or_default(),
            summary: String::new(),
            text: String::new(),
            details_url: self.target_url,
            suite: None,
            completed_at: None,
        }
    }
}
