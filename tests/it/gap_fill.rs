//! More work on an open pull request: who may ask for it, what becomes of it, and what must not.

mod comment;
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
pub const INSTRUCTION: &str = "Say it LOUDER";

pub fn options() -> TestEnvOptions {
    TestEnvOptions {
        extra_flags: vec![("--gap-fill-trigger-secret", SECRET.to_owned())],
        ..TestEnvOptions::default()
    }
}

pub const TRIGGER_SECRET: &str = SECRET;

pub async fn send_trigger(world: &TestEnv, body: Value) -> ApiResponse {
    let request = reqwest::Client::new().post(format!("{}{PATH}", world.address));
    send_checked(request.bearer_auth(SECRET).json(&body)).await
}

pub fn trigger_body(key: &str, number: u64) -> Value {
    json!({"issueKey": key, "prNumber": number, "instruction": INSTRUCTION})
}

/// A first pass that writes, and a second for prompts that hold the instruction.
fn two_pass_script(second: ScriptStep) -> Script {
    Script::new()
        .pass([
            ScriptStep::write("a.txt", "a\n"),
            ScriptStep::message("I wrote a."),
        ])
        .pass_if_prompt_contains(INSTRUCTION, [second, ScriptStep::message("I wrote A.")])
}

/// A world in which ticket `ENG-1` has become pull request 1.
async fn env_with_open_pull(making: TestEnvOptions, second: ScriptStep) -> TestEnv {
    let world = TestEnv::with_options(making).await;
    world.set_agent_script("ENG-1", two_pass_script(second));
    world.create_labelled_issue("ENG-1", "Add the feature");
    let job = world.wait_for_job_end("ENG-1").await;
    assert_eq!(job.state, JobState::Completed);
    assert_eq!(job.pull.map(|pull| pull.number), Some(pull_number(&world)));
    world
}

/// The number of the only pull request.
fn pull_number(world: &TestEnv) -> u64 {
    let pulls = world.repo().pulls();
    assert_eq!(pulls.len(), 1, "{pulls:?}");
    pulls[0].number
}

/// What the ticket `ENG-1` shows, all of it.
fn ticket(world: &TestEnv) -> String {
    format!("{:?}", world.vendors.linear().issue("ENG-1").snapshot())
}

/// What people wrote and read on the pull request, but for how its review stands.
fn said(world: &TestEnv) -> Vec<String> {
    let comments = world.repo().comments(pull_number(world)).into_iter();
    let bodies = comments.map(|comment| comment.body);
    bodies
        .filter(|body| !body.contains(GAP_ANALYSIS_MARKER))
        .collect()
}

pub async fn set_paused(world: &TestEnv, team: &str, paused: bool) {
    let request = reqwest::Client::new().patch(format!("{}/api/mappings/{team}", world.address));
    let request = request.bearer_auth(world.sign_in().await);
    let told = send_checked(request.json(&json!({ "paused": paused }))).await;
    assert_eq!(told.status, 200, "{told:?}");
}

#[tokio::test]
async fn what_is_wrong_is_told_in_the_order_of_the_wire() {
    let off = ApiServer::start_with(
        &["--admin-access-code", ACCESS_CODE],
        Store::in_memory().unwrap(),
    )
    .await;
    let told = off.send("POST", PATH, SECRET, "{".to_owned()).await;
    assert_eq!(told.error(), (501, "Gap fill trigger not configured"));

    // The trigger lives without the admin API.
    let flags = ["--gap-fill-trigger-secret", SECRET];
    let server = ApiServer::start_with(&flags, Store::in_memory().unwrap()).await;
    for wrong in [
        "",
        "x",
        "the trigger's own secre",
        "the trigger's own secret!",
    ] {
        let told = server.send("POST", PATH, wrong, "{".to_owned()).await;
        assert_eq!(told.error(), (401, "unauthorized"), "{wrong}");
        assert_eq!(told.header("www-authenticate"), "Bearer");
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
        let told = server.send("POST", PATH, SECRET, wrong.to_owned()).await;
        let expected = (400, "issueKey and positive integer prNumber required");
        assert_eq!(told.error(), expected, "{wrong}");
    }
    for nobodys in ["ENG-1", "ENG", "ENG-1 OR 1 = 1", "\\\"-1"] {
        // 1.0 is a whole number to most who write JSON.
        let asked = json!({"issueKey": nobodys, "prNumber": 1.0, "instruction": null}).to_string();
        let told = server.send("POST", PATH, SECRET, asked).await;
        assert_eq!(
            told.body,
            json!({"error": "mapping_not_found"}),
            "{nobodys}"
        );
        assert_eq!(told.status, 404);
    }
    let got = server.send("GET", PATH, SECRET, None).await;
    assert_eq!((got.status, got.header("allow")), (405, "POST"));
    let large = format!(
        r#"{{"issueKey": "ENG-1", "instruction": "{}"}}"#,
        "x".repeat(1 << 20)
    );
    let told = server.send("POST", PATH, SECRET, large).await;
    assert_eq!(told.error(), (413, "Request body is larger than 1024 KiB"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instruction_becomes_a_second_commit_and_the_ticket_hears_nothing() {
    let world = env_with_open_pull(options(), ScriptStep::write("a.txt", "A\n")).await;
    let (number, before) = (pull_number(&world), ticket(&world));
    let chat = world.vendors.chat().messages().len();
    let asked = format!("{INSTRUCTION}\u{202E}\u{200B}, please\u{7}.");
    let told = send_trigger(
        &world,
        json!({"issueKey": "eng-1", "prNumber": number, "instruction": asked}),
    )
    .await;
    let job = world.wait_for_job_end("ENG-1").await;
    assert_eq!(told.status, 200, "{told:?}");
    let expected = json!({"ok": true, "dispatched": true, "jobId": job.id});
    assert_eq!(told.body, expected);

    let log = world.repo().run_log(world.repo().runs()[1].id);
    assert_eq!(
        (job.kind, job.state),
        (JobKind::GapFill, JobState::Completed),
        "{log}"
    );
    let inputs = &world.repo().runs()[1].inputs;
    assert_eq!(inputs["phase"], "gap-analysis");
    assert_eq!(inputs["pr_number"], number.to_string());
    assert_eq!(inputs["instruction"], format!("{INSTRUCTION}, please."));
    assert_eq!(inputs["issue_description"], "Please.");

    let head = &world.repo().pulls()[0].head;
    let commits = world.repo().commits(head);
    assert_eq!(commits.len(), 3, "the seed's and two of ours: {commits:?}");
    let written = world.repo().read_file(head, "a.txt");
    assert_eq!(
        written.as_deref(),
        Some("A\n"),
        "the prompt held the instruction"
    );
    assert_eq!(pull_number(&world), number, "no second pull request");
    let said = said(&world);
    assert!(
        said.len() == 1 && said[0].contains("I wrote A."),
        "{said:?}"
    );
    assert_eq!(ticket(&world), before);
    assert_eq!(
        world.vendors.chat().messages().len(),
        chat,
        "told only when it fails"
    );

    let shown = world.admin_get("/api/log").await;
    assert_eq!(
        (&shown[0]["kind"], &shown[0]["prNumber"]),
        (&json!("gap-fill"), &json!(number))
    );
    assert_eq!(shown[0]["groupId"], shown[1]["id"]);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_pull_request_of_the_issue_in_a_project_that_works_is_worked_on() {
    let world = env_with_open_pull(options(), ScriptStep::write("a.txt", "A\n")).await;
    let number = pull_number(&world);
    world.vendors.linear().issue("ENG-2").title("Another");
    world.vendors.linear().ensure_team("OPS", "Nobody's");
    world.vendors.linear().issue("OPS-1").title("Unmapped");
    for (key, number) in [
        ("ENG-1", number + 1),
        ("ENG-2", number),
        ("ENG-99", number),
        ("OPS-1", number),
    ] {
        let told = send_trigger(&world, trigger_body(key, number)).await;
        assert_eq!(
            told.body,
            json!({"error": "mapping_not_found"}),
            "{key} {number}"
        );
        assert_eq!(told.status, 404);
    }
    set_paused(&world, "ENG", true).await;
    let told = send_trigger(&world, trigger_body("ENG-1", number)).await;
    assert_eq!(told.status, 423);
    assert_eq!(
        told.body,
        json!({"error": "project_paused", "teamKey": "ENG"})
    );

    // A system that is down owns perhaps what is asked for.
    set_paused(&world, "ENG", false).await;
    for _ in 0..4 {
        let linear = world.vendors.faults(FakeService::Linear);
        linear.inject_on_match("issue(id: $key)", InjectedFault::ErrorStatus(503));
    }
    let told = send_trigger(&world, trigger_body("ENG-1", number)).await;
    assert_eq!(told.error(), (502, "dispatch_failed"));
    let detail = told.body["detail"].as_str().unwrap();
    assert!(
        detail.starts_with("the issue could not be looked up: "),
        "{detail}"
    );
    assert_eq!(told.body["dispatchStatus"], Value::Null);
    assert_eq!(world.jobs("ENG-1").len(), 1);
    world.vendors.faults(FakeService::Linear).clear();

    let merged = PullRequestId {
        repo: Repo::new("acme", "shop"),
        number,
    };
    let put = world.app.store.write(move |tx| {
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
    let told = send_trigger(&world, trigger_body("ENG-1", number)).await;
    assert_eq!(told.error(), (502, "dispatch_failed"));
    assert_eq!(told.body["detail"], json!("the pull request is merged"));
    assert_eq!(world.jobs("ENG-1").len(), 1);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_refuses_is_told_with_its_status_and_on_the_pull_request() {
    let world = env_with_open_pull(options(), ScriptStep::write("a.txt", "A\n")).await;
    let (number, before) = (pull_number(&world), ticket(&world));
    let old = "on:\n  workflow_dispatch:\n    inputs:\n      issue_id: {type: string}\njobs:\n  a:\n    runs-on: x\n    steps:\n      - run: 'true'\n";
    let workflow = ".github/workflows/agent-implement.yml";
    world
        .repo()
        .commit("main", &[(workflow, old)], "Old")
        .unwrap();
    let unexpected = send_trigger(&world, trigger_body("ENG-1", number)).await;
    world
        .repo()
        .remove_files("main", &[workflow], "Gone")
        .unwrap();
    let missing = send_trigger(&world, trigger_body("ENG-1", number)).await;
    world.wait_for_empty_outbox().await;

    for (told, status, says) in [
        (unexpected, 422, "Unexpected inputs"),
        (missing, 404, "has no workflow"),
    ] {
        assert_eq!(told.error(), (502, "dispatch_failed"));
        assert_eq!(told.body["dispatchStatus"], status, "{told:?}");
        let detail = told.body["detail"].as_str().unwrap();
        assert!(
            detail.contains(says) && detail.contains("Sync the workflows"),
            "{detail}"
        );
    }
    let ended: Vec<Job> = world.jobs("ENG-1").split_off(1);
    assert_eq!(ended.len(), 2);
    assert!(ended.iter().all(|job| job.state.status() == "failed"));
    let said = said(&world);
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(
        said.iter()
            .all(|said| said.starts_with("Gap fill failed: the run could not be dispatched")),
        "{said:?}"
    );
    let chat = world.vendors.chat().messages();
    assert!(
        format!("{:?}", chat.last()).contains("Gap fill failed"),
        "{chat:?}"
    );
    assert_eq!(ticket(&world), before);
    assert!(
        world
            .app
            .store
            .read(dispatch_breaker::all)
            .unwrap()
            .is_empty()
    );
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_fails_is_told_on_the_pull_request_and_asking_again_runs_again() {
    let world = env_with_open_pull(options(), ScriptStep::ExhaustTurns).await;
    let (number, before) = (pull_number(&world), ticket(&world));
    assert_eq!(
        send_trigger(&world, trigger_body("ENG-1", number))
            .await
            .status,
        200
    );
    let job = world.wait_for_job_end("ENG-1").await;
    let reason = "model invocation failed with exit code 1: Reached max turns (50)";
    assert_eq!(job.state.status(), "failed");
    let told = said(&world);
    assert!(
        told.len() == 1 && told[0].starts_with(&format!("Gap fill failed: {reason}\n")),
        "{told:?}"
    );
    assert_eq!(ticket(&world), before);

    world.repo().close_pull(number);
    assert_eq!(
        send_trigger(&world, trigger_body("ENG-1", number))
            .await
            .status,
        200
    );
    assert_eq!(
        world.wait_for_job_end("ENG-1").await.state.status(),
        "failed"
    );
    let told = said(&world);
    let over = "is not open any more";
    assert!(told.len() == 2 && told[1].contains(over), "{told:?}");
    assert_eq!(world.repo().pulls().len(), 1, "none is opened in its place");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn however_often_it_is_asked_or_answered_there_is_one_run() {
    let slow = ScriptStep::run("sleep 2; echo A > a.txt");
    let world = env_with_open_pull(options(), slow).await;
    let number = pull_number(&world);
    let github = world.vendors.faults(FakeService::GitHub);
    github.inject_on_match("/dispatches", InjectedFault::DropResponse);
    let (one, two) = tokio::join!(
        send_trigger(&world, trigger_body("ENG-1", number)),
        send_trigger(&world, trigger_body("ENG-1", number))
    );
    let (taken, refused) = if one.status == 200 {
        (one, two)
    } else {
        (two, one)
    };
    assert_eq!(
        (taken.status, github.injected().len()),
        (200, 1),
        "{taken:?}"
    );
    assert_eq!(refused.error(), (502, "dispatch_failed"));
    let detail = refused.body["detail"].as_str().unwrap();
    let busy = format!(
        "run {} is at work on",
        taken.body["jobId"].as_str().unwrap()
    );
    assert!(detail.starts_with(&busy), "{detail}");
    let job = world.wait_for_job_end("ENG-1").await;
    assert_eq!(job.state, JobState::Completed);
    assert_eq!(
        (world.jobs("ENG-1").len(), world.repo().runs().len()),
        (2, 2)
    );
    world.finish().await;
}

/// Nobody at the host answers; what was accepted outlives the service.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_accepted_outlives_an_outage_and_a_restart() {
    let world = env_with_open_pull(options(), ScriptStep::write("a.txt", "A\n")).await;
    let number = pull_number(&world);
    world.vendors.faults(FakeService::GitHub).set_outage(true);
    let told = send_trigger(&world, trigger_body("ENG-1", number)).await;
    assert_eq!(told.status, 200, "{told:?}");
    assert_eq!(world.jobs("ENG-1")[1].state, JobState::Reserved);
    let again = send_trigger(&world, trigger_body("ENG-1", number)).await;
    assert_eq!(again.error(), (502, "dispatch_failed"));

    let world = world.restart_service(options()).await;
    world.vendors.faults(FakeService::GitHub).set_outage(false);
    let job = world.wait_for_job_end("ENG-1").await;
    assert_eq!(told.body["jobId"], job.id.as_str());
    assert_eq!(job.state, JobState::Completed);
    assert_eq!(
        (world.jobs("ENG-1").len(), world.repo().runs().len()),
        (2, 2)
    );
    world.finish().await;
}

/// A run on a pull request keeps its ticket from being dispatched, and no other.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_on_a_pull_request_takes_no_slot() {
    let capped = Mapping {
        max_in_progress: 1,
        ..mapping()
    };
    let by_hand = TestEnvOptions {
        mappings: vec![capped],
        engine: EngineMode::manual(),
        ..options()
    };
    let world = TestEnv::with_options(by_hand).await;
    world
        .vendors
        .linear()
        .issue("ENG-1")
        .title("Has a pull request");
    world.create_labelled_issue("ENG-2", "Waits for a slot");
    let done = finished_job(&world, "ENG-1", 7);
    let put = world.app.store.write(move |tx| jobs::put(tx, &done));
    put.await.unwrap();
    world
        .vendors
        .github()
        .set_start_delay(Duration::from_secs(600));
    let (told, ()) = tokio::join!(send_trigger(&world, trigger_body("ENG-1", 7)), async {
        world
            .wait_until("it is reserved", || world.jobs("ENG-1").len() == 2)
            .await;
        let start = format!("run:{}", world.jobs("ENG-1")[1].id);
        let lanes = world.app.store.read(outbox::queue_keys).unwrap();
        assert_eq!(
            lanes,
            [start],
            "it waits for nothing that the ticket is owed"
        );
        world
            .vendors
            .linear()
            .issue("ENG-1")
            .add_label("Agent-Implement");
        world.tick().await;
    });
    assert_eq!(told.status, 200, "{told:?}");
    world.tick().await;
    assert_eq!(world.jobs("ENG-1").len(), 2, "it has a job at work");
    assert_eq!(world.jobs("ENG-2").len(), 1, "the slot was free");
    let counts = world.admin_get("/api/issues").await["inProgressCountsByTeam"].clone();
    assert_eq!(counts, json!({"ENG": 1}));
    world.stop().await;
}

/// A job of a ticket that has ended with a pull request.
fn finished_job(world: &TestEnv, key: &str, number: u64) -> Job {
    let linear = world.vendors.linear().issue(key).snapshot();
    let jira = || world.vendors.jira().issue(key).snapshot();
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
async fn a_long_instruction_is_cut_with_a_mark() {
    let by_hand = TestEnvOptions {
        engine: EngineMode::manual(),
        ..options()
    };
    let world = TestEnv::with_options(by_hand).await;
    world.vendors.linear().issue("ENG-1").title("Wordy");
    let done = finished_job(&world, "ENG-1", 7);
    let put = world.app.store.write(move |tx| jobs::put(tx, &done));
    put.await.unwrap();
    world
        .vendors
        .github()
        .set_start_delay(Duration::from_secs(600));
    let long = "ä".repeat(30_000);
    let asked = json!({"issueKey": "ENG-1", "prNumber": 7, "instruction": long});
    assert_eq!(send_trigger(&world, asked).await.status, 200);
    world.tick().await;
    let run = &world.repo().runs()[0];
    let instruction = run.inputs["instruction"].as_str().unwrap();
    assert!(instruction.len() <= 10_000 && instruction.starts_with("ää"));
    assert!(instruction.ends_with("longer than a run may be given]"));
    world.stop().await;
}
