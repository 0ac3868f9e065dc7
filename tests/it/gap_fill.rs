//! Gap-fill trigger for open pull requests: authorization, validation, results and restarts.

mod comment;
mod github;
mod jira;

use std::time::Duration;

use domain::feedback::{PullRequestId, PullRequestRecord, PullRequestStatus};
use domain::ids::Repo;
use domain::job::{Job, JobKind, JobState, PullRequestRef};
use domain::mapping::Mapping;
use domain::time::Timestamp;
use fake_vendors::scripted_agent::{Script, ScriptStep};
use fake_vendors::{FakeService, InjectedFault};
use serde_json::{Value, json};
use store::{Store, dispatch_breaker, jobs, outbox, pull_feedback};

use crate::api_server::{ACCESS_CODE, ApiResponse, ApiServer, send_checked};
use crate::review::GAP_ANALYSIS_MARKER;
use crate::test_env::{EngineMode, TestEnv, TestEnvOptions, mapping};

const PATH: &str = "/trigger/gap-fill";
const SECRET: &str = "the trigger's own secret";
/// Instruction of the trigger requests.
pub const INSTRUCTION: &str = "Say it LOUDER";

/// Options with a trigger secret.
pub fn options() -> TestEnvOptions {
    TestEnvOptions {
        extra_flags: vec![("--gap-fill-trigger-secret", SECRET.to_owned())],
        ..TestEnvOptions::default()
    }
}

/// Trigger secret of [`options`].
pub const TRIGGER_SECRET: &str = SECRET;

/// Sends a trigger request.
pub async fn send_trigger(env: &TestEnv, body: Value) -> ApiResponse {
    let request = reqwest::Client::new().post(format!("{}{PATH}", env.address));
    send_checked(request.bearer_auth(SECRET).json(&body)).await
}

/// Body of a trigger request.
pub fn trigger_body(key: &str, number: u64) -> Value {
    json!({"issueKey": key, "prNumber": number, "instruction": INSTRUCTION})
}

/// Script with a first pass that writes a file, and a second pass for prompts that contain the instruction.
fn two_pass_script(second: ScriptStep) -> Script {
    Script::new()
        .pass([
            ScriptStep::write("a.txt", "a\n"),
            ScriptStep::message("I wrote a."),
        ])
        .pass_if_prompt_contains(INSTRUCTION, [second, ScriptStep::message("I wrote A.")])
}

/// Environment in which ticket `ENG-1` has an open pull request.
pub async fn env_with_open_pull(env_options: TestEnvOptions, second: ScriptStep) -> TestEnv {
    let env = TestEnv::with_options(env_options).await;
    env.set_agent_script("ENG-1", two_pass_script(second));
    env.create_labelled_issue("ENG-1", "Add the feature");
    let job = env.wait_for_job_end("ENG-1").await;
    assert_eq!(job.state, JobState::Completed);
    assert_eq!(job.pull.map(|pull| pull.number), Some(pull_number(&env)));
    env
}

/// Number of the only pull request.
pub fn pull_number(env: &TestEnv) -> u64 {
    let pulls = env.repo().pulls();
    assert_eq!(pulls.len(), 1, "{pulls:?}");
    pulls[0].number
}

/// Debug output of the whole ticket `ENG-1`.
pub fn ticket_snapshot(env: &TestEnv) -> String {
    format!("{:?}", env.vendors.linear().issue("ENG-1").snapshot())
}

/// Comments on the only pull request, without the review summary.
pub fn pull_comments(env: &TestEnv) -> Vec<String> {
    let comments = env.repo().comments(pull_number(env)).into_iter();
    let bodies = comments.map(|comment| comment.body);
    bodies
        .filter(|body| !body.contains(GAP_ANALYSIS_MARKER))
        .collect()
}

/// Pauses or resumes a mapping.
pub async fn set_paused(env: &TestEnv, team: &str, paused: bool) {
    let request = reqwest::Client::new().patch(format!("{}/api/mappings/{team}", env.address));
    let request = request.bearer_auth(env.sign_in().await);
    let response = send_checked(request.json(&json!({ "paused": paused }))).await;
    assert_eq!(response.status, 200, "{response:?}");
}

#[tokio::test]
async fn invalid_requests_are_rejected_in_a_fixed_order() {
    let off = ApiServer::start_with(
        &["--admin-access-code", ACCESS_CODE],
        Store::in_memory().unwrap(),
    )
    .await;
    let response = off.send("POST", PATH, SECRET, "{".to_owned()).await;
    assert_eq!(response.error(), (501, "Gap fill trigger not configured"));

    // The trigger works without the admin API.
    let flags = ["--gap-fill-trigger-secret", SECRET];
    let server = ApiServer::start_with(&flags, Store::in_memory().unwrap()).await;
    for wrong in [
        "",
        "x",
        "the trigger's own secre",
        "the trigger's own secret!",
    ] {
        let response = server.send("POST", PATH, wrong, "{".to_owned()).await;
        assert_eq!(response.error(), (401, "unauthorized"), "{wrong}");
        assert_eq!(response.header("www-authenticate"), "Bearer");
    }
    let basic = server.request("POST", PATH).basic_auth(SECRET, Some(""));
    assert_eq!(send_checked(basic).await.error(), (401, "unauthorized"));

    for wrong in [
        "",
        "{",
        "[]",
        "null",
        "{}",
        r#"{"issueKey": "ENG-1"}"#,
        r#"{"prNumber": 1}"#,
        r#"{"issueKey": "", "prNumber": 1}"#,
        r#"{"issueKey": " ", "prNumber": 1}"#,
        r#"{"issueKey": 1, "prNumber": 1}"#,
        r#"{"issueKey": "ENG-1", "prNumber": 0}"#,
        r#"{"issueKey": "ENG-1", "prNumber": -1}"#,
        r#"{"issueKey": "ENG-1", "prNumber": 1.5}"#,
        r#"{"issueKey": "ENG-1", "prNumber": "1"}"#,
        r#"{"issueKey": "ENG-1", "prNumber": 1, "instruction": 7}"#,
    ] {
        let response = server.send("POST", PATH, SECRET, wrong.to_owned()).await;
        let expected = (400, "issueKey and positive integer prNumber required");
        assert_eq!(response.error(), expected, "{wrong}");
    }
    for unknown_key in ["ENG-1", "ENG", "ENG-1 OR 1 = 1", "\\\"-1"] {
        // Many JSON writers print whole numbers as 1.0.
        let request_body =
            json!({"issueKey": unknown_key, "prNumber": 1.0, "instruction": null}).to_string();
        let response = server.send("POST", PATH, SECRET, request_body).await;
        assert_eq!(
            response.body,
            json!({"error": "mapping_not_found"}),
            "{unknown_key}"
        );
        assert_eq!(response.status, 404);
    }
    let got = server.send("GET", PATH, SECRET, None).await;
    assert_eq!((got.status, got.header("allow")), (405, "POST"));
    let large = format!(
        r#"{{"issueKey": "ENG-1", "instruction": "{}"}}"#,
        "x".repeat(1 << 20)
    );
    let response = server.send("POST", PATH, SECRET, large).await;
    assert_eq!(
        response.error(),
        (413, "Request body is larger than 1024 KiB")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instruction_becomes_a_second_commit_and_leaves_the_ticket_unchanged() {
    let env = env_with_open_pull(options(), ScriptStep::write("a.txt", "A\n")).await;
    let (number, before) = (pull_number(&env), ticket_snapshot(&env));
    let chat = env.vendors.chat().messages().len();
    let instruction = format!("{INSTRUCTION}\u{202E}\u{200B}, please\u{7}.");
    let response = send_trigger(
        &env,
        json!({"issueKey": "eng-1", "prNumber": number, "instruction": instruction}),
    )
    .await;
    let job = env.wait_for_job_end("ENG-1").await;
    assert_eq!(response.status, 200, "{response:?}");
    let expected = json!({"ok": true, "dispatched": true, "jobId": job.id});
    assert_eq!(response.body, expected);

    let log = env.repo().run_log(env.repo().runs()[1].id);
    assert_eq!(
        (job.kind, job.state),
        (JobKind::GapFill, JobState::Completed),
        "{log}"
    );
    let inputs = &env.repo().runs()[1].inputs;
    assert_eq!(inputs["phase"], "gap-analysis");
    assert_eq!(inputs["pr_number"], number.to_string());
    assert_eq!(inputs["instruction"], format!("{INSTRUCTION}, please."));
    assert_eq!(inputs["issue_description"], "Please.");

    let head = &env.repo().pulls()[0].head;
    let commits = env.repo().commits(head);
    assert_eq!(
        commits.len(),
        3,
        "the seed commit and two of the runs: {commits:?}"
    );
    let written = env.repo().read_file(head, "a.txt");
    assert_eq!(
        written.as_deref(),
        Some("A\n"),
        "the prompt contained the instruction"
    );
    assert_eq!(pull_number(&env), number, "no second pull request");
    let comments = pull_comments(&env);
    assert!(
        comments.len() == 1 && comments[0].contains("I wrote A."),
        "{comments:?}"
    );
    assert_eq!(ticket_snapshot(&env), before);
    assert_eq!(
        env.vendors.chat().messages().len(),
        chat,
        "only failures are posted to the chat"
    );

    let shown = env.admin_get("/api/log").await;
    assert_eq!(
        (&shown[0]["kind"], &shown[0]["prNumber"]),
        (&json!("gap-fill"), &json!(number))
    );
    assert_eq!(shown[0]["groupId"], shown[1]["id"]);
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rejects_foreign_pull_requests_and_paused_projects() {
    let env = env_with_open_pull(options(), ScriptStep::write("a.txt", "A\n")).await;
    let number = pull_number(&env);
    env.vendors.linear().issue("ENG-2").title("Another");
    env.vendors.linear().ensure_team("OPS", "Unmapped");
    env.vendors.linear().issue("OPS-1").title("Unmapped");
    for (key, number) in [
        ("ENG-1", number + 1),
        ("ENG-2", number),
        ("ENG-99", number),
        ("OPS-1", number),
    ] {
        let response = send_trigger(&env, trigger_body(key, number)).await;
        assert_eq!(
            response.body,
            json!({"error": "mapping_not_found"}),
            "{key} {number}"
        );
        assert_eq!(response.status, 404);
    }
    set_paused(&env, "ENG", true).await;
    let response = send_trigger(&env, trigger_body("ENG-1", number)).await;
    assert_eq!(response.status, 423);
    assert_eq!(
        response.body,
        json!({"error": "project_paused", "teamKey": "ENG"})
    );

    // While a ticketing system is down, the issue may be one of its own: the request fails.
    set_paused(&env, "ENG", false).await;
    for _ in 0..4 {
        let linear = env.vendors.faults(FakeService::Linear);
        linear.inject_on_match("issue(id: $key)", InjectedFault::ErrorStatus(503));
    }
    let response = send_trigger(&env, trigger_body("ENG-1", number)).await;
    assert_eq!(response.error(), (502, "dispatch_failed"));
    let detail = response.body["detail"].as_str().unwrap();
    assert!(
        detail.starts_with("the issue could not be looked up: "),
        "{detail}"
    );
    assert_eq!(response.body["dispatchStatus"], Value::Null);
    assert_eq!(env.jobs("ENG-1").len(), 1);
    env.vendors.faults(FakeService::Linear).clear();

    let merged = PullRequestId {
        repo: Repo::new("acme", "shop"),
        number,
    };
    let put = env.store.write(move |tx| {
        let row = PullRequestRecord {
            status: PullRequestStatus::Merged {
                commit: "abc".into(),
                at: Timestamp::EPOCH,
            },
            ..PullRequestRecord::default()
        };
        pull_feedback::put_pull(tx, &merged, &row)
    });
    put.await.unwrap();
    let response = send_trigger(&env, trigger_body("ENG-1", number)).await;
    assert_eq!(response.error(), (502, "dispatch_failed"));
    assert_eq!(response.body["detail"], json!("the pull request is merged"));
    assert_eq!(env.jobs("ENG-1").len(), 1);
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_dispatch_is_returned_with_its_status_and_posted_on_the_pull_request() {
    let env = env_with_open_pull(options(), ScriptStep::write("a.txt", "A\n")).await;
    let (number, before) = (pull_number(&env), ticket_snapshot(&env));
    let old = "on:\n  workflow_dispatch:\n    inputs:\n      issue_id: {type: string}\njobs:\n  a:\n    runs-on: x\n    steps:\n      - run: 'true'\n";
    let workflow = ".github/workflows/agent-implement.yml";
    env.repo()
        .commit("main", &[(workflow, old)], "Old")
        .unwrap();
    let unexpected = send_trigger(&env, trigger_body("ENG-1", number)).await;
    env.repo()
        .remove_files("main", &[workflow], "Gone")
        .unwrap();
    let missing = send_trigger(&env, trigger_body("ENG-1", number)).await;
    env.wait_for_empty_outbox().await;

    for (response, status, expected_text) in [
        (unexpected, 422, "Unexpected inputs"),
        (missing, 404, "has no workflow"),
    ] {
        assert_eq!(response.error(), (502, "dispatch_failed"));
        assert_eq!(response.body["dispatchStatus"], status, "{response:?}");
        let detail = response.body["detail"].as_str().unwrap();
        assert!(
            detail.contains(expected_text) && detail.contains("Sync the workflows"),
            "{detail}"
        );
    }
    let ended: Vec<Job> = env.jobs("ENG-1").split_off(1);
    assert_eq!(ended.len(), 2);
    assert!(ended.iter().all(|job| job.state.status() == "failed"));
    let comments = pull_comments(&env);
    assert_eq!(comments.len(), 2, "{comments:?}");
    assert!(
        comments
            .iter()
            .all(|comment| comment.starts_with("Gap fill failed: the run could not be dispatched")),
        "{comments:?}"
    );
    let chat = env.vendors.chat().messages();
    assert!(
        format!("{:?}", chat.last()).contains("Gap fill failed"),
        "{chat:?}"
    );
    assert_eq!(ticket_snapshot(&env), before);
    assert!(env.store.read(dispatch_breaker::all).unwrap().is_empty());
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_run_is_reported_on_the_pull_request_and_can_be_triggered_again() {
    let env = env_with_open_pull(options(), ScriptStep::ExhaustTurns).await;
    let (number, before) = (pull_number(&env), ticket_snapshot(&env));
    assert_eq!(
        send_trigger(&env, trigger_body("ENG-1", number))
            .await
            .status,
        200
    );
    let job = env.wait_for_job_end("ENG-1").await;
    let reason = "model invocation failed with exit code 1: Reached max turns (50)";
    assert_eq!(job.state.status(), "failed");
    let comments = pull_comments(&env);
    assert!(
        comments.len() == 1 && comments[0].starts_with(&format!("Gap fill failed: {reason}\n")),
        "{comments:?}"
    );
    assert_eq!(ticket_snapshot(&env), before);

    env.repo().close_pull(number);
    assert_eq!(
        send_trigger(&env, trigger_body("ENG-1", number))
            .await
            .status,
        200
    );
    assert_eq!(env.wait_for_job_end("ENG-1").await.state.status(), "failed");
    let comments = pull_comments(&env);
    let over = "is no longer open";
    assert!(
        comments.len() == 2 && comments[1].contains(over),
        "{comments:?}"
    );
    assert_eq!(
        env.repo().pulls().len(),
        1,
        "no second pull request is opened"
    );
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_requests_and_a_lost_response_start_one_run() {
    let slow = ScriptStep::run("sleep 2; echo A > a.txt");
    let env = env_with_open_pull(options(), slow).await;
    let number = pull_number(&env);
    let github = env.vendors.faults(FakeService::GitHub);
    github.inject_on_match("/dispatches", InjectedFault::DropResponse);
    let (one, two) = tokio::join!(
        send_trigger(&env, trigger_body("ENG-1", number)),
        send_trigger(&env, trigger_body("ENG-1", number))
    );
    let (accepted, rejected) = if one.status == 200 {
        (one, two)
    } else {
        (two, one)
    };
    assert_eq!(
        (accepted.status, github.injected().len()),
        (200, 1),
        "{accepted:?}"
    );
    assert_eq!(rejected.error(), (502, "dispatch_failed"));
    let detail = rejected.body["detail"].as_str().unwrap();
    let busy = format!(
        "run {} is active on",
        accepted.body["jobId"].as_str().unwrap()
    );
    assert!(detail.starts_with(&busy), "{detail}");
    let job = env.wait_for_job_end("ENG-1").await;
    assert_eq!(job.state, JobState::Completed);
    assert_eq!((env.jobs("ENG-1").len(), env.repo().runs().len()), (2, 2));
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_accepted_request_survives_an_outage_and_a_restart() {
    let env = env_with_open_pull(options(), ScriptStep::write("a.txt", "A\n")).await;
    let number = pull_number(&env);
    env.vendors.faults(FakeService::GitHub).set_outage(true);
    let response = send_trigger(&env, trigger_body("ENG-1", number)).await;
    assert_eq!(response.status, 200, "{response:?}");
    assert_eq!(env.jobs("ENG-1")[1].state, JobState::Reserved);
    let again = send_trigger(&env, trigger_body("ENG-1", number)).await;
    assert_eq!(again.error(), (502, "dispatch_failed"));

    let env = env.restart_service(options()).await;
    env.vendors.faults(FakeService::GitHub).set_outage(false);
    let job = env.wait_for_job_end("ENG-1").await;
    assert_eq!(response.body["jobId"], job.id.as_str());
    assert_eq!(job.state, JobState::Completed);
    assert_eq!((env.jobs("ENG-1").len(), env.repo().runs().len()), (2, 2));
    env.finish().await;
}

/// A run on a pull request blocks the dispatch of its own ticket only.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_on_a_pull_request_uses_no_concurrency_slot() {
    let capped = Mapping {
        max_in_progress: 1,
        ..mapping()
    };
    let env_options = TestEnvOptions {
        mappings: vec![capped],
        engine: EngineMode::manual(),
        ..options()
    };
    let env = TestEnv::with_options(env_options).await;
    env.vendors
        .linear()
        .issue("ENG-1")
        .title("Has a pull request");
    env.create_labelled_issue("ENG-2", "Waits for a slot");
    let done = finished_job(&env, "ENG-1", 7);
    let put = env.store.write(move |tx| jobs::put(tx, &done));
    put.await.unwrap();
    env.vendors
        .github()
        .set_start_delay(Duration::from_secs(600));
    let (response, ()) = tokio::join!(send_trigger(&env, trigger_body("ENG-1", 7)), async {
        env.wait_until("it is reserved", || env.jobs("ENG-1").len() == 2)
            .await;
        let start = format!("run:{}", env.jobs("ENG-1")[1].id);
        let queue_keys = env.store.read(outbox::queue_keys).unwrap();
        assert_eq!(
            queue_keys,
            [start],
            "the start does not wait for the effects of the ticket"
        );
        env.vendors
            .linear()
            .issue("ENG-1")
            .add_label("Agent-Implement");
        env.tick().await;
    });
    assert_eq!(response.status, 200, "{response:?}");
    env.tick().await;
    assert_eq!(env.jobs("ENG-1").len(), 2, "it has an active job");
    assert_eq!(env.jobs("ENG-2").len(), 1, "the slot was free");
    let counts = env.admin_get("/api/issues").await["inProgressCountsByTeam"].clone();
    assert_eq!(counts, json!({"ENG": 1}));
    env.stop().await;
}

/// Completed job of a ticket, with a pull request.
fn finished_job(env: &TestEnv, key: &str, number: u64) -> Job {
    let linear = env.vendors.linear().issue(key).snapshot();
    let jira = || env.vendors.jira().issue(key).snapshot();
    let id = linear.map(|ticket| ticket.id).or_else(|| Some(jira()?.id));
    let mut job =
        crate::api_server::dispatched_job(&format!("01{number}"), JobKind::Implementation);
    job.issue.id = id.unwrap().as_str().into();
    job.issue.key = key.into();
    job.state = JobState::Completed;
    job.pull = PullRequestRef::from_url(&format!("https://host/acme/shop/pull/{number}"));
    job
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_instruction_is_truncated_with_a_notice() {
    let env_options = TestEnvOptions {
        engine: EngineMode::manual(),
        ..options()
    };
    let env = TestEnv::with_options(env_options).await;
    env.vendors.linear().issue("ENG-1").title("Wordy");
    let done = finished_job(&env, "ENG-1", 7);
    let put = env.store.write(move |tx| jobs::put(tx, &done));
    put.await.unwrap();
    env.vendors
        .github()
        .set_start_delay(Duration::from_secs(600));
    let long = "ä".repeat(30_000);
    let request_body = json!({"issueKey": "ENG-1", "prNumber": 7, "instruction": long});
    assert_eq!(send_trigger(&env, request_body).await.status, 200);
    env.tick().await;
    let run = &env.repo().runs()[0];
    let instruction = run.inputs["instruction"].as_str().unwrap();
    assert!(instruction.len() <= 10_000 && instruction.starts_with("ää"));
    assert!(instruction.ends_with("exceeds the maximum length]"));
    env.stop().await;
}
