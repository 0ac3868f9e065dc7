//! Counters as counted from the raw rows of jobs, pull requests and decisions.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;

use domain::feedback::{PullRequestRecord, PullRequestStatus};
use domain::job::{Job, JobKind, JobState};
use domain::scoreboard::{Day, Dimension, DurationHistogram, Hour, RunCounts};
use domain::time::Timestamp;

use super::histories::minute;
use crate::decisions::DecisionHistory;
use crate::job_counts::{self, CountedRuns};
use crate::scoreboard::{ScoreRows, rows};
use crate::tables::{DECISIONS, JOBS, PULLS};
use crate::{Store, jobs};

/// Raw rows of a store.
#[derive(Debug, Clone)]
pub(super) struct RawRows {
    pub(super) jobs: Vec<Job>,
    pub(super) pulls: Vec<(u64, PullRequestRecord)>,
    pub(super) decisions: Vec<DecisionHistory>,
}

impl RawRows {
    pub(super) fn of(store: &Store) -> Self {
        let read = store.read(|tx| {
            Ok(Self {
                jobs: JOBS.collect(tx, .., |_, job| job)?,
                pulls: PULLS.collect(tx, .., |(_, number), record| (number, record))?,
                decisions: DECISIONS.collect(tx, .., |_, history| history)?,
            })
        });
        read.unwrap()
    }
}

/// Row of the scoreboard as counted from the raw rows.
#[derive(Debug, Default, PartialEq)]
struct Recount {
    runs: u64,
    cost_cents: u64,
    failures: BTreeMap<String, u64>,
    pulls: u64,
    merged: u64,
    closed: u64,
    stale_open: u64,
    rounds: u64,
    human_commits: u64,
    read_pulls: u64,
    seconds_to_pull: Vec<u128>,
    seconds_to_merge: Vec<u128>,
    waits: BTreeMap<String, u64>,
}

fn keys(dimension: Dimension, job: &Job) -> Vec<String> {
    let or_unknown =
        |name: &Option<String>| vec![name.clone().unwrap_or_else(|| "unknown".to_owned())];
    match dimension {
        Dimension::Total => vec![String::new()],
        Dimension::Team => vec![job.team.to_string()],
        Dimension::Kind => vec![job.kind.as_str().to_owned()],
        Dimension::Agent => or_unknown(&job.agent),
        Dimension::Model => or_unknown(&job.model),
        Dimension::Label if job.labels.is_empty() => vec!["none".to_owned()],
        Dimension::Label => job.labels.clone(),
    }
}

fn recount(
    raw: &RawRows,
    dimension: Dimension,
    from: Day,
    to: Day,
    now: Timestamp,
) -> BTreeMap<String, Recount> {
    let mut rows: BTreeMap<String, Recount> = BTreeMap::new();
    let is_in_range = |at: Timestamp| at >= from.start() && at < to.start();
    recount_runs(&raw.jobs, dimension, is_in_range, &mut rows);
    recount_pulls(raw, dimension, is_in_range, now, &mut rows);
    recount_waits(&raw.decisions, dimension, is_in_range, &mut rows);
    rows
}

fn recount_runs(
    jobs: &[Job],
    dimension: Dimension,
    is_in_range: impl Fn(Timestamp) -> bool,
    rows: &mut BTreeMap<String, Recount>,
) {
    for job in jobs.iter().filter(|job| !job.shadow && !job.is_active()) {
        if !is_in_range(job.finished_at.unwrap()) {
            continue;
        }
        let reason = match &job.state {
            JobState::Failed { code: None, .. } => Some("OTHER"),
            JobState::Failed {
                code: Some(code), ..
            } => match json!(code).as_str().unwrap() {
                "CANCELLED" => None,
                _ => Some("NO_CHANGES"),
            },
            JobState::ReviewFailed { .. } => Some("REVIEW_UNAPPROVED"),
            JobState::TimedOut { .. } => Some("RUN_NOT_FOUND"),
            _ => None,
        };
        for key in keys(dimension, job) {
            let row = rows.entry(key).or_default();
            row.runs += 1;
            let cost = job
                .usage
                .and_then(|usage| usage.cost_usd)
                .unwrap_or_default();
            row.cost_cents += (cost * 100.0).round() as u64;
            if let Some(reason) = reason {
                *row.failures.entry(reason.to_owned()).or_default() += 1;
            }
        }
    }
}

fn recount_pulls(
    raw: &RawRows,
    dimension: Dimension,
    is_in_range: impl Fn(Timestamp) -> bool,
    now: Timestamp,
    rows: &mut BTreeMap<String, Recount>,
) {
    for (number, record) in &raw.pulls {
        let names_it = |job: &&Job| {
            job.pull.as_ref().is_some_and(|pull| pull.number == *number) && !job.shadow
        };
        let of_pull: Vec<&Job> = raw.jobs.iter().filter(names_it).collect();
        let mut openers = of_pull
            .iter()
            .filter(|job| job.kind == JobKind::Implementation);
        let Some(opener) = openers.next() else {
            assert_eq!(record.opening, None);
            continue;
        };
        let named_at = opener.finished_at.unwrap();
        let opened_at = record.created_at.unwrap_or(named_at);
        if !is_in_range(opened_at) {
            continue;
        }
        let is_feedback = |job: &&&Job| {
            let is_feedback = matches!(job.kind, JobKind::GapFill | JobKind::FollowUp);
            is_feedback && job.dispatched_at.is_some()
        };
        let rounds = of_pull.iter().filter(is_feedback).count() as u64;
        let since = |at: Timestamp| at.since(opener.triggered_at.unwrap()).as_secs().into();
        for key in keys(dimension, opener) {
            let row = rows.entry(key).or_default();
            row.pulls += 1;
            row.rounds += rounds;
            row.read_pulls += u64::from(record.human_commits.is_some());
            row.human_commits += u64::from(record.human_commits.unwrap_or_default());
            row.seconds_to_pull.push(since(opened_at));
            match &record.status {
                PullRequestStatus::Merged { at, .. } => {
                    row.merged += 1;
                    row.seconds_to_merge.push(since(*at));
                }
                PullRequestStatus::Closed => row.closed += 1,
                PullRequestStatus::Open => {
                    let end_of_day = Day(Day::of(opened_at).0 + 1).start();
                    let week = Duration::from_secs(7 * 24 * 60 * 60);
                    row.stale_open += u64::from(end_of_day + week <= Day::of(now).start());
                }
            }
        }
    }
}

fn recount_waits(
    histories: &[DecisionHistory],
    dimension: Dimension,
    is_in_range: impl Fn(Timestamp) -> bool,
    rows: &mut BTreeMap<String, Recount>,
) {
    for history in histories {
        let mut waited_for = None;
        for decision in &history.decisions {
            let reason = decision.reason.map(|reason| json!(reason));
            let begins = reason.is_some() && reason != waited_for;
            waited_for.clone_from(&reason);
            let key = match dimension {
                Dimension::Total => Some(String::new()),
                Dimension::Team => Some(decision.team_key.to_string()),
                Dimension::Kind => decision.phase.map(|phase| phase.as_str().to_owned()),
                Dimension::Agent | Dimension::Model | Dimension::Label => None,
            };
            if let (Some(key), Some(reason), true, true) =
                (key, reason, begins, is_in_range(decision.at))
            {
                let row = rows.entry(key).or_default();
                let reason = reason.as_str().unwrap().to_owned();
                *row.waits.entry(reason).or_default() += 1;
            }
        }
    }
}

/// Whether the percentiles of a histogram are those of these durations, within its error.
fn has_percentiles(histogram: &DurationHistogram, exact: &[u128]) -> bool {
    let mut exact = exact.to_vec();
    exact.sort_unstable();
    [50, 95].into_iter().all(|percent| {
        let found = histogram
            .percentile(percent)
            .map(|found| found.as_secs_f64());
        let rank = (exact.len() * percent as usize).div_ceil(100).max(1);
        match (found, exact.get(rank - 1)) {
            (None, None) => true,
            (Some(found), Some(exact)) => {
                let exact = *exact as f64;
                (found - exact).abs() <= (exact * 0.045).max(30.0)
            }
            _ => false,
        }
    })
}

fn assert_equal(found: &ScoreRows, expected: &BTreeMap<String, Recount>, context: &str) {
    let keys: Vec<&String> = found.keys().collect();
    assert_eq!(keys, expected.keys().collect::<Vec<_>>(), "{context}");
    for (key, row) in found {
        let (counts, recount) = (&row.counts, &expected[key]);
        let numbers = [
            ("runs", counts.runs, recount.runs),
            ("cost", counts.cost, recount.cost_cents * 10_000),
            ("pulls", counts.pulls, recount.pulls),
            ("merged", counts.merged, recount.merged),
            ("closed", counts.closed, recount.closed),
            ("stale", row.stale_open, recount.stale_open),
            ("rounds", counts.rounds, recount.rounds),
            ("commits", counts.human_commits, recount.human_commits),
            ("read", counts.read_pulls, recount.read_pulls),
        ];
        for (name, found, expected) in numbers {
            assert_eq!(found, expected, "{name} of {key:?}, {context}");
        }
        assert_eq!(counts.failures, recount.failures, "{key:?}, {context}");
        assert_eq!(
            json!(counts.waits),
            json!(recount.waits),
            "{key:?}, {context}"
        );
        assert!(
            has_percentiles(&counts.to_pull, &recount.seconds_to_pull),
            "{key:?}, {context}"
        );
        assert!(
            has_percentiles(&counts.to_merge, &recount.seconds_to_merge),
            "{key:?}, {context}"
        );
    }
}

const DIMENSIONS: [Dimension; 6] = [
    Dimension::Total,
    Dimension::Team,
    Dimension::Agent,
    Dimension::Model,
    Dimension::Kind,
    Dimension::Label,
];

/// Compares every dimension in these ranges of days with a recount.
pub(super) fn assert_scoreboard(
    store: &Store,
    raw: &RawRows,
    ranges: &[(u64, u64)],
    now: Timestamp,
) {
    for (from, days) in ranges {
        let from = Day(Day::of(minute(0)).0 + from);
        let to = Day(from.0 + days);
        for dimension in DIMENSIONS {
            let found = store.read(|tx| rows(tx, dimension, from, to, now)).unwrap();
            let context = format!("{} from {from} to {to}, at {now}", dimension.as_str());
            assert_equal(&found, &recount(raw, dimension, from, to, now), &context);
        }
    }
}

/// Compares all numbers of the summary with a recount.
pub(super) fn assert_summary(store: &Store, raw: &RawRows) {
    assert_run_counts(store, raw);
    let mut ended: BTreeMap<String, u64> = BTreeMap::new();
    for job in raw.jobs.iter().filter(|job| !job.is_active()) {
        let key = jobs::ended_count_key(job.state.status(), job.kind);
        *ended.entry(key).or_default() += 1;
    }
    assert_eq!(store.read(jobs::ended_counts).unwrap(), ended);
    let active = raw.jobs.iter().filter(|job| job.is_active()).count();
    assert_eq!(store.read(jobs::active).unwrap().len(), active);
}

/// Compares the counters of runs per hour and day, of all projects and of each, with a recount.
pub(super) fn assert_run_counts(store: &Store, raw: &RawRows) {
    for (runs, is_shadow) in [(CountedRuns::Real, false), (CountedRuns::Shadow, true)] {
        for team in [None, Some("ENG"), Some("OPS")] {
            let counted = raw.jobs.iter().filter(|job| {
                job.shadow == is_shadow && team.is_none_or(|team| job.team.as_str() == team)
            });
            let counted: Vec<&Job> = counted.collect();
            let team = team.map(Into::into);
            let (first, last) = (Day::of(minute(0)), Day(Day::of(minute(0)).0 + 400));
            let days = store.read(|tx| job_counts::days(tx, runs, first, last, team.as_ref()));
            assert_eq!(days.unwrap(), recount_buckets(&counted, |at| Day::of(at).0));
            // Hourly counters are kept up to the latest hour with a run of any project.
            let all: Vec<&Job> = raw
                .jobs
                .iter()
                .filter(|job| job.shadow == is_shadow)
                .collect();
            let all = recount_buckets(&all, |at| Hour::of(at).0);
            let Some(latest) = all.keys().next_back().copied() else {
                continue;
            };
            let oldest = latest - job_counts::HOURS_KEPT;
            let mut expected = recount_buckets(&counted, |at| Hour::of(at).0);
            expected.retain(|hour, _| *hour >= oldest);
            let hours = store
                .read(|tx| job_counts::hours(tx, runs, Hour(oldest), Hour(latest), team.as_ref()));
            assert_eq!(hours.unwrap(), expected);
        }
    }
}

fn recount_buckets(
    jobs: &[&Job],
    bucket_of: impl Fn(Timestamp) -> u64,
) -> BTreeMap<u64, RunCounts> {
    let mut buckets: BTreeMap<u64, RunCounts> = BTreeMap::new();
    for job in jobs {
        if let Some(at) = job.dispatched_at {
            buckets.entry(bucket_of(at)).or_default().started += 1;
        }
        let Some(at) = job.finished_at else { continue };
        let row = buckets.entry(bucket_of(at)).or_default();
        match &job.state {
            JobState::Completed => row.completed += 1,
            JobState::ReviewFailed { .. } => row.review_failed += 1,
            JobState::TimedOut { .. } => row.timed_out += 1,
            JobState::Failed {
                code: Some(code), ..
            } if json!(code) == json!("CANCELLED") => row.cancelled += 1,
            _ => row.failed += 1,
        }
        if let Some(cost) = job.usage.and_then(|usage| usage.cost_usd) {
            row.priced += 1;
            row.cost += (cost * 1_000_000.0).round() as u64;
        }
    }
    buckets
}
