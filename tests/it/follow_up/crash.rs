//! Two hundred deliveries, each sent three times in any order, and `kill -9` in the middle of them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use domain::job::JobKind;
use fake_vendors::FakeService;
use reqwest::Client;
use serde_json::{Value, json};

use super::{env_with_pending_runs, follow_up_jobs, open_pull, options};
use crate::test_env::{TIMEOUT, TestEnv};
use crate::webhooks::signature;

const PULLS: usize = 10;
const EACH: usize = 20;

/// After how many answers does the service die?
const DIES_AFTER: usize = 250;

/// What the host would send, one for each thing that was said.
fn say(world: &TestEnv, pulls: &[u64]) -> usize {
    let repo = world.repo();
    for (at, number) in pulls.iter().enumerate() {
        for one in 0..EACH {
            let words = format!("finding {at}.{one}.");
            match one {
                0 => repo.add_review(*number, "mia", "CHANGES_REQUESTED", &words),
                _ if one % 2 == 0 => repo.add_comment(*number, "mia", &format!("- [ ] {words}")),
                _ => repo.add_review_comment(*number, "mia", "a.txt", 1, &words),
            };
        }
    }
    pulls.len() * EACH
}

async fn deliver(
    client: &Client,
    address: &Mutex<String>,
    (event, id, payload): &(String, String, Value),
) -> Value {
    let body = payload.to_string();
    let began = Instant::now();
    loop {
        let url = format!("{}/api/repo-host/webhook", address.lock().unwrap());
        let request = client
            .post(url)
            .header("x-github-event", event)
            .header("x-github-delivery", id)
            .header("x-hub-signature-256", signature(body.as_bytes()))
            .body(body.clone());
        if let Ok(answer) = request.send().await
            && answer.status() == 200
        {
            return answer.json().await.unwrap();
        }
        assert!(began.elapsed() < TIMEOUT, "{event} {id} is not taken");
        // It is down; the host's owner sends again what was not taken.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_delivery_is_lost_or_counted_twice() {
    let world = env_with_pending_runs().await;
    let mut pulls = Vec::new();
    for at in 0..PULLS {
        pulls.push(open_pull(&world, &format!("ENG-{}", at + 1)).await);
    }
    // Nobody listens there; what would be sent is kept.
    world
        .repo()
        .set_webhook("http://127.0.0.1:9/nowhere", "unused");
    let count = say(&world, &pulls);
    world
        .wait_until("all is told", || {
            world.vendors.github().is_webhook_queue_empty()
        })
        .await;
    let sent = world.vendors.github().webhook_deliveries();
    assert_eq!(sent.len(), count);
    let once = sent.into_iter().map(|one| (one.event, one.id, one.payload));
    let once: Vec<_> = once.collect();
    let mut thrice = [once.clone(), once.clone(), once].concat();
    fastrand::shuffle(&mut thrice);

    let world = world.stop_service().await;
    // Nobody at the host answers meanwhile, so that nothing is found by looking.
    world.vendors.faults(FakeService::GitHub).set_outage(true);
    let service = world.start_process(&options());
    let address = Arc::new(Mutex::new(service.address.clone()));
    let (queue, answered) = (Arc::new(Mutex::new(thrice)), Arc::new(AtomicUsize::new(0)));
    let queued = Arc::new(AtomicUsize::new(0));
    let client = Client::new();
    let mut senders = Vec::new();
    for _ in 0..8 {
        let (queue, answered, queued) = (queue.clone(), answered.clone(), queued.clone());
        let (client, address) = (client.clone(), address.clone());
        senders.push(tokio::spawn(async move {
            loop {
                let next = queue.lock().unwrap().pop();
                let Some(next) = next else { return Ok(()) };
                let told = deliver(&client, &address, &next).await;
                let is_new = told == json!({"queued": true});
                let is_known = told["reason"] == "duplicate";
                if !is_new && !is_known {
                    return Err(format!("{told} to {next:?}"));
                }
                queued.fetch_add(usize::from(is_new), Ordering::SeqCst);
                answered.fetch_add(1, Ordering::SeqCst);
            }
        }));
    }
    while answered.load(Ordering::SeqCst) < DIES_AFTER {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    service.kill();
    assert!(
        answered.load(Ordering::SeqCst) < 3 * count,
        "it died in the middle"
    );
    let service = world.start_process(&options());
    address.lock().unwrap().clone_from(&service.address);
    for sender in senders {
        sender.await.unwrap().unwrap();
    }
    service.kill();
    let queued = queued.load(Ordering::SeqCst);
    assert!(queued <= count, "{queued} of {count} were told to be new");

    world.vendors.faults(FakeService::GitHub).set_outage(false);
    let world = world.start_service(options()).await;
    for _ in 0..3 {
        world.advance_clock(super::QUIET_PERIOD);
        world.tick().await;
    }
    let mut told: BTreeMap<String, usize> = BTreeMap::new();
    for run in world.repo().runs() {
        let findings = run.inputs["findings"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        for word in findings
            .split_whitespace()
            .filter(|word| word.contains('.'))
        {
            let is_number =
                word.starts_with(|c: char| c.is_ascii_digit()) && word.matches('.').count() == 2;
            *told.entry(word.to_owned()).or_default() += usize::from(is_number);
        }
    }
    told.retain(|_, times| *times > 0);
    assert_eq!(told.len(), count, "each finding reached a run");
    assert!(told.values().all(|times| *times == 1), "{told:?}");
    for at in 0..PULLS {
        let more = follow_up_jobs(&world, &format!("ENG-{}", at + 1));
        assert!(
            more.len() == 1 && more[0].kind == JobKind::FollowUp,
            "{more:?}"
        );
    }
    world.stop().await;
}
