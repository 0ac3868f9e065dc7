use super::*;
use crate::{FakeService, InjectedFault};

#[tokio::test]
async fn pages_and_filters_issues() {
    let dir = tempfile::tempdir().unwrap();
    let vendors = start_fake_vendors(dir.path()).await;
    for number in 1..=5 {
        let ticket = vendors
            .linear()
            .create_ticket("ENG", &format!("Ticket {number}"))
            .add_label("Agent-Implement");
        if number == 2 {
            ticket.complete();
        }
    }
    vendors
        .linear()
        .issue("OPS-1")
        .title("Elsewhere")
        .add_label("Agent-Implement");
    vendors.linear().issue("ENG-5").blocked_by("ENG-1");
    let query = "query Flagged($after: String, $keys: [String!]!) {
        issues(first: 2, after: $after, filter: {
            team: { key: { in: $keys } }, labels: { some: { name: { eqIgnoreCase: \"agent-implement\" } } },
            state: { type: { nin: [\"completed\", \"canceled\"] } }
        }) { nodes { ...Brief } pageInfo { hasNextPage endCursor } } }
        fragment Brief on Issue { key: identifier state { type } labels(first: 5) { nodes { name } }
            inverseRelations(first: 5) { nodes { type issue { identifier state { type } } } } }";
    let mut issues_seen = Vec::new();
    let mut after = Value::Null;
    for _ in 0..2 {
        let (status, response) =
            linear(&vendors, query, json!({"after": after, "keys": ["ENG"]})).await;
        assert_eq!(status, 200, "{response}");
        let issues = &response["data"]["issues"];
        issues_seen.extend(issues["nodes"].as_array().unwrap().iter().cloned());
        after = issues["pageInfo"]["endCursor"].clone();
        assert_eq!(issues["pageInfo"]["hasNextPage"], issues_seen.len() < 4);
    }
    let keys: Vec<&str> = issues_seen
        .iter()
        .map(|issue| issue["key"].as_str().unwrap())
        .collect();
    assert_eq!(keys, ["ENG-5", "ENG-4", "ENG-3", "ENG-1"]);
    assert_eq!(
        issues_seen[0]["inverseRelations"]["nodes"][0]["issue"]["identifier"],
        "ENG-1"
    );
}

#[tokio::test]
async fn rejects_invalid_queries_and_unknown_keys() {
    let dir = tempfile::tempdir().unwrap();
    let vendors = start_fake_vendors(dir.path()).await;
    let (status, response) = linear(&vendors, "{ viewer { shoeSize } }", json!({})).await;
    assert_eq!(status, 400);
    assert_eq!(
        response["errors"][0]["message"],
        "Cannot query field \"shoeSize\" on type \"User\"."
    );
    let too_complex =
        "{ issues(first: 250) { nodes { comments(first: 250) { nodes { id body } } } } }";
    assert_eq!(linear(&vendors, too_complex, json!({})).await.0, 400);
    let (status, response) = linear(&vendors, "{ issue(id: \"ENG-9\") { id } }", json!({})).await;
    assert_eq!((status, &response["data"]), (200, &Value::Null));
    vendors.linear().set_api_key("another");
    let response = client()
        .post(format!("{}/graphql", vendors.linear_url()))
        .header("authorization", "lin_api_sandbox");
    let response = response
        .json(&json!({"query": "{ viewer { id } }"}))
        .send()
        .await
        .unwrap();
    assert_eq!(response.status(), 401);
}

#[tokio::test]
async fn rejects_a_repeated_comment_id_after_a_lost_response() {
    let dir = tempfile::tempdir().unwrap();
    let vendors = start_fake_vendors(dir.path()).await;
    vendors.linear().issue("ENG-1").title("One");
    let query = "mutation($input: CommentCreateInput!) { commentCreate(input: $input) { success comment { id } } }";
    let input = json!({"input": {"id": "11111111-2222-4333-8444-555555555555", "issueId": "ENG-1", "body": "hello"}});
    vendors
        .faults(FakeService::Linear)
        .inject_on_match("commentCreate", InjectedFault::DropResponse);
    let request = client()
        .post(format!("{}/graphql", vendors.linear_url()))
        .header("authorization", vendors.linear().api_key());
    assert!(
        request
            .json(&json!({"query": query, "variables": input}))
            .send()
            .await
            .is_err()
    );
    let (status, response) = linear(&vendors, query, input).await;
    assert_eq!(status, 200);
    assert_eq!(response["errors"][0]["extensions"]["userError"], true);
    assert_eq!(vendors.linear().issue("ENG-1").comments(), ["hello"]);
    assert_eq!(
        vendors.requests().for_service(FakeService::Linear)[0].status,
        None
    );
}

#[tokio::test]
async fn creates_adds_and_removes_labels() {
    let dir = tempfile::tempdir().unwrap();
    let vendors = start_fake_vendors(dir.path()).await;
    vendors.linear().issue("ENG-1").title("One");
    let create = "mutation($n: String!, $t: String!) { issueLabelCreate(input: {name: $n, teamId: $t}) { issueLabel { id } } }";
    let (_, team) = linear(
        &vendors,
        "{ team(id: \"ENG\") { id states(first: 20) { nodes { id type } } } }",
        json!({}),
    )
    .await;
    let names = json!({"n": "Working", "t": team["data"]["team"]["id"]});
    let (_, created) = linear(&vendors, create, names.clone()).await;
    let label = created["data"]["issueLabelCreate"]["issueLabel"]["id"].clone();
    assert!(linear(&vendors, create, names).await.1["errors"].is_array());
    let add = "mutation($l: String!) { issueAddLabel(id: \"ENG-1\", labelId: $l) { success } }";
    for _ in 0..2 {
        assert_eq!(
            linear(&vendors, add, json!({"l": label})).await.1["data"]["issueAddLabel"]["success"],
            true
        );
    }
    let update = "mutation($i: IssueUpdateInput!) { issueUpdate(id: \"ENG-1\", input: $i) { issue { state { type } } } }";
    let started = team["data"]["team"]["states"]["nodes"]
        .as_array()
        .unwrap()
        .iter()
        .find(|s| s["type"] == "started");
    let input = json!({"i": {"stateId": started.unwrap()["id"], "removedLabelIds": [label]}});
    let (_, response) = linear(&vendors, update, input).await;
    assert_eq!(
        response["data"]["issueUpdate"]["issue"]["state"]["type"],
        "started"
    );
    let history = vendors.linear().issue("ENG-1").snapshot().unwrap().history;
    let history: Vec<(&str, bool)> = history
        .iter()
        .map(|update| (update.label.as_str(), update.added))
        .collect();
    assert_eq!(history, [("Working", true), ("Working", false)]);
}
