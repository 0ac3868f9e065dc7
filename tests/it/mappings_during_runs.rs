//! Mappings during active runs: shared repositories, deletion, pause, and the concurrency cap.

mod github;

use std::time::Duration;

use domain::issue::System;
use domain::job::{Job, JobState, RunHandle};
use domain::mapping::Mapping;
use fake_vendors::scripted_agent::{Script, ScriptStep};
use fake_vendors::{FakeService, InjectedFault, RunSnapshot};
use reqwest::Method;
use serde_json::json;

use crate::planning::{
    IMPLEMENTATION_PROMPT, PLANNING_PROMPT, planning_script, wait_for_runs, write_steps,
};
use crate::test_env::{Gate, TestEnv};
use crate::test_ticket::{SYSTEMS, TestTicket, mapping_for, with_planning};

fn create_triggered(env: &TestEnv, system: System, key: &str) -> TestTicket {
    let ticket = TestTicket::create(env, system, key, "Add the feature");
    ticket.trigger();
    ticket
}

/// Waits until the jobs of these tickets are running.
async fn wait_until_running(env: &TestEnv, keys: &[&str]) {
    let runs = |key: &&str| {
        let job = env.jobs(key).pop();
        job.is_some_and(|job| job.state == JobState::Running)
    };
    env.wait_until(&format!("{keys:?} are running"), || keys.iter().all(runs))
        .await;
}

/// CI run of a ticket. Fails unless there is exactly one.
fn run_of(env: &TestEnv, key: &str) -> RunSnapshot {
    let mut own_runs = env.repo().runs();
    own_runs.retain(|run| run.inputs["issue_identifier"] == key);
    assert_eq!(own_runs.len(), 1, "{key}: {own_runs:#?}");
    own_runs.remove(0)
}

/// Only job of a ticket. Fails unless it is linked to the ticket's own run.
fn linked_job(env: &TestEnv, key: &str) -> Job {
    let mut jobs = env.jobs(key);
    assert_eq!(jobs.len(), 1, "{key}: {jobs:#?}");
    let (job, run) = (jobs.remove(0), run_of(env, key));
    assert_eq!(run.inputs["dispatch_id"], job.id.as_str(), "{key}");
    match &job.run {
        Some(RunHandle::Ci { id, .. }) => assert_eq!(*id, run.id, "{key}"),
        other => panic!("{key}: {other:?}"),
    }
    job
}

#[tokio::test(flavor = "multi_thread")]
async fn two_teams_share_a_repository_and_each_gets_its_own_pull_request() {
    let env =
        TestEnv::with_mappings(["ENG", "WEB"].map(|team| mapping_for(System::Linear, team))).await;
    for key in ["ENG-1", "WEB-1"] {
        create_triggered(&env, System::Linear, key);
    }
    let pulls = async |key: &str| {
        assert_eq!(
            env.wait_for_job_end(key).await.state,
            JobState::Completed,
            "{key}"
        );
        let job = linked_job(&env, key);
        assert!(key.starts_with(job.team.as_str()), "{job:#?}");
        let mut pulls = env.repo().pulls();
        pulls.retain(|pull| pull.head == job.branch);
        assert_eq!(pulls.len(), 1, "{key}: {pulls:#?}");
        let pull = pulls.remove(0);
        assert_eq!(job.pull.map(|pull| pull.number), Some(pull.number));
        assert!(pull.body.contains(&format!("Fixes {key}")), "{}", pull.body);
        let comments = env.vendors.linear().issue(key).comments();
        assert!(
            comments[0].contains(&env.repo().pull_url(pull.number)),
            "{comments:?}"
        );
        pull.head
    };
    let branches = [pulls("ENG-1").await, pulls("WEB-1").await];
    assert_eq!(
        branches,
        [
            "agent-implement/eng-1-add-the-feature",
            "agent-implement/web-1-add-the-feature"
        ]
    );
    assert_eq!(env.repo().pulls().len(), 2);
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_of_a_deleted_mapping_complete() {
    let env = TestEnv::with_mappings([
        mapping_for(System::Linear, "ENG"),
        mapping_for(System::Jira, "OPS"),
    ])
    .await;
    let gate = Gate::new(&env);
    let write_script = Script::new().pass([[gate.wait_step()].as_slice(), &write_steps()].concat());
    let no_changes = Script::new().pass([
        gate.wait_step(),
        ScriptStep::message("There is nothing to do."),
    ]);
    for key in ["ENG-1", "OPS-1"] {
        env.set_agent_script(key, write_script.clone());
    }
    for key in ["ENG-2", "OPS-2"] {
        env.set_agent_script(key, no_changes.clone());
    }
    let create = |system, key| create_triggered(&env, system, key);
    let opened = [
        create(System::Linear, "ENG-1"),
        create(System::Jira, "OPS-1"),
    ];
    let failed = [
        create(System::Linear, "ENG-2"),
        create(System::Jira, "OPS-2"),
    ];
    wait_until_running(&env, &["ENG-1", "ENG-2", "OPS-1", "OPS-2"]).await;

    for team in ["ENG", "OPS"] {
        let path = format!("/api/mappings/{team}");
        let deleted = env.admin_request(Method::DELETE, &path, None).await;
        assert_eq!(deleted, (200, json!({"deleted": true})));
    }
    for (system, key) in SYSTEMS.into_iter().zip(["ENG-3", "OPS-3"]) {
        create_triggered(&env, system, key);
    }
    env.wait_for_polls().await;
    gate.open();
    for key in ["ENG-1", "OPS-1"] {
        let job = env.wait_for_job_end(key).await;
        assert_eq!(job.state, JobState::Completed, "{key}");
        let pulls = env.repo().pulls();
        assert!(
            pulls
                .iter()
                .any(|pull| pull.head == job.branch && !pull.draft),
            "{pulls:#?}"
        );
    }
    for key in ["ENG-2", "OPS-2"] {
        assert_eq!(
            env.wait_for_job_end(key).await.state.status(),
            "failed",
            "{key}"
        );
    }
    let markers = |tickets: &[TestTicket; 2]| [tickets[0].markers(), tickets[1].markers()];
    assert_eq!(
        markers(&opened),
        [
            vec!["Agent-Implement", "Ready for Review"],
            vec!["PR Ready"]
        ]
    );
    assert_eq!(markers(&failed), [vec![], vec!["Implementation Failed"]]);
    for (ticket, begin) in opened
        .iter()
        .map(|ticket| (ticket, "Pull request opened: "))
        .chain(
            failed
                .iter()
                .map(|ticket| (ticket, "Implementation failed: ")),
        )
    {
        assert!(
            ticket.comments()[0].starts_with(begin),
            "{:?}",
            ticket.comments()
        );
    }
    env.wait_for_polls().await;
    for key in ["ENG-3", "OPS-3"] {
        assert!(env.jobs(key).is_empty(), "{key}");
    }
    let why = env.admin_get("/api/why/ENG-3").await;
    assert_eq!(why["decision"]["reason"], "no-mapping", "{why}");
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mapping_paused_during_a_run_starts_nothing_after_it() {
    let env = TestEnv::with_mapping(with_planning(mapping_for(System::Linear, "ENG"))).await;
    let gate = Gate::new(&env);
    let script = Script::new()
        .pass_if_prompt_contains(
            PLANNING_PROMPT,
            [gate.wait_step(), ScriptStep::message("The plan.")],
        )
        .pass_if_prompt_contains(IMPLEMENTATION_PROMPT, write_steps());
    env.set_agent_script("ENG-1", script);
    env.set_agent_script(
        "ENG-2",
        planning_script([ScriptStep::message("The other plan.")]),
    );
    let pause = async |paused: bool| {
        let body = json!({ "paused": paused });
        let (status, _) = env
            .admin_request(Method::PATCH, "/api/mappings/ENG", Some(body))
            .await;
        assert_eq!(status, 200);
    };
    let running = create_triggered(&env, System::Linear, "ENG-1");
    wait_until_running(&env, &["ENG-1"]).await;

    pause(true).await;
    create_triggered(&env, System::Linear, "ENG-2");
    env.wait_for_polls().await;
    gate.open();
    assert_eq!(
        env.wait_for_job_end("ENG-1").await.state,
        JobState::Completed
    );
    assert_eq!(running.comments(), ["The plan."]);
    assert_eq!(running.markers(), ["Agent-Implement", "Plan-Complete"]);
    env.wait_for_polls().await;
    assert_eq!(
        env.repo().runs().len(),
        1,
        "nothing starts while it is paused"
    );
    for key in ["ENG-1", "ENG-2"] {
        let why = env.admin_get(&format!("/api/why/{key}")).await;
        assert_eq!(why["decision"]["message"], "ENG is paused.", "{key}");
    }

    pause(false).await;
    for key in ["ENG-1", "ENG-2"] {
        let jobs = wait_for_runs(&env, key, 2).await;
        assert!(
            jobs.iter().all(|job| job.state == JobState::Completed),
            "{jobs:#?}"
        );
    }
    assert_eq!(env.repo().pulls().len(), 2);
    env.finish().await;
}

const KEYS: [&str; 5] = ["ENG-1", "ENG-2", "ENG-3", "ENG-4", "ENG-5"];

/// Dispatches five tickets in one second and checks that each job is linked to its own run.
async fn assert_five_dispatches_are_linked(dispatch_fault: Option<InjectedFault>) {
    let with_high_cap = Mapping {
        max_in_progress: 5,
        ..mapping_for(System::Linear, "ENG")
    };
    let env = TestEnv::with_manual_engine([with_high_cap]).await;
    let github = env.vendors.faults(FakeService::GitHub);
    for fault in KEYS.iter().filter_map(|_| dispatch_fault) {
        github.inject_on_match("/dispatches", fault);
    }
    // The runs stay queued, so that no report can link them.
    env.vendors
        .github()
        .set_start_delay(Duration::from_secs(24 * 3600));
    for key in KEYS {
        create_triggered(&env, System::Linear, key);
    }
    env.tick().await;
    env.advance_clock(Duration::from_secs(1));
    env.tick().await;
    let jobs = KEYS.map(|key| linked_job(&env, key));
    assert!(
        jobs.iter()
            .all(|job| job.reserved_at == jobs[0].reserved_at)
    );
    assert!(
        jobs.iter().all(|job| job.state == JobState::Dispatched),
        "{jobs:#?}"
    );
    assert_eq!(env.repo().runs().len(), 5);
    assert_eq!(github.pending(), 0, "all injected faults were used");
    env.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn five_dispatches_in_one_second_are_each_linked_to_their_run() {
    assert_five_dispatches_are_linked(None).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn five_dispatches_with_lost_responses_are_each_linked_to_their_run() {
    assert_five_dispatches_are_linked(Some(InjectedFault::DropResponse)).await;
}

/// Maximum number of overlapping spans.
fn max_overlap(spans: impl IntoIterator<Item = (u64, u64)>) -> i32 {
    let mut changes: Vec<(u64, i32)> = Vec::new();
    for (from, to) in spans {
        changes.extend([(from, 1), (to, -1)]);
    }
    // At equal times, ends are sorted before starts.
    changes.sort_unstable();
    let mut active = 0;
    let counts = changes.iter().map(|(_, change)| {
        active += change;
        active
    });
    counts.max().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn active_jobs_never_exceed_the_cap() {
    let with_low_cap = |(system, team)| Mapping {
        max_in_progress: 2,
        ..mapping_for(system, team)
    };
    let teams = SYSTEMS.into_iter().zip(["ENG", "OPS"]);
    let env = TestEnv::with_mappings(teams.clone().map(with_low_cap)).await;
    let mut tickets = Vec::new();
    for (system, team) in teams {
        for number in 1..=5 {
            let key = format!("{team}-{number}");
            let steps = [[ScriptStep::Sleep { ms: 300 }].as_slice(), &write_steps()].concat();
            env.set_agent_script(&key, Script::new().pass(steps));
            tickets.push((team, create_triggered(&env, system, &key), key));
        }
    }
    for (_, _, key) in &tickets {
        env.wait_until(&format!("{key} has run"), || !env.jobs(key).is_empty())
            .await;
        assert_eq!(
            env.wait_for_job_end(key).await.state,
            JobState::Completed,
            "{key}"
        );
    }
    for team in ["ENG", "OPS"] {
        let own_tickets = || tickets.iter().filter(|(of, _, _)| *of == team);
        let jobs = own_tickets().flat_map(|(_, _, key)| env.jobs(key));
        let active = jobs.map(|job| {
            let ended = job.finished_at.unwrap();
            (job.reserved_at.as_millis(), ended.as_millis())
        });
        assert_eq!(max_overlap(active), 2, "{team}: jobs");
        let shown = own_tickets().map(|(_, ticket, _)| ticket.in_progress_period());
        assert_eq!(max_overlap(shown), 2, "{team}: markers");
    }
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn saving_a_mapping_warns_about_unknown_teams_repositories_and_branches() {
    let env = TestEnv::start().await;
    let warned_fields = |answer: &serde_json::Value| {
        let all = answer["warnings"].as_array().cloned().unwrap_or_default();
        let field = |one: &serde_json::Value| one["field"].as_str().map(str::to_owned);
        all.iter().filter_map(field).collect::<Vec<_>>()
    };
    let save = |team: &str, repo: &str, branch: &str| {
        let body = json!({"teamKey": team, "owner": "acme", "repo": repo, "defaultBranch": branch});
        env.admin_request(Method::POST, "/api/mappings", Some(body))
    };
    let (status, saved) = save("NOPE", "no-such-repository", "main").await;
    assert_eq!(status, 200, "a warning rejects nothing: {saved}");
    assert_eq!(warned_fields(&saved), ["teamKey", "repo"], "{saved}");
    let (_, saved) = save("ENG", "shop", "no-such-branch").await;
    assert_eq!(warned_fields(&saved), ["defaultBranch"], "{saved}");
    let change = |fields| env.admin_request(Method::PATCH, "/api/mappings/ENG", Some(fields));
    let (_, changed) = change(json!({"repo": "no-such-repository"})).await;
    assert_eq!(warned_fields(&changed), ["repo"], "{changed}");
    let (_, changed) = change(json!({"repo": "shop", "defaultBranch": "main"})).await;
    assert_eq!(changed, json!({"updated": true}));
    // An unavailable vendor causes no warning.
    env.vendors.faults(FakeService::Linear).set_outage(true);
    let (status, saved) = save("NOPE", "shop", "main").await;
    assert_eq!(
        (status, warned_fields(&saved)),
        (200, Vec::new()),
        "{saved}"
    );
    env.vendors.faults(FakeService::Linear).set_outage(false);
    env.stop().await;
}
