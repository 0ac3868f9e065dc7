//! What the service does not do: decide about an old head commit, run jobs again twice, or start runs beside people's
//! feedback and beyond the daily limit.

use std::time::Duration;

use domain::job::{JobKind, JobState};
use domain::report::RunOutcome;
use fake_vendors::{CheckKind, CheckReport, FakeService, InjectedFault};
use serde_json::Value;

use super::kinds::{env_with_settings, report, report_and_tick};
use super::{
    CI, check_comments, env_with_checks, highest_attempt, message, open_pull, our_runs, record,
    repairs, script, wait_for_repair,
};
use crate::follow_up::{apply_event, follow_up_jobs, result_reported};
use engine::pull_requests::reconcile;

const BRANCH: &str = "agent-implement/eng-1";

#[tokio::test(flavor = "multi_thread")]
async fn nothing_happens_if_the_head_moves_meanwhile() {
    let (env, number) = env_with_settings("").await;
    let repo = env.repo();
    let status = format!("/commits/{}/statuses", repo.branch_head(BRANCH).unwrap());
    let github = env.vendors.faults(FakeService::GitHub);
    github.inject_on_match(&status, InjectedFault::HoldResponse);
    repo.report_check(BRANCH, report("lint", Some("failure")))
        .unwrap();
    env.wait_until("all webhooks are answered", || {
        env.vendors.github().webhooks().is_idle()
    })
    .await;
    let push = async {
        env.wait_until("the checks are being read", || github.held() == 1)
            .await;
        repo.commit(BRANCH, &[("a.txt", "by a person\n")], "Push")
            .unwrap();
        github.release();
    };
    tokio::join!(env.tick(), push);
    assert_eq!(follow_up_jobs(&env, "ENG-1"), []);
    assert_eq!(
        (check_comments(&env, number).len(), our_runs(&repo).len()),
        (0, 0)
    );
    // The new head has no checks, so nothing is red.
    env.tick().await;
    assert_eq!(record(&env, number).ci.head, repo.branch_head(BRANCH));
    assert_eq!(follow_up_jobs(&env, "ENG-1"), []);
    env.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_that_cannot_be_read_is_read_again_after_a_minute() {
    let (env, number) = env_with_settings("").await;
    // It is not read again for another reason.
    assert!(record(&env, number).readiness.mergeable.is_some());
    let github = env.vendors.faults(FakeService::GitHub);
    for _ in 0..10 {
        github.inject_on_match("/graphql", InjectedFault::ErrorStatus(502));
    }
    env.repo()
        .report_check(BRANCH, report("lint", Some("failure")))
        .unwrap();
    env.wait_until("all webhooks are answered", || {
        env.vendors.github().webhooks().is_idle()
    })
    .await;
    env.tick().await;
    assert_eq!(record(&env, number).readiness.checks, None);
    assert!(github.pending() < 10, "it was not read");
    github.clear();
    env.advance_clock(Duration::from_secs(61));
    env.tick().await;
    let checks = record(&env, number).readiness.checks.unwrap();
    assert_eq!((checks.failed, checks.total), (1, 1));
    env.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rerun_whose_answer_is_lost_happens_once() {
    let env = env_with_checks(CI).await;
    let repo = env.repo();
    env.set_agent_script("ENG-1", script("fixed\n"));
    env.vendors
        .faults(FakeService::GitHub)
        .inject_on_match("rerun-failed-jobs", InjectedFault::DropResponse);
    open_pull(&env, "ENG-1").await;
    env.tick_until("the failed job runs again", || {
        highest_attempt(&repo, BRANCH) == Some(2)
    })
    .await;
    env.tick_until_drained().await;
    let job = wait_for_repair(&env, "ENG-1", 1).await;
    assert_eq!(job.state, JobState::Completed);
    assert_eq!(highest_attempt(&repo, BRANCH), Some(2));
    env.tick_until("the checks of the pushed commit have ended", || {
        let checks = repo.checks(BRANCH);
        !checks.is_empty() && checks.iter().all(|(_, end)| end.is_some())
    })
    .await;
    env.tick().await;
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outdated_head_does_not_run_again() {
    let env = env_with_checks(CI).await;
    let repo = env.repo();
    let github = env.vendors.faults(FakeService::GitHub);
    github.inject_on_match("rerun-failed-jobs", InjectedFault::ErrorStatus(500));
    open_pull(&env, "ENG-1").await;
    env.tick_until("the rerun has failed", || github.pending() == 0)
        .await;
    // A person pushes before the next attempt.
    repo.commit(BRANCH, &[("a.txt", "fixed\n")], "Fix a")
        .unwrap();
    env.tick_until_drained().await;
    assert_eq!(highest_attempt(&repo, BRANCH), Some(1));
    assert_eq!(env.app.live.metrics.ci_reruns.get(), 0);
    env.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_rerun_is_skipped() {
    let env = env_with_checks(CI).await;
    let repo = env.repo();
    repo.reject_reruns(403);
    env.set_agent_script("ENG-1", script("fixed\n"));
    let number = open_pull(&env, "ENG-1").await;
    env.tick_until("the rerun was refused", || {
        record(&env, number).ci.rerun.is_some()
    })
    .await;
    // No webhook follows a refusal.
    env.advance_clock(Duration::from_secs(60));
    let job = wait_for_repair(&env, "ENG-1", 1).await;
    assert_eq!(job.state, JobState::Completed);
    assert_eq!(highest_attempt(&repo, BRANCH), Some(1));
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn attempts_end_and_feedback_comes_first() {
    let (env, number) = env_with_settings("ci: {attempts: 1}\n").await;
    let repo = env.repo();
    repo.set_collaborator_role("mia", "maintain");
    repo.add_review(number, "mia", "CHANGES_REQUESTED", "Handle the empty list.");
    report_and_tick(&env, report("lint", Some("failure"))).await;
    assert_eq!(
        follow_up_jobs(&env, "ENG-1"),
        [],
        "the feedback waits until it is quiet"
    );
    env.advance_clock(Duration::from_secs(31));
    env.tick().await;
    let jobs = follow_up_jobs(&env, "ENG-1");
    assert_eq!((jobs.len(), jobs[0].kind), (1, JobKind::FollowUp));
    apply_event(&env, &jobs[0].id, result_reported(RunOutcome::Success)).await;

    // The checks still fail on the same head commit.
    env.tick().await;
    let jobs = repairs(&env, "ENG-1");
    assert_eq!(jobs.len(), 1);
    apply_event(&env, &jobs[0].id, result_reported(RunOutcome::Failure)).await;
    env.tick().await;
    env.tick().await;
    assert_eq!(
        message(&env).await,
        "CI is red: lint, stopped after the last attempt"
    );
    let comment = check_comments(&env, number).remove(0);
    assert!(comment.contains("- Attempt 1: [run](http"), "{comment}");
    assert!(comment.contains("failed and pushed nothing"), "{comment}");
    // A failed repair moves no marker of the ticket.
    let labels = env
        .vendors
        .linear()
        .issue("ENG-1")
        .snapshot()
        .unwrap()
        .labels;
    assert!(
        !labels.iter().any(|label| label.contains("Failed")),
        "{labels:?}"
    );
    assert_eq!(follow_up_jobs(&env, "ENG-1").len(), 2);
    env.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn repairs_share_the_daily_limit() {
    let (env, number) = env_with_settings("ci: {attempts: 10}\n").await;
    for attempt in 1..=4 {
        let status = CheckReport {
            kind: CheckKind::CommitStatus,
            summary: ["one", "two", "three", "four"][attempt - 1],
            ..report("ci/jenkins", Some("failure"))
        };
        report_and_tick(&env, status).await;
        let jobs = repairs(&env, "ENG-1");
        assert_eq!(jobs.len(), attempt);
        // Jobs are sorted by the time of their reservation.
        env.advance_clock(Duration::from_secs(1));
        apply_event(
            &env,
            &jobs[attempt - 1].id,
            result_reported(RunOutcome::Success),
        )
        .await;
    }
    let status = CheckReport {
        kind: CheckKind::CommitStatus,
        summary: "five",
        ..report("ci/jenkins", Some("failure"))
    };
    report_and_tick(&env, status).await;
    assert_eq!(repairs(&env, "ENG-1").len(), 4);
    assert_eq!(
        message(&env).await,
        "CI is red: ci/jenkins, before attempt 5 of 10"
    );
    let comments = env.repo().comments(number);
    let limit = comments.iter().filter(|one| {
        one.body
            .contains("Reached the limit of 4 automatic runs per day.")
    });
    assert_eq!(limit.count(), 1);
    // Waiting costs no request.
    let before = env.vendors.requests().len();
    for _ in 0..3 {
        env.tick().await;
    }
    let github = |url: &str| url.contains("/check-runs") || url.contains("/statuses");
    let requests = env.vendors.requests().all().split_off(before);
    assert_eq!(requests.iter().filter(|one| github(&one.url)).count(), 0);
    env.advance_clock(Duration::from_secs(24 * 60 * 60));
    env.tick().await;
    assert_eq!(repairs(&env, "ENG-1").len(), 5);
    env.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unchanged_pull_request_costs_no_request() {
    let (env, _) = env_with_settings("").await;
    report_and_tick(&env, report("lint", Some("success"))).await;
    reconcile::run_once(&env.app).await.unwrap();
    env.tick().await;
    let before = env.vendors.requests().len();
    engine::pull_requests::follow_up::run_once(&env.app)
        .await
        .unwrap();
    assert_eq!(env.vendors.requests().len(), before);
    assert_eq!(message(&env).await, Value::Null);
    env.stop().await;
}
