//! Pages and filters of the dispatch log.

use std::time::Duration;

use domain::job::{Job, JobKind, JobState};
use domain::report::FailureCode;
use serde_json::Value;
use store::jobs;
use ulid::Ulid;

use crate::api_server::{ApiServer, CLOCK_START, dispatched_job};

/// Stores `count` jobs, one reserved every minute. Every tenth belongs to `OPS`, every hundredth failed, and every
/// fortieth was cancelled.
async fn put_jobs(server: &ApiServer, count: u32) {
    let numbered = |number: u32| {
        let at = CLOCK_START + Duration::from_secs(60) * number;
        let id = Ulid::from_parts(at.as_millis(), u128::from(number)).to_string();
        let mut job = dispatched_job(&id, JobKind::ALL[number as usize % 4]);
        job.reserved_at = at;
        job.finished_at = Some(at + Duration::from_secs(30 * 60));
        job.shadow = number % 5 == 1;
        job.issue.id = format!("issue-{number}").as_str().into();
        job.issue.key = format!("ENG-{number}").as_str().into();
        job.issue.title = format!("Ticket of day {}", number % 7);
        if number.is_multiple_of(10) {
            job.team = "OPS".into();
        }
        let failed = |code| JobState::Failed {
            code,
            reason: "r".into(),
        };
        job.state = match number {
            number if number.is_multiple_of(100) => failed(None),
            number if number.is_multiple_of(40) => failed(Some(FailureCode::Cancelled)),
            _ => JobState::Completed,
        };
        job
    };
    let all: Vec<Job> = (0..count).map(numbered).collect();
    let put = server
        .store
        .write(move |tx| all.iter().try_for_each(|job| jobs::put(tx, job)));
    put.await.unwrap();
}

/// Issue keys of a page, and the path of the next page.
async fn page(server: &ApiServer, token: &str, path: &str) -> (Vec<String>, Option<String>) {
    let response = server.send("GET", path, token, None).await;
    assert_eq!(response.status, 200, "{path}: {response:?}");
    let rows = response.body.as_array().unwrap().iter();
    let key = |row: &Value| row["issueIdentifier"].as_str().unwrap().to_owned();
    let link = response.header("link");
    let next = link
        .strip_prefix('<')
        .and_then(|rest| rest.strip_suffix(">; rel=\"next\""));
    assert!(link.is_empty() || next.is_some(), "{link}");
    (rows.map(key).collect(), next.map(str::to_owned))
}

/// Issue keys of all pages, newest first, and the number of pages.
async fn all(server: &ApiServer, token: &str, path: &str) -> (Vec<String>, usize) {
    let (mut keys, mut next, mut pages) = (Vec::new(), Some(path.to_owned()), 0);
    while let Some(path) = next {
        let (found, after) = page(server, token, &path).await;
        keys.extend(found);
        pages += 1;
        next = after;
    }
    (keys, pages)
}

fn keys(numbers: impl DoubleEndedIterator<Item = u32>) -> Vec<String> {
    numbers
        .rev()
        .map(|number| format!("ENG-{number}"))
        .collect()
}

#[tokio::test]
async fn pages_lead_through_all_jobs_and_filters_find_rare_ones() {
    let server = ApiServer::start().await;
    put_jobs(&server, 1201).await;
    let token = server.sign_in().await;
    let (first, next) = page(&server, &token, "/api/log").await;
    assert_eq!(first, keys(701..1201), "the default is the latest 500");
    assert!(next.is_some());
    assert_eq!(all(&server, &token, "/api/log").await, (keys(0..1201), 3));
    let every = |step: usize| keys((0..1201).step_by(step));
    let rows = [
        ("status=failed&cancelled=false", every(100)),
        ("status=failed,timed_out", {
            let matching = |number: &u32| number.is_multiple_of(100) || number.is_multiple_of(40);
            let both: Vec<u32> = (0..1201).filter(matching).collect();
            keys(both.into_iter())
        }),
        ("team=OPS", every(10)),
        ("team=OPS&kind=gap-fill&status=completed", {
            let matching =
                |number: &u32| number % 20 == 10 && number % 4 == 2 && !number.is_multiple_of(100);
            let found: Vec<u32> = (0..1201).filter(matching).collect();
            keys(found.into_iter())
        }),
        ("issue=eng-77", keys(77..78)),
        ("issue=issue-77", keys(77..78)),
        (
            "q=TICKET%20of%20day%203&limit=100",
            keys((3..1201).step_by(7)),
        ),
        (
            "from=2027-01-15T08:10:00Z&to=2027-01-15T08:20:00Z",
            keys(10..20),
        ),
        (
            "endedFrom=2027-01-15T08:40:00Z&endedTo=2027-01-15T08:50:00Z",
            keys(10..20),
        ),
        ("endedTo=2027-01-15T08:35:00Z&shadow=false", {
            let found = [0, 2, 3, 4];
            keys(found.into_iter())
        }),
        (
            "endedFrom=2027-01-16T04:30:00Z&status=failed",
            keys(1200..1201),
        ),
        ("status=timed_out", vec![]),
        ("status=active", vec![]),
        ("team=NONE", vec![]),
    ];
    for (query, expected) in rows {
        for limit in ["", "&limit=7"] {
            let limit = if query.contains("limit") { "" } else { limit };
            let path = format!("/api/log?{query}{limit}");
            let (found, _) = all(&server, &token, &path).await;
            assert_eq!(found, expected, "{path}");
        }
    }
    let (_, next) = page(&server, &token, "/api/log?q=day%203&team=ENG&limit=2").await;
    let next = next.unwrap();
    assert!(
        next.contains("q=day+3") && next.contains("team=ENG") && next.contains("limit=2"),
        "{next}"
    );
}

#[tokio::test]
async fn invalid_parameters_are_named() {
    let server = ApiServer::start().await;
    let token = server.sign_in().await;
    let names = "unknown, dispatched, running, active, completed, review_failed, failed, cancelled, timed_out";
    let statuses = format!("status must be a list of {names}");
    let long = format!("q={}", "x".repeat(201));
    let rows = [
        ("limit=0", "limit must be a whole number from 1 to 500"),
        ("limit=501", "limit must be a whole number from 1 to 500"),
        ("limit=ten", "limit must be a whole number from 1 to 500"),
        ("before=", "before must be the id of a job"),
        ("before=..%2F", "before must be the id of a job"),
        ("status=done", statuses.as_str()),
        ("status=failed,", statuses.as_str()),
        (
            "kind=implementation,all",
            "kind must be a list of planning, implementation, gap-fill, follow-up, ci-fix, conflict",
        ),
        ("cancelled=no", "cancelled must be true or false"),
        ("from=yesterday", "from must be an RFC 3339 time"),
        ("to=2027-01-15", "to must be an RFC 3339 time"),
        ("shadow=0", "shadow must be true or false"),
        ("endedFrom=now", "endedFrom must be an RFC 3339 time"),
        ("endedTo=1", "endedTo must be an RFC 3339 time"),
        (long.as_str(), "q must have at most 200 characters"),
    ];
    for (query, expected) in rows {
        let path = format!("/api/log?{query}");
        let response = server.send("GET", &path, &token, None).await;
        assert_eq!(response.error(), (400, expected), "{query}");
    }
    for query in ["status=", "team=", "q=", "other=1", "q=%20"] {
        let path = format!("/api/log?{query}");
        let response = server.send("GET", &path, &token, None).await;
        assert_eq!(response.status, 200, "{query}");
    }
}
