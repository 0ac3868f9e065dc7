//! Reviews and review threads of a pull request.

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::http::VendorError;
use domain::ids::Repo;

use super::{GitHub, MAX_PAGES};

/// Submitted review.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PullRequestReview {
    /// Slug of the reviewing App. `None` for a person.
    pub app_slug: Option<String>,
    /// `APPROVED`, `CHANGES_REQUESTED`, `COMMENTED`, `DISMISSED`, or another state of the host.
    pub state: String,
    /// Text of the review.
    pub body: String,
    /// Id of the reviewed commit.
    pub commit: String,
}

/// Review thread at a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReviewThread {
    /// Slug of the App that wrote the first comment. `None` for a person.
    pub app_slug: Option<String>,
    /// Path of the file.
    pub path: String,
    /// Line in the current version of the file.
    pub line: Option<u64>,
    /// Text of the first comment.
    pub body: String,
    /// Whether the thread is resolved.
    pub is_resolved: bool,
    /// Whether the line has changed since.
    pub is_outdated: bool,
}

impl GitHub {
    /// Lists the reviews of a pull request, oldest first.
    ///
    /// # Errors
    /// `is_not_found()` if no pull request has this number.
    pub async fn reviews(
        &self,
        repo: &Repo,
        number: u64,
    ) -> Result<Vec<PullRequestReview>, VendorError> {
        let url = self.repo_url(repo, &format!("/pulls/{number}/reviews?per_page=100"));
        let reviews = self
            .read_all(repo, "listing reviews", url, |page: Vec<WireReview>| page)
            .await?;
        Ok(reviews.into_iter().map(WireReview::translate).collect())
    }

    /// Lists the review threads of a pull request by its node id. Only the GraphQL API returns whether a
    /// thread is resolved.
    ///
    /// # Errors
    /// `is_not_found()` if no pull request has this node id.
    pub async fn review_threads(
        &self,
        repo: &Repo,
        node_id: &str,
    ) -> Result<Vec<ReviewThread>, VendorError> {
        const QUERY: &str = "query($id: ID!, $after: String) { \
            node(id: $id) { ... on PullRequest { reviewThreads(first: 100, after: $after) { \
            nodes { isResolved isOutdated path line \
            comments(first: 1) { nodes { body author { __typename login } } } } \
            pageInfo { hasNextPage endCursor } } } } }";
        const ACTION: &str = "reading review threads";
        let (mut all, mut after) = (Vec::new(), None);
        for _ in 0..MAX_PAGES {
            let variables = json!({ "id": node_id, "after": after });
            let data: QueryData = self.graphql(repo, ACTION, QUERY, &variables).await?;
            let page = data.node.review_threads;
            all.extend(page.nodes.into_iter().flatten().map(WireThread::translate));
            after = page.page_info.end_cursor;
            if !page.page_info.has_next_page || after.is_none() {
                break;
            }
        }
        Ok(all)
    }
}

#[derive(Serialize, Deserialize)]
struct WireReview {
    user: Option<User>,
    state: String,
    #[serde(default)]
    body: Option<String>,
    #[serde(default)]
    commit_id: Option<String>,
}

/// Account in the REST API.
#[derive(Serialize, Deserialize)]
pub(super) struct User {
    login: String,
    #[serde(rename = "type", default)]
    kind: String,
}

impl User {
    /// Returns the slug of the App. `None` for a person.
    pub(super) fn app_slug(&self) -> Option<String> {
        (self.kind == "Bot").then(|| app_slug_of(&self.login))
    }
}

impl WireReview {
    fn translate(self) -> PullRequestReview {
        PullRequestReview {
            app_slug: self.user.as_ref().and_then(User::app_slug),
            state: self.state,
            body: self.body.unwrap_or_default(),
            commit: self.commit_id.unwrap_or_default(),
        }
    }
}

#[derive(Deserialize)]
struct QueryData {
    node: PullNode,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PullNode {
    review_threads: Threads,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Threads {
    nodes: Vec<Option<WireThread>>,
    page_info: PageInfo,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PageInfo {
    has_next_page: bool,
    end_cursor: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireThread {
    is_resolved: bool,
    is_outdated: bool,
    path: String,
    line: Option<u64>,
    comments: Comments,
}

#[derive(Deserialize)]
struct Comments {
    nodes: Vec<Option<ThreadComment>>,
}

#[derive(Deserialize)]
struct ThreadComment {
    body: String,
    author: Option<Actor>,
}

#[derive(Deserialize)]
struct Actor {
    #[serde(rename = "__typename")]
    kind: String,
    login: String,
}

impl WireThread {
    fn translate(self) -> ReviewThread {
        let first = self.comments.nodes.into_iter().flatten().next();
        let (body, author) =
            first.map_or_else(Default::default, |first| (first.body, first.author));
        let bot = author.filter(|author| author.kind == "Bot");
        ReviewThread {
            app_slug: bot.map(|author| app_slug_of(&author.login)),
            path: self.path,
            line: self.line,
            body,
            is_resolved: self.is_resolved,
            is_outdated: self.is_outdated,
        }
    }
}

/// Returns the App slug of a login. REST appends `[bot]` to the logins of Apps, GraphQL does not.
fn app_slug_of(login: &str) -> String {
    login.strip_suffix("[bot]").unwrap_or(login).to_owned()
}
