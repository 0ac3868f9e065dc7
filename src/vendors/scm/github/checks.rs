//! What Apps say about a commit: as check runs, or as the older commit statuses.

use serde::{Deserialize, Serialize};

use crate::http::VendorError;
use domain::ids::Repo;

use super::GitHub;
use super::reviews::User;

/// What an App says about a commit. Its name is no proof of who says it: any App, and any job of a
/// workflow, may take any name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckRun {
    pub name: String,
    /// The App's name in addresses; jobs of workflows are `github-actions`. Empty when a person says
    /// it.
    pub app_slug: String,
    /// The host's word for a check run's end, `success` or `failure` of a commit status; none while
    /// it has not ended.
    pub conclusion: Option<String>,
    pub title: String,
    pub summary: String,
    pub text: String,
}

impl GitHub {
    /// The latest check run of each App and name on a commit.
    ///
    /// # Errors
    /// What the list failed with.
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

    /// The latest commit status of each App and context on a commit, as the check run that it
    /// stands for.
    ///
    /// # Errors
    /// What the list failed with.
    pub async fn commit_statuses(
        &self,
        repo: &Repo,
        sha: &str,
    ) -> Result<Vec<CheckRun>, VendorError> {
        let url = self.repo_url(repo, &format!("/commits/{sha}/statuses?per_page=100"));
        let listed = self
            .read_all(
                repo,
                "listing commit statuses",
                url,
                |page: Vec<WireStatus>| page,
            )
            .await?;
        let mut latest: Vec<CheckRun> = Vec::new();
        // The newest come first.
        for status in listed.into_iter().map(WireStatus::translate) {
            let is_told =
                |run: &CheckRun| (&run.name, &run.app_slug) == (&status.name, &status.app_slug);
            if !latest.iter().any(is_told) {
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
    name: String,
    status: String,
    conclusion: Option<String>,
    #[serde(default)]
    app: Option<App>,
    #[serde(default)]
    output: Output,
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
        let is_over = self.status == "completed";
        CheckRun {
            name: self.name,
            app_slug: self.app.and_then(|app| app.slug).unwrap_or_default(),
            conclusion: self.conclusion.filter(|_| is_over),
            title: self.output.title.unwrap_or_default(),
            summary: self.output.summary.unwrap_or_default(),
            text: self.output.text.unwrap_or_default(),
        }
    }
}

#[derive(Serialize, Deserialize)]
struct WireStatus {
    context: String,
    state: String,
    #[serde(default)]
    description: Option<String>,
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
        }
    }
}
