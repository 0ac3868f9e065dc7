//! Numbers over time: summary, scoreboard and monthly report.

use std::time::Duration;

use domain::feedback::{PullRequestId, PullRequestStatus};
use domain::ids::Repo;
use domain::job::{Job, JobKind, JobState, PullRequestRef};
use domain::report::{FailureCode, Usage};
use engine::pull_requests::reconcile;
use fake_vendors::scripted_agent::{Script, ScriptStep};
use serde_json::{Value, json};
use store::{jobs, pull_feedback};
use ulid::Ulid;

use crate::api_server::{ApiServer, CLOCK_START, dispatched_job};
use crate::follow_up;
use crate::process::{exit_and_output, run};
use crate::test_env::TestEnv;

async fn get(server: &ApiServer, path: &str) -> Value {
    let token = server.sign_in().await;
    let response = server.send("GET", path, &token, None).await;
    assert_eq!(response.status, 200, "{path}: {response:?}");
    response.body
}

async fn put_all(server: &ApiServer, jobs: Vec<Job>) {
    let put = server
        .store
        .write(move |tx| jobs.iter().try_for_each(|job| jobs::put(tx, job)));
    put.await.unwrap();
}

/// Job with this end, so many minutes before the start of the clock.
fn ended(id: &str, state: JobState, minutes_ago: u32, cost: Option<f64>) -> Job {
    let at = CLOCK_START - Duration::from_secs(60) * minutes_ago;
    let mut job = dispatched_job(id, JobKind::Implementation);
    job.issue.id = id.into();
    job.reserved_at = at;
    job.dispatched_at = Some(at);
    job.finished_at = Some(at);
    job.triggered_at = Some(at);
    job.state = state;
    job.usage = cost.map(|cost| Usage {
        cost_usd: Some(cost),
        ..Usage::default()
    });
    job
}

fn failed(code: Option<FailureCode>) -> JobState {
    JobState::Failed {
        code,
        reason: "r".into(),
    }
}

#[tokio::test]
async fn the_summary_counts_every_run_of_its_window() {
    let server = ApiServer::start().await;
    let mut all: Vec<Job> = (0..511)
        .map(|number| {
            ended(
                &format!("01F{number:04}"),
                failed(None),
                number * 2,
                Some(0.5),
            )
        })
        .collect();
    let other_state = |number: u32| match number {
        0 => failed(Some(FailureCode::Cancelled)),
        1 => JobState::ReviewFailed { unresolved: vec![] },
        _ => JobState::Completed,
    };
    for number in 0..10 {
        let mut job = ended(&format!("01O{number}"), other_state(number), 3, None);
        job.team = "OPS".into();
        if number == 9 {
            // Reserved before the 24 hours in which it ended.
            job.reserved_at = job.reserved_at - Duration::from_secs(30 * 60 * 60);
        }
        all.push(job);
    }
    // Before the 24 hours, and a shadow run.
    all.push(ended("01X", JobState::Completed, 25 * 60, Some(1.0)));
    let mut shadow = ended("01Y", failed(None), 1, Some(9.0));
    shadow.shadow = true;
    all.push(shadow);
    let mut running = dispatched_job("01Z", JobKind::Planning);
    running.state = JobState::Running;
    all.push(running);
    for (number, job) in (0..).zip(&mut all) {
        job.id = Ulid::from_parts(job.reserved_at.as_millis(), number)
            .to_string()
            .as_str()
            .into();
    }
    put_all(&server, all).await;

    let day = get(&server, "/api/summary?window=24h").await;
    let ended =
        json!({"completed": 8, "review_failed": 1, "failed": 511, "timed_out": 0, "cancelled": 1});
    assert_eq!((&day["ended"], &day["running"]), (&ended, &json!(1)));
    assert_eq!(day["costUsd"], 255.5);
    assert_eq!(day["shadow"]["ended"]["failed"], 1);
    assert_eq!(day["shadow"]["costUsd"], 9.0);
    assert_eq!(day["waiting"], json!({"total": 0, "byReason": {}}));
    assert_eq!(
        (&day["from"], &day["to"]),
        (
            &json!("2027-01-14T09:00:00.000Z"),
            &json!("2027-01-15T09:00:00.000Z")
        )
    );
    // The dispatch log lists what each number counts.
    let listed = async |status: &str, from: &Value, to: &Value| {
        let (from, to) = (from.as_str().unwrap(), to.as_str().unwrap());
        let path = format!("/api/log?status={status}&shadow=false&endedFrom={from}&endedTo={to}");
        get(&server, &path).await.as_array().unwrap().len()
    };
    for (status, count) in [("completed", 8), ("cancelled", 1), ("review_failed", 1)] {
        assert_eq!(listed(status, &day["from"], &day["to"]).await, count);
    }
    let series = day["series"].as_array().unwrap();
    assert_eq!(series.len(), 24);
    let hour = listed(
        "failed&cancelled=false",
        &series[22]["at"],
        &series[23]["at"],
    );
    assert_eq!(json!(hour.await), series[22]["failed"]);
    assert_eq!(series[0]["at"], "2027-01-14T09:00:00.000Z");
    assert_eq!(
        (&series[0]["failed"], &series[0]["costUsd"]),
        (&json!(0), &json!(0.0)),
        "zeros are kept"
    );
    assert_eq!(series[22]["failed"], 30, "one every two minutes");
    let sum = |name: &str| {
        series
            .iter()
            .map(|bucket| bucket[name].as_u64().unwrap())
            .sum::<u64>()
    };
    assert_eq!(
        (
            sum("failed"),
            sum("completed"),
            sum("cancelled"),
            sum("review_failed")
        ),
        (511, 8, 1, 1)
    );
    assert_eq!(sum("started"), 522, "the running one, too");

    let ops = get(&server, "/api/summary?team=OPS").await;
    assert_eq!(
        (&ops["ended"]["failed"], &ops["ended"]["completed"]),
        (&json!(0), &json!(8))
    );
    assert_eq!(
        (&ops["costUsd"], &ops["running"]),
        (&Value::Null, &json!(0)),
        "no run has reported a cost"
    );
    for (window, buckets) in [("7d", 7), ("30d", 30)] {
        let shown = get(&server, &format!("/api/summary?window={window}")).await;
        assert_eq!(shown["ended"]["completed"], 9);
        let series = shown["series"].as_array().unwrap();
        assert_eq!(series.len(), buckets);
        assert_eq!(series[buckets - 1]["at"], "2027-01-15T00:00:00.000Z");
    }
}

#[tokio::test]
async fn the_scoreboard_follows_its_pull_requests() {
    let server = ApiServer::start().await;
    let day = 24 * 60;
    let pull = |number: u64| {
        PullRequestRef::from_url(&format!("https://github.com/acme/shop/pull/{number}"))
    };
    let opened = |number: u64, minutes_ago: u32, agent: &str| {
        let mut job = ended(
            &format!("01A{number}"),
            JobState::Completed,
            minutes_ago,
            Some(2.0),
        );
        job.pull = pull(number);
        job.triggered_at = Some(job.reserved_at - Duration::from_secs(60 * 60));
        job.agent = Some(agent.to_owned());
        job
    };
    let mut follow_up = ended(
        "01B1",
        failed(Some(FailureCode::VerifyFailed)),
        day,
        Some(1.0),
    );
    follow_up.kind = JobKind::FollowUp;
    follow_up.pull = pull(1);
    follow_up.agent = Some("claude".into());
    let all = vec![
        opened(1, 10 * day, "claude"),
        opened(2, 10 * day, "claude"),
        opened(3, 9 * day, "codex"),
        opened(4, day, "codex"),
        follow_up,
        ended("01C1", failed(Some(FailureCode::Cancelled)), day, None),
    ];
    put_all(&server, all).await;
    let merged_at = CLOCK_START - Duration::from_secs(60) * (9 * day + 60);
    let set = |number: u64, status: PullRequestStatus, commits: Option<u32>| {
        let id = PullRequestId {
            repo: Repo::new("acme", "shop"),
            number,
        };
        server.store.write(move |tx| {
            let mut record = pull_feedback::get_pull(tx, &id)?;
            record.status = status.clone();
            record.human_commits = commits;
            pull_feedback::put_pull(tx, &id, &record)
        })
    };
    let merged = PullRequestStatus::Merged {
        commit: "c".into(),
        at: merged_at,
    };
    set(1, merged, Some(3)).await.unwrap();
    set(2, PullRequestStatus::Closed, Some(0)).await.unwrap();

    let board = get(&server, "/api/scoreboard?by=agent").await;
    assert_eq!(
        (&board["by"], &board["to"]),
        (&json!("agent"), &json!("2027-01-16T00:00:00.000Z"))
    );
    let claude = &board["rows"][0];
    assert_eq!(claude["key"], "claude");
    for (name, expected) in [
        ("runs", json!(3)),
        ("pullRequests", json!(2)),
        ("merged", json!(1)),
        ("closed", json!(1)),
        ("mergedShare", json!(0.5)),
        ("reviewRounds", json!(0.5)),
        ("costUsd", json!(5.0)),
        ("costPerMergedUsd", json!(5.0)),
        ("humanCommitsAfter", json!(1.5)),
        ("failuresByReason", json!({"VERIFY_FAILED": 1})),
    ] {
        assert_eq!(claude[name], expected, "{name}");
    }
    let hours = |row: &Value, name: &str| row[name]["p95"].as_f64().unwrap();
    assert!(
        (hours(claude, "hoursToPullRequest") - 1.0).abs() <= 0.05,
        "{claude}"
    );
    assert!(
        (hours(claude, "hoursToMerge") - 24.0).abs() <= 1.1,
        "{claude}"
    );
    let codex = &board["rows"][1];
    assert_eq!(
        (&codex["open"], &codex["staleOpen"], &codex["mergedShare"]),
        (&json!(2), &json!(1), &json!(0.0))
    );
    assert_eq!(
        (&codex["hoursToMerge"], &codex["costPerMergedUsd"]),
        (&Value::Null, &Value::Null)
    );
    assert_eq!(board["rows"][2]["key"], "unknown");
    let total = &board["total"];
    assert_eq!(
        (
            &total["runs"],
            &total["pullRequests"],
            &total["mergedShare"]
        ),
        (&json!(6), &json!(4), &json!(0.3333))
    );

    // Reopened: no longer closed.
    set(2, PullRequestStatus::Open, Some(0)).await.unwrap();
    let shown = get(
        &server,
        "/api/scoreboard?by=kind&from=2027-01-05&to=2027-01-06T00:00:00Z",
    )
    .await;
    let row = &shown["rows"][0];
    assert_eq!(
        (&row["key"], &row["closed"], &row["staleOpen"]),
        (&json!("implementation"), &json!(0), &json!(1))
    );
    assert_eq!(row["runs"], 2, "only the runs of that day");

    let token = server.sign_in().await;
    for (path, expected) in [
        ("summary?window=1y", "window must be 24h, 7d or 30d"),
        ("summary?window=", "window must be 24h, 7d or 30d"),
        (
            "scoreboard?by=colour",
            "by must be team, agent, model, kind or label",
        ),
        (
            "scoreboard?from=monday",
            "from must be a date (2026-11-30) or an RFC 3339 time",
        ),
        (
            "scoreboard?to=2026-02-30",
            "to must be a date (2026-11-30) or an RFC 3339 time",
        ),
        (
            "scoreboard?from=2026-11-02&to=2026-11-02",
            "from must be before to",
        ),
        (
            "scoreboard?from=2025-01-01&to=2026-01-03",
            "from and to must be at most 366 days apart",
        ),
        (
            "scoreboard?to=%2B200000-01-01T00:00:00Z",
            "to must be a date (2026-11-30) or an RFC 3339 time",
        ),
    ] {
        let response = server
            .send("GET", &format!("/api/{path}"), &token, None)
            .await;
        assert_eq!(response.error(), (400, expected), "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_real_run_counts_with_its_agent_its_commits_and_its_merge() {
    let env = TestEnv::with_options(follow_up::options()).await;
    let steps = [
        ScriptStep::write("a.txt", "a\n"),
        ScriptStep::message("I wrote a."),
    ];
    env.set_agent_script("ENG-1", Script::new().pass(steps));
    env.create_labelled_issue("ENG-1", "Add the feature");
    env.vendors.linear().issue("ENG-1").add_label("checkout");
    let has_ended = || env.jobs("ENG-1").last().is_some_and(|job| !job.is_active());
    env.tick_until("the pull request is open", has_ended).await;
    env.tick().await;
    let job = env.jobs("ENG-1").pop().unwrap();
    let names = (job.agent.as_deref(), job.model.as_deref());
    assert_eq!(names, (Some("claude"), Some("claude-opus-4-8")));
    assert_eq!(job.labels, ["checkout"], "without those of the service");

    let repo = env.repo();
    let (number, branch) = (repo.pulls()[0].number, job.branch);
    for text in ["one\n", "two\n"] {
        repo.commit(&branch, &[("b.txt", text)], "By hand").unwrap();
    }
    follow_up::register_webhook(&env);
    repo.merge_pull(number).unwrap();
    env.wait_until("the merge is known", || {
        env.vendors.github().webhooks().is_idle()
    })
    .await;
    let row = async || {
        let shown = env.admin_get("/api/scoreboard?by=agent").await;
        assert_eq!(shown["rows"].as_array().unwrap().len(), 1, "{shown}");
        shown["rows"][0].clone()
    };
    let by_webhook = row().await;
    assert_eq!(
        (&by_webhook["key"], &by_webhook["merged"]),
        (&json!("claude"), &json!(1)),
        "{by_webhook}"
    );
    assert_eq!(by_webhook["humanCommitsAfter"], Value::Null);
    // The sweep reads the commits of a merged pull request once.
    reconcile::run_once(&env.app).await.unwrap();
    let swept = row().await;
    assert_eq!(
        (&swept["humanCommitsAfter"], &swept["mergedShare"]),
        (&json!(2.0), &json!(1.0)),
        "{swept}"
    );
    let before = env.vendors.requests().len();
    reconcile::run_once(&env.app).await.unwrap();
    let requests = env.vendors.requests().all().split_off(before);
    assert!(
        requests.iter().all(|one| one.method == "GET"),
        "{requests:?}"
    );

    // The report of a stopped service is that of the same numbers.
    let month = env.app.core.now().to_string()[..7].to_owned();
    let stopped = env.stop_service().await;
    let data = stopped.data_dir();
    let report = |format: &str| {
        let data = data.to_str().unwrap();
        let arguments = [
            "report",
            "--month",
            &month,
            "--format",
            format,
            "--data-dir",
            data,
        ];
        let (code, output, error) = exit_and_output(&run(&arguments));
        assert_eq!(code, 0, "{error}");
        output
    };
    assert!(
        report("md").contains("| ENG | 1 | 1 | 1 | 0 | 0 | 100 % |"),
        "{}",
        report("md")
    );
    assert!(report("csv").contains(&format!("{month},\"ENG\",1,1,1,0,0,100,")));
    let json: Value = serde_json::from_str(&report("json")).unwrap();
    assert_eq!(
        (&json["by"], &json["total"]["merged"]),
        (&json!("team"), &json!(1))
    );
    let (code, _, error) = exit_and_output(&run(&["report", "--month", "2026-13"]));
    assert_eq!(code, 2, "{error}");
    assert!(error.contains("must be YYYY-MM"), "{error}");
    stopped.vendors.stop_and_kill_runs().await;
}
