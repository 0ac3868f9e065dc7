//! FLOOR 3: the repository host.
//!
//! [`GitHub`] speaks to its REST and GraphQL interfaces in the words of the domain. What it is
//! told is carried out and what it sees is told; nothing is decided here.

mod github;
pub mod webhook;

pub use github::{
    CheckRun, Conversation, Credentials, DispatchError, FolderEntry, GitHub, LOG_READ_WITHIN,
    NewCommit, NewPull, OpenPull, Permission, PrComment, Pull, PullState, RepoFile, RepoPurpose,
    RepoToken, Review, ReviewThread, RunLog, RunRef, Spoken, TreeContent, TreeFile, WorkflowRun,
};
