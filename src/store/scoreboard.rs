//! Counters of the scoreboard per day and per month, for each row of each dimension.
//!
//! They are updated in the commits that store jobs, records of pull requests and decisions. Months are sums of
//! their days, so a range of a year reads few rows.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use domain::decision::{Decision, DecisionOutcome};
use domain::feedback::{PullRequestId, PullRequestOpening, PullRequestRecord};
use domain::job::{Job, JobKind};
use domain::scoreboard::{
    Day, Dimension, SETTLED_AFTER_DAYS, ScoreContribution, ScoreCounts, ScoreTotals,
    pull_contribution, score_contribution,
};
use domain::time::Timestamp;

use super::table::{ReadableTx, ScanDirection, Table, WriteTx};
use super::tables::{DECISIONS, PULLS, SCORE_DAYS, SCORE_MONTHS};
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
    for (dimension, key) in &contribution.rows {
        let change_row = |table: &ScoreTable, day: Day| {
            let key = (dimension.as_str(), day.0, key.as_str());
            let mut row = table.get(tx, key)?.unwrap_or_default();
            change(&mut row, &contribution.counts);
            match row == ScoreCounts::default() {
                true => table.remove(tx, key).map(drop),
                false => table.put(tx, key, &row),
            }
        };
        change_row(&SCORE_DAYS, day)?;
        change_row(&SCORE_MONTHS, month)?;
    }
    Ok(())
}

/// Records in its pull request that a job opened it, or that it worked on feedback.
fn link_pull(tx: &WriteTx<'_>, before: Option<&Job>, job: &Job) -> StoreResult<()> {
    let Some(pull) = job.pull.as_ref().filter(|_| !job.shadow) else {
        return Ok(());
    };
    let is_new_round = is_round(job) && !before.is_some_and(is_round);
    let is_known = before.is_some_and(|before| {
        before.pull == job.pull && before.agent == job.agent && before.model == job.model
    });
    if is_known && !is_new_round {
        return Ok(());
    }
    let pull = PullRequestId {
        repo: job.repo.clone(),
        number: pull.number,
    };
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
            opening.agent.clone_from(&job.agent);
            opening.model.clone_from(&job.model);
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
        let record = PULLS.get(tx, key)?.unwrap_or_default();
        PULLS.put(tx, key, &with_job(record, job, is_round(job)))
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
struct Sums(BTreeMap<(Dimension, Day, String), ScoreCounts>);

impl Sums {
    fn add(&mut self, contribution: Option<ScoreContribution>) {
        let Some(ScoreContribution { day, rows, counts }) = contribution else {
            return;
        };
        for (dimension, key) in rows {
            *self.0.entry((dimension, day, key)).or_default() += &counts;
        }
    }

    /// Stores the sums in empty tables.
    fn store(self, tx: &WriteTx<'_>) -> StoreResult<()> {
        let mut months: BTreeMap<(Dimension, Day, &str), ScoreCounts> = BTreeMap::new();
        for ((dimension, day, key), row) in &self.0 {
            SCORE_DAYS.put(tx, (dimension.as_str(), day.0, key.as_str()), row)?;
            let month = (*dimension, day.month_start(), key.as_str());
            *months.entry(month).or_default() += row;
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
