//! Every known way in which Claude Code ends, with the real program.

use std::path::Path;
use std::time::{Duration, Instant};

use domain::report::FailureCode;
use domain::secret::Secret;
use domain::time::Timestamp;
use engine::clock::Clock;
use requires::requires;
use run::agent::{AgentCli, AgentRole};

use super::agent_harness::{AgentHarness, PassOutcome, agents_dir};
use crate::fake_model::ModelTurn;

const UNAVAILABLE: Option<FailureCode> = Some(FailureCode::ProviderUnavailable);

async fn implement(
    agents: &Path,
    turns: impl IntoIterator<Item = ModelTurn>,
) -> (AgentHarness, PassOutcome) {
    let harness = AgentHarness::new(agents, AgentCli::Claude, turns).await;
    let outcome = harness.run_pass(AgentRole::Implement, 3).await;
    (harness, outcome)
}

#[requires("agents")]
#[tokio::test(flavor = "multi_thread")]
async fn returns_text_and_usage_of_a_successful_pass() {
    let agents = agents_dir();
    let turns = [
        ModelTurn::write_file("hello.txt", "hi\n"),
        ModelTurn::text("All done."),
    ];
    let (harness, outcome) = implement(&agents, turns).await;
    assert_eq!(outcome.text(), "All done.");
    let written = std::fs::read_to_string(harness.path("hello.txt"));
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
    assert!(harness.model.requests()[0].contains("These are the rules."));

    // A review gets no tool that changes anything, and answers in structured form.
    let harness = AgentHarness::new(&agents, AgentCli::Claude, [ModelTurn::text("unused")]).await;
    let outcome = harness.run_pass(AgentRole::Review, 3).await;
    let answer = outcome.result.unwrap();
    assert_eq!(answer.structured.unwrap()["approved"], true);
    for tool in ["Bash", "Write", "Edit"] {
        assert!(!harness.model.requests()[0].contains(&format!("\"name\":\"{tool}\"")));
    }
}

#[requires("agents")]
#[tokio::test(flavor = "multi_thread")]
async fn separates_provider_failures_from_task_failures() {
    let agents = agents_dir();
    let denied = ": the provider rejected the model credentials";
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
            ": API Error: Request rejected (429) · slow down; reset time unknown, next attempt at ",
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
    for (turn, code, text) in rows {
        let (_, outcome) = implement(&agents, [turn.clone()]).await;
        let (actual, reason) = outcome.failure();
        let expected = format!(" with exit code 1{text}");
        assert!(reason.starts_with(&expected), "{turn:?}: {reason}");
        assert_eq!(actual, code, "{turn:?}");
    }
}

#[requires("agents")]
#[tokio::test(flavor = "multi_thread")]
async fn reports_when_to_retry_after_an_api_key_limit() {
    let agents = agents_dir();
    let minutes = |count: u64| Duration::from_secs(count * 60);
    let headers = vec![
        ("retry-after", "7200".to_owned()),
        (
            "anthropic-ratelimit-requests-reset",
            "2026-11-23T09:00:00Z".to_owned(),
        ),
    ];
    // The program ends at once and prints no reset time.
    let (harness, outcome) =
        implement(&agents, [ModelTurn::HttpError(429, headers, "slow down")]).await;
    let (code, reason) = outcome.failure();
    assert_eq!(code, Some(FailureCode::ProviderLimit), "{reason}");
    assert_eq!(harness.model.requests().len(), 1);
    let wait = outcome.retry_at().unwrap().since(Clock::System.now());
    assert!(wait > minutes(28) && wait <= minutes(30), "{wait:?}");

    let text = "Your organization has reached its limit. You will regain access on 2026-12-01 at 00:00 UTC.";
    let (_, outcome) = implement(&agents, [ModelTurn::http_error(429, text)]).await;
    assert_eq!(outcome.retry_at(), Timestamp::parse("2026-12-01T00:00:00Z"));
}

#[requires("agents")]
#[tokio::test(flavor = "multi_thread")]
async fn reports_the_reset_time_of_a_subscription_limit() {
    let agents = agents_dir();
    let headers = vec![
        ("anthropic-ratelimit-unified-status", "rejected".to_owned()),
        ("anthropic-ratelimit-unified-reset", "1795300000".to_owned()),
        (
            "anthropic-ratelimit-unified-representative-claim",
            "five_hour".to_owned(),
        ),
    ];
    let refused = ModelTurn::HttpError(429, headers, "limited");
    let mut harness = AgentHarness::new(&agents, AgentCli::Claude, [refused]).await;
    // Only subscriptions have such limits.
    for (name, _) in &mut harness.agent.keys {
        if name == "ANTHROPIC_API_KEY" {
            *name = "CLAUDE_CODE_OAUTH_TOKEN".to_owned();
        }
    }
    let outcome = harness.run_pass(AgentRole::Implement, 3).await;
    let (code, reason) = outcome.failure();
    assert_eq!(code, Some(FailureCode::ProviderLimit));
    assert!(
        reason.ends_with("; the limit resets at 21 Nov 22:26 UTC"),
        "{reason}"
    );
}

#[requires("agents")]
#[tokio::test(flavor = "multi_thread")]
async fn names_the_cause_if_the_provider_is_not_reached() {
    let agents = agents_dir();
    let mut harness =
        AgentHarness::new(&agents, AgentCli::Claude, [ModelTurn::text("unused")]).await;
    for (name, key) in &mut harness.agent.keys {
        if name == "ANTHROPIC_BASE_URL" {
            // No process listens on this port.
            *key = Secret::new("http://127.0.0.1:9");
        }
    }
    let outcome = harness.run_pass(AgentRole::Implement, 3).await;
    let (code, reason) = outcome.failure();
    assert_eq!(code, UNAVAILABLE);
    assert_eq!(
        reason,
        " with exit code 1: API Error: Unable to connect to API (ConnectionRefused)"
    );

    harness
        .agent
        .keys
        .retain(|(name, _)| name != "ANTHROPIC_API_KEY");
    let outcome = harness.run_pass(AgentRole::Implement, 3).await;
    assert_eq!(
        outcome.failure(),
        (None, " with exit code 1: Not logged in · Please run /login")
    );
    let error = harness.agent.validate().unwrap_err();
    assert!(error.contains("set ANTHROPIC_API_KEY or"), "{error}");

    let real = agents.join("claude");
    harness.replace_program(
        "claude",
        &format!("exec {} --no-such-flag \"$@\"", real.display()),
    );
    let outcome = harness.run_pass(AgentRole::Implement, 3).await;
    assert_eq!(
        outcome.failure(),
        (
            None,
            " with exit code 1: error: unknown option '--no-such-flag'"
        )
    );

    // The folder for temporary files cannot be created. Without the check, the program would wait
    // forever.
    std::fs::remove_dir_all(harness.path("../agent-tmp")).unwrap();
    std::fs::write(harness.path("../agent-tmp"), "").unwrap();
    let outcome = harness.run_pass(AgentRole::Implement, 3).await;
    let (code, reason) = outcome.failure();
    assert_eq!(code, None);
    assert!(
        reason.starts_with(": cannot prepare its folders: "),
        "{reason}"
    );
}

#[requires("agents")]
#[tokio::test(flavor = "multi_thread")]
async fn fails_on_denied_tools_except_for_a_planner() {
    let agents = agents_dir();
    let turns = [
        ModelTurn::write_file("hello.txt", "hi\n"),
        ModelTurn::text("All done."),
    ];
    let harness = AgentHarness::new(&agents, AgentCli::Claude, turns.clone()).await;
    let real = agents.join("claude");
    let stricter = format!("exec {} \"$@\" --permission-mode default", real.display());
    harness.replace_program("claude", &stricter);
    let outcome = harness.run_pass(AgentRole::Implement, 3).await;
    assert_eq!(
        outcome.failure(),
        (
            None,
            " with exit code 1: it was denied permission to use Write"
        )
    );
    assert!(!harness.path("hello.txt").exists());

    let turns = [
        ModelTurn::write_file("hello.txt", "hi\n"),
        ModelTurn::write_file("ai-output/plan.md", "1.\n"),
        ModelTurn::text("All done."),
    ];
    let harness = AgentHarness::new(&agents, AgentCli::Claude, turns).await;
    let folder = "ai-output";
    let outcome = harness.run_pass(AgentRole::Plan { folder }, 5).await;
    assert_eq!(outcome.text(), "All done.");
    assert!(!harness.path("hello.txt").exists());
    assert!(
        harness.path("ai-output/plan.md").exists(),
        "{}",
        outcome.log
    );
}

#[requires("agents")]
#[tokio::test(flavor = "multi_thread")]
async fn fails_when_ended_by_a_signal() {
    let agents = agents_dir();
    for (signal, exit) in [("TERM", 143), ("INT", 1), ("HUP", 129)] {
        let harness = AgentHarness::new(&agents, AgentCli::Claude, [ModelTurn::Hang]).await;
        let pid = harness.path("../pid");
        let real = agents.join("claude");
        let script = format!(
            "echo $$ > {}; exec {} \"$@\"",
            pid.display(),
            real.display()
        );
        harness.replace_program("claude", &script);
        let kill = async {
            let started = Instant::now();
            while harness.model.requests().is_empty() {
                assert!(started.elapsed() < Duration::from_secs(60));
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            let pid = std::fs::read_to_string(&pid).unwrap();
            let killed = std::process::Command::new("kill")
                .args(["-s", signal, pid.trim()])
                .status();
            assert!(killed.unwrap().success());
        };
        let (outcome, ()) = tokio::join!(harness.run_pass(AgentRole::Implement, 3), kill);
        let (code, reason) = outcome.failure();
        assert_eq!(code, None);
        assert_eq!(
            reason,
            format!(" with exit code {exit}: it exited without a result")
        );
    }
}

#[requires("agents")]
#[tokio::test(flavor = "multi_thread")]
async fn calls_the_cloud_with_its_credentials_and_configured_model() {
    let agents = agents_dir();
    let profile = "eu.anthropic.claude-sonnet-4-5-20250929-v1:0";
    let refused = ModelTurn::http_error(403, "not for you");
    let mut harness = AgentHarness::new(&agents, AgentCli::Claude, [refused]).await;
    harness.agent.cloud_region = Some("eu-west-1".to_owned());
    harness.agent.model = Some(profile.to_owned());
    for (name, value) in [
        ("AWS_BEARER_TOKEN_BEDROCK", "the-cloud-key".to_owned()),
        ("ANTHROPIC_BEDROCK_BASE_URL", harness.model.url.clone()),
    ] {
        harness
            .agent
            .keys
            .push((name.to_owned(), Secret::new(value)));
    }
    let outcome = harness.run_pass(AgentRole::Implement, 3).await;
    let (code, reason) = outcome.failure();
    assert_eq!(code, UNAVAILABLE);
    let denied = ": the provider rejected the model credentials";
    assert!(reason.ends_with(denied), "{reason}");
    let requests = harness.model.requests();
    assert!(
        requests.iter().any(
            |request| request.path.contains("invoke-with-response-stream")
                && request.path.contains("eu.anthropic.claude-sonnet-4-5")
        ),
        "{requests:?}"
    );
    for request in requests {
        assert_eq!(request.key, "Bearer the-cloud-key", "{}", request.path);
    }
}
