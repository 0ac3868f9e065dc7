//! Tests of the Linear client against a stub server.

use super::*;
use crate::http::test_client;
use domain::ids::IssueId;
use domain::issue::System;
use domain::secret::Secret;
use domain::stage::Stage;
use domain::ticket_comment::CommentWatch;
use test_support::{RecordedRequest, StubReply, TestServer};

fn client(server: &TestServer) -> Linear {
    let key = LinearCredentials::ApiKey(Secret::new("lin_api_key"));
    Linear::new(test_client("Linear"), &server.url, key)
}

fn issue_ref() -> IssueRef {
    IssueRef {
        system: System::Linear,
        id: IssueId::from("uuid-7"),
        key: "ENG-7".into(),
        title: "t".into(),
        url: "u".into(),
        marker_field: None,
    }
}

fn data(data: Value) -> StubReply {
    StubReply::json(200, &json!({ "data": data }))
}

fn error(code: &str, message: &str) -> StubReply {
    let extensions = json!({"code": code, "userError": true});
    StubReply::json(
        200,
        &json!({"data": null, "errors": [{"message": message, "extensions": extensions}]}),
    )
}

fn query_contains(request: &RecordedRequest, word: &str) -> bool {
    request.json()["query"].as_str().unwrap().contains(word)
}

fn blocker(number: u64, kind: &str, state: &str) -> Value {
    json!({"type": kind, "issue": {
        "identifier": format!("ENG-{number}"), "title": format!("b{number}"),
        "state": {"name": "S", "type": state},
    }})
}

/// Issue with these labels of the service and one of people.
fn wire_issue(number: u64, labels: &[&str], blockers: Value, more: bool) -> Value {
    let ids: Vec<_> = labels.iter().chain(&["bug"]).collect();
    let labels: Vec<_> = labels.iter().map(|name| json!({ "name": name })).collect();
    json!({
        "id": format!("uuid-{number}"), "identifier": format!("ENG-{number}"), "title": "t",
        "url": "u", "description": null, "priority": 0, "createdAt": "2026-11-21T01:00:00.000Z",
        "team": {"key": "ENG"}, "state": {"name": "Todo"},
        "parent": {"identifier": "ENG-1", "title": "big", "state": {"name": "Doing"}},
        "labelIds": ids, "labels": {"nodes": labels},
        "relations": {"nodes": [{"type": "blocks", "relatedIssue": {
            "identifier": "OPS-2", "title": "next", "state": {"name": "Todo"}}}]},
        "inverseRelations": {"nodes": blockers, "pageInfo": {"hasNextPage": more, "endCursor": "c1"}},
    })
}

#[tokio::test]
async fn polls_with_one_request_per_page_and_reads_all_blockers() {
    let server = TestServer::start(|request, _| {
        let variables = &request.json()["variables"];
        if query_contains(request, "r0: issue") {
            assert_eq!(variables["c0"], "c1");
            return data(json!({"r0": {"inverseRelations": {
                "nodes": [blocker(99, "blocks", "started")],
                "pageInfo": {"hasNextPage": false, "endCursor": null},
            }}}));
        }
        let (nodes, next) = match variables["after"].as_str() {
            None => {
                let blockers_of_page = json!([
                    blocker(5, "blocks", "completed"),
                    blocker(6, "related", "started"),
                    blocker(8, "blocks", "backlog"),
                ]);
                (vec![wire_issue(7, &["Agent-Implement"], blockers_of_page, true)], true)
            }
            Some(_) => {
                let again = wire_issue(7, &["Agent-Implement"], json!([]), false);
                let working = ["Agent-Implement", "Agent-Working"];
                (vec![again, wire_issue(9, &working, json!([]), false)], false)
            }
        };
        data(json!({"issues": {"nodes": nodes, "pageInfo": {"hasNextPage": next, "endCursor": "p1"}}}))
    })
    .await;
    let snapshot = client(&server)
        .snapshot(&[], &CommentWatch::default())
        .await
        .unwrap();
    assert_eq!(server.requests().len(), 3);
    assert_eq!(
        server.requests()[0].header("authorization"),
        Some("lin_api_key")
    );
    assert_eq!(snapshot.issues.len(), 2);
    let first = &snapshot.issues[0];
    assert_eq!((first.stage, first.priority), (Stage::Triggered, 5));
    let blockers: Vec<&str> = first.open_blockers.iter().map(|b| b.key.as_str()).collect();
    assert_eq!(blockers, ["ENG-8", "ENG-99"]);
    assert_eq!(first.related.parent.as_deref(), Some("ENG-1: big (Doing)"));
    let dependencies = &first.related.dependencies;
    assert_eq!(dependencies[1], "related to ENG-6: b6 (S)");
    assert_eq!(dependencies.last().unwrap(), "blocks OPS-2: next (Todo)");
    assert_eq!(snapshot.issues[1].stage, Stage::Implementing);
}

/// Linear counts the issues that a page has room for.
#[tokio::test]
async fn a_poll_asks_for_little_more_than_the_one_before_has_found() {
    let server = TestServer::start(|request, before| {
        let first_number = request.json()["variables"]["after"]
            .as_str()
            .map_or(1, |_| 101);
        let count = [3, 40, 100, 60][before];
        let nodes = (first_number..first_number + count)
            .map(|number| wire_issue(number, &["Agent-Implement"], json!([]), false))
            .collect::<Vec<_>>();
        data(json!({"issues": {"nodes": nodes,
            "pageInfo": {"hasNextPage": before == 2, "endCursor": "p1"}}}))
    })
    .await;
    let linear = client(&server);
    for found in [3, 40, 160] {
        let snapshot = linear.snapshot(&[], &CommentWatch::default()).await;
        assert_eq!(snapshot.unwrap().issues.len(), found);
    }
    let requests = server.requests().into_iter();
    let sizes: Vec<_> = requests
        .map(|one| one.json()["variables"]["first"].as_u64().unwrap())
        .collect();
    assert_eq!(sizes, [250, 28, 75, 250]);
}

#[tokio::test]
async fn halves_the_page_size_after_a_complexity_error() {
    let server = TestServer::start(|request, _| match request.json()["variables"]["first"].as_u64() {
        Some(250) => StubReply::json(
            400,
            &json!({"errors": [{"message": "Query too complex", "extensions": {"code": "INPUT_ERROR"}}]}),
        ),
        first => {
            assert_eq!(first, Some(125));
            data(json!({"issues": {"nodes": [], "pageInfo": {"hasNextPage": false, "endCursor": null}}}))
        }
    })
    .await;
    assert!(
        client(&server)
            .snapshot(&[], &CommentWatch::default())
            .await
            .unwrap()
            .issues
            .is_empty()
    );
}

#[tokio::test]
async fn sends_no_request_until_a_rate_limit_resets() {
    let server = TestServer::start(|_, _| {
        let now = crate::http::now_millis();
        StubReply::json(400, &json!({"errors": [{"message": "Rate limit exceeded", "extensions": {"code": "RATELIMITED"}}]}))
            .header("x-ratelimit-requests-limit", 2500)
            .header("x-ratelimit-requests-remaining", 0)
            .header("x-ratelimit-requests-reset", now + 90_000)
    })
    .await;
    let linear = client(&server);
    for _ in 0..2 {
        let error = linear
            .snapshot(&[], &CommentWatch::default())
            .await
            .unwrap_err();
        assert!(error.is_rate_limited(), "{error}");
        assert!(error.retry_after().unwrap().as_secs() >= 85);
    }
    assert_eq!(server.requests().len(), 1);
    assert_eq!(linear.quota().remaining, Some(0));
}

/// Response to the read of an issue of team ENG with these labels.
fn issue_state(state: &str, labels: &[&str], usable: &[&str]) -> Value {
    let on_issue: Vec<_> = labels
        .iter()
        .map(|name| json!({"id": format!("l-{name}"), "name": name}))
        .collect();
    let usable: Vec<_> = usable
        .iter()
        .map(|name| json!({"id": format!("l-{name}"), "name": name, "isGroup": false, "archivedAt": null, "retiredAt": null, "team": {"id": "t1"}}))
        .collect();
    json!({
        "issue": {
            "archivedAt": null, "trashed": null, "state": {"type": state},
            "team": {"id": "t1", "key": "ENG", "states": {"nodes": [{"id": "s1", "type": "started", "position": 1}]}},
            "labels": {"nodes": on_issue},
        },
        "issueLabels": {"nodes": usable},
    })
}

#[tokio::test]
async fn sets_a_stage_with_one_read_and_one_write() {
    let server = TestServer::start(|request, _| {
        if query_contains(request, "mutation") {
            return data(json!({"add": {"success": true}}));
        }
        data(issue_state(
            "backlog",
            &["Agent-Implement", "Plan-Complete"],
            &["Agent-Working"],
        ))
    })
    .await;
    let linear = client(&server);
    linear
        .set_stage(&issue_ref(), Stage::Implementing)
        .await
        .unwrap();
    let requests = server.requests();
    assert_eq!(requests.len(), 2);
    let write = requests[1].json();
    assert_eq!(
        write["variables"],
        json!({"id": "uuid-7", "add": "l-Agent-Working", "remove0": "l-Plan-Complete", "state": "s1"})
    );
    let query = write["query"].as_str().unwrap();
    assert!(
        query.find("issueAddLabel") < query.find("issueRemoveLabel"),
        "{query}"
    );
}

#[tokio::test]
async fn creates_a_missing_label_or_uses_a_concurrently_created_one() {
    for conflict in [false, true] {
        let server = TestServer::start(move |request, before| {
            if query_contains(request, "issueLabelCreate") {
                return match conflict {
                    true => error("INPUT_ERROR", "Duplicate label name"),
                    false => data(
                        json!({"issueLabelCreate": {"success": true, "issueLabel": {"id": "new"}}}),
                    ),
                };
            }
            if query_contains(request, "mutation") {
                let wanted = if conflict { "l-Agent-Working" } else { "new" };
                assert_eq!(request.json()["variables"]["add"], wanted);
                return data(json!({"add": {"success": true}}));
            }
            let labels: &[&str] = if before > 0 { &["Agent-Working"] } else { &[] };
            data(issue_state("started", &[], labels))
        })
        .await;
        let linear = client(&server);
        linear
            .set_stage(&issue_ref(), Stage::Implementing)
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn rereads_the_issue_after_a_rejected_change() {
    let server = TestServer::start(|request, before| {
        if query_contains(request, "mutation") {
            return error("INPUT_ERROR", "Label not on issue");
        }
        let labels: &[&str] = if before == 0 { &["Agent-Working"] } else { &[] };
        data(issue_state("started", labels, &[]))
    })
    .await;
    let linear = client(&server);
    linear
        .set_stage(&issue_ref(), Stage::ImplementationFailed)
        .await
        .unwrap();
    assert_eq!(server.requests().len(), 3);
}

#[tokio::test]
async fn reports_not_found_for_a_deleted_issue_but_not_for_a_deleted_label() {
    let deleted = TestServer::start(|_, _| error("INPUT_ERROR", "Entity not found: Issue")).await;
    let result = client(&deleted)
        .set_stage(&issue_ref(), Stage::PrOpened)
        .await;
    assert!(result.unwrap_err().is_not_found());

    let archived = TestServer::start(|_, _| {
        let mut issue_state = issue_state("started", &[], &[]);
        issue_state["issue"]["archivedAt"] = json!("2026-11-21T01:00:00.000Z");
        data(issue_state)
    })
    .await;
    let result = client(&archived)
        .set_stage(&issue_ref(), Stage::PrOpened)
        .await;
    assert!(result.unwrap_err().is_not_found());

    let label = TestServer::start(|request, _| {
        if query_contains(request, "mutation") {
            return error("INPUT_ERROR", "Entity not found: IssueLabel");
        }
        data(issue_state("started", &["Agent-Working"], &[]))
    })
    .await;
    let result = client(&label)
        .set_stage(&issue_ref(), Stage::ImplementationFailed)
        .await;
    let error = result.unwrap_err();
    assert!(error.is_permanent() && !error.is_not_found(), "{error}");
}

#[tokio::test]
async fn uses_the_label_of_the_new_team_of_a_moved_issue() {
    let server = TestServer::start(|request, _| {
        let variables = &request.json()["variables"];
        if query_contains(request, "mutation") {
            return data(json!({}));
        }
        let labels: &[&str] = if variables["team"] == "OPS" {
            &["Ready for Review"]
        } else {
            &[]
        };
        let mut issue_state = issue_state("started", &[], labels);
        issue_state["issue"]["team"]["key"] = json!("OPS");
        data(issue_state)
    })
    .await;
    client(&server)
        .set_stage(&issue_ref(), Stage::PrOpened)
        .await
        .unwrap();
    let requests = server.requests();
    assert_eq!(requests.len(), 3);
    assert_eq!(requests[2].json()["variables"]["add"], "l-Ready for Review");
}

#[tokio::test]
async fn treats_a_duplicate_comment_id_as_success() {
    let server = TestServer::start(|request, _| {
        if query_contains(request, "mutation") {
            return error("INPUT_ERROR", "Entity with this id exists");
        }
        let of = match request.json()["variables"]["id"] == deterministic_uuid("e1") {
            true => "uuid-7",
            false => "uuid-8",
        };
        data(json!({"comment": {"issue": {"id": of}}}))
    })
    .await;
    let linear = client(&server);
    linear
        .create_comment(&issue_ref(), "e1", "hello")
        .await
        .unwrap();
    let input = &server.requests()[0].json()["variables"]["input"];
    assert_eq!(input["id"], deterministic_uuid("e1"));
    let error = linear
        .create_comment(&issue_ref(), "e2", "hello")
        .await
        .unwrap_err();
    assert!(error.is_permanent(), "{error}");
}

#[tokio::test]
async fn returns_comments_by_id_in_the_given_order() {
    let server = TestServer::start(|request, _| {
        let variables = &request.json()["variables"];
        assert_eq!(variables["id"], "uuid-7");
        assert_eq!(variables["ids"][4], deterministic_uuid("e3"));
        assert_eq!(variables["ids"][5], hashed_uuid("e3"));
        let comment = |id: String, effect: &str| json!({"id": id, "body": format!("of {effect}")});
        let old = comment(hashed_uuid("e3"), "e3");
        let new = comment(deterministic_uuid("e1"), "e1");
        data(json!({"issue": {"comments": {"nodes": [old, new]}}}))
    })
    .await;
    let effects = ["e1", "e2", "e3"].map(str::to_owned);
    let bodies = client(&server).comments(&issue_ref(), &effects).await;
    assert_eq!(bodies.unwrap(), ["of e1", "of e3"]);
}

#[tokio::test]
async fn reads_labels_and_at_most_twenty_siblings_per_issue_in_one_request() {
    let server = TestServer::start(|_, _| {
        let child = |number: usize| json!({"id": format!("uuid-{number}"), "identifier": format!("ENG-{number}"), "title": "t", "state": {"name": "Todo"}});
        let children: Vec<Value> = (1..=21).map(child).collect();
        data(json!({
            "s0": {"labels": {"nodes": [{"name": "bug"}, {"name": "Agent-Implement"}]},
                "parent": {"children": {"nodes": children}}},
            "s1": {"labels": {"nodes": []}, "parent": null},
        }))
    })
    .await;
    let orphan = IssueRef {
        id: IssueId::from("uuid-99"),
        ..issue_ref()
    };
    let contexts = client(&server)
        .run_contexts(&[issue_ref(), orphan.clone()])
        .await
        .unwrap();
    let context = &contexts[&issue_ref().id];
    let labels = ["bug", "Agent-Implement"].map(str::to_owned);
    assert_eq!(context.labels, Some(labels.to_vec()));
    let lines = &context.siblings;
    assert_eq!(lines.len(), 20);
    assert!(!lines.iter().any(|line| line.starts_with("ENG-7:")));
    assert_eq!(lines[0], "ENG-1: t (Todo)");
    assert!(contexts[&orphan.id].siblings.is_empty());
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn links_and_probes_with_one_request_each() {
    let server = TestServer::start(|request, _| match query_contains(request, "viewer") {
        true => data(json!({"viewer": {"name": "Robin"}, "organization": {"name": "Sandbox"}})),
        false => data(json!({"attachmentCreate": {"success": true}})),
    })
    .await;
    let linear = client(&server);
    linear
        .link_pull_request(&issue_ref(), "PR #1", "https://h/1")
        .await
        .unwrap();
    assert_eq!(linear.probe().await.unwrap(), "Robin in Sandbox");
    assert_eq!(server.requests().len(), 2);
}

#[test]
fn maps_errors_to_equivalent_http_statuses() {
    let rows = [
        (
            json!({"message": "Authentication required", "extensions": {"code": "AUTHENTICATION_ERROR"}}),
            401,
        ),
        (
            json!({"message": "no", "extensions": {"code": "FORBIDDEN", "type": "forbidden"}}),
            403,
        ),
        (
            json!({"message": "Entity not found: Issue", "extensions": {"code": "INPUT_ERROR", "userError": true}}),
            404,
        ),
        (
            json!({"message": "Argument Validation Error", "extensions": {"type": "invalid input"}}),
            422,
        ),
        (
            json!({"message": "Internal server error", "extensions": {"code": "INTERNAL_SERVER_ERROR"}}),
            500,
        ),
        (json!({"message": "odd"}), 500),
    ];
    for (error, status) in rows {
        let error: GraphQlError = serde_json::from_value(error).unwrap();
        assert_eq!(error.status(200), status, "{}", error.message);
    }
}
