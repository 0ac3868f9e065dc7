//! Bad days of the vendors: what they showed last stands, those that answer go on, and nobody is
//! asked again before the time they named.

use std::time::{Duration, SystemTime};

use domain::ids::Repo;
use domain::job::JobState;
use domain::time::Timestamp;
use fake_vendors::scripted_agent::{Script, ScriptStep};
use fake_vendors::{FakeService, LoggedRequest};
use serde_json::{Value, json};

use crate::jira::{create_ticket, mapping_for_repo};
use crate::test_env::{EngineMode, TestEnv, TestEnvOptions, mapping};

/// Longer than any wait between two tries of an effect.
const LONG: Duration = Duration::from_secs(5 * 60);

/// How long does a vendor refuse us in these stories?
const LIMIT: Duration = Duration::from_secs(15);

/// Team `ENG` on Linear and `OPS` on Jira, both for one repository.
async fn world(engine: EngineMode) -> TestEnv {
    TestEnv::with_options(TestEnvOptions {
        mappings: vec![mapping(), mapping_for_repo("OPS", "shop")],
        engine,
        ..TestEnvOptions::default()
    })
    .await
}

fn flag(world: &TestEnv, key: &str) {
    if key.starts_with("ENG") {
        world.create_labelled_issue(key, "Add the feature");
    } else {
        create_ticket(world, key, "Add the feature").status("Ready");
    }
}

fn comments(world: &TestEnv, key: &str) -> Vec<String> {
    if key.starts_with("ENG") {
        world.vendors.linear().issue(key).comments()
    } else {
        world.vendors.jira().issue(key).comments()
    }
}

/// The identifiers and decisions of a team's issues.
fn shown(issues: &Value, team: &str) -> Vec<(String, Value)> {
    let issues = issues["issues"].as_array().unwrap().iter();
    issues
        .filter(|issue| issue["teamKey"] == team)
        .map(|issue| {
            let identifier = issue["identifier"].as_str().unwrap();
            (identifier.to_owned(), issue["decision"].clone())
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn linear_is_down_for_three_cycles_and_nothing_is_wiped() {
    let world = world(EngineMode::manual()).await;
    let linear = world.vendors.linear();
    linear.issue("ENG-9").title("Stands in the way");
    let blocked = linear.issue("ENG-1").title("Waits").blocked_by("ENG-9");
    blocked.add_label("Agent-Implement");
    let marked = linear.issue("ENG-3").title("Somebody is at it");
    marked
        .add_label("Agent-Implement")
        .add_label("Agent-Working");
    flag(&world, "ENG-2");
    world.tick().await;
    let last_seen = world.app.now();
    let before = world.admin_get("/api/issues").await;
    assert_eq!(
        (&before["stale"], &before["staleSince"]),
        (&json!([]), &json!({}))
    );
    assert_eq!(before["inProgressCountsByTeam"], json!({"ENG": 1}));
    let why = world.admin_get("/api/why/ENG-1").await;
    assert_eq!(why["decision"]["message"], "Blocked by ENG-9, still open.");

    world.vendors.faults(FakeService::Linear).set_outage(true);
    world
        .wait_until("the run has reported", || {
            !world.jobs("ENG-2")[0].is_active()
        })
        .await;
    flag(&world, "OPS-1");
    for cycle in 1..=3 {
        world.advance_clock(LONG);
        world.tick().await;
        let issues = world.admin_get("/api/issues").await;
        assert_eq!(issues["stale"], json!(["ENG"]), "cycle {cycle}");
        assert_eq!(
            issues["staleSince"],
            json!({"ENG": last_seen}),
            "cycle {cycle}"
        );
        assert_eq!(
            shown(&issues, "ENG"),
            shown(&before, "ENG"),
            "cycle {cycle}"
        );
        let counts = &issues["inProgressCountsByTeam"];
        assert_eq!(counts["ENG"], 1, "cycle {cycle}: {counts}");
        let blockers = world.admin_get("/api/blockers?all=true").await;
        assert_eq!(
            blockers["blockers"][0]["message"], "Blocked by ENG-9, still open.",
            "cycle {cycle}: {blockers}"
        );
        assert_eq!(
            world.admin_get("/api/why/ENG-1").await,
            why,
            "cycle {cycle}"
        );
        let dedup = world.admin_get("/api/dedup").await;
        let kept = dedup.as_array().unwrap().iter();
        let mut kept = kept.map(|entry| entry["issueIdentifier"].as_str().unwrap());
        assert!(kept.any(|key| key == "ENG-2"), "cycle {cycle}: {dedup}");
    }
    world
        .wait_until("the run has reported", || {
            !world.jobs("OPS-1")[0].is_active()
        })
        .await;
    assert_eq!(
        world.jobs("OPS-1")[0].state,
        JobState::Completed,
        "others go on"
    );
    assert!(
        comments(&world, "ENG-2").is_empty(),
        "it could not be told yet"
    );

    world.vendors.faults(FakeService::Linear).set_outage(false);
    linear.issue("ENG-9").complete();
    world.advance_clock(LONG);
    world.tick().await;
    let after = world.admin_get("/api/issues").await;
    assert_eq!(
        (&after["stale"], &after["staleSince"]),
        (&json!([]), &json!({}))
    );
    assert_eq!(
        world.jobs("ENG-1").len(),
        1,
        "what has changed meanwhile is seen"
    );
    world
        .wait_until("the run has reported", || {
            !world.jobs("ENG-1")[0].is_active()
        })
        .await;
    world.tick().await;
    for key in ["ENG-1", "ENG-2", "OPS-1"] {
        assert_eq!(
            (world.jobs(key).len(), comments(&world, key).len()),
            (1, 1),
            "{key}"
        );
    }
    assert_eq!(
        linear.issue("ENG-2").labels(),
        ["Agent-Implement", "Ready for Review"]
    );
    world.finish().await;
}

/// Status and detail of a connection, and when its vendor takes requests again.
async fn connection(world: &TestEnv, name: &str, account: &str) -> (String, String, Value) {
    let status = world.admin_get("/api/admin/config-status").await;
    let named = |list: &str, field: &str, wanted: &str| {
        let mut list = status[list].as_array().unwrap().iter();
        list.find(|entry| entry[field] == wanted)
            .cloned()
            .unwrap_or_default()
    };
    let check = named("checks", "name", name);
    let quota = named("quota", "account", account);
    let text = |field: &str| check[field].as_str().unwrap().to_owned();
    (text("status"), text("detail"), quota["resetAt"].clone())
}

/// Requests that the vendor refused before `until`; it got no other after the first of them.
fn refused_before(world: &TestEnv, vendor: FakeService, until: SystemTime) -> Vec<LoggedRequest> {
    let until = until.duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let until = Timestamp::EPOCH + until;
    let mut asked = world.vendors.requests().for_service(vendor);
    asked.retain(|request| Timestamp::parse(&request.at).unwrap() < until);
    let first = asked.iter().position(is_refused).unwrap();
    let refused = asked.split_off(first);
    assert!(refused.iter().all(is_refused), "{refused:#?}");
    refused
}

fn is_refused(request: &LoggedRequest) -> bool {
    request.status.is_some_and(|status| status >= 400)
}

/// A vendor refuses us from now on until the answered moment.
fn limit(world: &TestEnv, vendor: FakeService) -> SystemTime {
    let until = SystemTime::now() + LIMIT;
    world.vendors.requests().clear();
    world.vendors.faults(vendor).rate_limit_until(Some(until));
    until
}

/// Waits until the vendor has refused us.
async fn is_noticed(world: &TestEnv, vendor: FakeService) {
    let requests = || world.vendors.requests().for_service(vendor);
    world
        .wait_until("it refuses", || requests().iter().any(is_refused))
        .await;
}

/// A ticketing system and the other one.
struct Side {
    vendor: FakeService,
    check: &'static str,
    team: &'static str,
    other_check: &'static str,
    other_team: &'static str,
}

async fn is_left_alone_until_its_reset(side: Side) {
    let Side {
        vendor,
        team,
        check,
        ..
    } = side;
    let key = |team: &str, number: u32| format!("{team}-{number}");
    let (running, new, others) = (key(team, 1), key(team, 2), key(side.other_team, 1));
    let world = world(EngineMode::Running).await;
    // Long enough for a poll to be refused before the run has something to tell.
    let takes_a_while = [
        ScriptStep::Sleep { ms: 2_000 },
        ScriptStep::write("a.txt", "a\n"),
    ];
    world.set_agent_script(&running, Script::new().pass(takes_a_while));
    flag(&world, &running);
    world
        .wait_until("it runs", || {
            world
                .jobs(&running)
                .iter()
                .any(|job| job.started_at.is_some())
        })
        .await;
    world.wait_for_empty_outbox().await;

    let until = limit(&world, vendor);
    is_noticed(&world, vendor).await;
    flag(&world, &new);
    flag(&world, &others);
    let (status, detail, reset) = connection(&world, check, vendor.name()).await;
    assert_eq!(status, "limited");
    let reset_at = reset.as_str().unwrap();
    assert!(
        detail.contains(&format!("no requests before {reset_at}")),
        "{detail}"
    );
    let named = Timestamp::parse(reset_at).unwrap();
    let actual = until.duration_since(SystemTime::UNIX_EPOCH).unwrap();
    assert!(
        named + Duration::from_millis(1) >= Timestamp::EPOCH + actual,
        "never too early"
    );
    assert_eq!(connection(&world, side.other_check, "").await.0, "ok");
    world
        .wait_until("the other system goes on", || {
            world.jobs(&others).len() == 1
        })
        .await;
    world
        .wait_until("the run has reported", || {
            !world.jobs(&running)[0].is_active()
        })
        .await;
    world.wait_for_polls().await;
    assert!(
        SystemTime::now() < until,
        "all that happened before the reset"
    );
    assert!(world.jobs(&new).is_empty() && comments(&world, &running).is_empty());
    let issues = world.admin_get("/api/issues").await;
    assert_eq!(issues["stale"], json!([team]));

    for key in [&running, &new, &others] {
        assert_eq!(
            world.wait_for_job_end(key).await.state,
            JobState::Completed,
            "{key}"
        );
        assert_eq!(
            (world.jobs(key).len(), comments(&world, key).len()),
            (1, 1),
            "{key}"
        );
    }
    let refused = refused_before(&world, vendor, until);
    assert_eq!(refused.len(), 1, "and not asked again: {refused:#?}");
    world.wait_for_polls().await;
    assert_eq!(world.admin_get("/api/issues").await["stale"], json!([]));
    assert_eq!(connection(&world, check, "").await.0, "ok");
    assert_eq!(world.repo().runs().len(), 3);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limited_linear_is_left_alone_until_its_reset() {
    is_left_alone_until_its_reset(Side {
        vendor: FakeService::Linear,
        check: "ticketing-a",
        team: "ENG",
        other_check: "ticketing-b",
        other_team: "OPS",
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limited_jira_is_left_alone_until_its_reset() {
    is_left_alone_until_its_reset(Side {
        vendor: FakeService::Jira,
        check: "ticketing-b",
        team: "OPS",
        other_check: "ticketing-a",
        other_team: "ENG",
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limited_host_delays_runs_and_stops_nothing_else() {
    let world = world(EngineMode::Running).await;
    let github = world.app.github.clone().unwrap();
    // So that it is the way to the run which is refused, not the way to a token.
    github
        .default_branch(&Repo::new("acme", "shop"))
        .await
        .unwrap();
    let until = limit(&world, FakeService::GitHub);
    flag(&world, "ENG-1");
    is_noticed(&world, FakeService::GitHub).await;
    flag(&world, "OPS-1");
    let (status, detail, reset) = connection(&world, "repo-host", "github installation 5000").await;
    assert_eq!(status, "limited");
    let reset = reset.as_str().unwrap();
    let words = format!("no requests of installation 5000 before {reset}");
    assert!(detail.contains(&words), "{detail}");
    for _ in 0..2 {
        world.wait_for_polls().await;
    }
    let blocked = world
        .vendors
        .linear()
        .issue("ENG-3")
        .title("New")
        .blocked_by("ENG-1");
    blocked.add_label("Agent-Implement");
    world.wait_for_polls().await;
    let why = world.admin_get("/api/why/ENG-3").await;
    assert_eq!(
        why["decision"]["reason"], "blocked",
        "tickets are decided about all the same"
    );
    assert_eq!(world.jobs("ENG-1")[0].state, JobState::Reserved);
    assert!(
        world.jobs("OPS-1").is_empty(),
        "nothing is reserved in vain"
    );
    let why = world.admin_get("/api/why/OPS-1").await;
    assert_eq!(why["decision"]["reason"], "quota");
    let words = format!("The repository host takes no requests until {reset}.");
    assert_eq!(why["decision"]["message"], words);
    assert!(
        SystemTime::now() < until,
        "all that happened before the reset"
    );

    for key in ["ENG-1", "OPS-1"] {
        assert_eq!(
            world.wait_for_job_end(key).await.state,
            JobState::Completed,
            "{key}"
        );
        assert_eq!(
            (world.jobs(key).len(), comments(&world, key).len()),
            (1, 1),
            "{key}"
        );
    }
    let refused = refused_before(&world, FakeService::GitHub, until);
    let image = "/contents/.agent-implement/image.yml";
    let are_of_the_run = refused.iter().all(|request| request.url.contains(image));
    assert!(are_of_the_run, "{refused:#?}");
    assert!(refused.len() <= 1, "once, and not again: {refused:#?}");
    assert_eq!(connection(&world, "repo-host", "").await.0, "ok");
    assert_eq!(
        (world.repo().runs().len(), world.repo().pulls().len()),
        (2, 2)
    );
    world.finish().await;
}
