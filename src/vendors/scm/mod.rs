//! Client of the repository host.
//!
//! [`GitHub`] calls the REST and GraphQL APIs and translates between their types and those of `domain`.
//! It makes no decisions. [`webhook`] parses the host's webhook payloads.

mod github;
pub mod webhook;

pub use github::{
    AppCreation, AppSettings, BranchRules, ChangedPaths, CheckRun, CreatedApp, DispatchError,
    FeedbackItem, FileResult, FolderEntry, GitHub, LOG_READ_TIMEOUT, LOG_WRITE_DELAY,
    ListedRepository, MergeSettings, MergeStatus, NewCommit, NewPullRequest, OpenPullRequest,
    OpinionatedReview, PullMergeFacts, PullRequest, PullRequestComment, PullRequestFeedback,
    PullRequestReport, PullRequestReview, PullRequestSelection, PullRequestState, RateLimitScope,
    RepoFile, RepoPermission, RepoToken, RepoTokenAccess, RerunOutcome, ReviewThread,
    ScmCredentials, TokenGaps, TokenPermission, TreeContent, TreeFile, WorkflowRun, WorkflowRunLog,
    WorkflowRunRef, web_address,
};
pub(crate) use github::{NewLabel, PartialError};
