//! Telling the orchestrator how the run goes, without the run ever waiting for it.
//!
//! Steps and log lines are put down in memory; one task sends them. A step's change goes out at
//! once and is tried again; log lines ride along, at most one report a second, and the oldest are
//! dropped when the orchestrator is slow. Losing progress never fails a run.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::console::print_line;
use super::usage_meter::UsageMeter;
use domain::report::{ProgressReport, StepRecord, Usage};
use domain::run_config::RunCallback;
use vendors::http::{Client, Method, Request};

/// How often may log lines alone make a report?
const LOG_PERIOD: Duration = Duration::from_secs(1);

/// How much log waits at most?
const MAX_WAITING_LOG: usize = 64 << 10;

/// How often is a step's change sent before it is given up?
const TRIES: u32 = 4;

/// How long may the last reports take when the run is over?
const FLUSH: Duration = Duration::from_secs(10);

/// A run's voice to the orchestrator. Clones share what waits.
#[derive(Clone, Default)]
pub struct ProgressReporter {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    waiting: Mutex<Waiting>,
    meter: UsageMeter,
    bell: Notify,
    sent: Notify,
}

#[derive(Default)]
struct Waiting {
    steps: VecDeque<StepRecord>,
    log: String,
    /// The step that log lines belong to.
    current: Option<StepRecord>,
    sending: bool,
}

impl ProgressReporter {
    /// What the run uses is counted here, and told with every report.
    pub fn usage_meter(&self) -> &UsageMeter {
        &self.shared.meter
    }

    /// Puts down a step's change.
    pub fn report_step(&self, step: StepRecord) {
        let mut waiting = self.waiting();
        waiting.current = (step.status == "running").then(|| step.clone());
        waiting.steps.push_back(step);
        drop(waiting);
        self.shared.bell.notify_one();
    }

    /// Puts down a line, which is redacted already.
    pub fn report_log_line(&self, line: &str) {
        let mut waiting = self.waiting();
        waiting.log.push_str(line);
        waiting.log.push('\n');
        while waiting.log.len() > MAX_WAITING_LOG {
            let first = waiting
                .log
                .find('\n')
                .map_or(waiting.log.len(), |at| at + 1);
            waiting.log.drain(..first);
        }
        drop(waiting);
        self.shared.bell.notify_one();
    }

    /// Starts the task that sends.
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

    /// Waits a little while for what is still to be sent.
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
        // What is not sent by then is lost; the result says what matters.
        let _ = timeout(FLUSH, empty).await;
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.shared
            .waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The next report, if there is anything to tell.
    fn next(&self) -> Option<ProgressReport> {
        let mut waiting = self.waiting();
        let step = match waiting.steps.pop_front() {
            Some(step) => step,
            None if waiting.log.is_empty() => return None,
            None => waiting.current.clone()?,
        };
        waiting.sending = true;
        let log = std::mem::take(&mut waiting.log);
        Some(ProgressReport {
            step,
            run_id: None,
            usage: Some(self.usage_meter().total()).filter(|used| *used != Usage::default()),
            log: (!log.is_empty()).then_some(log),
        })
    }

    fn is_idle(&self) -> bool {
        let waiting = self.waiting();
        waiting.steps.is_empty() && !waiting.sending
    }

    fn has_step(&self) -> bool {
        !self.waiting().steps.is_empty()
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
            self.progress.shared.bell.notified().await;
            while let Some(mut report) = self.progress.next() {
                report.run_id = self.run_id;
                self.send(&report).await;
                self.progress.waiting().sending = false;
                self.progress.shared.sent.notify_waiters();
                if !self.progress.has_step() {
                    self.pause().await;
                }
            }
        }
    }

    /// Waits for the period of log reports, or for a step.
    async fn pause(&self) {
        let step = async {
            while !self.progress.has_step() {
                self.progress.shared.bell.notified().await;
            }
        };
        // Either way the next look finds what is there.
        let _ = timeout(LOG_PERIOD, step).await;
    }

    async fn send(&self, report: &ProgressReport) {
        let request = Request::new("reporting progress", Method::POST, &self.url)
            .bearer(&self.token)
            .json(report)
            .safe();
        for attempt in 1..=TRIES {
            match self.client.send(&request).await {
                Ok(_) => return,
                Err(error) if error.is_permanent() || attempt == TRIES => {
                    print_line(&format!("progress was not taken: {error}"));
                    return;
                }
                Err(_) => sleep(Duration::from_secs(u64::from(attempt))).await,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokio::time::Instant;

    use super::*;
    use crate::console::Console;
    use domain::secret::Secret;
    use test_support::{StubReply, TestServer};
    use vendors::http::{Client, Redactor};

    #[tokio::test]
    async fn many_lines_make_few_reports_and_no_secret_leaves_in_one() {
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
        let begun = Instant::now();
        let mut lines = 0;
        while begun.elapsed() < LOG_PERIOD * 2 {
            // The second would be whole again without what no terminal shows.
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
            "two of the step and one a second: {}",
            reports.len()
        );
        let told = logs.concat();
        assert_eq!(told.lines().count(), lines, "no line is lost");
        assert!(!told.contains("the-secret-value"));
        sending.abort();
    }
}
