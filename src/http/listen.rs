//! Connections: taking them, bounding them, and letting them end.
//!
//! warp routes; the connections are driven here, because a request's head must arrive within a
//! time, a panic must cost its request only, and a stop must not wait for ever.

use std::io;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::{Either, select};
use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tracing::Instrument;
use tracing::field::Empty;
use warp::filters::BoxedFilter;
use warp::http::{Method, Request};
use warp::reply::{Reply, Response};

use super::control::Control;
use super::crowd::{Attended, Crowd, Place, ROOM};
use super::error::ApiError;
use super::metrics::requests;
use super::parts::{self, Peer};
use crate::app::App;

/// How long may a connection take to send a request's head, or stay idle between two?
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// How long may requests go on after a stop?
const STOP_DEADLINE: Duration = Duration::from_secs(10);

/// How long is the rest after the system refused a connection, for want of file descriptors say?
const ACCEPT_REST: Duration = Duration::from_millis(500);

/// Where connections come in.
enum Door {
    Network(TcpListener),
    Control(Control),
}

/// Serves the network until `stop` resolves, then finishes the requests under way.
///
/// # Errors
/// When requests were still under way at the deadline of ten seconds.
pub async fn serve(
    app: App,
    listener: TcpListener,
    stop: impl Future<Output = ()>,
) -> io::Result<()> {
    let routes = super::routes(&app);
    keep(&app, Door::Network(listener), routes, stop).await
}

/// Serves whoever may open the control socket, in the same way.
///
/// # Errors
/// As [`serve`].
pub async fn serve_control(
    app: App,
    control: Control,
    stop: impl Future<Output = ()>,
) -> io::Result<()> {
    let routes = super::control_routes(&app);
    keep(&app, Door::Control(control), routes, stop).await
}

async fn keep(
    app: &App,
    door: Door,
    routes: BoxedFilter<(Response,)>,
    stop: impl Future<Output = ()>,
) -> io::Result<()> {
    let hall = Hall {
        app,
        routes,
        crowd: Crowd::new(ROOM),
        connections: GracefulShutdown::new(),
    };
    let mut stop = pin!(stop);
    loop {
        let let_in = pin!(hall.let_in(&door));
        match select(let_in, &mut stop).await {
            Either::Left((Ok(()), _)) => {}
            Either::Left((Err(error), _)) => rest(&error).await,
            Either::Right(((), _)) => break,
        }
    }
    drop(door);
    app.audience.dismiss();
    tokio::time::timeout(STOP_DEADLINE, hall.connections.shutdown())
        .await
        .map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "requests were cut off at the stop"))
}

/// What is behind a door.
struct Hall<'a> {
    app: &'a App,
    routes: BoxedFilter<(Response,)>,
    crowd: Crowd,
    connections: GracefulShutdown,
}

impl Hall<'_> {
    /// Lets one connection in, once there is place for it.
    async fn let_in(&self, door: &Door) -> io::Result<()> {
        match door {
            Door::Network(listener) => {
                let (stream, address) = listener.accept().await?;
                // Replies are small and whole; nothing is won by waiting to fill a packet.
                let _ = stream.set_nodelay(true);
                self.connect(stream, Peer::Network(address)).await;
            }
            Door::Control(control) => {
                if let Some(stream) = control.accept().await? {
                    self.connect(stream, Peer::Owner).await;
                }
            }
        }
        Ok(())
    }

    async fn connect(
        &self,
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        peer: Peer,
    ) {
        let Some(place) = self.crowd.enter().await.map(Arc::new) else {
            return;
        };
        let service = TowerToHyperService::new(warp::service(self.routes.clone()));
        let (app, at) = (self.app.clone(), Arc::clone(&place));
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIMEOUT)
            .serve_connection(
                TokioIo::new(stream),
                service_fn(move |request| {
                    answer(app.clone(), service.clone(), request, peer, Arc::clone(&at))
                }),
            );
        // In a box: a future that is moved into another would take its place twice.
        let watched = Box::pin(self.connections.watch(connection));
        tokio::spawn(async move {
            let leave = pin!(place.asked_to_leave());
            match select(leave, watched).await {
                Either::Left(_) => {
                    tracing::debug!(?peer, "An idle connection made place for another.")
                }
                Either::Right((Err(error), _)) => {
                    tracing::debug!(?peer, %error, "A connection broke.")
                }
                Either::Right((Ok(()), _)) => {}
            }
        });
    }
}

async fn rest(error: &io::Error) {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    let is_the_callers = [ConnectionAborted, ConnectionRefused, ConnectionReset];
    if !is_the_callers.contains(&error.kind()) {
        tracing::error!(%error, "Connections cannot be accepted.");
        tokio::time::sleep(ACCEPT_REST).await;
    }
}

async fn answer<S>(
    app: App,
    routes: TowerToHyperService<S>,
    mut request: Request<Incoming>,
    peer: Peer,
    place: Arc<Place>,
) -> Result<warp::http::Response<impl Body<Data = Bytes, Error = warp::Error>>, hyper::Error>
where
    TowerToHyperService<S>:
        Service<Request<Incoming>, Response = Response, Error = std::convert::Infallible>,
{
    let busy = place.begin();
    let span = tracing::info_span!("request", method = %request.method(), path = request.uri().path(), job_id = Empty);
    let (began, path) = (Instant::now(), request.uri().path().to_owned());
    if request.method() == Method::HEAD {
        // The answer to HEAD is that to GET; the connection leaves its body out.
        *request.method_mut() = Method::GET;
    }
    request.extensions_mut().insert(peer);
    let answered = AssertUnwindSafe(routes.call(request)).catch_unwind();
    let response = match answered.instrument(span.clone()).await {
        Ok(Ok(response)) => response,
        Err(_) => {
            span.in_scope(|| tracing::error!("A request panicked."));
            parts::dressed(ApiError::internal().into_response())
        }
    };
    let status = response.status().as_u16();
    requests::count(&app.metrics, &path, status, began.elapsed());
    span.in_scope(|| tracing::debug!(status, "Answered."));
    Ok(response.map(|body| Attended::new(body, busy)))
}
