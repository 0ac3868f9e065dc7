//! Usage and cost of runs per month, and monthly budgets.
//!
//! Money is counted in whole micro-dollars. Each report is rounded once, to the nearest
//! micro-dollar. Only integers are added, so that a sum does not depend on its order. Months are in
//! UTC. A run counts in the month in which it ends.

use std::fmt;

use jiff::ToSpan;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};

use super::report::Usage;
use super::time::Timestamp;

/// Micro-dollars per dollar.
const MICROS: f64 = 1_000_000.0;

/// Maximum amount of one report or budget, in dollars. Larger amounts are rejected as invalid.
const MAX_USD: f64 = 1_000_000_000.0;

/// Maximum number of turns or tokens in one report.
const MAX_COUNT: u64 = 1_000_000_000_000;

/// Share of the budget at which operators are warned, in percent.
const BUDGET_WARNING_PERCENT: u64 = 80;

/// Amount of money, in millionths of a US dollar.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct MicroUsd(u64);

impl MicroUsd {
    /// Creates an amount from micro-dollars.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// Returns the nearest amount to a number of dollars. `None` if the number is negative, not a
    /// number, or above the maximum.
    pub fn from_usd(usd: f64) -> Option<Self> {
        // Also false for NaN.
        (0.0..=MAX_USD)
            .contains(&usd)
            .then(|| Self((usd * MICROS).round() as u64))
    }

    /// Returns the amount in micro-dollars.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// Returns the amount in dollars.
    pub fn to_usd(self) -> f64 {
        self.0 as f64 / MICROS
    }
}

impl fmt::Display for MicroUsd {
    /// Formats the exact amount with at least two decimals.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let decimals = format!("{:06}", self.0 % 1_000_000);
        let end = decimals.trim_end_matches('0').len().max(2);
        write!(f, "${}.{}", self.0 / 1_000_000, &decimals[..end])
    }
}

/// Calendar month in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Month {
    year: i16,
    month: i8,
}

impl Month {
    /// Returns the month of a time.
    pub fn of(at: Timestamp) -> Self {
        let millis = i64::try_from(at.as_millis()).unwrap_or(i64::MAX);
        let moment = jiff::Timestamp::from_millisecond(millis).unwrap_or(jiff::Timestamp::MAX);
        let date = moment.to_zoned(TimeZone::UTC).date();
        Self {
            year: date.year(),
            month: date.month(),
        }
    }

    /// Parses `YYYY-MM`.
    pub fn parse(text: &str) -> Option<Self> {
        let (year, month) = text.split_once('-')?;
        let number = |digits: &str, length: usize| {
            let is_valid = digits.len() == length && digits.bytes().all(|c| c.is_ascii_digit());
            is_valid.then(|| digits.parse::<i16>().ok()).flatten()
        };
        let (year, month) = (number(year, 4)?, number(month, 2)?);
        let month = i8::try_from(month).ok()?;
        (year >= 1970 && (1..=12).contains(&month)).then_some(Self { year, month })
    }

    /// Returns the start of the next month.
    pub fn end(self) -> Timestamp {
        let first = jiff::civil::date(self.year, self.month, 1);
        let next = first.checked_add(1.month());
        let moment = next.and_then(|next| next.to_zoned(TimeZone::UTC));
        let millis = moment.map_or(i64::MAX, |moment| moment.timestamp().as_millisecond());
        Timestamp::from_millis(u64::try_from(millis).unwrap_or_default())
    }
}

impl fmt::Display for Month {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-{:02}", self.year, self.month)
    }
}

/// Total usage of a number of runs.
///
/// Stored: fields may be added with a default, never renamed without a migration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct UsageTotals {
    /// Number of runs.
    pub runs: u64,
    /// Model turns.
    pub turns: u64,
    /// Input tokens.
    pub input_tokens: u64,
    /// Output tokens.
    pub output_tokens: u64,
    /// Cost of the runs that reported one.
    pub cost: MicroUsd,
    /// Number of runs that reported no cost. `None` for rows stored before the field existed.
    pub unpriced: Option<i64>,
}

impl UsageTotals {
    /// Returns the usage reported by one run, without counting the run. Reports are untrusted:
    /// invalid amounts count as zero.
    pub fn from_usage(usage: Option<&Usage>) -> Self {
        let usage = usage.copied().unwrap_or_default();
        let limited = |count: u64| count.min(MAX_COUNT);
        Self {
            runs: 0,
            turns: limited(usage.turns),
            input_tokens: limited(usage.input_tokens),
            output_tokens: limited(usage.output_tokens),
            cost: cost_of(&usage).unwrap_or_default(),
            unpriced: None,
        }
    }

    /// Returns the usage of one ended run.
    pub fn from_ended_run(usage: Option<&Usage>) -> Self {
        let is_priced = usage.is_some_and(|usage| cost_of(usage).is_some());
        Self {
            runs: 1,
            unpriced: Some(i64::from(!is_priced)),
            ..Self::from_usage(usage)
        }
    }

    /// Returns the difference between the usage `late` and the usage `known` that was already
    /// counted for a run.
    pub fn from_late_report(known: Option<&Usage>, late: Option<&Usage>) -> Self {
        let [was_priced, is_priced] = [known, late].map(|usage| usage.and_then(cost_of).is_some());
        Self {
            unpriced: (is_priced && !was_priced).then_some(-1),
            ..Self::from_usage(late).saturating_sub(Self::from_usage(known))
        }
    }

    /// Returns the number of runs that reported no cost. For older rows: all runs if the total cost
    /// is zero, because no run is free.
    pub fn unpriced_runs(&self) -> u64 {
        match self.unpriced {
            Some(count) => u64::try_from(count).unwrap_or_default().min(self.runs),
            None if self.cost == MicroUsd::default() => self.runs,
            None => 0,
        }
    }

    /// Returns the cost of the runs that reported one. `None` if there are runs and none reported a
    /// cost.
    pub fn known_cost(&self) -> Option<MicroUsd> {
        let is_known = self.runs == 0 || self.unpriced_runs() < self.runs;
        is_known.then_some(self.cost)
    }

    /// Adds two totals.
    pub fn saturating_add(self, other: Self) -> Self {
        let unpriced = match (self.unpriced, other.unpriced) {
            (None, None) => None,
            (Some(left), Some(right)) => Some(left.saturating_add(right)),
            // For an older row, the number follows from its cost.
            (None, Some(right)) => Some(self.unpriced_count().saturating_add(right)),
            (Some(left), None) => Some(left.saturating_add(other.unpriced_count())),
        };
        Self {
            unpriced,
            ..self.with(other, u64::saturating_add)
        }
    }

    fn unpriced_count(&self) -> i64 {
        i64::try_from(self.unpriced_runs()).unwrap_or(i64::MAX)
    }

    /// Returns the usage in `self` beyond `earlier`.
    pub fn saturating_sub(self, earlier: Self) -> Self {
        self.with(earlier, u64::saturating_sub)
    }

    fn with(self, other: Self, combine: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            runs: combine(self.runs, other.runs),
            turns: combine(self.turns, other.turns),
            input_tokens: combine(self.input_tokens, other.input_tokens),
            output_tokens: combine(self.output_tokens, other.output_tokens),
            cost: MicroUsd(combine(self.cost.0, other.cost.0)),
            unpriced: None,
        }
    }
}

fn cost_of(usage: &Usage) -> Option<MicroUsd> {
    usage.cost_usd.and_then(MicroUsd::from_usd)
}

/// Usage of the monthly budget of a mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BudgetUsage {
    /// Month.
    pub month: Month,
    /// Cost of the runs so far.
    pub spent: MicroUsd,
    /// Budget.
    pub budget: MicroUsd,
}

/// Level of budget usage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum BudgetLevel {
    /// Below the warning level.
    Within,
    /// At least 80 percent used.
    Warning,
    /// Used up. No new runs start.
    Exhausted,
}

impl BudgetUsage {
    /// Returns the level.
    pub fn level(&self) -> BudgetLevel {
        let (spent, budget) = (u128::from(self.spent.0), u128::from(self.budget.0));
        if spent >= budget {
            BudgetLevel::Exhausted
        } else if spent * 100 >= budget * u128::from(BUDGET_WARNING_PERCENT) {
            BudgetLevel::Warning
        } else {
            BudgetLevel::Within
        }
    }

    /// Returns the share of the budget used, in percent with one decimal, rounded down. 100
    /// therefore means that the budget is used up.
    pub fn percent(&self) -> f64 {
        let permille = u128::from(self.spent.0) * 1000 / u128::from(self.budget.0.max(1));
        permille as f64 / 10.0
    }

    /// Returns the message that the budget is used up: cost, budget and end of the month.
    pub fn exhausted_message(&self, team: &impl fmt::Display) -> String {
        format!(
            "{team} has used {} of its budget of {} for {}. Runs resume at {}, or when the budget is raised.",
            self.spent,
            self.budget,
            self.month,
            self.month.end().date_text()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(text: &str) -> Timestamp {
        Timestamp::parse(text).unwrap()
    }

    #[test]
    fn months_are_in_utc_and_end_at_the_next() {
        let rows = [
            (
                "2026-11-30T23:59:59.999Z",
                "2026-11",
                "2026-12-01T00:00:00.000Z",
            ),
            (
                "2026-12-01T00:00:00.000Z",
                "2026-12",
                "2027-01-01T00:00:00.000Z",
            ),
            (
                "2028-02-29T12:00:00.000Z",
                "2028-02",
                "2028-03-01T00:00:00.000Z",
            ),
            (
                "1970-01-01T00:00:00.000Z",
                "1970-01",
                "1970-02-01T00:00:00.000Z",
            ),
        ];
        for (moment, month, end) in rows {
            let of = Month::of(at(moment));
            assert_eq!((of.to_string().as_str(), of.end()), (month, at(end)));
            assert_eq!(Month::parse(month), Some(of));
        }
        for wrong in [
            "",
            "2026",
            "2026-",
            "2026-00",
            "2026-13",
            "2026-1",
            "26-01",
            "2026-011",
            "+026-01",
            "1969-12",
            "2026-11-01",
            "２０２６-11",
            "2026-1a",
        ] {
            assert_eq!(Month::parse(wrong), None, "{wrong}");
        }
        // Extreme values do not panic.
        let last = Month::parse("9999-12").unwrap();
        assert!(last.end() > at("9999-12-01T00:00:00Z"));
        assert_eq!(Month::of(Timestamp::from_millis(u64::MAX)), last);
    }

    #[test]
    fn rounds_money_and_rejects_invalid_amounts() {
        let rows = [
            (0.0, Some(0), "$0.00"),
            (0.001_872_5, Some(1_873), "$0.001873"),
            (0.000_000_4, Some(0), "$0.00"),
            (0.1 + 0.2, Some(300_000), "$0.30"),
            (12.5, Some(12_500_000), "$12.50"),
            (1_000_000.0, Some(1_000_000_000_000), "$1000000.00"),
            (-0.01, None, ""),
            (1e300, None, ""),
            (f64::NAN, None, ""),
            (f64::INFINITY, None, ""),
        ];
        for (usd, micros, shown) in rows {
            let amount = MicroUsd::from_usd(usd);
            assert_eq!(amount, micros.map(MicroUsd), "{usd}");
            assert_eq!(
                amount.map(|amount| amount.to_string()).unwrap_or_default(),
                shown
            );
        }
        let invalid = Usage {
            turns: u64::MAX,
            input_tokens: u64::MAX,
            output_tokens: 1,
            cost_usd: Some(-5.0),
        };
        let sum = UsageTotals::from_usage(Some(&invalid));
        assert_eq!((sum.turns, sum.cost), (MAX_COUNT, MicroUsd(0)));
    }

    #[test]
    fn an_unreported_cost_is_not_zero() {
        let priced = Usage {
            cost_usd: Some(0.5),
            ..Usage::default()
        };
        let [unreported, unpriced, priced_run] = [None, Some(Usage::default()), Some(priced)]
            .map(|usage| UsageTotals::from_ended_run(usage.as_ref()));
        assert_eq!(
            UsageTotals::default().known_cost(),
            Some(MicroUsd(0)),
            "no run"
        );
        assert_eq!(unreported.saturating_add(unpriced).known_cost(), None);
        let mixed = unreported.saturating_add(priced_run);
        assert_eq!(mixed.known_cost(), Some(MicroUsd(500_000)));
        assert_eq!((mixed.runs, mixed.unpriced_runs()), (2, 1));
        // A late report adds the cost.
        let late = unreported.saturating_add(UsageTotals::from_late_report(None, Some(&priced)));
        assert_eq!((late.runs, late.unpriced_runs()), (1, 0));
        assert_eq!(late.known_cost(), Some(MicroUsd(500_000)));
        // Rows stored before the field existed.
        let old = |row: &str| serde_json::from_str::<UsageTotals>(row).unwrap();
        let free = old(r#"{"runs": 3, "turns": 9, "cost": 0}"#);
        assert_eq!((free.known_cost(), free.unpriced_runs()), (None, 3));
        assert_eq!(free.saturating_add(priced_run).unpriced_runs(), 3);
        let priced_before = old(r#"{"runs": 3, "turns": 9, "cost": 7}"#);
        assert_eq!(priced_before.known_cost(), Some(MicroUsd(7)));
        assert_eq!(priced_before.saturating_add(unreported).unpriced_runs(), 1);
    }

    #[test]
    fn budget_levels_start_at_eighty_and_hundred_percent() {
        let month = Month::parse("2026-11").unwrap();
        let usage = |spent, budget| BudgetUsage {
            month,
            spent: MicroUsd(spent),
            budget: MicroUsd(budget),
        };
        let rows = [
            (0, 10, BudgetLevel::Within, 0.0),
            (7_999_999, 10_000_000, BudgetLevel::Within, 79.9),
            (8_000_000, 10_000_000, BudgetLevel::Warning, 80.0),
            (9_999_999, 10_000_000, BudgetLevel::Warning, 99.9),
            (10_000_000, 10_000_000, BudgetLevel::Exhausted, 100.0),
            (25_000_000, 10_000_000, BudgetLevel::Exhausted, 250.0),
            (u64::MAX, u64::MAX, BudgetLevel::Exhausted, 100.0),
        ];
        for (spent, budget, level, percent) in rows {
            let usage = usage(spent, budget);
            assert_eq!(
                (usage.level(), usage.percent()),
                (level, percent),
                "{usage:?}"
            );
        }
        assert_eq!(
            usage(12_340_000, 10_000_000).exhausted_message(&"ENG"),
            "ENG has used $12.34 of its budget of $10.00 for 2026-11. Runs resume at \
             1 Dec 00:00 UTC, or when the budget is raised."
        );
    }

    proptest! {
        #[test]
        fn sums_do_not_depend_on_their_order(costs in prop::collection::vec(0.0..1000.0f64, 0..40)) {
            let sum = |costs: &mut dyn Iterator<Item = &f64>| {
                costs.fold(UsageTotals::default(), |sum, cost| {
                    let usage = Usage { cost_usd: Some(*cost), turns: 1, ..Usage::default() };
                    sum.saturating_add(UsageTotals::from_usage(Some(&usage)))
                })
            };
            let forwards = sum(&mut costs.iter());
            prop_assert_eq!(forwards, sum(&mut costs.iter().rev()));
            prop_assert_eq!(forwards.turns, costs.len() as u64);
            prop_assert_eq!(forwards.saturating_sub(forwards), UsageTotals::default());
        }
    }
}
