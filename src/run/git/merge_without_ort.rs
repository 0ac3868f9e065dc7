//! Merge with git 2.30 to 2.37: index and files are merged by separate commands, without the detection
//! of renames.

use std::ffi::OsStr;

use super::merge::{ConflictEntries, MergeFolder, RawMerge, TreeEntry, parse_unmerged};
use super::{Git, GitError, parse_object_id};
use crate::child::ChildOutput;

/// Highest exit code of `merge-file` that is a number of conflicts.
const MAX_FILE_CONFLICTS: i32 = 127;

impl Git {
    /// Merges the commit `base` into the commit `head`.
    pub(super) async fn merge_without_ort(
        &self,
        head: &str,
        base: &str,
    ) -> Result<RawMerge, GitError> {
        let ancestor = self.merge_base(base, head).await?;
        let ancestor = ancestor.ok_or(GitError::UnexpectedOutput {
            action: "git merge-base",
        })?;
        let (git, folder) = self.for_merge()?;
        let args = ["read-tree", "-i", "-m", "--aggressive"];
        let args = args.into_iter().chain([ancestor.as_str(), head, base]);
        git.run("git read-tree", args, &[]).await?;
        let listed = git.run("git ls-files", ["ls-files", "-u", "-z"], &[]);
        let listed = listed.await?.stdout;
        let mut unmerged = parse_unmerged(&listed).ok_or(GitError::UnexpectedOutput {
            action: "git ls-files",
        })?;
        let mut merged = Vec::new();
        let mut clean = Vec::new();
        for (path, entries) in &unmerged {
            let file = git.merge_entries(&folder, entries, [&ancestor, head, base]);
            let file = file.await?;
            if !file.is_in_conflict {
                clean.push(path.clone());
            }
            if let Some(TreeEntry { mode, id }) = &file.entry {
                merged.extend(format!("{mode} {id}\t").as_bytes());
                merged.extend(path);
                merged.push(0);
            }
        }
        let args = ["update-index", "-z", "--index-info"];
        git.run("git update-index", args, &merged).await?;
        unmerged.retain(|path, _| !clean.contains(path));
        let tree = git.run("git write-tree", ["write-tree"], &[]).await?;
        Ok(RawMerge {
            tree: parse_object_id("git write-tree", &tree)?,
            unmerged,
        })
    }

    /// Merges the entries of one path. A path that cannot be merged keeps the entry of the branch, or
    /// else of the base branch.
    async fn merge_entries(
        &self,
        folder: &MergeFolder,
        entries: &ConflictEntries,
        labels: [&str; 3],
    ) -> Result<MergedEntry, GitError> {
        let [ancestor, ours, theirs] = entries;
        let conflict = |entry: Option<&TreeEntry>| MergedEntry {
            entry: entry.cloned(),
            is_in_conflict: true,
        };
        let (Some(our), Some(their)) = (ours, theirs) else {
            return Ok(conflict(ours.as_ref().or(theirs.as_ref())));
        };
        let is_file = |entry: &Option<TreeEntry>| entry.as_ref().is_none_or(TreeEntry::is_file);
        if !entries.iter().all(is_file) {
            return Ok(conflict(Some(our)));
        }
        let (names, action) = (["ancestor", "ours", "theirs"], "git merge-file");
        let files = names.map(|name| folder.index().with_file_name(name));
        for (file, entry) in files.iter().zip(entries) {
            let content = match entry {
                Some(entry) => self.blob(&entry.id).await?,
                None => Vec::new(),
            };
            std::fs::write(file, content).map_err(|cause| GitError::Io { action, cause })?;
        }
        let [ancestor_label, our_label, their_label] = labels;
        let mut spec = self.spec([
            "merge-file",
            "--stdout",
            "--quiet",
            "--diff3",
            "-L",
            our_label,
            "-L",
            ancestor_label,
            "-L",
            their_label,
        ]);
        let [ancestor_file, our_file, their_file] = files;
        let operands = [our_file, ancestor_file, their_file];
        spec.args
            .extend(operands.map(|file| AsRef::<OsStr>::as_ref(&file).to_owned()));
        let merged = match self.run_spec_up_to(action, &spec, MAX_FILE_CONFLICTS).await {
            Ok(merged) => merged,
            // Not text.
            Err(GitError::Failed { .. }) => return Ok(conflict(Some(our))),
            Err(error) => return Err(error),
        };
        let ancestor_mode = ancestor.as_ref().map(|entry| &entry.mode);
        let mode = match Some(&our.mode) == ancestor_mode {
            true => their.mode.clone(),
            false => our.mode.clone(),
        };
        Ok(MergedEntry {
            is_in_conflict: merged.exit.code() > 0,
            entry: Some(TreeEntry {
                mode,
                id: self.write_blob(&merged).await?,
            }),
        })
    }

    async fn blob(&self, id: &str) -> Result<Vec<u8>, GitError> {
        let output = self.run("git cat-file", ["cat-file", "blob", id], &[]);
        Ok(output.await?.stdout)
    }

    async fn write_blob(&self, content: &ChildOutput) -> Result<String, GitError> {
        let (action, args) = ("git hash-object", ["hash-object", "-w", "--stdin"]);
        parse_object_id(action, &self.run(action, args, &content.stdout).await?)
    }
}

/// Result for one path.
struct MergedEntry {
    /// `None` if the path does not exist any more.
    entry: Option<TreeEntry>,
    is_in_conflict: bool,
}
