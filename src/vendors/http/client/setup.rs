//! Creation of clients: timeouts, connection pool, proxies, sockets.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use reqwest::{Certificate, Identity};

use super::error_text::root_cause;
use super::{Client, Inner, Proxies, TOTAL_TIMEOUT};
use crate::http::Redactor;
use crate::http::availability::OutageTracker;
use crate::http::rate_limit::RateLimiter;

/// Maximum duration of connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Duration for which an idle connection stays open.
const POOL_IDLE: Duration = Duration::from_secs(60);

/// Maximum number of idle connections per host. HTTP/2 needs one. With HTTP/1.1, a burst opens one per
/// request, and each idle connection holds 50 kB.
const MAX_IDLE: usize = 8;

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

    /// Creates a client of a server with its own certificate authority. `authority` holds its certificates, `identity`
    /// a client certificate and its key, all in PEM format. Without an authority, those of this machine apply.
    ///
    /// # Errors
    /// Same as [`Client::new`]. Returns an error if a certificate or key is invalid.
    pub fn with_certificates(
        proxies: &Proxies,
        vendor: &'static str,
        redactor: Redactor,
        authority: Option<&str>,
        identity: Option<&str>,
    ) -> Result<Self, String> {
        let invalid = |what: &str, error| format!("{what} of {vendor}: {}", root_cause(&error));
        let authority = authority.map(|pem| Certificate::from_pem_bundle(pem.as_bytes()));
        let authority = authority
            .transpose()
            .map_err(|error| invalid("the certificate authority", error))?;
        if authority.as_ref().is_some_and(Vec::is_empty) {
            return Err(format!(
                "the certificate authority of {vendor} has no certificate"
            ));
        }
        let identity = identity.map(|pem| Identity::from_pem(pem.as_bytes()));
        let identity = identity
            .transpose()
            .map_err(|error| invalid("the client certificate", error))?;
        Self::build(vendor, redactor, Timeouts::default(), || {
            let builder = proxies.apply_to(reqwest::Client::builder());
            let builder = match &authority {
                Some(certificates) => builder.tls_certs_only(certificates.clone()),
                None => builder,
            };
            match &identity {
                Some(identity) => builder.identity(identity.clone()),
                None => builder,
            }
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
                outage: OutageTracker::default(),
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
                outage: OutageTracker::default(),
                redactor,
            }),
        }
    }
}
