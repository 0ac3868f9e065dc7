//! Check runs: what Apps say about a commit.

use serde::{Deserialize, Serialize};

use crate::domain::ids::Repo;
use crate::wire::VendorError;

use super::GitHub;

/// What an App says about a commit. Its name is no proof of who says it: any App, and any job of a
/// workflow, may take any name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckRun {
    pub name: String,
    /// The App's name in addresses; jobs of workflows are `github-actions`.
    pub app: String,
    /// The host's word; none while it has not ended.
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
            app: self.app.and_then(|app| app.slug).unwrap_or_default(),
            conclusion: self.conclusion.filter(|_| is_over),
            title: self.output.title.unwrap_or_default(),
            summary: self.output.summary.unwrap_or_default(),
            text: self.output.text.unwrap_or_default(),
        }
    }
}
