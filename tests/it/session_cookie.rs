//! Session cookie of the panel: where it counts, and which requests with it are refused.

use std::time::Duration;

use domain::crypto::run_token::TokenAudience;
use domain::job::JobKind;
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use store::Store;

use crate::api_server::{
    ACCESS_CODE, ALL_FEATURES, ApiResponse, ApiServer, dispatched_job, send_checked,
};
use crate::process::{ServiceProcess, client_builder};

const AUTH: &str = "/api/auth";
const LOGOUT: &str = "/api/auth/logout";
const MAPPINGS: &str = "/api/mappings";
const REFUSED: (u16, &str) = (403, "Cross-site request refused");
const UNAUTHORIZED: (u16, &str) = (401, "Unauthorized");

fn mapping() -> String {
    json!({"teamKey": "ENG", "owner": "acme", "repo": "shop", "defaultBranch": "main"}).to_string()
}

fn named(token: &str) -> String {
    format!("agent_implement_session={token}")
}

impl ApiServer {
    /// Sends a request with this `Cookie` header and these other headers.
    async fn send_with(
        &self,
        method: &str,
        path: &str,
        cookie: &str,
        headers: &[(&str, &str)],
    ) -> ApiResponse {
        let mut request = self.request(method, path).header("cookie", cookie);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if path == MAPPINGS && method == "POST" {
            request = request.body(mapping());
        }
        send_checked(request).await
    }

    /// Signs in with these headers and returns the `Set-Cookie` header.
    async fn sign_in_cookie(&self, headers: &[(&str, &str)]) -> String {
        let mut request = self.request("POST", AUTH);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body = json!({"code": ACCESS_CODE}).to_string();
        let response = send_checked(request.body(body)).await;
        assert_eq!(response.status, 200);
        response.header("set-cookie").to_owned()
    }
}

const FROM_PANEL: [(&str, &str); 2] = [
    ("x-requested-with", "agent-implement"),
    ("sec-fetch-site", "same-origin"),
];

#[tokio::test]
async fn sign_in_sets_a_cookie_that_scripts_and_other_sites_cannot_use() {
    let server = ApiServer::start().await;
    let body = json!({"code": ACCESS_CODE}).to_string();
    let response = server.send("POST", AUTH, "", body).await;
    let token = response.body["token"].as_str().unwrap();
    assert_eq!(
        response.header("set-cookie"),
        format!(
            "agent_implement_session={token}; Path=/; Max-Age=86400; HttpOnly; SameSite=Strict"
        )
    );
    let wrong = json!({"code": "wrong"}).to_string();
    let refused = server.send("POST", AUTH, "", wrong).await;
    assert_eq!((refused.status, refused.header("set-cookie")), (403, ""));
    // Attempts of other sites do not count as those of the operator, whose address they come from.
    for site in ["cross-site", "same-site", "none"]
        .into_iter()
        .cycle()
        .take(30)
    {
        let read = [("sec-fetch-site", site), ("content-type", "text/plain")];
        let response = server.send_with("POST", AUTH, "", &read).await;
        assert_eq!(response.error(), REFUSED, "{site}");
    }
    let again = json!({"code": ACCESS_CODE}).to_string();
    assert_eq!(server.send("POST", AUTH, "", again).await.status, 200);
    server.stop().await.unwrap();
}

#[tokio::test]
async fn the_cookie_counts_wherever_the_token_does() {
    let server = ApiServer::start().await;
    let cookie = named(&server.sign_in().await);
    let session = server.send_with("GET", AUTH, &cookie, &[]).await;
    let expected = json!({"signedIn": true, "expiresAt": "2027-01-16T08:00:00.000Z"});
    assert_eq!((session.status, session.body), (200, expected));
    assert_eq!(
        server.send("GET", AUTH, "", None).await.error(),
        UNAUTHORIZED
    );

    let saved = server
        .send_with("POST", MAPPINGS, &cookie, &FROM_PANEL)
        .await;
    assert_eq!(saved.status, 200, "{saved:?}");
    let head = server.send_with("HEAD", MAPPINGS, &cookie, &[]).await;
    assert_eq!(head.status, 200);
    // A download by a link of the panel.
    let path = "/api/jobs/NONE/patch";
    let download = server.send_with("GET", path, &cookie, &[]).await;
    assert_eq!(download.error(), (404, "job not found"));
    server.stop().await.unwrap();
}

#[tokio::test]
async fn an_event_stream_ends_with_the_session() {
    let server = ApiServer::start().await;
    let cookie = named(&server.sign_in().await);
    let stream = server
        .request("GET", "/api/events")
        .header("cookie", &cookie);
    let mut stream = stream.send().await.unwrap();
    assert_eq!(stream.status(), 200);
    assert!(stream.chunk().await.unwrap().is_some());
    let signed_out = server.send_with("POST", LOGOUT, &cookie, &FROM_PANEL).await;
    assert_eq!(signed_out.status, 200);
    while stream.chunk().await.unwrap().is_some() {}
    let again = server
        .request("GET", "/api/events")
        .header("cookie", &cookie);
    assert_eq!(send_checked(again).await.error(), UNAUTHORIZED);
    server.stop().await.unwrap();
}

#[tokio::test]
async fn sign_out_ends_the_session_of_all_tabs() {
    let server = ApiServer::start().await;
    let (token, other) = (server.sign_in().await, server.sign_in().await);
    let cookie = named(&token);
    let signed_out = server.send_with("POST", LOGOUT, &cookie, &FROM_PANEL).await;
    assert_eq!(signed_out.status, 200);
    assert_eq!(
        signed_out.header("set-cookie"),
        "agent_implement_session=; Path=/; Max-Age=0; HttpOnly; SameSite=Strict"
    );
    for (method, headers) in [("GET", &[][..]), ("POST", &FROM_PANEL)] {
        let response = server.send_with(method, MAPPINGS, &cookie, headers).await;
        assert_eq!(response.error(), UNAUTHORIZED, "{method}");
    }
    let bearer = server.send("GET", MAPPINGS, &token, None).await;
    assert_eq!(bearer.error(), UNAUTHORIZED);
    assert_eq!(server.send("GET", AUTH, &other, None).await.status, 200);

    server.clock.advance(Duration::from_secs(24 * 3600));
    let expired = server.send_with("GET", AUTH, &named(&other), &[]).await;
    assert_eq!(expired.error(), UNAUTHORIZED);
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_change_by_cookie_must_come_from_the_panel() {
    let server = ApiServer::start().await;
    let cookie = named(&server.sign_in().await);
    let own = FROM_PANEL[0];
    let refused: [&[(&str, &str)]; 8] = [
        &[],
        &[
            ("content-type", "text/plain"),
            ("origin", "https://evil.example"),
        ],
        &[("sec-fetch-site", "same-origin")],
        &[("x-requested-with", "XMLHttpRequest")],
        &[own, ("sec-fetch-site", "cross-site")],
        &[own, ("sec-fetch-site", "same-site")],
        &[own, ("sec-fetch-site", "none")],
        &[own, ("x-requested-with", "other")],
    ];
    let requests = [
        ("POST", MAPPINGS),
        ("PATCH", "/api/mappings/ENG"),
        ("DELETE", "/api/mappings/ENG"),
        ("POST", "/api/poll"),
        ("POST", LOGOUT),
    ];
    for headers in refused {
        for (method, path) in requests {
            let response = server.send_with(method, path, &cookie, headers).await;
            assert_eq!(response.error(), REFUSED, "{method} {path} {headers:?}");
        }
    }
    let listed = server.send_with("GET", MAPPINGS, &cookie, &[]).await;
    assert_eq!(listed.body, json!({}), "nothing was stored");
    // Reading from another origin: an export is recorded, and a list may ask a vendor.
    for site in ["cross-site", "same-site"] {
        for (method, path) in [
            ("GET", "/api/audit/export?format=csv"),
            ("HEAD", "/api/audit/export?format=csv"),
            ("GET", "/api/events"),
            ("GET", "/api/choices/teams?system=A"),
        ] {
            let read = [("sec-fetch-site", site)];
            let response = server.send_with(method, path, &cookie, &read).await;
            assert_eq!(response.status, 403, "{method} {path} {site}");
        }
    }
    let typed = [("sec-fetch-site", "none")];
    let listed = server.send_with("GET", MAPPINGS, &cookie, &typed).await;
    assert_eq!(listed.status, 200);
    // A preflight request gets no permission, so that other origins cannot send the header.
    let preflight = server.send_with(
        "OPTIONS",
        MAPPINGS,
        &cookie,
        &[("origin", "https://evil.example")],
    );
    let preflight = preflight.await;
    assert_eq!(preflight.status, 405);
    let allows = |name: &reqwest::header::HeaderName| name.as_str().starts_with("access-control");
    assert!(!preflight.headers.keys().any(allows));
    // The session still exists, and the panel may change something.
    for headers in [&FROM_PANEL[..], &FROM_PANEL[..1]] {
        let saved = server.send_with("POST", MAPPINGS, &cookie, headers).await;
        assert_eq!(saved.status, 200, "{saved:?}");
    }
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_bearer_token_counts_alone() {
    let server = ApiServer::start().await;
    let token = server.sign_in().await;
    let cookie = named(&token);
    let bearer = |value: &str| format!("Bearer {value}");
    // A program with a token needs no header of the panel, whatever cookies it sends.
    let valid = bearer(&token);
    for cookie in [cookie.as_str(), &named("expired")] {
        let headers = [("authorization", valid.as_str())];
        let saved = server.send_with("POST", MAPPINGS, cookie, &headers).await;
        assert_eq!(saved.status, 200, "{saved:?}");
    }
    let wrong = bearer("wrong");
    let headers = [FROM_PANEL[0], ("authorization", wrong.as_str())];
    let refused = server.send_with("POST", MAPPINGS, &cookie, &headers).await;
    assert_eq!(refused.error(), UNAUTHORIZED);
    // The password of a proxy in front of the service.
    let headers = [FROM_PANEL[0], ("authorization", "Basic eDp5")];
    let saved = server.send_with("POST", MAPPINGS, &cookie, &headers).await;
    assert_eq!(saved.status, 200, "{saved:?}");
    server.stop().await.unwrap();
}

#[tokio::test]
async fn other_cookies_of_the_name_neither_count_nor_hide_the_valid_one() {
    let server = ApiServer::start().await;
    let (token, ended) = (server.sign_in().await, server.sign_in().await);
    server.send("POST", LOGOUT, &ended, None).await;
    let valid = named(&token);
    let tossed = format!("{}; {valid}", named(&ended));
    for cookie in [&tossed, &format!("a=b; {valid}; {}", named("x"))] {
        assert_eq!(server.send_with("GET", AUTH, cookie, &[]).await.status, 200);
    }
    let two = server.request("GET", AUTH).header("cookie", named("x"));
    let two = send_checked(two.header("cookie", &valid)).await;
    assert_eq!(two.status, 200);
    for cookie in [
        named(&ended),
        named(""),
        named(&format!("\"{token}\"")),
        named(&token.to_lowercase()),
        named(&"x".repeat(8000)),
        format!("agent_implement_session{token}"),
        format!("x{valid}"),
        format!("session={token}"),
        "=;;=".to_owned(),
        format!("{}; {valid}", [named("x").as_str(); 50].join("; ")),
    ] {
        let response = server.send_with("GET", AUTH, &cookie, &[]).await;
        assert_eq!(response.error(), UNAUTHORIZED, "{cookie:.60}");
    }
    let request = server.request("GET", AUTH);
    let bytes = reqwest::header::HeaderValue::from_bytes(b"agent_implement_session=\xff").unwrap();
    let response = send_checked(request.header("cookie", bytes)).await;
    assert_eq!(response.error(), UNAUTHORIZED);
    server.stop().await.unwrap();
}

#[tokio::test]
async fn the_cookie_is_no_credential_for_runs_webhooks_and_triggers() {
    let flags = [
        "--scm-webhook-secret",
        "webhook secret",
        "--gap-fill-trigger-secret",
        "trigger secret",
    ];
    let flags = [ALL_FEATURES, &flags].concat();
    let server = ApiServer::start_with(&flags, Store::in_memory().unwrap()).await;
    let job = dispatched_job("01A", JobKind::Implementation);
    server.put_job(&job).await;
    let cookie = named(&server.sign_in().await);
    for (path, error) in [
        ("/runner/result", (401, "missing_bearer")),
        ("/runner/progress", (401, "missing_bearer")),
        ("/trigger/gap-fill", (401, "unauthorized")),
        ("/api/repo-host/webhook", (401, "Invalid signature")),
        ("/api/token", (500, "Failed to generate token")),
    ] {
        let response = server.send_with("POST", path, &cookie, &FROM_PANEL).await;
        assert_eq!(response.error(), error, "{path}");
    }
    // A run token in the cookie is no admin token.
    let run = named(&server.run_token(&job, TokenAudience::Progress));
    let response = server.send_with("GET", MAPPINGS, &run, &[]).await;
    assert_eq!(response.error(), UNAUTHORIZED);
    server.stop().await.unwrap();
}

/// Flags of the service, headers of the sign-in, and whether the cookie is `Secure`.
type SecureRow<'a> = (&'a [&'a str], &'a [(&'a str, &'a str)], bool);

#[tokio::test]
async fn the_cookie_is_secure_over_https() {
    let https = ("x-forwarded-proto", "https");
    let http_page = ("origin", "http://127.0.0.1:8080");
    let proxy = ["--trusted-proxies", "127.0.0.1"];
    let own = ["--runner-callback-base-url", "https://agents.example.com"];
    let rows: [SecureRow<'_>; 9] = [
        (&[], &[], false),
        (&[], &[https], false),
        (&proxy, &[https], true),
        (&proxy, &[("x-forwarded-proto", "https, http")], false),
        (
            &proxy,
            &[("x-forwarded-proto", "x\"; Domain=evil.example")],
            false,
        ),
        (&[], &[("origin", "https://agents.example.com")], true),
        (&own, &[], true),
        (&own, &[http_page], false),
        (&[], &[("origin", "null")], false),
    ];
    for (flags, headers, is_secure) in rows {
        let mut all = ALL_FEATURES[..4].to_vec();
        all.extend(flags);
        let server = ApiServer::start_with(&all, Store::in_memory().unwrap()).await;
        let cookie = server.sign_in_cookie(headers).await;
        assert_eq!(
            cookie.ends_with("; Secure"),
            is_secure,
            "{flags:?} {headers:?}"
        );
        assert!(!cookie.contains("Domain"), "{cookie}");
        assert_eq!(cookie.matches(';').count(), if is_secure { 5 } else { 4 });
        server.stop().await.unwrap();
    }
}

#[tokio::test]
async fn cookies_neither_help_nor_harm_on_the_control_socket() {
    let dir = tempfile::tempdir().unwrap();
    let service = ServiceProcess::start(dir.path(), &["--admin-access-code", ACCESS_CODE]);
    let socket = client_builder().unix_socket(dir.path().join("control.sock"));
    let socket = socket.build().unwrap();
    let on_socket = |method: Method, path: &str| {
        let request = socket.request(method, format!("http://control{path}"));
        request
            .header("cookie", named("nonsense"))
            .header("sec-fetch-site", "cross-site")
    };
    let sent = |request: RequestBuilder| async {
        let response = request.send().await.unwrap();
        (
            response.status().as_u16(),
            response.json::<Value>().await.unwrap(),
        )
    };
    let saved = sent(on_socket(Method::POST, MAPPINGS).body(mapping())).await;
    assert_eq!(saved.0, 200, "{saved:?}");
    let session = sent(on_socket(Method::GET, AUTH)).await;
    assert_eq!(session, (200, json!({"signedIn": true, "expiresAt": null})));
    let signed_out = sent(on_socket(Method::POST, LOGOUT)).await;
    assert_eq!(signed_out, (200, json!({"loggedOut": true})));
    // On the network, the mark of the socket cannot be claimed by a cookie.
    let network = client_builder().build().unwrap();
    let claimed = network.get(format!("{}{MAPPINGS}", service.address));
    let claimed = sent(claimed.header("cookie", named("owner"))).await;
    assert_eq!(claimed.0, 401);
    assert_eq!(service.stop(), 0);
}
