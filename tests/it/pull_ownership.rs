//! A run reports any address as its pull request: only its own becomes the ticket's link.

use std::time::Duration;

use domain::crypto::run_token::TokenAudience;
use domain::job::{Job, JobState};
use engine::outbox_worker;
use fake_vendors::FakeService;
use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::test_env::{EngineMode, TestEnv, TestEnvOptions};

const MINUTE: Duration = Duration::from_secs(60);

/// A run of `ENG-1` at work that a test plays by hand.
async fn working() -> TestEnv {
    let world = TestEnv::with_options(by_hand()).await;
    world.create_labelled_issue("ENG-1", "Add the feature");
    world.tick().await;
    world.repo().start_run(world.repo().runs()[0].id);
    world.tick().await;
    assert_eq!(job(&world).state, JobState::Running);
    world
}

fn by_hand() -> TestEnvOptions {
    TestEnvOptions {
        engine: EngineMode::manual(),
        fake_runs: true,
        ..TestEnvOptions::default()
    }
}

fn job(world: &TestEnv) -> Job {
    world.jobs("ENG-1").pop().unwrap()
}

/// Posts a result with the job's own token. Returns its warnings.
async fn report(world: &TestEnv, result: Value) -> Vec<String> {
    let (job, tokens) = (job(world), world.app.run_tokens.as_ref().unwrap());
    let (now, phase) = (world.app.now(), job.kind.run_phase());
    let token = tokens.issue(&job.id, TokenAudience::Result, phase, now, now + MINUTE);
    let mut body = json!({"phase": "implementation", "outcome": "success", "comments": []});
    for (name, value) in result.as_object().unwrap() {
        body[name] = value.clone();
    }
    let request = reqwest::Client::new().post(format!("{}/runner/result", world.address));
    let answer = request.bearer_auth(token.expose()).json(&body).send();
    let answer = answer.await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    let told: Value = answer.json().await.unwrap();
    outbox_worker::drain(&world.app).await.unwrap();
    serde_json::from_value(told["warnings"].clone()).unwrap()
}

/// The own pull request of the job's branch.
fn opened(world: &TestEnv) -> u64 {
    let branch = job(world).branch;
    world
        .repo()
        .open_pull(&branch, "agent", "Add the feature", "")
}

async fn ended(world: TestEnv) {
    for run in world.repo().runs() {
        world.repo().complete_run(run.id, "success");
    }
    world.tick_until_drained().await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pull_request_that_is_not_the_jobs_own_is_no_pull_request() {
    type Claim = fn(&TestEnv) -> String;
    let rows: [(Claim, &str); 6] = [
        (
            |world| format!("https://evil.example/acme/shop/pull/{}", opened(world)),
            "its address is not http://",
        ),
        (
            |world| {
                let own = world.repo().pull_url(opened(world));
                own.replace("/acme/shop/", "/acme/other/")
            },
            "its address is not http://",
        ),
        (
            |world| {
                let number = world.repo().open_pull("somebody/else", "mia", "Mine", "");
                world.repo().pull_url(number)
            },
            "is of the branch somebody/else, not agent-implement/",
        ),
        (
            |world| {
                let number = opened(world);
                world.repo().move_pull_to_fork(number, "mallory");
                world.repo().pull_url(number)
            },
            "comes from another repository",
        ),
        (
            |world| world.repo().pull_url(77),
            "acme/shop has no pull request #77",
        ),
        (
            |_| "https://evil.example/x/y/pull/77".to_owned(),
            "acme/shop has no pull request #77",
        ),
    ];
    for (claim, why) in rows {
        let world = working().await;
        let url = claim(&world);
        let warnings = report(&world, json!({"prUrl": url})).await;
        let [warning] = &warnings[..] else {
            panic!("{url}: {warnings:?}")
        };
        assert!(warning.starts_with("prUrl is ignored: "), "{warning}");
        assert!(warning.contains(why), "{warning}");
        let ended_job = job(&world);
        let JobState::Failed { reason, .. } = &ended_job.state else {
            panic!("{url}: {ended_job:?}")
        };
        let begins = "the pull request that the run reported is not its own: ";
        assert!(
            reason.starts_with(begins) && reason.contains(why),
            "{reason}"
        );
        assert_eq!(ended_job.pull, None);
        let said = world.comments("ENG-1").concat();
        assert!(said.contains("Implementation failed: "), "{said}");
        assert!(!said.contains(&url), "{said}");
        assert!(world.vendors.linear().issue("ENG-1").labels().is_empty());
        ended(world).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_gets_its_ticket_no_strange_pull_request_either() {
    let world = working().await;
    let failed = json!({"outcome": "failure", "failureCode": "REVIEW_UNAPPROVED",
        "failureReason": "two findings", "prUrl": "https://evil.example/acme/shop/pull/77"});
    assert_eq!(report(&world, failed).await.len(), 1);
    assert_eq!(job(&world).state.status(), "failed");
    assert_eq!(job(&world).pull, None);
    let said = world.comments("ENG-1").concat();
    assert!(
        said.contains("Implementation failed: two findings"),
        "{said}"
    );
    assert!(!said.contains("evil.example"), "{said}");
    ended(world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_link_is_the_hosts_own_address() {
    let world = working().await;
    let number = opened(&world);
    let url = world.repo().pull_url(number);
    let spelled = url.replace("/acme/shop/", "/Acme/SHOP/") + "/";
    assert!(report(&world, json!({"prUrl": spelled})).await.is_empty());
    assert_eq!(job(&world).state, JobState::Completed);
    assert_eq!(
        world.comments("ENG-1"),
        [format!("Pull request opened: [#{number}]({url})")]
    );
    ended(world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_waits_for_a_host_that_does_not_answer() {
    let mut world = working().await;
    let url = world.repo().pull_url(opened(&world));
    world.vendors.faults(FakeService::GitHub).set_outage(true);
    let usage = json!({"turns": 3, "costUsd": 0.5});
    let warnings = report(&world, json!({"prUrl": url, "usage": usage})).await;
    assert_eq!(
        warnings,
        ["prUrl is not confirmed yet: the repository host did not answer"]
    );
    // Neither its end, nor its time budget, nor a restart changes what the run has reported.
    let run = world.repo().runs()[0].id;
    world.repo().complete_run(run, "failure");
    world.advance_clock(100 * MINUTE);
    world.tick().await;
    assert_eq!(job(&world).state, JobState::Running);
    assert!(job(&world).result_accepted);
    let making = TestEnvOptions {
        mappings: Vec::new(),
        ..by_hand()
    };
    world = world.restart_service(making).await;
    world.tick().await;
    assert_eq!(job(&world).state, JobState::Running);
    world.vendors.faults(FakeService::GitHub).set_outage(false);
    world.tick().await;
    let done = job(&world);
    assert_eq!(done.state, JobState::Completed);
    assert_eq!(done.usage.unwrap().cost_usd, Some(0.5));
    assert_eq!(done.pull.unwrap().url, url);
    assert_eq!(done.unconfirmed_result, None);
    ended(world).await;
}
