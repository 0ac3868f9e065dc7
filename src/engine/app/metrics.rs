//! What the engine counts as it goes. Everything else that is shown is looked up when it is asked for.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use domain::ids::IssueId;
use domain::machine::HostKind;
use domain::reaper::ReaperRule;
use domain::time::Timestamp;
use store::metrics::{Counter, Gauge, Histogram, MetricUnit};

const SECOND: u64 = 1_000_000;

/// From the poll's own pace to a ticket that waits for days.
const WAITS: &[u64] = &[
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

const POLLS: &[u64] = &[
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

const REQUESTS: &[u64] = &[
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

/// How many routes there may be.
pub const MAX_ROUTES: usize = 96;

/// The statuses that are counted by themselves, the usual ones first; 0 stands for all others.
pub const STATUSES: [u16; 20] = [
    200, 202, 400, 401, 403, 404, 409, 405, 304, 408, 413, 423, 429, 500, 501, 502, 503, 204, 422,
    0,
];

/// The requests of one route.
pub struct RouteMetrics {
    statuses: [Counter; STATUSES.len()],
    /// Until the head of the answer.
    pub latency: Histogram,
}

impl RouteMetrics {
    fn new() -> Self {
        Self {
            statuses: Default::default(),
            latency: Histogram::new(MetricUnit::Time, REQUESTS),
        }
    }

    /// How many were answered with each of [`STATUSES`].
    pub fn by_status(&self) -> impl Iterator<Item = u64> {
        self.statuses.iter().map(Counter::get)
    }
}

pub struct Metrics {
    /// From when a flagged issue was first seen to when its run was taken by its runner.
    pub trigger_to_dispatch: Histogram,
    pub poll_duration: Histogram,
    /// When the process began.
    pub started_at: Timestamp,
    requests: Box<[RouteMetrics]>,
    waiting: Mutex<HashMap<IssueId, Timestamp>>,
    hosts: [HostMeter; 2],
    destroyed: [Counter; ReaperRule::ALL.len()],
}

/// What the last sweep saw at a host.
#[derive(Default)]
struct HostMeter {
    machines: Gauge,
    /// In milliseconds since the epoch; 0 without a machine.
    oldest_created_at: Gauge,
}

/// The machines of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostMachineStats {
    pub count: u64,
    /// None without any.
    pub oldest_created_at: Option<Timestamp>,
}

impl Metrics {
    pub fn new(started_at: Timestamp) -> Self {
        Self {
            trigger_to_dispatch: Histogram::new(MetricUnit::Time, WAITS),
            poll_duration: Histogram::new(MetricUnit::Time, POLLS),
            started_at,
            requests: (0..MAX_ROUTES).map(|_| RouteMetrics::new()).collect(),
            waiting: Mutex::default(),
            hosts: Default::default(),
            destroyed: Default::default(),
        }
    }

    /// The poll has seen these issues wait for a run, or get one. Of those that it did not see,
    /// `others` says which may still be there.
    pub fn observe_waiting<'i>(
        &self,
        issues: impl Iterator<Item = &'i IssueId>,
        others: impl Fn(&IssueId) -> bool,
        now: Timestamp,
    ) {
        let mut waiting = self.lock();
        let seen: HashSet<&IssueId> = issues.collect();
        waiting.retain(|issue, _| seen.contains(issue) || others(issue));
        for issue in seen {
            if !waiting.contains_key(issue) {
                waiting.insert(issue.clone(), now);
            }
        }
    }

    /// A run of an issue was taken by its runner.
    pub fn observe_dispatch(&self, issue: &IssueId, now: Timestamp) {
        if let Some(since) = self.lock().remove(issue) {
            self.trigger_to_dispatch.observe_time(now.since(since));
        }
    }

    /// A sweep has seen these machines at a host, by when they were made.
    pub fn set_host_machines(&self, host: HostKind, made: impl Iterator<Item = Timestamp>) {
        let (mut count, mut oldest) = (0, None::<Timestamp>);
        for at in made {
            count += 1;
            oldest = Some(oldest.map_or(at, |oldest| oldest.min(at)));
        }
        let meter = &self.hosts[host as usize];
        meter.machines.set(count);
        let oldest = oldest.map_or(0, Timestamp::as_millis);
        meter.oldest_created_at.set(oldest);
    }

    pub fn host_machines(&self, host: HostKind) -> HostMachineStats {
        let meter = &self.hosts[host as usize];
        let oldest = Some(meter.oldest_created_at.get()).filter(|at| *at > 0);
        HostMachineStats {
            count: meter.machines.get(),
            oldest_created_at: oldest.map(Timestamp::from_millis),
        }
    }

    /// A request of a route was answered. The routes are numbered by who serves them.
    pub fn observe_request(&self, route: usize, status: u16, took: Duration) {
        let Some(meter) = self.requests.get(route) else {
            return;
        };
        let known = STATUSES.iter().position(|one| *one == status);
        meter.statuses[known.unwrap_or(STATUSES.len() - 1)].add(1);
        meter.latency.observe_time(took);
    }

    /// The requests of each route, by number.
    pub fn routes(&self) -> &[RouteMetrics] {
        &self.requests
    }

    /// The reaper owes a machine its end.
    pub fn count_destroyed(&self, rule: ReaperRule) {
        self.destroyed[rule as usize].add(1);
    }

    pub fn destroyed_by(&self, rule: ReaperRule) -> u64 {
        self.destroyed[rule as usize].get()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<IssueId, Timestamp>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_000_000);

    #[test]
    fn an_issue_waits_from_when_it_was_first_seen() {
        let metrics = Metrics::new(NOW);
        let (one, two) = (IssueId::from("1"), IssueId::from("2"));
        metrics.observe_waiting([&one, &two].into_iter(), |_| false, NOW);
        let later = NOW + Duration::from_secs(60);
        // The second is gone, and begins anew when it is back.
        metrics.observe_waiting([&one].into_iter(), |_| false, later);
        metrics.observe_waiting([&one, &two].into_iter(), |_| false, later);
        for issue in [&one, &two, &two] {
            metrics.observe_dispatch(issue, later + Duration::from_secs(2));
        }
        let seen = metrics.trigger_to_dispatch.snapshot();
        assert_eq!((seen.count, seen.sum), (2, 64.0));
    }

    #[test]
    fn an_issue_of_a_silent_system_goes_on_waiting() {
        let metrics = Metrics::new(NOW);
        let one = IssueId::from("1");
        metrics.observe_waiting([&one].into_iter(), |_| false, NOW);
        let later = NOW + Duration::from_secs(9);
        metrics.observe_waiting([].into_iter(), |_| true, later);
        metrics.observe_dispatch(&one, later);
        assert_eq!(metrics.trigger_to_dispatch.snapshot().sum, 9.0);
    }
}
