//! One listener for all vendors: which vendor a path belongs to, and what goes wrong on the way.
//!
//! Faults strike here, around the vendors and never inside them: a vendor either does a thing whole
//! and stores it, or is not asked. Vendors are synchronous and run on the blocking pool.

use std::sync::{Arc, Weak};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{HeaderName, HeaderValue};
use hyper::service::service_fn;
use hyper::{Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::chat::Chat;
use super::faults::{Fault, Vendor};
use super::http::{Reply, Request};
use super::town::Inner;

/// Connections end with the accept loop: dropping the set aborts them.
pub(crate) async fn accept(listener: TcpListener, town: Weak<Inner>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let town = town.clone();
        // Small answers must not wait for the client's delayed acknowledgement.
        let _ = stream.set_nodelay(true);
        connections.spawn(async move {
            let service = service_fn(move |request| handle(town.clone(), request));
            // A client that goes away, or a connection dropped on purpose, is no error of ours.
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
        while connections.try_join_next().is_some() {}
    }
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
        } else {
            (Self::Nowhere, path.to_owned())
        }
    }

    /// Whose dial and log it is; pages and log downloads are nobody's.
    fn vendor(self) -> Option<Vendor> {
        match self {
            Self::Linear => Some(Vendor::Linear),
            Self::Jira => Some(Vendor::Jira),
            Self::Rest | Self::GraphQl => Some(Vendor::GitHub),
            Self::Git => Some(Vendor::Git),
            Self::Chat => Some(Vendor::Chat),
            Self::LinearPage | Self::JiraPage | Self::Site | Self::Nowhere => None,
        }
    }
}

async fn handle(
    town: Weak<Inner>,
    request: hyper::Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Dropped> {
    let town = town.upgrade().ok_or(Dropped)?;
    let (head, body) = request.into_parts();
    let body = body.collect().await.map_err(|_| Dropped)?.to_bytes();
    let (door, path) = Door::of(head.method.as_str(), head.uri.path());
    let request = Request {
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

/// Answers one vendor request as its dial wants it; `None` drops the connection.
async fn faulty(town: &Arc<Inner>, door: Door, vendor: Vendor, request: Request) -> Option<Reply> {
    let faults = &town.faults[vendor as usize];
    let latency = faults.latency();
    if !latency.is_zero() {
        tokio::time::sleep(latency).await;
    }
    let line = format!("{} {}?{}", request.method, request.path, request.query);
    let fault = faults.draw(&line, &request.body);
    let reply = match fault {
        Some(Fault::Status(status)) => Some(broken(status)),
        Some(Fault::DropBefore) => None,
        Some(Fault::RateLimited(left)) => Some(match vendor {
            Vendor::Linear => town.linear.rate_limited(left),
            Vendor::Jira => town.jira.rate_limited(left),
            Vendor::GitHub | Vendor::Git => town.github.rate_limited(left),
            Vendor::Chat => Chat::rate_limited(left),
        }),
        Some(Fault::DropAfter) => {
            ask(town, door, request.clone()).await;
            None
        }
        Some(Fault::StatusAfter(status)) => {
            ask(town, door, request.clone()).await;
            Some(broken(status))
        }
        Some(Fault::Late(delay)) => {
            let reply = ask(town, door, request.clone()).await;
            tokio::time::sleep(delay).await;
            Some(reply)
        }
        None => Some(ask(town, door, request.clone()).await),
    };
    if vendor != Vendor::Git {
        town.requests
            .note(vendor, &request, reply.as_ref().map(|reply| reply.status));
    }
    reply
}

/// What a proxy in front of a broken vendor says: not JSON.
fn broken(status: u16) -> Reply {
    let page =
        format!("<html><head><title>{status}</title></head><body>Sandbox fault</body></html>");
    Reply::new(status, "text/html", page)
}

/// Asks the vendor and stores what changed before the answer may leave.
async fn ask(town: &Arc<Inner>, door: Door, request: Request) -> Reply {
    let town = town.clone();
    let Ok(permit) = town.at_work.clone().acquire_owned().await else {
        return Reply::text(503, "closing");
    };
    let answered = tokio::task::spawn_blocking(move || {
        let _at_work = permit;
        let reply = match door {
            Door::Linear | Door::LinearPage => town.linear.answer(&request),
            Door::Jira | Door::JiraPage => town.jira.answer(&request),
            Door::Rest => town.github.rest(&request),
            Door::GraphQl => town.github.graphql(&request),
            Door::Git | Door::Site => town.github.site(&request),
            Door::Chat => town.chat.answer(&request),
            Door::Nowhere => Reply::text(404, "no such vendor"),
        };
        let settled = match door {
            Door::Linear | Door::LinearPage => town.linear.settle(),
            Door::Jira | Door::JiraPage => town.jira.settle(),
            Door::Chat => town.chat.settle(),
            _ => town.github.settle(),
        };
        settled.map(|()| reply)
    });
    match answered.await {
        Ok(Ok(reply)) => reply,
        Ok(Err(error)) => Reply::text(500, format!("sandbox: {error:#}")),
        Err(error) => Reply::text(500, format!("sandbox: {error}")),
    }
}

fn wire(reply: Reply) -> Response<Full<Bytes>> {
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
