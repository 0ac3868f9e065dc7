//! `agent-implement init`: from nothing to a service that turns a ticket into a pull request.

mod app;
mod installed;
mod kills;
mod restart;
mod rights;
mod runner_mode;
mod variables;

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fake_vendors::scripted_agent::{Script, ScriptStep};
use fake_vendors::{FakeVendors, FakeVendorsOptions};
use serde_json::Value;

use crate::process::{command, exit_and_output};
use crate::test_env::app_key;

const MODEL_KEY: &str = "sk-ant-canary-of-the-model";

/// Maximum time for a step.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Fake vendors with one repository, one team and one Jira project, and an empty folder.
struct NewMachine {
    vendors: FakeVendors,
    folder: tempfile::TempDir,
}

impl NewMachine {
    async fn start() -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let folder = tempfile::tempdir().unwrap();
        let program = env!("CARGO_BIN_EXE_agent-implement");
        let mut options = FakeVendorsOptions::new(folder.path().join("vendors"), program);
        options.app_key_pem = Some(app_key());
        let vendors = FakeVendors::start(options).await.unwrap();
        let repo = vendors.github().repo("acme", "web.shop");
        repo.seed(&[("README.md", "# Shop\n")], "Begin").unwrap();
        repo.allow_actions_to_open_pulls()
            .set_secret("ANTHROPIC_API_KEY", MODEL_KEY);
        vendors.linear().ensure_team("ENG", "Engineering");
        vendors.jira().ensure_project("OPS", "Operations");
        Self { vendors, folder }
    }

    /// Secrets that no output may contain.
    fn secrets(&self) -> [String; 4] {
        [
            self.vendors.github().personal_token().to_owned(),
            self.vendors.linear().api_key(),
            self.vendors.jira().api_token().to_owned(),
            MODEL_KEY.to_owned(),
        ]
    }

    /// Addresses of the fake vendors, which stand for the public ones.
    fn addresses(&self) -> Vec<(&'static str, String)> {
        vec![
            ("GITHUB_API_URL", self.vendors.github_api_url()),
            ("LINEAR_API_URL", self.vendors.linear_url()),
            ("DOCKER_HOST", self.vendors.docker_url()),
        ]
    }

    fn credentials(&self) -> Vec<(&'static str, String)> {
        let [github, linear, jira, model] = self.secrets();
        vec![
            ("GITHUB_TOKEN", github),
            ("LINEAR_API_KEY", linear),
            ("JIRA_SITE_URL", self.vendors.jira_url()),
            ("JIRA_EMAIL", self.vendors.jira().email().to_owned()),
            ("JIRA_API_TOKEN", jira),
            ("ANTHROPIC_API_KEY", model),
        ]
    }

    /// Command `init --yes`.
    fn command(&self, arguments: &[&str], without: &[&str]) -> Command {
        let mut command = command(&["init", "--yes"]);
        command.args(arguments).current_dir(self.folder.path());
        command.envs(self.addresses());
        let given = self.credentials().into_iter();
        command.envs(given.filter(|(name, _)| !without.contains(name)));
        command
    }

    /// Runs `init --yes` and returns exit code and output.
    async fn init(&self, arguments: &[&str], without: &[&str]) -> (i32, String) {
        self.run(self.command(arguments, without)).await
    }

    /// Runs a command and returns exit code and output.
    async fn run(&self, mut command: Command) -> (i32, String) {
        let output = tokio::task::spawn_blocking(move || command.output().unwrap());
        let (code, stdout, stderr) = exit_and_output(&output.await.unwrap());
        let text = stdout + &stderr;
        self.assert_no_secret(&text);
        (code, text)
    }

    fn assert_no_secret(&self, text: &str) {
        for secret in self.secrets() {
            assert!(!text.contains(&secret), "{secret} in {text}");
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join("agent-implement").join(name)
    }

    fn mode(&self, name: &str) -> u32 {
        let path = self.path(name);
        let found =
            fs::metadata(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        found.permissions().mode() & 0o777
    }

    /// All files of the setup but those of the store, with their content.
    fn files(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let folders = [self.path(""), self.path("credentials")];
        let entries = folders
            .iter()
            .flat_map(|folder| fs::read_dir(folder).unwrap());
        let files = entries.map(|entry| entry.unwrap().path());
        let mut files: Vec<_> = files
            .filter(|path| path.is_file())
            .map(|path| (path.clone(), fs::read(path).unwrap()))
            .collect();
        files.sort();
        files
    }

    /// What the service has stored, as `export` prints it.
    fn export(&self) -> Value {
        let data = self.path("data");
        let output = command(&["export", "--format", "json", "--data-dir"])
            .arg(data)
            .output()
            .unwrap();
        let (code, stdout, stderr) = exit_and_output(&output);
        assert_eq!(code, 0, "{stderr}");
        serde_json::from_str(&stdout).unwrap()
    }

    fn assert_requests_conform(&self) {
        let mut violations = self.vendors.requests().contract_violations();
        // The check of the clock reads the date of the response at the base address.
        let is_clock_check = |text: &String| {
            let bases = [
                "api.github.com:",
                "api.linear.app:",
                "sandbox.atlassian.net:",
            ];
            bases.iter().any(|base| text.contains(base))
        };
        violations.retain(|text| !is_clock_check(text));
        assert!(violations.is_empty(), "{violations:#?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stores_private_files_and_a_project_and_changes_nothing_when_repeated() {
    let machine = NewMachine::start().await;
    let arguments = ["--runner", "local", "--system", "linear", "--team", "ENG"];
    let (_, text) = machine.init(&arguments, &[]).await;
    assert!(text.contains("Stored project ENG."), "{text}");
    for (name, mode) in [
        ("", 0o700),
        ("credentials", 0o700),
        ("agent-implement.env", 0o600),
        ("credentials/GITHUB_TOKEN", 0o600),
        ("credentials/LINEAR_API_KEY", 0o600),
        ("credentials/ANTHROPIC_API_KEY", 0o600),
        ("credentials/ADMIN_ACCESS_CODE", 0o600),
        ("data/agent-implement.redb", 0o600),
    ] {
        assert_eq!(machine.mode(name), mode, "{name}");
    }
    assert_eq!(
        fs::read_to_string(machine.path(".gitignore")).unwrap(),
        "*\n"
    );
    let env = fs::read_to_string(machine.path("agent-implement.env")).unwrap();
    machine.assert_no_secret(&env);
    let stored = machine.export();
    assert_eq!(stored["runnerMode"], "local");
    assert_eq!(stored["mappings"]["ENG"]["repo"], "web.shop");
    assert_eq!(stored["mappings"]["ENG"]["defaultBranch"], "main");

    let files = machine.files();
    // What is stored need not be given again.
    let credentials = ["GITHUB_TOKEN", "LINEAR_API_KEY", "ANTHROPIC_API_KEY"];
    let (_, again) = machine.init(&arguments, &credentials).await;
    assert!(again.contains("Project ENG is stored already."), "{again}");
    assert!(!again.contains("Stored "), "{again}");
    assert!(machine.files() == files, "a file changed");
    assert_eq!(machine.export(), stored);
    machine.assert_requests_conform();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_or_wrong_credential_is_named_and_what_was_checked_is_kept() {
    let machine = NewMachine::start().await;
    let arguments = ["--runner", "ci", "--system", "linear", "--team", "ENG"];
    let (code, text) = machine.init(&arguments, &["GITHUB_TOKEN"]).await;
    assert_eq!(code, 1);
    assert!(
        text.contains("GitHub: no credential is set. Create a fine-grained token"),
        "{text}"
    );
    let (code, text) = machine.init(&arguments, &["LINEAR_API_KEY"]).await;
    assert_eq!(code, 1);
    assert!(text.contains("Linear: no credential is set."), "{text}");
    assert!(machine.path("credentials/GITHUB_TOKEN").exists());
    let wrong = [&arguments[..], &["--linear-api-key", "lin_wrong"]].concat();
    let (code, text) = machine.init(&wrong, &["GITHUB_TOKEN"]).await;
    assert_eq!(code, 1);
    assert!(text.contains("Linear: "), "{text}");
    assert!(!machine.path("credentials/LINEAR_API_KEY").exists());
    let unknown = ["--runner", "ci", "--system", "linear", "--team", "NOPE"];
    let (code, text) = machine.init(&unknown, &[]).await;
    assert_eq!(code, 1);
    assert!(text.contains("there is no such key. Keys: ENG"), "{text}");
    let invisible = [
        "--runner",
        "ci",
        "--system",
        "linear",
        "--repo",
        "acme/other",
    ];
    let (code, text) = machine.init(&invisible, &[]).await;
    assert_eq!(code, 1);
    assert!(
        text.contains("GitHub shows no repository acme/other."),
        "{text}"
    );
    assert!(!machine.path("data").exists(), "nothing is mapped");
}

#[tokio::test(flavor = "multi_thread")]
async fn creates_the_fields_of_jira_or_says_what_an_administrator_must_do() {
    let machine = NewMachine::start().await;
    machine.vendors.jira().remove_custom_fields();
    let arguments = ["--runner", "ci", "--system", "jira", "--team", "OPS"];
    let (code, text) = machine.init(&arguments, &[]).await;
    assert_eq!(code, 1);
    let instruction = "An administrator of Jira must create the field Agent-Implement Status: ";
    assert!(text.contains(instruction), "{text}");
    assert!(text.contains("Plan Approved, "), "{text}");

    machine.vendors.jira().grant_admin();
    let (code, text) = machine.init(&arguments, &[]).await;
    assert_eq!(code, 0, "{text}");
    assert!(
        text.contains("Created the Jira field Agent-Implement Repo"),
        "{text}"
    );
    let mapped = &machine.export()["mappings"]["OPS"]["ticketingConfig"];
    assert_eq!(mapped["jql"], "project = \"OPS\"");
    assert_eq!(mapped["repoFieldValue"], "web.shop");

    // Another repository needs another option of the existing field.
    let repo = machine.vendors.github().repo("acme", "api");
    repo.seed(&[("README.md", "# API\n")], "Begin").unwrap();
    let other = ["--repo", "acme/api", "--project", "API"];
    let (code, text) = machine.init(&[&arguments[..], &other].concat(), &[]).await;
    assert_eq!(code, 0, "{text}");
    assert!(
        text.contains("Added to the Jira field Agent-Implement Repo: api."),
        "{text}"
    );
    machine.assert_requests_conform();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ticket_becomes_a_pull_request_after_the_next_steps() {
    let machine = NewMachine::start().await;
    let (code, text) = machine
        .init(
            &["--runner", "ci", "--system", "linear", "--team", "ENG"],
            &[],
        )
        .await;
    assert_eq!(code, 0, "{text}");
    let repo = machine.vendors.github().repo("acme", "web.shop");
    let workflows = repo.pulls().remove(0);
    assert!(text.contains(&format!(
        "Merge the workflows: {}",
        repo.pull_url(workflows.number)
    )));
    repo.merge_pull(workflows.number).unwrap();
    let script = Script::new().pass([ScriptStep::write("hello.txt", "hello\n")]);
    script
        .save(&machine.vendors.scripts_dir(), "ENG-1")
        .unwrap();
    let ticket = machine.vendors.linear().issue("ENG-1");
    ticket
        .title("Say hello")
        .describe("Please.")
        .add_label("Agent-Implement");

    let mut service = command(&[
        "serve",
        "--quick",
        "--port",
        "0",
        "--poll-interval-ms",
        "1000",
    ])
    .arg("--env-file")
    .arg(machine.path("agent-implement.env"))
    .stderr(Stdio::null())
    .spawn()
    .unwrap();
    wait_until("the pull request is open", || repo.pulls().len() == 2);
    service.kill().unwrap();
    service.wait().unwrap();
    let pull = repo
        .pulls()
        .into_iter()
        .find(|pull| pull.number != workflows.number);
    assert_eq!(pull.unwrap().title, "ENG-1: Say hello");
}

/// A program in a pseudo terminal, as a person uses it.
struct Terminal {
    child: Running,
    input: ChildStdin,
    shown: Arc<Mutex<String>>,
}

impl Terminal {
    /// Starts the program in a terminal of `script`.
    fn start(machine: &NewMachine, arguments: &str) -> Self {
        let program = env!("CARGO_BIN_EXE_agent-implement");
        let mut child = Command::new("script")
            .args(["-qefc", &format!("{program} {arguments}"), "/dev/null"])
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .envs(machine.addresses())
            .current_dir(machine.folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Self {
            input: child.stdin.take().unwrap(),
            shown: text_of(child.stdout.take().unwrap()),
            child: Running(child),
        }
    }

    fn shown(&self) -> String {
        self.shown.lock().unwrap().clone()
    }

    /// Waits for a text after what has been answered.
    fn wait_for(&self, text: &str) {
        let seen = self.shown().rfind('\u{1}').map_or(0, |at| at + 1);
        wait_until(text, || self.shown()[seen..].contains(text));
    }

    /// Waits for a prompt after what has been answered, and answers it.
    fn answer(&mut self, prompt: &str, answer: &str) {
        self.wait_for(prompt);
        // Marks what was seen, so that a prompt that comes again is waited for.
        self.shown.lock().unwrap().push('\u{1}');
        writeln!(self.input, "{answer}").unwrap();
    }

    fn end(mut self) -> (i32, String) {
        let status = self.child.0.wait().unwrap();
        std::thread::sleep(Duration::from_millis(100));
        (status.code().unwrap(), self.shown())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_answers_at_most_ten_questions_and_no_secret_is_shown() {
    let machine = NewMachine::start().await;
    let [github, linear, _, model] = machine.secrets();
    let key_file = machine.folder.path().join("key.txt");
    fs::write(&key_file, format!("{model}\n")).unwrap();
    let mut terminal = Terminal::start(&machine, "init");
    terminal.answer("Number [1]: ", "1");
    terminal.answer("Number [1]: ", "2");
    terminal.answer("GitHub token (not shown", "not-the-token");
    terminal.answer("GitHub token (not shown", &github);
    terminal.answer("Number or name [1]: ", "");
    terminal.answer("Linear API key (not shown", &linear);
    terminal.answer("Number or name [1]: ", "1");
    terminal.answer(
        "OAuth token of Claude Code (not shown",
        &format!("@{}", key_file.display()),
    );
    let (_, text) = terminal.end();
    assert!(text.contains("GitHub answered 401"), "{text}");
    assert!(text.contains("Stored project ENG."), "{text}");
    assert!(text.contains("Next:"), "{text}");
    assert!(!text.contains("not-the-token"), "{text}");
    machine.assert_no_secret(&text);
    assert_eq!(
        stored_secret(&machine.path("credentials/ANTHROPIC_API_KEY")),
        model
    );
    assert_eq!(
        stored_secret(&machine.path("credentials/GITHUB_TOKEN")),
        github
    );
}

/// Collects the output of a program.
fn text_of(mut output: ChildStdout) -> Arc<Mutex<String>> {
    let shown = Arc::new(Mutex::new(String::new()));
    let text = shown.clone();
    std::thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(length @ 1..) = output.read(&mut bytes) {
            let new = String::from_utf8_lossy(&bytes[..length]).into_owned();
            text.lock().unwrap().push_str(&new);
        }
    });
    shown
}

/// Program that is killed when it is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn stored_secret(path: &Path) -> String {
    fs::read_to_string(path).unwrap().trim_end().to_owned()
}

fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < TIMEOUT, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}
