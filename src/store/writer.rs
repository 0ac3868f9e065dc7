//! The one writer: durable group commit.
//!
//! Closures queue up while a commit is on its way to the disk; the next transaction runs all that
//! wait and commits once, so that a hundred writers cost one fsync. Nobody is answered before the
//! commit that holds their write.
//!
//! A closure that fails must leave no trace and must not fail its neighbours, but redb can undo
//! only a whole transaction. So a closure that fails before it wrote anything is simply answered;
//! one that had already written has the transaction abandoned and its neighbours run again without
//! it.
//!
//! A commit for which the disk has no room is not tried: its writes are refused, and the next may do.
//! Whoever wrote nothing may have seen what was refused, so it is run again without that.
//! A commit that fails may or may not be on disk. Nothing sensible can follow it in this process:
//! everybody is told [`StoreError::Lost`], and the process ends and looks again.

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

/// How many closures may share a commit? Bounds the memory of a transaction.
const MAX_GROUP: usize = 1024;

/// How many closures may wait? Beyond it, callers wait to be queued.
const QUEUE: usize = 8192;

/// Bounds of how long commits take, in microseconds: from a disk in memory to one that is stuck.
const COMMIT_TIMES: &[u64] = &[
    250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 1_000_000, 5_000_000,
];

const GROUP_SIZES: &[u64] = &[1, 2, 4, 8, 16, 32, 64, 128, 256, 512];

#[derive(Clone)]
pub(super) struct StoreWriter {
    queue: mpsc::Sender<Box<dyn Work>>,
    shared: Arc<Shared>,
}

struct Shared {
    gauge: DiskSpaceProbe,
    outbox_bell: Notify,
    news: broadcast::Sender<StoreChange>,
    lost: AtomicBool,
    lost_bell: Notify,
    writes: AtomicU64,
    commits: AtomicU64,
    meters: CommitMetrics,
}

/// How commits go.
pub struct CommitMetrics {
    /// How long each took, from its first write to when the disk had it.
    pub duration: Histogram,
    /// How many writes shared one.
    pub group_size: Histogram,
}

impl Default for CommitMetrics {
    fn default() -> Self {
        Self {
            duration: Histogram::new(MetricUnit::Time, COMMIT_TIMES),
            group_size: Histogram::new(MetricUnit::Number, GROUP_SIZES),
        }
    }
}

/// How often the store was written to since it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommitStats {
    pub writes: u64,
    /// Each is one fsync.
    pub commits: u64,
}

impl StoreWriter {
    pub(super) fn start(db: Arc<Database>, gauge: DiskSpaceProbe, crash: CrashPlan) -> Self {
        let (queue, waiting) = mpsc::channel(QUEUE);
        let shared = Arc::new(Shared {
            gauge,
            outbox_bell: Notify::new(),
            news: broadcast::Sender::new(CHANGE_FEED_CAPACITY),
            lost: AtomicBool::new(false),
            lost_bell: Notify::new(),
            writes: AtomicU64::new(0),
            commits: AtomicU64::new(0),
            meters: CommitMetrics::default(),
        });
        let thread = Thread {
            db,
            waiting,
            shared: Arc::clone(&shared),
            crash,
        };
        let started = std::thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || thread.run());
        if started.is_err() {
            shared.lose();
        }
        Self { queue, shared }
    }

    pub(super) async fn submit<T: Send + 'static>(
        &self,
        f: impl FnMut(&WriteTx<'_>) -> StoreResult<T> + Send + 'static,
    ) -> StoreResult<T> {
        let (reply, answer) = oneshot::channel();
        let work = Pending {
            f,
            result: None,
            wrote: false,
            reply: Some(reply),
        };
        self.queue
            .send(Box::new(work))
            .await
            .map_err(|_| StoreError::OutcomeUnknown)?;
        answer.await.unwrap_or(Err(StoreError::OutcomeUnknown))
    }

    pub(super) fn outbox_notifier(&self) -> &Notify {
        &self.shared.outbox_bell
    }

    pub(super) fn change_feed(&self) -> &broadcast::Sender<StoreChange> {
        &self.shared.news
    }

    pub(super) async fn failed(&self) {
        let rung = self.shared.lost_bell.notified();
        tokio::pin!(rung);
        rung.as_mut().enable();
        if self.is_healthy() {
            rung.await;
        }
    }

    /// The store failed outside of a commit.
    pub(super) fn mark_failed(&self, error: &StoreError) {
        if self.is_healthy() {
            tracing::error!(%error, "The store could not be read. Stopping: whether it is whole is known only after a restart.");
        }
        self.shared.lose();
    }

    pub(super) fn disk_space(&self) -> DiskSpace {
        self.shared.gauge.read()
    }

    pub(super) fn is_healthy(&self) -> bool {
        !self.shared.lost.load(Ordering::Acquire)
    }

    pub(super) fn commit_metrics(&self) -> &CommitMetrics {
        &self.shared.meters
    }

    pub(super) fn stats(&self) -> CommitStats {
        CommitStats {
            writes: self.shared.writes.load(Ordering::Relaxed),
            commits: self.shared.commits.load(Ordering::Relaxed),
        }
    }
}

impl Shared {
    fn tell(&self, news: BTreeSet<StoreChange>) {
        if self.news.receiver_count() == 0 {
            return;
        }
        for piece in news {
            // The last listener may have gone meanwhile.
            let _ = self.news.send(piece);
        }
    }

    fn lose(&self) {
        self.lost.store(true, Ordering::Release);
        self.lost_bell.notify_waiters();
    }
}

/// A closure in the queue, whatever it answers.
trait Work: Send {
    /// Runs the closure and keeps what it answered.
    fn run(&mut self, tx: &WriteTx<'_>) -> (Ran, TxActivity);
    fn has_failed(&self) -> bool;
    /// Has it failed if it wrote: so many bytes are free.
    fn refuse(&mut self, free: u64);
    /// Answers the caller.
    fn settle(self: Box<Self>, commit: Commit);
}

enum Ran {
    Well,
    Badly,
    /// The file or its disk failed.
    Broke,
}

#[derive(Clone, Copy)]
enum Commit {
    Done,
    Unknown,
}

struct Pending<F, T> {
    f: F,
    result: Option<StoreResult<T>>,
    /// Whether its last run changed anything.
    wrote: bool,
    reply: Option<oneshot::Sender<StoreResult<T>>>,
}

impl<T, F> Work for Pending<F, T>
where
    T: Send,
    F: FnMut(&WriteTx<'_>) -> StoreResult<T> + Send,
{
    fn run(&mut self, tx: &WriteTx<'_>) -> (Ran, TxActivity) {
        let result =
            catch_unwind(AssertUnwindSafe(|| (self.f)(tx))).unwrap_or(Err(StoreError::Panicked));
        let ran = match &result {
            Ok(_) => Ran::Well,
            Err(error) if error.is_disk_failure() => Ran::Broke,
            Err(_) => Ran::Badly,
        };
        let deeds = tx.take_activity();
        self.wrote = deeds.writes > 0;
        self.result = Some(result);
        (ran, deeds)
    }

    fn has_failed(&self) -> bool {
        matches!(self.result, Some(Err(_)))
    }

    fn refuse(&mut self, free: u64) {
        if self.wrote && !self.has_failed() {
            self.result = Some(Err(StoreError::DiskFull(free)));
        }
    }

    fn settle(mut self: Box<Self>, commit: Commit) {
        let answer = match (commit, self.result.take()) {
            (_, Some(Err(error))) => Err(error),
            (Commit::Done, Some(Ok(value))) => Ok(value),
            (Commit::Unknown, _) | (_, None) => Err(StoreError::OutcomeUnknown),
        };
        if let Some(reply) = self.reply.take() {
            // The caller may have gone away; the write stands all the same.
            let _ = reply.send(answer);
        }
    }
}

/// Has the store known as lost when the writer panics. Closures are caught, but what the database
/// does around them is not.
struct LastWord(Arc<Shared>);

impl Drop for LastWord {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.lose();
            tracing::error!(
                "The store's writer panicked. Stopping: what is on disk is known only after a restart."
            );
        }
    }
}

struct Thread {
    db: Arc<Database>,
    waiting: mpsc::Receiver<Box<dyn Work>>,
    shared: Arc<Shared>,
    crash: CrashPlan,
}

impl Thread {
    fn run(mut self) {
        let mut group: Vec<Box<dyn Work>> = Vec::new();
        // Last, so that it is spoken before those who wait are told.
        let _last_word = LastWord(Arc::clone(&self.shared));
        while self.waiting.blocking_recv_many(&mut group, MAX_GROUP) > 0 {
            let healthy = !self.shared.lost.load(Ordering::Acquire);
            let commit = if healthy {
                self.commit(&mut group)
            } else {
                Commit::Unknown
            };
            for work in group.drain(..) {
                work.settle(commit);
            }
        }
    }

    fn commit(&self, group: &mut [Box<dyn Work>]) -> Commit {
        match self.try_commit(group) {
            Ok(commit) => commit,
            Err(error) => {
                tracing::error!(%error, "The store could not commit. Stopping: what is on disk is known only after a restart.");
                self.shared.lose();
                Commit::Unknown
            }
        }
    }

    fn try_commit(&self, group: &mut [Box<dyn Work>]) -> StoreResult<Commit> {
        loop {
            let began = Instant::now();
            let mut tx = self.db.begin_write()?;
            tx.set_quick_repair(true);
            let Some(done) = run_all(&tx, group)? else {
                tx.abort()?;
                continue;
            };
            if done.writes == 0 {
                tx.abort()?;
                return Ok(Commit::Done);
            }
            if let DiskSpace::Full(free) = self.shared.gauge.read()
                && !done.insists
            {
                tx.abort()?;
                for work in group.iter_mut() {
                    work.refuse(free);
                }
                // The others may have seen what is not there now.
                continue;
            }
            self.crash.crash_if_planned(CrashPoint::CommitBegun);
            tx.commit()?;
            self.crash.crash_if_planned(CrashPoint::CommitDone);
            self.shared.meters.duration.observe_time(began.elapsed());
            self.shared.meters.group_size.observe(done.closures);
            self.shared.commits.fetch_add(1, Ordering::Relaxed);
            self.shared
                .writes
                .fetch_add(done.closures, Ordering::Relaxed);
            if done.owes {
                self.shared.outbox_bell.notify_one();
            }
            self.shared.tell(done.news);
            return Ok(Commit::Done);
        }
    }
}

#[derive(Default)]
struct Done {
    closures: u64,
    writes: u64,
    owes: bool,
    /// Whether one of them must be kept although there is next to no room.
    insists: bool,
    news: BTreeSet<StoreChange>,
}

/// Runs every closure that has not failed before. None when one failed after it had written: the
/// transaction holds its traces and must be abandoned.
///
/// # Errors
/// When the file or its disk failed one of them: then nothing can be committed.
fn run_all(tx: &redb::WriteTransaction, group: &mut [Box<dyn Work>]) -> StoreResult<Option<Done>> {
    let mut done = Done::default();
    let view = WriteTx::new(tx);
    for work in group.iter_mut().filter(|work| !work.has_failed()) {
        match work.run(&view) {
            (Ran::Well, deeds) => {
                done.closures += u64::from(deeds.writes > 0);
                done.writes += deeds.writes;
                done.owes |= deeds.notifies_outbox;
                done.insists |= deeds.bypasses_space_check;
                done.news.extend(deeds.changes);
            }
            (Ran::Badly, deeds) if deeds.writes == 0 => {}
            (Ran::Badly, _) => return Ok(None),
            (Ran::Broke, _) => return Err(StoreError::OutcomeUnknown),
        }
    }
    Ok(Some(done))
}

#[cfg(test)]
mod tests {
    use super::super::Store;
    use super::super::tables::META;
    use super::*;
    use serde_json::json;

    #[tokio::test]
    async fn many_writers_share_commits_and_all_are_kept() {
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
    async fn a_failing_closure_leaves_no_trace_and_spares_its_neighbours() {
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
        let asked = ["first", "good", "bad", "worse"];
        let is_kept = |key: &&str| store.read(|tx| META.get(tx, *key)).unwrap().is_some();
        let kept: Vec<&str> = asked.into_iter().filter(is_kept).collect();
        assert_eq!(kept, ["first", "good"]);
    }

    #[tokio::test]
    async fn nobody_is_answered_from_what_was_refused() {
        let gauge = DiskSpaceProbe::new(|| Some(5 << 20));
        let store = Store::with_backend(redb::backends::InMemoryBackend::new(), gauge).unwrap();
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
        let look = store.write(|tx| Ok(META.get(tx, "once")?.is_some()));
        let (slow, first, second, seen) = tokio::join!(slow, put_once(), put_once(), look);
        slow.unwrap();
        for answer in [first, second] {
            assert!(matches!(answer, Err(StoreError::DiskFull(_))), "{answer:?}");
        }
        assert!(!seen.unwrap(), "nothing was written");
        assert!(store.is_healthy());
    }

    #[tokio::test]
    async fn next_to_no_room_refuses_writes_until_there_is_some_and_lets_reads_be() {
        let free = Arc::new(AtomicU64::new(u64::MAX));
        let shown = Arc::clone(&free);
        let gauge = DiskSpaceProbe::new(move || Some(shown.load(Ordering::Relaxed)));
        let store = Store::with_backend(redb::backends::InMemoryBackend::new(), gauge).unwrap();
        let put = |key: &'static str| store.write(move |tx| META.put(tx, key, &json!(1)));
        put("before").await.unwrap();
        free.store(5 << 20, Ordering::Relaxed);
        let refused = put("refused").await;
        assert!(matches!(refused, Err(StoreError::DiskFull(free)) if free == 5 << 20));
        // Whoever writes nothing is not refused: the watchdog asks so.
        store.write(|_| Ok(())).await.unwrap();
        let insisting = store.write(|tx| {
            tx.bypass_space_check();
            META.put(tx, "happened", &json!(1))
        });
        insisting.await.unwrap();
        assert!(store.is_healthy());
        free.store(u64::MAX, Ordering::Relaxed);
        put("after").await.unwrap();
        let asked = ["before", "refused", "happened", "after"];
        let is_kept = |key: &&str| store.read(|tx| META.get(tx, *key)).unwrap().is_some();
        let kept: Vec<&str> = asked.into_iter().filter(is_kept).collect();
        assert_eq!(kept, ["before", "happened", "after"]);
    }
}
