use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Value, json};

use domain::job::JobKind;
use domain::job_filter::StatusFilter;

use super::*;
use crate::Store;

const BEGIN: u64 = 1_790_000_000_000;

fn id(number: usize) -> String {
    let at = BEGIN + number as u64 * 60_000;
    Ulid::from_parts(at, number as u128).to_string()
}

fn state(class: StateClass) -> Value {
    match class {
        StateClass::Active => json!({"status": "running"}),
        StateClass::Completed => json!({"status": "completed"}),
        StateClass::ReviewFailed => json!({"status": "review_failed", "unresolved": []}),
        StateClass::Failed => json!({"status": "failed", "code": null, "reason": "r"}),
        StateClass::Cancelled => json!({"status": "failed", "code": "CANCELLED", "reason": "r"}),
        StateClass::TimedOut => json!({"status": "timed_out", "reason": "timed_out"}),
    }
}

/// Job with this number, reserved one minute after the one before. Every fourth is a shadow run.
fn job(number: usize, class: StateClass, kind: JobKind, team: &str) -> Job {
    let at = Timestamp::from_millis(BEGIN + number as u64 * 60_000);
    let end = at + Duration::from_secs(600) * (number % 5) as u32;
    let row = json!({
        "finishedAt": (class != StateClass::Active).then_some(end), "shadow": number.is_multiple_of(4),
        "id": id(number), "group": id(number), "kind": kind, "team": team, "runner": "ci",
        "issue": {"system": "A", "id": format!("issue-{}", number % 5), "key": format!("ENG-{}", number % 5),
            "title": format!("Title number {}", number % 7), "url": "u"},
        "repo": {"owner": "acme", "name": "shop"}, "dispatchNumber": 1, "branch": "b",
        "callbacks": true, "minutes": 90, "state": state(class), "reservedAt": at,
    });
    serde_json::from_value(row).unwrap()
}

async fn put_all(store: &Store, jobs: Vec<Job>) {
    let put = store.write(move |tx| jobs.iter().try_for_each(|job| jobs::put(tx, job)));
    put.await.unwrap();
}

/// Pages of `limit` jobs up to the last one.
fn all_pages(store: &Store, filter: &JobFilter, limit: usize) -> Vec<Vec<Job>> {
    let (mut pages, mut before) = (Vec::new(), None);
    loop {
        let found = store
            .read(|tx| page(tx, filter, before.as_ref(), limit))
            .unwrap();
        pages.push(found.jobs);
        match found.next {
            Some(next) => before = Some(next),
            None => return pages,
        }
    }
}

fn filters() -> impl Strategy<Value = JobFilter> {
    let statuses = prop::collection::vec(
        prop::sample::select(vec![
            "unknown",
            "running",
            "active",
            "completed",
            "review_failed",
            "failed",
            "cancelled",
            "timed_out",
        ])
        .prop_map(|name| StatusFilter::parse(name).unwrap()),
        0..3,
    );
    let kinds = prop::collection::vec(prop::sample::select(JobKind::ALL.to_vec()), 0..3);
    let team = prop::option::of(prop::sample::select(vec!["ENG", "OPS", "NO"]));
    let issue = prop::option::weighted(0.2, prop::sample::select(vec!["issue-2", "eng-3", "X-1"]));
    let text = prop::option::weighted(0.2, prop::sample::select(vec!["NUMBER 3", "shop", "zzz"]));
    let minute = prop::option::weighted(0.3, 0_u64..60);
    let end = prop::option::weighted(0.2, 0_u64..100);
    let at = |minute: Option<u64>| {
        minute.map(|minute| Timestamp::from_millis(BEGIN) + Duration::from_secs(60) * minute as u32)
    };
    (
        statuses,
        any::<bool>(),
        kinds,
        team,
        issue,
        text,
        (minute.clone(), minute),
        (end.clone(), end),
        any::<bool>(),
    )
        .prop_map(
            move |(
                statuses,
                excludes_cancelled,
                kinds,
                team,
                issue,
                text,
                reserved,
                ended,
                excludes_shadow,
            )| {
                JobFilter {
                    statuses,
                    excludes_cancelled,
                    excludes_shadow,
                    kinds,
                    team: team.map(Into::into),
                    issue: issue.map(str::to_owned),
                    text: text.map(str::to_owned),
                    from: at(reserved.0),
                    to: at(reserved.1),
                    ended_from: at(ended.0),
                    ended_to: at(ended.1),
                }
            },
        )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn pages_hold_every_matching_job_once_newest_first(
        rows in prop::collection::vec((0..6_usize, 0..6_usize, 0..4_usize, any::<bool>()), 0..60),
        filters in prop::collection::vec(filters(), 12),
        limit in 1_usize..9,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let store = Store::in_memory().unwrap();
            let job_of = |number: usize, class: usize, kind: usize, is_eng: bool| {
                let team = if is_eng { "ENG" } else { "OPS" };
                job(number, StateClass::ALL[class], JobKind::ALL[kind], team)
            };
            let rows: Vec<_> = rows.into_iter().enumerate().collect();
            let first = rows.iter().map(|(number, (class, _, kind, eng))| job_of(*number, *class, *kind, *eng));
            put_all(&store, first.collect()).await;
            // A state that changes moves the job in the indexes.
            let last: Vec<Job> = rows
                .iter()
                .map(|(number, (_, class, kind, eng))| job_of(*number, *class, *kind, *eng))
                .collect();
            put_all(&store, last.clone()).await;
            for filter in filters {
                let expected: Vec<&Job> = last.iter().rev().filter(|job| filter.matches(job)).collect();
                let pages = all_pages(&store, &filter, limit);
                let found: Vec<&Job> = pages.iter().flatten().collect();
                assert_eq!(found, expected, "{filter:?}");
                let (last_page, full) = pages.split_last().unwrap();
                assert!(full.iter().all(|page| page.len() == limit), "{filter:?}");
                assert!(last_page.len() <= limit);
            }
        });
    }
}

#[tokio::test]
async fn a_text_that_nothing_contains_ends_a_page_after_the_limit_of_reads() {
    let store = Store::in_memory().unwrap();
    let count = MAX_SCANNED + 10;
    let jobs =
        (0..count).map(|number| job(number, StateClass::Completed, JobKind::Planning, "ENG"));
    put_all(&store, jobs.collect()).await;
    let filter = JobFilter {
        text: Some("absent".to_owned()),
        ..JobFilter::default()
    };
    let first = store.read(|tx| page(tx, &filter, None, 500)).unwrap();
    let expected = JobPage {
        jobs: Vec::new(),
        next: Some(JobId::new(id(10))),
    };
    assert_eq!(first, expected);
    let last = store
        .read(|tx| page(tx, &filter, first.next.as_ref(), 500))
        .unwrap();
    assert_eq!(last.next, None);
}

#[tokio::test]
async fn a_filter_for_rare_jobs_reads_only_those() {
    let store = Store::in_memory().unwrap();
    let mut jobs: Vec<Job> = (0..MAX_SCANNED * 2)
        .map(|number| {
            job(
                number,
                StateClass::Completed,
                JobKind::Implementation,
                "ENG",
            )
        })
        .collect();
    jobs[3] = job(3, StateClass::TimedOut, JobKind::GapFill, "OPS");
    let rare = jobs[3].clone();
    put_all(&store, jobs).await;
    let filter = |name: &str| JobFilter {
        statuses: vec![StatusFilter::parse(name).unwrap()],
        ..JobFilter::default()
    };
    let of_kind = JobFilter {
        kinds: vec![JobKind::GapFill],
        ..JobFilter::default()
    };
    let of_team = JobFilter {
        team: Some("OPS".into()),
        ..JobFilter::default()
    };
    for filter in [filter("timed_out"), of_kind, of_team] {
        let found = store.read(|tx| page(tx, &filter, None, 500)).unwrap();
        let expected = JobPage {
            jobs: vec![rare.clone()],
            next: None,
        };
        assert_eq!(found, expected, "{filter:?}");
    }
    let named = store.read(|tx| of_issue_named(tx, "eng-3")).unwrap();
    let by_id = store.read(|tx| of_issue_named(tx, "issue-3")).unwrap();
    assert_eq!(named, by_id);
    assert_eq!(named.first(), Some(&rare), "oldest first");
}

#[tokio::test]
async fn active_jobs_are_found_by_issue_kind_and_team() {
    let store = Store::in_memory().unwrap();
    let classes = [
        StateClass::Completed,
        StateClass::Active,
        StateClass::Failed,
    ];
    let kinds = [JobKind::Implementation, JobKind::Conflict];
    let jobs: Vec<Job> = (0..30)
        .map(|number| {
            let team = ["ENG", "OPS"][number / 3 % 2];
            job(number, classes[number % 3], kinds[number % 2], team)
        })
        .collect();
    let mut moved = job(31, StateClass::Active, JobKind::Conflict, "ENG");
    moved.issue.key = IssueKey::from("OPS-7");
    let mut same_key = job(32, StateClass::Active, JobKind::Conflict, "ENG");
    same_key.issue.id = IssueId::from("another");
    same_key.issue.key = IssueKey::from("eng-1");
    let issue = jobs[1].issue.clone();
    put_all(&store, [jobs, vec![moved, same_key]].concat()).await;

    let ids = |jobs: Vec<Job>| jobs.into_iter().map(|job| job.id).collect::<Vec<_>>();
    let of_issue = store.read(|tx| active_of_issue(tx, &issue)).unwrap();
    let expected = [1, 16, 31, 32].map(|number| JobId::new(id(number)));
    assert_eq!(ids(of_issue), expected);
    let of_kind = store.read(|tx| active_of_kind(tx, JobKind::Conflict));
    let expected = [32, 31, 25, 19, 13, 7, 1].map(|number| JobId::new(id(number)));
    assert_eq!(ids(of_kind.unwrap()), expected);
    let of_team = store.read(|tx| active_of_team(tx, &TeamKey::from("OPS")));
    let expected = [28, 22, 16, 10, 4].map(|number| JobId::new(id(number)));
    assert_eq!(ids(of_team.unwrap()), expected);
}
