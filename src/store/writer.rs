//! Writer thread with durable group commit.
//!
//! Closures queue up while a commit is written to disk. The next transaction runs all queued closures and
//! commits once, so that a hundred writers cost one fsync. A caller gets its result only after the commit
//! with its write.
//!
//! A failed closure must change nothing and must not affect the others of its group, but redb can roll back
//! only a whole transaction. If the closure wrote nothing before it failed, its error is returned and the
//! group goes through. Otherwise the transaction is aborted and the other closures run again without it.
//!
//! If the disk has too little free space, nothing is committed: writing closures fail with
//! [`StoreError::DiskFull`], and reading closures run again, because they may have seen the discarded writes.
//! The records that let the next start do without a repair cost more than the rest of a small commit. They are
//! written once the writer has had nothing to do for a while, and before the service ends: only a crash under load is
//! repaired, by reading the whole file.
//!
//! If a commit fails, it may or may not be on disk. All callers get [`StoreError::OutcomeUnknown`], and the
//! process must restart to read the true state.

mod queued_write;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use redb::Database;
use tokio::runtime::Runtime;
use tokio::sync::{Notify, broadcast, mpsc, oneshot};
use tokio::time::timeout;

use crate::crash_injection::{CrashPlan, CrashPoint};
use crate::metrics::{Histogram, MetricUnit};

use super::change_feed::{CHANGE_FEED_CAPACITY, StoreChange};
use super::change_log::ChangeLog;
use super::disk_space::{DiskSpace, DiskSpaceProbe};
use super::table::WriteTx;
use super::{StoreError, StoreResult};
use queued_write::{CommitOutcome, PendingWrite, QueuedWrite, RunOutcome};

/// Maximum number of closures per commit. Limits the memory of a transaction.
const MAX_GROUP_SIZE: usize = 1024;

/// Capacity of the queue, in closures. Callers wait while it is full.
const QUEUE_CAPACITY: usize = 8192;

/// Time without a write after which the next start is prepared to do without a repair.
const IDLE_TIME: Duration = Duration::from_secs(2);

/// Histogram bounds of commit times, in microseconds.
const COMMIT_TIME_BOUNDS: &[u64] = &[
    250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 1_000_000, 5_000_000,
];

/// Histogram bounds of group sizes, in closures.
const GROUP_SIZE_BOUNDS: &[u64] = &[1, 2, 4, 8, 16, 32, 64, 128, 256, 512];

/// Handle to the writer thread; cheap to clone.
#[derive(Clone)]
pub(super) struct StoreWriter {
    queue: mpsc::Sender<Box<dyn QueuedWrite>>,
    shared: Arc<Shared>,
}

struct Shared {
    disk_space: DiskSpaceProbe,
    outbox_notify: Notify,
    changes: broadcast::Sender<StoreChange>,
    change_log: ChangeLog,
    has_failed: AtomicBool,
    failed_notify: Notify,
    /// Whether the process is about to end.
    is_ending: AtomicBool,
    writes: AtomicU64,
    commits: AtomicU64,
    metrics: CommitMetrics,
}

/// Histograms of commits.
pub struct CommitMetrics {
    /// Duration of a commit, from its first write until it is durable.
    pub duration: Histogram,
    /// Number of writing closures per commit.
    pub group_size: Histogram,
}

impl Default for CommitMetrics {
    fn default() -> Self {
        Self {
            duration: Histogram::new(MetricUnit::Time, COMMIT_TIME_BOUNDS),
            group_size: Histogram::new(MetricUnit::Number, GROUP_SIZE_BOUNDS),
        }
    }
}

/// Numbers of writes and commits since the store was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommitStats {
    /// Number of closures that wrote.
    pub writes: u64,
    /// Number of commits; each is one fsync.
    pub commits: u64,
}

impl StoreWriter {
    /// Starts the writer thread.
    pub(super) fn start(db: Arc<Database>, disk_space: DiskSpaceProbe, crash: CrashPlan) -> Self {
        let (queue, queued) = mpsc::channel(QUEUE_CAPACITY);
        let shared = Arc::new(Shared {
            disk_space,
            outbox_notify: Notify::new(),
            changes: broadcast::Sender::new(CHANGE_FEED_CAPACITY),
            change_log: ChangeLog::default(),
            has_failed: AtomicBool::new(false),
            failed_notify: Notify::new(),
            is_ending: AtomicBool::new(false),
            writes: AtomicU64::new(0),
            commits: AtomicU64::new(0),
            metrics: CommitMetrics::default(),
        });
        let thread = WriterThread {
            db,
            queued,
            shared: Arc::clone(&shared),
            crash,
            needs_repair: false,
        };
        let runtime = tokio::runtime::Builder::new_current_thread();
        let started = { runtime }.enable_time().build().and_then(|runtime| {
            std::thread::Builder::new()
                .name("store-writer".to_owned())
                .spawn(move || thread.run(&runtime))
        });
        if started.is_err() {
            shared.mark_failed();
        }
        Self { queue, shared }
    }

    /// Queues a closure and returns its result after the commit.
    pub(super) async fn submit<T: Send + 'static>(
        &self,
        closure: impl FnMut(&WriteTx<'_>) -> StoreResult<T> + Send + 'static,
    ) -> StoreResult<T> {
        let (reply, result) = oneshot::channel();
        let write = PendingWrite::new(closure, reply);
        self.queue
            .send(Box::new(write))
            .await
            .map_err(|_| StoreError::OutcomeUnknown)?;
        result.await.unwrap_or(Err(StoreError::OutcomeUnknown))
    }

    /// Prepares the next start to do without a repair, unless the disk is full or the store has failed. Expects that the
    /// process ends: the file is never closed.
    pub(super) async fn prepare_next_start(&self) {
        self.shared.is_ending.store(true, Ordering::Release);
        // Fails only if the store has failed.
        let _ = self.submit(|_| Ok(())).await;
    }

    /// Notified after a commit that changed what is due in the outbox.
    pub(super) fn outbox_notifier(&self) -> &Notify {
        &self.shared.outbox_notify
    }

    /// Sender of the changes of commits.
    pub(super) fn change_feed(&self) -> &broadcast::Sender<StoreChange> {
        &self.shared.changes
    }

    /// Log of the rows that commits change.
    pub(super) fn change_log(&self) -> &ChangeLog {
        &self.shared.change_log
    }

    /// Resolves when the store has failed.
    pub(super) async fn failed(&self) {
        let notified = self.shared.failed_notify.notified();
        tokio::pin!(notified);
        notified.as_mut().enable();
        if self.is_healthy() {
            notified.await;
        }
    }

    /// Marks the store as failed after an error outside of a commit.
    pub(super) fn mark_failed(&self, error: &StoreError) {
        if self.is_healthy() {
            tracing::error!(%error, "Failed to read the store. Stopping: only a restart shows whether it is intact.");
        }
        self.shared.mark_failed();
    }

    /// Free space of the disk.
    pub(super) fn disk_space(&self) -> DiskSpace {
        self.shared.disk_space.read()
    }

    /// Whether there is room for logs of runs.
    pub(super) fn has_room_for_logs(&self) -> bool {
        self.shared.disk_space.has_room_for_logs()
    }

    /// Whether writes are possible.
    pub(super) fn is_healthy(&self) -> bool {
        !self.shared.has_failed.load(Ordering::Acquire)
    }

    /// Histograms of commits.
    pub(super) fn commit_metrics(&self) -> &CommitMetrics {
        &self.shared.metrics
    }

    /// Numbers of writes and commits.
    pub(super) fn stats(&self) -> CommitStats {
        CommitStats {
            writes: self.shared.writes.load(Ordering::Relaxed),
            commits: self.shared.commits.load(Ordering::Relaxed),
        }
    }
}

impl Shared {
    fn publish(&self, changes: BTreeSet<StoreChange>) {
        if self.changes.receiver_count() == 0 {
            return;
        }
        for change in changes {
            // Fails only if the last subscriber has left.
            let _ = self.changes.send(change);
        }
    }

    fn mark_failed(&self) {
        self.has_failed.store(true, Ordering::Release);
        self.failed_notify.notify_waiters();
    }
}

/// Guard that marks the store as failed if the writer thread panics. Panics of closures are caught; panics of
/// redb are not.
struct PanicGuard(Arc<Shared>);

impl Drop for PanicGuard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.mark_failed();
            tracing::error!(
                "The store's writer panicked. Stopping: only a restart shows what is on disk."
            );
        }
    }
}

struct WriterThread {
    db: Arc<Database>,
    queued: mpsc::Receiver<Box<dyn QueuedWrite>>,
    shared: Arc<Shared>,
    crash: CrashPlan,
    /// Whether a start after a crash would have to repair the file.
    needs_repair: bool,
}

impl WriterThread {
    fn run(mut self, runtime: &Runtime) {
        let mut group: Vec<Box<dyn QueuedWrite>> = Vec::new();
        // Declared last, so that it is dropped before the callers in `group` get an error.
        let _panic_guard = PanicGuard(Arc::clone(&self.shared));
        while self.receive(runtime, &mut group) {
            let has_failed = self.shared.has_failed.load(Ordering::Acquire);
            let outcome = if has_failed {
                CommitOutcome::Unknown
            } else {
                self.commit(&mut group)
            };
            if self.shared.is_ending.load(Ordering::Acquire) {
                self.prepare_next_start();
            }
            for write in group.drain(..) {
                write.respond(outcome);
            }
        }
        if self.shared.is_ending.load(Ordering::Acquire) {
            // The end of the process could interrupt redb while it closes the file, which the next start would repair.
            std::mem::forget(self.db);
        }
    }

    /// Receives the next closures. Returns `false` when no more can come. Prepares the next start if none comes for
    /// [`IDLE_TIME`].
    fn receive(&mut self, runtime: &Runtime, group: &mut Vec<Box<dyn QueuedWrite>>) -> bool {
        if self.needs_repair {
            let received = self.queued.recv_many(group, MAX_GROUP_SIZE);
            if let Ok(count) = runtime.block_on(async { timeout(IDLE_TIME, received).await }) {
                return count > 0;
            }
            self.prepare_next_start();
        }
        self.queued.blocking_recv_many(group, MAX_GROUP_SIZE) > 0
    }

    /// Prepares the next start to do without a repair, unless that is done.
    fn prepare_next_start(&mut self) {
        if std::mem::take(&mut self.needs_repair)
            && let Err(error) = self.commit_repair_records()
        {
            self.fail(&error);
        }
    }

    /// Commits what a start needs to do without a repair.
    fn commit_repair_records(&self) -> StoreResult<()> {
        let is_possible = !self.shared.has_failed.load(Ordering::Acquire);
        if !is_possible || matches!(self.shared.disk_space.read(), DiskSpace::Full(_)) {
            return Ok(());
        }
        let mut tx = self.db.begin_write()?;
        tx.set_quick_repair(true);
        Ok(tx.commit()?)
    }

    fn fail(&self, error: &StoreError) {
        tracing::error!(%error, "Failed to commit to the store. Stopping: only a restart shows what is on disk.");
        self.shared.mark_failed();
    }

    fn commit(&mut self, group: &mut [Box<dyn QueuedWrite>]) -> CommitOutcome {
        match self.try_commit(group) {
            Ok(outcome) => outcome,
            Err(error) => {
                self.fail(&error);
                CommitOutcome::Unknown
            }
        }
    }

    fn try_commit(&mut self, group: &mut [Box<dyn QueuedWrite>]) -> StoreResult<CommitOutcome> {
        loop {
            let started = Instant::now();
            let mut tx = self.db.begin_write()?;
            // Without it, a crash could leave a torn commit that only its checksum tells from a whole one.
            tx.set_two_phase_commit(true);
            let is_recording = self.shared.change_log.is_on();
            let view = match is_recording {
                true => WriteTx::new(&tx).recording_changes(),
                false => WriteTx::new(&tx),
            };
            let Some(activity) = run_all(view, group)? else {
                tx.abort()?;
                continue;
            };
            if activity.writes == 0 {
                tx.abort()?;
                return Ok(CommitOutcome::Durable);
            }
            if let DiskSpace::Full(free) = self.shared.disk_space.read()
                && !activity.bypasses_space_check
            {
                tx.abort()?;
                for write in group.iter_mut() {
                    write.reject(free);
                }
                // The others may have read the discarded writes, so they run again.
                continue;
            }
            self.crash.crash_if_planned(CrashPoint::CommitBegun);
            let mut change_log = self.shared.change_log.lock();
            tx.commit()?;
            change_log.append(is_recording.then_some(activity.changed_rows));
            drop(change_log);
            self.needs_repair = true;
            self.crash.crash_if_planned(CrashPoint::CommitDone);
            let metrics = &self.shared.metrics;
            metrics.duration.observe_time(started.elapsed());
            metrics.group_size.observe(activity.closures);
            self.shared.commits.fetch_add(1, Ordering::Relaxed);
            self.shared
                .writes
                .fetch_add(activity.closures, Ordering::Relaxed);
            if activity.notifies_outbox {
                self.shared.outbox_notify.notify_one();
            }
            self.shared.publish(activity.changes);
            return Ok(CommitOutcome::Durable);
        }
    }
}

/// Activity of all closures of a group.
#[derive(Default)]
struct GroupActivity {
    /// Number of closures that wrote.
    closures: u64,
    /// Number of rows that were put or removed.
    writes: u64,
    notifies_outbox: bool,
    /// Whether a closure must be committed even if the disk is almost full.
    bypasses_space_check: bool,
    changes: BTreeSet<StoreChange>,
    /// Changed rows, encoded.
    changed_rows: Vec<u8>,
}

/// Runs every closure that has not failed before. Returns `None` if a closure failed after it had written;
/// the transaction must then be aborted.
///
/// # Errors
/// If the file or its disk failed; nothing can be committed then.
fn run_all(
    view: WriteTx<'_>,
    group: &mut [Box<dyn QueuedWrite>],
) -> StoreResult<Option<GroupActivity>> {
    let mut total = GroupActivity::default();
    for write in group.iter_mut().filter(|write| !write.has_failed()) {
        match write.run(&view) {
            (RunOutcome::Succeeded, activity) => {
                total.closures += u64::from(activity.writes > 0);
                total.writes += activity.writes;
                total.notifies_outbox |= activity.notifies_outbox;
                total.bypasses_space_check |= activity.bypasses_space_check;
                total.changes.extend(activity.changes);
                total.changed_rows.extend(activity.changed_rows);
            }
            (RunOutcome::Failed, activity) if activity.writes == 0 => {}
            (RunOutcome::Failed, _) => return Ok(None),
            (RunOutcome::DiskFailed, _) => return Err(StoreError::OutcomeUnknown),
        }
    }
    Ok(Some(total))
}

#[cfg(test)]
mod tests;
