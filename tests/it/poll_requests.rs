//! Number of requests per poll: it depends on the pages to read, not on the number of mappings or runs.

use std::sync::Arc;
use std::time::Duration;

use domain::decision::DecisionOutcome;
use domain::issue::{IssueRef, System};
use domain::mapping::Mapping;
use domain::string_arena::ArenaStr;
use engine::app::PolledIssue;
use fake_vendors::{FakeService, LoggedRequest};
use store::{mappings, open_questions};

use crate::jira::{create_ticket, mapping_for_repo, mapping_with_query};
use crate::test_env::{EngineMode, TestEnv, TestEnvOptions, mapping, mapping_with};

/// Hourly quota larger than the requests of any test.
const LARGE_QUOTA: u64 = 1_000_000;

async fn start_env(mappings: Vec<Mapping>) -> TestEnv {
    let env = TestEnv::with_options(TestEnvOptions {
        mappings,
        engine: EngineMode::manual(),
        ..TestEnvOptions::default()
    })
    .await;
    env.vendors.linear().set_quota(LARGE_QUOTA);
    env.vendors.github().set_quota(LARGE_QUOTA);
    env
}

/// Runs one poll. Returns the requests to the vendor.
async fn requests_of_poll(env: &TestEnv, vendor: FakeService) -> Vec<LoggedRequest> {
    // Issues that changed before the last poll have no new commands.
    env.advance_clock(Duration::from_secs(60 * 60));
    env.vendors.requests().clear();
    engine::poll::run_once(&env.app).await.unwrap();
    env.vendors.requests().for_service(vendor)
}

fn team(number: usize) -> String {
    format!("T{number}")
}

/// Creates five hundred labelled issues, ten for each of fifty teams. All are children of one issue. In
/// each team, all but the first are blocked.
fn create_five_hundred_issues(env: &TestEnv) {
    let linear = env.vendors.linear();
    linear.issue("T0-1").title("Parent");
    linear.issue("T0-2").title("Blocker");
    for number in 1..=50 {
        for at in 1..=10 {
            let issue = linear.issue(&format!("{}-{at}", team(number)));
            let issue = issue.title("Do it").child_of("T0-1");
            let waits = if at > 1 {
                issue.blocked_by("T0-2")
            } else {
                issue
            };
            waits.add_label("Agent-Implement");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn linear_gets_one_request_per_page_for_any_number_of_mappings() {
    let of_team = |number| Mapping {
        team_key: team(number).as_str().into(),
        ..mapping()
    };
    let env = start_env(vec![of_team(1)]).await;
    create_five_hundred_issues(&env);
    for mapped in [1, 50] {
        for number in 1..=mapped {
            let mapping = of_team(number);
            let put = env.store.write(move |tx| mappings::put(tx, &mapping));
            put.await.unwrap();
        }
        // Two pages of 250, and one request for the siblings of all dispatched issues.
        let requests = requests_of_poll(&env, FakeService::Linear).await;
        assert_eq!(requests.len(), 3, "{mapped} mappings: {requests:#?}");
        let log = env.admin_get("/api/log").await;
        let reserved = log.as_array().unwrap().len();
        assert_eq!(reserved, mapped, "the unblocked issue of each team");
        let requests = requests_of_poll(&env, FakeService::Linear).await;
        assert_eq!(requests.len(), 2, "{mapped} mappings: {requests:#?}");
    }
    let shown = env.admin_get("/api/issues").await;
    assert_eq!(shown["issues"].as_array().unwrap().len(), 500);
    env.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_mappings_of_one_team_take_as_many_requests_as_one() {
    let of_label = |number| {
        let matching = serde_json::json!({"label": format!("repo:{number}")});
        let config = serde_json::json!({"kind": "A", "teamKey": "ENG", "match": matching});
        let key = format!("m{number}");
        mapping_with(&serde_json::json!({"teamKey": key, "ticketingConfig": config}))
    };
    let env = start_env(vec![mapping()]).await;
    let linear = env.vendors.linear();
    linear.issue("ENG-900").title("Blocker");
    for number in 1..=260 {
        let issue = linear.issue(&format!("ENG-{number}")).title("Do it");
        let issue = issue.blocked_by("ENG-900");
        let issue = issue.add_label(&format!("repo:{}", number % 50));
        issue.add_label("Agent-Implement");
    }
    let before = requests_of_poll(&env, FakeService::Linear).await;
    for number in 0..50 {
        let mapping = of_label(number);
        let put = env.store.write(move |tx| mappings::put(tx, &mapping));
        put.await.unwrap();
    }
    let after = requests_of_poll(&env, FakeService::Linear).await;
    assert_eq!((before.len(), after.len()), (2, 2), "{after:#?}");
    let issues = env.admin_get("/api/issues").await;
    let teams = issues["issues"].as_array().unwrap().iter();
    let teams: std::collections::BTreeSet<&str> = teams
        .map(|issue| issue["teamKey"].as_str().unwrap())
        .collect();
    assert_eq!(teams.len(), 50, "{teams:?}");
    env.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unchanged_issues_share_memory_between_snapshots() {
    let env = start_env(vec![mapping()]).await;
    let linear = env.vendors.linear();
    linear.issue("ENG-9").title("Blocker");
    for key in ["ENG-1", "ENG-2"] {
        let issue = linear.issue(key).title("Do it").blocked_by("ENG-9");
        issue.add_label("Agent-Implement");
    }
    let free = linear.issue("ENG-3").title("Do it").describe("Much to do");
    free.add_label("Agent-Implement");
    let poll = async || {
        engine::poll::run_once(&env.app).await.unwrap();
        env.app.live.poll_snapshots.all()[&System::Linear]
            .issues
            .clone()
    };
    let before = poll().await;
    linear.issue("ENG-2").title("Do it well");
    let after = poll().await;
    let of = |poll: &[PolledIssue], key: &str| {
        let mut poll = poll.iter();
        let own = poll.find(|polled| polled.issue.issue.key.as_str() == key);
        own.unwrap().clone()
    };
    let (one, still) = (of(&before, "ENG-1"), of(&after, "ENG-1"));
    assert!(Arc::ptr_eq(&one.issue, &still.issue));
    assert!(Arc::ptr_eq(&one.decision, &still.decision));
    let dispatched = of(&before, "ENG-3");
    assert_eq!(dispatched.decision.outcome, DecisionOutcome::Dispatched);
    assert_eq!(dispatched.issue.description, ArenaStr::default());
    assert_eq!(of(&before, "ENG-2").issue.issue.title, "Do it");
    assert_eq!(of(&after, "ENG-2").issue.issue.title, "Do it well");
    env.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn jira_gets_one_request_per_query() {
    let queries = [
        "project = OPS",
        "project = WEB",
        "project = OPS AND labels = x",
    ];
    let shared = (1..=30).map(|number| {
        let query = queries[number % queries.len()];
        mapping_with_query(&format!("J{number}"), query, &format!("repo-{number}"))
    });
    let env = start_env(shared.collect()).await;
    env.vendors.jira().ensure_project("WEB", "Web");
    for number in 1..=30 {
        let ticket = env.vendors.jira().issue(&format!("OPS-{number}"));
        ticket
            .title("Do it")
            .repo(&format!("repo-{number}"))
            .status("Ready");
    }
    // No issue changed since the first poll.
    env.advance_clock(Duration::from_secs(600));
    let first = requests_of_poll(&env, FakeService::Jira).await;
    let fields = first
        .iter()
        .filter(|request| request.url.ends_with("/field"));
    assert_eq!(fields.count(), 1, "field names are read once");
    assert_eq!(first.len(), 1 + queries.len(), "{first:#?}");
    let second = requests_of_poll(&env, FakeService::Jira).await;
    let searches: Vec<&str> = second
        .iter()
        .map(|request| request.body["jql"].as_str().unwrap())
        .collect();
    assert_eq!(searches.len(), queries.len(), "{searches:#?}");
    for query in queries {
        let clause = format!("({query}) AND ");
        assert!(
            searches.iter().any(|search| search.starts_with(&clause)),
            "{query}"
        );
    }
    env.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_open_runs_of_a_repository_are_monitored_with_one_request() {
    let many = Mapping {
        max_in_progress: 20,
        ..mapping()
    };
    let on_jira = Mapping {
        max_in_progress: 20,
        ..mapping_for_repo("OPS", "shop")
    };
    let env = start_env(vec![many, on_jira]).await;
    // No run may start or end while requests are counted.
    env.vendors
        .github()
        .set_start_delay(Duration::from_secs(600));
    for number in 1..=10 {
        env.create_labelled_issue(&format!("ENG-{number}"), "Do it");
        create_ticket(&env, &format!("OPS-{number}"), "Do it").status("Ready");
    }
    env.tick().await;
    assert_eq!(env.repo().runs().len(), 20);
    for _ in 0..2 {
        env.vendors.requests().clear();
        engine::run_monitor::run_once(&env.app).await.unwrap();
        let requests = env.vendors.requests().for_service(FakeService::GitHub);
        assert_eq!(requests.len(), 1, "{requests:#?}");
        assert!(
            requests[0].url.contains("/repos/acme/shop/actions/runs?"),
            "{}",
            requests[0].url
        );
    }
    env.stop().await;
}

/// Stores an open question of an issue that the service knows.
async fn ask(env: &TestEnv, issue: IssueRef, team: &str) {
    let question = test_support::open_question(issue, team.into(), env.app.core.now());
    let put = env
        .store
        .write(move |tx| open_questions::put(tx, &question));
    put.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_waiting_issues_take_no_request_of_linear_and_one_each_in_every_fifth_poll_of_jira() {
    let paused = |mapping: Mapping| Mapping {
        max_in_progress: 0,
        ..mapping
    };
    let env = start_env(vec![
        paused(mapping()),
        paused(mapping_for_repo("OPS", "shop")),
    ])
    .await;
    env.vendors.linear().issue("ENG-900").title("Blocker");
    env.vendors.jira().issue("OPS-900").title("Blocker");
    for number in 1..=50 {
        let issue = env.vendors.linear().issue(&format!("ENG-{number}"));
        let issue = issue.title("Do it").blocked_by("ENG-900");
        issue.add_label("Agent-Implement");
        let ticket = create_ticket(&env, &format!("OPS-{number}"), "Do it");
        ticket.blocked_by("OPS-900").status("Ready");
    }
    // No issue changed since the first poll.
    env.advance_clock(Duration::from_secs(600));
    engine::poll::run_once(&env.app).await.unwrap();
    let mut counts = Vec::new();
    for waiting in [0, 50] {
        for (system, team) in [(System::Linear, "ENG"), (System::Jira, "OPS")] {
            let polled = env.app.live.poll_snapshots.all()[&system].issues.clone();
            assert_eq!(polled.len(), 50, "{system:?}");
            for polled in polled.iter().take(waiting) {
                ask(&env, polled.issue.issue.clone(), team).await;
            }
        }
        // The first polls also read the names of fields and the own account.
        for _ in 0..5 {
            engine::poll::run_once(&env.app).await.unwrap();
        }
        let mut of_polls = Vec::new();
        for _ in 0..10 {
            env.vendors.requests().clear();
            engine::poll::run_once(&env.app).await.unwrap();
            let count = |vendor| env.vendors.requests().for_service(vendor).len();
            of_polls.push((count(FakeService::Linear), count(FakeService::Jira)));
        }
        counts.push(of_polls);
    }
    let (linear, mut jira): (Vec<usize>, Vec<usize>) = counts[1].iter().copied().unzip();
    assert_eq!(counts[0], [(1, 1); 10]);
    assert_eq!(linear, [1; 10]);
    jira.sort_unstable();
    assert_eq!(jira, [1, 1, 1, 1, 1, 1, 1, 1, 51, 51]);
    env.stop().await;
}
