//! The demo, as somebody who tries the program for the first time starts it and reads it.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use fake_vendors::demo::{self, Tracker};
use fake_vendors::scripted_agent::{Script, ScriptStep};
use fake_vendors::{FakeVendors, FakeVendorsOptions};

use crate::test_env::{IMPLEMENTATION_WORKFLOW, PLANNING_WORKFLOW};

const PROGRAM: &str = env!("CARGO_BIN_EXE_agent-implement");

fn demo(arguments: &[&str]) -> Output {
    let mut command = Command::new(PROGRAM);
    command.args(["demo", "--exit-when-idle"]).args(arguments);
    command.stdin(Stdio::null()).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// What the sessions of a run in a machine tell, in order.
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
fn the_story_is_told_in_machines_and_in_containers_too() {
    for runner in ["vm", "local"] {
        let told = demo(&["--runner", runner]);
        let said = text(&told.stdout);
        assert_eq!(
            (told.status.code(), text(&told.stderr)),
            (Some(0), ""),
            "{said}"
        );
        for chain in ON_BOTH.iter().chain(ON_LINEAR).chain(IN_SESSIONS) {
            assert_chain(said, chain);
        }
    }
}

fn assert_chain(said: &str, chain: &[&str]) {
    let mut rest = said;
    for line in chain {
        let Some((_, after)) = rest.split_once(line) else {
            panic!("'{line}' does not stand in its place of\n{said}");
        };
        rest = after;
    }
}

/// Chains of what is told, each in its order: on Linear,
const ON_LINEAR: &[&[&str]] = &[
    &[
        "stand-ins for Linear, GitHub and Slack",
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

/// on Jira,
const ON_JIRA: &[&[&str]] = &[
    &[
        "stand-ins for Jira, GitHub and Slack",
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

/// and on both.
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
        "DEMO-3 was kept from pushing a secret, as it should be.",
        "Push blocked: 1 sensitive file(s) would be committed:",
        "- publish.sh: cloud credentials (AWS access key)",
        "DEMO-2 still waits. Blocked by DEMO-1, still open.",
    ],
];

#[test]
fn the_story_is_told_to_its_good_end_on_either_system() {
    for (arguments, words, others) in [
        (&[][..], ON_LINEAR, "Jira"),
        (&["--system", "jira"], ON_JIRA, "Linear"),
    ] {
        let told = demo(arguments);
        let said = text(&told.stdout);
        assert_eq!(
            (told.status.code(), text(&told.stderr)),
            (Some(0), ""),
            "{said}"
        );
        for chain in ON_BOTH.iter().chain(words) {
            assert_chain(said, chain);
        }
        assert!(!said.contains(others), "{others} is spoken of:\n{said}");
    }
}

#[test]
fn a_ticket_that_comes_to_another_end_is_named_with_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    changed(dir.path(), |town| {
        let script = Script::new().pass([ScriptStep::ExhaustTurns]);
        script.save(&town.scripts_dir(), demo::DEMO_PLAIN).unwrap();
    });
    let told = demo(&["--data-dir", dir.path().to_str().unwrap()]);
    assert_eq!(told.status.code(), Some(1));
    assert_eq!(
        text(&told.stderr),
        "agent-implement: the demo did not end as its story does: the implementation of DEMO-1 \
         failed: model invocation failed with exit code 1: Reached max turns (50)\n"
    );
}

/// Founds the demo's town in a folder and changes it before anybody else comes.
fn changed(dir: &Path, change: impl FnOnce(&FakeVendors)) {
    let workflows = [
        (
            ".github/workflows/agent-implement.yml",
            IMPLEMENTATION_WORKFLOW,
        ),
        (".github/workflows/agent-plan.yml", PLANNING_WORKFLOW),
    ];
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let options = FakeVendorsOptions::new(dir.join("town"), PROGRAM);
        let town = FakeVendors::start(options).await.unwrap();
        demo::seed_demo(&town, Tracker::Linear, &workflows).unwrap();
        change(&town);
        town.stop().await;
    });
}

#[test]
fn a_folder_goes_on_with_the_system_that_it_began_with() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().to_str().unwrap();
    let began = demo(&["--system", "jira", "--data-dir", folder]);
    assert!(began.status.success(), "{}", text(&began.stderr));
    let again = demo(&["--system", "jira", "--data-dir", folder]);
    assert!(again.status.success(), "{}", text(&again.stderr));
    assert!(text(&again.stdout).contains("DEMO-1 has its pull request"));
    let other = demo(&["--data-dir", folder]);
    assert_eq!(other.status.code(), Some(1));
    let reason = "has its tickets on Jira: add --system jira, or take another folder";
    assert!(
        text(&other.stderr).contains(reason),
        "{}",
        text(&other.stderr)
    );
}
