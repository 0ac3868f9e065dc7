//! FLOOR 3: the repository host.
//!
//! [`GitHub`] speaks to its REST and GraphQL interfaces in the words of the domain. What it is
//! told is carried out and what it sees is told; nothing is decided here.

mod github;
pub mod webhook;

pub use github::{
    CheckRun, DispatchError, FeedbackItem, FolderEntry, GitHub, LOG_READ_TIMEOUT, NewCommit,
    NewPullRequest, OpenPullRequest, PullRequest, PullRequestComment, PullRequestFeedback,
    PullRequestReview, PullRequestState, RepoFile, RepoPermission, RepoToken, RepoTokenAccess,
    ReviewThread, ScmCredentials, TreeContent, TreeFile, WorkflowRun, WorkflowRunLog,
    WorkflowRunRef,
};
