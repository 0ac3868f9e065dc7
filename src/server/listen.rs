//! HTTP listeners: accept connections, limit them, and shut them down.
//!
//! warp only routes. Connections are served here, because request heads must arrive in time, a panic must
//! fail only its own request, and a shutdown must not wait forever.

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
use super::error::{ApiError, is_acknowledgement};
use super::file_descriptors::SocketCapacity;
use super::routing::{self, Peer, RequestOrigin, Router};
use super::run_socket::RunSocket;
use super::tarpit::Tarpit;
use super::verified_senders::VerifiedSenders;
use engine::app::App;

/// Maximum time to send a request head, and maximum idle time between two requests.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum time from the start of a connection to the end of its first request head.
const FIRST_HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum time for open requests to finish after a stop.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(10);

/// Pause after a failed accept, for example when file descriptors are exhausted.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// Length of the accept queue. When it is full, clients retry after a second.
const BACKLOG: u32 = 4096;

/// Binds a TCP listener to an address.
///
/// # Errors
/// When the address cannot be bound.
pub fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    // As in the standard library: a restarted service can bind while old connections are in TIME_WAIT.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Source of connections.
enum Listener {
    Network(TcpListener),
    Control(ControlSocket),
    Runs(RunSocket),
}

/// Serves the network until `stop` resolves, then finishes open requests.
///
/// # Errors
/// When requests are still open 10 seconds after the stop.
pub async fn serve(
    app: App,
    listener: TcpListener,
    stop: impl Future<Output = ()>,
) -> io::Result<()> {
    let router = super::network_router(&app);
    serve_listener(&app, Listener::Network(listener), router, stop).await
}

/// Serves the control socket in the same way.
///
/// # Errors
/// Same as [`serve`].
pub async fn serve_control(
    app: App,
    control: ControlSocket,
    stop: impl Future<Output = ()>,
) -> io::Result<()> {
    let router = super::control_router(&app);
    serve_listener(&app, Listener::Control(control), router, stop).await
}

/// Serves pages of their own in the same way.
///
/// # Errors
/// Same as [`serve`].
pub(super) async fn serve_pages(
    app: &App,
    listener: TcpListener,
    pages: Router,
    stop: impl Future<Output = ()>,
) -> io::Result<()> {
    serve_listener(app, Listener::Network(listener), pages, stop).await
}

/// Serves the socket of runs in the same way.
///
/// # Errors
/// Same as [`serve`].
pub async fn serve_runs(
    app: App,
    socket: RunSocket,
    stop: impl Future<Output = ()>,
) -> io::Result<()> {
    let router = super::run_socket_router(&app);
    serve_listener(&app, Listener::Runs(socket), router, stop).await
}

async fn serve_listener(
    app: &App,
    listener: Listener,
    router: Router,
    stop: impl Future<Output = ()>,
) -> io::Result<()> {
    let capacity = match listener {
        Listener::Network(_) | Listener::Control(_) => SocketCapacity::current(),
        Listener::Runs(_) => SocketCapacity::RUN_SOCKET,
    };
    let router = Arc::new(router);
    let server = Server {
        app,
        routes: Arc::clone(&router).into_filter(),
        router,
        limit: ConnectionLimit::new(capacity.connections),
        tarpit: Arc::new(Tarpit::new(capacity.tarpit)),
        senders: Arc::default(),
        connections: GracefulShutdown::new(),
    };
    let mut stop = pin!(stop);
    loop {
        let accept = pin!(server.accept(&listener));
        match select(accept, &mut stop).await {
            Either::Left((Ok(()), _)) => {}
            Either::Left((Err(error), _)) => server.handle_accept_error(&error).await,
            Either::Right(((), _)) => break,
        }
    }
    drop(listener);
    app.live.stream_subscribers.close();
    tokio::time::timeout(SHUTDOWN_TIMEOUT, server.connections.shutdown())
        .await
        .map_err(|_| {
            io::Error::new(
                io::ErrorKind::TimedOut,
                "requests were aborted because they did not finish within 10 seconds",
            )
        })
}

/// State shared by the connections of one listener.
struct Server<'a> {
    app: &'a App,
    router: Arc<Router>,
    routes: BoxedFilter<(Response,)>,
    limit: ConnectionLimit,
    tarpit: Arc<Tarpit>,
    senders: Arc<VerifiedSenders>,
    connections: GracefulShutdown,
}

impl Server<'_> {
    /// Accepts one connection and serves it in a task of its own.
    async fn accept(&self, listener: &Listener) -> io::Result<()> {
        match listener {
            Listener::Network(listener) => {
                let (stream, address) = listener.accept().await?;
                // Responses are small and written at once; waiting to fill a packet gains nothing.
                let _ = stream.set_nodelay(true);
                self.connect(stream, Peer::Network(address)).await?;
            }
            Listener::Control(control) => {
                if let Some(stream) = control.accept().await? {
                    self.connect(stream, Peer::ControlSocket).await?;
                }
            }
            Listener::Runs(socket) => {
                self.connect(socket.accept().await?, Peer::RunSocket)
                    .await?
            }
        }
        Ok(())
    }

    async fn connect(
        &self,
        stream: impl AsyncRead + AsyncWrite + AsFd + Send + Unpin + 'static,
        peer: Peer,
    ) -> io::Result<()> {
        let client = client_identity::peer_key(self.app, peer);
        let slot = Arc::new(self.limit.acquire(client).await);
        let (socket, tarpit) = (
            stream.as_fd().try_clone_to_owned()?,
            Arc::clone(&self.tarpit),
        );
        let service = TowerToHyperService::new(warp::service(self.routes.clone()));
        let (router, request_slot) = (Arc::clone(&self.router), Arc::clone(&slot));
        let senders = Arc::clone(&self.senders);
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIMEOUT)
            .serve_connection(
                TokioIo::new(stream),
                service_fn(move |request| {
                    let (slot, senders) = (Arc::clone(&request_slot), Arc::clone(&senders));
                    let router = Arc::clone(&router);
                    handle_request(router, service.clone(), request, peer, slot, senders)
                }),
            );
        // Boxed, because a future moved into another future takes twice its size.
        let watched = Box::pin(self.connections.watch(connection));
        tasks::spawn(async move {
            tokio::select! {
                () = slot.evicted() => {
                    tracing::debug!(?peer, "Evicted a connection.");
                }
                () = first_request_timeout(&slot) => {
                    tracing::debug!(?peer, "Closed a connection that sent no request in time.");
                    return;
                }
                ended = watched => {
                    if let Err(error) = ended {
                        tracing::debug!(?peer, %error, "A connection failed.");
                    }
                    // After a rejected request, closing at once could reset the connection before the
                    // client has read the response.
                    if !slot.has_rejected_request() {
                        return;
                    }
                }
            }
            drop(slot);
            tarpit.close(socket).await;
        });
        Ok(())
    }

    /// Waits before the next accept, and evicts an anonymous connection to free the resources that the system
    /// lacks. Does neither if the client caused the error.
    async fn handle_accept_error(&self, error: &io::Error) {
        use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
        let caused_by_client = [ConnectionAborted, ConnectionRefused, ConnectionReset];
        if !caused_by_client.contains(&error.kind()) {
            tracing::error!(%error, "Failed to accept a connection.");
            self.limit.evict_anonymous();
            tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
        }
    }
}

/// Resolves when a connection has sent no request within [`FIRST_HEAD_TIMEOUT`].
async fn first_request_timeout(slot: &ConnectionSlot) {
    tokio::time::sleep(FIRST_HEAD_TIMEOUT).await;
    if slot.has_received_request() {
        std::future::pending().await
    }
}

async fn handle_request<S>(
    router: Arc<Router>,
    routes: TowerToHyperService<S>,
    mut request: Request<Incoming>,
    peer: Peer,
    slot: Arc<ConnectionSlot>,
    senders: Arc<VerifiedSenders>,
) -> Result<warp::http::Response<impl Body<Data = Bytes, Error = warp::Error>>, hyper::Error>
where
    TowerToHyperService<S>:
        Service<Request<Incoming>, Response = Response, Error = std::convert::Infallible>,
{
    // HEAD is routed as GET. hyper omits the body of the response.
    let method = match request.method() {
        &Method::HEAD => Method::GET,
        method => method.clone(),
    };
    let path = router.find(&method, request.uri().path());
    let webhook = path.and_then(|path| router.webhook_source(path));
    let mut client = client_identity::identify(router.app(), peer, webhook, request.headers());
    let sender = (client.trust == TrustLevel::UnverifiedSignature).then_some(client.key);
    client.trust = senders.trust_level(client);
    let guard = slot.begin_request(client.trust, client.key);
    let span = tracing::info_span!("request", method = %request.method(), path = request.uri().path(), job_id = Empty);
    let began = Instant::now();
    let acknowledges = path.is_some_and(|path| router.acknowledges_change(path, &method));
    *request.method_mut() = method;
    let has_body = !request.body().is_end_stream();
    let origin = RequestOrigin { peer, client, path };
    request.extensions_mut().insert(origin);
    let result = AssertUnwindSafe(routes.call(request)).catch_unwind();
    let response = match result.instrument(span.clone()).await {
        Ok(Ok(response)) => response,
        Err(_) => {
            span.in_scope(|| tracing::error!("A request handler panicked."));
            routing::with_default_headers(ApiError::internal().into_response())
        }
    };
    let response = match &router.app().live.standby {
        Some(standby)
            if acknowledges
                && is_acknowledgement(response.status())
                && !standby.covered().await =>
        {
            routing::with_default_headers(ApiError::not_in_standby().into_response())
        }
        _ => response,
    };
    if has_body && response.status().is_client_error() {
        slot.mark_rejected();
    }
    if let Some(sender) = sender {
        senders.record_response(sender, response.status());
    }
    let status = response.status().as_u16();
    router.metrics(path).observe(status, began.elapsed());
    span.in_scope(|| tracing::debug!(status, "Responded to a request."));
    Ok(response.map(|body| GuardedBody::new(body, guard)))
}
