//! Recorded agent streams, replayed by a script through the real process handling.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use tokio::time::Instant;

use super::*;
use crate::console::Console;
use crate::failure::RunFailure;
use crate::folders::Folders;
use crate::git::tests::path_env_with;
use crate::run_log::RunLog;
use crate::usage_meter::UsageMeter;
use domain::report::{FailureCode, Usage};
use domain::secret::Secret;
use domain::time::Timestamp;
use vendors::http::Redactor;

const CAP: u32 = 50;

/// Returns the names of variables, without those added by Bash.
pub(super) fn variable_names(env: &str) -> Vec<&str> {
    let mut names: Vec<&str> = env
        .split('\0')
        .filter_map(|pair| Some(pair.split_once('=')?.0))
        .filter(|name| !["PWD", "SHLVL", "_", "OLDPWD", "IS_SANDBOX"].contains(name))
        .collect();
    names.sort_unstable();
    names
}

pub(super) struct AgentFixture {
    pub(super) folders: Folders,
    pub(super) console: Console,
}

impl AgentFixture {
    pub(super) fn new() -> Self {
        let folders = Folders::new(&tempfile::env::temp_dir()).unwrap();
        std::fs::create_dir_all(folders.work_tree()).unwrap();
        Self {
            folders,
            console: Console::plain(Redactor::default(), RunLog::default()),
        }
    }

    /// Creates an agent whose program is a script.
    pub(super) fn agent(&self, cli: AgentCli, script: &str) -> Agent {
        let bin = self.folders.make("bin").unwrap();
        let program = bin.join(cli.name());
        std::fs::write(&program, format!("#!/bin/bash\n{script}\n")).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let keys = direct_key_names().chain(cloud_key_names());
        Agent {
            cli,
            command: vec![program.to_string_lossy().into_owned()],
            env: path_env_with(&bin),
            keys: keys
                .map(|name| (name.to_owned(), Secret::new(format!("value of {name}"))))
                .collect(),
            program: None,
            may_install: false,
            installation: None,
            cloud_region: None,
            model: Some("model-x".into()),
            retries: 1,
        }
    }

    pub(super) async fn run_pass(
        &self,
        agent: &Agent,
        role: AgentRole,
        max_turns: u32,
    ) -> (Usage, Result<AgentAnswer, RunFailure>) {
        let pass = AgentPass {
            role,
            max_turns,
            system: "rules".into(),
            prompt: "do it".into(),
        };
        let deadline = Instant::now() + Duration::from_secs(60);
        agent
            .run_pass(&pass, &self.folders, &self.console, deadline)
            .await
    }

    async fn run_claude(
        &self,
        script: &str,
        role: AgentRole,
    ) -> (Usage, Result<AgentAnswer, RunFailure>) {
        self.run_pass(&self.agent(AgentCli::Claude, script), role, CAP)
            .await
    }
}

pub(super) fn replay_command(name: &str) -> String {
    let path: PathBuf = [env!("CARGO_MANIFEST_DIR"), "../../tests/data/agent", name]
        .iter()
        .collect();
    format!("cat '{}'", path.display())
}

#[tokio::test]
async fn evaluates_result_and_exit_code_together() {
    let rows = [
        ("success.jsonl", "exit 0", Ok("Added hello.txt.")),
        (
            "success.jsonl",
            "exit 1",
            Err((
                None,
                "model invocation failed with exit code 1: it exited with an error after its result",
            )),
        ),
        (
            "max-turns.jsonl",
            "exit 1",
            Err((
                Some(FailureCode::MaxTurnsExhausted),
                "model invocation failed with exit code 1: Reached max turns (50)",
            )),
        ),
        (
            "overloaded.jsonl",
            "exit 1",
            Err((
                Some(FailureCode::ProviderUnavailable),
                "model invocation failed with exit code 1: API Error: 529 Overloaded.",
            )),
        ),
        (
            "denied.jsonl",
            "exit 0",
            Err((
                None,
                "model invocation failed with exit code 1: it was denied permission to use Write",
            )),
        ),
        (
            "cut-short.jsonl",
            "exit 0",
            Err((
                None,
                "model invocation failed with exit code 1: it exited without a result",
            )),
        ),
        (
            "cut-short.jsonl",
            "echo 'bad flag' >&2; exit 3",
            Err((None, "model invocation failed with exit code 3: bad flag")),
        ),
        (
            "unauthorized.jsonl",
            "sleep 60",
            Err((
                Some(FailureCode::ProviderUnavailable),
                "model invocation failed with exit code 1: the provider rejected the model credentials",
            )),
        ),
        (
            "interrupted.jsonl",
            "exit 1",
            Err((
                None,
                "model invocation failed with exit code 1: it exited without a result",
            )),
        ),
        (
            "max-budget.jsonl",
            "exit 1",
            Err((
                None,
                "model invocation failed with exit code 1: Reached maximum budget ($0.005)",
            )),
        ),
        (
            "limited.jsonl",
            "exit 1",
            Err((
                Some(FailureCode::ProviderLimit),
                "model invocation failed with exit code 1: You've hit your session limit; \
                 the limit resets at 21 Nov 22:26 UTC",
            )),
        ),
        (
            "limited-before.jsonl",
            "exit 1",
            Err((
                Some(FailureCode::ProviderLimit),
                "model invocation failed with exit code 1: Claude AI usage limit reached; \
                 the limit resets at 21 Nov 22:26 UTC",
            )),
        ),
        (
            "too-long.jsonl",
            "exit 1",
            Err((
                None,
                "model invocation failed with exit code 1: \
                 API Error: Claude's response exceeded the 64000 output token maximum.",
            )),
        ),
    ];
    let fixture = AgentFixture::new();
    for (stream, exit, expected) in rows {
        let script = format!("cat >/dev/null\n{}\n{exit}", replay_command(stream));
        let (_, result) = fixture.run_claude(&script, AgentRole::Implement).await;
        match (result, expected) {
            (Ok(answer), Ok(text)) => assert_eq!(answer.text, text),
            (Err(failure), Err((code, reason))) => {
                assert_eq!((failure.code, failure.reason.as_str()), (code, reason));
                let reset = Timestamp::parse("2026-11-21T22:26:40Z");
                let is_limit = code == Some(FailureCode::ProviderLimit);
                assert_eq!(failure.retry_at, reset.filter(|_| is_limit));
            }
            (result, _) => panic!("{stream}, {exit}: {result:?}"),
        }
    }
}

#[tokio::test]
async fn waits_for_an_api_key_limit_with_unknown_reset_time() {
    let fixture = AgentFixture::new();
    let script = format!(
        "cat >/dev/null\n{}\nexit 1",
        replay_command("limited-key.jsonl")
    );
    let before = crate::clock::now();
    let (_, result) = fixture.run_claude(&script, AgentRole::Implement).await;
    let failure = result.unwrap_err();
    assert_eq!(failure.code, Some(FailureCode::ProviderLimit));
    let retry_at = failure.retry_at.unwrap();
    let wait = retry_at.since(before);
    assert!((1790..1860).contains(&wait.as_secs()), "{wait:?}");
    let expected = format!(
        "Request rejected (429) · slow down; reset time unknown, next attempt at {}",
        retry_at.date_text()
    );
    assert!(failure.reason.contains(&expected), "{}", failure.reason);
}

#[tokio::test]
async fn does_not_start_a_replaced_agent() {
    let fixture = AgentFixture::new();
    let mut agent = fixture.agent(AgentCli::Claude, &replay_command("success.jsonl"));
    agent.pin_program();
    let (_, result) = fixture.run_pass(&agent, AgentRole::Implement, CAP).await;
    result.unwrap();
    let trace = fixture.folders.make("traces").unwrap().join("stolen");
    let replacement = format!(
        "env >'{}'; {}",
        trace.display(),
        replay_command("success.jsonl")
    );
    fixture.agent(AgentCli::Claude, &replacement);
    let (_, result) = fixture.run_pass(&agent, AgentRole::Review, CAP).await;
    let reason = result.unwrap_err().reason;
    assert!(
        reason.ends_with("claude changed during the run and is not started"),
        "{reason}"
    );
    assert!(!trace.exists());
}

#[tokio::test]
async fn takes_usage_from_the_result_and_counts_failures_too() {
    let fixture = AgentFixture::new();
    let (usage, _) = fixture
        .run_claude(&replay_command("success.jsonl"), AgentRole::Implement)
        .await;
    assert_eq!(
        usage,
        Usage {
            turns: 2,
            input_tokens: 170,
            output_tokens: 42,
            cost_usd: Some(0.0125)
        }
    );
    let script = format!("{}; exit 1", replay_command("max-turns.jsonl"));
    let (usage, _) = fixture.run_claude(&script, AgentRole::Implement).await;
    assert_eq!((usage.turns, usage.cost_usd), (4, Some(0.5)));
    let (usage, _) = fixture
        .run_claude(&replay_command("cut-short.jsonl"), AgentRole::Implement)
        .await;
    let expected = Usage {
        turns: 2,
        input_tokens: 220,
        output_tokens: 20,
        cost_usd: None,
    };
    assert_eq!(usage, expected, "once per message without a result");
}

#[tokio::test]
async fn stops_an_endless_stream_at_its_result_and_kills_the_group() {
    let fixture = AgentFixture::new();
    let pid = fixture.folders.make("traces").unwrap().join("pid");
    let script = format!(
        "(while true; do sleep 0.1; done) &\necho $! > '{}'\n{}\nexec sleep 600",
        pid.display(),
        replay_command("success.jsonl")
    );
    let started = Instant::now();
    let (_, result) = fixture.run_claude(&script, AgentRole::Implement).await;
    assert_eq!(result.unwrap().text, "Added hello.txt.");
    assert!(started.elapsed() < Duration::from_secs(30));
    // A killed process that nobody has waited for has no command line.
    let command_line = std::fs::read_to_string(&pid).unwrap();
    let command_line = format!("/proc/{}/cmdline", command_line.trim());
    while std::fs::read(&command_line).is_ok_and(|words| !words.is_empty()) {
        let in_time = started.elapsed() < Duration::from_secs(60);
        assert!(in_time, "a process of the group is still alive");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn passes_keys_and_folders_of_the_agent_only() {
    let fixture = AgentFixture::new();
    let out = fixture.folders.make("traces").unwrap();
    let script = format!(
        "env -0 > '{0}/env'; printf '%s\\n' \"$@\" > '{0}/args'; cat > '{0}/prompt'; {1}",
        out.display(),
        replay_command("review.jsonl")
    );
    let (_, result) = fixture.run_claude(&script, AgentRole::Review).await;
    assert_eq!(result.unwrap().structured.unwrap()["approved"], true);
    let env = std::fs::read_to_string(out.join("env")).unwrap();
    assert_eq!(
        variable_names(&env),
        [
            "AGENT_IMPLEMENT_SCRATCH",
            "ANTHROPIC_API_KEY",
            "ANTHROPIC_BASE_URL",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC",
            "CLAUDE_CODE_MAX_RETRIES",
            "CLAUDE_CODE_OAUTH_TOKEN",
            "CLAUDE_CODE_TMPDIR",
            "CLAUDE_CONFIG_DIR",
            "DISABLE_AUTOUPDATER",
            "HOME",
            "PATH",
            "TMPDIR",
        ]
    );
    let args = std::fs::read_to_string(out.join("args")).unwrap();
    for expected in [
        "--setting-sources\nuser\n--strict-mcp-config\n",
        "--max-turns\n50\n",
        "--tools\nRead,Grep,Glob\n",
        "--model\nmodel-x\n",
    ] {
        assert!(args.contains(expected), "{args}");
    }
    assert!(!args.contains("value of"));
    assert_eq!(
        std::fs::read_to_string(out.join("prompt")).unwrap(),
        "do it"
    );
}

#[tokio::test]
async fn a_planner_may_write_to_its_folder_and_be_denied_elsewhere() {
    let fixture = AgentFixture::new();
    let out = fixture.folders.make("traces").unwrap();
    let script = format!(
        "printf '%s\\n' \"$@\" > '{}/args'; {}",
        out.display(),
        replay_command("denied.jsonl")
    );
    let folder = "ai-output";
    let (_, result) = fixture
        .run_claude(&script, AgentRole::Plan { folder })
        .await;
    assert!(result.is_ok(), "{result:?}");
    let args = std::fs::read_to_string(out.join("args")).unwrap();
    let scratch = fixture.folders.scratch().display().to_string();
    for expected in [
        "--permission-mode\ndontAsk\n",
        "--tools\nRead,Grep,Glob,Write\n",
        &format!("--add-dir\n{scratch}\n"),
        &format!("--allowedTools\nEdit(./ai-output/**)\nEdit(/{scratch}/question.json)\n"),
    ] {
        assert!(args.contains(expected), "{args}");
    }
    assert!(!args.contains("bypassPermissions"), "{args}");
}

#[tokio::test]
async fn redacts_agent_output_and_disables_ci_commands() {
    let key = Secret::new("sk-not-a-shape-0123");
    let console = Console::plain(Redactor::new([key.expose()]), RunLog::default());
    console.log_child(&format!("::add-mask::x {} \u{1b}[31m", key.expose()));
    console.log_child("##[set-env name=PATH]/evil");
    let tail = console.tail();
    assert!(!tail.contains(key.expose()), "{tail}");
    assert!(!tail.contains('\u{1b}'));
    assert!(!tail.contains("##["));
}

#[tokio::test]
async fn reports_a_missing_program() {
    let fixture = AgentFixture::new();
    let mut agent = fixture.agent(AgentCli::Command, "");
    agent.command = vec!["/nowhere/agent".into()];
    let (_, result) = fixture.run_pass(&agent, AgentRole::Implement, CAP).await;
    let reason = result.unwrap_err().reason;
    assert!(
        reason.starts_with("model invocation failed: /nowhere/agent cannot be read: "),
        "{reason}"
    );
}

#[tokio::test]
async fn counts_the_usage_of_an_interrupted_pass() {
    let fixture = AgentFixture::new();
    let cut_short = replay_command("cut-short.jsonl");
    let script = format!("cat >/dev/null\n{cut_short}\necho the last line\nsleep 60");
    let (whole, _) = fixture
        .run_pass(
            &fixture.agent(AgentCli::Claude, &format!("cat >/dev/null\n{cut_short}")),
            AgentRole::Implement,
            CAP,
        )
        .await;
    assert!(whole.turns > 0);
    let agent = fixture.agent(AgentCli::Claude, &script);
    let pass = AgentPass {
        role: AgentRole::Implement,
        max_turns: CAP,
        system: "rules".into(),
        prompt: "do it".into(),
    };
    let meter = UsageMeter::default();
    let deadline = Instant::now() + Duration::from_secs(60);
    let running =
        agent.run_pass_metered(&pass, &fixture.folders, &fixture.console, deadline, &meter);
    let output = async {
        while !fixture.console.tail().contains("the last line") {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::select! {
        result = running => panic!("{result:?}"),
        () = output => {}
    }
    assert_eq!(meter.total(), whole);
}
