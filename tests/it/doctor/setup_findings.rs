//! What a set-up has that works today and should not stay so, and what hides nothing else.

use super::*;

fn found<'a>(checkup: &'a DoctorRun, check: &str) -> Vec<&'a Value> {
    let all = checkup.findings.iter();
    all.filter(|one| one["check"] == check).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_vendor_that_is_not_reached_is_not_called_a_bad_key() {
    let asleep = stopped_env(vec![mapping()]).await;
    let elsewhere = [
        ("--linear-api-url", "http://127.0.0.1:1"),
        ("--github-api-url", "https://github.invalid"),
        ("--port", "0"),
    ];
    let without = &["--github-api-url", "--linear-api-url"];
    let checkup = DoctorRun::run_doctor(&asleep, &options_with(without, &elsewhere), &[]).await;
    for (check, address) in [
        ("ticketing-a", "LINEAR_API_URL"),
        ("repo-host", "GITHUB_API_URL"),
    ] {
        checkup.assert_finding("error", check, "", address);
        let remedy = found(&checkup, check)[0]["remedy"].as_str().unwrap();
        assert!(remedy.contains("the credential was not judged"), "{remedy}");
        assert!(!remedy.contains("key"), "{remedy}");
    }
    asleep.vendors.stop_and_kill_runs().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_value_hides_no_other_check() {
    let asleep = stopped_env(vec![mapping()]).await;
    let wrong = [
        ("--poll-interval-ms", "5"),
        ("--github-app-private-key", "no key"),
    ];
    let without = &["--poll-interval-ms", "--github-app-private-key"];
    let checkup =
        DoctorRun::run_doctor(&asleep, &options_with(without, &wrong), &["--port", "0"]).await;
    assert_eq!(checkup.code, 1);
    checkup.assert_finding("error", "configuration", "POLL_INTERVAL_MS", "serve --help");
    checkup.assert_finding(
        "error",
        "configuration",
        "GITHUB_APP_PRIVATE_KEY",
        "serve --help",
    );
    assert_eq!(found(&checkup, "ticketing-a")[0]["level"], "ok");
    assert_eq!(found(&checkup, "project-tickets")[0]["level"], "ok");
    assert_eq!(found(&checkup, "store")[0]["level"], "ok");
    let host = found(&checkup, "repo-host")[0];
    assert_eq!(host["what"], "not checked: a value that it needs is wrong");
    asleep.vendors.stop_and_kill_runs().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_image_of_local_containers_is_looked_at() {
    let asleep = stopped_env(vec![mapping()]).await;
    asleep
        .vendors
        .docker()
        .add_unrelated_image("registry.example/odd:1");
    let socket = asleep.vendors.docker_socket();
    let rows = [
        ("agent-implement-runner:local", "ok", "is there", ""),
        (
            "nowhere/runner:1",
            "error",
            "is not on this machine",
            "docker build",
        ),
        (
            "registry.example/odd:1",
            "warning",
            "has no label",
            "Dockerfile.runner",
        ),
    ];
    for (image, level, what, remedy) in rows {
        let flags = [
            ("--docker-host", socket.as_str()),
            ("--runner-mode", "local"),
            ("--local-runner-image", image),
            ("--port", "0"),
        ];
        let checkup = DoctorRun::run_doctor(&asleep, &options_with(&[], &flags), &[]).await;
        let image = found(&checkup, "local-image")[0];
        assert_eq!(image["level"], level, "{image}");
        assert!(image["what"].as_str().unwrap().contains(what), "{image}");
        assert!(
            image["remedy"].as_str().unwrap().contains(remedy),
            "{image}"
        );
    }
    asleep.vendors.stop_and_kill_runs().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sync_that_waits_to_be_merged_is_named() {
    let world = TestEnv::with_options(TestEnvOptions::default()).await;
    let repo = world.repo();
    repo.remove_files(
        "main",
        &[".github/workflows/agent-implement.yml"],
        "Clean up",
    )
    .unwrap();
    let synced = world
        .admin_request(
            reqwest::Method::POST,
            "/api/mappings/ENG/sync-workflows",
            None,
        )
        .await;
    assert_eq!(synced.0, 200, "{synced:?}");
    let asleep = world.stop_service().await;
    let repo = asleep.vendors.github().repo("acme", "shop");
    let number = repo.pulls()[0].number;
    let checkup = DoctorRun::run_doctor(&asleep, &options_with(&[], &[]), &["--port", "0"]).await;
    let address = format!("/acme/shop/pull/{number}");
    let merge = "Merge the pull request that syncs them";
    checkup.assert_finding(
        "error",
        "project-workflows",
        "missing on the default branch",
        merge,
    );
    checkup.assert_finding(
        "error",
        "project-workflows",
        "missing on the default branch",
        &address,
    );
    asleep.vendors.stop_and_kill_runs().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plain_token_is_told_of() {
    let asleep = stopped_env(vec![mapping()]).await;
    let token = asleep.vendors.github().personal_token().to_owned();
    let without = &["--github-app-id", "--github-app-private-key"];
    let plain = [("--github-token", token.as_str()), ("--port", "0")];
    let checkup = DoctorRun::run_doctor(&asleep, &options_with(without, &plain), &[]).await;
    let whole = "each run is handed the whole GITHUB_TOKEN";
    checkup.assert_finding("warning", "github-token", whole, "GitHub App");
    asleep.vendors.github().set_token_scopes("repo, workflow");
    let checkup = DoctorRun::run_doctor(&asleep, &options_with(without, &plain), &[]).await;
    checkup.assert_finding(
        "error",
        "github-token",
        "ALLOW_WORKFLOW_TOKEN=true",
        "GitHub App",
    );
    asleep.vendors.stop_and_kill_runs().await;
}

fn file(path: &Path, text: &str, mode: u32) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

#[test]
fn files_that_everybody_may_read_and_names_that_nobody_reads_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let [env, code, data] = ["ours.env", "code", "data"].map(|name| dir.path().join(name));
    file(&code, "the access code\n", 0o644);
    let variables = format!(
        "DATA_DIR={}\nADMIN_ACCESS_CODE_FILE={}\nGAP_FILL_TRIGGER_SECRET=sixteen letters.\n\
         LINEAR_APIKEY=x\nVM_API_URL=http://10.0.0.1\nALLOW_PLAIN_HTTP=true\n",
        data.display(),
        code.display()
    );
    file(&env, &variables, 0o644);
    let line = [
        "doctor",
        "--json",
        "--port",
        "0",
        "--env-file",
        env.to_str().unwrap(),
    ];
    let (_, told, wrong) = exit_and_output(&run(&line));
    let body: Value = serde_json::from_str(&told).unwrap_or_else(|_| panic!("{told}{wrong}"));
    let findings = body["findings"].as_array().unwrap().clone();
    let checkup = DoctorRun { code: 0, findings };
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
        checkup.assert_finding("warning", check, what, &remedy);
    }
    file(&code, "the access code\n", 0o600);
    file(&env, &variables, 0o640);
    let (_, told, _) = exit_and_output(&run(&line));
    assert!(!told.contains("credential-files"), "{told}");
}

/// On a terminal, as `script` makes one.
#[test]
fn people_read_the_names_of_vendors_and_colours_can_be_switched_off() {
    let dir = tempfile::tempdir().unwrap();
    let program = env!("CARGO_BIN_EXE_agent-implement");
    let line = format!(
        "{program} doctor --port 0 --data-dir {}",
        dir.path().display()
    );
    let shown = |no_color: &str| {
        let shown = std::process::Command::new("script")
            .args(["-qec", &line, "/dev/null"])
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("TERM", "xterm")
            .env("NO_COLOR", no_color)
            .output()
            .unwrap();
        String::from_utf8(shown.stdout).unwrap()
    };
    let coloured = shown("");
    assert!(coloured.contains("\x1b[31merror  \x1b[0m"), "{coloured}");
    let plain = shown("1");
    assert!(!plain.contains('\x1b'), "{plain}");
    for name in ["Linear ", "Jira ", "GitHub ", "Fly Machines "] {
        let is_it = |line: &str| line.get(9..).is_some_and(|rest| rest.starts_with(name));
        assert!(plain.lines().any(is_it), "{name}: {plain}");
    }
    for slug in ["ticketing-a", "ticketing-b", "repo-host", "vm-sessions"] {
        let is_it = |line: &str| line.get(9..).is_some_and(|rest| rest.starts_with(slug));
        assert!(!plain.lines().any(is_it), "{slug}: {plain}");
    }
}
