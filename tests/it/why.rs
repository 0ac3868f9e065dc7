//! `GET /api/why` and the `why` command for a ticket whose last run failed.

use std::collections::HashMap;
use std::time::Duration;

use domain::ids::JobId;
use domain::issue::IssueRef;
use domain::job::{Job, JobState, PullRequestRef};
use domain::mapping::Mapping;
use fake_vendors::scripted_agent::{Script, ScriptStep};
use serde_json::{Value, json};

use crate::jira::mapping_with_query;
use crate::process::{exit_and_output, run};
use crate::test_env::{TestEnv, mapping};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

const NO_CHANGES: &str = "Failed: Nothing to commit: no file changes in the working tree. \
                          Describe in the ticket what to change. To retry, set ";

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
        (
            "ENG-1",
            "the label `Agent-Implement` again, select Retry in the panel, or run `agent-implement retry ENG-1`.",
        ),
        (
            "OPS-1",
            "`Agent-Implement Status` to `Ready` again, select Retry in the panel, or run `agent-implement retry OPS-1`.",
        ),
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

/// Issues of `/api/issues` by identifier.
async fn listed(env: &TestEnv) -> HashMap<String, Value> {
    let issues = env.admin_get("/api/issues").await;
    let issues = issues["issues"].as_array().unwrap().iter();
    issues
        .map(|issue| {
            let key = issue["identifier"].as_str().unwrap();
            (key.to_owned(), issue.clone())
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_list_of_issues_says_failed_and_never_in_progress() {
    let env = env_with_failed_tickets().await;
    // Somebody puts the progress label back, or it could not be removed: the poll takes it for a run.
    let ticket = || env.vendors.linear().issue("ENG-1");
    ticket().add_label("Agent-Working");
    for is_marked in [true, false] {
        env.advance_clock(Duration::from_secs(60));
        env.tick().await;
        let issues = listed(&env).await;
        assert_eq!(issues.len(), 2, "{issues:?}");
        for (key, issue) in &issues {
            let job = env.jobs(key).pop().unwrap();
            assert_eq!(issue["failedJobId"], json!(job.id), "{issue}");
            assert_eq!(issue["decision"], decision(&env, key).await, "{key}");
            assert_eq!(issue["decision"]["outcome"], "failed", "{issue}");
            assert_eq!(issue["title"], "Add the feature", "{issue}");
        }
        let linear = &issues["ENG-1"];
        let (marker, state) = match is_marked {
            true => (json!("Agent-Working"), json!("started")),
            false => (Value::Null, Value::Null),
        };
        assert_eq!(
            (&linear["marker"], &linear["state"]),
            (&marker, &state),
            "{linear}"
        );
        ticket().remove_label("Agent-Working");
    }
    let counts = env.admin_get("/api/issues").await;
    assert_eq!(counts["inProgressCountsByTeam"], json!({}));
    env.advance_clock(7 * DAY);
    env.tick().await;
    assert_eq!(listed(&env).await, HashMap::new());
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_issue_is_found_by_id_and_if_only_its_runs_are_known() {
    let env = env_with_failed_tickets().await;
    let by_key = env.admin_get("/api/why/ENG-1").await;
    let job = env.jobs("ENG-1").pop().unwrap();
    assert_eq!(by_key["jobs"].as_array().unwrap().len(), 1, "{by_key}");
    assert_eq!(by_key["jobs"][0], by_key["job"]);
    assert_eq!(by_key["jobs"][0]["id"], json!(job.id));
    let by_id = env.admin_get(&format!("/api/why/{}", job.issue.id)).await;
    assert_eq!(by_id, by_key);

    let unknown = Job {
        id: JobId::new("01ZZZZZZZZZZZZZZZZZZZZZZZZ"),
        issue: IssueRef {
            id: "elsewhere".into(),
            key: "OLD-7".into(),
            ..job.issue.clone()
        },
        state: JobState::Completed,
        pull: Some(PullRequestRef {
            number: 77,
            url: "https://github.com/acme/shop/pull/77".to_owned(),
        }),
        ..job.clone()
    };
    let put = unknown.clone();
    let put = env.store.write(move |tx| store::jobs::put(tx, &put));
    put.await.unwrap();
    for name in ["OLD-7", "old-7", "elsewhere"] {
        let why = env.admin_get(&format!("/api/why/{name}")).await;
        assert_eq!(why["identifier"], "OLD-7", "{name}");
        assert_eq!(
            (&why["decision"], &why["history"]),
            (&Value::Null, &json!([]))
        );
        assert_eq!(why["jobs"][0]["id"], json!(unknown.id));
        assert_eq!(why["pullRequests"][0]["prNumber"], 77, "{why}");
        assert_eq!(
            why["pullRequests"][0]["prState"],
            Value::Null,
            "not reported yet"
        );
    }
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
    assert_eq!(listed(&env).await["ENG-1"]["decision"], shown);
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
    for shown in [
        format!("\n\n{NO_CHANGES}the label `Agent-Implement` again, "),
        "\nRuns:\n".to_owned(),
        "  Implementation, attempt 1: failed".to_owned(),
    ] {
        assert!(output.1.contains(&shown), "{}", output.1);
    }
    let help = exit_and_output(&run(&["why", "--help"]));
    assert!(help.1.contains("5 its last run failed"), "{}", help.1);
    stopped.vendors.stop_and_kill_runs().await;
}
