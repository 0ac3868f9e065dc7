//! Template status of target repositories, and dispatches to outdated workflows.

use std::time::Duration;

use domain::job::JobState;
use domain::mapping::Mapping;
use fake_vendors::FakeService;
use reqwest::Method;
use serde_json::{Value, json};

use crate::test_env::{IMPLEMENTATION_WORKFLOW, TestEnv, mapping, planning_mapping};

const STATUS: &str = "/api/admin/template-status";
const IMPLEMENT: &str = ".github/workflows/agent-implement.yml";

#[tokio::test(flavor = "multi_thread")]
async fn an_outdated_workflow_is_reported_until_it_is_synced() {
    let env = TestEnv::with_mapping(planning_mapping()).await;
    let repo = env.repo();
    let inputs = "      run_progress_token:\n";
    let old = IMPLEMENTATION_WORKFLOW.replace(inputs, "      token_of_old:\n");
    assert_ne!(old, IMPLEMENTATION_WORKFLOW);
    repo.commit("main", &[(IMPLEMENT, old.as_str())], "Age")
        .unwrap();
    repo.remove_files("main", &[".github/workflows/agent-plan.yml"], "Lose")
        .unwrap();
    let file = |path: &str, status: &str| json!({"path": path, "status": status});
    let before = env.admin_get(STATUS).await;
    assert_eq!(
        before,
        json!([{
            "teamKey": "ENG", "owner": "acme", "repo": "shop",
            "planning": "missing", "implementation": "stale",
            "files": [
                file(IMPLEMENT, "stale"),
                file(".github/workflows/agent-plan.yml", "missing"),
                file(".github/workflows/comment-trigger.yml", "missing"),
            ],
        }])
    );
    env.admin_post(
        "/api/mappings",
        json!({
            "teamKey": "ENG", "owner": "acme", "repo": "shop", "defaultBranch": "main",
        }),
    )
    .await;

    env.create_labelled_issue("ENG-1", "Add the feature");
    let job = env.wait_for_job_end("ENG-1").await;
    let JobState::Failed { reason, .. } = job.state else {
        panic!("{job:?}");
    };
    assert!(reason.contains("Unexpected inputs provided"), "{reason}");
    assert!(
        reason.contains("Sync the workflows of this project"),
        "{reason}"
    );
    let comments = env.comments("ENG-1").join("\n");
    assert!(
        comments.contains("Sync the workflows of this project"),
        "{comments}"
    );
    let why = env.admin_get("/api/why/ENG-1").await.to_string();
    assert!(why.contains("Sync the workflows of this project"), "{why}");

    let (_, synced) = env
        .admin_request(Method::POST, "/api/mappings/ENG/sync-workflows", None)
        .await;
    repo.merge_pull(synced["prNumber"].as_u64().unwrap())
        .unwrap();
    let after = env.admin_get(STATUS).await;
    assert_eq!(after[0]["implementation"], "current", "{after}");
    assert_eq!(after[0]["planning"], "current", "planning is off now");

    // The synced workflow runs.
    env.vendors
        .linear()
        .issue("ENG-1")
        .add_label("Agent-Implement");
    let ended = || env.jobs("ENG-1").get(1).is_some_and(|job| !job.is_active());
    env.wait_until("the ticket ran again", ended).await;
    env.wait_for_empty_outbox().await;
    assert_eq!(env.jobs("ENG-1")[1].state, JobState::Completed);
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_repository_is_read_once_with_conditional_requests() {
    let team = |key: &str, repo: &str, branch: &str| Mapping {
        team_key: key.into(),
        repo: repo.into(),
        default_branch: branch.into(),
        ..mapping()
    };
    let env = TestEnv::with_manual_engine([
        team("ENG", "shop", "main"),
        team("OPS", "shop", "main"),
        team("WEB", "shop", "gone"),
        team("LOST", "none", "main"),
        team("BARE", "bare", "main"),
    ])
    .await;
    let bare = env.vendors.github().repo("acme", "bare");
    bare.seed(&[("README.md", "# Bare\n")], "Begin").unwrap();
    let report = env.admin_get(STATUS).await;
    let of = |key: &str, report: &Value| {
        let all = report.as_array().unwrap().clone();
        all.into_iter().find(|one| one["teamKey"] == key).unwrap()
    };
    for key in ["WEB", "LOST"] {
        let project = of(key, &report);
        assert_eq!(
            (&project["implementation"], &project["files"]),
            (&json!("error"), &json!([]))
        );
        assert!(
            project["error"].as_str().unwrap().contains("acme/"),
            "{project}"
        );
    }
    assert_eq!(of("BARE", &report)["implementation"], "missing");
    assert_eq!(of("OPS", &report)["implementation"], "stale");

    env.vendors.requests().clear();
    assert_eq!(env.admin_get(STATUS).await, report);
    let requests = env.vendors.requests().for_service(FakeService::GitHub);
    let of_shop = requests
        .iter()
        .filter(|one| one.url.contains("/shop/contents/"));
    let answers: Vec<_> = of_shop.map(|one| one.status).collect();
    assert_eq!(
        answers
            .iter()
            .filter(|status| **status == Some(304))
            .count(),
        1,
        "{answers:?}"
    );

    env.vendors.faults(FakeService::GitHub).set_outage(true);
    env.advance_clock(Duration::from_secs(1));
    let down = env.admin_get(STATUS).await;
    assert_eq!(of("OPS", &down)["planning"], "error");
    assert!(
        of("OPS", &down)["error"].as_str().unwrap().contains("503"),
        "{down}"
    );
    env.vendors.faults(FakeService::GitHub).clear();
    env.finish().await;
}
