//! Log of changed rows, kept in memory until a standby has them.
//!
//! A standby gets a backup, and then the rows that each later commit put or removed. The log is held while a commit
//! is written and while a snapshot begins, so that every commit is either in the snapshot or in the log.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redb::{Database, ReadableDatabase};

use super::StoreResult;
use super::table::ReadTx;

/// Maximum size of the rows in the log, in bytes. If more change before they are taken, a new snapshot costs less.
const MAX_BYTES: usize = 8 << 20;

/// Changed rows of consecutive commits.
#[derive(Debug, PartialEq, Eq)]
pub struct ChangedRows {
    /// Number of the last commit, counted from the start of the process.
    pub last_commit: u64,
    /// Encoded rows, in the order of the changes.
    pub(super) records: Vec<u8>,
}

impl ChangedRows {
    /// Whether no row has changed.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Size of the rows in bytes.
    pub fn size(&self) -> usize {
        self.records.len()
    }
}

/// Snapshot of the store, and what the log had when it began.
pub struct NumberedSnapshot {
    /// Snapshot.
    pub tx: ReadTx,
    /// Rows of the commits before it that were not taken yet. `None` if they are incomplete, or were not recorded.
    pub changed_before: Option<ChangedRows>,
}

/// Shared log; cheap to clone.
#[derive(Clone, Default)]
pub(super) struct ChangeLog(Arc<Shared>);

#[derive(Default)]
struct Shared {
    /// Number of the last commit. Read without the lock, which is held while a commit becomes durable.
    last_commit: AtomicU64,
    content: Mutex<Content>,
}

/// Log while nothing is added to it.
pub(super) struct LockedLog<'a> {
    last_commit: &'a AtomicU64,
    content: MutexGuard<'a, Content>,
}

#[derive(Default)]
enum Content {
    /// Nothing is recorded: there is no standby.
    #[default]
    Off,
    Records(Vec<u8>),
    /// Rows were lost, because there were too many: only a new snapshot has all changes.
    Incomplete,
}

impl ChangeLog {
    pub(super) fn lock(&self) -> LockedLog<'_> {
        let content = self.0.content.lock();
        LockedLog {
            last_commit: &self.0.last_commit,
            content: content.unwrap_or_else(PoisonError::into_inner),
        }
    }

    /// Whether the rows of commits are recorded.
    pub(super) fn is_on(&self) -> bool {
        !matches!(*self.lock().content, Content::Off)
    }

    pub(super) fn last_commit(&self) -> u64 {
        self.0.last_commit.load(Ordering::Acquire)
    }

    /// Begins a snapshot, and a log of the commits after it.
    pub(super) fn begin(&self, db: &Database) -> StoreResult<NumberedSnapshot> {
        let mut state = self.lock();
        let tx = ReadTx::new(db.begin_read()?);
        let changed_before = state.take();
        *state.content = Content::Records(Vec::new());
        Ok(NumberedSnapshot { tx, changed_before })
    }

    /// Takes the rows that were recorded. `None` if the log is incomplete.
    pub(super) fn take(&self) -> Option<ChangedRows> {
        self.lock().take()
    }
}

impl LockedLog<'_> {
    fn take(&mut self) -> Option<ChangedRows> {
        let Content::Records(records) = &mut *self.content else {
            return None;
        };
        Some(ChangedRows {
            last_commit: self.last_commit.load(Ordering::Acquire),
            records: std::mem::take(records),
        })
    }

    /// Appends a commit that is durable. `records` is `None` if the log was switched on while it ran.
    pub(super) fn append(&mut self, records: Option<Vec<u8>>) {
        self.last_commit.fetch_add(1, Ordering::AcqRel);
        let Content::Records(recorded) = &mut *self.content else {
            return;
        };
        match records {
            Some(records) if recorded.len() + records.len() <= MAX_BYTES => {
                recorded.extend_from_slice(&records);
            }
            _ => *self.content = Content::Incomplete,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_that_overflows_is_incomplete_until_the_next_snapshot() {
        let log = ChangeLog::default();
        log.lock().append(None);
        assert_eq!(log.take(), None);
        let db = Database::builder();
        let db = db.create_with_backend(redb::backends::InMemoryBackend::new());
        let db = db.unwrap();
        assert_eq!(log.begin(&db).unwrap().changed_before, None);
        log.lock().append(Some(vec![1]));
        log.lock().append(Some(vec![2]));
        let taken = log.take().unwrap();
        assert_eq!((taken.last_commit, taken.records), (3, vec![1, 2]));
        log.lock().append(Some(vec![0; MAX_BYTES]));
        log.lock().append(Some(vec![0]));
        assert_eq!(log.take(), None);
        log.lock().append(Some(vec![0]));
        assert_eq!(log.take(), None);
        assert_eq!(log.begin(&db).unwrap().changed_before, None);
        assert!(log.take().unwrap().is_empty());
        log.lock().append(Some(vec![3]));
        let before = log.begin(&db).unwrap().changed_before.unwrap();
        assert_eq!((before.last_commit, before.records), (7, vec![3]));
        assert!(log.take().unwrap().is_empty());
    }
}
