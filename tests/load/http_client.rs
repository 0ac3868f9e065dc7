//! Minimal HTTP client: one connection, one request at a time, pre-encoded bytes. The load clients share
//! the machine with the service that they measure.

use std::io::{Error, ErrorKind, Result};
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Timeout of a response.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Persistent connection that reconnects after an error.
pub struct HttpConnection {
    address: SocketAddr,
    stream: Option<TcpStream>,
    buffer: Vec<u8>,
}

pub struct RawResponse {
    pub status: u16,
    pub body: Vec<u8>,
}

impl RawResponse {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Start of the body, for error messages.
    pub fn excerpt(&self) -> String {
        self.text().chars().take(200).collect()
    }
}

/// Encodes a request.
pub fn encode_request(method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let headers: String = headers
        .iter()
        .map(|(name, value)| format!("{name}: {value}\r\n"))
        .collect();
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: service\r\n{headers}content-length: {length}\r\n\r\n"
    );
    [head.as_bytes(), body].concat()
}

impl HttpConnection {
    pub fn new(address: SocketAddr) -> Self {
        Self {
            address,
            stream: None,
            buffer: Vec::new(),
        }
    }

    /// Sends a request and reads the whole response.
    pub async fn send(&mut self, request: &[u8]) -> Result<RawResponse> {
        let exchange = tokio::time::timeout(TIMEOUT, self.exchange(request)).await;
        let response = exchange.unwrap_or_else(|_| Err(ErrorKind::TimedOut.into()));
        if response.is_err() {
            self.stream = None;
        }
        response
    }

    async fn exchange(&mut self, request: &[u8]) -> Result<RawResponse> {
        let stream = match &mut self.stream {
            Some(stream) => stream,
            None => {
                let stream = TcpStream::connect(self.address).await?;
                stream.set_nodelay(true)?;
                self.stream.insert(stream)
            }
        };
        stream.write_all(request).await?;
        self.buffer.clear();
        let head = loop {
            read_more(stream, &mut self.buffer).await?;
            let head_end = self.buffer.windows(4).position(|four| four == b"\r\n\r\n");
            if let Some(end) = head_end {
                break end + 4;
            }
        };
        let (status, length) = read_head(&self.buffer[..head]).ok_or_else(|| {
            Error::new(ErrorKind::InvalidData, "response without a content length")
        })?;
        while self.buffer.len() < head + length {
            read_more(stream, &mut self.buffer).await?;
        }
        Ok(RawResponse {
            status,
            body: self.buffer[head..].to_vec(),
        })
    }
}

async fn read_more(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Result<()> {
    buffer.reserve(16 << 10);
    match stream.read_buf(buffer).await? {
        0 => Err(ErrorKind::UnexpectedEof.into()),
        _ => Ok(()),
    }
}

/// Status and body length.
fn read_head(head: &[u8]) -> Option<(u16, usize)> {
    let head = std::str::from_utf8(head).ok()?.to_ascii_lowercase();
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let (_, length) = head.split_once("\r\ncontent-length: ")?;
    Some((status, length.split("\r\n").next()?.parse().ok()?))
}

/// Reads an event stream until it ends or the service closes it. Calls `on_event` with each event's
/// name.
pub async fn read_event_stream(
    address: SocketAddr,
    token: &str,
    mut on_event: impl FnMut(&str),
) -> Result<()> {
    let mut stream = TcpStream::connect(address).await?;
    let bearer = format!("Bearer {token}");
    let request = encode_request("GET", "/api/events", &[("authorization", &bearer)], b"");
    stream.write_all(&request).await?;
    let (mut buffer, mut line) = (vec![0; 64 << 10], Vec::new());
    loop {
        let read = stream.read(&mut buffer).await?;
        if read == 0 {
            return Ok(());
        }
        for byte in &buffer[..read] {
            if *byte != b'\n' {
                line.push(*byte);
                continue;
            }
            if let Some(name) = line.strip_prefix(b"event:") {
                on_event(String::from_utf8_lossy(name).trim());
            }
            line.clear();
        }
    }
}
