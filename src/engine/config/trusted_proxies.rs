//! Reverse proxies whose forwarding headers are trusted.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;

/// Addresses and networks of reverse proxies.
#[derive(Debug, Clone, Default)]
pub struct TrustedProxies(Vec<IpNet>);

impl FromStr for TrustedProxies {
    type Err = String;

    /// Reads a list of addresses and networks, separated by commas.
    fn from_str(list: &str) -> Result<Self, String> {
        let entries = list.split(',').map(str::trim);
        let entries = entries.filter(|entry| !entry.is_empty());
        entries.map(parse).collect::<Result<_, _>>().map(Self)
    }
}

impl TrustedProxies {
    /// Returns whether an address is that of a trusted proxy.
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.0.iter().any(|network| network.contains(&address))
    }
}

impl fmt::Display for TrustedProxies {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, network) in self.0.iter().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            match network.prefix_len() == network.max_prefix_len() {
                true => write!(formatter, "{comma}{}", network.addr())?,
                false => write!(formatter, "{comma}{network}")?,
            }
        }
        Ok(())
    }
}

/// Parses an address or a network. An IPv4 address in IPv6 notation is one of IPv4.
fn parse(entry: &str) -> Result<IpNet, String> {
    let address = entry.parse::<IpAddr>();
    let network = match address {
        Ok(address) => IpNet::from(address.to_canonical()),
        Err(_) => entry
            .parse()
            .map_err(|_| format!("must be a list of IP addresses and networks, not '{entry}'"))?,
    };
    match network.prefix_len() {
        0 => Err(format!("must not trust every client with '{entry}'")),
        _ => Ok(network.trunc()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contains_addresses_and_networks() {
        let list = "10.0.0.1, 10.244.7.9/16,::1 ,fd00:10:244::/56, ::ffff:192.0.2.1,";
        let proxies: TrustedProxies = list.parse().unwrap();
        for (address, expected) in [
            ("10.0.0.1", true),
            ("::ffff:10.0.0.1", true),
            ("10.0.0.2", false),
            ("10.244.0.1", true),
            ("::ffff:10.244.255.255", true),
            ("10.245.0.1", false),
            ("::1", true),
            ("::2", false),
            ("fd00:10:244:ff::9", true),
            ("fd00:10:244:100::9", false),
            ("192.0.2.1", true),
        ] {
            assert_eq!(
                proxies.contains(address.parse().unwrap()),
                expected,
                "{address}"
            );
        }
        assert_eq!(
            proxies.to_string(),
            "10.0.0.1,10.244.0.0/16,::1,fd00:10:244::/56,192.0.2.1"
        );
        assert!(!TrustedProxies::default().contains("10.0.0.1".parse().unwrap()));
    }

    #[test]
    fn refuses_names_and_networks_of_everybody() {
        for (list, problem) in [
            (
                "nowhere",
                "must be a list of IP addresses and networks, not 'nowhere'",
            ),
            (
                "10.0.0.0/33",
                "must be a list of IP addresses and networks, not '10.0.0.0/33'",
            ),
            (
                "::1,0.0.0.0/0",
                "must not trust every client with '0.0.0.0/0'",
            ),
            ("::/0", "must not trust every client with '::/0'"),
        ] {
            let refused = list.parse::<TrustedProxies>().unwrap_err();
            assert_eq!(refused, problem);
        }
    }
}
