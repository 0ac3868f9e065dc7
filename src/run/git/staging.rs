//! Import of the agent's work tree into the run's index.
//!
//! The work tree is untrusted: it may contain repositories, links, paths that git rejects, and
//! names with line breaks. A path that cannot be staged blocks the push with a reason. It neither
//! ends the run nor is silently left out.

use std::os::unix::ffi::OsStrExt;

use super::{Git, GitError, parse_object_id, split_nul};
use domain::sensitive_files::{GuardReason, SensitiveFile};

/// Folder for an agent's output for people. It is never staged.
pub(crate) const AI_OUTPUT: &str = "ai-output";

/// Number of rejected paths after which staging stops, because the push is blocked anyway.
const MAX_REJECTED: usize = 50;

/// Work tree at the time it was staged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StagedTree {
    /// Tree object of the staged files.
    pub tree: String,
    /// Paths that could not be staged, with the reason.
    pub blocked: Vec<SensitiveFile>,
}

impl Git {
    /// Stages every change of the work tree, untracked files included.
    pub(crate) async fn stage_work_tree(&self) -> Result<StagedTree, GitError> {
        let mut blocked = Vec::new();
        // Untracked files first: a link that replaces a folder must replace the index entries below
        // it before these are checked.
        let untracked = self
            .run(
                "git ls-files",
                ["ls-files", "-z", "--others", "--exclude-standard"],
                &[],
            )
            .await?;
        let (nested, files): (Vec<&[u8]>, Vec<&[u8]>) = split_nul(&untracked.stdout)
            .filter(|path| !is_ai_output(path))
            .partition(|path| path.ends_with(b"/"));
        blocked.extend(nested.into_iter().map(|path| SensitiveFile {
            path: String::from_utf8_lossy(path).into_owned(),
            reason: GuardReason::NestedRepository,
        }));
        self.stage(&files, &mut blocked).await?;
        let tracked = self
            .run(
                "git ls-files",
                ["ls-files", "-z", "--modified", "--deleted"],
                &[],
            )
            .await?;
        let mut tracked: Vec<&[u8]> = split_nul(&tracked.stdout)
            .filter(|path| !is_ai_output(path))
            .collect();
        // Deleted files are also modified. The option that lists them once needs git 2.31.
        tracked.dedup();
        self.stage(&tracked, &mut blocked).await?;
        let tree = self.run("git write-tree", ["write-tree"], &[]).await?;
        Ok(StagedTree {
            tree: parse_object_id("git write-tree", &tree)?,
            blocked,
        })
    }

    /// Restores the work tree to a staged tree, except for files that are never staged.
    pub(crate) async fn restore(&self, tree: &str) -> Result<(), GitError> {
        // Only files in the index are removed.
        self.stage_work_tree().await?;
        let args = ["read-tree", "--reset", "-u", tree];
        self.run("git read-tree", args, &[]).await.map(drop)
    }

    /// Stages paths. Paths that git rejects are found by bisection.
    async fn stage(
        &self,
        paths: &[&[u8]],
        blocked: &mut Vec<SensitiveFile>,
    ) -> Result<(), GitError> {
        let mut pending = vec![paths];
        while let Some(batch) = pending.pop() {
            if batch.is_empty() || blocked.len() >= MAX_REJECTED {
                continue;
            }
            let args = [
                "add",
                "--all",
                "--pathspec-from-file=-",
                "--pathspec-file-nul",
            ];
            match self.run("git add", args, &batch.join(&0)).await {
                Ok(_) => {}
                Err(GitError::Failed { .. }) if batch.len() > 1 => {
                    let (left, right) = batch.split_at(batch.len() / 2);
                    pending.extend([right, left]);
                }
                Err(GitError::Failed { .. }) => blocked.push(self.rejected(batch[0])),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn rejected(&self, path: &[u8]) -> SensitiveFile {
        let file = self.work_tree.join(std::ffi::OsStr::from_bytes(path));
        let readable = std::fs::symlink_metadata(&file)
            .is_ok_and(|found| !found.is_file() || std::fs::File::open(&file).is_ok());
        SensitiveFile {
            path: String::from_utf8_lossy(path).into_owned(),
            reason: if readable {
                GuardReason::UnsafePath
            } else {
                GuardReason::Unreadable
            },
        }
    }

    /// Excludes all currently untracked files, created by repository scripts, from later staging.
    /// Earlier exclusions stay. Returns the number of paths.
    pub(crate) async fn exclude_untracked(&self) -> Result<usize, GitError> {
        let action = "git ls-files";
        let args = [
            "ls-files",
            "-z",
            "--others",
            "--exclude-standard",
            "--directory",
        ];
        let output = self.run(action, args, &[]).await?;
        let folder = self.git_dir.join("info");
        let file = folder.join("exclude");
        let failed = |cause| GitError::Io { action, cause };
        std::fs::create_dir_all(&folder).map_err(failed)?;
        let mut rules = match file.symlink_metadata() {
            Ok(found) if found.is_file() => std::fs::read(&file).map_err(failed)?,
            _ => Vec::new(),
        };
        let mut count = 0;
        for path in split_nul(&output.stdout).filter(|path| !path.contains(&b'\n')) {
            rules.push(b'/');
            for byte in path {
                if b"\\*?[]#! ".contains(byte) {
                    rules.push(b'\\');
                }
                rules.push(*byte);
            }
            rules.push(b'\n');
            count += 1;
        }
        // Written to a new file and renamed, so that no link is followed.
        let fresh = tempfile::NamedTempFile::new_in(&folder).map_err(failed)?;
        std::fs::write(fresh.path(), rules).map_err(failed)?;
        fresh.persist(file).map_err(|error| failed(error.error))?;
        Ok(count)
    }
}

fn is_ai_output(path: &[u8]) -> bool {
    let rest = path.strip_prefix(AI_OUTPUT.as_bytes());
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}
