//! What is said about a ticket whose last run failed.

use std::time::Duration;

use domain::mapping::Mapping;
use fake_vendors::scripted_agent::{Script, ScriptStep};
use serde_json::{Value, json};

use crate::jira::mapping_with_query;
use crate::process::{exit_and_output, run};
use crate::test_env::{TestEnv, mapping};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

const NO_CHANGES: &str = "Implementation failed: Nothing to commit: no file changes in the working tree. \
                          Say in the ticket what is to be changed. Then set ";

fn idle() -> Script {
    Script::new().pass([ScriptStep::message("There is nothing to do.")])
}

/// An engine that is turned by hand, and a ticket on either system whose run has failed.
async fn failed() -> TestEnv {
    let world =
        TestEnv::with_manual_engine([mapping(), mapping_with_query("OPS", "project = OPS", "OPS")])
            .await;
    for key in ["ENG-1", "OPS-1"] {
        world.set_agent_script(key, idle());
    }
    world.create_labelled_issue("ENG-1", "Add the feature");
    let ticket = world.vendors.jira().issue("OPS-1").title("Add the feature");
    ticket.repo("OPS").status("Ready");
    world
        .tick_until("both have failed", || {
            ["ENG-1", "OPS-1"].iter().all(|key| {
                let jobs = world.jobs(key);
                jobs.last().is_some_and(|job| !job.is_active())
            })
        })
        .await;
    world.tick_until_drained().await;
    world.tick().await;
    world
}

async fn decision(world: &TestEnv, key: &str) -> Value {
    let why = world.admin_get(&format!("/api/why/{key}")).await;
    why["decision"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_ticket_is_failed_for_a_week_with_its_reason_and_what_to_do() {
    let world = failed().await;
    for (key, again) in [
        ("ENG-1", "the label `Agent-Implement` again."),
        ("OPS-1", "`Agent-Implement Status` to `Ready` again."),
    ] {
        let told = decision(&world, key).await;
        assert_eq!(told["outcome"], "failed", "{told}");
        assert_eq!(told["reason"], Value::Null);
        assert_eq!(told["phase"], "implementation");
        assert_eq!(told["message"], json!(format!("{NO_CHANGES}{again}")));
    }
    world.advance_clock(7 * DAY - Duration::from_secs(60 * 60));
    assert_eq!(decision(&world, "ENG-1").await["outcome"], "failed");
    world.advance_clock(Duration::from_secs(2 * 60 * 60));
    assert_ne!(decision(&world, "ENG-1").await["outcome"], "failed");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_decided_after_the_failure_counts() {
    let world = failed().await;
    let paused = Mapping {
        paused: true,
        ..mapping()
    };
    let put = world
        .app
        .store
        .write(move |tx| store::mappings::put(tx, &paused));
    put.await.unwrap();
    world.advance_clock(Duration::from_secs(60));
    world
        .vendors
        .linear()
        .issue("ENG-1")
        .add_label("Agent-Implement");
    world.tick().await;
    let told = decision(&world, "ENG-1").await;
    assert_eq!(
        (&told["outcome"], &told["reason"]),
        (&json!("waiting"), &json!("paused"))
    );
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_line_has_an_exit_code_for_it() {
    let world = failed().await;
    let asleep = world.stop_service().await;
    let data = asleep.data_dir();
    let asked = exit_and_output(&run(&[
        "why",
        "ENG-1",
        "--data-dir",
        data.to_str().unwrap(),
    ]));
    assert_eq!(asked.0, 5, "{asked:?}");
    assert!(asked.1.contains("failed since "), "{}", asked.1);
    assert!(asked.1.contains(NO_CHANGES), "{}", asked.1);
    let help = exit_and_output(&run(&["why", "--help"]));
    assert!(help.1.contains("5 its last run failed"), "{}", help.1);
    asleep.vendors.stop_and_kill_runs().await;
}
