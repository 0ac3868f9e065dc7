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
//! If a commit fails, it may or may not be on disk. All callers get [`StoreError::OutcomeUnknown`], and the
//! process must restart to read the true state.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use redb::Database;
use tokio::sync::{Notify, broadcast, mpsc, oneshot};

use crate::crash_injection::{CrashPlan, CrashPoint};
use crate::metrics::{Histogram, MetricUnit};

use super::change_feed::{CHANGE_FEED_CAPACITY, StoreChange};
use super::disk_space::{DiskSpace, DiskSpaceProbe};
use super::table::{TxActivity, WriteTx};
use super::{StoreError, StoreResult};

/// Maximum number of closures per commit. Limits the memory of a transaction.
const MAX_GROUP_SIZE: usize = 1024;

/// Capacity of the queue, in closures. Callers wait while it is full.
const QUEUE_CAPACITY: usize = 8192;

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
    has_failed: AtomicBool,
    failed_notify: Notify,
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
            has_failed: AtomicBool::new(false),
            failed_notify: Notify::new(),
            writes: AtomicU64::new(0),
            commits: AtomicU64::new(0),
            metrics: CommitMetrics::default(),
        });
        let thread = WriterThread {
            db,
            queued,
            shared: Arc::clone(&shared),
            crash,
        };
        let started = std::thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || thread.run());
        if started.is_err() {
            shared.mark_failed();
        }
        Self { queue, shared }
    }

    /// Queues a closure and returns its result after the commit.
    pub(super) async fn submit<T: Send + 'static>(
        &self,
        f: impl FnMut(&WriteTx<'_>) -> StoreResult<T> + Send + 'static,
    ) -> StoreResult<T> {
        let (reply, result) = oneshot::channel();
        let write = Pending {
            f,
            result: None,
            wrote: false,
            reply: Some(reply),
        };
        self.queue
            .send(Box::new(write))
            .await
            .map_err(|_| StoreError::OutcomeUnknown)?;
        result.await.unwrap_or(Err(StoreError::OutcomeUnknown))
    }

    /// Notified after a commit that changed what is due in the outbox.
    pub(super) fn outbox_notifier(&self) -> &Notify {
        &self.shared.outbox_notify
    }

    /// Sender of the changes of commits.
    pub(super) fn change_feed(&self) -> &broadcast::Sender<StoreChange> {
        &self.shared.changes
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

/// Queued closure, independent of its result type.
trait QueuedWrite: Send {
    /// Runs the closure and keeps its result.
    fn run(&mut self, tx: &WriteTx<'_>) -> (RunOutcome, TxActivity);
    /// Whether the closure has failed.
    fn has_failed(&self) -> bool;
    /// Replaces the result of a writing closure by [`StoreError::DiskFull`], with the number of free bytes.
    fn reject(&mut self, free: u64);
    /// Sends the result to the caller.
    fn respond(self: Box<Self>, commit: CommitOutcome);
}

/// Outcome of running a closure.
enum RunOutcome {
    Succeeded,
    Failed,
    /// The file or its disk failed.
    DiskFailed,
}

/// Outcome of a commit.
#[derive(Clone, Copy)]
enum CommitOutcome {
    Durable,
    Unknown,
}

struct Pending<F, T> {
    f: F,
    result: Option<StoreResult<T>>,
    /// Whether the last run wrote.
    wrote: bool,
    reply: Option<oneshot::Sender<StoreResult<T>>>,
}

impl<T, F> QueuedWrite for Pending<F, T>
where
    T: Send,
    F: FnMut(&WriteTx<'_>) -> StoreResult<T> + Send,
{
    fn run(&mut self, tx: &WriteTx<'_>) -> (RunOutcome, TxActivity) {
        let result =
            catch_unwind(AssertUnwindSafe(|| (self.f)(tx))).unwrap_or(Err(StoreError::Panicked));
        let outcome = match &result {
            Ok(_) => RunOutcome::Succeeded,
            Err(error) if error.is_disk_failure() => RunOutcome::DiskFailed,
            Err(_) => RunOutcome::Failed,
        };
        let activity = tx.take_activity();
        self.wrote = activity.writes > 0;
        self.result = Some(result);
        (outcome, activity)
    }

    fn has_failed(&self) -> bool {
        matches!(self.result, Some(Err(_)))
    }

    fn reject(&mut self, free: u64) {
        if self.wrote && !self.has_failed() {
            self.result = Some(Err(StoreError::DiskFull(free)));
        }
    }

    fn respond(mut self: Box<Self>, commit: CommitOutcome) {
        let result = match (commit, self.result.take()) {
            (_, Some(Err(error))) => Err(error),
            (CommitOutcome::Durable, Some(Ok(value))) => Ok(value),
            (CommitOutcome::Unknown, _) | (_, None) => Err(StoreError::OutcomeUnknown),
        };
        if let Some(reply) = self.reply.take() {
            // Fails only if the caller no longer waits; the write still counts.
            let _ = reply.send(result);
        }
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
}

impl WriterThread {
    fn run(mut self) {
        let mut group: Vec<Box<dyn QueuedWrite>> = Vec::new();
        // Declared last, so that it is dropped before the callers in `group` get an error.
        let _panic_guard = PanicGuard(Arc::clone(&self.shared));
        while self.queued.blocking_recv_many(&mut group, MAX_GROUP_SIZE) > 0 {
            let has_failed = self.shared.has_failed.load(Ordering::Acquire);
            let outcome = if has_failed {
                CommitOutcome::Unknown
            } else {
                self.commit(&mut group)
            };
            for write in group.drain(..) {
                write.respond(outcome);
            }
        }
    }

    fn commit(&self, group: &mut [Box<dyn QueuedWrite>]) -> CommitOutcome {
        match self.try_commit(group) {
            Ok(outcome) => outcome,
            Err(error) => {
                tracing::error!(%error, "Failed to commit to the store. Stopping: only a restart shows what is on disk.");
                self.shared.mark_failed();
                CommitOutcome::Unknown
            }
        }
    }

    fn try_commit(&self, group: &mut [Box<dyn QueuedWrite>]) -> StoreResult<CommitOutcome> {
        loop {
            let started = Instant::now();
            let mut tx = self.db.begin_write()?;
            tx.set_quick_repair(true);
            let Some(activity) = run_all(&tx, group)? else {
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
            tx.commit()?;
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
}

/// Runs every closure that has not failed before. Returns `None` if a closure failed after it had written;
/// the transaction must then be aborted.
///
/// # Errors
/// If the file or its disk failed; nothing can be committed then.
fn run_all(
    tx: &redb::WriteTransaction,
    group: &mut [Box<dyn QueuedWrite>],
) -> StoreResult<Option<GroupActivity>> {
    let mut total = GroupActivity::default();
    let view = WriteTx::new(tx);
    for write in group.iter_mut().filter(|write| !write.has_failed()) {
        match write.run(&view) {
            (RunOutcome::Succeeded, activity) => {
                total.closures += u64::from(activity.writes > 0);
                total.writes += activity.writes;
                total.notifies_outbox |= activity.notifies_outbox;
                total.bypasses_space_check |= activity.bypasses_space_check;
                total.changes.extend(activity.changes);
            }
            (RunOutcome::Failed, activity) if activity.writes == 0 => {}
            (RunOutcome::Failed, _) => return Ok(None),
            (RunOutcome::DiskFailed, _) => return Err(StoreError::OutcomeUnknown),
        }
    }
    Ok(Some(total))
}

#[cfg(test)]
mod tests {
    use super::super::Store;
    use super::super::tables::META;
    use super::*;
    use serde_json::json;

    #[tokio::test]
    async fn groups_concurrent_writes_into_commits() {
        let store = Store::in_memory().unwrap();
        let before = store.stats().commits;
        let writers: Vec<_> = (0..500)
            .map(|n| {
                let store = store.clone();
                tokio::spawn(async move {
                    store
                        .write(move |tx| META.put(tx, format!("k{n}").as_str(), &json!(n)))
                        .await
                })
            })
            .collect();
        for writer in writers {
            writer.await.unwrap().unwrap();
        }
        for n in 0..500 {
            assert_eq!(
                store
                    .read(|tx| META.get(tx, format!("k{n}").as_str()))
                    .unwrap(),
                Some(json!(n))
            );
        }
        let stats = store.stats();
        assert_eq!(stats.writes, 500);
        assert!(stats.commits - before < 500, "{} commits", stats.commits);
    }

    #[tokio::test]
    async fn a_failed_closure_changes_nothing_and_does_not_affect_others() {
        let store = Store::in_memory().unwrap();
        let slow = store.write(|tx| {
            std::thread::sleep(std::time::Duration::from_millis(50));
            META.put(tx, "first", &json!(1))
        });
        let good = store.write(|tx| META.put(tx, "good", &json!(2)));
        let bad = store.write(|tx| -> StoreResult<()> {
            META.put(tx, "bad", &json!(3))?;
            Err(StoreError::Panicked)
        });
        let panics = store.write(|tx| -> StoreResult<()> {
            META.put(tx, "worse", &json!(4))?;
            panic!("on purpose")
        });
        let (slow, good, bad, panics) = tokio::join!(slow, good, bad, panics);
        assert!(slow.is_ok() && good.is_ok());
        assert!(bad.is_err() && panics.is_err());
        let keys = ["first", "good", "bad", "worse"];
        let is_kept = |key: &&str| store.read(|tx| META.get(tx, *key)).unwrap().is_some();
        let kept: Vec<&str> = keys.into_iter().filter(is_kept).collect();
        assert_eq!(kept, ["first", "good"]);
    }

    #[tokio::test]
    async fn no_result_depends_on_rejected_writes() {
        let probe = DiskSpaceProbe::new(|| Some(5 << 20));
        let store = Store::with_backend(redb::backends::InMemoryBackend::new(), probe).unwrap();
        let slow = store.write(|_| {
            std::thread::sleep(std::time::Duration::from_millis(50));
            Ok(())
        });
        let put_once = || {
            store.write(|tx| {
                let is_new = META.get(tx, "once")?.is_none();
                if is_new {
                    META.put(tx, "once", &json!(1))?;
                }
                Ok(is_new)
            })
        };
        let read = store.write(|tx| Ok(META.get(tx, "once")?.is_some()));
        let (slow, first, second, seen) = tokio::join!(slow, put_once(), put_once(), read);
        slow.unwrap();
        for result in [first, second] {
            assert!(matches!(result, Err(StoreError::DiskFull(_))), "{result:?}");
        }
        assert!(!seen.unwrap(), "nothing was written");
        assert!(store.is_healthy());
    }

    #[tokio::test]
    async fn rejects_writes_but_not_reads_while_the_disk_is_full() {
        let free = Arc::new(AtomicU64::new(u64::MAX));
        let probed = Arc::clone(&free);
        let probe = DiskSpaceProbe::new(move || Some(probed.load(Ordering::Relaxed)));
        let store = Store::with_backend(redb::backends::InMemoryBackend::new(), probe).unwrap();
        let put = |key: &'static str| store.write(move |tx| META.put(tx, key, &json!(1)));
        put("before").await.unwrap();
        free.store(5 << 20, Ordering::Relaxed);
        let refused = put("refused").await;
        assert!(matches!(refused, Err(StoreError::DiskFull(free)) if free == 5 << 20));
        // A closure that writes nothing is not rejected. The watchdog relies on this.
        store.write(|_| Ok(())).await.unwrap();
        let bypassing = store.write(|tx| {
            tx.bypass_space_check();
            META.put(tx, "happened", &json!(1))
        });
        bypassing.await.unwrap();
        assert!(store.is_healthy());
        free.store(u64::MAX, Ordering::Relaxed);
        put("after").await.unwrap();
        let keys = ["before", "refused", "happened", "after"];
        let is_kept = |key: &&str| store.read(|tx| META.get(tx, *key)).unwrap().is_some();
        let kept: Vec<&str> = keys.into_iter().filter(is_kept).collect();
        assert_eq!(kept, ["before", "happened", "after"]);
    }
}
