//! Everything that is being said about a pull request, in one question; and which are open.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::http::VendorError;
use domain::feedback::{FeedbackAuthor, FeedbackSource, PullRequestId, ReviewComment, ReviewState};
use domain::ids::Repo;
use domain::time::Timestamp;

use super::{GitHub, PullRequestState};

/// Newest first to be told; of each kind the host gives no more in one answer.
const QUERY: &str = "query($owner: String!, $name: String!, $number: Int!) { \
    repository(owner: $owner, name: $name) { pullRequest(number: $number) { \
    state isDraft body mergedAt mergeCommit { oid } author { __typename login } \
    comments(last: 100) { nodes { \
    fullDatabaseId isMinimized body createdAt author { __typename login } } } \
    reviews(last: 100) { nodes { \
    fullDatabaseId state body submittedAt author { __typename login } } } \
    reviewThreads(last: 100) { nodes { \
    isResolved isOutdated path line originalLine comments(first: 50) { nodes { \
    fullDatabaseId body createdAt author { __typename login } } } } } } } }";

/// A pull request and what is being said about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PullRequestFeedback {
    pub state: PullRequestState,
    pub draft: bool,
    pub body: String,
    /// The commit that merging made, and when.
    pub merge: Option<(String, Timestamp)>,
    /// Of each kind the last hundred, the oldest first.
    pub items: Vec<FeedbackItem>,
}

/// A remark, and how it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FeedbackItem {
    pub comment: ReviewComment,
    /// Not dismissed, overtaken by the same person's approval, settled or hidden.
    pub is_active: bool,
    /// Whether its line has changed since.
    pub is_outdated: bool,
    pub is_by_pull_author: bool,
}

/// An open pull request, as a list shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenPullRequest {
    pub number: u64,
    pub body: String,
    pub draft: bool,
    /// Changes with everything that is said.
    pub updated_at: Timestamp,
}

impl GitHub {
    /// A pull request and what is being said about it. One request.
    ///
    /// # Errors
    /// `is_not_found()` when there is none of this number.
    pub async fn pull_feedback(
        &self,
        pull: &PullRequestId,
    ) -> Result<PullRequestFeedback, VendorError> {
        let (repo, number) = (&pull.repo, pull.number);
        let variables = json!({"owner": repo.owner, "name": repo.name, "number": number});
        let answer: Answer = self
            .graphql(repo, "reading a conversation", QUERY, &variables)
            .await?;
        Ok(answer.repository.pull_request.translate())
    }

    /// The open pull requests of a repository. One request for each hundred, and none that counts
    /// while nothing changes.
    ///
    /// # Errors
    /// What the list failed with.
    pub async fn open_pulls(&self, repo: &Repo) -> Result<Vec<OpenPullRequest>, VendorError> {
        let url = self.repo_url(repo, "/pulls?state=open&per_page=100");
        let pulls = self
            .read_all(
                repo,
                "listing open pull requests",
                url,
                |page: Vec<Listed>| page,
            )
            .await?;
        Ok(pulls.into_iter().map(Listed::translate).collect())
    }
}

#[derive(Serialize, Deserialize)]
struct Listed {
    number: u64,
    body: Option<String>,
    #[serde(default)]
    draft: Option<bool>,
    updated_at: Timestamp,
}

impl Listed {
    fn translate(self) -> OpenPullRequest {
        OpenPullRequest {
            number: self.number,
            body: self.body.unwrap_or_default(),
            draft: self.draft.unwrap_or_default(),
            updated_at: self.updated_at,
        }
    }
}

#[derive(Deserialize)]
struct Answer {
    repository: RepositoryNode,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RepositoryNode {
    pull_request: PullNode,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PullNode {
    state: String,
    is_draft: bool,
    body: String,
    merged_at: Option<Timestamp>,
    merge_commit: Option<Commit>,
    author: Option<Actor>,
    comments: Page<CommentNode>,
    #[serde(default)]
    reviews: Option<Page<ReviewNode>>,
    review_threads: Page<ThreadNode>,
}

#[derive(Deserialize)]
struct Commit {
    oid: String,
}

#[derive(Deserialize)]
struct Page<T> {
    nodes: Vec<Option<T>>,
}

#[derive(Deserialize)]
struct Actor {
    #[serde(rename = "__typename")]
    kind: String,
    login: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CommentNode {
    full_database_id: Option<Value>,
    #[serde(default)]
    is_minimized: bool,
    body: String,
    created_at: Timestamp,
    author: Option<Actor>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReviewNode {
    full_database_id: Option<Value>,
    state: String,
    body: String,
    submitted_at: Option<Timestamp>,
    author: Option<Actor>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ThreadNode {
    is_resolved: bool,
    is_outdated: bool,
    path: String,
    line: Option<u64>,
    original_line: Option<u64>,
    comments: Page<CommentNode>,
}

impl PullNode {
    fn translate(self) -> PullRequestFeedback {
        let opened_by = self.author.map(Actor::translate);
        let comments = self.comments.into_nodes();
        let comments = comments.filter_map(|comment| {
            let stands = !comment.is_minimized;
            Some((
                comment.translate(FeedbackSource::IssueComment)?,
                stands,
                false,
            ))
        });
        let threads = self.review_threads.into_nodes();
        let at_lines = threads.flat_map(ThreadNode::translate);
        let all = comments
            .chain(at_lines)
            .chain(self.reviews.map(reviews).unwrap_or_default());
        PullRequestFeedback {
            state: match self.state.as_str() {
                "OPEN" => PullRequestState::Open,
                "MERGED" => PullRequestState::Merged,
                _ => PullRequestState::Closed,
            },
            draft: self.is_draft,
            body: self.body,
            merge: self
                .merge_commit
                .zip(self.merged_at)
                .map(|(commit, at)| (commit.oid, at)),
            items: all
                .map(|(remark, stands, is_outdated)| FeedbackItem {
                    is_by_pull_author: opened_by.as_ref() == Some(&remark.author),
                    comment: remark,
                    is_active: stands,
                    is_outdated,
                })
                .collect(),
        }
    }
}

/// A verdict stands until the same person approves.
fn reviews(page: Page<ReviewNode>) -> Vec<(ReviewComment, bool, bool)> {
    let given: Vec<ReviewComment> = page
        .into_nodes()
        .filter_map(ReviewNode::translate)
        .collect();
    let approves = |later: &ReviewComment, of: &FeedbackAuthor| {
        later.author == *of && later.review_state == Some(ReviewState::Approved)
    };
    let stands = |at: usize, review: &ReviewComment| {
        let later = given.iter().skip(at + 1);
        review.review_state != Some(ReviewState::Dismissed)
            && !later
                .into_iter()
                .any(|later| approves(later, &review.author))
    };
    let all = given.iter().enumerate();
    all.map(|(at, review)| (review.clone(), stands(at, review), false))
        .collect()
}

impl<T> Page<T> {
    fn into_nodes(self) -> impl Iterator<Item = T> {
        self.nodes.into_iter().flatten()
    }
}

impl Actor {
    fn translate(self) -> FeedbackAuthor {
        FeedbackAuthor::from_account(&self.login, self.kind == "Bot")
    }
}

impl CommentNode {
    fn translate(self, source: FeedbackSource) -> Option<ReviewComment> {
        Some(ReviewComment {
            source,
            id: id(self.full_database_id.as_ref())?,
            author: self.author?.translate(),
            review_state: None,
            path: None,
            line: None,
            body: self.body,
            created_at: self.created_at,
        })
    }
}

impl ReviewNode {
    fn translate(self) -> Option<ReviewComment> {
        Some(ReviewComment {
            source: FeedbackSource::Review,
            id: id(self.full_database_id.as_ref())?,
            author: self.author?.translate(),
            review_state: Some(ReviewState::parse(&self.state)?),
            path: None,
            line: None,
            body: self.body,
            created_at: self.submitted_at.unwrap_or_default(),
        })
    }
}

impl ThreadNode {
    fn translate(self) -> Vec<(ReviewComment, bool, bool)> {
        let (stands, is_outdated) = (!self.is_resolved, self.is_outdated);
        let (path, line) = (self.path, self.original_line.or(self.line));
        let comments = self.comments.into_nodes();
        let remarks =
            comments.filter_map(|comment| comment.translate(FeedbackSource::ReviewComment));
        let placed = remarks.map(|remark| ReviewComment {
            path: Some(path.clone()),
            line,
            ..remark
        });
        placed.map(|remark| (remark, stands, is_outdated)).collect()
    }
}

/// Large numbers come as text.
fn id(value: Option<&Value>) -> Option<u64> {
    let value = value?;
    let text = || value.as_str()?.parse().ok();
    value.as_u64().or_else(text)
}
