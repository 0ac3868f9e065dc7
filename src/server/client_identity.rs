//! The client of a request: whose address counts, and what it has shown before its body is read.

use std::future::ready;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use warp::Filter;
use warp::filters::BoxedFilter;
use warp::http::HeaderMap;
use warp::http::header::AUTHORIZATION;
use warp::reject::Rejection;

use super::connection_limit::{ClientKey, TrustLevel};
use super::error::{ApiError, WebhookApiError};
use super::routing::{Peer, RequestAuth, is_admin};
use domain::crypto::run_token::{RunTokenError, TokenAudience};
use domain::crypto::signature::{bearer_token, bearer_token_matches, is_well_formed_signature};
use engine::app::App;

/// The webhooks, and where each has its signature.
const SIGNATURES: [(&str, &str); 3] = [
    ("/api/repo-host/webhook", REPO_HOST_SIGNATURE),
    ("/api/ticketing-a/webhook", LINEAR_SIGNATURE),
    ("/api/ticketing-b/webhook", JIRA_SIGNATURE),
];

pub const REPO_HOST_SIGNATURE: &str = "x-hub-signature-256";
pub const LINEAR_SIGNATURE: &str = "linear-signature";
pub const JIRA_SIGNATURE: &str = "x-hub-signature";

/// What the listener notes beside a request, for those who read its body.
#[derive(Debug, Clone, Copy)]
pub struct ClientIdentity {
    pub trust: TrustLevel,
    pub key: ClientKey,
}

/// Who asks, and with what standing.
pub fn identify(app: &App, peer: Peer, path: &str, headers: &HeaderMap) -> ClientIdentity {
    let trusted = &app.config.trusted_proxies;
    let Peer::Network(address) = peer else {
        return ClientIdentity {
            trust: TrustLevel::Authenticated,
            key: ClientKey::Trusted,
        };
    };
    ClientIdentity {
        trust: standing(app, path, headers),
        key: owner_of(client_address(address.ip(), headers, trusted), trusted),
    }
}

/// Whose a connection is until a request says more.
pub fn peer_key(app: &App, peer: Peer) -> ClientKey {
    match peer {
        Peer::Network(address) => owner_of(address.ip(), &app.config.trusted_proxies),
        Peer::ControlSocket => ClientKey::Trusted,
    }
}

fn owner_of(address: IpAddr, trusted: &[IpAddr]) -> ClientKey {
    let address = address.to_canonical();
    match is_trusted(&address, trusted) {
        true => ClientKey::Trusted,
        false => ClientKey::Network(client_network(address)),
    }
}

fn standing(app: &App, path: &str, headers: &HeaderMap) -> TrustLevel {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    if header(AUTHORIZATION.as_str()).is_some_and(|given| is_known(app, given)) {
        return TrustLevel::Authenticated;
    }
    let signature = SIGNATURES.iter().find(|(hook, _)| *hook == path);
    match signature.and_then(|(_, name)| header(name)) {
        Some(signature) if is_well_formed_signature(signature) => TrustLevel::UnverifiedSignature,
        _ => TrustLevel::Anonymous,
    }
}

/// Whether an Authorization header is good for anything here. Each route looks for itself whether it is
/// good for that route.
fn is_known(app: &App, given: &str) -> bool {
    let secret = app.config.gap_fill_trigger_secret.as_ref();
    if secret.is_some_and(|secret| bearer_token_matches(given, secret)) {
        return true;
    }
    let run = app.run_tokens.as_ref().zip(bearer_token(given));
    let run = run.map(|(tokens, token)| tokens.verify(token, TokenAudience::Progress, app.now()));
    match run {
        Some(Ok(_) | Err(RunTokenError::WrongAudience)) => true,
        // What is no run's may be an administrator's. A store that cannot be read knows nobody.
        Some(Err(RunTokenError::Malformed)) | None => {
            is_admin(app, &RequestAuth::with_authorization(given)).unwrap_or(false)
        }
        Some(Err(RunTokenError::BadSignature | RunTokenError::Expired)) => false,
    }
}

/// Webhooks whose signature header could be a signature. Others are refused before their body is read.
pub fn require_signature_header(name: &'static str) -> BoxedFilter<()> {
    warp::header::headers_cloned()
        .and_then(move |headers: HeaderMap| {
            let signature = headers.get(name).and_then(|value| value.to_str().ok());
            let fault = || Rejection::from(ApiError::from(WebhookApiError::InvalidSignature));
            ready(match signature.is_some_and(is_well_formed_signature) {
                true => Ok(()),
                false => Err(fault()),
            })
        })
        .untuple_one()
        .boxed()
}

/// What is counted as one client: an address of version 4, the network of 64 bits of one of version 6,
/// all of which somebody has who has one.
pub fn client_network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(
            address.to_bits() & !u128::from(u64::MAX),
        )),
    }
}

/// Whom the request comes from: the peer, or behind a trusted proxy the last hop that is none.
pub fn client_ip(app: &App) -> BoxedFilter<(IpAddr,)> {
    let app = app.clone();
    warp::ext::optional::<Peer>()
        .and(warp::header::headers_cloned())
        .map(move |peer: Option<Peer>, headers: HeaderMap| {
            let peer = match peer {
                Some(Peer::Network(address)) => address.ip(),
                Some(Peer::ControlSocket) | None => IpAddr::from([0, 0, 0, 0]),
            };
            client_address(peer, &headers, &app.config.trusted_proxies)
        })
        .boxed()
}

fn client_address(peer: IpAddr, headers: &HeaderMap, trusted: &[IpAddr]) -> IpAddr {
    let mut client = peer.to_canonical();
    let hops: Vec<&str> = headers
        .get_all("x-forwarded-for")
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .collect();
    let mut hops = hops.into_iter().rev();
    while is_trusted(&client, trusted) {
        // A hop that cannot be read was written by nobody we trust; its proxy stands for it.
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

fn is_trusted(address: &IpAddr, trusted: &[IpAddr]) -> bool {
    trusted.iter().any(|proxy| proxy.to_canonical() == *address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_trusted_proxies_speak_for_their_clients() {
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        let trusted = [address("10.0.0.1"), address("::1")];
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
    fn a_network_of_version_6_is_one_client_and_a_proxy_none() {
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        let trusted = [address("::ffff:10.0.0.1")];
        let owner = |text: &str| owner_of(address(text), &trusted);
        assert_eq!(owner("2001:db8::1"), owner("2001:db8::2"));
        assert_ne!(owner("2001:db8::1"), owner("2001:db8:0:1::1"));
        assert_ne!(owner("192.0.2.1"), owner("192.0.2.2"));
        assert_eq!(owner("::ffff:192.0.2.1"), owner("192.0.2.1"));
        assert_eq!(owner("10.0.0.1"), ClientKey::Trusted);
    }
}
