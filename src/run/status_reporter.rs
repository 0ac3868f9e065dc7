//! Telling the ticket how far a session is, by way of the orchestrator.
//!
//! Only sessions have the nonce that it takes. Events leave one after the other, each tried again for
//! a while; the run never waits for one, and losing one never fails it.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::console::print_line;
use super::random_hex;
use domain::secret::Secret;
use domain::session_event::SessionEvent;
use vendors::http::{Client, Method, Request};

/// How often is one event told before it is given up?
const TRIES: u32 = 4;

/// How long may the last events take when the run is over? Its result ends the nonce.
const FLUSH: Duration = Duration::from_secs(20);

/// A session's voice; a CI run's is silent. Clones speak for the same session.
#[derive(Clone, Default)]
pub struct StatusReporter {
    queue: Option<UnboundedSender<Value>>,
}

/// The task that sends, until the last voice is gone.
pub struct StatusReporterTask(Option<JoinHandle<()>>);

impl StatusReporter {
    /// The voice of a session that was given a nonce and a way to call back.
    pub fn start(
        client: Client,
        url: Option<&str>,
        nonce: Option<Secret>,
    ) -> (Self, StatusReporterTask) {
        let (Some(url), Some(nonce)) = (url, nonce) else {
            return (Self::default(), StatusReporterTask(None));
        };
        let url = format!("{}/api/status", url.trim_end_matches('/'));
        let (queue, waiting) = unbounded_channel();
        let sending = tokio::spawn(send_all(client, url, nonce, waiting));
        (
            Self { queue: Some(queue) },
            StatusReporterTask(Some(sending)),
        )
    }

    /// Tells an event that happens once.
    pub fn report(&self, event: &SessionEvent) {
        self.put(event.to_body());
    }

    /// Tells an event that may happen again in the same words.
    pub fn report_recurring(&self, event: &SessionEvent) {
        let mut body = event.to_body();
        body["id"] = json!(random_hex());
        self.put(body);
    }

    fn put(&self, body: Value) {
        if let Some(queue) = &self.queue {
            // The task ends only when nobody is left to tell anything.
            let _ = queue.send(body);
        }
    }
}

impl StatusReporterTask {
    /// Waits a little while for what was told and not sent. Every voice must be gone.
    pub async fn flush(self) {
        if let Some(sending) = self.0 {
            // What is not sent by then is lost; the result says what matters.
            let _ = timeout(FLUSH, sending).await;
        }
    }
}

async fn send_all(
    client: Client,
    url: String,
    nonce: Secret,
    mut waiting: UnboundedReceiver<Value>,
) {
    while let Some(mut body) = waiting.recv().await {
        body["nonce"] = json!(nonce.expose());
        let request = Request::new("telling how far the session is", Method::POST, &url)
            .json(&body)
            .safe();
        for attempt in 1..=TRIES {
            match client.send(&request).await {
                Ok(_) => break,
                Err(error) if error.is_permanent() || attempt == TRIES => {
                    print_line(&format!("the session's news was not taken: {error}"));
                    break;
                }
                Err(_) => sleep(Duration::from_secs(u64::from(attempt))).await,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_support::{StubReply, TestServer};
    use vendors::http::{Client, Redactor};

    #[tokio::test]
    async fn events_arrive_in_order_with_the_nonce_and_only_those_that_recur_are_named() {
        let server = TestServer::start(|_, _| StubReply::json(200, &json!({}))).await;
        let nonce = Some(Secret::new("the-nonce"));
        let (herald, sending) = StatusReporter::start(
            Client::new("orchestrator", Redactor::default()).unwrap(),
            Some(&server.url),
            nonce,
        );
        herald.report(&SessionEvent::SetupComplete);
        herald.report_recurring(&SessionEvent::VerifyRunning);
        herald.report_recurring(&SessionEvent::VerifyRunning);
        drop(herald);
        sending.flush().await;
        let asked = server.requests();
        let told: Vec<Value> = asked.iter().map(|request| request.json()).collect();
        let events: Vec<&str> = told
            .iter()
            .filter_map(|body| body["event"].as_str())
            .collect();
        assert_eq!(
            events,
            ["setup_complete", "verify_running", "verify_running"]
        );
        assert!(told.iter().all(|body| body["nonce"] == "the-nonce"));
        assert!(told[0]["id"].is_null() && told[1]["id"].is_string());
        assert_ne!(told[1]["id"], told[2]["id"]);
    }

    #[tokio::test]
    async fn a_run_without_a_nonce_says_nothing() {
        let server = TestServer::start(|_, _| StubReply::json(200, &json!({}))).await;
        let (herald, sending) = StatusReporter::start(
            Client::new("orchestrator", Redactor::default()).unwrap(),
            Some(&server.url),
            None,
        );
        herald.report(&SessionEvent::SetupComplete);
        drop(herald);
        sending.flush().await;
        assert!(server.requests().is_empty());
    }
}
