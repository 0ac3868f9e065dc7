//! HTTP server on loopback with scripted replies, which records its requests.
#![allow(
    clippy::unwrap_used,
    reason = "a panic fails the test that uses this server"
)]

use std::sync::{Arc, Mutex};

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Request that the server received.
#[derive(Debug, Clone)]
pub struct RecordedRequest {
    /// HTTP method.
    pub method: String,
    /// Path with query.
    pub path: String,
    /// Headers with lower-case names.
    pub headers: Vec<(String, String)>,
    /// Body as text.
    pub body: String,
}

impl RecordedRequest {
    /// Value of a header; `name` in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        let header = self.headers.iter().find(|(key, _)| key == name)?;
        Some(&header.1)
    }

    /// Body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }
}

/// Reply of the server.
pub enum StubReply {
    /// Status, headers and body.
    Response(u16, Vec<(&'static str, String)>, String),
    /// Reads the request and closes the connection.
    Disconnect,
    /// Reads the request and never responds.
    NoResponse,
}

impl StubReply {
    /// Reply with a JSON body.
    pub fn json(status: u16, body: &Value) -> Self {
        StubReply::Response(status, vec![], body.to_string())
    }

    /// Adds a header to a response.
    pub fn header(mut self, name: &'static str, value: impl ToString) -> Self {
        if let StubReply::Response(_, headers, _) = &mut self {
            headers.push((name, value.to_string()));
        }
        self
    }
}

/// Running test server.
pub struct TestServer {
    /// Base URL.
    pub url: String,
    requests: Arc<Mutex<Vec<RecordedRequest>>>,
}

impl TestServer {
    /// Starts a server. `reply` gets each request and the number of requests before it.
    pub async fn start(
        reply: impl Fn(&RecordedRequest, usize) -> StubReply + Send + Sync + 'static,
    ) -> Self {
        crate::install_tls();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests: Arc<Mutex<Vec<RecordedRequest>>> = Arc::default();
        let log = requests.clone();
        let reply = Arc::new(reply);
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (log, reply) = (log.clone(), reply.clone());
                tokio::spawn(async move {
                    let _ = Box::pin(serve(stream, &log, &*reply)).await;
                });
            }
        });
        Self { url, requests }
    }

    /// Requests received so far.
    pub fn requests(&self) -> Vec<RecordedRequest> {
        self.requests.lock().unwrap().clone()
    }
}

async fn serve(
    mut stream: TcpStream,
    log: &Mutex<Vec<RecordedRequest>>,
    reply: &(dyn Fn(&RecordedRequest, usize) -> StubReply + Send + Sync),
) -> std::io::Result<()> {
    let mut bytes = Vec::new();
    let request = loop {
        let mut chunk = [0; 16 << 10];
        let read = stream.read(&mut chunk).await?;
        if read == 0 {
            return Ok(());
        }
        bytes.extend_from_slice(&chunk[..read]);
        if let Some(request) = parse(&bytes) {
            break request;
        }
    };
    let before = {
        let mut log = log.lock().unwrap();
        log.push(request.clone());
        log.len() - 1
    };
    match reply(&request, before) {
        StubReply::Disconnect => Ok(()),
        StubReply::NoResponse => std::future::pending().await,
        StubReply::Response(status, headers, body) => {
            let mut text = format!("HTTP/1.1 {status} Test\r\nconnection: close\r\n");
            if status != 204 && status != 304 {
                text += &format!("content-length: {}\r\n", body.len());
            }
            for (name, value) in headers {
                text += &format!("{name}: {value}\r\n");
            }
            stream
                .write_all(format!("{text}\r\n{body}").as_bytes())
                .await
        }
    }
}

fn parse(bytes: &[u8]) -> Option<RecordedRequest> {
    let text = String::from_utf8_lossy(bytes);
    let (head, body) = text.split_once("\r\n\r\n")?;
    let mut lines = head.lines();
    let mut first = lines.next()?.split(' ');
    let request = RecordedRequest {
        method: first.next()?.to_owned(),
        path: first.next()?.to_owned(),
        headers: lines
            .filter_map(|line| line.split_once(": "))
            .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
            .collect(),
        body: body.to_owned(),
    };
    let length: usize = request
        .header("content-length")
        .map_or(0, |text| text.parse().unwrap());
    (body.len() >= length).then_some(request)
}
