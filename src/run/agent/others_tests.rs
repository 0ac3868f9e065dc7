//! Tests of the other agent programs with recorded streams.

use super::tests::{AgentFixture, replay_command, variable_names};
use super::*;
use crate::console::Console;
use domain::report::{FailureCode, Usage};

#[tokio::test]
async fn evaluates_the_last_event_of_codex_and_counts_its_turns() {
    let fixture = AgentFixture::new();
    let agent = fixture.agent(
        AgentCli::Codex,
        &format!("cat >/dev/null; {}", replay_command("codex-tool.jsonl")),
    );
    let (usage, result) = fixture.run_pass(&agent, AgentRole::Implement, 3).await;
    assert_eq!(result.unwrap().text, "Mended the test.");
    let expected = Usage {
        turns: 3,
        input_tokens: 300,
        output_tokens: 126,
        cost_usd: None,
    };
    assert_eq!(usage, expected);
    let log = fixture.console.tail();
    for line in [
        "Model metadata for `model-x` not found.",
        "command: /bin/bash -lc 'cargo test'",
        "exit code 101: two failed",
        "changed: src/a.rs",
        "Mended the test.",
    ] {
        assert!(log.contains(line), "{line} in {log}");
    }

    let record = r#"{"type":"event_msg","payload":{"type":"token_count","info":{"total_token_usage":{"input_tokens":200,"output_tokens":84}}}}"#;
    let script = format!(
        "mkdir -p $CODEX_HOME/sessions/2026; echo '{record}' > $CODEX_HOME/sessions/2026/rollout-1.jsonl\n{}\nsleep 60",
        replay_command("codex-tool.jsonl")
    );
    let (usage, result) = fixture
        .run_pass(
            &fixture.agent(AgentCli::Codex, &script),
            AgentRole::Implement,
            2,
        )
        .await;
    let failure = result.unwrap_err();
    assert_eq!(failure.code, Some(FailureCode::MaxTurnsExhausted));
    assert_eq!(
        failure.reason,
        "model invocation failed with exit code 1: Reached max turns (2)"
    );
    assert_eq!(
        (usage.turns, usage.input_tokens, usage.output_tokens),
        (3, 200, 84)
    );
}

#[tokio::test]
async fn distinguishes_provider_errors_from_other_failures() {
    let unavailable = Some(FailureCode::ProviderUnavailable);
    let denied = "the provider rejected the model credentials";
    let rows = [
        (
            AgentCli::Codex,
            "codex-unauthorized.jsonl",
            "sleep 60",
            unavailable,
            1,
            denied,
        ),
        (
            AgentCli::Codex,
            "codex-limited.jsonl",
            "exit 1",
            Some(FailureCode::ProviderLimit),
            1,
            "You’ve hit your usage limit. Try again at 10:26 PM.",
        ),
        (
            AgentCli::Gemini,
            "gemini-max-turns.jsonl",
            "exit 53",
            Some(FailureCode::MaxTurnsExhausted),
            53,
            "Reached max turns (50)",
        ),
        (
            AgentCli::Gemini,
            "gemini-refused.jsonl",
            "exit 247",
            unavailable,
            247,
            "[API Error: {\"error\":{\"code\":503,\"message\":\"The model is overloaded.\",\"status\":\"UNAVAILABLE\"}}]",
        ),
        (
            AgentCli::Gemini,
            "",
            "echo 'You must specify the GEMINI_API_KEY.' >&2; exit 41",
            unavailable,
            41,
            "You must specify the GEMINI_API_KEY.",
        ),
        (
            AgentCli::Gemini,
            "",
            "exit 0",
            None,
            1,
            "it exited without a result",
        ),
        (
            AgentCli::Command,
            "",
            "echo out; echo no >&2; exit 2",
            None,
            2,
            "no",
        ),
        (
            AgentCli::Command,
            "",
            "echo first; echo last; exit 2",
            None,
            2,
            "last",
        ),
    ];
    let fixture = AgentFixture::new();
    for (cli, stream, script_end, code, exit, message) in rows {
        let stream = match stream {
            "" => String::new(),
            name => replay_command(name),
        };
        let agent = fixture.agent(cli, &format!("cat >/dev/null\n{stream}\n{script_end}"));
        let (_, result) = fixture.run_pass(&agent, AgentRole::Implement, 50).await;
        let failure = result.unwrap_err();
        // The message holds a time of day, so the reset time differs every day.
        let reset = failure
            .retry_at
            .map(|until| format!("; the limit resets at {}", until.date_text()));
        let reason = format!(
            "model invocation failed with exit code {exit}: {message}{}",
            reset.unwrap_or_default()
        );
        assert_eq!((failure.code, failure.reason), (code, reason));
        let is_limit = code == Some(FailureCode::ProviderLimit);
        assert_eq!(failure.retry_at.is_some(), is_limit);
    }
}

#[tokio::test]
async fn joins_partial_messages_of_gemini_and_counts_its_turns() {
    let fixture = AgentFixture::new();
    let agent = fixture.agent(
        AgentCli::Gemini,
        &format!("cat >/dev/null; {}", replay_command("gemini-tool.jsonl")),
    );
    let (usage, result) = fixture.run_pass(&agent, AgentRole::Implement, 50).await;
    assert_eq!(result.unwrap().text, "All done.");
    let expected = Usage {
        turns: 2,
        input_tokens: 200,
        output_tokens: 84,
        cost_usd: None,
    };
    assert_eq!(usage, expected);
    assert_eq!(
        fixture.console.tail(),
        "Agent started with model model-x\nI will look around.\nread_file: a.txt\n\
         run_shell_command: false\nexit code 1\nAll done."
    );
}

#[tokio::test]
async fn a_custom_program_reads_its_input_and_answers_on_its_output() {
    let fixture = AgentFixture::new();
    let agent = fixture.agent(
        AgentCli::Command,
        "cat; echo; echo \"$AGENT_IMPLEMENT_ROLE $AGENT_IMPLEMENT_MODEL $AGENT_IMPLEMENT_MAX_TURNS\"",
    );
    let (usage, result) = fixture.run_pass(&agent, AgentRole::Review, 7).await;
    assert_eq!(
        result.unwrap().text,
        "rules\n\ndo it\nreview model-x 7",
        "rules and prompt"
    );
    assert_eq!(usage, Usage::default());
}

#[tokio::test]
async fn each_program_gets_its_own_credentials_and_settings() {
    let fixture = AgentFixture::new();
    let traces = fixture.folders.make("traces").unwrap();
    let script = format!(
        "env -0 > {0}/env; cat $CODEX_HOME/config.toml > {0}/settings; \
         cat $GEMINI_CLI_HOME/.gemini/settings.json > {0}/settings",
        traces.display()
    );
    let trace = |name: &str| std::fs::read_to_string(traces.join(name)).unwrap();

    let codex = fixture.agent(AgentCli::Codex, &script);
    fixture
        .run_pass(&codex, AgentRole::Review, 50)
        .await
        .1
        .unwrap_err();
    let expected = [
        "AGENT_IMPLEMENT_SCRATCH",
        "CODEX_API_KEY",
        "CODEX_HOME",
        "HOME",
        "OPENAI_API_KEY",
        "OPENAI_BASE_URL",
        "PATH",
        "TMPDIR",
        "TZ",
    ];
    assert_eq!(variable_names(&trace("env")), expected);

    let gemini = fixture.agent(AgentCli::Gemini, &script);
    fixture
        .run_pass(&gemini, AgentRole::Review, 50)
        .await
        .1
        .unwrap_err();
    let expected = [
        "AGENT_IMPLEMENT_SCRATCH",
        "GEMINI_API_KEY",
        "GEMINI_CLI_HOME",
        "GEMINI_CLI_TRUST_WORKSPACE",
        "GOOGLE_GEMINI_BASE_URL",
        "HOME",
        "PATH",
        "TMPDIR",
    ];
    assert_eq!(variable_names(&trace("env")), expected);
    assert!(!trace("settings").contains("value of"), "no key in a file");

    let mut cloud = fixture.agent(AgentCli::Claude, &script);
    cloud.cloud_region = Some("eu-west-1".into());
    fixture
        .run_pass(&cloud, AgentRole::Implement, 50)
        .await
        .1
        .unwrap_err();
    let env = trace("env");
    for name in cloud_key_names().chain(["AWS_REGION", "CLAUDE_CODE_USE_BEDROCK"]) {
        assert!(variable_names(&env).contains(&name), "{name}");
    }
    for name in [
        "ANTHROPIC_API_KEY",
        "CLAUDE_CODE_OAUTH_TOKEN",
        "OPENAI_API_KEY",
    ] {
        assert!(!variable_names(&env).contains(&name), "{name}");
    }
    assert!(env.contains("AWS_REGION=eu-west-1\0"));
}

#[test]
fn reports_missing_agent_configuration() {
    let fixture = AgentFixture::new();
    let with = |cli, change: fn(&mut Agent)| {
        let mut agent = fixture.agent(cli, "");
        change(&mut agent);
        agent.validate()
    };
    let keyless: fn(&mut Agent) = |agent| agent.keys.retain(|(name, _)| is_base_url(name));
    let cloud: fn(&mut Agent) = |agent| agent.cloud_region = Some("r".into());
    for cli in [
        AgentCli::Claude,
        AgentCli::Codex,
        AgentCli::Gemini,
        AgentCli::Command,
    ] {
        assert_eq!(with(cli, |_| {}), Ok(()));
    }
    assert_eq!(
        with(AgentCli::Codex, keyless).unwrap_err(),
        "agent codex has no model credential: \
         set OPENAI_API_KEY or CODEX_API_KEY in the secrets of the repository"
    );
    assert_eq!(with(AgentCli::Command, keyless), Ok(()));
    assert_eq!(with(AgentCli::Claude, cloud), Ok(()));
    assert_eq!(
        with(AgentCli::Gemini, cloud).unwrap_err(),
        "agent gemini does not support the provider cloud"
    );
    assert_eq!(
        AgentCli::from_name("copilot").unwrap_err(),
        "unknown agent \"copilot\"; known agents: claude, codex, gemini"
    );
    assert!(
        AgentCli::from_name("command").is_err(),
        "only the environment names a command"
    );
}

#[tokio::test]
async fn redacts_lines_before_cutting_them_and_shortens_paths() {
    let mut fixture = AgentFixture::new();
    let secret = "sk-not-a-shape-0123456789";
    fixture.console = Console::plain(
        vendors::http::Redactor::new([secret]),
        crate::RunLog::default(),
    );
    let tree = fixture.folders.work_tree();
    let script = format!(
        "echo '{}{secret}'; echo 'in {1} and {1}/src/a.rs'; exit 1",
        "x".repeat(390),
        tree.display()
    );
    let agent = fixture.agent(AgentCli::Command, &script);
    let (_, result) = fixture.run_pass(&agent, AgentRole::Implement, 50).await;
    let log = fixture.console.tail();
    assert!(!log.contains("sk-not"), "{log}");
    assert!(log.contains("in . and src/a.rs"), "{log}");
    assert!(result.unwrap_err().reason.ends_with("/src/a.rs"));
}
