//! Findings about a setup that works but should be changed, and independence of the checks.

use super::*;

fn findings_of<'a>(report: &'a DoctorRun, check: &str) -> Vec<&'a Value> {
    let all = report.findings.iter();
    all.filter(|finding| finding["check"] == check).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn reports_an_unreachable_vendor_not_a_bad_key() {
    let stopped = stopped_env(vec![mapping()]).await;
    let unreachable = [
        ("--linear-api-url", "http://127.0.0.1:1"),
        ("--github-api-url", "https://github.invalid"),
        ("--port", "0"),
    ];
    let omitted = &["--github-api-url", "--linear-api-url"];
    let report = DoctorRun::run_doctor(&stopped, &options_with(omitted, &unreachable), &[]).await;
    for (check, address) in [
        ("ticketing-a", "LINEAR_API_URL"),
        ("repo-host", "GITHUB_API_URL"),
    ] {
        report.assert_finding("error", check, "", address);
        let remedy = findings_of(&report, check)[0]["remedy"].as_str().unwrap();
        assert!(
            remedy.contains("The credential was not checked"),
            "{remedy}"
        );
        assert!(!remedy.contains("key"), "{remedy}");
    }
    stopped.vendors.stop_and_kill_runs().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reports_other_checks_despite_an_invalid_value() {
    let stopped = stopped_env(vec![mapping()]).await;
    let invalid = [
        ("--poll-interval-ms", "5"),
        ("--github-app-private-key", "no key"),
    ];
    let omitted = &["--poll-interval-ms", "--github-app-private-key"];
    let report =
        DoctorRun::run_doctor(&stopped, &options_with(omitted, &invalid), &["--port", "0"]).await;
    assert_eq!(report.code, 1);
    report.assert_finding("error", "configuration", "POLL_INTERVAL_MS", "serve --help");
    report.assert_finding(
        "error",
        "configuration",
        "GITHUB_APP_PRIVATE_KEY",
        "serve --help",
    );
    assert_eq!(findings_of(&report, "ticketing-a")[0]["level"], "ok");
    assert_eq!(findings_of(&report, "project-tickets")[0]["level"], "ok");
    assert_eq!(findings_of(&report, "store")[0]["level"], "ok");
    let host = findings_of(&report, "repo-host")[0];
    assert_eq!(host["what"], "not checked: a required value is wrong");
    stopped.vendors.stop_and_kill_runs().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn checks_the_image_of_local_containers() {
    let stopped = stopped_env(vec![mapping()]).await;
    stopped
        .vendors
        .docker()
        .add_unrelated_image("registry.example/odd:1");
    let docker = stopped.vendors.docker();
    docker.add_image(
        "acme/runner:old",
        &[
            ("agent_implement_runner", "1"),
            ("agent_implement_version", "0.0.9"),
        ],
    );
    docker.add_image("acme/runner:older", &[("agent_implement_runner", "1")]);
    let socket = stopped.vendors.docker_socket();
    let rows = [
        ("agent-implement-runner:local", "ok", "is available", ""),
        (
            "nowhere/runner:1",
            "error",
            "is not on this machine",
            "agent-implement image build --tag nowhere/runner:1",
        ),
        (
            "registry.example/odd:1",
            "warning",
            "has no label",
            "agent-implement image build",
        ),
        (
            "acme/runner:old",
            "warning",
            "contains version 0.0.9",
            "agent-implement image build --tag acme/runner:old",
        ),
        (
            "acme/runner:older",
            "warning",
            "does not state its version",
            "agent-implement image build",
        ),
    ];
    for (image, level, what, remedy) in rows {
        let flags = [
            ("--docker-host", socket.as_str()),
            ("--runner-mode", "local"),
            ("--local-runner-image", image),
            ("--port", "0"),
        ];
        let report = DoctorRun::run_doctor(&stopped, &options_with(&[], &flags), &[]).await;
        let image = findings_of(&report, "local-image")[0];
        assert_eq!(image["level"], level, "{image}");
        assert!(image["what"].as_str().unwrap().contains(what), "{image}");
        assert!(
            image["remedy"].as_str().unwrap().contains(remedy),
            "{image}"
        );
    }
    stopped.vendors.stop_and_kill_runs().await;
}

/// An engine on another machine cannot mount the socket of the proxy. Nobody has chosen the network that runs get then.
#[tokio::test(flavor = "multi_thread")]
async fn warns_of_a_network_that_nobody_has_chosen() {
    let stopped = stopped_env(vec![mapping()]).await;
    let elsewhere = [
        ("--docker-host", "tcp://engine.invalid:2375"),
        ("--runner-mode", "local"),
        ("--port", "0"),
    ];
    let run = async |more: &[(&'static str, &str)]| {
        let flags: Vec<_> = elsewhere.iter().chain(more).copied().collect();
        DoctorRun::run_doctor(&stopped, &options_with(&[], &flags), &[]).await
    };
    let report = run(&[]).await;
    report.assert_finding(
        "warning",
        "container-network",
        "have the network of http://engine.invalid:2375",
        "Set DATA_DIR_ON_HOST",
    );
    for chosen in [
        ("--local-egress", "open"),
        ("--data-dir-on-host", "/srv/data"),
    ] {
        let report = run(&[chosen]).await;
        assert!(findings_of(&report, "container-network").is_empty());
    }
    let report = run(&[("--local-egress-hosts", "registry.example")]).await;
    report.assert_finding(
        "error",
        "configuration",
        "need DATA_DIR_ON_HOST",
        "serve --help",
    );
    stopped.vendors.stop_and_kill_runs().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn names_an_unmerged_sync_pull_request() {
    let env = TestEnv::with_options(TestEnvOptions::default()).await;
    let repo = env.repo();
    repo.remove_files(
        "main",
        &[".github/workflows/agent-implement.yml"],
        "Clean up",
    )
    .unwrap();
    let synced = env
        .admin_request(
            reqwest::Method::POST,
            "/api/mappings/ENG/sync-workflows",
            None,
        )
        .await;
    assert_eq!(synced.0, 200, "{synced:?}");
    let stopped = env.stop_service().await;
    let repo = stopped.vendors.github().repo("acme", "shop");
    let number = repo.pulls()[0].number;
    let report = DoctorRun::run_doctor(&stopped, &options_with(&[], &[]), &["--port", "0"]).await;
    let address = format!("/acme/shop/pull/{number}");
    let remedy = "Merge the pull request that syncs them";
    report.assert_finding(
        "error",
        "project-workflows",
        "missing on the default branch",
        remedy,
    );
    report.assert_finding(
        "error",
        "project-workflows",
        "missing on the default branch",
        &address,
    );
    stopped.vendors.stop_and_kill_runs().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn warns_about_a_plain_token() {
    let stopped = stopped_env(vec![mapping()]).await;
    let token = stopped.vendors.github().personal_token().to_owned();
    let omitted = &["--github-app-id", "--github-app-private-key"];
    let plain = [("--github-token", token.as_str()), ("--port", "0")];
    let report = DoctorRun::run_doctor(&stopped, &options_with(omitted, &plain), &[]).await;
    let whole = "each run gets the whole GITHUB_TOKEN";
    report.assert_finding("warning", "github-token", whole, "GitHub App");
    stopped.vendors.github().set_token_scopes("repo, workflow");
    let report = DoctorRun::run_doctor(&stopped, &options_with(omitted, &plain), &[]).await;
    report.assert_finding(
        "error",
        "github-token",
        "ALLOW_WORKFLOW_TOKEN=true",
        "GitHub App",
    );
    stopped.vendors.stop_and_kill_runs().await;
}

fn write_file(path: &Path, text: &str, mode: u32) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

#[test]
fn warns_about_readable_credential_files_and_unknown_settings() {
    let dir = tempfile::tempdir().unwrap();
    let [env, code, data] = ["ours.env", "code", "data"].map(|name| dir.path().join(name));
    write_file(&code, "the access code\n", 0o644);
    let variables = format!(
        "DATA_DIR={}\nADMIN_ACCESS_CODE_FILE={}\nGAP_FILL_TRIGGER_SECRET=sixteen letters.\n\
         LINEAR_APIKEY=x\nVM_API_URL=http://10.0.0.1\nALLOW_PLAIN_HTTP=true\n",
        data.display(),
        code.display()
    );
    write_file(&env, &variables, 0o644);
    let args = [
        "doctor",
        "--json",
        "--port",
        "0",
        "--env-file",
        env.to_str().unwrap(),
    ];
    let (_, stdout, stderr) = exit_and_output(&run(&args));
    let body: Value = serde_json::from_str(&stdout).unwrap_or_else(|_| panic!("{stdout}{stderr}"));
    let findings = body["findings"].as_array().unwrap().clone();
    let report = DoctorRun { code: 0, findings };
    for (check, what, remedy) in [
        (
            "credential-files",
            code.to_str().unwrap(),
            format!("chmod 600 {}", code.display()),
        ),
        (
            "credential-files",
            env.to_str().unwrap(),
            format!("chmod 640 {}", env.display()),
        ),
        (
            "unknown-setting",
            "LINEAR_APIKEY",
            "Correct the name".to_owned(),
        ),
        ("plain-http", "VM_API_URL", "https".to_owned()),
    ] {
        report.assert_finding("warning", check, what, &remedy);
    }
    write_file(&code, "the access code\n", 0o600);
    write_file(&env, &variables, 0o640);
    let (_, stdout, _) = exit_and_output(&run(&args));
    assert!(!stdout.contains("credential-files"), "{stdout}");
}

/// Runs on a pseudo-terminal created by `script`.
#[test]
fn prints_vendor_names_and_honors_no_color() {
    let dir = tempfile::tempdir().unwrap();
    let program = env!("CARGO_BIN_EXE_agent-implement");
    let args = format!(
        "{program} doctor --port 0 --data-dir {}",
        dir.path().display()
    );
    let doctor_output = |no_color: &str| {
        let output = std::process::Command::new("script")
            .args(["-qec", &args, "/dev/null"])
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("TERM", "xterm")
            .env("NO_COLOR", no_color)
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let coloured = doctor_output("");
    assert!(coloured.contains("\x1b[31merror  \x1b[0m"), "{coloured}");
    let plain = doctor_output("1");
    assert!(!plain.contains('\x1b'), "{plain}");
    for name in ["Linear ", "Jira ", "GitHub ", "Fly Machines "] {
        let is_match = |line: &str| line.get(9..).is_some_and(|rest| rest.starts_with(name));
        assert!(plain.lines().any(is_match), "{name}: {plain}");
    }
    for slug in ["ticketing-a", "ticketing-b", "repo-host", "vm-sessions"] {
        let is_match = |line: &str| line.get(9..).is_some_and(|rest| rest.starts_with(slug));
        assert!(!plain.lines().any(is_match), "{slug}: {plain}");
    }
}
