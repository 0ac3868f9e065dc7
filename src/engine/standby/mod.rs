//! Standby: another machine can go on with the work of this one.
//!
//! The service writes backups and, after each, the rows that changed ([`shipper`]) to a [`place`] outside of the machine.
//! Before an effect is performed, everything that was committed is there, so that a restored service knows of each effect
//! that may have been performed, and looks it up at the vendor like after a crash. Changes are acknowledged when they are
//! there, too; only progress of runs is not waited for. A [`lease`] in the place keeps two
//! services from performing effects: those under way end when it has [`lapsed`](Standby::lapsed). [`take_over`] restores on the other machine.

mod boot_time;
mod lease;
mod place;
mod record;
pub mod series;
mod shipper;
mod start_error;
pub mod take_over;

use std::path::PathBuf;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

use domain::time::Timestamp;
use store::{STORE_FILE, StandbyIdentity, Store};

use crate::clock::Clock;
use crate::periodic_task::ShutdownSignal;
use boot_time::BootTime;
use lease::{BackupList, IdentifiedFolder, Lease};
pub(crate) use place::age_text;
pub use place::{PlaceError, StandbyPlace};
pub use record::{PlaceRecord, StoredBackup};
use shipper::{Progress, Shipper};
pub use start_error::StartError;

/// Maximum time for changes to be written before an effect is postponed.
const PERMIT_TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum time for which an acknowledgement waits for the place.
const ACKNOWLEDGEMENT_TIMEOUT: Duration = Duration::from_secs(8);

/// Maximum number of attempts to check the place, and to take the lease, at the start.
const MAX_ATTEMPTS: u32 = 5;

/// Pause between two of them.
const ATTEMPT_PAUSE: Duration = Duration::from_secs(1);

/// Minimum time before the end of the lease in which an effect is begun.
const MIN_PERMIT: Duration = Duration::from_secs(1);

/// Interval at which the end of the lease is checked while an effect is performed. Timers do not run during a suspend.
const LAPSE_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Durations of a standby.
#[derive(Debug, Clone, Copy)]
pub struct StandbyTimings {
    /// Duration of the lease.
    pub lease: Duration,
    /// Interval of renewals.
    pub renewal: Duration,
    /// Time before the end of the lease at which its holder begins no more effects and cuts off those under way. A
    /// request that was sent has arrived at the vendor by then.
    pub margin: Duration,
    /// Maximum age of progress that is not in the place. The configuration has a shorter one.
    pub interval: Duration,
}

impl StandbyTimings {
    /// Duration of the lease for a record, in milliseconds.
    fn lease_ms(&self) -> u64 {
        u64::try_from(self.lease.as_millis()).unwrap_or(u64::MAX)
    }

    /// End of the lease for its holder, after a renewal that was sent at this time.
    fn end_of_lease(&self, sent: BootTime) -> BootTime {
        sent + self.lease.saturating_sub(self.margin)
    }
}

impl Default for StandbyTimings {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(45),
            renewal: Duration::from_secs(10),
            margin: Duration::from_secs(10),
            interval: Duration::from_secs(60 * 60),
        }
    }
}

/// State of the standby.
#[derive(Debug, Clone, Default)]
pub struct StandbyStatus {
    /// End of the lease by this process.
    leased_until: BootTime,
    /// Version of the list of backups in the record.
    listed: u64,
    /// Number of the last commit in the place; `None` before the first backup.
    shipped: Option<u64>,
    /// Time at which everything was in the place.
    pub shipped_at: Option<Timestamp>,
    /// Problem of renewals.
    lease_problem: Option<StandbyProblem>,
    /// Problem of backups and changes.
    ship_problem: Option<StandbyProblem>,
    /// End of the time for which changes are acknowledged in spite of that problem.
    acknowledged_until: BootTime,
    /// Sentence about who has taken over.
    lost: Option<String>,
}

/// Problem that has lasted since a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StandbyProblem {
    /// Time of the first failure.
    pub since: Timestamp,
    /// Last error.
    pub error: String,
    /// Whether there is no space left.
    is_full: bool,
}

impl StandbyStatus {
    /// Problem of the place, if there is one.
    pub fn problem(&self) -> Option<&StandbyProblem> {
        self.lease_problem.as_ref().or(self.ship_problem.as_ref())
    }

    /// Sentence for people about why changes wait, or why nothing is performed.
    pub fn reason(&self) -> Option<&'static str> {
        if self.has_lapsed() {
            Some(
                "the lease in the place of the standby has ended, so another machine may work, and changes are refused",
            )
        } else if self.problem().is_some() {
            Some("the place of the standby cannot be written, so runs and updates wait")
        } else if self.shipped.is_none() {
            Some("a backup is being written to the place of the standby, so changes wait")
        } else {
            None
        }
    }

    fn report_shipped(&mut self, commit: u64, now: Timestamp) {
        self.shipped = Some(commit);
        self.shipped_at = Some(now);
        end_problem(&mut self.ship_problem);
    }

    /// Only a new backup has all changes.
    fn report_incomplete(&mut self) {
        self.shipped = None;
    }

    fn report_lease_problem(&mut self, error: &PlaceError, now: Timestamp) {
        report(&mut self.lease_problem, error, now);
    }

    fn end_lease_problem(&mut self) {
        end_problem(&mut self.lease_problem);
    }

    /// `until` limits the acknowledgements without a copy: the lease may last although only the small record is written.
    fn report_ship_problem(&mut self, error: &PlaceError, now: Timestamp, until: BootTime) {
        if self.ship_problem.is_none() {
            self.acknowledged_until = until;
        }
        report(&mut self.ship_problem, error, now);
    }

    /// Whether there is no space left in the place.
    fn is_full(&self) -> bool {
        self.problem().is_some_and(|problem| problem.is_full)
    }

    /// Whether the lease lasts long enough to begin an effect.
    fn is_leased(&self) -> bool {
        self.leased_until > BootTime::now() + MIN_PERMIT
    }

    /// Whether another machine may work.
    pub fn has_lapsed(&self) -> bool {
        self.leased_until <= BootTime::now()
    }

    fn report_lost(&mut self, reason: String) {
        self.lost = Some(reason);
        self.leased_until = BootTime::default();
    }

    /// Whether changes are acknowledged although the place cannot be written.
    fn is_excused(&self) -> bool {
        self.ship_problem.is_some() && self.acknowledged_until > BootTime::now()
    }

    fn has_shipped(&self, commit: u64) -> bool {
        self.shipped.is_some_and(|shipped| shipped >= commit)
    }
}

fn report(problem: &mut Option<StandbyProblem>, error: &PlaceError, now: Timestamp) {
    if problem.is_none() {
        tracing::warn!(
            %error,
            "The place of the standby cannot be written; effects wait."
        );
    }
    *problem = Some(StandbyProblem {
        since: problem.as_ref().map_or(now, |problem| problem.since),
        error: error.to_string(),
        is_full: error.is_full(),
    });
}

fn end_problem(problem: &mut Option<StandbyProblem>) {
    if problem.take().is_some() {
        tracing::info!("The place of the standby can be written again.");
    }
}

/// What a standby needs from the service.
pub struct StandbySetup {
    /// Shared place.
    pub place: StandbyPlace,
    /// Data folder of the service.
    pub data_dir: PathBuf,
    /// Source of the current time.
    pub clock: Clock,
    /// Durations.
    pub timings: StandbyTimings,
}

/// Standby of this service; cheap to clone.
#[derive(Clone)]
pub struct Standby {
    store: Store,
    status: watch::Sender<StandbyStatus>,
    demand: Arc<Notify>,
}

/// Standby of a service that has not taken the lease yet.
pub struct StandbyStart {
    setup: StandbySetup,
    standby: Standby,
}

impl StandbySetup {
    /// Checks that this data folder may work with the place, before its store is opened. Changes nothing in the place.
    ///
    /// # Errors
    /// If another service works with the place, or the place cannot be used.
    pub async fn check(&self) -> Result<(), StartError> {
        repeat_while_temporary(async || {
            let identity = StandbyIdentity::of_folder(&self.data_dir)?;
            let has_store = self.data_dir.join(STORE_FILE).try_exists()?;
            lease::check(&self.place, &identity, has_store).await
        })
        .await
    }

    /// Creates the standby of a store. It permits nothing before [`StandbyStart::begin`].
    pub fn attach(self, store: Store) -> (Standby, StandbyStart) {
        let standby = Standby {
            store,
            status: watch::Sender::new(StandbyStatus::default()),
            demand: Arc::new(Notify::new()),
        };
        let start = StandbyStart {
            setup: self,
            standby: standby.clone(),
        };
        (standby, start)
    }
}

impl StandbyStart {
    /// Takes the lease, keeps it, and begins to write backups of the store. Called when nothing else can keep the service
    /// from working: each renewal keeps other machines waiting.
    ///
    /// # Errors
    /// If another service works with the place, or the place cannot be used.
    pub async fn begin(self) -> Result<StandbyTask, StartError> {
        let Self { setup, standby } = self;
        let Standby {
            store,
            status,
            demand,
        } = standby;
        let (lease, leased_until) = repeat_while_temporary(async || {
            let folder = IdentifiedFolder::open(setup.data_dir.clone())?;
            let (place, clock) = (setup.place.clone(), setup.clock.clone());
            Lease::take(place, &store, folder, clock, setup.timings).await
        })
        .await?;
        status.send_modify(|status| status.leased_until = leased_until);
        let (lists, list_changes) = watch::channel(BackupList::default());
        let shipper = Shipper {
            place: setup.place,
            store,
            clock: setup.clock,
            timings: setup.timings,
            status: status.clone(),
            lists,
            demand,
            epoch: lease.epoch(),
            backups: lease.backups().to_vec(),
            progress: Progress::default(),
        };
        // Ends with the shipper, which has the sender of the lists.
        tasks::spawn(lease.keep(list_changes, status));
        let (stop, signal) = ShutdownSignal::new();
        let task = tasks::spawn(shipper.run(signal));
        Ok(StandbyTask { stop, task })
    }
}

/// Repeats an attempt a few times: an answer of the place may be lost at any time.
async fn repeat_while_temporary<T>(
    attempt: impl AsyncFn() -> Result<T, StartError>,
) -> Result<T, StartError> {
    let mut attempts = 1;
    loop {
        match attempt().await {
            Err(error) if error.is_temporary() && attempts < MAX_ATTEMPTS => {
                attempts += 1;
                tokio::time::sleep(ATTEMPT_PAUSE).await;
            }
            result => return result,
        }
    }
}

/// Task that writes backups.
pub struct StandbyTask {
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl StandbyTask {
    /// Writes what is left, and ends.
    pub async fn finish(self) {
        let _ = self.stop.send(true);
        if let Err(error) = self.task.await {
            tracing::error!(%error, "The task of the standby ended unexpectedly.");
        }
    }
}

impl Standby {
    /// Waits until everything that was committed is in the place, so that an effect may be performed until the lease has
    /// [`lapsed`](Self::lapsed).
    ///
    /// # Errors
    /// Returns the reason, as a clause, if that takes too long or the lease ends.
    pub async fn permit(&self) -> Result<(), &'static str> {
        let commit = self.store.last_commit();
        if !self
            .ships(PERMIT_TIMEOUT, |status| status.has_shipped(commit))
            .await
        {
            return Err("the place of the standby cannot be written");
        }
        match self.status.borrow().is_leased() {
            true => Ok(()),
            false => Err("the lease in the place of the standby cannot be renewed"),
        }
    }

    /// Resolves when the lease has ended without a renewal. Each poll checks the time: a process that was suspended may go
    /// on before any timer.
    pub async fn lapsed(&self) {
        let mut timer = std::pin::pin!(tokio::time::sleep(LAPSE_CHECK_INTERVAL));
        std::future::poll_fn(|context| {
            loop {
                if self.status.borrow().has_lapsed() {
                    return Poll::Ready(());
                }
                std::task::ready!(timer.as_mut().poll(context));
                let next = tokio::time::Instant::now() + LAPSE_CHECK_INTERVAL;
                timer.as_mut().reset(next);
            }
        })
        .await;
    }

    /// Waits until everything that was committed is in the place. Returns whether it can be acknowledged. For as long as a
    /// lease lasts, does not wait for a place that cannot be written: what runs and vendors report is kept here rather than
    /// refused. Nothing is acknowledged after the lease has ended, because another service may work without it.
    pub async fn covered(&self) -> bool {
        self.covered_within(ACKNOWLEDGEMENT_TIMEOUT).await
    }

    async fn covered_within(&self, limit: Duration) -> bool {
        let commit = self.store.last_commit();
        let is_done = |status: &StandbyStatus| {
            status.has_shipped(commit) || status.is_excused() || status.lost.is_some()
        };
        self.ships(limit, is_done).await && !self.status.borrow().has_lapsed()
    }

    /// Requests that changes are written now. Returns whether the condition is met within this time.
    async fn ships(&self, limit: Duration, is_met: impl FnMut(&StandbyStatus) -> bool) -> bool {
        let mut status = self.status.subscribe();
        self.demand.notify_one();
        let met = tokio::time::timeout(limit, status.wait_for(is_met)).await;
        matches!(met, Ok(Ok(_)))
    }

    /// Whether effects may be performed, as far as is known.
    pub fn is_open(&self) -> bool {
        let status = self.status.borrow();
        status.is_leased() && status.ship_problem.is_none() && status.shipped.is_some()
    }

    /// Resolves when effects may be performed again, or this process ends.
    pub async fn opened(&self) {
        let mut status = self.status.subscribe();
        while !self.is_open() && status.changed().await.is_ok() {}
    }

    /// Resolves with a sentence when another service has taken over.
    pub async fn lost(&self) -> String {
        let mut status = self.status.subscribe();
        match status.wait_for(|status| status.lost.is_some()).await {
            Ok(status) => status.lost.clone().unwrap_or_default(),
            Err(_) => std::future::pending().await,
        }
    }

    /// State of the standby.
    pub fn status(&self) -> StandbyStatus {
        self.status.borrow().clone()
    }
}

#[cfg(test)]
mod tests;
