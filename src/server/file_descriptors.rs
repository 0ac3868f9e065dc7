//! File descriptors: how many connections their limit allows.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::connection_limit::EVICTION_HEADROOM;

/// Maximum number of open connections: far more than a hundred runs, a host's webhooks and some
/// panels have, and some 10 MiB when all are idle.
const CONNECTIONS: usize = 1024;

/// Maximum number of evicted connections that stay open for a while.
const TARPIT: usize = 8192;

/// The file descriptors of this process that are not for connections: files, vendors, runs.
const OTHERS: usize = 256;

/// A connection has its socket twice, so that the socket can outlive it in the tarpit.
const EACH: usize = 2;

/// How many sockets there may be at once.
#[derive(Debug, PartialEq, Eq)]
pub struct SocketCapacity {
    pub connections: usize,
    pub tarpit: usize,
}

impl SocketCapacity {
    const MOST: Self = Self {
        connections: CONNECTIONS,
        tarpit: TARPIT,
    };

    /// What the limit of this process allows.
    pub fn current() -> Self {
        let limit = getrlimit(Resource::Nofile).current;
        limit.map_or(Self::MOST, |limit| {
            Self::of(usize::try_from(limit).unwrap_or(usize::MAX))
        })
    }

    /// Of so many descriptors. Connections come before the tarpit.
    fn of(limit: usize) -> Self {
        let left = limit - OTHERS.min(limit / 2);
        let connections = (left / EACH).saturating_sub(EVICTION_HEADROOM);
        let connections = connections.clamp(8, CONNECTIONS);
        Self {
            connections,
            tarpit: left.saturating_sub(needed(connections)).min(TARPIT),
        }
    }
}

const fn needed(connections: usize) -> usize {
    EACH * (connections + EVICTION_HEADROOM)
}

/// Raises the soft limit of file descriptors to what connections need, as far as the hard limit allows.
pub fn raise_descriptor_limit() {
    let wanted = (needed(CONNECTIONS) + TARPIT + OTHERS) as u64;
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
    if capacity != SocketCapacity::MOST {
        let refused = set.err().map(|error| error.to_string());
        tracing::warn!(
            limit = raised,
            wanted,
            connections = capacity.connections,
            evicted = capacity.tarpit,
            refused,
            "The limit of file descriptors allows fewer connections than usual (see LimitNOFILE, ulimit -n)."
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_low_limit_has_fewer_connections_and_no_tarpit() {
        let rows = [
            (16, 8, 0),
            (1024, 320, 0),
            (4096, CONNECTIONS, 1664),
            (65536, CONNECTIONS, TARPIT),
        ];
        for (limit, connections, tarpit) in rows {
            let expected = SocketCapacity {
                connections,
                tarpit,
            };
            assert_eq!(SocketCapacity::of(limit), expected, "{limit}");
        }
    }
}
