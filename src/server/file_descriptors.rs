//! Limit of file descriptors, and the number of connections that it allows.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::connection_limit::EVICTION_HEADROOM;

/// Maximum number of open connections. A hundred runs, the webhooks and several panels need far fewer; 1,024
/// idle connections use about 10 MiB.
const MAX_CONNECTIONS: usize = 1024;

/// Maximum number of sockets in the tarpit.
const MAX_TARPIT: usize = 8192;

/// File descriptors reserved for files and vendor connections, besides those of the socket of runs.
const RESERVED_FOR_FILES: usize = 256;

/// Maximum number of tunnels of runs through the proxy. Each has a second socket, to its host.
pub(crate) const EGRESS_TUNNELS: usize = 256;

/// Maximum number of connections to the proxy whose request is not complete.
pub(crate) const EGRESS_REQUESTS: usize = 64;

/// Maximum number of connections to the proxy. One that is closed for the next is open for a moment longer.
pub(crate) const EGRESS_CONNECTIONS: usize = EGRESS_TUNNELS + 2 * EGRESS_REQUESTS;

/// File descriptors reserved.
const RESERVED: usize = RESERVED_FOR_FILES
    + EGRESS_TUNNELS
    + EGRESS_CONNECTIONS
    + descriptors_for(SocketCapacity::RUN_SOCKET.connections)
    + SocketCapacity::RUN_SOCKET.tarpit;

/// File descriptors per connection. The socket is duplicated, so that it can outlive the connection in
/// the tarpit.
const PER_CONNECTION: usize = 2;

/// Maximum numbers of open sockets.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SocketCapacity {
    /// Maximum number of connections, without [`EVICTION_HEADROOM`].
    pub connections: usize,
    /// Maximum number of sockets in the tarpit.
    pub tarpit: usize,
}

impl SocketCapacity {
    const MAX: Self = Self {
        connections: MAX_CONNECTIONS,
        tarpit: MAX_TARPIT,
    };

    /// Capacity of the socket of runs. A run has at most a few connections. Small, so that a hostile run
    /// cannot use up the file descriptors of the network.
    pub(crate) const RUN_SOCKET: Self = Self {
        connections: 128,
        tarpit: 128,
    };

    /// Returns the capacity that the soft limit of this process allows.
    pub(crate) fn current() -> Self {
        let limit = getrlimit(Resource::Nofile).current;
        limit.map_or(Self::MAX, |limit| {
            Self::from_limit(usize::try_from(limit).unwrap_or(usize::MAX))
        })
    }

    /// Divides `limit` file descriptors. Connections have priority over the tarpit.
    fn from_limit(limit: usize) -> Self {
        let available = limit - RESERVED.min(limit / 2);
        let connections = (available / PER_CONNECTION).saturating_sub(EVICTION_HEADROOM);
        let connections = connections.clamp(8, MAX_CONNECTIONS);
        Self {
            connections,
            tarpit: available
                .saturating_sub(descriptors_for(connections))
                .min(MAX_TARPIT),
        }
    }
}

const fn descriptors_for(connections: usize) -> usize {
    PER_CONNECTION * (connections + EVICTION_HEADROOM)
}

/// Raises the soft limit of file descriptors to the number that connections need, but not above the hard
/// limit. Logs a warning if the result allows fewer connections than usual.
pub fn raise_descriptor_limit() {
    let wanted = (descriptors_for(MAX_CONNECTIONS) + MAX_TARPIT + RESERVED) as u64;
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= wanted) {
        return;
    }
    let raised = limit.maximum.map_or(wanted, |maximum| wanted.min(maximum));
    let set = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: Some(raised),
            ..limit
        },
    );
    let capacity = SocketCapacity::current();
    if capacity != SocketCapacity::MAX {
        let error = set.err().map(|error| error.to_string());
        tracing::warn!(
            limit = raised,
            wanted,
            connections = capacity.connections,
            tarpit = capacity.tarpit,
            error,
            "The file descriptor limit allows fewer connections than usual. Raise LimitNOFILE (systemd) or `ulimit -n`."
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_low_limit_allows_fewer_connections_and_no_tarpit() {
        let rows = [
            (16, 8, 0),
            (1024, 192, 0),
            (4096, MAX_CONNECTIONS, 512),
            (65536, MAX_CONNECTIONS, MAX_TARPIT),
        ];
        for (limit, connections, tarpit) in rows {
            let expected = SocketCapacity {
                connections,
                tarpit,
            };
            assert_eq!(SocketCapacity::from_limit(limit), expected, "{limit}");
        }
    }
}
