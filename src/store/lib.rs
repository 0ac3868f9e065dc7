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
pub mod connections;
pub mod crash_injection;
pub mod decisions;
pub mod dedup;
pub mod digest_record;
pub mod dispatch_breaker;
pub mod evidence;
pub mod failed_runs;
pub mod github_app_states;
pub mod instance;
pub mod issue_contexts;
pub mod issue_waits;
pub mod job_counts;
pub mod job_index;
pub mod jobs;
pub mod mappings;
pub mod metrics;
pub mod open_questions;
pub mod operator_retries;
pub mod outbox;
pub mod patches;
pub mod plan_gates;
pub mod provider_limits;
pub mod pull_feedback;
pub mod reaper_log;
pub mod run_logs;
pub mod scoreboard;
pub mod secrets;
pub mod session_events;
pub mod settings;
pub mod steps;
pub mod take_overs;
pub mod template_syncs;
pub mod ticket_commands;
pub mod usage;
pub mod webhook_deliveries;

mod backup;
mod change_feed;
mod change_log;
pub mod changed_files;
mod changed_rows;
#[cfg(test)]
mod compatibility;
mod disk_space;
mod error;
#[cfg(test)]
mod faults;
mod integrity;
mod key_file;
mod migrations;
mod open_tables;
mod reader;
mod records;
mod restore;
mod retention;
mod standby_identity;
pub mod standby_starts;
mod table;
mod tables;
mod writer;

use std::io;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use redb::{Database, StorageBackend};
use tokio::sync::Notify;

use disk_space::DiskSpaceProbe;

use crate::crash_injection::CrashPlan;
use crate::restore::copy_owner;

pub use backup::{Backup, BackupError, BackupHeader, back_up_snapshot};
pub use change_feed::StoreChange;
pub use change_log::{ChangedRows, NumberedSnapshot};
pub use changed_rows::{ChangesFile, ChangesHeader, fuzz_changed_rows};
pub use disk_space::{DiskSpace, MIN_FREE_FOR_LOGS, MIN_FREE_FOR_NEW_WORK, free_bytes};
pub use error::{StoreError, StoreResult};
pub use key_file::SECRETS_KEY_FILE;
pub use migrations::supports_schema;
pub use reader::StoreReader;
pub use restore::{
    ReplacedFiles, RestoredSecrets, StagedRestore, TemporaryFolder, remove_replaced_stores,
};
pub use standby_identity::StandbyIdentity;
pub use table::{ReadTx, ReadableTx, WriteTx};
pub use writer::{CommitMetrics, CommitStats};

/// Size of redb's page cache in bytes. The default of redb is 1 GiB, but the whole service must run in 64
/// MiB. Repeated reads are served by the page cache of the operating system.
const CACHE_BYTES: usize = 4 << 20;

/// Maximum wait for a process that is ending to release the store.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);

const LOCK_RETRY_PAUSE: Duration = Duration::from_millis(10);

/// Name of the store file in the data directory.
pub const STORE_FILE: &str = "agent-implement.redb";

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

    /// Opens the store like [`Store::open`], and waits up to [`LOCK_TIMEOUT`] for a process that is just
    /// ending. `crash` is the crash plan of the writer, for crash tests.
    ///
    /// # Errors
    /// See [`Store::open`].
    pub async fn open_when_released(dir: &Path, crash: CrashPlan) -> StoreResult<Self> {
        let started = Instant::now();
        loop {
            match Self::open_with_crash_plan(dir, crash.clone()) {
                Err(StoreError::InUse { .. }) if started.elapsed() < LOCK_TIMEOUT => {
                    tokio::time::sleep(LOCK_RETRY_PAUSE).await;
                }
                opened => return opened,
            }
        }
    }

    fn open_with_crash_plan(dir: &Path, crash: CrashPlan) -> StoreResult<Self> {
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

    /// Prepares the next start to do without a repair, which reads the whole file. Writes are still possible, but the
    /// process must end before the store can be opened again.
    pub async fn prepare_next_start(&self) {
        self.writer().prepare_next_start().await;
    }

    /// Notified after a commit that added or released outbox entries.
    pub fn outbox_notifier(&self) -> &Notify {
        self.writer().outbox_notifier()
    }

    /// Begins a snapshot, and from there on a log of the rows that commits change.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn begin_change_log(&self) -> StoreResult<NumberedSnapshot> {
        self.writer().change_log().begin(self.reader.database())
    }

    /// Takes the rows that were changed since the last call, or since the log began. `None` if there were too many to
    /// be kept, so that only a new snapshot has them.
    pub fn take_changes(&self) -> Option<ChangedRows> {
        self.writer().change_log().take()
    }

    /// Number of the last durable commit, counted from the start of the process.
    pub fn last_commit(&self) -> u64 {
        self.writer().change_log().last_commit()
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
    let owned = copy_owner(dir, &temporary);
    if created.is_ok() && owned.is_ok() {
        // Fails if another process was faster, or without support for links: then redb creates the file.
        let _ = std::fs::hard_link(&temporary, path);
    }
    let removed = std::fs::remove_file(&temporary);
    created.map_err(|error| StoreError::from(error).at(path))?;
    owned.and(removed).map_err(failed)?;
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
