//! What the clients saw: how long each answer took, counted from when the request was meant to be
//! sent, so that a service that answers late cannot make the load wait for it and look fast.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A kind of request.
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
    Steps,
    Metrics,
}

impl RequestKind {
    pub const ALL: [Self; 13] = [
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
            RequestKind::Steps => "panel: steps",
            RequestKind::Metrics => "metrics",
        }
    }

    /// Whether a run or a vendor waits for the answer.
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

/// Each power of two has this many buckets, so that a value is known to 3 %.
const SUB_BUCKETS: u64 = 32;

/// Times in microseconds, in buckets that grow with what they count.
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

    /// What that share of all stayed below or reached, to 3 %; zero of nothing.
    pub fn quantile(&self, share: f64) -> Duration {
        let wanted = (self.count as f64 * share).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return Duration::from_micros(upper(bucket).min(self.max));
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

/// The greatest value of a bucket.
fn upper(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    let shift = (bucket / SUB_BUCKETS).saturating_sub(1);
    ((bucket - shift * SUB_BUCKETS + 1) << shift) - 1
}

/// What all clients write down. Shared by them.
pub struct LoadRecorder {
    window: Duration,
    pages: Mutex<Pages>,
}

#[derive(Default)]
struct Pages {
    /// Requests meant for a time before are not measured.
    measured_from: Option<Instant>,
    kinds: BTreeMap<&'static str, LatencyHistogram>,
    windows: Vec<LatencyHistogram>,
    errors: BTreeMap<String, u64>,
    notes: BTreeMap<&'static str, u64>,
}

impl LoadRecorder {
    /// Callbacks are also counted in windows of that length.
    pub fn new(window: Duration) -> Self {
        Self {
            window,
            pages: Mutex::default(),
        }
    }

    /// From now on answers are measured.
    pub fn start_measuring(&self) -> Instant {
        *self.lock().measured_from.insert(Instant::now())
    }

    /// A request that was meant to be sent at that time has been answered.
    pub fn record_response(&self, kind: RequestKind, meant_for: Instant) {
        let took = meant_for.elapsed();
        let mut pages = self.lock();
        let Some(from) = pages.measured_from.filter(|from| meant_for >= *from) else {
            return;
        };
        pages.kinds.entry(kind.name()).or_default().add(took);
        if !kind.is_callback() {
            return;
        }
        let at = (meant_for - from).as_millis() / self.window.as_millis();
        let at = usize::try_from(at).unwrap_or(usize::MAX);
        if pages.windows.len() <= at {
            pages.windows.resize(at + 1, LatencyHistogram::default());
        }
        pages.windows[at].add(took);
    }

    /// Something went wrong, at any time.
    pub fn record_error(&self, what: impl Into<String>) {
        let mut pages = self.lock();
        let room = pages.errors.len() < 50;
        let what = if room { what.into() } else { "more".into() };
        *pages.errors.entry(what).or_default() += 1;
    }

    /// Something that is counted without being wrong.
    pub fn count(&self, what: &'static str, count: u64) {
        *self.lock().notes.entry(what).or_default() += count;
    }

    pub fn counter(&self, what: &str) -> u64 {
        self.lock().notes.get(what).copied().unwrap_or(0)
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

    /// All callbacks by window, from the first that was measured on.
    pub fn windows(&self) -> Vec<LatencyHistogram> {
        self.lock().windows.clone()
    }

    pub fn window_length(&self) -> Duration {
        self.window
    }

    fn lock(&self) -> MutexGuard<'_, Pages> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[test]
fn a_histogram_knows_what_it_was_told_to_three_percent() {
    for value in (0..100).chain([1_000, 12_345, 50_000, 1_234_567, u64::MAX / 2]) {
        let upper = upper(bucket(value));
        assert!(upper >= value, "{value} in a bucket up to {upper}");
        assert!(upper - value <= value / 31, "{value} told as {upper}");
    }
    let mut histogram = LatencyHistogram::default();
    (1..=1000).for_each(|millis| histogram.add(Duration::from_millis(millis)));
    let near = |told: Duration, millis: u64| {
        let (told, meant) = (told.as_secs_f64(), millis as f64 / 1e3);
        told >= meant && told <= meant * 1.04
    };
    assert!(near(histogram.quantile(0.5), 500));
    assert!(near(histogram.quantile(0.99), 990));
    assert_eq!(histogram.quantile(1.0), Duration::from_secs(1));
    assert_eq!(histogram.count(), 1000);
}
