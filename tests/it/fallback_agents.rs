//! Fallback agents: at the usage limit of one agent, the next one with credentials continues the work.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use domain::job::{Job, JobKind, JobState};
use domain::mapping::Mapping;
use domain::time::Timestamp;
use fake_vendors::scripted_agent::{Script, ScriptStep};
use serde_json::json;

use crate::follow_up::open_pull;
use crate::gap_fill::{INSTRUCTION, options, send_trigger, trigger_body};
use crate::planning::write_steps;
use crate::test_env::{EngineMode, TestEnv, TestEnvOptions, mapping_with};

/// Codex that writes a file and approves every review.
const CODEX: &str = r#"#!/bin/sh
say() {
    printf '{"type":"item.completed","item":{"id":"1","type":"agent_message","text":"%s"}}\n' "$1"
    printf '{"type":"turn.completed","usage":{"input_tokens":10,"cached_input_tokens":0,"output_tokens":5}}\n'
}
cat > /dev/null
[ -n "$OPENAI_API_KEY" ] || exit 3
[ -z "$ANTHROPIC_API_KEY" ] || exit 4
case "$*" in
*--output-schema*) say '{\"approved\":true,\"blocking\":[]}' ;;
*)
    while [ "$1" != --cd ]; do shift; done
    echo codex >> "$2/by-codex.txt"
    say 'I wrote the feature.'
    ;;
esac
"#;

/// Installs [`CODEX`] into the images of runs.
pub fn install_codex(bin: &Path) {
    let program = bin.join("codex");
    std::fs::write(&program, CODEX).unwrap();
    let executable = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&program, executable).unwrap();
}

fn mapping() -> Mapping {
    mapping_with(&json!({"fallbackAgents": ["gemini", "codex"]}))
}

async fn env_with_codex(mappings: Vec<Mapping>) -> TestEnv {
    let env = TestEnv::with_options(TestEnvOptions {
        mappings,
        engine: EngineMode::manual(),
        ..options()
    })
    .await;
    install_codex(&env.vendors.dir().join("bin"));
    env
}

/// Step that reports a reached usage limit, and its end.
fn limit(env: &TestEnv) -> (ScriptStep, Timestamp) {
    let until = env.app.core.now() + Duration::from_secs(2 * 60 * 60);
    let until = Timestamp::from_millis(until.as_secs() * 1000);
    let resets_at = until.as_secs();
    (ScriptStep::UsageLimit { resets_at }, until)
}

/// Jobs of a ticket in the order of their dispatch. Their ids do not tell, because the clock stands.
fn jobs(env: &TestEnv, key: &str) -> Vec<Job> {
    let mut jobs = env.jobs(key);
    jobs.sort_by_key(|job| job.dispatch_number);
    jobs
}

/// Waits until this run of a ticket has ended, and performs its effects. A further run may have started.
async fn ended(env: &TestEnv, key: &str, run: usize) -> Job {
    let has_ended = || {
        jobs(env, key)
            .get(run - 1)
            .is_some_and(|job| !job.is_active())
    };
    env.tick_until(&format!("run {run} of {key} has ended"), has_ended)
        .await;
    env.tick().await;
    jobs(env, key).remove(run - 1)
}

fn agent(job: &Job) -> &str {
    job.agent.as_deref().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_agent_with_a_credential_continues_until_the_limit_resets() {
    let env = env_with_codex(vec![mapping()]).await;
    env.repo().set_secret("OPENAI_API_KEY", "sk-openai-canary");
    let (step, until) = limit(&env);
    env.set_agent_script("ENG-1", Script::new().pass([step]));
    env.create_labelled_issue("ENG-1", "Add the feature");
    let first = ended(&env, "ENG-1", 1).await;
    assert_eq!((agent(&first), first.resumes_at), ("claude", Some(until)));
    let second = ended(&env, "ENG-1", 2).await;
    assert_eq!(second.state, JobState::Completed, "{second:#?}");
    // Gemini has no credential in the repository.
    assert_eq!((agent(&second), &second.branch), ("codex", &first.branch));
    let pull = env.repo().pulls().remove(0);
    assert!(env.repo().diff(&pull).contains("by-codex.txt"));
    env.tick_until_drained().await;
    let comments = env.comments("ENG-1");
    let continued = format!(
        "Implementation paused: the usage limit of the model provider is reached. It continues with OpenAI Codex \
         until the limit resets at {}.",
        until.date_text()
    );
    let said = comments.iter().filter(|text| **text == continued).count();
    assert_eq!(said, 1, "{comments:?}");

    // Other tickets start with the fallback agent at once, also after a restart.
    let engine = EngineMode::Manual(env.app.core.clock.clone());
    let env = env
        .restart_service(TestEnvOptions {
            mappings: Vec::new(),
            engine,
            ..options()
        })
        .await;
    env.create_labelled_issue("ENG-2", "Add another");
    let other = ended(&env, "ENG-2", 1).await;
    assert_eq!(
        (&other.state, agent(&other)),
        (&JobState::Completed, "codex")
    );
    // A label that chooses the limited agent is no exception.
    let issue = env.vendors.linear().issue("ENG-3").title("A third");
    issue.add_label("agent:claude").add_label("Agent-Implement");
    assert_eq!(agent(&ended(&env, "ENG-3", 1).await), "codex");

    env.advance_clock(until.since(env.app.core.now()));
    env.create_labelled_issue("ENG-4", "Add a fourth");
    let last = ended(&env, "ENG-4", 1).await;
    assert_eq!(
        (&last.state, agent(&last)),
        (&JobState::Completed, "claude")
    );
    env.tick_until_drained().await;
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_credential_of_a_fallback_agent_the_issue_waits() {
    let env = env_with_codex(vec![mapping()]).await;
    let (step, until) = limit(&env);
    env.set_agent_script("ENG-1", Script::new().pass([step]).pass(write_steps()));
    env.create_labelled_issue("ENG-1", "Add the feature");
    ended(&env, "ENG-1", 1).await;
    env.tick().await;
    let why = env.admin_get("/api/why/ENG-1").await;
    assert_eq!(why["decision"]["reason"], "quota", "{why}");
    let comment = env.comments("ENG-1").remove(0);
    let resumes = format!("It resumes automatically at {}.", until.date_text());
    assert!(comment.ends_with(&resumes), "{comment}");
    // The secret was added since, and the label chooses an agent that is not limited.
    env.repo().set_secret("OPENAI_API_KEY", "sk-openai-canary");
    env.vendors.linear().issue("ENG-1").add_label("agent:codex");
    let second = ended(&env, "ENG-1", 2).await;
    assert_eq!(
        (&second.state, agent(&second)),
        (&JobState::Completed, "codex")
    );
    env.tick_until_drained().await;
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn work_on_an_open_pull_request_continues_with_a_fallback_agent() {
    let env = env_with_codex(vec![mapping()]).await;
    env.repo().set_secret("OPENAI_API_KEY", "sk-openai-canary");
    let number = open_pull(&env, "ENG-1").await;
    let (step, _) = limit(&env);
    let script = Script::new().pass_if_prompt_contains(INSTRUCTION, [step]);
    env.set_agent_script("ENG-1", script);
    let response = send_trigger(&env, trigger_body("ENG-1", number)).await;
    assert_eq!(response.status, 200, "{response:?}");
    let gap_fills = |env: &TestEnv| {
        let mut jobs = jobs(env, "ENG-1");
        jobs.retain(|job| job.kind == JobKind::GapFill);
        jobs
    };
    env.tick_until("a second run has ended", || {
        let jobs = gap_fills(&env);
        jobs.len() == 2 && jobs.iter().all(|job| !job.is_active())
    })
    .await;
    let jobs = gap_fills(&env);
    assert_eq!((agent(&jobs[0]), agent(&jobs[1])), ("claude", "codex"));
    assert_eq!(jobs[1].state, JobState::Completed);
    env.tick_until_drained().await;
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn machines_get_only_the_key_of_the_chosen_agent() {
    let flags = [
        ("--runner-mode", "vm"),
        ("--openai-api-key", "sk-openai-canary"),
    ];
    let env = TestEnv::with_options(TestEnvOptions {
        mappings: vec![mapping()],
        session_hosts: true,
        engine: EngineMode::manual(),
        extra_flags: flags.map(|(name, value)| (name, value.to_owned())).to_vec(),
        ..TestEnvOptions::default()
    })
    .await;
    install_codex(&env.vendors.dir().join("bin"));
    let keys_of = |job: &Job| {
        let machines = env.vendors.fly().host().snapshots().into_iter();
        let mut own =
            machines.filter(|machine| machine.env["RUN_CONFIG"].contains(job.id.as_str()));
        let variables = own.next().unwrap().env;
        let names = ["ANTHROPIC_API_KEY", "OPENAI_API_KEY"];
        names.map(|name| variables.contains_key(name))
    };
    let (step, _) = limit(&env);
    env.set_agent_script("ENG-1", Script::new().pass([step]));
    env.create_labelled_issue("ENG-1", "Add the feature");
    env.tick().await;
    // The repository may choose the agent, so the run gets the keys of all.
    assert_eq!(keys_of(&jobs(&env, "ENG-1")[0]), [true, true]);
    let first = ended(&env, "ENG-1", 1).await;
    assert_eq!(agent(&first), "claude");
    let comments = env.comments("ENG-1");
    let said = comments
        .iter()
        .any(|text| text.contains("It continues with OpenAI Codex"));
    assert!(said, "{comments:?}");
    env.tick_until("the second run has started", || {
        env.jobs("ENG-1").len() == 2
    })
    .await;
    env.tick().await;
    let second = jobs(&env, "ENG-1").remove(1);
    let chosen = second.agents.choice.agent.map(|agent| agent.as_str());
    assert_eq!((chosen, keys_of(&second)), (Some("codex"), [false, true]));
    env.stop().await;
}
