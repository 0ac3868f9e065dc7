//! Post-push review: waits for external reviewers, fixes their findings, and keeps unapproved pull
//! requests as drafts.

use std::sync::{Arc, Mutex};

use domain::job::{Job, JobState};
use domain::report::FailureCode;
use fake_vendors::scripted_agent::{Script, ScriptStep};
use fake_vendors::{CheckKind, CheckReport, FakeRepo, PullSnapshot};
use serde_json::{Value, json};

use crate::canaries::DUMP_CREDENTIALS_SCRIPT;
use crate::gap_fill;
use crate::test_env::{Gate, TestEnv, TestEnvOptions};

/// Marker of the comment with the state of the review.
pub const GAP_ANALYSIS_MARKER: &str = "<!-- agent-implement-gap-analysis -->";

const CONFIG: &str = ".agent-implement/config.yml";

/// Configuration that waits for one check. If it still fails after the review, no other run repairs it.
const LINT: &str = "reviewCheckNames: [lint]\nreviewWaitPollMs: 200\nreviewWaitTimeoutMs: 60000\nci: {ignore: [lint]}\n";

/// The same with a timeout of one second.
const LINT_SHORT_WAIT: &str = "reviewCheckNames: [lint]\nreviewWaitPollMs: 200\nreviewWaitTimeoutMs: 1000\nci: {ignore: [lint]}\n";

/// Text in the prompt of a pass that fixes findings of the check.
const LINT_FAILED: &str = "lint failed";

async fn start_env(config: &str) -> TestEnv {
    env_with_config(TestEnvOptions::default(), config).await
}

async fn env_with_config(env_options: TestEnvOptions, config: &str) -> TestEnv {
    let env = TestEnv::with_options(env_options).await;
    let commit = env.repo().commit("main", &[(CONFIG, config)], "Configure");
    commit.unwrap();
    env
}

/// Report of the check `lint` by the accepted App.
fn lint(conclusion: Option<&str>) -> CheckReport<'_> {
    CheckReport {
        name: "lint",
        app: "lint-app",
        kind: CheckKind::CheckRun,
        conclusion,
        summary: "feature.txt is not linted. @octocat ![x](http://evil/x.png) <!-- hidden -->",
        text: "",
        url: None,
    }
}

/// Reports success for commits with a linted feature file, and failure for all others.
fn lint_every_push(repo: &FakeRepo) {
    let host = repo.clone();
    repo.on_push(move |_, commit| {
        let text = host.read_file(commit, "feature.txt").unwrap_or_default();
        let conclusion = match text.contains("linted") {
            true => "success",
            false => "failure",
        };
        host.report_check(commit, lint(Some(conclusion))).unwrap();
    });
}

fn write_script() -> Script {
    Script::new().pass([
        ScriptStep::write("feature.txt", "done\n"),
        ScriptStep::message("Done."),
    ])
}

fn only_pull(env: &TestEnv) -> PullSnapshot {
    let mut pulls = env.repo().pulls();
    assert_eq!(pulls.len(), 1, "{pulls:?}");
    pulls.remove(0)
}

/// Review comment of the only pull request.
fn review_comment(env: &TestEnv) -> String {
    let comments = env.repo().comments(only_pull(env).number);
    let bodies = comments.into_iter().map(|comment| comment.body);
    let mut comments: Vec<String> = bodies
        .filter(|body| body.contains(GAP_ANALYSIS_MARKER))
        .collect();
    assert_eq!(comments.len(), 1, "{comments:#?}");
    comments.remove(0)
}

fn unresolved(job: &Job) -> Vec<String> {
    match &job.state {
        JobState::ReviewFailed { unresolved } => unresolved.clone(),
        other => panic!("{other:?}"),
    }
}

async fn step_ids(env: &TestEnv, job: &Job) -> Vec<String> {
    let response = env.admin_get(&format!("/api/jobs/{}/steps", job.id)).await;
    let steps = response["steps"].as_array().unwrap().iter();
    let ids = steps.map(|step| step["id"].as_str().unwrap().to_owned());
    ids.collect()
}

/// Status, content type and body of a job's patch.
async fn patch(env: &TestEnv, job: &Job) -> (u16, String, String) {
    let url = format!("{}/api/jobs/{}/patch", env.address, job.id);
    let request = reqwest::Client::new().get(url);
    let answer = request
        .bearer_auth(env.sign_in().await)
        .send()
        .await
        .unwrap();
    let head = |name: &str| answer.headers()[name].to_str().unwrap().to_owned();
    let (status, kind) = (answer.status().as_u16(), head("content-type"));
    if status == 200 {
        let saved = head("content-disposition");
        assert_eq!(saved, "attachment; filename=\"work.patch\"");
    }
    (status, kind, answer.text().await.unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn findings_of_a_check_are_fixed_and_the_pull_request_becomes_ready() {
    let env = start_env(LINT).await;
    lint_every_push(&env.repo());
    let drafts: Arc<Mutex<Vec<bool>>> = Arc::default();
    let (host, seen) = (env.repo(), drafts.clone());
    env.repo().on_push(move |_, _| {
        let pulls = host.pulls();
        seen.lock()
            .unwrap()
            .extend(pulls.iter().map(|pull| pull.draft));
    });
    let fix_steps = [
        ScriptStep::write("feature.txt", "linted\n"),
        ScriptStep::message("Linted."),
    ];
    env.set_agent_script(
        "ENG-1",
        write_script().pass_if_prompt_contains(LINT_FAILED, fix_steps),
    );
    env.create_labelled_issue("ENG-1", "Add the feature");
    let job = env.wait_for_job_end("ENG-1").await;
    let log = env.repo().run_log(env.repo().runs()[0].id);
    assert_eq!(job.state, JobState::Completed, "{log}");

    let pull = only_pull(&env);
    assert!(!pull.draft);
    assert_eq!(*drafts.lock().unwrap(), [true], "a draft while it was open");
    let commits = env.repo().commits(&pull.head);
    let ours: Vec<&str> = commits
        .iter()
        .map(|commit| commit.message.lines().next().unwrap_or_default())
        .take(2)
        .collect();
    assert_eq!(
        ours,
        ["ENG-1: Address review findings", "ENG-1: Add the feature"]
    );
    assert!(
        pull.body.contains("Done."),
        "describes the whole change: {}",
        pull.body
    );
    let comment = review_comment(&env);
    let short = &pull.head_sha[..12];
    assert!(comment.contains(&format!("## Review of {short}\n\nNo open findings.")));
    assert!(
        comment.contains("addressed in one more commit."),
        "{comment}"
    );
    let ids = step_ids(&env, &job).await;
    for id in ["post-push-review", "mend.1", "gap-analysis.2"] {
        assert!(ids.iter().any(|known| known == id), "{id} in {ids:?}");
    }
    assert!(
        !ids.contains(&"gap-analysis.1".to_owned()),
        "no second review of the same commit"
    );
    assert_eq!(patch(&env, &job).await.0, 404);
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unresolved_finding_keeps_the_draft_and_is_listed_in_one_comment() {
    let env = start_env(LINT).await;
    lint_every_push(&env.repo());
    let fix_steps = [
        ScriptStep::append("feature.txt", "again\n"),
        ScriptStep::message("Tried."),
    ];
    env.set_agent_script(
        "ENG-1",
        write_script().pass_if_prompt_contains(LINT_FAILED, fix_steps),
    );
    env.create_labelled_issue("ENG-1", "Add the feature");
    let job = env.wait_for_job_end("ENG-1").await;

    let open = unresolved(&job);
    assert_eq!(open.len(), 1, "{open:?}");
    assert!(open[0].starts_with("lint failed: lint feature.txt is not linted."));
    let pull = only_pull(&env);
    assert!(pull.draft);
    let commits = env.repo().commits(&pull.head).len();
    let before = env.repo().commits("main").len();
    assert_eq!(commits - before, 3, "three commits, two of them fixes");
    let comment = review_comment(&env);
    assert!(
        comment.contains("- lint failed: lint feature.txt is not linted."),
        "{comment}"
    );
    assert!(
        comment.contains("addressed in 2 more commits."),
        "{comment}"
    );
    for gone in ["@octocat", "![", "hidden"] {
        assert!(!comment.contains(gone), "{gone} in {comment}");
    }
    let ticket = env.vendors.linear().issue("ENG-1");
    assert_eq!(ticket.labels(), ["Agent-Implement", "Ready for Review"]);
    let ticket_comments = ticket.comments();
    assert!(
        ticket_comments[1].starts_with("The pull request stays a draft"),
        "{ticket_comments:?}"
    );
    env.finish().await;
}

/// Missing, unfinished and foreign results are no approval and cause no fix.
#[tokio::test(flavor = "multi_thread")]
async fn a_missing_or_inconclusive_check_is_no_approval() {
    let env = start_env(LINT_SHORT_WAIT).await;
    let host = env.repo();
    env.repo().on_push(move |branch, commit| {
        let report = match branch {
            _ if branch.contains("running") => lint(None),
            _ if branch.contains("cancelled") => lint(Some("cancelled")),
            _ if branch.contains("forged") => CheckReport {
                app: "github-actions",
                ..lint(Some("success"))
            },
            _ if branch.contains("pending") => CheckReport {
                kind: CheckKind::CommitStatus,
                ..lint(None)
            },
            _ if branch.contains("older") => CheckReport {
                kind: CheckKind::CommitStatus,
                ..lint(Some("success"))
            },
            _ => return,
        };
        host.report_check(commit, report).unwrap();
    });
    let rows = [
        (
            "ENG-1",
            "Running",
            "lint did not finish: it was still running when the wait timed out",
        ),
        (
            "ENG-2",
            "Cancelled",
            "lint gave no result: its conclusion is cancelled",
        ),
        (
            "ENG-3",
            "Forged",
            "lint did not review: the check run of this name was reported by github-actions, which is not accepted",
        ),
        (
            "ENG-4",
            "Absent",
            "lint did not review: it reported no check run for this commit in time",
        ),
        (
            "ENG-5",
            "Pending",
            "lint did not finish: it was still running when the wait timed out",
        ),
    ];
    for (key, title, _) in rows {
        env.create_labelled_issue(key, title);
    }
    for (key, title, reason) in rows {
        let job = env.wait_for_job_end(key).await;
        assert_eq!(unresolved(&job), [reason], "{title}");
        let ids = step_ids(&env, &job).await;
        assert!(!ids.contains(&"mend.1".to_owned()), "{title}: {ids:?}");
    }
    assert!(env.repo().pulls().iter().all(|pull| pull.draft));

    // A commit status counts like a check run.
    env.create_labelled_issue("ENG-6", "An older App");
    assert_eq!(
        env.wait_for_job_end("ENG-6").await.state,
        JobState::Completed
    );
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requested_changes_block_until_they_are_dismissed() {
    let env = env_with_config(gap_fill::options(), LINT).await;
    let bot = "lint-app[bot]";
    let script = write_script().pass_if_prompt_contains(
        "requests changes",
        [ScriptStep::message("I see nothing to fix.")],
    );
    let second_pass = [
        ScriptStep::write("feature.txt", "LOUD\n"),
        ScriptStep::message("Louder."),
    ];
    env.set_agent_script(
        "ENG-1",
        script.pass_if_prompt_contains(gap_fill::INSTRUCTION, second_pass),
    );
    env.create_labelled_issue("ENG-1", "Add the feature");
    env.wait_until("it is opened", || env.repo().pulls().len() == 1)
        .await;
    let pull = only_pull(&env);
    let repo = env.repo();
    repo.add_review(pull.number, bot, "CHANGES_REQUESTED", "Say it louder.");
    repo.add_review(
        pull.number,
        "alice",
        "CHANGES_REQUESTED",
        "I am not a configured reviewer.",
    );
    repo.report_check(&pull.head_sha, lint(Some("success")))
        .unwrap();
    let job = env.wait_for_job_end("ENG-1").await;
    assert_eq!(
        unresolved(&job),
        ["lint-app requests changes: Say it louder."]
    );
    assert!(only_pull(&env).draft);

    // The same review on the new commit, dismissed before the check ends.
    let body = gap_fill::trigger_body("ENG-1", pull.number);
    assert_eq!(gap_fill::send_trigger(&env, body).await.status, 200);
    env.wait_until("it is pushed", || only_pull(&env).head_sha != pull.head_sha)
        .await;
    let review = repo.add_review(pull.number, bot, "CHANGES_REQUESTED", "Say it louder.");
    repo.dismiss_review(review);
    let head = only_pull(&env).head_sha;
    repo.report_check(&head, lint(Some("success"))).unwrap();
    let job = env.wait_for_job_end("ENG-1").await;
    let log = repo.run_log(repo.runs()[1].id);
    assert_eq!(job.state, JobState::Completed, "{log}");
    assert!(!only_pull(&env).draft);
    assert!(review_comment(&env).contains("No open findings."));
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_managed_review_is_parsed_for_severity_and_comments() {
    let config =
        "reviewProviders: [github-claude-code-review, somebody-else]\nreviewWaitPollMs: 200\n";
    let env = start_env(config).await;
    let report = |text| CheckReport {
        name: "Claude Code Review",
        app: "claude",
        kind: CheckKind::CheckRun,
        conclusion: Some("neutral"),
        summary: "",
        text,
        url: None,
    };
    let fine =
        "All well.\n<!-- bughunter-severity: {\"normal\":0,\"nit\":2,\"pre_existing\":0} -->";
    let host = env.repo();
    env.repo().on_push(move |_, commit| {
        if host.read_file(commit, "feature.txt").as_deref() == Some("two\n") {
            host.report_check(commit, report(fine)).unwrap();
        }
    });
    let fix_steps = [
        ScriptStep::write("feature.txt", "two\n"),
        ScriptStep::message("Two."),
    ];
    env.set_agent_script(
        "ENG-1",
        write_script().pass_if_prompt_contains("off by one", fix_steps),
    );
    env.create_labelled_issue("ENG-1", "Add the feature");
    env.wait_until("it is opened", || env.repo().pulls().len() == 1)
        .await;
    let (pull, repo) = (only_pull(&env), env.repo());
    let bad = "One.\n<!-- bughunter-severity: {\"normal\":1,\"nit\":0,\"pre_existing\":0} -->";
    let body = "🔴 **Important**: off by one";
    repo.add_review_comment(pull.number, "claude[bot]", "feature.txt", 1, body);
    repo.report_check(&pull.head_sha, report(bad)).unwrap();
    let job = env.wait_for_job_end("ENG-1").await;
    let log = repo.run_log(repo.runs()[0].id);
    assert_eq!(job.state, JobState::Completed, "{log}");
    assert!(
        log.contains("Review: Review comment by claude (feature.txt:1): 🔴"),
        "{log}"
    );
    assert!(!only_pull(&env).draft);
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_of_a_person_during_a_fix_is_not_overwritten() {
    let env = start_env(LINT).await;
    lint_every_push(&env.repo());
    let gate = Gate::new(&env);
    let fix_steps = [
        gate.wait_step(),
        ScriptStep::write("feature.txt", "linted\n"),
    ];
    env.set_agent_script(
        "ENG-1",
        write_script().pass_if_prompt_contains(LINT_FAILED, fix_steps),
    );
    env.create_labelled_issue("ENG-1", "Add the feature");
    env.wait_until("the review comment is posted", || {
        let pulls = env.repo().pulls();
        pulls
            .iter()
            .any(|pull| pull.draft && !env.repo().comments(pull.number).is_empty())
    })
    .await;
    let branch = only_pull(&env).head;
    let theirs = env.repo().commit(&branch, &[("a.txt", "theirs\n")], "Mine");
    let theirs = theirs.unwrap();
    gate.open();
    let job = env.wait_for_job_end("ENG-1").await;

    assert_eq!(env.repo().branch_head(&branch), Some(theirs.clone()));
    let open = unresolved(&job);
    assert_eq!(open.len(), 2, "{open:?}");
    assert!(
        open[1].starts_with("Fixing stopped early: push of") && open[1].contains(&theirs),
        "{open:?}"
    );
    assert!(only_pull(&env).draft);
    assert!(
        review_comment(&env).contains(&theirs),
        "{}",
        review_comment(&env)
    );
    let (status, kind, patch) = patch(&env, &job).await;
    assert_eq!((status, kind.as_str()), (200, "text/plain; charset=utf-8"));
    assert!(patch.contains("-done\n+linted\n"), "{patch}");
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_of_a_person_during_a_gap_fill_is_not_overwritten() {
    let env = env_with_config(gap_fill::options(), "").await;
    let gate = Gate::new(&env);
    let second_pass = [gate.wait_step(), ScriptStep::write("feature.txt", "LOUD\n")];
    env.set_agent_script(
        "ENG-1",
        write_script().pass_if_prompt_contains(gap_fill::INSTRUCTION, second_pass),
    );
    env.create_labelled_issue("ENG-1", "Add the feature");
    assert_eq!(
        env.wait_for_job_end("ENG-1").await.state,
        JobState::Completed
    );
    let pull = only_pull(&env);
    let body = gap_fill::trigger_body("ENG-1", pull.number);
    assert_eq!(gap_fill::send_trigger(&env, body).await.status, 200);
    env.wait_until("the agent has started", || {
        let runs = env.repo().runs();
        runs.len() == 2 && env.repo().run_log(runs[1].id).contains("Agent started")
    })
    .await;
    let theirs = env
        .repo()
        .commit(&pull.head, &[("a.txt", "theirs\n")], "Mine");
    let theirs = theirs.unwrap();
    gate.open();
    let job = env.wait_for_job_end("ENG-1").await;

    let JobState::Failed { code, reason } = &job.state else {
        panic!("{:?}", job.state)
    };
    assert_eq!(*code, Some(FailureCode::PushRejected));
    let expected = format!(
        "push of {} was rejected: somebody pushed {theirs} to the branch during the run. \
         Commits of others are never overwritten\nThe change is stored with the job as a patch.",
        pull.head
    );
    assert_eq!(*reason, expected);
    assert_eq!(env.repo().branch_head(&pull.head), Some(theirs));
    let (status, _, kept) = patch(&env, &job).await;
    assert_eq!(status, 200);
    assert!(kept.contains("-done\n+LOUD\n"), "{kept}");
    let shown = env.admin_get(&format!("/api/jobs/{}", job.id)).await;
    assert_eq!(shown["failureCode"], "PUSH_REJECTED");
    let missing = env.admin_get("/api/jobs/01NOBODY/patch").await;
    assert_eq!(missing, json!({"error": "job not found"}));
    let others = &env.jobs("ENG-1")[0];
    let missing = env
        .admin_get(&format!("/api/jobs/{}/patch", others.id))
        .await;
    assert_eq!(missing, json!({"error": "no patch"}));
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_in_a_fix_is_neither_pushed_nor_stored() {
    let env = start_env(LINT).await;
    lint_every_push(&env.repo());
    let leaks = [
        ScriptStep::write("feature.txt", "linted\n"),
        ScriptStep::write(".env", "PASSWORD=correct-horse\n"),
    ];
    env.set_agent_script(
        "ENG-1",
        write_script().pass_if_prompt_contains(LINT_FAILED, leaks),
    );
    env.create_labelled_issue("ENG-1", "Add the feature");
    let job = env.wait_for_job_end("ENG-1").await;
    let JobState::Failed { code, .. } = &job.state else {
        panic!("{:?}", job.state)
    };
    assert_eq!(*code, Some(FailureCode::SensitiveFilesBlocked));
    let pull = only_pull(&env);
    assert!(pull.draft);
    let text = env.repo().read_file(&pull.head, "feature.txt");
    assert_eq!(text.as_deref(), Some("done\n"));
    assert_eq!(patch(&env, &job).await.0, 404);
    env.finish().await;
}

/// Every token that the fake GitHub has created.
fn created_tokens(env: &TestEnv) -> Vec<String> {
    let github = std::fs::read(env.vendors.dir().join("github.json")).unwrap();
    let github: Value = serde_json::from_slice(&github).unwrap();
    let tokens = github["tokens"].as_object().unwrap();
    tokens.keys().cloned().collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn no_repository_token_is_visible_to_the_agent_during_a_fix() {
    let env = start_env(LINT).await;
    lint_every_push(&env.repo());
    let found = env.dir().join("agent-found");
    let fix_steps = [
        ScriptStep::run(&format!(
            "{{ {DUMP_CREDENTIALS_SCRIPT} }} >{}",
            found.display()
        )),
        ScriptStep::write("feature.txt", "linted\n"),
    ];
    env.set_agent_script(
        "ENG-1",
        write_script().pass_if_prompt_contains(LINT_FAILED, fix_steps),
    );
    env.create_labelled_issue("ENG-1", "Add the feature");
    assert_eq!(
        env.wait_for_job_end("ENG-1").await.state,
        JobState::Completed
    );
    let found = std::fs::read_to_string(&found).unwrap();
    assert!(found.contains("agent-implement run"), "{found}");
    let created_tokens = created_tokens(&env);
    assert!(
        created_tokens.len() >= 6,
        "clone, push, review, push, review: {created_tokens:?}"
    );
    for token in created_tokens {
        assert!(!found.contains(&token), "{found}");
    }
    env.finish().await;
}
