//! Output and exit code of the demo.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::Receiver;
use std::time::Duration;

use fake_vendors::demo::{self, Tracker};
use fake_vendors::scripted_agent::{Script, ScriptStep};
use fake_vendors::{FakeVendors, FakeVendorsOptions};

use rustix::process::{Pid, Signal, kill_process};

use crate::process::client_builder;
use crate::test_env::{IMPLEMENTATION_WORKFLOW, PLANNING_WORKFLOW};
use vendors::http::percent_encode;

/// Maximum wait for a line of a demo.
const TIMEOUT: Duration = Duration::from_secs(120);

const PROGRAM: &str = env!("CARGO_BIN_EXE_agent-implement");

fn demo(arguments: &[&str]) -> Output {
    let mut command = Command::new(PROGRAM);
    command.args(["demo", "--exit-when-idle"]).args(arguments);
    command.stdin(Stdio::null()).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// Comments of runs in session machines, each list in order.
const IN_SESSIONS: &[&[&str]] = &[
    &[
        "DEMO-1 gets a comment: Session machine created. Cloning repo and running setup...",
        "DEMO-1 gets a comment: Environment ready. Implementation is running...",
        "DEMO-1 gets a comment: Finished. PR #",
        "DEMO-1 gets a comment: Pull request opened: ",
        "DEMO-1 gets a comment: Session machine cleaned up. Duration: ",
    ],
    &[
        "DEMO-3 gets a comment: Session machine created. Cloning repo and running setup...",
        "DEMO-3 gets a comment: Environment ready. Implementation is running...",
        "DEMO-3 gets a comment: Session failed: ",
        "DEMO-3 gets a comment: 🔒 Blocked by security guardrail",
        "DEMO-3 gets a comment: Session machine cleaned up. Duration: ",
    ],
];

#[test]
fn demo_succeeds_in_machines_and_in_containers() {
    for runner in ["vm", "local"] {
        let output = demo(&["--runner", runner]);
        let stdout = text(&output.stdout);
        assert_eq!(
            (output.status.code(), text(&output.stderr)),
            (Some(0), ""),
            "{stdout}"
        );
        for chain in ON_BOTH.iter().chain(ON_LINEAR).chain(IN_SESSIONS) {
            assert_chain(stdout, chain);
        }
    }
}

/// Checks that the lines of a chain occur in this order.
fn assert_chain(output: &str, chain: &[&str]) {
    let mut rest = output;
    for line in chain {
        let Some((_, after)) = rest.split_once(line) else {
            panic!("'{line}' is missing or out of order in\n{output}");
        };
        rest = after;
    }
}

/// Expected output with Linear, each list in order.
const ON_LINEAR: &[&[&str]] = &[
    &[
        "fake Linear, GitHub and Slack",
        "Linear has these tickets, each with the label Agent-Implement:",
        "PLAN-1 gets the label Agent-Planning",
        "PLAN-1 gets the label Plan-Complete",
        "PLAN-1 gets the label Agent-Working",
        "PLAN-1 gets the label Ready for Review",
    ],
    &[
        "DEMO-3 gets the label Agent-Working",
        "DEMO-3 loses the label Agent-Working",
    ],
    &["DEMO-3 loses the label Agent-Implement"],
    &[
        "PLAN-1 gets a comment: ## What is wanted",
        "PLAN-1 gets a comment: ## Steps",
    ],
];

/// Expected output with Jira, each list in order.
const ON_JIRA: &[&[&str]] = &[
    &[
        "fake Jira, GitHub and Slack",
        "Jira has these tickets, each with the value Ready in the field Agent-Implement Status:",
        "PLAN-1 has its Agent-Implement Status set to Planning",
        "PLAN-1 has its Agent-Implement Status set to Plan Approved",
        "PLAN-1 has its Agent-Implement Status set to Implementing",
        "PLAN-1 has its Agent-Implement Status set to PR Ready",
    ],
    &[
        "DEMO-3 has its Agent-Implement Status set to Implementing",
        "DEMO-3 has its Agent-Implement Status set to Implementation Failed",
    ],
    &[
        "PLAN-1 gets a comment: What is wanted",
        "PLAN-1 gets a comment: Steps",
    ],
];

/// Expected output with either system, each list in order.
const ON_BOTH: &[&[&str]] = &[
    &["DEMO-2 waits: Blocked by DEMO-1, still open."],
    &[
        "DEMO-3 run 1: reserved for implementation as ",
        "DEMO-3 run 1: step push failed",
        "DEMO-3 run 1: failed",
        "DEMO-3 gets a comment: 🔒 Blocked by security guardrail",
    ],
    &[
        "DEMO-1 gets a comment: Pull request opened: ",
        "DEMO-1 has its pull request: http://127.0.0.1:",
        "commit ",
        "PLAN-1 has its pull request: http://127.0.0.1:",
        "DEMO-3: the guard blocked the push of a secret, as expected.",
        "Push blocked: 1 sensitive file(s) would be committed:",
        "- publish.sh: cloud credentials (AWS access key)",
        "DEMO-2 still waits. Blocked by DEMO-1, still open.",
    ],
    &[
        "DEMO-4  Greet as fits the hour      asks a question, and waits for the answer",
        "DEMO-4 run 1: ended with a question",
        "DEMO-4 asks. The demo answers: Good evening",
        "DEMO-4 gets a comment: Answered by an operator: Good evening",
        "DEMO-4 run 2: completed",
        "DEMO-4 has its pull request: http://127.0.0.1:",
        "+echo \"Good evening!\"",
    ],
    &["DEMO-4 gets a comment: The implementation needs an answer from you:"],
    &[
        "PLAN-1 gets a comment: The plan is inside the bounds of the project",
        "PLAN-1 run 2: completed",
    ],
    &[
        "PLAN-2  Add a license               is planned first, and its plan waits for approval",
        "PLAN-2 waits: The plan waits for an approval. The plan changes LICENSE, which needs a person.",
        "PLAN-2 has a plan. The demo approves it.",
        "PLAN-2 gets a comment: Plan approved by an operator.",
        "PLAN-2 run 2: completed",
        "PLAN-2 has its pull request: http://127.0.0.1:",
        "+Zero-Clause BSD",
    ],
];

#[test]
fn demo_succeeds_on_either_system() {
    for (arguments, words, others) in [
        (&[][..], ON_LINEAR, "Jira"),
        (&["--system", "jira"], ON_JIRA, "Linear"),
    ] {
        let output = demo(arguments);
        let stdout = text(&output.stdout);
        assert_eq!(
            (output.status.code(), text(&output.stderr)),
            (Some(0), ""),
            "{stdout}"
        );
        for chain in ON_BOTH.iter().chain(words) {
            assert_chain(stdout, chain);
        }
        assert!(
            !stdout.contains(others),
            "the output mentions {others}:\n{stdout}"
        );
    }
}

#[test]
fn names_a_ticket_with_an_unexpected_outcome_and_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    create_vendors(dir.path(), |vendors| {
        let script = Script::new().pass([ScriptStep::ExhaustTurns]);
        script
            .save(&vendors.scripts_dir(), demo::DEMO_PLAIN)
            .unwrap();
    });
    let output = demo(&["--data-dir", dir.path().to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        text(&output.stderr),
        "agent-implement: the demo did not have the expected outcome: DEMO-1: the implementation run \
         failed: model invocation failed with exit code 1: Reached max turns (50)\n"
    );
}

/// Creates the demo's fake vendors in a folder and changes their data before the demo runs.
fn create_vendors(dir: &Path, change: impl FnOnce(&FakeVendors)) {
    let workflows = [
        (
            ".github/workflows/agent-implement.yml",
            IMPLEMENTATION_WORKFLOW,
        ),
        (".github/workflows/agent-plan.yml", PLANNING_WORKFLOW),
    ];
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let options = FakeVendorsOptions::new(dir.join("vendors"), PROGRAM);
        let vendors = FakeVendors::start(options).await.unwrap();
        demo::seed_demo(&vendors, Tracker::Linear, &workflows).unwrap();
        change(&vendors);
        vendors.stop().await;
    });
}

#[test]
fn folder_stays_with_its_first_ticketing_system() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().to_str().unwrap();
    let first = demo(&["--system", "jira", "--data-dir", folder]);
    assert!(first.status.success(), "{}", text(&first.stderr));
    let second = demo(&["--system", "jira", "--data-dir", folder]);
    assert!(second.status.success(), "{}", text(&second.stderr));
    assert!(text(&second.stdout).contains("DEMO-1 has its pull request"));
    let other = demo(&["--data-dir", folder]);
    assert_eq!(other.status.code(), Some(1));
    let reason = "has its tickets in Jira: add --system jira, or use another folder";
    assert!(
        text(&other.stderr).contains(reason),
        "{}",
        text(&other.stderr)
    );
}

/// A demo that goes on until it is stopped.
struct EndlessDemo {
    child: Child,
    lines: Receiver<String>,
    /// What was printed so far.
    output: String,
}

impl EndlessDemo {
    fn start(folder: &str) -> Self {
        let mut command = Command::new(PROGRAM);
        command.args(["demo", "--data-dir", folder]);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let lines = stdout.lines().map_while(Result::ok);
            lines.for_each(|line| drop(sender.send(line)));
        });
        Self {
            child,
            lines,
            output: String::new(),
        }
    }

    /// Returns the first line with this text, and waits for it if necessary.
    fn wait_for(&mut self, text: &str) -> String {
        if let Some(line) = self.output.lines().find(|line| line.contains(text)) {
            return line.to_owned();
        }
        loop {
            let line = self.lines.recv_timeout(TIMEOUT);
            let line = line.unwrap_or_else(|_| panic!("no '{text}' in\n{}", self.output));
            self.output.push_str(&line);
            self.output.push('\n');
            if line.contains(text) {
                return line;
            }
        }
    }

    fn stop(mut self) -> String {
        kill_process(Pid::from_child(&self.child), Signal::INT).unwrap();
        self.child.wait().unwrap();
        self.output.extend(self.lines.iter());
        self.output
    }
}

/// The story goes on: a person merges the pull request, and the blocked ticket starts. A demo that is started again in
/// its folder prints only what is new, and resolves the conflict that the merge has caused in another pull request.
#[tokio::test(flavor = "multi_thread")]
async fn a_merge_on_the_page_of_the_pull_request_starts_the_blocked_ticket() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().to_str().unwrap();
    let mut demo = EndlessDemo::start(folder);
    let panel = demo.wait_for("/admin   (access code ");
    assert!(
        panel.starts_with("  panel        http://127.0.0.1:"),
        "{panel}"
    );
    let next = demo.wait_for("Next: open http://127.0.0.1:");
    assert!(next.ends_with("and select Merge pull request. DEMO-2 starts then."));
    for line in ["DEMO-1 has its pull request", "    +++ b/greet.sh"] {
        assert!(demo.output.contains(line), "{line}\n{}", demo.output);
    }
    let url = next.split(' ').nth(2).unwrap();
    let client = client_builder().build().unwrap();
    let page = client.get(url).send().await.unwrap().text().await.unwrap();
    assert!(
        page.contains("<button>Merge pull request</button>"),
        "{page}"
    );
    let merged = client.post(format!("{url}/merge")).send().await.unwrap();
    let page = merged.text().await.unwrap();
    assert!(page.contains("merged: "), "{page}");
    assert!(!page.contains("<button>"), "{page}");
    demo.wait_for("DEMO-1 is completed: its pull request was merged");
    demo.wait_for("DEMO-2 run 1: completed");
    demo.wait_for("DEMO-2 has its pull request");
    let output = demo.stop();
    assert_eq!(output.matches("DEMO-1 run 1: reserved").count(), 1);

    let mut resumed = EndlessDemo::start(folder);
    resumed.wait_for("Resuming. What was printed before is left out.");
    resumed.wait_for("PLAN-1 run 3: reserved for conflict as ");
    resumed.wait_for("PLAN-1 run 3: completed");
    resumed.wait_for("DEMO-2 has its pull request");
    let output = resumed.stop();
    assert!(!output.contains("DEMO-1 run 1"), "{output}");
}

/// Without `--exit-when-idle`, a person answers with the printed command, and approves with the printed comment on the
/// page of the ticket.
#[tokio::test(flavor = "multi_thread")]
async fn a_person_answers_and_approves_as_printed() {
    let dir = tempfile::tempdir().unwrap();
    let mut demo = EndlessDemo::start(dir.path().to_str().unwrap());
    demo.wait_for("Next: answer DEMO-4 on http://127.0.0.1:");
    let answer = demo.wait_for("or with agent-implement answer ");
    demo.wait_for("Next: approve PLAN-2 on http://127.0.0.1:");
    let approve = demo.wait_for("with the comment '/agent-implement ");
    for line in [
        "DEMO-4 waits for a person. The last run asked a question.",
        "PLAN-2 waits for a person. The plan waits for an approval.",
    ] {
        assert!(demo.output.contains(line), "{line}\n{}", demo.output);
    }
    let answer = answer.replace("Good evening", "Good night");
    let (_, command) = answer.split_once("or with agent-implement ").unwrap();
    let mut shell = Command::new("sh");
    let output = shell.args(["-c", &format!("'{PROGRAM}' {command}")]);
    let output = output.output().unwrap();
    assert!(output.status.success(), "{command}: {output:?}");

    let (_, comment) = approve.split_once("with the comment '").unwrap();
    let (comment, url) = comment.split_once("' on ").unwrap();
    let url = url.trim_end_matches(',');
    let client = client_builder().build().unwrap();
    let page = client.get(url).send().await.unwrap().text().await.unwrap();
    assert!(page.contains("<button>Comment</button>"), "{page}");
    let form = format!("comment={}", percent_encode(comment));
    let sent = client.post(url).body(form).send().await.unwrap();
    let page = sent.text().await.unwrap();
    assert!(page.contains(&format!("<pre>{comment}</pre>")), "{page}");
    demo.wait_for("DEMO-4 has its pull request");
    demo.wait_for("+echo \"Good night!\"");
    demo.wait_for("PLAN-2 has its pull request");
    let output = demo.stop();
    assert!(!output.contains("The demo a"), "{output}");
}

#[test]
fn a_missing_git_is_named() {
    let empty = tempfile::tempdir().unwrap();
    let mut command = Command::new(PROGRAM);
    command
        .args(["demo", "--exit-when-idle"])
        .env("PATH", empty.path());
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let error = text(&output.stderr);
    assert!(
        error.contains("the demo needs git, which was not found in PATH"),
        "{error}"
    );
}

#[test]
fn demo_succeeds_with_issues_of_github() {
    let output = demo(&["--system", "github"]);
    let stdout = text(&output.stdout);
    assert_eq!(
        (output.status.code(), text(&output.stderr)),
        (Some(0), ""),
        "{stdout}"
    );
    for line in [
        "greeter#2  Say goodbye, too            waits, because greeter#1 blocks it",
        "greeter#2 waits: Blocked by greeter#1, still open.",
        "greeter#3 gets a comment: 🔒 Blocked by security guardrail",
        "motto#1 gets the label Plan-Complete",
        "motto#1 gets a comment: Pull request opened: ",
        "greeter#4 gets the label Agent-Waiting",
        "greeter#4 asks. The demo answers: Good evening",
        "greeter#4 gets a comment: Pull request opened: ",
        "motto#2 has a plan. The demo approves it.",
        "motto#2 gets the label Plan-Approved",
        "motto#2 gets a comment: Pull request opened: ",
        "greeter#1 has its pull request: ",
    ] {
        assert!(stdout.contains(line), "{line}: {stdout}");
    }
}
