//! Limits of the proxy: incomplete requests, tunnels of each run and of all runs, and lookups of names.
//!
//! No run can keep others from connecting: above a limit of all, the oldest incomplete request is closed, and the oldest
//! tunnel of the run that has most.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use crate::file_descriptors::{EGRESS_REQUESTS, EGRESS_TUNNELS};
use domain::ids::JobId;

/// Maximum number of tunnels of a run.
const MAX_TUNNELS: usize = 64;

/// Maximum number of lookups of names at the same time, of a run and of all. Each needs a thread until the name server
/// answers or the system gives up, which may take longer than anyone waits for it.
const RUN_LOOKUPS: usize = 4;
const ALL_LOOKUPS: usize = 16;

/// Connections of the proxy.
pub(super) struct Limits {
    requests: Mutex<Requests>,
    tunnels: Mutex<Tunnels>,
    lookups: Arc<Semaphore>,
}

#[derive(Default)]
struct Requests {
    next: u64,
    /// Notified when the connection must be closed. The oldest is the first.
    open: BTreeMap<u64, Arc<Notify>>,
}

#[derive(Default)]
struct Tunnels {
    next: u64,
    runs: HashMap<JobId, RunTunnels>,
}

struct RunTunnels {
    /// As that of the requests.
    open: BTreeMap<u64, Arc<Notify>>,
    lookups: Arc<Semaphore>,
}

/// Request that is not complete.
pub(super) struct RequestSlot {
    limits: Arc<Limits>,
    number: u64,
    evicted: Arc<Notify>,
}

/// Tunnel of a run.
pub(super) struct TunnelSlot {
    limits: Arc<Limits>,
    job: JobId,
    number: u64,
    evicted: Arc<Notify>,
    lookups: Arc<Semaphore>,
}

impl Limits {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            requests: Mutex::default(),
            tunnels: Mutex::default(),
            lookups: Arc::new(Semaphore::new(ALL_LOOKUPS)),
        })
    }

    /// Adds a request.
    pub(super) fn begin_request(self: &Arc<Self>) -> RequestSlot {
        let mut requests = lock(&self.requests);
        if requests.open.len() >= EGRESS_REQUESTS
            && let Some((_, oldest)) = requests.open.pop_first()
        {
            oldest.notify_one();
        }
        let (number, evicted) = (requests.next, Arc::default());
        requests.next += 1;
        requests.open.insert(number, Arc::clone(&evicted));
        RequestSlot {
            limits: Arc::clone(self),
            number,
            evicted,
        }
    }

    /// Adds a tunnel of a run.
    ///
    /// # Errors
    /// Returns a sentence if the run has too many tunnels.
    pub(super) fn begin_tunnel(self: &Arc<Self>, job: &JobId) -> Result<TunnelSlot, String> {
        let mut tunnels = lock(&self.tunnels);
        // Those of runs that ended during a lookup.
        let is_used =
            |run: &RunTunnels| !run.open.is_empty() || Arc::strong_count(&run.lookups) > 1;
        tunnels.runs.retain(|_, run| is_used(run));
        let own = tunnels.runs.get(job).map_or(0, |run| run.open.len());
        let all: usize = tunnels.runs.values().map(|run| run.open.len()).sum();
        if own >= MAX_TUNNELS {
            return Err(format!("the run has {own} connections already"));
        }
        if all >= EGRESS_TUNNELS {
            let heaviest = tunnels.runs.values_mut().max_by_key(|run| run.open.len());
            let oldest = heaviest
                .filter(|run| run.open.len() > own + 1)
                .and_then(|run| run.open.pop_first());
            let Some((_, oldest)) = oldest else {
                return Err(format!("all runs together have {all} connections already"));
            };
            oldest.notify_one();
        }
        let (number, evicted) = (tunnels.next, Arc::default());
        tunnels.next += 1;
        let run = tunnels
            .runs
            .entry(job.clone())
            .or_insert_with(|| RunTunnels {
                open: BTreeMap::new(),
                lookups: Arc::new(Semaphore::new(RUN_LOOKUPS)),
            });
        run.open.insert(number, Arc::clone(&evicted));
        Ok(TunnelSlot {
            limits: Arc::clone(self),
            job: job.clone(),
            number,
            evicted,
            lookups: Arc::clone(&run.lookups),
        })
    }
}

impl RequestSlot {
    /// Resolves when another request needs the place of this one.
    pub(super) async fn evicted(&self) {
        self.evicted.notified().await;
    }
}

impl TunnelSlot {
    /// Run of the tunnel.
    pub(super) fn job(&self) -> &JobId {
        &self.job
    }

    /// Resolves when another run needs the place of this tunnel.
    pub(super) async fn evicted(&self) {
        self.evicted.notified().await;
    }

    /// Waits until a name may be looked up. The permits must be kept as long as the thread of the lookup works. `None` if
    /// the service ends.
    pub(super) async fn lookup_permits(&self) -> Option<[OwnedSemaphorePermit; 2]> {
        let own = Arc::clone(&self.lookups).acquire_owned().await.ok()?;
        let all = Arc::clone(&self.limits.lookups).acquire_owned().await;
        Some([own, all.ok()?])
    }
}

impl Drop for RequestSlot {
    fn drop(&mut self) {
        lock(&self.limits.requests).open.remove(&self.number);
    }
}

impl Drop for TunnelSlot {
    fn drop(&mut self) {
        let mut tunnels = lock(&self.limits.tunnels);
        let Some(run) = tunnels.runs.get_mut(&self.job) else {
            return;
        };
        run.open.remove(&self.number);
        // Lookups in progress count further.
        if run.open.is_empty() && Arc::strong_count(&run.lookups) == 2 {
            tunnels.runs.remove(&self.job);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(number: usize) -> JobId {
        JobId::from(format!("job-{number}").as_str())
    }

    #[tokio::test]
    async fn the_run_with_most_tunnels_makes_place() {
        let limits = Limits::new();
        let mut heavy: Vec<TunnelSlot> = (0..MAX_TUNNELS)
            .map(|_| limits.begin_tunnel(&job(0)).unwrap())
            .collect();
        assert!(limits.begin_tunnel(&job(0)).is_err(), "limit of a run");
        let runs = EGRESS_TUNNELS / MAX_TUNNELS;
        let others: Vec<TunnelSlot> = (1..runs)
            .flat_map(|run| (0..MAX_TUNNELS).map(move |_| job(run)))
            .map(|job| limits.begin_tunnel(&job).unwrap())
            .collect();
        heavy.push(limits.begin_tunnel(&job(100)).unwrap());
        let evicted = heavy.iter().chain(&others).filter(|slot| {
            let evicted = poll_once(slot.evicted());
            evicted.is_some()
        });
        assert_eq!(evicted.count(), 1);
        drop((heavy, others));
        assert!(lock(&limits.tunnels).runs.is_empty());
    }

    #[tokio::test]
    async fn lookups_of_a_run_that_has_ended_count_further() {
        let limits = Limits::new();
        let slot = limits.begin_tunnel(&job(0)).unwrap();
        let mut permits = Vec::new();
        for _ in 0..RUN_LOOKUPS {
            permits.push(slot.lookup_permits().await.unwrap());
        }
        drop(slot);
        let slot = limits.begin_tunnel(&job(0)).unwrap();
        assert!(poll_once(slot.lookup_permits()).is_none());
        permits.pop();
        assert!(poll_once(slot.lookup_permits()).is_some());
        drop((slot, permits));
    }

    /// Polls a future once.
    fn poll_once<T>(future: impl Future<Output = T>) -> Option<T> {
        let mut future = std::pin::pin!(future);
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        match future.as_mut().poll(&mut context) {
            std::task::Poll::Ready(output) => Some(output),
            std::task::Poll::Pending => None,
        }
    }
}
