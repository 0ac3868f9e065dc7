use serde_json::{Map, Value, json};

use crate::request_log::{LoggedRequest, RequestLog};

fn request(vendor: &'static str, call: &str, body: Value) -> LoggedRequest {
    let (method, url) = call.split_once(' ').unwrap();
    let (base, authorization, accept) = match vendor {
        "linear" => ("https://api.linear.app", "[redacted]", "*/*"),
        "github" => (
            "https://api.github.com",
            "Bearer [redacted]",
            "application/vnd.github+json",
        ),
        "jira" => (
            "https://sandbox.atlassian.net/rest/api/3",
            "Basic cmVkYWN0ZWQ=",
            "application/json",
        ),
        "fly" => ("https://api.machines.dev", "Bearer [redacted]", "*/*"),
        "docker" => ("http://docker", "", "*/*"),
        _ => ("https://hooks.slack.com", "", "*/*"),
    };
    let headers = json!({
        "user-agent": "agent-implement/1.0.0", "accept": accept, "authorization": authorization,
        "content-type": "application/json", "x-github-api-version": "2022-11-28",
    });
    LoggedRequest {
        at: String::new(),
        vendor,
        method: method.to_owned(),
        url: format!("{base}{url}"),
        headers: headers.as_object().unwrap().clone(),
        body,
        status: Some(200),
    }
}

fn document(content: Value) -> Value {
    json!({"body": {"type": "doc", "version": 1, "content": content}})
}

fn linear(query: &str, variables: Value) -> LoggedRequest {
    request(
        "linear",
        "POST /graphql",
        json!({"query": query, "variables": variables}),
    )
}

fn github_graphql(query: &str) -> LoggedRequest {
    request(
        "github",
        "POST /graphql",
        json!({"query": query, "variables": {"id": "x"}}),
    )
}

fn fly_machine(cpus: u64, memory: u64) -> Value {
    json!({"name": "agent-1", "region": "iad", "config": {
        "image": "a/b:1", "env": {"A": "b"}, "restart": {"policy": "no"},
        "guest": {"cpu_kind": "shared", "cpus": cpus, "memory_mb": memory},
    }})
}

fn container() -> Value {
    json!({"Image": "a/b:1", "Env": ["A=b=c"], "HostConfig": {"ReadonlyRootfs": true, "Memory": 512 << 20}})
}

fn slack(text: &str) -> Value {
    json!({"text": "t", "blocks": [{"type": "section", "text": {"type": "mrkdwn", "text": text}}]})
}

fn teams(element: Value) -> Value {
    json!({"type": "message", "attachments": [{
        "contentType": "application/vnd.microsoft.card.adaptive",
        "contentUrl": null,
        "content": {"type": "AdaptiveCard", "version": "1.4", "body": [element]},
    }]})
}

fn tree(sha: &str) -> Value {
    json!({"base_tree": "a".repeat(40), "tree": [{"path": "a", "mode": "100644", "type": "blob", "sha": sha}]})
}

#[test]
fn accepts_conforming_requests() {
    let paragraph = json!([{"type": "paragraph", "content": [{"type": "text", "text": "a"}]}]);
    let requests = [
        request("github", "GET /repos/o/r", Value::Null),
        request(
            "github",
            "GET /repos/o/r/contents/a/b%20c.md?ref=main",
            Value::Null,
        ),
        request(
            "github",
            "GET /repos/o/r/pulls?state=open&head=o%3Ab&per_page=100&page=2",
            Value::Null,
        ),
        request(
            "github",
            "PATCH /repos/o/r/pulls/1",
            json!({"title": "t", "body": ""}),
        ),
        request("github", "POST /repos/o/r/git/trees", tree(&"b".repeat(40))),
        github_graphql("query($id: ID!) { node(id: $id) { ... on PullRequest { isDraft } } }"),
        linear(
            "query($key: String!) { teams(first: 1, filter: { key: { eq: $key } }) { nodes { id } } }",
            json!({"key": "ENG"}),
        ),
        request(
            "jira",
            "GET /issue/OPS-1?fields=summary,status",
            Value::Null,
        ),
        request(
            "jira",
            "POST /search/jql",
            json!({"jql": "project = OPS ORDER BY created", "maxResults": 100}),
        ),
        request("jira", "POST /issue/1/comment", document(paragraph)),
        request(
            "jira",
            "GET /issue/1/changelog?startAt=0&maxResults=100",
            Value::Null,
        ),
        request(
            "jira",
            "GET /user/permission/search?permissions=EDIT_ISSUES&issueKey=OPS-1&accountId=a",
            Value::Null,
        ),
        request(
            "jira",
            "GET /attachment/content/1?redirect=false",
            Value::Null,
        ),
        request(
            "jira",
            "PUT /issue/1",
            json!({"fields": {"customfield_1": {"value": "Ready"}}}),
        ),
        request("fly", "POST /v1/apps/a/machines", fly_machine(2, 512)),
        request(
            "docker",
            "POST /containers/create?name=agent-1",
            container(),
        ),
        request(
            "docker",
            "GET /containers/json?all=true&filters=%7B%22label%22%3A%5B%22a%3Db%22%5D%7D",
            Value::Null,
        ),
        request("docker", "GET /images/acme/runner:1/json", Value::Null),
        request("chat", "POST /services/T/B/x", slack("*a*")),
        request(
            "chat",
            "POST /workflows/x?sig=y",
            teams(json!({"type": "TextBlock", "text": "a"})),
        ),
    ];
    for request in requests {
        assert_eq!(request.contract_violations(), [""; 0], "{request:?}");
    }
    let mut gateway = request("jira", "GET /myself", Value::Null);
    gateway.url = "https://api.atlassian.com/ex/jira/cloud-id/rest/api/3/myself".to_owned();
    assert_eq!(gateway.contract_violations(), [""; 0]);
}

#[test]
fn reports_requests_that_violate_a_contract() {
    let nodes = |count: usize| "x".repeat(count);
    let cases = [
        // Calls and parameters.
        (
            request("github", "GET /repos/o/r/labels", Value::Null),
            "no rule covers",
        ),
        (
            request("github", "DELETE /repos/o/r", Value::Null),
            "no rule covers",
        ),
        (request("post", "GET /", Value::Null), "no contract of post"),
        (
            request("jira", "GET /../2/myself", Value::Null),
            "no rule covers",
        ),
        (
            request("github", "GET /repos/o/r/pulls?per_page=500", Value::Null),
            "500 is not from 1 to 100",
        ),
        (
            request("github", "GET /repos/o/r/pulls?per_page=a", Value::Null),
            "query.per_page: has the wrong type",
        ),
        (
            request("github", "GET /repos/o/r/pulls?colour=red", Value::Null),
            "query.colour: unknown",
        ),
        (
            request("github", "GET /repos/o/r/contents/a", Value::Null),
            "query.ref: missing",
        ),
        (
            request(
                "github",
                "GET /repos/o/r/contents/a?ref=a&ref=b",
                Value::Null,
            ),
            "query.ref: given twice",
        ),
        (
            request("jira", "POST /jql/parse", json!({"queries": ["a = 1"]})),
            "query.validation: missing",
        ),
        // Bodies.
        (
            request("github", "GET /repos/o/r", json!({})),
            "body: this call has none",
        ),
        (
            request("github", "PATCH /repos/o/r/pulls/1", json!({"draft": true})),
            "body.draft: unknown",
        ),
        (
            request(
                "github",
                "POST /repos/o/r/pulls",
                json!({"title": "t", "head": "h"}),
            ),
            "body.base: missing",
        ),
        (
            request(
                "github",
                "POST /repos/o/r/issues/1/comments",
                json!({"body": ""}),
            ),
            "body.body: is empty",
        ),
        (
            request(
                "github",
                "POST /repos/o/r/issues/1/comments",
                json!({"body": nodes(65_537)}),
            ),
            "the limit is 65536",
        ),
        (
            request("github", "POST /repos/o/r/git/trees", tree("main")),
            "not an object name of git",
        ),
        (
            request(
                "github",
                "POST /repos/o/r/git/refs",
                json!({"ref": "main", "sha": "a".repeat(40)}),
            ),
            "must begin with refs/heads/",
        ),
        (
            request(
                "github",
                "POST /repos/o/r/actions/workflows/a.yml/dispatches",
                json!({"ref": "main", "inputs": {"a": 1}}),
            ),
            "body.inputs.a: has the wrong type",
        ),
        (
            request(
                "github",
                "POST /repos/o/r/actions/workflows/a.yml/dispatches",
                json!({"ref": "main", "inputs": {"a": nodes(40_000), "b": nodes(40_000)}}),
            ),
            "80000 characters",
        ),
        (
            request(
                "jira",
                "POST /search/jql",
                json!({"jql": "a = 1", "fields": "id"}),
            ),
            "body.fields: has the wrong type",
        ),
        (
            request(
                "jira",
                "POST /search/jql",
                json!({"jql": " order by created"}),
            ),
            "without a condition",
        ),
        (
            request(
                "jira",
                "POST /search/jql",
                json!({"jql": "a = 1", "reconcileIssues": vec![1; 51]}),
            ),
            "51 items; the limit is 50",
        ),
        (
            request(
                "jira",
                "POST /issue/1/comment",
                json!({"body": "plain text"}),
            ),
            "Comment body is not valid",
        ),
        (
            request(
                "jira",
                "POST /issue/1/comment",
                document(json!([{"type": "table"}])),
            ),
            "body.body: ",
        ),
        (
            request(
                "jira",
                "PUT /issue/1",
                json!({"fields": {"status": "Done"}}),
            ),
            "body.fields.status: has the wrong type",
        ),
        (
            request("fly", "POST /v1/apps/a/machines", fly_machine(3, 1_024)),
            "are not offered",
        ),
        (
            request(
                "fly",
                "POST /v1/apps/a/machines",
                json!({"config": {"image": "x", "restart": {"policy": "never"}}}),
            ),
            "never is not one of",
        ),
        (
            request(
                "docker",
                "POST /containers/create?name=x1",
                json!({"Image": "x", "HostConfig": {"ReadOnlyRootfs": true}}),
            ),
            "ReadOnlyRootfs: unknown",
        ),
        (
            request("docker", "POST /containers/create?name=-x", container()),
            "not a name of a container",
        ),
        (
            request(
                "docker",
                "POST /containers/create?name=x1",
                json!({"Image": "x", "Env": ["A"]}),
            ),
            "not NAME=value",
        ),
        (
            request(
                "docker",
                "GET /containers/json?filters=%7Blabel%7D",
                Value::Null,
            ),
            "query.filters: has the wrong type",
        ),
        (
            request("chat", "POST /services/x", json!({"blocks": "none"})),
            "body.text: missing",
        ),
        (
            request("chat", "POST /services/x", slack(&nodes(3_001))),
            "the limit is 3000",
        ),
        (
            request("chat", "POST /workflows/x", json!({"text": "hello"})),
            "body.attachments: missing",
        ),
        (
            request(
                "chat",
                "POST /workflows/x",
                teams(json!({"type": "Input.Text"})),
            ),
            "Input.Text is not one of",
        ),
        (
            request(
                "chat",
                "POST /workflows/x",
                teams(json!({"type": "TextBlock", "text": nodes(30_000)})),
            ),
            "the limit of Teams",
        ),
        // GraphQL.
        (
            linear("query { issues(first: 1) { nodes { colour } } }", json!({})),
            "colour",
        ),
        (
            linear("query { issues { nodes { id } } }", json!({})),
            "issues: no page size",
        ),
        (
            linear("query { issues(first: 251) { nodes { id } } }", json!({})),
            "a page size of 251",
        ),
        (
            linear(
                "query { issues(first: 250) { nodes { labels(first: 50) { nodes { name } } } } }",
                json!({}),
            ),
            "the limit is 10000",
        ),
        (
            linear("query { viewer { name } }", json!({"extra": 1})),
            "variable extra is not declared",
        ),
        (
            request("linear", "POST /graphql", json!({"queries": "x"})),
            "body.query: missing",
        ),
        (
            github_graphql("query($id: ID!) { nothing(id: $id) }"),
            "nothing",
        ),
        (
            github_graphql(
                "query($id: ID!) { node(id: $id) { ... on PullRequest { comments(first: 101) { nodes { body } } } } }",
            ),
            "a page size of 101",
        ),
    ];
    for (request, expected) in cases {
        let violations = request.contract_violations();
        let is_found = violations
            .iter()
            .any(|violation| violation.contains(expected));
        assert!(
            is_found,
            "{expected}: {violations:?}\n{} {}",
            request.method, request.url
        );
    }
}

#[test]
fn reports_wrong_headers() {
    let cases = [
        (
            "github",
            "GET /app",
            "authorization",
            "Bearer [redacted]",
            "take its JWT",
        ),
        (
            "github",
            "GET /repos/o/r",
            "authorization",
            "Bearer eyJa.b.c",
            "take its JWT",
        ),
        (
            "github",
            "GET /repos/o/r",
            "authorization",
            "token [redacted]",
            "bearer token",
        ),
        (
            "github",
            "GET /repos/o/r",
            "accept",
            "*/*",
            "headers: Accept",
        ),
        (
            "github",
            "GET /repos/o/r",
            "x-github-api-version",
            "2020-01-01",
            "X-GitHub-Api-Version",
        ),
        ("github", "GET /repos/o/r", "user-agent", "", "User-Agent"),
        (
            "jira",
            "GET /myself",
            "authorization",
            "[redacted]",
            "Basic or Bearer",
        ),
        (
            "jira",
            "GET /myself",
            "accept",
            "text/html",
            "headers: Accept",
        ),
        (
            "fly",
            "GET /v1/apps/a/machines",
            "authorization",
            "",
            "Bearer or FlyV1",
        ),
        (
            "linear",
            "POST /graphql",
            "authorization",
            "Basic [redacted]",
            "personal key",
        ),
        (
            "linear",
            "POST /graphql",
            "content-type",
            "text/plain",
            "Content-Type",
        ),
        (
            "docker",
            "POST /containers/create?name=x1",
            "content-type",
            "",
            "Content-Type",
        ),
        (
            "chat",
            "POST /services/x",
            "content-type",
            "",
            "Content-Type",
        ),
    ];
    for (vendor, call, header, value, expected) in cases {
        let body = match vendor {
            "linear" => json!({"query": "query { viewer { name } }"}),
            "docker" => container(),
            "chat" => slack("a"),
            _ => Value::Null,
        };
        let mut request = request(vendor, call, body);
        request.headers.insert(header.to_owned(), value.into());
        let violations = request.contract_violations();
        let is_found = violations
            .iter()
            .any(|violation| violation.contains(expected));
        assert!(is_found, "{vendor} {header} {value}: {violations:?}");
    }
}

#[test]
fn lists_violations_and_calls_that_were_not_made() {
    let log = RequestLog::default();
    let all = log.missing_calls();
    for call in [
        "github GET /app",
        "linear query issues",
        "jira GET /myself",
        "docker DELETE /containers/*",
    ] {
        assert!(all.contains(call), "{call} {all:?}");
    }
    log.add(request("jira", "GET /myself", Value::Null));
    log.add(linear(
        "query { viewer { name } }",
        Value::Object(Map::new()),
    ));
    let missing = log.missing_calls();
    assert_eq!(all.len() - missing.len(), 2);
    assert_eq!(log.contract_violations(), [""; 0]);
    log.add(request("github", "GET /repos/o/r?page=1", Value::Null));
    let expected = "github GET https://api.github.com/repos/o/r?page=1: query.page: unknown";
    assert_eq!(log.contract_violations(), [expected]);
}
