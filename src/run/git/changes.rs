//! Changes between two trees, read from git objects only, never from the work tree.

use std::collections::{HashMap, HashSet};

use super::{Git, GitError};
use domain::sanitize;

/// Maximum size of the blobs read at once, in bytes. Smaller than the capture limit of a child.
const MAX_BATCH: u64 = 48 << 20;

/// Maximum size of a blob that is read at once, in bytes. Larger blobs are read in windows.
pub(crate) const MAX_BLOB: u64 = 24 << 20;

/// Size of a window of a large blob, in bytes.
pub(crate) const WINDOW_SIZE: usize = 8 << 20;

/// Maximum size of the previous content of a large blob, in bytes. GitHub accepts no file above 100 MiB.
const MAX_PREVIOUS_BLOB: u64 = 128 << 20;

/// Maximum size of a patch that is read, in bytes. Reports are limited to far less.
const MAX_PATCH_READ: usize = 64 << 20;

/// Overlap of consecutive windows, in bytes. Longer than any secret.
const OVERLAP: usize = 64 << 10;

/// Kind of a tree entry on one side of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TreeEntryKind {
    /// No entry.
    Missing,
    /// Regular file.
    File,
    /// Symbolic link.
    Symlink,
    /// Reference to a commit of another repository (submodule).
    Gitlink,
}

impl TreeEntryKind {
    fn from_mode(mode: &str) -> Self {
        match mode {
            "000000" => TreeEntryKind::Missing,
            "120000" => TreeEntryKind::Symlink,
            "160000" => TreeEntryKind::Gitlink,
            _ => TreeEntryKind::File,
        }
    }
}

/// Path that differs between two trees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TreeChange {
    /// Path from the root.
    pub path: String,
    /// Kind before the change.
    pub before: TreeEntryKind,
    /// Kind after the change.
    pub after: TreeEntryKind,
    /// Whether the new content of a file existed before, under this path or another.
    pub is_moved: bool,
    before_id: String,
    after_id: String,
}

/// Change with its contents. A large blob is passed in windows, each with the whole previous content.
#[derive(Debug)]
pub(crate) struct ChangeContents<'a> {
    /// Change.
    pub change: &'a TreeChange,
    /// Content before the change.
    pub before: &'a [u8],
    /// Content after the change; `None` if it could not be read.
    pub after: Option<&'a [u8]>,
    /// Number of lines before a window; `None` for a whole blob.
    pub lines_before: Option<usize>,
}

/// Parses the NUL-separated output of `git diff-tree --raw -z`. `None` if it is malformed.
fn parse_raw_changes(raw: &[u8]) -> Option<Vec<TreeChange>> {
    let mut fields = raw.split(|byte| *byte == 0);
    let mut changes = Vec::new();
    while let Some(head) = fields.next().filter(|head| !head.is_empty()) {
        let head = String::from_utf8_lossy(head);
        let words: Vec<&str> = head.trim_start_matches(':').split(' ').collect();
        let &[before, after, before_id, after_id, _] = words.as_slice() else {
            return None;
        };
        changes.push(TreeChange {
            path: String::from_utf8_lossy(fields.next()?).into_owned(),
            before: TreeEntryKind::from_mode(before),
            after: TreeEntryKind::from_mode(after),
            is_moved: false,
            before_id: before_id.to_owned(),
            after_id: after_id.to_owned(),
        });
    }
    let files = changes
        .iter()
        .filter(|change| change.before == TreeEntryKind::File);
    let known_ids: HashSet<String> = files.map(|change| change.before_id.clone()).collect();
    for change in &mut changes {
        change.is_moved =
            change.after == TreeEntryKind::File && known_ids.contains(&change.after_id);
    }
    Some(changes)
}

/// Fuzzing entry point: parses the output of `git diff-tree`.
pub fn fuzz_changes(raw: &[u8]) {
    let _ = parse_raw_changes(raw);
}

impl Git {
    /// Returns the paths that differ between two trees or commits.
    pub(crate) async fn changes(&self, from: &str, to: &str) -> Result<Vec<TreeChange>, GitError> {
        let action = "git diff-tree";
        let args = [
            "diff-tree",
            "-r",
            "-z",
            "--raw",
            "--no-renames",
            "--no-abbrev",
            from,
            to,
        ];
        let output = self.run(action, args, &[]).await?;
        parse_raw_changes(&output.stdout).ok_or(GitError::UnexpectedOutput { action })
    }

    /// Calls `visit` with each change and its contents. Bounds the memory for contents.
    pub(crate) async fn for_each_content(
        &self,
        changes: &[TreeChange],
        mut visit: impl FnMut(ChangeContents<'_>),
    ) -> Result<(), GitError> {
        let sizes = self.sizes(changes).await?;
        let size = |id: &str| sizes.get(id).copied().unwrap_or_default();
        let is_large = |change: &&TreeChange| size(&change.after_id) > MAX_BLOB;
        let cost = |change: &TreeChange| {
            let ids = [&change.before_id, &change.after_id];
            let sizes = ids.map(|id| size(id)).into_iter();
            sizes.filter(|size| *size <= MAX_BLOB).sum::<u64>()
        };
        let mut rest = changes;
        while !rest.is_empty() {
            let mut total = 0;
            let fitting = rest.iter().take_while(|change| {
                total += cost(change);
                total <= MAX_BATCH
            });
            let (batch, later) = rest.split_at(fitting.count().max(1));
            let blobs = self.blobs(batch, &sizes).await?;
            for change in batch.iter().filter(|change| !is_large(change)) {
                let content = |kind: TreeEntryKind, id: &str| match kind {
                    TreeEntryKind::File | TreeEntryKind::Symlink => {
                        blobs.get(id).map(Vec::as_slice)
                    }
                    TreeEntryKind::Missing | TreeEntryKind::Gitlink => Some(&[][..]),
                };
                visit(ChangeContents {
                    change,
                    before: content(change.before, &change.before_id).unwrap_or_default(),
                    after: content(change.after, &change.after_id),
                    lines_before: None,
                });
            }
            for change in batch.iter().filter(is_large) {
                let before = match change.before {
                    TreeEntryKind::File if size(&change.before_id) <= MAX_PREVIOUS_BLOB => {
                        self.large_blob(&change.before_id).await?
                    }
                    _ => Vec::new(),
                };
                self.windows(change, &before, &mut visit).await?;
            }
            rest = later;
        }
        Ok(())
    }

    async fn large_blob(&self, id: &str) -> Result<Vec<u8>, GitError> {
        let mut content = Vec::new();
        let append = |part: &[u8]| content.extend_from_slice(part);
        self.stream("git cat-file", ["cat-file", "blob", id], append)
            .await?;
        Ok(content)
    }

    /// Reads a large blob in windows. The overlap ensures that every secret is complete in one window.
    async fn windows(
        &self,
        change: &TreeChange,
        before: &[u8],
        visit: &mut impl FnMut(ChangeContents<'_>),
    ) -> Result<(), GitError> {
        let mut window: Vec<u8> = Vec::new();
        let mut lines_before = 0;
        let mut visit_window = |window: &[u8], lines_before| {
            visit(ChangeContents {
                change,
                before,
                after: Some(window),
                lines_before: Some(lines_before),
            });
        };
        let args = ["cat-file", "blob", change.after_id.as_str()];
        self.stream("git cat-file", args, |part| {
            window.extend_from_slice(part);
            if window.len() >= WINDOW_SIZE {
                visit_window(&window, lines_before);
                lines_before += slide_window(&mut window);
            }
        })
        .await?;
        visit_window(&window, lines_before);
        Ok(())
    }

    async fn sizes(&self, changes: &[TreeChange]) -> Result<HashMap<String, u64>, GitError> {
        let args = ["cat-file", "--batch-check=%(objectname) %(objectsize)"];
        let output = self
            .run("git cat-file", args, ids(changes.iter()).as_bytes())
            .await?;
        Ok(String::from_utf8_lossy(&output.stdout)
            .lines()
            .filter_map(|line| line.split_once(' '))
            .filter_map(|(id, size)| Some((id.to_owned(), size.parse().ok()?)))
            .collect())
    }

    async fn blobs(
        &self,
        batch: &[TreeChange],
        sizes: &HashMap<String, u64>,
    ) -> Result<HashMap<String, Vec<u8>>, GitError> {
        let action = "git cat-file";
        let requested: String = ids(batch.iter())
            .lines()
            .filter(|id| sizes.get(*id).is_some_and(|size| *size <= MAX_BLOB))
            .map(|id| format!("{id}\n"))
            .collect();
        let output = self
            .run(
                action,
                ["cat-file", "--batch", "--buffer"],
                requested.as_bytes(),
            )
            .await?;
        let mut rest = output.stdout.as_slice();
        let mut blobs = HashMap::new();
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let head = String::from_utf8_lossy(&rest[..end]).into_owned();
            let mut words = head.split(' ');
            let (Some(id), Some(_), Some(size)) = (words.next(), words.next(), words.next()) else {
                return Err(GitError::UnexpectedOutput { action });
            };
            let size: usize = size
                .parse()
                .map_err(|_| GitError::UnexpectedOutput { action })?;
            let content = rest
                .get(end + 1..end + 1 + size)
                .ok_or(GitError::UnexpectedOutput { action })?;
            blobs.insert(id.to_owned(), content.to_vec());
            rest = rest.get(end + 2 + size..).unwrap_or_default();
        }
        Ok(blobs)
    }

    /// Returns the messages of the commits after `from`, up to `to`.
    pub(crate) async fn commit_messages(&self, from: &str, to: &str) -> Result<String, GitError> {
        let range = format!("{from}..{to}");
        let output = self
            .run("git log", ["log", "--format=%B", range.as_str()], &[])
            .await?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Returns the diff for people, cut at `max` bytes.
    pub(crate) async fn diff(&self, from: &str, to: &str, max: usize) -> Result<String, GitError> {
        // One byte above the limit shows that the diff was cut.
        let diff = self.diff_tree("-p", from, to, max + 1).await?;
        Ok(sanitize::truncate(diff, max, sanitize::ELLIPSIS).into_owned())
    }

    /// Returns the diff for `git apply`, up to a limit.
    pub(crate) async fn patch(&self, from: &str, to: &str) -> Result<String, GitError> {
        self.diff_tree("--binary", from, to, MAX_PATCH_READ).await
    }

    /// Returns the first bytes of a diff, which may be larger than memory.
    async fn diff_tree(
        &self,
        format: &str,
        from: &str,
        to: &str,
        max: usize,
    ) -> Result<String, GitError> {
        let args = [
            "diff-tree",
            "-r",
            format,
            "--no-ext-diff",
            "--no-textconv",
            "--no-color",
            from,
            to,
        ];
        let mut diff = Vec::new();
        let append = |part: &[u8]| {
            let remaining = max - diff.len();
            diff.extend_from_slice(&part[..part.len().min(remaining)]);
        };
        self.stream("git diff-tree", args, append).await?;
        Ok(String::from_utf8_lossy(&diff).into_owned())
    }
}

/// Drops all but the overlap of a window. Returns the number of lines dropped.
pub(crate) fn slide_window(window: &mut Vec<u8>) -> usize {
    let dropped = window.drain(..window.len().saturating_sub(OVERLAP));
    dropped.filter(|byte| *byte == b'\n').count()
}

/// Returns the ids of both sides' blobs without duplicates, one per line.
fn ids<'a>(changes: impl Iterator<Item = &'a TreeChange>) -> String {
    let mut ids: Vec<&str> = changes
        .flat_map(|change| {
            [
                (change.before, change.before_id.as_str()),
                (change.after, change.after_id.as_str()),
            ]
        })
        .filter(|(kind, _)| matches!(kind, TreeEntryKind::File | TreeEntryKind::Symlink))
        .map(|(_, id)| id)
        .collect();
    ids.sort_unstable();
    ids.dedup();
    ids.into_iter().map(|id| format!("{id}\n")).collect()
}
