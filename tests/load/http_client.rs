//! HTTP as cheap as it can be: one connection, one request at a time, bytes made beforehand.
//! The load's clients share the machine with what they measure.

use std::io::{Error, ErrorKind, Result};
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// An answer that takes longer is an error.
const PATIENCE: Duration = Duration::from_secs(30);

/// A connection that is kept, and made anew once it has broken.
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

    /// The error texts of an answer are short; a list is not.
    pub fn excerpt(&self) -> String {
        self.text().chars().take(200).collect()
    }
}

/// The bytes of a request.
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

    /// Sends a request and reads its answer to the end.
    pub async fn send(&mut self, request: &[u8]) -> Result<RawResponse> {
        let asked = tokio::time::timeout(PATIENCE, self.exchange(request)).await;
        let answer = asked.unwrap_or_else(|_| Err(ErrorKind::TimedOut.into()));
        if answer.is_err() {
            self.stream = None;
        }
        answer
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
            let ends = self.buffer.windows(4).position(|four| four == b"\r\n\r\n");
            if let Some(end) = ends {
                break end + 4;
            }
        };
        let (status, length) = read_head(&self.buffer[..head])
            .ok_or_else(|| Error::new(ErrorKind::InvalidData, "an answer of unknown length"))?;
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

/// Status and length of the body.
fn read_head(head: &[u8]) -> Option<(u16, usize)> {
    let head = std::str::from_utf8(head).ok()?.to_ascii_lowercase();
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let (_, length) = head.split_once("\r\ncontent-length: ")?;
    Some((status, length.split("\r\n").next()?.parse().ok()?))
}

/// Reads a stream of events until it ends or the service lets go of it; `told` gets each event's name.
pub async fn read_event_stream(
    address: SocketAddr,
    token: &str,
    mut told: impl FnMut(&str),
) -> Result<()> {
    let mut stream = TcpStream::connect(address).await?;
    let bearer = format!("Bearer {token}");
    let ask = encode_request("GET", "/api/events", &[("authorization", &bearer)], b"");
    stream.write_all(&ask).await?;
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
                told(String::from_utf8_lossy(name).trim());
            }
            line.clear();
        }
    }
}
