//! The real agent programs, on a model of our own: what they do, how they end, and what a
//! repository cannot make them do.
//!
//! `tests/run.sh` installs them, at the versions of `tests/agents/package.json`, and names their
//! folder in `AGENT_IMPLEMENT_AGENTS`.

mod agent_harness;
mod claude;
mod codex_and_gemini;
mod hostile_repository;

use domain::job::JobState;
use serde_json::json;

use crate::fake_model::{FakeModel, ModelTurn};
use crate::test_env::{TestEnv, TestEnvOptions};
use agent_harness::agents_dir;

#[tokio::test(flavor = "multi_thread")]
async fn a_ticket_is_implemented_by_the_real_default_agent() {
    let Some(agents) = agents_dir("a ticket implemented by the real claude") else {
        return;
    };
    let model = FakeModel::start([
        ModelTurn::write_file("feature.txt", "done\n"),
        ModelTurn::text("I wrote the feature."),
    ])
    .await;
    let world = TestEnv::with_options(TestEnvOptions {
        agents_dir: Some(agents),
        ..TestEnvOptions::default()
    })
    .await;
    world.repo().set_variable("ANTHROPIC_BASE_URL", &model.url);
    world.create_labelled_issue("ENG-1", "Add the feature");
    let job = world.wait_for_job_end("ENG-1").await;
    let log = world.repo().run_log(world.repo().runs()[0].id);
    assert_eq!(job.state, JobState::Completed, "{log}");

    let pull = world.repo().pulls().remove(0);
    assert_eq!(
        world.repo().read_file(&pull.head, "feature.txt").as_deref(),
        Some("done\n")
    );
    assert!(pull.body.contains("I wrote the feature."), "{}", pull.body);
    assert!(
        log.contains("Write: feature.txt"),
        "paths of the tree: {log}"
    );

    let asked = model.requests();
    let shown = world.admin_get(&format!("/api/jobs/{}", job.id)).await;
    let usage = &shown["usage"];
    assert_eq!(asked.len(), 3, "two answers to implement, one to review");
    assert_eq!(
        (&usage["inputTokens"], &usage["outputTokens"]),
        (&json!(3 * 170), &json!(3 * 42)),
        "{usage}"
    );
    assert!(usage["turns"].as_u64().unwrap() >= 3, "{usage}");
    assert!(usage["costUsd"].as_f64().unwrap() > 0.0, "{usage}");
    for asked in &asked {
        assert_eq!(asked.key, "sk-ant-canary-of-the-model");
    }
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_repository_chooses_its_agent_and_an_unknown_one_is_said() {
    let Some(agents) = agents_dir("a ticket implemented by the real codex") else {
        return;
    };
    let model = FakeModel::start([
        ModelTurn::write_file("feature.txt", "done\n"),
        ModelTurn::text("I wrote the feature."),
        ModelTurn::text("{\"approved\":true,\"blocking\":[]}"),
    ])
    .await;
    let world = TestEnv::with_options(TestEnvOptions {
        agents_dir: Some(agents),
        ..TestEnvOptions::default()
    })
    .await;
    let settings = ".agent-implement/config.yml";
    let chosen = [(settings, "agent: codex\n")];
    world.repo().commit("main", &chosen, "Choose").unwrap();
    world
        .repo()
        .set_variable("OPENAI_BASE_URL", &format!("{}/v1", model.url))
        .set_variable("AGENT_IMPLEMENT_AGENT", "gemini")
        .set_secret("OPENAI_API_KEY", "sk-openai-canary");
    world.create_labelled_issue("ENG-1", "Add the feature");
    let job = world.wait_for_job_end("ENG-1").await;
    let log = world.repo().run_log(world.repo().runs()[0].id);
    assert_eq!(job.state, JobState::Completed, "{log}");
    let shown = world.admin_get(&format!("/api/jobs/{}", job.id)).await;
    let usage = json!({"turns": 3, "inputTokens": 300, "outputTokens": 126, "costUsd": null});
    assert_eq!(shown["usage"], usage);
    for asked in model.requests() {
        assert_eq!(asked.key, "Bearer sk-openai-canary");
    }

    let unknown = [(settings, "agent: command\n")];
    world.repo().commit("main", &unknown, "Choose").unwrap();
    world.create_labelled_issue("ENG-2", "Add another");
    let job = world.wait_for_job_end("ENG-2").await;
    assert_eq!(job.state.status(), "failed");
    let comments = world.comments("ENG-2");
    let said = ".agent-implement/config.yml: the agent \"command\" is not known; \
                there are claude, codex, gemini";
    assert!(
        comments.iter().any(|comment| comment.contains(said)),
        "{comments:?}"
    );
    world.finish().await;
}
