//! gzip of JSON responses.

use std::io::Read;

use flate2::read::GzDecoder;
use serde_json::{Value, json};

use crate::api_server::ApiServer;

const MAPPINGS: &str = "/api/mappings";

struct Answer {
    encoding: Option<String>,
    vary: Option<String>,
    body: Vec<u8>,
}

impl Answer {
    fn unpacked(&self) -> Value {
        let mut text = Vec::new();
        GzDecoder::new(&*self.body).read_to_end(&mut text).unwrap();
        serde_json::from_slice(&text).unwrap()
    }
}

async fn get(server: &ApiServer, token: &str, path: &str, accepted: &str) -> Answer {
    let client = reqwest::Client::builder().no_gzip().build().unwrap();
    let request = client.get(format!("http://{}{path}", server.address));
    let request = request
        .bearer_auth(token)
        .header("accept-encoding", accepted);
    let response = request.send().await.unwrap();
    assert_eq!(response.status(), 200);
    let text = |name: &str| {
        let value = response.headers().get(name)?;
        Some(value.to_str().unwrap().to_owned())
    };
    let (encoding, vary) = (text("content-encoding"), text("vary"));
    let length = text("content-length").map(|length| length.parse::<usize>().unwrap());
    let body = response.bytes().await.unwrap().to_vec();
    assert_eq!(length, Some(body.len()));
    Answer {
        encoding,
        vary,
        body,
    }
}

#[tokio::test]
async fn large_json_is_compressed_for_clients_that_accept_it() {
    let server = ApiServer::start().await;
    let token = server.sign_in().await;
    let small = get(&server, &token, MAPPINGS, "gzip").await;
    assert_eq!((small.encoding, small.body), (None, b"{}".to_vec()));
    for number in 0..100 {
        let body = json!({"teamKey": format!("T{number}"), "owner": "acme", "repo": "shop", "defaultBranch": "main"});
        let saved = server.send("POST", MAPPINGS, &token, body.to_string());
        assert_eq!(saved.await.status, 200);
    }
    let plain = get(&server, &token, MAPPINGS, "identity").await;
    let expected: Value = serde_json::from_slice(&plain.body).unwrap();
    assert_eq!(plain.encoding, None);
    assert_eq!(plain.vary.as_deref(), Some("accept-encoding"));
    for refused in ["", "gzip;q=0", "br, identity;q=1", "deflate"] {
        let answer = get(&server, &token, MAPPINGS, refused).await;
        assert_eq!(
            (answer.encoding, &answer.body),
            (None, &plain.body),
            "{refused}"
        );
    }
    for accepted in ["gzip", "gzip, deflate, br, zstd", "br;q=1.0, GZIP;q=0.5"] {
        let answer = get(&server, &token, MAPPINGS, accepted).await;
        assert_eq!(answer.encoding.as_deref(), Some("gzip"), "{accepted}");
        assert_eq!(answer.vary.as_deref(), Some("accept-encoding"));
        assert!(answer.body.len() < plain.body.len() / 5);
        assert_eq!(answer.unpacked(), expected);
    }
    // The description of the API is compressed once, and clients may keep it.
    let described = get(&server, &token, "/api/openapi.json", "gzip").await;
    assert_eq!(described.encoding.as_deref(), Some("gzip"));
    let plain = get(&server, &token, "/api/openapi.json", "").await;
    let expected: Value = serde_json::from_slice(&plain.body).unwrap();
    assert_eq!(described.unpacked(), expected);
    server.stop().await.unwrap();
}

#[tokio::test]
async fn event_streams_are_not_compressed() {
    let server = ApiServer::start().await;
    let token = server.sign_in().await;
    let request = server.request("GET", "/api/events").bearer_auth(token);
    let request = request.header("accept-encoding", "gzip");
    let mut stream = request.send().await.unwrap();
    assert!(!stream.headers().contains_key("content-encoding"));
    let first = stream.chunk().await.unwrap().unwrap();
    assert!(first.starts_with(b":"), "{first:?}");
    drop(stream);
    server.stop().await.unwrap();
}
