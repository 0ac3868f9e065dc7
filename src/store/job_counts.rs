//! Counters of runs per hour and per day, for the summary.
//!
//! They are updated in the commit that stores a job, so the cost of reading them does not depend on the number
//! of jobs, and they are exact at every time.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use domain::ids::TeamKey;
use domain::job::Job;
use domain::scoreboard::{Day, Hour, RunContribution, RunCounts, run_contributions};

use super::StoreResult;
use super::table::{MAX_KEY_TEXT, ReadableTx, ScanDirection, Table, WriteTx};
use super::tables::{RUN_DAYS, RUN_HOURS};

/// Number of hours for which hourly counters are kept, up to the latest hour with a run. Older ones may be incomplete.
pub(super) const HOURS_KEPT: u64 = 31 * 24;

/// Maximum number of old rows that one update removes.
const MAX_REMOVED: usize = 64;

type CountTable = Table<(&'static str, u64, &'static str), RunCounts>;

/// Runs that are counted together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CountedRuns {
    /// All but shadow runs.
    Real,
    /// Shadow runs.
    Shadow,
}

impl CountedRuns {
    fn of(contribution: &RunContribution) -> Self {
        match contribution.shadow {
            true => CountedRuns::Shadow,
            false => CountedRuns::Real,
        }
    }

    fn key(self) -> &'static str {
        match self {
            CountedRuns::Real => "runs",
            CountedRuns::Shadow => "shadow",
        }
    }
}

/// Updates the counters for a stored job. `before` is the job as stored before.
pub(super) fn update(tx: &WriteTx<'_>, before: Option<&Job>, job: &Job) -> StoreResult<()> {
    let old = before.map(run_contributions).unwrap_or_default();
    let new = run_contributions(job);
    for removed in old.iter().filter(|one| !new.contains(one)) {
        apply(tx, removed, |row, counts| *row -= counts)?;
    }
    for added in new.iter().filter(|one| !old.contains(one)) {
        apply(tx, added, |row, counts| *row += counts)?;
    }
    Ok(())
}

fn apply(
    tx: &WriteTx<'_>,
    contribution: &RunContribution,
    change: impl Fn(&mut RunCounts, &RunCounts),
) -> StoreResult<()> {
    let runs = CountedRuns::of(contribution).key();
    let (team, counts) = (contribution.team.as_str(), &contribution.counts);
    let day = Day::of(contribution.at).0;
    change_row(tx, &RUN_DAYS, (runs, day, team), |row| change(row, counts))?;
    let hour = Hour::of(contribution.at).0;
    change_row(tx, &RUN_HOURS, (runs, hour, team), |row| {
        change(row, counts)
    })?;
    // Counted from the hour of the change: a row of a clock that was far ahead makes no other hour old.
    remove_hours_before(tx, runs, hour.saturating_sub(HOURS_KEPT))
}

fn change_row(
    tx: &WriteTx<'_>,
    table: &CountTable,
    key: (&'static str, u64, &str),
    change: impl FnOnce(&mut RunCounts),
) -> StoreResult<()> {
    let mut row = table.get(tx, key)?.unwrap_or_default();
    change(&mut row);
    if row == RunCounts::default() {
        return table.remove(tx, key).map(drop);
    }
    table.put(tx, key, &row)
}

fn remove_hours_before(tx: &WriteTx<'_>, runs: &'static str, hour: u64) -> StoreResult<()> {
    let mut old = Vec::new();
    let range = (runs, 0, "")..(runs, hour, "");
    RUN_HOURS.scan(tx, range, ScanDirection::Ascending, |(_, hour, team), _| {
        old.push((hour, team.to_owned()));
        match old.len() < MAX_REMOVED {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    })?;
    for (hour, team) in old {
        RUN_HOURS.remove(tx, (runs, hour, team.as_str()))?;
    }
    Ok(())
}

/// Counters of consecutive hours, from `first` to `last`, of one project or of all. Hours without a run are
/// missing.
pub fn hours(
    tx: &impl ReadableTx,
    runs: CountedRuns,
    first: Hour,
    last: Hour,
    team: Option<&TeamKey>,
) -> StoreResult<BTreeMap<u64, RunCounts>> {
    read(tx, &RUN_HOURS, runs, first.0, last.0, team)
}

/// Counters of consecutive days, like [`hours`].
pub fn days(
    tx: &impl ReadableTx,
    runs: CountedRuns,
    first: Day,
    last: Day,
    team: Option<&TeamKey>,
) -> StoreResult<BTreeMap<u64, RunCounts>> {
    read(tx, &RUN_DAYS, runs, first.0, last.0, team)
}

fn read(
    tx: &impl ReadableTx,
    table: &CountTable,
    runs: CountedRuns,
    first: u64,
    last: u64,
    team: Option<&TeamKey>,
) -> StoreResult<BTreeMap<u64, RunCounts>> {
    let (runs, mut counted) = (runs.key(), BTreeMap::new());
    if let Some(team) = team {
        for at in first..=last {
            let row = table.get(tx, (runs, at, team.as_str()))?;
            counted.extend(row.map(|row| (at, row)));
        }
        return Ok(counted);
    }
    let range = (runs, first, "")..=(runs, last, MAX_KEY_TEXT);
    table.scan(tx, range, ScanDirection::Ascending, |(_, at, _), row| {
        *counted.entry(at).or_insert_with(RunCounts::default) += &row;
        ControlFlow::Continue(())
    })?;
    Ok(counted)
}

/// Sums of many jobs, for a migration: one write per row instead of one per job.
#[derive(Default)]
pub(super) struct Sums {
    hours: BTreeMap<(&'static str, u64, TeamKey), RunCounts>,
    days: BTreeMap<(&'static str, u64, TeamKey), RunCounts>,
}

impl Sums {
    /// Adds the contributions of a job.
    pub(super) fn add(&mut self, job: &Job) {
        for contribution in run_contributions(job) {
            let runs = CountedRuns::of(&contribution).key();
            let RunContribution {
                at, team, counts, ..
            } = contribution;
            let day = (runs, Day::of(at).0, team.clone());
            *self.days.entry(day).or_default() += &counts;
            *self.hours.entry((runs, Hour::of(at).0, team)).or_default() += &counts;
        }
    }

    /// Stores the sums in empty tables.
    pub(super) fn store(self, tx: &WriteTx<'_>) -> StoreResult<()> {
        // The keys are sorted, so the last one of its runs counts.
        let of_runs = self.hours.keys().map(|(runs, hour, _)| (*runs, *hour));
        let latest: BTreeMap<&str, u64> = of_runs.collect();
        for ((runs, hour, team), row) in &self.hours {
            if hour + HOURS_KEPT >= latest[runs] {
                RUN_HOURS.put(tx, (*runs, *hour, team.as_str()), row)?;
            }
        }
        for ((runs, day, team), row) in &self.days {
            RUN_DAYS.put(tx, (*runs, *day, team.as_str()), row)?;
        }
        Ok(())
    }
}
