//! Reading what changed between two trees, from objects only: the work tree is not asked again.

use std::collections::HashMap;

use super::{Git, GitError};
use crate::pipeline::text;

/// How many bytes of blobs do we hold at a time?
const MAX_BATCH: u64 = 32 << 20;

/// Blobs beyond this are not read.
const MAX_BLOB: u64 = 48 << 20;

/// What a path is on one side of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Missing,
    File,
    Link,
    /// A pointer to a commit of another repository.
    Gitlink,
}

impl Kind {
    fn of(mode: &str) -> Self {
        match mode {
            "000000" => Kind::Missing,
            "120000" => Kind::Link,
            "160000" => Kind::Gitlink,
            _ => Kind::File,
        }
    }
}

/// One path that differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    pub path: String,
    pub before: Kind,
    pub after: Kind,
    before_id: String,
    after_id: String,
}

/// A change with its contents. A blob that is too large to read has none.
#[derive(Debug)]
pub struct Contents<'a> {
    pub change: &'a Change,
    pub before: Option<Vec<u8>>,
    pub after: Option<Vec<u8>>,
}

impl Git {
    /// Paths that differ between two trees or commits.
    pub async fn changes(&self, from: &str, to: &str) -> Result<Vec<Change>, GitError> {
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
        let mut fields = answer.stdout.split(|byte| *byte == 0);
        let mut changes = Vec::new();
        while let Some(head) = fields.next().filter(|head| !head.is_empty()) {
            let head = String::from_utf8_lossy(head).into_owned();
            let words: Vec<&str> = head.trim_start_matches(':').split(' ').collect();
            let (&[before, after, before_id, after_id, _], Some(path)) =
                (words.as_slice(), fields.next())
            else {
                return Err(GitError::Answer { action });
            };
            changes.push(Change {
                path: String::from_utf8_lossy(path).into_owned(),
                before: Kind::of(before),
                after: Kind::of(after),
                before_id: before_id.to_owned(),
                after_id: after_id.to_owned(),
            });
        }
        Ok(changes)
    }

    /// Calls `look` with each change and its contents, a bounded amount at a time.
    pub async fn each_content(
        &self,
        changes: &[Change],
        mut look: impl FnMut(Contents<'_>),
    ) -> Result<(), GitError> {
        let sizes = self.sizes(changes).await?;
        let cost = |change: &Change| {
            [&change.before_id, &change.after_id]
                .into_iter()
                .filter_map(|id| sizes.get(id.as_str()))
                .filter(|size| **size <= MAX_BLOB)
                .sum::<u64>()
        };
        let mut rest = changes;
        while !rest.is_empty() {
            let mut total = 0;
            let fitting = rest
                .iter()
                .take_while(|change| {
                    total += cost(change);
                    total <= MAX_BATCH
                })
                .count()
                .max(1);
            let (batch, later) = rest.split_at(fitting);
            let blobs = self.blobs(batch, &sizes).await?;
            for change in batch {
                let of = |kind: Kind, id: &str| match kind {
                    Kind::File | Kind::Link => blobs.get(id).cloned(),
                    Kind::Missing | Kind::Gitlink => Some(Vec::new()),
                };
                look(Contents {
                    change,
                    before: of(change.before, &change.before_id),
                    after: of(change.after, &change.after_id),
                });
            }
            rest = later;
        }
        Ok(())
    }

    async fn sizes(&self, changes: &[Change]) -> Result<HashMap<String, u64>, GitError> {
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
        batch: &[Change],
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
                return Err(GitError::Answer { action });
            };
            let size: usize = size.parse().map_err(|_| GitError::Answer { action })?;
            let content = rest
                .get(end + 1..end + 1 + size)
                .ok_or(GitError::Answer { action })?;
            blobs.insert(id.to_owned(), content.to_vec());
            rest = rest.get(end + 2 + size..).unwrap_or_default();
        }
        Ok(blobs)
    }

    /// The messages of the commits after `from`, up to `to`.
    pub async fn messages(&self, from: &str, to: &str) -> Result<String, GitError> {
        let range = format!("{from}..{to}");
        let answer = self
            .run("git log", ["log", "--format=%B", range.as_str()], &[])
            .await?;
        Ok(String::from_utf8_lossy(&answer.stdout).into_owned())
    }

    /// The difference as people read it, cut at `max` bytes.
    pub async fn diff(&self, from: &str, to: &str, max: usize) -> Result<String, GitError> {
        let args = [
            "diff-tree",
            "-r",
            "-p",
            "--no-ext-diff",
            "--no-textconv",
            "--no-color",
            from,
            to,
        ];
        let answer = self.run("git diff-tree", args, &[]).await?;
        Ok(text::cut(&String::from_utf8_lossy(&answer.stdout), max))
    }
}

/// The blobs of both sides, one to a line, each once.
fn ids<'a>(changes: impl Iterator<Item = &'a Change>) -> String {
    let mut ids: Vec<&str> = changes
        .flat_map(|change| {
            [
                (change.before, change.before_id.as_str()),
                (change.after, change.after_id.as_str()),
            ]
        })
        .filter(|(kind, _)| matches!(kind, Kind::File | Kind::Link))
        .map(|(_, id)| id)
        .collect();
    ids.sort_unstable();
    ids.dedup();
    ids.into_iter().map(|id| format!("{id}\n")).collect()
}
