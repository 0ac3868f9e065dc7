//! Tests of workflow runs and their logs.

use super::*;

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

/// The token of the owner's installation is used without asking for each repository.
#[tokio::test]
async fn a_dispatch_to_a_repository_without_the_app_says_so() {
    for status in [403, 404] {
        let server = TestServer::start(move |request, _| match request.path.as_str() {
            "/repos/o/left-out/installation" => StubReply::json(404, &json!({})),
            path if path.contains("/left-out/") => {
                StubReply::json(status, &json!({"message": "Not Found"}))
            }
            _ => installed(request, "2099-01-01T00:00:00Z", |_| {
                StubReply::json(200, &run_json(1, "x"))
            }),
        })
        .await;
        let github = with_app(&server);
        github.workflow_run(&repo(), 1).await.unwrap();
        let left_out = Repo::new("o", "left-out");
        let outcome = github
            .dispatch_workflow(&left_out, "a.yml", "main", &RunInputs::new())
            .await;
        assert_eq!(
            outcome.unwrap_err().to_string(),
            "the App is not installed on o/left-out. Install the App on the repository, or correct the repository of \
             the project, then try again"
        );
    }
}

#[tokio::test]
async fn a_dispatch_to_a_transferred_repository_uses_the_installation_of_its_owner() {
    let server = TestServer::start(|request, _| {
        installed(request, "2099-01-01T00:00:00Z", |request| {
            let is_of_moved = request.header("authorization") == Some("Bearer ghs_2");
            match request.path.ends_with("/dispatches") {
                true if is_of_moved => StubReply::Response(204, vec![], String::new()),
                true => StubReply::json(404, &json!({"message": "Not Found"})),
                false => StubReply::json(200, &run_json(1, "x")),
            }
        })
    })
    .await;
    let github = with_app(&server);
    github.workflow_run(&repo(), 1).await.unwrap();
    let moved = Repo::new("o", "moved");
    for _ in 0..2 {
        let outcome = github
            .dispatch_workflow(&moved, "a.yml", "main", &RunInputs::new())
            .await;
        assert_eq!(outcome, Ok(None));
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

/// A server may have several names. One that is not ours must not get our credentials.
#[tokio::test]
async fn follows_a_page_link_at_the_configured_address() {
    let server = TestServer::start(|_, number| {
        let page = StubReply::json(200, &json!([]));
        match number {
            0 => page.header("link", "<http://alias.example/x?page=2>; rel=\"next\""),
            _ => page,
        }
    })
    .await;
    let pulls = with_token(&server).pulls_of_branch(&repo(), "x").await;
    assert_eq!(pulls, Ok(vec![]));
    assert_eq!(server.requests()[1].path, "/x?page=2");
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
