//! Budgets: who is told what at 80 and at 100 percent, what waits then, and what does not.

use std::time::Duration;

use domain::issue::Phase;
use domain::job::JobKind;
use domain::mapping::Mapping;
use domain::report::RunOutcome;
use domain::time::Timestamp;
use domain::usage::{MicroUsd, Month, UsageTotals};
use engine::app::App;
use engine::dispatch::{self, DispatchRequest};
use serde_json::{Value, json};
use store::usage;

use crate::follow_up::{
    apply_event, env_with_pending_runs, follow_up_jobs, open_pull, result_reported,
};
use crate::gap_fill::{send_trigger, trigger_body};
use crate::test_env::{TestEnv, TestEnvOptions, mapping};

fn limited(usd: f64) -> Mapping {
    Mapping {
        budget: MicroUsd::from_usd(usd),
        ..mapping()
    }
}

/// Counts money as if a run had used it.
async fn spend(app: &App, usd: f64) {
    let job = crate::api_server::dispatched_job("01SPENT", JobKind::Implementation);
    let sum = UsageTotals {
        cost: MicroUsd::from_usd(usd).unwrap(),
        ..UsageTotals::default()
    };
    let now = app.now();
    let spent = app.store.write(move |tx| usage::add(tx, &job, sum, now));
    spent.await.unwrap();
}

/// Chat messages about budgets.
fn told(world: &TestEnv) -> Vec<String> {
    let messages = world.vendors.chat().messages().into_iter();
    let texts = messages.map(|message| message.body.to_string());
    texts
        .filter(|text| text.contains("its budget for"))
        .collect()
}

async fn set_budget(world: &TestEnv, usd: Value) {
    let body = json!({"teamKey": "ENG", "owner": "acme", "repo": "shop", "defaultBranch": "main",
        "ticketingProvider": "A", "budgetUsd": usd});
    let saved = world.admin_post("/api/mappings", body).await;
    assert_eq!(saved["budgetUsd"].as_f64(), usd.as_f64(), "{saved}");
}

async fn waits(world: &TestEnv, key: &str) -> (String, String) {
    let why = world.admin_get(&format!("/api/why/{key}")).await;
    let text = |name: &str| {
        why["decision"][name]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    (text("reason"), text("message"))
}

fn making(usd: f64) -> TestEnvOptions {
    TestEnvOptions {
        mappings: vec![limited(usd)],
        engine: crate::test_env::EngineMode::manual(),
        ..TestEnvOptions::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_are_told_at_eighty_and_at_a_hundred_percent_and_nothing_new_starts() {
    let world = TestEnv::with_options(making(10.0)).await;
    world
        .vendors
        .github()
        .set_start_delay(Duration::from_secs(6_000));
    spend(&world.app, 7.99).await;
    world.tick().await;
    assert!(told(&world).is_empty());
    spend(&world.app, 0.01).await;
    world.create_labelled_issue("ENG-1", "Runs while there is budget");
    world.tick().await;
    world.tick().await;
    assert_eq!(told(&world).len(), 1, "{:?}", told(&world));
    for part in ["ENG has used 80 % of its budget", "$8.00", "$10.00"] {
        assert!(told(&world)[0].contains(part), "{part}: {:?}", told(&world));
    }
    assert_eq!(world.jobs("ENG-1").len(), 1, "there is budget left");

    // Nor is it told again by a service that was started anew.
    let clock = world.app.clock.clone();
    let engine = crate::test_env::EngineMode::Manual(clock);
    let world = world
        .restart_service(TestEnvOptions {
            mappings: Vec::new(),
            engine,
            ..making(10.0)
        })
        .await;
    world.tick().await;
    assert_eq!(told(&world).len(), 1);

    spend(&world.app, 4.34).await;
    world.create_labelled_issue("ENG-2", "Comes too late");
    world.tick().await;
    world.tick().await;
    assert_eq!(told(&world).len(), 2, "{:?}", told(&world));
    assert!(told(&world)[1].contains("ENG has used up its budget"));
    let month = Month::of(world.app.now());
    let message = format!(
        "ENG has used $12.34 of its budget of $10.00 for {month}. It goes on at {}, or when the budget is raised.",
        month.end()
    );
    assert_eq!(waits(&world, "ENG-2").await, ("budget".to_owned(), message));
    assert!(world.jobs("ENG-2").is_empty());
    assert!(world.jobs("ENG-1")[0].is_active(), "what runs goes on");
    let blockers = world.admin_get("/api/blockers?all=true").await;
    assert_eq!(blockers["totals"]["byReason"], json!({"budget": 1}));
    let of_spec = world.admin_get("/api/blockers").await;
    assert_eq!(of_spec["blockers"], json!([]));
    let shown = world.admin_get("/api/usage").await;
    assert_eq!(shown["mappings"][0]["budgetUsedPercent"], 123.4);

    set_budget(&world, json!(12.35)).await;
    world.tick().await;
    assert_eq!(world.jobs("ENG-2").len(), 1, "the next poll starts it");
    // Of the new amount the operator is warned anew, once.
    world.tick().await;
    assert_eq!(told(&world).len(), 3, "{:?}", told(&world));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lowered_budget_is_told_and_a_new_month_starts_afresh() {
    let world = TestEnv::with_options(making(10.0)).await;
    world
        .vendors
        .github()
        .set_start_delay(Duration::from_secs(6_000));
    spend(&world.app, 5.0).await;
    world.create_labelled_issue("ENG-1", "Waits for the month");
    set_budget(&world, json!(5)).await;
    world.tick().await;
    assert_eq!(told(&world).len(), 1, "{:?}", told(&world));
    assert_eq!(waits(&world, "ENG-1").await.0, "budget");
    let end = Month::of(world.app.now()).end();
    world.advance_clock(end.since(world.app.now()) - Duration::from_millis(1));
    world.tick().await;
    assert!(world.jobs("ENG-1").is_empty());
    world.advance_clock(Duration::from_millis(1));
    world.tick().await;
    assert_eq!(world.jobs("ENG-1").len(), 1);
    set_budget(&world, Value::Null).await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_commit_that_reserves_asks_once_more() {
    let world = TestEnv::with_options(making(10.0)).await;
    world
        .vendors
        .github()
        .set_start_delay(Duration::from_secs(6_000));
    world.create_labelled_issue("ENG-1", "Decided before the money was gone");
    let account = &world.app.ticketing[0];
    let seen = account.snapshot(&[&limited(10.0)]).await.unwrap().issues;
    let reserve = async |now: Timestamp| {
        let (app, issue) = (world.app.clone(), seen[0].clone());
        let reserved = world.app.store.write(move |tx| {
            let plan = DispatchRequest {
                issue: issue.clone(),
                phase: Phase::Implementation,
                image: Default::default(),
            };
            dispatch::reserve(tx, &app, &plan, now)
        });
        reserved.await.unwrap()
    };
    spend(&world.app, 10.0).await;
    assert_eq!(reserve(world.app.now()).await, None);
    set_budget(&world, json!(10.01)).await;
    assert!(reserve(world.app.now()).await.is_some());
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn work_on_pull_requests_waits_or_is_refused_in_words() {
    let world = env_with_pending_runs().await;
    let number = open_pull(&world, "ENG-1").await;
    set_budget(&world, json!(1)).await;
    spend(&world.app, 1.0).await;
    let repo = world.repo();
    let said = || -> String {
        let comments = repo.comments(number).into_iter();
        comments.map(|comment| comment.body + "\n").collect()
    };
    let pass = async || {
        world
            .wait_until("the host has told", || {
                world.vendors.github().is_webhook_queue_empty()
            })
            .await;
        world.advance_clock(Duration::from_secs(31));
        world.tick().await;
    };
    repo.add_review_comment(number, "mia", "a.txt", 1, "Use another word here.");
    pass().await;
    pass().await;
    assert!(follow_up_jobs(&world, "ENG-1").is_empty());
    assert!(
        said().contains("Automatic follow-ups wait: ENG has used $1.00 of its budget of $1.00")
    );

    // The budget is not the word of those who comment: they are told.
    repo.add_comment(number, "mia", "/agent-implement try harder");
    pass().await;
    pass().await;
    assert!(follow_up_jobs(&world, "ENG-1").is_empty());
    assert!(
        said().contains("No run is started: ENG has used $1.00"),
        "{}",
        said()
    );
    let told = send_trigger(&world, trigger_body("ENG-1", number)).await;
    assert_eq!(told.error(), (502, "dispatch_failed"));
    let detail = told.body["detail"].as_str().unwrap();
    assert!(detail.contains("its budget of $1.00"), "{detail}");
    let ours = repo.comments(number).into_iter();
    let pinned = ours
        .filter(|comment| comment.body.contains("budget of"))
        .count();
    assert_eq!(pinned, 1, "one comment says how it stands");

    set_budget(&world, json!(2)).await;
    pass().await;
    let runs = follow_up_jobs(&world, "ENG-1");
    assert_eq!(runs.len(), 1, "what was said was kept: {runs:#?}");
    assert_eq!(
        runs[0].kind,
        JobKind::FollowUp,
        "the refused command is gone"
    );
    apply_event(&world, &runs[0].id, result_reported(RunOutcome::Success)).await;
    world.stop().await;
}
