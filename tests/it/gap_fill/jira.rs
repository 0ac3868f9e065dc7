//! Gap fill for Jira tickets, where several mappings may query one project.

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

fn jira_mapping(team: &str, jql: &str, value: &str, repo: &str) -> Mapping {
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
async fn a_jira_ticket_matches_only_its_own_repository() {
    let env_options = TestEnvOptions {
        mappings: vec![
            jira_mapping("BROKEN", "project = GONE", "api", "shop"),
            jira_mapping(
                "NARROW",
                "project = OPS AND labels = narrow",
                "shop",
                "shop",
            ),
            jira_mapping("SHOP", "project = OPS OR project = WEB", "shop", "shop"),
            jira_mapping("WEB", "project = OPS OR project = WEB", "web", "web"),
        ],
        ..options()
    };
    let env = TestEnv::with_options(env_options).await;
    env.vendors.jira().ensure_project("WEB", "Web");
    env.set_agent_script("OPS-1", two_pass_script(ScriptStep::write("a.txt", "A\n")));
    let ticket = env.vendors.jira().issue("OPS-1").title("Add it");
    ticket.clone().repo("shop").status("Ready");
    let first = env.wait_for_job_end("OPS-1").await;
    assert_eq!(
        (first.team.as_str(), &first.state),
        ("SHOP", &JobState::Completed)
    );
    let (number, before) = (pull_number(&env), format!("{:?}", ticket.snapshot()));

    let issue = |key: &str, repo: &str| {
        let issue = env.vendors.jira().issue(key).title("Other");
        issue.repo(repo).status("PR Ready")
    };
    issue("OPS-2", "web");
    issue("OTHER-1", "shop");
    issue("OPS-3", "api");
    env.vendors.jira().issue("OPS-4").title("For no repository");
    for key in ["OPS-2", "OTHER-1", "OPS-4", "OPS-99", "NONE-1"] {
        let response = send_trigger(&env, trigger_body(key, number)).await;
        assert_eq!(
            response.body,
            json!({"error": "mapping_not_found"}),
            "{key}"
        );
    }
    let broken = send_trigger(&env, trigger_body("OPS-3", number)).await;
    assert_eq!(broken.error(), (502, "dispatch_failed"));
    // The same number in another repository is another pull request.
    let mut elsewhere = finished_job(&env, "OPS-2", 70);
    elsewhere.repo = Repo::new("acme", "web");
    let put = env.store.write(move |tx| jobs::put(tx, &elsewhere));
    put.await.unwrap();
    assert_eq!(
        send_trigger(&env, trigger_body("OPS-1", 70)).await.status,
        404
    );
    set_paused(&env, "WEB", true).await;
    let paused = send_trigger(&env, trigger_body("OPS-2", 70)).await;
    assert_eq!(
        paused.body,
        json!({"error": "project_paused", "teamKey": "WEB"})
    );

    env.vendors.requests().clear();
    let response = send_trigger(&env, trigger_body("OPS-1", number)).await;
    assert_eq!(response.status, 200, "{response:?}");
    let requests = env.vendors.requests().for_service(FakeService::Jira);
    let requests = requests
        .iter()
        .filter(|request| request.body["maxResults"] == 1);
    assert_eq!(requests.count(), 2, "one search per matching clause");
    let job = env.wait_for_job_end("OPS-1").await;
    assert_eq!(
        (job.kind, &job.state),
        (JobKind::GapFill, &JobState::Completed)
    );
    assert_eq!(job.team.as_str(), "SHOP");
    assert_eq!(job.issue, first.issue);
    assert_eq!(format!("{:?}", ticket.snapshot()), before);
    let head = &env.repo().pulls()[0].head;
    assert_eq!(env.repo().read_file(head, "a.txt").as_deref(), Some("A\n"));

    env.vendors.faults(FakeService::Jira).set_outage(true);
    assert_eq!(
        send_trigger(&env, trigger_body("OPS-1", number))
            .await
            .status,
        502
    );
    env.vendors.faults(FakeService::Jira).set_outage(false);
    env.finish().await;
}

/// Linear and Jira tickets may have the same key.
#[tokio::test(flavor = "multi_thread")]
async fn the_dispatched_ticket_wins_if_two_systems_share_a_key() {
    let env_options = TestEnvOptions {
        mappings: vec![
            mapping(),
            jira_mapping("JENG", "project = ENG", "shop", "shop"),
        ],
        engine: EngineMode::manual(),
        ..options()
    };
    let env = TestEnv::with_options(env_options).await;
    env.vendors.jira().ensure_project("ENG", "Engineering, too");
    let ticket = env.vendors.jira().issue("ENG-1").title("On Jira");
    ticket.repo("shop").status("PR Ready");
    let done = finished_job(&env, "ENG-1", 7);
    env.vendors.linear().issue("ENG-1").title("On Linear");
    let put = env.store.write(move |tx| jobs::put(tx, &done));
    put.await.unwrap();
    env.vendors
        .github()
        .set_start_delay(Duration::from_secs(600));
    let response = send_trigger(&env, trigger_body("ENG-1", 7)).await;
    assert_eq!(response.status, 200, "{response:?}");
    let active = env.store.read(jobs::active).unwrap();
    assert_eq!(active[0].team.as_str(), "JENG");
    assert_eq!(active[0].issue.title, "On Jira");
    env.stop().await;
}
