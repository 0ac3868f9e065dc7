//! What is planted wrong is found, named, and mended in one line.

mod setup_findings;

use std::fs::{self, Permissions};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use domain::mapping::Mapping;
use serde_json::{Value, json};
use store::{Store, StoreError, mappings};
use warp::Filter;

use crate::backup::create_store_with_secret;
use crate::process::{ServiceProcess, exit_and_output, run};
use crate::test_env::{
    COMMENT_TRIGGER_WORKFLOW, StoppedEnv, TestEnv, TestEnvOptions, app_key, mapping, mapping_with,
};

/// Nobody listens there.
const NOWHERE: &str = "http://127.0.0.1:1";

fn jira_mapping(team: &str, jql: &str) -> Mapping {
    mapping_with(&json!({
        "teamKey": team, "ticketingProvider": "B",
        "ticketingConfig": {"kind": "B", "jql": jql, "repoFieldValue": "shop"},
    }))
}

/// A town, and the folder of a service that is stopped.
async fn stopped_env(mappings: Vec<Mapping>) -> StoppedEnv {
    let making = TestEnvOptions {
        mappings,
        ..TestEnvOptions::default()
    };
    TestEnv::with_options(making).await.stop_service().await
}

fn options_with(
    without: &'static [&'static str],
    flags: &[(&'static str, &str)],
) -> TestEnvOptions {
    TestEnvOptions {
        omitted_flags: without,
        extra_flags: flags
            .iter()
            .map(|(flag, value)| (*flag, (*value).to_owned()))
            .collect(),
        ..TestEnvOptions::default()
    }
}

struct DoctorRun {
    code: i32,
    findings: Vec<Value>,
}

impl DoctorRun {
    /// Runs the command as the service of this folder would be started.
    async fn run_doctor(asleep: &StoppedEnv, making: &TestEnvOptions, more: &[&str]) -> Self {
        let mut line = vec!["doctor".to_owned(), "--json".to_owned()];
        line.extend(asleep.command_line(NOWHERE, making));
        line.extend(more.iter().map(|part| (*part).to_owned()));
        let done = tokio::task::spawn_blocking(move || {
            exit_and_output(&run(&line.iter().map(String::as_str).collect::<Vec<_>>()))
        });
        let (code, told, wrong) = done.await.unwrap();
        let key = app_key();
        let secrets = [
            "canary",
            asleep.vendors.jira().api_token(),
            &key[40..80],
            "lin_wrong_key",
        ];
        for secret in secrets {
            assert!(
                !told.contains(secret) && !wrong.contains(secret),
                "{secret} in {told}{wrong}"
            );
        }
        let body: Value = serde_json::from_str(&told).unwrap_or_else(|_| panic!("{told}{wrong}"));
        let findings = body["findings"].as_array().unwrap().clone();
        Self { code, findings }
    }

    fn findings_at(&self, level: &str) -> Vec<&Value> {
        self.findings
            .iter()
            .filter(|one| one["level"] == level)
            .collect()
    }

    /// Whether this was found, said why it matters and how it is mended.
    fn assert_finding(&self, level: &str, check: &str, what: &str, remedy: &str) {
        let text = |one: &Value, field: &str| one[field].as_str().unwrap().to_owned();
        let hit = self.findings_at(level).into_iter().find(|one| {
            one["check"] == check
                && text(one, "what").contains(what)
                && text(one, "remedy").contains(remedy)
        });
        let hit = hit.unwrap_or_else(|| panic!("{check}: {what}\n{:#?}", self.findings));
        assert!(!text(hit, "why").is_empty(), "{hit}");
        assert!(!text(hit, "remedy").contains('\n'), "{hit}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_right_is_called_so_and_what_the_town_has_wrong_is_named() {
    let asleep = stopped_env(vec![mapping(), jira_mapping("OPS", "project = OPS")]).await;
    let trigger = (
        ".github/workflows/comment-trigger.yml",
        COMMENT_TRIGGER_WORKFLOW,
    );
    let repo = asleep.vendors.github().repo("acme", "shop");
    repo.commit("main", &[trigger], "Let comments start runs")
        .unwrap();
    let repos = asleep
        .vendors
        .jira()
        .ensure_select_field("Agent-Implement Repo", &["shop"]);
    assert!(!repos.is_empty());
    let right = DoctorRun::run_doctor(&asleep, &options_with(&[], &[]), &["--port", "0"]).await;
    assert_eq!(
        (right.code, right.findings_at("error").len()),
        (0, 0),
        "{:#?}",
        right.findings
    );

    let town = &asleep.vendors;
    town.github().deny_permission("workflows");
    town.jira()
        .remove_option("Agent-Implement Status", "PR Ready");
    repo.remove_files(
        "main",
        &[".github/workflows/agent-implement.yml"],
        "Clean up",
    )
    .unwrap();
    let store = open_data_store(&asleep).await;
    let elsewhere = mapping_with(&json!({"teamKey": "NOPE", "owner": "nobody", "repo": "nothing"}));
    let odd = jira_mapping("ODD", "project = = OPS");
    let more = store.write(move |tx| {
        mappings::put(tx, &elsewhere)?;
        mappings::put(tx, &odd)
    });
    more.await.unwrap();
    drop(store);
    let found = DoctorRun::run_doctor(&asleep, &options_with(&[], &[]), &["--port", "0"]).await;
    assert_eq!(found.code, 1);
    let rows = [
        (
            "project-rights",
            "lacks the permission workflows: write on acme/shop",
            "accept it for the installation",
        ),
        (
            "project-rights",
            "not installed on nobody/nothing",
            "Install the App",
        ),
        (
            "project-tickets",
            "lacks the option PR Ready",
            "Add the options",
        ),
        ("project-tickets", "shows no team NOPE", "team key"),
        ("project-tickets", "", "Correct the query"),
        (
            "project-workflows",
            "missing on the default branch: .github/workflows/agent-implement.yml",
            "sync-workflows",
        ),
    ];
    for (check, what, remedy) in rows {
        found.assert_finding("error", check, what, remedy);
    }
    found.assert_finding(
        "warning",
        "webhook",
        "SCM_WEBHOOK_SECRET",
        "/api/repo-host/webhook",
    );
    found.assert_finding(
        "warning",
        "runner-callback",
        "the service is stopped",
        "Start the service",
    );
    asleep.vendors.stop_and_kill_runs().await;
}

async fn open_data_store(asleep: &StoppedEnv) -> Store {
    let line = asleep.command_line(NOWHERE, &TestEnvOptions::default());
    let dir = line.last().unwrap();
    loop {
        match Store::open(dir.as_ref()) {
            Err(StoreError::InUse { .. }) => tokio::task::yield_now().await,
            opened => return opened.unwrap(),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_configuration_has_wrong_is_named() {
    let asleep = stopped_env(vec![mapping()]).await;
    let data = asleep
        .command_line(NOWHERE, &TestEnvOptions::default())
        .pop()
        .unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let file = format!("{data}/a-file");
    fs::write(&file, "").unwrap();
    fs::write(format!("{data}/secrets.key"), "x").unwrap();
    fs::set_permissions(format!("{data}/secrets.key"), Permissions::from_mode(0o644)).unwrap();

    let flags = [
        ("--linear-api-key", "lin_wrong_key"),
        (
            "--notify-webhook-url",
            "https://hooks.slack.com/services/T0/B0/canary",
        ),
        ("--notify-type", "channel-b"),
        ("--runner-mode", "vm"),
        ("--custom-dir", &file),
        ("--port", &port),
    ];
    let without = &["--linear-api-key", "--notify-webhook-url"];
    let found = DoctorRun::run_doctor(&asleep, &options_with(without, &flags), &[]).await;
    assert_eq!(found.code, 1);
    for (check, what, remedy) in [
        ("ticketing-a", "401", "LINEAR_API_KEY"),
        ("chat-webhook", "leads to the other kind", "NOTIFY_TYPE"),
        (
            "project-runner",
            "VM sessions are not configured",
            "/api/runner-mode",
        ),
        ("custom-dir", "cannot be read", "CUSTOM_DIR"),
        ("port", "cannot be listened on", "Set PORT"),
        ("secrets-key", "can be read by others", "chmod 600"),
    ] {
        found.assert_finding("error", check, what, remedy);
    }

    let flags = [
        ("--vm-sessions-token", "canary-wrong"),
        ("--vm-sessions-app", asleep.vendors.fly().app()),
        ("--vm-api-url", &asleep.vendors.fly_url()),
        ("--docker-host", "unix:///nowhere/engine.sock"),
        ("--runner-mode", "local"),
        ("--port", "0"),
    ];
    let found = DoctorRun::run_doctor(&asleep, &options_with(&[], &flags), &[]).await;
    for (check, what, remedy) in [
        ("vm-sessions", "", "VM_SESSIONS_TOKEN"),
        ("local-containers", "", "DOCKER_HOST"),
        ("model-key", "no model key", "ANTHROPIC_API_KEY"),
    ] {
        found.assert_finding("error", check, what, remedy);
    }
    asleep.vendors.stop_and_kill_runs().await;
}

/// Somebody whose clock stands still.
async fn yesterday() -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let late =
        warp::any().map(|| warp::reply::with_header("{}", "date", "Sat, 21 Nov 2020 01:00:00 GMT"));
    tokio::spawn(warp::serve(late).incoming(listener).run());
    url
}

#[tokio::test(flavor = "multi_thread")]
async fn addresses_clock_values_and_keys_are_looked_at() {
    let asleep = stopped_env(vec![mapping()]).await;
    let late = yesterday().await;
    let elsewhere = [
        ("--github-api-url", "https://github.invalid"),
        ("--linear-api-url", &late),
        ("--port", "0"),
    ];
    let without = &["--github-api-url", "--linear-api-url"];
    let found = DoctorRun::run_doctor(&asleep, &options_with(without, &elsewhere), &[]).await;
    found.assert_finding("error", "clock", "seconds from that of", "timedatectl");
    found.assert_finding(
        "error",
        "callback-address",
        "leads to the machine that asks",
        "RUNNER_CALLBACK_BASE_URL",
    );
    found.assert_finding("error", "repo-host", "", "GITHUB_API_URL");

    let wrong = [("--poll-interval-ms", "5"), ("--trusted-proxies", "me")];
    let found =
        DoctorRun::run_doctor(&asleep, &options_with(&["--poll-interval-ms"], &wrong), &[]).await;
    let mut problems = found.findings_at("error");
    problems.retain(|one| one["check"] == "configuration");
    assert_eq!((found.code, problems.len()), (1, 2));
    found.assert_finding("error", "configuration", "POLL_INTERVAL_MS", "serve --help");
    found.assert_finding("error", "configuration", "TRUSTED_PROXIES", "serve --help");

    let data = asleep
        .command_line(NOWHERE, &TestEnvOptions::default())
        .pop()
        .unwrap();
    create_store_with_secret(Path::new(&data)).await;
    fs::remove_file(format!("{data}/secrets.key")).unwrap();
    let found = DoctorRun::run_doctor(&asleep, &options_with(&[], &[]), &["--port", "0"]).await;
    found.assert_finding(
        "error",
        "stored-secrets",
        "no key opens the 1",
        "secrets.key",
    );
    asleep.vendors.stop_and_kill_runs().await;
}

#[test]
fn a_folder_that_cannot_be_written_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    let below = file.join("data");
    let output = run(&[
        "doctor",
        "--port",
        "0",
        "--data-dir",
        below.to_str().unwrap(),
    ]);
    let (code, told, _) = exit_and_output(&output);
    assert_eq!(code, 1);
    assert!(
        told.contains("error    data-folder") && told.contains("mend: Give it to"),
        "{told}"
    );
    assert!(!told.contains('\x1b'), "no colour but on a terminal");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_running_service_is_asked_for_its_projects() {
    let asleep = stopped_env(vec![mapping()]).await;
    let mut line = asleep.command_line(NOWHERE, &TestEnvOptions::default());
    let data = line.pop().unwrap();
    line.pop();
    let flags: Vec<&str> = line.iter().map(String::as_str).collect();
    let service = tokio::task::block_in_place(|| ServiceProcess::start(data.as_ref(), &flags));
    let here = options_with(
        &["--runner-callback-base-url"],
        &[("--runner-callback-base-url", &service.address)],
    );
    let found = DoctorRun::run_doctor(&asleep, &here, &[]).await;
    let says = |check: &str, what: &str| {
        let is_it =
            |one: &&Value| one["check"] == check && one["what"].as_str().unwrap().contains(what);
        assert!(
            found.findings_at("ok").iter().any(is_it),
            "{check}: {:#?}",
            found.findings
        );
    };
    says("port", "the service is running");
    says("store", "the service has it open");
    says("project-tickets", "can be read");
    says("runner-callback", "This service answers at");
    service.stop();
    asleep.vendors.stop_and_kill_runs().await;
}
