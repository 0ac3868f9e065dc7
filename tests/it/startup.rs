//! The real binary at its start: settings that are refused, settings that are misspelt, and whose files
//! it makes; and where the commands look for an installed service.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use domain::crypto::sha256_hex;
use domain::job::{Job, JobKind};
use serde_json::json;
use store::{Store, jobs};

use crate::api_server::{dispatched_job, send_checked};
use crate::process::{ServiceProcess, client_builder, command, exit_and_output, run};
use crate::requirements::require;
use crate::test_env::{EngineMode, TestEnv, TestEnvOptions};

const MISCONFIGURED: i32 = 78;

#[test]
fn weak_secrets_plain_http_and_bad_levels_are_refused_in_one_message() {
    let dir = tempfile::tempdir().unwrap();
    let refused = command(&["serve"])
        .env("PORT", "none")
        .env("DATA_DIR", dir.path())
        .env("ADMIN_ACCESS_CODE", "x")
        .env("SCM_WEBHOOK_SECRET", "x")
        .env("GAP_FILL_TRIGGER_SECRET", "x")
        .env("GITHUB_TOKEN", "ghp_canary")
        .env("GITHUB_API_URL", "http://github.example/api/v3")
        .env("RUNNER_CALLBACK_BASE_URL", "http://192.168.1.4:8080")
        .env("LOG_LEVEL", "loud")
        .output()
        .unwrap();
    let (code, _, told) = exit_and_output(&refused);
    assert_eq!(code, MISCONFIGURED, "{told}");
    for problem in [
        "PORT must be a port number",
        "ADMIN_ACCESS_CODE must be at least 8 bytes long",
        "SCM_WEBHOOK_SECRET must be at least 8 bytes long",
        "GAP_FILL_TRIGGER_SECRET must be at least 8 bytes long",
        "GITHUB_API_URL must be an https address",
        "RUNNER_CALLBACK_BASE_URL must be an https address",
        "LOG_LEVEL must be error, warn, info",
    ] {
        assert!(told.contains(problem), "{problem}: {told}");
    }
    assert_eq!(told.lines().count(), 8, "{told}");
}

#[test]
fn store_and_logs_are_for_their_owner_alone() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let service = ServiceProcess::start(&data, &[]);
    let mut found = vec![data.clone()];
    files_below(&data, &mut found);
    service.stop();
    assert!(
        found
            .iter()
            .any(|path| path.ends_with("agent-implement.redb"))
    );
    assert!(
        found
            .iter()
            .any(|path| path.starts_with(data.join("logs/")))
    );
    let open = |path: &&PathBuf| {
        let mode = fs::symlink_metadata(path).map(|file| file.permissions().mode());
        mode.is_ok_and(|mode| mode & 0o077 != 0)
    };
    let open: Vec<_> = found.iter().filter(open).collect();
    assert!(open.is_empty(), "{open:?}");
}

fn files_below(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        found.push(entry.path());
        if entry.file_type().unwrap().is_dir() {
            files_below(&entry.path(), found);
        }
    }
}

#[test]
fn misspelt_settings_and_credentials_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let credentials = dir.path().join("credentials");
    fs::create_dir(&credentials).unwrap();
    fs::write(
        credentials.join("NOTIFY_WEBHOOK_URL.txt"),
        "https://chat/canary",
    )
    .unwrap();
    // The start ends here, after the log has begun.
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let ended = command(&["serve"])
        .env("PORT", taken.local_addr().unwrap().port().to_string())
        .env("DATA_DIR", dir.path().join("data"))
        .env("CREDENTIALS_DIRECTORY", &credentials)
        .env("LINEAR_APIKEY", "lin_canary")
        .output()
        .unwrap();
    let (_, _, told) = exit_and_output(&ended);
    for notice in [
        "The variable LINEAR_APIKEY is not a setting. Did you mean LINEAR_API_KEY?",
        "The credential NOTIFY_WEBHOOK_URL.txt is not read. Rename the file if you mean NOTIFY_WEBHOOK_URL.",
    ] {
        let is_warned = |line: &str| line.contains("WARN") && line.contains(notice);
        assert!(told.lines().any(is_warned), "{notice}: {told}");
    }
    assert!(!told.contains("canary"), "{told}");
}

#[test]
fn an_error_is_said_once() {
    let ended = command(&["serve"])
        .env("PORT", "0")
        .env("DATA_DIR", "/dev/null/data")
        .output()
        .unwrap();
    let (code, _, told) = exit_and_output(&ended);
    assert_eq!(code, 1, "{told}");
    assert_eq!(told.matches("os error").count(), 1, "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plain_token_that_may_change_workflows_stops_the_start() {
    let town = TestEnv::with_options(TestEnvOptions::default())
        .await
        .stop_service()
        .await;
    town.vendors.github().set_token_scopes("repo, workflow");
    let token = town.vendors.github().personal_token().to_owned();
    let making = |allowed: &str| TestEnvOptions {
        omitted_flags: &["--github-app-id", "--github-app-private-key"],
        extra_flags: vec![
            ("--github-token", token.clone()),
            ("--allow-workflow-token", allowed.to_owned()),
        ],
        ..TestEnvOptions::default()
    };
    let mut line = town.command_line("http://127.0.0.1:9", &making("false"));
    line.extend(["--port".to_owned(), "0".to_owned()]);
    let (first, code) = tokio::task::spawn_blocking(move || first_words(&line))
        .await
        .unwrap();
    assert_eq!(code, Some(MISCONFIGURED), "{first}");
    assert!(first.contains("ALLOW_WORKFLOW_TOKEN=true"), "{first}");
    assert!(!first.contains(&token), "{first}");
    let allowed = tokio::task::block_in_place(|| town.start_process(&making("true")));
    assert_eq!(allowed.stop(), 0);
    town.vendors.stop_and_kill_runs().await;
}

/// What the service writes until it runs or ends, and the code with which it ended.
fn first_words(line: &[String]) -> (String, Option<i32>) {
    let mut service = command(&["serve"])
        .args(line)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut told = String::new();
    for line in BufReader::new(service.stderr.take().unwrap()).lines() {
        let line = line.unwrap();
        told.push_str(&line);
        if line.contains("is running.") {
            service.kill().unwrap();
        }
    }
    (told, service.wait().unwrap().code())
}

/// Whatever the token might do when the service started.
#[tokio::test(flavor = "multi_thread")]
async fn no_run_is_handed_a_plain_token_that_may_change_workflows() {
    let asleep = TestEnv::with_options(TestEnvOptions::default())
        .await
        .stop_service()
        .await;
    let token = asleep.vendors.github().personal_token().to_owned();
    let making = TestEnvOptions {
        mappings: Vec::new(),
        omitted_flags: &["--github-app-id", "--github-app-private-key"],
        extra_flags: vec![("--github-token", token.clone())],
        engine: EngineMode::manual(),
        ..TestEnvOptions::default()
    };
    let world = asleep.start_service(making).await;
    let job = Job {
        nonce_hash: Some(sha256_hex("the nonce")),
        ..dispatched_job("J1", JobKind::Implementation)
    };
    let put = world.app.store.write(move |tx| jobs::put(tx, &job));
    put.await.unwrap();
    for (scopes, status) in [("repo, workflow", 500), ("repo", 200)] {
        world.vendors.github().set_token_scopes(scopes);
        let asked = client_builder().build().unwrap();
        let asked = asked.post(format!("{}/api/token", world.address));
        let told = send_checked(asked.json(&json!({"nonce": "the nonce", "owner": "acme"}))).await;
        assert_eq!(told.status, status, "{scopes}: {}", told.body);
        assert_eq!(told.body.to_string().contains(&token), status == 200);
    }
    world.stop().await;
}

/// As the installed package has it: the environment file is in `/etc`. In a mount namespace, so that this
/// machine's own folder stays as it is.
#[test]
fn the_commands_find_an_installed_service() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    drop(Store::open(&data).unwrap());
    let program = env!("CARGO_BIN_EXE_agent-implement");
    let script = format!(
        "mount -t tmpfs none /etc && mkdir /etc/agent-implement && cd {folder} && \
         echo DATA_DIR={data} >/etc/agent-implement/agent-implement.env && echo ready && \
         {program} audit verify && {program} audit verify --data-dir {data} && \
         ! DATA_DIR=/nowhere {program} audit verify",
        folder = dir.path().display(),
        data = data.display()
    );
    let mut child = Command::new("unshare")
        .args(["-m", "sh", "-c", &script])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut told, mut wrong) = (String::new(), String::new());
    child
        .stdout
        .take()
        .unwrap()
        .read_to_string(&mut told)
        .unwrap();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut wrong)
        .unwrap();
    let status = child.wait().unwrap();
    let made = told.strip_prefix("ready\n").ok_or(wrong.clone());
    let Some(told) = require("namespaces", "an installed service", made) else {
        return;
    };
    assert!(status.success(), "{told}{wrong}");
    assert_eq!(
        told, "ok: 0 entries, head none\nok: 0 entries, head none\n",
        "{wrong}"
    );
    let notice = "agent-implement: using /etc/agent-implement/agent-implement.env";
    assert_eq!(wrong.matches(notice).count(), 1, "{wrong}");
    assert!(wrong.contains("there is no store in /nowhere"), "{wrong}");
}

#[test]
fn a_head_that_is_no_hash_is_a_wrong_command_line() {
    let dir = tempfile::tempdir().unwrap();
    drop(Store::open(dir.path()).unwrap());
    let data = dir.path().to_str().unwrap();
    let (code, told, wrong) = exit_and_output(&run(&[
        "audit",
        "verify",
        "--data-dir",
        data,
        "--head",
        "abc",
    ]));
    assert_eq!((code, told.as_str()), (2, ""), "{wrong}");
}
