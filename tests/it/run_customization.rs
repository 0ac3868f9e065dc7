//! Customization of runs by operators and teams: pipelines, steps, scripts and models.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use domain::job::JobState;
use fake_vendors::scripted_agent::{Script, ScriptStep};
use serde_json::Value;

use crate::test_env::{IMPLEMENTATION_WORKFLOW, TestEnv};

/// Environment whose runs use a customization folder. Returns its path, too.
async fn customized() -> (TestEnv, PathBuf) {
    let env = TestEnv::start().await;
    let root = env.dir().join("custom");
    for folder in ["pipelines", "steps"] {
        std::fs::create_dir_all(root.join(folder)).unwrap();
    }
    set_image_variable(&env, "AGENT_IMPLEMENT_CUSTOM_ROOT", &root);
    (env, root)
}

/// Adds a variable with a path to those of the runner image.
fn set_image_variable(env: &TestEnv, name: &str, path: &Path) {
    let inputs = "          RUN_CONFIG: ${{ toJSON(inputs) }}\n";
    let variable = format!("          {name}: {}\n", path.display());
    let workflow = IMPLEMENTATION_WORKFLOW.replace(inputs, &format!("{inputs}{variable}"));
    assert_ne!(workflow, IMPLEMENTATION_WORKFLOW);
    let file = (".github/workflows/agent-implement.yml", workflow.as_str());
    env.repo().commit("main", &[file], "Customize").unwrap();
}

fn executable(path: &Path, script: &str) {
    std::fs::write(path, format!("#!/bin/bash\nset -eu\n{script}\n")).unwrap();
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
}

/// Steps of a ticket's last run.
async fn steps(env: &TestEnv, key: &str) -> Vec<Value> {
    let id = env.jobs(key).pop().unwrap().id;
    let steps = env.admin_get(&format!("/api/jobs/{id}/steps")).await;
    steps["steps"].as_array().unwrap().clone()
}

fn step<'s>(steps: &'s [Value], id: &str) -> &'s Value {
    let found = steps.iter().find(|step| step["id"] == id);
    found.unwrap_or_else(|| panic!("{id} in {steps:#?}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_customization_folder_fails_the_run() {
    let (env, root) = customized().await;
    std::fs::remove_dir_all(&root).unwrap();
    env.create_labelled_issue("ENG-1", "Add the feature");
    let job = env.wait_for_job_end("ENG-1").await;
    assert_eq!(job.state.status(), "failed", "{job:?}");
    let comments = env.vendors.linear().issue("ENG-1").comments();
    let expected = format!(
        "AGENT_IMPLEMENT_CUSTOM_ROOT is {}, which is not a folder in this image",
        root.display()
    );
    assert!(comments[0].contains(&expected), "{comments:?}");
    assert!(env.repo().pulls().is_empty());
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_custom_pipeline_and_custom_steps_run_without_credentials() {
    let (env, root) = customized().await;
    let pipeline = "id: autonomous\nsteps:\n\
        - {id: clone, type: clone}\n\
        - {id: licence, module: headers, inputs: {owner: Acme}}\n\
        - {id: feedback-loop, type: feedback-loop}\n\
        - {id: preflight, type: preflight}\n\
        - {id: push, type: push}\n";
    std::fs::write(root.join("pipelines/autonomous.yml"), pipeline).unwrap();
    let step_input = env.dir().join("step-input.json");
    let seen = env.dir().join("environment");
    executable(
        &root.join("steps/headers"),
        &format!(
            "cat > {}\nenv > {}\necho looking\necho '{{\"files\": 2}}'",
            step_input.display(),
            seen.display()
        ),
    );
    executable(
        &root.join("steps/preflight"),
        "jq -e '.outputs.licence.files == 2' >/dev/null\ntest -f feature.txt\necho fine",
    );
    env.create_labelled_issue("ENG-1", "Add the feature");
    let job = env.wait_for_job_end("ENG-1").await;
    assert_eq!(job.state, JobState::Completed, "{job:?}");
    let step_input: Value = serde_json::from_slice(&std::fs::read(step_input).unwrap()).unwrap();
    assert_eq!(step_input["step"]["inputs"]["owner"], "Acme");
    assert_eq!(step_input["issue"]["identifier"], "ENG-1");
    assert_eq!(step_input["branch"], job.branch);
    let environment = std::fs::read_to_string(seen).unwrap();
    for secret in ["sk-ant-", "TOKEN", "RUN_CONFIG", "KEY"] {
        assert!(!environment.contains(secret), "{secret} in {environment}");
    }
    let steps = steps(&env, "ENG-1").await;
    assert_eq!(step(&steps, "licence")["type"], "custom");
    assert_eq!(step(&steps, "licence")["outputs"]["files"], 2);
    assert_eq!(step(&steps, "preflight")["status"], "passed");
    assert!(!steps.iter().any(|step| step["id"] == "install"));
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_pipeline_fails_before_any_step() {
    let (env, root) = customized().await;
    let pipeline = "id: autonomous\nsteps:\n\
        - {id: clone, type: clone}\n\
        - {id: plan-tests, type: test-plan}\n\
        - {id: lint, module: lint}\n";
    std::fs::write(root.join("pipelines/autonomous.yml"), pipeline).unwrap();
    env.create_labelled_issue("ENG-1", "Add the feature");
    let job = env.wait_for_job_end("ENG-1").await;
    assert_eq!(job.state.status(), "failed");
    assert_eq!(
        env.comments("ENG-1")[0],
        "Implementation failed: cannot load the pipeline\n\
         - pipelines/autonomous.yml: step plan-tests: test-plan is a planning step, which cannot be \
         used here; planning has a separate workflow\n\
         - pipelines/autonomous.yml: step lint: module steps/lint does not exist"
    );
    assert!(steps(&env, "ENG-1").await.is_empty());
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_custom_step_and_a_pipeline_without_push_fail_the_run() {
    let (env, root) = customized().await;
    executable(&root.join("steps/setup"), "echo no licence >&2\nexit 9");
    env.create_labelled_issue("ENG-1", "Add the feature");
    env.wait_for_job_end("ENG-1").await;
    assert_eq!(
        env.comments("ENG-1")[0],
        "Implementation failed: step setup: setup failed: exit code 9\nno licence"
    );
    std::fs::remove_file(root.join("steps/setup")).unwrap();
    let pipeline = "id: autonomous\nsteps: [{id: clone, type: clone}]\n";
    std::fs::write(root.join("pipelines/autonomous.yml"), pipeline).unwrap();
    env.create_labelled_issue("ENG-2", "Add another");
    env.wait_for_job_end("ENG-2").await;
    assert_eq!(
        env.comments("ENG-2")[0],
        "Implementation failed: the run ended without opening a pull request"
    );
    env.finish().await;
}

/// They need the repository token, which no executable of a step gets.
#[tokio::test(flavor = "multi_thread")]
async fn executables_for_clone_and_push_run_beside_the_built_in_steps() {
    let (env, root) = customized().await;
    let clone = "test -f README.md\necho generated > generated.txt\necho '{\"generated\": 1}'";
    executable(&root.join("steps/clone"), clone);
    let push = "test -f feature.txt\ntest -f generated.txt\necho '{\"signed\": true}'";
    executable(&root.join("steps/push"), push);
    env.create_labelled_issue("ENG-1", "Add the feature");
    let job = env.wait_for_job_end("ENG-1").await;
    assert_eq!(job.state, JobState::Completed, "{job:?}");
    let steps = steps(&env, "ENG-1").await;
    assert_eq!(step(&steps, "clone")["outputs"]["generated"], 1);
    let outputs = &step(&steps, "push")["outputs"];
    assert_eq!(outputs["signed"], true);
    assert_eq!(outputs["prNumber"], 1);

    executable(&root.join("steps/push"), "exit 4");
    env.create_labelled_issue("ENG-2", "Add another feature");
    env.wait_for_job_end("ENG-2").await;
    let reason = "Implementation failed: step push: push failed: exit code 4";
    assert_eq!(env.comments("ENG-2")[0], reason);
    assert_eq!(env.repo().pulls().len(), 1);
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_team_configures_models_guidance_and_a_teardown() {
    let env = TestEnv::start().await;
    let torn_down = env.dir().join("torn-down");
    let guidance = format!(
        "---\nmodel: big-model\ngap_analysis_model: careful-model\nteardown: touch {}\n---\n\
         Work on ${{issue_identifier}} in ${{repository}}; ${{HOME}} stays.\n",
        torn_down.display()
    );
    let files = [
        ("WORKFLOW.md", guidance.as_str()),
        (".agent-implement/config.yml", "packageManager: none\n"),
        ("package-lock.json", "{}\n"),
    ];
    env.repo().commit("main", &files, "Settings").unwrap();
    env.set_agent_script(
        "ENG-1",
        Script::new().pass([ScriptStep::write("feature.txt", "done\n")]),
    );
    env.create_labelled_issue("ENG-1", "Add the feature");
    let job = env.wait_for_job_end("ENG-1").await;
    assert_eq!(job.state, JobState::Completed, "{job:?}");
    assert!(torn_down.exists(), "the teardown ran");
    let steps = steps(&env, "ENG-1").await;
    let install = step(&steps, "install");
    assert_eq!(install["status"], "skipped", "{install}");
    assert_eq!(step(&steps, "teardown")["status"], "passed");
    let log = env.repo().run_log(env.repo().runs()[0].id);
    let started: Vec<&str> = log
        .lines()
        .filter_map(|line| line.split_once("Agent started with model "))
        .map(|(_, model)| model)
        .collect();
    assert_eq!(started, ["big-model", "careful-model"]);
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_teardown_runs_after_a_failure_and_keeps_its_reason() {
    let env = TestEnv::start().await;
    let text = "---\nsetup: exit 3\nteardown: 'echo torn; exit 5'\n---\n";
    env.repo()
        .commit("main", &[("WORKFLOW.md", text)], "Settings")
        .unwrap();
    env.create_labelled_issue("ENG-1", "Add the feature");
    env.wait_for_job_end("ENG-1").await;
    assert_eq!(
        env.comments("ENG-1")[0],
        "Implementation failed: setup script of WORKFLOW.md failed: exit code 3"
    );
    let steps = steps(&env, "ENG-1").await;
    assert_eq!(step(&steps, "teardown")["status"], "failed");
    env.finish().await;
}

/// Caches that an image has are in the home folder of the setup script and of the agent, who change only their copy.
#[tokio::test(flavor = "multi_thread")]
async fn the_home_of_a_run_is_a_copy_of_the_template_in_its_image() {
    let env = TestEnv::start().await;
    let template = env.dir().join("template");
    std::fs::create_dir_all(template.join(".npm")).unwrap();
    std::fs::write(template.join(".npm/cached"), "from the image").unwrap();
    set_image_variable(&env, "AGENT_IMPLEMENT_HOME_TEMPLATE", &template);
    let settings =
        "---\nsetup: |\n  cp ~/.npm/cached ~/seen\n  echo changed > ~/.npm/cached\n---\n";
    env.repo()
        .commit("main", &[("WORKFLOW.md", settings)], "Set up")
        .unwrap();
    let script = Script::new().pass([ScriptStep::run("cat ~/seen ~/.npm/cached > homes.txt")]);
    env.set_agent_script("ENG-1", script);
    env.create_labelled_issue("ENG-1", "Add the feature");
    let job = env.wait_for_job_end("ENG-1").await;
    assert_eq!(job.state, JobState::Completed, "{job:?}");
    let homes = env.repo().read_file(&job.branch, "homes.txt");
    assert_eq!(homes.as_deref(), Some("from the imagechanged\n"));
    let kept = std::fs::read_to_string(template.join(".npm/cached")).unwrap();
    assert_eq!(kept, "from the image");

    std::fs::remove_dir_all(&template).unwrap();
    env.create_labelled_issue("ENG-2", "Add another feature");
    let job = env.wait_for_job_end("ENG-2").await;
    assert_eq!(job.state.status(), "failed", "{job:?}");
    let comments = env.vendors.linear().issue("ENG-2").comments();
    let expected = format!(
        "cannot copy the folder of AGENT_IMPLEMENT_HOME_TEMPLATE: {}: No such file",
        template.display()
    );
    assert!(comments[0].contains(&expected), "{comments:?}");
    env.finish().await;
}
