use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Value, json};

use domain::feedback::PullRequestStatus;
use domain::ids::Repo;
use domain::job::JobState;
use domain::scoreboard::{Hour, RunCounts};

use super::*;
use crate::job_counts::CountedRuns;
use crate::tables::JOBS;
use crate::{Store, jobs};

/// Start of the histories: in the middle of a month.
const BEGIN: &str = "2026-09-17T22:10:00Z";

/// Length of the histories, in minutes: ends of months and years are within.
const MINUTES: u32 = 130 * 24 * 60;

fn minute(minute: u32) -> Timestamp {
    Timestamp::parse(BEGIN).unwrap() + Duration::from_secs(60) * minute
}

/// Course of a job.
#[derive(Debug, Clone)]
struct Course {
    kind: JobKind,
    end: &'static str,
    team: &'static str,
    agent: Option<&'static str>,
    labels: Vec<&'static str>,
    pull: Option<u64>,
    cost: Option<f64>,
    is_shadow: bool,
    /// Minutes of the request, and until dispatch and end.
    trigger: u32,
    dispatch: u32,
    end_after: u32,
    /// Whether usage and agent arrive after the end.
    is_late: bool,
}

fn courses() -> impl Strategy<Value = Course> {
    let ends = vec![
        "completed",
        "review",
        "failed",
        "no-changes",
        "cancelled",
        "timed-out",
        "active",
    ];
    let facts = (
        prop::sample::select(JobKind::ALL.to_vec()),
        prop::sample::select(ends),
        prop::sample::select(vec!["ENG", "OPS"]),
        prop::option::of(prop::sample::select(vec!["claude", "codex"])),
        prop::sample::subsequence(vec!["bug", "ui", "api"], 0..3),
        prop::option::of(1_u64..4),
        prop::option::of((0_u32..500).prop_map(|cents| f64::from(cents) / 100.0)),
        prop::bool::weighted(0.15),
    );
    let times = (0..MINUTES, 0_u32..3000, 1_u32..5000, any::<bool>());
    (facts, times).prop_map(
        |(
            (kind, end, team, agent, labels, pull, cost, is_shadow),
            (trigger, dispatch, end_after, is_late),
        )| Course {
            kind,
            end,
            team,
            agent,
            labels,
            pull,
            cost,
            is_shadow,
            trigger,
            dispatch,
            end_after,
            is_late,
        },
    )
}

impl Course {
    /// Rows of the job, one after the other.
    fn rows(&self, number: usize) -> Vec<Job> {
        let id = format!("01J{number:04}");
        let at = |after: u32| minute(self.trigger + after);
        let row = json!({
            "id": id, "group": id, "kind": self.kind, "team": self.team, "runner": "ci", "shadow": self.is_shadow,
            "issue": {"system": "A", "id": "i", "key": "ENG-1", "title": "t", "url": "u"},
            "repo": {"owner": "acme", "name": "shop"}, "dispatchNumber": 1, "branch": "b",
            "callbacks": true, "minutes": 90, "state": {"status": "unknown"}, "labels": self.labels,
            "reservedAt": at(0), "triggeredAt": at(0),
        });
        let reserved: Job = serde_json::from_value(row).unwrap();
        let mut dispatched = reserved.clone();
        dispatched.state = JobState::Dispatched;
        dispatched.dispatched_at = Some(at(self.dispatch));
        // Work on an open pull request names it from the begin.
        let is_feedback = matches!(self.kind, JobKind::GapFill | JobKind::FollowUp);
        let pull: Option<Value> = self
            .pull
            .map(|number| json!({"number": number, "url": "u"}));
        let pull = serde_json::from_value(json!(pull)).unwrap();
        let mut rows = vec![reserved, dispatched];
        if is_feedback {
            rows.iter_mut().for_each(|row| row.pull.clone_from(&pull));
        }
        let Some(state) = self.state() else {
            return rows;
        };
        let mut ended = rows[1].clone();
        ended.state = state;
        ended.pull = pull.filter(|_| self.kind != JobKind::Planning);
        ended.finished_at = Some(at(self.dispatch + self.end_after));
        let mut reported = ended.clone();
        reported.agent = self.agent.map(str::to_owned);
        reported.model = self.agent.map(|agent| format!("{agent}-1"));
        reported.usage = self
            .cost
            .map(|cost| serde_json::from_value(json!({"costUsd": cost})).unwrap());
        if self.is_late {
            rows.push(ended);
        }
        rows.push(reported);
        rows
    }

    fn state(&self) -> Option<JobState> {
        let state = match self.end {
            "completed" => json!({"status": "completed"}),
            "review" => json!({"status": "review_failed", "unresolved": []}),
            "failed" => json!({"status": "failed", "code": null, "reason": "r"}),
            "no-changes" => json!({"status": "failed", "code": "NO_CHANGES", "reason": "r"}),
            "cancelled" => json!({"status": "failed", "code": "CANCELLED", "reason": "r"}),
            "timed-out" => json!({"status": "timed_out", "reason": "run_not_found"}),
            _ => return None,
        };
        Some(serde_json::from_value(state).unwrap())
    }
}

/// Change of a pull request that the host reports.
#[derive(Debug, Clone)]
enum HostReport {
    Closed,
    Merged(u32),
    Reopened,
    Opened(u32),
    Commits(u32),
}

fn host_reports() -> impl Strategy<Value = (u64, HostReport)> {
    let report = prop_oneof![
        Just(HostReport::Closed),
        (0..MINUTES).prop_map(HostReport::Merged),
        Just(HostReport::Reopened),
        (0..MINUTES).prop_map(HostReport::Opened),
        (0_u32..9).prop_map(HostReport::Commits),
    ];
    (1_u64..4, report)
}

impl HostReport {
    fn apply(&self, record: &mut PullRequestRecord) {
        match self {
            HostReport::Closed => record.status = PullRequestStatus::Closed,
            HostReport::Reopened => record.status = PullRequestStatus::Open,
            HostReport::Merged(at) => {
                record.status = PullRequestStatus::Merged {
                    commit: "c".to_owned(),
                    at: minute(*at),
                }
            }
            HostReport::Opened(at) => record.created_at = Some(minute(*at)),
            HostReport::Commits(count) => record.human_commits = Some(*count),
        }
    }
}

#[derive(Debug, Clone)]
enum Event {
    /// The next row of the job with this number.
    Job(usize),
    Host(u64, HostReport),
}

/// Jobs, and the events of a history in a random order.
fn histories() -> impl Strategy<Value = (Vec<Course>, Vec<Event>)> {
    let parts = (
        prop::collection::vec(courses(), 0..14),
        prop::collection::vec(host_reports(), 0..14),
    );
    parts.prop_flat_map(|(courses, reports)| {
        let rows = courses.iter().enumerate();
        let of_jobs =
            rows.flat_map(|(number, course)| vec![Event::Job(number); course.rows(number).len()]);
        let of_host = reports
            .into_iter()
            .map(|(pull, report)| Event::Host(pull, report));
        let events: Vec<Event> = of_jobs.chain(of_host).collect();
        (Just(courses), Just(events).prop_shuffle())
    })
}

fn pull_id(number: u64) -> PullRequestId {
    PullRequestId {
        repo: Repo::new("acme", "shop"),
        number,
    }
}

/// Applies a history, one commit per event.
async fn play(store: &Store, courses: &[Course], events: Vec<Event>) {
    let mut rows: Vec<_> = courses
        .iter()
        .enumerate()
        .map(|(number, course)| course.rows(number).into_iter())
        .collect();
    for event in events {
        let job = match &event {
            Event::Job(number) => rows[*number].next(),
            Event::Host(..) => None,
        };
        let put = store.write(move |tx| match &event {
            Event::Job(_) => job.iter().try_for_each(|job| jobs::put(tx, job)),
            Event::Host(number, report) => {
                let pull = pull_id(*number);
                let mut record = pull_feedback::get_pull(tx, &pull)?;
                report.apply(&mut record);
                pull_feedback::put_pull(tx, &pull, &record)
            }
        });
        put.await.unwrap();
    }
}

type RawRows = (Vec<Job>, Vec<(u64, PullRequestRecord)>);

fn raw_rows(store: &Store) -> RawRows {
    store
        .read(|tx| {
            let jobs = JOBS.collect(tx, .., |_, job| job)?;
            let pulls = PULLS.collect(tx, .., |(_, number), record| (number, record))?;
            Ok((jobs, pulls))
        })
        .unwrap()
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
    minutes_to_pull: Vec<u128>,
    minutes_to_merge: Vec<u128>,
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
    let (jobs, pulls) = raw;
    let mut rows: BTreeMap<String, Recount> = BTreeMap::new();
    let is_in_range = |at: Timestamp| at >= from.start() && at < to.start();
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
    for (number, record) in pulls {
        let names_it = |job: &&Job| {
            job.pull.as_ref().is_some_and(|pull| pull.number == *number) && !job.shadow
        };
        let of_pull: Vec<&Job> = jobs.iter().filter(names_it).collect();
        let mut openers = of_pull
            .iter()
            .filter(|job| job.kind == JobKind::Implementation);
        let Some(opener) = openers.next() else {
            assert_eq!(record.opening, None);
            continue;
        };
        let opening = record.opening.as_ref().unwrap();
        assert_eq!(opening.job, opener.id, "the first run opened it");
        let opened_at = record.created_at.unwrap_or(opening.at);
        if !is_in_range(opened_at) {
            continue;
        }
        let is_feedback =
            |job: &&&Job| job.kind != JobKind::Implementation && job.dispatched_at.is_some();
        let rounds = of_pull.iter().filter(is_feedback).count() as u64;
        let since = |at: Timestamp| at.since(opener.triggered_at.unwrap()).as_secs().into();
        for key in keys(dimension, opener) {
            let row = rows.entry(key).or_default();
            row.pulls += 1;
            row.rounds += rounds;
            row.read_pulls += u64::from(record.human_commits.is_some());
            row.human_commits += u64::from(record.human_commits.unwrap_or_default());
            row.minutes_to_pull.push(since(opened_at));
            match &record.status {
                PullRequestStatus::Merged { at, .. } => {
                    row.merged += 1;
                    row.minutes_to_merge.push(since(*at));
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
    rows
}

/// Whether the percentiles of a histogram are those of these durations, within its error.
fn has_percentiles(histogram: &domain::scoreboard::DurationHistogram, exact: &[u128]) -> bool {
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
        assert!(
            has_percentiles(&counts.to_pull, &recount.minutes_to_pull),
            "{key:?}, {context}"
        );
        assert!(
            has_percentiles(&counts.to_merge, &recount.minutes_to_merge),
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

fn assert_scoreboard(store: &Store, raw: &RawRows, ranges: &[(u64, u64)], now: Timestamp) {
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

fn assert_summary(store: &Store, jobs: &[Job]) {
    let count = |at_of: &dyn Fn(Timestamp) -> u64, is_shadow: bool| {
        let mut buckets: BTreeMap<u64, RunCounts> = BTreeMap::new();
        for job in jobs.iter().filter(|job| job.shadow == is_shadow) {
            if let Some(at) = job.dispatched_at {
                buckets.entry(at_of(at)).or_default().started += 1;
            }
            let Some(at) = job.finished_at else { continue };
            let row = buckets.entry(at_of(at)).or_default();
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
    };
    for (runs, is_shadow) in [(CountedRuns::Real, false), (CountedRuns::Shadow, true)] {
        let days = store
            .read(|tx| job_counts::days(tx, runs, Day(0), Day(u64::MAX), None))
            .unwrap();
        assert_eq!(days, count(&|at| Day::of(at).0, is_shadow));
        // Hourly counters are kept for the last days only.
        let expected = count(&|at| Hour::of(at).0, is_shadow);
        let Some(latest) = expected.keys().next_back().copied() else {
            continue;
        };
        let last_day = Hour(latest - 23)..=Hour(latest);
        let hours = store
            .read(|tx| job_counts::hours(tx, runs, *last_day.start(), *last_day.end(), None))
            .unwrap();
        let expected: BTreeMap<u64, RunCounts> = expected
            .into_iter()
            .filter(|(hour, _)| *hour + 23 >= latest)
            .collect();
        assert_eq!(hours, expected);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn counters_equal_a_recount_of_the_rows(
        (courses, events) in histories(),
        ranges in prop::collection::vec((0_u64..140, 1_u64..140), 4),
        now in 0..MINUTES * 2,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (store, now) = (Store::in_memory().unwrap(), minute(now));
            play(&store, &courses, events).await;
            let raw = raw_rows(&store);
            let ranges = [&[(0, 200)][..], &ranges].concat();
            assert_scoreboard(&store, &raw, &ranges, now);
            assert_summary(&store, &raw.0);
            // A store of the previous version has the same rows and no counters.
            let old = Store::in_memory().unwrap();
            let rows = raw.clone();
            let migrate = old.write(move |tx| {
                for job in &rows.0 {
                    JOBS.put(tx, job.id.as_str(), job)?;
                }
                for (number, record) in &rows.1 {
                    let before = PullRequestRecord { opening: None, review_rounds: 0, ..record.clone() };
                    PULLS.put(tx, ("acme/shop", *number), &before)?;
                }
                build(tx)
            });
            migrate.await.unwrap();
            assert_scoreboard(&old, &raw_rows(&old), &ranges, now);
            assert_summary(&old, &raw.0);
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
