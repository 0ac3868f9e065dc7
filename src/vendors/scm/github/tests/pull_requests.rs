//! Tests of pull requests, their comments, and commits.

use super::*;

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
async fn a_rate_limit_of_graphql_is_transient() {
    for error in [
        json!({"type": "RATE_LIMITED", "message": "x"}),
        json!({"type": "RATE_LIMIT", "code": "graphql_rate_limit", "message": "API rate limit already exceeded for user ID 1."}),
        json!({"message": "You have exceeded a secondary rate limit. Please wait a few minutes."}),
    ] {
        let body = json!({"errors": [error]});
        let server = TestServer::start(move |_, _| StubReply::json(200, &body)).await;
        let failed = with_token(&server).set_draft(&repo(), "PR_1").await;
        let failed = failed.unwrap_err();
        let is_limit = matches!(
            failed.kind,
            crate::http::VendorErrorKind::RateLimited { .. }
        );
        assert!(is_limit && !failed.is_permanent(), "{error}: {failed:?}");
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
