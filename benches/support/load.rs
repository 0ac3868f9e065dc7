//! Many connections, each asking again as soon as it is answered.

use std::cell::Cell;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// How often the connections were answered.
pub struct LoadResult {
    pub responses: u64,
    pub elapsed: Duration,
    /// How long one of a hundred answers took at least.
    pub p99: Duration,
}

impl LoadResult {
    /// From how long each answer of each connection took.
    pub fn from_latencies(all: Vec<Vec<Duration>>, took: Duration) -> Result<Self> {
        let mut latencies: Vec<Duration> = all.into_iter().flatten().collect();
        latencies.sort_unstable();
        ensure!(!latencies.is_empty(), "nothing was answered");
        let p99 = latencies[latencies.len() * 99 / 100];
        Ok(Self {
            responses: latencies.len() as u64,
            elapsed: took,
            p99,
        })
    }

    pub fn rate(&self) -> f64 {
        self.responses as f64 / self.elapsed.as_secs_f64()
    }
}

/// Asks on `connections` at once for `span`. `request` makes the bytes of the n-th request; an answer
/// that is not among `statuses` ends the benchmark.
pub async fn drive(
    address: SocketAddr,
    connections: usize,
    span: Duration,
    statuses: &[u16],
    request: impl Fn(u64) -> Vec<u8>,
) -> Result<LoadResult> {
    let (began, numbers) = (Instant::now(), Cell::new(0));
    let callers = (0..connections).map(|_| async {
        let mut stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (mut buffer, mut took) = (Vec::with_capacity(16 << 10), Vec::new());
        while began.elapsed() < span {
            let bytes = request(numbers.replace(numbers.get() + 1));
            let asked = Instant::now();
            stream.write_all(&bytes).await?;
            let status = read_status(&mut stream, &mut buffer).await?;
            took.push(asked.elapsed());
            ensure!(statuses.contains(&status), "unexpected status {status}");
        }
        Ok::<_, anyhow::Error>(took)
    });
    let all = futures_util::future::try_join_all(callers).await?;
    LoadResult::from_latencies(all, began.elapsed())
}

/// Reads one answer and says its status. Its end is where its head says.
pub async fn read_status(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Result<u16> {
    buffer.clear();
    loop {
        let read = stream.read_buf(buffer).await?;
        ensure!(read > 0, "the server hung up");
        let Some(end) = buffer.windows(4).position(|bytes| bytes == b"\r\n\r\n") else {
            continue;
        };
        let head = std::str::from_utf8(&buffer[..end])?;
        if is_whole(head, &buffer[end + 4..])? {
            let status = head.split(' ').nth(1).context("an answer without status")?;
            return Ok(status.parse()?);
        }
        buffer.reserve(64 << 10);
    }
}

fn is_whole(head: &str, body: &[u8]) -> Result<bool> {
    for line in head.lines().skip(1) {
        let (name, value) = line.split_once(':').unwrap_or_default();
        if name.eq_ignore_ascii_case("content-length") {
            return Ok(body.len() >= value.trim().parse()?);
        }
        if name.eq_ignore_ascii_case("transfer-encoding") {
            return Ok(body.ends_with(b"0\r\n\r\n"));
        }
    }
    anyhow::bail!("an answer that does not say its length: {head}")
}
