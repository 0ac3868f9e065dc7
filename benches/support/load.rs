//! Load generator: concurrent connections that send the next request after each response.

use std::cell::Cell;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Result of a load.
pub struct LoadResult {
    /// Number of responses.
    pub responses: u64,
    /// Duration of the load.
    pub elapsed: Duration,
    /// 99th percentile of the latencies.
    pub p99: Duration,
}

impl LoadResult {
    /// Computes the result from the latencies of each connection.
    pub fn from_latencies(all: Vec<Vec<Duration>>, took: Duration) -> Result<Self> {
        let mut latencies: Vec<Duration> = all.into_iter().flatten().collect();
        latencies.sort_unstable();
        ensure!(!latencies.is_empty(), "no response was received");
        let p99 = latencies[latencies.len() * 99 / 100];
        Ok(Self {
            responses: latencies.len() as u64,
            elapsed: took,
            p99,
        })
    }

    /// Returns the responses per second.
    pub fn rate(&self) -> f64 {
        self.responses as f64 / self.elapsed.as_secs_f64()
    }
}

/// Sends requests on `connections` concurrent connections for `duration`. `request` builds the bytes of the
/// n-th request. A status that is not in `statuses` is an error.
pub async fn drive(
    address: SocketAddr,
    connections: usize,
    duration: Duration,
    statuses: &[u16],
    request: impl Fn(u64) -> Vec<u8>,
) -> Result<LoadResult> {
    let (began, numbers) = (Instant::now(), Cell::new(0));
    let callers = (0..connections).map(|_| async {
        let mut stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (mut buffer, mut took) = (Vec::with_capacity(16 << 10), Vec::new());
        while began.elapsed() < duration {
            let bytes = request(numbers.replace(numbers.get() + 1));
            let sent = Instant::now();
            stream.write_all(&bytes).await?;
            let status = read_status(&mut stream, &mut buffer).await?;
            took.push(sent.elapsed());
            ensure!(statuses.contains(&status), "unexpected status {status}");
        }
        Ok::<_, anyhow::Error>(took)
    });
    let all = futures_util::future::try_join_all(callers).await?;
    LoadResult::from_latencies(all, began.elapsed())
}

/// Reads one response and returns its status.
pub async fn read_status(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Result<u16> {
    buffer.clear();
    loop {
        let read = stream.read_buf(buffer).await?;
        ensure!(read > 0, "the server closed the connection");
        let Some(end) = buffer.windows(4).position(|bytes| bytes == b"\r\n\r\n") else {
            continue;
        };
        let head = std::str::from_utf8(&buffer[..end])?;
        if is_complete(head, &buffer[end + 4..])? {
            let status = head.split(' ').nth(1).context("response without status")?;
            return Ok(status.parse()?);
        }
        buffer.reserve(64 << 10);
    }
}

/// Returns whether the body is complete according to the head.
fn is_complete(head: &str, body: &[u8]) -> Result<bool> {
    for line in head.lines().skip(1) {
        let (name, value) = line.split_once(':').unwrap_or_default();
        if name.eq_ignore_ascii_case("content-length") {
            return Ok(body.len() >= value.trim().parse()?);
        }
        if name.eq_ignore_ascii_case("transfer-encoding") {
            return Ok(body.ends_with(b"0\r\n\r\n"));
        }
    }
    anyhow::bail!("response without length: {head}")
}
