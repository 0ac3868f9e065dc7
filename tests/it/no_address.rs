//! Runs of a service that nothing can connect to: local containers report through a socket, CI runs leave a
//! signed artifact.

use domain::job::{Job, JobKind, JobState, RunnerKind};
use domain::mapping::Mapping;
use domain::report::FailureCode;
use domain::usage::{MicroUsd, Month};
use fake_vendors::scripted_agent::{Script, ScriptStep};
use store::{mappings, steps, usage};

use crate::planning::{PLANNING_PROMPT, wait_for_runs, write_steps};
use crate::test_env::{TestEnv, TestEnvOptions, planning_mapping};

/// Starts an environment behind NAT whose runs execute on this runner.
async fn env_behind_nat(runner: RunnerKind, mapping: Mapping) -> TestEnv {
    let mode = match runner {
        RunnerKind::Ci => "ci",
        RunnerKind::Vm => "vm",
        RunnerKind::Local => "local",
    };
    let env = TestEnv::with_options(TestEnvOptions {
        mappings: vec![mapping],
        extra_flags: vec![("--runner-mode", mode.to_owned())],
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
