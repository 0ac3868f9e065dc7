//! What an operator does about what could not be delivered: retry, or drop.

use std::time::{Duration, Instant};

use domain::effect::{Effect, PullCommentStyle};
use domain::job::JobState;
use domain::stage::Stage;
use engine::ShutdownSignal;
use fake_vendors::{FakeService, InjectedFault};
use reqwest::Method;
use serde_json::{Value, json};
use store::outbox::{self, FailedAttempt};

use crate::jira::{create_ticket, mapping_for_repo};
use crate::test_env::{EngineMode, TIMEOUT, TestEnv, TestEnvOptions, mapping};

async fn owed(world: &TestEnv, list: &str) -> Vec<Value> {
    let all = world.admin_get("/api/outbox").await;
    all[list].as_array().unwrap().clone()
}

async fn retry(world: &TestEnv, id: &Value) -> (u16, Value) {
    let path = format!("/api/outbox/{}/retry", id.as_str().unwrap());
    world.admin_request(Method::POST, &path, None).await
}

async fn remove(world: &TestEnv, id: &Value) -> (u16, Value) {
    let path = format!("/api/outbox/{}", id.as_str().unwrap());
    world.admin_request(Method::DELETE, &path, None).await
}

async fn deliver(world: &TestEnv) {
    engine::outbox_worker::drain(&world.app).await.unwrap();
}

/// A ticket that says `words` to its people, once this is delivered.
async fn push(world: &TestEnv, effects: Vec<Effect>) {
    let now = world.app.now();
    let pushed = world.app.store.write(move |tx| {
        effects
            .iter()
            .try_for_each(|effect| outbox::push(tx, effect, now).map(drop))
    });
    pushed.await.unwrap();
}

fn issue(world: &TestEnv) -> domain::issue::IssueRef {
    world.jobs("ENG-1").pop().unwrap().issue
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_given_up_is_tried_again_before_the_rest_of_its_lane_and_said_once() {
    let world = TestEnv::with_manual_engine([mapping()]).await;
    let linear = world.vendors.faults(FakeService::Linear);
    world.create_labelled_issue("ENG-1", "Add the feature");
    world.tick().await;
    let comment = |body: &str| Effect::TicketComment {
        issue: issue(&world),
        body: body.to_owned(),
    };
    // It arrives, its answer is lost, and then the system is out for longer than we try.
    push(&world, vec![comment("First.")]).await;
    linear.inject_on_match("First.", InjectedFault::DropResponse);
    deliver(&world).await;
    linear.set_outage(true);
    world.advance_clock(Duration::from_secs(25 * 3600));
    deliver(&world).await;
    let dead = owed(&world, "dead").await;
    assert_eq!(
        (dead.len(), &dead[0]["name"]),
        (1, &json!("comment on ticket")),
        "{dead:?}"
    );
    push(&world, vec![comment("Second."), comment("Third.")]).await;
    deliver(&world).await;
    let pending = owed(&world, "pending").await;
    assert_eq!(
        (pending.len(), pending[0]["attempts"].as_u64()),
        (2, Some(1))
    );

    let (status, told) = retry(&world, &dead[0]["id"]).await;
    assert_eq!((status, told), (200, json!({"retried": true})));
    let lane: Vec<Value> = owed(&world, "pending").await;
    assert_eq!(
        (lane.len(), &lane[0]["id"]),
        (3, &dead[0]["id"]),
        "it comes first"
    );
    // Still out: it is not given up again at once, however old it is.
    deliver(&world).await;
    assert_eq!(owed(&world, "dead").await, [] as [Value; 0]);
    linear.clear();
    // What waits for its time need not.
    let waiting = owed(&world, "pending").await;
    assert!(waiting[0]["dueAt"].as_str() > Some(world.app.now().to_string().as_str()));
    assert_eq!(retry(&world, &dead[0]["id"]).await.0, 200);
    deliver(&world).await;
    // The others have their own times.
    world.advance_clock(Duration::from_secs(10));
    deliver(&world).await;
    let said = world.comments("ENG-1");
    let said: Vec<&str> = said
        .iter()
        .map(String::as_str)
        .filter(|one| one.ends_with("d.") || *one == "First.")
        .collect();
    assert_eq!(said, ["First.", "Second.", "Third."], "each once, in order");

    for nobody in ["0", "99999", "x", "-1", "18446744073709551616"] {
        let id = json!(nobody);
        let unknown = json!({"error": "effect not found"});
        assert_eq!(retry(&world, &id).await, (404, unknown), "{nobody}");
        assert_eq!(
            remove(&world, &id).await,
            (404, json!({"deleted": false})),
            "{nobody}"
        );
    }
    assert_eq!(
        world
            .admin_request(Method::GET, "/api/outbox/1", None)
            .await
            .0,
        405
    );
    assert_eq!(
        world
            .admin_request(Method::GET, "/api/outbox/1/retry", None)
            .await
            .0,
        405
    );
    world.stop().await;
}

/// The vendors may still be at a request whose sender is dead: it is no less on its way for that.
#[tokio::test(flavor = "multi_thread")]
async fn a_comment_that_is_on_its_way_when_the_service_dies_comes_once() {
    const SLOW: Duration = Duration::from_millis(1_500);
    let world = TestEnv::with_options(TestEnvOptions {
        mappings: vec![mapping_for_repo("OPS", "shop")],
        engine: EngineMode::manual(),
        fake_runs: true,
        ..TestEnvOptions::default()
    })
    .await;
    let ticket = create_ticket(&world, "OPS-1", "Add the feature").status("Ready");
    world.tick().await;
    let job = world.jobs("OPS-1").pop().unwrap();
    world
        .repo()
        .commit("topic", &[("a.txt", "A")], "Begin")
        .unwrap();
    let number = world.repo().open_pull("topic", "mia", "Topic", "");
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
    push(&world, effects).await;
    let town = &world.vendors;
    let vendors =
        [FakeService::Jira, FakeService::GitHub].map(|vendor| town.faults(vendor).clone());
    for vendor in &vendors {
        vendor.inject_on_match("On its way.", InjectedFault::DelayRequest(SLOW));
    }

    let asleep = world.stop_service().await;
    let service = asleep.start_process(&TestEnvOptions::default());
    let began = Instant::now();
    while vendors.iter().any(|vendor| vendor.pending() > 0) {
        assert!(began.elapsed() < TIMEOUT, "the comments are not sent");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    service.kill();
    let died = Instant::now();
    let world = asleep
        .start_service(TestEnvOptions {
            mappings: Vec::new(),
            ..TestEnvOptions::default()
        })
        .await;
    world.wait_for_empty_outbox().await;
    world
        .wait_until("what was on its way has come", || died.elapsed() > SLOW * 2)
        .await;
    assert_eq!(ticket.comments(), ["On its way."]);
    let comments = world.repo().comments(number);
    assert_eq!(comments.len(), 1, "{comments:#?}");
    world.stop().await;
}

/// A world with a ticket at work that is to be told something.
async fn owing_a_comment(body: &str) -> TestEnv {
    let world = TestEnv::with_manual_engine([mapping()]).await;
    world.create_labelled_issue("ENG-1", "Add the feature");
    world.tick().await;
    let (issue, body) = (issue(&world), body.to_owned());
    push(&world, vec![Effect::TicketComment { issue, body }]).await;
    world
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_owed_waits_for_a_credential_that_is_no_longer_taken() {
    let world = owing_a_comment("Told in the end.").await;
    let linear = world.vendors.faults(FakeService::Linear);
    linear.inject_on_match("Told in the end.", InjectedFault::ErrorStatus(401));
    deliver(&world).await;
    assert_eq!(owed(&world, "dead").await, [] as [Value; 0]);
    let waiting = owed(&world, "pending").await;
    assert_eq!(waiting[0]["attempts"].as_u64(), Some(1), "{waiting:?}");
    world.advance_clock(Duration::from_secs(60));
    deliver(&world).await;
    assert!(
        world
            .comments("ENG-1")
            .contains(&"Told in the end.".to_owned())
    );
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_try_is_no_later_than_the_moment_of_giving_up() {
    let world = owing_a_comment("Never told.").await;
    let day = Duration::from_secs(24 * 3600);
    let given_up_at = world.app.now() + day;
    world.vendors.faults(FakeService::Linear).set_outage(true);
    // Less than the shortest wait between two tries.
    let moment = Duration::from_millis(10);
    world.advance_clock(day - moment);
    deliver(&world).await;
    let waiting = owed(&world, "pending").await;
    assert_eq!(waiting[0]["dueAt"], json!(given_up_at), "{waiting:?}");
    world.advance_clock(moment);
    deliver(&world).await;
    let dead = owed(&world, "dead").await;
    assert_eq!(dead[0]["attempts"].as_u64(), Some(2), "{dead:?}");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_clock_that_was_set_back_put_hours_away_is_tried_at_the_start() {
    let world = owing_a_comment("Told all the same.").await;
    let due_at = world.app.now() + Duration::from_secs(5 * 3600);
    let put_off = world.app.store.write(move |tx| {
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
    deliver(&world).await;
    let told = || {
        let comments = world.comments("ENG-1");
        comments.contains(&"Told all the same.".to_owned())
    };
    assert!(!told(), "it is not its time");
    let (hand, stop) = ShutdownSignal::new();
    let delivering = tokio::spawn(engine::outbox_worker::run(world.app.clone(), stop));
    world.wait_until("it is told", told).await;
    drop(hand);
    delivering.await.unwrap();
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_later_run_has_set_is_not_undone_and_what_is_dropped_is_told() {
    let world = TestEnv::with_manual_engine([mapping()]).await;
    let github = world.vendors.faults(FakeService::GitHub);
    let linear = world.vendors.faults(FakeService::Linear);
    world.create_labelled_issue("ENG-1", "Add the feature");
    // The start waits for a host that is out; an operator has enough of it.
    github.set_outage(true);
    world.tick().await;
    let start = owed(&world, "pending").await;
    assert_eq!(start[0]["name"], "start run", "{start:?}");
    assert_eq!(
        remove(&world, &start[0]["id"]).await,
        (200, json!({"deleted": true}))
    );
    let job = world.jobs("ENG-1").pop().unwrap();
    let JobState::Failed { reason, .. } = &job.state else {
        panic!("{job:?}");
    };
    assert!(
        reason.ends_with("it was dropped by an operator"),
        "{reason}"
    );
    github.clear();

    // The marker of that end is refused and given up; then the ticket runs again.
    for _ in 0..2 {
        linear.inject_on_match("issueRemoveLabel", InjectedFault::ErrorStatus(403));
    }
    deliver(&world).await;
    let dead = owed(&world, "dead").await;
    assert_eq!(dead[0]["name"], "move marker", "{dead:?}");
    world.advance_clock(Duration::from_secs(60));
    world.tick().await;
    assert_eq!(world.jobs("ENG-1").len(), 2, "its label was still there");
    let stage = world
        .vendors
        .linear()
        .issue("ENG-1")
        .snapshot()
        .unwrap()
        .labels;
    let (status, told) = retry(&world, &dead[0]["id"]).await;
    assert_eq!(status, 409, "{told}");
    assert!(
        told["error"].as_str().unwrap().contains("only be dropped"),
        "{told}"
    );
    deliver(&world).await;
    let now = world
        .vendors
        .linear()
        .issue("ENG-1")
        .snapshot()
        .unwrap()
        .labels;
    assert_eq!(now, stage);
    assert_eq!(remove(&world, &dead[0]["id"]).await.0, 200);
    assert_eq!(remove(&world, &dead[0]["id"]).await.0, 404);

    // What is being tried cannot be dropped under it.
    let issue = issue(&world);
    let stage = Stage::Implementing;
    push(&world, vec![Effect::SetMarker { issue, stage }]).await;
    let claimed = world.app.store.write(|tx| {
        let all = outbox::pending(tx)?;
        let one = &all[0];
        outbox::claim(tx, &one.queue_key, one.seq, one.due_at)
    });
    let id = json!(claimed.await.unwrap().unwrap().seq.to_string());
    assert_eq!(remove(&world, &id).await.0, 409);
    assert_eq!(retry(&world, &id).await.0, 200, "it is under way already");
    world.stop().await;
}
