use super::*;
use crate::{FakeService, InjectedFault};

#[tokio::test]
async fn issues_page_and_filter_as_the_vendor_does() {
    let dir = tempfile::tempdir().unwrap();
    let town = start_fake_vendors(dir.path()).await;
    for number in 1..=5 {
        let ticket = town
            .linear()
            .create_ticket("ENG", &format!("Ticket {number}"))
            .add_label("Agent-Implement");
        if number == 2 {
            ticket.complete();
        }
    }
    town.linear()
        .issue("OPS-1")
        .title("Elsewhere")
        .add_label("Agent-Implement");
    town.linear().issue("ENG-5").blocked_by("ENG-1");
    let query = "query Flagged($after: String, $keys: [String!]!) {
        issues(first: 2, after: $after, filter: {
            team: { key: { in: $keys } }, labels: { some: { name: { eqIgnoreCase: \"agent-implement\" } } },
            state: { type: { nin: [\"completed\", \"canceled\"] } }
        }) { nodes { ...Brief } pageInfo { hasNextPage endCursor } } }
        fragment Brief on Issue { key: identifier state { type } labels(first: 5) { nodes { name } }
            inverseRelations(first: 5) { nodes { type issue { identifier state { type } } } } }";
    let mut seen = Vec::new();
    let mut after = Value::Null;
    for _ in 0..2 {
        let (status, answer) = linear(&town, query, json!({"after": after, "keys": ["ENG"]})).await;
        assert_eq!(status, 200, "{answer}");
        let issues = &answer["data"]["issues"];
        seen.extend(issues["nodes"].as_array().unwrap().iter().cloned());
        after = issues["pageInfo"]["endCursor"].clone();
        assert_eq!(issues["pageInfo"]["hasNextPage"], seen.len() < 4);
    }
    let keys: Vec<&str> = seen
        .iter()
        .map(|issue| issue["key"].as_str().unwrap())
        .collect();
    assert_eq!(keys, ["ENG-5", "ENG-4", "ENG-3", "ENG-1"]);
    assert_eq!(
        seen[0]["inverseRelations"]["nodes"][0]["issue"]["identifier"],
        "ENG-1"
    );
}

#[tokio::test]
async fn bad_queries_and_bad_keys_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let town = start_fake_vendors(dir.path()).await;
    let (status, answer) = linear(&town, "{ viewer { shoeSize } }", json!({})).await;
    assert_eq!(status, 400);
    assert_eq!(
        answer["errors"][0]["message"],
        "Cannot query field \"shoeSize\" on type \"User\"."
    );
    let greedy = "{ issues(first: 250) { nodes { comments(first: 250) { nodes { id body } } } } }";
    assert_eq!(linear(&town, greedy, json!({})).await.0, 400);
    let (status, answer) = linear(&town, "{ issue(id: \"ENG-9\") { id } }", json!({})).await;
    assert_eq!((status, &answer["data"]), (200, &Value::Null));
    town.linear().set_api_key("another");
    let answer = client()
        .post(format!("{}/graphql", town.linear_url()))
        .header("authorization", "lin_api_sandbox");
    let answer = answer
        .json(&json!({"query": "{ viewer { id } }"}))
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), 401);
}

#[tokio::test]
async fn a_comment_id_is_taken_once_even_when_the_answer_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let town = start_fake_vendors(dir.path()).await;
    town.linear().issue("ENG-1").title("One");
    let query = "mutation($input: CommentCreateInput!) { commentCreate(input: $input) { success comment { id } } }";
    let input = json!({"input": {"id": "11111111-2222-4333-8444-555555555555", "issueId": "ENG-1", "body": "hello"}});
    town.faults(FakeService::Linear)
        .inject_on_match("commentCreate", InjectedFault::DropResponse);
    let lost = client()
        .post(format!("{}/graphql", town.linear_url()))
        .header("authorization", town.linear().api_key());
    assert!(
        lost.json(&json!({"query": query, "variables": input}))
            .send()
            .await
            .is_err()
    );
    let (status, answer) = linear(&town, query, input).await;
    assert_eq!(status, 200);
    assert_eq!(answer["errors"][0]["extensions"]["userError"], true);
    assert_eq!(town.linear().issue("ENG-1").comments(), ["hello"]);
    assert_eq!(
        town.requests().for_service(FakeService::Linear)[0].status,
        None
    );
}

#[tokio::test]
async fn labels_are_made_put_on_and_taken_off() {
    let dir = tempfile::tempdir().unwrap();
    let town = start_fake_vendors(dir.path()).await;
    town.linear().issue("ENG-1").title("One");
    let make = "mutation($n: String!, $t: String!) { issueLabelCreate(input: {name: $n, teamId: $t}) { issueLabel { id } } }";
    let (_, team) = linear(
        &town,
        "{ team(id: \"ENG\") { id states(first: 20) { nodes { id type } } } }",
        json!({}),
    )
    .await;
    let names = json!({"n": "Working", "t": team["data"]["team"]["id"]});
    let (_, made) = linear(&town, make, names.clone()).await;
    let label = made["data"]["issueLabelCreate"]["issueLabel"]["id"].clone();
    assert!(linear(&town, make, names).await.1["errors"].is_array());
    let add = "mutation($l: String!) { issueAddLabel(id: \"ENG-1\", labelId: $l) { success } }";
    for _ in 0..2 {
        assert_eq!(
            linear(&town, add, json!({"l": label})).await.1["data"]["issueAddLabel"]["success"],
            true
        );
    }
    let change = "mutation($i: IssueUpdateInput!) { issueUpdate(id: \"ENG-1\", input: $i) { issue { state { type } } } }";
    let started = team["data"]["team"]["states"]["nodes"]
        .as_array()
        .unwrap()
        .iter()
        .find(|s| s["type"] == "started");
    let input = json!({"i": {"stateId": started.unwrap()["id"], "removedLabelIds": [label]}});
    let (_, answer) = linear(&town, change, input).await;
    assert_eq!(
        answer["data"]["issueUpdate"]["issue"]["state"]["type"],
        "started"
    );
    let history = town.linear().issue("ENG-1").snapshot().unwrap().history;
    let history: Vec<(&str, bool)> = history
        .iter()
        .map(|change| (change.label.as_str(), change.added))
        .collect();
    assert_eq!(history, [("Working", true), ("Working", false)]);
}
