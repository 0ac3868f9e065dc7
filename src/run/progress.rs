//! Progress reports to the orchestrator, without blocking the run.
//!
//! Step changes are queued in memory and sent by one task, each with retries. Lost progress never fails a run. The log
//! of the run: [`super::run_log`].

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

/// Maximum time to send the last reports after the run.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(10);

/// Queue of progress reports. Clones share the queue.
#[derive(Clone, Default)]
pub(crate) struct ProgressReporter {
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
    sending: bool,
}

impl ProgressReporter {
    /// Returns the usage meter of the run. Every report includes its total.
    pub(crate) fn usage_meter(&self) -> &UsageMeter {
        &self.shared.meter
    }

    /// Queues a step change.
    pub(crate) fn report_step(&self, step: StepRecord) {
        self.queue().steps.push_back(step);
        self.shared.queued.notify_one();
    }

    /// Starts the task that sends reports.
    pub(crate) fn start(
        &self,
        client: Client,
        callback: &RunCallback,
        run_id: Option<u64>,
    ) -> JoinHandle<()> {
        let sender = Sender {
            progress: self.clone(),
            client,
            url: callback.route("/runner/progress"),
            token: callback.progress_token.expose().to_owned(),
            run_id,
        };
        tasks::spawn(sender.run())
    }

    /// Waits up to 10 seconds for queued reports to be sent.
    pub(crate) async fn flush(&self) {
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

    /// Takes the step changes that nobody sends, of a run that cannot report to the orchestrator.
    pub(crate) fn take_unsent(&self) -> Vec<StepRecord> {
        self.queue().steps.drain(..).collect()
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
        let step = queue.steps.pop_front()?;
        queue.sending = true;
        let (agent, model) = self.usage_meter().agent();
        Some(ProgressReport {
            step,
            run_id: None,
            agent,
            model,
            usage: Some(self.usage_meter().total()).filter(|used| *used != Usage::default()),
            log: None,
        })
    }

    fn is_idle(&self) -> bool {
        let queue = self.queue();
        queue.steps.is_empty() && !queue.sending
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
            }
        }
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

    use super::*;
    use domain::secret::Secret;
    use test_support::{StubReply, TestServer};
    use vendors::http::{Client, Redactor};

    #[tokio::test]
    async fn sends_every_step_change_in_order() {
        let server = TestServer::start(|_, _| StubReply::json(200, &json!({}))).await;
        let progress = ProgressReporter::default();
        let callback = RunCallback {
            url: server.url.clone(),
            run_token: Secret::new("r"),
            progress_token: Secret::new("p"),
        };
        let client = Client::new("the orchestrator", Redactor::default()).unwrap();
        let sending = progress.start(client, &callback, Some(7));
        let statuses = ["running", "passed"];
        for status in statuses {
            let step = json!({
                "id": "clone", "type": "clone", "status": status, "started_at": "2027-01-15T08:00:00Z",
            });
            progress.report_step(serde_json::from_value(step).unwrap());
        }
        progress.flush().await;
        let sent: Vec<_> = server
            .requests()
            .iter()
            .map(|request| request.json())
            .collect();
        let reported: Vec<&str> = sent
            .iter()
            .filter_map(|report| report["step"]["status"].as_str())
            .collect();
        assert_eq!(reported, statuses);
        assert_eq!(sent[0]["runId"], 7);
        sending.abort();
    }
}
