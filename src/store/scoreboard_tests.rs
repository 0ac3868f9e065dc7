#[path = "scoreboard_tests/histories.rs"]
mod histories;
#[path = "scoreboard_tests/recount.rs"]
mod recount;

use std::path::Path;
use std::time::Duration;

use proptest::prelude::*;
use serde_json::json;

use domain::ids::Repo;
use domain::scoreboard::{Hour, RunCounts};

use self::histories::{Course, Event, MINUTES, histories, issue, minute};
use self::recount::{RawRows, assert_run_counts, assert_scoreboard, assert_summary};
use super::*;
use crate::crash_injection::CrashPlan;
use crate::job_counts::CountedRuns;
use crate::tables::JOBS;
use crate::{Store, decisions, jobs};

fn pull_id(number: u64) -> PullRequestId {
    PullRequestId {
        repo: Repo::new("acme", "shop"),
        number,
    }
}

/// Applies a history to the store in a folder, one commit per event.
async fn play(dir: &Path, courses: &[Course], events: Vec<Event>) -> Store {
    let mut store = Store::open(dir).unwrap();
    let mut rows: Vec<_> = courses
        .iter()
        .enumerate()
        .map(|(number, course)| course.rows(number).into_iter())
        .collect();
    for event in events {
        let job = match &event {
            Event::Job(number) => rows[*number].next(),
            Event::Host(..) | Event::Decision(..) => None,
            Event::Restart => {
                drop(store);
                let reopened = Store::open_when_released(dir, CrashPlan::default());
                store = reopened.await.unwrap();
                continue;
            }
        };
        let put = store.write(move |tx| match &event {
            Event::Job(_) => job.iter().try_for_each(|job| jobs::put(tx, job)),
            Event::Host(number, report) => {
                let pull = pull_id(*number);
                let mut record = pull_feedback::get_pull(tx, &pull)?;
                report.apply(&mut record);
                pull_feedback::put_pull(tx, &pull, &record)
            }
            Event::Decision(number, decision) => decisions::record(tx, &issue(*number), decision),
            Event::Restart => Ok(()),
        });
        put.await.unwrap();
    }
    store
}

/// Store of the version before the counters, with the same rows of jobs, pull requests and decisions, after
/// the migration.
async fn migrated(raw: &RawRows) -> Store {
    let (old, rows) = (Store::in_memory().unwrap(), raw.clone());
    let migrate = old.write(move |tx| {
        for job in &rows.jobs {
            JOBS.put(tx, job.id.as_str(), job)?;
        }
        for (number, record) in &rows.pulls {
            let before = PullRequestRecord {
                opening: None,
                review_rounds: 0,
                ..record.clone()
            };
            PULLS.put(tx, ("acme/shop", *number), &before)?;
        }
        for history in &rows.decisions {
            DECISIONS.put(tx, history.issue.key.as_str(), history)?;
        }
        build(tx)
    });
    migrate.await.unwrap();
    old
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn counters_equal_a_recount_of_the_rows(
        (courses, events) in histories(),
        ranges in prop::collection::vec((0_u64..140, 1_u64..140), 4),
        now in 0..MINUTES * 2,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (dir, now) = (tempfile::tempdir().unwrap(), minute(now));
            let store = play(dir.path(), &courses, events).await;
            let raw = RawRows::of(&store);
            let ranges = [&[(0, 200)][..], &ranges].concat();
            assert_scoreboard(&store, &raw, &ranges, now);
            assert_summary(&store, &raw);
            let old = migrated(&raw).await;
            assert_eq!(RawRows::of(&old).pulls, raw.pulls);
            assert_scoreboard(&old, &raw, &ranges, now);
            assert_run_counts(&old, &raw);
        });
    }
}

#[tokio::test]
async fn a_wait_counts_when_it_begins() {
    let store = Store::in_memory().unwrap();
    let decision = |minutes: u32, outcome: &str, reason: Option<&str>, message: &str| -> Decision {
        let row = json!({"at": minute(minutes), "issueIdentifier": "ENG-1", "teamKey": "ENG", "outcome": outcome,
            "reason": reason, "message": message, "phase": "implementation"});
        serde_json::from_value(row).unwrap()
    };
    let decisions = [
        decision(0, "waiting", Some("concurrency"), "3/3"),
        decision(1, "waiting", Some("concurrency"), "4/3"),
        decision(2, "waiting", Some("blocked"), "by ENG-2"),
        decision(3, "waiting", Some("concurrency"), "3/3"),
        decision(4, "dispatched", None, "go"),
        decision(5, "waiting", Some("concurrency"), "3/3"),
    ];
    let issue = json!({"system": "A", "id": "i", "key": "ENG-1", "title": "t", "url": "u"});
    let issue = serde_json::from_value(issue).unwrap();
    let put = store.write(move |tx| {
        let mut all = decisions.iter();
        all.try_for_each(|decision| crate::decisions::record(tx, &issue, decision))
    });
    put.await.unwrap();
    let (from, to) = (Day::of(minute(0)), Day(Day::of(minute(0)).0 + 1));
    for (dimension, key) in [
        (Dimension::Total, ""),
        (Dimension::Team, "ENG"),
        (Dimension::Kind, "implementation"),
    ] {
        let found = store
            .read(|tx| rows(tx, dimension, from, to, minute(0)))
            .unwrap();
        assert_eq!(
            json!(found[key].counts.waits),
            json!({"concurrency": 3, "blocked": 1})
        );
    }
    let by_agent = store.read(|tx| rows(tx, Dimension::Agent, from, to, minute(0)));
    assert_eq!(by_agent.unwrap(), ScoreRows::new());
}

/// Completed job with twenty labels of its own, before and after its cost arrives.
fn labelled_job(number: u64) -> [Job; 2] {
    let id = format!("01J{number:04}");
    let labels: Vec<String> = (0..20).map(|label| format!("{number}-{label}")).collect();
    let row = json!({
        "id": id, "group": id, "kind": "implementation", "team": "ENG", "runner": "ci", "issue": issue(0),
        "repo": {"owner": "acme", "name": "shop"}, "dispatchNumber": 1, "branch": "b", "callbacks": true,
        "minutes": 90, "state": {"status": "completed"}, "labels": labels,
        "reservedAt": minute(0), "finishedAt": minute(1),
    });
    let ended: Job = serde_json::from_value(row).unwrap();
    let mut reported = ended.clone();
    reported.usage = serde_json::from_value(json!({"costUsd": 1.0})).unwrap();
    [ended, reported]
}

#[tokio::test]
async fn keys_beyond_the_limit_share_a_row_and_stay_in_it() {
    let jobs: Vec<[Job; 2]> = (0..40).map(labelled_job).collect();
    let own = MAX_KEYS as u64 / 20;
    let store = Store::in_memory().unwrap();
    let (first, last) = (jobs.clone(), jobs);
    let put = store.write(move |tx| first.iter().try_for_each(|[ended, _]| jobs::put(tx, ended)));
    put.await.unwrap();
    // The jobs of the shared row come first, so that a wrong row would be found.
    let put = store.write(move |tx| {
        let mut last = last.iter().rev();
        last.try_for_each(|[_, reported]| jobs::put(tx, reported))
    });
    put.await.unwrap();
    for store in [&migrated(&RawRows::of(&store)).await, &store] {
        let (from, to) = (Day::of(minute(0)), Day(Day::of(minute(0)).0 + 40));
        let found = store.read(|tx| rows(tx, Dimension::Label, from, to, minute(1)));
        let mut found = found.unwrap();
        let other = found.remove(OTHER_KEY).unwrap().counts;
        assert_eq!((other.runs, other.cost), (40 - own, (40 - own) * 1_000_000));
        assert_eq!(found.len(), MAX_KEYS);
        let is_own = |(key, row): (&String, &ScoreTotals)| {
            let number: u64 = key.split('-').next().unwrap().parse().unwrap();
            number < own && (row.counts.runs, row.counts.cost) == (1, 1_000_000)
        };
        assert!(found.iter().all(is_own));
    }
}

/// Job that is dispatched and completed in the minute with this number after `start`.
fn short_job(id: &str, start: Timestamp, after: u32, cost: Option<f64>) -> Job {
    let at = start + Duration::from_secs(60) * after;
    let row = json!({
        "id": id, "group": id, "kind": "implementation", "team": "ENG", "runner": "ci", "issue": issue(0),
        "repo": {"owner": "acme", "name": "shop"}, "dispatchNumber": 1, "branch": "b", "callbacks": true,
        "minutes": 90, "state": {"status": "completed"}, "reservedAt": at, "dispatchedAt": at, "finishedAt": at,
        "usage": {"costUsd": cost},
    });
    serde_json::from_value(row).unwrap()
}

/// A run of a time when the clock was ten years ahead does not stop the hourly counters.
#[tokio::test]
async fn hours_count_again_after_a_clock_that_was_ahead_is_corrected() {
    let store = Store::in_memory().unwrap();
    let put = async |job: Job| store.write(move |tx| jobs::put(tx, &job)).await.unwrap();
    let ahead = minute(0) + Duration::from_secs(10 * 365 * 24 * 3600);
    put(short_job("01J0", minute(0), 0, Some(1.0))).await;
    put(short_job("01J1", ahead, 0, Some(1.0))).await;
    put(short_job("01J2", minute(0), 60, Some(1.0))).await;
    // The first hour was removed. What arrives late for it is not subtracted from what is not there.
    put(short_job("01J0", minute(0), 0, Some(3.0))).await;
    let (first, last) = (Hour::of(minute(0)), Hour::of(minute(60)));
    let counted = store.read(|tx| job_counts::hours(tx, CountedRuns::Real, first, last, None));
    let expected = RunCounts {
        started: 1,
        completed: 1,
        priced: 1,
        cost: 1_000_000,
        ..RunCounts::default()
    };
    let late = RunCounts {
        started: 0,
        cost: 3_000_000,
        ..expected
    };
    let counted: Vec<(u64, RunCounts)> = counted.unwrap().into_iter().collect();
    assert_eq!(counted, [(first.0, late), (last.0, expected)]);
}
