//! Numbers over time: counters of runs per hour and day, and the scoreboard.
//!
//! Every counter is a sum of contributions. A contribution is a pure function of one stored row, a job or the
//! record of a pull request. When a row changes, the contribution of the old row is subtracted and that of
//! the new row is added. Counters therefore do not depend on the order of events, and equal a recount of the
//! rows. A change of a contribution needs a migration that rebuilds the counters.
//!
//! See docs/observe.md#numbers-over-time for the definition of every number.

mod contribution;
mod counts;
mod histogram;

use std::fmt;

use jiff::civil::Date;
use serde::{Deserialize, Serialize};

use super::time::Timestamp;

pub use contribution::{
    RunAttributes, RunContribution, ScoreContribution, pull_contribution, run_contributions,
    score_contribution,
};
pub use counts::{RunCounts, ScoreCounts, ScoreTotals};
pub use histogram::DurationHistogram;

/// Milliseconds per hour.
const HOUR_MILLIS: u64 = 60 * 60 * 1000;
/// Milliseconds per day.
const DAY_MILLIS: u64 = 24 * HOUR_MILLIS;

/// Days after which a pull request that is still open counts against the share of merged ones.
pub const SETTLED_AFTER_DAYS: u64 = 7;

/// Maximum number of rows per dimension and month, beside the row of all further keys. Labels, and the names
/// of agents and models, are chosen by others.
pub const MAX_KEYS: usize = 500;

/// Key of the row that counts all keys beyond [`MAX_KEYS`].
pub const OTHER_KEY: &str = "other";

/// Hour in UTC, in hours since the epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hour(pub u64);

impl Hour {
    /// Returns the hour of a time.
    pub fn of(at: Timestamp) -> Self {
        Self(at.as_millis() / HOUR_MILLIS)
    }

    /// Returns its first moment.
    pub fn start(self) -> Timestamp {
        Timestamp::from_millis(self.0.saturating_mul(HOUR_MILLIS))
    }
}

/// Day in UTC, in days since the epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Day(pub u64);

impl Day {
    /// Returns the day of a time.
    pub fn of(at: Timestamp) -> Self {
        Self(at.as_millis() / DAY_MILLIS)
    }

    /// Returns its first moment.
    pub fn start(self) -> Timestamp {
        Timestamp::from_millis(self.0.saturating_mul(DAY_MILLIS))
    }

    /// Parses `YYYY-MM-DD`, in the years 1970 to 9999.
    pub fn parse(text: &str) -> Option<Self> {
        let is_date = text.len() == 10 && text.is_ascii();
        let date: Date = is_date.then(|| text.parse().ok()).flatten()?;
        Timestamp::parse(&format!("{date}T00:00:00Z")).map(Self::of)
    }

    /// Returns the first day of its month.
    pub fn month_start(self) -> Self {
        let text = self.to_string();
        let first = text.get(..8).map(|month| format!("{month}01"));
        first.and_then(|first| Self::parse(&first)).unwrap_or(self)
    }

    /// Returns the first day of the next month.
    pub fn next_month(self) -> Self {
        // The longest month has 31 days, and two months together have more than 31 + 27.
        Self(self.month_start().0 + 31).month_start()
    }
}

impl fmt::Display for Day {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.start().to_string();
        f.write_str(text.split('T').next().unwrap_or_default())
    }
}

/// Dimension of the scoreboard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Dimension {
    /// Everything in one row with an empty key.
    Total,
    /// Project.
    Team,
    /// Agent program.
    Agent,
    /// Model.
    Model,
    /// Kind of the run.
    Kind,
    /// Label of the ticket. A ticket counts for each of its labels.
    Label,
}

impl Dimension {
    /// Dimensions of `by`.
    pub const ROWS: [Self; 5] = [
        Dimension::Team,
        Dimension::Agent,
        Dimension::Model,
        Dimension::Kind,
        Dimension::Label,
    ];

    /// Returns the name in the API and in stored keys.
    pub fn as_str(self) -> &'static str {
        match self {
            Dimension::Total => "total",
            Dimension::Team => "team",
            Dimension::Agent => "agent",
            Dimension::Model => "model",
            Dimension::Kind => "kind",
            Dimension::Label => "label",
        }
    }

    /// Parses a value of `by`.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ROWS.into_iter().find(|one| one.as_str() == text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_and_months_are_in_utc() {
        let at = |text| Timestamp::parse(text).unwrap();
        let day = Day::of(at("2028-02-29T23:59:59.999Z"));
        assert_eq!(day.to_string(), "2028-02-29");
        assert_eq!(Day::parse("2028-02-29"), Some(day));
        assert_eq!(day.month_start().to_string(), "2028-02-01");
        assert_eq!(day.next_month().to_string(), "2028-03-01");
        for (date, next) in [
            ("2026-12-31", "2027-01-01"),
            ("2027-01-31", "2027-02-01"),
            ("2027-02-01", "2027-03-01"),
        ] {
            assert_eq!(Day::parse(date).unwrap().next_month().to_string(), next);
        }
        assert_eq!(
            Hour::of(at("2026-11-01T05:59:59.999Z")).start(),
            at("2026-11-01T05:00:00Z")
        );
        for wrong in [
            "",
            "2026-02-30",
            "2026-2-03",
            "20260203",
            "1969-12-31",
            "2026-11-01T",
            "２０26-11-1",
        ] {
            assert_eq!(Day::parse(wrong), None, "{wrong}");
        }
    }
}
