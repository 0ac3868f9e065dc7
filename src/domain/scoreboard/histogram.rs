//! Histogram of durations.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Milliseconds of the first bucket: one minute.
const FIRST_MILLIS: u128 = 60_000;

/// Number of buckets per doubling.
const STEPS: usize = 8;

/// Lower bounds of the buckets within a doubling, in millionths: powers of the eighth root of two. Integers,
/// so that every build puts a duration into the same bucket.
const BOUNDS: [u128; STEPS] = [
    1_000_000, 1_090_508, 1_189_207, 1_296_840, 1_414_214, 1_542_211, 1_681_793, 1_834_008,
];

/// Number of doublings: up to 127 years.
const DOUBLINGS: usize = 26;

/// Mergeable histogram of durations. Bucket 0 holds all below one minute. Each further bucket is 9 percent
/// wider than the one before, so a quantile is at most 4.5 percent off, or half a minute.
///
/// Stored: fields may be added with a default, never renamed without a migration.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DurationHistogram(BTreeMap<u16, u64>);

impl DurationHistogram {
    /// Creates the histogram of one duration.
    pub fn of(duration: Duration) -> Self {
        Self(BTreeMap::from([(bucket(duration), 1)]))
    }

    /// Returns whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds another histogram.
    pub fn add(&mut self, other: &Self) {
        for (bucket, count) in &other.0 {
            *self.0.entry(*bucket).or_default() += count;
        }
    }

    /// Removes another histogram that was added before.
    pub fn subtract(&mut self, other: &Self) {
        for (bucket, count) in &other.0 {
            let left = self.0.entry(*bucket).or_default();
            *left = left.saturating_sub(*count);
        }
        self.0.retain(|_, count| *count > 0);
    }

    /// Returns the smallest duration that at least `percent` of all durations do not exceed, as the middle of
    /// its bucket. `None` if the histogram is empty.
    pub fn percentile(&self, percent: u64) -> Option<Duration> {
        let count: u64 = self.0.values().sum();
        let rank = (u128::from(count) * u128::from(percent))
            .div_ceil(100)
            .max(1);
        let mut below = 0;
        for (bucket, count) in &self.0 {
            below += u128::from(*count);
            if below >= rank {
                return Some(middle(*bucket));
            }
        }
        None
    }
}

fn bucket(duration: Duration) -> u16 {
    let millis = duration.as_millis();
    let is_above = |index: &usize| {
        let (doubling, step) = (index / STEPS, index % STEPS);
        millis * BOUNDS[0] >= (FIRST_MILLIS << doubling) * BOUNDS[step]
    };
    let buckets: Vec<usize> = (0..DOUBLINGS * STEPS).collect();
    u16::try_from(buckets.partition_point(is_above)).unwrap_or(u16::MAX)
}

/// Geometric middle of a bucket.
fn middle(bucket: u16) -> Duration {
    if bucket == 0 {
        return Duration::from_secs(30);
    }
    let doublings = (f64::from(bucket) - 0.5) / STEPS as f64;
    Duration::from_secs_f64(60.0 * doublings.exp2())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn histogram(of: &[u64]) -> DurationHistogram {
        let mut all = DurationHistogram::default();
        for seconds in of {
            all.add(&DurationHistogram::of(Duration::from_secs(*seconds)));
        }
        all
    }

    #[test]
    fn a_power_of_two_begins_a_bucket() {
        for doubling in 0..DOUBLINGS {
            let seconds = 60_u64 << doubling;
            let at = |seconds| bucket(Duration::from_secs(seconds));
            assert_eq!(usize::from(at(seconds)), doubling * STEPS + 1);
            assert_eq!(usize::from(at(seconds - 1)), doubling * STEPS);
        }
        assert_eq!(usize::from(bucket(Duration::MAX)), DOUBLINGS * STEPS);
        assert_eq!(DurationHistogram::default().percentile(50), None);
    }

    proptest! {
        #[test]
        fn percentiles_are_close_to_the_exact_ones(
            seconds in prop::collection::vec(0_u64..50_000_000, 1..200),
            percent in prop::sample::select(vec![1_u64, 50, 95, 100]),
        ) {
            let found = histogram(&seconds).percentile(percent).unwrap().as_secs_f64();
            let mut sorted = seconds;
            sorted.sort_unstable();
            let rank = (sorted.len() * percent as usize).div_ceil(100).max(1);
            let exact = sorted[rank - 1] as f64;
            prop_assert!((found - exact).abs() <= (exact * 0.045).max(30.0), "{found} {exact}");
        }

        #[test]
        fn subtracting_undoes_adding(
            left in prop::collection::vec(0_u64..50_000_000, 0..20),
            right in prop::collection::vec(0_u64..50_000_000, 0..20),
        ) {
            let (before, other) = (histogram(&left), histogram(&right));
            let mut both = before.clone();
            both.add(&other);
            let all: Vec<u64> = left.into_iter().chain(right).collect();
            prop_assert_eq!(&both, &histogram(&all));
            both.subtract(&other);
            prop_assert_eq!(both, before);
        }
    }
}
