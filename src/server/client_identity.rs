//! Identity of the client of a request: its address and its trust level, known before the body is read.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use warp::http::HeaderMap;
use warp::http::header::AUTHORIZATION;

use super::connection_limit::{ClientKey, TrustLevel};
use super::routing::{AdminCredential, Peer, is_admin};
use super::webhook_source::{WebhookSource, header};
use domain::crypto::run_token::{RunTokenError, TokenAudience};
use domain::crypto::signature::{bearer_token, bearer_token_matches};
use engine::app::App;
use engine::config::TrustedProxies;

/// Client of a request. The listener adds it to the request extensions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClientIdentity {
    /// Trust level before the body is read.
    pub trust: TrustLevel,
    /// Key for connection and memory limits.
    pub key: ClientKey,
}

/// Identifies the client of a request.
///
/// `webhook` is the sender of the webhooks of the requested path.
pub(crate) fn identify(
    app: &App,
    peer: Peer,
    webhook: Option<WebhookSource>,
    headers: &HeaderMap,
) -> ClientIdentity {
    let trusted = &app.core.config.trusted_proxies;
    match peer {
        Peer::Network(address) => ClientIdentity {
            trust: trust_level(app, peer, webhook, headers),
            key: key_of(client_address(address.ip(), headers, trusted), trusted),
        },
        Peer::RunSocket => ClientIdentity {
            trust: trust_level(app, peer, webhook, headers),
            key: ClientKey::RunSocket,
        },
        Peer::ControlSocket => ClientIdentity {
            trust: TrustLevel::Authenticated,
            key: ClientKey::Trusted,
        },
    }
}

/// Returns the key of a connection that has not sent a request yet.
pub(crate) fn peer_key(app: &App, peer: Peer) -> ClientKey {
    match peer {
        Peer::Network(address) => key_of(address.ip(), &app.core.config.trusted_proxies),
        Peer::ControlSocket => ClientKey::Trusted,
        Peer::RunSocket => ClientKey::RunSocket,
    }
}

fn key_of(address: IpAddr, trusted: &TrustedProxies) -> ClientKey {
    let address = address.to_canonical();
    match trusted.contains(address) {
        true => ClientKey::Trusted,
        false => ClientKey::Network(client_network(address)),
    }
}

fn trust_level(
    app: &App,
    peer: Peer,
    webhook: Option<WebhookSource>,
    headers: &HeaderMap,
) -> TrustLevel {
    if is_authenticated(app, peer, headers) {
        return TrustLevel::Authenticated;
    }
    match webhook {
        Some(source) if source.has_signature(headers) => TrustLevel::UnverifiedSignature,
        Some(_) | None => TrustLevel::Anonymous,
    }
}

/// Whether the credential of a request is valid for any route. Each route checks whether it is valid for that
/// route.
fn is_authenticated(app: &App, peer: Peer, headers: &HeaderMap) -> bool {
    // If the store cannot be read, an admin token is treated as invalid.
    let is_operator = || is_admin(app, &AdminCredential::of(peer, headers)).unwrap_or(false);
    let Some(authorization) = header(headers, AUTHORIZATION.as_str()) else {
        return is_operator();
    };
    let secret = app.core.config.gap_fill_trigger_secret.as_ref();
    if secret.is_some_and(|secret| bearer_token_matches(authorization, secret)) {
        return true;
    }
    let (tokens, now) = (&app.secrets.run_tokens, app.core.now());
    let run = bearer_token(authorization);
    let run = run.map(|token| tokens.verify(token, TokenAudience::Progress, now));
    match run {
        Some(Ok(_) | Err(RunTokenError::WrongAudience)) => true,
        // A token that is not a run token may be an admin token.
        Some(Err(RunTokenError::Malformed)) | None => is_operator(),
        Some(Err(RunTokenError::BadSignature | RunTokenError::Expired)) => false,
    }
}

/// Returns the network that counts as one client: an IPv4 address, or the /64 network of an IPv6 address,
/// because clients usually control a whole /64.
pub(crate) fn client_network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(
            address.to_bits() & !u128::from(u64::MAX),
        )),
    }
}

/// Returns the IP address of the client: the peer, or behind trusted proxies the last untrusted hop.
/// Unspecified for a socket.
pub(crate) fn client_ip(app: &App, peer: Peer, headers: &HeaderMap) -> IpAddr {
    match peer {
        Peer::Network(address) => {
            client_address(address.ip(), headers, &app.core.config.trusted_proxies)
        }
        Peer::ControlSocket | Peer::RunSocket => Ipv4Addr::UNSPECIFIED.into(),
    }
}

fn client_address(peer: IpAddr, headers: &HeaderMap, trusted: &TrustedProxies) -> IpAddr {
    let mut client = peer.to_canonical();
    let hops: Vec<&str> = headers
        .get_all("x-forwarded-for")
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .collect();
    let mut hops = hops.into_iter().rev();
    while trusted.contains(client) {
        // A malformed hop was not written by a trusted proxy; the proxy's own address is used.
        let Some(hop) = hops.next().and_then(hop_address) else {
            break;
        };
        client = hop.to_canonical();
    }
    client
}

fn hop_address(hop: &str) -> Option<IpAddr> {
    let hop = hop.trim();
    let with_port = || hop.parse().ok().map(|address: SocketAddr| address.ip());
    hop.parse().ok().or_else(with_port)
}

/// Whether the remote end of a connection is a trusted proxy.
pub(crate) fn is_trusted_proxy(app: &App, peer: Peer) -> bool {
    match peer {
        Peer::Network(address) => app.core.config.trusted_proxies.contains(address.ip()),
        Peer::ControlSocket | Peer::RunSocket => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_forwarded_addresses_from_trusted_proxies_only() {
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        let trusted = "10.0.0.1, ::1".parse().unwrap();
        let rows = [
            ("203.0.113.9", "1.2.3.4", "203.0.113.9"),
            ("10.0.0.1", "1.2.3.4", "1.2.3.4"),
            ("::ffff:10.0.0.1", "1.2.3.4", "1.2.3.4"),
            ("10.0.0.1", "6.6.6.6, 1.2.3.4, ::1", "1.2.3.4"),
            ("10.0.0.1", "1.2.3.4:5555", "1.2.3.4"),
            ("10.0.0.1", "6.6.6.6, nonsense", "10.0.0.1"),
            ("10.0.0.1", "", "10.0.0.1"),
        ];
        for (peer, forwarded, client) in rows {
            let mut headers = HeaderMap::new();
            headers.insert("x-forwarded-for", forwarded.parse().unwrap());
            assert_eq!(
                client_address(address(peer), &headers, &trusted),
                address(client),
                "{peer} {forwarded}"
            );
        }
    }

    #[test]
    fn counts_an_ipv6_network_as_one_client_and_a_proxy_as_trusted() {
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        let trusted = "::ffff:10.0.0.1".parse().unwrap();
        let key = |text: &str| key_of(address(text), &trusted);
        assert_eq!(key("2001:db8::1"), key("2001:db8::2"));
        assert_ne!(key("2001:db8::1"), key("2001:db8:0:1::1"));
        assert_ne!(key("192.0.2.1"), key("192.0.2.2"));
        assert_eq!(key("::ffff:192.0.2.1"), key("192.0.2.1"));
        assert_eq!(key("10.0.0.1"), ClientKey::Trusted);
    }
}
