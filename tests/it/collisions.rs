//! Collision forecast: tickets of a repository that change the same files do not run side by side.

use std::time::Duration;

use domain::job::{Job, JobKind};
use domain::mapping::Mapping;
use engine::app::App;
use engine::control;
use engine::pull_requests::reconcile;
use fake_vendors::FakeService;
use fake_vendors::scripted_agent::{Script, ScriptStep};
use serde_json::{Value, json};
use store::{changed_files, mappings};

use crate::follow_up::{open_pull, options, register_webhook};
use crate::planning::{IMPLEMENTATION_PROMPT, PLANNING_PROMPT};
use crate::review_capacity::{assert_poll_is_woken, is_poll_woken, reserve};
use crate::test_env::{Gate, TestEnv, TestEnvOptions, mapping_with, planning_mapping};

/// Environment with a manual engine and webhooks, in which runs are dispatched but never start.
async fn env_with(fields: Value) -> TestEnv {
    let mut all = json!({"maxInProgressAiIssues": 50});
    let fields = fields.as_object().unwrap().clone();
    all.as_object_mut().unwrap().extend(fields);
    let env = TestEnv::with_options(TestEnvOptions {
        mappings: vec![mapping_with(&all)],
        ..options()
    })
    .await;
    let slow = Duration::from_secs(6_000);
    env.vendors.github().set_start_delay(slow);
    register_webhook(&env);
    env
}

async fn poll(env: &TestEnv) {
    engine::poll::run_once(&env.app).await.unwrap();
}

async fn sweep(env: &TestEnv) {
    reconcile::run_once(&env.app).await.unwrap();
}

/// Why a ticket waits. Empty if it does not.
async fn wait(env: &TestEnv, key: &str) -> (String, String) {
    let why = env.admin_get(&format!("/api/why/{key}")).await;
    let text = |name: &str| {
        why["decision"][name]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    (text("reason"), text("message"))
}

async fn assert_collides(env: &TestEnv, key: &str, message: &str) {
    let expected = ("collision".to_owned(), message.to_owned());
    assert_eq!(wait(env, key).await, expected, "{key}");
}

fn implementations(env: &TestEnv, key: &str) -> Vec<Job> {
    let mut jobs = env.jobs(key);
    jobs.retain(|job| job.kind == JobKind::Implementation);
    jobs
}

fn is_dispatched(env: &TestEnv, key: &str) -> bool {
    !implementations(env, key).is_empty()
}

/// Creates a flagged ticket whose plan declares these files.
async fn create_planned(env: &TestEnv, key: &str, files: &[&str]) {
    env.create_labelled_issue(key, "Do it");
    declare(env, key, files).await;
}

async fn declare(env: &TestEnv, key: &str, files: &[&str]) {
    let id = env.vendors.linear().issue(key).snapshot().unwrap().id;
    let files: Vec<String> = files.iter().map(|file| (*file).to_owned()).collect();
    let write = env
        .store
        .write(move |tx| changed_files::put_declared(tx, &id.as_str().into(), &files));
    write.await.unwrap();
}

/// The whole story with real runs: plans, a run, its pull request, and its merge.
#[tokio::test(flavor = "multi_thread")]
async fn the_forecast_holds_until_the_other_pull_request_is_merged() {
    let env = TestEnv::with_manual_engine([planning_mapping()]).await;
    let gate = Gate::new(&env);
    let plan = |file: &str| format!("## Steps\n\n1. Write it\n\n## Files\n\n- `{file}`: all of it");
    for (key, declared, written) in [
        ("ENG-1", "src/cart.rs", ["src/cart.rs", "src/extra.rs"]),
        ("ENG-2", "src/cart.rs", ["src/cart.rs", "a.txt"]),
        ("ENG-3", "src/extra.rs", ["src/extra.rs", "b.txt"]),
    ] {
        let writes = written.map(|file| ScriptStep::write(file, &format!("{key}\n")));
        let [first, second] = writes;
        let script = Script::new()
            .pass_if_prompt_contains(
                PLANNING_PROMPT,
                [
                    ScriptStep::write("ai-output/comments/01-plan.md", &plan(declared)),
                    ScriptStep::message("Planned."),
                ],
            )
            .pass_if_prompt_contains(
                IMPLEMENTATION_PROMPT,
                [
                    gate.wait_step(),
                    first,
                    second,
                    ScriptStep::message("Done."),
                ],
            );
        env.set_agent_script(key, script);
    }
    let is_planned = |key: &str| env.jobs(key).first().is_some_and(|job| !job.is_active());
    env.create_labelled_issue("ENG-1", "First");
    env.tick_until("the first is implemented", || is_dispatched(&env, "ENG-1"))
        .await;
    env.create_labelled_issue("ENG-2", "Second");
    env.tick_until("the second is planned", || is_planned("ENG-2"))
        .await;
    env.tick_until_drained().await;
    env.tick().await;
    let running = "Changes src/cart.rs as ENG-1 does, which is running";
    assert_collides(&env, "ENG-2", running).await;
    gate.open();
    let has_opened = |key: &str| {
        let jobs = implementations(&env, key);
        jobs.iter().any(Job::has_opened_pull_request)
    };
    env.tick_until("the pull request is open", || has_opened("ENG-1"))
        .await;
    env.tick_until_drained().await;
    env.tick().await;
    let number = env.repo().pulls()[0].number;
    let open =
        |file: &str| format!("Changes {file} as ENG-1 does, whose pull request #{number} is open");
    assert_collides(&env, "ENG-2", &open("src/cart.rs")).await;
    // The pull request changes more than its plan declares, which is known without a sweep.
    env.create_labelled_issue("ENG-3", "Third");
    env.tick_until("the third is planned", || is_planned("ENG-3"))
        .await;
    env.tick_until_drained().await;
    env.tick().await;
    assert_collides(&env, "ENG-3", &open("src/extra.rs")).await;
    env.repo().merge_pull(number).unwrap();
    sweep(&env).await;
    env.tick_until("the second and third are implemented", || {
        has_opened("ENG-2") && has_opened("ENG-3")
    })
    .await;
    env.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_ends_without_a_pull_request_releases_its_files() {
    let env = env_with(json!({})).await;
    create_planned(&env, "ENG-1", &["src/a.rs", "src/b.rs"]).await;
    poll(&env).await;
    create_planned(&env, "ENG-2", &["src/b.rs"]).await;
    create_planned(&env, "ENG-3", &["src/c.rs"]).await;
    poll(&env).await;
    let running = "Changes src/b.rs as ENG-1 does, which is running";
    assert_collides(&env, "ENG-2", running).await;
    // The reservation compares again.
    assert!(!reserve(&env, "ENG-2", env.app.core.now()).await);
    assert!(is_dispatched(&env, "ENG-3"));
    cancel(&env.app, "ENG-1").await;
    poll(&env).await;
    assert!(is_dispatched(&env, "ENG-2"));
    env.stop().await;
}

async fn cancel(app: &App, key: &str) {
    let actor = domain::audit::Actor::service();
    control::cancel(app, actor, key.to_owned(), false)
        .await
        .unwrap();
    engine::outbox_worker::drain(app).await.unwrap();
}

/// A person pushes another file to the branch: the sweep reads the files of the new head.
#[tokio::test(flavor = "multi_thread")]
async fn the_sweep_reads_the_files_of_heads_that_moved() {
    let env = env_with(json!({})).await;
    let number = open_pull(&env, "ENG-1").await;
    create_planned(&env, "ENG-2", &["src/pushed.rs"]).await;
    sweep(&env).await;
    let branch = env.repo().pulls()[0].head.clone();
    env.repo()
        .commit(&branch, &[("src/pushed.rs", "x\n")], "By hand")
        .unwrap();
    set_paused(&env, true).await;
    env.vendors.requests().clear();
    sweep(&env).await;
    let asked = |text: &str| {
        let requests = env.vendors.requests().for_service(FakeService::GitHub);
        requests
            .iter()
            .filter(|one| one.body.to_string().contains(text))
            .count()
    };
    assert_eq!(asked("files(first: 100)"), 1);
    sweep(&env).await;
    assert_eq!(
        asked("files(first: 100)"),
        1,
        "the head has not moved again"
    );
    set_paused(&env, false).await;
    poll(&env).await;
    let open = format!("Changes src/pushed.rs as ENG-1 does, whose pull request #{number} is open");
    assert_collides(&env, "ENG-2", &open).await;
    is_poll_woken(&env).await;
    env.repo().close_pull(number);
    assert_poll_is_woken(&env).await;
    poll(&env).await;
    assert!(is_dispatched(&env, "ENG-2"));
    env.stop().await;
}

async fn set_paused(env: &TestEnv, paused: bool) {
    change_mapping(env, move |mapping| mapping.paused = paused).await;
}

async fn change_mapping(env: &TestEnv, change: impl Fn(&mut Mapping) + Send + 'static) {
    let write = env.store.write(move |tx| {
        let mut mapping = mappings::get(tx, &"ENG".into())?.unwrap();
        change(&mut mapping);
        mappings::put(tx, &mapping)
    });
    write.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_project_excludes_files_or_allows_collisions() {
    let env = env_with(json!({"collisionIgnore": ["docs/", "**/*.snap"]})).await;
    create_planned(
        &env,
        "ENG-1",
        &["docs/a.md", "web/t.snap", "src/a.rs", "src/z.rs"],
    )
    .await;
    poll(&env).await;
    create_planned(&env, "ENG-2", &["docs/a.md", "web/t.snap"]).await;
    create_planned(&env, "ENG-3", &["docs/a.md", "src/a.rs"]).await;
    create_planned(&env, "ENG-4", &["src/z.rs"]).await;
    poll(&env).await;
    assert!(is_dispatched(&env, "ENG-2"));
    assert_collides(
        &env,
        "ENG-3",
        "Changes src/a.rs as ENG-1 does, which is running",
    )
    .await;
    change_mapping(&env, |mapping| {
        mapping.collisions = domain::collision::CollisionRule::Allow;
    })
    .await;
    poll(&env).await;
    assert!(is_dispatched(&env, "ENG-3") && is_dispatched(&env, "ENG-4"));
    env.stop().await;
}

/// The plan of a ticket and what is known of pull requests are in the store: a poll asks nobody.
#[tokio::test(flavor = "multi_thread")]
async fn a_forecast_takes_no_request_of_a_poll() {
    let mut seen = Vec::new();
    for rule in ["wait", "allow"] {
        let env = env_with(json!({"collisions": rule})).await;
        open_pull(&env, "ENG-1").await;
        sweep(&env).await;
        set_paused(&env, rule == "allow").await;
        create_planned(&env, "ENG-2", &["a.txt"]).await;
        poll(&env).await;
        env.vendors.requests().clear();
        poll(&env).await;
        let requests = env.vendors.requests();
        let of = |service| requests.for_service(service).len();
        seen.push((of(FakeService::Linear), of(FakeService::GitHub)));
        assert!(!is_dispatched(&env, "ENG-2"));
        env.stop().await;
    }
    assert_eq!(seen[0], seen[1]);
}
