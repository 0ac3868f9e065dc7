//! Whether a repository can hold tickets.

use serde::Deserialize;
use serde_json::json;

use super::GitHubIssues;
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
