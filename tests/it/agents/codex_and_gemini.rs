//! Codex and Gemini CLI: plain passes, rejected keys, the turn limit, and the permissions of each role.

use std::time::Duration;

use domain::report::FailureCode;
use engine::clock::Clock;
use requires::requires;
use run::agent::{AgentCli, AgentRole};

use super::agent_harness::{AgentHarness, agents_dir};
use crate::fake_model::{ModelTurn, RATE_LIMIT_RESET};

const BOTH: [AgentCli; 2] = [AgentCli::Codex, AgentCli::Gemini];

/// Credential that the model must receive.
fn key(cli: AgentCli) -> &'static str {
    match cli {
        AgentCli::Codex => "Bearer the-openai-key",
        _ => "the-gemini-key",
    }
}

#[requires("agents")]
#[tokio::test(flavor = "multi_thread")]
async fn returns_text_and_usage_of_a_pass() {
    let agents = agents_dir();
    for cli in BOTH {
        let harness = AgentHarness::new(&agents, cli, [ModelTurn::text("Nothing to do.")]).await;
        let outcome = harness.run_pass(AgentRole::Implement, 5).await;
        assert_eq!(outcome.text(), "Nothing to do.");
        assert_eq!(outcome.usage.turns, 1);
        let request = &harness.model.requests()[0];
        assert_eq!(request.key, key(cli));
        assert!(request.contains("These are the rules."));
        assert!(request.contains("Do it."));

        let harness = AgentHarness::new(&agents, cli, []).await;
        let hello = harness.path("hello.txt");
        harness.model.set_turns([
            ModelTurn::write_file(&hello, "hi\n"),
            ModelTurn::run_command("echo more >> hello.txt"),
            ModelTurn::text("All done."),
        ]);
        let outcome = harness.run_pass(AgentRole::Implement, 5).await;
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

#[requires("agents")]
#[tokio::test(flavor = "multi_thread")]
async fn reports_rejected_keys_and_limits_as_provider_failures() {
    let agents = agents_dir();
    let unavailable = Some(FailureCode::ProviderUnavailable);
    for cli in BOTH {
        let refused = ModelTurn::http_error(401, "API key not valid");
        let harness = AgentHarness::new(&agents, cli, [refused]).await;
        let outcome = harness.run_pass(AgentRole::Implement, 5).await;
        let (code, reason) = outcome.failure();
        assert_eq!(code, unavailable);
        assert!(
            reason.ends_with(": the provider rejected the model credentials"),
            "{cli:?}: {reason}"
        );
    }
    let limited = ModelTurn::HttpError(429, vec![("x-limited", "1".to_owned())], "limit reached");
    let harness = AgentHarness::new(&agents, AgentCli::Codex, [limited]).await;
    let outcome = harness.run_pass(AgentRole::Implement, 5).await;
    let (code, reason) = outcome.failure();
    assert_eq!(code, Some(FailureCode::ProviderLimit), "{reason}");
    assert!(reason.contains("hit your usage limit"), "{reason}");
    // The CLI prints the reset time for people, without seconds.
    let minute = Duration::from_secs(60);
    let retry_at = outcome.retry_at().unwrap();
    let reset_at = Clock::System.now() + RATE_LIMIT_RESET;
    assert!(
        retry_at <= reset_at && retry_at + 3 * minute >= reset_at,
        "{retry_at}: {reason}"
    );
}

#[requires("agents")]
#[tokio::test(flavor = "multi_thread")]
async fn ends_a_pass_at_the_turn_limit_and_counts_its_usage() {
    let agents = agents_dir();
    for cli in BOTH {
        let harness = AgentHarness::new(&agents, cli, [ModelTurn::run_command("true")]).await;
        let outcome = harness.run_pass(AgentRole::Implement, 2).await;
        let (code, reason) = outcome.failure();
        assert_eq!(code, Some(FailureCode::MaxTurnsExhausted), "{cli:?}");
        assert!(reason.ends_with(": Reached max turns (2)"), "{reason}");
        assert!(outcome.usage.turns >= 2, "{:?}", outcome.usage);
        assert!(outcome.usage.input_tokens >= 200, "{:?}", outcome.usage);
    }
}

#[requires("agents")]
#[tokio::test(flavor = "multi_thread")]
async fn restricts_reviewers_and_planners() {
    let agents = agents_dir();
    for cli in BOTH {
        let harness = AgentHarness::new(&agents, cli, []).await;
        harness.model.set_turns([
            ModelTurn::write_file(harness.path("hello.txt"), "hi\n"),
            ModelTurn::text("{\"approved\":true,\"blocking\":[]}"),
        ]);
        let outcome = harness.run_pass(AgentRole::Review, 5).await;
        assert_eq!(outcome.text(), "{\"approved\":true,\"blocking\":[]}");
        assert!(!harness.path("hello.txt").exists(), "{cli:?}");
        assert!(
            harness.model.requests()[0].contains("requiredFix"),
            "{cli:?}"
        );

        let harness = AgentHarness::new(&agents, cli, []).await;
        std::fs::create_dir_all(harness.path("ai-output/comments")).unwrap();
        let plan = harness.path("ai-output/comments/01-plan.md");
        harness.model.set_turns([
            ModelTurn::write_file(&plan, "1.\n"),
            ModelTurn::write_file(harness.path("../outside.txt"), "no\n"),
            ModelTurn::text("Planned."),
        ]);
        let folder = "ai-output";
        let outcome = harness.run_pass(AgentRole::Plan { folder }, 5).await;
        assert_eq!(outcome.text(), "Planned.");
        assert_eq!(std::fs::read_to_string(plan).unwrap(), "1.\n");
        assert!(!harness.path("../outside.txt").exists(), "{cli:?}");
    }
}
