//! Copy of a mirror of the repository into the run's git directory, instead of a fetch of the whole history.
//!
//! Only the service writes the mirror. The run copies it, so that it may be replaced or removed at any time.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::{Git, GitError};
use domain::git_mirror::MARKER;

/// File with the commits at which the history of a repository is cut.
const SHALLOW: &str = "shallow";

/// Folder of packs in a repository.
const PACKS: &str = "objects/pack";

impl Git {
    /// Copies a mirror into the empty repository. Returns the head of the branch in the mirror; `None` if the mirror does
    /// not have the branch. Starts no process.
    ///
    /// # Errors
    /// If the mirror is incomplete or damaged.
    pub(crate) async fn copy_mirror(
        &self,
        mirror: &Path,
        branch: &str,
    ) -> Result<Option<String>, GitError> {
        let action = "copying the mirror of the repository";
        let (from, to) = (mirror.to_owned(), self.git_dir.clone());
        let reference = format!("refs/heads/{branch}");
        let copied = tasks::spawn_blocking(move || copy(&from, &to, &reference)).await;
        let head = copied.map_err(io::Error::other).and_then(|result| result);
        head.map_err(|cause| GitError::Io { action, cause })
    }

    /// Sets the known head of a remote branch.
    ///
    /// # Errors
    /// If the repository does not have the commit.
    pub(crate) async fn set_known_head(&self, branch: &str, commit: &str) -> Result<(), GitError> {
        let reference = format!("refs/remotes/origin/{branch}");
        let args = ["update-ref", "--no-deref", &reference, commit];
        self.run("git update-ref", args, &[]).await.map(drop)
    }

    /// Removes the repository and its work tree, so that it can be created again.
    pub(crate) fn remove(&self) -> Result<(), GitError> {
        for dir in [&self.git_dir, &self.work_tree] {
            match fs::remove_dir_all(dir) {
                Err(cause) if cause.kind() != io::ErrorKind::NotFound => {
                    let action = "removing the repository";
                    return Err(GitError::Io { action, cause });
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Copies packs and the end of the history. Returns the commit of a reference; `None` if it does not exist.
fn copy(mirror: &Path, git_dir: &Path, reference: &str) -> io::Result<Option<String>> {
    let head = match fs::read_to_string(mirror.join(reference)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        head => head?,
    };
    let head = head.trim_end();
    if !matches!(head.len(), 40 | 64) || !head.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(io::Error::other("a branch has no commit"));
    }
    let packs = git_dir.join(PACKS);
    fs::create_dir_all(&packs)?;
    let mut files: Vec<PathBuf> = Vec::new();
    for entry in fs::read_dir(mirror.join(PACKS))? {
        let entry = entry?;
        let is_pack = entry.file_name().to_string_lossy().starts_with("pack-");
        files.extend((is_pack && entry.file_type()?.is_file()).then(|| entry.path()));
    }
    for file in files {
        fs::copy(&file, packs.join(file.file_name().unwrap_or_default()))?;
    }
    match fs::copy(mirror.join(SHALLOW), git_dir.join(SHALLOW)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    // It is the first file that is removed.
    fs::metadata(mirror.join(MARKER))?;
    Ok(Some(head.to_owned()))
}
