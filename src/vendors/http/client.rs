//! HTTP client of one vendor: rate limit, timeouts, redirects, retries, and response checks.

mod download;
mod error_text;
mod proxies;
mod setup;

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use reqwest::Url;
use reqwest::header::{AUTHORIZATION, HeaderMap, LOCATION};

use super::availability::{Availability, OutageTracker};
use super::rate_limit::{DEFAULT_PAUSE, Quota, RateLimiter, is_rate_limit, retry_after_ms};
use super::request::{RedirectAuthorization, RetryMode};
use super::{Method, Redactor, Request, Response, VendorError, VendorErrorKind, now_millis};
use domain::retry::RetryPolicy;

pub use download::DownloadError;
pub(super) use error_text::{error_message, root_cause};
pub use proxies::Proxies;
pub use setup::Timeouts;

/// Maximum duration of a call, including retries.
const TOTAL_TIMEOUT: Duration = Duration::from_secs(30);

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

/// Loopback addresses, which bypass the proxy.
const LOOPBACK: &str = "localhost,127.0.0.0/8,::1";

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
    outage: OutageTracker,
    redactor: Redactor,
}

impl Client {
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

    /// Returns what keeps the vendor from answering at the moment.
    pub fn availability(&self) -> Availability {
        Availability {
            rate_limits: self.inner.rate_limiter.limits(),
            outage: self.inner.outage.current(now_millis()),
        }
    }

    /// Sends a request and reads the whole response.
    ///
    /// # Errors
    /// Returns an error for any status except 2xx, 304 and those that the request accepts, and for transport
    /// failures. See [`VendorErrorKind`].
    pub async fn send(&self, request: &Request) -> Result<Response, VendorError> {
        let started = Instant::now();
        let outcome = self.send_with_retries(request, started).await;
        if let Err(error) = &outcome
            && request.build_error.is_none()
        {
            self.inner.outage.record_error(error, now_millis());
        }
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
        if status < 500 {
            self.inner.outage.record_answer();
        }
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
        self.inner.rate_limiter.record_accepted(&request.account);
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
        | VendorErrorKind::RateLimited { .. }
        | VendorErrorKind::Precondition(_) => false,
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tls_tests;
