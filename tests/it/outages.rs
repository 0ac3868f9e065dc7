//! Vendor outages and rate limits: snapshots are kept, other vendors are not affected, and no request
//! is sent before the reset.

use std::time::{Duration, SystemTime};

use domain::ids::Repo;
use domain::job::JobState;
use domain::time::Timestamp;
use fake_vendors::scripted_agent::{Script, ScriptStep};
use fake_vendors::{FakeService, InjectedFault, LoggedRequest};
use serde_json::{Value, json};

use crate::jira::{create_ticket, mapping_for_repo};
use crate::test_env::{EngineMode, TestEnv, TestEnvOptions, mapping};

/// Longer than any delay between two attempts of an effect.
const LONGER_THAN_RETRY_DELAY: Duration = Duration::from_secs(5 * 60);

/// Duration of a rate limit in these tests.
const RATE_LIMIT_DURATION: Duration = Duration::from_secs(15);

/// Team `ENG` on Linear and `OPS` on Jira, both for one repository.
async fn start_env(engine: EngineMode) -> TestEnv {
    TestEnv::with_options(TestEnvOptions {
        mappings: vec![mapping(), mapping_for_repo("OPS", "shop")],
        engine,
        ..TestEnvOptions::default()
    })
    .await
}

fn create_labelled(env: &TestEnv, key: &str) {
    if key.starts_with("ENG") {
        env.create_labelled_issue(key, "Add the feature");
    } else {
        create_ticket(env, key, "Add the feature").status("Ready");
    }
}

fn comments(env: &TestEnv, key: &str) -> Vec<String> {
    if key.starts_with("ENG") {
        env.vendors.linear().issue(key).comments()
    } else {
        env.vendors.jira().issue(key).comments()
    }
}

/// Identifiers and decisions of a team's issues.
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
async fn an_outage_of_linear_keeps_its_snapshot_and_decisions() {
    let env = start_env(EngineMode::manual()).await;
    let linear = env.vendors.linear();
    linear.issue("ENG-9").title("Stands in the way");
    let blocked = linear.issue("ENG-1").title("Waits").blocked_by("ENG-9");
    blocked.add_label("Agent-Implement");
    let marked = linear.issue("ENG-3").title("In progress");
    marked
        .add_label("Agent-Implement")
        .add_label("Agent-Working");
    create_labelled(&env, "ENG-2");
    env.tick().await;
    let last_seen = env.app.core.now();
    let before = env.admin_get("/api/issues").await;
    assert_eq!(
        (&before["stale"], &before["staleSince"]),
        (&json!([]), &json!({}))
    );
    assert_eq!(before["inProgressCountsByTeam"], json!({"ENG": 1}));
    let why = env.admin_get("/api/why/ENG-1").await;
    assert_eq!(why["decision"]["message"], "Blocked by ENG-9, still open.");

    env.vendors.faults(FakeService::Linear).set_outage(true);
    env.wait_until("the run has reported", || !env.jobs("ENG-2")[0].is_active())
        .await;
    create_labelled(&env, "OPS-1");
    for cycle in 1..=3 {
        env.advance_clock(LONGER_THAN_RETRY_DELAY);
        env.tick().await;
        let issues = env.admin_get("/api/issues").await;
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
        let blockers = env.admin_get("/api/blockers?all=true").await;
        assert_eq!(
            blockers["blockers"][0]["message"], "Blocked by ENG-9, still open.",
            "cycle {cycle}: {blockers}"
        );
        assert_eq!(env.admin_get("/api/why/ENG-1").await, why, "cycle {cycle}");
        let dedup = env.admin_get("/api/dedup").await;
        let kept = dedup.as_array().unwrap().iter();
        let mut kept = kept.map(|entry| entry["issueIdentifier"].as_str().unwrap());
        assert!(kept.any(|key| key == "ENG-2"), "cycle {cycle}: {dedup}");
    }
    env.wait_until("the run has reported", || !env.jobs("OPS-1")[0].is_active())
        .await;
    assert_eq!(
        env.jobs("OPS-1")[0].state,
        JobState::Completed,
        "the other system is not affected"
    );
    assert!(
        comments(&env, "ENG-2").is_empty(),
        "the comment is not posted yet"
    );

    env.vendors.faults(FakeService::Linear).set_outage(false);
    linear.issue("ENG-9").complete();
    env.advance_clock(LONGER_THAN_RETRY_DELAY);
    env.tick().await;
    let after = env.admin_get("/api/issues").await;
    assert_eq!(
        (&after["stale"], &after["staleSince"]),
        (&json!([]), &json!({}))
    );
    assert_eq!(
        env.jobs("ENG-1").len(),
        1,
        "changes during the outage are polled"
    );
    env.wait_until("the run has reported", || !env.jobs("ENG-1")[0].is_active())
        .await;
    env.tick().await;
    for key in ["ENG-1", "ENG-2", "OPS-1"] {
        assert_eq!(
            (env.jobs(key).len(), comments(&env, key).len()),
            (1, 1),
            "{key}"
        );
    }
    assert_eq!(
        linear.issue("ENG-2").labels(),
        ["Agent-Implement", "Ready for Review"]
    );
    env.finish().await;
}

/// Status and detail of a connection, and the reset time of its quota.
async fn connection(env: &TestEnv, name: &str, account: &str) -> (String, String, Value) {
    let status = env.admin_get("/api/admin/config-status").await;
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

/// Requests that the vendor refused before `until`. Fails if another request follows the first.
fn refused_before(env: &TestEnv, vendor: FakeService, until: SystemTime) -> Vec<LoggedRequest> {
    let until = until.duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let until = Timestamp::EPOCH + until;
    let mut requests = env.vendors.requests().for_service(vendor);
    requests.retain(|request| Timestamp::parse(&request.at).unwrap() < until);
    let first = requests.iter().position(is_refused).unwrap();
    let refused = requests.split_off(first);
    assert!(refused.iter().all(is_refused), "{refused:#?}");
    refused
}

fn is_refused(request: &LoggedRequest) -> bool {
    request.status.is_some_and(|status| status >= 400)
}

/// Rate-limits a vendor from now on. Returns the end of the limit.
fn start_rate_limit(env: &TestEnv, vendor: FakeService) -> SystemTime {
    let until = SystemTime::now() + RATE_LIMIT_DURATION;
    env.vendors.requests().clear();
    env.vendors.faults(vendor).rate_limit_until(Some(until));
    until
}

/// Waits until the vendor has refused a request.
async fn wait_for_refusal(env: &TestEnv, vendor: FakeService) {
    let requests = || env.vendors.requests().for_service(vendor);
    env.wait_until("a request is refused", || requests().iter().any(is_refused))
        .await;
}

/// The rate-limited ticketing system and the other one.
struct SystemPair {
    vendor: FakeService,
    name: &'static str,
    check: &'static str,
    team: &'static str,
    other_check: &'static str,
    other_team: &'static str,
}

async fn assert_no_requests_until_reset(pair: SystemPair) {
    let SystemPair {
        vendor,
        team,
        check,
        ..
    } = pair;
    let key = |team: &str, number: u32| format!("{team}-{number}");
    let (running, new, others) = (key(team, 1), key(team, 2), key(pair.other_team, 1));
    let env = start_env(EngineMode::Running).await;
    // Long enough for a poll to be refused before the run reports.
    let slow_steps = [
        ScriptStep::Sleep { ms: 2_000 },
        ScriptStep::write("a.txt", "a\n"),
    ];
    env.set_agent_script(&running, Script::new().pass(slow_steps));
    create_labelled(&env, &running);
    env.wait_until("it runs", || {
        env.jobs(&running)
            .iter()
            .any(|job| job.started_at.is_some())
    })
    .await;
    env.wait_for_empty_outbox().await;

    let until = start_rate_limit(&env, vendor);
    wait_for_refusal(&env, vendor).await;
    create_labelled(&env, &new);
    create_labelled(&env, &others);
    let (status, detail, reset) = connection(&env, check, pair.name).await;
    assert_eq!(status, "limited");
    let named = Timestamp::parse(reset.as_str().unwrap()).unwrap();
    let message = format!("no requests before {}.", named.date_text());
    assert!(detail.contains(&message), "{detail}");
    let actual = until.duration_since(SystemTime::UNIX_EPOCH).unwrap();
    assert!(
        named + Duration::from_millis(1) >= Timestamp::EPOCH + actual,
        "the reset is not too early"
    );
    assert_eq!(connection(&env, pair.other_check, "").await.0, "ok");
    env.wait_until("the other system dispatches", || {
        env.jobs(&others).len() == 1
    })
    .await;
    env.wait_until("the run has reported", || {
        !env.jobs(&running)[0].is_active()
    })
    .await;
    env.wait_for_polls().await;
    assert!(SystemTime::now() < until, "all checks ran before the reset");
    assert!(env.jobs(&new).is_empty() && comments(&env, &running).is_empty());
    let issues = env.admin_get("/api/issues").await;
    assert_eq!(issues["stale"], json!([team]));

    for key in [&running, &new, &others] {
        assert_eq!(
            env.wait_for_job_end(key).await.state,
            JobState::Completed,
            "{key}"
        );
        assert_eq!(
            (env.jobs(key).len(), comments(&env, key).len()),
            (1, 1),
            "{key}"
        );
    }
    let refused = refused_before(&env, vendor, until);
    assert_eq!(refused.len(), 1, "not repeated: {refused:#?}");
    env.wait_for_polls().await;
    assert_eq!(env.admin_get("/api/issues").await["stale"], json!([]));
    assert_eq!(connection(&env, check, "").await.0, "ok");
    assert_eq!(env.repo().runs().len(), 3);
    env.finish().await;
}

/// Otherwise, a Jira that hangs keeps the poll of all systems from its end.
#[tokio::test(flavor = "multi_thread")]
async fn a_jira_that_does_not_answer_is_asked_once_per_poll() {
    let jira = (1..=12).map(|at| mapping_for_repo(&format!("OPS{at}"), "shop"));
    let env = TestEnv::with_options(TestEnvOptions {
        mappings: jira.chain([mapping()]).collect(),
        engine: EngineMode::manual(),
        ..TestEnvOptions::default()
    })
    .await;
    env.vendors.faults(FakeService::Jira).set_outage(true);
    create_labelled(&env, "ENG-1");
    env.vendors.requests().clear();
    env.tick().await;
    let requests = env.vendors.requests().for_service(FakeService::Jira);
    // One call and its retries.
    assert!(requests.len() <= 4, "{} requests", requests.len());
    assert_eq!(env.jobs("ENG-1").len(), 1);
    env.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rate_limited_linear_gets_no_requests_until_its_reset() {
    assert_no_requests_until_reset(SystemPair {
        vendor: FakeService::Linear,
        name: "Linear",
        check: "ticketing-a",
        team: "ENG",
        other_check: "ticketing-b",
        other_team: "OPS",
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rate_limited_jira_gets_no_requests_until_its_reset() {
    assert_no_requests_until_reset(SystemPair {
        vendor: FakeService::Jira,
        name: "Jira",
        check: "ticketing-b",
        team: "OPS",
        other_check: "ticketing-a",
        other_team: "ENG",
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rate_limited_github_delays_only_runs() {
    let env = start_env(EngineMode::Running).await;
    let github = env.app.vendors.github.clone().unwrap();
    // Caches the installation token, so that the dispatch is refused and not the token request.
    github
        .default_branch(&Repo::new("acme", "shop"))
        .await
        .unwrap();
    let until = start_rate_limit(&env, FakeService::GitHub);
    create_labelled(&env, "ENG-1");
    wait_for_refusal(&env, FakeService::GitHub).await;
    create_labelled(&env, "OPS-1");
    let (status, detail, reset) = connection(&env, "repo-host", "GitHub installation 5000").await;
    assert_eq!(status, "limited");
    let reset = Timestamp::parse(reset.as_str().unwrap())
        .unwrap()
        .date_text();
    let message = format!("no requests of installation 5000 before {reset}");
    assert!(detail.contains(&message), "{detail}");
    for _ in 0..2 {
        env.wait_for_polls().await;
    }
    let blocked = env
        .vendors
        .linear()
        .issue("ENG-3")
        .title("New")
        .blocked_by("ENG-1");
    blocked.add_label("Agent-Implement");
    env.wait_for_polls().await;
    let why = env.admin_get("/api/why/ENG-3").await;
    assert_eq!(
        why["decision"]["reason"], "blocked",
        "tickets are still decided"
    );
    assert_eq!(env.jobs("ENG-1")[0].state, JobState::Reserved);
    assert!(env.jobs("OPS-1").is_empty(), "nothing is reserved");
    let why = env.admin_get("/api/why/OPS-1").await;
    assert_eq!(why["decision"]["reason"], "quota");
    let message = format!("GitHub is rate limited until {reset}.");
    assert_eq!(why["decision"]["message"], message);
    assert!(SystemTime::now() < until, "all checks ran before the reset");

    for key in ["ENG-1", "OPS-1"] {
        assert_eq!(
            env.wait_for_job_end(key).await.state,
            JobState::Completed,
            "{key}"
        );
        assert_eq!(
            (env.jobs(key).len(), comments(&env, key).len()),
            (1, 1),
            "{key}"
        );
    }
    let refused = refused_before(&env, FakeService::GitHub, until);
    let image = "/contents/.agent-implement/image.yml";
    let all_for_image = refused.iter().all(|request| request.url.contains(image));
    assert!(all_for_image, "{refused:#?}");
    assert!(refused.len() <= 1, "once, and not again: {refused:#?}");
    assert_eq!(connection(&env, "repo-host", "").await.0, "ok");
    assert_eq!((env.repo().runs().len(), env.repo().pulls().len()), (2, 2));
    env.finish().await;
}

/// The credential may be renewed in time, as for every other effect.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_credential_delays_the_start_of_a_ci_run() {
    let env = start_env(EngineMode::manual()).await;
    let faults = env.vendors.faults(FakeService::GitHub);
    for _ in 0..3 {
        faults.inject_on_match("/dispatches", InjectedFault::ErrorStatus(401));
    }
    create_labelled(&env, "ENG-1");
    let is_refused = || faults.pending() == 0;
    env.tick_until("the start is refused", || {
        env.advance_clock(LONGER_THAN_RETRY_DELAY);
        is_refused()
    })
    .await;
    assert_eq!(comments(&env, "ENG-1"), [""; 0]);
    env.advance_clock(LONGER_THAN_RETRY_DELAY);
    env.tick().await;
    env.wait_until("the run has reported", || !env.jobs("ENG-1")[0].is_active())
        .await;
    assert_eq!(env.jobs("ENG-1").len(), 1);
    assert_eq!(env.jobs("ENG-1")[0].state, JobState::Completed);
    env.tick_until_drained().await;
    env.finish().await;
}
