//! Connections: taking them, bounding them, and letting them end.
//!
//! warp routes; the connections are driven here, because a request's head must arrive within a
//! time, a panic must cost its request only, and a stop must not wait for ever.

use std::io;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::{Either, select};
use hyper::body::Incoming;
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
    let connections = GracefulShutdown::new();
    let mut stop = pin!(stop);
    loop {
        let let_in = pin!(let_in(app, &door, &routes, &connections));
        match select(let_in, &mut stop).await {
            Either::Left((Ok(()), _)) => {}
            Either::Left((Err(error), _)) => rest(&error).await,
            Either::Right(((), _)) => break,
        }
    }
    drop(door);
    app.audience.dismiss();
    tokio::time::timeout(STOP_DEADLINE, connections.shutdown())
        .await
        .map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "requests were cut off at the stop"))
}

async fn let_in(
    app: &App,
    door: &Door,
    routes: &BoxedFilter<(Response,)>,
    connections: &GracefulShutdown,
) -> io::Result<()> {
    match door {
        Door::Network(listener) => {
            let (stream, address) = listener.accept().await?;
            // Replies are small and whole; nothing is won by waiting to fill a packet.
            let _ = stream.set_nodelay(true);
            connect(
                app,
                stream,
                Peer::Network(address),
                routes.clone(),
                connections,
            );
        }
        Door::Control(control) => {
            if let Some(stream) = control.accept().await? {
                connect(app, stream, Peer::Owner, routes.clone(), connections);
            }
        }
    }
    Ok(())
}

async fn rest(error: &io::Error) {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    let is_the_callers = [ConnectionAborted, ConnectionRefused, ConnectionReset];
    if !is_the_callers.contains(&error.kind()) {
        tracing::error!(%error, "Connections cannot be accepted.");
        tokio::time::sleep(ACCEPT_REST).await;
    }
}

fn connect(
    app: &App,
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    peer: Peer,
    routes: BoxedFilter<(Response,)>,
    connections: &GracefulShutdown,
) {
    let service = TowerToHyperService::new(warp::service(routes));
    let app = app.clone();
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .serve_connection(
            TokioIo::new(stream),
            service_fn(move |request| answer(app.clone(), service.clone(), request, peer)),
        );
    let watched = connections.watch(connection);
    tokio::spawn(async move {
        if let Err(error) = watched.await {
            tracing::debug!(?peer, %error, "A connection broke.");
        }
    });
}

async fn answer<S>(
    app: App,
    routes: TowerToHyperService<S>,
    mut request: Request<Incoming>,
    peer: Peer,
) -> Result<Response, hyper::Error>
where
    TowerToHyperService<S>:
        Service<Request<Incoming>, Response = Response, Error = std::convert::Infallible>,
{
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
    Ok(response)
}
