//! Reasons for waiting with their exact messages, and the dedup window.
//! See docs/behaviour.md#reasons-for-waiting.

use std::time::Duration;

use domain::issue::System;
use domain::mapping::{ExecutionMode, Mapping};
use domain::time::Timestamp;
use fake_vendors::FakeService;
use fake_vendors::scripted_agent::{Script, ScriptStep};
use reqwest::Method;
use serde_json::{Value, json};
use vendors::http::percent_encode;

use crate::test_env::{EngineMode, TestEnv, TestEnvOptions, mapping_with, planning_mapping};
use crate::test_ticket::{SYSTEMS, TestTicket, key_in, mapping_for};

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

const DEDUP: &str = "Already dispatched recently. Waiting for the in-flight job.";

/// Ticket, team, reason and message.
type Row = (&'static str, &'static str, &'static str, &'static str);

const WAITING: [Row; 7] = [
    (
        "BARE-1",
        "BARE",
        "parked",
        "Parked after repeated failures. Unpark it to try again.",
    ),
    ("DONE-1", "DONE", "dedup", DEDUP),
    ("ENG-1", "ENG", "blocked", "Blocked by ENG-9, still open."),
    (
        "FULL-2",
        "FULL",
        "concurrency",
        "FULL at concurrency cap (1/1). Waiting for a slot.",
    ),
    ("REST-1", "REST", "paused", "REST is paused."),
    (
        "VM-1",
        "VM",
        "ineligible",
        "VM sessions are not configured: set VM_SESSIONS_TOKEN and VM_SESSIONS_APP.",
    ),
    (
        "WEB-1",
        "WEB",
        "no-mapping",
        "No mapping for team WEB. Add one in Projects.",
    ),
];

#[tokio::test(flavor = "multi_thread")]
async fn every_reason_for_waiting_has_its_message() {
    for system in SYSTEMS {
        // A ticket of Jira or GitHub is found through its mapping, so it cannot lack one.
        let leaked = |text: String| -> &'static str { text.leak() };
        let mut expected: Vec<Row> = WAITING
            .into_iter()
            .filter(|row| system == System::Linear || row.2 != "no-mapping")
            .map(|(key, team, reason, message)| {
                let blocker = key_in(system, "ENG-9");
                let message = leaked(message.replace("ENG-9", &blocker));
                (leaked(key_in(system, key)), team, reason, message)
            })
            .collect();
        expected.sort_unstable();
        let env = env_with_all_reasons(system).await;
        assert_eq!(blocker_rows(&env, "/api/blockers?all=true").await, expected);
        let is_default_reason = |row: &Row| ["concurrency", "dedup", "no-mapping"].contains(&row.2);
        let (listed, others): (Vec<Row>, Vec<Row>) =
            expected.into_iter().partition(is_default_reason);
        assert_eq!(blocker_rows(&env, "/api/blockers").await, listed);
        let by_reason: Value = listed
            .iter()
            .map(|row| (row.2.to_owned(), json!(1)))
            .collect();
        assert_eq!(
            env.admin_get("/api/blockers").await["totals"],
            json!({"issues": listed.len(), "teams": listed.len(), "byReason": by_reason})
        );
        // The default list counts the other reasons and names the full list.
        let by_reason: Value = others
            .iter()
            .map(|row| (row.2.to_owned(), json!(1)))
            .collect();
        assert_eq!(
            env.admin_get("/api/blockers").await["others"],
            json!({"issues": others.len(), "byReason": by_reason, "see": "/api/blockers?all=true"})
        );
        let all = env.admin_get("/api/blockers?all=true").await;
        assert_eq!(all["others"], Value::Null);
        env.finish().await;
    }
}

/// Environment in which, for each reason, a ticket has waited for a minute.
async fn env_with_all_reasons(system: System) -> TestEnv {
    let team = |team| mapping_for(system, team);
    let env = env_with(
        [
            Mapping {
                repo: "bare".into(),
                ..team("BARE")
            },
            team("DONE"),
            team("ENG"),
            Mapping {
                max_in_progress: 1,
                ..team("FULL")
            },
            Mapping {
                paused: true,
                ..team("REST")
            },
            Mapping {
                execution_mode: ExecutionMode::VmMachines,
                ..team("VM")
            },
        ],
        &[("--dispatch-breaker-threshold", "1")],
    )
    .await;
    if system == System::GitHub {
        for name in ["done", "eng", "full", "rest", "vm"] {
            env.seed_repo(name);
        }
    }
    let bare = env.vendors.github().repo("acme", "bare");
    bare.seed(&[("README.md", "# Without workflows\n")], "Begin")
        .unwrap();
    let file = |key| TestTicket::create(&env, system, &key_in(system, key), "Wait");
    for key in ["BARE-1", "DONE-1", "VM-1", "REST-1", "WEB-1"] {
        file(key).trigger();
    }
    file("ENG-9");
    let blocked = file("ENG-1");
    blocked.add_blocker(&key_in(system, "ENG-9"));
    blocked.trigger();
    file("FULL-1").mark_in_progress();
    file("FULL-2").trigger();
    run_until_ended(&env, &[&key_in(system, "DONE-1")]).await;
    // BARE-1 was parked by its first failure; DONE-1 loses its final marker.
    file("BARE-1").trigger();
    file("DONE-1").reset_to_trigger();
    env.tick().await;
    let at = env.app.core.now();
    env.advance_clock(MINUTE);
    env.tick().await;
    for blocker in blockers(&env, "/api/blockers?all=true").await {
        let since: Timestamp = serde_json::from_value(blocker["since"].clone()).unwrap();
        assert!(since <= at, "{blocker}");
        let url = blocker["ticketUrl"].as_str().unwrap();
        let key = blocker["issueIdentifier"].as_str().unwrap();
        let address = key.replace('#', "/issues/");
        assert!(url.contains(&address), "{url}");
    }
    env
}

async fn env_with(
    mappings: impl IntoIterator<Item = Mapping>,
    flags: &[(&'static str, &str)],
) -> TestEnv {
    let flags = flags
        .iter()
        .map(|(name, value)| (*name, (*value).to_owned()));
    TestEnv::with_options(TestEnvOptions {
        mappings: mappings.into_iter().collect(),
        extra_flags: flags.collect(),
        engine: EngineMode::manual(),
        ..TestEnvOptions::default()
    })
    .await
}

/// Ticks the engine, waits until the jobs of these tickets have ended, and ticks again.
async fn run_until_ended(env: &TestEnv, keys: &[&str]) {
    env.tick().await;
    env.wait_until(&format!("{keys:?} have ended"), || {
        let mut jobs = keys.iter().map(|key| env.jobs(key));
        jobs.all(|jobs| jobs.last().is_some_and(|job| !job.is_active()))
    })
    .await;
    env.tick().await;
}

async fn blockers(env: &TestEnv, path: &str) -> Vec<Value> {
    let answer = env.admin_get(path).await;
    answer["blockers"].as_array().unwrap().clone()
}

async fn blocker_rows(env: &TestEnv, path: &str) -> Vec<Row> {
    let mut rows: Vec<Row> = blockers(env, path).await.iter().map(row).collect();
    rows.sort_unstable();
    rows
}

fn row(blocker: &Value) -> Row {
    let text = |name: &str| -> &'static str { blocker[name].as_str().unwrap().to_owned().leak() };
    (
        text("issueIdentifier"),
        text("teamKey"),
        text("reason"),
        text("message"),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_configuration_is_named_as_the_reason() {
    let callbacks: &[&str] = &["--runner-callback-base-url", "--runner-token-secret"];
    let github: &[&str] = &["--github-app-id", "--github-app-private-key"];
    let in_machines = mapping_with(&json!({"executionMode": "vm-machines"}));
    for (mapping, without, message) in [
        (
            in_machines,
            callbacks,
            "Sessions require run callbacks: set RUNNER_CALLBACK_BASE_URL and RUNNER_TOKEN_SECRET.",
        ),
        (
            planning_mapping(),
            github,
            "The repository host is not configured: set GITHUB_APP_ID and GITHUB_APP_PRIVATE_KEY.",
        ),
    ] {
        let env = TestEnv::with_options(TestEnvOptions {
            mappings: vec![mapping],
            omitted_flags: without,
            session_hosts: true,
            engine: EngineMode::manual(),
            ..TestEnvOptions::default()
        })
        .await;
        env.create_labelled_issue("ENG-1", "Add the feature");
        env.tick().await;
        let expected = ("ENG-1", "ENG", "ineligible", message);
        assert_eq!(
            blocker_rows(&env, "/api/blockers?all=true").await,
            [expected]
        );
        assert!(env.jobs("ENG-1").is_empty());
        env.finish().await;
    }
}

const KEYS: [&str; 3] = ["ENG-1", "OPS-1", "shop#1"];

/// Environment with a ticket on each system that has an open pull request and is triggered again.
/// Also returns the time of the dispatches.
async fn env_with_retriggered_tickets(flags: &[(&'static str, &str)]) -> (TestEnv, Timestamp) {
    let env = env_with(
        [
            mapping_for(System::Linear, "ENG"),
            mapping_for(System::Jira, "OPS"),
            mapping_for(System::GitHub, "SHOP"),
        ],
        flags,
    )
    .await;
    let tickets = SYSTEMS.into_iter().zip(KEYS).map(|(system, key)| {
        let passes = ["one\n", "two\n"].map(|text| [ScriptStep::write("feature.txt", text)]);
        let script = passes.into_iter().fold(Script::new(), Script::pass);
        env.set_agent_script(key, script);
        TestTicket::create(&env, system, key, "Add the feature")
    });
    let tickets: Vec<TestTicket> = tickets.collect();
    tickets.iter().for_each(TestTicket::trigger);
    let dispatched = env.app.core.now();
    run_until_ended(&env, &KEYS).await;
    tickets.iter().for_each(TestTicket::reset_to_trigger);
    (env, dispatched)
}

/// Advances the clock to a point in time.
fn advance_to(env: &TestEnv, moment: Timestamp) {
    env.advance_clock(moment.since(env.app.core.now()));
}

/// Ticks the engine and checks that the dedup window holds both tickets.
async fn assert_held_by_dedup(env: &TestEnv) {
    env.tick().await;
    let expected = [
        ("ENG-1", "ENG", "dedup", DEDUP),
        ("OPS-1", "OPS", "dedup", DEDUP),
        ("shop#1", "SHOP", "dedup", DEDUP),
    ];
    assert_eq!(blocker_rows(env, "/api/blockers").await, expected);
    assert_eq!(env.repo().runs().len(), 3);
}

/// Ticks the engine and checks that both tickets run a second time.
async fn assert_runs_again(env: TestEnv) {
    run_until_ended(&env, &KEYS).await;
    for key in KEYS {
        let states: Vec<&str> = env.jobs(key).iter().map(|job| job.state.status()).collect();
        assert_eq!(states, ["completed", "completed"], "{key}");
    }
    assert_eq!(env.repo().pulls().len(), 3);
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dispatch_is_deduplicated_for_a_day_despite_outages() {
    let (env, dispatched) = env_with_retriggered_tickets(&[]).await;
    assert_held_by_dedup(&env).await;
    let entries = env.admin_get("/api/dedup").await;
    let outage = |on| {
        for vendor in [FakeService::Linear, FakeService::Jira, FakeService::GitHub] {
            env.vendors.faults(vendor).set_outage(on);
        }
    };
    outage(true);
    for _ in 0..3 {
        env.advance_clock(HOUR);
        env.tick().await;
    }
    assert_eq!(env.admin_get("/api/dedup").await, entries);
    outage(false);
    assert_held_by_dedup(&env).await;
    advance_to(&env, dispatched + 24 * HOUR - Duration::from_millis(1));
    assert_held_by_dedup(&env).await;
    advance_to(&env, dispatched + 24 * HOUR);
    assert_runs_again(env).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dedup_window_of_zero_hours_does_not_expire() {
    let (env, dispatched) = env_with_retriggered_tickets(&[("--dedup-window-hours", "0")]).await;
    advance_to(&env, dispatched + 10_000 * HOUR);
    assert_held_by_dedup(&env).await;
    for key in KEYS {
        let path = format!("/api/dedup/{}", percent_encode(key));
        let freed = env.admin_request(Method::DELETE, &path, None).await;
        assert_eq!(freed, (200, json!({"deleted": true})));
    }
    assert_runs_again(env).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_dedup_window_counts_from_the_dispatch() {
    let (env, dispatched) = env_with_retriggered_tickets(&[("--dedup-window-hours", "0")]).await;
    let env = env
        .restart_service(TestEnvOptions {
            mappings: Vec::new(),
            extra_flags: vec![("--dedup-window-hours", "2".to_owned())],
            engine: EngineMode::manual(),
            ..TestEnvOptions::default()
        })
        .await;
    advance_to(&env, dispatched + 2 * HOUR - Duration::from_millis(1));
    assert_held_by_dedup(&env).await;
    advance_to(&env, dispatched + 2 * HOUR);
    assert_runs_again(env).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_active_run_prevents_a_second_after_the_dedup_window() {
    let long_running = |system, team| Mapping {
        max_job_minutes: Some(3_000),
        ..mapping_for(system, team)
    };
    let env = env_with(
        [
            long_running(System::Linear, "ENG"),
            long_running(System::Jira, "OPS"),
            long_running(System::GitHub, "SHOP"),
        ],
        &[],
    )
    .await;
    env.vendors.github().set_start_delay(100 * HOUR);
    let tickets = SYSTEMS.into_iter().zip(KEYS);
    let tickets = tickets.map(|(system, key)| TestTicket::create(&env, system, key, "Wait"));
    let tickets: Vec<TestTicket> = tickets.collect();
    tickets.iter().for_each(TestTicket::trigger);
    env.tick().await;
    tickets.iter().for_each(TestTicket::reset_to_trigger);
    env.advance_clock(25 * HOUR);
    env.tick().await;
    assert_eq!(env.repo().runs().len(), 3);
    for key in KEYS {
        let why = env
            .admin_get(&format!("/api/why/{}", percent_encode(key)))
            .await;
        let decision = (&why["decision"]["outcome"], &why["decision"]["message"]);
        assert_eq!(
            decision,
            (&json!("in-progress"), &json!("A run is in progress."))
        );
    }
    env.stop().await;
}
