//! One HTTP listener for all fake vendors: routing by path prefix, and injected faults.
//!
//! Faults are injected here, around the vendors and never inside them: a vendor either handles a
//! request completely and stores the result, or does not see it. Vendors are synchronous and run on
//! the blocking thread pool.

use std::path::Path;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{HeaderName, HeaderValue};
use hyper::service::service_fn;
use hyper::{Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener, UnixStream};
use tokio::task::JoinSet;

use super::bucket::BUCKET;
use super::chat::FakeChat;
use super::faults::{FakeService, InjectedFault};
use super::http::{HttpRequest, HttpResponse};
use super::instance::FakeVendorsInner;
use super::machines::fly::FakeFlyMachines;
use super::machines::kubernetes::FakeKubernetes;

/// Binds the socket of the Docker engine. Returns `None` if the folder's path is too long for a Unix
/// socket; the engine is still reachable over TCP.
pub(crate) fn bind_docker_socket(path: &Path) -> Option<UnixListener> {
    // A killed process leaves its socket behind. Usually there is none.
    let _ = std::fs::remove_file(path);
    UnixListener::bind(path).ok()
}

/// Accepts connections until the listener fails. All open connections are aborted when this function
/// ends.
pub(crate) async fn accept_connections(
    listener: TcpListener,
    socket: Option<UnixListener>,
    vendors: Weak<FakeVendorsInner>,
) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else { return };
                // Without this, small responses wait for the client's delayed acknowledgement.
                let _ = stream.set_nodelay(true);
                connections.spawn(tasks::boxed(serve(stream, vendors.clone())));
            }
            Some(stream) = next_unix_connection(socket.as_ref()) => {
                connections.spawn(tasks::boxed(serve(stream, vendors.clone())));
            }
        }
        while connections.try_join_next().is_some() {}
    }
}

/// Returns the next connection of the socket. Pends forever without a socket.
async fn next_unix_connection(socket: Option<&UnixListener>) -> Option<UnixStream> {
    match socket {
        Some(socket) => Some(socket.accept().await.ok()?.0),
        None => std::future::pending().await,
    }
}

async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin, vendors: Weak<FakeVendorsInner>) {
    let service = service_fn(move |request| handle(vendors.clone(), request));
    // Clients disconnect, and faults drop connections on purpose.
    let _ = hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

/// Error that closes a connection without a response.
#[derive(Debug)]
struct Dropped;

impl std::fmt::Display for Dropped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("connection dropped on purpose")
    }
}

impl std::error::Error for Dropped {}

/// Vendor endpoint that a request is for.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Route {
    Linear,
    LinearPage,
    LinearUploads,
    Jira,
    JiraPage,
    Rest,
    GraphQl,
    Git,
    Site,
    Chat,
    Fly,
    FlyLogs,
    Docker,
    Kubernetes,
    Bucket,
    Unknown,
}

impl Route {
    /// Returns the route of a path, and the path without the route's prefix.
    fn parse(method: &str, path: &str) -> (Self, String) {
        let strip = |prefix: &str| {
            let rest = path.strip_prefix(prefix)?;
            (rest.is_empty() || rest.starts_with('/')).then(|| rest.to_owned())
        };
        if let Some(rest) = strip("/linear") {
            let route = if method == "GET" {
                Self::LinearPage
            } else {
                Self::Linear
            };
            (route, rest)
        } else if let Some(rest) = strip("/linear-uploads") {
            (Self::LinearUploads, rest)
        } else if let Some(rest) = strip("/jira") {
            let is_page = rest.starts_with("/browse/") || rest.starts_with("/media/");
            (if is_page { Self::JiraPage } else { Self::Jira }, rest)
        } else if let Some(rest) = strip("/github/api/v3") {
            (Self::Rest, rest)
        } else if let Some(rest) = strip("/github/api/graphql") {
            (Self::GraphQl, format!("/graphql{rest}"))
        } else if let Some(rest) = strip("/github") {
            let git = rest.ends_with("/info/refs")
                || rest.ends_with("/git-upload-pack")
                || rest.ends_with("/git-receive-pack");
            (if git { Self::Git } else { Self::Site }, rest)
        } else if let Some(rest) = strip("/chat") {
            (Self::Chat, rest)
        } else if let Some(rest) = strip("/fly") {
            let is_log = rest.starts_with("/api/");
            (if is_log { Self::FlyLogs } else { Self::Fly }, rest)
        } else if let Some(rest) = strip("/kubernetes") {
            (Self::Kubernetes, rest)
        } else if let Some(rest) = strip(&format!("/{BUCKET}")) {
            (Self::Bucket, rest)
        } else if is_docker_path(path) {
            (Self::Docker, path.to_owned())
        } else {
            (Self::Unknown, path.to_owned())
        }
    }

    /// Returns the service whose faults and request log apply. Pages and log downloads have none.
    fn vendor(self) -> Option<FakeService> {
        match self {
            Self::Linear => Some(FakeService::Linear),
            Self::Jira => Some(FakeService::Jira),
            Self::Rest | Self::GraphQl => Some(FakeService::GitHub),
            Self::Git => Some(FakeService::Git),
            Self::Chat => Some(FakeService::Chat),
            Self::Fly => Some(FakeService::Fly),
            Self::Docker => Some(FakeService::Docker),
            Self::Kubernetes => Some(FakeService::Kubernetes),
            Self::Bucket => Some(FakeService::Bucket),
            Self::LinearPage
            | Self::LinearUploads
            | Self::JiraPage
            | Self::Site
            | Self::FlyLogs
            | Self::Unknown => None,
        }
    }
}

async fn handle(
    vendors: Weak<FakeVendorsInner>,
    request: hyper::Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Dropped> {
    let vendors = vendors.upgrade().ok_or(Dropped)?;
    let (head, body) = request.into_parts();
    let body = body.collect().await.map_err(|_| Dropped)?.to_bytes();
    let (route, path) = Route::parse(head.method.as_str(), head.uri.path());
    let request = HttpRequest {
        method: head.method.to_string(),
        path,
        query: head.uri.query().unwrap_or_default().to_owned(),
        headers: head.headers,
        body,
    };
    let reply = match route.vendor() {
        Some(vendor) => handle_with_faults(&vendors, route, vendor, request).await,
        None => Some(dispatch(&vendors, route, request).await),
    };
    reply.map(into_hyper).ok_or(Dropped)
}

/// Returns whether a path belongs to the Docker engine, with or without an API version prefix.
fn is_docker_path(path: &str) -> bool {
    let mut segments = path.split('/').skip(1);
    let first = segments.next().unwrap_or_default();
    let first = match first.starts_with("v1.") {
        true => segments.next().unwrap_or_default(),
        false => first,
    };
    matches!(first, "containers" | "images" | "build" | "_ping")
}

/// Handles a request with its injected fault. Returns `None` to drop the connection.
async fn handle_with_faults(
    vendors: &Arc<FakeVendorsInner>,
    route: Route,
    vendor: FakeService,
    request: HttpRequest,
) -> Option<HttpResponse> {
    let faults = &vendors.faults[vendor as usize];
    let latency = faults.latency();
    if !latency.is_zero() {
        tokio::time::sleep(latency).await;
    }
    let line = format!("{} {}?{}", request.method, request.path, request.query);
    let fault = faults.sample(&line, &request.body);
    let reply = match fault {
        Some(InjectedFault::ErrorStatus(status)) => Some(proxy_error(status)),
        Some(InjectedFault::DropRequest) => None,
        Some(InjectedFault::RateLimited(left)) => Some(match vendor {
            FakeService::Linear => vendors.linear.rate_limited_response(left),
            FakeService::Jira => vendors.jira.rate_limited_response(left),
            FakeService::GitHub | FakeService::Git => vendors.github.rate_limited_response(left),
            FakeService::Chat => FakeChat::rate_limited_response(left),
            FakeService::Fly => FakeFlyMachines::rate_limited_response(left),
            FakeService::Kubernetes => FakeKubernetes::rate_limited_response(left),
            // The Docker engine has no rate limit, and buckets ask to slow down.
            FakeService::Docker | FakeService::Bucket => proxy_error(503),
        }),
        Some(InjectedFault::DropResponse) => {
            dispatch(vendors, route, request.clone()).await;
            None
        }
        Some(InjectedFault::ReplaceResponseStatus(status)) => {
            dispatch(vendors, route, request.clone()).await;
            Some(proxy_error(status))
        }
        Some(InjectedFault::DelayResponse(delay)) => {
            let reply = dispatch(vendors, route, request.clone()).await;
            tokio::time::sleep(delay).await;
            Some(reply)
        }
        Some(InjectedFault::HoldResponse) => {
            let reply = dispatch(vendors, route, request.clone()).await;
            faults.hold().await;
            Some(reply)
        }
        Some(InjectedFault::DelayRequest(delay)) => {
            let (vendors, request) = (vendors.clone(), request.clone());
            let slow = tokio::spawn(async move {
                tokio::time::sleep(delay).await;
                dispatch(&vendors, route, request).await
            });
            slow.await.ok()
        }
        None => Some(dispatch(vendors, route, request.clone()).await),
    };
    if !matches!(vendor, FakeService::Git | FakeService::Bucket) {
        vendors
            .requests
            .record(vendor, &request, reply.as_ref().map(|reply| reply.status));
    }
    reply
}

/// Returns the HTML error page of a proxy in front of a failing vendor.
fn proxy_error(status: u16) -> HttpResponse {
    let page =
        format!("<html><head><title>{status}</title></head><body>Sandbox fault</body></html>");
    HttpResponse::new(status, "text/html", page)
}

/// Lets the vendor handle the request, and stores its changes before the response is sent.
async fn dispatch(
    vendors: &Arc<FakeVendorsInner>,
    route: Route,
    request: HttpRequest,
) -> HttpResponse {
    let vendors = vendors.clone();
    let Ok(permit) = vendors.request_permits.clone().acquire_owned().await else {
        return HttpResponse::text(503, "closing");
    };
    let result = tasks::spawn_blocking(move || {
        let _permit = permit;
        let reply = match route {
            Route::Linear | Route::LinearPage => vendors.linear.handle(&request),
            Route::LinearUploads => vendors.linear.handle_upload(&request),
            Route::Jira | Route::JiraPage => vendors.jira.handle(&request),
            Route::Rest => vendors.github.handle_rest(&request),
            Route::GraphQl => vendors.github.handle_graphql(&request),
            Route::Git | Route::Site => vendors.github.handle_site(&request),
            Route::Chat => vendors.chat.handle(&request),
            Route::Fly | Route::FlyLogs => vendors.fly.handle(&request),
            Route::Docker => vendors.docker.handle(&request),
            Route::Kubernetes => vendors.kubernetes.handle(&request),
            Route::Bucket => vendors.bucket.handle(&request),
            Route::Unknown => HttpResponse::text(404, "no such vendor"),
        };
        let flushed = match route {
            Route::Linear | Route::LinearPage | Route::LinearUploads => vendors.linear.flush(),
            Route::Jira | Route::JiraPage => vendors.jira.flush(),
            Route::Chat => vendors.chat.flush(),
            Route::Fly | Route::FlyLogs => vendors.fly.host().flush(),
            Route::Docker => vendors.docker.host().flush(),
            Route::Kubernetes => vendors.kubernetes.host().flush(),
            // Each object is stored at once.
            Route::Bucket => Ok(()),
            _ => vendors.github.flush(),
        };
        flushed.map(|()| reply)
    });
    match result.await {
        Ok(Ok(reply)) => reply,
        Ok(Err(error)) => HttpResponse::text(500, format!("fake vendor: {error:#}")),
        Err(error) => HttpResponse::text(500, format!("fake vendor: {error}")),
    }
}

fn into_hyper(reply: HttpResponse) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(reply.body));
    *response.status_mut() =
        StatusCode::from_u16(reply.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    for (name, value) in reply.headers {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
            response.headers_mut().append(name, value);
        }
    }
    response
}
