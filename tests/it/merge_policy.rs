//! Merges by the policy of a project: at once, by auto-merge and by the merge queue; what is refused, and why.

mod branch;
mod lost_answers;
mod refusals;

use std::time::Duration;

use engine::pull_requests::reconcile;
use fake_vendors::{BranchProtection, CheckKind, CheckReport, WebhookFaults};
use serde_json::{Value, json};

use crate::follow_up::{self, register_webhook};
use crate::test_env::{TestEnv, TestEnvOptions, mapping_with};

const BOT: &str = "agent-implement[bot]";

/// Longer than the time in which the checks of a new head are expected.
const CHECK_CREATION_TIME: Duration = Duration::from_secs(61);

/// Environment with a project of this merge policy, in which runs are dispatched but never start.
async fn env_with(fields: Value) -> TestEnv {
    let env = TestEnv::with_options(TestEnvOptions {
        mappings: vec![mapping_with(&fields)],
        ..follow_up::options()
    })
    .await;
    let slow = Duration::from_secs(6_000);
    env.vendors.github().set_start_delay(slow);
    env.repo()
        .set_collaborator_role("mia", "maintain")
        .set_collaborator_role("kim", "write")
        .set_collaborator_role("guest", "triage");
    register_webhook(&env);
    env
}

async fn auto_env() -> TestEnv {
    env_with(json!({"merge": {"mode": "auto"}})).await
}

/// Opens the pull request of a completed run, old enough to have checks. Returns its number.
async fn open_pull(env: &TestEnv, key: &str) -> u64 {
    let number = follow_up::open_pull(env, key).await;
    reconcile::run_once(&env.app).await.unwrap();
    env.advance_clock(CHECK_CREATION_TIME);
    number
}

/// Opens a pull request of the repository like [`open_pull`], with these files.
async fn open_pull_with(env: &TestEnv, key: &str, files: &[(&str, &str)]) -> u64 {
    let branch = format!("agent-implement/{}", key.to_lowercase());
    env.repo().commit(&branch, files, "B").unwrap();
    open_pull(env, key).await
}

/// Reports a check of the head of a branch.
fn report_check(env: &TestEnv, branch: &str, conclusion: Option<&str>) {
    let report = CheckReport {
        url: None,
        name: "test",
        app: "github-actions",
        kind: CheckKind::CheckRun,
        conclusion,
        summary: "",
        text: "",
    };
    env.repo().report_check(branch, report).unwrap();
}

/// Waits for the webhooks, then runs ticks until nothing is left to do.
async fn settle(env: &TestEnv) {
    for _ in 0..3 {
        env.wait_until("all webhooks are answered", || {
            env.vendors.github().webhooks().is_idle()
        })
        .await;
        env.advance_clock(Duration::from_secs(1));
        env.tick().await;
    }
}

async fn merge_of(env: &TestEnv, number: u64) -> Value {
    let pulls = env.admin_get("/api/pulls").await;
    let rows = pulls["pulls"].as_array().unwrap();
    let row = rows.iter().find(|row| row["prNumber"] == number);
    row.unwrap()["merge"].clone()
}

/// Entries of the audit with this action: target and detail.
async fn audited(env: &TestEnv, action: &str) -> Vec<(String, String)> {
    let audit = env.admin_get("/api/audit?limit=500").await;
    let matching = audit
        .as_array()
        .unwrap()
        .iter()
        .filter(|entry| entry["action"] == action);
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    matching
        .map(|entry| (text(&entry["target"]), text(&entry["detail"])))
        .collect()
}

/// Comments of the service about a merge, on a pull request and on its ticket.
fn notes(env: &TestEnv, key: &str, number: u64) -> (Vec<String>, Vec<String>) {
    let on_pull = env.repo().comments(number).into_iter();
    let on_pull = on_pull.map(|comment| comment.body);
    let on_ticket = env.comments(key).into_iter();
    let is_note =
        |body: &String| body.starts_with("Merged by policy") || body.starts_with("GitHub merged");
    (
        on_pull.filter(is_note).collect(),
        on_ticket.filter(is_note).collect(),
    )
}

/// Returns the number of requests with this text in their first line or body.
fn requests(env: &TestEnv, text: &str) -> usize {
    let log = env.vendors.requests().all();
    let lines = log.iter().map(|request| {
        let path = request.url.replacen("https://api.github.com", "", 1);
        format!("{} {path} {}", request.method, request.body)
    });
    lines.filter(|line| line.contains(text)).count()
}

fn head(env: &TestEnv, number: u64) -> String {
    let pulls = env.repo().pulls();
    let pull = pulls.iter().find(|pull| pull.number == number);
    pull.unwrap().head_sha.clone()
}

fn is_merged(env: &TestEnv, number: u64) -> bool {
    let pulls = env.repo().pulls();
    pulls
        .iter()
        .any(|pull| pull.number == number && pull.merged)
}

/// Environment with a pull request that GitHub merges after a second approval.
async fn armed_pull() -> (TestEnv, u64) {
    let env = auto_env().await;
    require_two_approvals(&env);
    let number = open_pull(&env, "ENG-1").await;
    env.repo().add_review(number, "mia", "APPROVED", "");
    settle(&env).await;
    assert_eq!(env.repo().armed_pulls(), [number]);
    (env, number)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approved_green_head_is_merged_at_once_with_one_note() {
    let env = auto_env().await;
    let number = open_pull(&env, "ENG-1").await;
    report_check(&env, "agent-implement/eng-1", Some("success"));
    settle(&env).await;
    assert!(!is_merged(&env, number), "nobody has approved it");
    let waiting = merge_of(&env, number).await;
    assert_eq!(waiting["rule"], "merge.requireApprovals");
    assert!(audited(&env, "merge-refused").await.is_empty());

    let head = head(&env, number);
    env.repo().add_review(number, "mia", "APPROVED", "");
    settle(&env).await;
    assert!(is_merged(&env, number), "{}", merge_of(&env, number).await);
    let short = &head[..7];
    let note = format!("Merged by policy (squash): approved by @mia for {short}; 1 check passed.");
    let (on_pull, on_ticket) = notes(&env, "ENG-1", number);
    assert_eq!(on_pull.len(), 1);
    assert!(on_pull[0].starts_with(&note), "{on_pull:?}");
    assert_eq!(on_ticket, [note]);
    let merge = merge_of(&env, number).await;
    assert_eq!(
        (&merge["state"], &merge["head"]),
        (&json!("merged"), &json!(head))
    );
    assert_eq!(merge["approvedBy"], json!(["mia"]));
    let target = format!("acme/shop#{number}");
    let detail = format!(
        "merge.mode auto, merge.requireApprovals 1: approved by @mia for {short}; 1 check passed"
    );
    assert_eq!(audited(&env, "pull-merged").await, [(target, detail)]);
    let commits = env.repo().commits("main");
    assert_eq!(commits[0].parents.len(), 1, "squashed");
    assert_eq!(requests(&env, "/merge {"), 1);
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_method_of_the_project_is_used() {
    for (method, parents) in [("merge", 2), ("rebase", 1)] {
        let env = env_with(json!({"merge": {"mode": "auto", "method": method}})).await;
        let number = open_pull(&env, "ENG-1").await;
        env.repo().add_review(number, "mia", "APPROVED", "");
        settle(&env).await;
        assert!(is_merged(&env, number), "{}", merge_of(&env, number).await);
        let commits = env.repo().commits("main");
        assert_eq!(commits[0].parents.len(), parents, "{method}");
        let (on_pull, _) = notes(&env, "ENG-1", number);
        assert!(on_pull[0].contains(&format!("({method})")), "{on_pull:?}");
        assert!(
            on_pull[0].contains("; no checks are required."),
            "{on_pull:?}"
        );
        env.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_policy_people_merge() {
    let env = env_with(json!({})).await;
    let number = open_pull(&env, "ENG-1").await;
    env.repo().add_review(number, "mia", "APPROVED", "");
    settle(&env).await;
    assert!(!is_merged(&env, number));
    let nothing =
        json!({"state": null, "rule": null, "message": null, "head": null, "approvedBy": []});
    assert_eq!(merge_of(&env, number).await, nothing);
    assert_eq!(requests(&env, "latestOpinionatedReviews(first: 100)"), 0);
    env.finish().await;
}

/// Protects the default branch: two approvals, of which the policy needs one.
fn require_two_approvals(env: &TestEnv) {
    env.repo().allow_auto_merge().protect(BranchProtection {
        required_reviews: 2,
        ..BranchProtection::default()
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_that_github_does_not_merge_yet_is_armed() {
    let env = auto_env().await;
    require_two_approvals(&env);
    let number = open_pull(&env, "ENG-1").await;
    env.repo().add_review(number, "mia", "APPROVED", "");
    settle(&env).await;
    assert_eq!(
        env.repo().armed_pulls(),
        [number],
        "{}",
        merge_of(&env, number).await
    );
    assert_eq!(merge_of(&env, number).await["state"], "armed");
    assert_eq!(audited(&env, "merge-armed").await.len(), 1);
    let head = head(&env, number);
    assert_eq!(requests(&env, "enablePullRequestAutoMerge"), 1);
    assert_eq!(requests(&env, &format!("\"head\":\"{head}\"")), 1);

    env.repo().add_review(number, "kim", "APPROVED", "");
    settle(&env).await;
    assert!(is_merged(&env, number), "GitHub merges by itself");
    let (on_pull, on_ticket) = notes(&env, "ENG-1", number);
    assert_eq!((on_pull.len(), on_ticket.len()), (1, 1));
    assert!(on_ticket[0].contains(&head[..7]), "{on_ticket:?}");
    assert_eq!(merge_of(&env, number).await["state"], "merged");
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_disarms_and_the_rules_decide_again() {
    let (env, number) = armed_pull().await;
    let approved = head(&env, number);

    env.repo()
        .commit("agent-implement/eng-1", &[("b.txt", "b\n")], "Person")
        .unwrap();
    let pushed = head(&env, number);
    settle(&env).await;
    assert!(env.repo().armed_pulls().is_empty());
    let disarmed = audited(&env, "merge-disarmed").await;
    let reason = format!(
        "merge.requireApprovals: {} was pushed after the approval of {}",
        &pushed[..7],
        &approved[..7]
    );
    assert_eq!(disarmed, [(format!("acme/shop#{number}"), reason)]);
    env.advance_clock(CHECK_CREATION_TIME);
    settle(&env).await;
    let merge = merge_of(&env, number).await;
    assert_eq!(
        (&merge["state"], &merge["head"]),
        (&json!("refused"), &json!(pushed))
    );
    let message = merge["message"].as_str().unwrap();
    assert!(
        message.contains("mia approved an older commit"),
        "{message}"
    );
    // GitHub itself would still count the approval of the older commit.
    env.repo().add_review(number, "kim", "COMMENTED", "Hm.");
    settle(&env).await;
    assert!(!is_merged(&env, number));

    env.repo().add_review(number, "mia", "APPROVED", "");
    settle(&env).await;
    assert_eq!(env.repo().armed_pulls(), [number]);
    env.repo().add_review(number, "kim", "APPROVED", "");
    settle(&env).await;
    assert!(is_merged(&env, number));
    let (on_pull, _) = notes(&env, "ENG-1", number);
    assert!(on_pull[0].contains(&pushed[..7]), "{on_pull:?}");
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_changes_after_arming_disarms() {
    let (env, number) = armed_pull().await;
    let thread =
        env.repo()
            .add_review_comment(number, "kim", "a.txt", 1, "LGTM, but see the next line.");
    env.repo()
        .add_review(number, "kim", "CHANGES_REQUESTED", "Not yet.");
    settle(&env).await;
    assert!(
        env.repo().armed_pulls().is_empty(),
        "{}",
        merge_of(&env, number).await
    );
    let disarmed = audited(&env, "merge-disarmed").await;
    assert_eq!(disarmed.len(), 1, "{disarmed:?}");
    env.repo().resolve_thread(thread);
    assert!(!is_merged(&env, number));
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn auto_merge_that_a_person_turns_off_stays_off_for_this_head() {
    let env = auto_env().await;
    require_two_approvals(&env);
    let number = open_pull(&env, "ENG-1").await;
    env.repo().add_review(number, "mia", "APPROVED", "");
    settle(&env).await;
    env.repo().stop_merge(number);
    settle(&env).await;
    let merge = merge_of(&env, number).await;
    assert_eq!(
        (&merge["state"], &merge["rule"]),
        (&json!("refused"), &json!("stopped")),
        "{merge}"
    );
    env.advance_clock(Duration::from_secs(3_600));
    settle(&env).await;
    assert!(env.repo().armed_pulls().is_empty());
    assert_eq!(requests(&env, "enablePullRequestAutoMerge"), 1);
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_merge_queue_merges() {
    let env = env_with(json!({"merge": {"mode": "queue"}})).await;
    env.repo().protect(BranchProtection {
        has_merge_queue: true,
        ..BranchProtection::default()
    });
    let number = open_pull(&env, "ENG-1").await;
    env.repo().add_review(number, "mia", "APPROVED", "");
    settle(&env).await;
    assert_eq!(
        env.repo().queued_pulls(),
        [number],
        "{}",
        merge_of(&env, number).await
    );
    assert_eq!(merge_of(&env, number).await["state"], "queued");
    assert_eq!(env.repo().run_merge_queue().unwrap(), 1);
    settle(&env).await;
    let (on_pull, on_ticket) = notes(&env, "ENG-1", number);
    assert_eq!((on_pull.len(), on_ticket.len()), (1, 1));
    assert!(on_ticket[0].starts_with("Merged by policy (merge queue): approved by @mia for "));
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_merge_by_a_person_is_not_claimed() {
    let (env, number) = armed_pull().await;
    env.repo().merge_pull(number).unwrap();
    settle(&env).await;
    assert_eq!(notes(&env, "ENG-1", number), (Vec::new(), Vec::new()));
    assert!(audited(&env, "pull-merged").await.is_empty());
    assert_eq!(merge_of(&env, number).await["state"], Value::Null);
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_merge_is_found_without_webhooks() {
    let env = auto_env().await;
    require_two_approvals(&env);
    let number = open_pull(&env, "ENG-1").await;
    env.vendors.github().webhooks().set_faults(WebhookFaults {
        loss_rate: 1.0,
        ..WebhookFaults::default()
    });
    env.repo().add_review(number, "mia", "APPROVED", "");
    reconcile::run_once(&env.app).await.unwrap();
    env.tick().await;
    assert_eq!(env.repo().armed_pulls(), [number]);
    env.repo().add_review(number, "kim", "APPROVED", "");
    assert!(is_merged(&env, number));
    reconcile::run_once(&env.app).await.unwrap();
    env.tick().await;
    let (on_pull, on_ticket) = notes(&env, "ENG-1", number);
    assert_eq!((on_pull.len(), on_ticket.len()), (1, 1));
    env.finish().await;
}
