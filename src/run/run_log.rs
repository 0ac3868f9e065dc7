//! Log of the run at the orchestrator, without blocking the run.
//!
//! Lines are queued in memory and sent by one task, in parts. Each part has its offset in the log, and the orchestrator
//! answers how far it has received the log, so that a part whose answer was lost is neither doubled nor missing. If the
//! orchestrator is slow or cannot be reached, the queue keeps the latest lines. A lost log never fails a run.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::clock;
use super::print::print_line;
use domain::retry::RetryPolicy;
use domain::run_config::RunCallback;
use domain::run_log::{self, LogReceipt, LogReport, MAX_PART};
use vendors::http::{Client, Method, Request, VendorError};

/// Minimum interval between parts, unless a whole part is queued.
const PERIOD: Duration = Duration::from_secs(1);

/// Maximum size of the queued lines, in bytes. The orchestrator keeps no more.
const MAX_QUEUED: usize = run_log::MAX_BYTES as usize;

/// Maximum size of the lines that are sent after the run if the orchestrator limits the log, in bytes. The latest lines
/// matter most.
const MAX_FLUSHED_IF_LIMITED: usize = 256 << 10;

/// Maximum time to send the last lines after the run.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum time that the orchestrator can ask to wait.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// Retries of a part. They never end: the run does.
const RETRY: RetryPolicy = RetryPolicy {
    first_delay: Duration::from_secs(1),
    max_delay: Duration::from_secs(15),
    jitter: 0.4,
    honors_vendor: false,
    max_attempts: u32::MAX,
    timeout: Duration::MAX,
};

/// Log of the run. Clones share the queue.
#[derive(Clone, Default)]
pub struct RunLog {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    queued: Notify,
    sent: Notify,
    flush_requested: Notify,
}

#[derive(Default)]
struct Queue {
    /// Whole lines that were not acknowledged.
    lines: VecDeque<u8>,
    /// Offset of the first queued byte.
    start: u64,
    /// Whether lines are accepted: while there is somebody to send them to.
    is_open: bool,
    /// Whether the orchestrator asked to wait.
    is_limited: bool,
}

impl Queue {
    fn push(&mut self, line: &str) {
        self.lines.extend(line.bytes());
        self.lines.push_back(b'\n');
        self.keep_latest(MAX_QUEUED);
    }

    /// Drops the oldest whole lines above a size.
    fn keep_latest(&mut self, max_bytes: usize) {
        let surplus = self.lines.len().saturating_sub(max_bytes);
        if surplus > 0 {
            let from = surplus - 1;
            let end = self.lines.iter().skip(from).position(|byte| *byte == b'\n');
            self.drop_first(end.map_or(self.lines.len(), |end| from + end + 1));
        }
    }

    fn drop_first(&mut self, bytes: usize) {
        self.lines.drain(..bytes);
        self.start += bytes as u64;
    }

    /// Returns the next part, of whole lines.
    fn next_part(&self) -> Option<LogReport> {
        let limit = self.lines.len().min(MAX_PART);
        let last = self
            .lines
            .iter()
            .take(limit)
            .rposition(|byte| *byte == b'\n')?;
        let bytes: Vec<u8> = self.lines.iter().take(last + 1).copied().collect();
        Some(LogReport {
            offset: self.start,
            text: String::from_utf8_lossy(&bytes).into_owned(),
        })
    }

    /// Drops what the orchestrator has received.
    fn acknowledge(&mut self, offset: u64) {
        let received = usize::try_from(offset.saturating_sub(self.start)).unwrap_or(usize::MAX);
        self.drop_first(received.min(self.lines.len()));
        // Code of the repository may have read the token and sent more than this run.
        self.start = self.start.max(offset.min(run_log::MAX_OFFSET));
    }

    fn close(&mut self) {
        self.is_open = false;
        self.lines = VecDeque::new();
    }
}

impl RunLog {
    /// Queues a line. It must be redacted already.
    pub(crate) fn add_line(&self, text: &str) {
        let mut queue = self.queue();
        if queue.is_open {
            queue.push(&run_log::format_line(clock::now(), text));
            drop(queue);
            self.shared.queued.notify_one();
        }
    }

    /// Queues the mark of a step.
    pub(crate) fn begin_step(&self, id: &str) {
        self.add_line(&run_log::step_mark(id));
    }

    /// Starts the task that sends the log. The client must not be shared: a rate limit of the log would delay the
    /// reports of the run.
    pub(crate) fn start(&self, client: Client, callback: &RunCallback) -> JoinHandle<()> {
        self.queue().is_open = true;
        let sender = Sender {
            log: self.clone(),
            client,
            url: callback.route("/runner/log"),
            token: callback.progress_token.expose().to_owned(),
        };
        tasks::spawn(sender.run())
    }

    /// Waits up to 10 seconds for queued lines to be sent.
    pub(crate) async fn flush(&self) {
        let empty = async {
            loop {
                let sent = self.shared.sent.notified();
                {
                    let mut queue = self.queue();
                    if queue.is_limited {
                        queue.keep_latest(MAX_FLUSHED_IF_LIMITED);
                    }
                    if queue.lines.is_empty() {
                        return;
                    }
                }
                self.shared.flush_requested.notify_one();
                sent.await;
            }
        };
        // Lines not sent by then are dropped; the host of the run has them too.
        let _ = timeout(FLUSH_TIMEOUT, empty).await;
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        let queue = self.shared.queue.lock();
        queue.unwrap_or_else(PoisonError::into_inner)
    }
}

struct Sender {
    log: RunLog,
    client: Client,
    url: String,
    token: String,
}

impl Sender {
    async fn run(self) {
        let mut failures = 0;
        loop {
            let next = self.log.queue().next_part();
            let Some(part) = next else {
                self.log.shared.queued.notified().await;
                // Lines come in groups.
                self.pause(PERIOD).await;
                continue;
            };
            let delay = match self.send(&part).await {
                Ok(receipt) => {
                    failures = 0;
                    let mut queue = self.log.queue();
                    queue.acknowledge(receipt.offset);
                    queue.is_limited = receipt.retry_after_ms > 0;
                    Duration::from_millis(receipt.retry_after_ms).min(MAX_WAIT)
                }
                Err(error) => {
                    failures += 1;
                    if failures == 1 {
                        print_line(&format!("Failed to send the log of the run: {error}"));
                    }
                    if error.is_permanent() {
                        self.log.queue().close();
                        self.log.shared.sent.notify_waiters();
                        return;
                    }
                    RETRY.delay(failures, None, fastrand::f64())
                }
            };
            self.log.shared.sent.notify_waiters();
            sleep(delay).await;
            if self.log.queue().lines.len() < MAX_PART {
                self.pause(PERIOD).await;
            }
        }
    }

    /// Waits, but not while the log is flushed.
    async fn pause(&self, period: Duration) {
        let _ = timeout(period, self.log.shared.flush_requested.notified()).await;
    }

    async fn send(&self, part: &LogReport) -> Result<LogReceipt, VendorError> {
        let request = Request::new("sending the log", Method::POST, &self.url)
            .bearer(&self.token)
            .json(part)
            .safe();
        self.client.send(&request).await?.json()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use serde_json::json;

    use super::*;
    use crate::console::Console;
    use domain::secret::Secret;
    use test_support::{StubReply, TestServer};
    use vendors::http::Redactor;

    fn start(log: &RunLog, server: &TestServer) -> JoinHandle<()> {
        let callback = RunCallback {
            url: server.url.clone(),
            run_token: Secret::new("r"),
            progress_token: Secret::new("p"),
        };
        let client = Client::new("the orchestrator", Redactor::default()).unwrap();
        log.start(client, &callback)
    }

    fn receipt(offset: u64) -> StubReply {
        let body =
            json!({"acknowledged": true, "offset": offset, "stored": true, "retryAfterMs": 0});
        StubReply::json(200, &body)
    }

    fn part_of(body: &serde_json::Value) -> (u64, String) {
        let text = body["text"].as_str().unwrap().to_owned();
        (body["offset"].as_u64().unwrap(), text)
    }

    #[tokio::test]
    async fn resumes_after_lost_answers_and_redacts_secrets() {
        // Stores like the orchestrator, and loses every second answer after it has stored the part.
        let stored = Arc::new(Mutex::new(String::new()));
        let calls = Arc::new(AtomicUsize::new(0));
        let (kept, counted) = (Arc::clone(&stored), Arc::clone(&calls));
        let server = TestServer::start(move |request, _| {
            let (offset, text) = part_of(&request.json());
            let mut kept = kept.lock().unwrap();
            let known = kept.len() - usize::try_from(offset).unwrap();
            kept.push_str(&text[known.min(text.len())..]);
            match counted.fetch_add(1, Ordering::SeqCst) % 2 {
                0 => StubReply::json(503, &json!({"error": "the answer was lost"})),
                _ => receipt(kept.len() as u64),
            }
        })
        .await;
        let log = RunLog::default();
        let task = start(&log, &server);
        let console = Console::plain(Redactor::new(["the-secret-value"]), log.clone());
        console.begin_step("clone");
        for n in 0..2_000 {
            // Without its invisible characters, the second occurrence is the secret again.
            console.log_child(&format!(
                "line {n} with the-secret-value, the-\u{1b}[1msecret\u{200b}-value and ##[step] no step"
            ));
        }
        console.log("\u{1b}[31mred\u{1b}[0m");
        log.flush().await;
        task.abort();
        let text = stored.lock().unwrap().clone();
        let lines: Vec<&str> = text
            .lines()
            .map(|line| run_log::parse_line(line).1)
            .collect();
        assert_eq!(lines.len(), 2_002);
        assert_eq!(lines[0], "##[step] clone");
        for (n, line) in lines[1..2_001].iter().enumerate() {
            assert!(
                line.starts_with(&format!("  | line {n} with [redacted]")),
                "{line}"
            );
        }
        assert_eq!(lines[2_001], "\u{1b}[31mred\u{1b}[0m");
        assert!(!text.contains("secret") && text.matches("##[").count() == 1);
    }

    #[test]
    fn keeps_the_latest_lines_in_bounded_memory() {
        let mut queue = Queue::default();
        let mut written = 0;
        for n in 0..100_000 {
            let line = format!("{n} {}", "x".repeat(50));
            queue.push(&line);
            written += line.len() as u64 + 1;
            assert!(queue.lines.len() <= MAX_QUEUED);
        }
        assert_eq!(queue.start + queue.lines.len() as u64, written);
        let part = queue.next_part().unwrap();
        assert_eq!(part.offset, queue.start);
        assert!(part.text.len() <= MAX_PART && part.text.ends_with('\n'));
        let first: usize = part.text.split(' ').next().unwrap().parse().unwrap();
        assert!(first > 0, "begins with a whole line");
        // An acknowledgement of dropped lines, of a part and of more than everything.
        for (offset, start) in [
            (5, part.offset),
            (part.end(), part.end()),
            (written + 1, written + 1),
            (u64::MAX, run_log::MAX_OFFSET),
        ] {
            queue.acknowledge(offset);
            assert_eq!(queue.start, start);
        }
        assert_eq!(queue.next_part(), None);
    }

    #[tokio::test]
    async fn sends_the_end_of_a_limited_log() {
        let last = Arc::new(Mutex::new(String::new()));
        let seen = Arc::clone(&last);
        // Asks to wait before anything that is older than the last 256 KiB.
        let server = TestServer::start(move |request, _| {
            let (offset, text) = part_of(&request.json());
            if text.contains("line 0 ") {
                let limited =
                    json!({"acknowledged": true, "offset": 0, "stored": false, "retryAfterMs": 10});
                return StubReply::json(200, &limited);
            }
            seen.lock().unwrap().push_str(&text);
            receipt(offset + text.len() as u64)
        })
        .await;
        let log = RunLog::default();
        let task = start(&log, &server);
        for n in 0..10_000 {
            log.add_line(&format!("line {n} {}", "x".repeat(50)));
        }
        log.flush().await;
        task.abort();
        let sent = last.lock().unwrap().clone();
        assert!(sent.len() <= MAX_FLUSHED_IF_LIMITED, "{}", sent.len());
        assert!(
            sent.lines()
                .last()
                .is_some_and(|line| line.contains("line 9999 "))
        );
    }

    #[tokio::test]
    async fn stops_for_good_when_the_orchestrator_refuses() {
        let server = TestServer::start(|_, _| StubReply::json(404, &json!({}))).await;
        let log = RunLog::default();
        let task = start(&log, &server);
        log.add_line("first");
        log.flush().await;
        task.await.unwrap();
        log.add_line("dropped");
        assert!(log.queue().lines.is_empty());
        assert_eq!(server.requests().len(), 1);
    }

    #[tokio::test]
    async fn a_server_that_never_answers_delays_the_end_by_seconds_only() {
        let server = TestServer::start(|_, _| StubReply::json(503, &json!({}))).await;
        let log = RunLog::default();
        let task = start(&log, &server);
        log.add_line("never sent");
        let started = std::time::Instant::now();
        log.flush().await;
        assert!(started.elapsed() < FLUSH_TIMEOUT + Duration::from_secs(2));
        task.abort();
    }
}
