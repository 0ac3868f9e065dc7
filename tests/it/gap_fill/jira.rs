//! On Jira, where several mappings may look at one project.

use std::time::Duration;

use domain::ids::Repo;
use domain::job::{JobKind, JobState};
use domain::mapping::{Mapping, Ticketing};
use fake_vendors::Vendor;
use fake_vendors::scripted_agent::Step;
use serde_json::json;
use store::jobs;

use super::{ask, body, finished, making, pause, pull, script};
use crate::world::{Engine, Making, World, mapping};

fn on_jira(team: &str, jql: &str, value: &str, repo: &str) -> Mapping {
    Mapping {
        team_key: team.into(),
        repo: repo.to_owned(),
        ticketing: Ticketing::B {
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
    let jira = Making {
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
        ..making()
    };
    let world = World::made(jira).await;
    world.town.jira().project("WEB", "Web");
    world.script("OPS-1", script(Step::write("a.txt", "A\n")));
    let ticket = world.town.jira().issue("OPS-1").title("Add it");
    ticket.clone().repo("shop").status("Ready");
    let first = world.ended("OPS-1").await;
    assert_eq!(
        (first.team.as_str(), &first.state),
        ("SHOP", &JobState::Completed)
    );
    let (number, before) = (pull(&world), format!("{:?}", ticket.snapshot()));

    let issue = |key: &str, repo: &str| {
        let issue = world.town.jira().issue(key).title("Other");
        issue.repo(repo).status("PR Ready")
    };
    issue("OPS-2", "web");
    issue("OTHER-1", "shop");
    issue("OPS-3", "api");
    world.town.jira().issue("OPS-4").title("For no repository");
    for key in ["OPS-2", "OTHER-1", "OPS-4", "OPS-99", "NONE-1"] {
        let told = ask(&world, body(key, number)).await;
        assert_eq!(told.body, json!({"error": "mapping_not_found"}), "{key}");
    }
    let broken = ask(&world, body("OPS-3", number)).await;
    assert_eq!(broken.fault(), (502, "dispatch_failed"));
    // The same number in another repository is another pull request.
    let mut elsewhere = finished(&world, "OPS-2", 70);
    elsewhere.repo = Repo::new("acme", "web");
    let put = world.app.store.write(move |tx| jobs::put(tx, &elsewhere));
    put.await.unwrap();
    assert_eq!(ask(&world, body("OPS-1", 70)).await.status, 404);
    pause(&world, "WEB", true).await;
    let paused = ask(&world, body("OPS-2", 70)).await;
    assert_eq!(
        paused.body,
        json!({"error": "project_paused", "teamKey": "WEB"})
    );

    world.town.requests().clear();
    let told = ask(&world, body("OPS-1", number)).await;
    assert_eq!(told.status, 200, "{told:?}");
    let asked = world.town.requests().of(Vendor::Jira);
    let asked = asked
        .iter()
        .filter(|request| request.body["maxResults"] == 1);
    assert_eq!(asked.count(), 2, "one search for each clause that may hold");
    let job = world.ended("OPS-1").await;
    assert_eq!(
        (job.kind, &job.state),
        (JobKind::GapFill, &JobState::Completed)
    );
    assert_eq!(job.team.as_str(), "SHOP");
    assert_eq!(job.issue, first.issue);
    assert_eq!(format!("{:?}", ticket.snapshot()), before);
    let head = &world.repo().pulls()[0].head;
    assert_eq!(world.repo().file_at(head, "a.txt").as_deref(), Some("A\n"));

    world.town.faults(Vendor::Jira).outage(true);
    assert_eq!(ask(&world, body("OPS-1", number)).await.status, 502);
    world.town.faults(Vendor::Jira).outage(false);
    world.end().await;
}

/// Teams of both systems may give the same key to different tickets.
#[tokio::test(flavor = "multi_thread")]
async fn of_two_tickets_of_one_key_the_one_that_was_dispatched_is_meant() {
    let by_hand = Making {
        mappings: vec![mapping(), on_jira("JENG", "project = ENG", "shop", "shop")],
        engine: Engine::by_hand(),
        ..making()
    };
    let world = World::made(by_hand).await;
    world.town.jira().project("ENG", "Engineering, too");
    let ticket = world.town.jira().issue("ENG-1").title("On Jira");
    ticket.repo("shop").status("PR Ready");
    let done = finished(&world, "ENG-1", 7);
    world.town.linear().issue("ENG-1").title("On Linear");
    let put = world.app.store.write(move |tx| jobs::put(tx, &done));
    put.await.unwrap();
    world
        .town
        .github()
        .set_start_delay(Duration::from_secs(600));
    let told = ask(&world, body("ENG-1", 7)).await;
    assert_eq!(told.status, 200, "{told:?}");
    let active = world.app.store.read(jobs::active).unwrap();
    assert_eq!(active[0].team.as_str(), "JENG");
    assert_eq!(active[0].issue.title, "On Jira");
    world.stop().await;
}
