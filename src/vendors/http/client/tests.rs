use super::super::rate_limit::LONGEST_PAUSE;
use super::super::test_client;
use super::*;
use serde_json::json;
use test_support::{StubReply, TestServer};

const ACTION: &str = "testing";

#[tokio::test]
async fn retries_safe_calls_only() {
    let server = TestServer::start(|_, before| match before {
        0 => StubReply::Disconnect,
        1 => StubReply::json(503, &json!({})),
        _ => StubReply::json(200, &json!({"ok": true})),
    })
    .await;
    let client = test_client("GitHub");
    let response = client.send(&Request::get(ACTION, &server.url)).await;
    assert_eq!(
        response.unwrap().json::<serde_json::Value>().unwrap()["ok"],
        true
    );
    assert_eq!(server.requests().len(), 3);

    let server = TestServer::start(|_, _| StubReply::Disconnect).await;
    let request = Request::new(ACTION, Method::POST, &server.url).json(&json!({}));
    let error = client.send(&request).await.err().unwrap();
    assert!(error.is_ambiguous() && !error.is_permanent(), "{error}");
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn sends_no_request_to_a_limited_account() {
    let server = TestServer::start(|request, _| match request.path.as_str() {
        "/other" => StubReply::json(200, &json!({})),
        _ => StubReply::json(429, &json!({})).header("retry-after", 60),
    })
    .await;
    let client = test_client("GitHub");
    let request = Request::get(ACTION, &server.url).account("a");
    for _ in 0..3 {
        let error = client.send(&request).await.err().unwrap();
        let wait = error.retry_after().unwrap();
        assert!(error.is_rate_limited() && !error.is_ambiguous());
        assert!(wait > Duration::from_secs(55) && wait <= Duration::from_secs(60));
    }
    let other = Request::get(ACTION, format!("{}/other", server.url)).account("b");
    client.send(&other).await.unwrap();
    assert_eq!(server.requests().len(), 2);
    assert!(client.quota().limited_until.is_some());
}

#[tokio::test]
async fn caps_the_requested_delay() {
    for delay in ["1795222800", "1e300", "Tue, 01 Jan 2999 00:00:00 GMT"] {
        for status in [503, 429] {
            let server = TestServer::start(move |_, _| {
                StubReply::json(status, &json!({})).header("retry-after", delay)
            })
            .await;
            let request = Request::get(ACTION, &server.url);
            let error = test_client("GitHub").send(&request).await.err().unwrap();
            let wait = error.retry_after().unwrap();
            let min = LONGEST_PAUSE - Duration::from_secs(5);
            assert!(
                wait > min && wait <= LONGEST_PAUSE,
                "{status}, {delay}: {wait:?}"
            );
        }
    }
}

#[tokio::test]
async fn distinguishes_timeouts_from_connect_errors() {
    test_support::install_tls();
    let timeouts = Timeouts {
        total: Duration::from_millis(300),
        connect: Duration::from_millis(200),
    };
    let client = Client::with_timeouts("GitHub", Redactor::default(), timeouts).unwrap();
    let server = TestServer::start(|_, _| StubReply::NoResponse).await;
    let silent = client.send(&Request::get(ACTION, &server.url)).await;
    assert_eq!(silent.err().unwrap().kind, VendorErrorKind::Timeout);

    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}/token-in-path", closed.local_addr().unwrap());
    drop(closed);
    let request = Request::new(ACTION, Method::POST, address);
    let error = client.send(&request).await.err().unwrap();
    assert!(matches!(error.kind, VendorErrorKind::Connect(_)), "{error}");
    assert!(!error.is_ambiguous() && !error.to_string().contains("token-in-path"));
}

#[tokio::test]
async fn redacts_secrets_in_errors() {
    let server = TestServer::start(|request, _| match request.path.as_str() {
        "/decode" => StubReply::json(200, &json!({"id": "top-secret-value"})),
        _ => StubReply::json(
            422,
            &json!({
                "message": "Validation Failed: top-secret-value",
                "errors": [{"message": "bad ghs_0123456789abcdefghijklmn"}, {"code": "custom"}],
            }),
        ),
    })
    .await;
    let client = test_client("GitHub");
    let request = Request::get(ACTION, &server.url);
    let error = client.send(&request).await.err().unwrap();
    assert_eq!(
        error.to_string(),
        "testing: GitHub answered 422: Validation Failed: [redacted]; bad [redacted]; custom"
    );
    let request = Request::get(ACTION, format!("{}/decode", server.url));
    #[derive(serde::Deserialize, Debug)]
    struct Id {
        #[expect(dead_code, reason = "never read: the value is not a number")]
        id: u64,
    }
    let error = client
        .send(&request)
        .await
        .unwrap()
        .json::<Id>()
        .unwrap_err();
    assert!(!error.to_string().contains("top-secret"), "{error}");
}

#[tokio::test]
async fn keeps_credentials_on_redirects_within_the_host_only() {
    let elsewhere = TestServer::start(|_, _| StubReply::json(200, &json!({}))).await;
    let target = format!("{}/there", elsewhere.url);
    let server = TestServer::start(move |request, _| match request.path.as_str() {
        "/away" => StubReply::json(302, &json!({})).header("location", &target),
        "/near" => StubReply::json(307, &json!({})).header("location", "/here"),
        _ => StubReply::json(200, &json!({})),
    })
    .await;
    let client = test_client("GitHub");
    let request_to = |path: &str| Request::get(ACTION, format!("{}{path}", server.url)).bearer("t");
    client.send(&request_to("/away")).await.unwrap();
    assert_eq!(elsewhere.requests()[0].header("authorization"), None);
    client.send(&request_to("/near")).await.unwrap();
    client
        .send(&request_to("/near").redirect_without_authorization())
        .await
        .unwrap();
    let here: Vec<_> = server
        .requests()
        .into_iter()
        .filter(|request| request.path == "/here")
        .map(|request| request.header("authorization").map(str::to_owned))
        .collect();
    assert_eq!(here, [Some("Bearer t".to_owned()), None]);

    let post = Request::new(ACTION, Method::POST, format!("{}/away", server.url)).json(&json!({}));
    assert_eq!(client.send(&post).await.err().unwrap().status(), Some(302));
    assert_eq!(elsewhere.requests().len(), 1);
}

#[tokio::test]
async fn rejects_a_body_over_the_limit() {
    let server = TestServer::start(|_, _| StubReply::Response(200, vec![], "x".repeat(2000))).await;
    let request = Request::get(ACTION, &server.url).max_body(1000);
    let error = test_client("GitHub").send(&request).await.err().unwrap();
    assert!(matches!(error.kind, VendorErrorKind::Decode(_)), "{error}");
}

#[tokio::test]
async fn uses_the_proxy_of_the_scheme() {
    test_support::install_tls();
    let proxy = TestServer::start(|request, _| match request.method.as_str() {
        "CONNECT" => StubReply::json(403, &json!({"message": "denied"})),
        _ => StubReply::json(200, &json!({"by": "proxy"})),
    })
    .await;
    let address = proxy.url.replace("http://", "http://us:proxy-word@");
    let proxies = Proxies::new(Some(&address), Some(&address), "kept.invalid").unwrap();
    let client = Client::with_proxies(&proxies, "GitHub", Redactor::default()).unwrap();

    let plain = Request::get(ACTION, "http://vendor.invalid/plain");
    let response: serde_json::Value = client.send(&plain).await.unwrap().json().unwrap();
    assert_eq!(response, json!({"by": "proxy"}));

    let refused = Request::new(ACTION, Method::POST, "https://vendor.invalid/secret");
    let error = client.send(&refused).await.err().unwrap().to_string();
    assert!(!error.contains("proxy-word"), "{error}");

    // Loopback addresses and bypassed hosts are connected directly.
    let local = TestServer::start(|_, _| StubReply::json(200, &json!({"by": "itself"}))).await;
    let response = client
        .send(&Request::get(ACTION, &local.url))
        .await
        .unwrap();
    let response: serde_json::Value = response.json().unwrap();
    assert_eq!(response, json!({"by": "itself"}));
    let bypassed = Request::new(ACTION, Method::POST, "http://kept.invalid/");
    assert!(client.send(&bypassed).await.is_err());

    let requests: Vec<_> = proxy.requests();
    let seen = requests
        .iter()
        .map(|request| (request.method.as_str(), request.path.as_str()));
    let expected = [
        ("GET", "http://vendor.invalid/plain"),
        ("CONNECT", "vendor.invalid:443"),
    ];
    assert_eq!(seen.collect::<Vec<_>>(), expected);
    for request in &requests {
        let credentials = data_encoding::BASE64.encode(b"us:proxy-word");
        let sent = request.header("proxy-authorization");
        assert_eq!(sent, Some(format!("Basic {credentials}").as_str()));
    }
}

#[tokio::test]
async fn rejects_an_invalid_proxy_address_without_its_password() {
    let error = Proxies::new(Some("http://us:proxy-word@[bad"), None, "");
    let error = error.err().unwrap();
    assert!(!error.contains("proxy-word"), "{error}");
}
