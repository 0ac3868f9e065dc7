//! The section of README for a new user, followed to the letter: its commands are executed as they stand there.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use fake_vendors::scripted_agent::{Script, ScriptStep};
use fake_vendors::{FakeIssue, FakeVendors, FakeVendorsOptions};
use rustix::process::{Pid, Signal, kill_process};

const README: &str = include_str!("../../README.md");
const HEADING: &str = "## On your own repository in fifteen minutes";
const PROGRAM: &str = env!("CARGO_BIN_EXE_agent-implement");
const MODEL_KEY: &str = "sk-ant-of-the-reader";

/// Maximum number of answers that the section may cost its reader.
const MAX_ANSWERS: usize = 10;

/// Maximum time for a step.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Numbered step of the section.
struct Step {
    /// Text in one line.
    text: String,
    /// Command, if the step has one.
    command: Option<String>,
}

/// Reads the numbered steps of the section.
fn steps() -> Vec<Step> {
    let (_, rest) = README.split_once(HEADING).unwrap();
    let section = rest.split("\n## ").next().unwrap();
    let mut steps: Vec<Step> = Vec::new();
    let mut in_block = false;
    for line in section.lines() {
        let number = format!("{}. ", steps.len() + 1);
        if let Some(text) = line.strip_prefix(&number) {
            let (text, command) = (text.to_owned(), None);
            steps.push(Step { text, command });
            continue;
        }
        let Some(step) = steps.last_mut() else {
            continue;
        };
        match (line.trim(), in_block, line.starts_with("   ")) {
            ("```sh", false, true) => in_block = true,
            ("```", true, true) => in_block = false,
            (command, true, true) => {
                assert_eq!(step.command, None, "one command per step");
                step.command = Some(command.to_owned());
            }
            (text, false, true) => step.text += &format!(" {text}"),
            _ => {}
        }
    }
    steps
}

/// Text between the first pair of a mark.
fn marked(text: &str, mark: char) -> Vec<&str> {
    let parts: Vec<&str> = text.split(mark).collect();
    parts.into_iter().skip(1).step_by(2).collect()
}

/// Machine of the reader: the program is installed, and addresses of the fakes stand for the public ones.
struct Machine {
    vendors: FakeVendors,
    folder: tempfile::TempDir,
}

impl Machine {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let options = FakeVendorsOptions::new(folder.path().join("vendors"), PROGRAM);
        let vendors = FakeVendors::start(options).await.unwrap();
        let repo = vendors.github().repo("mona", "notes");
        repo.seed(&[("README.md", "# Notes\n")], "Begin").unwrap();
        fs::create_dir(folder.path().join("bin")).unwrap();
        symlink(PROGRAM, folder.path().join("bin/agent-implement")).unwrap();
        fs::create_dir(folder.path().join("home")).unwrap();
        Self { vendors, folder }
    }

    fn home(&self) -> PathBuf {
        self.folder.path().join("home")
    }

    /// Starts a command of the section in the reader's shell.
    fn start_command(&self, command: &str) -> Child {
        let bin = self.folder.path().join("bin");
        Command::new("sh")
            .args(["-c", &format!("exec {command}")])
            .current_dir(self.home())
            .env_clear()
            .env("PATH", format!("{}:/usr/bin:/bin", bin.display()))
            .env("HOME", self.home())
            .env("GITHUB_API_URL", self.vendors.github_api_url())
            .env("DOCKER_HOST", self.vendors.docker_url())
            .env("DATA_DIR_ON_HOST", self.home().join("agent-implement/data"))
            .env("PORT", "0")
            .env("POLL_INTERVAL_MS", "1000")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    }

    /// Answers a prompt: credentials where they are asked for, else Enter.
    fn answer(&self, prompt: &str) -> String {
        match prompt {
            text if text.contains("GitHub token") => {
                self.vendors.github().personal_token().to_owned()
            }
            text if text.contains("Anthropic") => MODEL_KEY.to_owned(),
            _ => String::new(),
        }
    }
}

/// Reads from a program up to its next prompt. `None` at its end.
fn read_to_prompt(output: &mut ChildStdout, shown: &mut String) -> Option<String> {
    let start = shown.len();
    let mut bytes = [0; 4096];
    loop {
        let length = output.read(&mut bytes).unwrap();
        if length == 0 {
            return None;
        }
        shown.push_str(&String::from_utf8_lossy(&bytes[..length]));
        if shown.ends_with(": ") {
            return Some(shown[start..].lines().last().unwrap().to_owned());
        }
    }
}

/// Executes the command that asks. Returns what it showed and the number of answers.
fn set_up(machine: &Machine, command: &str) -> (String, usize) {
    let mut child = machine.start_command(command);
    let mut input = child.stdin.take().unwrap();
    let mut output = child.stdout.take().unwrap();
    let (mut shown, mut answers) = (String::new(), 0);
    while let Some(prompt) = read_to_prompt(&mut output, &mut shown) {
        answers += 1;
        assert!(answers <= MAX_ANSWERS, "{shown}");
        writeln!(input, "{}", machine.answer(&prompt)).unwrap();
    }
    assert!(child.wait().unwrap().success(), "{shown}");
    (shown, answers)
}

async fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < TIMEOUT, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn file_issue(machine: &Machine) -> FakeIssue {
    let script = Script::new().pass([ScriptStep::write("hello.txt", "hello\n")]);
    script
        .save(&machine.vendors.scripts_dir(), "notes#1")
        .unwrap();
    let repo = machine.vendors.github().repo("mona", "notes");
    let issue = repo.issue(1).title("Say hello");
    issue.describe("Please.")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_steps_for_a_new_user_lead_to_a_pull_request() {
    let machine = Machine::start().await;
    let steps = steps();
    let [install, token, init, serve, label] = &steps[..] else {
        panic!("{} steps", steps.len());
    };
    assert!(install.text.contains("`PATH`"), "{}", install.text);
    let issue = file_issue(&machine);

    let command = init.command.as_deref().unwrap();
    let (shown, answers) = tokio::task::block_in_place(|| set_up(&machine, command));
    assert_eq!(answers, 5, "{shown}");
    // The permissions of the section are those that the command names.
    for permission in marked(&token.text, '*') {
        assert!(shown.contains(permission), "{permission}: {shown}");
    }
    assert!(!shown.contains("Actions secret"), "{shown}");
    let command = serve.command.as_deref().unwrap();
    assert!(
        shown.contains(&format!("Start the service: {command}")),
        "{shown}"
    );

    let (_, env_file) = command.split_once(" --env-file ").unwrap();
    let why = format!("agent-implement why --env-file {env_file} ISSUE");
    assert!(shown.contains(&why), "{shown}");

    let mut service = machine.start_command(command);
    let repo = machine.vendors.github().repo("mona", "notes");
    let [name] = marked(&label.text, '`')[..] else {
        panic!("{}", label.text);
    };
    let issue = issue.add_label(name);
    wait_until("the pull request is open", || !repo.pulls().is_empty()).await;
    let pull = repo.pulls().remove(0);
    assert_eq!(pull.title, "notes#1: Say hello");
    let link = repo.pull_url(pull.number);
    wait_until("the issue links it", || {
        issue.comments().iter().any(|text| text.contains(&link))
    })
    .await;
    kill_process(
        Pid::from_raw(service.id().try_into().unwrap()).unwrap(),
        Signal::TERM,
    )
    .unwrap();
    assert!(service.wait().unwrap().success());
}
