//! Sign-in, admin tokens, and responses to requests without a valid token.

use std::time::Duration;

use domain::crypto::run_token::TokenAudience;
use domain::job::{JobKind, JobState};
use serde_json::json;
use store::Store;

use crate::api_server::{ACCESS_CODE, ALL_FEATURES, ApiServer, dispatched_job, send_checked};

const AUTH: &str = "/api/auth";
const MAPPINGS: &str = "/api/mappings";

fn code(code: &str) -> String {
    json!({"code": code}).to_string()
}

#[tokio::test]
async fn sign_in_checks_the_body_and_the_access_code() {
    let server = ApiServer::start().await;
    for body in ["", "{", "[]", "{}", r#"{"code":7}"#, "null"] {
        let response = server.send("POST", AUTH, "", body.to_owned()).await;
        assert_eq!(response.error(), (400, "Invalid request body"), "{body}");
    }
    for wrong in ["", "open", "Open sesame, please"] {
        let response = server.send("POST", AUTH, "", code(wrong)).await;
        assert_eq!(response.error(), (403, "Invalid access code"));
    }
    let response = server.send("POST", AUTH, "", code(ACCESS_CODE)).await;
    assert_eq!(response.status, 200);
    assert!(response.body["token"].as_str().unwrap().len() >= 40);
    assert_eq!(response.body["expiresAt"], "2027-01-16T08:00:00.000Z");
    assert_eq!(response.body.as_object().unwrap().len(), 2);
}

#[tokio::test]
async fn token_is_valid_for_a_day_or_until_sign_out() {
    let server = ApiServer::start().await;
    let (first, second) = (server.sign_in().await, server.sign_in().await);
    for token in [&first, &second] {
        assert_eq!(server.send("GET", MAPPINGS, token, None).await.status, 200);
    }
    let response = server.send("POST", "/api/auth/logout", &first, None).await;
    assert_eq!(
        (response.status, response.body),
        (200, json!({"loggedOut": true}))
    );
    let response = server.send("GET", MAPPINGS, &first, None).await;
    assert_eq!(response.error(), (401, "Unauthorized"));
    assert_eq!(response.header("www-authenticate"), "Bearer");

    server.clock.advance(Duration::from_secs(24 * 3600 - 1));
    assert_eq!(
        server.send("GET", MAPPINGS, &second, None).await.status,
        200
    );
    server.clock.advance(Duration::from_secs(1));
    let response = server.send("GET", MAPPINGS, &second, None).await;
    assert_eq!(response.error(), (401, "Unauthorized"));
}

#[tokio::test]
async fn new_access_code_invalidates_all_tokens() {
    let store = Store::in_memory().unwrap();
    let server = ApiServer::start_with(ALL_FEATURES, store.clone()).await;
    let token = server.sign_in().await;
    server.stop().await.unwrap();
    let mut flags = ALL_FEATURES.to_vec();
    for (code, status) in [
        (ACCESS_CODE, 200),
        ("another code", 401),
        (ACCESS_CODE, 200),
    ] {
        flags[1] = code;
        let server = ApiServer::start_with(&flags, store.clone()).await;
        for path in [MAPPINGS, "/api/audit"] {
            let response = server.send("GET", path, &token, None).await;
            assert_eq!(response.status, status, "{path} with {code:?}");
        }
        server.stop().await.unwrap();
    }
}

#[tokio::test]
async fn admin_routes_reject_unauthenticated_requests_before_reading_the_body() {
    let server = ApiServer::start().await;
    let run = dispatched_job("01JOB", JobKind::Planning);
    let run_token = server.run_token(&run, TokenAudience::Progress);
    let routes = [
        ("GET", "/api/auth"),
        ("POST", "/api/auth/logout"),
        ("GET", "/api/mappings"),
        ("POST", "/api/mappings"),
        ("PATCH", "/api/mappings/ENG"),
        ("DELETE", "/api/mappings/ENG"),
        ("GET", "/api/log"),
        ("GET", "/api/jobs/01JOB"),
        ("GET", "/api/jobs/01JOB/steps"),
        ("GET", "/api/dedup"),
        ("DELETE", "/api/dedup/issue-1"),
        ("GET", "/api/why/ENG-1"),
        ("GET", "/api/parked"),
        ("GET", "/api/outbox"),
        ("POST", "/api/outbox/1/retry"),
        ("DELETE", "/api/outbox/1"),
        ("POST", "/api/mappings/ENG/sync-workflows"),
        ("GET", "/api/admin/template-status"),
        ("GET", "/api/customizations"),
        ("GET", "/api/pipelines-steps"),
        ("POST", "/api/poll"),
        ("GET", "/api/audit"),
        ("GET", "/api/audit/verify"),
    ];
    for (method, path) in routes {
        for token in ["", "nonsense", &run_token] {
            let response = server.send(method, path, token, "{".to_owned()).await;
            assert_eq!(response.error(), (401, "Unauthorized"), "{method} {path}");
        }
        let basic = server
            .request(method, path)
            .basic_auth("admin", Some(ACCESS_CODE));
        assert_eq!(send_checked(basic).await.error(), (401, "Unauthorized"));
    }
}

#[tokio::test]
async fn failed_sign_ins_are_rate_limited_by_address() {
    let mut flags = ALL_FEATURES.to_vec();
    flags.extend(["--trusted-proxies", "127.0.0.1"]);
    let server = ApiServer::start_with(&flags, Store::in_memory().unwrap()).await;
    let from = |address: &str, sent: &str| {
        let request = server
            .request("POST", AUTH)
            .header("x-forwarded-for", address);
        send_checked(request.body(code(sent)))
    };
    for _ in 0..5 {
        let response = from("203.0.113.1", "wrong").await;
        assert_eq!(response.error(), (403, "Invalid access code"));
    }
    server.clock.advance(Duration::from_secs(20));
    let response = from("203.0.113.1", ACCESS_CODE).await;
    assert_eq!(response.status, 429);
    assert_eq!(response.header("retry-after"), "40");
    assert_eq!(from("203.0.113.2", ACCESS_CODE).await.status, 200);
    server.clock.advance(Duration::from_secs(40));
    assert_eq!(from("203.0.113.1", ACCESS_CODE).await.status, 200);
}

#[tokio::test]
async fn concurrent_sign_ins_count_towards_the_limit() {
    let server = ApiServer::start().await;
    let guesses = (0..100).map(|_| server.send("POST", AUTH, "", code("wrong")));
    let responses = futures_util::future::join_all(guesses).await;
    let count = |status| {
        let matching = responses
            .iter()
            .filter(|response| response.status == status);
        matching.count()
    };
    assert_eq!((count(403), count(429)), (5, 95));
}

#[tokio::test]
async fn admin_api_is_disabled_without_an_access_code() {
    let server = ApiServer::start_with(&ALL_FEATURES[2..], Store::in_memory().unwrap()).await;
    for (method, path) in [
        ("POST", AUTH),
        ("GET", MAPPINGS),
        ("PUT", MAPPINGS),
        ("GET", "/api/log"),
        ("POST", "/api/poll"),
    ] {
        let response = server.send(method, path, "", code(ACCESS_CODE)).await;
        assert_eq!(response.error(), (404, "Not found"), "{method} {path}");
    }
    let response = server.send("POST", "/runner/result", "", None).await;
    assert_eq!(response.error(), (401, "missing_bearer"));
    let response = server.send("POST", "/api/token", "", "{}".to_owned()).await;
    assert_eq!(response.error(), (400, "nonce and owner are required"));
    assert_eq!(server.send("GET", "/", "", None).await.status, 200);
}

#[tokio::test]
async fn repository_token_is_issued_only_to_runs_of_that_owner() {
    let server = ApiServer::start().await;
    let active = dispatched_job("01A", JobKind::Implementation);
    let mut ended = dispatched_job("01B", JobKind::Implementation);
    ended.state = JobState::Completed;
    let unknown = dispatched_job("01C", JobKind::Implementation);
    server.put_job(&active).await;
    server.put_job(&ended).await;
    let progress_token = |job| server.run_token(job, TokenAudience::Progress);
    let (active_token, ended_token, unknown_token) = (
        progress_token(&active),
        progress_token(&ended),
        progress_token(&unknown),
    );
    let result_token = server.run_token(&active, TokenAudience::Result);
    let (required, unknown_nonce) = ("nonce and owner are required", "Invalid or expired nonce");
    let rows = [
        // With a nonce, as session machines send it.
        ("", "{", (500, "Failed to generate token")),
        ("", "", (500, "Failed to generate token")),
        ("", "{}", (400, required)),
        ("", r#"{"owner":"acme"}"#, (400, required)),
        ("", r#"{"nonce":"n"}"#, (400, required)),
        ("", r#"{"nonce":"","owner":"acme"}"#, (400, required)),
        ("", r#"{"nonce":"n","owner":"acme"}"#, (403, unknown_nonce)),
        // With a progress token, as CI runs send it.
        ("nonsense", r#"{"owner":"acme"}"#, (401, "malformed")),
        (
            &result_token,
            r#"{"owner":"acme"}"#,
            (401, "wrong_audience"),
        ),
        (&active_token, "{", (500, "Failed to generate token")),
        (&active_token, "{}", (400, required)),
        (
            &active_token,
            r#"{"owner":"evil"}"#,
            (403, "Owner mismatch"),
        ),
        (&ended_token, r#"{"owner":"acme"}"#, (403, unknown_nonce)),
        (&unknown_token, r#"{"owner":"acme"}"#, (403, unknown_nonce)),
        (
            &active_token,
            r#"{"nonce":"n","owner":"acme"}"#,
            (403, unknown_nonce),
        ),
        // No repository host is configured here.
        (
            &active_token,
            r#"{"owner":"ACME"}"#,
            (500, "Failed to generate token"),
        ),
    ];
    for (token, body, error) in rows {
        let response = server
            .send("POST", "/api/token", token, body.to_owned())
            .await;
        assert_eq!(response.error(), error, "{body}");
    }
    let basic = server
        .request("POST", "/api/token")
        .basic_auth("x", Some("y"));
    assert_eq!(send_checked(basic).await.error(), (401, "missing_bearer"));
}
