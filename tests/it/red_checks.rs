//! Failing checks of open pull requests: reruns, repairs, and when the service leaves them to a person.

mod bounds;
mod kinds;

use domain::feedback::{PullRequestId, PullRequestRecord};
use domain::job::{Job, JobKind, JobState};
use fake_vendors::scripted_agent::{Script, ScriptStep};
use fake_vendors::{FakeRepo, RunSnapshot};
use serde_json::Value;
use store::pull_feedback;

use crate::follow_up::{self, options, register_webhook};
use crate::test_env::{TestEnv, TestEnvOptions, mapping};
use engine::pull_requests::reconcile;

/// Workflow with one job that is green if `a.txt` says so, or is missing.
pub const CI: &str = r#"name: CI
on: [push]
jobs:
  lint:
    runs-on: ubuntu-latest
    steps:
      - run: echo "nothing to lint"
  test:
    name: test (linux)
    runs-on: ubuntu-latest
    steps:
      - uses: actions/checkout@v4
      - run: |
          if [ -e a.txt ] && ! grep -q fixed a.txt; then
            echo "a.txt does not say fixed <script>"
            echo "token ghs_0123456789abcdefghijABCDEFGHIJ012345"
            exit 1
          fi
"#;

/// Environment with a manual engine and webhooks, whose repository checks every push by this workflow.
async fn env_with_checks(workflow: &str) -> TestEnv {
    env_with_options(options(), workflow).await
}

/// Same as [`env_with_checks`], with other options.
pub async fn env_with_options(options: TestEnvOptions, workflow: &str) -> TestEnv {
    let env = TestEnv::with_options(options).await;
    let files = [(".github/workflows/ci.yml", workflow)];
    env.repo().commit("main", &files, "Add checks").unwrap();
    env.repo().run_checks();
    register_webhook(&env);
    env.wait_until("the checks of main have ended", || {
        let checks = env.repo().checks("main");
        !checks.is_empty() && checks.iter().all(|(_, conclusion)| conclusion.is_some())
    })
    .await;
    env
}

/// Opens the pull request of a ticket, and lets the service read it.
pub async fn open_pull(env: &TestEnv, key: &str) -> u64 {
    let number = follow_up::open_pull(env, key).await;
    reconcile::run_once(&env.app).await.unwrap();
    number
}

/// Runs of the service, without those that check commits.
fn our_runs(repo: &FakeRepo) -> Vec<RunSnapshot> {
    let mut runs = repo.runs();
    runs.retain(|run| run.workflow == "agent-implement.yml");
    runs
}

/// Highest attempt of the runs that check commits of a branch.
fn highest_attempt(repo: &FakeRepo, branch: &str) -> Option<u64> {
    let runs = repo.runs().into_iter();
    let checking = runs.filter(|run| run.workflow == "ci.yml" && run.branch == branch);
    checking.map(|run| run.attempt).max()
}

fn repairs(env: &TestEnv, key: &str) -> Vec<Job> {
    let mut jobs = env.jobs(key);
    jobs.retain(|job| job.kind == JobKind::CiFix);
    jobs
}

fn record(env: &TestEnv, number: u64) -> PullRequestRecord {
    let pull = PullRequestId {
        repo: mapping().target_repo(),
        number,
    };
    let record = env.store.read(|tx| pull_feedback::get_pull(tx, &pull));
    record.unwrap()
}

/// What the API says about the checks of the only pull request.
async fn message(env: &TestEnv) -> Value {
    let pulls = env.admin_get("/api/pulls").await;
    pulls["pulls"][0]["checks"]["message"].clone()
}

/// Comments of the service on a pull request that are about its checks.
fn check_comments(env: &TestEnv, number: u64) -> Vec<String> {
    let comments = env.repo().comments(number).into_iter();
    let about = comments.filter(|comment| comment.body.contains("<!-- agent-implement:checks -->"));
    about.map(|comment| comment.body).collect()
}

fn conclusion_of(env: &TestEnv, branch: &str, name: &str) -> Option<String> {
    let checks = env.repo().checks(branch).into_iter();
    let mut found = checks.filter(|(check, _)| check == name);
    found.next().and_then(|(_, conclusion)| conclusion)
}

/// Runs ticks until the run for failing checks has ended and its effects are performed.
async fn wait_for_repair(env: &TestEnv, key: &str, count: usize) -> Job {
    env.tick_until("the repair has ended", || {
        let repairs = repairs(env, key);
        repairs.len() == count && repairs.iter().all(|job| !job.is_active())
    })
    .await;
    env.tick().await;
    repairs(env, key).pop().unwrap()
}

fn script(content: &str) -> Script {
    Script::new().pass_if_prompt_contains(
        "a.txt does not say fixed",
        [
            ScriptStep::write("a.txt", content),
            ScriptStep::message("I repaired it."),
        ],
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_red_check_runs_again_and_is_then_repaired() {
    let env = env_with_checks(CI).await;
    let repo = env.repo();
    env.set_agent_script("ENG-1", script("fixed\n"));
    let number = open_pull(&env, "ENG-1").await;
    let branch = "agent-implement/eng-1";
    env.tick_until("a repair runs", || !repairs(&env, "ENG-1").is_empty())
        .await;

    assert_eq!(highest_attempt(&repo, branch), Some(2));
    assert_eq!(
        message(&env).await,
        "CI is red: test (linux), attempt 1 of 2"
    );
    let comments = env.comments("ENG-1");
    assert!(
        comments
            .iter()
            .any(|one| one.starts_with("CI is red: test (linux), attempt 1 of 2 ([#")),
        "{comments:?}"
    );

    let job = wait_for_repair(&env, "ENG-1", 1).await;
    let ours = our_runs(&repo);
    let log = repo.run_log(ours[0].id);
    assert_eq!(job.state, JobState::Completed, "{log}");
    let findings = ours[0].inputs["findings"].as_str().unwrap();
    assert!(findings.starts_with("1. test (linux)\nhttp"), "{findings}");
    assert!(
        findings.contains("\na.txt does not say fixed <script>\n"),
        "{findings}"
    );
    assert!(!findings.contains("ghs_0123456789"), "{findings}");
    assert!(
        ours[0].inputs["options"]
            .as_str()
            .unwrap()
            .contains("\"task\":\"ci-fix\"")
    );
    let commit = &repo.commits(branch)[0];
    assert!(
        commit.message.starts_with("ENG-1: Repair failing checks\n"),
        "{}",
        commit.message
    );

    env.tick_until("the repaired head is green", || {
        record(&env, number).ci.message().is_none()
            && conclusion_of(&env, branch, "test (linux)").as_deref() == Some("success")
    })
    .await;
    env.tick().await;
    assert_eq!(message(&env).await, Value::Null);
    assert_eq!(
        env.comments("ENG-1")
            .iter()
            .filter(|one| one.contains("CI is red"))
            .count(),
        0
    );
    assert_eq!(check_comments(&env, number), [""; 0]);
    assert_eq!(our_runs(&repo).len(), 1);
    let audit = env.admin_get("/api/audit?limit=500").await;
    let of_repair = |entry: &&Value| {
        entry["action"] == "run-dispatched" && entry.to_string().contains("ci-fix run")
    };
    assert_eq!(
        audit.as_array().unwrap().iter().filter(of_repair).count(),
        1,
        "{audit}"
    );
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_that_is_red_on_the_base_branch_too_is_left_alone() {
    let always_red = CI.replace(
        "echo \"nothing to lint\"",
        "echo \"lint is broken\"; exit 1",
    );
    let env = env_with_checks(&always_red).await;
    let repo = env.repo();
    assert_eq!(
        conclusion_of(&env, "main", "lint").as_deref(),
        Some("failure")
    );
    let number = follow_up::open_pull(&env, "ENG-1").await;
    let branch = "agent-implement/eng-1";
    repo.commit(branch, &[("a.txt", "fixed\n")], "Fix a")
        .unwrap();
    reconcile::run_once(&env.app).await.unwrap();
    env.tick_until("the service says so", || {
        !check_comments(&env, number).is_empty()
    })
    .await;
    let text = "CI is red: lint, also on the base branch. These checks fail on the base branch too, so they are not repaired here.";
    assert!(
        check_comments(&env, number)[0].starts_with(text),
        "{:?}",
        check_comments(&env, number)
    );
    assert_eq!(
        message(&env).await,
        "CI is red: lint, also on the base branch"
    );

    // Said once, also when the checks end again on the next head commit.
    let before = check_comments(&env, number);
    repo.commit(branch, &[("b.txt", "b\n")], "Add b").unwrap();
    env.tick_until("the next head was judged", || {
        let ci = record(&env, number).ci;
        ci.head == repo.branch_head(branch) && ci.message().is_some()
    })
    .await;
    env.tick().await;
    assert_eq!(check_comments(&env, number), before);
    assert_eq!(highest_attempt(&repo, branch), Some(1));
    assert_eq!(repairs(&env, "ENG-1"), []);
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flaky_check_is_noted_and_starts_no_run() {
    let folder = tempfile::tempdir().unwrap();
    // Fails on the first attempt for each commit.
    let flaky = format!(
        "uses: actions/checkout@v4\n      - run: test ! -e a.txt || ! mkdir {}/$GITHUB_SHA",
        folder.path().display()
    );
    let env = env_with_checks(&CI.replace("run: echo \"nothing to lint\"", &flaky)).await;
    let repo = env.repo();
    let number = follow_up::open_pull(&env, "ENG-1").await;
    let branch = "agent-implement/eng-1";
    repo.commit(branch, &[("a.txt", "fixed\n")], "Fix a")
        .unwrap();
    reconcile::run_once(&env.app).await.unwrap();
    env.tick_until("the flake is noted", || {
        !record(&env, number).ci.flakes.is_empty()
    })
    .await;
    env.tick().await;
    let head = repo.branch_head(branch).unwrap();
    let flakes = record(&env, number).ci.flakes;
    assert_eq!(
        (&flakes[0].head, &flakes[0].checks[..]),
        (&head, &["lint".to_owned()][..])
    );
    assert_eq!(message(&env).await, "Flaky: lint passed when it ran again");
    let text = format!(
        "Flaky: lint failed on {}, and passed when it ran again on the same commit.",
        &head[..7]
    );
    assert!(
        check_comments(&env, number)[0].starts_with(&text),
        "{:?}",
        check_comments(&env, number)
    );
    assert_eq!(repairs(&env, "ENG-1"), []);
    let metrics = env.app.live.metrics.ci_flakes.get();
    assert_eq!((metrics, env.app.live.metrics.ci_reruns.get()), (1, 1));
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_failure_twice_is_left_to_a_person() {
    let env = env_with_checks(CI).await;
    let repo = env.repo();
    env.set_agent_script("ENG-1", script("still broken\n"));
    let number = open_pull(&env, "ENG-1").await;
    let branch = "agent-implement/eng-1";
    let job = wait_for_repair(&env, "ENG-1", 1).await;
    assert_eq!(job.state, JobState::Completed);
    let pushed = repo.branch_head(branch).unwrap();
    env.tick_until("the service stops", || {
        !check_comments(&env, number).is_empty()
    })
    .await;
    env.tick().await;
    let comment = check_comments(&env, number).remove(0);
    let run = &our_runs(&repo)[0];
    assert!(
        comment.starts_with(
            "CI is red: test (linux), stopped after the same failure came back. A person is needed."
        ),
        "{comment}"
    );
    assert!(
        comment.contains(&format!(
            "/actions/runs/{}), pushed {}",
            run.id,
            &pushed[..7]
        )),
        "{comment}"
    );
    let on_ticket = env.comments("ENG-1");
    let about: Vec<_> = on_ticket
        .iter()
        .filter(|one| one.contains("CI is red"))
        .collect();
    assert!(
        about.len() == 1 && about[0].contains("stopped after the same failure"),
        "{on_ticket:?}"
    );
    for _ in 0..5 {
        env.advance_clock(std::time::Duration::from_secs(900));
        env.tick().await;
    }
    assert_eq!(
        (repairs(&env, "ENG-1").len(), our_runs(&repo).len()),
        (1, 1)
    );

    // A person's push begins anew.
    env.set_agent_script("ENG-1", script("fixed\n"));
    repo.commit(branch, &[("a.txt", "broken by a person\n")], "Try")
        .unwrap();
    reconcile::run_once(&env.app).await.unwrap();
    let job = wait_for_repair(&env, "ENG-1", 2).await;
    assert_eq!(job.state, JobState::Completed);
    env.tick_until("the repaired head is green", || {
        record(&env, number).ci.message().is_none()
    })
    .await;
    env.tick().await;
    let comment = check_comments(&env, number).remove(0);
    assert!(
        comment.starts_with("The checks no longer fail."),
        "{comment}"
    );
    assert_eq!(
        env.comments("ENG-1")
            .iter()
            .filter(|one| one.contains("CI is red"))
            .count(),
        0
    );
    env.finish().await;
}
