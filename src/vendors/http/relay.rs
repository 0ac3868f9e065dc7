//! A loopback address from which one program of ours reaches one part of a host.
//!
//! The program authenticates with a key that is valid at this relay only. The host's credential is added
//! here, so that it never leaves this process, and only requests that the caller permits are sent on.

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
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

use super::Proxies;
use super::client::root_cause;

/// Connections at a time. Programs use one or two.
const MAX_CONNECTIONS: usize = 16;

/// Largest beginning of a body, in bytes, that is read to judge a request.
const MAX_HEAD: usize = 1 << 20;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Headers that are sent on to the host.
const TO_HOST: [&str; 7] = [
    "accept",
    "accept-encoding",
    "content-encoding",
    "content-length",
    "content-type",
    "git-protocol",
    "user-agent",
];

/// Headers of the host that the program receives.
const TO_PROGRAM: [&str; 4] = [
    "cache-control",
    "content-encoding",
    "content-length",
    "content-type",
];

/// The judgement on a request, from its head and what of its body has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RelayDecision {
    Allow,
    /// More of the body has to be read first.
    NeedMoreBody,
    Deny,
}

type Judge = dyn Fn(&str, &Parts, &[u8]) -> RelayDecision + Send + Sync;

/// The connections to a host. Certificates are read when it is made.
#[derive(Clone)]
pub struct RelayClient(reqwest::Client);

impl std::fmt::Debug for RelayClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // An address of a proxy may hold a password.
        f.write_str("RelayClient")
    }
}

impl RelayClient {
    /// # Errors
    /// When TLS cannot be set up.
    pub fn new(proxies: &Proxies) -> Result<Self, String> {
        let builder = || {
            proxies
                .apply_to(reqwest::Client::builder())
                .redirect(reqwest::redirect::Policy::none())
                .connect_timeout(CONNECT_TIMEOUT)
                .no_gzip()
        };
        // Without certificate roots it can reach hosts that speak plain HTTP.
        let client = builder()
            .build()
            .or_else(|_| builder().tls_certs_only([]).build());
        client
            .map(Self)
            .map_err(|error| format!("setting up HTTP for git: {}", root_cause(&error)))
    }

    /// Opens a relay to everything below `base`. `judge` gets each request's path below it.
    ///
    /// # Errors
    /// When the address is no URL, or no port can be opened.
    pub async fn open(
        &self,
        base: &str,
        authorization: Option<HeaderValue>,
        key: &str,
        judge: impl Fn(&str, &Parts, &[u8]) -> RelayDecision + Send + Sync + 'static,
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
            judge: Box::new(judge),
        });
        Ok(Relay {
            url: format!("{origin}{path}"),
            origin,
            host: base.origin().ascii_serialization(),
            task: tokio::spawn(accept(listener, shared)),
        })
    }
}

/// An open relay. Dropping it closes its port and ends what is under way.
#[derive(Debug)]
pub struct Relay {
    /// Stands for the host's address.
    pub url: String,
    origin: String,
    host: String,
    task: JoinHandle<()>,
}

impl Relay {
    /// The text with the host's address in place of the relay's.
    pub fn replace_with_upstream(&self, text: &str) -> String {
        text.replace(&self.origin, &self.host)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Shared {
    client: reqwest::Client,
    key: String,
    path: String,
    /// Where the host is; its own redirects move it.
    base: Mutex<Url>,
    authorization: Option<HeaderValue>,
    judge: Box<Judge>,
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        while connections.try_join_next().is_some() {}
        if connections.len() < MAX_CONNECTIONS {
            connections.spawn(serve(stream, shared.clone()));
        }
    }
}

async fn serve(stream: TcpStream, shared: Arc<Shared>) {
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request| {
        let shared = shared.clone();
        async move { Ok::<_, std::convert::Infallible>(shared.answer(request).await) }
    });
    // A program that ends in the middle of an answer is no error of ours.
    let _ = hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

type Answer = hyper::Response<Body>;

impl Shared {
    async fn answer(&self, request: hyper::Request<Incoming>) -> Answer {
        let (parts, mut body) = request.into_parts();
        let key = parts.headers.get(AUTHORIZATION).map(HeaderValue::as_bytes);
        if key != Some(self.key.as_bytes()) {
            return refusal(StatusCode::FORBIDDEN, "the relay's key is missing");
        }
        let path = parts.uri.path_and_query().map_or("", |path| path.as_str());
        let Some(rest) = path.strip_prefix(&self.path).map(str::to_owned) else {
            return refusal(StatusCode::NOT_FOUND, "not an address of this relay");
        };
        let mut head = BytesMut::new();
        loop {
            match (self.judge)(&rest, &parts, &head) {
                RelayDecision::Allow => break,
                RelayDecision::NeedMoreBody if head.len() < MAX_HEAD => {}
                RelayDecision::NeedMoreBody | RelayDecision::Deny => {
                    return refusal(
                        StatusCode::FORBIDDEN,
                        "the run does not permit this request",
                    );
                }
            }
            match body.frame().await {
                Some(Ok(frame)) => head.extend(frame.into_data().ok()),
                Some(Err(_)) | None => {
                    return refusal(StatusCode::BAD_REQUEST, "the request is not complete");
                }
            }
        }
        match self.forward(&parts, &rest, head.freeze(), body).await {
            Ok(answer) => answer,
            Err(cause) => refusal(StatusCode::BAD_GATEWAY, &cause),
        }
    }

    async fn forward(
        &self,
        parts: &Parts,
        rest: &str,
        head: Bytes,
        body: Incoming,
    ) -> Result<Answer, String> {
        let below = |base: &Url| Url::parse(&format!("{base}{rest}"));
        let mut url = below(&self.base()).map_err(|error| error.to_string())?;
        let has_body = !(head.is_empty() && body.is_end_stream());
        let call = |url: Url| {
            let mut call = self.client.request(parts.method.clone(), url);
            for name in TO_HOST.map(HeaderName::from_static) {
                if let Some(value) = parts.headers.get(&name) {
                    call = call.header(name, value);
                }
            }
            match &self.authorization {
                Some(authorization) => call.header(AUTHORIZATION, authorization),
                None => call,
            }
        };
        let broken = |error: reqwest::Error| root_cause(&error);
        if has_body {
            let begin = stream::iter([Ok(Frame::data(head))]);
            let whole = StreamBody::new(begin.chain(BodyStream::new(body)));
            let answer = call(url).body(Body::wrap(whole)).send().await;
            return self.handed_on(answer.map_err(broken)?);
        }
        let mut answer = call(url.clone()).send().await.map_err(broken)?;
        // A repository that was renamed stays reachable by its old address.
        if let Some(next) = self.moved(&url, &answer, rest) {
            url = below(&next).map_err(|error| error.to_string())?;
            answer = call(url).send().await.map_err(broken)?;
            *self.base.lock().unwrap_or_else(PoisonError::into_inner) = next;
        }
        self.handed_on(answer)
    }

    fn base(&self) -> Url {
        let base = self.base.lock().unwrap_or_else(PoisonError::into_inner);
        base.clone()
    }

    /// Where the host itself keeps what was asked for. Never another host: it would get the credential.
    fn moved(&self, asked: &Url, answer: &reqwest::Response, rest: &str) -> Option<Url> {
        let redirected = answer.status().is_redirection();
        let location = answer.headers().get(LOCATION).filter(|_| redirected)?;
        let next = asked.join(location.to_str().ok()?).ok()?;
        let base = next.as_str().strip_suffix(rest)?;
        let base = Url::parse(base).ok()?;
        (base.origin() == asked.origin()).then_some(base)
    }

    fn handed_on(&self, answer: reqwest::Response) -> Result<Answer, String> {
        if answer.status().is_redirection() {
            return Err("the host answered with an address elsewhere".to_owned());
        }
        let mut made = hyper::Response::builder().status(answer.status());
        for name in TO_PROGRAM.map(HeaderName::from_static) {
            if let Some(value) = answer.headers().get(&name) {
                made = made.header(name, value);
            }
        }
        made.body(Body::from(answer))
            .map_err(|error| error.to_string())
    }
}

fn refusal(status: StatusCode, text: &str) -> Answer {
    let mut answer = Answer::new(Body::from(text.to_owned()));
    *answer.status_mut() = status;
    let plain = HeaderValue::from_static("text/plain");
    answer.headers_mut().insert(CONTENT_TYPE, plain);
    answer
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_support::{StubReply, TestServer};

    async fn relay(server: &TestServer) -> Relay {
        test_support::install_tls();
        let client = RelayClient::new(&Proxies::default()).unwrap();
        let judge = |rest: &str, _: &Parts, head: &[u8]| match (rest, head) {
            ("/read", _) | ("/write", b"yes") => RelayDecision::Allow,
            ("/write", b"" | b"y" | b"ye") => RelayDecision::NeedMoreBody,
            _ => RelayDecision::Deny,
        };
        let credential = Some(HeaderValue::from_static("Basic of-the-host"));
        let base = format!("{}/o/r.git", server.url);
        client.open(&base, credential, "key", judge).await.unwrap()
    }

    async fn status(relay: &Relay, rest: &str, key: &str, body: &'static str) -> u16 {
        let client = reqwest::Client::new();
        let call = client.post(format!("{}{rest}", relay.url));
        let call = call.header(AUTHORIZATION, format!("Bearer {key}"));
        call.body(body).send().await.unwrap().status().as_u16()
    }

    #[tokio::test]
    async fn only_what_is_permitted_reaches_the_host_and_with_its_credential() {
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
        let asked = server.requests();
        let paths: Vec<&str> = asked.iter().map(|asked| asked.path.as_str()).collect();
        assert_eq!(paths, ["/o/r.git/write", "/o/r.git/read"]);
        assert_eq!(asked[0].body, "yes");
        for asked in &asked {
            assert_eq!(asked.header("authorization"), Some("Basic of-the-host"));
        }
    }

    #[tokio::test]
    async fn the_host_may_move_the_repository_but_nobody_elsewhere_gets_the_credential() {
        let elsewhere =
            TestServer::start(|_, _| StubReply::Response(200, vec![], String::new())).await;
        let stranger = format!("{}/n/r.git/read", elsewhere.url);
        let server = TestServer::start(move |asked, count| match (asked.path.as_str(), count) {
            ("/o/r.git/read", 0) => {
                StubReply::Response(301, vec![], String::new()).header("location", &stranger)
            }
            ("/o/r.git/read", _) => {
                StubReply::Response(301, vec![], String::new()).header("location", "/n/r.git/read")
            }
            _ => StubReply::Response(200, vec![], "moved".into()),
        })
        .await;
        let relay = relay(&server).await;
        assert_eq!(status(&relay, "/read", "key", "").await, 502);
        assert!(elsewhere.requests().is_empty());
        assert_eq!(status(&relay, "/read", "key", "").await, 200);
        assert_eq!(status(&relay, "/write", "key", "yes").await, 200);
        let asked = server.requests();
        let paths: Vec<&str> = asked.iter().map(|asked| asked.path.as_str()).collect();
        let expected = [
            "/o/r.git/read",
            "/o/r.git/read",
            "/n/r.git/read",
            "/n/r.git/write",
        ];
        assert_eq!(paths, expected);
        let origin = relay.url.trim_end_matches("/o/r.git");
        let said = relay.replace_with_upstream(&format!("unable to access '{origin}/o/r.git/'"));
        assert_eq!(said, format!("unable to access '{}/o/r.git/'", server.url));
        drop(relay);
    }
}
