//! Durable state of the service.
//!
//! One redb file, opened by one process. Rows are JSON in typed tables (see [`tables`]). Every write goes
//! through one thread that commits in groups (see [`writer`]). Closures that read or write are synchronous,
//! so that no transaction waits for the network.
//!
//! Absent on purpose: rules about jobs or tickets. The layers above decide what to store.

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod admin_tokens;
pub mod audit;
pub mod crash_injection;
pub mod decisions;
pub mod dedup;
pub mod dispatch_breaker;
pub mod instance;
pub mod issue_contexts;
pub mod issue_waits;
pub mod jobs;
pub mod mappings;
pub mod metrics;
pub mod outbox;
pub mod patches;
pub mod provider_limits;
pub mod pull_feedback;
pub mod reaper_log;
pub mod secrets;
pub mod session_events;
pub mod settings;
pub mod steps;
pub mod template_syncs;
pub mod usage;
pub mod webhook_deliveries;

mod backup;
mod change_feed;
#[cfg(test)]
mod compatibility;
mod disk_space;
#[cfg(test)]
mod faults;
mod integrity;
mod key_file;
mod migrations;
mod open_tables;
mod reader;
mod restore;
mod table;
mod tables;
mod writer;

use std::io;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use redb::{Database, StorageBackend};
use tokio::sync::Notify;

use disk_space::DiskSpaceProbe;

use crate::crash_injection::CrashPlan;

pub use backup::{Backup, BackupError, BackupHeader};
pub use change_feed::StoreChange;
pub use disk_space::{DiskSpace, MIN_FREE_FOR_NEW_WORK, free_bytes};
pub use key_file::SECRETS_KEY_FILE;
pub use reader::StoreReader;
pub use restore::{ReplacedFiles, RestoredSecrets, StagedRestore};
pub use table::{ReadTx, ReadableTx, WriteTx};
pub use writer::{CommitMetrics, CommitStats};

/// Size of redb's page cache in bytes. The default of redb is 1 GiB, but the whole service must run in 64
/// MiB. Repeated reads are served by the page cache of the operating system.
const CACHE_BYTES: usize = 4 << 20;

/// Name of the store file in the data directory.
pub const STORE_FILE: &str = "agent-implement.redb";

/// Result of a store operation.
pub type StoreResult<T> = Result<T, StoreError>;

/// Error of a store operation.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Error of redb.
    #[error("the store: {0}")]
    Db(Box<redb::Error>),
    /// A row is not valid JSON of its type.
    #[error("cannot read row {key} of table {table}: {cause}")]
    Corrupt {
        /// Name of the table.
        table: &'static str,
        /// Key of the row, formatted for people.
        key: String,
        /// Error of the JSON parser.
        cause: serde_json::Error,
    },
    /// A commit failed. Whether its writes are on disk is unknown until the store is opened again.
    #[error("a write to the store failed; only a restart shows whether the last change was saved")]
    OutcomeUnknown,
    /// Another process holds the store.
    #[error(
        "the store {path} is in use (a possible cause is another agent-implement running on the same data directory)"
    )]
    InUse {
        /// Path of the store file.
        path: String,
    },
    /// The schema is newer than this version supports.
    #[error(
        "the store was written by a newer version (schema {found}; this version supports up to {supported}); install that version again"
    )]
    UnsupportedSchema {
        /// Schema version of the store.
        found: u64,
        /// Latest schema version that this version supports.
        supported: u64,
    },
    /// The file cannot be opened. The cause is not a `source`, because it would be printed twice.
    #[error("opening the store {path}: {cause}{}", remedy(cause))]
    Open {
        /// Path of the store file.
        path: String,
        /// Error of the operating system.
        cause: io::Error,
    },
    /// The content of the file is not what was written. The file is not changed.
    #[error(
        "the store {path} is damaged ({cause}) and was not changed; restore a backup: agent-implement restore FILE --replace (this keeps the damaged file in the same folder)"
    )]
    Damaged {
        /// Path of the store file.
        path: String,
        /// Description of the damage.
        cause: String,
    },
    /// The file is a redb database of another program.
    #[error(
        "{path} is a database of another program and was not changed; move it, or set DATA_DIR to another folder"
    )]
    Foreign {
        /// Path of the store file.
        path: String,
    },
    /// Nothing was written. Writes fail until there is free space; with the number of free bytes.
    #[error("the disk is full: {0} bytes are free, which is not enough to write")]
    DiskFull(u64),
    /// The closure of a transaction panicked.
    #[error("a transaction panicked and was rolled back")]
    Panicked,
}

/// Advice for an error of the operating system on opening the store.
fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "; make the service's user the owner of the folder (chown -R), or set DATA_DIR to another folder"
        }
        io::ErrorKind::ReadOnlyFilesystem => {
            "; mount the disk writable (dmesg shows why it is not), or set DATA_DIR to another disk"
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "; free some space, or move DATA_DIR to a larger disk"
        }
        _ => "",
    }
}

impl StoreError {
    /// Whether the file or its disk failed. Later operations of this process are then unreliable.
    fn is_disk_failure(&self) -> bool {
        use redb::Error as E;
        let StoreError::Db(error) = self else {
            return false;
        };
        matches!(
            **error,
            E::Corrupted(_) | E::Io(_) | E::PreviousIo | E::LockPoisoned(_) | E::DatabaseClosed
        )
    }

    /// Converts an error of redb on opening the store at this path.
    fn at(self, path: &Path) -> Self {
        let shown = path.display().to_string();
        let StoreError::Db(error) = self else {
            return self;
        };
        match *error {
            redb::Error::DatabaseAlreadyOpen => StoreError::InUse { path: shown },
            redb::Error::Io(cause) => StoreError::Open { path: shown, cause },
            redb::Error::Corrupted(cause) => StoreError::Damaged { path: shown, cause },
            other => StoreError::Db(Box::new(other)),
        }
    }
}

impl<E: Into<redb::Error>> From<E> for StoreError {
    fn from(error: E) -> Self {
        StoreError::Db(Box::new(error.into()))
    }
}

/// Handle to the store that can write; cheap to clone. Reads go through its [`StoreReader`].
#[derive(Clone)]
pub struct Store {
    reader: StoreReader,
    next_order: Arc<AtomicU64>,
}

impl Deref for Store {
    type Target = StoreReader;

    fn deref(&self) -> &StoreReader {
        &self.reader
    }
}

impl Store {
    /// Opens the store in `dir` and migrates an older schema. Creates the directory and the file if they do
    /// not exist.
    ///
    /// # Errors
    /// If the store cannot be opened, is in use, is damaged, belongs to another program or has a newer schema.
    pub fn open(dir: &Path) -> StoreResult<Self> {
        Self::open_with_crash_plan(dir, CrashPlan::default())
    }

    /// Opens the store like [`Store::open`], with a crash plan for its writer; for crash tests.
    ///
    /// # Errors
    /// See [`Store::open`].
    pub fn open_with_crash_plan(dir: &Path, crash: CrashPlan) -> StoreResult<Self> {
        let path = dir.join(STORE_FILE);
        let failed = |cause| StoreError::Open {
            path: path.display().to_string(),
            cause,
        };
        std::fs::create_dir_all(dir).map_err(failed)?;
        if !path.try_exists().map_err(failed)? {
            create_file(dir, &path)?;
        }
        integrity::verify(&path, tables::META.name())
            .map_err(|fault| fault.into_store_error(&path))?;
        let opened = || {
            let db = Database::builder()
                .set_cache_size(CACHE_BYTES)
                .create(&path)?;
            Self::with_database(db, DiskSpaceProbe::for_dir(dir), crash)
        };
        // redb may panic on a file that it cannot interpret.
        let opened = catch_unwind(AssertUnwindSafe(opened)).unwrap_or_else(|_| {
            let cause = "its content cannot be interpreted".to_owned();
            Err(redb::Error::Corrupted(cause).into())
        });
        let mut store = opened.map_err(|error| error.at(&path))?;
        store.reader.set_dir(dir);
        Ok(store)
    }

    /// Creates a store in memory, for tests and for temporary copies.
    ///
    /// # Errors
    /// Errors of redb.
    pub fn in_memory() -> StoreResult<Self> {
        Self::with_backend(
            redb::backends::InMemoryBackend::new(),
            DiskSpaceProbe::unlimited(),
        )
    }

    /// Creates a store on another storage backend than a file.
    fn with_backend(backend: impl StorageBackend, disk_space: DiskSpaceProbe) -> StoreResult<Self> {
        let db = Database::builder()
            .set_cache_size(CACHE_BYTES)
            .create_with_backend(backend)?;
        Self::with_database(db, disk_space, CrashPlan::default())
    }

    fn with_database(
        db: Database,
        disk_space: DiskSpaceProbe,
        crash: CrashPlan,
    ) -> StoreResult<Self> {
        migrations::migrate_to_latest(&db)?;
        instance::ensure_id(&db)?;
        Ok(Self {
            reader: StoreReader::new(db, disk_space, crash),
            next_order: Arc::new(AtomicU64::new(first_order())),
        })
    }

    /// Returns a number that increases with every call, also across restarts.
    pub fn next_order(&self) -> u64 {
        self.next_order.fetch_add(1, Ordering::Relaxed)
    }

    /// Runs `f` in the write transaction and returns when the commit is durable. A failed closure changes
    /// nothing. `f` can be called several times if another closure of the same commit fails; only the last
    /// call counts. Dropping the future does not cancel the write.
    ///
    /// # Errors
    /// The error of `f`, [`StoreError::DiskFull`], or [`StoreError::OutcomeUnknown`] if the commit failed.
    pub async fn write<T: Send + 'static>(
        &self,
        f: impl FnMut(&WriteTx<'_>) -> StoreResult<T> + Send + 'static,
    ) -> StoreResult<T> {
        self.writer().submit(f).await
    }

    /// Notified after a commit that added or released outbox entries.
    pub fn outbox_notifier(&self) -> &Notify {
        self.writer().outbox_notifier()
    }

    /// Publishes a change that is not part of a commit to all subscribers.
    pub fn publish(&self, change: StoreChange) {
        // Fails only without subscribers.
        let _ = self.writer().change_feed().send(change);
    }
}

/// Creates an empty store under a temporary name and links it to its path, because a half-created store could
/// never be opened again. Uses a link, not a rename, so that of two processes that start at once, neither
/// replaces the file that the other has opened.
fn create_file(dir: &Path, path: &Path) -> StoreResult<()> {
    let failed = |cause| StoreError::Open {
        path: path.display().to_string(),
        cause,
    };
    let temporary = dir.join(format!("{STORE_FILE}.{}.new", std::process::id()));
    match std::fs::remove_file(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    let created = Database::builder().create(&temporary);
    if created.is_ok() {
        // Fails if another process was faster, or without support for links: then redb creates the file.
        let _ = std::fs::hard_link(&temporary, path);
    }
    let removed = std::fs::remove_file(&temporary);
    created.map_err(|error| StoreError::from(error).at(path))?;
    removed.map_err(failed)?;
    // The directory entry must be durable, too.
    let synced = std::fs::File::open(dir).and_then(|folder| folder.sync_all());
    synced.map_err(failed)
}

/// First order number: microseconds since the epoch. It exceeds every number of the previous process, unless
/// that used more than a million numbers per second.
fn first_order() -> u64 {
    let since_epoch = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since_epoch.as_micros()).unwrap_or(u64::MAX / 2)
}
