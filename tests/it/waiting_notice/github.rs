//! Waiting notices on issues of GitHub.

use std::time::Duration;

use domain::ids::Repo;
use domain::issue::{Phase, System};
use fake_vendors::{FakeService, InjectedFault};
use store::dispatch_breaker::{self, ParkedIssue};

use super::{MINUTE, manual_options, tick_after};
use crate::test_env::{TestEnv, TestEnvOptions};
use crate::test_ticket::{TestTicket, github_mapping};

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_account_is_named_once_and_the_notice_goes_with_the_wait() {
    let options = || TestEnvOptions {
        mappings: vec![github_mapping("SHOP", "acme", "shop")],
        ..manual_options()
    };
    let mut env = TestEnv::with_options(options()).await;
    env.repo().set_visibility("public");
    let comments = |env: &TestEnv| TestTicket::GitHub(env.repo().issue(1)).comments();
    let issue = env.repo().issue(1).title("Work");
    issue.add_label_as("mallory", "Agent-Implement");
    env.tick().await;
    tick_after(&env, 5 * MINUTE - Duration::from_secs(1)).await;
    assert_eq!(comments(&env), [""; 0], "no notice within five minutes");
    // A comment with a lost response is not posted twice.
    let github = env.vendors.faults(FakeService::GitHub);
    github.inject_on_match("issues/1/comments", InjectedFault::DropResponse);
    tick_after(&env, Duration::from_secs(1)).await;
    env.tick_until_drained().await;
    let begin = "Not started yet: mallory set the label, but has no write access to acme/shop.";
    let posted = comments(&env);
    assert_eq!(posted, [begin]);
    for _ in 0..3 {
        tick_after(&env, 10 * MINUTE).await;
    }
    env = env
        .restart_service(TestEnvOptions {
            mappings: Vec::new(),
            ..options()
        })
        .await;
    tick_after(&env, 10 * MINUTE).await;
    // An unavailable system does not end the wait.
    env.vendors.faults(FakeService::GitHub).set_outage(true);
    tick_after(&env, MINUTE).await;
    env.vendors.faults(FakeService::GitHub).set_outage(false);
    tick_after(&env, MINUTE).await;
    assert_eq!(comments(&env), posted);
    let issue = env.repo().issue(1).remove_label("Agent-Implement");
    issue.add_label("Agent-Implement");
    tick_after(&env, 10 * MINUTE).await;
    env.tick_until_drained().await;
    assert_eq!(comments(&env), [""; 0]);
    assert_eq!(env.jobs("shop#1").len(), 1);
    env.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_wait_of_an_issue_has_its_own_comment() {
    let mapping = github_mapping("SHOP", "acme", "shop");
    let env = TestEnv::with_options(TestEnvOptions {
        mappings: vec![mapping.clone()],
        ..manual_options()
    })
    .await;
    let ticket = TestTicket::create(&env, System::GitHub, "shop#1", "Work");
    ticket.trigger();
    let account = env.app.vendors.account(System::GitHub);
    let seen = account
        .unwrap()
        .snapshot(
            &[&mapping],
            &domain::ticket_comment::CommentWatch::default(),
        )
        .await
        .unwrap();
    let issue = seen.issues[0].issue.clone();
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
        let begin = "Not started yet: Parked after repeated failures. Unpark it to try again.";
        assert_eq!(comments, [begin]);
        // The trigger is removed, so that nothing runs.
        env.repo().issue(1).remove_label("Agent-Implement");
        let github = env.vendors.faults(FakeService::GitHub);
        github.inject_on_match("DELETE", InjectedFault::DropResponse);
        tick_after(&env, MINUTE).await;
        env.tick_until_drained().await;
        assert_eq!(ticket.comments(), [""; 0]);
        ticket.trigger();
    }
    env.stop().await;
}
