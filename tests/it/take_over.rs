//! Issues that people continue by hand: nothing automatic happens until they are given back.

mod checkout;

use std::time::Duration;

use domain::feedback::PullRequestId;
use domain::job::{JobKind, JobState};
use domain::report::RunOutcome;
use domain::take_over::TakeOver;
use domain::take_over_guide::branch_commands;
use engine::maintenance;
use engine::pull_requests::reconcile;
use reqwest::Method;
use serde_json::{Value, json};
use store::{jobs, take_overs};

use crate::follow_up::{
    apply_event, env_with_pending_runs, follow_up_jobs, open_pull, options, register_webhook,
    result_reported,
};
use crate::test_env::{EngineMode, TestEnv, TestEnvOptions, mapping};

const BOT: &str = "agent-implement[bot]";

/// Longer than the quiet period before a follow-up.
const QUIET: Duration = Duration::from_secs(31);

async fn post(env: &TestEnv, path: &str, body: Value) -> (u16, Value) {
    env.admin_request(Method::POST, path, Some(body)).await
}

async fn take(env: &TestEnv, key: &str, by: &str) -> Value {
    let path = format!("/api/issues/{key}/take");
    let (status, guide) = post(env, &path, json!({ "by": by })).await;
    assert_eq!(status, 200, "{guide}");
    guide
}

async fn give_back(env: &TestEnv, key: &str) {
    let path = format!("/api/issues/{key}/give-back");
    let given = post(env, &path, json!({"by": "Kim"})).await;
    assert_eq!(given, (200, json!({"taken": false})));
}

/// Take-overs in the store: issue and person.
fn taken(env: &TestEnv) -> Vec<(String, String)> {
    let all = env.store.read(take_overs::all).unwrap().into_iter();
    all.map(|TakeOver { issue, by, .. }| (issue.key.to_string(), by))
        .collect()
}

/// Comments of the service about a take-over on a pull request.
fn notes(env: &TestEnv, number: u64) -> Vec<String> {
    let ours = env.repo().comments(number).into_iter();
    let ours = ours.filter(|comment| comment.author == BOT);
    let bodies = ours.map(|comment| comment.body);
    bodies
        .filter(|body| body.contains("by hand") || body.contains("Given back"))
        .collect()
}

/// Audit entries with these actions: action, target and detail.
async fn audited(env: &TestEnv) -> Vec<(String, String, String)> {
    let entries = env
        .admin_get("/api/audit?action=taken-over,given-back")
        .await;
    let entries = entries.as_array().cloned().unwrap_or_default();
    let text = |entry: &Value, name: &str| entry[name].as_str().unwrap_or_default().to_owned();
    let row = |entry: &Value| {
        let [action, target, detail] = ["action", "target", "detail"].map(|name| text(entry, name));
        (action, target, detail)
    };
    let mut rows: Vec<_> = entries.iter().map(row).collect();
    rows.reverse();
    rows
}

/// Waits for the webhooks, passes the quiet period and ticks the engine.
async fn pass_quiet_period(env: &TestEnv) {
    env.wait_until("all webhooks are answered", || {
        env.vendors.github().webhooks().is_idle()
    })
    .await;
    env.advance_clock(QUIET);
    env.tick().await;
}

async fn shown_pull(env: &TestEnv) -> Value {
    env.admin_get("/api/pulls").await["pulls"][0].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn only_commands_start_runs_on_a_taken_pull_request_until_give_back() {
    let env = env_with_pending_runs().await;
    let number = open_pull(&env, "ENG-1").await;
    let guide = take(&env, "ENG-1", "Kim <b>@acme</b>\u{202e}").await;
    let branch = "agent-implement/eng-1";
    assert_eq!(
        guide["commands"],
        json!([
            format!("git fetch origin {branch}"),
            format!("git switch {branch}")
        ])
    );
    assert_eq!(
        (&guide["taken"], &guide["repo"], &guide["branch"]),
        (&json!(true), &json!("acme/shop"), &json!(branch))
    );
    let url = env.repo().pull_url(number);
    assert_eq!(guide["pullRequest"]["url"], json!(url));
    env.tick().await;
    let note = notes(&env, number);
    assert_eq!(note.len(), 1, "{note:?}");
    assert!(note[0].contains("continues by hand. Automatic work on this pull request pauses"));
    assert!(
        !note[0].contains("<b>") && !note[0].contains("@acme"),
        "{note:?}"
    );
    let pull = shown_pull(&env).await;
    assert_eq!(pull["takenBy"], json!("Kim <b>@acme</b>"));
    assert!(pull["takenAt"].is_string());

    // A repeat changes nothing; another name does.
    for by in ["Kim <b>@acme</b>", "Mia", "Mia"] {
        take(&env, "ENG-1", by).await;
    }
    let path = format!("/api/pulls/acme/SHOP/{number}/take");
    let again = post(&env, &path, json!({})).await;
    assert_eq!(again, (200, json!({"taken": true})));
    let shown = env.admin_get("/api/issues/ENG-1/take").await;
    assert_eq!(shown["takenBy"], "Mia");
    env.tick().await;
    let note = notes(&env, number);
    assert!(
        note.len() == 1 && note[0].contains("Mia continues by hand"),
        "{note:?}"
    );

    let repo = env.repo();
    repo.add_review(number, "mia", "CHANGES_REQUESTED", "Handle the empty list.");
    pass_quiet_period(&env).await;
    assert_eq!(follow_up_jobs(&env, "ENG-1"), []);
    let shown = env.admin_get("/api/issues/ENG-1/take").await;
    assert_eq!(
        shown["findings"],
        json!([{"author": "mia", "file": null, "line": null, "text": "Handle the empty list."}])
    );

    // The state survives a restart.
    let env = env
        .restart_service(TestEnvOptions {
            mappings: Vec::new(),
            ..options()
        })
        .await;
    register_webhook(&env);
    pass_quiet_period(&env).await;
    assert_eq!(follow_up_jobs(&env, "ENG-1"), []);
    assert_eq!(taken(&env), [("ENG-1".to_owned(), "Mia".to_owned())]);

    // A command of a person starts a run.
    env.repo()
        .add_comment(number, "mia", "/agent-implement Say it louder");
    pass_quiet_period(&env).await;
    let commanded = follow_up_jobs(&env, "ENG-1");
    assert_eq!((commanded.len(), commanded[0].kind), (1, JobKind::GapFill));
    apply_event(&env, &commanded[0].id, result_reported(RunOutcome::Success)).await;
    pass_quiet_period(&env).await;
    assert_eq!(follow_up_jobs(&env, "ENG-1").len(), 1);

    give_back(&env, "ENG-1").await;
    give_back(&env, "ENG-1").await;
    assert_eq!(shown_pull(&env).await["takenBy"], Value::Null);
    pass_quiet_period(&env).await;
    let jobs = follow_up_jobs(&env, "ENG-1");
    assert_eq!((jobs.len(), jobs[1].kind), (2, JobKind::FollowUp));
    let note = notes(&env, number);
    assert!(
        note.len() == 1 && note[0].contains("Given back by Kim."),
        "{note:?}"
    );
    let pull = format!("pull request acme/shop#{number}");
    let row = |action: &str, by: &str| {
        (
            action.to_owned(),
            "ENG-1".to_owned(),
            format!("by {by}; {pull}"),
        )
    };
    assert_eq!(
        audited(&env).await,
        [
            row("taken-over", "Kim <b>@acme</b>"),
            row("taken-over", "Mia"),
            row("given-back", "Kim")
        ]
    );
    apply_event(&env, &jobs[1].id, result_reported(RunOutcome::Success)).await;
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_merge_or_a_close_ends_it() {
    let env = env_with_pending_runs().await;
    let (merged, closed) = (
        open_pull(&env, "ENG-1").await,
        open_pull(&env, "ENG-2").await,
    );
    for key in ["ENG-1", "ENG-2"] {
        take(&env, key, "Kim").await;
    }
    env.tick().await;
    env.repo().merge_pull(merged).unwrap();
    env.wait_until("the merge is recorded", || taken(&env).len() == 1)
        .await;
    env.repo().close_pull(closed);
    reconcile::run_once(&env.app).await.unwrap();
    assert_eq!(taken(&env), []);
    let details: Vec<String> = audited(&env).await.into_iter().map(|row| row.2).collect();
    assert_eq!(
        details[2..],
        [
            format!("pull request acme/shop#{merged} is merged; Kim had it"),
            format!("pull request acme/shop#{closed} is closed; Kim had it"),
        ]
    );
    let path = format!("/api/pulls/acme/shop/{merged}/take");
    let refused = post(&env, &path, json!({})).await;
    assert_eq!(
        refused,
        (409, json!({"error": "The pull request is not open"}))
    );
    // Without an open pull request, the issue itself is taken.
    take(&env, "ENG-1", "Kim").await;
    env.tick().await;
    let last = env.comments("ENG-1").pop().unwrap();
    assert_eq!(
        last,
        "Kim continues by hand. No run starts until give-back."
    );
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_taken_ticket_waits_until_give_back() {
    let env = TestEnv::with_options(TestEnvOptions {
        engine: EngineMode::manual(),
        fake_runs: true,
        ..TestEnvOptions::default()
    })
    .await;
    // Paused, so that a poll knows the ticket before a run starts.
    let pause = |is_paused: bool| json!({ "paused": is_paused });
    let patch = |body| env.admin_request(Method::PATCH, "/api/mappings/ENG", Some(body));
    patch(pause(true)).await;
    env.create_labelled_issue("ENG-1", "Add a feature");
    env.tick().await;
    let guide = take(&env, "eng-1", "Kim").await;
    assert_eq!(
        (&guide["branch"], &guide["commands"], &guide["repo"]),
        (&Value::Null, &json!([]), &json!("acme/shop"))
    );
    patch(pause(false)).await;
    env.tick().await;
    env.tick().await;
    assert_eq!(env.jobs("ENG-1"), []);
    let why = env.admin_get("/api/why/ENG-1").await;
    assert_eq!(why["decision"]["reason"], "taken-over", "{why}");
    let message = why["decision"]["message"].as_str().unwrap();
    assert!(message.starts_with("Taken over by Kim since "), "{message}");
    assert_eq!(why["takenOver"]["by"], "Kim");
    let blockers = env.admin_get("/api/blockers?all=true").await;
    assert_eq!(blockers["blockers"][0]["reason"], "taken-over");
    let comments = env.comments("ENG-1");
    assert_eq!(
        comments,
        ["Kim continues by hand. No run starts until give-back."]
    );

    give_back(&env, "ENG-1").await;
    env.tick().await;
    env.tick().await;
    let job = env.jobs("ENG-1").pop().expect("the run is dispatched");
    assert!(
        env.comments("ENG-1")
            .contains(&"Given back by Kim. Runs start again.".to_owned())
    );

    // A failed run of a taken ticket is retried only after give-back.
    let guide = take(&env, "ENG-1", "Kim").await;
    assert_eq!(guide["lastRun"]["active"], true);
    assert_eq!(guide["branchExists"], false);
    let fetch = format!("git switch --create {} FETCH_HEAD", job.branch);
    assert_eq!(guide["commands"], json!(["git fetch origin main", fetch]));
    let cancel = format!("/api/jobs/{}/cancel", job.id);
    assert_eq!(post(&env, &cancel, json!({})).await.0, 200);
    env.tick().await;
    let retried = post(&env, "/api/jobs/ENG-1/retry", json!({})).await;
    let error = "A person has taken over the issue. Give it back first";
    assert_eq!(retried, (409, json!({ "error": error })));

    // A closed ticket ends it.
    maintenance::run_once(&env.app).await.unwrap();
    assert_eq!(taken(&env).len(), 1);
    env.vendors.linear().issue("ENG-1").complete();
    maintenance::run_once(&env.app).await.unwrap();
    assert_eq!(taken(&env), []);
    env.tick_until_drained().await;
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn refuses_what_nobody_knows_and_bad_names() {
    let env = env_with_pending_runs().await;
    let number = open_pull(&env, "ENG-1").await;
    let take = format!("/api/pulls/acme/shop/{number}/take");
    for (path, body, status, error) in [
        ("/api/issues/ENG-9/take", json!({}), 404, "issue not found"),
        (
            "/api/issues/ENG-9/give-back",
            json!({}),
            404,
            "issue not found",
        ),
        (
            "/api/pulls/acme/shop/99/take",
            json!({}),
            404,
            "Pull request not found",
        ),
        (
            "/api/pulls/acme/shop/x/take",
            json!({}),
            404,
            "Pull request not found",
        ),
        (
            "/api/pulls/acme/other/1/give-back",
            json!({}),
            404,
            "Pull request not found",
        ),
        (&take, json!({"by": 7}), 400, "by must be a string"),
        (&take, json!([]), 400, "Invalid request body"),
    ] {
        let answer = post(&env, path, body.clone()).await;
        assert_eq!(answer, (status, json!({ "error": error })), "{path} {body}");
    }
    let (status, _) = env
        .admin_request(Method::GET, "/api/issues/ENG-9/take", None)
        .await;
    assert_eq!(status, 404);
    assert_eq!(taken(&env), []);
    // A name without a visible character is no name.
    let (status, _) = post(&env, &take, json!({"by": "\u{200b}\n"})).await;
    assert_eq!(
        (status, shown_pull(&env).await["takenBy"].clone()),
        (200, json!("an operator"))
    );
    let back = format!("/api/pulls/acme/shop/{number}/give-back");
    assert_eq!(
        post(&env, &back, json!({})).await,
        (200, json!({"taken": false}))
    );
    assert_eq!(shown_pull(&env).await["takenBy"], Value::Null);
    env.tick().await;
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_without_a_pull_request_may_open_one_meanwhile() {
    let env = env_with_pending_runs().await;
    let number = open_pull(&env, "ENG-1").await;
    take(&env, "ENG-1", "Kim").await;
    let pull = PullRequestId {
        repo: mapping().target_repo(),
        number,
    };
    let of_pull = env.store.read(|tx| take_overs::of_pull(tx, &pull)).unwrap();
    assert_eq!(of_pull.map(|one| one.by).as_deref(), Some("Kim"));
    // Another pull request of the issue, which a later run opened.
    let mut later = env.jobs("ENG-1").remove(0);
    later.id = "01Z".into();
    later.pull.as_mut().unwrap().number = 77;
    later.state = JobState::Completed;
    let put = env.store.write(move |tx| jobs::put(tx, &later));
    put.await.unwrap();
    env.repo().close_pull(number);
    reconcile::run_once(&env.app).await.unwrap();
    assert_eq!(
        taken(&env).len(),
        1,
        "the earlier pull request does not count"
    );
    env.tick().await;
    env.stop().await;
}

#[test]
fn a_shell_sees_hostile_branches_as_one_word() {
    let hostile = [
        "--upload-pack=touch /tmp/x",
        "x'; touch /tmp/x; '",
        "$(touch /tmp/x)",
        "a`b`\"",
        "a\nb",
        "~root",
        "#x",
        "*",
    ];
    for branch in hostile {
        for exists in [true, false] {
            for command in branch_commands(branch, branch, exists) {
                let rest = command.strip_prefix("git ").unwrap();
                let script = format!("printf '%s\\n' {rest}");
                let shell = std::process::Command::new("sh")
                    .args(["-c", &script])
                    .output();
                let printed = String::from_utf8(shell.unwrap().stdout).unwrap();
                let words: Vec<&str> = printed.trim_end().lines().collect();
                let is_option = |word: &&&str| word.starts_with('-');
                let options: Vec<&&str> = words.iter().filter(is_option).collect();
                let expected = match (words[0], exists) {
                    ("fetch", _) => (3, 0),
                    ("switch", _) if branch.starts_with('-') => (3, 1),
                    (_, true) => (2, 0),
                    (_, false) => (4, 1),
                };
                assert_eq!((words.len(), options.len()), expected, "{command:?}");
            }
        }
    }
}
