//! `GET /api/why` and the `why` command for a ticket whose last run failed.

use std::time::Duration;

use domain::mapping::Mapping;
use fake_vendors::scripted_agent::{Script, ScriptStep};
use serde_json::{Value, json};

use crate::jira::mapping_with_query;
use crate::process::{exit_and_output, run};
use crate::test_env::{TestEnv, mapping};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

const NO_CHANGES: &str = "Implementation failed: Nothing to commit: no file changes in the working tree. \
                          Describe in the ticket what to change. Then set ";

fn idle() -> Script {
    Script::new().pass([ScriptStep::message("There is nothing to do.")])
}

/// Environment with a manual engine and a failed ticket on each system.
async fn env_with_failed_tickets() -> TestEnv {
    let env =
        TestEnv::with_manual_engine([mapping(), mapping_with_query("OPS", "project = OPS", "OPS")])
            .await;
    for key in ["ENG-1", "OPS-1"] {
        env.set_agent_script(key, idle());
    }
    env.create_labelled_issue("ENG-1", "Add the feature");
    let ticket = env.vendors.jira().issue("OPS-1").title("Add the feature");
    ticket.repo("OPS").status("Ready");
    env.tick_until("both have failed", || {
        ["ENG-1", "OPS-1"].iter().all(|key| {
            let jobs = env.jobs(key);
            jobs.last().is_some_and(|job| !job.is_active())
        })
    })
    .await;
    env.tick_until_drained().await;
    env.tick().await;
    env
}

async fn decision(env: &TestEnv, key: &str) -> Value {
    let why = env.admin_get(&format!("/api/why/{key}")).await;
    why["decision"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_ticket_is_reported_as_failed_for_a_week_with_advice() {
    let env = env_with_failed_tickets().await;
    for (key, again) in [
        ("ENG-1", "the label `Agent-Implement` again."),
        ("OPS-1", "`Agent-Implement Status` to `Ready` again."),
    ] {
        let shown = decision(&env, key).await;
        assert_eq!(shown["outcome"], "failed", "{shown}");
        assert_eq!(shown["reason"], Value::Null);
        assert_eq!(shown["phase"], "implementation");
        assert_eq!(shown["message"], json!(format!("{NO_CHANGES}{again}")));
    }
    env.advance_clock(7 * DAY - Duration::from_secs(60 * 60));
    assert_eq!(decision(&env, "ENG-1").await["outcome"], "failed");
    env.advance_clock(Duration::from_secs(2 * 60 * 60));
    assert_ne!(decision(&env, "ENG-1").await["outcome"], "failed");
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_later_decision_replaces_the_failure() {
    let env = env_with_failed_tickets().await;
    let paused = Mapping {
        paused: true,
        ..mapping()
    };
    let put = env.store.write(move |tx| store::mappings::put(tx, &paused));
    put.await.unwrap();
    env.advance_clock(Duration::from_secs(60));
    env.vendors
        .linear()
        .issue("ENG-1")
        .add_label("Agent-Implement");
    env.tick().await;
    let shown = decision(&env, "ENG-1").await;
    assert_eq!(
        (&shown["outcome"], &shown["reason"]),
        (&json!("waiting"), &json!("paused"))
    );
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_why_command_exits_with_5_for_a_failed_run() {
    let env = env_with_failed_tickets().await;
    let stopped = env.stop_service().await;
    let data = stopped.data_dir();
    let output = exit_and_output(&run(&[
        "why",
        "ENG-1",
        "--data-dir",
        data.to_str().unwrap(),
    ]));
    assert_eq!(output.0, 5, "{output:?}");
    assert!(output.1.contains("failed since "), "{}", output.1);
    assert!(output.1.contains(NO_CHANGES), "{}", output.1);
    let help = exit_and_output(&run(&["why", "--help"]));
    assert!(help.1.contains("5 its last run failed"), "{}", help.1);
    stopped.vendors.stop_and_kill_runs().await;
}
