//! A vendor on loopback that says what a test tells it to, and remembers what it was asked.
#![allow(
    clippy::unwrap_used,
    reason = "a panic fails the test that uses this server"
)]

use std::sync::{Arc, Mutex};

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What the vendor was asked.
#[derive(Debug, Clone)]
pub struct RecordedRequest {
    pub method: String,
    pub path: String,
    pub headers: Vec<(String, String)>,
    pub body: String,
}

impl RecordedRequest {
    pub fn header(&self, name: &str) -> Option<&str> {
        let header = self.headers.iter().find(|(key, _)| key == name)?;
        Some(&header.1)
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }
}

/// What the vendor answers.
pub enum StubReply {
    Response(u16, Vec<(&'static str, String)>, String),
    /// Reads the request and hangs up.
    Disconnect,
    /// Reads the request and never answers.
    NoResponse,
}

impl StubReply {
    pub fn json(status: u16, body: &Value) -> Self {
        StubReply::Response(status, vec![], body.to_string())
    }

    pub fn header(mut self, name: &'static str, value: impl ToString) -> Self {
        if let StubReply::Response(_, headers, _) = &mut self {
            headers.push((name, value.to_string()));
        }
        self
    }
}

pub struct TestServer {
    pub url: String,
    asked: Arc<Mutex<Vec<RecordedRequest>>>,
}

impl TestServer {
    /// Starts a vendor; `answer` gets each request and how many came before it.
    pub async fn start(
        answer: impl Fn(&RecordedRequest, usize) -> StubReply + Send + Sync + 'static,
    ) -> Self {
        crate::install_tls();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked: Arc<Mutex<Vec<RecordedRequest>>> = Arc::default();
        let log = asked.clone();
        let answer = Arc::new(answer);
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (log, answer) = (log.clone(), answer.clone());
                tokio::spawn(async move {
                    let _ = Box::pin(serve(stream, &log, &*answer)).await;
                });
            }
        });
        Self { url, asked }
    }

    pub fn requests(&self) -> Vec<RecordedRequest> {
        self.asked.lock().unwrap().clone()
    }
}

async fn serve(
    mut stream: TcpStream,
    log: &Mutex<Vec<RecordedRequest>>,
    answer: &(dyn Fn(&RecordedRequest, usize) -> StubReply + Send + Sync),
) -> std::io::Result<()> {
    let mut bytes = Vec::new();
    let asked = loop {
        let mut chunk = [0; 16 << 10];
        let read = stream.read(&mut chunk).await?;
        if read == 0 {
            return Ok(());
        }
        bytes.extend_from_slice(&chunk[..read]);
        if let Some(asked) = parse(&bytes) {
            break asked;
        }
    };
    let before = {
        let mut log = log.lock().unwrap();
        log.push(asked.clone());
        log.len() - 1
    };
    match answer(&asked, before) {
        StubReply::Disconnect => Ok(()),
        StubReply::NoResponse => std::future::pending().await,
        StubReply::Response(status, headers, body) => {
            let mut text = format!("HTTP/1.1 {status} Said\r\nconnection: close\r\n");
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
    let asked = RecordedRequest {
        method: first.next()?.to_owned(),
        path: first.next()?.to_owned(),
        headers: lines
            .filter_map(|line| line.split_once(": "))
            .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
            .collect(),
        body: body.to_owned(),
    };
    let length: usize = asked
        .header("content-length")
        .map_or(0, |text| text.parse().unwrap());
    (body.len() >= length).then_some(asked)
}
