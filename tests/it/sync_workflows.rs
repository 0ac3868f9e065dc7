//! Workflow sync: one pull request per repository, and changes of the team are kept.

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

async fn sync(env: &TestEnv) -> Value {
    let (status, answer) = env.admin_request(Method::POST, PATH, None).await;
    assert_eq!(status, 200, "{answer}");
    answer
}

async fn sync_error(env: &TestEnv) -> String {
    let (status, answer) = env.admin_request(Method::POST, PATH, None).await;
    assert_eq!(status, 500, "{answer}");
    answer["error"].as_str().unwrap().to_owned()
}

async fn put(env: &TestEnv, mapping: Mapping) {
    let put = env.store.write(move |tx| mappings::put(tx, &mapping));
    put.await.unwrap();
}

/// Changing requests to GitHub, without token requests.
fn changing_requests(env: &TestEnv) -> Vec<String> {
    let requests = env
        .vendors
        .requests()
        .for_service(FakeService::GitHub)
        .into_iter();
    let changing = requests.filter(|one| one.method != "GET" && !one.url.contains("access_tokens"));
    changing
        .map(|one| format!("{} {}", one.method, one.url))
        .collect()
}

fn head(repo: &FakeRepo, branch: &str) -> String {
    repo.branch_head(branch).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repository_gets_one_pull_request_that_grows_until_it_is_merged() {
    let env = TestEnv::start().await;
    let repo = env.repo();
    let opened = sync(&env).await;
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
        workflow.contains("|| 'docker.io/library/node:22-bookworm@sha256:"),
        "{workflow}"
    );
    assert_eq!(repo.commits(BRANCH).len(), repo.commits("main").len() + 1);
    assert_eq!(
        repo.read_file(BRANCH, "README.md"),
        repo.read_file("main", "README.md")
    );

    // A repeated sync returns the same pull request and writes nothing.
    env.vendors.requests().clear();
    let again = sync(&env).await;
    assert_eq!(again["status"], "pr-existing");
    assert_eq!(again["prNumber"], opened["prNumber"]);
    assert_eq!(again["changedFiles"], opened["changedFiles"]);
    assert_eq!(changing_requests(&env), [""; 0]);

    // The team commits to the branch and its base; the mapping now needs planning.
    let team_guidance = "Build with make.\n";
    repo.commit(BRANCH, &[("WORKFLOW.md", team_guidance)], "How we build")
        .unwrap();
    repo.remove_files(BRANCH, &[CONFIG], "No settings of our own")
        .unwrap();
    repo.commit("main", &[("README.md", "# The shop\n")], "Rename")
        .unwrap();
    put(&env, planning_mapping()).await;
    let grown = sync(&env).await;
    assert_eq!(grown["status"], "pr-updated");
    assert_eq!(grown["prNumber"], opened["prNumber"]);
    assert_eq!(
        grown["changedFiles"],
        json!([IMPLEMENT, PLAN, TRIGGER, "WORKFLOW.md"]),
        "no starter file is added to a branch with commits of the team"
    );
    assert_eq!(
        repo.read_file(BRANCH, "WORKFLOW.md").as_deref(),
        Some(team_guidance)
    );
    assert_eq!(
        repo.read_file(BRANCH, "README.md").as_deref(),
        Some("# The shop\n")
    );
    assert_eq!(
        repo.commits(BRANCH)[1].sha,
        head(&repo, "main"),
        "the branch is rebased"
    );
    assert_eq!(repo.pulls().len(), 1);

    // After the merge, all files are up to date. Removed starter files are not added again.
    repo.commit(
        BRANCH,
        &[(CONFIG, "{}\n"), ("PLANNING.md", "Plan.\n")],
        "After all",
    )
    .unwrap();
    repo.merge_pull(pull.number).unwrap();
    env.vendors.requests().clear();
    let done = sync(&env).await;
    assert_eq!(
        (&done["status"], &done["prNumber"]),
        (&json!("up-to-date"), &Value::Null)
    );
    assert_eq!(done["changedFiles"], json!([]));
    assert_eq!(changing_requests(&env), [""; 0]);

    // A workflow changed on the base branch is offered with its template content.
    repo.commit(
        "main",
        &[(IMPLEMENT, "on: push\n"), (CONFIG, "")],
        "Break it",
    )
    .unwrap();
    let restored = sync(&env).await;
    assert_eq!(
        (&restored["status"], &restored["changedFiles"]),
        (&json!("pr-opened"), &json!([IMPLEMENT]))
    );
    assert_ne!(restored["prNumber"], opened["prNumber"]);
    assert_eq!(repo.read_file(BRANCH, IMPLEMENT), Some(workflow));
    assert_eq!(
        repo.read_file(BRANCH, CONFIG).as_deref(),
        Some(""),
        "a starter file belongs to the team"
    );

    let (status, answer) = env
        .admin_request(Method::POST, "/api/mappings/OPS/sync-workflows", None)
        .await;
    assert_eq!(
        (status, &answer),
        (404, &json!({"error": "Team not found"}))
    );
    assert_eq!(env.admin_request(Method::GET, PATH, None).await.0, 405);
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sync_returns_the_missing_permission_or_branch() {
    let env = TestEnv::start().await;
    let github = env.vendors.github();
    for permission in ["workflows", "pull_requests"] {
        github.deny_permission(permission);
        let error = sync_error(&env).await;
        assert!(
            error.contains(&format!(
                "The App lacks the permission {permission}: write on acme/shop"
            )),
            "{error}"
        );
        github.grant_permission(permission);
    }
    assert_eq!(sync(&env).await["status"], "pr-opened");
    put(
        &env,
        Mapping {
            default_branch: "trunk".into(),
            ..mapping()
        },
    )
    .await;
    let error = sync_error(&env).await;
    assert!(
        error.starts_with("acme/shop has no branch trunk, or the App may not read it"),
        "{error}"
    );
    env.repo().commit("trunk", &[("a", "a")], "Grow").unwrap();
    let error = sync_error(&env).await;
    assert!(
        error.contains("has the open pull request") && error.contains(" to main;"),
        "{error}"
    );
    put(
        &env,
        Mapping {
            repo: "none".into(),
            ..mapping()
        },
    )
    .await;
    let error = sync_error(&env).await;
    assert!(
        error.starts_with("acme/none has no branch main, or the App may not read it"),
        "{error}"
    );
    put(
        &env,
        Mapping {
            workflow_file: "comment-trigger.yml".into(),
            ..mapping()
        },
    )
    .await;
    let error = sync_error(&env).await;
    assert!(
        error.contains("comment-trigger.yml is named for two different workflows"),
        "{error}"
    );
    env.finish().await;

    let env = TestEnv::with_options(TestEnvOptions {
        omitted_flags: &["--github-app-id", "--github-app-private-key"],
        ..TestEnvOptions::default()
    })
    .await;
    assert!(sync_error(&env).await.contains("set GITHUB_APP_ID"));
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_syncs_and_lost_responses_make_one_pull_request() {
    // Two teams share the repository; each sends two concurrent requests.
    let other = Mapping {
        team_key: "OPS".into(),
        ..planning_mapping()
    };
    let env = TestEnv::with_mappings([mapping(), other]).await;
    let faults = env.vendors.faults(FakeService::GitHub);
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
    let answers = futures_util::future::join_all([PATH, ops, PATH, ops].map(|path| {
        let env = &env;
        async move { env.admin_request(Method::POST, path, None).await }
    }))
    .await;
    assert_eq!(faults.pending(), 0);
    let pulls = env.repo().pulls();
    assert_eq!(pulls.len(), 1, "{pulls:#?}");
    for (status, body) in answers {
        assert_eq!(
            (status, &body["prNumber"]),
            (200, &json!(pulls[0].number)),
            "{body}"
        );
        let files = body["changedFiles"].as_array().unwrap();
        assert!(
            files.contains(&json!(PLAN)),
            "the pull request contains the files of both teams: {body}"
        );
    }
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rate_limited_sync_is_queued_for_retry() {
    let env = TestEnv::start().await;
    let faults = env.vendors.faults(FakeService::GitHub);
    let reset = std::time::SystemTime::now() + std::time::Duration::from_secs(3600);
    faults.rate_limit_until(Some(reset));
    let error = sync_error(&env).await;
    assert!(
        error.contains("the sync is retried automatically"),
        "{error}"
    );
    // The sync is an outbox entry and can be dropped.
    let outbox = env.admin_get("/api/outbox").await;
    assert_eq!(outbox["pending"][0]["name"], "sync workflows", "{outbox}");
    let id = outbox["pending"][0]["id"].as_str().unwrap();
    let path = format!("/api/outbox/{id}");
    let (status, answer) = env.admin_request(Method::DELETE, &path, None).await;
    assert_eq!((status, answer), (200, json!({"deleted": true})));
    faults.clear();
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cloud_project_gets_the_role_and_the_configured_image() {
    let cloud = json!({
        "teamKey": "ENG", "owner": "acme", "repo": "shop", "defaultBranch": "main",
        "provider": "cloud", "cloudRegion": "eu-west-1",
    });
    let env = TestEnv::with_options(TestEnvOptions {
        extra_flags: vec![(
            "--session-image",
            "registry.test/agents/runner:next".to_owned(),
        )],
        ..TestEnvOptions::default()
    })
    .await;
    env.admin_post("/api/mappings", cloud).await;
    sync(&env).await;
    let workflow = env.repo().read_file(BRANCH, IMPLEMENT).unwrap();
    for expected_text in [
        "'registry.test/agents/runner:next'",
        "startsWith(inputs.runner_image, 'registry.test/agents/')",
        "CLOUD_ROLE_ARN: ${{ secrets.CLOUD_ROLE_ARN }}",
        "id-token: write",
    ] {
        assert!(
            workflow.contains(expected_text),
            "{expected_text} in {workflow}"
        );
    }
    env.finish().await;
}
