//! Counters of the scoreboard per day and per month, for each row of each dimension.
//!
//! They are updated in the commits that store jobs, records of pull requests and decisions. Months are sums of
//! their days, so a range of a year reads few rows.
//!
//! A dimension has at most [`MAX_KEYS`] rows of its own in a month. Keys that appear later count in the row
//! [`OTHER_KEY`]. Rows of a month stay when their counters return to zero, so it never changes in which row a
//! key counts, and what was added to a row is later subtracted from the same row.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::ops::ControlFlow;

use serde::de::IgnoredAny;

use domain::decision::{Decision, DecisionOutcome};
use domain::feedback::{PullRequestId, PullRequestOpening, PullRequestRecord};
use domain::job::{Job, JobKind};
use domain::scoreboard::{
    Day, Dimension, MAX_KEYS, OTHER_KEY, RunAttributes, SETTLED_AFTER_DAYS, ScoreContribution,
    ScoreCounts, ScoreTotals, pull_contribution, score_contribution,
};
use domain::time::Timestamp;

use super::table::{ReadableTx, ScanDirection, Table, WriteTx};
use super::tables::{DECISIONS, PULLS, SCORE_DAYS, SCORE_KEYS, SCORE_MONTHS};
use super::{StoreResult, job_counts, job_index, pull_feedback};

/// Rows of a dimension by key.
pub type ScoreRows = BTreeMap<String, ScoreTotals>;

type ScoreTable = Table<(&'static str, u64, &'static str), ScoreCounts>;

/// Rows of a dimension in the days from `from` to before `to`. At `now`, a pull request has been open for 7
/// days if it was opened on a day that ended at least 7 days ago.
pub fn rows(
    tx: &impl ReadableTx,
    dimension: Dimension,
    from: Day,
    to: Day,
    now: Timestamp,
) -> StoreResult<ScoreRows> {
    let mut rows = ScoreRows::new();
    let first_unsettled = Day::of(now).0.saturating_sub(SETTLED_AFTER_DAYS);
    let mut day = from;
    while day < to {
        let next_month = day.next_month();
        let is_month =
            day == day.month_start() && next_month <= to && next_month.0 <= first_unsettled;
        let (table, end) = match is_month {
            true => (&SCORE_MONTHS, next_month),
            false => (&SCORE_DAYS, next_month.min(to)),
        };
        let range = (dimension.as_str(), day.0, "")..(dimension.as_str(), end.0, "");
        table.scan(
            tx,
            range,
            ScanDirection::Ascending,
            |(_, at, key), counts| {
                if counts == ScoreCounts::default() {
                    return ControlFlow::Continue(());
                }
                let is_settled = is_month || at < first_unsettled;
                let row = rows.entry(key.to_owned()).or_default();
                row.stale_open += if is_settled { counts.open() } else { 0 };
                row.counts += &counts;
                ControlFlow::Continue(())
            },
        )?;
        day = end;
    }
    Ok(rows)
}

/// Updates the counters for a stored job, and the record of its pull request. `before` is the job as stored
/// before.
pub(super) fn update_job(tx: &WriteTx<'_>, before: Option<&Job>, job: &Job) -> StoreResult<()> {
    replace(
        tx,
        before.and_then(score_contribution),
        score_contribution(job),
    )?;
    link_pull(tx, before, job)
}

/// Updates the counters for a stored record of a pull request.
pub(super) fn update_pull(
    tx: &WriteTx<'_>,
    before: &PullRequestRecord,
    record: &PullRequestRecord,
) -> StoreResult<()> {
    replace(tx, pull_contribution(before), pull_contribution(record))
}

/// Counts a wait that begins with this decision. `before` is the decision that it replaces.
pub(super) fn count_wait(
    tx: &WriteTx<'_>,
    before: Option<&Decision>,
    decision: &Decision,
) -> StoreResult<()> {
    match wait_contribution(before, decision) {
        Some(added) => apply(tx, &added, |row, counts| *row += counts),
        None => Ok(()),
    }
}

fn wait_contribution(before: Option<&Decision>, decision: &Decision) -> Option<ScoreContribution> {
    let wait_of = |decision: &Decision| {
        let is_waiting = decision.outcome == DecisionOutcome::Waiting;
        decision.reason.filter(|_| is_waiting)
    };
    let reason = wait_of(decision)?;
    if before.and_then(wait_of) == Some(reason) {
        return None;
    }
    let kind = decision.phase.map(|phase| JobKind::from(phase).as_str());
    let kind = kind.map(|kind| (Dimension::Kind, kind.to_owned()));
    let rows = [
        (Dimension::Total, String::new()),
        (Dimension::Team, decision.team_key.to_string()),
    ];
    Some(ScoreContribution {
        day: Day::of(decision.at),
        rows: rows.into_iter().chain(kind).collect(),
        counts: ScoreCounts {
            waits: BTreeMap::from([(reason, 1)]),
            ..ScoreCounts::default()
        },
    })
}

fn replace(
    tx: &WriteTx<'_>,
    before: Option<ScoreContribution>,
    after: Option<ScoreContribution>,
) -> StoreResult<()> {
    if before == after {
        return Ok(());
    }
    if let Some(removed) = before {
        apply(tx, &removed, |row, counts| *row -= counts)?;
    }
    match after {
        Some(added) => apply(tx, &added, |row, counts| *row += counts),
        None => Ok(()),
    }
}

fn apply(
    tx: &WriteTx<'_>,
    contribution: &ScoreContribution,
    change: impl Fn(&mut ScoreCounts, &ScoreCounts),
) -> StoreResult<()> {
    let (day, month) = (contribution.day, contribution.day.month_start());
    let claim_row = |dimension, key: &str| claim_row(tx, dimension, month, key);
    for (dimension, key) in counted_rows(contribution, claim_row)? {
        let changed_row = |table: &ScoreTable, key| {
            let mut row = table.get(tx, key)?.unwrap_or_default();
            change(&mut row, &contribution.counts);
            StoreResult::Ok(row)
        };
        let of_day = (dimension.as_str(), day.0, key);
        let row = changed_row(&SCORE_DAYS, of_day)?;
        match row == ScoreCounts::default() {
            true => drop(SCORE_DAYS.remove(tx, of_day)?),
            false => SCORE_DAYS.put(tx, of_day, &row)?,
        }
        let of_month = (dimension.as_str(), month.0, key);
        SCORE_MONTHS.put(tx, of_month, &changed_row(&SCORE_MONTHS, of_month)?)?;
    }
    Ok(())
}

/// Rows that a contribution counts in, each once: several of its keys may share the row of further keys.
/// `claim_row` returns whether a key has a row of its own, and claims one for a new key while there is room.
fn counted_rows<E>(
    contribution: &ScoreContribution,
    mut claim_row: impl FnMut(Dimension, &str) -> Result<bool, E>,
) -> Result<BTreeSet<(Dimension, &str)>, E> {
    let mut rows = BTreeSet::new();
    for (dimension, key) in &contribution.rows {
        let key = match claim_row(*dimension, key)? {
            true => key.as_str(),
            false => OTHER_KEY,
        };
        rows.insert((*dimension, key));
    }
    Ok(rows)
}

/// Whether a key has a row of its own in a month. Adds an empty row for a new key while there is room.
fn claim_row(tx: &WriteTx<'_>, dimension: Dimension, month: Day, key: &str) -> StoreResult<bool> {
    let row_key = (dimension.as_str(), month.0, key);
    if SCORE_MONTHS
        .get_partial::<IgnoredAny>(tx, row_key)?
        .is_some()
    {
        return Ok(true);
    }
    let month_key = (dimension.as_str(), month.0);
    let known = match SCORE_KEYS.get(tx, month_key)? {
        Some(known) => known,
        None => count_keys(tx, dimension, month)?,
    };
    let has_room = known < MAX_KEYS as u64;
    if has_room {
        SCORE_MONTHS.put(tx, row_key, &ScoreCounts::default())?;
        SCORE_KEYS.put(tx, month_key, &(known + 1))?;
    }
    Ok(has_room)
}

/// Number of rows of a dimension in a month, for months that were begun before keys were counted.
fn count_keys(tx: &WriteTx<'_>, dimension: Dimension, month: Day) -> StoreResult<u64> {
    let dimension = dimension.as_str();
    let of_month = (dimension, month.0, "")..(dimension, month.0 + 1, "");
    let rows = SCORE_MONTHS.collect(tx, of_month, |_, _| ())?;
    Ok(rows.len() as u64)
}

/// Records in its pull request that a job opened it, or that it worked on feedback.
fn link_pull(tx: &WriteTx<'_>, before: Option<&Job>, job: &Job) -> StoreResult<()> {
    let Some(pull) = PullRequestId::of_job(job).filter(|_| !job.shadow) else {
        return Ok(());
    };
    let is_new_round = is_round(job) && !before.is_some_and(is_round);
    let is_known = before.is_some_and(|before| {
        before.pull == job.pull && before.agent == job.agent && before.model == job.model
    });
    if is_known && !is_new_round {
        return Ok(());
    }
    let known = pull_feedback::get_pull(tx, &pull)?;
    let record = with_job(known.clone(), job, is_new_round);
    match record == known {
        true => Ok(()),
        false => pull_feedback::put_pull(tx, &pull, &record),
    }
}

/// Whether a run that a host accepted works on feedback.
fn is_round(job: &Job) -> bool {
    let is_feedback = matches!(job.kind, JobKind::GapFill | JobKind::FollowUp);
    is_feedback && !job.shadow && job.pull.is_some() && job.dispatched_at.is_some()
}

fn with_job(mut record: PullRequestRecord, job: &Job, is_new_round: bool) -> PullRequestRecord {
    record.review_rounds += u32::from(is_new_round);
    match &mut record.opening {
        Some(opening) if opening.job == job.id => {
            opening.run = RunAttributes::of(job);
        }
        // The first run that named the pull request has opened it.
        Some(opening) if opening.job < job.id => {}
        opening if job.kind == JobKind::Implementation => {
            *opening = Some(PullRequestOpening::by(job));
        }
        _ => {}
    }
    record
}

/// Builds all counters in a store of schema version 5.
pub(super) fn build(tx: &WriteTx<'_>) -> StoreResult<()> {
    let (mut runs, mut sums) = (job_counts::Sums::default(), Sums::default());
    job_index::for_each_job(tx, |job| {
        runs.add(job);
        sums.add(score_contribution(job));
        let Some(pull) = job.pull.as_ref().filter(|_| !job.shadow) else {
            return Ok(());
        };
        let repo = job.repo.to_string();
        let key = (repo.as_str(), pull.number);
        let known = PULLS.get(tx, key)?.unwrap_or_default();
        let record = with_job(known.clone(), job, is_round(job));
        match record == known {
            true => Ok(()),
            false => PULLS.put(tx, key, &record),
        }
    })?;
    PULLS.scan(tx, .., ScanDirection::Ascending, |_, record| {
        sums.add(pull_contribution(&record));
        ControlFlow::Continue(())
    })?;
    DECISIONS.scan(tx, .., ScanDirection::Ascending, |_, history| {
        let mut before = None;
        for decision in &history.decisions {
            sums.add(wait_contribution(before, decision));
            before = Some(decision);
        }
        ControlFlow::Continue(())
    })?;
    runs.store(tx)?;
    sums.store(tx)
}

/// Sums of many rows, for a migration: one write per counter instead of one per row.
#[derive(Default)]
struct Sums {
    days: BTreeMap<(Dimension, Day, String), ScoreCounts>,
    /// Keys with a row of their own, by dimension and month.
    keys: BTreeMap<(Dimension, Day), BTreeSet<String>>,
}

impl Sums {
    fn add(&mut self, contribution: Option<ScoreContribution>) {
        let Some(contribution) = contribution else {
            return;
        };
        let (day, month) = (contribution.day, contribution.day.month_start());
        let claim_row = |dimension, key: &str| {
            let keys = self.keys.entry((dimension, month)).or_default();
            let has_room = keys.len() < MAX_KEYS;
            Ok::<_, Infallible>(keys.contains(key) || has_room && keys.insert(key.to_owned()))
        };
        let Ok(rows) = counted_rows(&contribution, claim_row);
        for (dimension, key) in rows {
            let row = self.days.entry((dimension, day, key.to_owned()));
            *row.or_default() += &contribution.counts;
        }
    }

    /// Stores the sums in empty tables.
    fn store(self, tx: &WriteTx<'_>) -> StoreResult<()> {
        let mut months: BTreeMap<(Dimension, Day, &str), ScoreCounts> = BTreeMap::new();
        for ((dimension, day, key), row) in &self.days {
            SCORE_DAYS.put(tx, (dimension.as_str(), day.0, key.as_str()), row)?;
            let month = (*dimension, day.month_start(), key.as_str());
            *months.entry(month).or_default() += row;
        }
        for ((dimension, month), keys) in &self.keys {
            SCORE_KEYS.put(tx, (dimension.as_str(), month.0), &(keys.len() as u64))?;
        }
        for ((dimension, month, key), row) in &months {
            SCORE_MONTHS.put(tx, (dimension.as_str(), month.0, *key), row)?;
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "scoreboard_tests.rs"]
mod tests;
