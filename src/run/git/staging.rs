//! Taking the agent's work tree into the run's own index.
//!
//! The tree is hostile: it may hold repositories, links, paths that git refuses and names with line
//! breaks. What cannot be taken becomes a reason that blocks the push; it never ends the run by
//! itself and never silently stays behind.

use std::os::unix::ffi::OsStrExt;

use super::{Git, GitError, parse_object_id, split_nul};
use domain::sensitive_files::{GuardReason, SensitiveFile};

/// Where agents put what is meant for people and not for the repository. It is never taken.
pub const AI_OUTPUT: &str = "ai-output";

/// After so many refused paths the push is blocked as surely as it can be.
const ENOUGH: usize = 50;

/// The work tree as the run took it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StagedTree {
    /// The tree object of everything that was taken.
    pub tree: String,
    /// What could not be taken, and why.
    pub blocked: Vec<SensitiveFile>,
}

impl Git {
    /// Stages every change of the work tree, untracked files included, and answers the tree.
    pub async fn stage_work_tree(&self) -> Result<StagedTree, GitError> {
        let mut blocked = Vec::new();
        // Untracked first: a folder that became a link must replace what the index had below it
        // before that is looked at.
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
                ["ls-files", "-z", "--modified", "--deleted", "--deduplicate"],
                &[],
            )
            .await?;
        let tracked: Vec<&[u8]> = split_nul(&tracked.stdout)
            .filter(|path| !is_ai_output(path))
            .collect();
        self.stage(&tracked, &mut blocked).await?;
        let tree = self.run("git write-tree", ["write-tree"], &[]).await?;
        Ok(StagedTree {
            tree: parse_object_id("git write-tree", &tree)?,
            blocked,
        })
    }

    /// Makes the work tree what it was when this tree was taken, but for what is never taken.
    pub async fn restore(&self, tree: &str) -> Result<(), GitError> {
        // What was made since has to be in the index to be removed.
        self.stage_work_tree().await?;
        let args = ["read-tree", "--reset", "-u", tree];
        self.run("git read-tree", args, &[]).await.map(drop)
    }

    /// Stages paths; what git refuses is found by halving.
    async fn stage(
        &self,
        paths: &[&[u8]],
        blocked: &mut Vec<SensitiveFile>,
    ) -> Result<(), GitError> {
        let mut waiting = vec![paths];
        while let Some(batch) = waiting.pop() {
            if batch.is_empty() || blocked.len() >= ENOUGH {
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
                    waiting.extend([right, left]);
                }
                Err(GitError::Failed { .. }) => blocked.push(self.refused(batch[0])),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn refused(&self, path: &[u8]) -> SensitiveFile {
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

    /// Keeps what scripts of the repository have made so far out of later imports: it is not the
    /// agent's work. What was kept out before stays so.
    pub async fn exclude_untracked(&self) -> Result<usize, GitError> {
        let action = "git ls-files";
        let args = [
            "ls-files",
            "-z",
            "--others",
            "--exclude-standard",
            "--directory",
        ];
        let made = self.run(action, args, &[]).await?;
        let folder = self.git_dir.join("info");
        let file = folder.join("exclude");
        let failed = |cause| GitError::Io { action, cause };
        std::fs::create_dir_all(&folder).map_err(failed)?;
        let mut rules = match file.symlink_metadata() {
            Ok(found) if found.is_file() => std::fs::read(&file).map_err(failed)?,
            _ => Vec::new(),
        };
        let mut count = 0;
        for path in split_nul(&made.stdout).filter(|path| !path.contains(&b'\n')) {
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
        // Written beside and moved, so that no link is followed.
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
