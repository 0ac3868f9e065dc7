//! Merges that a rule refuses.

use std::time::Duration;

use domain::job::{Job, JobKind, JobState};
use engine::pull_requests::reconcile;
use fake_vendors::BranchProtection;
use serde_json::{Value, json};
use store::jobs;

use super::{
    BOT, audited, auto_env, env_with, head, is_merged, merge_of, open_pull, open_pull_with,
    report_check, requests, require_two_approvals, settle,
};
use crate::follow_up::next_second;
use crate::gap_fill::set_paused;
use crate::test_env::{TestEnv, mapping};

/// Checks that a merge is refused by a rule, in the answer of the API and in the audit.
async fn assert_refused(env: &TestEnv, number: u64, rule: &str, message: &str) {
    assert_shown(env, number, rule, message).await;
    let refused = audited(env, "merge-refused").await;
    let entry = (format!("acme/shop#{number}"), format!("{rule}: {message}"));
    let same = refused.iter().filter(|other| **other == entry);
    assert_eq!(same.count(), 1, "{refused:?}");
}

/// Checks that a merge is refused by a rule, in the answer of the API.
async fn assert_shown(env: &TestEnv, number: u64, rule: &str, message: &str) {
    settle(env).await;
    assert!(!is_merged(env, number));
    let merge = merge_of(env, number).await;
    let expected = format!("{rule}: {message}");
    assert_eq!(
        (&merge["state"], &merge["rule"], &merge["message"]),
        (&json!("refused"), &json!(rule), &json!(expected)),
        "{merge}"
    );
    assert_eq!(merge["head"], json!(head(env, number)));
}

#[tokio::test(flavor = "multi_thread")]
async fn approvals_of_ourselves_of_apps_and_of_guests_do_not_count() {
    let env = auto_env().await;
    let number = open_pull(&env, "ENG-1").await;
    let short = head(&env, number)[..7].to_owned();
    env.repo().set_collaborator_role("robot[bot]", "write");
    env.repo().set_collaborator_role(BOT, "write");
    env.repo().add_review(number, BOT, "APPROVED", "");
    env.repo().add_review(number, "robot[bot]", "APPROVED", "");
    env.repo().add_review(number, "guest", "APPROVED", "");
    let message = format!(
        "0 of 1 approvals of {short} by people with write permission (agent-implement is the account of this \
         service, robot is an App, guest may not write)"
    );
    assert_refused(&env, number, "merge.requireApprovals", &message).await;
    assert_eq!(requests(&env, "/merge {"), 0);

    env.repo().add_review(number, "mia", "APPROVED", "");
    settle(&env).await;
    assert!(is_merged(&env, number));
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dismissed_approvals_do_not_count() {
    let env = env_with(json!({"merge": {"mode": "auto", "requireApprovals": 2}})).await;
    let number = open_pull(&env, "ENG-1").await;
    let review = env.repo().add_review(number, "kim", "APPROVED", "");
    env.repo().dismiss_review(review);
    env.repo().add_review(number, "mia", "APPROVED", "");
    let short = head(&env, number)[..7].to_owned();
    let message = format!("1 of 2 approvals of {short} by people with write permission");
    assert_refused(&env, number, "merge.requireApprovals", &message).await;
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn red_and_running_checks_refuse_until_they_pass() {
    let env = auto_env().await;
    let settings = (".agent-implement/config.yml", "ci: {attempts: 0}\n");
    env.repo()
        .commit("main", &[settings], "Leave red checks to people")
        .unwrap();
    let number = open_pull(&env, "ENG-1").await;
    report_check(&env, "agent-implement/eng-1", Some("failure"));
    env.repo().add_review(number, "mia", "APPROVED", "");
    assert_refused(&env, number, "checks", "not successful: test").await;
    report_check(&env, "agent-implement/eng-1", None);
    env.advance_clock(Duration::from_secs(601));
    assert_shown(&env, number, "checks", "not ended: test").await;
    report_check(&env, "agent-implement/eng-1", Some("success"));
    engine::pull_requests::reconcile::run_once(&env.app)
        .await
        .unwrap();
    settle(&env).await;
    assert!(is_merged(&env, number), "{}", merge_of(&env, number).await);
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn checks_that_the_repository_ignores_do_not_refuse() {
    let env = auto_env().await;
    let settings = (".agent-implement/config.yml", "ci: {ignore: [\"te*\"]}\n");
    env.repo().commit("main", &[settings], "Settings").unwrap();
    let number = open_pull(&env, "ENG-1").await;
    report_check(&env, "agent-implement/eng-1", Some("failure"));
    env.repo().add_review(number, "mia", "APPROVED", "");
    settle(&env).await;
    assert!(is_merged(&env, number), "{}", merge_of(&env, number).await);
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_without_checks_is_merged_only_if_none_is_required() {
    let env = auto_env().await;
    env.repo().protect(BranchProtection {
        required_checks: vec!["build".into()],
        ..BranchProtection::default()
    });
    let number = open_pull(&env, "ENG-1").await;
    env.repo().add_review(number, "mia", "APPROVED", "");
    let message = "the head has none, and main requires build";
    assert_refused(&env, number, "checks", message).await;
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn open_conversations_refuse() {
    let env = auto_env().await;
    let number = open_pull(&env, "ENG-1").await;
    // Praise starts no follow-up, but stays a conversation.
    let thread = env
        .repo()
        .add_review_comment(number, "mia", "a.txt", 1, "LGTM");
    env.repo().add_review(number, "mia", "APPROVED", "");
    assert_refused(
        &env,
        number,
        "conversations",
        "1 conversation is unresolved",
    )
    .await;
    env.repo().resolve_thread(thread);
    settle(&env).await;
    assert!(is_merged(&env, number), "{}", merge_of(&env, number).await);
    env.finish().await;
}

/// Bounds of the policy, changed files, and the rule and sentence that they lead to.
type RefusedChange<'a> = (Value, &'a [(&'a str, &'a str)], &'a str, &'a str);

#[tokio::test(flavor = "multi_thread")]
async fn bounds_and_forbidden_files_refuse() {
    let many = ["b.txt", "c.txt", "d.txt"].map(|path| (path, "x\n"));
    let cases: [RefusedChange<'_>; 6] = [
        (
            json!({"maxFiles": 2}),
            &many,
            "merge.maxFiles",
            "4 files are changed, 2 are allowed",
        ),
        (
            json!({"maxLines": 3}),
            &many,
            "merge.maxLines",
            "4 lines are changed, 3 are allowed",
        ),
        (
            json!({}),
            &[("web/yarn.lock", "x\n")],
            "lockFiles",
            "web/yarn.lock is changed",
        ),
        (
            json!({}),
            &[(".github/workflows/ci.yml", "on: push\n")],
            "controlFiles",
            ".github/workflows/ci.yml is changed, which controls CI, agents or reviews",
        ),
        (
            json!({}),
            &[("docs/AGENTS.md", "Be bold.\n")],
            "controlFiles",
            "docs/AGENTS.md is changed, which controls CI, agents or reviews",
        ),
        (
            json!({"forbidPaths": ["src/auth/**"]}),
            &[("src/auth/login.rs", "x\n")],
            "merge.forbidPaths",
            "src/auth/login.rs is changed, which matches src/auth/**",
        ),
    ];
    for (bounds, files, rule, message) in cases {
        let mut policy = json!({"mode": "auto"});
        for (name, value) in bounds.as_object().unwrap() {
            policy[name] = value.clone();
        }
        let env = env_with(json!({ "merge": policy })).await;
        let number = open_pull_with(&env, "ENG-1", files).await;
        env.repo().add_review(number, "mia", "APPROVED", "");
        assert_refused(&env, number, rule, message).await;
        env.finish().await;
    }
}

/// Stores a run on the branch of the pull request of a ticket.
async fn begin_run(env: &TestEnv, key: &str) -> Job {
    let mut job = env.jobs(key).pop().unwrap();
    job.id = format!("{}Z", job.id).as_str().into();
    job.kind = JobKind::FollowUp;
    job.state = JobState::Running;
    job.finished_at = None;
    put_job(env, &job).await;
    job
}

async fn put_job(env: &TestEnv, job: &Job) {
    let job = job.clone();
    let put = env.store.write(move |tx| jobs::put(tx, &job));
    put.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_drafts_pauses_and_feedback_refuse() {
    let env = auto_env().await;
    let number = open_pull(&env, "ENG-1").await;
    let mut run = begin_run(&env, "ENG-1").await;
    env.repo().add_review(number, "mia", "APPROVED", "");
    assert_refused(&env, number, "activeRun", "a run works on the branch").await;
    set_paused(&env, "ENG", true).await;
    assert_refused(&env, number, "paused", "the project is paused").await;
    assert_eq!(requests(&env, "latestOpinionatedReviews(first: 100)"), 0);
    run.state = JobState::Completed;
    run.finished_at = Some(env.app.core.now());
    put_job(&env, &run).await;
    env.finish().await;

    let env = auto_env().await;
    let number = open_pull(&env, "ENG-1").await;
    env.repo().add_comment(number, "kim", "- [ ] Rename it.");
    env.repo().add_review(number, "mia", "APPROVED", "");
    let message = "1 piece of feedback waits for a run";
    assert_refused(&env, number, "openFeedback", message).await;
    env.finish().await;
}

/// The webhook is enough; the next sweep may be ten minutes away.
#[tokio::test(flavor = "multi_thread")]
async fn a_draft_is_merged_once_it_is_ready() {
    let env = auto_env().await;
    let number = open_pull(&env, "ENG-1").await;
    let (github, repo) = (
        env.app.vendors.github.clone().unwrap(),
        mapping().target_repo(),
    );
    let node = github.pull(&repo, number).await.unwrap().node_id;
    github.set_draft(&repo, &node).await.unwrap();
    settle(&env).await;
    env.repo().add_review(number, "mia", "APPROVED", "");
    assert_refused(&env, number, "draft", "it is a draft").await;
    github.set_ready(&repo, &node).await.unwrap();
    settle(&env).await;
    assert!(is_merged(&env, number));
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_reason_of_github_is_shown_and_tried_again_later() {
    let env = auto_env().await;
    env.repo().deny_merge_method("squash");
    let number = open_pull(&env, "ENG-1").await;
    env.repo().add_review(number, "mia", "APPROVED", "");
    settle(&env).await;
    env.tick_until_drained().await;
    let message =
        "GitHub answered with status 405: squash merges are not allowed on this repository";
    assert_refused(&env, number, "github", message).await;
    assert!(!is_merged(&env, number));
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn people_without_write_permission_disarm_at_most_once() {
    let env = auto_env().await;
    require_two_approvals(&env);
    let number = open_pull(&env, "ENG-1").await;
    env.repo().add_review(number, "mia", "APPROVED", "");
    settle(&env).await;
    env.repo()
        .add_review(number, "guest", "CHANGES_REQUESTED", "Rewrite it.");
    for _ in 0..4 {
        env.advance_clock(Duration::from_secs(600));
        // Times of GitHub have a resolution of one second.
        next_second().await;
        reconcile::run_once(&env.app).await.unwrap();
        settle(&env).await;
    }
    let disarmed = audited(&env, "merge-disarmed").await;
    assert!(disarmed.len() <= 1, "{disarmed:?}");
    assert_eq!(env.repo().armed_pulls(), [number]);
    env.finish().await;
}
