//! Mirrors of repositories, from which runs in local containers copy what they would otherwise fetch.
//!
//! A mirror is a bare repository in a folder of its own, which only the service writes. The container of a run gets the
//! mirror of its repository and no other, read-only.

/// Name of the folder of all mirrors in the data directory.
pub const FOLDER: &str = "git-mirrors";

/// Folder of the container at which the mirror is mounted.
pub const MOUNT_POINT: &str = "/run/git-mirror";

/// Variable with the path of the mirror in the container.
pub const VARIABLE: &str = "GIT_MIRROR";

/// File of a mirror that is removed before anything else of it: where it is missing, the mirror is incomplete.
pub const MARKER: &str = "HEAD";

/// Number of commits that a mirror and the first fetch of a run have. Enough history for the agent to see the
/// conventions of the project.
pub const FETCH_DEPTH: &str = "--depth=50";

/// Field of the outputs of the clone step: how the mirror was used.
pub const OUTPUT: &str = "mirror";

/// Value of [`OUTPUT`] for a mirror that was used.
pub const USED: &str = "used";

/// Value of [`OUTPUT`] for a mirror that could not be used.
pub const UNUSABLE: &str = "unusable";
