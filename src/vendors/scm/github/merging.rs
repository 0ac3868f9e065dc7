//! Merging of pull requests: at once, by auto-merge, or by the merge queue.
//!
//! Every call names the head commit, so that nothing is merged that was pushed meanwhile.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use crate::http::{Method, Request, VendorError};
use domain::feedback::{MergeState, PullRequestId};
use domain::ids::Repo;
use domain::merge_policy::MergeMethod;

use super::merge_facts::is_mergeable_now;
use super::{GitHub, PullRequestState};

/// Fields of [`PullStatusNode`].
pub(super) const STATUS_FIELDS: &str = "id state headRefOid mergeStateStatus mergeCommit { oid } \
    mergedBy { __typename login } autoMergeRequest { enabledBy { login } } isInMergeQueue";

/// State of a pull request, and what merges it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MergeStatus {
    /// Id in the GraphQL API.
    pub node_id: String,
    /// State.
    pub state: PullRequestState,
    /// SHA of the head commit; of a merged pull request, of the one that was merged.
    pub head: String,
    /// What the rules of the base branch still require. `None` while the host computes that.
    pub merge_state: Option<MergeState>,
    /// SHA of the merge commit, once merged.
    pub merge_commit: Option<String>,
    /// Whether the account of this client, or an App such as the merge queue, has merged it.
    pub is_merged_by_us_or_app: bool,
    /// Whether auto-merge is armed.
    pub is_armed: bool,
    /// Whether the account of this client has armed auto-merge.
    pub is_armed_by_us: bool,
    /// Whether it is in the merge queue.
    pub is_queued: bool,
    /// Whether the repository permits auto-merge.
    pub is_auto_merge_allowed: bool,
    /// Login of the account of this client.
    pub own_login: String,
}

impl MergeStatus {
    /// Returns whether the host would merge at once, so that there is nothing to wait for.
    pub fn is_mergeable_now(&self) -> bool {
        is_mergeable_now(self.merge_state)
    }
}

/// Settings of a repository about merges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MergeSettings {
    /// Whether auto-merge is allowed.
    #[serde(rename = "autoMergeAllowed")]
    pub allows_auto_merge: bool,
    #[serde(rename = "squashMergeAllowed")]
    allows_squash: bool,
    #[serde(rename = "mergeCommitAllowed")]
    allows_merge: bool,
    #[serde(rename = "rebaseMergeAllowed")]
    allows_rebase: bool,
}

impl MergeSettings {
    /// Returns whether a method is allowed.
    pub fn allows(&self, method: MergeMethod) -> bool {
        match method {
            MergeMethod::Squash => self.allows_squash,
            MergeMethod::Merge => self.allows_merge,
            MergeMethod::Rebase => self.allows_rebase,
        }
    }
}

impl GitHub {
    /// Returns the state of a pull request. Takes one request.
    ///
    /// # Errors
    /// `is_not_found()` if no pull request has this number.
    pub async fn merge_status(&self, pull: &PullRequestId) -> Result<MergeStatus, VendorError> {
        let query = format!(
            "query($owner: String!, $name: String!, $number: Int!) {{ viewer {{ login }} \
             repository(owner: $owner, name: $name) {{ autoMergeAllowed \
             pullRequest(number: $number) {{ {STATUS_FIELDS} }} }} }}"
        );
        let (repo, number) = (&pull.repo, pull.number);
        let variables = json!({"owner": repo.owner, "name": repo.name, "number": number});
        let action = "reading the state of a merge";
        let data: StatusData = self.graphql(repo, action, &query, &variables).await?;
        let repository = data.repository;
        Ok(repository
            .pull_request
            .translate(data.viewer, repository.auto_merge_allowed))
    }

    /// Returns the settings of a repository about merges.
    ///
    /// # Errors
    /// `is_not_found()` if the repository does not exist or is not visible to the credentials.
    pub async fn merge_settings(&self, repo: &Repo) -> Result<MergeSettings, VendorError> {
        const QUERY: &str = "query($owner: String!, $name: String!) { repository(owner: $owner, name: $name) { \
            autoMergeAllowed squashMergeAllowed mergeCommitAllowed rebaseMergeAllowed } }";
        #[derive(Deserialize)]
        struct Data {
            repository: MergeSettings,
        }
        let variables = json!({"owner": repo.owner, "name": repo.name});
        let action = "reading the settings about merges";
        let data: Data = self.graphql(repo, action, QUERY, &variables).await?;
        Ok(data.repository)
    }

    /// Merges a pull request with this head. Returns the SHA of the merge commit.
    ///
    /// # Errors
    /// 405 if it cannot be merged, 409 if it has another head.
    pub async fn merge_pull(
        &self,
        pull: &PullRequestId,
        head: &str,
        method: MergeMethod,
    ) -> Result<String, VendorError> {
        #[derive(Deserialize)]
        struct Merged {
            sha: String,
        }
        let url = self.repo_url(&pull.repo, &format!("/pulls/{}/merge", pull.number));
        let body = json!({"sha": head, "merge_method": method.as_str()});
        let action = "merging the pull request";
        let merged = self.send_json(&pull.repo, action, Method::PUT, url, &body);
        Ok(merged.await?.json::<Merged>()?.sha)
    }

    /// Arms auto-merge of a pull request with this head.
    ///
    /// # Errors
    /// 422 if it has another head, can be merged at once, or auto-merge is not allowed.
    pub async fn enable_auto_merge(
        &self,
        repo: &Repo,
        node_id: &str,
        head: &str,
        method: MergeMethod,
    ) -> Result<(), VendorError> {
        const QUERY: &str = "mutation($id: ID!, $head: GitObjectID!, $method: PullRequestMergeMethod!) { \
            enablePullRequestAutoMerge(input: {pullRequestId: $id, expectedHeadOid: $head, mergeMethod: $method}) { \
            pullRequest { id } } }";
        let method = method.as_str().to_uppercase();
        let variables = json!({"id": node_id, "head": head, "method": method});
        self.mutate(repo, "arming auto-merge", QUERY, &variables)
            .await
    }

    /// Disarms auto-merge of a pull request.
    ///
    /// # Errors
    /// 422 if it is not armed.
    pub async fn disable_auto_merge(&self, repo: &Repo, node_id: &str) -> Result<(), VendorError> {
        const QUERY: &str = "mutation($id: ID!) { \
            disablePullRequestAutoMerge(input: {pullRequestId: $id}) { pullRequest { id } } }";
        self.mutate(repo, "disarming auto-merge", QUERY, &json!({"id": node_id}))
            .await
    }

    /// Adds a pull request with this head to the merge queue.
    ///
    /// # Errors
    /// 422 if it has another head, is in the queue, or the base branch has no queue.
    pub async fn enqueue_pull(
        &self,
        repo: &Repo,
        node_id: &str,
        head: &str,
    ) -> Result<(), VendorError> {
        const QUERY: &str = "mutation($id: ID!, $head: GitObjectID!) { \
            enqueuePullRequest(input: {pullRequestId: $id, expectedHeadOid: $head}) { mergeQueueEntry { id } } }";
        let variables = json!({"id": node_id, "head": head});
        self.mutate(repo, "adding to the merge queue", QUERY, &variables)
            .await
    }

    /// Removes a pull request from the merge queue.
    ///
    /// # Errors
    /// 422 if it is not in the queue.
    pub async fn dequeue_pull(&self, repo: &Repo, node_id: &str) -> Result<(), VendorError> {
        const QUERY: &str = "mutation($id: ID!) { dequeuePullRequest(input: {id: $id}) { mergeQueueEntry { id } } }";
        let action = "removing from the merge queue";
        self.mutate(repo, action, QUERY, &json!({"id": node_id}))
            .await
    }

    async fn mutate(
        &self,
        repo: &Repo,
        action: &'static str,
        query: &str,
        variables: &Value,
    ) -> Result<(), VendorError> {
        let done: Result<IgnoredAny, _> = self.graphql(repo, action, query, variables).await;
        done.map(drop)
    }

    /// Returns whether a branch is the base of an open pull request.
    ///
    /// # Errors
    /// Fails if the host rejects the request or does not respond.
    pub async fn is_base_of_open_pull(
        &self,
        repo: &Repo,
        branch: &str,
    ) -> Result<bool, VendorError> {
        let base = crate::http::percent_encode(branch);
        let url = self.repo_url(repo, &format!("/pulls?state=open&base={base}&per_page=1"));
        let page = self
            .read::<Vec<BasedPull>>(repo, "listing pull requests onto a branch", url)
            .await?;
        Ok(!page.value.is_empty())
    }

    /// Deletes a branch.
    ///
    /// # Errors
    /// 404 or 422 if it does not exist.
    pub async fn delete_branch(&self, repo: &Repo, branch: &str) -> Result<(), VendorError> {
        let path = format!("/git/refs/heads/{}", super::git_data::encode_branch(branch));
        let request = Request::new(
            "deleting the branch",
            Method::DELETE,
            self.repo_url(repo, &path),
        );
        self.send(repo, request).await.map(drop)
    }
}

#[derive(serde::Serialize, Deserialize)]
struct BasedPull {
    number: u64,
}

#[derive(Deserialize)]
struct StatusData {
    viewer: Login,
    repository: StatusRepository,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct StatusRepository {
    auto_merge_allowed: bool,
    pull_request: PullStatusNode,
}

#[derive(Deserialize)]
pub(super) struct Login {
    login: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PullStatusNode {
    id: String,
    state: String,
    head_ref_oid: String,
    merge_state_status: String,
    merge_commit: Option<Commit>,
    merged_by: Option<MergedBy>,
    auto_merge_request: Option<AutoMerge>,
    is_in_merge_queue: bool,
}

#[derive(Deserialize)]
struct Commit {
    oid: String,
}

#[derive(Deserialize)]
struct MergedBy {
    #[serde(rename = "__typename")]
    kind: String,
    login: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AutoMerge {
    enabled_by: Option<Login>,
}

impl PullStatusNode {
    pub(super) fn translate(self, viewer: Login, is_auto_merge_allowed: bool) -> MergeStatus {
        // Only some fields append `[bot]` to the login of an App.
        let is_own = |login: &str| without_suffix(login) == without_suffix(&viewer.login);
        let auto_merge = self.auto_merge_request;
        MergeStatus {
            node_id: self.id,
            state: match self.state.as_str() {
                "OPEN" => PullRequestState::Open,
                "MERGED" => PullRequestState::Merged,
                _ => PullRequestState::Closed,
            },
            head: self.head_ref_oid,
            merge_state: MergeState::parse(&self.merge_state_status),
            merge_commit: self.merge_commit.map(|commit| commit.oid),
            is_merged_by_us_or_app: self
                .merged_by
                .is_some_and(|by| by.kind == "Bot" || is_own(&by.login)),
            is_armed: auto_merge.is_some(),
            is_armed_by_us: auto_merge
                .and_then(|armed| armed.enabled_by)
                .is_some_and(|by| is_own(&by.login)),
            is_queued: self.is_in_merge_queue,
            is_auto_merge_allowed,
            own_login: viewer.login,
        }
    }
}

fn without_suffix(login: &str) -> &str {
    login.strip_suffix("[bot]").unwrap_or(login)
}
