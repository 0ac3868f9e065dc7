//! FLOOR 3: the repository host.
//!
//! [`GitHub`] speaks to its REST and GraphQL interfaces in the words of the domain. What it is
//! told is carried out and what it sees is told; nothing is decided here.

mod github;

pub use github::{
    CheckRun, Credentials, DispatchError, FolderEntry, GitHub, NewCommit, NewPull, Permission,
    PrComment, Pull, PullState, RepoFile, RepoPurpose, RepoToken, Review, ReviewThread, RunLog,
    RunRef, TreeContent, TreeFile, WorkflowRun,
};
