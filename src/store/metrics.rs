//! Counting and measuring without a lock: what is counted on every request and every commit must
//! cost next to nothing.
//!
//! Shown by `http/metrics`, which alone knows names and formats.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Something that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Something that is now so much.
#[derive(Debug, Default)]
pub struct Gauge(AtomicU64);

impl Gauge {
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What a histogram counts in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricUnit {
    /// Observed in microseconds, shown in seconds.
    Time,
    /// Plain numbers.
    Number,
}

/// How many observations fell below each bound, and what they add up to.
#[derive(Debug)]
pub struct Histogram {
    unit: MetricUnit,
    bounds: &'static [u64],
    /// One for each bound, and one for what is beyond the last.
    counts: Box<[AtomicU64]>,
    sum: AtomicU64,
}

/// A histogram as it was at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct HistogramSnapshot {
    /// Upper bound, and how many were at most that: growing.
    pub buckets: Vec<(f64, u64)>,
    pub sum: f64,
    pub count: u64,
}

impl Histogram {
    /// `bounds` must grow; microseconds for [`Unit::Time`].
    pub fn new(unit: MetricUnit, bounds: &'static [u64]) -> Self {
        Self {
            unit,
            bounds,
            counts: (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect(),
            sum: AtomicU64::new(0),
        }
    }

    pub fn observe(&self, value: u64) {
        let bucket = self.bounds.partition_point(|bound| *bound < value);
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(value, Ordering::Relaxed);
    }

    pub fn observe_time(&self, span: Duration) {
        self.observe(u64::try_from(span.as_micros()).unwrap_or(u64::MAX));
    }

    /// Each bucket is read once, so that the count is that of the buckets whatever is observed
    /// meanwhile.
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
        if let Some(beyond) = self.counts.last() {
            count += beyond.load(Ordering::Relaxed);
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
    fn an_observation_counts_in_the_first_bucket_that_holds_it() {
        let histogram = Histogram::new(MetricUnit::Number, &[1, 10, 100]);
        for value in [0, 1, 2, 10, 11, 1000] {
            histogram.observe(value);
        }
        let seen = histogram.snapshot();
        assert_eq!(seen.buckets, [(1.0, 2), (10.0, 4), (100.0, 5)]);
        assert_eq!((seen.count, seen.sum), (6, 1024.0));
    }

    #[test]
    fn times_are_shown_in_seconds() {
        let histogram = Histogram::new(MetricUnit::Time, &[1_000, 1_000_000]);
        histogram.observe_time(Duration::from_millis(500));
        let seen = histogram.snapshot();
        assert_eq!(seen.buckets, [(0.001, 0), (1.0, 1)]);
        assert_eq!(seen.sum, 0.5);
    }
}
