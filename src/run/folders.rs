//! Temporary folders of a run.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// Name of the scratch folder.
const SCRATCH: &str = "scratch";

/// Name of the home folder of scripts and agents.
pub(crate) const HOME: &str = "home";

/// Temporary folders of a run, deleted on drop.
pub struct Folders {
    root: TempDir,
}

impl Folders {
    /// Creates the root folder in `parent`.
    pub fn new(parent: &Path) -> std::io::Result<Self> {
        let root = tempfile::Builder::new()
            .prefix("agent-implement-")
            .tempdir_in(parent)?;
        Ok(Self { root })
    }

    /// Returns the path of the work tree.
    pub fn work_tree(&self) -> PathBuf {
        self.root.path().join("tree")
    }

    /// Returns the path of the scratch folder.
    pub(crate) fn scratch(&self) -> PathBuf {
        self.root.path().join(SCRATCH)
    }

    /// Returns the path of the folder for evidence.
    pub(crate) fn evidence(&self) -> PathBuf {
        self.root.path().join("evidence")
    }

    /// Creates the scratch folder if needed. Whatever the agent put in its place is removed.
    pub(crate) fn make_scratch(&self) -> std::io::Result<PathBuf> {
        let path = self.scratch();
        if path.symlink_metadata().is_ok_and(|found| !found.is_dir()) {
            remove(&path)?;
        }
        self.make(SCRATCH)
    }

    /// Returns the path of the run's git directory.
    pub fn git_dir(&self) -> PathBuf {
        self.root.path().join("git")
    }

    /// Creates a folder if needed and checks that it is writable: programs that cannot write
    /// temporary files may hang.
    pub fn make(&self, name: &str) -> std::io::Result<PathBuf> {
        let path = self.root.path().join(name);
        std::fs::create_dir_all(&path)?;
        tempfile::tempfile_in(&path)?;
        Ok(path)
    }

    /// Creates an empty folder, deleting its previous contents.
    pub fn make_empty(&self, name: &str) -> std::io::Result<PathBuf> {
        let path = self.root.path().join(name);
        if path.exists() {
            std::fs::remove_dir_all(&path)?;
        }
        self.make(name)
    }
}

/// Removes a file, a link or a folder, if it exists. Links are not followed.
pub(crate) fn remove(path: &Path) -> std::io::Result<()> {
    let removed = match path.symlink_metadata() {
        Ok(found) if found.is_dir() => std::fs::remove_dir_all(path),
        Ok(_) => std::fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
