//! Webhooks of the ticketing systems: authentication, deduplication, and immediate but limited polls.

use std::time::{Duration, Instant};

use domain::crypto::signature::sign;
use domain::issue::System;
use domain::mapping::Mapping;
use domain::secret::Secret;
use domain::time::Timestamp;
use fake_vendors::DeliveredWebhook;
use serde_json::{Value, json};
use store::{Store, decisions, mappings};

use crate::api_server::{ACCESS_CODE, ApiResponse, ApiServer, CLOCK_START, send_checked};
use crate::jira::{create_ticket, mapping_for_repo};
use crate::test_env::{EngineMode, TestEnv, TestEnvOptions, mapping};
use crate::test_ticket::{SYSTEMS, TestTicket, example_key, example_team, mapping_for};

const LINEAR: &str = "/api/ticketing-a/webhook";
const JIRA: &str = "/api/ticketing-b/webhook";
const GITHUB: &str = "/api/repo-host/webhook";
const SECRET: &str = "the sender's own secret";

/// Poll interval of an hour in milliseconds, longer than any test.
const HOUR_MS: &str = "3600000";

fn signature(body: &str) -> String {
    sign(body.as_bytes(), &Secret::new(SECRET))
}

fn linear_event(team: &str, at: Timestamp) -> String {
    json!({"action": "update", "type": "Issue", "webhookTimestamp": at.as_millis(),
        "data": {"identifier": format!("{team}-1"), "team": {"key": team}}})
    .to_string()
}

fn jira_event(repo: &str) -> String {
    json!({"webhookEvent": "jira:issue_updated",
        "issue": {"key": "OPS-1", "fields": {"customfield_10051": {"value": repo}}}})
    .to_string()
}

async fn server() -> ApiServer {
    let flags = [
        "--admin-access-code",
        ACCESS_CODE,
        "--linear-webhook-secret",
        SECRET,
        "--jira-webhook-secret",
        SECRET,
    ];
    let server = ApiServer::start_with(&flags, Store::in_memory().unwrap()).await;
    let put = server.store.write(|tx| {
        mappings::put(tx, &mapping())?;
        mappings::put(tx, &mapping_for_repo("OPS", "shop"))
    });
    put.await.unwrap();
    server
}

async fn post(server: &ApiServer, path: &str, body: &str, headers: &[(&str, &str)]) -> ApiResponse {
    let mut request = server.request("POST", path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    send_checked(request.body(body.to_owned())).await
}

async fn linear(server: &ApiServer, body: &str, id: &str) -> Value {
    let signed = signature(body);
    let headers = [
        ("linear-signature", signed.as_str()),
        ("linear-delivery", id),
    ];
    let response = post(server, LINEAR, body, &headers).await;
    assert_eq!(response.status, 200, "{response:?}");
    response.body
}

async fn jira(server: &ApiServer, body: &str, id: &str) -> Value {
    let signed = format!("sha256={}", signature(body));
    let headers = [
        ("x-hub-signature", signed.as_str()),
        ("x-atlassian-webhook-identifier", id),
    ];
    let response = post(server, JIRA, body, &headers).await;
    assert_eq!(response.status, 200, "{response:?}");
    response.body
}

#[tokio::test]
async fn invalid_requests_are_rejected_in_a_fixed_order() {
    let off = ApiServer::start_with(
        &["--admin-access-code", ACCESS_CODE],
        Store::in_memory().unwrap(),
    )
    .await;
    let server = server().await;
    let event = linear_event("ENG", CLOCK_START);
    for (path, header) in [(LINEAR, "linear-signature"), (JIRA, "x-hub-signature")] {
        let response = post(&off, path, "{", &[]).await;
        assert_eq!(response.error(), (503, "Webhook not configured"));
        let get = send_checked(server.request("GET", path)).await;
        assert_eq!(get.error(), (405, "Method not allowed"));
        let right = signature(&event);
        let others = sign(event.as_bytes(), &Secret::new("another"));
        for wrong in ["", "sha256=", &right[..62], &others, "zz"] {
            let response = post(&server, path, &event, &[(header, wrong)]).await;
            assert_eq!(response.error(), (401, "Invalid signature"), "{wrong}");
        }
        assert_eq!(post(&server, path, &event, &[]).await.status, 401);
        for body in ["{", "", "[]", "7"] {
            let response = post(&server, path, body, &[(header, &signature(body))]).await;
            assert_eq!(response.error(), (400, "Invalid JSON payload"), "{body}");
        }
    }
    // A replayed Linear delivery is rejected if its timestamp differs by more than a minute.
    let minute = Duration::from_secs(60);
    let moment = Duration::from_millis(1);
    for at in [
        CLOCK_START - minute - moment,
        CLOCK_START + minute + moment,
        Timestamp::EPOCH,
    ] {
        let body = linear_event("ENG", at);
        let headers = [("linear-signature", signature(&body))];
        let headers = [(headers[0].0, headers[0].1.as_str())];
        let response = post(&server, LINEAR, &body, &headers).await;
        assert_eq!(response.error(), (401, "Invalid signature"), "{at}");
    }
    let timeless = r#"{"type": "Issue", "webhookTimestamp": "now"}"#;
    let response = post(
        &server,
        LINEAR,
        timeless,
        &[("linear-signature", &signature(timeless))],
    )
    .await;
    assert_eq!(response.status, 401);
}

#[tokio::test]
async fn duplicate_and_irrelevant_deliveries_are_ignored() {
    let server = server().await;
    let duplicate = json!({"ignored": true, "reason": "duplicate"});
    for at in [
        CLOCK_START,
        CLOCK_START - Duration::from_secs(60),
        CLOCK_START + Duration::from_secs(60),
    ] {
        let body = linear_event("ENG", at);
        let id = format!("delivery of {at}");
        assert_eq!(linear(&server, &body, &id).await, json!({"queued": true}));
        assert_eq!(linear(&server, &body, &id).await, duplicate);
    }
    // Delivery ids are separate per system. Without an id, a delivery is identified by its bytes.
    assert_eq!(
        jira(&server, &jira_event("shop"), "1").await,
        json!({"queued": true})
    );
    assert_eq!(
        linear(&server, &linear_event("ENG", CLOCK_START), "1").await,
        json!({"queued": true})
    );
    assert_eq!(jira(&server, &jira_event("shop"), "1").await, duplicate);
    assert_eq!(
        jira(&server, &jira_event("shop"), "").await,
        json!({"queued": true})
    );
    assert_eq!(jira(&server, &jira_event("shop"), "").await, duplicate);
    let long = "x".repeat(5_000);
    assert_eq!(jira(&server, &jira_event("shop"), &long).await, duplicate);

    let ignored = json!({"ignored": true});
    assert_eq!(
        linear(&server, &linear_event("WEB", CLOCK_START), "2").await,
        ignored
    );
    let comment = json!({"type": "Comment", "webhookTimestamp": CLOCK_START.as_millis()});
    assert_eq!(linear(&server, &comment.to_string(), "3").await, ignored);
    assert_eq!(jira(&server, &jira_event("elsewhere"), "4").await, ignored);
    let comment = json!({"webhookEvent": "comment_created"}).to_string();
    assert_eq!(jira(&server, &comment, "5").await, ignored);
}

/// Options with a poll interval of an hour, and with the secrets of webhooks.
fn options(mappings: Vec<Mapping>) -> TestEnvOptions {
    TestEnvOptions {
        mappings,
        omitted_flags: &["--poll-interval-ms"],
        extra_flags: vec![
            ("--poll-interval-ms", HOUR_MS.to_owned()),
            ("--linear-webhook-secret", SECRET.to_owned()),
            ("--jira-webhook-secret", SECRET.to_owned()),
            ("--scm-webhook-secret", SECRET.to_owned()),
        ],
        ..TestEnvOptions::default()
    }
}

/// Sends the events of all ticketing systems to the service from now on.
fn set_webhooks(env: &TestEnv) {
    let address = |path: &str| format!("{}{path}", env.address);
    env.vendors.linear().set_webhook(&address(LINEAR), SECRET);
    env.vendors.jira().set_webhook(&address(JIRA), SECRET);
    env.repo().set_webhook(&address(GITHUB), SECRET);
}

async fn env_with_webhooks() -> TestEnv {
    let mappings = vec![mapping(), mapping_for_repo("OPS", "shop")];
    let env = TestEnv::with_options(options(mappings)).await;
    env.wait_until("the first poll", || env.app.live.heartbeats.polls() > 0)
        .await;
    set_webhooks(&env);
    env
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_dispatches_a_trigger_before_the_next_poll() {
    let env = env_with_webhooks().await;
    let dispatched = || env.repo().runs().len();
    env.vendors.linear().issue("ENG-1").title("Add the feature");
    let labelled_at = Instant::now();
    env.vendors
        .linear()
        .issue("ENG-1")
        .add_label("Agent-Implement");
    env.wait_until("it is dispatched", || dispatched() == 1)
        .await;
    let took = labelled_at.elapsed();
    println!("Linear: trigger to dispatch, as GitHub sees it: {took:?}");
    // A busy machine may need a minute; the poll alone would take an hour.
    assert!(took < Duration::from_secs(60), "{took:?}");
    env.wait_for_job_end("ENG-1").await;

    let ticket = create_ticket(&env, "OPS-1", "Add another feature");
    let labelled_at = Instant::now();
    ticket.status("Ready");
    env.wait_until("it is dispatched", || dispatched() == 2)
        .await;
    let took = labelled_at.elapsed();
    println!("Jira: trigger to dispatch, as GitHub sees it: {took:?}");
    assert!(took < Duration::from_secs(60), "{took:?}");
    env.wait_for_job_end("OPS-1").await;
    let events = env
        .vendors
        .linear()
        .webhooks()
        .deliveries()
        .into_iter()
        .chain(env.vendors.jira().webhooks().deliveries());
    for event in events {
        let (answer, payload) = (&event.response_body, &event.payload);
        assert_eq!(event.status, Some(200), "{answer} for {payload}");
    }
    env.finish().await;
}

/// Nothing but the decision to wait is known about a ticket that never had a run.
#[tokio::test(flavor = "multi_thread")]
async fn the_poll_after_a_comment_reads_it_also_on_a_ticket_that_only_waits() {
    for system in SYSTEMS {
        let mapping = Mapping {
            max_in_progress: 0,
            ..mapping_for(system, example_team(system))
        };
        let env = TestEnv::with_options(TestEnvOptions {
            engine: EngineMode::manual(),
            ..options(vec![mapping])
        })
        .await;
        let key = example_key(system, 7);
        let ticket = TestTicket::create(&env, system, &key, "Add a cart");
        ticket.trigger();
        env.tick().await;
        let decided = env
            .store
            .read(|tx| decisions::get(tx, &key.as_str().into()));
        let message = decided.unwrap().unwrap().current().unwrap().message.clone();

        set_webhooks(&env);
        ticket.comment("/agent-implement status");
        let deliveries = || match system {
            System::Linear => env.vendors.linear().webhooks().deliveries(),
            System::Jira => env.vendors.jira().webhooks().deliveries(),
            System::GitHub => env.vendors.github().webhooks().deliveries(),
        };
        env.wait_until("the event is delivered", || !deliveries().is_empty())
            .await;
        let accepted = |event: &DeliveredWebhook| event.response_body.contains("queued");
        assert!(deliveries().iter().any(accepted), "{:?}", deliveries());
        env.tick().await;
        let answer = message.trim_end_matches('.');
        assert_eq!(ticket.count(answer), 1, "{:?}", ticket.comments());
        env.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_burst_of_events_causes_few_polls() {
    let env = env_with_webhooks().await;
    let before = env.app.live.heartbeats.polls();
    let began = Instant::now();
    let client = reqwest::Client::new();
    let post = |delivery: &str| {
        let body = linear_event("ENG", env.app.core.now());
        let request = client
            .post(format!("{}{LINEAR}", env.address))
            .header("linear-signature", signature(&body))
            .header("linear-delivery", delivery);
        send_checked(request.body(body))
    };
    let posts = (0..100).map(|number| post(&format!("burst {number}")));
    let answers = futures_util::future::join_all(posts).await;
    let queued = |answer: &ApiResponse| answer.body == json!({"queued": true});
    assert!(answers.iter().all(queued));
    let burst = began.elapsed();
    env.wait_until("a poll after the burst", || {
        env.app.live.heartbeats.polls() > before
    })
    .await;
    // Polls of the burst are complete once a later event has caused a poll.
    let after_burst = env.app.live.heartbeats.polls();
    assert!(queued(&post("the last").await));
    env.wait_until("a poll after the last", || {
        env.app.live.heartbeats.polls() > after_burst
    })
    .await;
    let polls = env.app.live.heartbeats.polls() - before;
    println!("101 events, 100 of them in {burst:?}: {polls} polls");
    // Five at once, then one per second, and the last.
    assert!(polls <= 6 + burst.as_secs(), "{polls} polls in {burst:?}");
    env.finish().await;
}

/// The rest of a quota is kept for the regular poll and for what the service writes to tickets.
#[tokio::test(flavor = "multi_thread")]
async fn events_wait_while_little_of_a_quota_is_left() {
    let env = env_with_webhooks().await;
    let polls = || env.app.live.heartbeats.polls();
    let client = reqwest::Client::new();
    let post = async |delivery: &str| {
        let body = linear_event("ENG", env.app.core.now());
        let request = client
            .post(format!("{}{LINEAR}", env.address))
            .header("linear-signature", signature(&body))
            .header("linear-delivery", delivery);
        let answer = send_checked(request.body(body)).await;
        assert_eq!(answer.body, json!({"queued": true}));
    };
    let linear = env.vendors.linear();
    linear.set_points(100_000, 49_000);
    let before = polls();
    post("the first").await;
    env.wait_until("a poll, whose answer has the quota", || polls() > before)
        .await;
    let status = env.admin_get("/api/admin/config-status").await;
    let quotas = status["quota"].as_array().unwrap();
    let points = quotas
        .iter()
        .find(|one| one["account"] == "Linear complexity");
    let left = points.unwrap()["remaining"].as_u64().unwrap();
    assert!((1..49_000).contains(&left), "{status:#}");

    post("the second").await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(polls(), before + 1);
    linear.set_points(100_000, 100_000);
    env.admin_post("/api/poll", json!({})).await;
    env.wait_until("the requested poll and that of the event", || {
        polls() == before + 3
    })
    .await;
    env.finish().await;
}
