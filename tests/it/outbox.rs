//! Outbox: retries, dead entries, and retry and drop by an operator.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use domain::effect::{Effect, PullCommentStyle};
use domain::job::JobState;
use domain::stage::Stage;
use domain::time::Timestamp;
use engine::ShutdownSignal;
use engine::clock::Clock;
use fake_vendors::{FakeService, InjectedFault};
use reqwest::Method;
use serde_json::{Value, json};
use store::outbox::{self, FailedAttempt};

use crate::jira::{create_ticket, mapping_for_repo};
use crate::test_env::{EngineMode, TIMEOUT, TestEnv, TestEnvOptions, mapping};

async fn entries(env: &TestEnv, list: &str) -> Vec<Value> {
    let all = env.admin_get("/api/outbox").await;
    all[list].as_array().unwrap().clone()
}

async fn retry(env: &TestEnv, id: &Value) -> (u16, Value) {
    let path = format!("/api/outbox/{}/retry", id.as_str().unwrap());
    env.admin_request(Method::POST, &path, None).await
}

async fn remove(env: &TestEnv, id: &Value) -> (u16, Value) {
    let path = format!("/api/outbox/{}", id.as_str().unwrap());
    env.admin_request(Method::DELETE, &path, None).await
}

async fn drain(env: &TestEnv) {
    engine::outbox_worker::drain(&env.app).await.unwrap();
}

/// Adds these effects to the outbox.
async fn push(env: &TestEnv, effects: Vec<Effect>) {
    let now = env.app.core.now();
    let pushed = env.store.write(move |tx| {
        effects
            .iter()
            .try_for_each(|effect| outbox::push(tx, effect, now).map(drop))
    });
    pushed.await.unwrap();
}

fn issue(env: &TestEnv) -> domain::issue::IssueRef {
    env.jobs("ENG-1").pop().unwrap().issue
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retried_dead_entry_runs_before_its_queue_and_posts_once() {
    let env = TestEnv::with_manual_engine([mapping()]).await;
    let linear = env.vendors.faults(FakeService::Linear);
    env.create_labelled_issue("ENG-1", "Add the feature");
    env.tick().await;
    let comment = |body: &str| Effect::TicketComment {
        issue: issue(&env),
        body: body.to_owned(),
    };
    // The comment arrives, its response is lost, and the outage outlasts the retries.
    push(&env, vec![comment("First.")]).await;
    linear.inject_on_match("First.", InjectedFault::DropResponse);
    drain(&env).await;
    linear.set_outage(true);
    env.advance_clock(Duration::from_secs(25 * 3600));
    drain(&env).await;
    let dead = entries(&env, "dead").await;
    assert_eq!(
        (dead.len(), &dead[0]["name"]),
        (1, &json!("comment on ticket")),
        "{dead:?}"
    );
    push(&env, vec![comment("Second."), comment("Third.")]).await;
    drain(&env).await;
    let pending = entries(&env, "pending").await;
    assert_eq!(
        (pending.len(), pending[0]["attempts"].as_u64()),
        (2, Some(1))
    );

    let (status, answer) = retry(&env, &dead[0]["id"]).await;
    assert_eq!((status, answer), (200, json!({"retried": true})));
    let queue: Vec<Value> = entries(&env, "pending").await;
    assert_eq!(
        (queue.len(), &queue[0]["id"]),
        (3, &dead[0]["id"]),
        "it comes first"
    );
    // Still down: the entry is not dead at once, despite its age.
    drain(&env).await;
    assert_eq!(entries(&env, "dead").await, [] as [Value; 0]);
    linear.clear();
    // An operator can retry an entry before it is due.
    let waiting = entries(&env, "pending").await;
    assert!(waiting[0]["dueAt"].as_str() > Some(env.app.core.now().to_string().as_str()));
    assert_eq!(retry(&env, &dead[0]["id"]).await.0, 200);
    drain(&env).await;
    // The other entries have their own due times.
    env.advance_clock(Duration::from_secs(10));
    drain(&env).await;
    let comments = env.comments("ENG-1");
    let comments: Vec<&str> = comments
        .iter()
        .map(String::as_str)
        .filter(|one| one.ends_with("d.") || *one == "First.")
        .collect();
    assert_eq!(
        comments,
        ["First.", "Second.", "Third."],
        "each once, in order"
    );

    for unknown_id in ["0", "99999", "x", "-1", "18446744073709551616"] {
        let id = json!(unknown_id);
        let unknown = json!({"error": "effect not found"});
        assert_eq!(retry(&env, &id).await, (404, unknown), "{unknown_id}");
        assert_eq!(
            remove(&env, &id).await,
            (404, json!({"deleted": false})),
            "{unknown_id}"
        );
    }
    assert_eq!(
        env.admin_request(Method::GET, "/api/outbox/1", None)
            .await
            .0,
        405
    );
    assert_eq!(
        env.admin_request(Method::GET, "/api/outbox/1/retry", None)
            .await
            .0,
        405
    );
    env.stop().await;
}

/// A vendor may still process a request after its sender is killed.
#[tokio::test(flavor = "multi_thread")]
async fn a_comment_in_flight_during_a_kill_is_posted_once() {
    const SLOW: Duration = Duration::from_millis(1_500);
    let env = TestEnv::with_options(TestEnvOptions {
        mappings: vec![mapping_for_repo("OPS", "shop")],
        engine: EngineMode::manual(),
        fake_runs: true,
        ..TestEnvOptions::default()
    })
    .await;
    let ticket = create_ticket(&env, "OPS-1", "Add the feature").status("Ready");
    env.tick().await;
    let job = env.jobs("OPS-1").pop().unwrap();
    env.repo()
        .commit("topic", &[("a.txt", "A")], "Begin")
        .unwrap();
    let number = env.repo().open_pull("topic", "mia", "Topic", "");
    let body = "On its way.".to_owned();
    let effects = vec![
        Effect::TicketComment {
            issue: job.issue.clone(),
            body: body.clone(),
        },
        Effect::PullComment {
            repo: job.repo.clone(),
            number,
            style: PullCommentStyle::New,
            body,
        },
    ];
    push(&env, effects).await;
    let vendors = &env.vendors;
    let faults =
        [FakeService::Jira, FakeService::GitHub].map(|vendor| vendors.faults(vendor).clone());
    for vendor in &faults {
        vendor.inject_on_match("On its way.", InjectedFault::DelayRequest(SLOW));
    }

    let stopped = env.stop_service().await;
    let service = stopped.start_process(&TestEnvOptions::default());
    let began = Instant::now();
    while faults.iter().any(|vendor| vendor.pending() > 0) {
        assert!(began.elapsed() < TIMEOUT, "the comments are not sent");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    service.kill();
    let died = Instant::now();
    let env = stopped
        .start_service(TestEnvOptions {
            mappings: Vec::new(),
            ..TestEnvOptions::default()
        })
        .await;
    env.wait_for_empty_outbox().await;
    env.wait_until("the delayed requests have arrived", || {
        died.elapsed() > SLOW * 2
    })
    .await;
    assert_eq!(ticket.comments(), ["On its way."]);
    let comments = env.repo().comments(number);
    assert_eq!(comments.len(), 1, "{comments:#?}");
    env.stop().await;
}

/// Environment with a dispatched ticket and a pending comment.
async fn env_with_pending_comment(body: &str) -> TestEnv {
    let env = TestEnv::with_manual_engine([mapping()]).await;
    env.create_labelled_issue("ENG-1", "Add the feature");
    env.tick().await;
    let (issue, body) = (issue(&env), body.to_owned());
    push(&env, vec![Effect::TicketComment { issue, body }]).await;
    env
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rejected_credential_is_retried() {
    let env = env_with_pending_comment("Posted in the end.").await;
    let linear = env.vendors.faults(FakeService::Linear);
    linear.inject_on_match("Posted in the end.", InjectedFault::ErrorStatus(401));
    drain(&env).await;
    assert_eq!(entries(&env, "dead").await, [] as [Value; 0]);
    let waiting = entries(&env, "pending").await;
    assert_eq!(waiting[0]["attempts"].as_u64(), Some(1), "{waiting:?}");
    env.advance_clock(Duration::from_secs(60));
    drain(&env).await;
    assert!(
        env.comments("ENG-1")
            .contains(&"Posted in the end.".to_owned())
    );
    env.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_attempt_is_not_later_than_the_deadline() {
    let env = env_with_pending_comment("Never posted.").await;
    let day = Duration::from_secs(24 * 3600);
    let deadline = env.app.core.now() + day;
    env.vendors.faults(FakeService::Linear).set_outage(true);
    // Less than the shortest retry delay.
    let moment = Duration::from_millis(10);
    env.advance_clock(day - moment);
    drain(&env).await;
    let waiting = entries(&env, "pending").await;
    assert_eq!(waiting[0]["dueAt"], json!(deadline), "{waiting:?}");
    env.advance_clock(moment);
    drain(&env).await;
    let dead = entries(&env, "dead").await;
    assert_eq!(dead[0]["attempts"].as_u64(), Some(2), "{dead:?}");
    env.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_delayed_by_a_clock_step_are_rescheduled_at_startup() {
    let env = env_with_pending_comment("Posted after all.").await;
    let due_at = env.app.core.now() + Duration::from_secs(5 * 3600);
    put_off(&env, due_at).await;
    drain(&env).await;
    assert!(!is_posted(&env), "the entry is not due");
    let (stop, signal) = ShutdownSignal::new();
    let worker = tokio::spawn(engine::outbox_worker::run(env.app.clone(), signal));
    env.wait_until("the comment is posted", || is_posted(&env))
        .await;
    drop(stop);
    worker.await.unwrap();
    env.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_delayed_by_a_clock_step_are_rescheduled_while_the_worker_runs() {
    let env = env_with_pending_comment("Posted after all.").await;
    let Clock::Manual(millis) = &env.app.core.clock else {
        panic!("the clock is manual");
    };
    put_off(&env, env.app.core.now() + Duration::from_secs(60)).await;
    let other = Effect::WaitingComment {
        issue: issue(&env),
        name: "other".to_owned(),
        body: Some("Posted at once.".to_owned()),
    };
    push(&env, vec![other]).await;
    let (stop, signal) = ShutdownSignal::new();
    let worker = tokio::spawn(engine::outbox_worker::run(env.app.clone(), signal));
    env.wait_until("the worker has read the outbox", || {
        env.comments("ENG-1")
            .contains(&"Posted at once.".to_owned())
    })
    .await;
    assert!(!is_posted(&env), "the entry is not due");
    millis.fetch_sub(5 * 3_600_000, Ordering::SeqCst);
    env.store.outbox_notifier().notify_one();
    env.wait_until("the comment is posted", || is_posted(&env))
        .await;
    drop(stop);
    worker.await.unwrap();
    env.stop().await;
}

/// Records a failed attempt of the only entry; the next one is due at this time.
async fn put_off(env: &TestEnv, due_at: Timestamp) {
    let put_off = env.store.write(move |tx| {
        let error = "no answer".to_owned();
        let failed = FailedAttempt {
            ended_at: due_at,
            due_at,
            is_outcome_unknown: false,
            error,
        };
        let all = outbox::pending(tx)?;
        outbox::schedule_retry(tx, &all[0], &failed)
    });
    put_off.await.unwrap();
}

fn is_posted(env: &TestEnv) -> bool {
    let comments = env.comments("ENG-1");
    comments.contains(&"Posted after all.".to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stale_marker_cannot_be_retried_and_a_dropped_start_fails_the_job() {
    let env = TestEnv::with_manual_engine([mapping()]).await;
    let github = env.vendors.faults(FakeService::GitHub);
    let linear = env.vendors.faults(FakeService::Linear);
    env.create_labelled_issue("ENG-1", "Add the feature");
    // The start waits for GitHub, which is down; an operator drops it.
    github.set_outage(true);
    env.tick().await;
    let start = entries(&env, "pending").await;
    assert_eq!(start[0]["name"], "start run", "{start:?}");
    assert_eq!(
        remove(&env, &start[0]["id"]).await,
        (200, json!({"deleted": true}))
    );
    let job = env.jobs("ENG-1").pop().unwrap();
    let JobState::Failed { reason, .. } = &job.state else {
        panic!("{job:?}");
    };
    assert!(
        reason.ends_with("it was dropped by an operator"),
        "{reason}"
    );
    github.clear();

    // The marker of that end is refused and becomes dead; then the ticket runs again.
    for _ in 0..2 {
        linear.inject_on_match("issueRemoveLabel", InjectedFault::ErrorStatus(403));
    }
    drain(&env).await;
    let dead = entries(&env, "dead").await;
    assert_eq!(dead[0]["name"], "move marker", "{dead:?}");
    env.advance_clock(Duration::from_secs(60));
    env.tick().await;
    assert_eq!(env.jobs("ENG-1").len(), 2, "its label was still there");
    let stage = env
        .vendors
        .linear()
        .issue("ENG-1")
        .snapshot()
        .unwrap()
        .labels;
    let (status, answer) = retry(&env, &dead[0]["id"]).await;
    assert_eq!(status, 409, "{answer}");
    assert!(
        answer["error"]
            .as_str()
            .unwrap()
            .contains("only be dropped"),
        "{answer}"
    );
    drain(&env).await;
    let now = env
        .vendors
        .linear()
        .issue("ENG-1")
        .snapshot()
        .unwrap()
        .labels;
    assert_eq!(now, stage);
    assert_eq!(remove(&env, &dead[0]["id"]).await.0, 200);
    assert_eq!(remove(&env, &dead[0]["id"]).await.0, 404);

    // An entry that is being performed cannot be dropped.
    let issue = issue(&env);
    let stage = Stage::Implementing;
    push(&env, vec![Effect::SetMarker { issue, stage }]).await;
    let claimed = env.store.write(|tx| {
        let all = outbox::pending(tx)?;
        let one = &all[0];
        outbox::claim(tx, &one.queue_key, one.seq, one.due_at)
    });
    let id = json!(claimed.await.unwrap().unwrap().seq.to_string());
    assert_eq!(remove(&env, &id).await.0, 409);
    assert_eq!(
        retry(&env, &id).await.0,
        200,
        "it is being performed already"
    );
    env.stop().await;
}
