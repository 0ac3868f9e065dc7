//! A ticket that waits for something that does not pass by itself says so, once, until that is over.

use std::time::Duration;

use domain::ids::Repo;
use domain::issue::Phase;
use domain::mapping::Mapping;
use fake_vendors::{FakeService, InjectedFault};
use store::dispatch_breaker::{self, ParkedIssue};
use store::{issue_waits, mappings};

use crate::jira::mapping_with_query;
use crate::test_env::{EngineMode, TestEnv, TestEnvOptions, mapping};

const MINUTE: Duration = Duration::from_secs(60);

const NO_MAPPING: &str = "Not started yet: No mapping for team NEW. Add one in Projects.\n\n\
     **What helps:** Map its team to a repository: the panel's Projects, or POST /api/mappings.\n\n\
     This comment goes away when the wait is over.";

fn by_hand() -> TestEnvOptions {
    TestEnvOptions {
        mappings: vec![mapping(), mapping_with_query("OPS", "project = OPS", "OPS")],
        engine: EngineMode::manual(),
        fake_runs: true,
        ..TestEnvOptions::default()
    }
}

/// Flags a ticket of a team that is mapped to nothing.
fn flag(world: &TestEnv, key: &str) {
    let linear = world.vendors.linear();
    linear.ensure_team("NEW", "New");
    linear.issue(key).title("Work").add_label("Agent-Implement");
}

fn said(world: &TestEnv, key: &str) -> Vec<String> {
    world.vendors.linear().issue(key).comments()
}

async fn later(world: &TestEnv, span: Duration) {
    world.advance_clock(span);
    world.tick().await;
}

async fn map(world: &TestEnv, team: &str) {
    let mapping = Mapping {
        team_key: team.into(),
        ..mapping()
    };
    let put = world.app.store.write(move |tx| mappings::put(tx, &mapping));
    put.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lasting_wait_is_told_once_and_the_comment_goes_when_the_ticket_runs() {
    let mut world = TestEnv::with_options(by_hand()).await;
    flag(&world, "NEW-1");
    world.tick().await;
    later(&world, 5 * MINUTE - Duration::from_secs(1)).await;
    assert_eq!(said(&world, "NEW-1"), [""; 0], "most waits pass");

    // A comment whose answer is lost is not written twice.
    let linear = world.vendors.faults(FakeService::Linear);
    linear.inject_on_match("commentCreate", InjectedFault::DropResponse);
    later(&world, Duration::from_secs(1)).await;
    world.tick_until_drained().await;
    assert_eq!(said(&world, "NEW-1"), [NO_MAPPING]);
    for _ in 0..3 {
        later(&world, 10 * MINUTE).await;
    }
    let making = TestEnvOptions {
        mappings: Vec::new(),
        ..by_hand()
    };
    world = world.restart_service(making).await;
    later(&world, 10 * MINUTE).await;
    // A system that shows nothing does not say that the wait is over.
    world.vendors.faults(FakeService::Linear).set_outage(true);
    later(&world, MINUTE).await;
    world.vendors.faults(FakeService::Linear).set_outage(false);
    later(&world, MINUTE).await;
    assert_eq!(said(&world, "NEW-1"), [NO_MAPPING]);

    map(&world, "NEW").await;
    later(&world, MINUTE).await;
    assert_eq!(world.jobs("NEW-1").len(), 1);
    world.tick_until_drained().await;
    assert_eq!(said(&world, "NEW-1"), [""; 0]);
    assert!(world.app.store.read(issue_waits::all).unwrap().is_empty());
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_wait_of_a_ticket_has_its_own_comment() {
    let world = TestEnv::with_options(by_hand()).await;
    let ticket = world
        .vendors
        .jira()
        .issue("OPS-1")
        .title("Work")
        .repo("OPS");
    ticket.clone().status("Ready");
    let id = ticket.snapshot().unwrap().id;
    let issue = world.app.account(domain::issue::System::Jira);
    let ops = mapping_with_query("OPS", "project = OPS", "OPS");
    let seen = issue.unwrap().snapshot(&[&ops]).await.unwrap();
    let issue = seen.issues[0].issue.clone();
    assert_eq!(issue.id.as_str(), id);
    for _ in 0..2 {
        let parked = ParkedIssue {
            issue: issue.clone(),
            repo: Repo::new("acme", "shop"),
            phase: Phase::Implementation,
            failures: 3,
            last_conclusion: "it broke".into(),
            parked_at: world.app.now(),
        };
        let park = world
            .app
            .store
            .write(move |tx| dispatch_breaker::park(tx, &parked));
        park.await.unwrap();
        for _ in 0..7 {
            later(&world, MINUTE).await;
        }
        world.tick_until_drained().await;
        let comments = ticket.comments();
        assert_eq!(comments.len(), 1, "{comments:?}");
        assert!(
            comments[0].starts_with("Not started yet: Parked after repeated failures."),
            "{comments:?}"
        );
        // The ticket is not worked on any more, so that nothing runs.
        ticket.clone().status("To be discussed");
        let jira = world.vendors.faults(FakeService::Jira);
        jira.inject_on_match("DELETE", InjectedFault::DropResponse);
        later(&world, MINUTE).await;
        world.tick_until_drained().await;
        assert_eq!(ticket.comments(), [""; 0]);
        ticket.clone().status("Ready");
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_waits_are_told_a_few_at_a_time() {
    let world = TestEnv::with_options(by_hand()).await;
    let keys: Vec<String> = (1..=45).map(|number| format!("NEW-{number}")).collect();
    keys.iter().for_each(|key| flag(&world, key));
    world.tick().await;
    let told = || {
        let comments = keys.iter().map(|key| said(&world, key).len());
        comments.sum::<usize>()
    };
    for (span, expected) in [(5, 20), (1, 40), (1, 45), (1, 45)] {
        later(&world, span * MINUTE).await;
        assert_eq!(told(), expected);
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_comment_that_is_refused_is_let_go() {
    let world = TestEnv::with_options(by_hand()).await;
    flag(&world, "NEW-1");
    world.tick().await;
    let linear = world.vendors.faults(FakeService::Linear);
    linear.inject_on_match("commentCreate", InjectedFault::ErrorStatus(403));
    later(&world, 5 * MINUTE).await;
    world.tick_until_drained().await;
    assert_eq!(said(&world, "NEW-1"), [""; 0]);
    world.finish().await;
}
