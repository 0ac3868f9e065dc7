//! One listener for all vendors: which vendor a path belongs to, and what goes wrong on the way.
//!
//! Faults strike here, around the vendors and never inside them: a vendor either does a thing whole
//! and stores it, or is not asked. Vendors are synchronous and run on the blocking pool.

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

use super::chat::FakeChat;
use super::faults::{FakeService, InjectedFault};
use super::http::{HttpRequest, HttpResponse};
use super::instance::FakeVendorsInner;
use super::machines::fly::FakeFlyMachines;

/// The socket of the container engine. None where the folder's name is too long for one; the engine
/// answers on the town's port all the same.
pub(crate) fn bind_docker_socket(path: &Path) -> Option<UnixListener> {
    // Left behind by a town that was killed; mostly there is none.
    let _ = std::fs::remove_file(path);
    UnixListener::bind(path).ok()
}

/// Connections end with the accept loop: dropping the set aborts them.
pub(crate) async fn accept_connections(
    listener: TcpListener,
    socket: Option<UnixListener>,
    town: Weak<FakeVendorsInner>,
) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else { return };
                // Small answers must not wait for the client's delayed acknowledgement.
                let _ = stream.set_nodelay(true);
                connections.spawn(serve(stream, town.clone()));
            }
            Some(stream) = next(socket.as_ref()) => {
                connections.spawn(serve(stream, town.clone()));
            }
        }
        while connections.try_join_next().is_some() {}
    }
}

/// The next connection of the socket; never one where there is no socket.
async fn next(socket: Option<&UnixListener>) -> Option<UnixStream> {
    match socket {
        Some(socket) => Some(socket.accept().await.ok()?.0),
        None => std::future::pending().await,
    }
}

async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin, town: Weak<FakeVendorsInner>) {
    let service = service_fn(move |request| handle(town.clone(), request));
    // A client that goes away, or a connection dropped on purpose, is no error of ours.
    let _ = hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

/// The error that makes the server close a connection without an answer.
#[derive(Debug)]
struct Dropped;

impl std::fmt::Display for Dropped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("connection dropped on purpose")
    }
}

impl std::error::Error for Dropped {}

/// Which part of the town a request is for.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Door {
    Linear,
    LinearPage,
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
    Nowhere,
}

impl Door {
    /// The door, and the path behind it.
    fn of(method: &str, path: &str) -> (Self, String) {
        let behind = |prefix: &str| {
            let rest = path.strip_prefix(prefix)?;
            (rest.is_empty() || rest.starts_with('/')).then(|| rest.to_owned())
        };
        if let Some(rest) = behind("/linear") {
            let door = if method == "GET" {
                Self::LinearPage
            } else {
                Self::Linear
            };
            (door, rest)
        } else if let Some(rest) = behind("/jira") {
            let is_page = rest.starts_with("/browse/");
            (if is_page { Self::JiraPage } else { Self::Jira }, rest)
        } else if let Some(rest) = behind("/github/api/v3") {
            (Self::Rest, rest)
        } else if let Some(rest) = behind("/github/api/graphql") {
            (Self::GraphQl, format!("/graphql{rest}"))
        } else if let Some(rest) = behind("/github") {
            let git = rest.ends_with("/info/refs")
                || rest.ends_with("/git-upload-pack")
                || rest.ends_with("/git-receive-pack");
            (if git { Self::Git } else { Self::Site }, rest)
        } else if let Some(rest) = behind("/chat") {
            (Self::Chat, rest)
        } else if let Some(rest) = behind("/fly") {
            let is_log = rest.starts_with("/api/");
            (if is_log { Self::FlyLogs } else { Self::Fly }, rest)
        } else if is_engine(path) {
            (Self::Docker, path.to_owned())
        } else {
            (Self::Nowhere, path.to_owned())
        }
    }

    /// Whose dial and log it is; pages and log downloads are nobody's.
    fn vendor(self) -> Option<FakeService> {
        match self {
            Self::Linear => Some(FakeService::Linear),
            Self::Jira => Some(FakeService::Jira),
            Self::Rest | Self::GraphQl => Some(FakeService::GitHub),
            Self::Git => Some(FakeService::Git),
            Self::Chat => Some(FakeService::Chat),
            Self::Fly => Some(FakeService::Fly),
            Self::Docker => Some(FakeService::Docker),
            Self::LinearPage | Self::JiraPage | Self::Site | Self::FlyLogs | Self::Nowhere => None,
        }
    }
}

async fn handle(
    town: Weak<FakeVendorsInner>,
    request: hyper::Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Dropped> {
    let town = town.upgrade().ok_or(Dropped)?;
    let (head, body) = request.into_parts();
    let body = body.collect().await.map_err(|_| Dropped)?.to_bytes();
    let (door, path) = Door::of(head.method.as_str(), head.uri.path());
    let request = HttpRequest {
        method: head.method.to_string(),
        path,
        query: head.uri.query().unwrap_or_default().to_owned(),
        headers: head.headers,
        body,
    };
    let reply = match door.vendor() {
        Some(vendor) => faulty(&town, door, vendor, request).await,
        None => Some(ask(&town, door, request).await),
    };
    reply.map(wire).ok_or(Dropped)
}

/// Whether a path is the container engine's, with or without a version in front.
fn is_engine(path: &str) -> bool {
    let mut segments = path.split('/').skip(1);
    let first = segments.next().unwrap_or_default();
    let first = match first.starts_with("v1.") {
        true => segments.next().unwrap_or_default(),
        false => first,
    };
    matches!(first, "containers" | "images" | "_ping")
}

/// Answers one vendor request as its dial wants it; `None` drops the connection.
async fn faulty(
    town: &Arc<FakeVendorsInner>,
    door: Door,
    vendor: FakeService,
    request: HttpRequest,
) -> Option<HttpResponse> {
    let faults = &town.faults[vendor as usize];
    let latency = faults.latency();
    if !latency.is_zero() {
        tokio::time::sleep(latency).await;
    }
    let line = format!("{} {}?{}", request.method, request.path, request.query);
    let fault = faults.sample(&line, &request.body);
    let reply = match fault {
        Some(InjectedFault::ErrorStatus(status)) => Some(broken(status)),
        Some(InjectedFault::DropRequest) => None,
        Some(InjectedFault::RateLimited(left)) => Some(match vendor {
            FakeService::Linear => town.linear.rate_limited_response(left),
            FakeService::Jira => town.jira.rate_limited_response(left),
            FakeService::GitHub | FakeService::Git => town.github.rate_limited_response(left),
            FakeService::Chat => FakeChat::rate_limited_response(left),
            FakeService::Fly => FakeFlyMachines::rate_limited_response(left),
            // An engine knows no quota.
            FakeService::Docker => broken(503),
        }),
        Some(InjectedFault::DropResponse) => {
            ask(town, door, request.clone()).await;
            None
        }
        Some(InjectedFault::ReplaceResponseStatus(status)) => {
            ask(town, door, request.clone()).await;
            Some(broken(status))
        }
        Some(InjectedFault::DelayResponse(delay)) => {
            let reply = ask(town, door, request.clone()).await;
            tokio::time::sleep(delay).await;
            Some(reply)
        }
        Some(InjectedFault::DelayRequest(delay)) => {
            let (town, request) = (town.clone(), request.clone());
            let slow = tokio::spawn(async move {
                tokio::time::sleep(delay).await;
                ask(&town, door, request).await
            });
            slow.await.ok()
        }
        None => Some(ask(town, door, request.clone()).await),
    };
    if vendor != FakeService::Git {
        town.requests
            .record(vendor, &request, reply.as_ref().map(|reply| reply.status));
    }
    reply
}

/// What a proxy in front of a broken vendor says: not JSON.
fn broken(status: u16) -> HttpResponse {
    let page =
        format!("<html><head><title>{status}</title></head><body>Sandbox fault</body></html>");
    HttpResponse::new(status, "text/html", page)
}

/// Asks the vendor and stores what changed before the answer may leave.
async fn ask(town: &Arc<FakeVendorsInner>, door: Door, request: HttpRequest) -> HttpResponse {
    let town = town.clone();
    let Ok(permit) = town.request_permits.clone().acquire_owned().await else {
        return HttpResponse::text(503, "closing");
    };
    let answered = tokio::task::spawn_blocking(move || {
        let _at_work = permit;
        let reply = match door {
            Door::Linear | Door::LinearPage => town.linear.handle(&request),
            Door::Jira | Door::JiraPage => town.jira.handle(&request),
            Door::Rest => town.github.handle_rest(&request),
            Door::GraphQl => town.github.handle_graphql(&request),
            Door::Git | Door::Site => town.github.handle_site(&request),
            Door::Chat => town.chat.handle(&request),
            Door::Fly | Door::FlyLogs => town.fly.handle(&request),
            Door::Docker => town.docker.handle(&request),
            Door::Nowhere => HttpResponse::text(404, "no such vendor"),
        };
        let settled = match door {
            Door::Linear | Door::LinearPage => town.linear.flush(),
            Door::Jira | Door::JiraPage => town.jira.flush(),
            Door::Chat => town.chat.flush(),
            Door::Fly | Door::FlyLogs => town.fly.flush(),
            Door::Docker => town.docker.flush(),
            _ => town.github.flush(),
        };
        settled.map(|()| reply)
    });
    match answered.await {
        Ok(Ok(reply)) => reply,
        Ok(Err(error)) => HttpResponse::text(500, format!("sandbox: {error:#}")),
        Err(error) => HttpResponse::text(500, format!("sandbox: {error}")),
    }
}

fn wire(reply: HttpResponse) -> Response<Full<Bytes>> {
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
