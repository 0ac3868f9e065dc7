//! `GET /api/events`: changes of the stored state as server-sent events.
//!
//! A `job` event carries the job, `step` the id of its job, `decision` the decision, `poll` the count of
//! polls. `outbox` carries nothing; clients reload the outbox. A client that reads too slowly is
//! disconnected and must reload everything. The stream contains nothing that other routes do not return.

use std::convert::Infallible;
use std::time::Duration;

use futures_util::stream;
use serde::Serialize;
use serde_json::json;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};
use warp::http::header::{HeaderName, HeaderValue};
use warp::reply::Reply;
use warp::sse::Event;

use super::admin::{jobs, why};
use super::error::AdminApiError;
use super::routing::{AdminCredential, ApiResult, Route, is_admin};
use domain::decision::Decision;
use domain::ids::IssueKey;
use engine::app::App;
use store::{ReadTx, StoreChange, StoreResult, decisions};

/// Maximum number of events queued for one client.
const BACKLOG: usize = 64;

/// Time for which a client may leave the queue full.
const MAX_DELAY: Duration = Duration::from_secs(5);

/// Header that tells reverse proxies not to buffer the stream.
const UNBUFFERED: (HeaderName, HeaderValue) = (
    HeaderName::from_static("x-accel-buffering"),
    HeaderValue::from_static("no"),
);

/// Routes of `/api/events`.
pub(super) fn routes() -> Vec<Route> {
    vec![Route::get("/api/events", "watch", open)]
}

async fn open(caller: AdminCredential, app: App) -> ApiResult {
    let subscription = app
        .live
        .stream_subscribers
        .try_acquire()
        .ok_or(AdminApiError::TooManyEventStreams)?;
    let (sender, mut events) = mpsc::channel(BACKLOG);
    let publisher = EventPublisher {
        sender,
        caller,
        app,
    };
    tasks::spawn(async move {
        publisher.run().await;
        drop(subscription);
    });
    let events = stream::poll_fn(move |cx| {
        events
            .poll_recv(cx)
            .map(|event| event.map(Ok::<_, Infallible>))
    });
    let mut response = warp::sse::reply(events).into_response();
    let (name, value) = UNBUFFERED;
    response.headers_mut().insert(name, value);
    Ok(response)
}

/// Publishes events to one client.
struct EventPublisher {
    sender: mpsc::Sender<Event>,
    caller: AdminCredential,
    app: App,
}

/// Error: the client is gone, too slow, or no longer signed in.
struct StreamEnded;

impl EventPublisher {
    async fn run(self) {
        tokio::select! {
            _ = self.publish_changes() => {}
            () = self.sender.closed() => {}
            () = self.app.live.stream_subscribers.closed() => {}
        }
    }

    async fn publish_changes(&self) -> Result<(), StreamEnded> {
        let (mut changes, mut polls) = (
            self.app.core.store().subscribe(),
            self.app.live.heartbeats.subscribe_polls(),
        );
        // The client loads its data after this comment, so that no change is missed.
        self.send(Event::default().comment("listening")).await?;
        let interval = self.app.core.timings.stream_heartbeat_interval;
        let mut heartbeat_at = Instant::now() + interval;
        loop {
            tokio::select! {
                change = changes.recv() => match change {
                    Ok(change) => self.publish(&change).await?,
                    Err(RecvError::Lagged(_) | RecvError::Closed) => return Err(StreamEnded),
                },
                changed = polls.changed() => {
                    changed.map_err(|_| StreamEnded)?;
                    let poll = *polls.borrow_and_update();
                    self.send(event("poll", &poll)?).await?;
                }
                () = sleep_until(heartbeat_at) => {
                    self.check_admin()?;
                    self.send(Event::default().comment("")).await?;
                    heartbeat_at = Instant::now() + interval;
                }
            }
        }
    }

    async fn publish(&self, change: &StoreChange) -> Result<(), StreamEnded> {
        match self.load_event(change) {
            Ok(Some(event)) => self.send(event).await,
            Ok(None) => Ok(()),
            Err(error) => {
                tracing::error!(%error, "Failed to load a change for an event stream.");
                Err(StreamEnded)
            }
        }
    }

    /// Loads the event of a change; `None` if the changed record no longer exists.
    fn load_event(&self, change: &StoreChange) -> StoreResult<Option<Event>> {
        let loaded = match change {
            StoreChange::Job(id) => self
                .app
                .core
                .store()
                .read(|tx| jobs::job_json(tx, id))?
                .and_then(|job| event("job", &job).ok()),
            StoreChange::Step(id) => event("step", &json!({ "jobId": id })).ok(),
            StoreChange::Decision(issue) => self
                .app
                .core
                .store()
                .read(|tx| self.decision(tx, issue))?
                .and_then(|decision| event("decision", &decision).ok()),
            StoreChange::Outbox => event("outbox", &json!({})).ok(),
        };
        Ok(loaded)
    }

    fn decision(&self, tx: &ReadTx, issue: &IssueKey) -> StoreResult<Option<Decision>> {
        let history = decisions::get(tx, issue)?;
        let jobs = why::jobs_of(tx, issue)?;
        why::current_decision(tx, history.as_ref(), &jobs, self.app.core.now())
    }

    /// Queues an event. One commit may have more changes than the queue has places.
    async fn send(&self, event: Event) -> Result<(), StreamEnded> {
        match timeout(MAX_DELAY, self.sender.send(event)).await {
            Ok(sent) => sent.map_err(|_| StreamEnded),
            Err(_) => {
                tracing::debug!("Closed an event stream: the client reads too slowly.");
                Err(StreamEnded)
            }
        }
    }

    fn check_admin(&self) -> Result<(), StreamEnded> {
        match is_admin(&self.app, &self.caller) {
            Ok(true) => Ok(()),
            Ok(false) | Err(_) => Err(StreamEnded),
        }
    }
}

fn event(name: &str, data: &impl Serialize) -> Result<Event, StreamEnded> {
    Event::default()
        .event(name)
        .json_data(data)
        .map_err(|_| StreamEnded)
}
