//! Counters and histograms kept by the engine. All other metrics are computed at scrape time.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use domain::ids::IssueId;
use domain::machine::HostKind;
use domain::reaper::ReaperRule;
use domain::time::Timestamp;
use store::metrics::{Counter, Gauge, Histogram, MetricUnit};

const SECOND: u64 = 1_000_000;

/// Histogram bounds for waiting times, in microseconds: from the poll interval to one day.
const WAIT_BOUNDS: &[u64] = &[
    SECOND,
    5 * SECOND,
    15 * SECOND,
    30 * SECOND,
    60 * SECOND,
    120 * SECOND,
    300 * SECOND,
    900 * SECOND,
    3600 * SECOND,
    4 * 3600 * SECOND,
    24 * 3600 * SECOND,
];
/// Histogram bounds for the duration of a poll, in microseconds.
const POLL_BOUNDS: &[u64] = &[
    SECOND / 20,
    SECOND / 10,
    SECOND / 4,
    SECOND / 2,
    SECOND,
    5 * SECOND / 2,
    5 * SECOND,
    10 * SECOND,
    30 * SECOND,
    60 * SECOND,
    300 * SECOND,
];
/// Histogram bounds for the duration of a request, in microseconds.
const REQUEST_BOUNDS: &[u64] = &[
    SECOND / 1000,
    SECOND / 400,
    SECOND / 200,
    SECOND / 100,
    SECOND / 40,
    SECOND / 20,
    SECOND / 10,
    SECOND / 4,
    SECOND / 2,
    SECOND,
    5 * SECOND / 2,
    10 * SECOND,
    30 * SECOND,
];

/// Status codes counted separately, the most frequent first; 0 stands for all others.
pub const STATUSES: [u16; 20] = [
    200, 202, 400, 401, 403, 404, 409, 405, 304, 408, 413, 423, 429, 500, 501, 502, 503, 204, 422,
    0,
];

/// Request metrics of one route.
pub struct RouteMetrics {
    /// Path pattern of the route, or `other`.
    pub route: &'static str,
    statuses: [Counter; STATUSES.len()],
    /// Time until the head of the response.
    pub latency: Histogram,
}

impl RouteMetrics {
    fn new(route: &'static str) -> Self {
        Self {
            route,
            statuses: Default::default(),
            latency: Histogram::new(MetricUnit::Time, REQUEST_BOUNDS),
        }
    }

    /// Records a response.
    pub fn observe(&self, status: u16, took: Duration) {
        let known = STATUSES.iter().position(|one| *one == status);
        self.statuses[known.unwrap_or(STATUSES.len() - 1)].add(1);
        self.latency.observe_time(took);
    }

    /// Number of responses for each of [`STATUSES`], in that order.
    pub fn by_status(&self) -> impl Iterator<Item = u64> {
        self.statuses.iter().map(Counter::get)
    }
}

/// Metrics recorded by the engine and the HTTP server.
pub struct Metrics {
    /// Time from the first poll that saw a flagged issue until its runner accepted the run.
    pub trigger_to_dispatch: Histogram,
    /// Duration of a poll.
    pub poll_duration: Histogram,
    /// Reruns of failed jobs that were requested.
    pub ci_reruns: Counter,
    /// Reruns in which checks passed that had failed.
    pub ci_flakes: Counter,
    /// Start of the process.
    pub started_at: Timestamp,
    routes: Mutex<Vec<Arc<RouteMetrics>>>,
    waiting: Mutex<HashMap<IssueId, Timestamp>>,
    hosts: [HostGauges; HostKind::ALL.len()],
    destroyed: [Counter; ReaperRule::ALL.len()],
}

/// Gauges of one session host, set by the last reaper sweep.
#[derive(Default)]
struct HostGauges {
    machines: Gauge,
    /// In milliseconds since the epoch; 0 if there is no machine.
    oldest_created_at: Gauge,
}

/// Number and age of the machines of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostMachineStats {
    /// Number of machines at the last sweep.
    pub count: u64,
    /// Creation time of the oldest machine; `None` if there is no machine.
    pub oldest_created_at: Option<Timestamp>,
}

impl Metrics {
    /// Creates empty metrics of a process that started at `started_at`.
    pub fn new(started_at: Timestamp) -> Self {
        Self {
            trigger_to_dispatch: Histogram::new(MetricUnit::Time, WAIT_BOUNDS),
            poll_duration: Histogram::new(MetricUnit::Time, POLL_BOUNDS),
            ci_reruns: Counter::default(),
            ci_flakes: Counter::default(),
            started_at,
            routes: Mutex::default(),
            waiting: Mutex::default(),
            hosts: Default::default(),
            destroyed: Default::default(),
        }
    }

    /// Records the issues that a poll saw waiting for a run, or getting one. `others` returns
    /// whether an issue that the poll did not see is still waiting.
    pub fn observe_waiting<'i>(
        &self,
        issues: impl Iterator<Item = &'i IssueId>,
        others: impl Fn(&IssueId) -> bool,
        now: Timestamp,
    ) {
        let mut waiting = lock(&self.waiting);
        let seen: HashSet<&IssueId> = issues.collect();
        waiting.retain(|issue, _| seen.contains(issue) || others(issue));
        for issue in seen {
            if !waiting.contains_key(issue) {
                waiting.insert(issue.clone(), now);
            }
        }
    }

    /// Records that a runner accepted the run of an issue.
    pub fn observe_dispatch(&self, issue: &IssueId, now: Timestamp) {
        if let Some(since) = lock(&self.waiting).remove(issue) {
            self.trigger_to_dispatch.observe_time(now.since(since));
        }
    }

    /// Records the creation times of all machines that a sweep saw at a host.
    pub fn set_host_machines(&self, host: HostKind, created: impl Iterator<Item = Timestamp>) {
        let (mut count, mut oldest) = (0, None::<Timestamp>);
        for at in created {
            count += 1;
            oldest = Some(oldest.map_or(at, |oldest| oldest.min(at)));
        }
        let meter = &self.hosts[host as usize];
        meter.machines.set(count);
        let oldest = oldest.map_or(0, Timestamp::as_millis);
        meter.oldest_created_at.set(oldest);
    }

    /// Machines of a host at the last sweep.
    pub fn host_machines(&self, host: HostKind) -> HostMachineStats {
        let meter = &self.hosts[host as usize];
        let oldest = Some(meter.oldest_created_at.get()).filter(|at| *at > 0);
        HostMachineStats {
            count: meter.machines.get(),
            oldest_created_at: oldest.map(Timestamp::from_millis),
        }
    }

    /// Returns the request metrics of a route, creating them on the first call. A listener calls this once per
    /// route, not per request.
    pub fn route(&self, route: &'static str) -> Arc<RouteMetrics> {
        let mut routes = lock(&self.routes);
        let known = routes.iter().find(|known| known.route == route);
        known.cloned().unwrap_or_else(|| {
            let created = Arc::new(RouteMetrics::new(route));
            routes.push(Arc::clone(&created));
            created
        })
    }

    /// Returns the request metrics of all routes.
    pub fn routes(&self) -> Vec<Arc<RouteMetrics>> {
        lock(&self.routes).clone()
    }

    /// Counts a machine whose destruction the reaper enqueued.
    pub fn count_destroyed(&self, rule: ReaperRule) {
        self.destroyed[rule as usize].add(1);
    }

    /// Number of machines destroyed by a rule of the reaper.
    pub fn destroyed_by(&self, rule: ReaperRule) -> u64 {
        self.destroyed[rule as usize].get()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_000_000);

    #[test]
    fn waiting_time_counts_from_the_first_poll_that_saw_the_issue() {
        let metrics = Metrics::new(NOW);
        let (one, two) = (IssueId::from("1"), IssueId::from("2"));
        metrics.observe_waiting([&one, &two].into_iter(), |_| false, NOW);
        let later = NOW + Duration::from_secs(60);
        // The second issue disappears; its waiting time starts again when it is back.
        metrics.observe_waiting([&one].into_iter(), |_| false, later);
        metrics.observe_waiting([&one, &two].into_iter(), |_| false, later);
        for issue in [&one, &two, &two] {
            metrics.observe_dispatch(issue, later + Duration::from_secs(2));
        }
        let seen = metrics.trigger_to_dispatch.snapshot();
        assert_eq!((seen.count, seen.sum), (2, 64.0));
    }

    #[test]
    fn an_issue_keeps_waiting_while_its_system_does_not_respond() {
        let metrics = Metrics::new(NOW);
        let one = IssueId::from("1");
        metrics.observe_waiting([&one].into_iter(), |_| false, NOW);
        let later = NOW + Duration::from_secs(9);
        metrics.observe_waiting([].into_iter(), |_| true, later);
        metrics.observe_dispatch(&one, later);
        assert_eq!(metrics.trigger_to_dispatch.snapshot().sum, 9.0);
    }
}
