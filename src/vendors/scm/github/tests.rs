//! Tests of the GitHub client against a stub server.

use std::time::Duration;

use super::*;
use crate::http::test_client;
use domain::run_config::RunInputs;
use domain::time::Timestamp;
use serde_json::{Value, json};
use test_support::{RecordedRequest, StubReply, TestServer};

fn repo() -> Repo {
    Repo::new("o", "r")
}

fn with_token(server: &TestServer) -> GitHub {
    let token = Secret::new("plain-token");
    GitHub::new(
        test_client("github"),
        &server.url,
        ScmCredentials::Token(token),
    )
}

fn with_app(server: &TestServer) -> GitHub {
    let key = AppKey::from_pem(&test_support::app_key()).unwrap();
    let id = "42".to_owned();
    GitHub::new(
        test_client("github"),
        &server.url,
        ScmCredentials::App { id, key },
    )
}

fn run_json(id: u64, title: &str) -> Value {
    json!({
        "id": id, "display_title": title, "status": "in_progress", "conclusion": null,
        "html_url": format!("https://h/runs/{id}"), "created_at": "2026-11-21T01:00:00Z",
        "updated_at": "2026-11-21T01:00:05Z", "head_branch": "main",
    })
}

fn pull_json(number: u64, state: &str, merged: Option<&str>) -> Value {
    json!({
        "number": number, "html_url": format!("https://h/pull/{number}"), "draft": false,
        "title": "t", "body": null, "node_id": "PR_1", "state": state, "merged_at": merged,
        "merge_commit_sha": "abc", "head": {"ref": "feature/x", "sha": "h"},
        "base": {"ref": "main", "sha": "b"},
    })
}

/// Responds to the requests of the App's authentication and passes all others to `respond`.
fn installed(
    request: &RecordedRequest,
    expires: &str,
    respond: impl FnOnce(&RecordedRequest) -> StubReply,
) -> StubReply {
    match request.path.as_str() {
        "/repos/o/r/installation" => StubReply::json(200, &json!({"id": 7})),
        "/app/installations/7/access_tokens" => {
            StubReply::json(201, &json!({"token": "ghs_1_a.b-c", "expires_at": expires}))
        }
        _ => respond(request),
    }
}

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
async fn returns_the_run_of_a_dispatch_or_a_remedy() {
    let inputs = RunInputs::from([("dispatch_id".to_owned(), "01J".to_owned())]);
    let rows = [
        (
            StubReply::json(
                200,
                &json!({"workflow_run_id": 9, "run_url": "u", "html_url": "h"}),
            ),
            Ok(Some(9)),
        ),
        (StubReply::Response(204, vec![], String::new()), Ok(None)),
        (
            StubReply::json(
                422,
                &json!({"message": "Unexpected inputs provided: [\"x\"]"}),
            ),
            Err((422, "Unexpected inputs", "Sync the workflows")),
        ),
        (
            StubReply::json(404, &json!({"message": "Not Found"})),
            Err((404, "no workflow agent-implement.yml", "Sync the workflows")),
        ),
        (
            StubReply::json(422, &json!({"message": "No ref found for: main"})),
            Err((422, "no branch main", "default branch")),
        ),
    ];
    for (reply, expected) in rows {
        let reply = std::sync::Mutex::new(Some(reply));
        let server = TestServer::start(move |_, _| reply.lock().unwrap().take().unwrap()).await;
        let github = with_token(&server);
        let outcome = github
            .dispatch_workflow(&repo(), "agent-implement.yml", "main", &inputs)
            .await;
        match (outcome, expected) {
            (Ok(run), Ok(id)) => assert_eq!(run.map(|run| run.id), id),
            (Err(error), Err((status, message_part, remedy_part))) => {
                assert_eq!(error.status(), Some(status));
                let DispatchError::Refused {
                    message, remedy, ..
                } = error
                else {
                    panic!("{error:?}")
                };
                assert!(message.contains(message_part), "{message}");
                assert!(remedy.contains(remedy_part), "{remedy}");
            }
            (outcome, expected) => panic!("{outcome:?} instead of {expected:?}"),
        }
        let request = &server.requests()[0];
        assert_eq!(
            request.path,
            "/repos/o/r/actions/workflows/agent-implement.yml/dispatches"
        );
        assert_eq!(
            request.json(),
            json!({"ref": "main", "inputs": {"dispatch_id": "01J"}, "return_run_details": true})
        );
    }
}

#[tokio::test]
async fn retries_a_dispatch_without_unknown_fields_on_an_older_host() {
    let server = TestServer::start(|_, before| match before {
        0 => StubReply::json(
            400,
            &json!({"message": "Invalid request: return_run_details"}),
        ),
        _ => StubReply::Response(204, vec![], String::new()),
    })
    .await;
    let outcome = with_token(&server)
        .dispatch_workflow(&repo(), "a.yml", "main", &RunInputs::new())
        .await;
    assert_eq!(outcome, Ok(None));
    assert_eq!(
        server.requests()[1].json(),
        json!({"ref": "main", "inputs": {}})
    );
}

#[tokio::test]
async fn does_not_repeat_an_ambiguous_dispatch() {
    let server = TestServer::start(|_, _| StubReply::json(502, &json!({}))).await;
    let outcome = with_token(&server)
        .dispatch_workflow(&repo(), "a.yml", "main", &RunInputs::new())
        .await;
    assert!(matches!(outcome, Err(DispatchError::Vendor(error)) if error.is_ambiguous()));
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn lists_all_pages_of_runs_with_conditional_requests() {
    let server = TestServer::start(|request, _| {
        let second = request.path.contains("page=2");
        if request.header("if-none-match").is_some() {
            return StubReply::Response(304, vec![], String::new());
        }
        let page =
            json!({"total_count": 2, "workflow_runs": [run_json(if second { 2 } else { 1 }, "t")]});
        let reply =
            StubReply::json(200, &page).header("etag", if second { "\"b\"" } else { "\"a\"" });
        let host = request.header("host").unwrap();
        if second {
            reply
        } else {
            reply.header(
                "link",
                format!("<http://{host}/repos/o/r/actions/runs?page=2>; rel=\"next\""),
            )
        }
    })
    .await;
    let github = with_token(&server);
    let since = Timestamp::parse("2026-11-21T01:02:30Z").unwrap();
    for _ in 0..2 {
        let runs = github.workflow_runs_since(&repo(), since).await.unwrap();
        let ids: Vec<u64> = runs.iter().map(|run| run.id).collect();
        assert_eq!(ids, [1, 2]);
        assert_eq!(runs[0].name, "t");
    }
    let requests = server.requests();
    assert_eq!(
        requests[0].path,
        "/repos/o/r/actions/runs?event=workflow_dispatch&per_page=100&created=%3E%3D2026-11-21T01%3A00%3A00Z"
    );
    assert_eq!(requests[2].header("if-none-match"), Some("\"a\""));
}

#[tokio::test]
async fn does_not_follow_a_page_link_to_another_host() {
    let server = TestServer::start(|_, _| {
        StubReply::json(200, &json!([])).header("link", "<http://evil.example/x>; rel=\"next\"")
    })
    .await;
    let pulls = with_token(&server).pulls_of_branch(&repo(), "x").await;
    assert_eq!(pulls, Ok(vec![]));
}

#[tokio::test]
async fn treats_an_ended_run_as_cancelled() {
    let server =
        TestServer::start(|_, _| StubReply::json(409, &json!({"message": "finished"}))).await;
    assert_eq!(
        with_token(&server).cancel_workflow_run(&repo(), 5).await,
        Ok(())
    );
}

#[tokio::test]
async fn returns_the_redacted_log_tail_of_a_failed_job() {
    let server = TestServer::start(|request, _| match request.path.as_str() {
        "/repos/o/r/actions/jobs/3/logs" => {
            StubReply::json(302, &json!({})).header("location", "/signed?x=1")
        }
        "/signed?x=1" => StubReply::Response(
            200,
            vec![],
            "2026-11-21T01:00:00.1Z one\n2026-11-21T01:00:00.2Z key ghs_0123456789abcdefghijkl\n".into(),
        ),
        _ => StubReply::json(
            200,
            &json!({"total_count": 2, "jobs": [
                {"id": 2, "name": "ok", "status": "completed", "conclusion": "success", "steps": []},
                {"id": 3, "name": "run", "status": "completed", "conclusion": "failure", "steps": [
                    {"name": "Setup", "conclusion": "success"}, {"name": "Push", "conclusion": "failure"}]},
            ]}),
        ),
    })
    .await;
    let excerpt = with_token(&server)
        .log_excerpt(&repo(), 1, Duration::ZERO)
        .await
        .unwrap();
    let expected = "run failed in step Push\n\none\nkey [redacted]".to_owned();
    assert_eq!(excerpt, WorkflowRunLog::Excerpt(expected));
    let signed = server
        .requests()
        .into_iter()
        .find(|request| request.path == "/signed?x=1");
    assert_eq!(signed.unwrap().header("authorization"), None);
}

#[tokio::test]
async fn returns_the_open_pull_request_if_a_branch_has_one_already() {
    let server = TestServer::start(|request, _| match request.method.as_str() {
        "POST" => StubReply::json(
            422,
            &json!({"message": "Validation Failed", "errors": [{"message": "A pull request already exists for o:feature/x."}]}),
        ),
        _ => StubReply::json(200, &json!([pull_json(3, "open", None), pull_json(4, "open", None)])),
    })
    .await;
    let new = NewPullRequest {
        title: "t".into(),
        body: "b".into(),
        head: "feature/x".into(),
        base: "main".into(),
        draft: true,
    };
    let pull = with_token(&server)
        .create_pull(&repo(), &new)
        .await
        .unwrap();
    assert_eq!((pull.number, pull.state), (4, PullRequestState::Open));
    assert_eq!(pull.merge_sha, None);
    assert!(server.requests()[1].path.contains("head=o%3Afeature%2Fx"));
}

#[tokio::test]
async fn distinguishes_merged_from_closed_pull_requests() {
    let server = TestServer::start(|_, _| {
        let merged = pull_json(2, "closed", Some("2026-11-21T01:00:00Z"));
        StubReply::json(200, &json!([pull_json(1, "closed", None), merged]))
    })
    .await;
    let github = with_token(&server);
    let pulls = github.pulls_of_branch(&repo(), "feature/x").await.unwrap();
    let states: Vec<_> = pulls.iter().map(|pull| pull.state).collect();
    assert_eq!(states, [PullRequestState::Merged, PullRequestState::Closed]);
    assert_eq!(pulls[0].merge_sha.as_deref(), Some("abc"));
}

#[tokio::test]
async fn waits_for_a_log_that_is_not_written_yet() {
    let server = TestServer::start(|request, _| match request.path.as_str() {
        "/repos/o/r/actions/jobs/3/logs" => StubReply::json(404, &json!({"message": "BlobNotFound"})),
        _ => StubReply::json(
            200,
            &json!({"total_count": 1, "jobs": [
                {"id": 3, "name": "run", "status": "completed", "conclusion": "failure", "steps": []},
            ]}),
        ),
    })
    .await;
    let github = with_token(&server);
    let early = github.log_excerpt(&repo(), 1, Duration::ZERO).await;
    assert_eq!(early, Ok(WorkflowRunLog::NotReady));
    let late = github
        .log_excerpt(&repo(), 1, Duration::from_secs(30))
        .await;
    let WorkflowRunLog::Excerpt(excerpt) = late.unwrap() else {
        panic!("expected an excerpt");
    };
    assert!(
        excerpt.starts_with("run failed (") && excerpt.contains("BlobNotFound"),
        "{excerpt}"
    );
}

#[tokio::test]
async fn maps_graphql_errors_to_http_statuses() {
    for (error, status) in [
        (
            json!({"message": "Something went wrong while executing your query."}),
            502,
        ),
        (json!({"type": "SERVICE_UNAVAILABLE", "message": "x"}), 502),
        (
            json!({"type": "INTERNAL", "message": "x", "extensions": null}),
            502,
        ),
        (
            json!({"message": "x", "extensions": {"code": "undefinedField"}}),
            422,
        ),
        (json!({"type": "UNPROCESSABLE", "message": "x"}), 422),
        (json!({"type": "NOT_FOUND", "message": "x"}), 404),
        (json!({"type": "FORBIDDEN", "message": "x"}), 403),
    ] {
        let body = json!({"data": null, "errors": [error]});
        let server = TestServer::start(move |_, _| StubReply::json(200, &body)).await;
        let result = with_token(&server).set_draft(&repo(), "PR_1").await;
        assert_eq!(result.unwrap_err().status(), Some(status), "{error}");
    }
}

#[tokio::test]
async fn setting_a_flag_twice_succeeds() {
    let server = TestServer::start(|request, _| {
        if request.body.contains("mutation") {
            let error = json!({"type": "UNPROCESSABLE", "message": "already a draft"});
            StubReply::json(200, &json!({"data": null, "errors": [error]}))
        } else {
            StubReply::json(200, &json!({"data": {"node": {"isDraft": true}}}))
        }
    })
    .await;
    let github = with_token(&server);
    assert_eq!(github.set_draft(&repo(), "PR_1").await, Ok(()));
    let error = github.set_ready(&repo(), "PR_1").await.unwrap_err();
    assert!(error.is_permanent(), "{error}");
    assert_eq!(server.requests()[0].path, "/graphql");
}

#[tokio::test]
async fn ignores_a_persons_comment_with_the_marker() {
    let server = TestServer::start(|request, _| {
        installed(request, "2099-01-01T00:00:00Z", |request| {
            let comment = |id: u64, kind: &str, body: &str| {
                json!({"id": id, "body": body, "html_url": "u", "user": {"login": "x", "type": kind}})
            };
            match request.method.as_str() {
                "GET" => StubReply::json(
                    200,
                    &json!([comment(1, "User", "<!-- m --> fake"), comment(2, "Bot", "<!-- m --> old")]),
                ),
                _ => StubReply::json(200, &comment(2, "Bot", "<!-- m --> new")),
            }
        })
    })
    .await;
    let github = with_app(&server);
    let comment = github
        .upsert_comment(&repo(), 5, "<!-- m -->", "<!-- m --> new")
        .await
        .unwrap();
    assert_eq!(comment.id, 2);
    let requests = server.requests();
    let last = requests.last().unwrap();
    assert_eq!(
        (last.method.as_str(), last.path.as_str()),
        ("PATCH", "/repos/o/r/issues/comments/2")
    );
    let before = requests.len();
    github
        .upsert_comment(&repo(), 5, "<!-- m -->", "<!-- m --> old")
        .await
        .unwrap();
    assert_eq!(server.requests().len(), before + 1, "nothing to write");
}

#[tokio::test]
async fn writes_files_in_one_commit() {
    let server =
        TestServer::start(
            |request, _| match (request.method.as_str(), request.path.as_str()) {
                ("GET", "/repos/o/r/git/commits/base") => StubReply::json(
                    200,
                    &json!({"sha": "base", "message": "m", "tree": {"sha": "tree"}}),
                ),
                ("GET", "/repos/o/r/git/ref/heads/a/b") => StubReply::json(404, &json!({})),
                ("GET", "/repos/o/r/contents/x/y.yml?ref=main") => StubReply::json(
                    200,
                    &json!({"type": "file", "encoding": "base64", "content": "aGVs\nbG8=\n"}),
                ),
                ("GET", "/repos/o/r/contents/dir?ref=main") => {
                    StubReply::json(200, &json!([{"name": "y"}]))
                }
                ("GET", _) => StubReply::json(404, &json!({})),
                (_, "/repos/o/r/git/trees") => StubReply::json(201, &json!({"sha": "tree2"})),
                (_, "/repos/o/r/git/commits") => StubReply::json(201, &json!({"sha": "commit2"})),
                _ => StubReply::json(201, &json!({"ref": "r", "object": {"sha": "commit2"}})),
            },
        )
        .await;
    let github = with_token(&server);
    let file = RepoFile {
        path: "x/y.yml".into(),
        text: "hello".into(),
    };
    assert_eq!(
        github.file(&repo(), "x/y.yml", "main").await,
        Ok(Some(file.clone()))
    );
    assert_eq!(github.file(&repo(), "dir", "main").await, Ok(None));
    assert_eq!(github.file(&repo(), "none", "main").await, Ok(None));
    let written = TreeFile {
        path: file.path,
        content: TreeContent::Text(file.text),
    };
    let kept = TreeFile {
        path: "x/z".into(),
        content: TreeContent::Blob("blob".into()),
    };
    let new = NewCommit {
        parent: "base",
        message: "Add files",
        files: &[written, kept],
    };
    let conflicting = github.commit_files(&repo(), "a/b", Some("old"), &new).await;
    assert_eq!(conflicting, Ok(None), "the branch has another head");
    let sha = github.commit_files(&repo(), "a/b", None, &new).await;
    assert_eq!(sha, Ok(Some("commit2".to_owned())));
    let requests = server.requests();
    let moved = requests
        .iter()
        .filter(|request| request.path.starts_with("/repos/o/r/git/refs"));
    let moved: Vec<_> = moved.map(|request| request.json()).collect();
    assert_eq!(moved, [json!({"ref": "refs/heads/a/b", "sha": "commit2"})]);
    let tree = requests
        .iter()
        .find(|request| request.path == "/repos/o/r/git/trees")
        .unwrap();
    assert_eq!(
        tree.json(),
        json!({"base_tree": "tree", "tree": [
            {"path": "x/y.yml", "mode": "100644", "type": "blob", "content": "hello"},
            {"path": "x/z", "mode": "100644", "type": "blob", "sha": "blob"},
        ]})
    );
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

#[tokio::test]
async fn returns_the_account_name_and_the_default_branch() {
    let server = TestServer::start(|request, _| {
        installed(request, "2099-01-01T00:00:00Z", |request| {
            match request.path.as_str() {
                "/user" => StubReply::json(200, &json!({"login": "robin"})),
                "/app" => StubReply::json(200, &json!({"slug": "agent", "installations_count": 2})),
                _ => StubReply::json(200, &json!({"default_branch": "trunk"})),
            }
        })
    })
    .await;
    assert_eq!(with_token(&server).probe().await.unwrap(), "user robin");
    assert_eq!(
        with_app(&server).probe().await.unwrap(),
        "App agent, 2 installations"
    );
    let branch = with_app(&server).default_branch(&repo()).await;
    assert_eq!(branch.as_deref(), Ok("trunk"));
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
