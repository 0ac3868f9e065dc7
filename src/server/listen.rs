//! Connections: taking them, bounding them, and letting them end.
//!
//! warp routes; the connections are driven here, because a request's head must arrive within a
//! time, a panic must cost its request only, and a stop must not wait for ever.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
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
use tokio::net::{TcpListener, TcpSocket};
use tracing::Instrument;
use tracing::field::Empty;
use warp::filters::BoxedFilter;
use warp::http::{Method, Request};
use warp::reply::{Reply, Response};

use super::client_identity;
use super::connection_limit::{ConnectionLimit, ConnectionSlot, GuardedBody, TrustLevel};
use super::control_socket::ControlSocket;
use super::error::ApiError;
use super::file_descriptors::SocketCapacity;
use super::metrics::requests;
use super::routing::{self, Peer};
use super::tarpit::Tarpit;
use super::verified_senders::VerifiedSenders;
use engine::app::App;

/// How long may a connection take to send a request's head, or stay idle between two?
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// How long may a connection take from its beginning to the end of the first head?
const FIRST_HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// How long may requests go on after a stop?
const STOP_DEADLINE: Duration = Duration::from_secs(10);

/// How long is the rest after the system refused a connection, for want of file descriptors say?
const ACCEPT_REST: Duration = Duration::from_millis(100);

/// How many connections may wait to be accepted. Where it is full, clients try again after a second.
const BACKLOG: u32 = 4096;

/// Listens on an address.
///
/// # Errors
/// When the address is not to be had.
pub fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    // As the standard library has it: a service that is started again need not wait for old connections.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Where connections come in.
enum Door {
    Network(TcpListener),
    Control(ControlSocket),
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
    control: ControlSocket,
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
    let capacity = SocketCapacity::current();
    let hall = Hall {
        app,
        routes,
        crowd: ConnectionLimit::new(capacity.connections),
        tarpit: Arc::new(Tarpit::new(capacity.tarpit)),
        signers: Arc::default(),
        connections: GracefulShutdown::new(),
    };
    let mut stop = pin!(stop);
    loop {
        let let_in = pin!(hall.let_in(&door));
        match select(let_in, &mut stop).await {
            Either::Left((Ok(()), _)) => {}
            Either::Left((Err(error), _)) => hall.rest(&error).await,
            Either::Right(((), _)) => break,
        }
    }
    drop(door);
    app.stream_subscribers.close();
    tokio::time::timeout(STOP_DEADLINE, hall.connections.shutdown())
        .await
        .map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "requests were cut off at the stop"))
}

/// What is behind a door.
struct Hall<'a> {
    app: &'a App,
    routes: BoxedFilter<(Response,)>,
    crowd: ConnectionLimit,
    tarpit: Arc<Tarpit>,
    signers: Arc<VerifiedSenders>,
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
                self.connect(stream, Peer::Network(address)).await?;
            }
            Door::Control(control) => {
                if let Some(stream) = control.accept().await? {
                    self.connect(stream, Peer::ControlSocket).await?;
                }
            }
        }
        Ok(())
    }

    async fn connect(
        &self,
        stream: impl AsyncRead + AsyncWrite + AsFd + Send + Unpin + 'static,
        peer: Peer,
    ) -> io::Result<()> {
        let owner = client_identity::peer_key(self.app, peer);
        let Some(place) = self.crowd.acquire(owner).await.map(Arc::new) else {
            return Ok(());
        };
        let (socket, tarpit) = (
            stream.as_fd().try_clone_to_owned()?,
            Arc::clone(&self.tarpit),
        );
        let service = TowerToHyperService::new(warp::service(self.routes.clone()));
        let (app, at) = (self.app.clone(), Arc::clone(&place));
        let signers = Arc::clone(&self.signers);
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIMEOUT)
            .serve_connection(
                TokioIo::new(stream),
                service_fn(move |request| {
                    let (at, signers) = (Arc::clone(&at), Arc::clone(&signers));
                    answer(app.clone(), service.clone(), request, peer, at, signers)
                }),
            );
        // In a box: a future that is moved into another would take its place twice.
        let watched = Box::pin(self.connections.watch(connection));
        tokio::spawn(async move {
            tokio::select! {
                () = place.evicted() => {
                    tracing::debug!(?peer, "Evicted a connection.");
                }
                () = silence(&place) => {
                    tracing::debug!(?peer, "A connection sent no request in time.");
                    return;
                }
                ended = watched => {
                    if let Err(error) = ended {
                        tracing::debug!(?peer, %error, "A connection broke.");
                    }
                    // Closed now, the rest of a body that was refused would take its answer with it.
                    if !place.has_rejected_request() {
                        return;
                    }
                }
            }
            drop(place);
            tarpit.close(socket).await;
        });
        Ok(())
    }

    /// Waits until connections may be accepted again. What the system lacks for another, a stranger's may
    /// give back.
    async fn rest(&self, error: &io::Error) {
        use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
        let is_the_callers = [ConnectionAborted, ConnectionRefused, ConnectionReset];
        if !is_the_callers.contains(&error.kind()) {
            tracing::error!(%error, "Connections cannot be accepted.");
            self.crowd.evict_anonymous();
            tokio::time::sleep(ACCEPT_REST).await;
        }
    }
}

/// Resolves when a connection has had no request in its first seconds.
async fn silence(place: &ConnectionSlot) {
    tokio::time::sleep(FIRST_HEAD_TIMEOUT).await;
    if place.has_received_request() {
        std::future::pending().await
    }
}

async fn answer<S>(
    app: App,
    routes: TowerToHyperService<S>,
    mut request: Request<Incoming>,
    peer: Peer,
    place: Arc<ConnectionSlot>,
    signers: Arc<VerifiedSenders>,
) -> Result<warp::http::Response<impl Body<Data = Bytes, Error = warp::Error>>, hyper::Error>
where
    TowerToHyperService<S>:
        Service<Request<Incoming>, Response = Response, Error = std::convert::Infallible>,
{
    let mut guest = client_identity::identify(&app, peer, request.uri().path(), request.headers());
    let signer = (guest.trust == TrustLevel::UnverifiedSignature).then_some(guest.key);
    guest.trust = signers.trust_level(guest);
    let busy = place.begin_request(guest.trust, guest.key);
    let span = tracing::info_span!("request", method = %request.method(), path = request.uri().path(), job_id = Empty);
    let (began, path) = (Instant::now(), request.uri().path().to_owned());
    if request.method() == Method::HEAD {
        // The answer to HEAD is that to GET; the connection leaves its body out.
        *request.method_mut() = Method::GET;
    }
    let has_body = !request.body().is_end_stream();
    request.extensions_mut().insert(peer);
    request.extensions_mut().insert(guest);
    let answered = AssertUnwindSafe(routes.call(request)).catch_unwind();
    let response = match answered.instrument(span.clone()).await {
        Ok(Ok(response)) => response,
        Err(_) => {
            span.in_scope(|| tracing::error!("A request panicked."));
            routing::with_default_headers(ApiError::internal().into_response())
        }
    };
    if has_body && response.status().is_client_error() {
        place.mark_rejected();
    }
    if let Some(signer) = signer {
        signers.record_response(signer, response.status());
    }
    let status = response.status().as_u16();
    requests::count(&app.metrics, &path, status, began.elapsed());
    span.in_scope(|| tracing::debug!(status, "Answered."));
    Ok(response.map(|body| GuardedBody::new(body, busy)))
}
