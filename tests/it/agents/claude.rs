//! Every way in which Claude Code is known to end, with the real program.

use std::path::Path;
use std::time::{Duration, Instant};

use domain::report::FailureCode;
use domain::secret::Secret;
use domain::time::Timestamp;
use engine::clock::Clock;
use run::agent::{AgentCli, AgentRole};

use super::agent_harness::{AgentHarness, PassOutcome, agents_dir};
use crate::fake_model::ModelTurn;

const UNAVAILABLE: Option<FailureCode> = Some(FailureCode::ProviderUnavailable);

async fn implement(
    agents: &Path,
    turns: impl IntoIterator<Item = ModelTurn>,
) -> (AgentHarness, PassOutcome) {
    let stage = AgentHarness::new(agents, AgentCli::Claude, turns).await;
    let outcome = stage.run_pass(AgentRole::Implement, 3).await;
    (stage, outcome)
}

#[tokio::test(flavor = "multi_thread")]
async fn work_that_goes_well_is_answered_with_its_usage() {
    let Some(agents) = agents_dir("the real claude at work") else {
        return;
    };
    let turns = [
        ModelTurn::write_file("hello.txt", "hi\n"),
        ModelTurn::text("All done."),
    ];
    let (stage, outcome) = implement(&agents, turns).await;
    assert_eq!(outcome.text(), "All done.");
    let written = std::fs::read_to_string(stage.path("hello.txt"));
    assert_eq!(written.unwrap(), "hi\n");
    let usage = outcome.usage;
    assert_eq!(
        (usage.turns, usage.input_tokens, usage.output_tokens),
        (2, 340, 84)
    );
    assert!(usage.cost_usd.unwrap() > 0.0);
    assert!(
        outcome.log.contains("\nWrite: hello.txt\n"),
        "{}",
        outcome.log
    );
    assert!(stage.model.requests()[0].contains("These are the rules of the house."));

    // A review gets no tool that changes anything, and answers in the form.
    let stage = AgentHarness::new(&agents, AgentCli::Claude, [ModelTurn::text("unused")]).await;
    let outcome = stage.run_pass(AgentRole::Review, 3).await;
    let answer = outcome.result.unwrap();
    assert_eq!(answer.structured.unwrap()["approved"], true);
    for tool in ["Bash", "Write", "Edit"] {
        assert!(!stage.model.requests()[0].contains(&format!("\"name\":\"{tool}\"")));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_of_the_interface_are_told_apart_from_failures_of_the_work() {
    let Some(agents) = agents_dir("the real claude refused by its provider") else {
        return;
    };
    let denied = ": the provider does not accept the model credentials";
    let too_long = ": API Error: Claude's response exceeded the";
    let rows = [
        (
            ModelTurn::http_error(400, "Your credit balance is too low"),
            UNAVAILABLE,
            ": Credit balance is too low",
        ),
        (
            ModelTurn::http_error(401, "invalid x-api-key"),
            UNAVAILABLE,
            denied,
        ),
        (
            ModelTurn::http_error(403, "not for you"),
            UNAVAILABLE,
            ": Failed to authenticate. API Error: 403",
        ),
        (
            ModelTurn::http_error(429, "slow down"),
            Some(FailureCode::ProviderLimit),
            ": API Error: Request rejected (429) · slow down; when it is lifted is not said, next try at ",
        ),
        (
            ModelTurn::http_error(529, "Overloaded"),
            UNAVAILABLE,
            ": API Error: 529 Overloaded.",
        ),
        (ModelTurn::TruncatedResponse("max_tokens"), None, too_long),
        (
            ModelTurn::TruncatedResponse("refusal"),
            None,
            ": API Error: Claude Code is unable to respond to this request",
        ),
        (
            ModelTurn::run_command("true"),
            Some(FailureCode::MaxTurnsExhausted),
            ": Reached max turns (3)",
        ),
    ];
    for (turn, code, words) in rows {
        let (_, outcome) = implement(&agents, [turn.clone()]).await;
        let (told, reason) = outcome.failure();
        let expected = format!(" with exit code 1{words}");
        assert!(reason.starts_with(&expected), "{turn:?}: {reason}");
        assert_eq!(told, code, "{turn:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_of_an_api_key_is_waited_for() {
    let Some(agents) = agents_dir("the real claude at the limit of an API key") else {
        return;
    };
    let minutes = |count: u64| Duration::from_secs(count * 60);
    let long = vec![
        ("retry-after", "7200".to_owned()),
        (
            "anthropic-ratelimit-requests-reset",
            "2026-11-23T09:00:00Z".to_owned(),
        ),
    ];
    // It ends at once and prints no moment.
    let (stage, outcome) = implement(&agents, [ModelTurn::HttpError(429, long, "slow down")]).await;
    let (code, reason) = outcome.failure();
    assert_eq!(code, Some(FailureCode::ProviderLimit), "{reason}");
    assert_eq!(stage.model.requests().len(), 1);
    let waits = outcome.retry_at().unwrap().since(Clock::System.now());
    assert!(waits > minutes(28) && waits <= minutes(30), "{waits:?}");

    let words = "Your organization has reached its limit. You will regain access on 2026-12-01 at 00:00 UTC.";
    let (_, outcome) = implement(&agents, [ModelTurn::http_error(429, words)]).await;
    assert_eq!(outcome.retry_at(), Timestamp::parse("2026-12-01T00:00:00Z"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_that_is_used_up_says_when_it_is_lifted() {
    let Some(agents) = agents_dir("the real claude at its limit") else {
        return;
    };
    let headers = vec![
        ("anthropic-ratelimit-unified-status", "rejected".to_owned()),
        ("anthropic-ratelimit-unified-reset", "1795300000".to_owned()),
        (
            "anthropic-ratelimit-unified-representative-claim",
            "five_hour".to_owned(),
        ),
    ];
    let refused = ModelTurn::HttpError(429, headers, "limited");
    let mut stage = AgentHarness::new(&agents, AgentCli::Claude, [refused]).await;
    // Such limits are those of a subscription.
    for (name, _) in &mut stage.agent.keys {
        if name == "ANTHROPIC_API_KEY" {
            *name = "CLAUDE_CODE_OAUTH_TOKEN".to_owned();
        }
    }
    let outcome = stage.run_pass(AgentRole::Implement, 3).await;
    let (code, reason) = outcome.failure();
    assert_eq!(code, Some(FailureCode::ProviderLimit));
    assert!(
        reason.ends_with("; the limit is lifted at 2026-11-21T22:26:40.000Z"),
        "{reason}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_never_reached_the_provider_is_said() {
    let Some(agents) = agents_dir("the real claude without a provider") else {
        return;
    };
    let mut stage = AgentHarness::new(&agents, AgentCli::Claude, [ModelTurn::text("unused")]).await;
    for (name, key) in &mut stage.agent.keys {
        if name == "ANTHROPIC_BASE_URL" {
            // Nothing listens there.
            *key = Secret::new("http://127.0.0.1:9");
        }
    }
    let outcome = stage.run_pass(AgentRole::Implement, 3).await;
    let (code, reason) = outcome.failure();
    assert_eq!(code, UNAVAILABLE);
    assert_eq!(
        reason,
        " with exit code 1: API Error: Unable to connect to API (ConnectionRefused)"
    );

    stage
        .agent
        .keys
        .retain(|(name, _)| name != "ANTHROPIC_API_KEY");
    let outcome = stage.run_pass(AgentRole::Implement, 3).await;
    assert_eq!(
        outcome.failure(),
        (None, " with exit code 1: Not logged in · Please run /login")
    );
    let lacks = stage.agent.validate().unwrap_err();
    assert!(lacks.contains("set ANTHROPIC_API_KEY or"), "{lacks}");

    let real = agents.join("claude");
    stage.replace_program(
        "claude",
        &format!("exec {} --no-such-flag \"$@\"", real.display()),
    );
    let outcome = stage.run_pass(AgentRole::Implement, 3).await;
    assert_eq!(
        outcome.failure(),
        (
            None,
            " with exit code 1: error: unknown option '--no-such-flag'"
        )
    );

    // A folder for temporary files that cannot be made: the program would wait for ever.
    std::fs::remove_dir_all(stage.path("../agent-tmp")).unwrap();
    std::fs::write(stage.path("../agent-tmp"), "").unwrap();
    let outcome = stage.run_pass(AgentRole::Implement, 3).await;
    let (code, reason) = outcome.failure();
    assert_eq!(code, None);
    assert!(reason.starts_with(": preparing its folders: "), "{reason}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_denied_is_no_success_but_to_a_planner() {
    let Some(agents) = agents_dir("the real claude denied its tools") else {
        return;
    };
    let turns = [
        ModelTurn::write_file("hello.txt", "hi\n"),
        ModelTurn::text("All done."),
    ];
    let stage = AgentHarness::new(&agents, AgentCli::Claude, turns.clone()).await;
    let real = agents.join("claude");
    let stricter = format!("exec {} \"$@\" --permission-mode default", real.display());
    stage.replace_program("claude", &stricter);
    let outcome = stage.run_pass(AgentRole::Implement, 3).await;
    assert_eq!(
        outcome.failure(),
        (None, " with exit code 1: it was not permitted to use Write")
    );
    assert!(!stage.path("hello.txt").exists());

    let turns = [
        ModelTurn::write_file("hello.txt", "hi\n"),
        ModelTurn::write_file("ai-output/plan.md", "1.\n"),
        ModelTurn::text("All done."),
    ];
    let stage = AgentHarness::new(&agents, AgentCli::Claude, turns).await;
    let folder = "ai-output";
    let outcome = stage.run_pass(AgentRole::Plan { folder }, 5).await;
    assert_eq!(outcome.text(), "All done.");
    assert!(!stage.path("hello.txt").exists());
    assert!(stage.path("ai-output/plan.md").exists(), "{}", outcome.log);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_by_a_signal_is_no_success_whatever_the_exit_code() {
    let Some(agents) = agents_dir("the real claude ended by a signal") else {
        return;
    };
    for (signal, exit) in [("TERM", 143), ("INT", 1), ("HUP", 129)] {
        let stage = AgentHarness::new(&agents, AgentCli::Claude, [ModelTurn::Hang]).await;
        let pid = stage.path("../pid");
        let real = agents.join("claude");
        let script = format!(
            "echo $$ > {}; exec {} \"$@\"",
            pid.display(),
            real.display()
        );
        stage.replace_program("claude", &script);
        let killing = async {
            let began = Instant::now();
            while stage.model.requests().is_empty() {
                assert!(began.elapsed() < Duration::from_secs(60));
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            let pid = std::fs::read_to_string(&pid).unwrap();
            let killed = std::process::Command::new("kill")
                .args(["-s", signal, pid.trim()])
                .status();
            assert!(killed.unwrap().success());
        };
        let (outcome, ()) = tokio::join!(stage.run_pass(AgentRole::Implement, 3), killing);
        let (code, reason) = outcome.failure();
        assert_eq!(code, None);
        assert_eq!(
            reason,
            format!(" with exit code {exit}: it ended without a result")
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_cloud_is_asked_with_its_own_credentials_and_for_the_named_model() {
    let Some(agents) = agents_dir("the real claude in the cloud") else {
        return;
    };
    let profile = "eu.anthropic.claude-sonnet-4-5-20250929-v1:0";
    let refused = ModelTurn::http_error(403, "not for you");
    let mut stage = AgentHarness::new(&agents, AgentCli::Claude, [refused]).await;
    stage.agent.cloud_region = Some("eu-west-1".to_owned());
    stage.agent.model = Some(profile.to_owned());
    for (name, value) in [
        ("AWS_BEARER_TOKEN_BEDROCK", "the-cloud-key".to_owned()),
        ("ANTHROPIC_BEDROCK_BASE_URL", stage.model.url.clone()),
    ] {
        stage.agent.keys.push((name.to_owned(), Secret::new(value)));
    }
    let outcome = stage.run_pass(AgentRole::Implement, 3).await;
    let (code, reason) = outcome.failure();
    assert_eq!(code, UNAVAILABLE);
    let denied = ": the provider does not accept the model credentials";
    assert!(reason.ends_with(denied), "{reason}");
    let asked = stage.model.requests();
    assert!(
        asked
            .iter()
            .any(|asked| asked.path.contains("invoke-with-response-stream")
                && asked.path.contains("eu.anthropic.claude-sonnet-4-5")),
        "{asked:?}"
    );
    for asked in asked {
        assert_eq!(asked.key, "Bearer the-cloud-key", "{}", asked.path);
    }
}
