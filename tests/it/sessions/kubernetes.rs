//! Runs in Kubernetes Jobs: every kind of run, their isolation, and the rules of the reaper and the panel.

mod doctor;
mod pods;
mod starts;

use std::time::Duration;

use domain::job::{Job, JobKind, JobState};
use domain::machine::{HostKind, machine_name};
use domain::mapping::{ExecutionMode, Mapping};
use engine::pull_requests::reconcile;
use fake_vendors::scripted_agent::{Script, ScriptStep};
use fake_vendors::{FakeKubernetes, MachineSnapshot};
use reqwest::Method;
use serde_json::json;

use super::options_for;
use crate::conflicts::IN_CONFLICT;
use crate::follow_up::{options, pass_quiet_period, register_webhook, set_collaborators};
use crate::gap_fill;
use crate::planning::planning_script;
use crate::red_checks;
use crate::test_env::{EngineMode, TestEnv, TestEnvOptions, mapping, planning_mapping};

const HOST: HostKind = HostKind::Kubernetes;
const MINUTE: Duration = Duration::from_secs(60);

fn cluster(env: &TestEnv) -> &FakeKubernetes {
    env.vendors.kubernetes()
}

/// Checks the isolation of a Job, and that its credentials are in its Secret only.
pub(super) fn assert_restricted_job(env: &TestEnv, machine: &MachineSnapshot) {
    let job = &machine.create_request;
    let (about, spec) = (&job["metadata"], &job["spec"]);
    assert_eq!(about["labels"]["agent_implement_issue"], "ENG-1");
    assert_eq!(about["annotations"]["agent_implement_repo"], "acme/shop");
    assert_eq!(
        (&spec["backoffLimit"], &spec["suspend"]),
        (&json!(0), &json!(false))
    );
    assert_eq!(spec["activeDeadlineSeconds"], 70 * 60);
    assert_eq!(spec["ttlSecondsAfterFinished"], 4 * 60 * 60);
    let pod = &spec["template"]["spec"];
    assert_eq!(pod["restartPolicy"], "Never");
    assert_eq!(pod["automountServiceAccountToken"], false);
    assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
    assert_eq!(
        pod["securityContext"]["seccompProfile"]["type"],
        "RuntimeDefault"
    );
    let container = &pod["containers"][0];
    let security = &container["securityContext"];
    assert_eq!(security["allowPrivilegeEscalation"], false);
    assert_eq!(security["readOnlyRootFilesystem"], true);
    assert_eq!(security["capabilities"]["drop"], json!(["ALL"]));
    let size = |disk: &str| json!({"cpu": "1", "memory": "512Mi", "ephemeral-storage": disk});
    assert_eq!(
        container["resources"],
        json!({"requests": size("8Gi"), "limits": size("40Gi")})
    );
    assert_eq!(container["command"], json!(["agent-implement", "run"]));
    assert_eq!(machine.image, "ghcr.io/acme/agent-implement-runner:latest");
    for field in ["hostNetwork", "hostPID", "hostIPC", "serviceAccountName"] {
        assert!(pod[field].is_null(), "{field}");
    }
    assert_eq!(pod["nodeSelector"], json!({"kubernetes.io/os": "linux"}));
    assert!(!job.to_string().contains("sk-ant"), "{job}");
    let secrets = cluster(env).secrets();
    let (name, secret) = secrets.iter().next().unwrap();
    assert_eq!(secrets.len(), 1);
    assert_eq!(container["envFrom"][0]["secretRef"]["name"], json!(name));
    assert_eq!(
        secret["metadata"]["ownerReferences"][0]["uid"],
        about["uid"]
    );
    assert_eq!(secret["stringData"]["GREETING"], "hello");
}

/// Options whose runs execute in Kubernetes, on an engine that tests drive.
fn manual() -> TestEnvOptions {
    options_for(HOST, EngineMode::manual())
}

/// Options of the stories about open pull requests, whose runs execute in Kubernetes.
fn pull_request_options() -> TestEnvOptions {
    let mut options = options();
    options.session_hosts = true;
    options
        .extra_flags
        .push(("--runner-mode", "k8s".to_owned()));
    options
}

/// Waits until the ticket has had a run of each kind, and all have ended. Returns the jobs.
async fn wait_for_kinds(env: &TestEnv, kinds: &[JobKind]) -> Vec<Job> {
    env.tick_until(&format!("{kinds:?} have ended"), || {
        let jobs = env.jobs("ENG-1");
        jobs.len() == kinds.len() && jobs.iter().all(|job| !job.is_active())
    })
    .await;
    env.tick_until_drained().await;
    let jobs = env.jobs("ENG-1");
    let count = |kind: JobKind| {
        let is_completed = |job: &&Job| job.kind == kind && job.state == JobState::Completed;
        jobs.iter().filter(is_completed).count()
    };
    assert!(kinds.iter().all(|kind| count(*kind) == 1), "{jobs:#?}");
    jobs
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ticket_is_planned_implemented_and_followed_up_in_jobs() {
    let env = TestEnv::with_options(TestEnvOptions {
        mappings: vec![planning_mapping()],
        ..pull_request_options()
    })
    .await;
    set_collaborators(&env);
    register_webhook(&env);
    let plan = ScriptStep::write("ai-output/comments/01-steps.md", "1. Write feature.txt");
    let script = planning_script([plan]).pass_if_prompt_contains(
        "Handle the empty list",
        [
            ScriptStep::write("feature.txt", "handled\n"),
            ScriptStep::message("Handled."),
        ],
    );
    env.set_agent_script("ENG-1", script);
    env.create_labelled_issue("ENG-1", "Add the feature");
    let mut kinds = vec![JobKind::Planning, JobKind::Implementation];
    wait_for_kinds(&env, &kinds).await;

    let repo = env.repo();
    let pull = repo.pulls().remove(0);
    repo.add_review(
        pull.number,
        "mia",
        "CHANGES_REQUESTED",
        "Handle the empty list.",
    );
    pass_quiet_period(&env).await;
    kinds.push(JobKind::FollowUp);
    wait_for_kinds(&env, &kinds).await;
    let written = repo.read_file(&pull.head, "feature.txt");
    assert_eq!(written.as_deref(), Some("handled\n"));
    assert_eq!(cluster(&env).host().created_names().len(), 3);
    assert!(cluster(&env).secrets().is_empty());
    assert!(repo.runs().is_empty(), "no workflow runs");
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_red_check_and_a_conflict_are_resolved_in_jobs() {
    let env = red_checks::env_with_options(pull_request_options(), red_checks::CI).await;
    let repo = env.repo();
    let script = Script::new()
        .pass_if_prompt_contains(
            "a.txt does not say fixed",
            [
                ScriptStep::write("a.txt", "fixed\n"),
                ScriptStep::message("I repaired it."),
            ],
        )
        .pass_if_prompt_contains(
            IN_CONFLICT,
            [
                ScriptStep::keep_both_sides("a.txt"),
                ScriptStep::message("I kept both sides."),
            ],
        );
    env.set_agent_script("ENG-1", script);
    red_checks::open_pull(&env, "ENG-1").await;
    let mut kinds = vec![JobKind::Implementation, JobKind::CiFix];
    wait_for_kinds(&env, &kinds).await;

    repo.commit("main", &[("a.txt", "of the base\n")], "Add a")
        .unwrap();
    env.advance_clock(MINUTE);
    reconcile::run_once(&env.app).await.unwrap();
    kinds.push(JobKind::Conflict);
    wait_for_kinds(&env, &kinds).await;
    let merged = repo.read_file("agent-implement/eng-1", "a.txt").unwrap();
    assert!(
        merged.contains("fixed") && merged.contains("of the base"),
        "{merged}"
    );
    assert_eq!(cluster(&env).host().created_names().len(), 2);
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instruction_for_an_open_pull_request_is_carried_out_in_a_job() {
    let mut options = options_for(HOST, EngineMode::Running);
    options.extra_flags.extend(gap_fill::options().extra_flags);
    let env = gap_fill::env_with_open_pull(options, ScriptStep::write("a.txt", "A\n")).await;
    let (number, before) = (gap_fill::pull_number(&env), gap_fill::ticket_snapshot(&env));
    let trigger = gap_fill::trigger_body("ENG-1", number);
    let response = gap_fill::send_trigger(&env, trigger).await;
    assert_eq!(response.status, 200, "{response:?}");
    let job = env.wait_for_job_end("ENG-1").await;
    assert_eq!(
        (job.kind, &job.state),
        (JobKind::GapFill, &JobState::Completed)
    );

    let repo = env.repo();
    let written = repo.read_file(&repo.pulls()[0].head, "a.txt");
    assert_eq!(written.as_deref(), Some("A\n"));
    assert_eq!(gap_fill::pull_number(&env), number, "no second one");
    let comments = gap_fill::pull_comments(&env);
    assert!(
        comments.len() == 1 && comments[0].contains("I wrote A."),
        "{comments:#?}"
    );
    assert_eq!(gap_fill::ticket_snapshot(&env), before);
    let jobs = env.jobs("ENG-1").into_iter();
    let names: Vec<String> = jobs.map(|job| machine_name(&job.id)).collect();
    assert_eq!(cluster(&env).host().created_names(), names);
    assert!(repo.runs().is_empty(), "no workflow runs");
    assert!(env.machines(HOST).is_empty());
    assert!(cluster(&env).secrets().is_empty());
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mapping_selects_the_cluster_and_its_nodes() {
    let env = TestEnv::with_options(TestEnvOptions {
        mappings: vec![Mapping {
            execution_mode: ExecutionMode::Kubernetes,
            node_selector: [("pool".to_owned(), "agents".to_owned())].into(),
            max_job_minutes: Some(20),
            ..mapping()
        }],
        extra_flags: vec![
            ("--kubernetes-runtime-class", "gvisor".to_owned()),
            ("--kubernetes-pull-secret", "registry".to_owned()),
        ],
        session_hosts: true,
        engine: EngineMode::manual(),
        ..TestEnvOptions::default()
    })
    .await;
    env.create_labelled_issue("ENG-1", "Add a feature");
    env.tick().await;
    let spec = env.machine(HOST).create_request["spec"].clone();
    assert_eq!(spec["activeDeadlineSeconds"], 30 * 60);
    let pod = &spec["template"]["spec"];
    assert_eq!(
        pod["nodeSelector"],
        json!({"kubernetes.io/os": "linux", "pool": "agents"})
    );
    assert_eq!(pod["runtimeClassName"], "gvisor");
    assert_eq!(pod["imagePullSecrets"], json!([{"name": "registry"}]));
    env.stop().await;
}

/// Environment with a Job that a rule of the reaper applies to when it is old enough, and with foreign Jobs. Returns the
/// name of the Job.
async fn env_with_leftover_job(rule: &str) -> (TestEnv, String) {
    let env = TestEnv::with_options(manual()).await;
    env.add_foreign_machines(HOST);
    let name = match rule {
        "orphan" => {
            env.add_machine("k-orphan", "01GONE");
            "k-orphan".to_owned()
        }
        "stale-terminal-job" => {
            // Its run has failed, and the Job is still there because it was not resumed.
            cluster(&env).refuse_next("PATCH /apis/batch", 403, "Forbidden", "no");
            env.create_labelled_issue("ENG-1", "Add a feature");
            env.tick().await;
            assert!(!env.only_job().is_active());
            machine_name(&env.only_job().id)
        }
        _ => env.start_hanging_run().await,
    };
    (env, name)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_reaper_applies_its_rules_to_jobs() {
    for (rule, minutes) in [
        ("orphan", 5),
        ("stale-terminal-job", 10),
        ("max-age-exceeded", 4 * 60),
        ("issue-terminal", 1),
    ] {
        let (env, name) = env_with_leftover_job(rule).await;
        let foreign = ["foreign", "unlabelled"].map(str::to_owned);
        let mut before = [&foreign[..], std::slice::from_ref(&name)].concat();
        before.sort();
        env.advance_clock(minutes * MINUTE - MINUTE);
        env.reap().await;
        assert_eq!(env.machine_ids(), before, "{rule}: not yet");
        if rule == "issue-terminal" {
            env.close_issue_before_poll();
        }
        // The Job is younger than the clock of the test.
        env.advance_clock(2 * MINUTE);
        env.reap().await;
        assert_eq!(env.machine_ids(), foreign, "{rule}");
        assert!(cluster(&env).secrets().is_empty(), "{rule}");
        assert_eq!(env.actions().await, [format!("{rule} {name} destroyed")]);
        env.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_panel_lists_and_deletes_a_job() {
    let env = super::env_with_running_job(HOST).await;
    let shown = env.admin_get("/api/sessions").await;
    let id = shown[0]["machineId"].as_str().unwrap().to_owned();
    assert_eq!(
        (&shown[0]["kind"], &shown[0]["state"], &shown[0]["repo"]),
        (&json!("kubernetes"), &json!("started"), &json!("acme/shop"))
    );
    let machine = env.only_job().run.unwrap().machine().unwrap();
    let log = env.app.vendors.sessions.log_tail(&machine).await.unwrap();
    assert!(log.is_some_and(|log| !log.contains("sk-ant")));
    let path = format!("/api/sessions/{id}");
    let answer = env.admin_request(Method::DELETE, &path, None);
    let deleted = tokio::join!(answer, async {
        env.wait_until("the deletion is queued", || {
            env.only_job().cancellation.is_some() || !env.only_job().is_active()
        })
        .await;
        env.tick_until_drained().await;
    });
    assert_eq!(deleted.0.0, 200);
    env.tick_until_drained().await;
    assert!(env.machines(HOST).is_empty());
    env.finish().await;
}
