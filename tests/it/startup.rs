//! Start of the real binary: rejected and misspelled settings, file permissions, and the lookup of an
//! installed service by the commands.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use domain::crypto::sha256_hex;
use domain::job::{Job, JobKind};
use domain::secret::Secret;
use domain::session_secrets::{SecretName, SecretScope};
use domain::time::Timestamp;
use engine::app::Vault;
use requires::requires;
use serde_json::json;
use store::{Store, jobs, secrets};

use crate::api_server::{dispatched_job, send_checked};
use crate::process::{ServiceProcess, client_builder, command, exit_and_output, run};
use crate::requirements::require;
use crate::test_env::{EngineMode, TestEnv, TestEnvOptions, open_store};

const MISCONFIGURED: i32 = 78;

#[test]
fn rejects_weak_secrets_plain_http_and_bad_levels_in_one_message() {
    let dir = tempfile::tempdir().unwrap();
    let output = command(&["serve"])
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
    let (code, _, stderr) = exit_and_output(&output);
    assert_eq!(code, MISCONFIGURED, "{stderr}");
    for problem in [
        "PORT must be a port number",
        "ADMIN_ACCESS_CODE must be at least 8 bytes long",
        "SCM_WEBHOOK_SECRET must be at least 8 bytes long",
        "GAP_FILL_TRIGGER_SECRET must be at least 8 bytes long",
        "GITHUB_API_URL must be an https address",
        "RUNNER_CALLBACK_BASE_URL must be an https address",
        "LOG_LEVEL must be error, warn, info",
    ] {
        assert!(stderr.contains(problem), "{problem}: {stderr}");
    }
    assert_eq!(stderr.lines().count(), 8, "{stderr}");
}

#[tokio::test]
async fn a_key_that_does_not_open_the_stored_secrets_is_a_wrong_setting() {
    let dir = tempfile::tempdir().unwrap();
    let store = open_store(dir.path()).await;
    let vault = Vault::open(None, &store).unwrap();
    let name = SecretName::parse(SecretScope::Global, "TOKEN").unwrap();
    let sealed = vault.seal(&name, &Secret::new("value"), Timestamp::EPOCH);
    let sealed = sealed.unwrap();
    let put = store.write(move |tx| secrets::put(tx, &name, &sealed));
    put.await.unwrap();
    drop(store);
    let refused = |key: &str, message: &str| {
        let mut serve = command(&["serve", "--port", "0", "--data-dir"]);
        let serve = serve.arg(dir.path()).env("SECRETS_KEY", key);
        let (code, _, stderr) = exit_and_output(&serve.output().unwrap());
        assert_eq!(code, MISCONFIGURED, "{stderr}");
        assert!(stderr.contains(message), "{stderr}");
    };
    refused(
        "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=",
        "the stored secret TOKEN cannot be opened",
    );
    let file = dir.path().join("secrets.key");
    fs::write(&file, "no key").unwrap();
    refused("", "it must be 32 bytes in base64");
    fs::remove_file(&file).unwrap();
    refused("", "the key of the stored secrets is missing");
}

#[test]
fn an_empty_path_is_unset_or_a_wrong_setting() {
    let with_empty = |name: &str| {
        let mut serve = command(&["serve", "--print-config"]);
        exit_and_output(&serve.env(name, "").output().unwrap())
    };
    for name in ["KUBECONFIG", "DATA_DIR_ON_HOST"] {
        let (code, _, stderr) = with_empty(name);
        assert_eq!(code, 0, "{name}: {stderr}");
    }
    for name in ["DATA_DIR", "CUSTOM_DIR"] {
        let (code, _, stderr) = with_empty(name);
        assert_eq!(code, MISCONFIGURED, "{name}: {stderr}");
        let problem = format!("{name} must be the path of a folder");
        assert!(stderr.contains(&problem), "{stderr}");
    }
}

#[test]
fn store_and_logs_are_readable_by_their_owner_only() {
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
    // Only containers that have it mounted can reach the folder of the socket of runs.
    found.retain(|path| !path.starts_with(data.join("run-socket")));
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
fn warns_about_misspelled_settings_and_credentials() {
    let dir = tempfile::tempdir().unwrap();
    let credentials = dir.path().join("credentials");
    fs::create_dir(&credentials).unwrap();
    fs::write(
        credentials.join("NOTIFY_WEBHOOK_URL.txt"),
        "https://chat/canary",
    )
    .unwrap();
    // The used port ends the start after the log has begun.
    let used = TcpListener::bind("127.0.0.1:0").unwrap();
    let output = command(&["serve"])
        .env("PORT", used.local_addr().unwrap().port().to_string())
        .env("DATA_DIR", dir.path().join("data"))
        .env("CREDENTIALS_DIRECTORY", &credentials)
        .env("LINEAR_APIKEY", "lin_canary")
        .output()
        .unwrap();
    let (_, _, stderr) = exit_and_output(&output);
    for notice in [
        "The variable LINEAR_APIKEY is not a setting. Did you mean LINEAR_API_KEY?",
        "The credential NOTIFY_WEBHOOK_URL.txt is not read. Rename the file if you mean NOTIFY_WEBHOOK_URL.",
    ] {
        let is_warned = |line: &str| line.contains("WARN") && line.contains(notice);
        assert!(stderr.lines().any(is_warned), "{notice}: {stderr}");
    }
    assert!(!stderr.contains("canary"), "{stderr}");
}

#[test]
fn prints_an_error_once() {
    let output = command(&["serve"])
        .env("PORT", "0")
        .env("DATA_DIR", "/dev/null/data")
        .output()
        .unwrap();
    let (code, _, stderr) = exit_and_output(&output);
    assert_eq!(code, 1, "{stderr}");
    assert_eq!(stderr.matches("os error").count(), 1, "{stderr}");
}

#[tokio::test(flavor = "multi_thread")]
async fn rejects_a_personal_token_that_may_change_workflows_at_start() {
    let stopped = TestEnv::with_options(TestEnvOptions::default())
        .await
        .stop_service()
        .await;
    stopped.vendors.github().set_token_scopes("repo, workflow");
    let token = stopped.vendors.github().personal_token().to_owned();
    let options = |allowed: &str| TestEnvOptions {
        omitted_flags: &["--github-app-id", "--github-app-private-key"],
        extra_flags: vec![
            ("--github-token", token.clone()),
            ("--allow-workflow-token", allowed.to_owned()),
        ],
        ..TestEnvOptions::default()
    };
    let mut arguments = stopped.command_line("http://127.0.0.1:9", &options("false"));
    arguments.extend(["--port".to_owned(), "0".to_owned()]);
    let (log, code) = tokio::task::spawn_blocking(move || serve_until_ready(&arguments))
        .await
        .unwrap();
    assert_eq!(code, Some(MISCONFIGURED), "{log}");
    assert!(log.contains("ALLOW_WORKFLOW_TOKEN=true"), "{log}");
    assert!(!log.contains(&token), "{log}");
    let allowed = tokio::task::block_in_place(|| stopped.start_process(&options("true")));
    assert_eq!(allowed.stop(), 0);
    stopped.vendors.stop_and_kill_runs().await;
}

/// Starts the service and kills it once it is ready. Returns its log and its exit code.
fn serve_until_ready(arguments: &[String]) -> (String, Option<i32>) {
    let mut service = command(&["serve"])
        .args(arguments)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut log = String::new();
    for line in BufReader::new(service.stderr.take().unwrap()).lines() {
        let line = line.unwrap();
        log.push_str(&line);
        if line.contains("is running.") {
            service.kill().unwrap();
        }
    }
    (log, service.wait().unwrap().code())
}

/// The scopes of the token may change while the service runs.
#[tokio::test(flavor = "multi_thread")]
async fn runs_get_no_personal_token_that_may_change_workflows() {
    let stopped = TestEnv::with_options(TestEnvOptions::default())
        .await
        .stop_service()
        .await;
    let token = stopped.vendors.github().personal_token().to_owned();
    let options = TestEnvOptions {
        mappings: Vec::new(),
        omitted_flags: &["--github-app-id", "--github-app-private-key"],
        extra_flags: vec![("--github-token", token.clone())],
        engine: EngineMode::manual(),
        ..TestEnvOptions::default()
    };
    let env = stopped.start_service(options).await;
    let job = Job {
        nonce_hash: Some(sha256_hex("the nonce")),
        ..dispatched_job("J1", JobKind::Implementation)
    };
    let put = env.store.write(move |tx| jobs::put(tx, &job));
    put.await.unwrap();
    for (scopes, status) in [("repo, workflow", 500), ("repo", 200)] {
        env.vendors.github().set_token_scopes(scopes);
        let client = client_builder().build().unwrap();
        let request = client.post(format!("{}/api/token", env.address));
        let body = json!({"nonce": "the nonce", "owner": "acme"});
        let response = send_checked(request.json(&body)).await;
        assert_eq!(response.status, status, "{scopes}: {}", response.body);
        assert_eq!(response.body.to_string().contains(&token), status == 200);
    }
    env.stop().await;
}

/// The installed package has its environment file in `/etc`. The test mounts its own `/etc` in a mount
/// namespace, so that the machine stays unchanged.
#[requires("namespaces")]
#[test]
fn commands_find_an_installed_service() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    drop(Store::open(&data).unwrap());
    let program = env!("CARGO_BIN_EXE_agent-implement");
    let script = format!(
        "mount -t tmpfs none /etc && mkdir -p /etc/agent-implement/credentials && cd {folder} && \
         echo the-access-code >/etc/agent-implement/credentials/ADMIN_ACCESS_CODE && \
         echo DATA_DIR={data} >/etc/agent-implement/agent-implement.env && echo ready && \
         {program} audit verify && {program} audit verify --data-dir {data} && \
         ! DATA_DIR=/nowhere {program} audit verify && \
         {program} serve --print-config | grep -E '^(DATA_DIR|ADMIN_ACCESS_CODE|PORT)='",
        folder = dir.path().display(),
        data = data.display()
    );
    let mut child = Command::new("unshare")
        .args(["-m", "sh", "-c", &script])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut stdout, mut stderr) = (String::new(), String::new());
    child
        .stdout
        .take()
        .unwrap()
        .read_to_string(&mut stdout)
        .unwrap();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut stderr)
        .unwrap();
    let status = child.wait().unwrap();
    let ready = stdout.strip_prefix("ready\n").ok_or(stderr.clone());
    let stdout = require("namespaces", ready);
    assert!(status.success(), "{stdout}{stderr}");
    let expected = format!(
        "ok: 0 entries, head none\nok: 0 entries, head none\n\
         PORT=8080\nDATA_DIR={}\nADMIN_ACCESS_CODE=<set>\n",
        data.display()
    );
    assert_eq!(stdout, expected, "{stderr}");
    let notice = "agent-implement: using /etc/agent-implement/agent-implement.env";
    assert_eq!(stderr.matches(notice).count(), 2, "{stderr}");
    assert!(stderr.contains("there is no store in /nowhere"), "{stderr}");
}

#[test]
fn rejects_an_audit_head_that_is_not_a_hash() {
    let dir = tempfile::tempdir().unwrap();
    drop(Store::open(dir.path()).unwrap());
    let data = dir.path().to_str().unwrap();
    let (code, stdout, stderr) = exit_and_output(&run(&[
        "audit",
        "verify",
        "--data-dir",
        data,
        "--head",
        "abc",
    ]));
    assert_eq!((code, stdout.as_str()), (2, ""), "{stderr}");
}
