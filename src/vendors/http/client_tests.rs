use super::super::rate_limit::LONGEST_PAUSE;
use super::super::test_client;
use super::*;
use serde_json::json;
use test_support::{StubReply, TestServer};

const ACTION: &str = "testing";

#[tokio::test]
async fn a_safe_call_is_repeated_and_an_unsafe_one_never() {
    let server = TestServer::start(|_, before| match before {
        0 => StubReply::Disconnect,
        1 => StubReply::json(503, &json!({})),
        _ => StubReply::json(200, &json!({"ok": true})),
    })
    .await;
    let client = test_client("github");
    let answer = client.send(&Request::get(ACTION, &server.url)).await;
    assert_eq!(
        answer.unwrap().json::<serde_json::Value>().unwrap()["ok"],
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
async fn a_vendor_that_said_wait_is_not_asked_again() {
    let server = TestServer::start(|asked, _| match asked.path.as_str() {
        "/other" => StubReply::json(200, &json!({})),
        _ => StubReply::json(429, &json!({})).header("retry-after", 60),
    })
    .await;
    let client = test_client("github");
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
async fn a_vendor_that_is_out_of_order_is_not_waited_for_longer_than_one_that_limits_us() {
    for asked in ["1795222800", "1e300", "Tue, 01 Jan 2999 00:00:00 GMT"] {
        for status in [503, 429] {
            let server = TestServer::start(move |_, _| {
                StubReply::json(status, &json!({})).header("retry-after", asked)
            })
            .await;
            let request = Request::get(ACTION, &server.url);
            let error = test_client("github").send(&request).await.err().unwrap();
            let wait = error.retry_after().unwrap();
            let least = LONGEST_PAUSE - Duration::from_secs(5);
            assert!(
                wait > least && wait <= LONGEST_PAUSE,
                "{status}, {asked}: {wait:?}"
            );
        }
    }
}

#[tokio::test]
async fn what_happened_to_a_request_is_told_apart() {
    test_support::install_tls();
    let timeouts = Timeouts {
        total: Duration::from_millis(300),
        connect: Duration::from_millis(200),
    };
    let client = Client::with_timeouts("github", Redactor::default(), timeouts).unwrap();
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
async fn no_secret_reaches_an_error() {
    let server = TestServer::start(|asked, _| match asked.path.as_str() {
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
    let client = test_client("github");
    let request = Request::get(ACTION, &server.url);
    let error = client.send(&request).await.err().unwrap();
    assert_eq!(
        error.to_string(),
        "testing: github answered 422: Validation Failed: [redacted]; bad [redacted]; custom"
    );
    let request = Request::get(ACTION, format!("{}/decode", server.url));
    #[derive(serde::Deserialize, Debug)]
    struct Id {
        #[expect(dead_code, reason = "never read: the value is no number")]
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
async fn credentials_follow_a_redirect_within_the_host_only() {
    let elsewhere = TestServer::start(|_, _| StubReply::json(200, &json!({}))).await;
    let target = format!("{}/there", elsewhere.url);
    let server = TestServer::start(move |asked, _| match asked.path.as_str() {
        "/away" => StubReply::json(302, &json!({})).header("location", &target),
        "/near" => StubReply::json(307, &json!({})).header("location", "/here"),
        _ => StubReply::json(200, &json!({})),
    })
    .await;
    let client = test_client("github");
    let ask = |path: &str| Request::get(ACTION, format!("{}{path}", server.url)).bearer("t");
    client.send(&ask("/away")).await.unwrap();
    assert_eq!(elsewhere.requests()[0].header("authorization"), None);
    client.send(&ask("/near")).await.unwrap();
    client
        .send(&ask("/near").redirect_without_authorization())
        .await
        .unwrap();
    let here: Vec<_> = server
        .requests()
        .into_iter()
        .filter(|asked| asked.path == "/here")
        .map(|asked| asked.header("authorization").map(str::to_owned))
        .collect();
    assert_eq!(here, [Some("Bearer t".to_owned()), None]);

    let post = Request::new(ACTION, Method::POST, format!("{}/away", server.url)).json(&json!({}));
    assert_eq!(client.send(&post).await.err().unwrap().status(), Some(302));
    assert_eq!(elsewhere.requests().len(), 1);
}

#[tokio::test]
async fn an_endless_answer_is_cut_off() {
    let server = TestServer::start(|_, _| StubReply::Response(200, vec![], "x".repeat(2000))).await;
    let request = Request::get(ACTION, &server.url).max_body(1000);
    let error = test_client("github").send(&request).await.err().unwrap();
    assert!(matches!(error.kind, VendorErrorKind::Decode(_)), "{error}");
}

#[tokio::test]
async fn vendors_are_asked_through_the_proxy_of_their_scheme() {
    test_support::install_tls();
    let proxy = TestServer::start(|asked, _| match asked.method.as_str() {
        "CONNECT" => StubReply::json(403, &json!({"message": "not this one"})),
        _ => StubReply::json(200, &json!({"by": "proxy"})),
    })
    .await;
    let address = proxy.url.replace("http://", "http://us:proxy-word@");
    let proxies = Proxies::new(Some(&address), Some(&address), "kept.invalid").unwrap();
    let client = Client::with_proxies(&proxies, "github", Redactor::default()).unwrap();

    let plain = Request::get(ACTION, "http://vendor.invalid/plain");
    let answer: serde_json::Value = client.send(&plain).await.unwrap().json().unwrap();
    assert_eq!(answer, json!({"by": "proxy"}));

    let refused = Request::new(ACTION, Method::POST, "https://vendor.invalid/secret");
    let error = client.send(&refused).await.err().unwrap().to_string();
    assert!(!error.contains("proxy-word"), "{error}");

    // This machine itself and the hosts that are left out are asked directly.
    let near = TestServer::start(|_, _| StubReply::json(200, &json!({"by": "itself"}))).await;
    let answer = client.send(&Request::get(ACTION, &near.url)).await.unwrap();
    let answer: serde_json::Value = answer.json().unwrap();
    assert_eq!(answer, json!({"by": "itself"}));
    let kept = Request::new(ACTION, Method::POST, "http://kept.invalid/");
    assert!(client.send(&kept).await.is_err());

    let asked: Vec<_> = proxy.requests();
    let seen = asked
        .iter()
        .map(|asked| (asked.method.as_str(), asked.path.as_str()));
    let expected = [
        ("GET", "http://vendor.invalid/plain"),
        ("CONNECT", "vendor.invalid:443"),
    ];
    assert_eq!(seen.collect::<Vec<_>>(), expected);
    for asked in &asked {
        let credentials = data_encoding::BASE64.encode(b"us:proxy-word");
        let shown = asked.header("proxy-authorization");
        assert_eq!(shown, Some(format!("Basic {credentials}").as_str()));
    }
}

#[tokio::test]
async fn an_address_that_is_no_proxys_is_refused_without_its_password() {
    let error = Proxies::new(Some("http://us:proxy-word@[bad"), None, "");
    let error = error.err().unwrap();
    assert!(!error.contains("proxy-word"), "{error}");
}
