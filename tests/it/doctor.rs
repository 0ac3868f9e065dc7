//! `doctor` finds each planted misconfiguration and names a one-line remedy.

mod merging;
mod setup_findings;

use std::fs::{self, Permissions};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use domain::mapping::Mapping;
use serde_json::{Value, json};
use store::mappings;
use warp::Filter;

use crate::backup::create_store_with_secret;
use crate::process::{ServiceProcess, exit_and_output, run};
use crate::route_server;
use crate::test_env::{
    COMMENT_TRIGGER_WORKFLOW, StoppedEnv, TestEnv, TestEnvOptions, app_key, mapping, mapping_with,
    open_store,
};

/// Address without a listener.
const NOWHERE: &str = "http://127.0.0.1:1";

fn jira_mapping(team: &str, jql: &str) -> Mapping {
    mapping_with(&json!({
        "teamKey": team, "ticketingProvider": "B",
        "ticketingConfig": {"kind": "B", "jql": jql, "repoFieldValue": "shop"},
    }))
}

/// Fake vendors and the data folder of a stopped service.
async fn stopped_env(mappings: Vec<Mapping>) -> StoppedEnv {
    let options = TestEnvOptions {
        mappings,
        ..TestEnvOptions::default()
    };
    TestEnv::with_options(options).await.stop_service().await
}

fn options_with(
    omitted: &'static [&'static str],
    flags: &[(&'static str, &str)],
) -> TestEnvOptions {
    TestEnvOptions {
        omitted_flags: omitted,
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
    /// Runs the command with the options that the service of this folder would be started with.
    async fn run_doctor(
        stopped: &StoppedEnv,
        options: &TestEnvOptions,
        extra_args: &[&str],
    ) -> Self {
        let mut args = vec!["doctor".to_owned(), "--json".to_owned()];
        args.extend(stopped.command_line(NOWHERE, options));
        args.extend(extra_args.iter().map(|part| (*part).to_owned()));
        let output = tokio::task::spawn_blocking(move || {
            exit_and_output(&run(&args.iter().map(String::as_str).collect::<Vec<_>>()))
        });
        let (code, stdout, stderr) = output.await.unwrap();
        let key = app_key();
        let secrets = [
            "canary",
            stopped.vendors.jira().api_token(),
            &key[40..80],
            "lin_wrong_key",
        ];
        for secret in secrets {
            assert!(
                !stdout.contains(secret) && !stderr.contains(secret),
                "{secret} in {stdout}{stderr}"
            );
        }
        let body: Value =
            serde_json::from_str(&stdout).unwrap_or_else(|_| panic!("{stdout}{stderr}"));
        let findings = body["findings"].as_array().unwrap().clone();
        Self { code, findings }
    }

    fn findings_at(&self, level: &str) -> Vec<&Value> {
        self.findings
            .iter()
            .filter(|finding| finding["level"] == level)
            .collect()
    }

    /// Asserts that this finding is reported, with a reason and a one-line remedy.
    fn assert_finding(&self, level: &str, check: &str, what: &str, remedy: &str) {
        let text = |finding: &Value, field: &str| finding[field].as_str().unwrap().to_owned();
        let finding = self.findings_at(level).into_iter().find(|finding| {
            finding["check"] == check
                && text(finding, "what").contains(what)
                && text(finding, "remedy").contains(remedy)
        });
        let finding = finding.unwrap_or_else(|| panic!("{check}: {what}\n{:#?}", self.findings));
        assert!(!text(finding, "why").is_empty(), "{finding}");
        assert!(!text(finding, "remedy").contains('\n'), "{finding}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn passes_a_correct_setup_and_names_each_vendor_problem() {
    let stopped = stopped_env(vec![mapping(), jira_mapping("OPS", "project = OPS")]).await;
    let trigger = (
        ".github/workflows/comment-trigger.yml",
        COMMENT_TRIGGER_WORKFLOW,
    );
    let repo = stopped.vendors.github().repo("acme", "shop");
    repo.commit("main", &[trigger], "Let comments start runs")
        .unwrap();
    let repos = stopped
        .vendors
        .jira()
        .ensure_select_field("Agent-Implement Repo", &["shop"]);
    assert!(!repos.is_empty());
    let report = DoctorRun::run_doctor(&stopped, &options_with(&[], &[]), &["--port", "0"]).await;
    assert_eq!(
        (report.code, report.findings_at("error").len()),
        (0, 0),
        "{:#?}",
        report.findings
    );

    let vendors = &stopped.vendors;
    vendors.github().deny_permission("workflows");
    vendors
        .jira()
        .remove_option("Agent-Implement Status", "PR Ready");
    repo.remove_files(
        "main",
        &[".github/workflows/agent-implement.yml"],
        "Clean up",
    )
    .unwrap();
    let arguments = stopped.command_line(NOWHERE, &TestEnvOptions::default());
    let store = open_store(Path::new(arguments.last().unwrap())).await;
    let unreachable =
        mapping_with(&json!({"teamKey": "NOPE", "owner": "nobody", "repo": "nothing"}));
    let invalid = jira_mapping("ODD", "project = = OPS");
    vendors.github().repo("acme", "cart").rename("basket");
    let renamed = mapping_with(&json!({"teamKey": "CART", "repo": "cart"}));
    let written = store.write(move |tx| {
        mappings::put(tx, &unreachable)?;
        mappings::put(tx, &renamed)?;
        mappings::put(tx, &invalid)
    });
    written.await.unwrap();
    drop(store);
    let report = DoctorRun::run_doctor(&stopped, &options_with(&[], &[]), &["--port", "0"]).await;
    assert_eq!(report.code, 1);
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
            "project-rights",
            "acme/cart is now acme/basket",
            "Correct the repository",
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
            "Sync workflows of project",
        ),
    ];
    for (check, what, remedy) in rows {
        report.assert_finding("error", check, what, remedy);
    }
    report.assert_finding(
        "warning",
        "webhook",
        "SCM_WEBHOOK_SECRET",
        "/api/repo-host/webhook",
    );
    report.assert_finding(
        "warning",
        "runner-callback",
        "the service is stopped",
        "Start the service",
    );
    stopped.vendors.stop_and_kill_runs().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn names_each_configuration_problem() {
    let stopped = stopped_env(vec![mapping()]).await;
    let data = stopped
        .command_line(NOWHERE, &TestEnvOptions::default())
        .pop()
        .unwrap();
    let occupied = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = occupied.local_addr().unwrap().port().to_string();
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
    let omitted = &["--linear-api-key", "--notify-webhook-url"];
    let report = DoctorRun::run_doctor(&stopped, &options_with(omitted, &flags), &[]).await;
    assert_eq!(report.code, 1);
    for (check, what, remedy) in [
        ("ticketing-a", "401", "LINEAR_API_KEY"),
        ("chat-webhook", "leads to the other kind", "NOTIFY_TYPE"),
        (
            "project-runner",
            "VM sessions are not configured",
            "another runner in the panel",
        ),
        ("custom-dir", "cannot read", "CUSTOM_DIR"),
        ("port", "cannot listen on", "Set PORT"),
        ("secrets-key", "can be read by other users", "chmod 600"),
    ] {
        report.assert_finding("error", check, what, remedy);
    }

    let flags = [
        ("--vm-sessions-token", "canary-wrong"),
        ("--vm-sessions-app", stopped.vendors.fly().app()),
        ("--vm-api-url", &stopped.vendors.fly_url()),
        ("--docker-host", "unix:///nowhere/engine.sock"),
        ("--runner-mode", "local"),
        ("--port", "0"),
    ];
    let report = DoctorRun::run_doctor(&stopped, &options_with(&[], &flags), &[]).await;
    for (check, what, remedy) in [
        ("vm-sessions", "", "VM_SESSIONS_TOKEN"),
        ("local-containers", "", "DOCKER_HOST"),
        ("model-key", "no model key", "ANTHROPIC_API_KEY"),
    ] {
        report.assert_finding("error", check, what, remedy);
    }
    stopped.vendors.stop_and_kill_runs().await;
}

/// Starts an HTTP server whose `Date` header is years old.
async fn start_server_with_stale_clock() -> String {
    let stale_clock_server =
        warp::any().map(|| warp::reply::with_header("{}", "date", "Sat, 21 Nov 2020 01:00:00 GMT"));
    route_server::start(stale_clock_server).await.0
}

#[tokio::test(flavor = "multi_thread")]
async fn checks_addresses_clock_values_and_keys() {
    let stopped = stopped_env(vec![mapping()]).await;
    let stale_clock_server = start_server_with_stale_clock().await;
    let unreachable = [
        ("--github-api-url", "https://github.invalid"),
        ("--linear-api-url", &stale_clock_server),
        ("--port", "0"),
    ];
    let omitted = &["--github-api-url", "--linear-api-url"];
    let report = DoctorRun::run_doctor(&stopped, &options_with(omitted, &unreachable), &[]).await;
    report.assert_finding(
        "error",
        "clock",
        "the clock of this machine differs from that of",
        "timedatectl",
    );
    report.assert_finding(
        "error",
        "callback-address",
        "is a loopback address",
        "RUNNER_CALLBACK_BASE_URL",
    );
    report.assert_finding("error", "repo-host", "", "GITHUB_API_URL");

    let invalid = [("--poll-interval-ms", "5"), ("--trusted-proxies", "me")];
    let report = DoctorRun::run_doctor(
        &stopped,
        &options_with(&["--poll-interval-ms"], &invalid),
        &[],
    )
    .await;
    let mut problems = report.findings_at("error");
    problems.retain(|finding| finding["check"] == "configuration");
    assert_eq!((report.code, problems.len()), (1, 2));
    report.assert_finding("error", "configuration", "POLL_INTERVAL_MS", "serve --help");
    report.assert_finding("error", "configuration", "TRUSTED_PROXIES", "serve --help");

    let data = stopped
        .command_line(NOWHERE, &TestEnvOptions::default())
        .pop()
        .unwrap();
    create_store_with_secret(Path::new(&data)).await;
    fs::remove_file(format!("{data}/secrets.key")).unwrap();
    let report = DoctorRun::run_doctor(&stopped, &options_with(&[], &[]), &["--port", "0"]).await;
    report.assert_finding(
        "error",
        "stored-secrets",
        "no key decrypts the 1",
        "secrets.key",
    );
    stopped.vendors.stop_and_kill_runs().await;
}

#[test]
fn names_a_data_folder_that_is_not_writable() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    let data_dir = file.join("data");
    let output = run(&[
        "doctor",
        "--port",
        "0",
        "--data-dir",
        data_dir.to_str().unwrap(),
    ]);
    let (code, stdout, _) = exit_and_output(&output);
    assert_eq!(code, 1);
    assert!(
        stdout.contains("error    data-folder") && stdout.contains("fix: Make the service"),
        "{stdout}"
    );
    assert!(!stdout.contains('\x1b'), "no colour but on a terminal");
}

#[tokio::test(flavor = "multi_thread")]
async fn queries_the_running_service() {
    let stopped = stopped_env(vec![mapping()]).await;
    let mut args = stopped.command_line(NOWHERE, &TestEnvOptions::default());
    let data = args.pop().unwrap();
    args.pop();
    let flags: Vec<&str> = args.iter().map(String::as_str).collect();
    let service = tokio::task::block_in_place(|| ServiceProcess::start(data.as_ref(), &flags));
    let options = options_with(
        &["--runner-callback-base-url"],
        &[("--runner-callback-base-url", &service.address)],
    );
    let report = DoctorRun::run_doctor(&stopped, &options, &[]).await;
    let assert_ok = |check: &str, what: &str| {
        let is_match = |finding: &&Value| {
            finding["check"] == check && finding["what"].as_str().unwrap().contains(what)
        };
        assert!(
            report.findings_at("ok").iter().any(is_match),
            "{check}: {:#?}",
            report.findings
        );
    };
    assert_ok("port", "the service is running");
    assert_ok("store", "open in the running service");
    assert_ok("project-tickets", "can be read");
    assert_ok("runner-callback", "This service responds at");
    service.stop();
    stopped.vendors.stop_and_kill_runs().await;
}
