//! Outbound proxies and trusted certificates.

use reqwest::ClientBuilder;
use reqwest::NoProxy;
use reqwest::Proxy;

use super::LOOPBACK;
use super::root_cause;

/// Proxies for outbound connections. Default: no proxy. Does not implement `Debug`, because an address may
/// contain a password.
#[derive(Clone, Default)]
pub struct Proxies {
    /// Proxy for `https` URLs.
    https: Option<Proxy>,
    /// Proxy for `http` URLs.
    http: Option<Proxy>,
}

impl Proxies {
    /// Creates proxies for `https` and `http` URLs. Loopback addresses and the hosts in `bypass` (separated
    /// by commas) are connected directly.
    ///
    /// # Errors
    /// Returns an error if a proxy address is invalid. The error does not contain the address, which may
    /// include a password.
    pub fn new(https: Option<&str>, http: Option<&str>, bypass: &str) -> Result<Self, String> {
        let bypass = NoProxy::from_string(&format!("{LOOPBACK},{bypass}"));
        let with_bypass = |proxy: reqwest::Result<Proxy>| match proxy {
            Ok(proxy) => Ok(proxy.no_proxy(bypass.clone())),
            Err(error) => Err(format!("a proxy's address: {}", root_cause(&error))),
        };
        Ok(Self {
            https: https.map(Proxy::https).map(with_bypass).transpose()?,
            http: http.map(Proxy::http).map(with_bypass).transpose()?,
        })
    }

    /// Adds the proxies to a client builder. Proxy variables of the environment are ignored here, because the
    /// configuration has already read them.
    pub(in crate::http) fn apply_to(&self, builder: ClientBuilder) -> ClientBuilder {
        let proxies = self.https.iter().chain(&self.http);
        proxies.fold(builder.no_proxy(), |builder, proxy| {
            builder.proxy(proxy.clone())
        })
    }
}
