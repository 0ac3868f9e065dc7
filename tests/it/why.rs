//! What is said about a ticket whose last run failed.

use std::time::Duration;

use domain::mapping::Mapping;
use fake_vendors::scripted_agent::{Script, Step};
use serde_json::{Value, json};

use crate::jira::with_query;
use crate::process::{run, said};
use crate::world::{World, mapping};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

const NO_CHANGES: &str = "Implementation failed: Nothing to commit: no file changes in the working tree. \
                          Say in the ticket what is to be changed. Then set ";

fn idle() -> Script {
    Script::new().pass([Step::say("There is nothing to do.")])
}

/// An engine that is turned by hand, and a ticket on either system whose run has failed.
async fn failed() -> World {
    let world = World::by_hand([mapping(), with_query("OPS", "project = OPS", "OPS")]).await;
    for key in ["ENG-1", "OPS-1"] {
        world.script(key, idle());
    }
    world.flag("ENG-1", "Add the feature");
    let ticket = world.town.jira().issue("OPS-1").title("Add the feature");
    ticket.repo("OPS").status("Ready");
    world
        .turned_until("both have failed", || {
            ["ENG-1", "OPS-1"].iter().all(|key| {
                let jobs = world.jobs(key);
                jobs.last().is_some_and(|job| !job.is_active())
            })
        })
        .await;
    world.quiet().await;
    world.turn().await;
    world
}

async fn decision(world: &World, key: &str) -> Value {
    let why = world.admin(&format!("/api/why/{key}")).await;
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
    world.wait(7 * DAY - Duration::from_secs(60 * 60));
    assert_eq!(decision(&world, "ENG-1").await["outcome"], "failed");
    world.wait(Duration::from_secs(2 * 60 * 60));
    assert_ne!(decision(&world, "ENG-1").await["outcome"], "failed");
    world.end().await;
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
    world.wait(Duration::from_secs(60));
    world
        .town
        .linear()
        .issue("ENG-1")
        .add_label("Agent-Implement");
    world.turn().await;
    let told = decision(&world, "ENG-1").await;
    assert_eq!(
        (&told["outcome"], &told["reason"]),
        (&json!("waiting"), &json!("paused"))
    );
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_line_has_an_exit_code_for_it() {
    let world = failed().await;
    let asleep = world.asleep().await;
    let data = asleep.data_dir();
    let asked = said(&run(&[
        "why",
        "ENG-1",
        "--data-dir",
        data.to_str().unwrap(),
    ]));
    assert_eq!(asked.0, 5, "{asked:?}");
    assert!(asked.1.contains("failed since "), "{}", asked.1);
    assert!(asked.1.contains(NO_CHANGES), "{}", asked.1);
    let help = said(&run(&["why", "--help"]));
    assert!(help.1.contains("5 its last run failed"), "{}", help.1);
    asleep.town.stop_and_kill_runs().await;
}
