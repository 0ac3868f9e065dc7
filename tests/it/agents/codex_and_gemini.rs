//! Codex and Gemini CLI: a plain run, a run that works, a refused key, the turn cap, and what their
//! roles may do.

use std::time::Duration;

use domain::report::FailureCode;
use engine::clock::Clock;
use run::agent::{AgentCli, AgentRole};

use super::agent_harness::{AgentHarness, agents_dir};
use crate::fake_model::{ModelTurn, RATE_LIMIT_RESET};

const BOTH: [AgentCli; 2] = [AgentCli::Codex, AgentCli::Gemini];

/// The key that the model must have been shown.
fn key(cli: AgentCli) -> &'static str {
    match cli {
        AgentCli::Codex => "Bearer the-openai-key",
        _ => "the-gemini-key",
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plain_run_and_one_that_works_are_answered_with_their_usage() {
    let Some(agents) = agents_dir("the real codex and gemini at work") else {
        return;
    };
    for cli in BOTH {
        let stage = AgentHarness::new(&agents, cli, [ModelTurn::text("Nothing to do.")]).await;
        let outcome = stage.run_pass(AgentRole::Implement, 5).await;
        assert_eq!(outcome.text(), "Nothing to do.");
        assert_eq!(outcome.usage.turns, 1);
        let asked = &stage.model.requests()[0];
        assert_eq!(asked.key, key(cli));
        assert!(asked.contains("These are the rules of the house."));
        assert!(asked.contains("Do it."));

        let stage = AgentHarness::new(&agents, cli, []).await;
        let hello = stage.path("hello.txt");
        stage.model.set_turns([
            ModelTurn::write_file(&hello, "hi\n"),
            ModelTurn::run_command("echo more >> hello.txt"),
            ModelTurn::text("All done."),
        ]);
        let outcome = stage.run_pass(AgentRole::Implement, 5).await;
        assert_eq!(outcome.text(), "All done.");
        let written = std::fs::read_to_string(hello).unwrap();
        assert_eq!(written, "hi\nmore\n", "{}", outcome.log);
        let usage = outcome.usage;
        assert_eq!(
            (usage.turns, usage.input_tokens, usage.output_tokens),
            (3, 300, 126),
            "{cli:?}"
        );
        assert!(!outcome.log.contains("/tree/"), "{}", outcome.log);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_key_and_a_used_up_limit_are_the_providers() {
    let Some(agents) = agents_dir("the real codex and gemini refused by their providers") else {
        return;
    };
    let unavailable = Some(FailureCode::ProviderUnavailable);
    for cli in BOTH {
        let refused = ModelTurn::http_error(401, "API key not valid");
        let stage = AgentHarness::new(&agents, cli, [refused]).await;
        let outcome = stage.run_pass(AgentRole::Implement, 5).await;
        let (code, reason) = outcome.failure();
        assert_eq!(code, unavailable);
        assert!(
            reason.ends_with(": the provider does not accept the model credentials"),
            "{cli:?}: {reason}"
        );
    }
    let limited = ModelTurn::HttpError(429, vec![("x-limited", "1".to_owned())], "limit reached");
    let stage = AgentHarness::new(&agents, AgentCli::Codex, [limited]).await;
    let outcome = stage.run_pass(AgentRole::Implement, 5).await;
    let (code, reason) = outcome.failure();
    assert_eq!(code, Some(FailureCode::ProviderLimit), "{reason}");
    assert!(reason.contains("hit your usage limit"), "{reason}");
    // It tells people, who do without seconds.
    let minute = Duration::from_secs(60);
    let retry_at = outcome.retry_at().unwrap();
    let lifted = Clock::System.now() + RATE_LIMIT_RESET;
    assert!(
        retry_at <= lifted && retry_at + 3 * minute >= lifted,
        "{retry_at}: {reason}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn work_without_end_is_ended_at_the_turn_cap_and_counted() {
    let Some(agents) = agents_dir("the real codex and gemini at the turn cap") else {
        return;
    };
    for cli in BOTH {
        let stage = AgentHarness::new(&agents, cli, [ModelTurn::run_command("true")]).await;
        let outcome = stage.run_pass(AgentRole::Implement, 2).await;
        let (code, reason) = outcome.failure();
        assert_eq!(code, Some(FailureCode::MaxTurnsExhausted), "{cli:?}");
        assert!(reason.ends_with(": Reached max turns (2)"), "{reason}");
        assert!(outcome.usage.turns >= 2, "{:?}", outcome.usage);
        assert!(outcome.usage.input_tokens >= 200, "{:?}", outcome.usage);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reviewer_changes_nothing_and_a_planner_writes_in_its_folder() {
    let Some(agents) = agents_dir("the roles of the real codex and gemini") else {
        return;
    };
    for cli in BOTH {
        let stage = AgentHarness::new(&agents, cli, []).await;
        stage.model.set_turns([
            ModelTurn::write_file(stage.path("hello.txt"), "hi\n"),
            ModelTurn::text("{\"approved\":true,\"blocking\":[]}"),
        ]);
        let outcome = stage.run_pass(AgentRole::Review, 5).await;
        assert_eq!(outcome.text(), "{\"approved\":true,\"blocking\":[]}");
        assert!(!stage.path("hello.txt").exists(), "{cli:?}");
        assert!(stage.model.requests()[0].contains("requiredFix"), "{cli:?}");

        let stage = AgentHarness::new(&agents, cli, []).await;
        std::fs::create_dir_all(stage.path("ai-output/comments")).unwrap();
        let plan = stage.path("ai-output/comments/01-plan.md");
        stage.model.set_turns([
            ModelTurn::write_file(&plan, "1.\n"),
            ModelTurn::write_file(stage.path("../outside.txt"), "no\n"),
            ModelTurn::text("Planned."),
        ]);
        let folder = "ai-output";
        let outcome = stage.run_pass(AgentRole::Plan { folder }, 5).await;
        assert_eq!(outcome.text(), "Planned.");
        assert_eq!(std::fs::read_to_string(plan).unwrap(), "1.\n");
        assert!(!stage.path("../outside.txt").exists(), "{cli:?}");
    }
}
