//! The same for the programs beside the default one, with recorded streams of theirs.

use super::tests::{AgentFixture, replay_command, variable_names};
use super::*;

#[tokio::test]
async fn an_end_of_codex_is_judged_by_its_last_event_and_its_turns_are_counted() {
    let stage = AgentFixture::new();
    let agent = stage.agent(
        AgentCli::Codex,
        &format!("cat >/dev/null; {}", replay_command("codex-tool.jsonl")),
    );
    let (usage, ended) = stage.run_pass(&agent, AgentRole::Implement, 3).await;
    assert_eq!(ended.unwrap().text, "Mended the test.");
    let counted = Usage {
        turns: 3,
        input_tokens: 300,
        output_tokens: 126,
        cost_usd: None,
    };
    assert_eq!(usage, counted);
    let log = stage.console.tail();
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
    let (usage, ended) = stage
        .run_pass(
            &stage.agent(AgentCli::Codex, &script),
            AgentRole::Implement,
            2,
        )
        .await;
    let failure = ended.unwrap_err();
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
async fn troubles_of_the_provider_are_told_apart_from_failures_of_the_work() {
    let unavailable = Some(FailureCode::ProviderUnavailable);
    let denied = "the provider does not accept the model credentials";
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
            "it ended without a result",
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
    let stage = AgentFixture::new();
    for (cli, stream, then, code, exit, words) in rows {
        let stream = match stream {
            "" => String::new(),
            name => replay_command(name),
        };
        let agent = stage.agent(cli, &format!("cat >/dev/null\n{stream}\n{then}"));
        let (_, ended) = stage.run_pass(&agent, AgentRole::Implement, 50).await;
        let failure = ended.unwrap_err();
        // A time of day is another moment every day.
        let lifted = failure
            .retry_at
            .map(|until| format!("; the limit is lifted at {until}"));
        let reason = format!(
            "model invocation failed with exit code {exit}: {words}{}",
            lifted.unwrap_or_default()
        );
        assert_eq!((failure.code, failure.reason), (code, reason));
        let is_limit = code == Some(FailureCode::ProviderLimit);
        assert_eq!(failure.retry_at.is_some(), is_limit);
    }
}

#[tokio::test]
async fn pieces_of_geminis_words_are_put_together_and_its_turns_are_counted() {
    let stage = AgentFixture::new();
    let agent = stage.agent(
        AgentCli::Gemini,
        &format!("cat >/dev/null; {}", replay_command("gemini-tool.jsonl")),
    );
    let (usage, ended) = stage.run_pass(&agent, AgentRole::Implement, 50).await;
    assert_eq!(ended.unwrap().text, "All done.");
    let counted = Usage {
        turns: 2,
        input_tokens: 200,
        output_tokens: 84,
        cost_usd: None,
    };
    assert_eq!(usage, counted);
    assert_eq!(
        stage.console.tail(),
        "agent started with model model-x\nI will look around.\nread_file: a.txt\n\
         run_shell_command: false\nexit code 1\nAll done."
    );
}

#[tokio::test]
async fn a_program_of_the_operators_own_gets_all_on_its_input_and_answers_on_its_output() {
    let stage = AgentFixture::new();
    let agent = stage.agent(
        AgentCli::Command,
        "cat; echo; echo \"$AGENT_IMPLEMENT_ROLE $AGENT_IMPLEMENT_MODEL $AGENT_IMPLEMENT_MAX_TURNS\"",
    );
    let (usage, ended) = stage.run_pass(&agent, AgentRole::Review, 7).await;
    assert_eq!(
        ended.unwrap().text,
        "rules\n\ndo it\nreview model-x 7",
        "rules and prompt"
    );
    assert_eq!(usage, Usage::default());
}

#[tokio::test]
async fn each_program_gets_its_own_credentials_and_settings_of_its_own() {
    let stage = AgentFixture::new();
    let marks = stage.folders.make("marks").unwrap();
    let keeps = format!(
        "env -0 > {0}/env; cat $CODEX_HOME/config.toml > {0}/settings; \
         cat $GEMINI_CLI_HOME/.gemini/settings.json > {0}/settings",
        marks.display()
    );
    let kept = |name: &str| std::fs::read_to_string(marks.join(name)).unwrap();

    let codex = stage.agent(AgentCli::Codex, &keeps);
    stage
        .run_pass(&codex, AgentRole::Review, 50)
        .await
        .1
        .unwrap_err();
    let expected = [
        "CODEX_API_KEY",
        "CODEX_HOME",
        "HOME",
        "OPENAI_API_KEY",
        "OPENAI_BASE_URL",
        "PATH",
        "TMPDIR",
        "TZ",
    ];
    assert_eq!(variable_names(&kept("env")), expected);

    let gemini = stage.agent(AgentCli::Gemini, &keeps);
    stage
        .run_pass(&gemini, AgentRole::Review, 50)
        .await
        .1
        .unwrap_err();
    let expected = [
        "GEMINI_API_KEY",
        "GEMINI_CLI_HOME",
        "GEMINI_CLI_TRUST_WORKSPACE",
        "GOOGLE_GEMINI_BASE_URL",
        "HOME",
        "PATH",
        "TMPDIR",
    ];
    assert_eq!(variable_names(&kept("env")), expected);
    assert!(!kept("settings").contains("value of"), "no key in a file");

    let mut cloud = stage.agent(AgentCli::Claude, &keeps);
    cloud.cloud_region = Some("eu-west-1".into());
    stage
        .run_pass(&cloud, AgentRole::Implement, 50)
        .await
        .1
        .unwrap_err();
    let env = kept("env");
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
fn what_an_agent_lacks_is_said() {
    let stage = AgentFixture::new();
    let with = |cli, change: fn(&mut Agent)| {
        let mut agent = stage.agent(cli, "");
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
        "the agent codex has no model credential: \
         set OPENAI_API_KEY or CODEX_API_KEY among the secrets of the repository"
    );
    assert_eq!(with(AgentCli::Command, keyless), Ok(()));
    assert_eq!(with(AgentCli::Claude, cloud), Ok(()));
    assert_eq!(
        with(AgentCli::Gemini, cloud).unwrap_err(),
        "the provider cloud is not possible with the agent gemini"
    );
    assert_eq!(
        AgentCli::from_name("copilot").unwrap_err(),
        "the agent \"copilot\" is not known; there are claude, codex, gemini"
    );
    assert!(
        AgentCli::from_name("command").is_err(),
        "only the environment names a command"
    );
}

#[tokio::test]
async fn a_line_is_rid_of_secrets_before_it_is_cut_and_paths_are_the_trees_own() {
    let mut stage = AgentFixture::new();
    let secret = "sk-not-a-shape-0123456789";
    stage.console = Console::plain(
        vendors::http::Redactor::new([secret]),
        crate::ProgressReporter::default(),
    );
    let tree = stage.folders.work_tree();
    let script = format!(
        "echo '{}{secret}'; echo 'in {1} and {1}/src/a.rs'; exit 1",
        "x".repeat(390),
        tree.display()
    );
    let agent = stage.agent(AgentCli::Command, &script);
    let (_, ended) = stage.run_pass(&agent, AgentRole::Implement, 50).await;
    let log = stage.console.tail();
    assert!(!log.contains("sk-not"), "{log}");
    assert!(log.contains("in . and src/a.rs"), "{log}");
    assert!(ended.unwrap_err().reason.ends_with("/src/a.rs"));
}
