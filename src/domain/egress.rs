//! Hosts that runs in isolated containers may reach.
//!
//! A container without a network reaches others only through the proxy of the service, which asks this policy. The
//! name decides first, then the addresses that it resolves to: a name that anyone can register may resolve to this
//! machine or to its network.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::fmt;

/// Maximum length of the head of a request to the proxy, in bytes.
pub const MAX_REQUEST_HEAD: usize = 4096;

/// Maximum length of a host name, in bytes.
const MAX_HOST: usize = 253;

/// Host and port that a run wants to reach.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Destination {
    /// Name in lower case, or address without brackets.
    pub host: String,
    /// Port.
    pub port: u16,
}

impl Destination {
    /// Parses `host:port`. An IPv6 address has brackets.
    pub fn parse(text: &str) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        let host = match host.strip_prefix('[') {
            Some(rest) => rest
                .strip_suffix(']')?
                .parse::<Ipv6Addr>()
                .ok()?
                .to_string(),
            None => parse_host(host)?,
        };
        let port = port.parse().ok().filter(|port| *port > 0)?;
        Some(Self { host, port })
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

/// Returns a name or IPv4 address in lower case without its final dot.
fn parse_host(text: &str) -> Option<String> {
    let host = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
    let is_label = |label: &str| {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        !label.is_empty() && label.len() <= 63 && label.chars().all(is_plain)
    };
    let is_name = host.len() <= MAX_HOST && host.split('.').all(is_label);
    // Resolvers also accept addresses such as 127.1 and 0x7f000001.
    let last = host.rsplit('.').next().unwrap_or_default();
    let is_numeric = last.starts_with(|c: char| c.is_ascii_digit());
    (is_name && (!is_numeric || host.parse::<Ipv4Addr>().is_ok())).then_some(host)
}

/// Entry of the list of permitted hosts: a name, `*.` and a name for its subdomains, or an address, each with or without
/// a port; or `*` for every host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostPattern {
    host: String,
    has_wildcard: bool,
    port: Option<u16>,
}

impl HostPattern {
    /// Parses an entry.
    pub fn parse(text: &str) -> Option<Self> {
        if text == "*" {
            return Some(Self {
                host: String::new(),
                has_wildcard: true,
                port: None,
            });
        }
        let (has_wildcard, rest) = match text.strip_prefix("*.") {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (host, port) = match Destination::parse(rest) {
            Some(destination) => (destination.host, Some(destination.port)),
            None => {
                let address = rest.parse::<Ipv6Addr>().map(|address| address.to_string());
                (address.ok().or_else(|| parse_host(rest))?, None)
            }
        };
        let is_address = host.parse::<IpAddr>().is_ok();
        (!has_wildcard || !is_address).then_some(Self {
            host,
            has_wildcard,
            port,
        })
    }

    fn matches(&self, destination: &Destination) -> bool {
        let host = &destination.host;
        let is_host = match self.has_wildcard {
            true if self.host.is_empty() => true,
            true => host
                .strip_suffix(&self.host)
                .is_some_and(|sub| sub.len() > 1 && sub.ends_with('.')),
            false => *host == self.host,
        };
        is_host && self.port.is_none_or(|port| port == destination.port)
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.has_wildcard, self.host.is_empty()) {
            (_, true) => f.write_str("*")?,
            (true, false) => write!(f, "*.{}", self.host)?,
            (false, false) if self.host.contains(':') && self.port.is_some() => {
                write!(f, "[{}]", self.host)?
            }
            (false, false) => f.write_str(&self.host)?,
        }
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

/// Addresses that a permitted host may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressScope {
    /// The operator named this host: also an address of a private network or of this machine.
    Named,
    /// Only public addresses of other machines.
    Public,
}

impl AddressScope {
    /// Returns whether the proxy may connect to an address. `is_own` tells whether the address belongs to this machine.
    pub fn permits(self, address: IpAddr, is_own: bool) -> bool {
        match self {
            Self::Named => !is_unroutable(address),
            Self::Public => is_public(address) && !is_own,
        }
    }
}

/// Policy about the hosts that runs may reach.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EgressPolicy {
    /// Hosts of the configuration that each run needs, such as that of GitHub.
    pub required: Vec<Destination>,
    /// Permitted hosts.
    pub permitted: Vec<HostPattern>,
}

impl EgressPolicy {
    /// Returns the addresses that a destination may have; `None` if it is not permitted.
    pub fn scope(&self, destination: &Destination) -> Option<AddressScope> {
        if self.required.contains(destination) {
            return Some(AddressScope::Named);
        }
        let matching = self.permitted.iter().filter(|one| one.matches(destination));
        // Anyone may control a host that a wildcard matches.
        let scopes = matching.map(|one| match one.has_wildcard {
            true => AddressScope::Public,
            false => AddressScope::Named,
        });
        scopes.max_by_key(|scope| *scope == AddressScope::Named)
    }
}

/// Addresses outside of the link-local ranges at which clouds serve the credentials of a machine, or command its agent:
/// of Azure, Alibaba Cloud and Oracle Cloud.
const METADATA_V4: [Ipv4Addr; 3] = [
    Ipv4Addr::new(168, 63, 129, 16),
    Ipv4Addr::new(100, 100, 100, 200),
    Ipv4Addr::new(192, 0, 0, 192),
];

/// The same of AWS and Google Cloud.
const METADATA_V6: [Ipv6Addr; 2] = [
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),
];

/// Whether an address reaches nothing but this machine, its link, or several machines, or is that of a metadata service.
fn is_unroutable(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => {
            v4.is_loopback()
                || v4.is_unspecified()
                || v4.is_link_local()
                || v4.is_multicast()
                || v4.octets()[0] == 0
                || v4.octets()[0] >= 240
                || METADATA_V4.contains(&v4)
        }
        IpAddr::V6(v6) => {
            v6.is_loopback()
                || v6.is_unspecified()
                || v6.is_unicast_link_local()
                || v6.is_multicast()
                || METADATA_V6.contains(&v6)
                || embedded(v6).is_some_and(|v4| is_unroutable(v4.into()))
        }
    }
}

/// Whether an address is that of a machine on the public Internet.
fn is_public(address: IpAddr) -> bool {
    let is_reserved = match address.to_canonical() {
        IpAddr::V4(v4) => {
            let [a, b, c, _] = v4.octets();
            v4.is_private()
                || v4.is_documentation()
                // Shared by carriers, for protocols, and for measurements.
                || (a == 100 && (64..128).contains(&b))
                || (a, b, c) == (192, 0, 0)
                || (a, b, c) == (192, 88, 99)
                || (a == 198 && (b == 18 || b == 19))
        }
        IpAddr::V6(v6) => {
            // Global unicast addresses begin with 001. Of them, 2001::/23 is for protocols and 2001:db8::/32 and
            // 3fff::/20 for documentation.
            let [first, second, ..] = v6.segments();
            first & 0xe000 != 0x2000 && embedded(v6).is_none()
                || first == 0x2001 && (second < 0x200 || second == 0xdb8)
                || first == 0x3fff && second < 0x1000
                || embedded(v6).is_some_and(|v4| !is_public(v4.into()))
        }
    };
    !is_reserved && !is_unroutable(address)
}

/// Returns the IPv4 address that a gateway extracts from an IPv6 address: of NAT64 (`64:ff9b::/96`) or 6to4
/// (`2002::/16`), or compatible (`::/96`).
fn embedded(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let [a, b, c, d, e, f, g, h] = address.segments();
    let (high, low) = match (a, b, c, d, e, f) {
        (0x64, 0xff9b, 0, 0, 0, 0) | (0, 0, 0, 0, 0, 0) => (g, h),
        (0x2002, ..) => (b, c),
        _ => return None,
    };
    Some(Ipv4Addr::from(u32::from(high) << 16 | u32::from(low)))
}

/// Request to the proxy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectRequest {
    /// Host and port to connect to.
    pub destination: Destination,
    /// Nonce of the session.
    pub nonce: Option<String>,
}

/// Reason for rejecting a request to the proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ConnectRequestError {
    /// The request has another method.
    #[error("only CONNECT is supported")]
    Method,
    /// The request is malformed.
    #[error("the request must be CONNECT host:port HTTP/1.1")]
    Malformed,
}

impl ConnectRequest {
    /// Parses the head of a request, with or without its final empty line.
    ///
    /// # Errors
    /// The request is malformed, or has another method.
    pub fn parse(head: &str) -> Result<Self, ConnectRequestError> {
        let mut lines = head.split("\r\n");
        let mut words = lines.next().unwrap_or_default().split(' ');
        if words.next() != Some("CONNECT") {
            return Err(ConnectRequestError::Method);
        }
        let destination = words.next().and_then(Destination::parse);
        let destination = destination.ok_or(ConnectRequestError::Malformed)?;
        if !matches!(
            (words.next(), words.next()),
            (Some("HTTP/1.1" | "HTTP/1.0"), None)
        ) {
            return Err(ConnectRequestError::Malformed);
        }
        let nonce = lines.find_map(|line| {
            let (name, value) = line.split_once(':')?;
            let is_authorization = name.eq_ignore_ascii_case("proxy-authorization");
            is_authorization.then_some(value.trim().strip_prefix("Bearer ")?.to_owned())
        });
        Ok(Self { destination, nonce })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn destination(text: &str) -> Destination {
        Destination::parse(text).unwrap_or_else(|| panic!("{text}"))
    }

    #[test]
    fn parses_destinations() {
        for (text, host, port) in [
            ("API.GitHub.com:443", "api.github.com", 443),
            ("registry.npmjs.org.:443", "registry.npmjs.org", 443),
            ("10.0.0.1:22", "10.0.0.1", 22),
            ("[2001:DB8::1]:80", "2001:db8::1", 80),
            ("my_host:1", "my_host", 1),
        ] {
            let expected = (host.to_owned(), port);
            let parsed = destination(text);
            assert_eq!((parsed.host, parsed.port), expected, "{text}");
        }
        for text in [
            "",
            "host",
            "host:",
            ":443",
            "host:0",
            "host:65536",
            "ho st:1",
            "a..b:1",
            "127.1:80",
            "0x7f000001:80",
            "2130706433:80",
            "1.2.3.4.5:80",
            "[::1:80",
            "::1:80",
            "h\u{e9}:1",
            "a/b:1",
            "user@host:1",
        ] {
            assert_eq!(Destination::parse(text), None, "{text}");
        }
    }

    #[test]
    fn names_decide_first() {
        let patterns = ["github.com", "*.npmjs.org", "nexus.corp:8443", "10.1.2.3"];
        let policy = EgressPolicy {
            required: vec![destination("git.corp:8080")],
            permitted: patterns
                .map(|text| HostPattern::parse(text).unwrap())
                .into(),
        };
        for (text, scope) in [
            ("git.corp:8080", Some(AddressScope::Named)),
            ("git.corp:22", None),
            ("github.com:443", Some(AddressScope::Named)),
            ("api.github.com:443", None),
            ("evilgithub.com:443", None),
            ("registry.npmjs.org:443", Some(AddressScope::Public)),
            ("npmjs.org:443", None),
            ("evilnpmjs.org:443", None),
            ("nexus.corp:8443", Some(AddressScope::Named)),
            ("nexus.corp:443", None),
            ("10.1.2.3:5432", Some(AddressScope::Named)),
        ] {
            assert_eq!(policy.scope(&destination(text)), scope, "{text}");
        }
        let open = EgressPolicy {
            permitted: vec![HostPattern::parse("*").unwrap()],
            ..policy
        };
        assert_eq!(
            open.scope(&destination("x.dev:443")),
            Some(AddressScope::Public)
        );
        for text in [
            "",
            "*:443",
            "*.",
            "*.10.0.0.1",
            "a b",
            "https://x",
            "x/y",
            "**.x",
        ] {
            assert_eq!(HostPattern::parse(text), None, "{text}");
        }
    }

    #[test]
    fn addresses_decide_then() {
        let rows = [
            ("8.8.8.8", true, true),
            ("2606:4700::1111", true, true),
            ("10.0.0.1", false, true),
            ("172.17.0.1", false, true),
            ("192.168.1.1", false, true),
            ("100.64.0.1", false, true),
            ("198.18.0.1", false, true),
            ("fd00::1", false, true),
            ("2001:db8::1", false, true),
            ("64:ff9b::a00:1", false, true),
            ("64:ff9b::808:808", true, true),
            ("2002:a00:1::", false, true),
            ("::ffff:10.0.0.1", false, true),
            ("127.0.0.1", false, false),
            ("0.0.0.0", false, false),
            ("169.254.169.254", false, false),
            ("224.0.0.1", false, false),
            ("255.255.255.255", false, false),
            ("::1", false, false),
            ("::", false, false),
            ("fe80::1", false, false),
            ("ff02::1", false, false),
            ("::ffff:169.254.169.254", false, false),
            ("64:ff9b::a9fe:a9fe", false, false),
            ("2002:7f00:1::", false, false),
        ];
        for (text, public, named) in rows {
            let address: IpAddr = text.parse().unwrap();
            assert_eq!(
                AddressScope::Public.permits(address, false),
                public,
                "{text}"
            );
            assert!(!AddressScope::Public.permits(address, true), "{text}");
            assert_eq!(AddressScope::Named.permits(address, true), named, "{text}");
        }
    }

    #[test]
    fn parses_requests() {
        let head = "CONNECT api.github.com:443 HTTP/1.1\r\nHost: x\r\nproxy-authorization: Bearer n1\r\n\r\n";
        let request = ConnectRequest::parse(head).unwrap();
        assert_eq!(request.destination.to_string(), "api.github.com:443");
        assert_eq!(request.nonce.as_deref(), Some("n1"));
        for (head, error) in [
            ("GET http://x/ HTTP/1.1\r\n", ConnectRequestError::Method),
            ("", ConnectRequestError::Method),
            ("CONNECT x HTTP/1.1", ConnectRequestError::Malformed),
            ("CONNECT x:1", ConnectRequestError::Malformed),
            ("CONNECT x:1 HTTP/1.1 y", ConnectRequestError::Malformed),
            ("CONNECT  x:1 HTTP/1.1", ConnectRequestError::Malformed),
        ] {
            assert_eq!(ConnectRequest::parse(head), Err(error), "{head}");
        }
    }

    proptest! {
        #[test]
        fn a_destination_is_read_as_it_is_written(text in "\\PC{0,80}") {
            if let Some(parsed) = Destination::parse(&text) {
                prop_assert_eq!(Destination::parse(&parsed.to_string()), Some(parsed));
            }
            let _ = ConnectRequest::parse(&text);
        }

        #[test]
        fn no_public_address_is_unroutable(bits in any::<u128>(), is_v4 in any::<bool>()) {
            let address: IpAddr = match is_v4 {
                true => Ipv4Addr::from(bits as u32).into(),
                false => Ipv6Addr::from(bits).into(),
            };
            prop_assert!(!is_public(address) || !is_unroutable(address));
        }
    }
}
