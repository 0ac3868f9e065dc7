//! Rows of the scoreboard by label: labels of the tickets of both ticketing systems, and hostile ones.

use std::collections::BTreeMap;

use domain::job::{JobKind, JobState};
use domain::mapping::Mapping;
use domain::scoreboard::MAX_KEYS;
use fake_vendors::{FakeService, LoggedRequest};
use serde_json::{Value, json};
use store::jobs;

use crate::api_server::{ApiServer, CLOCK_START, dispatched_job};
use crate::jira::{create_ticket, mapping_for_repo};
use crate::test_env::{TestEnv, mapping};

/// Service with a project on Linear and one on Jira. Polls only if told to.
async fn start_env() -> TestEnv {
    let roomy = |mapping| Mapping {
        max_in_progress: 20,
        ..mapping
    };
    let mappings = [roomy(mapping()), roomy(mapping_for_repo("OPS", "shop"))];
    TestEnv::with_manual_engine(mappings).await
}

/// Polls once. Returns the requests to Linear.
async fn poll(env: &TestEnv) -> Vec<LoggedRequest> {
    env.vendors.requests().clear();
    engine::poll::run_once(&env.app).await.unwrap();
    env.vendors.requests().for_service(FakeService::Linear)
}

fn labels(env: &TestEnv, key: &str) -> Vec<String> {
    env.jobs(key).pop().unwrap().labels
}

/// Ends the run of an issue.
async fn cancel(env: &TestEnv, key: &str) {
    let path = format!("/api/jobs/{}/cancel", env.jobs(key).pop().unwrap().id);
    env.admin_post(&path, json!({"retry": false})).await;
}

/// Runs by key of the rows.
fn runs(board: &Value) -> BTreeMap<String, u64> {
    let rows = board["rows"].as_array().unwrap().iter();
    rows.map(|row| {
        let key = row["key"].as_str().unwrap().to_owned();
        (key, row["runs"].as_u64().unwrap())
    })
    .collect()
}

fn expected(rows: &[(&str, u64)]) -> BTreeMap<String, u64> {
    let rows = rows.iter();
    rows.map(|(key, runs)| ((*key).to_owned(), *runs)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_count_for_each_label_of_their_ticket() {
    let env = start_env().await;
    env.create_labelled_issue("ENG-1", "Add the feature");
    let issue = env.vendors.linear().issue("ENG-1");
    issue.add_label("checkout").add_label("ui");
    let linear = poll(&env).await;
    assert_eq!(
        linear.len(),
        2,
        "a page, and the names of the labels: {linear:#?}"
    );
    assert_eq!(labels(&env, "ENG-1"), ["checkout", "ui"]);

    env.create_labelled_issue("ENG-2", "Add the other feature");
    let ticket = create_ticket(&env, "OPS-1", "Repair it").label("ui");
    ticket.label("backend").status("Ready");
    let linear = poll(&env).await;
    assert_eq!(linear.len(), 1, "there are no names to read: {linear:#?}");
    assert_eq!(labels(&env, "ENG-2"), Vec::<String>::new());
    assert_eq!(labels(&env, "OPS-1"), ["backend", "ui"]);

    for key in ["ENG-1", "ENG-2", "OPS-1"] {
        cancel(&env, key).await;
    }
    let board = env.admin_get("/api/scoreboard?by=label").await;
    let by_label = [("backend", 1), ("checkout", 1), ("none", 1), ("ui", 2)];
    assert_eq!(runs(&board), expected(&by_label), "{board}");
    assert_eq!(board["total"]["runs"], 3);
    env.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_labels_are_bounded_and_harmless() {
    let env = start_env().await;
    let hostile = [
        "a\nb",
        "\u{202e}evil\u{7}",
        "\u{200b}",
        " ",
        "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
    ];
    let huge = "x".repeat(1 << 20);
    env.create_labelled_issue("ENG-1", "Add the feature");
    let mut on_linear = env.vendors.linear().issue("ENG-1");
    let mut on_jira = create_ticket(&env, "OPS-1", "Repair it");
    for label in hostile.into_iter().chain([huge.as_str()]) {
        on_linear = on_linear.add_label(label);
        on_jira = on_jira.label(label);
    }
    let many = (0..10_000).map(|number| format!("label-{number}"));
    on_jira.labels(many).status("Ready");
    poll(&env).await;
    for key in ["ENG-1", "OPS-1"] {
        let labels = labels(&env, key);
        let is_harmless = |label: &String| label.len() <= 80 && !label.contains(char::is_control);
        assert!(labels.iter().all(is_harmless), "{labels:?}");
        assert!(
            labels.len() <= 20 && !labels.iter().any(|label| label.contains("ghp_")),
            "{labels:?}"
        );
        assert!(
            labels.contains(&"a b".to_owned()) && labels.contains(&"evil".to_owned()),
            "{labels:?}"
        );
        cancel(&env, key).await;
    }
    let board = env.admin_get("/api/scoreboard?by=label").await;
    assert!(runs(&board).len() <= 20, "{board}");
    assert_eq!(
        (&board["total"]["runs"], runs(&board)["evil"]),
        (&json!(2), 2)
    );
    env.stop().await;
}

#[tokio::test]
async fn further_labels_and_models_share_one_row() {
    let server = ApiServer::start().await;
    let mut all = Vec::new();
    for number in 0..600 {
        let mut job = dispatched_job(&format!("01H{number:04}"), JobKind::Implementation);
        job.state = JobState::Completed;
        (job.dispatched_at, job.finished_at) = (Some(CLOCK_START), Some(CLOCK_START));
        job.model = Some(format!("model-{number:03}"));
        job.labels = (0..20)
            .map(|label| format!("{number:03}-{label:02}"))
            .collect();
        all.push(job);
    }
    let put = server
        .store
        .write(move |tx| all.iter().try_for_each(|job| jobs::put(tx, job)));
    put.await.unwrap();
    let token = server.sign_in().await;
    for (by, in_other) in [("label", 600 - MAX_KEYS / 20), ("model", 600 - MAX_KEYS)] {
        let path = format!("/api/scoreboard?by={by}");
        let board = server.send("GET", &path, &token, None).await.body;
        let rows = runs(&board);
        assert_eq!(rows["other"], in_other as u64, "each run once: {board}");
        assert_eq!(board["rowsLeftOut"], MAX_KEYS + 1 - rows.len(), "{board}");
        assert_eq!(board["total"]["runs"], 600);
    }
}
