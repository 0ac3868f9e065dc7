//! Answers of GitHub that are lost after their effect: each merge, arming and disarming happens once.

use std::time::Duration;

use engine::pull_requests::reconcile;
use fake_vendors::{FakeService, InjectedFault};

use super::{
    audited, auto_env, env_with, is_merged, merge_of, notes, open_pull, report_check, requests,
    require_two_approvals, settle,
};
use crate::test_env::TestEnv;
use fake_vendors::BranchProtection;
use serde_json::json;

fn lose_answer(env: &TestEnv, text: &str) {
    let faults = env.vendors.faults(FakeService::GitHub);
    faults.inject_on_match(text, InjectedFault::DropResponse);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_merge_is_found_and_noted_once() {
    let env = auto_env().await;
    let number = open_pull(&env, "ENG-1").await;
    lose_answer(&env, "/merge");
    env.repo().add_review(number, "mia", "APPROVED", "");
    settle(&env).await;
    env.tick_until_drained().await;
    settle(&env).await;
    assert!(is_merged(&env, number));
    assert_eq!(requests(&env, "/merge {"), 1, "looked up");
    let (on_pull, on_ticket) = notes(&env, "ENG-1", number);
    assert_eq!((on_pull.len(), on_ticket.len()), (1, 1));
    assert_eq!(audited(&env, "pull-merged").await.len(), 1);
    assert_eq!(merge_of(&env, number).await["state"], "merged");
    env.finish().await;
}

/// What was granted is checked again before each request.
#[tokio::test(flavor = "multi_thread")]
async fn a_check_that_fails_before_a_repeated_request_prevents_the_merge() {
    let env = auto_env().await;
    let (number, branch) = (open_pull(&env, "ENG-1").await, "agent-implement/eng-1");
    report_check(&env, branch, Some("success"));
    settle(&env).await;
    let github = env.vendors.faults(FakeService::GitHub);
    github.inject_on_match("/merge", InjectedFault::ErrorStatus(500));
    env.repo().add_review(number, "mia", "APPROVED", "");
    env.tick_until("the merge has failed", || github.pending() == 0)
        .await;
    assert!(!is_merged(&env, number));
    report_check(&env, branch, Some("failure"));
    env.advance_clock(Duration::from_secs(60));
    engine::outbox_worker::drain(&env.app).await.unwrap();
    assert!(!is_merged(&env, number));
    settle(&env).await;
    assert!(!is_merged(&env, number));
    assert_eq!(requests(&env, "/merge {"), 1);
    env.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_answers_to_arming_and_disarming_are_looked_up() {
    let env = auto_env().await;
    require_two_approvals(&env);
    let number = open_pull(&env, "ENG-1").await;
    lose_answer(&env, "enablePullRequestAutoMerge");
    env.repo().add_review(number, "mia", "APPROVED", "");
    settle(&env).await;
    env.tick_until_drained().await;
    assert_eq!(env.repo().armed_pulls(), [number]);
    assert_eq!(merge_of(&env, number).await["state"], "armed");
    assert_eq!(audited(&env, "merge-armed").await.len(), 1);

    lose_answer(&env, "disablePullRequestAutoMerge");
    env.repo()
        .commit("agent-implement/eng-1", &[("b.txt", "b\n")], "Person")
        .unwrap();
    assert_eq!(env.repo().pulls().len(), 1);
    settle(&env).await;
    env.tick_until_drained().await;
    assert!(env.repo().armed_pulls().is_empty());
    assert_eq!(audited(&env, "merge-disarmed").await.len(), 1);
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_answer_of_the_queue_is_looked_up() {
    let env = env_with(json!({"merge": {"mode": "queue"}})).await;
    env.repo().protect(BranchProtection {
        has_merge_queue: true,
        ..BranchProtection::default()
    });
    let number = open_pull(&env, "ENG-1").await;
    lose_answer(&env, "enqueuePullRequest");
    env.repo().add_review(number, "mia", "APPROVED", "");
    settle(&env).await;
    env.tick_until_drained().await;
    assert_eq!(env.repo().queued_pulls(), [number]);
    assert_eq!(merge_of(&env, number).await["state"], "queued");
    assert_eq!(audited(&env, "merge-armed").await.len(), 1);
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_that_moves_before_the_merge_is_not_merged() {
    let env = auto_env().await;
    let number = open_pull(&env, "ENG-1").await;
    // The first attempt fails without an effect. Before the second, somebody pushes.
    let faults = env.vendors.faults(FakeService::GitHub);
    faults.inject_on_match("/merge", InjectedFault::DropRequest);
    env.repo().add_review(number, "mia", "APPROVED", "");
    env.wait_until("all webhooks are answered", || {
        env.vendors.github().webhooks().is_idle()
    })
    .await;
    env.tick().await;
    assert_eq!(requests(&env, "/merge {"), 1);
    env.repo()
        .commit("agent-implement/eng-1", &[("b.txt", "b\n")], "Person")
        .unwrap();
    env.tick_until_drained().await;
    settle(&env).await;
    assert_eq!(requests(&env, "/merge {"), 1);
    assert!(!is_merged(&env, number));
    assert!(audited(&env, "pull-merged").await.is_empty());
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_from_before_a_merge_does_not_reopen_the_pull_request() {
    let env = auto_env().await;
    let number = open_pull(&env, "ENG-1").await;
    let faults = env.vendors.faults(FakeService::GitHub);
    faults.inject_on_match("mergeStateStatus", InjectedFault::HoldResponse);
    let merge = async {
        env.wait_until("the sweep reads the pull request", || faults.held() == 1)
            .await;
        env.repo().merge_pull(number).unwrap();
        settle(&env).await;
        faults.release();
    };
    let (swept, ()) = tokio::join!(reconcile::run_once(&env.app), merge);
    swept.unwrap();
    let pulls = env.admin_get("/api/pulls").await;
    assert_eq!(pulls["pulls"][0]["state"], "merged");
    env.finish().await;
}
