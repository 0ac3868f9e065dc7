//! Two hundred webhook deliveries, each sent three times in random order, with a `kill -9` in between.

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
const COMMENTS_PER_PULL: usize = 20;

/// Number of answered deliveries after which the service is killed.
const ANSWERS_BEFORE_KILL: usize = 250;

/// Posts reviews and comments on the pull requests. Returns the number of webhook deliveries expected.
fn post_feedback(env: &TestEnv, pulls: &[u64]) -> usize {
    let repo = env.repo();
    for (at, number) in pulls.iter().enumerate() {
        for one in 0..COMMENTS_PER_PULL {
            let text = format!("finding {at}.{one}.");
            match one {
                0 => repo.add_review(*number, "mia", "CHANGES_REQUESTED", &text),
                _ if one % 2 == 0 => repo.add_comment(*number, "mia", &format!("- [ ] {text}")),
                _ => repo.add_review_comment(*number, "mia", "a.txt", 1, &text),
            };
        }
    }
    pulls.len() * COMMENTS_PER_PULL
}

async fn post_until_accepted(
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
        assert!(began.elapsed() < TIMEOUT, "{event} {id} is not accepted");
        // The service is down: the delivery is sent again, as an operator would redeliver it.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_neither_loses_nor_repeats_a_delivery() {
    let env = env_with_pending_runs().await;
    let mut pulls = Vec::new();
    for at in 0..PULLS {
        pulls.push(open_pull(&env, &format!("ENG-{}", at + 1)).await);
    }
    // Nothing listens at this address. The fake GitHub records the deliveries.
    env.repo()
        .set_webhook("http://127.0.0.1:9/nowhere", "unused");
    let count = post_feedback(&env, &pulls);
    env.wait_until("all webhooks are sent", || {
        env.vendors.github().webhooks().is_idle()
    })
    .await;
    let sent = env.vendors.github().webhooks().deliveries();
    assert_eq!(sent.len(), count);
    let once = sent.into_iter().map(|one| (one.event, one.id, one.payload));
    let once: Vec<_> = once.collect();
    let mut thrice = [once.clone(), once.clone(), once].concat();
    fastrand::shuffle(&mut thrice);

    let env = env.stop_service().await;
    // GitHub is down, so that reconciliation cannot find the feedback.
    env.vendors.faults(FakeService::GitHub).set_outage(true);
    let service = env.start_process(&options());
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
                let answer = post_until_accepted(&client, &address, &next).await;
                let is_new = answer == json!({"queued": true});
                let is_known = answer["reason"] == "duplicate";
                if !is_new && !is_known {
                    return Err(format!("{answer} to {next:?}"));
                }
                queued.fetch_add(usize::from(is_new), Ordering::SeqCst);
                answered.fetch_add(1, Ordering::SeqCst);
            }
        }));
    }
    while answered.load(Ordering::SeqCst) < ANSWERS_BEFORE_KILL {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    service.kill();
    assert!(
        answered.load(Ordering::SeqCst) < 3 * count,
        "the service was killed between deliveries"
    );
    let service = env.start_process(&options());
    address.lock().unwrap().clone_from(&service.address);
    for sender in senders {
        sender.await.unwrap().unwrap();
    }
    service.kill();
    let queued = queued.load(Ordering::SeqCst);
    assert!(queued <= count, "{queued} of {count} were accepted as new");

    env.vendors.faults(FakeService::GitHub).set_outage(false);
    let env = env.start_service(options()).await;
    for _ in 0..3 {
        env.advance_clock(super::QUIET_PERIOD);
        env.tick().await;
    }
    let mut mentions: BTreeMap<String, usize> = BTreeMap::new();
    for run in env.repo().runs() {
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
            *mentions.entry(word.to_owned()).or_default() += usize::from(is_number);
        }
    }
    mentions.retain(|_, times| *times > 0);
    assert_eq!(mentions.len(), count, "each finding reached a run");
    assert!(mentions.values().all(|times| *times == 1), "{mentions:?}");
    for at in 0..PULLS {
        let more = follow_up_jobs(&env, &format!("ENG-{}", at + 1));
        assert!(
            more.len() == 1 && more[0].kind == JobKind::FollowUp,
            "{more:?}"
        );
    }
    env.stop().await;
}
