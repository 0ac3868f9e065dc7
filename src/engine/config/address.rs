//! Classification of addresses, without a request.

use std::net::IpAddr;

use reqwest::Url;

/// Whether this is an HTTP or HTTPS URL.
pub(super) fn is_http(address: &str) -> bool {
    Url::parse(address).is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
}

pub(super) fn is_https(address: &str) -> bool {
    Url::parse(address).is_ok_and(|url| url.scheme() == "https")
}

/// Whether the URL leads to this machine.
pub fn is_loopback(address: &str) -> bool {
    let url = Url::parse(address).ok();
    let host = url.as_ref().and_then(Url::host_str).unwrap_or_default();
    match host.trim_matches(['[', ']']).parse::<IpAddr>() {
        Ok(address) => {
            let address = address.to_canonical();
            address.is_loopback() || address.is_unspecified()
        }
        Err(_) => host == "localhost" || host.ends_with(".localhost"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recognizes_loopback_addresses() {
        for address in [
            "http://127.0.0.1:8080",
            "http://127.1",
            "http://localhost",
            "https://[::1]/x",
            "http://[::ffff:127.0.0.1]",
            "http://0.0.0.0",
        ] {
            assert!(is_loopback(address), "{address}");
        }
        for address in [
            "https://agents.example.com",
            "http://192.168.1.4",
            "http://localhost.example.com",
            "http://127.0.0.1@example.com",
            "nonsense",
        ] {
            assert!(!is_loopback(address), "{address}");
        }
    }
}
