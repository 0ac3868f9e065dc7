//! Runs of a service that nothing can connect to: local containers report through a socket, CI runs leave a
//! signed artifact.

use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Stdio};
use std::time::Duration;

use domain::job::{Job, JobKind, JobState, RunnerKind};
use domain::mapping::Mapping;
use domain::report::{FailureCode, ResultReport, RunPhase};
use domain::report_artifact::{self, FILE, ReportOrigin};
use domain::secret::Secret;
use domain::usage::{MicroUsd, Month};
use fake_vendors::scripted_agent::{Script, ScriptStep};
use fake_vendors::{ArchiveEntry, FakeService, zip_archive};
use serde_json::json;
use store::{jobs, mappings, steps, usage};

use crate::planning::{PLANNING_PROMPT, wait_for_runs, write_steps};
use crate::process::command;
use crate::test_env::{
    EngineMode, StoppedEnv, TestEnv, TestEnvOptions, mapping, open_store, planning_mapping,
};

/// Starts an environment behind NAT whose runs execute on this runner.
async fn env_behind_nat(runner: RunnerKind, mapping: Mapping) -> TestEnv {
    let env = TestEnv::with_options(TestEnvOptions {
        mappings: vec![mapping],
        extra_flags: vec![("--runner-mode", runner.as_str().to_owned())],
        session_hosts: true,
        behind_nat: true,
        ..TestEnvOptions::default()
    })
    .await;
    env.repo().allow_actions_to_open_pulls();
    env
}

/// Logs of all runs on CI, for assertion messages.
fn logs(env: &TestEnv) -> String {
    let runs = env.repo().runs();
    let logs = runs.iter().map(|run| env.repo().run_log(run.id));
    logs.collect::<Vec<_>>().join("\n---\n")
}

fn steps_of(env: &TestEnv, job: &Job) -> usize {
    let stored = env.store.read(|tx| steps::of_job(tx, &job.id)).unwrap();
    stored.len()
}

fn spent(env: &TestEnv) -> MicroUsd {
    let month = Month::of(env.app.core.now());
    let row = env
        .store
        .read(|tx| usage::of_mapping(tx, month, &"ENG".into()));
    row.unwrap().sum.cost
}

/// Planning, implementation with the plan, the message of the guard, and the budget.
async fn plans_implements_guards_and_counts_costs(runner: RunnerKind) {
    let env = env_behind_nat(runner, planning_mapping()).await;
    let plan = [
        ScriptStep::write(
            "ai-output/comments/01-steps.md",
            "## Steps\n\n1. Write feature.txt",
        ),
        ScriptStep::message("Planned."),
    ];
    let script = Script::new()
        .pass_if_prompt_contains(PLANNING_PROMPT, plan)
        // Only a prompt that contains the plan matches this pass.
        .pass_if_prompt_contains("1. Write feature.txt", write_steps());
    env.set_agent_script("ENG-1", script);
    env.create_labelled_issue("ENG-1", "Add the feature");
    let jobs = wait_for_runs(&env, "ENG-1", 2).await;
    let kinds: Vec<JobKind> = jobs.iter().map(|job| job.kind).collect();
    assert_eq!(kinds, [JobKind::Planning, JobKind::Implementation]);
    for job in &jobs {
        assert_eq!(job.state, JobState::Completed, "{}", logs(&env));
        assert_eq!(job.runner, runner);
        assert!(job.result_accepted, "the result was reported");
        assert!(job.usage.is_some_and(|usage| usage.cost_usd.is_some()));
        assert_eq!(job.agent.as_deref(), Some("claude"));
        assert!(steps_of(&env, job) > 0, "the steps were reported");
    }
    let comments = env.comments("ENG-1").join("\n");
    assert!(comments.contains("1. Write feature.txt"), "{comments}");
    assert_eq!(env.repo().pulls().len(), 1);
    assert!(spent(&env) > MicroUsd::default());

    let secret = ["gh", "p_", "q7Zk9LmTbX2wVr8NpYc5HdJf3sGtKe41uAoW"].concat();
    let script = Script::new()
        .pass_if_prompt_contains(PLANNING_PROMPT, [ScriptStep::message("Planned.")])
        .pass([ScriptStep::write(
            "src/a.ts",
            &format!("const t = '{secret}';\n"),
        )]);
    env.set_agent_script("ENG-2", script);
    env.create_labelled_issue("ENG-2", "Add a secret");
    env.wait_until("the guard has blocked the push", || {
        let jobs = env.jobs("ENG-2");
        jobs.last()
            .is_some_and(|job| job.kind == JobKind::Implementation && !job.is_active())
    })
    .await;
    env.wait_for_empty_outbox().await;
    let blocked = env.jobs("ENG-2").pop().unwrap();
    assert!(
        matches!(
            blocked.state,
            JobState::Failed {
                code: Some(FailureCode::SensitiveFilesBlocked),
                ..
            }
        ),
        "{blocked:#?}"
    );
    let comments = env.comments("ENG-2").join("\n");
    let finding = "src/a.ts: tokens and auth files (GitHub token)";
    assert!(comments.contains(finding), "{comments}");
    assert!(!comments.contains(&secret));

    let used_up = Mapping {
        budget: Some(spent(&env)),
        ..planning_mapping()
    };
    let put = env.store.write(move |tx| mappings::put(tx, &used_up));
    put.await.unwrap();
    env.create_labelled_issue("ENG-3", "Waits for the next month");
    env.wait_for_polls().await;
    assert!(env.jobs("ENG-3").is_empty());
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn containers_behind_nat_plan_implement_and_count_costs() {
    plans_implements_guards_and_counts_costs(RunnerKind::Local).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ci_runs_behind_nat_plan_implement_and_count_costs() {
    plans_implements_guards_and_counts_costs(RunnerKind::Ci).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_run_replaces_what_the_agent_put_in_place_of_its_report() {
    let env = env_behind_nat(RunnerKind::Ci, mapping()).await;
    let plant = format!(
        "find {} -type d -name work -exec ln -s /etc/hostname '{{}}/{FILE}' ';'",
        env.dir().display()
    );
    let script = Script::new().pass([
        ScriptStep::run(&plant),
        ScriptStep::write("feature.txt", "done\n"),
    ]);
    env.set_agent_script("ENG-1", script);
    env.create_labelled_issue("ENG-1", "Add the feature");
    let job = env.wait_for_job_end("ENG-1").await;
    assert_eq!(job.state, JobState::Completed, "{}", logs(&env));
    assert!(job.result_accepted && job.usage.is_some());
    env.finish().await;
}

/// Starts a manual environment behind NAT whose only run is played by the test and has ended. Returns the job
/// and the origin that its report must have.
async fn env_with_ended_run() -> (TestEnv, Job, ReportOrigin) {
    let env = TestEnv::with_options(TestEnvOptions {
        mappings: vec![planning_mapping()],
        behind_nat: true,
        fake_runs: true,
        engine: EngineMode::manual(),
        ..TestEnvOptions::default()
    })
    .await;
    env.create_labelled_issue("ENG-1", "Add the feature");
    env.tick_until("the run is dispatched", || env.repo().runs().len() == 1)
        .await;
    let run = env.repo().runs().remove(0);
    env.repo().start_run(run.id);
    env.tick().await;
    env.repo().complete_run(run.id, "success");
    let job = env.jobs("ENG-1").remove(0);
    let origin = ReportOrigin {
        dispatch_id: job.id.clone(),
        run_id: run.id,
        run_attempt: 1,
    };
    (env, job, origin)
}

fn plan_report() -> ResultReport {
    let body = json!({
        "phase": "planning",
        "outcome": "success",
        "comments": [{"body": "## Steps\n\n1. Write feature.txt"}],
        "usage": {"turns": 3, "inputTokens": 10, "outputTokens": 5, "costUsd": 0.25},
    });
    ResultReport::parse(&body).unwrap().0
}

/// Archive with the report that the run of the environment would have left, changed by `change`.
fn archive(env: &TestEnv, origin: &ReportOrigin, report: &ResultReport) -> Vec<u8> {
    let key = env.app.secrets.run_tokens.report_key(&origin.dispatch_id);
    let content = report_artifact::sign(&key, origin, report, &[], &[]).unwrap();
    zip_archive(&[ArchiveEntry::file(FILE, content.as_bytes())]).unwrap()
}

/// Fails if the artifact is not refused with this reason.
async fn assert_refused(reason: &str, make: impl FnOnce(&TestEnv, &ReportOrigin) -> Vec<u8>) {
    let (env, job, origin) = env_with_ended_run().await;
    let archive = make(&env, &origin);
    let plant = env
        .repo()
        .plant_artifact(origin.run_id, &origin.artifact_name(), &archive);
    plant.unwrap();
    env.tick_until("the job has ended", || !env.jobs("ENG-1")[0].is_active())
        .await;
    env.tick_until_drained().await;
    let ended = env.jobs("ENG-1").remove(0);
    assert!(!ended.result_accepted, "{reason}");
    let expected = format!(
        "the run ended without reporting a plan. The report that it left as an artifact was refused: {reason}"
    );
    assert_eq!(
        ended.state,
        JobState::Failed {
            code: None,
            reason: expected.clone()
        }
    );
    assert_eq!(ended.usage, None, "an unknown cost is no zero");
    let comments = env.comments("ENG-1").join("\n");
    assert!(comments.contains(&expected), "{comments}");
    assert_eq!(job.id, ended.id);
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hostile_artifact_is_refused_with_a_reason() {
    let report = plan_report();
    assert_refused("its signature is not that of the run", |_, origin| {
        let key = Secret::new("the key of somebody else");
        let content = report_artifact::sign(&key, origin, &plan_report(), &[], &[]).unwrap();
        zip_archive(&[ArchiveEntry::file(FILE, content.as_bytes())]).unwrap()
    })
    .await;
    // Each is signed by the run itself, but belongs elsewhere.
    assert_refused("it is the report of another CI run, 4711", |env, origin| {
        let other = ReportOrigin {
            run_id: 4711,
            ..origin.clone()
        };
        archive(env, &other, &report)
    })
    .await;
    assert_refused(
        "it is the report of attempt 7 of the CI run",
        |env, origin| {
            let other = ReportOrigin {
                run_attempt: 7,
                ..origin.clone()
            };
            archive(env, &other, &report)
        },
    )
    .await;
    // A replay of another job has the key of that job.
    assert_refused("its signature is not that of the run", |env, origin| {
        let other = ReportOrigin {
            dispatch_id: "01OTHER".into(),
            ..origin.clone()
        };
        archive(env, &other, &report)
    })
    .await;
    assert_refused(
        "its result is for another phase of the work",
        |env, origin| {
            let other = ResultReport {
                phase: RunPhase::GapAnalysis,
                ..plan_report()
            };
            archive(env, origin, &other)
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hostile_archive_is_refused_with_a_reason() {
    let packed = |entries: &[ArchiveEntry<'_>]| zip_archive(entries).unwrap();
    assert_refused("its entry is not a regular file", |_, _| {
        packed(&[ArchiveEntry {
            mode: 0o120_777,
            ..ArchiveEntry::file(FILE, b"/etc/passwd")
        }])
    })
    .await;
    assert_refused("it holds 2 files instead of one", |_, _| {
        let entry = || ArchiveEntry::file(FILE, b"{}");
        packed(&[entry(), entry()])
    })
    .await;
    assert_refused("its file is larger than allowed when unpacked", |_, _| {
        let bomb = vec![b' '; 64 << 20];
        packed(&[ArchiveEntry::file(FILE, &bomb)])
    })
    .await;
    assert_refused("its file is not a signed report in JSON", |_, _| {
        packed(&[ArchiveEntry::file(FILE, b"no JSON")])
    })
    .await;
    assert_refused("it is larger than 10 MiB", |_, _| vec![0; (10 << 20) + 1]).await;
    assert_refused("it is not a zip archive that can be read", |_, _| {
        b"no zip".to_vec()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_report_counts_once_and_may_appear_late() {
    let (env, job, origin) = env_with_ended_run().await;
    let name = origin.artifact_name();
    // An artifact of another name does not count, whatever it holds.
    let archive = archive(&env, &origin, &plan_report());
    let foreign = format!("{name}-0");
    env.repo()
        .plant_artifact(origin.run_id, &foreign, &archive)
        .unwrap();
    env.tick().await;
    env.advance_clock(Duration::from_secs(60));
    env.tick().await;
    assert!(env.jobs("ENG-1")[0].is_active(), "GitHub may list it later");
    env.repo()
        .plant_artifact(origin.run_id, &name, &archive)
        .unwrap();
    env.tick_until("the plan is there", || !env.jobs("ENG-1")[0].is_active())
        .await;
    let ended = env.jobs("ENG-1").remove(0);
    assert_eq!((&ended.id, &ended.state), (&job.id, &JobState::Completed));
    assert_eq!(ended.usage.unwrap().cost_usd, Some(0.25));
    let plans = env
        .comments("ENG-1")
        .iter()
        .filter(|text| text.contains("1. Write feature.txt"))
        .count();
    assert!(plans <= 1);
    env.tick().await;
    let downloads = env.vendors.requests().for_service(FakeService::GitHub);
    let downloads = downloads
        .iter()
        .filter(|request| request.url.ends_with("/zip"))
        .count();
    assert_eq!(downloads, 1, "it is not fetched again");
    env.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_without_a_report_is_judged_by_its_end() {
    let (env, _, _) = env_with_ended_run().await;
    env.tick().await;
    assert!(env.jobs("ENG-1")[0].is_active());
    env.advance_clock(Duration::from_secs(121));
    env.tick_until("the job has ended", || !env.jobs("ENG-1")[0].is_active())
        .await;
    env.tick_until_drained().await;
    let ended = env.jobs("ENG-1").remove(0);
    let reason = "the run ended without reporting a plan".to_owned();
    assert_eq!(ended.state, JobState::Failed { code: None, reason });
    env.finish().await;
}

/// Starts the service as a process that checks runs every second, without waiting until it is ready.
fn spawn_service(env: &StoppedEnv, more: &[&str]) -> Child {
    let options = TestEnvOptions {
        behind_nat: true,
        ..TestEnvOptions::default()
    };
    let flags = env.command_line("", &options);
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let arguments = [&["serve", "--port", "0", "--quick"], more, &flags].concat();
    let mut command = command(&arguments);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_report_survives_a_kill_before_it_is_stored_and_counts_once() {
    let (env, job, origin) = env_with_ended_run().await;
    let archive = archive(&env, &origin, &plan_report());
    let name = origin.artifact_name();
    env.repo()
        .plant_artifact(origin.run_id, &name, &archive)
        .unwrap();
    let env = env.stop_service().await;
    for point in ["result-received", "result-stored"] {
        let mut service = spawn_service(&env, &["--crash-at", point]);
        let ended = tokio::task::spawn_blocking(move || service.wait()).await;
        assert_eq!(ended.unwrap().unwrap().signal(), Some(9), "{point}");
    }
    let mut service = spawn_service(&env, &[]);
    let ticket = env.vendors.linear().issue("ENG-1");
    let is_posted = || {
        let comments = ticket.comments();
        comments
            .iter()
            .any(|text| text.contains("1. Write feature.txt"))
    };
    while !is_posted() {
        assert!(service.try_wait().unwrap().is_none(), "the service exited");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    service.kill().unwrap();
    service.wait().unwrap();
    let store = open_store(&env.data_dir()).await;
    let stored = store.read(|tx| jobs::get(tx, &job.id)).unwrap().unwrap();
    assert_eq!(stored.state, JobState::Completed);
    let month = Month::of(stored.finished_at.unwrap());
    let row = store.read(|tx| usage::of_mapping(tx, month, &"ENG".into()));
    assert_eq!(row.unwrap().sum.cost, MicroUsd::from_usd(0.25).unwrap());
    drop(store);
    env.vendors.stop_and_kill_runs().await;
}
