//! Reading what changed between two trees, from objects only: the work tree is not asked again.

use std::collections::{HashMap, HashSet};

use super::{Git, GitError};
use crate::text;

/// How many bytes of blobs do we hold at a time? Less than a captured child may say.
const MAX_BATCH: u64 = 48 << 20;

/// Larger contents are read in windows.
pub const MAX_BLOB: u64 = 24 << 20;

/// How much of a large content is looked at at once?
pub const WINDOW_SIZE: usize = 8 << 20;

/// How many bytes of a patch do we look at? A report has room for far less.
const MOST_OF_A_PATCH: usize = 64 << 20;

/// How much of a window is looked at again at the beginning of the next one? More than any secret is
/// long.
const OVERLAP: usize = 64 << 10;

/// What a path is on one side of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TreeEntryKind {
    Missing,
    File,
    Symlink,
    /// A pointer to a commit of another repository.
    Gitlink,
}

impl TreeEntryKind {
    fn of(mode: &str) -> Self {
        match mode {
            "000000" => TreeEntryKind::Missing,
            "120000" => TreeEntryKind::Symlink,
            "160000" => TreeEntryKind::Gitlink,
            _ => TreeEntryKind::File,
        }
    }
}

/// One path that differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeChange {
    pub path: String,
    pub before: TreeEntryKind,
    pub after: TreeEntryKind,
    /// Whether a changed file had this very content before, under this name or another.
    pub is_moved: bool,
    before_id: String,
    after_id: String,
}

/// A change with its contents, or a window of what is new where that is large: then nothing counts
/// as known before.
#[derive(Debug)]
pub struct ChangeContents<'a> {
    pub change: &'a TreeChange,
    pub before: &'a [u8],
    /// None could be read.
    pub after: Option<&'a [u8]>,
    /// Lines of the content before a window.
    pub lines_before: usize,
}

/// Reads raw changes, their fields ended by zeroes. None when they are none.
fn read(raw: &[u8]) -> Option<Vec<TreeChange>> {
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
            before: TreeEntryKind::of(before),
            after: TreeEntryKind::of(after),
            is_moved: false,
            before_id: before_id.to_owned(),
            after_id: after_id.to_owned(),
        });
    }
    let files = changes
        .iter()
        .filter(|change| change.before == TreeEntryKind::File);
    let known: HashSet<String> = files.map(|change| change.before_id.clone()).collect();
    for change in &mut changes {
        change.is_moved = change.after == TreeEntryKind::File && known.contains(&change.after_id);
    }
    Some(changes)
}

/// For the fuzzer: what git says has changed.
pub fn fuzz_changes(raw: &[u8]) {
    let _ = read(raw);
}

impl Git {
    /// Paths that differ between two trees or commits.
    pub async fn changes(&self, from: &str, to: &str) -> Result<Vec<TreeChange>, GitError> {
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
        let answer = self.run(action, args, &[]).await?;
        read(&answer.stdout).ok_or(GitError::UnexpectedOutput { action })
    }

    /// Calls `look` with each change and its contents, a bounded amount at a time.
    pub async fn for_each_content(
        &self,
        changes: &[TreeChange],
        mut look: impl FnMut(ChangeContents<'_>),
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
                let of = |kind: TreeEntryKind, id: &str| match kind {
                    TreeEntryKind::File | TreeEntryKind::Symlink => {
                        blobs.get(id).map(Vec::as_slice)
                    }
                    TreeEntryKind::Missing | TreeEntryKind::Gitlink => Some(&[][..]),
                };
                look(ChangeContents {
                    change,
                    before: of(change.before, &change.before_id).unwrap_or_default(),
                    after: of(change.after, &change.after_id),
                    lines_before: 0,
                });
            }
            for change in batch.iter().filter(is_large) {
                self.windows(change, &mut look).await?;
            }
            rest = later;
        }
        Ok(())
    }

    /// Reads a large blob piece by piece. What stands across two pieces is whole in the second.
    async fn windows(
        &self,
        change: &TreeChange,
        look: &mut impl FnMut(ChangeContents<'_>),
    ) -> Result<(), GitError> {
        let mut held: Vec<u8> = Vec::new();
        let mut lines_before = 0;
        let mut show = |held: &[u8], lines_before| {
            look(ChangeContents {
                change,
                before: &[],
                after: Some(held),
                lines_before,
            });
        };
        let args = ["cat-file", "blob", change.after_id.as_str()];
        self.stream("git cat-file", args, |part| {
            held.extend_from_slice(part);
            if held.len() >= WINDOW_SIZE {
                show(&held, lines_before);
                lines_before += slide_window(&mut held);
            }
        })
        .await?;
        show(&held, lines_before);
        Ok(())
    }

    async fn sizes(&self, changes: &[TreeChange]) -> Result<HashMap<String, u64>, GitError> {
        let args = ["cat-file", "--batch-check=%(objectname) %(objectsize)"];
        let answer = self
            .run("git cat-file", args, ids(changes.iter()).as_bytes())
            .await?;
        Ok(String::from_utf8_lossy(&answer.stdout)
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
        let asked: String = ids(batch.iter())
            .lines()
            .filter(|id| sizes.get(*id).is_some_and(|size| *size <= MAX_BLOB))
            .map(|id| format!("{id}\n"))
            .collect();
        let answer = self
            .run(
                action,
                ["cat-file", "--batch", "--buffer"],
                asked.as_bytes(),
            )
            .await?;
        let mut rest = answer.stdout.as_slice();
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

    /// The messages of the commits after `from`, up to `to`.
    pub async fn commit_messages(&self, from: &str, to: &str) -> Result<String, GitError> {
        let range = format!("{from}..{to}");
        let answer = self
            .run("git log", ["log", "--format=%B", range.as_str()], &[])
            .await?;
        Ok(String::from_utf8_lossy(&answer.stdout).into_owned())
    }

    /// The difference as people read it, cut at `max` bytes.
    pub async fn diff(&self, from: &str, to: &str, max: usize) -> Result<String, GitError> {
        // One byte more shows that there is more.
        let begun = self.difference("-p", from, to, max + 1).await?;
        Ok(text::truncate(&begun, max))
    }

    /// The difference as git applies it, as far as it can be looked at.
    pub async fn patch(&self, from: &str, to: &str) -> Result<String, GitError> {
        self.difference("--binary", from, to, MOST_OF_A_PATCH).await
    }

    /// The first bytes of a difference: of a large file it may be larger than memory.
    async fn difference(
        &self,
        form: &str,
        from: &str,
        to: &str,
        most: usize,
    ) -> Result<String, GitError> {
        let args = [
            "diff-tree",
            "-r",
            form,
            "--no-ext-diff",
            "--no-textconv",
            "--no-color",
            from,
            to,
        ];
        let mut begun = Vec::new();
        let take = |part: &[u8]| {
            let room = most - begun.len();
            begun.extend_from_slice(&part[..part.len().min(room)]);
        };
        self.stream("git diff-tree", args, take).await?;
        Ok(String::from_utf8_lossy(&begun).into_owned())
    }
}

/// Drops a window that was looked at, but for what the next one looks at again. Returns the lines that
/// went.
pub fn slide_window(window: &mut Vec<u8>) -> usize {
    let gone = window.drain(..window.len().saturating_sub(OVERLAP));
    gone.filter(|byte| *byte == b'\n').count()
}

/// The blobs of both sides, one to a line, each once.
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
