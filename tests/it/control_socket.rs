//! Control socket: only the owner of the data directory has admin access without signing in.

use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::Path;

use domain::decision::{Decision, DecisionOutcome, WaitReason};
use domain::issue::{IssueRef, System};
use engine::clock::Clock;
use reqwest::Method;
use serde_json::{Value, json};
use store::{Store, decisions};

use crate::api_server::{ACCESS_CODE, CLOCK_START, send_raw};
use crate::process::{ServiceProcess, client_builder, control_request, exit_and_output, run};

fn mapping() -> Value {
    json!({"teamKey": "ENG", "owner": "acme", "repo": "shop", "defaultBranch": "main", "ticketingProvider": "A"})
}

#[tokio::test]
async fn owner_of_the_data_folder_needs_no_token_or_access_code() {
    let dir = tempfile::tempdir().unwrap();
    let service = ServiceProcess::start(dir.path(), &[]);
    let socket = std::fs::metadata(dir.path().join("control.sock")).unwrap();
    assert!(socket.file_type().is_socket());
    assert_eq!(socket.permissions().mode() & 0o777, 0o600);

    let saved = control_request(dir.path(), Method::POST, "/api/mappings", Some(mapping())).await;
    assert_eq!(saved.0, 200, "{saved:?}");
    let (status, all) = control_request(dir.path(), Method::GET, "/api/mappings", None).await;
    assert_eq!((status, &all["ENG"]["repo"]), (200, &json!("shop")));
    // Public routes are served as well. Routes of runs still require their tokens.
    assert_eq!(
        control_request(dir.path(), Method::GET, "/", None).await.0,
        200
    );
    let report = control_request(
        dir.path(),
        Method::POST,
        "/runner/progress",
        Some(json!({})),
    )
    .await;
    assert_ne!(report.0, 200);
    assert_eq!(service.stop(), 0);
    assert!(!dir.path().join("control.sock").exists());
}

/// Returns requests whose headers or target claim to come from the control socket.
fn forged_requests(path: &str) -> Vec<String> {
    let lines = [
        "Host: control",
        "X-Forwarded-For: 127.0.0.1",
        "Forwarded: for=unix:",
        "X-Peer: owner",
        "Authorization: Bearer",
        "Authorization: Owner",
    ];
    let absolute = format!("GET http://control{path} HTTP/1.1\r\nHost: control\r\n");
    let plain = lines.map(|line| {
        let host = if line.starts_with("Host") {
            ""
        } else {
            "Host: x\r\n"
        };
        format!("GET {path} HTTP/1.1\r\n{host}{line}\r\n")
    });
    let complete = |head: String| format!("{head}Connection: close\r\n\r\n");
    plain.into_iter().chain([absolute]).map(complete).collect()
}

#[tokio::test]
async fn network_requests_cannot_claim_owner_access() {
    let dir = tempfile::tempdir().unwrap();
    for (flags, refusal) in [
        (&[][..], "404"),
        (
            &[
                "--admin-access-code",
                ACCESS_CODE,
                "--trusted-proxies",
                "127.0.0.1",
            ][..],
            "401",
        ),
    ] {
        let service = ServiceProcess::start(dir.path(), flags);
        let address = service
            .address
            .trim_start_matches("http://")
            .parse()
            .unwrap();
        for request in forged_requests("/api/mappings") {
            let response = send_raw(address, request.as_bytes()).await;
            assert!(
                response.starts_with(&format!("HTTP/1.1 {refusal}")),
                "{request}{response}"
            );
        }
        for request in forged_requests("/api/backup") {
            let response = send_raw(address, request.as_bytes()).await;
            assert!(response.starts_with("HTTP/1.1 404"), "{request}{response}");
        }
        service.stop();
    }
}

#[tokio::test]
async fn signed_in_operator_cannot_fetch_a_backup_over_the_network() {
    let dir = tempfile::tempdir().unwrap();
    let service = ServiceProcess::start(dir.path(), &["--admin-access-code", ACCESS_CODE]);
    let client = client_builder().build().unwrap();
    let code = json!({"code": ACCESS_CODE});
    let url = |path: &str| format!("{}{path}", service.address);
    let signed_in = client
        .post(url("/api/auth"))
        .json(&code)
        .send()
        .await
        .unwrap();
    let token: Value = signed_in.json().await.unwrap();
    let token = token["token"].as_str().unwrap();
    let status = |path: &'static str| {
        let response = client.get(url(path)).bearer_auth(token).send();
        async { response.await.unwrap().status().as_u16() }
    };
    assert_eq!(status("/api/mappings").await, 200);
    assert_eq!(status("/api/backup").await, 404);
    service.stop();
}

#[tokio::test]
async fn replaces_the_socket_of_a_killed_service() {
    let dir = tempfile::tempdir().unwrap();
    ServiceProcess::start(dir.path(), &[]).kill();
    assert!(dir.path().join("control.sock").exists());
    let service = ServiceProcess::start(dir.path(), &[]);
    assert_eq!(
        control_request(dir.path(), Method::GET, "/", None).await.0,
        200
    );
    service.stop();
}

#[test]
fn works_with_a_path_too_long_for_a_socket_address() {
    let dir = tempfile::tempdir().unwrap();
    let deep = dir
        .path()
        .join("a-long-name-of-a-folder".repeat(6))
        .join("another-one".repeat(9));
    let service = ServiceProcess::start(&deep, &[]);
    let output = run(&["why", "ENG-1", "--data-dir", deep.to_str().unwrap()]);
    assert_eq!(exit_and_output(&output).0, 4, "{output:?}");
    assert_eq!(service.stop(), 0);
    assert!(!deep.join("control.sock").exists());
}

fn issue_and_decision(
    key: &str,
    outcome: DecisionOutcome,
    reason: Option<WaitReason>,
    message: &str,
) -> (IssueRef, Decision) {
    let issue = IssueRef {
        system: System::Linear,
        id: key.to_lowercase().as_str().into(),
        key: key.into(),
        title: "Make \u{1b}[31mit work".into(),
        url: format!("https://tickets.test/{key}"),
        marker_field: None,
    };
    let decision = Decision {
        at: CLOCK_START,
        issue_identifier: key.into(),
        team_key: "ENG".into(),
        outcome,
        reason,
        message: message.to_owned(),
        phase: None,
    };
    (issue, decision)
}

async fn record_decisions(dir: &Path, decisions: Vec<(IssueRef, Decision)>) {
    let store = Store::open(dir).unwrap();
    let recorded = store.write(move |tx| {
        decisions
            .iter()
            .try_for_each(|(issue, decision)| decisions::record(tx, issue, decision))
    });
    recorded.await.unwrap();
}

#[tokio::test]
async fn why_prints_the_same_with_and_without_a_running_service() {
    let dir = tempfile::tempdir().unwrap();
    let (waiting, paused) = (DecisionOutcome::Waiting, Some(WaitReason::Paused));
    record_decisions(
        dir.path(),
        vec![
            issue_and_decision(
                "ENG-1",
                DecisionOutcome::Dispatched,
                None,
                "Dispatched for planning.",
            ),
            issue_and_decision("ENG-1", waiting, paused, "ENG is paused."),
            issue_and_decision(
                "ENG-2",
                DecisionOutcome::Done,
                None,
                "Its pull request is open.",
            ),
        ],
    )
    .await;
    let data = dir.path().to_str().unwrap();
    // The store that was just dropped may stay open for a moment. The command waits for it.
    let run_all = || {
        [
            exit_and_output(&run(&["why", "eng-1", "--data-dir", data])),
            exit_and_output(&run(&["why", "ENG-1", "--json", "--data-dir", data])),
            exit_and_output(&run(&["why", "ENG-2", "--data-dir", data])),
            exit_and_output(&run(&["why", "ENG-3", "--data-dir", data])),
        ]
    };
    let stopped = run_all();
    let service = ServiceProcess::start(dir.path(), &[]);
    assert_eq!(run_all(), stopped);
    service.stop();

    let [waiting, as_json, done, unknown] = stopped;
    assert_eq!((waiting.0, as_json.0, done.0, unknown.0), (3, 3, 0, 4));
    let at = CLOCK_START.clock_text(Clock::System.now());
    let text = format!(
        "ENG-1  Make it work\nhttps://tickets.test/ENG-1\n\n\
         Waiting (paused) since {at}\n  ENG is paused.\n  What to do: Resume project ENG in the panel (Projects).\n\n\
         Earlier decisions:\n  {at}  Dispatched: Dispatched for planning.\n"
    );
    assert_eq!(waiting.1, text);
    let body: Value = serde_json::from_str(&as_json.1).unwrap();
    assert_eq!(body["decision"]["reason"], "paused");
    assert_eq!(body["history"][0]["outcome"], "dispatched");
    assert_eq!(body["job"], Value::Null);
    assert!(done.1.contains("Done since"), "{}", done.1);
    assert!(
        unknown.2.contains("no poll has seen ENG-3"),
        "{}",
        unknown.2
    );
}

#[test]
fn why_names_a_folder_without_a_store_and_creates_none() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let output = run(&["why", "ENG-1", "--data-dir", data.to_str().unwrap()]);
    let (code, _, stderr) = exit_and_output(&output);
    assert_eq!(code, 1);
    assert!(stderr.contains("there is no store in"), "{stderr}");
    assert!(!data.exists());
}

#[test]
fn commands_read_the_data_folder_from_the_environment_file() {
    let dir = tempfile::tempdir().unwrap();
    let (data, file) = (dir.path().join("data"), dir.path().join("service.env"));
    let lines = format!("# The service\nDATA_DIR='{}'\n", data.display());
    std::fs::write(&file, lines).unwrap();
    drop(Store::open(&data).unwrap());
    let output = run(&["why", "ENG-1", "--env-file", file.to_str().unwrap()]);
    assert_eq!(exit_and_output(&output).0, 4, "{output:?}");
    let output = run(&["audit", "verify", "--env-file", file.to_str().unwrap()]);
    assert_eq!(exit_and_output(&output).0, 0, "{output:?}");
    let output = run(&["why", "ENG-1", "--env-file", "/nowhere/service.env"]);
    let (code, _, stderr) = exit_and_output(&output);
    assert_eq!(code, 2);
    assert!(stderr.contains("/nowhere/service.env"), "{stderr}");
}
