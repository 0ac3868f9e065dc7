//! Lock-free counters, gauges and histograms, cheap enough for every request and commit.
//!
//! Rightly ours: the histogram of `prometheus-client` takes a mutex for every observation.
//!
//! `server::metrics` exports them; only it knows metric names and formats.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Counter that only increases.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds to the counter.
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// Current value.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Value that can increase and decrease.
#[derive(Debug, Default)]
pub struct Gauge(AtomicU64);

impl Gauge {
    /// Sets the value.
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// Current value.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Unit of the values of a histogram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricUnit {
    /// Observed in microseconds, exported in seconds.
    Time,
    /// Plain numbers.
    Number,
}

/// Histogram: number of observations per bucket, and their sum.
#[derive(Debug)]
pub struct Histogram {
    unit: MetricUnit,
    bounds: &'static [u64],
    /// One count per bound, and one for values above the last bound.
    counts: Box<[AtomicU64]>,
    sum: AtomicU64,
}

/// State of a histogram at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct HistogramSnapshot {
    /// Upper bounds with the cumulative numbers of observations.
    pub buckets: Vec<(f64, u64)>,
    /// Sum of all observed values.
    pub sum: f64,
    /// Number of observations.
    pub count: u64,
}

impl Histogram {
    /// Creates a histogram. `bounds` must be ascending; in microseconds for [`MetricUnit::Time`].
    pub fn new(unit: MetricUnit, bounds: &'static [u64]) -> Self {
        Self {
            unit,
            bounds,
            counts: (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect(),
            sum: AtomicU64::new(0),
        }
    }

    /// Records a value.
    pub(crate) fn observe(&self, value: u64) {
        let bucket = self.bounds.partition_point(|bound| *bound < value);
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(value, Ordering::Relaxed);
    }

    /// Records a duration.
    pub fn observe_time(&self, span: Duration) {
        self.observe(u64::try_from(span.as_micros()).unwrap_or(u64::MAX));
    }

    /// Reads the current state. Each bucket is read once, so that the count equals the sum of the buckets
    /// despite concurrent observations.
    pub fn snapshot(&self) -> HistogramSnapshot {
        let scaled = |value: u64| match self.unit {
            MetricUnit::Time => value as f64 / 1e6,
            MetricUnit::Number => value as f64,
        };
        let mut count = 0;
        let mut buckets = Vec::with_capacity(self.bounds.len());
        for (bound, in_bucket) in self.bounds.iter().zip(&self.counts) {
            count += in_bucket.load(Ordering::Relaxed);
            buckets.push((scaled(*bound), count));
        }
        if let Some(overflow) = self.counts.last() {
            count += overflow.load(Ordering::Relaxed);
        }
        HistogramSnapshot {
            buckets,
            sum: scaled(self.sum.load(Ordering::Relaxed)),
            count,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_a_value_in_the_first_matching_bucket() {
        let histogram = Histogram::new(MetricUnit::Number, &[1, 10, 100]);
        for value in [0, 1, 2, 10, 11, 1000] {
            histogram.observe(value);
        }
        let snapshot = histogram.snapshot();
        assert_eq!(snapshot.buckets, [(1.0, 2), (10.0, 4), (100.0, 5)]);
        assert_eq!((snapshot.count, snapshot.sum), (6, 1024.0));
    }

    #[test]
    fn exports_times_in_seconds() {
        let histogram = Histogram::new(MetricUnit::Time, &[1_000, 1_000_000]);
        histogram.observe_time(Duration::from_millis(500));
        let snapshot = histogram.snapshot();
        assert_eq!(snapshot.buckets, [(0.001, 0), (1.0, 1)]);
        assert_eq!(snapshot.sum, 0.5);
    }
}
