//! HTTP client of one vendor: rate limit, timeouts, redirects, retries, and response checks.

mod download;
mod proxies;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use reqwest::Url;
use reqwest::header::{AUTHORIZATION, HeaderMap, LOCATION};

use super::rate_limit::{DEFAULT_PAUSE, Quota, RateLimiter, is_rate_limit, retry_after_ms};
use super::request::{RedirectAuthorization, RetryMode};
use super::{Method, Redactor, Request, Response, VendorError, VendorErrorKind, now_millis};
use domain::retry::RetryPolicy;

pub use download::DownloadError;
pub use proxies::Proxies;

/// Maximum duration of a call, including retries.
const TOTAL_TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum duration of connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Retries of a call that changes nothing.
const RETRY: RetryPolicy = RetryPolicy {
    first_delay: Duration::from_millis(250),
    max_delay: Duration::from_secs(1),
    jitter: 0.5,
    honors_vendor: true,
    max_attempts: 4,
    timeout: TOTAL_TIMEOUT,
};

/// Maximum number of redirects in one call.
const MAX_REDIRECTS: usize = 5;

/// Duration for which an idle connection stays open.
const POOL_IDLE: Duration = Duration::from_secs(60);

/// Maximum number of idle connections per host. HTTP/2 needs one. With HTTP/1.1, a burst opens one per
/// request, and each idle connection holds 50 kB.
const MAX_IDLE: usize = 8;

/// Loopback addresses, which bypass the proxy.
const LOOPBACK: &str = "localhost,127.0.0.0/8,::1";

/// Timeouts of a client.
#[derive(Debug, Clone, Copy)]
pub struct Timeouts {
    /// Maximum duration of a call, including retries. Default 30 seconds.
    pub total: Duration,
    /// Maximum duration of connecting. Default 10 seconds.
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

/// HTTP client of one vendor. Clones share connections and rate limits.
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

struct Inner {
    vendor: &'static str,
    http: reqwest::Client,
    total_timeout: Duration,
    rate_limiter: RateLimiter,
    redactor: Redactor,
}

impl Client {
    /// Creates a client for `vendor` (`linear`, `github`, …) without a proxy. `redactor` is applied to every
    /// error.
    ///
    /// # Errors
    /// Returns an error if TLS cannot be set up. Missing root certificates are not an error here, but all TLS
    /// connections will fail.
    pub fn new(vendor: &'static str, redactor: Redactor) -> Result<Self, String> {
        Self::with_timeouts(vendor, redactor, Timeouts::default())
    }

    /// Creates a client that connects through proxies.
    ///
    /// # Errors
    /// Same as [`Client::new`].
    pub fn with_proxies(
        proxies: &Proxies,
        vendor: &'static str,
        redactor: Redactor,
    ) -> Result<Self, String> {
        Self::build(vendor, redactor, Timeouts::default(), || {
            proxies.apply_to(reqwest::Client::builder())
        })
    }

    /// Creates a client with other timeouts.
    ///
    /// # Errors
    /// Same as [`Client::new`].
    pub fn with_timeouts(
        vendor: &'static str,
        redactor: Redactor,
        timeouts: Timeouts,
    ) -> Result<Self, String> {
        Self::build(vendor, redactor, timeouts, || {
            reqwest::Client::builder().no_proxy()
        })
    }

    /// Creates a client that connects to a Unix socket. The host of request URLs is ignored.
    ///
    /// # Errors
    /// Same as [`Client::new`].
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
        new_builder: impl Fn() -> reqwest::ClientBuilder,
    ) -> Result<Self, String> {
        let builder = || {
            new_builder()
                .user_agent(concat!("agent-implement/", env!("CARGO_PKG_VERSION")))
                .redirect(reqwest::redirect::Policy::none())
                .connect_timeout(timeouts.connect)
                .pool_idle_timeout(POOL_IDLE)
                .pool_max_idle_per_host(MAX_IDLE)
                .tcp_nodelay(true)
        };
        let http = builder().build().or_else(|error| {
            // Without root certificates, the demo can still reach its fake vendors over plain HTTP on
            // loopback. All TLS connections fail.
            let cause = root_cause(&error);
            tracing::warn!(
                vendor,
                cause,
                "No root certificates found. HTTPS requests will fail. Install ca-certificates."
            );
            builder().tls_certs_only([]).build()
        });
        let http = http
            .map_err(|error| format!("cannot set up HTTP for {vendor}: {}", root_cause(&error)))?;
        Ok(Self {
            inner: Arc::new(Inner {
                vendor,
                http,
                total_timeout: timeouts.total,
                rate_limiter: RateLimiter::default(),
                redactor,
            }),
        })
    }

    /// Creates a client for another vendor with its own rate limits and redactor. It shares the connections
    /// and root certificates of this client.
    #[must_use]
    pub fn for_vendor(&self, vendor: &'static str, redactor: Redactor) -> Self {
        Self {
            inner: Arc::new(Inner {
                vendor,
                http: self.inner.http.clone(),
                total_timeout: self.inner.total_timeout,
                rate_limiter: RateLimiter::default(),
                redactor,
            }),
        }
    }

    /// Returns the vendor's name.
    pub fn vendor(&self) -> &'static str {
        self.inner.vendor
    }

    /// Returns the vendor's quota with the smallest share left. A limited account comes before all others.
    pub fn quota(&self) -> Quota {
        self.inner.rate_limiter.scarcest_quota()
    }

    /// Returns the end of an account's rate limit in milliseconds since the epoch, or `None` if it is not
    /// limited.
    pub fn limited_until(&self, account: &str) -> Option<u64> {
        self.inner.rate_limiter.limited_until(account)
    }

    /// Returns the quotas of all accounts.
    pub fn quotas(&self) -> Vec<Quota> {
        self.inner.rate_limiter.quotas()
    }

    /// Sends a request and reads the whole response.
    ///
    /// # Errors
    /// Returns an error for any status except 2xx, 304 and those that the request accepts, and for transport
    /// failures. See [`VendorErrorKind`].
    pub async fn send(&self, request: &Request) -> Result<Response, VendorError> {
        let started = Instant::now();
        let outcome = self.send_with_retries(request, started).await;
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
            "Called vendor API."
        );
        outcome
    }

    /// Records a rate limit that a response body reports, and returns it as an error.
    pub fn record_rate_limit(&self, response: &Response) -> VendorError {
        let until = self.inner.rate_limiter.set_limited(
            &response.account,
            &response.headers,
            DEFAULT_PAUSE,
        );
        VendorError::new(
            self.inner.vendor,
            response.action,
            VendorErrorKind::RateLimited { until },
        )
    }

    /// Sends a request, and retries it if that is allowed and the error is transient.
    async fn send_with_retries(
        &self,
        request: &Request,
        started: Instant,
    ) -> Result<Response, VendorError> {
        if let Some(cause) = &request.build_error {
            return Err(self.error(request, VendorErrorKind::Connect(cause.clone())));
        }
        let policy = RetryPolicy {
            timeout: self.inner.total_timeout,
            ..RETRY
        };
        let mut attempts = 0;
        loop {
            let error = match self.attempt(request, started).await {
                Ok(response) => return Ok(response),
                Err(error) => error,
            };
            attempts += 1;
            let (elapsed, requested) = (started.elapsed(), error.retry_after());
            let delay = policy
                .next_delay(attempts, elapsed, requested, fastrand::f64())
                .filter(|_| request.retry != RetryMode::Never && is_transient(&error));
            let Some(delay) = delay else {
                return Err(error);
            };
            tokio::time::sleep(delay).await;
        }
    }

    /// Sends a request once, unless the account is rate limited.
    async fn attempt(&self, request: &Request, started: Instant) -> Result<Response, VendorError> {
        if let Some(until) = self.inner.rate_limiter.limited_until(&request.account) {
            return Err(self.error(request, VendorErrorKind::RateLimited { until }));
        }
        let time_left = self.inner.total_timeout.saturating_sub(started.elapsed());
        let response = tokio::time::timeout(time_left, self.exchange(request))
            .await
            .map_err(|_| self.error(request, VendorErrorKind::Timeout))??;
        self.check_response(request, response)
    }

    /// Sends a request, follows its redirects, and reads the response body.
    async fn exchange(&self, request: &Request) -> Result<RawResponse, VendorError> {
        let mut url = Url::parse(&request.url)
            .map_err(|_| self.error(request, VendorErrorKind::Connect("invalid URL".into())))?;
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
            let Some(next) = redirect_target(request, &url, &response) else {
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

    /// Reads a response body up to the size limit of the request.
    async fn read_body(
        &self,
        request: &Request,
        mut response: reqwest::Response,
    ) -> Result<RawResponse, VendorError> {
        let mut body = BytesMut::new();
        while let Some(chunk) = response
            .chunk()
            .await
            .map_err(|error| self.transport_error(request, &error))?
        {
            if body.len() + chunk.len() > request.max_body {
                let cause = format!("the body is longer than {} bytes", request.max_body);
                return Err(self.error(request, VendorErrorKind::Decode(cause)));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(RawResponse {
            status: response.status().as_u16(),
            headers: std::mem::take(response.headers_mut()),
            body,
        })
    }

    /// Records rate limit headers, and maps rejected statuses to errors.
    fn check_response(
        &self,
        request: &Request,
        response: RawResponse,
    ) -> Result<Response, VendorError> {
        let RawResponse {
            status,
            headers,
            body,
        } = response;
        self.inner
            .rate_limiter
            .record_headers(&request.account, &headers);
        if is_rate_limit(status, &headers, &body) {
            let until = self.inner.rate_limiter.set_limited(
                &request.account,
                &headers,
                request.default_pause,
            );
            return Err(self.error(request, VendorErrorKind::RateLimited { until }));
        }
        let is_accepted = (200..300).contains(&status)
            || status == 304
            || request.accepted_statuses.contains(&status);
        if !is_accepted {
            let kind = VendorErrorKind::Status {
                status,
                message: self.inner.redactor.excerpt(&error_message(&body)),
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
        // A connect timeout matches both conditions. Nothing was sent, so it is a connect error.
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

/// Response of any status, with its body.
struct RawResponse {
    status: u16,
    headers: HeaderMap,
    body: BytesMut,
}

/// Returns the target of a redirect that may be followed. Requests that are not reads are not redirected to
/// another origin.
fn redirect_target(request: &Request, from: &Url, response: &reqwest::Response) -> Option<Url> {
    let status = response.status().as_u16();
    let is_read = matches!(request.method, Method::GET | Method::HEAD);
    if !matches!(status, 301 | 302 | 303 | 307 | 308) || (!is_read && matches!(status, 302 | 303)) {
        return None;
    }
    let target = response.headers().get(LOCATION)?.to_str().ok()?;
    let next = from.join(target).ok()?;
    let is_http = matches!(next.scheme(), "http" | "https");
    (is_http && (is_read || next.origin() == from.origin())).then_some(next)
}

/// Returns whether a retry may succeed soon.
fn is_transient(error: &VendorError) -> bool {
    match &error.kind {
        VendorErrorKind::Connect(_) | VendorErrorKind::Transport(_) => true,
        VendorErrorKind::Status { status, .. } => *status >= 500 || *status == 408,
        VendorErrorKind::Timeout
        | VendorErrorKind::Decode(_)
        | VendorErrorKind::RateLimited { .. } => false,
    }
}

/// Returns the innermost cause of an error. Outer causes contain the URL, which may include a credential.
pub(super) fn root_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

/// Extracts the error message from a response body in the formats that vendors use.
fn error_message(body: &[u8]) -> String {
    let Ok(json) = serde_json::from_slice::<serde_json::Value>(body) else {
        return String::from_utf8_lossy(body).trim().to_owned();
    };
    let mut messages: Vec<String> = Vec::new();
    let mut push = |text: Option<&str>| {
        if let Some(text) = text.filter(|text| !text.is_empty()) {
            messages.push(text.to_owned());
        }
    };
    push(json["message"].as_str());
    push(json["error"].as_str());
    for text in json["errorMessages"].as_array().into_iter().flatten() {
        push(text.as_str());
    }
    match &json["errors"] {
        serde_json::Value::Array(errors) => {
            for error in errors {
                push(
                    error
                        .as_str()
                        .or_else(|| error["message"].as_str())
                        .or_else(|| error["code"].as_str()),
                );
            }
        }
        serde_json::Value::Object(errors) => {
            for (field, text) in errors {
                push(Some(&format!(
                    "{field}: {}",
                    text.as_str().unwrap_or_default()
                )));
            }
        }
        _ => {}
    }
    messages.join("; ")
}

#[cfg(test)]
#[path = "client_tests.rs"]
mod tests;
