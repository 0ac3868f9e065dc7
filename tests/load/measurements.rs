//! Latencies measured by the clients. Each is counted from the time at which the request was scheduled,
//! so that a slow service cannot slow the load down and look fast.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Kind of request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestKind {
    Progress,
    Step,
    Heartbeat,
    Result,
    RepoHostWebhook,
    TicketingWebhook,
    Log,
    Issues,
    Blockers,
    Pulls,
    Outbox,
    Scoreboard,
    Steps,
    Metrics,
}

impl RequestKind {
    pub const ALL: [Self; 14] = [
        RequestKind::Progress,
        RequestKind::Step,
        RequestKind::Heartbeat,
        RequestKind::Result,
        RequestKind::RepoHostWebhook,
        RequestKind::TicketingWebhook,
        RequestKind::Log,
        RequestKind::Issues,
        RequestKind::Blockers,
        RequestKind::Pulls,
        RequestKind::Outbox,
        RequestKind::Scoreboard,
        RequestKind::Steps,
        RequestKind::Metrics,
    ];

    pub fn name(self) -> &'static str {
        match self {
            RequestKind::Progress => "run: progress",
            RequestKind::Step => "run: step",
            RequestKind::Heartbeat => "run: heartbeat",
            RequestKind::Result => "run: result",
            RequestKind::RepoHostWebhook => "host webhook",
            RequestKind::TicketingWebhook => "ticketing webhook",
            RequestKind::Log => "panel: log",
            RequestKind::Issues => "panel: issues",
            RequestKind::Blockers => "panel: blockers",
            RequestKind::Pulls => "panel: pulls",
            RequestKind::Outbox => "panel: outbox",
            RequestKind::Scoreboard => "panel: scoreboard",
            RequestKind::Steps => "panel: steps",
            RequestKind::Metrics => "metrics",
        }
    }

    /// Whether a run or a vendor waits for the response.
    pub fn is_callback(self) -> bool {
        matches!(
            self,
            RequestKind::Progress
                | RequestKind::Step
                | RequestKind::Heartbeat
                | RequestKind::Result
                | RequestKind::RepoHostWebhook
                | RequestKind::TicketingWebhook
        )
    }
}

/// Buckets per power of two; values are accurate to 3 %.
const SUB_BUCKETS: u64 = 32;

/// Histogram of durations in microseconds, with exponential buckets.
#[derive(Debug, Clone, Default)]
pub struct LatencyHistogram {
    counts: Vec<u64>,
    count: u64,
    max: u64,
}

impl LatencyHistogram {
    pub fn add(&mut self, span: Duration) {
        let micros = u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
        let bucket = bucket(micros);
        if self.counts.len() <= bucket {
            self.counts.resize(bucket + 1, 0);
        }
        self.counts[bucket] += 1;
        self.count += 1;
        self.max = self.max.max(micros);
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    pub fn max(&self) -> Duration {
        Duration::from_micros(self.max)
    }

    /// Quantile accurate to 3 %, or zero without values.
    pub fn quantile(&self, share: f64) -> Duration {
        let rank = (self.count as f64 * share).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return Duration::from_micros(upper_bound(bucket).min(self.max));
            }
        }
        Duration::ZERO
    }
}

fn bucket(value: u64) -> usize {
    let exponent = u64::from(63 - (value | 1).leading_zeros());
    let shift = exponent.saturating_sub(5);
    (shift * SUB_BUCKETS + (value >> shift)) as usize
}

/// Greatest value of a bucket.
fn upper_bound(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    let shift = (bucket / SUB_BUCKETS).saturating_sub(1);
    ((bucket - shift * SUB_BUCKETS + 1) << shift) - 1
}

/// Measurements of all clients, shared by them.
pub struct LoadRecorder {
    window: Duration,
    recorded: Mutex<Recorded>,
}

#[derive(Default)]
struct Recorded {
    /// Requests scheduled before this time are not measured.
    measured_from: Option<Instant>,
    kinds: BTreeMap<&'static str, LatencyHistogram>,
    windows: Vec<LatencyHistogram>,
    errors: BTreeMap<String, u64>,
    notes: BTreeMap<&'static str, u64>,
}

impl LoadRecorder {
    /// Creates a recorder that also groups callbacks into windows of this length.
    pub fn new(window: Duration) -> Self {
        Self {
            window,
            recorded: Mutex::default(),
        }
    }

    /// Starts measuring.
    pub fn start_measuring(&self) -> Instant {
        *self.lock().measured_from.insert(Instant::now())
    }

    /// Records the response to a request that was scheduled at this time.
    pub fn record_response(&self, kind: RequestKind, scheduled_at: Instant) {
        let latency = scheduled_at.elapsed();
        let mut recorded = self.lock();
        let Some(from) = recorded.measured_from.filter(|from| scheduled_at >= *from) else {
            return;
        };
        recorded.kinds.entry(kind.name()).or_default().add(latency);
        if !kind.is_callback() {
            return;
        }
        let at = (scheduled_at - from).as_millis() / self.window.as_millis();
        let at = usize::try_from(at).unwrap_or(usize::MAX);
        if recorded.windows.len() <= at {
            recorded.windows.resize(at + 1, LatencyHistogram::default());
        }
        recorded.windows[at].add(latency);
    }

    /// Records an error.
    pub fn record_error(&self, name: impl Into<String>) {
        let mut recorded = self.lock();
        let has_room = recorded.errors.len() < 50;
        let name = if has_room { name.into() } else { "more".into() };
        *recorded.errors.entry(name).or_default() += 1;
    }

    /// Adds to a named counter.
    pub fn count(&self, name: &'static str, count: u64) {
        *self.lock().notes.entry(name).or_default() += count;
    }

    pub fn counter(&self, name: &str) -> u64 {
        self.lock().notes.get(name).copied().unwrap_or(0)
    }

    pub fn counters(&self) -> BTreeMap<&'static str, u64> {
        self.lock().notes.clone()
    }

    pub fn errors(&self) -> BTreeMap<String, u64> {
        self.lock().errors.clone()
    }

    pub fn histogram(&self, kind: RequestKind) -> LatencyHistogram {
        let kinds = &self.lock().kinds;
        kinds.get(kind.name()).cloned().unwrap_or_default()
    }

    /// Latencies of all callbacks by window, since measuring began.
    pub fn windows(&self) -> Vec<LatencyHistogram> {
        self.lock().windows.clone()
    }

    pub fn window_length(&self) -> Duration {
        self.window
    }

    fn lock(&self) -> MutexGuard<'_, Recorded> {
        self.recorded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[test]
fn histogram_is_accurate_to_three_percent() {
    for value in (0..100).chain([1_000, 12_345, 50_000, 1_234_567, u64::MAX / 2]) {
        let upper_bound = upper_bound(bucket(value));
        assert!(
            upper_bound >= value,
            "{value} in a bucket up to {upper_bound}"
        );
        assert!(
            upper_bound - value <= value / 31,
            "{value} reported as {upper_bound}"
        );
    }
    let mut histogram = LatencyHistogram::default();
    (1..=1000).for_each(|millis| histogram.add(Duration::from_millis(millis)));
    let near = |actual: Duration, millis: u64| {
        let (actual, expected) = (actual.as_secs_f64(), millis as f64 / 1e3);
        actual >= expected && actual <= expected * 1.04
    };
    assert!(near(histogram.quantile(0.5), 500));
    assert!(near(histogram.quantile(0.99), 990));
    assert_eq!(histogram.quantile(1.0), Duration::from_secs(1));
    assert_eq!(histogram.count(), 1000);
}
