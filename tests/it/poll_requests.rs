//! How many requests a look costs: what there is to read decides, never how many mappings or runs
//! there are.

use std::sync::Arc;
use std::time::Duration;

use domain::decision::DecisionOutcome;
use domain::issue::System;
use domain::mapping::Mapping;
use domain::string_arena::ArenaStr;
use engine::app::PolledIssue;
use fake_vendors::{FakeService, LoggedRequest};
use store::mappings;

use crate::jira::{create_ticket, mapping_for_repo, mapping_with_query};
use crate::test_env::{EngineMode, TestEnv, TestEnvOptions, mapping};

/// More than any of these stories asks in an hour.
const PLENTY: u64 = 1_000_000;

async fn world(mappings: Vec<Mapping>) -> TestEnv {
    let world = TestEnv::with_options(TestEnvOptions {
        mappings,
        engine: EngineMode::manual(),
        ..TestEnvOptions::default()
    })
    .await;
    world.vendors.linear().set_quota(PLENTY);
    world.vendors.github().set_quota(PLENTY);
    world
}

/// What a vendor is asked in one poll.
async fn asked_in_a_poll(world: &TestEnv, vendor: FakeService) -> Vec<LoggedRequest> {
    world.vendors.requests().clear();
    engine::poll::run_once(&world.app).await.unwrap();
    world.vendors.requests().for_service(vendor)
}

fn team(number: usize) -> String {
    format!("T{number}")
}

/// Five hundred flagged issues, ten for each of fifty teams; all are children of one issue, and
/// each waits for another.
fn five_hundred(world: &TestEnv) {
    let linear = world.vendors.linear();
    linear.issue("T0-1").title("Above them all");
    linear.issue("T0-2").title("Before them all");
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
async fn linear_is_asked_once_a_page_whatever_the_number_of_mappings() {
    let of_team = |number| Mapping {
        team_key: team(number).as_str().into(),
        ..mapping()
    };
    let world = world(vec![of_team(1)]).await;
    five_hundred(&world);
    for mapped in [1, 50] {
        for number in 1..=mapped {
            let mapping = of_team(number);
            let put = world.app.store.write(move |tx| mappings::put(tx, &mapping));
            put.await.unwrap();
        }
        // Two pages of 250, and the siblings of all that are to run in one more.
        let asked = asked_in_a_poll(&world, FakeService::Linear).await;
        assert_eq!(asked.len(), 3, "{mapped} mappings: {asked:#?}");
        let log = world.admin_get("/api/log").await;
        let reserved = log.as_array().unwrap().len();
        assert_eq!(reserved, mapped, "the one of each team that is free to run");
        let asked = asked_in_a_poll(&world, FakeService::Linear).await;
        assert_eq!(asked.len(), 2, "{mapped} mappings: {asked:#?}");
    }
    let shown = world.admin_get("/api/issues").await;
    assert_eq!(shown["issues"].as_array().unwrap().len(), 500);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_looks_as_it_did_is_kept_in_memory_once() {
    let world = world(vec![mapping()]).await;
    let linear = world.vendors.linear();
    linear.issue("ENG-9").title("Before them all");
    for key in ["ENG-1", "ENG-2"] {
        let issue = linear.issue(key).title("Do it").blocked_by("ENG-9");
        issue.add_label("Agent-Implement");
    }
    let free = linear.issue("ENG-3").title("Do it").describe("Much to do");
    free.add_label("Agent-Implement");
    let sight = async || {
        engine::poll::run_once(&world.app).await.unwrap();
        world.app.poll_snapshots.all()[&System::Linear]
            .issues
            .clone()
    };
    let before = sight().await;
    linear.issue("ENG-2").title("Do it well");
    let after = sight().await;
    let of = |sight: &[PolledIssue], key: &str| {
        let mut sight = sight.iter();
        let own = sight.find(|sighted| sighted.issue.issue.key.as_str() == key);
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
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn jira_is_asked_once_for_each_query_however_many_share_it() {
    let queries = [
        "project = OPS",
        "project = WEB",
        "project = OPS AND labels = x",
    ];
    let shared = (1..=30).map(|number| {
        let query = queries[number % queries.len()];
        mapping_with_query(&format!("J{number}"), query, &format!("repo-{number}"))
    });
    let world = world(shared.collect()).await;
    world.vendors.jira().ensure_project("WEB", "Web");
    for number in 1..=30 {
        let ticket = world.vendors.jira().issue(&format!("OPS-{number}"));
        ticket
            .title("Do it")
            .repo(&format!("repo-{number}"))
            .status("Ready");
    }
    let first = asked_in_a_poll(&world, FakeService::Jira).await;
    let fields = first
        .iter()
        .filter(|request| request.url.ends_with("/field"));
    assert_eq!(fields.count(), 1, "names of fields are read once for all");
    assert_eq!(first.len(), 1 + queries.len(), "{first:#?}");
    let second = asked_in_a_poll(&world, FakeService::Jira).await;
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
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_open_runs_of_a_repository_are_watched_with_one_list() {
    let many = Mapping {
        max_in_progress: 20,
        ..mapping()
    };
    let on_jira = Mapping {
        max_in_progress: 20,
        ..mapping_for_repo("OPS", "shop")
    };
    let world = world(vec![many, on_jira]).await;
    // None may start, report and end while they are counted.
    world
        .vendors
        .github()
        .set_start_delay(Duration::from_secs(600));
    for number in 1..=10 {
        world.create_labelled_issue(&format!("ENG-{number}"), "Do it");
        create_ticket(&world, &format!("OPS-{number}"), "Do it").status("Ready");
    }
    world.tick().await;
    assert_eq!(world.repo().runs().len(), 20);
    for _ in 0..2 {
        world.vendors.requests().clear();
        engine::run_monitor::run_once(&world.app).await.unwrap();
        let asked = world.vendors.requests().for_service(FakeService::GitHub);
        assert_eq!(asked.len(), 1, "{asked:#?}");
        assert!(
            asked[0].url.contains("/repos/acme/shop/actions/runs?"),
            "{}",
            asked[0].url
        );
    }
    world.stop().await;
}
