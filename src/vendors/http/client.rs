//! Sending a request: gate, time, redirects, repeats, and the verdict on what came back.

mod download;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use reqwest::header::{AUTHORIZATION, HeaderMap, LOCATION};
use reqwest::{ClientBuilder, NoProxy, Proxy, Url};

use super::rate_limit::{DEFAULT_PAUSE, Quota, RateLimiter, is_rate_limit, retry_after_ms};
use super::request::{RedirectAuthorization, RetryMode};
use super::{Method, Redactor, Request, Response, VendorError, VendorErrorKind, now_millis};

pub use download::DownloadError;

/// How long may a call take as a whole, its repeats included?
const TOTAL_TIMEOUT: Duration = Duration::from_secs(30);

/// How long may it take to be connected?
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How often is a safe call repeated after a first failure?
const MAX_REPEATS: u32 = 3;

/// How long is the first wait before a repeat? It doubles each time.
const FIRST_BACKOFF: Duration = Duration::from_millis(250);

/// How often may a vendor send us elsewhere in one call?
const MAX_REDIRECTS: usize = 5;

/// How long does an unused connection stay open?
const POOL_IDLE: Duration = Duration::from_secs(60);

/// How many unused connections to a host stay open? Vendors that speak HTTP/2 need one; of the others a
/// burst opens one for each request, and each would go on holding 50 kB.
const MAX_IDLE: usize = 8;

/// Addresses of this machine itself, which no proxy could reach in our place.
const LOOPBACK: &str = "localhost,127.0.0.0/8,::1";

/// How long a call and its connecting may take.
#[derive(Debug, Clone, Copy)]
pub struct Timeouts {
    pub total: Duration,
    pub connect: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            total: TOTAL_TIMEOUT,
            connect: CONNECT_TIMEOUT,
        }
    }
}

/// The proxies that connections are made through; none by default. They cannot be printed: an address
/// may hold a password.
#[derive(Clone, Default)]
pub struct Proxies {
    /// Addresses of proxies, by the scheme of what is asked for.
    https: Option<Proxy>,
    http: Option<Proxy>,
}

impl Proxies {
    /// Proxies for `https` and plain `http` addresses, except for this machine and the hosts in
    /// `bypass` (separated by commas).
    ///
    /// # Errors
    /// When an address is not one of a proxy. The error does not repeat it: it may hold a password.
    pub fn new(https: Option<&str>, http: Option<&str>, bypass: &str) -> Result<Self, String> {
        let bypass = NoProxy::from_string(&format!("{LOOPBACK},{bypass}"));
        let made = |proxy: reqwest::Result<Proxy>| match proxy {
            Ok(proxy) => Ok(proxy.no_proxy(bypass.clone())),
            Err(error) => Err(format!("a proxy's address: {}", root_cause(&error))),
        };
        Ok(Self {
            https: https.map(Proxy::https).map(made).transpose()?,
            http: http.map(Proxy::http).map(made).transpose()?,
        })
    }

    /// What the environment says is never asked: the configuration has read it.
    pub(super) fn apply_to(&self, builder: ClientBuilder) -> ClientBuilder {
        let proxies = self.https.iter().chain(&self.http);
        proxies.fold(builder.no_proxy(), |builder, proxy| {
            builder.proxy(proxy.clone())
        })
    }
}

/// A client of one vendor. Clones share connections and what is known of the vendor's limits.
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

struct Inner {
    vendor: &'static str,
    http: reqwest::Client,
    total_timeout: Duration,
    gate: RateLimiter,
    redactor: Redactor,
}

impl Client {
    /// A client of `vendor` (`linear`, `github`, …), which takes what `redactor` knows out of
    /// every error and asks without a proxy.
    ///
    /// # Errors
    /// When TLS cannot be set up at all. Without certificate roots it can, but trusts nobody.
    pub fn new(vendor: &'static str, redactor: Redactor) -> Result<Self, String> {
        Self::with_timeouts(vendor, redactor, Timeouts::default())
    }

    /// As [`Client::new`], through proxies.
    ///
    /// # Errors
    /// As [`Client::new`].
    pub fn with_proxies(
        proxies: &Proxies,
        vendor: &'static str,
        redactor: Redactor,
    ) -> Result<Self, String> {
        Self::build(vendor, redactor, Timeouts::default(), || {
            proxies.apply_to(reqwest::Client::builder())
        })
    }

    /// As [`Client::new`], with other time-outs.
    ///
    /// # Errors
    /// As [`Client::new`].
    pub fn with_timeouts(
        vendor: &'static str,
        redactor: Redactor,
        timeouts: Timeouts,
    ) -> Result<Self, String> {
        Self::build(vendor, redactor, timeouts, || {
            reqwest::Client::builder().no_proxy()
        })
    }

    /// As [`Client::with_timeouts`], of a vendor behind a Unix socket; addresses say only what is
    /// asked for.
    ///
    /// # Errors
    /// As [`Client::new`].
    pub fn with_unix_socket(
        vendor: &'static str,
        redactor: Redactor,
        timeouts: Timeouts,
        socket: &Path,
    ) -> Result<Self, String> {
        Self::build(vendor, redactor, timeouts, || {
            reqwest::Client::builder().no_proxy().unix_socket(socket)
        })
    }

    fn build(
        vendor: &'static str,
        redactor: Redactor,
        timeouts: Timeouts,
        begin: impl Fn() -> reqwest::ClientBuilder,
    ) -> Result<Self, String> {
        let builder = || {
            begin()
                .user_agent(concat!("agent-implement/", env!("CARGO_PKG_VERSION")))
                .redirect(reqwest::redirect::Policy::none())
                .connect_timeout(timeouts.connect)
                .pool_idle_timeout(POOL_IDLE)
                .pool_max_idle_per_host(MAX_IDLE)
                .tcp_nodelay(true)
        };
        let http = builder().build().or_else(|error| {
            // A machine without certificate roots can still speak to the demo's vendors on
            // loopback; every other connection is refused for want of trust.
            let cause = root_cause(&error);
            tracing::warn!(
                vendor,
                cause,
                "https will not work: install ca-certificates"
            );
            builder().tls_certs_only([]).build()
        });
        let http =
            http.map_err(|error| format!("setting up HTTP for {vendor}: {}", root_cause(&error)))?;
        Ok(Self {
            inner: Arc::new(Inner {
                vendor,
                http,
                total_timeout: timeouts.total,
                gate: RateLimiter::default(),
                redactor,
            }),
        })
    }

    /// The client of another vendor, with limits and secrets of its own, on the same connections: the
    /// certificates are those that were read when this one was made.
    #[must_use]
    pub fn for_vendor(&self, vendor: &'static str, redactor: Redactor) -> Self {
        Self {
            inner: Arc::new(Inner {
                vendor,
                http: self.inner.http.clone(),
                total_timeout: self.inner.total_timeout,
                gate: RateLimiter::default(),
                redactor,
            }),
        }
    }

    pub fn vendor(&self) -> &'static str {
        self.inner.vendor
    }

    /// The scarcest of the vendor's allowances; one that is used up before all others.
    pub fn quota(&self) -> Quota {
        self.inner.gate.scarcest_quota()
    }

    /// Until when requests of an account are held back, if they are; in milliseconds since the epoch.
    pub fn limited_until(&self, account: &str) -> Option<u64> {
        self.inner.gate.limited_until(account)
    }

    /// Every allowance the vendor keeps for us.
    pub fn quotas(&self) -> Vec<Quota> {
        self.inner.gate.quotas()
    }

    /// Sends a request and reads the whole answer.
    ///
    /// # Errors
    /// Any status but 2xx, 304 and those the request accepts; and everything that can happen on
    /// the way. See [`ErrorKind`].
    pub async fn send(&self, request: &Request) -> Result<Response, VendorError> {
        let started = Instant::now();
        let outcome = self.repeat(request, started).await;
        let status = match &outcome {
            Ok(response) => Some(response.status),
            Err(error) => error.status(),
        };
        tracing::debug!(
            vendor = self.inner.vendor,
            action = request.action,
            status,
            duration_ms = started.elapsed().as_millis() as u64,
            error = outcome.as_ref().err().map(tracing::field::display),
            "called a vendor"
        );
        outcome
    }

    /// Closes the gate after an answer that says *too many requests* in its body, and makes the
    /// error of it.
    pub fn record_rate_limit(&self, response: &Response) -> VendorError {
        let until =
            self.inner
                .gate
                .set_limited(&response.account, &response.headers, DEFAULT_PAUSE);
        VendorError::new(
            self.inner.vendor,
            response.action,
            VendorErrorKind::RateLimited { until },
        )
    }

    async fn repeat(&self, request: &Request, started: Instant) -> Result<Response, VendorError> {
        if let Some(fault) = &request.build_error {
            return Err(self.error(request, VendorErrorKind::Connect(fault.clone())));
        }
        let mut backoff = FIRST_BACKOFF;
        for _ in 0..MAX_REPEATS {
            let error = match self.attempt(request, started).await {
                Ok(response) => return Ok(response),
                Err(error) => error,
            };
            let wait = error
                .retry_after()
                .unwrap_or_else(|| backoff.mul_f64(0.5 + fastrand::f64() / 2.0));
            let time_left = self.inner.total_timeout.saturating_sub(started.elapsed());
            if request.retry == RetryMode::Never || !is_passing(&error) || wait >= time_left {
                return Err(error);
            }
            tokio::time::sleep(wait).await;
            backoff *= 2;
        }
        self.attempt(request, started).await
    }

    async fn attempt(&self, request: &Request, started: Instant) -> Result<Response, VendorError> {
        if let Some(until) = self.inner.gate.limited_until(&request.account) {
            return Err(self.error(request, VendorErrorKind::RateLimited { until }));
        }
        let time_left = self.inner.total_timeout.saturating_sub(started.elapsed());
        let answer = tokio::time::timeout(time_left, self.exchange(request))
            .await
            .map_err(|_| self.error(request, VendorErrorKind::Timeout))??;
        self.check_response(request, answer)
    }

    /// One request and its redirects, up to the last byte of the answer.
    async fn exchange(&self, request: &Request) -> Result<Answer, VendorError> {
        let mut url = Url::parse(&request.url).map_err(|_| {
            self.error(
                request,
                VendorErrorKind::Connect("the address is no URL".into()),
            )
        })?;
        let mut headers = request.headers.clone();
        for _ in 0..=MAX_REDIRECTS {
            let mut call = self
                .inner
                .http
                .request(request.method.clone(), url.clone())
                .headers(headers.clone());
            if let Some(body) = &request.body {
                call = call.body(body.clone());
            }
            let response = call
                .send()
                .await
                .map_err(|error| self.transport_error(request, &error))?;
            let Some(next) = next_address(request, &url, &response) else {
                return self.read_body(request, response).await;
            };
            if next.origin() != url.origin()
                || request.redirect_authorization == RedirectAuthorization::Never
            {
                headers.remove(AUTHORIZATION);
            }
            url = next;
        }
        Err(self.error(
            request,
            VendorErrorKind::Decode("too many redirects".into()),
        ))
    }

    async fn read_body(
        &self,
        request: &Request,
        mut response: reqwest::Response,
    ) -> Result<Answer, VendorError> {
        let mut body = BytesMut::new();
        while let Some(chunk) = response
            .chunk()
            .await
            .map_err(|error| self.transport_error(request, &error))?
        {
            if body.len() + chunk.len() > request.max_body {
                let cause = format!("it is longer than {} bytes", request.max_body);
                return Err(self.error(request, VendorErrorKind::Decode(cause)));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(Answer {
            status: response.status().as_u16(),
            headers: std::mem::take(response.headers_mut()),
            body,
        })
    }

    fn check_response(&self, request: &Request, answer: Answer) -> Result<Response, VendorError> {
        let Answer {
            status,
            headers,
            body,
        } = answer;
        self.inner.gate.record_headers(&request.account, &headers);
        if is_rate_limit(status, &headers, &body) {
            let until =
                self.inner
                    .gate
                    .set_limited(&request.account, &headers, request.default_pause);
            return Err(self.error(request, VendorErrorKind::RateLimited { until }));
        }
        let welcome = (200..300).contains(&status)
            || status == 304
            || request.accepted_statuses.contains(&status);
        if !welcome {
            let kind = VendorErrorKind::Status {
                status,
                message: self.inner.redactor.excerpt(&said(&body)),
                retry_after: retry_after_ms(&headers, now_millis()).map(Duration::from_millis),
            };
            return Err(self.error(request, kind));
        }
        Ok(Response {
            vendor: self.inner.vendor,
            action: request.action,
            account: request.account.clone(),
            status,
            headers,
            body: body.freeze(),
            redactor: self.inner.redactor.clone(),
        })
    }

    fn transport_error(&self, request: &Request, error: &reqwest::Error) -> VendorError {
        let cause = || self.inner.redactor.excerpt(&root_cause(error));
        // A connection that took too long to make is both; nothing was sent on it.
        let kind = if error.is_connect() || error.is_builder() {
            VendorErrorKind::Connect(cause())
        } else if error.is_timeout() {
            VendorErrorKind::Timeout
        } else {
            VendorErrorKind::Transport(cause())
        };
        self.error(request, kind)
    }

    fn error(&self, request: &Request, kind: VendorErrorKind) -> VendorError {
        VendorError::new(self.inner.vendor, request.action, kind)
    }
}

struct Answer {
    status: u16,
    headers: HeaderMap,
    body: BytesMut,
}

/// Where a redirect leads, if it may be followed. A body goes to no other host than the one it
/// was meant for.
fn next_address(request: &Request, from: &Url, response: &reqwest::Response) -> Option<Url> {
    let status = response.status().as_u16();
    let read = matches!(request.method, Method::GET | Method::HEAD);
    if !matches!(status, 301 | 302 | 303 | 307 | 308) || (!read && matches!(status, 302 | 303)) {
        return None;
    }
    let target = response.headers().get(LOCATION)?.to_str().ok()?;
    let next = from.join(target).ok()?;
    let known = matches!(next.scheme(), "http" | "https");
    (known && (read || next.origin() == from.origin())).then_some(next)
}

/// Whether the same call may succeed in a moment.
fn is_passing(error: &VendorError) -> bool {
    match &error.kind {
        VendorErrorKind::Connect(_) | VendorErrorKind::Transport(_) => true,
        VendorErrorKind::Status { status, .. } => *status >= 500 || *status == 408,
        VendorErrorKind::Timeout
        | VendorErrorKind::Decode(_)
        | VendorErrorKind::RateLimited { .. } => false,
    }
}

/// The innermost cause; the outer ones repeat the address, which may be a credential.
pub(super) fn root_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

/// What a refusal says, taken out of the shapes that vendors wrap it in.
fn said(body: &[u8]) -> String {
    let Ok(json) = serde_json::from_slice::<serde_json::Value>(body) else {
        return String::from_utf8_lossy(body).trim().to_owned();
    };
    let mut words: Vec<String> = Vec::new();
    let mut say = |text: Option<&str>| {
        if let Some(text) = text.filter(|text| !text.is_empty()) {
            words.push(text.to_owned());
        }
    };
    say(json["message"].as_str());
    say(json["error"].as_str());
    for text in json["errorMessages"].as_array().into_iter().flatten() {
        say(text.as_str());
    }
    match &json["errors"] {
        serde_json::Value::Array(errors) => {
            for error in errors {
                say(error
                    .as_str()
                    .or_else(|| error["message"].as_str())
                    .or_else(|| error["code"].as_str()));
            }
        }
        serde_json::Value::Object(errors) => {
            for (field, text) in errors {
                say(Some(&format!(
                    "{field}: {}",
                    text.as_str().unwrap_or_default()
                )));
            }
        }
        _ => {}
    }
    words.join("; ")
}

#[cfg(test)]
#[path = "client_tests.rs"]
mod tests;
