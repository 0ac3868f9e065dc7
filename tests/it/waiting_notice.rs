//! Waiting notices: one comment per ticket while it waits for something a person must do.

mod github;

use std::time::Duration;

use domain::ids::Repo;
use domain::issue::Phase;
use domain::mapping::Mapping;
use domain::ticket_comment::CommentWatch;
use fake_vendors::{FakeService, InjectedFault};
use store::dispatch_breaker::{self, ParkedIssue};
use store::{issue_waits, mappings};

use crate::jira::mapping_with_query;
use crate::test_env::{EngineMode, TestEnv, TestEnvOptions, mapping};

const MINUTE: Duration = Duration::from_secs(60);

const NO_MAPPING: &str = "Not started yet: No mapping for team NEW. Add one in Projects.\n\n\
     **What to do:** Add a project for team NEW in the panel (Projects, New project).\n\n\
     This comment is removed when the ticket no longer waits.";

fn manual_options() -> TestEnvOptions {
    TestEnvOptions {
        mappings: vec![mapping(), mapping_with_query("OPS", "project = OPS", "OPS")],
        engine: EngineMode::manual(),
        fake_runs: true,
        ..TestEnvOptions::default()
    }
}

/// Creates a labelled ticket of a team without a mapping.
fn create_labelled(env: &TestEnv, key: &str) {
    let linear = env.vendors.linear();
    linear.ensure_team("NEW", "New");
    linear.issue(key).title("Work").add_label("Agent-Implement");
}

fn ticket_comments(env: &TestEnv, key: &str) -> Vec<String> {
    env.vendors.linear().issue(key).comments()
}

async fn tick_after(env: &TestEnv, span: Duration) {
    env.advance_clock(span);
    env.tick().await;
}

async fn add_mapping(env: &TestEnv, team: &str) {
    let mapping = Mapping {
        team_key: team.into(),
        ..mapping()
    };
    let put = env.store.write(move |tx| mappings::put(tx, &mapping));
    put.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lasting_wait_is_posted_once_and_removed_when_the_ticket_runs() {
    let mut env = TestEnv::with_options(manual_options()).await;
    create_labelled(&env, "NEW-1");
    env.tick().await;
    tick_after(&env, 5 * MINUTE - Duration::from_secs(1)).await;
    assert_eq!(
        ticket_comments(&env, "NEW-1"),
        [""; 0],
        "no notice within five minutes"
    );

    // A comment with a lost response is not posted twice.
    let linear = env.vendors.faults(FakeService::Linear);
    linear.inject_on_match("commentCreate", InjectedFault::DropResponse);
    tick_after(&env, Duration::from_secs(1)).await;
    env.tick_until_drained().await;
    assert_eq!(ticket_comments(&env, "NEW-1"), [NO_MAPPING]);
    for _ in 0..3 {
        tick_after(&env, 10 * MINUTE).await;
    }
    let env_options = TestEnvOptions {
        mappings: Vec::new(),
        ..manual_options()
    };
    env = env.restart_service(env_options).await;
    tick_after(&env, 10 * MINUTE).await;
    // An unavailable system does not end the wait.
    env.vendors.faults(FakeService::Linear).set_outage(true);
    tick_after(&env, MINUTE).await;
    env.vendors.faults(FakeService::Linear).set_outage(false);
    tick_after(&env, MINUTE).await;
    assert_eq!(ticket_comments(&env, "NEW-1"), [NO_MAPPING]);

    add_mapping(&env, "NEW").await;
    tick_after(&env, MINUTE).await;
    assert_eq!(env.jobs("NEW-1").len(), 1);
    env.tick_until_drained().await;
    assert_eq!(ticket_comments(&env, "NEW-1"), [""; 0]);
    assert!(env.store.read(issue_waits::all).unwrap().is_empty());
    env.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_wait_of_a_ticket_has_its_own_comment() {
    let env = TestEnv::with_options(manual_options()).await;
    let ticket = env.vendors.jira().issue("OPS-1").title("Work").repo("OPS");
    ticket.clone().status("Ready");
    let id = ticket.snapshot().unwrap().id;
    let account = env.app.vendors.account(domain::issue::System::Jira);
    let ops = mapping_with_query("OPS", "project = OPS", "OPS");
    let seen = account
        .unwrap()
        .snapshot(&[&ops], &CommentWatch::default())
        .await
        .unwrap();
    let issue = seen.issues[0].issue.clone();
    assert_eq!(issue.id.as_str(), id);
    for _ in 0..2 {
        let parked = ParkedIssue {
            issue: issue.clone(),
            repo: Repo::new("acme", "shop"),
            phase: Phase::Implementation,
            failures: 3,
            last_conclusion: "it broke".into(),
            parked_at: env.app.core.now(),
        };
        let park = env
            .store
            .write(move |tx| dispatch_breaker::park(tx, &parked));
        park.await.unwrap();
        for _ in 0..7 {
            tick_after(&env, MINUTE).await;
        }
        env.tick_until_drained().await;
        let comments = ticket.comments();
        assert_eq!(comments.len(), 1, "{comments:?}");
        assert!(
            comments[0].starts_with("Not started yet: Parked after repeated failures."),
            "{comments:?}"
        );
        // The trigger is removed, so that nothing runs.
        ticket.clone().status("To be discussed");
        let jira = env.vendors.faults(FakeService::Jira);
        jira.inject_on_match("DELETE", InjectedFault::DropResponse);
        tick_after(&env, MINUTE).await;
        env.tick_until_drained().await;
        assert_eq!(ticket.comments(), [""; 0]);
        ticket.clone().status("Ready");
    }
    env.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn notices_are_limited_per_poll() {
    let env = TestEnv::with_options(manual_options()).await;
    let keys: Vec<String> = (1..=45).map(|number| format!("NEW-{number}")).collect();
    keys.iter().for_each(|key| create_labelled(&env, key));
    env.tick().await;
    let comment_count = || {
        let comments = keys.iter().map(|key| ticket_comments(&env, key).len());
        comments.sum::<usize>()
    };
    for (span, expected) in [(5, 20), (1, 40), (1, 45), (1, 45)] {
        tick_after(&env, span * MINUTE).await;
        assert_eq!(comment_count(), expected);
    }
    env.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_notice_is_dropped() {
    let env = TestEnv::with_options(manual_options()).await;
    create_labelled(&env, "NEW-1");
    env.tick().await;
    let linear = env.vendors.faults(FakeService::Linear);
    linear.inject_on_match("commentCreate", InjectedFault::ErrorStatus(403));
    tick_after(&env, 5 * MINUTE).await;
    env.tick_until_drained().await;
    assert_eq!(ticket_comments(&env, "NEW-1"), [""; 0]);
    env.finish().await;
}
