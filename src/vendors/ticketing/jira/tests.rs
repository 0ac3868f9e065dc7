//! Tests of the Jira client against a stub server.

use super::*;
use crate::http::test_client;
use domain::ids::TeamKey;
use domain::issue::System;
use domain::mapping::{ExecutionMode, ModelProvider, SessionMode};
use domain::ticket_comment::CommentWatch;
use domain::time::Timestamp;
use serde_json::Value;
use test_support::{RecordedRequest, StubReply, TestServer};

pub(super) fn client(server: &TestServer) -> Jira {
    let credentials = JiraCredentials::Basic {
        email: "a@b.c".into(),
        token: Secret::new("t"),
    };
    Jira::new(
        test_client("Jira"),
        &server.url,
        Some("https://site.test/"),
        &credentials,
    )
}

pub(super) fn issue_ref(marker_field: Option<&str>) -> IssueRef {
    IssueRef {
        system: System::Jira,
        id: IssueId::from("10007"),
        key: "OPS-7".into(),
        title: "t".into(),
        url: "u".into(),
        marker_field: marker_field.map(str::to_owned),
    }
}

pub(super) fn mapping(team: &str, clause: &str, repo: &str, status: Option<&str>) -> Mapping {
    Mapping {
        team_key: TeamKey::from(team),
        owner: "acme".into(),
        repo: "shop".into(),
        default_branch: "main".into(),
        workflow_file: "w.yml".into(),
        ticketing: TicketingConfig::Jira {
            jql: clause.into(),
            repo_field_value: repo.into(),
            status_field_override: status.map(str::to_owned),
            repo_field_override: None,
        },
        provider: ModelProvider::Direct,
        execution_mode: ExecutionMode::CiWorkflow,
        machine_cpus: 1,
        machine_memory_mb: 256,
        session_mode: SessionMode::Autonomous,
        branch_prefix: None,
        extra_env: Default::default(),
        max_in_progress: 1,
        paused: false,
        planning_enabled: false,
        planning_workflow_file: None,
        max_turns: None,
        max_iterations: None,
        max_job_minutes: None,
        budget: None,
        resume_after_limit: true,
        node_selector: Default::default(),
        runs_on: Vec::new(),
        agent: None,
        model: None,
        fallback_agents: Vec::new(),
        questions: true,
        question_timeout_hours: None,
        plan_approval: Default::default(),
        plan_auto_approve: None,
        approvers: Vec::new(),
        max_open_pulls: None,
        max_awaiting_review: None,
        dispatch_window: None,
        collisions: Default::default(),
        collision_ignore: Vec::new(),
        merge: Default::default(),
        delete_branch: false,
        created_at: Timestamp::EPOCH,
        updated_at: Timestamp::EPOCH,
    }
}

pub(super) fn fields() -> StubReply {
    StubReply::json(
        200,
        &json!([
            {"id": "summary", "name": "Summary", "custom": false},
            {"id": "customfield_50", "name": "Agent-Implement Status", "custom": true},
            {"id": "customfield_51", "name": "Agent-Implement Repo", "custom": true},
        ]),
    )
}

pub(super) fn wire_issue(number: u64, status: &str, repo: &str, links: Value) -> Value {
    json!({"id": format!("1000{number}"), "key": format!("OPS-{number}"), "fields": {
        "summary": "t", "status": {"name": "To Do", "statusCategory": {"key": "new"}},
        "priority": {"id": "2", "name": "High"}, "created": "2026-11-21T02:00:00.000+0100",
        "description": {"type": "doc", "version": 1, "content": [
            {"type": "paragraph", "content": [{"type": "text", "text": "Please."}]}]},
        "issuelinks": links, "customfield_50": {"value": status}, "customfield_51": {"value": repo},
        "parent": {"key": "OPS-1", "fields": {"summary": "big", "status": {"name": "Doing"}}},
    }})
}

fn link(side: &str, key: &str, category: &str, kind: [&str; 3]) -> Value {
    json!({"type": {"name": kind[0], "inward": kind[1], "outward": kind[2]}, side: {
        "key": key, "fields": {"summary": "s", "status": {"name": "S", "statusCategory": {"key": category}}},
    }})
}

pub(super) fn searches(server: &TestServer) -> Vec<RecordedRequest> {
    let requests = server.requests().into_iter();
    requests
        .filter(|request| request.path == "/rest/api/3/search/jql")
        .collect()
}

#[tokio::test]
async fn polls_with_one_paged_search_per_query() {
    let server = TestServer::start(|request, _| {
        if request.path.ends_with("/field") {
            return fields();
        }
        let body = request.json();
        let blocks = ["Blocks", "is blocked by", "blocks"];
        if body["jql"].as_str().unwrap().starts_with("(project = B)") {
            let issue = wire_issue(9, "Implementing", "web", json!([]));
            return StubReply::json(200, &json!({"issues": [issue], "isLast": true}));
        }
        match body["nextPageToken"].as_str() {
            None => {
                let links = json!([
                    link("inwardIssue", "OPS-5", "new", blocks),
                    link("inwardIssue", "OPS-6", "done", blocks),
                    link("outwardIssue", "OPS-8", "new", blocks),
                    link(
                        "inwardIssue",
                        "OPS-4",
                        "new",
                        ["Relates", "relates to", "relates to"]
                    ),
                ]);
                let issues = [
                    wire_issue(2, "Ready", "shop", links),
                    wire_issue(3, "Ready", "other", json!([])),
                ];
                StubReply::json(200, &json!({"issues": issues, "nextPageToken": "p2"}))
            }
            Some(_) => {
                let again = wire_issue(2, "Ready", "shop", json!([]));
                let planned = wire_issue(4, "Plan Approved", "web", json!([]));
                StubReply::json(200, &json!({"issues": [again, planned], "isLast": true}))
            }
        }
    })
    .await;
    let mappings = [
        mapping("SHOP", "project = A", "shop", None),
        mapping("WEB", " project = A ", "web", Some("customfield_50")),
        mapping("OTHER", "project = B", "web", None),
    ];
    let mappings: Vec<&Mapping> = mappings.iter().collect();
    let snapshot = client(&server)
        .snapshot(&mappings, &CommentWatch::default())
        .await
        .unwrap();
    assert_eq!(
        searches(&server).len(),
        3,
        "two pages of one query, one of the other"
    );
    assert_eq!(server.requests().len(), 4, "field names are read once");
    let sent = server.requests()[0].clone();
    assert_eq!(sent.header("authorization"), Some("Basic YUBiLmM6dA=="));
    let found: Vec<(&str, &str, Stage)> = snapshot
        .issues
        .iter()
        .map(|issue| (issue.issue.key.as_str(), issue.team.as_str(), issue.stage))
        .collect();
    assert_eq!(
        found,
        [
            ("OPS-2", "SHOP", Stage::Triggered),
            ("OPS-4", "WEB", Stage::PlanComplete),
            ("OPS-9", "OTHER", Stage::Implementing),
        ]
    );
    let first = &snapshot.issues[0];
    assert_eq!(first.open_blockers.len(), 1);
    assert_eq!(first.open_blockers[0].key.as_str(), "OPS-5");
    assert_eq!(first.related.parent.as_deref(), Some("OPS-1: big (Doing)"));
    assert_eq!(
        first.related.dependencies,
        [
            "blocked by OPS-5: s (S)",
            "blocked by OPS-6: s (S)",
            "blocks OPS-8: s (S)",
            "relates to OPS-4: s (S)"
        ]
    );
    assert_eq!((first.priority, &*first.description), (2, "Please."));
    assert_eq!(first.created_at.to_string(), "2026-11-21T01:00:00.000Z");
    assert_eq!(first.issue.url, "https://site.test/browse/OPS-2");
    assert_eq!(first.issue.marker_field.as_deref(), Some("customfield_50"));
}

#[tokio::test]
async fn widens_a_rejected_query_and_fails_only_its_mappings() {
    let server = TestServer::start(|request, _| {
        if request.path.ends_with("/field") {
            return fields();
        }
        let body = request.json();
        let query = body["jql"].as_str().unwrap();
        if query.contains("project = GONE") || query.contains("Plan Approved") {
            return StubReply::json(400, &json!({"errorMessages": ["does not exist"]}));
        }
        let issues = [
            wire_issue(2, "Ready", "shop", json!([])),
            wire_issue(3, "PR Ready", "shop", json!([])),
        ];
        StubReply::json(200, &json!({"issues": issues, "isLast": true}))
    })
    .await;
    let good = mapping("SHOP", "project = A", "shop", None);
    let bad = mapping("GONE", "project = GONE", "shop", None);
    let nameless = mapping("NAMELESS", "project = A", "shop", Some("No such field"));
    let client = client(&server);
    let snapshot = client
        .snapshot(&[&good, &bad, &nameless], &CommentWatch::default())
        .await
        .unwrap();
    assert_eq!(snapshot.issues.len(), 1);
    let failed: Vec<&str> = snapshot.failed_teams.iter().map(TeamKey::as_str).collect();
    assert_eq!(failed, ["NAMELESS", "GONE"]);
    let error = client
        .snapshot(&[&bad], &CommentWatch::default())
        .await
        .unwrap_err();
    assert!(error.to_string().contains("does not exist"), "{error}");
    assert!(
        client
            .snapshot(&[], &CommentWatch::default())
            .await
            .unwrap()
            .issues
            .is_empty()
    );
}

#[tokio::test]
async fn sets_the_status_field_and_reconciles_written_issues() {
    let server = TestServer::start(|request, _| match request.method.as_str() {
        "PUT" => StubReply::Response(204, vec![], String::new()),
        "GET" => fields(),
        _ => StubReply::json(200, &json!({"issues": [], "isLast": true})),
    })
    .await;
    let client = client(&server);
    client
        .set_stage(&issue_ref(None), Stage::Implementing)
        .await
        .unwrap();
    client
        .set_stage(&issue_ref(Some("customfield_77")), Stage::PrOpened)
        .await
        .unwrap();
    let requests = server.requests();
    assert_eq!(requests.len(), 3);
    assert_eq!(requests[1].path, "/rest/api/3/issue/10007");
    assert_eq!(
        requests[1].json(),
        json!({"fields": {"customfield_50": {"value": "Implementing"}}})
    );
    assert_eq!(
        requests[2].json(),
        json!({"fields": {"customfield_77": {"value": "PR Ready"}}})
    );
    let mapping = mapping("SHOP", "project = A", "shop", None);
    client
        .snapshot(&[&mapping], &CommentWatch::default())
        .await
        .unwrap();
    assert_eq!(
        searches(&server)[0].json()["reconcileIssues"],
        json!([10007])
    );
}

#[tokio::test]
async fn looks_up_a_comment_only_after_a_lost_response() {
    let properties_of =
        |effect: &str| json!([{"key": "agent-implement", "value": {"effect": effect}}]);
    let server = TestServer::start(move |request, _| {
        if request.method == "POST" {
            assert_eq!(request.json()["properties"], properties_of("e1"));
            return StubReply::json(201, &json!({"id": "1"}));
        }
        assert!(
            request.path.contains("expand=properties"),
            "{}",
            request.path
        );
        let comment = |text: &str, created: &str, properties: Value| {
            let mut comment =
                json!({"id": "1", "body": adf::from_markdown(text), "created": created});
            if !properties.is_null() {
                comment["properties"] = properties;
            }
            comment
        };
        let comments = match request.path.split('/').nth(5) {
            Some("10007") => json!([comment(
                "Edited since",
                "2026-11-21T01:00:00.000+0000",
                properties_of("e1")
            )]),
            Some("blind") => json!([comment(
                "Hello",
                "2026-11-21T01:00:00.000+0000",
                Value::Null
            )]),
            _ => json!([
                comment("Hello", "2026-11-20T01:00:00.000+0000", Value::Null),
                comment("Hello", "2026-11-21T01:00:00.000+0000", properties_of("e0")),
            ]),
        };
        StubReply::json(200, &json!({"comments": comments}))
    })
    .await;
    let client = client(&server);
    let since = Timestamp::parse("2026-11-21T00:00:00Z").unwrap();
    let rows = [
        ("10007", false, "POST"),
        ("10007", true, "GET"),
        ("blind", true, "GET"),
        ("other", true, "GET POST"),
    ];
    for (id, is_retry, expected) in rows {
        let before = server.requests().len();
        let issue = IssueRef {
            id: IssueId::from(id),
            ..issue_ref(None)
        };
        let exists = is_retry && { client.has_comment(&issue, "e1", "Hello", since) }
            .await
            .unwrap();
        if !exists {
            client.create_comment(&issue, "e1", "Hello").await.unwrap();
        }
        let methods: Vec<String> = server.requests()[before..]
            .iter()
            .map(|request| request.method.clone())
            .collect();
        assert_eq!(methods.join(" "), expected, "{id} {is_retry:?}");
    }
}

#[tokio::test]
async fn sends_the_bearer_token_and_respects_a_rate_limit() {
    let server = TestServer::start(|request, _| match request.path.as_str() {
        "/ex/jira/c1/rest/api/3/myself" => StubReply::json(200, &json!({"displayName": "Robot"})),
        "/ex/jira/c1/rest/api/3/serverInfo" => {
            StubReply::json(200, &json!({"baseUrl": "https://site.test/"}))
        }
        _ => StubReply::json(429, &json!({"errorMessages": ["slow down"]}))
            .header("retry-after", 30)
            .header("x-ratelimit-limit", 100)
            .header("x-ratelimit-remaining", 0)
            .header("x-ratelimit-reset", "2099-01-01T00:00Z"),
    })
    .await;
    let api = format!("{}/ex/jira/c1", server.url);
    let bearer = JiraCredentials::Bearer(Secret::new("tok"));
    let client = Jira::new(test_client("Jira"), &api, None, &bearer);
    assert_eq!(client.probe().await.unwrap(), "Robot at https://site.test");
    assert_eq!(
        server.requests()[0].header("authorization"),
        Some("Bearer tok")
    );
    let error = client.validate_jql("project = A").await.unwrap_err();
    assert!(error.is_rate_limited(), "{error}");
    let sent = server.requests().len();
    assert!(
        client
            .custom_fields(None)
            .await
            .unwrap_err()
            .is_rate_limited()
    );
    assert_eq!(
        server.requests().len(),
        sent,
        "sends nothing until the rate limit resets"
    );
    let quota = client.quota();
    assert_eq!((quota.limit, quota.remaining), (Some(100), Some(0)));
    assert!(quota.reset_at.is_some(), "{quota:?}");
}
