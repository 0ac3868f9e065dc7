//! People's pushes and requests come before automatic merges.

use std::time::Duration;

use domain::job::{JobKind, JobState};
use domain::report::FailureCode;
use fake_vendors::scripted_agent::{Script, ScriptStep};
use fake_vendors::{FakeService, InjectedFault, WebhookFaults};
use store::jobs;

use super::{
    IN_CONFLICT, branch, conflict_jobs, keep_both, log, open_pull, our_comments, record, start,
    sweep, wait_for_run, wait_for_webhooks,
};
use crate::test_env::{Gate, TestEnv};

/// Environment with a pull request of ticket `ENG-1` that is in conflict with its base. Returns its number.
async fn with_conflict() -> (TestEnv, u64) {
    let env = start().await;
    let repo = env.repo();
    repo.commit("main", &[("cart.txt", "cart\n")], "Add the cart")
        .unwrap();
    let number = open_pull(&env, "ENG-1", &[("cart.txt", "ours\n")]).await;
    repo.commit("main", &[("cart.txt", "theirs\n")], "Change the cart")
        .unwrap();
    env.set_agent_script("ENG-1", keep_both("cart.txt"));
    (env, number)
}

fn minutes(count: u64) -> Duration {
    Duration::from_secs(count * 60)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_branch_is_left_to_people_for_ten_minutes_after_a_push() {
    let (env, number) = with_conflict().await;
    let repo = env.repo();
    let pushed = repo
        .commit(&branch("ENG-1"), &[("b.txt", "by hand\n")], "By hand")
        .unwrap();
    sweep(&env).await;
    env.tick().await;
    env.advance_clock(minutes(9));
    env.tick().await;
    assert_eq!(conflict_jobs(&env, "ENG-1"), []);
    assert!(!record(&env, number).head_is_ours());
    env.advance_clock(minutes(1));
    let job = wait_for_run(&env, "ENG-1", 1).await;
    assert_eq!(job.state, JobState::Completed, "{}", log(&env));
    let head = repo.commits(&branch("ENG-1")).remove(0);
    assert_eq!(head.parents[0], pushed, "their commit stays");

    // A push after the run is theirs: nothing starts for a branch without conflicts.
    repo.commit(&branch("ENG-1"), &[("b.txt", "later\n")], "Later")
        .unwrap();
    sweep(&env).await;
    env.advance_clock(minutes(11));
    env.tick().await;
    assert_eq!(conflict_jobs(&env, "ENG-1").len(), 1);
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_during_the_run_is_never_replaced() {
    let (env, number) = with_conflict().await;
    let (repo, gate) = (env.repo(), Gate::new(&env));
    let steps = [gate.wait_step(), ScriptStep::keep_both_sides("cart.txt")];
    env.set_agent_script(
        "ENG-1",
        Script::new().pass_if_prompt_contains(IN_CONFLICT, steps),
    );
    sweep(&env).await;
    env.tick_until("the agent works", || {
        let runs = repo.runs();
        runs.last()
            .is_some_and(|run| repo.run_log(run.id).contains("Agent started"))
    })
    .await;
    let pushed = repo
        .commit(&branch("ENG-1"), &[("b.txt", "by hand\n")], "By hand")
        .unwrap();
    gate.open();
    let job = wait_for_run(&env, "ENG-1", 1).await;
    let JobState::Failed { code, .. } = &job.state else {
        panic!("{:?} {}", job.state, log(&env));
    };
    assert_eq!(*code, Some(FailureCode::PushRejected));
    assert_eq!(repo.branch_head(&branch("ENG-1")), Some(pushed.clone()));
    let comments = our_comments(&env, number);
    assert!(
        comments.len() == 1 && comments[0].contains("somebody pushed"),
        "{comments:?}"
    );
    sweep(&env).await;
    env.tick().await;
    assert_eq!(
        conflict_jobs(&env, "ENG-1").len(),
        1,
        "it is theirs for ten minutes"
    );
    env.advance_clock(minutes(10));
    let job = wait_for_run(&env, "ENG-1", 2).await;
    assert_eq!(job.state, JobState::Completed, "{}", log(&env));
    let head = repo.commits(&branch("ENG-1")).remove(0);
    assert_eq!(head.parents[0], pushed);
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_starts_while_the_current_state_cannot_be_read() {
    let (env, number) = with_conflict().await;
    let repo = env.repo();
    sweep(&env).await;
    env.vendors.github().webhooks().set_faults(WebhookFaults {
        loss_rate: 1.0,
        ..WebhookFaults::default()
    });
    let pushed = repo.commit(&branch("ENG-1"), &[("b.txt", "by hand\n")], "By hand");
    env.vendors
        .faults(FakeService::GitHub)
        .inject_on_match("mergeStateStatus", InjectedFault::ErrorStatus(400));
    env.tick().await;
    assert_eq!(conflict_jobs(&env, "ENG-1"), [], "the push is not known");
    env.tick().await;
    let head = record(&env, number).readiness.head.unwrap();
    assert_eq!(head.sha, pushed.unwrap());
    assert_eq!(conflict_jobs(&env, "ENG-1"), [], "it is theirs");
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn feedback_and_commands_come_first() {
    let (env, number) = with_conflict().await;
    let repo = env.repo();
    sweep(&env).await;
    repo.add_review(number, "mia", "CHANGES_REQUESTED", "Handle the empty list.");
    wait_for_webhooks(&env).await;
    env.vendors
        .github()
        .set_start_delay(Duration::from_secs(6_000));
    env.tick().await;
    assert_eq!(conflict_jobs(&env, "ENG-1"), [], "feedback waits");
    env.advance_clock(Duration::from_secs(31));
    env.tick().await;
    env.tick().await;
    let kinds: Vec<JobKind> = env.jobs("ENG-1").iter().map(|job| job.kind).collect();
    assert_eq!(kinds, [JobKind::Implementation, JobKind::FollowUp]);
    env.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn automatic_runs_share_a_daily_limit() {
    let (env, number) = with_conflict().await;
    let mut known = env.jobs("ENG-1").remove(0);
    known.kind = JobKind::FollowUp;
    for at in 0..4 {
        known.id = format!("01B{at}").as_str().into();
        let job = known.clone();
        let put = env.store.write(move |tx| jobs::put(tx, &job));
        put.await.unwrap();
    }
    sweep(&env).await;
    for _ in 0..3 {
        env.tick().await;
    }
    assert_eq!(conflict_jobs(&env, "ENG-1"), []);
    let comments = our_comments(&env, number);
    assert!(
        comments.len() == 1 && comments[0].starts_with("Reached the limit of 4 automatic runs"),
        "{comments:?}"
    );
    env.advance_clock(minutes(24 * 60));
    let job = wait_for_run(&env, "ENG-1", 1).await;
    assert_eq!(job.state, JobState::Completed, "{}", log(&env));
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pull_request_to_another_branch_is_left_to_people() {
    let (env, number) = with_conflict().await;
    let repo = env.repo();
    repo.commit("release", &[("cart.txt", "release\n")], "Release")
        .unwrap();
    repo.set_pull_base(number, "release");
    for _ in 0..3 {
        sweep(&env).await;
        env.tick().await;
    }
    assert_eq!(conflict_jobs(&env, "ENG-1"), []);
    let comments = our_comments(&env, number);
    assert!(
        comments.len() == 1
            && comments[0].contains("in conflict with release")
            && comments[0].contains("only with main"),
        "{comments:?}"
    );
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn approved_pull_requests_come_first() {
    let env = start().await;
    let repo = env.repo();
    repo.commit("main", &[("cart.txt", "cart\n")], "Add the cart")
        .unwrap();
    let mut pulls = Vec::new();
    for key in ["ENG-1", "ENG-2", "ENG-3"] {
        env.set_agent_script(key, keep_both("cart.txt"));
        pulls.push(open_pull(&env, key, &[("cart.txt", &format!("{key}\n"))]).await);
    }
    repo.commit("main", &[("cart.txt", "theirs\n")], "Change the cart")
        .unwrap();
    repo.add_review(pulls[2], "mia", "APPROVED", "");
    wait_for_webhooks(&env).await;
    sweep(&env).await;
    let jobs = || {
        ["ENG-1", "ENG-2", "ENG-3"]
            .map(|key| conflict_jobs(&env, key))
            .concat()
    };
    env.tick_until("all conflicts are resolved", || {
        let jobs = jobs();
        assert!(jobs.iter().filter(|job| job.is_active()).count() <= 1);
        jobs.len() == 3 && jobs.iter().all(|job| !job.is_active())
    })
    .await;
    let runs = repo.runs();
    let order: Vec<&str> = { runs.iter() }
        .filter_map(|run| run.inputs["issue_identifier"].as_str())
        .collect();
    assert_eq!(order, ["ENG-3", "ENG-1", "ENG-2"]);
    env.tick_until_drained().await;
    env.finish().await;
}
