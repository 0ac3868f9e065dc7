//! Status reporter: sends session events to the orchestrator, which updates the ticket.
//!
//! Only sessions have the required nonce. Events are sent in order, each with retries. The run never
//! waits for an event, and a lost event never fails the run.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::print::print_line;
use super::random::random_hex;
use super::retry::send_report;
use domain::secret::Secret;
use domain::session_event::SessionEvent;
use vendors::http::{Client, Method, Request};

/// Maximum time to send the last events. The nonce becomes invalid with the result.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(20);

/// Reporter of session events. Does nothing in a CI run. Clones share the queue.
#[derive(Clone, Default)]
pub(crate) struct StatusReporter {
    queue: Option<UnboundedSender<Value>>,
}

/// Task that sends events until every reporter is dropped.
pub(crate) struct StatusReporterTask(Option<JoinHandle<()>>);

impl StatusReporter {
    /// Starts the reporter of a session, which posts to this URL. Without URL or nonce, events are ignored.
    pub(crate) fn start(
        client: Client,
        url: Option<String>,
        nonce: Option<Secret>,
    ) -> (Self, StatusReporterTask) {
        let (Some(url), Some(nonce)) = (url, nonce) else {
            return (Self::default(), StatusReporterTask(None));
        };
        let (queue, events) = unbounded_channel();
        let task = tasks::spawn(send_all(client, url, nonce, events));
        (Self { queue: Some(queue) }, StatusReporterTask(Some(task)))
    }

    /// Reports an event that occurs once.
    pub(crate) fn report(&self, event: &SessionEvent) {
        self.enqueue(event.to_body());
    }

    /// Reports an event that may occur several times with the same content.
    pub(crate) fn report_recurring(&self, event: &SessionEvent) {
        let mut body = event.to_body();
        body["id"] = json!(random_hex());
        self.enqueue(body);
    }

    fn enqueue(&self, body: Value) {
        if let Some(queue) = &self.queue {
            // The task ends only after every reporter is dropped.
            let _ = queue.send(body);
        }
    }
}

impl StatusReporterTask {
    /// Waits up to 20 seconds for queued events. Every reporter must be dropped first.
    pub(crate) async fn flush(self) {
        if let Some(task) = self.0 {
            // Events not sent by then are dropped; the result holds what matters.
            let _ = timeout(FLUSH_TIMEOUT, task).await;
        }
    }
}

async fn send_all(
    client: Client,
    url: String,
    nonce: Secret,
    mut events: UnboundedReceiver<Value>,
) {
    while let Some(mut body) = events.recv().await {
        body["nonce"] = json!(nonce.expose());
        let request = Request::new("reporting the session status", Method::POST, &url)
            .json(&body)
            .safe();
        if let Err(error) = send_report(&client, &request).await {
            print_line(&format!("Failed to report session status: {error}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_support::{StubReply, TestServer};
    use vendors::http::{Client, Redactor};

    #[tokio::test]
    async fn sends_events_in_order_with_the_nonce_and_an_id_if_recurring() {
        let server = TestServer::start(|_, _| StubReply::json(200, &json!({}))).await;
        let nonce = Some(Secret::new("the-nonce"));
        let (reporter, task) = StatusReporter::start(
            Client::new("the orchestrator", Redactor::default()).unwrap(),
            Some(format!("{}/api/status", server.url)),
            nonce,
        );
        reporter.report(&SessionEvent::SetupComplete);
        reporter.report_recurring(&SessionEvent::VerifyRunning);
        reporter.report_recurring(&SessionEvent::VerifyRunning);
        drop(reporter);
        task.flush().await;
        let requests = server.requests();
        let bodies: Vec<Value> = requests.iter().map(|request| request.json()).collect();
        let events: Vec<&str> = bodies
            .iter()
            .filter_map(|body| body["event"].as_str())
            .collect();
        assert_eq!(
            events,
            ["setup_complete", "verify_running", "verify_running"]
        );
        assert!(bodies.iter().all(|body| body["nonce"] == "the-nonce"));
        assert!(bodies[0]["id"].is_null() && bodies[1]["id"].is_string());
        assert_ne!(bodies[1]["id"], bodies[2]["id"]);
    }

    #[tokio::test]
    async fn sends_nothing_without_a_nonce() {
        let server = TestServer::start(|_, _| StubReply::json(200, &json!({}))).await;
        let (reporter, task) = StatusReporter::start(
            Client::new("the orchestrator", Redactor::default()).unwrap(),
            Some(format!("{}/api/status", server.url)),
            None,
        );
        reporter.report(&SessionEvent::SetupComplete);
        drop(reporter);
        task.flush().await;
        assert!(server.requests().is_empty());
    }
}
