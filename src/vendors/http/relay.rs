//! Loopback relay that gives a child process access to one part of a host.
//!
//! The child process authenticates with a key that is valid at this relay only. The relay adds the host's
//! credential, which therefore never leaves this process, and forwards only requests that the caller allows.
//!
//! Rightly ours: a general proxy would forward more than the requests of one push.

use std::io;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::{StreamExt, stream};
use http_body_util::{BodyExt, BodyStream, StreamBody};
use hyper::body::{Body as _, Frame, Incoming};
use hyper::http::request::Parts;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue, LOCATION};
use reqwest::{Body, StatusCode, Url};
use tasks::AbortOnDrop;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::Proxies;
use super::client::root_cause;

/// Maximum number of concurrent connections. Clients use one or two.
const MAX_CONNECTIONS: usize = 16;

/// Maximum number of body bytes that are read to decide about a request.
const MAX_HEAD: usize = 1 << 20;

/// Maximum duration of connecting to the host.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Request headers that are forwarded to the host.
const REQUEST_HEADERS: [&str; 7] = [
    "accept",
    "accept-encoding",
    "content-encoding",
    "content-length",
    "content-type",
    "git-protocol",
    "user-agent",
];

/// Response headers that are forwarded to the client.
const RESPONSE_HEADERS: [&str; 4] = [
    "cache-control",
    "content-encoding",
    "content-length",
    "content-type",
];

/// Decision about a request, based on its head and the received part of its body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RelayDecision {
    /// Forward the request.
    Allow,
    /// Read more of the body before deciding.
    NeedMoreBody,
    /// Reject the request.
    Deny,
}

/// Callback that decides about a request: path, head, and the received part of the body.
type Policy = dyn Fn(&str, &Parts, &[u8]) -> RelayDecision + Send + Sync;

/// HTTP client of relays. Root certificates are loaded when it is created.
#[derive(Clone)]
pub struct RelayClient(reqwest::Client);

impl std::fmt::Debug for RelayClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // A proxy address may contain a password.
        f.write_str("RelayClient")
    }
}

impl RelayClient {
    /// Creates a client that connects through these proxies.
    ///
    /// # Errors
    /// Returns an error if TLS cannot be set up.
    pub fn new(proxies: &Proxies) -> Result<Self, String> {
        let builder = || {
            proxies
                .apply_to(reqwest::Client::builder())
                .redirect(reqwest::redirect::Policy::none())
                .connect_timeout(CONNECT_TIMEOUT)
                .no_gzip()
        };
        // Without root certificates, hosts with plain HTTP are still reachable.
        let client = builder()
            .build()
            .or_else(|_| builder().tls_certs_only([]).build());
        client
            .map(Self)
            .map_err(|error| format!("cannot set up HTTP for git: {}", root_cause(&error)))
    }

    /// Opens a relay to all paths below `base`. `policy` decides about each request and receives its path
    /// below `base`.
    ///
    /// # Errors
    /// Returns an error if `base` is not a valid URL or if no port can be opened.
    pub async fn open(
        &self,
        base: &str,
        authorization: Option<HeaderValue>,
        key: &str,
        policy: impl Fn(&str, &Parts, &[u8]) -> RelayDecision + Send + Sync + 'static,
    ) -> io::Result<Relay> {
        let base = Url::parse(base).map_err(io::Error::other)?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let origin = format!("http://{}", listener.local_addr()?);
        let path = base.path().to_owned();
        let shared = Arc::new(Shared {
            client: self.0.clone(),
            key: format!("Bearer {key}"),
            path: path.clone(),
            base: Mutex::new(base.clone()),
            authorization,
            policy: Box::new(policy),
        });
        Ok(Relay {
            url: format!("{origin}{path}"),
            origin,
            host: base.origin().ascii_serialization(),
            _task: AbortOnDrop::spawn(accept(listener, shared)),
        })
    }
}

/// Open relay. Dropping it closes the port and aborts running requests.
#[derive(Debug)]
pub struct Relay {
    /// URL of the relay, to be used instead of the URL of the host.
    pub url: String,
    /// Scheme, address and port of the relay.
    pub origin: String,
    host: String,
    _task: AbortOnDrop,
}

impl Relay {
    /// Replaces the relay's address in a text with the host's address.
    pub fn replace_with_upstream(&self, text: &str) -> String {
        text.replace(&self.origin, &self.host)
    }
}

/// State shared by all connections of a relay.
struct Shared {
    client: reqwest::Client,
    key: String,
    path: String,
    /// URL of the host. Updated by redirects of the host.
    base: Mutex<Url>,
    authorization: Option<HeaderValue>,
    policy: Box<Policy>,
}

/// Accepts connections, and drops those above the limit.
async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        while connections.try_join_next().is_some() {}
        if connections.len() < MAX_CONNECTIONS {
            connections.spawn(tasks::boxed(serve(stream, shared.clone())));
        }
    }
}

/// Serves one connection.
async fn serve(stream: TcpStream, shared: Arc<Shared>) {
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request| {
        let shared = shared.clone();
        async move { Ok::<_, std::convert::Infallible>(shared.handle(request).await) }
    });
    // Errors are ignored: the client may exit before it has read the response.
    let _ = hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

/// Response of the relay.
type RelayResponse = hyper::Response<Body>;

impl Shared {
    /// Authenticates a request, applies the policy, and forwards the request.
    async fn handle(&self, request: hyper::Request<Incoming>) -> RelayResponse {
        let (parts, mut body) = request.into_parts();
        let key = parts.headers.get(AUTHORIZATION).map(HeaderValue::as_bytes);
        if key != Some(self.key.as_bytes()) {
            return error_response(StatusCode::FORBIDDEN, "missing or invalid relay key");
        }
        let path = parts.uri.path_and_query().map_or("", |path| path.as_str());
        let Some(rest) = path.strip_prefix(&self.path).map(str::to_owned) else {
            return error_response(StatusCode::NOT_FOUND, "path is outside this relay");
        };
        let mut head = BytesMut::new();
        loop {
            match (self.policy)(&rest, &parts, &head) {
                RelayDecision::Allow => break,
                RelayDecision::NeedMoreBody if head.len() < MAX_HEAD => {}
                RelayDecision::NeedMoreBody | RelayDecision::Deny => {
                    return error_response(
                        StatusCode::FORBIDDEN,
                        "the run does not allow this request",
                    );
                }
            }
            match body.frame().await {
                Some(Ok(frame)) => head.extend(frame.into_data().ok()),
                Some(Err(_)) | None => {
                    return error_response(StatusCode::BAD_REQUEST, "incomplete request body");
                }
            }
        }
        match self.forward(&parts, &rest, head.freeze(), body).await {
            Ok(response) => response,
            Err(cause) => error_response(StatusCode::BAD_GATEWAY, &cause),
        }
    }

    /// Sends a request to the host with the host's credential.
    async fn forward(
        &self,
        parts: &Parts,
        rest: &str,
        head: Bytes,
        body: Incoming,
    ) -> Result<RelayResponse, String> {
        let url_below = |base: &Url| Url::parse(&format!("{base}{rest}"));
        let mut url = url_below(&self.base()).map_err(|error| error.to_string())?;
        let has_body = !(head.is_empty() && body.is_end_stream());
        let call = |url: Url| {
            let mut call = self.client.request(parts.method.clone(), url);
            for name in REQUEST_HEADERS.map(HeaderName::from_static) {
                if let Some(value) = parts.headers.get(&name) {
                    call = call.header(name, value);
                }
            }
            match &self.authorization {
                Some(authorization) => call.header(AUTHORIZATION, authorization),
                None => call,
            }
        };
        let to_cause = |error: reqwest::Error| root_cause(&error);
        if has_body {
            let begin = stream::iter([Ok(Frame::data(head))]);
            let full_body = StreamBody::new(begin.chain(BodyStream::new(body)));
            let response = call(url).body(Body::wrap(full_body)).send().await;
            return self.convert_response(response.map_err(to_cause)?);
        }
        let mut response = call(url.clone()).send().await.map_err(to_cause)?;
        // Hosts redirect from the old address of a renamed repository.
        if let Some(next) = self.redirected_base(&url, &response, rest) {
            url = url_below(&next).map_err(|error| error.to_string())?;
            response = call(url).send().await.map_err(to_cause)?;
            *self.base.lock().unwrap_or_else(PoisonError::into_inner) = next;
        }
        self.convert_response(response)
    }

    /// Returns the current URL of the host.
    fn base(&self) -> Url {
        let base = self.base.lock().unwrap_or_else(PoisonError::into_inner);
        base.clone()
    }

    /// Returns the new base URL from a redirect within the same origin. Redirects to another origin are not
    /// followed, because that origin would receive the credential.
    fn redirected_base(
        &self,
        requested: &Url,
        response: &reqwest::Response,
        rest: &str,
    ) -> Option<Url> {
        let redirected = response.status().is_redirection();
        let location = response.headers().get(LOCATION).filter(|_| redirected)?;
        let next = requested.join(location.to_str().ok()?).ok()?;
        let base = next.as_str().strip_suffix(rest)?;
        let base = Url::parse(base).ok()?;
        (base.origin() == requested.origin()).then_some(base)
    }

    /// Converts the host's response. Remaining redirects are errors.
    fn convert_response(&self, response: reqwest::Response) -> Result<RelayResponse, String> {
        if response.status().is_redirection() {
            return Err("the host redirected to another address".to_owned());
        }
        let mut converted = hyper::Response::builder().status(response.status());
        for name in RESPONSE_HEADERS.map(HeaderName::from_static) {
            if let Some(value) = response.headers().get(&name) {
                converted = converted.header(name, value);
            }
        }
        converted
            .body(Body::from(response))
            .map_err(|error| error.to_string())
    }
}

/// Creates a plain-text error response.
fn error_response(status: StatusCode, text: &str) -> RelayResponse {
    let mut response = RelayResponse::new(Body::from(text.to_owned()));
    *response.status_mut() = status;
    let plain = HeaderValue::from_static("text/plain");
    response.headers_mut().insert(CONTENT_TYPE, plain);
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_support::{StubReply, TestServer};

    async fn relay(server: &TestServer) -> Relay {
        test_support::install_tls();
        let client = RelayClient::new(&Proxies::default()).unwrap();
        let policy = |rest: &str, _: &Parts, head: &[u8]| match (rest, head) {
            ("/read", _) | ("/write", b"yes") => RelayDecision::Allow,
            ("/write", b"" | b"y" | b"ye") => RelayDecision::NeedMoreBody,
            _ => RelayDecision::Deny,
        };
        let credential = Some(HeaderValue::from_static("Basic of-the-host"));
        let base = format!("{}/o/r.git", server.url);
        client.open(&base, credential, "key", policy).await.unwrap()
    }

    async fn status(relay: &Relay, rest: &str, key: &str, body: &'static str) -> u16 {
        let client = reqwest::Client::new();
        let call = client.post(format!("{}{rest}", relay.url));
        let call = call.header(AUTHORIZATION, format!("Bearer {key}"));
        call.body(body).send().await.unwrap().status().as_u16()
    }

    #[tokio::test]
    async fn forwards_only_allowed_requests_with_the_credential() {
        let server =
            TestServer::start(|_, _| StubReply::Response(200, vec![], "fine".into())).await;
        let relay = relay(&server).await;
        for (rest, key, body, expected) in [
            ("/read", "guessed", "", 403),
            ("/other", "key", "", 403),
            ("/write", "key", "no", 403),
            ("/write", "key", "ye", 400),
            ("/../../read", "key", "", 404),
        ] {
            assert_eq!(status(&relay, rest, key, body).await, expected, "{rest}");
        }
        assert!(server.requests().is_empty());
        assert_eq!(status(&relay, "/write", "key", "yes").await, 200);
        assert_eq!(status(&relay, "/read", "key", "").await, 200);
        let requests = server.requests();
        let paths: Vec<&str> = requests
            .iter()
            .map(|request| request.path.as_str())
            .collect();
        assert_eq!(paths, ["/o/r.git/write", "/o/r.git/read"]);
        assert_eq!(requests[0].body, "yes");
        for request in &requests {
            assert_eq!(request.header("authorization"), Some("Basic of-the-host"));
        }
    }

    #[tokio::test]
    async fn follows_redirects_within_the_host_only() {
        let elsewhere =
            TestServer::start(|_, _| StubReply::Response(200, vec![], String::new())).await;
        let other_host = format!("{}/n/r.git/read", elsewhere.url);
        let server =
            TestServer::start(move |request, count| match (request.path.as_str(), count) {
                ("/o/r.git/read", 0) => {
                    StubReply::Response(301, vec![], String::new()).header("location", &other_host)
                }
                ("/o/r.git/read", _) => StubReply::Response(301, vec![], String::new())
                    .header("location", "/n/r.git/read"),
                _ => StubReply::Response(200, vec![], "moved".into()),
            })
            .await;
        let relay = relay(&server).await;
        assert_eq!(status(&relay, "/read", "key", "").await, 502);
        assert!(elsewhere.requests().is_empty());
        assert_eq!(status(&relay, "/read", "key", "").await, 200);
        assert_eq!(status(&relay, "/write", "key", "yes").await, 200);
        let requests = server.requests();
        let paths: Vec<&str> = requests
            .iter()
            .map(|request| request.path.as_str())
            .collect();
        let expected = [
            "/o/r.git/read",
            "/o/r.git/read",
            "/n/r.git/read",
            "/n/r.git/write",
        ];
        assert_eq!(paths, expected);
        let origin = relay.url.trim_end_matches("/o/r.git");
        let text = relay.replace_with_upstream(&format!("unable to access '{origin}/o/r.git/'"));
        assert_eq!(text, format!("unable to access '{}/o/r.git/'", server.url));
        drop(relay);
    }
}
