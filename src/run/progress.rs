//! Progress reports to the orchestrator, without blocking the run.
//!
//! Steps and log lines are queued in memory and sent by one task. A step change is sent at once and
//! retried. Log lines are batched, at most one report per second; the oldest are dropped if the
//! orchestrator is slow. Lost progress never fails a run.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::print::print_line;
use super::retry::send_report;
use super::usage_meter::UsageMeter;
use domain::report::{ProgressReport, StepRecord, Usage};
use domain::run_config::RunCallback;
use vendors::http::{Client, Method, Request};

/// Minimum interval between reports that hold only log lines.
const LOG_PERIOD: Duration = Duration::from_secs(1);

/// Maximum size of queued log lines, in bytes.
const MAX_QUEUED_LOG: usize = 64 << 10;

/// Maximum time to send the last reports after the run.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(10);

/// Queue of progress reports. Clones share the queue.
#[derive(Clone, Default)]
pub struct ProgressReporter {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    meter: UsageMeter,
    queued: Notify,
    sent: Notify,
}

#[derive(Default)]
struct Queue {
    steps: VecDeque<StepRecord>,
    log: String,
    /// Step that new log lines belong to.
    current: Option<StepRecord>,
    sending: bool,
}

impl ProgressReporter {
    /// Returns the usage meter of the run. Every report includes its total.
    pub fn usage_meter(&self) -> &UsageMeter {
        &self.shared.meter
    }

    /// Queues a step change.
    pub fn report_step(&self, step: StepRecord) {
        let mut queue = self.queue();
        queue.current = (step.status == "running").then(|| step.clone());
        queue.steps.push_back(step);
        drop(queue);
        self.shared.queued.notify_one();
    }

    /// Queues a log line. The line must be redacted already.
    pub fn report_log_line(&self, line: &str) {
        let mut queue = self.queue();
        queue.log.push_str(line);
        queue.log.push('\n');
        while queue.log.len() > MAX_QUEUED_LOG {
            let first = queue.log.find('\n').map_or(queue.log.len(), |at| at + 1);
            queue.log.drain(..first);
        }
        drop(queue);
        self.shared.queued.notify_one();
    }

    /// Starts the task that sends reports.
    pub fn start(
        &self,
        client: Client,
        callback: &RunCallback,
        run_id: Option<u64>,
    ) -> JoinHandle<()> {
        let sender = Sender {
            progress: self.clone(),
            client,
            url: format!("{}/runner/progress", callback.url.trim_end_matches('/')),
            token: callback.progress_token.expose().to_owned(),
            run_id,
        };
        tokio::spawn(sender.run())
    }

    /// Waits up to 10 seconds for queued reports to be sent.
    pub async fn flush(&self) {
        let empty = async {
            loop {
                let sent = self.shared.sent.notified();
                if self.is_idle() {
                    return;
                }
                sent.await;
            }
        };
        // Reports not sent by then are dropped; the result holds what matters.
        let _ = timeout(FLUSH_TIMEOUT, empty).await;
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.shared
            .queue
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the next report, if anything is queued.
    fn next(&self) -> Option<ProgressReport> {
        let mut queue = self.queue();
        let step = match queue.steps.pop_front() {
            Some(step) => step,
            None if queue.log.is_empty() => return None,
            None => queue.current.clone()?,
        };
        queue.sending = true;
        let log = std::mem::take(&mut queue.log);
        let (agent, model) = self.usage_meter().agent();
        Some(ProgressReport {
            step,
            run_id: None,
            agent,
            model,
            usage: Some(self.usage_meter().total()).filter(|used| *used != Usage::default()),
            log: (!log.is_empty()).then_some(log),
        })
    }

    fn is_idle(&self) -> bool {
        let queue = self.queue();
        queue.steps.is_empty() && !queue.sending
    }

    fn has_step(&self) -> bool {
        !self.queue().steps.is_empty()
    }
}

struct Sender {
    progress: ProgressReporter,
    client: Client,
    url: String,
    token: String,
    run_id: Option<u64>,
}

impl Sender {
    async fn run(self) {
        loop {
            self.progress.shared.queued.notified().await;
            while let Some(mut report) = self.progress.next() {
                report.run_id = self.run_id;
                self.send(&report).await;
                self.progress.queue().sending = false;
                self.progress.shared.sent.notify_waiters();
                if !self.progress.has_step() {
                    self.pause().await;
                }
            }
        }
    }

    /// Waits for the log interval, or until a step is queued.
    async fn pause(&self) {
        let step = async {
            while !self.progress.has_step() {
                self.progress.shared.queued.notified().await;
            }
        };
        // On timeout, the next iteration sends the queued log lines.
        let _ = timeout(LOG_PERIOD, step).await;
    }

    async fn send(&self, report: &ProgressReport) {
        let request = Request::new("reporting progress", Method::POST, &self.url)
            .bearer(&self.token)
            .json(report)
            .safe();
        if let Err(error) = send_report(&self.client, &request).await {
            print_line(&format!("Failed to report progress: {error}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokio::time::{Instant, sleep};

    use super::*;
    use crate::console::Console;
    use domain::secret::Secret;
    use test_support::{StubReply, TestServer};
    use vendors::http::{Client, Redactor};

    #[tokio::test]
    async fn batches_log_lines_and_redacts_secrets() {
        let server = TestServer::start(|_, _| StubReply::json(200, &json!({}))).await;
        let progress = ProgressReporter::default();
        let callback = RunCallback {
            url: server.url.clone(),
            run_token: Secret::new("r"),
            progress_token: Secret::new("p"),
        };
        let sending = progress.start(
            Client::new("orchestrator", Redactor::default()).unwrap(),
            &callback,
            None,
        );
        let console = Console::plain(Redactor::new(["the-secret-value"]), progress.clone());
        let step: StepRecord = serde_json::from_value(json!({
            "id": "implement.1", "type": "implement", "status": "running",
            "started_at": "2027-01-15T08:00:00Z",
        }))
        .unwrap();
        progress.report_step(step.clone());
        let started = Instant::now();
        let mut lines = 0;
        while started.elapsed() < LOG_PERIOD * 2 {
            // Without its invisible characters, the second occurrence is the secret again.
            console.log_child(&format!(
                "line {lines} with the-secret-value and the-\u{1b}[1msecret\u{200b}-value"
            ));
            lines += 1;
            sleep(Duration::from_millis(10)).await;
        }
        let passed = StepRecord {
            status: "passed".to_owned(),
            ..step
        };
        progress.report_step(passed);
        progress.flush().await;
        let reports = server.requests();
        let logs: Vec<String> = reports
            .iter()
            .filter_map(|report| Some(report.json()["log"].as_str()?.to_owned()))
            .collect();
        assert!(
            (3..=6).contains(&reports.len()),
            "two step reports and one log report per second: {}",
            reports.len()
        );
        let log = logs.concat();
        assert_eq!(log.lines().count(), lines, "keeps every line");
        assert!(!log.contains("the-secret-value"));
        sending.abort();
    }
}
