//! Values of flags and variables, which the service does not get from the shell of the setup.

use std::fs;

use super::NewMachine;
use crate::process::{command, exit_and_output};

const ARGUMENTS: [&str; 4] = ["--runner", "ci", "--system", "github"];

impl NewMachine {
    /// Configuration that the service reads from the files, as `serve --print-config` prints it.
    fn service_config(&self) -> String {
        let mut serve = command(&["serve", "--print-config", "--env-file"]);
        serve.arg(self.path("agent-implement.env"));
        let (code, stdout, stderr) = exit_and_output(&serve.output().unwrap());
        assert_eq!(code, 0, "{stderr}");
        stdout
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_service_gets_what_flags_and_variables_set() {
    let machine = NewMachine::start().await;
    let callback = "http://agents.test";
    let mut init = machine.command(&ARGUMENTS, &[]);
    init.args([
        "--port",
        "9000",
        "--data-dir",
        "store",
        "--log-level",
        "debug",
    ])
    .env("RUNNER_CALLBACK_BASE_URL", format!("{callback}/"))
    .env("ALLOW_PLAIN_HTTP", "true")
    .env("ADMIN_ACCESS_CODE", "code-of-the-operator")
    .env("RUNNER_MODE", "ci")
    .env("SESSION_IMAGE", "ghcr.io/acme/runner:1")
    .env("POLL_INTERVAL_MS", "60000")
    .env("no_proxy", "nexus.corp");
    let (code, text) = machine.run(init).await;
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("http://127.0.0.1:9000/admin"), "{text}");
    assert!(!text.contains("code-of-the-operator"), "{text}");
    let config = machine.service_config();
    for line in [
        "PORT=9000".to_owned(),
        "LOG_LEVEL=debug".to_owned(),
        format!("DATA_DIR={}/store", machine.folder.path().display()),
        format!("RUNNER_CALLBACK_BASE_URL={callback}"),
        "ALLOW_PLAIN_HTTP=true".to_owned(),
        "RUNNER_MODE=ci".to_owned(),
        "SESSION_IMAGE=ghcr.io/acme/runner:1".to_owned(),
        "NO_PROXY=nexus.corp".to_owned(),
        "ADMIN_ACCESS_CODE=<set>".to_owned(),
    ] {
        assert!(
            config.lines().any(|found| found == line),
            "{line}: {config}"
        );
    }
    let code = machine.path("credentials/ADMIN_ACCESS_CODE");
    assert_eq!(super::stored_secret(&code), "code-of-the-operator");
    let env = fs::read_to_string(machine.path("agent-implement.env")).unwrap();
    assert!(!env.contains("POLL_INTERVAL_MS"), "a default: {env}");
    assert!(
        machine
            .folder
            .path()
            .join("store/agent-implement.redb")
            .exists()
    );

    let files = machine.files();
    let (code, again) = machine.init(&ARGUMENTS, &["GITHUB_TOKEN"]).await;
    assert_eq!(code, 0, "{again}");
    assert!(!again.contains("Stored "), "{again}");
    assert!(machine.files() == files, "a file changed");
    let (code, text) = machine
        .init(&[&ARGUMENTS[..], &["--port", "8080"]].concat(), &[])
        .await;
    assert_eq!(code, 0, "{text}");
    let config = machine.service_config();
    assert!(config.contains("\nPORT=8080\n"), "{config}");
}

/// A shell has variables for other programs, too.
#[tokio::test(flavor = "multi_thread")]
async fn variables_of_other_programs_are_stored_only_if_the_setup_uses_them() {
    let machine = NewMachine::start().await;
    let mut init = machine.command(&ARGUMENTS, &[]);
    init.env("KUBECONFIG", "/root/.kube/config")
        .env("AWS_ACCESS_KEY_ID", "AKIAOFTHESHELL")
        .env("AWS_SECRET_ACCESS_KEY", "of the shell")
        .env("OPENAI_API_KEY", "sk-of-the-shell");
    let (code, text) = machine.run(init).await;
    assert_eq!(code, 0, "{text}");
    let env = fs::read_to_string(machine.path("agent-implement.env")).unwrap();
    for name in ["KUBECONFIG", "AWS_ACCESS_KEY_ID", "DOCKER_HOST"] {
        assert!(!env.contains(name), "{env}");
    }
    for name in ["AWS_SECRET_ACCESS_KEY", "OPENAI_API_KEY"] {
        assert!(!machine.path("credentials").join(name).exists(), "{name}");
    }
}
