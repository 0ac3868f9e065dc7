//! Merge of two commits into a tree.
//!
//! Only objects are read: neither the work tree, nor attributes, nor the index take part, so that a
//! merge driver or filter named by the repository has no effect. Files in conflict get markers with
//! the ids of both commits.

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;

use tempfile::TempDir;

use super::changes::{ChangeContents, TreeChange, TreeEntryKind};
use super::{Git, GitError, split_nul};

/// Exit code of git after wrong arguments. Versions before 2.38 know no `merge-tree --write-tree`.
const USAGE_ERROR: i32 = 129;

/// Length of a conflict marker at the start of a line.
const MARKER_LENGTH: usize = 7;

/// Merge of the base branch into the branch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TreeMerge {
    /// Merged tree. Files in conflict hold both sides between markers, or one of the sides.
    pub tree: String,
    /// Files in conflict, sorted by path.
    pub conflicts: Vec<MergeConflict>,
}

/// File that both sides changed in ways that do not fit together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MergeConflict {
    /// Path from the root.
    pub path: String,
    /// Kind of the conflict.
    pub kind: ConflictKind,
}

/// Kind of a conflict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConflictKind {
    /// The merged file holds conflict markers.
    Content,
    /// Deleted on the branch; the merged file is that of the base branch.
    DeletedOnBranch,
    /// Deleted on the base branch; the merged file is that of the branch.
    DeletedOnBase,
    /// Not text; the merged file is that of one side.
    Binary,
    /// Another kind: a link, a submodule, or a renamed file.
    Other,
}

/// Entries of a path in conflict: common ancestor, branch and base branch.
pub(super) type ConflictEntries = [Option<TreeEntry>; 3];

/// Entry of a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TreeEntry {
    pub mode: String,
    pub id: String,
}

impl TreeEntry {
    /// Whether the entry is a regular file.
    pub(super) fn is_file(&self) -> bool {
        self.mode.starts_with("100")
    }
}

/// Merged tree and the entries of the paths in conflict.
pub(super) struct RawMerge {
    pub tree: String,
    pub unmerged: BTreeMap<Vec<u8>, ConflictEntries>,
}

/// Folder for the index of a merge, and an empty work tree without attributes.
pub(super) struct MergeFolder {
    dir: TempDir,
}

impl MergeFolder {
    /// Returns the path of the index.
    pub(super) fn index(&self) -> PathBuf {
        self.dir.path().join("index")
    }
}

impl Git {
    /// Merges the commit `base` into the commit `head`.
    ///
    /// # Errors
    /// If git fails, such as without a common ancestor.
    pub(crate) async fn merge(&self, head: &str, base: &str) -> Result<TreeMerge, GitError> {
        let merged = match self.merge_tree(head, base).await {
            Err(GitError::Failed {
                code: USAGE_ERROR, ..
            }) => self.merge_without_ort(head, base).await?,
            merged => merged?,
        };
        self.classify(head, base, merged).await
    }

    /// Merges with version 2.30 to 2.37 of git.
    #[cfg(test)]
    pub(crate) async fn merge_with_old_git(
        &self,
        head: &str,
        base: &str,
    ) -> Result<TreeMerge, GitError> {
        let merged = self.merge_without_ort(head, base).await?;
        self.classify(head, base, merged).await
    }

    /// Returns a copy of this repository with an empty work tree, and the folder of its index.
    pub(super) fn for_merge(&self) -> Result<(Self, MergeFolder), GitError> {
        let action = "creating the folder of the merge";
        let failed = |cause| GitError::Io { action, cause };
        let dir = tempfile::tempdir_in(&self.git_dir).map_err(failed)?;
        let work_tree = dir.path().join("tree");
        std::fs::create_dir(&work_tree).map_err(failed)?;
        let folder = MergeFolder { dir };
        let git = Self {
            work_tree,
            env: self.env.clone().with("GIT_INDEX_FILE", folder.index()),
            ..self.clone()
        };
        Ok((git, folder))
    }

    async fn merge_tree(&self, head: &str, base: &str) -> Result<RawMerge, GitError> {
        let action = "git merge-tree";
        let (git, _folder) = self.for_merge()?;
        let spec = git.spec([
            "-c",
            "merge.conflictStyle=diff3",
            "merge-tree",
            "--write-tree",
            "-z",
            "--no-messages",
            head,
            base,
        ]);
        // Exit code 1 reports conflicts.
        let output = git.run_spec_up_to(action, &spec, 1).await?;
        let (tree, unmerged) = split_at_nul(&output.stdout);
        let tree = String::from_utf8_lossy(tree).into_owned();
        let unexpected = || GitError::UnexpectedOutput { action };
        if tree.is_empty() || !tree.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(unexpected());
        }
        let unmerged = parse_unmerged(unmerged).ok_or_else(unexpected)?;
        Ok(RawMerge { tree, unmerged })
    }

    /// Determines the kind of each conflict.
    async fn classify(
        &self,
        head: &str,
        base: &str,
        merged: RawMerge,
    ) -> Result<TreeMerge, GitError> {
        let RawMerge { tree, unmerged } = merged;
        let lossy = |path: &Vec<u8>| String::from_utf8_lossy(path).into_owned();
        let paths: HashSet<String> = unmerged.keys().map(lossy).collect();
        let mut changes = self.changes(head, &tree).await?;
        changes.retain(|change| paths.contains(&change.path));
        let mut marked = HashSet::new();
        self.for_each_content(&changes, |contents| {
            let text = contents.after.unwrap_or_default();
            if count_hunks(text, base) > 0 {
                marked.insert(contents.change.path.clone());
            }
        })
        .await?;
        let conflicts = unmerged.into_iter().map(|(path, entries)| {
            let path = lossy(&path);
            let kind = match entries {
                _ if marked.contains(&path) => ConflictKind::Content,
                [Some(_), None, Some(_)] => ConflictKind::DeletedOnBranch,
                [Some(_), Some(_), None] => ConflictKind::DeletedOnBase,
                [_, Some(one), Some(other)] if one.is_file() && other.is_file() => {
                    ConflictKind::Binary
                }
                _ => ConflictKind::Other,
            };
            MergeConflict { path, kind }
        });
        Ok(TreeMerge {
            conflicts: conflicts.collect(),
            tree,
        })
    }

    /// Returns the files of a tree that still hold conflict markers of the merge of `head` and `base`,
    /// sorted by path.
    pub(crate) async fn marked_files(
        &self,
        merge: &TreeMerge,
        [head, base]: [&str; 2],
        tree: &str,
    ) -> Result<Vec<String>, GitError> {
        let changes = self.changes(&merge.tree, tree).await?;
        let changed: HashSet<&str> = changes.iter().map(|change| change.path.as_str()).collect();
        let marked = { merge.conflicts.iter() }
            .filter(|conflict| conflict.kind == ConflictKind::Content)
            .map(|conflict| conflict.path.as_str());
        let marked: HashSet<&str> = marked.collect();
        let is_unchanged = |path: &&&str| !changed.contains(**path);
        let mut found: Vec<String> = { marked.iter().filter(is_unchanged) }
            .map(|path| (*path).to_owned())
            .collect();
        let is_file = |change: &&TreeChange| change.after == TreeEntryKind::File;
        let files: Vec<TreeChange> = changes.iter().filter(is_file).cloned().collect();
        self.for_each_content(&files, |contents| {
            let path = contents.change.path.as_str();
            let is_left = match marked.contains(path) {
                true => has_remaining_marker(&contents, base),
                false => has_label(contents.after.unwrap_or_default(), [head, base]),
            };
            if is_left {
                found.push(path.to_owned());
            }
        })
        .await?;
        found.sort_unstable();
        found.dedup();
        Ok(found)
    }
}

/// Whether a file in conflict holds more markers than the ones that are part of its text.
fn has_remaining_marker(contents: &ChangeContents<'_>, base: &str) -> bool {
    let after = contents.after.unwrap_or_default();
    let hunks = count_hunks(contents.before, base);
    // The previous content of a large file is not known.
    let is_window = contents.before.is_empty();
    [b'<', b'|', b'=', b'>'].into_iter().any(|sign| {
        let own = count_markers(contents.before, sign).saturating_sub(hunks);
        let is_common = is_window && sign == b'=';
        !is_common && count_markers(after, sign) > own
    })
}

/// Counts the lines that consist of a marker of this sign, with or without a label.
fn count_markers(text: &[u8], sign: u8) -> usize {
    let is_marker = |line: &&[u8]| {
        let length = line.iter().take_while(|byte| **byte == sign).count();
        let label = line.get(MARKER_LENGTH..).unwrap_or_default();
        length == MARKER_LENGTH && matches!(label.first(), None | Some(b' ' | b'\r'))
    };
    text.split(|byte| *byte == b'\n').filter(is_marker).count()
}

/// Counts the conflicts in a merged file: the end markers with the id of the base branch.
fn count_hunks(text: &[u8], base: &str) -> usize {
    let end = format!(">>>>>>> {base}");
    let lines = text.split(|byte| *byte == b'\n');
    lines
        .filter(|line| line.starts_with(end.as_bytes()))
        .count()
}

/// Whether a line is a marker with the id of one of the commits.
fn has_label(text: &[u8], [head, base]: [&str; 2]) -> bool {
    let begin = format!("<<<<<<< {head}");
    count_hunks(text, base) > 0
        || text
            .split(|byte| *byte == b'\n')
            .any(|line| line.starts_with(begin.as_bytes()))
}

fn split_at_nul(bytes: &[u8]) -> (&[u8], &[u8]) {
    let end = bytes.iter().position(|byte| *byte == 0);
    let end = end.unwrap_or(bytes.len());
    (&bytes[..end], bytes.get(end + 1..).unwrap_or_default())
}

/// Parses entries of the form `<mode> <id> <stage>\t<path>`, each ended by NUL. `None` if they are
/// malformed.
pub(super) fn parse_unmerged(raw: &[u8]) -> Option<BTreeMap<Vec<u8>, ConflictEntries>> {
    let mut unmerged: BTreeMap<Vec<u8>, ConflictEntries> = BTreeMap::new();
    for entry in split_nul(raw) {
        let tab = entry.iter().position(|byte| *byte == b'\t')?;
        let head = std::str::from_utf8(&entry[..tab]).ok()?;
        let words: Vec<&str> = head.split(' ').collect();
        let &[mode, id, stage] = words.as_slice() else {
            return None;
        };
        let stage: usize = stage.parse().ok()?;
        let entries = unmerged.entry(entry[tab + 1..].to_vec()).or_default();
        *entries.get_mut(stage.checked_sub(1)?)? = Some(TreeEntry {
            mode: mode.to_owned(),
            id: id.to_owned(),
        });
    }
    Some(unmerged)
}
