//! Webhooks of the ticketing systems: who is believed, and that they make the poll look at once, and
//! not more often than it must.

use std::time::{Duration, Instant};

use domain::crypto::signature::sign;
use domain::secret::Secret;
use domain::time::Timestamp;
use serde_json::{Value, json};
use store::{Store, mappings};

use crate::api_server::{ACCESS_CODE, ApiResponse, ApiServer, CLOCK_START, send_checked};
use crate::jira::{create_ticket, mapping_for_repo};
use crate::test_env::{TestEnv, TestEnvOptions, mapping};

const LINEAR: &str = "/api/ticketing-a/webhook";
const JIRA: &str = "/api/ticketing-b/webhook";
const SECRET: &str = "what only the sender knows";

/// Much longer than any story takes.
const AN_HOUR: &str = "3600000";

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
    let put = server.app.store.write(|tx| {
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
    let told = post(server, LINEAR, body, &headers).await;
    assert_eq!(told.status, 200, "{told:?}");
    told.body
}

async fn jira(server: &ApiServer, body: &str, id: &str) -> Value {
    let signed = format!("sha256={}", signature(body));
    let headers = [
        ("x-hub-signature", signed.as_str()),
        ("x-atlassian-webhook-identifier", id),
    ];
    let told = post(server, JIRA, body, &headers).await;
    assert_eq!(told.status, 200, "{told:?}");
    told.body
}

#[tokio::test]
async fn what_is_wrong_is_told_in_the_order_of_the_wire() {
    let off = ApiServer::start_with(
        &["--admin-access-code", ACCESS_CODE],
        Store::in_memory().unwrap(),
    )
    .await;
    let server = server().await;
    let event = linear_event("ENG", CLOCK_START);
    for (path, header) in [(LINEAR, "linear-signature"), (JIRA, "x-hub-signature")] {
        let told = post(&off, path, "{", &[]).await;
        assert_eq!(told.error(), (503, "Webhook not configured"));
        let get = send_checked(server.request("GET", path)).await;
        assert_eq!(get.error(), (405, "Method not allowed"));
        let right = signature(&event);
        let others = sign(event.as_bytes(), &Secret::new("another"));
        for wrong in ["", "sha256=", &right[..62], &others, "zz"] {
            let told = post(&server, path, &event, &[(header, wrong)]).await;
            assert_eq!(told.error(), (401, "Invalid signature"), "{wrong}");
        }
        assert_eq!(post(&server, path, &event, &[]).await.status, 401);
        for body in ["{", "", "[]", "7"] {
            let told = post(&server, path, body, &[(header, &signature(body))]).await;
            assert_eq!(told.error(), (400, "Invalid JSON payload"), "{body}");
        }
    }
    // Signed once, and overheard: Linear says when, and a minute later it counts no more.
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
        let told = post(&server, LINEAR, &body, &headers).await;
        assert_eq!(told.error(), (401, "Invalid signature"), "{at}");
    }
    let timeless = r#"{"type": "Issue", "webhookTimestamp": "now"}"#;
    let told = post(
        &server,
        LINEAR,
        timeless,
        &[("linear-signature", &signature(timeless))],
    )
    .await;
    assert_eq!(told.status, 401);
}

#[tokio::test]
async fn a_delivery_counts_once_and_what_cannot_concern_us_not_at_all() {
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
    // The ids of the two systems are apart; without one the bytes say who it is.
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

/// A world whose poll comes once an hour, and whose ticketing systems tell what happens.
async fn told_world() -> TestEnv {
    let world = TestEnv::with_options(TestEnvOptions {
        mappings: vec![mapping(), mapping_for_repo("OPS", "shop")],
        omitted_flags: &["--poll-interval-ms"],
        extra_flags: vec![
            ("--poll-interval-ms", AN_HOUR.to_owned()),
            ("--linear-webhook-secret", SECRET.to_owned()),
            ("--jira-webhook-secret", SECRET.to_owned()),
        ],
        ..TestEnvOptions::default()
    })
    .await;
    world
        .wait_until("the first poll", || world.app.heartbeats.polls() > 0)
        .await;
    let address = |path: &str| format!("{}{path}", world.address);
    world.vendors.linear().set_webhook(&address(LINEAR), SECRET);
    world.vendors.jira().set_webhook(&address(JIRA), SECRET);
    world
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trigger_is_dispatched_at_once_although_the_poll_comes_once_an_hour() {
    let world = told_world().await;
    let dispatched = || world.repo().runs().len();
    world
        .vendors
        .linear()
        .issue("ENG-1")
        .title("Add the feature");
    let flagged = Instant::now();
    world
        .vendors
        .linear()
        .issue("ENG-1")
        .add_label("Agent-Implement");
    world
        .wait_until("it is dispatched", || dispatched() == 1)
        .await;
    let took = flagged.elapsed();
    println!("Linear: trigger to dispatch, as the host sees it: {took:?}");
    // A minute is what a busy machine may need; the poll alone would take an hour.
    assert!(took < Duration::from_secs(60), "{took:?}");
    world.wait_for_job_end("ENG-1").await;

    let ticket = create_ticket(&world, "OPS-1", "Add another feature");
    let flagged = Instant::now();
    ticket.status("Ready");
    world
        .wait_until("it is dispatched", || dispatched() == 2)
        .await;
    let took = flagged.elapsed();
    println!("Jira: trigger to dispatch, as the host sees it: {took:?}");
    assert!(took < Duration::from_secs(60), "{took:?}");
    world.wait_for_job_end("OPS-1").await;
    let events = world
        .vendors
        .linear()
        .webhook_deliveries()
        .into_iter()
        .chain(world.vendors.jira().webhook_deliveries());
    for event in events {
        let (status, answer) = event.response.unwrap();
        assert_eq!(status, 200, "{answer} for {}", event.payload);
    }
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_events_are_a_few_polls() {
    let world = told_world().await;
    let before = world.app.heartbeats.polls();
    let began = Instant::now();
    let client = reqwest::Client::new();
    let post = |delivery: &str| {
        let body = linear_event("ENG", world.app.now());
        let request = client
            .post(format!("{}{LINEAR}", world.address))
            .header("linear-signature", signature(&body))
            .header("linear-delivery", delivery);
        send_checked(request.body(body))
    };
    let posts = (0..100).map(|number| post(&format!("burst {number}")));
    let answers = futures_util::future::join_all(posts).await;
    let queued = |answer: &ApiResponse| answer.body == json!({"queued": true});
    assert!(answers.iter().all(queued));
    let burst = began.elapsed();
    world
        .wait_until("a poll after it", || world.app.heartbeats.polls() > before)
        .await;
    // What the burst still causes is over when an event after it has been polled for.
    let after_burst = world.app.heartbeats.polls();
    assert!(queued(&post("the last").await));
    world
        .wait_until("a poll after the last", || {
            world.app.heartbeats.polls() > after_burst
        })
        .await;
    let polls = world.app.heartbeats.polls() - before;
    println!("101 events, 100 of them in {burst:?}: {polls} polls");
    assert!(polls <= 3 + burst.as_secs(), "{polls} polls in {burst:?}");
    world.finish().await;
}
