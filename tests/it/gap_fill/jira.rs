//! On Jira, where several mappings may look at one project.

use std::time::Duration;

use domain::ids::Repo;
use domain::job::{JobKind, JobState};
use domain::mapping::{Mapping, TicketingConfig};
use fake_vendors::FakeService;
use fake_vendors::scripted_agent::ScriptStep;
use serde_json::json;
use store::jobs;

use super::{
    finished_job, options, pull_number, send_trigger, set_paused, trigger_body, two_pass_script,
};
use crate::test_env::{EngineMode, TestEnv, TestEnvOptions, mapping};

fn on_jira(team: &str, jql: &str, value: &str, repo: &str) -> Mapping {
    Mapping {
        team_key: team.into(),
        repo: repo.to_owned(),
        ticketing: TicketingConfig::Jira {
            jql: jql.to_owned(),
            repo_field_value: value.to_owned(),
            status_field_override: None,
            repo_field_override: None,
        },
        ..mapping()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_jira_ticket_is_worked_on_for_its_own_repository_only() {
    let jira = TestEnvOptions {
        mappings: vec![
            on_jira("BROKEN", "project = GONE", "api", "shop"),
            on_jira(
                "NARROW",
                "project = OPS AND labels = narrow",
                "shop",
                "shop",
            ),
            on_jira("SHOP", "project = OPS OR project = WEB", "shop", "shop"),
            on_jira("WEB", "project = OPS OR project = WEB", "web", "web"),
        ],
        ..options()
    };
    let world = TestEnv::with_options(jira).await;
    world.vendors.jira().ensure_project("WEB", "Web");
    world.set_agent_script("OPS-1", two_pass_script(ScriptStep::write("a.txt", "A\n")));
    let ticket = world.vendors.jira().issue("OPS-1").title("Add it");
    ticket.clone().repo("shop").status("Ready");
    let first = world.wait_for_job_end("OPS-1").await;
    assert_eq!(
        (first.team.as_str(), &first.state),
        ("SHOP", &JobState::Completed)
    );
    let (number, before) = (pull_number(&world), format!("{:?}", ticket.snapshot()));

    let issue = |key: &str, repo: &str| {
        let issue = world.vendors.jira().issue(key).title("Other");
        issue.repo(repo).status("PR Ready")
    };
    issue("OPS-2", "web");
    issue("OTHER-1", "shop");
    issue("OPS-3", "api");
    world
        .vendors
        .jira()
        .issue("OPS-4")
        .title("For no repository");
    for key in ["OPS-2", "OTHER-1", "OPS-4", "OPS-99", "NONE-1"] {
        let told = send_trigger(&world, trigger_body(key, number)).await;
        assert_eq!(told.body, json!({"error": "mapping_not_found"}), "{key}");
    }
    let broken = send_trigger(&world, trigger_body("OPS-3", number)).await;
    assert_eq!(broken.error(), (502, "dispatch_failed"));
    // The same number in another repository is another pull request.
    let mut elsewhere = finished_job(&world, "OPS-2", 70);
    elsewhere.repo = Repo::new("acme", "web");
    let put = world.app.store.write(move |tx| jobs::put(tx, &elsewhere));
    put.await.unwrap();
    assert_eq!(
        send_trigger(&world, trigger_body("OPS-1", 70)).await.status,
        404
    );
    set_paused(&world, "WEB", true).await;
    let paused = send_trigger(&world, trigger_body("OPS-2", 70)).await;
    assert_eq!(
        paused.body,
        json!({"error": "project_paused", "teamKey": "WEB"})
    );

    world.vendors.requests().clear();
    let told = send_trigger(&world, trigger_body("OPS-1", number)).await;
    assert_eq!(told.status, 200, "{told:?}");
    let asked = world.vendors.requests().for_service(FakeService::Jira);
    let asked = asked
        .iter()
        .filter(|request| request.body["maxResults"] == 1);
    assert_eq!(asked.count(), 2, "one search for each clause that may hold");
    let job = world.wait_for_job_end("OPS-1").await;
    assert_eq!(
        (job.kind, &job.state),
        (JobKind::GapFill, &JobState::Completed)
    );
    assert_eq!(job.team.as_str(), "SHOP");
    assert_eq!(job.issue, first.issue);
    assert_eq!(format!("{:?}", ticket.snapshot()), before);
    let head = &world.repo().pulls()[0].head;
    assert_eq!(
        world.repo().read_file(head, "a.txt").as_deref(),
        Some("A\n")
    );

    world.vendors.faults(FakeService::Jira).set_outage(true);
    assert_eq!(
        send_trigger(&world, trigger_body("OPS-1", number))
            .await
            .status,
        502
    );
    world.vendors.faults(FakeService::Jira).set_outage(false);
    world.finish().await;
}

/// Teams of both systems may give the same key to different tickets.
#[tokio::test(flavor = "multi_thread")]
async fn of_two_tickets_of_one_key_the_one_that_was_dispatched_is_meant() {
    let by_hand = TestEnvOptions {
        mappings: vec![mapping(), on_jira("JENG", "project = ENG", "shop", "shop")],
        engine: EngineMode::manual(),
        ..options()
    };
    let world = TestEnv::with_options(by_hand).await;
    world
        .vendors
        .jira()
        .ensure_project("ENG", "Engineering, too");
    let ticket = world.vendors.jira().issue("ENG-1").title("On Jira");
    ticket.repo("shop").status("PR Ready");
    let done = finished_job(&world, "ENG-1", 7);
    world.vendors.linear().issue("ENG-1").title("On Linear");
    let put = world.app.store.write(move |tx| jobs::put(tx, &done));
    put.await.unwrap();
    world
        .vendors
        .github()
        .set_start_delay(Duration::from_secs(600));
    let told = send_trigger(&world, trigger_body("ENG-1", 7)).await;
    assert_eq!(told.status, 200, "{told:?}");
    let active = world.app.store.read(jobs::active).unwrap();
    assert_eq!(active[0].team.as_str(), "JENG");
    assert_eq!(active[0].issue.title, "On Jira");
    world.stop().await;
}
