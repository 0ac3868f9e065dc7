//! Read-only access to a local repository.
//!
//! Objects are read through a separate git directory, so that the repository's configuration and
//! hooks have no effect and nothing in it is written. Only references are resolved in the
//! repository itself.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::{Git, GitError, Transport, capture_output, hardened_spec, parse_object_id};
use crate::child::ChildEnv;

/// Variables by which git is found, and by which git passes repository and index to a hook.
pub(crate) const INHERITED_VARIABLES: [&str; 4] =
    [PATH, "GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"];

/// Search path, the only variable that git gets with a separate git directory.
const PATH: &str = "PATH";

/// Local repository, opened read-only.
pub(crate) struct LocalRepository {
    /// Folder that the repository was opened from.
    folder: PathBuf,
    env: ChildEnv,
    index: PathBuf,
    /// Separate git directory that reads the repository's objects and stores new ones itself.
    pub git: Git,
    _temp_dir: TempDir,
}

impl LocalRepository {
    /// Opens the repository of a folder. `env` holds the [`INHERITED_VARIABLES`] that are set.
    ///
    /// # Errors
    /// If git is not installed or finds no repository.
    pub(crate) async fn open(folder: &Path, env: ChildEnv) -> Result<Self, GitError> {
        let action = "opening the repository";
        let failed = |cause| GitError::Io { action, cause };
        let args = ["rev-parse", "--git-path", "objects", "--git-path", "index"];
        let spec = hardened_spec(folder, env.clone(), args.map(OsString::from));
        let output = capture_output("git rev-parse", &spec).await?;
        let output = String::from_utf8_lossy(&output.stdout).into_owned();
        // The paths may be relative to the folder. Git 2.30 cannot print absolute ones.
        let absolute = std::path::absolute(folder).map_err(failed)?;
        let mut lines = output.lines().map(|line| absolute.join(line));
        let (Some(objects), Some(index)) = (lines.next(), lines.next()) else {
            return Err(GitError::UnexpectedOutput { action });
        };
        let temp_dir = tempfile::tempdir().map_err(failed)?;
        let git = Git {
            program: None,
            relay_client: None,
            git_dir: temp_dir.path().join("git"),
            work_tree: temp_dir.path().join("tree"),
            url: String::new(),
            env: env
                .only(PATH)
                .with("GIT_ALTERNATE_OBJECT_DIRECTORIES", objects),
            transport: Transport::LocalFiles,
        };
        git.init().await?;
        Ok(Self {
            folder: folder.to_owned(),
            env,
            index,
            git,
            _temp_dir: temp_dir,
        })
    }

    /// Returns the tree of the staged changes.
    pub(crate) async fn staged_tree(&self) -> Result<String, GitError> {
        let action = "reading the index";
        let failed = |cause| GitError::Io { action, cause };
        if !self.index.exists() {
            return self.empty_tree().await;
        }
        std::fs::copy(&self.index, self.git.git_dir.join("index")).map_err(failed)?;
        // A split index refers to a second file.
        let folder = self.index.parent().unwrap_or(&self.folder);
        for entry in std::fs::read_dir(folder).map_err(failed)?.flatten() {
            let name = entry.file_name();
            if name.to_string_lossy().starts_with("sharedindex.") {
                std::fs::copy(entry.path(), self.git.git_dir.join(name)).map_err(failed)?;
            }
        }
        let tree = self.git.run("git write-tree", ["write-tree"], &[]).await?;
        parse_object_id("git write-tree", &tree)
    }

    /// Returns the tree of the current commit, or the empty tree if there is none.
    pub(crate) async fn head_tree(&self) -> Result<String, GitError> {
        match self
            .query(&["rev-parse", "--verify", "--quiet", "HEAD^{tree}"])
            .await
        {
            Err(GitError::Failed { code: 1, .. }) => self.empty_tree().await,
            tree => tree,
        }
    }

    /// Returns the commit of a name.
    pub(crate) async fn resolve_commit(&self, name: &str) -> Result<String, GitError> {
        let name = format!("{name}^{{commit}}");
        self.query(&["rev-parse", "--verify", "--end-of-options", &name])
            .await
    }

    /// Returns the merge base of two commits.
    pub(crate) async fn merge_base(&self, one: &str, other: &str) -> Result<String, GitError> {
        self.query(&["merge-base", one, other]).await
    }

    async fn empty_tree(&self) -> Result<String, GitError> {
        let tree = self.git.run("git mktree", ["mktree"], &[]).await?;
        parse_object_id("git mktree", &tree)
    }

    /// Runs a git command in the repository that prints one object id.
    async fn query(&self, args: &[&str]) -> Result<String, GitError> {
        let args = args.iter().map(OsString::from);
        let spec = hardened_spec(&self.folder, self.env.clone(), args);
        parse_object_id(
            "git rev-parse",
            &capture_output("git rev-parse", &spec).await?,
        )
    }
}
