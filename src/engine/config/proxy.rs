//! The way out: the proxies that vendors are asked through.

use reqwest::Url;

use domain::secret::Secret;

use super::sources::Sources;
use super::validator::Validator;

/// Which proxy is asked for what.
#[derive(Debug, Clone, Default)]
pub struct ProxyConfig {
    pub https_proxy: Option<ProxyAddress>,
    pub http_proxy: Option<ProxyAddress>,
    /// Hosts that are asked without one, separated by commas: names with all that ends in them,
    /// addresses, networks; `*` is every host.
    pub no_proxy: String,
}

/// A proxy. Its address may hold a password.
#[derive(Debug, Clone)]
pub struct ProxyAddress {
    pub address: Secret,
    /// As it is written in the address.
    password: Option<Secret>,
    shown: String,
}

impl ProxyConfig {
    /// The passwords in the addresses.
    pub(super) fn passwords(&self) -> impl Iterator<Item = &Secret> {
        let proxies = self.https_proxy.iter().chain(&self.http_proxy);
        proxies.filter_map(|proxy| proxy.password.as_ref())
    }

    /// The values in force, for people to look at.
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
    /// Without a scheme it is one of plain HTTP, as everybody else reads it.
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
    /// What was given, else the same names in small letters, as most programs read them.
    pub(super) fn proxy(
        &mut self,
        sources: &Sources,
        (https, http, bypass): (Option<Secret>, Option<Secret>, Option<String>),
    ) -> ProxyConfig {
        let small = |name: &str| (sources.lookup)(name);
        let mut proxy = |name: &str, given: Option<Secret>, small: Option<String>| {
            let address = given.or_else(|| small.map(Secret::new))?;
            let proxy = ProxyAddress::parse(address.expose().trim());
            // Not what was given: it may hold a password.
            self.require(proxy.is_some(), || {
                format!("{name} must be the http or https address of a proxy")
            });
            proxy
        };
        let bypass = bypass.or_else(|| small("no_proxy"));
        ProxyConfig {
            https_proxy: proxy("HTTPS_PROXY", https, small("https_proxy")),
            http_proxy: proxy("HTTP_PROXY", http, small("http_proxy")),
            no_proxy: bypass.unwrap_or_default().trim().to_owned(),
        }
    }
}
