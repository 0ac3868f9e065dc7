//! Signing in, staying signed in for a day, and what strangers are told.

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
async fn a_sign_in_is_judged_by_its_body_and_its_code() {
    let server = ApiServer::start().await;
    for body in ["", "{", "[]", "{}", r#"{"code":7}"#, "null"] {
        let told = server.send("POST", AUTH, "", body.to_owned()).await;
        assert_eq!(told.error(), (400, "Invalid request body"), "{body}");
    }
    for wrong in ["", "open", "Open sesame, please"] {
        let told = server.send("POST", AUTH, "", code(wrong)).await;
        assert_eq!(told.error(), (403, "Invalid access code"));
    }
    let told = server.send("POST", AUTH, "", code(ACCESS_CODE)).await;
    assert_eq!(told.status, 200);
    assert!(told.body["token"].as_str().unwrap().len() >= 40);
    assert_eq!(told.body["expiresAt"], "2027-01-16T08:00:00.000Z");
    assert_eq!(told.body.as_object().unwrap().len(), 2);
}

#[tokio::test]
async fn a_token_is_good_for_a_day_or_until_its_owner_leaves() {
    let server = ApiServer::start().await;
    let (one, two) = (server.sign_in().await, server.sign_in().await);
    for token in [&one, &two] {
        assert_eq!(server.send("GET", MAPPINGS, token, None).await.status, 200);
    }
    let told = server.send("POST", "/api/auth/logout", &one, None).await;
    assert_eq!((told.status, told.body), (200, json!({"loggedOut": true})));
    let told = server.send("GET", MAPPINGS, &one, None).await;
    assert_eq!(told.error(), (401, "Unauthorized"));
    assert_eq!(told.header("www-authenticate"), "Bearer");

    server.clock.advance(Duration::from_secs(24 * 3600 - 1));
    assert_eq!(server.send("GET", MAPPINGS, &two, None).await.status, 200);
    server.clock.advance(Duration::from_secs(1));
    let told = server.send("GET", MAPPINGS, &two, None).await;
    assert_eq!(told.error(), (401, "Unauthorized"));
}

#[tokio::test]
async fn a_new_access_code_signs_everybody_out() {
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
            let told = server.send("GET", path, &token, None).await;
            assert_eq!(told.status, status, "{path} with {code:?}");
        }
        server.stop().await.unwrap();
    }
}

#[tokio::test]
async fn every_admin_route_is_closed_to_strangers_before_its_body_is_read() {
    let server = ApiServer::start().await;
    let run = dispatched_job("01JOB", JobKind::Planning);
    let run_token = server.run_token(&run, TokenAudience::Progress);
    let routes = [
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
            let told = server.send(method, path, token, "{".to_owned()).await;
            assert_eq!(told.error(), (401, "Unauthorized"), "{method} {path}");
        }
        let basic = server
            .request(method, path)
            .basic_auth("admin", Some(ACCESS_CODE));
        assert_eq!(send_checked(basic).await.error(), (401, "Unauthorized"));
    }
}

#[tokio::test]
async fn guessing_is_slowed_down_by_address() {
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
        let told = from("203.0.113.1", "wrong").await;
        assert_eq!(told.error(), (403, "Invalid access code"));
    }
    server.clock.advance(Duration::from_secs(20));
    let told = from("203.0.113.1", ACCESS_CODE).await;
    assert_eq!(told.status, 429);
    assert_eq!(told.header("retry-after"), "40");
    assert_eq!(from("203.0.113.2", ACCESS_CODE).await.status, 200);
    server.clock.advance(Duration::from_secs(40));
    assert_eq!(from("203.0.113.1", ACCESS_CODE).await.status, 200);
}

#[tokio::test]
async fn a_hundred_guesses_at_once_are_five() {
    let server = ApiServer::start().await;
    let guesses = (0..100).map(|_| server.send("POST", AUTH, "", code("wrong")));
    let told = futures_util::future::join_all(guesses).await;
    let count = |status| told.iter().filter(|told| told.status == status).count();
    assert_eq!((count(403), count(429)), (5, 95));
}

#[tokio::test]
async fn without_an_access_code_there_is_no_admin_api() {
    let server = ApiServer::start_with(&ALL_FEATURES[2..], Store::in_memory().unwrap()).await;
    for (method, path) in [
        ("POST", AUTH),
        ("GET", MAPPINGS),
        ("PUT", MAPPINGS),
        ("GET", "/api/log"),
        ("POST", "/api/poll"),
    ] {
        let told = server.send(method, path, "", code(ACCESS_CODE)).await;
        assert_eq!(told.error(), (404, "Not found"), "{method} {path}");
    }
    let told = server.send("POST", "/runner/result", "", None).await;
    assert_eq!(told.error(), (401, "missing_bearer"));
    let told = server.send("POST", "/api/token", "", "{}".to_owned()).await;
    assert_eq!(told.error(), (400, "nonce and owner are required"));
    assert_eq!(server.send("GET", "/", "", None).await.status, 200);
}

#[tokio::test]
async fn a_repository_token_goes_to_runs_of_that_owner_only() {
    let server = ApiServer::start().await;
    let active = dispatched_job("01A", JobKind::Implementation);
    let mut ended = dispatched_job("01B", JobKind::Implementation);
    ended.state = JobState::Completed;
    let unknown = dispatched_job("01C", JobKind::Implementation);
    server.put_job(&active).await;
    server.put_job(&ended).await;
    let of = |job| server.run_token(job, TokenAudience::Progress);
    let (active_token, ended_token, unknown_token) = (of(&active), of(&ended), of(&unknown));
    let wrong = server.run_token(&active, TokenAudience::Result);
    let (required, unknown_nonce) = ("nonce and owner are required", "Invalid or expired nonce");
    let rows = [
        // With a nonce, as sessions ask.
        ("", "{", (500, "Failed to generate token")),
        ("", "", (500, "Failed to generate token")),
        ("", "{}", (400, required)),
        ("", r#"{"owner":"acme"}"#, (400, required)),
        ("", r#"{"nonce":"n"}"#, (400, required)),
        ("", r#"{"nonce":"","owner":"acme"}"#, (400, required)),
        ("", r#"{"nonce":"n","owner":"acme"}"#, (403, unknown_nonce)),
        // With a progress token, as CI runs ask.
        ("nonsense", r#"{"owner":"acme"}"#, (401, "malformed")),
        (&wrong, r#"{"owner":"acme"}"#, (401, "wrong_audience")),
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
    for (token, body, fault) in rows {
        let told = server
            .send("POST", "/api/token", token, body.to_owned())
            .await;
        assert_eq!(told.error(), fault, "{body}");
    }
    let basic = server
        .request("POST", "/api/token")
        .basic_auth("x", Some("y"));
    assert_eq!(send_checked(basic).await.error(), (401, "missing_bearer"));
}
