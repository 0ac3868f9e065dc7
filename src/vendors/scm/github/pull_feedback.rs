//! Feedback on a pull request, read in one request, and the list of open pull requests.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::http::VendorError;
use domain::feedback::{
    COMMIT_EMAIL, FeedbackAuthor, FeedbackSource, PullRequestId, ReviewComment, ReviewState,
};
use domain::ids::Repo;
use domain::time::Timestamp;

use super::{GitHub, PullRequestState};

/// Fields of a pull request with the last 100 items of each kind, the host's maximum per response.
pub(super) const FIELDS: &str = "\
    state isDraft body createdAt mergedAt mergeCommit { oid } author { __typename login } \
    commits(last: 100) { nodes { commit { \
    author { email } parents(first: 2) { nodes { oid } } } } } \
    comments(last: 100) { nodes { \
    fullDatabaseId isMinimized body createdAt author { __typename login } } } \
    reviews(last: 100) { nodes { \
    fullDatabaseId state body submittedAt author { __typename login } } } \
    reviewThreads(last: 100) { nodes { \
    isResolved isOutdated path line originalLine comments(first: 50) { nodes { \
    fullDatabaseId body createdAt author { __typename login } } } } }";

/// Pull request with its feedback.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PullRequestFeedback {
    /// State of the pull request.
    pub state: PullRequestState,
    /// Whether the pull request is a draft.
    pub draft: bool,
    /// Description of the pull request.
    pub body: String,
    /// Id of the merge commit and time of the merge, once merged.
    pub merge: Option<(String, Timestamp)>,
    /// Creation time.
    pub created_at: Timestamp,
    /// Number of commits of people after the first commit of a run, among the last 100 commits. Merge
    /// commits do not count, and neither do commits of Apps.
    pub human_commits: u32,
    /// Last 100 items of each kind, oldest first within each kind.
    pub items: Vec<FeedbackItem>,
}

/// Comment or review with its status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FeedbackItem {
    /// Comment or review.
    pub comment: ReviewComment,
    /// Whether the item still applies: not dismissed, not superseded by an approval of the same person,
    /// not resolved and not hidden.
    pub is_active: bool,
    /// Whether the commented line has changed since.
    pub is_outdated: bool,
    /// Whether the item is from the author of the pull request.
    pub is_by_pull_author: bool,
}

/// Open pull request, as returned by the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenPullRequest {
    /// Number in the repository.
    pub number: u64,
    /// Description of the pull request.
    pub body: String,
    /// Time of the last update. Every new comment changes it.
    pub updated_at: Timestamp,
    /// Creation time.
    pub created_at: Timestamp,
    /// Id of the head commit.
    pub head_sha: String,
}

impl GitHub {
    /// Returns a pull request with its feedback. Takes one request.
    ///
    /// # Errors
    /// `is_not_found()` if no pull request has this number.
    pub async fn pull_feedback(
        &self,
        pull: &PullRequestId,
    ) -> Result<PullRequestFeedback, VendorError> {
        let action = "reading the feedback of a pull request";
        let node: FeedbackNode = self
            .pull_by_number(&pull.repo, action, pull.number, FIELDS)
            .await?;
        Ok(node.translate())
    }

    /// Lists the open pull requests of a repository. Takes one request per 100 pull requests. Unchanged pages
    /// do not count against the rate limit.
    ///
    /// # Errors
    /// Fails if a page cannot be read.
    pub async fn open_pulls(&self, repo: &Repo) -> Result<Vec<OpenPullRequest>, VendorError> {
        let url = self.repo_url(repo, "/pulls?state=open&per_page=100");
        let pulls = self
            .read_all(
                repo,
                "listing open pull requests",
                url,
                |page: Vec<WireOpenPull>| page,
            )
            .await?;
        Ok(pulls.into_iter().map(WireOpenPull::translate).collect())
    }
}

#[derive(Serialize, Deserialize)]
struct WireOpenPull {
    number: u64,
    body: Option<String>,
    updated_at: Timestamp,
    created_at: Timestamp,
    head: WireHead,
}

#[derive(Serialize, Deserialize)]
struct WireHead {
    sha: String,
}

impl WireOpenPull {
    fn translate(self) -> OpenPullRequest {
        OpenPullRequest {
            number: self.number,
            body: self.body.unwrap_or_default(),
            updated_at: self.updated_at,
            created_at: self.created_at,
            head_sha: self.head.sha,
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct FeedbackNode {
    state: String,
    is_draft: bool,
    body: String,
    created_at: Timestamp,
    merged_at: Option<Timestamp>,
    merge_commit: Option<Commit>,
    author: Option<Actor>,
    commits: Page<PullCommitNode>,
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
struct PullCommitNode {
    commit: CommitNode,
}

#[derive(Deserialize)]
struct CommitNode {
    author: Option<GitActor>,
    parents: Page<Commit>,
}

#[derive(Deserialize)]
struct GitActor {
    email: Option<String>,
}

impl CommitNode {
    fn email(&self) -> &str {
        let author = self.author.as_ref();
        author
            .and_then(|author| author.email.as_deref())
            .unwrap_or_default()
    }

    fn is_of_run(&self) -> bool {
        self.email() == COMMIT_EMAIL
    }

    fn is_of_person(&self) -> bool {
        let is_merge = self.parents.nodes.len() > 1;
        !self.is_of_run() && !is_merge && !self.email().contains("[bot]@")
    }
}

/// Counts the commits of people after the first commit of a run.
fn human_commits(page: Page<PullCommitNode>) -> u32 {
    let commits = page.into_nodes().map(|node| node.commit);
    let after_run = commits.skip_while(|commit| !commit.is_of_run());
    let count = after_run.filter(CommitNode::is_of_person).count();
    u32::try_from(count).unwrap_or(u32::MAX)
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

impl FeedbackNode {
    pub(super) fn translate(self) -> PullRequestFeedback {
        let opened_by = self.author.map(Actor::translate);
        let comments = self.comments.into_nodes();
        let comments = comments.filter_map(|comment| {
            let is_active = !comment.is_minimized;
            Some((
                comment.translate(FeedbackSource::IssueComment)?,
                is_active,
                false,
            ))
        });
        let threads = self.review_threads.into_nodes();
        let thread_comments = threads.flat_map(ThreadNode::translate);
        let all = comments
            .chain(thread_comments)
            .chain(self.reviews.map(reviews).unwrap_or_default());
        PullRequestFeedback {
            state: match self.state.as_str() {
                "OPEN" => PullRequestState::Open,
                "MERGED" => PullRequestState::Merged,
                _ => PullRequestState::Closed,
            },
            draft: self.is_draft,
            body: self.body,
            created_at: self.created_at,
            human_commits: human_commits(self.commits),
            merge: self
                .merge_commit
                .zip(self.merged_at)
                .map(|(commit, at)| (commit.oid, at)),
            items: all
                .map(|(comment, is_active, is_outdated)| FeedbackItem {
                    is_by_pull_author: opened_by.as_ref() == Some(&comment.author),
                    comment,
                    is_active,
                    is_outdated,
                })
                .collect(),
        }
    }
}

/// Returns reviews with their active and outdated flags. A review is active until the same person approves.
fn reviews(page: Page<ReviewNode>) -> Vec<(ReviewComment, bool, bool)> {
    let reviews: Vec<ReviewComment> = page
        .into_nodes()
        .filter_map(ReviewNode::translate)
        .collect();
    let approves = |later: &ReviewComment, of: &FeedbackAuthor| {
        later.author == *of && later.review_state == Some(ReviewState::Approved)
    };
    let is_active = |at: usize, review: &ReviewComment| {
        let later = reviews.iter().skip(at + 1);
        review.review_state != Some(ReviewState::Dismissed)
            && !later
                .into_iter()
                .any(|later| approves(later, &review.author))
    };
    let all = reviews.iter().enumerate();
    all.map(|(at, review)| (review.clone(), is_active(at, review), false))
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
        let (is_active, is_outdated) = (!self.is_resolved, self.is_outdated);
        let (path, line) = (self.path, self.original_line.or(self.line));
        let comments = self.comments.into_nodes();
        let comments =
            comments.filter_map(|comment| comment.translate(FeedbackSource::ReviewComment));
        let placed = comments.map(|comment| ReviewComment {
            path: Some(path.clone()),
            line,
            ..comment
        });
        placed
            .map(|comment| (comment, is_active, is_outdated))
            .collect()
    }
}

/// Parses an id. The host sends large numbers as strings.
fn id(value: Option<&Value>) -> Option<u64> {
    let value = value?;
    let text = || value.as_str()?.parse().ok();
    value.as_u64().or_else(text)
}
