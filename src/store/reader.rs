//! Read access to the store.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use redb::{Database, ReadableDatabase};
use tokio::sync::{Semaphore, broadcast};

use crate::crash_injection::CrashPlan;
use crate::disk_space::DiskSpaceProbe;
use crate::writer::StoreWriter;
use crate::{CommitMetrics, CommitStats, DiskSpace, ReadTx, StoreChange, StoreError, StoreResult};

/// Maximum number of concurrent long reads. Each uses one CPU and several megabytes of memory.
const MAX_LONG_READS: usize = 2;

/// Handle to the store that can only read; cheap to clone.
#[derive(Clone)]
pub struct StoreReader {
    db: Arc<Database>,
    writer: StoreWriter,
    long_reads: Arc<Semaphore>,
    /// Data directory. `None` for a store in memory.
    dir: Option<Arc<PathBuf>>,
}

impl StoreReader {
    /// Starts the writer of the database.
    pub(crate) fn new(db: Database, disk_space: DiskSpaceProbe, crash: CrashPlan) -> Self {
        let db = Arc::new(db);
        Self {
            writer: StoreWriter::start(Arc::clone(&db), disk_space, crash),
            long_reads: Arc::new(Semaphore::new(MAX_LONG_READS)),
            db,
            dir: None,
        }
    }

    /// Sets the data directory.
    pub(crate) fn set_dir(&mut self, dir: &Path) {
        self.dir = Some(Arc::new(dir.to_owned()));
    }

    /// Data directory; `None` for a store in memory.
    pub(crate) fn dir(&self) -> Option<&Path> {
        self.dir.as_ref().map(|dir| dir.as_path())
    }

    /// Database.
    pub(crate) fn database(&self) -> &Database {
        &self.db
    }

    /// Writer of the database.
    pub(crate) fn writer(&self) -> &StoreWriter {
        &self.writer
    }

    /// Runs `f` on a snapshot. For point reads and short ranges; blocks the calling thread. After a disk
    /// failure the store counts as failed: see [`StoreReader::failed`].
    ///
    /// # Errors
    /// The error of `f`, or [`StoreError::Panicked`].
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

    /// Runs a long read on a snapshot in a blocking thread. At most two run at a time; others wait.
    ///
    /// # Errors
    /// See [`StoreReader::read`].
    pub async fn read_long<T: Send + 'static>(
        &self,
        f: impl FnOnce(&ReadTx) -> StoreResult<T> + Send + 'static,
    ) -> StoreResult<T> {
        let permit = Arc::clone(&self.long_reads).acquire_owned().await;
        let permit = permit.map_err(|_| StoreError::OutcomeUnknown)?;
        let store = self.clone();
        let reading = move || {
            let _permit = permit;
            store.read(f)
        };
        tasks::spawn_blocking(reading)
            .await
            .unwrap_or(Err(StoreError::Panicked))
    }

    /// Subscribes to the changes of future commits.
    pub fn subscribe(&self) -> broadcast::Receiver<StoreChange> {
        self.writer.change_feed().subscribe()
    }

    /// Resolves when a commit or a read failed because of the disk. The process must then restart.
    pub async fn failed(&self) {
        self.writer.failed().await;
    }

    /// Whether writes are still possible.
    pub fn is_healthy(&self) -> bool {
        self.writer.is_healthy()
    }

    /// Free space of the disk of the store.
    pub fn disk_space(&self) -> DiskSpace {
        self.writer.disk_space()
    }

    /// Whether the disk of the store has room for logs of runs.
    pub fn has_room_for_logs(&self) -> bool {
        self.writer.has_room_for_logs()
    }

    /// Histograms of commit times and group sizes.
    pub fn commit_metrics(&self) -> &CommitMetrics {
        self.writer.commit_metrics()
    }

    /// Numbers of writes and commits since the store was opened.
    pub fn stats(&self) -> CommitStats {
        self.writer.stats()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::*;
    use crate::Store;

    #[tokio::test]
    async fn limits_concurrent_long_reads() {
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
        let aborted = read();
        tokio::task::yield_now().await;
        let others: Vec<_> = (0..20).map(|_| read()).collect();
        // An aborted read still releases its permit.
        aborted.abort();
        for read in others {
            read.await.unwrap().unwrap();
        }
        assert_eq!(most.load(Ordering::SeqCst), MAX_LONG_READS);
    }
}
