//! Why an issue waits: every reason in its exact words, and the dedup window.

use std::time::Duration;

use domain::issue::System;
use domain::mapping::{ExecutionMode, Mapping};
use domain::time::Timestamp;
use fake_vendors::FakeService;
use fake_vendors::scripted_agent::{Script, ScriptStep};
use reqwest::Method;
use serde_json::{Value, json};

use crate::test_env::{EngineMode, TestEnv, TestEnvOptions, planning_mapping};
use crate::test_ticket::{SYSTEMS, TestTicket, mapping_for};

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

const DEDUP: &str = "Already dispatched recently. Waiting for the in-flight job.";

/// Ticket, team, reason, message.
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
async fn every_reason_to_wait_is_told_in_its_words() {
    for system in SYSTEMS {
        // On Jira a ticket is found by its mapping, so there is none without one.
        let expected: Vec<Row> = WAITING
            .into_iter()
            .filter(|row| system == System::Linear || row.2 != "no-mapping")
            .collect();
        let world = crowded(system).await;
        assert_eq!(told(&world, "/api/blockers?all=true").await, expected);
        let of_the_spec = |row: &Row| ["concurrency", "dedup", "no-mapping"].contains(&row.2);
        let (spec, others): (Vec<Row>, Vec<Row>) = expected.into_iter().partition(of_the_spec);
        assert_eq!(told(&world, "/api/blockers").await, spec);
        let by_reason: Value = spec
            .iter()
            .map(|row| (row.2.to_owned(), json!(1)))
            .collect();
        assert_eq!(
            world.admin_get("/api/blockers").await["totals"],
            json!({"issues": spec.len(), "teams": spec.len(), "byReason": by_reason})
        );
        // Whoever sees none of them is told where they are.
        let by_reason: Value = others
            .iter()
            .map(|row| (row.2.to_owned(), json!(1)))
            .collect();
        assert_eq!(
            world.admin_get("/api/blockers").await["others"],
            json!({"issues": others.len(), "byReason": by_reason, "see": "/api/blockers?all=true"})
        );
        let all = world.admin_get("/api/blockers?all=true").await;
        assert_eq!(all["others"], Value::Null);
        world.finish().await;
    }
}

/// A world in which a ticket waits for each of the reasons, and has waited for a minute.
async fn crowded(system: System) -> TestEnv {
    let team = |team| mapping_for(system, team);
    let world = made(
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
    let bare = world.vendors.github().repo("acme", "bare");
    bare.seed(&[("README.md", "# Without workflows\n")], "Begin")
        .unwrap();
    let file = |key| TestTicket::create(&world, system, key, "Wait");
    for key in ["BARE-1", "DONE-1", "VM-1", "REST-1", "WEB-1"] {
        file(key).trigger();
    }
    file("ENG-9");
    let blocked = file("ENG-1");
    blocked.add_blocker("ENG-9");
    blocked.trigger();
    file("FULL-1").mark_in_progress();
    file("FULL-2").trigger();
    run_to_its_end(&world, &["DONE-1"]).await;
    // The one was parked by its first failure; of the other a person took the final marker away.
    file("BARE-1").trigger();
    file("DONE-1").reset_to_trigger();
    world.tick().await;
    let at = world.app.now();
    world.advance_clock(MINUTE);
    world.tick().await;
    for blocker in blockers(&world, "/api/blockers?all=true").await {
        let since: Timestamp = serde_json::from_value(blocker["since"].clone()).unwrap();
        assert!(since <= at, "{blocker}");
        let url = blocker["ticketUrl"].as_str().unwrap();
        assert!(
            url.contains(blocker["issueIdentifier"].as_str().unwrap()),
            "{url}"
        );
    }
    world
}

async fn made(
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

/// Dispatches the tickets, and turns the engine until all that came of it is told.
async fn run_to_its_end(world: &TestEnv, keys: &[&str]) {
    world.tick().await;
    world
        .wait_until(&format!("{keys:?} have ended"), || {
            let mut jobs = keys.iter().map(|key| world.jobs(key));
            jobs.all(|jobs| jobs.last().is_some_and(|job| !job.is_active()))
        })
        .await;
    world.tick().await;
}

async fn blockers(world: &TestEnv, path: &str) -> Vec<Value> {
    let answer = world.admin_get(path).await;
    answer["blockers"].as_array().unwrap().clone()
}

async fn told(world: &TestEnv, path: &str) -> Vec<Row> {
    let mut rows: Vec<Row> = blockers(world, path).await.iter().map(row).collect();
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
async fn what_no_run_can_do_without_is_named() {
    let callbacks: &[&str] = &["--runner-callback-base-url", "--runner-token-secret"];
    let github: &[&str] = &["--github-app-id", "--github-app-private-key"];
    for (without, message) in [
        (
            callbacks,
            "Planning needs runs that report: set RUNNER_CALLBACK_BASE_URL and RUNNER_TOKEN_SECRET.",
        ),
        (
            github,
            "The repository host is not configured: set GITHUB_APP_ID and GITHUB_APP_PRIVATE_KEY.",
        ),
    ] {
        let world = TestEnv::with_options(TestEnvOptions {
            mappings: vec![planning_mapping()],
            omitted_flags: without,
            engine: EngineMode::manual(),
            ..TestEnvOptions::default()
        })
        .await;
        world.create_labelled_issue("ENG-1", "Add the feature");
        world.tick().await;
        let expected = ("ENG-1", "ENG", "ineligible", message);
        assert_eq!(told(&world, "/api/blockers?all=true").await, [expected]);
        assert!(world.jobs("ENG-1").is_empty());
        world.finish().await;
    }
}

const KEYS: [&str; 2] = ["ENG-1", "OPS-1"];

/// A ticket on either system with its pull request open, which a person then asked for again; and
/// when both were dispatched.
async fn asked_again(flags: &[(&'static str, &str)]) -> (TestEnv, Timestamp) {
    let world = made(
        [
            mapping_for(System::Linear, "ENG"),
            mapping_for(System::Jira, "OPS"),
        ],
        flags,
    )
    .await;
    let tickets = SYSTEMS.into_iter().zip(KEYS).map(|(system, key)| {
        let passes = ["one\n", "two\n"].map(|text| [ScriptStep::write("feature.txt", text)]);
        let script = passes.into_iter().fold(Script::new(), Script::pass);
        world.set_agent_script(key, script);
        TestTicket::create(&world, system, key, "Add the feature")
    });
    let tickets: Vec<TestTicket> = tickets.collect();
    tickets.iter().for_each(TestTicket::trigger);
    let dispatched = world.app.now();
    run_to_its_end(&world, &KEYS).await;
    tickets.iter().for_each(TestTicket::reset_to_trigger);
    (world, dispatched)
}

/// Turns the clock to a moment.
fn wait_until(world: &TestEnv, moment: Timestamp) {
    world.advance_clock(moment.since(world.app.now()));
}

/// Turns the engine: both tickets are held by the dedup window, and nothing is dispatched.
async fn is_held(world: &TestEnv) {
    world.tick().await;
    let expected = [
        ("ENG-1", "ENG", "dedup", DEDUP),
        ("OPS-1", "OPS", "dedup", DEDUP),
    ];
    assert_eq!(told(world, "/api/blockers").await, expected);
    assert_eq!(world.repo().runs().len(), 2);
}

/// Turns the engine: both tickets run a second time, and nothing is left of it.
async fn runs_again(world: TestEnv) {
    run_to_its_end(&world, &KEYS).await;
    for key in KEYS {
        let states: Vec<&str> = world
            .jobs(key)
            .iter()
            .map(|job| job.state.status())
            .collect();
        assert_eq!(states, ["completed", "completed"], "{key}");
    }
    assert_eq!(world.repo().pulls().len(), 2);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dispatch_is_remembered_for_a_day_whatever_the_vendors_do() {
    let (world, dispatched) = asked_again(&[]).await;
    is_held(&world).await;
    let entries = world.admin_get("/api/dedup").await;
    let outage = |on| {
        for vendor in [FakeService::Linear, FakeService::Jira, FakeService::GitHub] {
            world.vendors.faults(vendor).set_outage(on);
        }
    };
    outage(true);
    for _ in 0..3 {
        world.advance_clock(HOUR);
        world.tick().await;
    }
    assert_eq!(world.admin_get("/api/dedup").await, entries);
    outage(false);
    is_held(&world).await;
    wait_until(&world, dispatched + 24 * HOUR - Duration::from_millis(1));
    is_held(&world).await;
    wait_until(&world, dispatched + 24 * HOUR);
    runs_again(world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_window_of_no_length_never_ends_by_itself() {
    let (world, dispatched) = asked_again(&[("--dedup-window-hours", "0")]).await;
    wait_until(&world, dispatched + 10_000 * HOUR);
    is_held(&world).await;
    for key in KEYS {
        let path = format!("/api/dedup/{key}");
        let freed = world.admin_request(Method::DELETE, &path, None).await;
        assert_eq!(freed, (200, json!({"deleted": true})));
    }
    runs_again(world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_window_of_another_length_counts_from_the_dispatch() {
    let (world, dispatched) = asked_again(&[("--dedup-window-hours", "0")]).await;
    let world = world
        .restart_service(TestEnvOptions {
            mappings: Vec::new(),
            extra_flags: vec![("--dedup-window-hours", "2".to_owned())],
            engine: EngineMode::manual(),
            ..TestEnvOptions::default()
        })
        .await;
    wait_until(&world, dispatched + 2 * HOUR - Duration::from_millis(1));
    is_held(&world).await;
    wait_until(&world, dispatched + 2 * HOUR);
    runs_again(world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_outlasts_the_window_is_not_joined_by_a_second() {
    let patient = |system, team| Mapping {
        max_job_minutes: Some(3_000),
        ..mapping_for(system, team)
    };
    let world = made(
        [patient(System::Linear, "ENG"), patient(System::Jira, "OPS")],
        &[],
    )
    .await;
    world.vendors.github().set_start_delay(100 * HOUR);
    let tickets = SYSTEMS.into_iter().zip(KEYS);
    let tickets = tickets.map(|(system, key)| TestTicket::create(&world, system, key, "Wait"));
    let tickets: Vec<TestTicket> = tickets.collect();
    tickets.iter().for_each(TestTicket::trigger);
    world.tick().await;
    tickets.iter().for_each(TestTicket::reset_to_trigger);
    world.advance_clock(25 * HOUR);
    world.tick().await;
    assert_eq!(world.repo().runs().len(), 2);
    for key in KEYS {
        let why = world.admin_get(&format!("/api/why/{key}")).await;
        let told = (&why["decision"]["outcome"], &why["decision"]["message"]);
        assert_eq!(
            told,
            (&json!("in-progress"), &json!("A run is in progress."))
        );
    }
    world.stop().await;
}
