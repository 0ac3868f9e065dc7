//! Pull requests: read, list, open and update.

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::http::{Method, VendorError, percent_encode};
use domain::ids::Repo;
use domain::time::Timestamp;

use super::GitHub;

/// State of a pull request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PullRequestState {
    /// Open.
    Open,
    /// Closed without a merge.
    Closed,
    /// Merged.
    Merged,
}

/// Pull request of the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PullRequest {
    /// Number in the repository.
    pub number: u64,
    /// Web address.
    pub url: String,
    /// Whether the pull request is a draft.
    pub draft: bool,
    /// Title.
    pub title: String,
    /// Description, in Markdown.
    pub body: String,
    /// Id in the GraphQL API.
    pub node_id: String,
    /// Branch with the change.
    pub head_branch: String,
    /// Whether the head branch is in the repository itself, not in a fork.
    pub is_from_own_repo: bool,
    /// Id of the head commit.
    pub head_sha: String,
    /// Target branch.
    pub base_branch: String,
    /// State.
    pub state: PullRequestState,
    /// Id of the merge commit, once merged.
    pub merge_sha: Option<String>,
}

/// Pull request to open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewPullRequest {
    /// Title.
    pub title: String,
    /// Description, in Markdown.
    pub body: String,
    /// Branch with the change, in the same repository.
    pub head: String,
    /// Target branch.
    pub base: String,
    /// Whether to open the pull request as a draft.
    pub draft: bool,
}

impl GitHub {
    /// Returns one pull request.
    ///
    /// # Errors
    /// `is_not_found()` if no pull request has this number.
    pub async fn pull(&self, repo: &Repo, number: u64) -> Result<PullRequest, VendorError> {
        let url = self.repo_url(repo, &format!("/pulls/{number}"));
        let page = self
            .read::<WirePull>(repo, "reading the pull request", url)
            .await?;
        Ok(page.value.translate())
    }

    /// Returns the newest open pull request of a branch of this repository.
    ///
    /// # Errors
    /// Fails if a page cannot be read.
    pub async fn find_open_pull(
        &self,
        repo: &Repo,
        branch: &str,
    ) -> Result<Option<PullRequest>, VendorError> {
        let pulls = self.list_pulls(repo, branch, "open").await?;
        Ok(pulls.into_iter().next())
    }

    /// Lists all pull requests of a branch of this repository, newest first.
    ///
    /// # Errors
    /// Fails if a page cannot be read.
    pub async fn pulls_of_branch(
        &self,
        repo: &Repo,
        branch: &str,
    ) -> Result<Vec<PullRequest>, VendorError> {
        self.list_pulls(repo, branch, "all").await
    }

    /// Opens a pull request. If the branch has an open pull request already, returns that one unchanged.
    ///
    /// # Errors
    /// 422 if there are no commits between the branches.
    pub async fn create_pull(
        &self,
        repo: &Repo,
        new: &NewPullRequest,
    ) -> Result<PullRequest, VendorError> {
        let body = json!({
            "title": new.title,
            "body": new.body,
            "head": new.head,
            "base": new.base,
            "draft": new.draft,
        });
        let url = self.repo_url(repo, "/pulls");
        let created = self
            .send_json(repo, "opening the pull request", Method::POST, url, &body)
            .await;
        match created {
            Ok(response) => Ok(response.json::<WirePull>()?.translate()),
            Err(error) if error.status() == Some(422) => {
                self.find_open_pull(repo, &new.head).await?.ok_or(error)
            }
            Err(error) => Err(error),
        }
    }

    /// Replaces the title and the description of a pull request.
    ///
    /// # Errors
    /// `is_not_found()` if no pull request has this number.
    pub async fn update_pull(
        &self,
        repo: &Repo,
        number: u64,
        title: &str,
        body: &str,
    ) -> Result<PullRequest, VendorError> {
        let url = self.repo_url(repo, &format!("/pulls/{number}"));
        let body = json!({ "title": title, "body": body });
        let response = self
            .send_json(repo, "updating the pull request", Method::PATCH, url, &body)
            .await?;
        Ok(response.json::<WirePull>()?.translate())
    }

    /// Merges the base branch into the branch of a pull request, if its head is the expected one. The host answers
    /// before it has merged.
    ///
    /// # Errors
    /// 422 if the head has moved, if there is nothing to merge, or if the branches are in conflict.
    pub async fn update_branch(
        &self,
        repo: &Repo,
        number: u64,
        expected_head: &str,
    ) -> Result<(), VendorError> {
        let url = self.repo_url(repo, &format!("/pulls/{number}/update-branch"));
        let body = json!({ "expected_head_sha": expected_head });
        let action = "updating the branch of the pull request";
        self.send_json(repo, action, Method::PUT, url, &body)
            .await
            .map(drop)
    }

    /// Converts a pull request to a draft. Succeeds if it is a draft already.
    ///
    /// # Errors
    /// `is_not_found()` if no pull request has this node id.
    pub async fn set_draft(&self, repo: &Repo, node_id: &str) -> Result<(), VendorError> {
        const QUERY: &str = "mutation($id: ID!) { \
            convertPullRequestToDraft(input: {pullRequestId: $id}) { pullRequest { isDraft } } }";
        self.set_flag(
            repo,
            "converting the pull request to a draft",
            QUERY,
            node_id,
            Flag::Draft,
        )
        .await
    }

    /// Marks a draft as ready for review. Succeeds if it is ready already.
    ///
    /// # Errors
    /// `is_not_found()` if no pull request has this node id.
    pub async fn set_ready(&self, repo: &Repo, node_id: &str) -> Result<(), VendorError> {
        const QUERY: &str = "mutation($id: ID!) { \
            markPullRequestReadyForReview(input: {pullRequestId: $id}) { pullRequest { isDraft } } }";
        self.set_flag(
            repo,
            "marking the pull request ready",
            QUERY,
            node_id,
            Flag::Ready,
        )
        .await
    }

    async fn set_flag(
        &self,
        repo: &Repo,
        action: &'static str,
        mutation: &str,
        node_id: &str,
        flag: Flag,
    ) -> Result<(), VendorError> {
        let variables = json!({ "id": node_id });
        let rejection = match self
            .graphql::<serde_json::Value>(repo, action, mutation, &variables)
            .await
        {
            Ok(_) => return Ok(()),
            Err(error) => error,
        };
        if rejection.status().is_none() || rejection.is_not_found() {
            return Err(rejection);
        }
        // The host rejects a change that has no effect, and may fail after a change was applied.
        const QUERY: &str = "query($id: ID!) { node(id: $id) { ... on PullRequest { isDraft } } }";
        let current: serde_json::Value = self.graphql(repo, action, QUERY, &variables).await?;
        let wanted = matches!(flag, Flag::Draft);
        match current["node"]["isDraft"].as_bool() {
            Some(is_draft) if is_draft == wanted => Ok(()),
            _ => Err(rejection),
        }
    }

    async fn list_pulls(
        &self,
        repo: &Repo,
        branch: &str,
        state: &str,
    ) -> Result<Vec<PullRequest>, VendorError> {
        let head = percent_encode(&format!("{}:{branch}", repo.owner));
        let url = self.repo_url(
            repo,
            &format!("/pulls?state={state}&head={head}&sort=created&direction=desc&per_page=100"),
        );
        let mut pulls: Vec<PullRequest> = self
            .read_all(repo, "listing pull requests", url, |page: Vec<WirePull>| {
                page
            })
            .await?
            .into_iter()
            // A host that does not support the filter returns all pull requests.
            .filter(|pull| pull.head.branch == branch)
            .map(WirePull::translate)
            .collect();
        pulls.sort_by_key(|pull| std::cmp::Reverse(pull.number));
        Ok(pulls)
    }
}

#[derive(Clone, Copy)]
enum Flag {
    Draft,
    Ready,
}

#[derive(Serialize, Deserialize)]
struct WirePull {
    number: u64,
    html_url: String,
    #[serde(default)]
    draft: Option<bool>,
    title: String,
    body: Option<String>,
    node_id: String,
    head: Branch,
    base: Branch,
    state: String,
    #[serde(default)]
    merged_at: Option<Timestamp>,
    #[serde(default)]
    merge_commit_sha: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct Branch {
    #[serde(rename = "ref")]
    branch: String,
    sha: String,
    /// Repository of the branch. `None` if the fork was deleted.
    #[serde(default)]
    repo: Option<Named>,
}

#[derive(PartialEq, Serialize, Deserialize)]
struct Named {
    full_name: String,
}

impl WirePull {
    fn translate(self) -> PullRequest {
        let state = match (self.state.as_str(), self.merged_at) {
            ("open", _) => PullRequestState::Open,
            (_, Some(_)) => PullRequestState::Merged,
            (_, None) => PullRequestState::Closed,
        };
        PullRequest {
            number: self.number,
            url: self.html_url,
            draft: self.draft.unwrap_or_default(),
            title: self.title,
            body: self.body.unwrap_or_default(),
            node_id: self.node_id,
            is_from_own_repo: self.head.repo == self.base.repo,
            head_branch: self.head.branch,
            head_sha: self.head.sha,
            base_branch: self.base.branch,
            state,
            // Before the merge this field holds a test merge commit.
            merge_sha: self
                .merge_commit_sha
                .filter(|_| state == PullRequestState::Merged),
        }
    }
}
