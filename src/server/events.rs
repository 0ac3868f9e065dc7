//! `GET /api/events`: what changes, while it changes, as server-sent events.
//!
//! A `job` carries the job, a `step` the job it belongs to, a `decision` the decision, a `poll` the
//! count of polls; `outbox` only says that another look is worth it. Who falls behind is let go and
//! comes back for all of it: the stream makes nothing known that the other routes do not show.

use std::convert::Infallible;

use futures_util::stream;
use serde::Serialize;
use serde_json::json;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use tokio::time::{Instant, sleep_until};
use warp::http::Method;
use warp::http::header::{HeaderName, HeaderValue};
use warp::reply::Reply;
use warp::sse::Event;
use warp::{Filter, path};

use super::admin::jobs;
use super::error::AdminApiError;
use super::routing::{
    ApiResult, RequestAuth, Routes, is_admin, one_of, reject_other_methods, request_auth,
    require_admin, with_app,
};
use engine::app::App;
use store::{StoreChange, StoreResult, decisions};

/// How many events may wait for a reader?
const BACKLOG: usize = 64;

/// Asks proxies to pass events on as they come.
const UNBUFFERED: (HeaderName, HeaderValue) = (
    HeaderName::from_static("x-accel-buffering"),
    HeaderValue::from_static("no"),
);

/// Routes of `/api/events`.
pub fn routes(app: &App) -> Routes {
    let events = path!("api" / "events").boxed();
    one_of([
        events
            .clone()
            .and(require_admin(app, Method::GET))
            .and(request_auth())
            .and(with_app(app))
            .then(open)
            .boxed(),
        reject_other_methods(&events, [Method::GET]),
    ])
}

async fn open(caller: RequestAuth, app: App) -> ApiResult {
    let seat = app
        .stream_subscribers
        .try_acquire()
        .ok_or(AdminApiError::TooManyEventStreams)?;
    let (sender, mut events) = mpsc::channel(BACKLOG);
    let teller = Teller {
        sender,
        caller,
        app,
    };
    tokio::spawn(async move {
        teller.tell().await;
        drop(seat);
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

/// The one who tells a reader.
struct Teller {
    sender: mpsc::Sender<Event>,
    caller: RequestAuth,
    app: App,
}

/// The reader is gone, too slow, or no longer signed in.
struct Over;

impl Teller {
    async fn tell(self) {
        tokio::select! {
            _ = self.tell_news() => {}
            () = self.sender.closed() => {}
            () = self.app.stream_subscribers.closed() => {}
        }
    }

    async fn tell_news(&self) -> Result<(), Over> {
        let (mut news, mut pulse) = (
            self.app.store.subscribe(),
            self.app.heartbeats.subscribe_polls(),
        );
        // What is watched from here on is known to the reader.
        self.send(Event::default().comment("listening"))?;
        let heartbeat = self.app.timings.stream_heartbeat_interval;
        let mut beat = Instant::now() + heartbeat;
        loop {
            tokio::select! {
                piece = news.recv() => match piece {
                    Ok(piece) => self.pass_on(&piece)?,
                    Err(RecvError::Lagged(_) | RecvError::Closed) => return Err(Over),
                },
                changed = pulse.changed() => {
                    changed.map_err(|_| Over)?;
                    let beat = *pulse.borrow_and_update();
                    self.send(event("poll", &beat)?)?;
                }
                () = sleep_until(beat) => {
                    self.check()?;
                    self.send(Event::default().comment(""))?;
                    beat = Instant::now() + heartbeat;
                }
            }
        }
    }

    fn pass_on(&self, piece: &StoreChange) -> Result<(), Over> {
        match self.read(piece) {
            Ok(Some(event)) => self.send(event),
            Ok(None) => Ok(()),
            Err(error) => {
                tracing::error!(%error, "News could not be read.");
                Err(Over)
            }
        }
    }

    /// What there is to say about it; nothing when it is gone.
    fn read(&self, piece: &StoreChange) -> StoreResult<Option<Event>> {
        let said = match piece {
            StoreChange::Job(id) => self
                .app
                .store
                .read(|tx| jobs::job_json(tx, id))?
                .and_then(|job| event("job", &job).ok()),
            StoreChange::Step(id) => event("step", &json!({ "jobId": id })).ok(),
            StoreChange::Decision(issue) => self
                .app
                .store
                .read(|tx| decisions::get(tx, issue))?
                .and_then(|row| event("decision", row.current()?).ok()),
            StoreChange::Outbox => event("outbox", &json!({})).ok(),
        };
        Ok(said)
    }

    fn send(&self, event: Event) -> Result<(), Over> {
        self.sender.try_send(event).map_err(|error| {
            if let TrySendError::Full(_) = error {
                tracing::debug!("A reader of events was too slow.");
            }
            Over
        })
    }

    fn check(&self) -> Result<(), Over> {
        match is_admin(&self.app, &self.caller) {
            Ok(true) => Ok(()),
            Ok(false) | Err(_) => Err(Over),
        }
    }
}

fn event(name: &str, data: &impl Serialize) -> Result<Event, Over> {
    Event::default()
        .event(name)
        .json_data(data)
        .map_err(|_| Over)
}
