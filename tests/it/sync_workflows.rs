//! Syncing a project's workflows: one pull request, whatever happens, and nothing of the team's lost.

use domain::mapping::Mapping;
use fake_vendors::{FakeRepo, FakeService, InjectedFault};
use reqwest::Method;
use serde_json::{Value, json};
use store::mappings;

use crate::test_env::{TestEnv, TestEnvOptions, mapping, planning_mapping};

const PATH: &str = "/api/mappings/ENG/sync-workflows";
const BRANCH: &str = "sync/agent-implement";
const IMPLEMENT: &str = ".github/workflows/agent-implement.yml";
const PLAN: &str = ".github/workflows/agent-plan.yml";
const TRIGGER: &str = ".github/workflows/comment-trigger.yml";
const CONFIG: &str = ".agent-implement/config.yml";

async fn sync(world: &TestEnv) -> Value {
    let (status, told) = world.admin_request(Method::POST, PATH, None).await;
    assert_eq!(status, 200, "{told}");
    told
}

async fn refused(world: &TestEnv) -> String {
    let (status, told) = world.admin_request(Method::POST, PATH, None).await;
    assert_eq!(status, 500, "{told}");
    told["error"].as_str().unwrap().to_owned()
}

async fn put(world: &TestEnv, mapping: Mapping) {
    let put = world.app.store.write(move |tx| mappings::put(tx, &mapping));
    put.await.unwrap();
}

/// What changes at the host from here on.
fn writes(world: &TestEnv) -> Vec<String> {
    let asked = world
        .vendors
        .requests()
        .for_service(FakeService::GitHub)
        .into_iter();
    let changing = asked.filter(|one| one.method != "GET" && !one.url.contains("access_tokens"));
    changing
        .map(|one| format!("{} {}", one.method, one.url))
        .collect()
}

fn head(repo: &FakeRepo, branch: &str) -> String {
    repo.branch_head(branch).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repository_gets_one_pull_request_that_grows_until_it_is_merged() {
    let world = TestEnv::start().await;
    let repo = world.repo();
    let opened = sync(&world).await;
    let pull = &repo.pulls()[0];
    assert_eq!(
        opened,
        json!({
            "status": "pr-opened", "targetRepo": "acme/shop", "baseBranch": "main",
            "syncBranch": BRANCH, "changedFiles": [CONFIG, IMPLEMENT, TRIGGER, "WORKFLOW.md"],
            "prNumber": pull.number, "prUrl": repo.pull_url(pull.number),
        })
    );
    assert_eq!(
        (pull.head.as_str(), pull.base.as_str(), pull.draft),
        (BRANCH, "main", false)
    );
    assert!(pull.body.contains("- `WORKFLOW.md`\n"), "{}", pull.body);
    let workflow = repo.read_file(BRANCH, IMPLEMENT).unwrap();
    assert!(
        workflow.contains("'ghcr.io/acme/agent-implement-runner:latest'"),
        "{workflow}"
    );
    assert_eq!(repo.commits(BRANCH).len(), repo.commits("main").len() + 1);
    assert_eq!(
        repo.read_file(BRANCH, "README.md"),
        repo.read_file("main", "README.md")
    );

    // Asked again, it offers the same and writes nothing.
    world.vendors.requests().clear();
    let again = sync(&world).await;
    assert_eq!(again["status"], "pr-existing");
    assert_eq!(again["prNumber"], opened["prNumber"]);
    assert_eq!(again["changedFiles"], opened["changedFiles"]);
    assert_eq!(writes(&world), [""; 0]);

    // The team works on the branch and on its base; the mapping wants more.
    let ours = "Build with make.\n";
    repo.commit(BRANCH, &[("WORKFLOW.md", ours)], "How we build")
        .unwrap();
    repo.remove_files(BRANCH, &[CONFIG], "No settings of our own")
        .unwrap();
    repo.commit("main", &[("README.md", "# The shop\n")], "Rename")
        .unwrap();
    put(&world, planning_mapping()).await;
    let grown = sync(&world).await;
    assert_eq!(grown["status"], "pr-updated");
    assert_eq!(grown["prNumber"], opened["prNumber"]);
    assert_eq!(
        grown["changedFiles"],
        json!([IMPLEMENT, PLAN, TRIGGER, "WORKFLOW.md"]),
        "no starter is pushed on a team that works on the branch"
    );
    assert_eq!(repo.read_file(BRANCH, "WORKFLOW.md").as_deref(), Some(ours));
    assert_eq!(
        repo.read_file(BRANCH, "README.md").as_deref(),
        Some("# The shop\n")
    );
    assert_eq!(
        repo.commits(BRANCH)[1].sha,
        head(&repo, "main"),
        "it stands on its base"
    );
    assert_eq!(repo.pulls().len(), 1);

    // Merged, there is nothing left but the starters that the team has done without.
    repo.commit(
        BRANCH,
        &[(CONFIG, "{}\n"), ("PLANNING.md", "Plan.\n")],
        "After all",
    )
    .unwrap();
    repo.merge_pull(pull.number).unwrap();
    world.vendors.requests().clear();
    let done = sync(&world).await;
    assert_eq!(
        (&done["status"], &done["prNumber"]),
        (&json!("up-to-date"), &Value::Null)
    );
    assert_eq!(done["changedFiles"], json!([]));
    assert_eq!(writes(&world), [""; 0]);

    // A workflow that somebody has changed in place is offered as it should be.
    repo.commit(
        "main",
        &[(IMPLEMENT, "on: push\n"), (CONFIG, "")],
        "Break it",
    )
    .unwrap();
    let mended = sync(&world).await;
    assert_eq!(
        (&mended["status"], &mended["changedFiles"]),
        (&json!("pr-opened"), &json!([IMPLEMENT]))
    );
    assert_ne!(mended["prNumber"], opened["prNumber"]);
    assert_eq!(repo.read_file(BRANCH, IMPLEMENT), Some(workflow));
    assert_eq!(
        repo.read_file(BRANCH, CONFIG).as_deref(),
        Some(""),
        "a starter is the team's"
    );

    let (status, told) = world
        .admin_request(Method::POST, "/api/mappings/OPS/sync-workflows", None)
        .await;
    assert_eq!((status, &told), (404, &json!({"error": "Team not found"})));
    assert_eq!(world.admin_request(Method::GET, PATH, None).await.0, 405);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sync_says_which_permission_is_missing_and_works_once_it_is_given() {
    let world = TestEnv::start().await;
    let github = world.vendors.github();
    for permission in ["workflows", "pull_requests"] {
        github.deny_permission(permission);
        let told = refused(&world).await;
        assert!(
            told.contains(&format!(
                "The App lacks the permission {permission}: write on acme/shop"
            )),
            "{told}"
        );
        github.grant_permission(permission);
    }
    assert_eq!(sync(&world).await["status"], "pr-opened");
    put(
        &world,
        Mapping {
            default_branch: "trunk".into(),
            ..mapping()
        },
    )
    .await;
    let told = refused(&world).await;
    assert!(
        told.starts_with("acme/shop has no branch trunk, or it is hidden"),
        "{told}"
    );
    world.repo().commit("trunk", &[("a", "a")], "Grow").unwrap();
    let told = refused(&world).await;
    assert!(
        told.contains("has the open pull request") && told.contains(" to main;"),
        "{told}"
    );
    put(
        &world,
        Mapping {
            repo: "none".into(),
            ..mapping()
        },
    )
    .await;
    let told = refused(&world).await;
    assert!(
        told.starts_with("acme/none has no branch main, or it is hidden"),
        "{told}"
    );
    put(
        &world,
        Mapping {
            workflow_file: "comment-trigger.yml".into(),
            ..mapping()
        },
    )
    .await;
    let told = refused(&world).await;
    assert!(
        told.contains("comment-trigger.yml is named for two different workflows"),
        "{told}"
    );
    world.finish().await;

    let world = TestEnv::with_options(TestEnvOptions {
        omitted_flags: &["--github-app-id", "--github-app-private-key"],
        ..TestEnvOptions::default()
    })
    .await;
    assert!(refused(&world).await.contains("set GITHUB_APP_ID"));
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn syncs_at_once_and_lost_answers_make_one_pull_request() {
    // Two teams share the repository; each asks twice at once.
    let other = Mapping {
        team_key: "OPS".into(),
        ..planning_mapping()
    };
    let world = TestEnv::with_mappings([mapping(), other]).await;
    let faults = world.vendors.faults(FakeService::GitHub);
    for lost in [
        "POST /repos/acme/shop/git/refs",
        "POST /repos/acme/shop/pulls",
    ] {
        faults.inject_on_match(lost, InjectedFault::DropResponse);
    }
    faults.inject_on_match(
        "POST /repos/acme/shop/git/trees",
        InjectedFault::ErrorStatus(502),
    );
    let ops = "/api/mappings/OPS/sync-workflows";
    let told = futures_util::future::join_all([PATH, ops, PATH, ops].map(|path| {
        let world = &world;
        async move { world.admin_request(Method::POST, path, None).await }
    }))
    .await;
    assert_eq!(faults.pending(), 0);
    let pulls = world.repo().pulls();
    assert_eq!(pulls.len(), 1, "{pulls:#?}");
    for (status, body) in told {
        assert_eq!(
            (status, &body["prNumber"]),
            (200, &json!(pulls[0].number)),
            "{body}"
        );
        let files = body["changedFiles"].as_array().unwrap();
        assert!(
            files.contains(&json!(PLAN)),
            "both need what one of them wants: {body}"
        );
    }
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_is_limited_is_not_waited_for_and_the_sync_follows() {
    let world = TestEnv::start().await;
    let faults = world.vendors.faults(FakeService::GitHub);
    let reset = std::time::SystemTime::now() + std::time::Duration::from_secs(3600);
    faults.rate_limit_until(Some(reset));
    let told = refused(&world).await;
    assert!(told.contains("the sync is tried again by itself"), "{told}");
    // It waits like any other errand, and can be dropped like one.
    let owed = world.admin_get("/api/outbox").await;
    assert_eq!(owed["pending"][0]["name"], "sync workflows", "{owed}");
    let id = owed["pending"][0]["id"].as_str().unwrap();
    let path = format!("/api/outbox/{id}");
    let (status, told) = world.admin_request(Method::DELETE, &path, None).await;
    assert_eq!((status, told), (200, json!({"deleted": true})));
    faults.clear();
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repository_on_a_cloud_gets_the_role_and_the_operators_image() {
    let cloud = json!({
        "teamKey": "ENG", "owner": "acme", "repo": "shop", "defaultBranch": "main",
        "provider": "cloud", "cloudRegion": "eu-west-1",
    });
    let world = TestEnv::with_options(TestEnvOptions {
        extra_flags: vec![(
            "--session-image",
            "registry.test/agents/runner:next".to_owned(),
        )],
        ..TestEnvOptions::default()
    })
    .await;
    world.admin_post("/api/mappings", cloud).await;
    sync(&world).await;
    let workflow = world.repo().read_file(BRANCH, IMPLEMENT).unwrap();
    for words in [
        "'registry.test/agents/runner:next'",
        "startsWith(inputs.runner_image, 'registry.test/agents/')",
        "role-to-assume: ${{ secrets.CLOUD_ROLE_ARN }}",
        "id-token: write",
    ] {
        assert!(workflow.contains(words), "{words} in {workflow}");
    }
    world.finish().await;
}
