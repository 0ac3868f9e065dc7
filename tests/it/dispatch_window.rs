//! Dispatch hours: nothing new starts outside of them, except what people ask for.

use std::time::Duration;

use domain::audit::Actor;
use domain::job::JobKind;
use domain::time::Timestamp;
use engine::control;
use serde_json::{Value, json};

use crate::follow_up::{open_pull, options, register_webhook};
use crate::review_capacity::reserve;
use crate::test_env::{TestEnv, TestEnvOptions, mapping_with};

const HOUR: Duration = Duration::from_secs(60 * 60);

const WEEK: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];

fn time_of_day(at: Timestamp) -> String {
    at.to_string()[11..16].to_owned()
}

/// Environment in which runs never start, and a project whose hours begin this far from now and last one hour.
async fn env_with_window_in(begins: Duration, fields: Value) -> TestEnv {
    let engine = crate::test_env::EngineMode::manual();
    let crate::test_env::EngineMode::Manual(clock) = &engine else {
        unreachable!("the clock is manual");
    };
    let from = clock.now() + begins;
    let (from, to) = (time_of_day(from), time_of_day(from + HOUR));
    let mut all = json!({
        "dispatchWindow": {"days": WEEK, "from": from, "to": to, "timeZone": "UTC"},
    });
    all.as_object_mut()
        .unwrap()
        .extend(fields.as_object().unwrap().clone());
    let env = TestEnv::with_options(TestEnvOptions {
        mappings: vec![mapping_with(&all)],
        engine,
        ..options()
    })
    .await;
    env.vendors
        .github()
        .set_start_delay(Duration::from_secs(6_000));
    register_webhook(&env);
    env
}

async fn poll(env: &TestEnv) {
    engine::poll::run_once(&env.app).await.unwrap();
}

fn kinds(env: &TestEnv, key: &str) -> Vec<JobKind> {
    env.jobs(key).iter().map(|job| job.kind).collect()
}

async fn decision(env: &TestEnv, key: &str) -> Value {
    env.admin_get(&format!("/api/why/{key}")).await["decision"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_start_in_the_hours_of_the_project_only() {
    for planning in [false, true] {
        let fields = json!({"planningEnabled": planning, "planningWorkflowFile": "agent-plan.yml"});
        let env = env_with_window_in(2 * HOUR, fields).await;
        env.create_labelled_issue("ENG-1", "First");
        poll(&env).await;
        let found = decision(&env, "ENG-1").await;
        assert_eq!(found["reason"], "outside-hours");
        let from = env.app.core.now() + 2 * HOUR;
        let (from, to) = (time_of_day(from), time_of_day(from + HOUR));
        let message = found["message"].as_str().unwrap();
        let hours = format!(
            "Outside the dispatch hours of this project (Mon–Sun {from}–{to} UTC). Runs start again "
        );
        assert!(message.starts_with(&hours), "{message}");
        assert!(message.ends_with(&format!(" at {from}.")), "{message}");
        let blockers = env.admin_get("/api/blockers?all=true").await;
        assert_eq!(blockers["blockers"][0]["reason"], "outside-hours");
        assert!(env.jobs("ENG-1").is_empty());
        // The reservation checks the hours again.
        assert!(!reserve(&env, "ENG-1", env.app.core.now()).await);
        env.advance_clock(2 * HOUR + Duration::from_secs(60));
        poll(&env).await;
        let kind = match planning {
            true => JobKind::Planning,
            false => JobKind::Implementation,
        };
        assert_eq!(kinds(&env, "ENG-1"), [kind]);
        env.advance_clock(HOUR);
        env.create_labelled_issue("ENG-2", "Second");
        poll(&env).await;
        assert_eq!(decision(&env, "ENG-2").await["reason"], "outside-hours");
        env.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn feedback_and_requests_of_people_start_runs_at_any_hour() {
    let env = env_with_window_in(2 * HOUR, json!({})).await;
    env.repo().set_collaborator_role("mia", "maintain");
    let number = open_pull(&env, "ENG-1").await;
    env.repo()
        .add_review(number, "mia", "CHANGES_REQUESTED", "Handle the empty list.");
    env.wait_until("the webhook is answered", || {
        env.vendors.github().webhooks().is_idle()
    })
    .await;
    env.advance_clock(Duration::from_secs(60));
    env.tick().await;
    assert_eq!(
        kinds(&env, "ENG-1"),
        [JobKind::Implementation, JobKind::FollowUp]
    );
    // A retry that an operator asks for does not wait for the morning either.
    env.create_labelled_issue("ENG-2", "Second");
    env.advance_clock(2 * HOUR);
    poll(&env).await;
    assert_eq!(kinds(&env, "ENG-2").len(), 1);
    env.advance_clock(HOUR);
    let actor = Actor::service();
    control::cancel(&env.app, actor, "ENG-2".to_owned(), true)
        .await
        .unwrap();
    env.tick_until_drained().await;
    env.tick().await;
    assert_eq!(kinds(&env, "ENG-2").len(), 2);
    env.stop().await;
}
