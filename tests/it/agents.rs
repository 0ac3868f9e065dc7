//! The real agent programs against a fake model: their work, their failures, and what a repository
//! cannot make them do.
//!
//! `tests/run.sh` installs them, at the versions of `tests/agents/package.json`, and names their folder
//! in `AGENT_IMPLEMENT_AGENTS`.

mod agent_harness;
mod claude;
mod codex_and_gemini;
mod hostile_repository;
mod installation;
mod scratch_folder;

use domain::job::JobState;
use serde_json::json;

use crate::fake_model::{FakeModel, ModelTurn};
use crate::test_env::{TestEnv, TestEnvOptions};
use agent_harness::agents_dir;
use requires::requires;

#[requires("agents")]
#[tokio::test(flavor = "multi_thread")]
async fn implements_a_ticket_with_the_real_default_agent() {
    let agents = agents_dir();
    let model = FakeModel::start([
        ModelTurn::write_file("feature.txt", "done\n"),
        ModelTurn::text("I wrote the feature."),
    ])
    .await;
    let env = TestEnv::with_options(TestEnvOptions {
        agents_dir: Some(agents),
        ..TestEnvOptions::default()
    })
    .await;
    env.repo().set_variable("ANTHROPIC_BASE_URL", &model.url);
    env.create_labelled_issue("ENG-1", "Add the feature");
    let job = env.wait_for_job_end("ENG-1").await;
    let log = env.repo().run_log(env.repo().runs()[0].id);
    assert_eq!(job.state, JobState::Completed, "{log}");

    let pull = env.repo().pulls().remove(0);
    assert_eq!(
        env.repo().read_file(&pull.head, "feature.txt").as_deref(),
        Some("done\n")
    );
    assert!(pull.body.contains("I wrote the feature."), "{}", pull.body);
    assert!(
        log.contains("Write: feature.txt"),
        "paths of the tree: {log}"
    );

    let requests = model.requests();
    let job_json = env.admin_get(&format!("/api/jobs/{}", job.id)).await;
    let usage = &job_json["usage"];
    assert_eq!(requests.len(), 3, "two answers to implement, one to review");
    assert_eq!(
        (&usage["inputTokens"], &usage["outputTokens"]),
        (&json!(3 * 170), &json!(3 * 42)),
        "{usage}"
    );
    assert!(usage["turns"].as_u64().unwrap() >= 3, "{usage}");
    assert!(usage["costUsd"].as_f64().unwrap() > 0.0, "{usage}");
    for request in &requests {
        assert_eq!(request.key, "sk-ant-canary-of-the-model");
    }
    env.finish().await;
}

#[requires("agents")]
#[tokio::test(flavor = "multi_thread")]
async fn uses_the_agent_that_the_repository_configures() {
    let agents = agents_dir();
    let model = FakeModel::start([
        ModelTurn::write_file("feature.txt", "done\n"),
        ModelTurn::text("I wrote the feature."),
        ModelTurn::text("{\"approved\":true,\"blocking\":[]}"),
    ])
    .await;
    let env = TestEnv::with_options(TestEnvOptions {
        agents_dir: Some(agents),
        ..TestEnvOptions::default()
    })
    .await;
    let settings = ".agent-implement/config.yml";
    let config = [(settings, "agent: codex\n")];
    env.repo().commit("main", &config, "Choose").unwrap();
    env.repo()
        .set_variable("OPENAI_BASE_URL", &format!("{}/v1", model.url))
        .set_variable("AGENT_IMPLEMENT_AGENT", "gemini")
        .set_secret("OPENAI_API_KEY", "sk-openai-canary");
    env.create_labelled_issue("ENG-1", "Add the feature");
    let job = env.wait_for_job_end("ENG-1").await;
    let log = env.repo().run_log(env.repo().runs()[0].id);
    assert_eq!(job.state, JobState::Completed, "{log}");
    let job_json = env.admin_get(&format!("/api/jobs/{}", job.id)).await;
    let usage = json!({"turns": 3, "inputTokens": 300, "outputTokens": 126, "costUsd": null});
    assert_eq!(job_json["usage"], usage);
    for request in model.requests() {
        assert_eq!(request.key, "Bearer sk-openai-canary");
    }

    let unknown = [(settings, "agent: command\n")];
    env.repo().commit("main", &unknown, "Choose").unwrap();
    env.create_labelled_issue("ENG-2", "Add another");
    let job = env.wait_for_job_end("ENG-2").await;
    assert_eq!(job.state.status(), "failed");
    let comments = env.comments("ENG-2");
    let expected = ".agent-implement/config.yml: unknown agent \"command\"; \
                known agents: claude, codex, gemini";
    assert!(
        comments.iter().any(|comment| comment.contains(expected)),
        "{comments:?}"
    );
    env.finish().await;
}
