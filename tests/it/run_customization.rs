//! What operators and teams change about a run: pipelines, steps, scripts, models.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use domain::job::JobState;
use fake_vendors::scripted_agent::{Script, ScriptStep};
use serde_json::Value;

use crate::test_env::{IMPLEMENTATION_WORKFLOW, TestEnv};

/// A world whose runs look below a folder for what an operator has changed.
async fn customized() -> (TestEnv, PathBuf) {
    let world = TestEnv::start().await;
    let root = world.dir().join("custom");
    for folder in ["pipelines", "steps"] {
        std::fs::create_dir_all(root.join(folder)).unwrap();
    }
    let inputs = "          RUN_CONFIG: ${{ toJSON(inputs) }}\n";
    let variable = format!(
        "          AGENT_IMPLEMENT_CUSTOM_ROOT: {}\n",
        root.display()
    );
    let workflow = IMPLEMENTATION_WORKFLOW.replace(inputs, &format!("{inputs}{variable}"));
    assert_ne!(workflow, IMPLEMENTATION_WORKFLOW);
    let file = (".github/workflows/agent-implement.yml", workflow.as_str());
    world.repo().commit("main", &[file], "Customize").unwrap();
    (world, root)
}

fn executable(path: &Path, script: &str) {
    std::fs::write(path, format!("#!/bin/bash\nset -eu\n{script}\n")).unwrap();
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
}

/// The steps of a ticket's last run, by id.
async fn steps(world: &TestEnv, key: &str) -> Vec<Value> {
    let id = world.jobs(key).pop().unwrap().id;
    let steps = world.admin_get(&format!("/api/jobs/{id}/steps")).await;
    steps["steps"].as_array().unwrap().clone()
}

fn step<'s>(steps: &'s [Value], id: &str) -> &'s Value {
    let found = steps.iter().find(|step| step["id"] == id);
    found.unwrap_or_else(|| panic!("{id} in {steps:#?}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_whose_own_pipelines_are_named_and_not_there_fails() {
    let (world, root) = customized().await;
    std::fs::remove_dir_all(&root).unwrap();
    world.create_labelled_issue("ENG-1", "Add the feature");
    let job = world.wait_for_job_end("ENG-1").await;
    assert_eq!(job.state.status(), "failed", "{job:?}");
    let comments = world.vendors.linear().issue("ENG-1").comments();
    let told = format!(
        "the variable AGENT_IMPLEMENT_CUSTOM_ROOT names {}, which is not a folder of this image",
        root.display()
    );
    assert!(comments[0].contains(&told), "{comments:?}");
    assert!(world.repo().pulls().is_empty());
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pipeline_and_steps_of_ones_own_run_without_a_credential() {
    let (world, root) = customized().await;
    let pipeline = "id: autonomous\nsteps:\n\
        - {id: clone, type: clone}\n\
        - {id: licence, module: headers, inputs: {owner: Acme}}\n\
        - {id: feedback-loop, type: feedback-loop}\n\
        - {id: preflight, type: preflight}\n\
        - {id: push, type: push}\n";
    std::fs::write(root.join("pipelines/autonomous.yml"), pipeline).unwrap();
    let asked = world.dir().join("asked.json");
    let seen = world.dir().join("environment");
    executable(
        &root.join("steps/headers"),
        &format!(
            "cat > {}\nenv > {}\necho looking\necho '{{\"files\": 2}}'",
            asked.display(),
            seen.display()
        ),
    );
    executable(
        &root.join("steps/preflight"),
        "jq -e '.outputs.licence.files == 2' >/dev/null\ntest -f feature.txt\necho fine",
    );
    world.create_labelled_issue("ENG-1", "Add the feature");
    let job = world.wait_for_job_end("ENG-1").await;
    assert_eq!(job.state, JobState::Completed, "{job:?}");
    let asked: Value = serde_json::from_slice(&std::fs::read(asked).unwrap()).unwrap();
    assert_eq!(asked["step"]["inputs"]["owner"], "Acme");
    assert_eq!(asked["issue"]["identifier"], "ENG-1");
    assert_eq!(asked["branch"], job.branch);
    let environment = std::fs::read_to_string(seen).unwrap();
    for secret in ["sk-ant-", "TOKEN", "RUN_CONFIG", "KEY"] {
        assert!(!environment.contains(secret), "{secret} in {environment}");
    }
    let steps = steps(&world, "ENG-1").await;
    assert_eq!(step(&steps, "licence")["type"], "custom");
    assert_eq!(step(&steps, "licence")["outputs"]["files"], 2);
    assert_eq!(step(&steps, "preflight")["status"], "passed");
    assert!(!steps.iter().any(|step| step["id"] == "install"));
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_with_a_pipeline_is_told_before_anything_runs() {
    let (world, root) = customized().await;
    let pipeline = "id: autonomous\nsteps:\n\
        - {id: clone, type: clone}\n\
        - {id: plan-tests, type: test-plan}\n\
        - {id: lint, module: lint}\n";
    std::fs::write(root.join("pipelines/autonomous.yml"), pipeline).unwrap();
    world.create_labelled_issue("ENG-1", "Add the feature");
    let job = world.wait_for_job_end("ENG-1").await;
    assert_eq!(job.state.status(), "failed");
    assert_eq!(
        world.comments("ENG-1")[0],
        "Implementation failed: the pipeline cannot be loaded\n\
         - pipelines/autonomous.yml: step plan-tests: test-plan is a planning step; planning runs in \
         a workflow of its own and is no step type\n\
         - pipelines/autonomous.yml: step lint: there is no module steps/lint"
    );
    assert!(steps(&world, "ENG-1").await.is_empty());
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_of_ones_own_that_fails_ends_the_run_and_one_that_pushes_nothing_is_told() {
    let (world, root) = customized().await;
    executable(&root.join("steps/setup"), "echo no licence >&2\nexit 9");
    world.create_labelled_issue("ENG-1", "Add the feature");
    world.wait_for_job_end("ENG-1").await;
    assert_eq!(
        world.comments("ENG-1")[0],
        "Implementation failed: step setup: setup failed: exit code 9\nno licence"
    );
    std::fs::remove_file(root.join("steps/setup")).unwrap();
    let pipeline = "id: autonomous\nsteps: [{id: clone, type: clone}]\n";
    std::fs::write(root.join("pipelines/autonomous.yml"), pipeline).unwrap();
    world.create_labelled_issue("ENG-2", "Add another");
    world.wait_for_job_end("ENG-2").await;
    assert_eq!(
        world.comments("ENG-2")[0],
        "Implementation failed: the run ended without opening a pull request"
    );
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_team_names_models_guidance_and_a_teardown() {
    let world = TestEnv::start().await;
    let torn = world.dir().join("torn-down");
    let guidance = format!(
        "---\nmodel: big-model\ngap_analysis_model: careful-model\nteardown: touch {}\n---\n\
         Work on ${{issue_identifier}} in ${{repository}}; ${{HOME}} stays.\n",
        torn.display()
    );
    let files = [
        ("WORKFLOW.md", guidance.as_str()),
        (".agent-implement/config.yml", "packageManager: none\n"),
        ("package-lock.json", "{}\n"),
    ];
    world.repo().commit("main", &files, "Settings").unwrap();
    world.set_agent_script(
        "ENG-1",
        Script::new().pass([ScriptStep::write("feature.txt", "done\n")]),
    );
    world.create_labelled_issue("ENG-1", "Add the feature");
    let job = world.wait_for_job_end("ENG-1").await;
    assert_eq!(job.state, JobState::Completed, "{job:?}");
    assert!(torn.exists(), "the teardown ran");
    let steps = steps(&world, "ENG-1").await;
    let install = step(&steps, "install");
    assert_eq!(install["status"], "skipped", "{install}");
    assert_eq!(step(&steps, "teardown")["status"], "passed");
    let log = world.repo().run_log(world.repo().runs()[0].id);
    let started: Vec<&str> = log
        .lines()
        .filter_map(|line| line.split_once("agent started with model "))
        .map(|(_, model)| model)
        .collect();
    assert_eq!(started, ["big-model", "careful-model"]);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_teardown_runs_after_a_failure_and_changes_nothing_of_it() {
    let world = TestEnv::start().await;
    let text = "---\nsetup: exit 3\nteardown: 'echo torn; exit 5'\n---\n";
    world
        .repo()
        .commit("main", &[("WORKFLOW.md", text)], "Settings")
        .unwrap();
    world.create_labelled_issue("ENG-1", "Add the feature");
    world.wait_for_job_end("ENG-1").await;
    assert_eq!(
        world.comments("ENG-1")[0],
        "Implementation failed: setup script of WORKFLOW.md failed: exit code 3"
    );
    let steps = steps(&world, "ENG-1").await;
    assert_eq!(step(&steps, "teardown")["status"], "failed");
    world.finish().await;
}
