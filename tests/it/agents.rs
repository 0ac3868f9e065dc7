//! The real agent programs, on a model of our own: what they do, how they end, and what a
//! repository cannot make them do.
//!
//! `tests/run.sh` installs them, at the versions of `tests/agents/package.json`, and names their
//! folder in `AGENT_IMPLEMENT_AGENTS`.

mod claude;
mod hostile;
mod others;
mod stage;

use domain::job::JobState;
use serde_json::json;

use crate::model::{Model, Turn};
use crate::world::{Making, World};
use stage::installed;

#[tokio::test(flavor = "multi_thread")]
async fn a_ticket_is_implemented_by_the_real_default_agent() {
    let Some(agents) = installed("a ticket implemented by the real claude") else {
        return;
    };
    let model = Model::playing([
        Turn::write("feature.txt", "done\n"),
        Turn::say("I wrote the feature."),
    ])
    .await;
    let world = World::made(Making {
        agents: Some(agents),
        ..Making::default()
    })
    .await;
    world.repo().variable("ANTHROPIC_BASE_URL", &model.url);
    world.flag("ENG-1", "Add the feature");
    let job = world.ended("ENG-1").await;
    let log = world.repo().run_log(world.repo().runs()[0].id);
    assert_eq!(job.state, JobState::Completed, "{log}");

    let pull = world.repo().pulls().remove(0);
    assert_eq!(
        world.repo().file_at(&pull.head, "feature.txt").as_deref(),
        Some("done\n")
    );
    assert!(pull.body.contains("I wrote the feature."), "{}", pull.body);
    assert!(
        log.contains("Write: feature.txt"),
        "paths of the tree: {log}"
    );

    let asked = model.asked();
    let shown = world.admin(&format!("/api/jobs/{}", job.id)).await;
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
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_repository_chooses_its_agent_and_an_unknown_one_is_said() {
    let Some(agents) = installed("a ticket implemented by the real codex") else {
        return;
    };
    let model = Model::playing([
        Turn::write("feature.txt", "done\n"),
        Turn::say("I wrote the feature."),
        Turn::say("{\"approved\":true,\"blocking\":[]}"),
    ])
    .await;
    let world = World::made(Making {
        agents: Some(agents),
        ..Making::default()
    })
    .await;
    let settings = ".agent-implement/config.yml";
    let chosen = [(settings, "agent: codex\n")];
    world.repo().commit("main", &chosen, "Choose").unwrap();
    world
        .repo()
        .variable("OPENAI_BASE_URL", &format!("{}/v1", model.url))
        .variable("AGENT_IMPLEMENT_AGENT", "gemini")
        .secret("OPENAI_API_KEY", "sk-openai-canary");
    world.flag("ENG-1", "Add the feature");
    let job = world.ended("ENG-1").await;
    let log = world.repo().run_log(world.repo().runs()[0].id);
    assert_eq!(job.state, JobState::Completed, "{log}");
    let shown = world.admin(&format!("/api/jobs/{}", job.id)).await;
    let usage = json!({"turns": 3, "inputTokens": 300, "outputTokens": 126, "costUsd": null});
    assert_eq!(shown["usage"], usage);
    for asked in model.asked() {
        assert_eq!(asked.key, "Bearer sk-openai-canary");
    }

    let unknown = [(settings, "agent: command\n")];
    world.repo().commit("main", &unknown, "Choose").unwrap();
    world.flag("ENG-2", "Add another");
    let job = world.ended("ENG-2").await;
    assert_eq!(job.state.status(), "failed");
    let comments = world.comments("ENG-2");
    let said = ".agent-implement/config.yml: the agent \"command\" is not known; \
                there are claude, codex, gemini";
    assert!(
        comments.iter().any(|comment| comment.contains(said)),
        "{comments:?}"
    );
    world.end().await;
}
