//! Tests of authentication and permissions.

use super::*;
use crate::http::now_millis;

#[tokio::test]
async fn caches_an_installation_token_until_shortly_before_its_expiry_or_a_401() {
    let server = TestServer::start(|request, before| {
        installed(request, "2099-01-01T00:00:00Z", |_| match before {
            2 | 3 => StubReply::json(200, &run_json(1, "x")),
            4 => StubReply::json(401, &json!({"message": "Bad credentials"})),
            _ => StubReply::json(200, &run_json(1, "x")),
        })
    })
    .await;
    let github = with_app(&server);
    for _ in 0..3 {
        github.workflow_run(&repo(), 1).await.unwrap();
    }
    let paths: Vec<String> = server
        .requests()
        .into_iter()
        .map(|request| request.path)
        .collect();
    let run = "/repos/o/r/actions/runs/1";
    let mint = "/app/installations/7/access_tokens";
    assert_eq!(
        paths,
        ["/repos/o/r/installation", mint, run, run, run, mint, run]
    );
    let requests = server.requests();
    assert_eq!(
        requests[2].header("authorization"),
        Some("Bearer ghs_1_a.b-c")
    );
    assert_eq!(
        requests[2].header("x-github-api-version"),
        Some("2022-11-28")
    );
    let proof = requests[0].header("authorization").unwrap();
    assert_eq!(proof.split('.').count(), 3);
    assert!(
        requests[0]
            .header("user-agent")
            .unwrap()
            .starts_with("agent-implement/")
    );

    let stale = TestServer::start(|request, _| {
        installed(request, "2020-01-01T00:00:00Z", |_| {
            StubReply::json(200, &run_json(1, "x"))
        })
    })
    .await;
    let github = with_app(&stale);
    for _ in 0..2 {
        github.workflow_run(&repo(), 1).await.unwrap();
    }
    let mints = stale
        .requests()
        .iter()
        .filter(|request| request.path == mint)
        .count();
    assert_eq!(mints, 2);
}

#[tokio::test]
async fn limits_the_token_of_a_run_to_its_repository_without_workflow_permission() {
    let server = TestServer::start(|request, _| {
        installed(request, "2026-11-21T02:00:00Z", |_| {
            StubReply::json(404, &json!({}))
        })
    })
    .await;
    let token = with_app(&server)
        .repo_token(&repo(), RepoTokenAccess::Write)
        .await
        .unwrap();
    assert_eq!(
        token.expires_at,
        Timestamp::parse("2026-11-21T02:00:00Z").unwrap()
    );
    let body = server.requests()[1].json();
    assert_eq!(body["repositories"], json!(["r"]));
    assert_eq!(body["permissions"]["contents"], "write");
    assert_eq!(body["permissions"]["workflows"], Value::Null);
    with_app(&server)
        .repo_token(&repo(), RepoTokenAccess::Read)
        .await
        .unwrap();
    let requests = server.requests();
    assert_eq!(
        requests[requests.len() - 1].json()["permissions"],
        json!({"contents": "read", "metadata": "read"})
    );

    let not_installed =
        TestServer::start(|_, _| StubReply::json(404, &json!({"message": "Not Found"}))).await;
    let error = with_app(&not_installed)
        .repo_token(&repo(), RepoTokenAccess::Write)
        .await
        .unwrap_err();
    assert!(error.is_not_found());
    assert!(
        error
            .to_string()
            .contains("the App is not installed on o/r"),
        "{error}"
    );
}

#[tokio::test]
async fn finds_the_installation_of_an_owner_once() {
    let server = TestServer::start(|request, before| match request.path.as_str() {
        "/repos/o/left-out/installation" => StubReply::json(404, &json!({"message": "Not Found"})),
        path if path.ends_with("/access_tokens") && before == 4 => {
            let message = "There is at least one repository that does not exist or is not accessible to \
                the parent installation.";
            StubReply::json(422, &json!({ "message": message }))
        }
        _ => installed(request, "2099-01-01T00:00:00Z", |_| {
            StubReply::json(200, &run_json(1, "x"))
        }),
    })
    .await;
    let github = with_app(&server);
    github.workflow_run(&repo(), 1).await.unwrap();
    github.workflow_run(&Repo::new("O", "s"), 1).await.unwrap();
    let left_out = Repo::new("o", "left-out");
    let refused = github.repo_token(&left_out, RepoTokenAccess::Write).await;
    let error = refused.unwrap_err();
    assert!(error.is_not_found(), "{error}");
    assert!(
        error.to_string().contains("not installed on o/left-out"),
        "{error}"
    );
    github.workflow_run(&repo(), 1).await.unwrap();
    let paths = server.requests().into_iter().map(|request| request.path);
    let lookups = paths.filter(|path| path.ends_with("/installation"));
    let expected = ["/repos/o/r/installation", "/repos/o/left-out/installation"];
    assert_eq!(lookups.collect::<Vec<_>>(), expected);
}

#[tokio::test]
async fn a_transferred_repository_does_not_stand_for_its_former_owner() {
    let server = TestServer::start(|request, _| {
        installed(request, "2099-01-01T00:00:00Z", |_| {
            StubReply::json(200, &run_json(1, "x"))
        })
    })
    .await;
    let github = with_app(&server);
    let moved = Repo::new("o", "moved");
    for repo in [&moved, &repo(), &moved, &repo()] {
        github.workflow_run(repo, 1).await.unwrap();
    }
    let requests = server.requests();
    let reads = requests.iter().filter(|one| one.path.ends_with("/runs/1"));
    let tokens: Vec<_> = reads.map(|one| one.header("authorization")).collect();
    let (new, former) = (Some("Bearer ghs_2"), Some("Bearer ghs_1_a.b-c"));
    assert_eq!(tokens, [new, former, new, former]);
    assert_eq!(requests.len(), 8);
}

/// A token keeps the permissions of its creation, so one that was created before a permission was accepted is replaced.
#[tokio::test]
async fn requests_a_new_token_for_a_permission_that_an_old_one_lacks() {
    const REFUSAL: &str = "Resource not accessible by integration";
    for (age_minutes, accepts_status, mints) in [(30, false, 2), (30, true, 2), (0, false, 1)] {
        let expires = now_millis() + 60_000 * (60 - age_minutes) + 5_000;
        let expires = Timestamp::from_millis(expires).to_string();
        let server = TestServer::start(move |request, before| {
            installed(request, &expires, |request| match before {
                2 => StubReply::json(403, &json!({"message": REFUSAL})),
                _ if request.path.ends_with("/dispatches") => {
                    StubReply::Response(204, vec![], String::new())
                }
                _ => StubReply::json(200, &run_json(1, "x")),
            })
        })
        .await;
        let github = with_app(&server);
        let is_ok = match accepts_status {
            true => github
                .dispatch_workflow(&repo(), "a.yml", "main", &RunInputs::new())
                .await
                .is_ok(),
            false => github.workflow_run(&repo(), 1).await.is_ok(),
        };
        assert_eq!(is_ok, mints == 2);
        let requests = server.requests().into_iter();
        let minted = requests.filter(|one| one.path.ends_with("/access_tokens"));
        assert_eq!(minted.count(), mints);
    }
}

#[tokio::test]
async fn returns_the_account_name_and_facts_of_the_repository() {
    let server = TestServer::start(|request, _| {
        installed(request, "2099-01-01T00:00:00Z", |request| {
            match request.path.as_str() {
                "/user" => StubReply::json(200, &json!({"login": "robin"})),
                "/app" => StubReply::json(200, &json!({"slug": "agent", "installations_count": 2})),
                _ => StubReply::json(200, &json!({"default_branch": "trunk", "full_name": "O/r"})),
            }
        })
    })
    .await;
    assert_eq!(with_token(&server).probe().await.unwrap(), "user robin");
    assert_eq!(
        with_app(&server).probe().await.unwrap(),
        "App agent, 2 installations"
    );
    let github = with_app(&server);
    let branch = github.default_branch(&repo()).await;
    assert_eq!(branch.as_deref(), Ok("trunk"));
    assert_eq!(github.present_name(&repo()).await, Ok(None));
    let former = Repo::new("o", "former");
    let present = github.present_name(&former).await;
    assert_eq!(present, Ok(Some(Repo::new("O", "r"))));
}

#[tokio::test]
async fn a_private_repository_of_a_free_plan_has_no_rules() {
    const UPGRADE: &str =
        "Upgrade to GitHub Pro or make this repository public to enable this feature.";
    for (message, is_refused) in [(UPGRADE, false), ("Resource not accessible", true)] {
        let server =
            TestServer::start(
                move |request, _| match request.path.contains("/rules/branches/") {
                    true => StubReply::json(403, &json!({"message": message})),
                    false => StubReply::json(200, &json!({"name": "main", "protected": false})),
                },
            )
            .await;
        let rules = with_token(&server).branch_rules(&repo(), "main").await;
        assert_eq!(rules.is_err(), is_refused, "{rules:?}");
    }
}

#[tokio::test]
async fn returns_secret_names_only_if_permitted() {
    let server_with_status = |status: u16| {
        TestServer::start(move |request, _| {
            installed(request, "2099-01-01T00:00:00Z", |request| {
                let named = |name: &str| json!({"total_count": 1, "secrets": [{"name": name}]});
                match request.path.as_str() {
                    "/repos/o/r/actions/secrets?per_page=100" => {
                        StubReply::json(status, &named("OURS"))
                    }
                    other => panic!("{other}"),
                }
            })
        })
    };
    let open = server_with_status(200).await;
    let names = with_app(&open).secret_names(&repo()).await.unwrap();
    assert_eq!(names, Some(vec!["OURS".to_owned()]));
    let closed = server_with_status(403).await;
    assert_eq!(with_app(&closed).secret_names(&repo()).await.unwrap(), None);
}

#[tokio::test]
async fn prefers_the_role_name_to_the_permission() {
    let server = TestServer::start(|request, _| match request.path.rsplit('/').nth(1) {
        Some("maintainer") => StubReply::json(
            200,
            &json!({"permission": "write", "role_name": "maintain"}),
        ),
        Some("custom") => StubReply::json(200, &json!({"permission": "write", "role_name": "qa"})),
        _ => StubReply::json(404, &json!({})),
    })
    .await;
    let github = with_token(&server);
    for (login, permission) in [
        ("maintainer", RepoPermission::Maintain),
        ("custom", RepoPermission::Write),
        ("unknown", RepoPermission::None),
    ] {
        assert_eq!(github.permission(&repo(), login).await, Ok(permission));
    }
}
