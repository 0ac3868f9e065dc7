//! Tests of the GitHub client against a stub server.

mod auth;
mod pull_requests;
mod workflow_runs;

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
        test_client("GitHub"),
        &server.url,
        ScmCredentials::Token(token),
    )
}

fn with_app(server: &TestServer) -> GitHub {
    let key = AppKey::from_pem(&test_support::app_key()).unwrap();
    let id = "42".to_owned();
    GitHub::new(
        test_client("GitHub"),
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

fn installation_of(id: u64, owner: &str) -> StubReply {
    StubReply::json(200, &json!({"id": id, "account": {"login": owner}}))
}

/// Responds to the requests of the App's authentication and passes all others to `respond`.
fn installed(
    request: &RecordedRequest,
    expires: &str,
    respond: impl FnOnce(&RecordedRequest) -> StubReply,
) -> StubReply {
    match request.path.as_str() {
        "/repos/o/r/installation" => installation_of(7, "O"),
        // A repository that was transferred. GitHub redirects requests about its former name.
        "/repos/o/moved/installation" => installation_of(8, "new-owner"),
        "/app/installations/8/access_tokens" => {
            StubReply::json(201, &json!({"token": "ghs_2", "expires_at": expires}))
        }
        "/app/installations/7/access_tokens" => {
            StubReply::json(201, &json!({"token": "ghs_1_a.b-c", "expires_at": expires}))
        }
        _ => respond(request),
    }
}
