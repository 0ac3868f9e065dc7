//! Mappings while runs are under way: shared, deleted, paused, full.

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

fn flagged(world: &TestEnv, system: System, key: &str) -> TestTicket {
    let ticket = TestTicket::create(world, system, key, "Add the feature");
    ticket.trigger();
    ticket
}

/// Waits until the agents of these tickets are at work.
async fn at_work(world: &TestEnv, keys: &[&str]) {
    let runs = |key: &&str| {
        let job = world.jobs(key).pop();
        job.is_some_and(|job| job.state == JobState::Running)
    };
    world
        .wait_until(&format!("{keys:?} are at work"), || keys.iter().all(runs))
        .await;
}

/// The host's own record of a ticket's only run.
fn run_of(world: &TestEnv, key: &str) -> RunSnapshot {
    let mut own = world.repo().runs();
    own.retain(|run| run.inputs["issue_identifier"] == key);
    assert_eq!(own.len(), 1, "{key}: {own:#?}");
    own.remove(0)
}

/// A ticket's only job, which is linked to its own run and no other.
fn linked(world: &TestEnv, key: &str) -> Job {
    let mut jobs = world.jobs(key);
    assert_eq!(jobs.len(), 1, "{key}: {jobs:#?}");
    let (job, run) = (jobs.remove(0), run_of(world, key));
    assert_eq!(run.inputs["dispatch_id"], job.id.as_str(), "{key}");
    match &job.run {
        Some(RunHandle::Ci { id, .. }) => assert_eq!(*id, run.id, "{key}"),
        other => panic!("{key}: {other:?}"),
    }
    job
}

#[tokio::test(flavor = "multi_thread")]
async fn two_teams_share_a_repository_and_each_gets_its_own_work() {
    let world =
        TestEnv::with_mappings(["ENG", "WEB"].map(|team| mapping_for(System::Linear, team))).await;
    for key in ["ENG-1", "WEB-1"] {
        flagged(&world, System::Linear, key);
    }
    let pulls = async |key: &str| {
        assert_eq!(
            world.wait_for_job_end(key).await.state,
            JobState::Completed,
            "{key}"
        );
        let job = linked(&world, key);
        assert!(key.starts_with(job.team.as_str()), "{job:#?}");
        let mut pulls = world.repo().pulls();
        pulls.retain(|pull| pull.head == job.branch);
        assert_eq!(pulls.len(), 1, "{key}: {pulls:#?}");
        let pull = pulls.remove(0);
        assert_eq!(job.pull.map(|pull| pull.number), Some(pull.number));
        assert!(pull.body.contains(&format!("Fixes {key}")), "{}", pull.body);
        let comments = world.vendors.linear().issue(key).comments();
        assert!(
            comments[0].contains(&world.repo().pull_url(pull.number)),
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
    assert_eq!(world.repo().pulls().len(), 2);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_runs_of_a_deleted_mapping_are_seen_through() {
    let world = TestEnv::with_mappings([
        mapping_for(System::Linear, "ENG"),
        mapping_for(System::Jira, "OPS"),
    ])
    .await;
    let gate = Gate::new(&world);
    let fine = Script::new().pass([[gate.wait_step()].as_slice(), &write_steps()].concat());
    let idle = Script::new().pass([
        gate.wait_step(),
        ScriptStep::message("There is nothing to do."),
    ]);
    for key in ["ENG-1", "OPS-1"] {
        world.set_agent_script(key, fine.clone());
    }
    for key in ["ENG-2", "OPS-2"] {
        world.set_agent_script(key, idle.clone());
    }
    let file = |system, key| flagged(&world, system, key);
    let opened = [file(System::Linear, "ENG-1"), file(System::Jira, "OPS-1")];
    let failed = [file(System::Linear, "ENG-2"), file(System::Jira, "OPS-2")];
    at_work(&world, &["ENG-1", "ENG-2", "OPS-1", "OPS-2"]).await;

    for team in ["ENG", "OPS"] {
        let path = format!("/api/mappings/{team}");
        let deleted = world.admin_request(Method::DELETE, &path, None).await;
        assert_eq!(deleted, (200, json!({"deleted": true})));
    }
    for (system, key) in SYSTEMS.into_iter().zip(["ENG-3", "OPS-3"]) {
        flagged(&world, system, key);
    }
    world.wait_for_polls().await;
    gate.open();
    for key in ["ENG-1", "OPS-1"] {
        let job = world.wait_for_job_end(key).await;
        assert_eq!(job.state, JobState::Completed, "{key}");
        let pulls = world.repo().pulls();
        assert!(
            pulls
                .iter()
                .any(|pull| pull.head == job.branch && !pull.draft),
            "{pulls:#?}"
        );
    }
    for key in ["ENG-2", "OPS-2"] {
        assert_eq!(
            world.wait_for_job_end(key).await.state.status(),
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
    world.wait_for_polls().await;
    for key in ["ENG-3", "OPS-3"] {
        assert!(world.jobs(key).is_empty(), "{key}");
    }
    let why = world.admin_get("/api/why/ENG-3").await;
    assert_eq!(why["decision"]["reason"], "no-mapping", "{why}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mapping_paused_in_the_middle_of_a_run_rests_after_it() {
    let world = TestEnv::with_mapping(with_planning(mapping_for(System::Linear, "ENG"))).await;
    let gate = Gate::new(&world);
    let script = Script::new()
        .pass_if_prompt_contains(
            PLANNING_PROMPT,
            [gate.wait_step(), ScriptStep::message("The plan.")],
        )
        .pass_if_prompt_contains(IMPLEMENTATION_PROMPT, write_steps());
    world.set_agent_script("ENG-1", script);
    world.set_agent_script(
        "ENG-2",
        planning_script([ScriptStep::message("The other plan.")]),
    );
    let pause = async |paused: bool| {
        let body = json!({ "paused": paused });
        let (status, _) = world
            .admin_request(Method::PATCH, "/api/mappings/ENG", Some(body))
            .await;
        assert_eq!(status, 200);
    };
    let running = flagged(&world, System::Linear, "ENG-1");
    at_work(&world, &["ENG-1"]).await;

    pause(true).await;
    flagged(&world, System::Linear, "ENG-2");
    world.wait_for_polls().await;
    gate.open();
    assert_eq!(
        world.wait_for_job_end("ENG-1").await.state,
        JobState::Completed
    );
    assert_eq!(running.comments(), ["The plan."]);
    assert_eq!(running.markers(), ["Agent-Implement", "Plan-Complete"]);
    world.wait_for_polls().await;
    assert_eq!(
        world.repo().runs().len(),
        1,
        "nothing starts while it is paused"
    );
    for key in ["ENG-1", "ENG-2"] {
        let why = world.admin_get(&format!("/api/why/{key}")).await;
        assert_eq!(why["decision"]["message"], "ENG is paused.", "{key}");
    }

    pause(false).await;
    for key in ["ENG-1", "ENG-2"] {
        let jobs = wait_for_runs(&world, key, 2).await;
        assert!(
            jobs.iter().all(|job| job.state == JobState::Completed),
            "{jobs:#?}"
        );
    }
    assert_eq!(world.repo().pulls().len(), 2);
    world.finish().await;
}

const FIVE: [&str; 5] = ["ENG-1", "ENG-2", "ENG-3", "ENG-4", "ENG-5"];

/// Five tickets dispatched in one second: each must find its own run among five that look alike.
async fn five_at_once(answers: Option<InjectedFault>) {
    let roomy = Mapping {
        max_in_progress: 5,
        ..mapping_for(System::Linear, "ENG")
    };
    let world = TestEnv::with_manual_engine([roomy]).await;
    let github = world.vendors.faults(FakeService::GitHub);
    for fault in FIVE.iter().filter_map(|_| answers) {
        github.inject_on_match("/dispatches", fault);
    }
    // They stay queued, so that no report can tell which is which.
    world
        .vendors
        .github()
        .set_start_delay(Duration::from_secs(24 * 3600));
    for key in FIVE {
        flagged(&world, System::Linear, key);
    }
    world.tick().await;
    world.advance_clock(Duration::from_secs(1));
    world.tick().await;
    let jobs = FIVE.map(|key| linked(&world, key));
    assert!(
        jobs.iter()
            .all(|job| job.reserved_at == jobs[0].reserved_at)
    );
    assert!(
        jobs.iter().all(|job| job.state == JobState::Dispatched),
        "{jobs:#?}"
    );
    assert_eq!(world.repo().runs().len(), 5);
    assert_eq!(github.pending(), 0, "every answer was lost that should be");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn five_dispatches_in_one_second_are_linked_each_to_its_own_run() {
    five_at_once(None).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn five_dispatches_whose_answers_are_lost_are_linked_each_to_its_own_run() {
    five_at_once(Some(InjectedFault::DropResponse)).await;
}

/// The most that were going on at once.
fn most_at_once(spans: impl IntoIterator<Item = (u64, u64)>) -> i32 {
    let mut changes: Vec<(u64, i32)> = Vec::new();
    for (from, to) in spans {
        changes.extend([(from, 1), (to, -1)]);
    }
    // What ends in the same instant in which another begins made room for it.
    changes.sort_unstable();
    let mut going_on = 0;
    let counts = changes.iter().map(|(_, change)| {
        going_on += change;
        going_on
    });
    counts.max().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn no_more_than_the_cap_are_ever_active_at_once() {
    let narrow = |(system, team)| Mapping {
        max_in_progress: 2,
        ..mapping_for(system, team)
    };
    let teams = SYSTEMS.into_iter().zip(["ENG", "OPS"]);
    let world = TestEnv::with_mappings(teams.clone().map(narrow)).await;
    let mut tickets = Vec::new();
    for (system, team) in teams {
        for number in 1..=5 {
            let key = format!("{team}-{number}");
            let steps = [[ScriptStep::Sleep { ms: 300 }].as_slice(), &write_steps()].concat();
            world.set_agent_script(&key, Script::new().pass(steps));
            tickets.push((team, flagged(&world, system, &key), key));
        }
    }
    for (_, _, key) in &tickets {
        world
            .wait_until(&format!("{key} has run"), || !world.jobs(key).is_empty())
            .await;
        assert_eq!(
            world.wait_for_job_end(key).await.state,
            JobState::Completed,
            "{key}"
        );
    }
    for team in ["ENG", "OPS"] {
        let own = || tickets.iter().filter(|(of, _, _)| *of == team);
        let jobs = own().flat_map(|(_, _, key)| world.jobs(key));
        let active = jobs.map(|job| {
            let ended = job.finished_at.unwrap();
            (job.reserved_at.as_millis(), ended.as_millis())
        });
        assert_eq!(most_at_once(active), 2, "{team}: jobs");
        let shown = own().map(|(_, ticket, _)| ticket.in_progress_period());
        assert_eq!(most_at_once(shown), 2, "{team}: markers");
    }
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_mapping_names_and_nobody_has_is_said_when_it_is_saved() {
    let world = TestEnv::start().await;
    let warned = |answer: &serde_json::Value| {
        let all = answer["warnings"].as_array().cloned().unwrap_or_default();
        let field = |one: &serde_json::Value| one["field"].as_str().map(str::to_owned);
        all.iter().filter_map(field).collect::<Vec<_>>()
    };
    let save = |team: &str, repo: &str, branch: &str| {
        let body = json!({"teamKey": team, "owner": "acme", "repo": repo, "defaultBranch": branch});
        world.admin_request(Method::POST, "/api/mappings", Some(body))
    };
    let (status, saved) = save("NOPE", "no-such-repository", "main").await;
    assert_eq!(status, 200, "a warning refuses nothing: {saved}");
    assert_eq!(warned(&saved), ["teamKey", "repo"], "{saved}");
    let (_, saved) = save("ENG", "shop", "no-such-branch").await;
    assert_eq!(warned(&saved), ["defaultBranch"], "{saved}");
    let change = |fields| world.admin_request(Method::PATCH, "/api/mappings/ENG", Some(fields));
    let (_, changed) = change(json!({"repo": "no-such-repository"})).await;
    assert_eq!(warned(&changed), ["repo"], "{changed}");
    let (_, changed) = change(json!({"repo": "shop", "defaultBranch": "main"})).await;
    assert_eq!(changed, json!({"updated": true}));
    // A vendor that is down says nothing of a mapping.
    world.vendors.faults(FakeService::Linear).set_outage(true);
    let (status, saved) = save("NOPE", "shop", "main").await;
    assert_eq!((status, warned(&saved)), (200, Vec::new()), "{saved}");
    world.vendors.faults(FakeService::Linear).set_outage(false);
    world.stop().await;
}
