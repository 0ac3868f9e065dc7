//! Files that a repository keeps in Git LFS. Runs see their pointers, because git starts no filter.

use std::collections::HashSet;

use super::changes::{TreeChange, TreeEntryKind};
use super::{Git, GitError, split_nul};

/// First bytes of a pointer.
const POINTER: &[u8] = b"version https://git-lfs.github.com/spec/v1\n";

impl Git {
    /// Returns the changed files that the attributes in the index assign to Git LFS, and that are not pointers.
    pub(crate) async fn files_missing_in_lfs(
        &self,
        changes: &[TreeChange],
    ) -> Result<Vec<String>, GitError> {
        let paths = changes.iter().map(|change| change.path.as_str());
        let args = ["check-attr", "--cached", "--stdin", "-z", "filter"];
        let paths = paths.collect::<Vec<_>>().join("\0");
        let output = self.run("git check-attr", args, paths.as_bytes()).await?;
        let fields: Vec<&[u8]> = split_nul(&output.stdout).collect();
        let tracked = fields.chunks_exact(3).filter(|fields| fields[2] == b"lfs");
        let tracked: HashSet<_> = tracked
            .map(|fields| String::from_utf8_lossy(fields[0]))
            .collect();
        let changes: Vec<TreeChange> = changes
            .iter()
            .filter(|change| change.after == TreeEntryKind::File)
            .filter(|change| tracked.contains(change.path.as_str()))
            .cloned()
            .collect();
        let mut missing = Vec::new();
        self.for_each_content(&changes, |contents| {
            let after = contents.after.unwrap_or_default();
            let is_first = contents.lines_before.unwrap_or_default() == 0;
            // The pointer of an empty file is empty.
            if is_first && !after.is_empty() && !after.starts_with(POINTER) {
                missing.push(contents.change.path.clone());
            }
        })
        .await?;
        missing.dedup();
        Ok(missing)
    }
}
