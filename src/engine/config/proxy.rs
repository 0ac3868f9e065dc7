//! Configuration of outbound proxies.

use reqwest::Url;

use domain::secret::Secret;
use vendors::http::Proxies;

use super::sources::Sources;
use super::validator::Validator;

/// Outbound proxies by scheme of the request.
#[derive(Debug, Clone, Default)]
pub struct ProxyConfig {
    /// Proxy for https requests.
    pub https_proxy: Option<ProxyAddress>,
    /// Proxy for http requests.
    pub http_proxy: Option<ProxyAddress>,
    /// Hosts that are requested without a proxy, separated by commas: domains including subdomains,
    /// addresses, networks; `*` is every host.
    pub no_proxy: String,
}

/// Address of a proxy, which may contain a password.
#[derive(Debug, Clone)]
pub struct ProxyAddress {
    /// URL with user name and password.
    pub address: Secret,
    /// Password, percent-encoded as in the URL.
    password: Option<Secret>,
    shown: String,
}

impl ProxyConfig {
    /// Returns the proxies in the form that clients take.
    ///
    /// # Errors
    /// If an address is invalid.
    pub fn for_clients(&self) -> Result<Proxies, String> {
        let address = |proxy: &Option<ProxyAddress>| {
            let proxy = proxy.as_ref();
            proxy.map(|proxy| proxy.address.expose().to_owned())
        };
        let (https, http) = (address(&self.https_proxy), address(&self.http_proxy));
        Proxies::new(https.as_deref(), http.as_deref(), &self.no_proxy)
    }

    /// Passwords in the proxy addresses.
    pub(super) fn passwords(&self) -> impl Iterator<Item = &Secret> {
        let proxies = self.https_proxy.iter().chain(&self.http_proxy);
        proxies.filter_map(|proxy| proxy.password.as_ref())
    }

    /// Effective values for display, without passwords.
    pub(super) fn effective(&self) -> Vec<(&'static str, String)> {
        let shown = |proxy: &Option<ProxyAddress>| {
            let proxy = proxy.as_ref();
            proxy.map_or_else(|| "<unset>".to_owned(), |proxy| proxy.shown.clone())
        };
        vec![
            ("HTTPS_PROXY", shown(&self.https_proxy)),
            ("HTTP_PROXY", shown(&self.http_proxy)),
            ("NO_PROXY", self.no_proxy.clone()),
        ]
    }
}

impl ProxyAddress {
    /// Parses an address. Without a scheme it is plain HTTP, as in other programs.
    fn parse(text: &str) -> Option<Self> {
        let address = match text.contains("://") {
            true => text.to_owned(),
            false => format!("http://{text}"),
        };
        let url = Url::parse(&address).ok()?;
        if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
            return None;
        }
        let mut bare = url.clone();
        bare.set_password(None).ok()?;
        bare.set_username("").ok()?;
        Some(Self {
            password: url.password().map(|word| Secret::new(word.to_owned())),
            shown: bare.as_str().trim_end_matches('/').to_owned(),
            address: Secret::new(address),
        })
    }
}

impl Validator {
    /// Reads the proxies from the options, else from the lower-case variables that most programs
    /// use.
    pub(super) fn proxy(
        &mut self,
        sources: &Sources,
        (https, http, bypass): (Option<Secret>, Option<Secret>, Option<String>),
    ) -> ProxyConfig {
        let lowercase = |name: &str| (sources.lookup)(name);
        let mut proxy = |name: &str, option: Option<Secret>, lowercase: Option<String>| {
            let address = option.or_else(|| lowercase.map(Secret::new))?;
            let proxy = ProxyAddress::parse(address.expose().trim());
            // The error does not quote the value, which may contain a password.
            self.require(proxy.is_some(), || {
                format!("{name} must be the http or https address of a proxy")
            });
            proxy
        };
        let bypass = bypass.or_else(|| lowercase("no_proxy"));
        ProxyConfig {
            https_proxy: proxy("HTTPS_PROXY", https, lowercase("https_proxy")),
            http_proxy: proxy("HTTP_PROXY", http, lowercase("http_proxy")),
            no_proxy: bypass.unwrap_or_default().trim().to_owned(),
        }
    }
}
