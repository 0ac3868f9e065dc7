//! Pull requests.

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::http::{Method, VendorError, percent_encode};
use domain::ids::Repo;
use domain::time::Timestamp;

use super::GitHub;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PullRequestState {
    Open,
    /// Closed without being merged.
    Closed,
    Merged,
}

/// A pull request as the host sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PullRequest {
    pub number: u64,
    pub url: String,
    pub draft: bool,
    pub title: String,
    pub body: String,
    /// Its name in the GraphQL interface.
    pub node_id: String,
    pub head_branch: String,
    /// Whether its branch is in the repository itself, not in a fork.
    pub is_from_own_repo: bool,
    pub head_sha: String,
    pub base_branch: String,
    pub state: PullRequestState,
    /// The commit that merging made.
    pub merge_sha: Option<String>,
}

/// A pull request to open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewPullRequest {
    pub title: String,
    pub body: String,
    /// Branch with the change, in the same repository.
    pub head: String,
    /// Branch it goes to.
    pub base: String,
    pub draft: bool,
}

impl GitHub {
    /// One pull request.
    ///
    /// # Errors
    /// `is_not_found()` when there is none of this number.
    pub async fn pull(&self, repo: &Repo, number: u64) -> Result<PullRequest, VendorError> {
        let url = self.repo_url(repo, &format!("/pulls/{number}"));
        let page = self
            .read::<WirePull>(repo, "reading the pull request", url)
            .await?;
        Ok(page.value.translate())
    }

    /// The newest open pull request of a branch of this repository.
    ///
    /// # Errors
    /// What the list failed with.
    pub async fn find_open_pull(
        &self,
        repo: &Repo,
        branch: &str,
    ) -> Result<Option<PullRequest>, VendorError> {
        let pulls = self.list_pulls(repo, branch, "open").await?;
        Ok(pulls.into_iter().next())
    }

    /// Every pull request of a branch of this repository, newest first.
    ///
    /// # Errors
    /// What the list failed with.
    pub async fn pulls_of_branch(
        &self,
        repo: &Repo,
        branch: &str,
    ) -> Result<Vec<PullRequest>, VendorError> {
        self.list_pulls(repo, branch, "all").await
    }

    /// Opens a pull request. If the branch has an open one already, that one is answered, as it
    /// is.
    ///
    /// # Errors
    /// 422 when there is nothing between the branches.
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

    /// Replaces title and body.
    ///
    /// # Errors
    /// `is_not_found()` when there is none of this number.
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

    /// Makes a pull request a draft; one that is a draft stays so.
    ///
    /// # Errors
    /// `is_not_found()` when there is none of this node id.
    pub async fn set_draft(&self, repo: &Repo, node_id: &str) -> Result<(), VendorError> {
        const QUERY: &str = "mutation($id: ID!) { \
            convertPullRequestToDraft(input: {pullRequestId: $id}) { pullRequest { isDraft } } }";
        self.set_flag(
            repo,
            "making the pull request a draft",
            QUERY,
            node_id,
            Flag::Draft,
        )
        .await
    }

    /// Takes the draft flag off a pull request; one that is ready stays so.
    ///
    /// # Errors
    /// `is_not_found()` when there is none of this node id.
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
        let refused = match self
            .graphql::<serde_json::Value>(repo, action, mutation, &variables)
            .await
        {
            Ok(_) => return Ok(()),
            Err(error) => error,
        };
        if refused.status().is_none() || refused.is_not_found() {
            return Err(refused);
        }
        // The host refuses to change what is so already, or broke down after it had changed it.
        const QUERY: &str = "query($id: ID!) { node(id: $id) { ... on PullRequest { isDraft } } }";
        let is: serde_json::Value = self.graphql(repo, action, QUERY, &variables).await?;
        let wanted = matches!(flag, Flag::Draft);
        match is["node"]["isDraft"].as_bool() {
            Some(is_draft) if is_draft == wanted => Ok(()),
            _ => Err(refused),
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
            // A host that does not understand the filter sends everything.
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
    /// None of a fork that was deleted.
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
            // Before merging, the host names a trial merge here.
            merge_sha: self
                .merge_commit_sha
                .filter(|_| state == PullRequestState::Merged),
        }
    }
}
