//! Codex and Gemini CLI: a plain run, a run that works, a refused key, the turn cap, and what their
//! roles may do.

use std::time::Duration;

use domain::report::FailureCode;
use engine::clock::Clock;
use run::agent::{Cli, Role};

use super::stage::{Stage, installed};
use crate::model::{LIMITED, Turn};

const BOTH: [Cli; 2] = [Cli::Codex, Cli::Gemini];

/// The key that the model must have been shown.
fn key(cli: Cli) -> &'static str {
    match cli {
        Cli::Codex => "Bearer the-openai-key",
        _ => "the-gemini-key",
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plain_run_and_one_that_works_are_answered_with_their_usage() {
    let Some(agents) = installed("the real codex and gemini at work") else {
        return;
    };
    for cli in BOTH {
        let stage = Stage::set(&agents, cli, [Turn::say("Nothing to do.")]).await;
        let outcome = stage.perform(Role::Implement, 5).await;
        assert_eq!(outcome.text(), "Nothing to do.");
        assert_eq!(outcome.usage.turns, 1);
        let asked = &stage.model.asked()[0];
        assert_eq!(asked.key, key(cli));
        assert!(asked.mentions("These are the rules of the house."));
        assert!(asked.mentions("Do it."));

        let stage = Stage::set(&agents, cli, []).await;
        let hello = stage.at("hello.txt");
        stage.model.play([
            Turn::write(&hello, "hi\n"),
            Turn::run("echo more >> hello.txt"),
            Turn::say("All done."),
        ]);
        let outcome = stage.perform(Role::Implement, 5).await;
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
    let Some(agents) = installed("the real codex and gemini refused by their providers") else {
        return;
    };
    let unavailable = Some(FailureCode::ProviderUnavailable);
    for cli in BOTH {
        let refused = Turn::refuse(401, "API key not valid");
        let stage = Stage::set(&agents, cli, [refused]).await;
        let outcome = stage.perform(Role::Implement, 5).await;
        let (code, reason) = outcome.failure();
        assert_eq!(code, unavailable);
        assert!(
            reason.ends_with(": the provider does not accept the model credentials"),
            "{cli:?}: {reason}"
        );
    }
    let limited = Turn::Refuse(429, vec![("x-limited", "1".to_owned())], "limit reached");
    let stage = Stage::set(&agents, Cli::Codex, [limited]).await;
    let outcome = stage.perform(Role::Implement, 5).await;
    let (code, reason) = outcome.failure();
    assert_eq!(code, Some(FailureCode::ProviderLimit), "{reason}");
    assert!(reason.contains("hit your usage limit"), "{reason}");
    // It tells people, who do without seconds.
    let minute = Duration::from_secs(60);
    let retry_at = outcome.retry_at().unwrap();
    let lifted = Clock::Machine.now() + LIMITED;
    assert!(
        retry_at <= lifted && retry_at + 3 * minute >= lifted,
        "{retry_at}: {reason}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn work_without_end_is_ended_at_the_turn_cap_and_counted() {
    let Some(agents) = installed("the real codex and gemini at the turn cap") else {
        return;
    };
    for cli in BOTH {
        let stage = Stage::set(&agents, cli, [Turn::run("true")]).await;
        let outcome = stage.perform(Role::Implement, 2).await;
        let (code, reason) = outcome.failure();
        assert_eq!(code, Some(FailureCode::MaxTurnsExhausted), "{cli:?}");
        assert!(reason.ends_with(": Reached max turns (2)"), "{reason}");
        assert!(outcome.usage.turns >= 2, "{:?}", outcome.usage);
        assert!(outcome.usage.input_tokens >= 200, "{:?}", outcome.usage);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reviewer_changes_nothing_and_a_planner_writes_in_its_folder() {
    let Some(agents) = installed("the roles of the real codex and gemini") else {
        return;
    };
    for cli in BOTH {
        let stage = Stage::set(&agents, cli, []).await;
        stage.model.play([
            Turn::write(stage.at("hello.txt"), "hi\n"),
            Turn::say("{\"approved\":true,\"blocking\":[]}"),
        ]);
        let outcome = stage.perform(Role::Review, 5).await;
        assert_eq!(outcome.text(), "{\"approved\":true,\"blocking\":[]}");
        assert!(!stage.at("hello.txt").exists(), "{cli:?}");
        assert!(stage.model.asked()[0].mentions("requiredFix"), "{cli:?}");

        let stage = Stage::set(&agents, cli, []).await;
        std::fs::create_dir_all(stage.at("ai-output/comments")).unwrap();
        let plan = stage.at("ai-output/comments/01-plan.md");
        stage.model.play([
            Turn::write(&plan, "1.\n"),
            Turn::write(stage.at("../outside.txt"), "no\n"),
            Turn::say("Planned."),
        ]);
        let folder = "ai-output";
        let outcome = stage.perform(Role::Plan { folder }, 5).await;
        assert_eq!(outcome.text(), "Planned.");
        assert_eq!(std::fs::read_to_string(plan).unwrap(), "1.\n");
        assert!(!stage.at("../outside.txt").exists(), "{cli:?}");
    }
}
