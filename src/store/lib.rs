//! FLOOR 2: what must not be forgotten.
//!
//! One redb file, opened by one process. Rows are JSON in typed shelves ([`tables`] lists them
//! all); every write goes through one thread that commits in groups ([`writer`]). Closures that
//! read or write are synchronous, so no transaction can ever wait for the network.
//!
//! Absent on purpose: any rule about jobs or tickets. This floor stores what it is told.

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
mod disk_space;
#[cfg(test)]
mod faults;
mod integrity;
mod key_file;
mod migrations;
mod open_tables;
mod restore;
mod table;
mod tables;
mod writer;

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use redb::{Database, ReadableDatabase, StorageBackend};
use tokio::sync::{Notify, Semaphore, broadcast};

use disk_space::DiskSpaceProbe;

use crate::crash_injection::CrashPlan;

pub use backup::{Backup, BackupError, BackupHeader};
pub use change_feed::StoreChange;
pub use disk_space::{DiskSpace, MIN_FREE_FOR_NEW_WORK, free_bytes};
pub use key_file::SECRETS_KEY_FILE;
pub use restore::{ReplacedFiles, RestoredSecrets, StagedRestore};
pub use table::{ReadTx, ReadableTx, WriteTx};
pub use writer::{CommitMetrics, CommitStats};

/// Memory that redb may use for pages. Its own default is a gigabyte; with ours, 64 MiB are to be enough
/// for everything. What is read again comes from the system's own cache of the file.
const CACHE_BYTES: usize = 4 << 20;

/// How many long reads go on at a time? Each takes a processor and some megabytes for what it makes,
/// however many people look.
const LONG_READS: usize = 2;

/// The file inside the data directory.
pub const STORE_FILE: &str = "agent-implement.redb";

pub type StoreResult<T> = Result<T, StoreError>;

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("the store: {0}")]
    Db(Box<redb::Error>),
    #[error("the row {key} of the table {table} cannot be read: {cause}")]
    Corrupt {
        table: &'static str,
        key: String,
        cause: serde_json::Error,
    },
    /// A commit failed. Whether its writes are on disk is unknown until the store is opened again.
    #[error(
        "the store could not write; whether the last change was kept is known only after a restart"
    )]
    OutcomeUnknown,
    #[error(
        "the store {path} is in use (a possible cause is another agent-implement running on the same data directory)"
    )]
    InUse { path: String },
    #[error(
        "the store was written by a newer version (schema {found}, this version knows {supported}); install that version again"
    )]
    UnsupportedSchema { found: u64, supported: u64 },
    // Not a source: it would be printed twice.
    #[error("opening the store {path}: {cause}{}", remedy(cause))]
    Open { path: String, cause: io::Error },
    /// Its file is not what was written. It was left as it is.
    #[error(
        "the store {path} is damaged ({cause}) and was left as it is; restore a backup: agent-implement restore FILE --replace (which keeps the damaged file beside it)"
    )]
    Damaged { path: String, cause: String },
    #[error(
        "{path} is a database of another program and was left as it is; move it away, or set DATA_DIR to another folder"
    )]
    Foreign { path: String },
    /// Nothing was written, and nothing will be until there is room.
    #[error("the disk is full: {0} bytes are free, which is too little to write anything")]
    DiskFull(u64),
    #[error("a transaction panicked and was undone")]
    Panicked,
}

/// What helps when the operating system does not let the store be opened.
fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "; give the folder to the service's user (chown -R), or set DATA_DIR to a folder that is"
        }
        io::ErrorKind::ReadOnlyFilesystem => {
            "; mount the disk for writing (see dmesg for why it is not), or set DATA_DIR to another"
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "; free some space, or move DATA_DIR to a larger disk"
        }
        _ => "",
    }
}

impl StoreError {
    /// Whether the file or its disk failed, so that nothing that follows in this process can be
    /// relied on.
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

    /// The same, met while the store at this path was opened.
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

/// A handle to the store; cheap to clone.
#[derive(Clone)]
pub struct Store {
    db: Arc<Database>,
    writer: writer::StoreWriter,
    order: Arc<AtomicU64>,
    long_reads: Arc<Semaphore>,
    /// None in memory.
    dir: Option<Arc<PathBuf>>,
}

impl Store {
    /// Opens the store in `dir`, making the directory and the file when they are missing, and
    /// brings an older schema up to date.
    pub fn open(dir: &Path) -> StoreResult<Self> {
        Self::open_with_crash_plan(dir, CrashPlan::default())
    }

    /// The same, with a writer that dies where it is told to; for crash tests.
    pub fn open_with_crash_plan(dir: &Path, crash: CrashPlan) -> StoreResult<Self> {
        let path = dir.join(STORE_FILE);
        let failed = |cause| StoreError::Open {
            path: path.display().to_string(),
            cause,
        };
        std::fs::create_dir_all(dir).map_err(failed)?;
        if !path.try_exists().map_err(failed)? {
            found(dir, &path)?;
        }
        integrity::verify(&path, tables::META.name())
            .map_err(|fault| fault.into_store_error(&path))?;
        let opened = || {
            let db = Database::builder()
                .set_cache_size(CACHE_BYTES)
                .create(&path)?;
            Self::with(db, DiskSpaceProbe::for_dir(dir), crash)
        };
        // What redb cannot make sense of, it may panic over.
        let opened = catch_unwind(AssertUnwindSafe(opened)).unwrap_or_else(|_| {
            let cause = "it cannot be made sense of".to_owned();
            Err(redb::Error::Corrupted(cause).into())
        });
        Ok(Self {
            dir: Some(Arc::new(dir.to_owned())),
            ..opened.map_err(|error| error.at(&path))?
        })
    }

    /// A store that lives in memory, for tests of the floors above.
    pub fn in_memory() -> StoreResult<Self> {
        Self::with_backend(
            redb::backends::InMemoryBackend::new(),
            DiskSpaceProbe::unlimited(),
        )
    }

    /// A store on something else than a file.
    fn with_backend(backend: impl StorageBackend, gauge: DiskSpaceProbe) -> StoreResult<Self> {
        let db = Database::builder()
            .set_cache_size(CACHE_BYTES)
            .create_with_backend(backend)?;
        Self::with(db, gauge, CrashPlan::default())
    }

    fn with(db: Database, gauge: DiskSpaceProbe, crash: CrashPlan) -> StoreResult<Self> {
        migrations::migrate_to_latest(&db)?;
        instance::ensure_id(&db)?;
        let db = Arc::new(db);
        Ok(Self {
            writer: writer::StoreWriter::start(Arc::clone(&db), gauge, crash),
            order: Arc::new(AtomicU64::new(first_order())),
            long_reads: Arc::new(Semaphore::new(LONG_READS)),
            db,
            dir: None,
        })
    }

    /// A number that grows with every call, over restarts too.
    pub fn next_order(&self) -> u64 {
        self.order.fetch_add(1, Ordering::Relaxed)
    }

    /// Runs `f` on a snapshot. For point reads and short ranges; it blocks the caller's thread. A file
    /// that cannot be read any more is no file to go on with: see [`Store::lost`].
    pub fn read<T>(&self, f: impl FnOnce(&ReadTx) -> StoreResult<T>) -> StoreResult<T> {
        let reading = || f(&ReadTx::new(self.db.begin_read()?));
        let read = catch_unwind(AssertUnwindSafe(reading)).unwrap_or(Err(StoreError::Panicked));
        if let Err(error) = &read
            && error.is_disk_failure()
        {
            self.writer.mark_failed(error);
        }
        read
    }

    /// Runs a long read on a snapshot, off the threads that serve requests, when its turn has come.
    pub async fn read_long<T: Send + 'static>(
        &self,
        f: impl FnOnce(&ReadTx) -> StoreResult<T> + Send + 'static,
    ) -> StoreResult<T> {
        let turn = Arc::clone(&self.long_reads).acquire_owned().await;
        let turn = turn.map_err(|_| StoreError::OutcomeUnknown)?;
        let store = self.clone();
        let reading = move || {
            let _turn = turn;
            store.read(f)
        };
        tokio::task::spawn_blocking(reading)
            .await
            .unwrap_or(Err(StoreError::Panicked))
    }

    /// Runs `f` in the write transaction and answers once it is durably committed. A closure that
    /// fails leaves no trace. It may be run more than once, when a neighbour in the same commit
    /// fails or is refused; only the last run counts. A dropped future does not undo the write.
    pub async fn write<T: Send + 'static>(
        &self,
        f: impl FnMut(&WriteTx<'_>) -> StoreResult<T> + Send + 'static,
    ) -> StoreResult<T> {
        self.writer.submit(f).await
    }

    /// Rung after a commit that added an effect to the outbox.
    pub fn outbox_notifier(&self) -> &Notify {
        self.writer.outbox_notifier()
    }

    /// What commits change from now on.
    pub fn subscribe(&self) -> broadcast::Receiver<StoreChange> {
        self.writer.change_feed().subscribe()
    }

    /// Tells what changed beside the store, to those who listen to it.
    pub fn publish(&self, news: StoreChange) {
        // Mostly nobody listens.
        let _ = self.writer.change_feed().send(news);
    }

    /// Resolves when a commit or a read has failed and the process must end to find out what is true.
    pub async fn failed(&self) {
        self.writer.failed().await;
    }

    /// Whether writes are still possible.
    pub fn is_healthy(&self) -> bool {
        self.writer.is_healthy()
    }

    /// What the free space of its disk allows.
    pub fn disk_space(&self) -> DiskSpace {
        self.writer.disk_space()
    }

    /// How commits go.
    pub fn commit_metrics(&self) -> &CommitMetrics {
        self.writer.commit_metrics()
    }

    pub fn stats(&self) -> CommitStats {
        self.writer.stats()
    }
}

/// Makes an empty store beside its place and puts it there whole: one that was half made when the
/// process died could never be opened again. A link, not a move, so that of two processes that begin
/// at once neither takes away what the other has opened.
fn found(dir: &Path, path: &Path) -> StoreResult<()> {
    let failed = |cause| StoreError::Open {
        path: path.display().to_string(),
        cause,
    };
    let fresh = dir.join(format!("{STORE_FILE}.{}.new", std::process::id()));
    match std::fs::remove_file(&fresh) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    let made = Database::builder().create(&fresh);
    if made.is_ok() {
        // Somebody was faster, or this disk knows no links: then it is made in its place.
        let _ = std::fs::hard_link(&fresh, path);
    }
    let removed = std::fs::remove_file(&fresh);
    made.map_err(|error| StoreError::from(error).at(path))?;
    removed.map_err(failed)?;
    // What is committed to a file is kept only if its name is.
    let folder = std::fs::File::open(dir).and_then(|folder| folder.sync_all());
    folder.map_err(failed)
}

/// Microseconds since the epoch: more than the last process can have handed out, unless it did so
/// a million times a second.
fn first_order() -> u64 {
    let since_epoch = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since_epoch.as_micros()).unwrap_or(u64::MAX / 2)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn long_reads_take_turns() {
        let store = Store::in_memory().unwrap();
        let (reading, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let read = || {
            let (store, reading, most) = (store.clone(), reading.clone(), most.clone());
            tokio::spawn(async move {
                let read = store.read_long(move |_| {
                    most.fetch_max(reading.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    std::thread::sleep(Duration::from_millis(10));
                    reading.fetch_sub(1, Ordering::SeqCst);
                    Ok(())
                });
                read.await
            })
        };
        let hasty = read();
        tokio::task::yield_now().await;
        let patient: Vec<_> = (0..20).map(|_| read()).collect();
        // Who does not wait for the end gives the turn back all the same.
        hasty.abort();
        for one in patient {
            one.await.unwrap().unwrap();
        }
        assert_eq!(most.load(Ordering::SeqCst), LONG_READS);
    }
}
