//! Client of the repository host.
//!
//! [`GitHub`] calls the REST and GraphQL APIs and translates between their types and those of `domain`.
//! It makes no decisions. [`webhook`] parses the host's webhook payloads.

mod github;
pub mod webhook;

pub use github::{
    AppCreation, AppSettings, CheckRun, CreatedApp, DispatchError, FeedbackItem, FolderEntry,
    GitHub, LOG_READ_TIMEOUT, ListedRepository, NewCommit, NewPullRequest, OpenPullRequest,
    PullRequest, PullRequestComment, PullRequestFeedback, PullRequestReview, PullRequestState,
    RateLimitScope, RepoFile, RepoPermission, RepoToken, RepoTokenAccess, ReviewThread,
    ScmCredentials, TreeContent, TreeFile, WorkflowRun, WorkflowRunLog, WorkflowRunRef,
    web_address,
};
pub(crate) use github::{NewLabel, PartialError};
