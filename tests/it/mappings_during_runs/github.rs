//! Mappings of issues of GitHub during active runs.

use std::time::Duration;

use domain::issue::System;
use domain::job::JobState;
use domain::mapping::{Mapping, TicketMatch, TicketingConfig};
use fake_vendors::scripted_agent::{Script, ScriptStep};
use fake_vendors::{FakeService, InjectedFault};
use reqwest::Method;
use serde_json::json;
use vendors::http::percent_encode;

use super::{create_triggered, linked_job, max_overlap, wait_until_running};
use crate::planning::{
    IMPLEMENTATION_PROMPT, PLANNING_PROMPT, planning_script, wait_for_runs, write_steps,
};
use crate::test_env::{Gate, TestEnv};
use crate::test_ticket::{TestTicket, github_mapping, with_planning};

fn shop() -> Mapping {
    github_mapping("SHOP", "acme", "shop")
}

/// Mapping of the issues of `acme/shop` with a label.
fn labelled(team: &str, label: &str) -> Mapping {
    let matching = Some(TicketMatch::Label(label.to_owned()));
    Mapping {
        ticketing: TicketingConfig::GitHub { matching },
        ..github_mapping(team, "acme", "shop")
    }
}

fn create(env: &TestEnv, key: &str) -> TestTicket {
    create_triggered(env, System::GitHub, key)
}

#[tokio::test(flavor = "multi_thread")]
async fn two_projects_share_a_repository_and_each_gets_its_own_pull_request() {
    let env =
        TestEnv::with_mappings([labelled("WEB", "repo:web"), labelled("API", "repo:api")]).await;
    for (number, label) in [(11, "repo:web"), (12, "repo:api")] {
        let issue = env.repo().issue(number).title("Add the feature");
        issue.add_label(label).add_label("Agent-Implement");
    }
    for (number, team) in [(11, "WEB"), (12, "API")] {
        let key = format!("shop#{number}");
        let state = env.wait_for_job_end(&key).await.state;
        assert_eq!(state, JobState::Completed, "{key}");
        let job = linked_job(&env, &key);
        assert_eq!(job.team.as_str(), team);
        assert_eq!(
            job.branch,
            format!("agent-implement/shop-{number}-add-the-feature")
        );
        let mut pulls = env.repo().pulls();
        pulls.retain(|pull| pull.head == job.branch);
        assert_eq!(pulls.len(), 1, "{key}: {pulls:#?}");
        let pull = pulls.remove(0);
        assert_eq!(job.pull.map(|pull| pull.number), Some(pull.number));
        let closes = format!("Fixes #{number}");
        assert!(
            pull.body.lines().any(|line| line == closes),
            "{}",
            pull.body
        );
        let comments = env.repo().issue(number).comments();
        let url = env.repo().pull_url(pull.number);
        assert!(comments[0].contains(&url), "{comments:?}");
    }
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_of_a_deleted_mapping_complete() {
    let env = TestEnv::with_mapping(shop()).await;
    let gate = Gate::new(&env);
    let write = Script::new().pass([[gate.wait_step()].as_slice(), &write_steps()].concat());
    let no_changes = Script::new().pass([
        gate.wait_step(),
        ScriptStep::message("There is nothing to do."),
    ]);
    env.set_agent_script("shop#11", write);
    env.set_agent_script("shop#12", no_changes);
    let (opened, failed) = (create(&env, "shop#11"), create(&env, "shop#12"));
    wait_until_running(&env, &["shop#11", "shop#12"]).await;
    let deleted = env
        .admin_request(Method::DELETE, "/api/mappings/SHOP", None)
        .await;
    assert_eq!(deleted, (200, json!({"deleted": true})));
    create(&env, "shop#13");
    env.wait_for_polls().await;
    gate.open();
    let job = env.wait_for_job_end("shop#11").await;
    assert_eq!(job.state, JobState::Completed);
    let job = env.wait_for_job_end("shop#12").await;
    assert_eq!(job.state.status(), "failed");
    env.wait_for_empty_outbox().await;
    assert_eq!(opened.markers(), ["Agent-Implement", "Ready for Review"]);
    assert_eq!(failed.markers(), [""; 0]);
    for (ticket, begin) in [
        (opened, "Pull request opened: "),
        (failed, "Implementation failed: "),
    ] {
        let comments = ticket.comments();
        assert!(comments[0].starts_with(begin), "{comments:?}");
    }
    env.wait_for_polls().await;
    assert!(env.jobs("shop#13").is_empty());
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mapping_paused_during_a_run_starts_nothing_after_it() {
    let env = TestEnv::with_mapping(with_planning(shop())).await;
    let gate = Gate::new(&env);
    let script = Script::new()
        .pass_if_prompt_contains(
            PLANNING_PROMPT,
            [gate.wait_step(), ScriptStep::message("The plan.")],
        )
        .pass_if_prompt_contains(IMPLEMENTATION_PROMPT, write_steps());
    env.set_agent_script("shop#11", script);
    let plan = [ScriptStep::message("The other plan.")];
    env.set_agent_script("shop#12", planning_script(plan));
    let pause = async |paused: bool| {
        let body = Some(json!({ "paused": paused }));
        let path = "/api/mappings/SHOP";
        assert_eq!(env.admin_request(Method::PATCH, path, body).await.0, 200);
    };
    let running = create(&env, "shop#11");
    wait_until_running(&env, &["shop#11"]).await;
    pause(true).await;
    create(&env, "shop#12");
    env.wait_for_polls().await;
    gate.open();
    let job = env.wait_for_job_end("shop#11").await;
    assert_eq!(job.state, JobState::Completed);
    assert_eq!(running.comments(), ["The plan."]);
    assert_eq!(running.markers(), ["Agent-Implement", "Plan-Complete"]);
    env.wait_for_polls().await;
    assert_eq!(
        env.repo().runs().len(),
        1,
        "nothing starts while it is paused"
    );
    for key in ["shop#11", "shop#12"] {
        let path = format!("/api/why/{}", percent_encode(key));
        let why = env.admin_get(&path).await;
        assert_eq!(why["decision"]["message"], "SHOP is paused.", "{key}");
    }
    pause(false).await;
    for key in ["shop#11", "shop#12"] {
        let jobs = wait_for_runs(&env, key, 2).await;
        let is_completed = |job: &domain::job::Job| job.state == JobState::Completed;
        assert!(jobs.iter().all(is_completed), "{jobs:#?}");
    }
    assert_eq!(env.repo().pulls().len(), 2);
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn five_dispatches_with_lost_responses_are_each_linked_to_their_run() {
    let env = TestEnv::with_manual_engine([Mapping {
        max_in_progress: 5,
        ..shop()
    }])
    .await;
    let github = env.vendors.faults(FakeService::GitHub);
    let keys = [11, 12, 13, 14, 15].map(|number| format!("shop#{number}"));
    // The runs stay queued, so that no report can link them.
    env.vendors
        .github()
        .set_start_delay(Duration::from_secs(24 * 3600));
    for key in &keys {
        github.inject_on_match("/dispatches", InjectedFault::DropResponse);
        create(&env, key);
    }
    env.tick().await;
    env.advance_clock(Duration::from_secs(1));
    env.tick().await;
    for key in &keys {
        assert_eq!(linked_job(&env, key).state, JobState::Dispatched, "{key}");
    }
    assert_eq!(env.repo().runs().len(), 5);
    assert_eq!(github.pending(), 0, "all injected faults were used");
    env.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn active_jobs_never_exceed_the_cap_of_their_own_project() {
    let with_low_cap = |mapping| Mapping {
        max_in_progress: 2,
        ..mapping
    };
    let mappings = [labelled("WEB", "repo:web"), shop()].map(with_low_cap);
    let env = TestEnv::with_mappings(mappings).await;
    let mut tickets = Vec::new();
    for number in 11..=18 {
        let key = format!("shop#{number}");
        let steps = [[ScriptStep::Sleep { ms: 300 }].as_slice(), &write_steps()].concat();
        env.set_agent_script(&key, Script::new().pass(steps));
        let issue = env.repo().issue(number).title("Add the feature");
        let (team, issue) = match number % 2 {
            0 => ("WEB", issue.add_label("repo:web")),
            _ => ("SHOP", issue),
        };
        issue.clone().add_label("Agent-Implement");
        tickets.push((team, TestTicket::GitHub(issue), key));
    }
    for (team, _, key) in &tickets {
        env.wait_until(&format!("{key} has run"), || !env.jobs(key).is_empty())
            .await;
        let job = env.wait_for_job_end(key).await;
        assert_eq!((job.state, job.team.as_str()), (JobState::Completed, *team));
    }
    for team in ["WEB", "SHOP"] {
        let own = || tickets.iter().filter(|(of, _, _)| *of == team);
        let jobs = own().flat_map(|(_, _, key)| env.jobs(key));
        let active = jobs.map(|job| {
            let ended = job.finished_at.unwrap();
            (job.reserved_at.as_millis(), ended.as_millis())
        });
        assert_eq!(max_overlap(active), 2, "{team}: jobs");
        let shown = own().map(|(_, ticket, _)| ticket.in_progress_period());
        assert_eq!(max_overlap(shown), 2, "{team}: markers");
    }
    env.finish().await;
}
