//! Whether a repository can hold tickets, and has a label that a mapping matches.

use serde::Deserialize;
use serde_json::json;

use super::{GitHubIssues, Label};
use crate::http::VendorError;
use domain::ids::Repo;

/// Issue tracker of a repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IssueTracker {
    /// Issues are turned on.
    Enabled,
    /// Issues are turned off in the settings of the repository.
    Disabled,
    /// The repository does not exist or is not visible to the credentials.
    Invisible,
}

impl GitHubIssues {
    /// Reads the issue tracker of a repository.
    ///
    /// # Errors
    /// Fails if GitHub rejects the request or does not respond.
    pub async fn issue_tracker(&self, repo: &Repo) -> Result<IssueTracker, VendorError> {
        const QUERY: &str = "query($owner: String!, $name: String!) { \
            repository(owner: $owner, name: $name) { hasIssuesEnabled } }";
        let variables = json!({"owner": repo.owner, "name": repo.name});
        let read = self
            .github
            .graphql::<Data>(repo, "reading the issue tracker", QUERY, &variables)
            .await;
        match read {
            Ok(data) if data.repository.has_issues_enabled => Ok(IssueTracker::Enabled),
            Ok(_) => Ok(IssueTracker::Disabled),
            Err(error) if error.is_not_found() => Ok(IssueTracker::Invisible),
            Err(error) => Err(error),
        }
    }

    /// Returns whether a repository has a label of this name. GitHub ignores case.
    ///
    /// # Errors
    /// `is_not_found()` if the repository is not visible to the credentials.
    pub async fn has_label(&self, repo: &Repo, label: &str) -> Result<bool, VendorError> {
        const QUERY: &str = "query($owner: String!, $name: String!, $label: String!) { \
            repository(owner: $owner, name: $name) { label(name: $label) { name } } }";
        let variables = json!({"owner": repo.owner, "name": repo.name, "label": label});
        let read = self
            .github
            .graphql::<LabelData>(repo, "reading a label", QUERY, &variables)
            .await?;
        Ok(read.repository.label.is_some())
    }
}

#[derive(Deserialize)]
struct LabelData {
    repository: LabelledRepository,
}

#[derive(Deserialize)]
struct LabelledRepository {
    label: Option<Label>,
}

#[derive(Deserialize)]
struct Data {
    repository: Repository,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Repository {
    has_issues_enabled: bool,
}
