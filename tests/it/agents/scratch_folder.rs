//! The scratch folder of a run: each program opens attachments there in every role, and leaves questions there.

use std::path::PathBuf;

use requires::requires;
use run::agent::{AgentCli, AgentRole};

use super::agent_harness::{AgentHarness, agents_dir};
use crate::fake_model::ModelTurn;

const ALL: [AgentCli; 3] = [AgentCli::Claude, AgentCli::Codex, AgentCli::Gemini];
const ATTACHMENT: &str = "The button is green in the mock.";
const QUESTIONS: &str = r#"{"questions":[{"text":"Which button?"}]}"#;
const APPROVAL: &str = r#"{"approved":true,"blocking":[]}"#;

/// Writes an attachment and returns the scratch folder.
fn scratch(harness: &AgentHarness) -> PathBuf {
    let tree = harness.folders.work_tree();
    let scratch = tree.parent().unwrap().join("scratch");
    std::fs::create_dir_all(scratch.join("attachments")).unwrap();
    std::fs::create_dir_all(tree.join("ai-output")).unwrap();
    std::fs::write(scratch.join("attachments/01-mock.txt"), ATTACHMENT).unwrap();
    scratch
}

#[requires("agents")]
#[tokio::test(flavor = "multi_thread")]
async fn each_program_reads_attachments_and_asks() {
    let agents = agents_dir();
    let folder = "ai-output";
    for cli in ALL {
        for role in [AgentRole::Implement, AgentRole::Plan { folder }] {
            let harness = AgentHarness::new(&agents, cli, []).await;
            let scratch = scratch(&harness);
            let questions = scratch.join("question.json");
            harness.model.set_turns([
                ModelTurn::read_file(scratch.join("attachments/01-mock.txt")),
                ModelTurn::write_file(&questions, QUESTIONS),
                ModelTurn::text("I have a question."),
            ]);
            let outcome = harness.run_pass(role, 9).await;
            assert_eq!(outcome.text(), "I have a question.");
            let requests = harness.model.requests();
            let has_seen = requests.iter().any(|request| request.contains(ATTACHMENT));
            assert!(has_seen, "{cli:?} {role:?}: {}", outcome.log);
            let written = std::fs::read_to_string(&questions);
            let written = written.unwrap_or_else(|_| panic!("{cli:?} {role:?}: {}", outcome.log));
            assert_eq!(written.trim_end(), QUESTIONS);
        }
    }
}

#[requires("agents")]
#[tokio::test(flavor = "multi_thread")]
async fn a_reviewer_reads_attachments_and_does_not_ask() {
    let agents = agents_dir();
    // The fake model approves each review of Claude Code at once.
    for cli in [AgentCli::Codex, AgentCli::Gemini] {
        let harness = AgentHarness::new(&agents, cli, []).await;
        let scratch = scratch(&harness);
        harness.model.set_turns([
            ModelTurn::read_file(scratch.join("attachments/01-mock.txt")),
            ModelTurn::write_file(scratch.join("question.json"), QUESTIONS),
            ModelTurn::text(APPROVAL),
        ]);
        let outcome = harness.run_pass(AgentRole::Review, 9).await;
        assert!(outcome.result.is_ok(), "{cli:?}: {outcome:?}");
        let requests = harness.model.requests();
        let has_seen = requests.iter().any(|request| request.contains(ATTACHMENT));
        assert!(has_seen, "{cli:?}: {}", outcome.log);
        assert!(!scratch.join("question.json").exists(), "{cli:?}");
    }
}

#[requires("agents")]
#[tokio::test(flavor = "multi_thread")]
async fn a_planner_writes_only_questions_into_the_scratch_folder() {
    let agents = agents_dir();
    // Codex knows writable folders only.
    for cli in [AgentCli::Claude, AgentCli::Gemini] {
        let harness = AgentHarness::new(&agents, cli, []).await;
        let scratch = scratch(&harness);
        let others = [
            scratch.join("attachments/01-mock.txt"),
            scratch.join("question.json.md"),
            scratch.join("x/question.json"),
        ];
        let turns = others
            .iter()
            .map(|path| ModelTurn::write_file(path, "no\n"));
        let turns: Vec<ModelTurn> = turns.chain([ModelTurn::text("Planned.")]).collect();
        harness.model.set_turns(turns);
        let folder = "ai-output";
        let outcome = harness.run_pass(AgentRole::Plan { folder }, 9).await;
        assert_eq!(outcome.text(), "Planned.");
        let attachment = std::fs::read_to_string(&others[0]).unwrap();
        assert_eq!(attachment, ATTACHMENT, "{cli:?}");
        for other in &others[1..] {
            assert!(!other.exists(), "{cli:?}: {other:?}");
        }
    }
}
