//! What runs cost, summed up by month, and how much of it an operator allows.
//!
//! Money is counted in whole micro-dollars. A run tells dollars as a decimal number; each report is
//! rounded once, to the nearest micro-dollar, and only whole numbers are added from there on, so
//! that a sum does not depend on the order of its parts. Months are those of UTC, and a run counts
//! in the month in which it ends.

use std::fmt;

use jiff::ToSpan;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};

use super::report::Usage;
use super::time::Timestamp;

/// Micro-dollars in a dollar.
const MICROS: f64 = 1_000_000.0;

/// The most that one report, or one budget, may be: what is over is a mistake or a lie.
const MOST_USD: f64 = 1_000_000_000.0;

/// The most turns or tokens that one report may tell.
const MOST_COUNTED: u64 = 1_000_000_000_000;

/// From which part of its budget on is a mapping's operator warned, in percent?
pub const BUDGET_WARNING_PERCENT: u64 = 80;

/// An amount of money, in millionths of a US dollar.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct MicroUsd(u64);

impl MicroUsd {
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// The nearest amount to a number of dollars. None for what is no amount: a negative one, or one
    /// beyond all reason.
    pub fn from_usd(usd: f64) -> Option<Self> {
        // False for what is no number at all, too.
        (0.0..=MOST_USD)
            .contains(&usd)
            .then(|| Self((usd * MICROS).round() as u64))
    }

    /// In dollars, as JSON shows it.
    pub fn to_usd(self) -> f64 {
        self.0 as f64 / MICROS
    }
}

impl fmt::Display for MicroUsd {
    /// With two decimals at least, and with as many more as it takes to be exact.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let decimals = format!("{:06}", self.0 % 1_000_000);
        let end = decimals.trim_end_matches('0').len().max(2);
        write!(f, "${}.{}", self.0 / 1_000_000, &decimals[..end])
    }
}

/// A month of UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Month {
    year: i16,
    month: i8,
}

impl Month {
    pub fn of(at: Timestamp) -> Self {
        let millis = i64::try_from(at.as_millis()).unwrap_or(i64::MAX);
        let moment = jiff::Timestamp::from_millisecond(millis).unwrap_or(jiff::Timestamp::MAX);
        let date = moment.to_zoned(TimeZone::UTC).date();
        Self {
            year: date.year(),
            month: date.month(),
        }
    }

    /// Reads `YYYY-MM`.
    pub fn parse(text: &str) -> Option<Self> {
        let (year, month) = text.split_once('-')?;
        let number = |digits: &str, length: usize| {
            let plain = digits.len() == length && digits.bytes().all(|c| c.is_ascii_digit());
            plain.then(|| digits.parse::<i16>().ok()).flatten()
        };
        let (year, month) = (number(year, 4)?, number(month, 2)?);
        let month = i8::try_from(month).ok()?;
        (year >= 1970 && (1..=12).contains(&month)).then_some(Self { year, month })
    }

    /// When it is over: the first moment of the next.
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

/// What a number of runs used together.
///
/// Stored: fields may be added with a default, never renamed without a migration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct UsageTotals {
    pub runs: u64,
    pub turns: u64,
    pub input_tokens: u64,
    pub output_tokens: u64,
    /// In micro-dollars, of the runs that told what they cost.
    pub cost: MicroUsd,
    /// Runs that did not tell what they cost. None of rows that were written before it was counted.
    pub unpriced: Option<i64>,
}

impl UsageTotals {
    /// What was reported of one run; nothing reported is nothing counted. Reports are not trusted:
    /// what is no amount counts as none.
    pub fn from_usage(usage: Option<&Usage>) -> Self {
        let usage = usage.copied().unwrap_or_default();
        let counted = |count: u64| count.min(MOST_COUNTED);
        Self {
            runs: 0,
            turns: counted(usage.turns),
            input_tokens: counted(usage.input_tokens),
            output_tokens: counted(usage.output_tokens),
            cost: cost_of(&usage).unwrap_or_default(),
            unpriced: None,
        }
    }

    /// A run that has ended, and what was reported of it.
    pub fn from_ended_run(usage: Option<&Usage>) -> Self {
        let is_priced = usage.is_some_and(|usage| cost_of(usage).is_some());
        Self {
            runs: 1,
            unpriced: Some(i64::from(!is_priced)),
            ..Self::from_usage(usage)
        }
    }

    /// What `late` tells of a run that was counted with `known`.
    pub fn from_late_report(known: Option<&Usage>, late: Option<&Usage>) -> Self {
        let [was, is] = [known, late].map(|usage| usage.and_then(cost_of).is_some());
        Self {
            unpriced: (is && !was).then_some(-1),
            ..Self::from_usage(late).saturating_sub(Self::from_usage(known))
        }
    }

    /// How many of the runs did not tell what they cost. No run is free: of older rows, a sum of nothing
    /// was told by nobody.
    pub fn unpriced_runs(&self) -> u64 {
        match self.unpriced {
            Some(count) => u64::try_from(count).unwrap_or_default().min(self.runs),
            None if self.cost == MicroUsd::default() => self.runs,
            None => 0,
        }
    }

    /// What the runs cost, as far as they told; none when no run told.
    pub fn known_cost(&self) -> Option<MicroUsd> {
        let is_known = self.runs == 0 || self.unpriced_runs() < self.runs;
        is_known.then_some(self.cost)
    }

    pub fn saturating_add(self, other: Self) -> Self {
        let unpriced = match (self.unpriced, other.unpriced) {
            (None, None) => None,
            (Some(mine), Some(theirs)) => Some(mine.saturating_add(theirs)),
            // An older row says by its cost how many there were.
            (None, Some(theirs)) => Some(self.unpriced_count().saturating_add(theirs)),
            (Some(mine), None) => Some(mine.saturating_add(other.unpriced_count())),
        };
        Self {
            unpriced,
            ..self.with(other, u64::saturating_add)
        }
    }

    fn unpriced_count(&self) -> i64 {
        i64::try_from(self.unpriced_runs()).unwrap_or(i64::MAX)
    }

    /// What is here beyond `earlier`.
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

/// How far a mapping is through its budget of a month.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BudgetUsage {
    pub month: Month,
    pub spent: MicroUsd,
    pub budget: MicroUsd,
}

/// What follows from that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum BudgetLevel {
    Within,
    /// The operator is warned.
    Warning,
    /// Nothing new is started.
    Exhausted,
}

impl BudgetUsage {
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

    /// With one decimal, rounded down: 100 is shown only of a budget that is used up.
    pub fn percent(&self) -> f64 {
        let permille = u128::from(self.spent.0) * 1000 / u128::from(self.budget.0.max(1));
        permille as f64 / 10.0
    }

    /// Why nothing new is started: what was spent, of how much, and when that ends.
    pub fn exhausted_message(&self, team: &impl fmt::Display) -> String {
        format!(
            "{team} has used {} of its budget of {} for {}. It goes on at {}, or when the budget is raised.",
            self.spent,
            self.budget,
            self.month,
            self.month.end()
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
    fn months_are_those_of_utc_and_end_where_the_next_begins() {
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
        // Neither clocks nor queries can make it fail.
        let last = Month::parse("9999-12").unwrap();
        assert!(last.end() > at("9999-12-01T00:00:00Z"));
        assert_eq!(Month::of(Timestamp::from_millis(u64::MAX)), last);
    }

    #[test]
    fn money_is_rounded_once_and_hostile_amounts_are_none() {
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
            assert_eq!(amount.map(|it| it.to_string()).unwrap_or_default(), shown);
        }
        let lie = Usage {
            turns: u64::MAX,
            input_tokens: u64::MAX,
            output_tokens: 1,
            cost_usd: Some(-5.0),
        };
        let sum = UsageTotals::from_usage(Some(&lie));
        assert_eq!((sum.turns, sum.cost), (MOST_COUNTED, MicroUsd(0)));
    }

    #[test]
    fn a_cost_that_nobody_told_is_not_nothing() {
        let priced = Usage {
            cost_usd: Some(0.5),
            ..Usage::default()
        };
        let [silent, unpriced, paid] = [None, Some(Usage::default()), Some(priced)]
            .map(|usage| UsageTotals::from_ended_run(usage.as_ref()));
        assert_eq!(
            UsageTotals::default().known_cost(),
            Some(MicroUsd(0)),
            "no run"
        );
        assert_eq!(silent.saturating_add(unpriced).known_cost(), None);
        let mixed = silent.saturating_add(paid);
        assert_eq!(mixed.known_cost(), Some(MicroUsd(500_000)));
        assert_eq!((mixed.runs, mixed.unpriced_runs()), (2, 1));
        // Told late, it is known after all.
        let late = silent.saturating_add(UsageTotals::from_late_report(None, Some(&priced)));
        assert_eq!((late.runs, late.unpriced_runs()), (1, 0));
        assert_eq!(late.known_cost(), Some(MicroUsd(500_000)));
        // Rows of before it was counted.
        let old = |row: &str| serde_json::from_str::<UsageTotals>(row).unwrap();
        let free = old(r#"{"runs": 3, "turns": 9, "cost": 0}"#);
        assert_eq!((free.known_cost(), free.unpriced_runs()), (None, 3));
        assert_eq!(free.saturating_add(paid).unpriced_runs(), 3);
        let paid_before = old(r#"{"runs": 3, "turns": 9, "cost": 7}"#);
        assert_eq!(paid_before.known_cost(), Some(MicroUsd(7)));
        assert_eq!(paid_before.saturating_add(silent).unpriced_runs(), 1);
    }

    #[test]
    fn a_budget_warns_at_eighty_percent_and_ends_at_a_hundred() {
        let month = Month::parse("2026-11").unwrap();
        let spending = |spent, budget| BudgetUsage {
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
            let it = spending(spent, budget);
            assert_eq!((it.level(), it.percent()), (level, percent), "{it:?}");
        }
        assert_eq!(
            spending(12_340_000, 10_000_000).exhausted_message(&"ENG"),
            "ENG has used $12.34 of its budget of $10.00 for 2026-11. It goes on at \
             2026-12-01T00:00:00.000Z, or when the budget is raised."
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
