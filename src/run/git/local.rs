//! A repository of this machine that is only looked at.
//!
//! Its objects are read through a git directory of our own, so that neither its configuration nor its
//! hooks count, and nothing in it is written. Only what its references mean is asked of itself.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::{Git, GitError, Transport, capture_output, hardened_spec, parse_object_id};
use crate::child::ChildEnv;
use crate::environment::inherited_env;

/// How git is found, and how it tells a hook which repository and index it is about.
const OF_HOOKS: [&str; 4] = ["PATH", "GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"];

/// Somebody's repository.
pub struct LocalRepository {
    /// Where it was asked for.
    folder: PathBuf,
    env: ChildEnv,
    index: PathBuf,
    /// Reads its objects, and keeps new ones to itself.
    pub git: Git,
    _own: TempDir,
}

impl LocalRepository {
    /// Opens the repository that a folder belongs to, by `PATH` and what git told a hook.
    ///
    /// # Errors
    /// When git is not there or knows of no repository.
    pub async fn open(folder: &Path) -> Result<Self, GitError> {
        let action = "opening the repository";
        let failed = |cause| GitError::Io { action, cause };
        let env = inherited_env(&OF_HOOKS);
        let args = [
            "rev-parse",
            "--path-format=absolute",
            "--git-path",
            "objects",
            "--git-path",
            "index",
        ];
        let spec = hardened_spec(folder, env.clone(), args.map(OsString::from));
        let answer = capture_output("git rev-parse", &spec).await?;
        let answer = String::from_utf8_lossy(&answer.stdout).into_owned();
        let mut lines = answer.lines().map(PathBuf::from);
        let (Some(objects), Some(index)) = (lines.next(), lines.next()) else {
            return Err(GitError::UnexpectedOutput { action });
        };
        let own = tempfile::tempdir().map_err(failed)?;
        let git = Git {
            program: None,
            relay_client: None,
            git_dir: own.path().join("git"),
            work_tree: own.path().join("tree"),
            url: String::new(),
            env: inherited_env(&["PATH"]).with("GIT_ALTERNATE_OBJECT_DIRECTORIES", objects),
            transport: Transport::LocalFiles,
        };
        git.init().await?;
        Ok(Self {
            folder: folder.to_owned(),
            env,
            index,
            git,
            _own: own,
        })
    }

    /// The tree of what is staged.
    pub async fn staged_tree(&self) -> Result<String, GitError> {
        let action = "reading the index";
        let failed = |cause| GitError::Io { action, cause };
        if !self.index.exists() {
            return self.empty_tree().await;
        }
        std::fs::copy(&self.index, self.git.git_dir.join("index")).map_err(failed)?;
        // A split index names the file that holds the rest of it.
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

    /// The tree of the current commit; the empty one before the first.
    pub async fn head_tree(&self) -> Result<String, GitError> {
        match self
            .asked(&["rev-parse", "--verify", "--quiet", "HEAD^{tree}"])
            .await
        {
            Err(GitError::Failed { code: 1, .. }) => self.empty_tree().await,
            tree => tree,
        }
    }

    /// The commit that a name means.
    pub async fn resolve_commit(&self, name: &str) -> Result<String, GitError> {
        let name = format!("{name}^{{commit}}");
        self.asked(&["rev-parse", "--verify", "--end-of-options", &name])
            .await
    }

    /// The commit where two histories part.
    pub async fn merge_base(&self, one: &str, other: &str) -> Result<String, GitError> {
        self.asked(&["merge-base", one, other]).await
    }

    async fn empty_tree(&self) -> Result<String, GitError> {
        let tree = self.git.run("git mktree", ["mktree"], &[]).await?;
        parse_object_id("git mktree", &tree)
    }

    async fn asked(&self, args: &[&str]) -> Result<String, GitError> {
        let args = args.iter().map(OsString::from);
        let spec = hardened_spec(&self.folder, self.env.clone(), args);
        parse_object_id(
            "git rev-parse",
            &capture_output("git rev-parse", &spec).await?,
        )
    }
}
