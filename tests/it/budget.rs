//! Budgets: warnings at 80 and 100 percent, and which work waits.

use std::time::Duration;

use domain::issue::Phase;
use domain::job::JobKind;
use domain::mapping::Mapping;
use domain::report::RunOutcome;
use domain::ticket_comment::CommentWatch;
use domain::time::Timestamp;
use domain::usage::{MicroUsd, Month, UsageTotals};
use engine::dispatch::{self, DispatchRequest};
use serde_json::{Value, json};
use store::usage;

use crate::follow_up::{
    apply_event, env_with_pending_runs, follow_up_jobs, open_pull, result_reported,
};
use crate::gap_fill::{send_trigger, trigger_body};
use crate::test_env::{TestEnv, TestEnvOptions, mapping};

fn mapping_with_budget(usd: f64) -> Mapping {
    Mapping {
        budget: MicroUsd::from_usd(usd),
        ..mapping()
    }
}

/// Adds cost as if a run had used it.
async fn spend(env: &TestEnv, usd: f64) {
    let job = crate::api_server::dispatched_job("01SPENT", JobKind::Implementation);
    let sum = UsageTotals {
        cost: MicroUsd::from_usd(usd).unwrap(),
        ..UsageTotals::default()
    };
    let now = env.app.core.now();
    let spent = env.store.write(move |tx| usage::add(tx, &job, sum, now));
    spent.await.unwrap();
}

/// Chat messages about budgets.
fn budget_messages(env: &TestEnv) -> Vec<String> {
    let messages = env.vendors.chat().messages().into_iter();
    let texts = messages.map(|message| message.body.to_string());
    texts
        .filter(|text| text.contains("its budget for"))
        .collect()
}

async fn set_budget(env: &TestEnv, usd: Value) {
    let body = json!({"teamKey": "ENG", "owner": "acme", "repo": "shop", "defaultBranch": "main",
        "ticketingProvider": "A", "budgetUsd": usd});
    let saved = env.admin_post("/api/mappings", body).await;
    assert_eq!(saved["budgetUsd"].as_f64(), usd.as_f64(), "{saved}");
}

async fn waiting_reason(env: &TestEnv, key: &str) -> (String, String) {
    let why = env.admin_get(&format!("/api/why/{key}")).await;
    let text = |name: &str| {
        why["decision"][name]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    (text("reason"), text("message"))
}

fn options_with_budget(usd: f64) -> TestEnvOptions {
    TestEnvOptions {
        mappings: vec![mapping_with_budget(usd)],
        engine: crate::test_env::EngineMode::manual(),
        ..TestEnvOptions::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn warns_at_eighty_and_a_hundred_percent_and_stops_new_runs() {
    let env = TestEnv::with_options(options_with_budget(10.0)).await;
    env.vendors
        .github()
        .set_start_delay(Duration::from_secs(6_000));
    spend(&env, 7.99).await;
    env.tick().await;
    assert!(budget_messages(&env).is_empty());
    spend(&env, 0.01).await;
    env.create_labelled_issue("ENG-1", "Runs while there is budget");
    env.tick().await;
    env.tick().await;
    assert_eq!(
        budget_messages(&env).len(),
        1,
        "{:?}",
        budget_messages(&env)
    );
    for part in ["ENG has used 80% of its budget", "$8.00", "$10.00"] {
        assert!(
            budget_messages(&env)[0].contains(part),
            "{part}: {:?}",
            budget_messages(&env)
        );
    }
    assert_eq!(env.jobs("ENG-1").len(), 1, "there is budget left");

    // The warning is not repeated after a restart.
    let clock = env.app.core.clock.clone();
    let engine = crate::test_env::EngineMode::Manual(clock);
    let env = env
        .restart_service(TestEnvOptions {
            mappings: Vec::new(),
            engine,
            ..options_with_budget(10.0)
        })
        .await;
    env.tick().await;
    assert_eq!(budget_messages(&env).len(), 1);

    spend(&env, 4.34).await;
    env.create_labelled_issue("ENG-2", "Comes too late");
    env.tick().await;
    env.tick().await;
    assert_eq!(
        budget_messages(&env).len(),
        2,
        "{:?}",
        budget_messages(&env)
    );
    assert!(budget_messages(&env)[1].contains("ENG has used up its budget"));
    let month = Month::of(env.app.core.now());
    let message = format!(
        "ENG has used $12.34 of its budget of $10.00 for {month}. Runs resume at {}, or when the budget is raised.",
        month.end().date_text()
    );
    assert_eq!(
        waiting_reason(&env, "ENG-2").await,
        ("budget".to_owned(), message)
    );
    assert!(env.jobs("ENG-2").is_empty());
    assert!(env.jobs("ENG-1")[0].is_active(), "an active run continues");
    let blockers = env.admin_get("/api/blockers?all=true").await;
    assert_eq!(blockers["totals"]["byReason"], json!({"budget": 1}));
    let of_spec = env.admin_get("/api/blockers").await;
    assert_eq!(of_spec["blockers"], json!([]));
    let shown = env.admin_get("/api/usage").await;
    assert_eq!(shown["mappings"][0]["budgetUsedPercent"], 123.4);

    set_budget(&env, json!(12.35)).await;
    env.tick().await;
    assert_eq!(env.jobs("ENG-2").len(), 1, "the next poll starts it");
    // The new amount causes one more warning.
    env.tick().await;
    assert_eq!(
        budget_messages(&env).len(),
        3,
        "{:?}",
        budget_messages(&env)
    );
    env.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lowered_budget_is_reported_and_a_new_month_resets_usage() {
    let env = TestEnv::with_options(options_with_budget(10.0)).await;
    env.vendors
        .github()
        .set_start_delay(Duration::from_secs(6_000));
    spend(&env, 5.0).await;
    env.create_labelled_issue("ENG-1", "Waits for the month");
    set_budget(&env, json!(5)).await;
    env.tick().await;
    assert_eq!(
        budget_messages(&env).len(),
        1,
        "{:?}",
        budget_messages(&env)
    );
    assert_eq!(waiting_reason(&env, "ENG-1").await.0, "budget");
    let end = Month::of(env.app.core.now()).end();
    env.advance_clock(end.since(env.app.core.now()) - Duration::from_millis(1));
    env.tick().await;
    assert!(env.jobs("ENG-1").is_empty());
    env.advance_clock(Duration::from_millis(1));
    env.tick().await;
    assert_eq!(env.jobs("ENG-1").len(), 1);
    set_budget(&env, Value::Null).await;
    env.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reservation_checks_the_budget_in_its_transaction() {
    let env = TestEnv::with_options(options_with_budget(10.0)).await;
    env.vendors
        .github()
        .set_start_delay(Duration::from_secs(6_000));
    env.create_labelled_issue("ENG-1", "Decided before the money was gone");
    let account = &env.app.vendors.ticketing[0];
    let seen = account
        .snapshot(&[&mapping_with_budget(10.0)], &CommentWatch::default())
        .await
        .unwrap()
        .issues;
    let reserve = async |now: Timestamp| {
        let (app, issue) = (env.app.clone(), seen[0].clone());
        let reserved = env.store.write(move |tx| {
            let plan = DispatchRequest {
                issue: issue.clone(),
                phase: Phase::Implementation,
                image: Default::default(),
                ticketing: Some(mapping_with_budget(10.0).ticketing),
            };
            dispatch::reserve(tx, &app, &plan, now)
        });
        reserved.await.unwrap()
    };
    spend(&env, 10.0).await;
    assert_eq!(reserve(env.app.core.now()).await, None);
    set_budget(&env, json!(10.01)).await;
    assert!(reserve(env.app.core.now()).await.is_some());
    env.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn follow_ups_wait_and_commands_are_refused_with_a_comment() {
    let env = env_with_pending_runs().await;
    let number = open_pull(&env, "ENG-1").await;
    set_budget(&env, json!(1)).await;
    spend(&env, 1.0).await;
    let repo = env.repo();
    let all_comments = || -> String {
        let comments = repo.comments(number).into_iter();
        comments.map(|comment| comment.body + "\n").collect()
    };
    let tick_after_quiet_period = async || {
        env.wait_until("all webhooks are answered", || {
            env.vendors.github().webhooks().is_idle()
        })
        .await;
        env.advance_clock(Duration::from_secs(31));
        env.tick().await;
    };
    repo.add_review_comment(number, "mia", "a.txt", 1, "Use another word here.");
    tick_after_quiet_period().await;
    tick_after_quiet_period().await;
    assert!(follow_up_jobs(&env, "ENG-1").is_empty());
    assert!(
        all_comments()
            .contains("Automatic follow-ups are paused: ENG has used $1.00 of its budget of $1.00")
    );

    // A command is refused with a comment.
    repo.add_comment(number, "mia", "/agent-implement try harder");
    tick_after_quiet_period().await;
    tick_after_quiet_period().await;
    assert!(follow_up_jobs(&env, "ENG-1").is_empty());
    assert!(
        all_comments().contains("Cannot start a run: ENG has used $1.00"),
        "{}",
        all_comments()
    );
    let response = send_trigger(&env, trigger_body("ENG-1", number)).await;
    assert_eq!(response.error(), (502, "dispatch_failed"));
    let detail = response.body["detail"].as_str().unwrap();
    assert!(detail.contains("its budget of $1.00"), "{detail}");
    let ours = repo.comments(number).into_iter();
    let pinned = ours
        .filter(|comment| comment.body.contains("budget of"))
        .count();
    assert_eq!(pinned, 1, "one comment holds the state");

    set_budget(&env, json!(2)).await;
    tick_after_quiet_period().await;
    let runs = follow_up_jobs(&env, "ENG-1");
    assert_eq!(runs.len(), 1, "the feedback was kept: {runs:#?}");
    assert_eq!(
        runs[0].kind,
        JobKind::FollowUp,
        "the refused command is dropped"
    );
    apply_event(&env, &runs[0].id, result_reported(RunOutcome::Success)).await;
    env.stop().await;
}
