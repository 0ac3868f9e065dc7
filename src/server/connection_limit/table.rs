//! Table of connections by trust level and client, which decides who is evicted.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use tokio::sync::Notify;

use super::{ClientKey, TrustLevel};

/// Connections of a listener by pool.
pub(super) struct ConnectionTable {
    next_id: u64,
    /// Indexed by [`TrustLevel`].
    pools: [Pool; 3],
}

/// Connections of one trust level.
struct Pool {
    capacity: usize,
    count: usize,
    clients: HashMap<ClientKey, ClientConnections>,
}

/// Connections of one client, each map in the order in which they became idle or busy.
#[derive(Default)]
struct ClientConnections {
    idle: BTreeMap<u64, Arc<Notify>>,
    busy: BTreeMap<u64, Arc<Notify>>,
}

/// Position of a connection in the table.
#[derive(Debug, Clone, Copy)]
pub(super) struct PoolEntry {
    /// Pool of the connection, which may be lower than what a request proved.
    pub trust: TrustLevel,
    client: ClientKey,
    is_busy: bool,
    id: u64,
}

impl ClientConnections {
    fn count(&self) -> usize {
        self.idle.len() + self.busy.len()
    }

    fn of(&mut self, is_busy: bool) -> &mut BTreeMap<u64, Arc<Notify>> {
        if is_busy {
            &mut self.busy
        } else {
            &mut self.idle
        }
    }

    /// Returns the id of the oldest connection that may be evicted, and whether it is busy.
    fn oldest(&self, except: u64, with_busy: bool) -> Option<(bool, u64)> {
        let first = |ids: &BTreeMap<u64, _>| ids.keys().copied().find(|id| *id != except);
        let busy = || first(&self.busy).filter(|_| with_busy);
        first(&self.idle)
            .map(|id| (false, id))
            .or_else(|| busy().map(|id| (true, id)))
    }
}

impl Pool {
    fn new(capacity: usize) -> Self {
        Self {
            capacity,
            count: 0,
            clients: HashMap::new(),
        }
    }

    fn insert(&mut self, entry: PoolEntry, evict: &Arc<Notify>) {
        let connections = self.clients.entry(entry.client).or_default();
        connections
            .of(entry.is_busy)
            .insert(entry.id, Arc::clone(evict));
        self.count += 1;
    }

    fn remove(&mut self, client: ClientKey, is_busy: bool, id: u64) -> Option<Arc<Notify>> {
        let connections = self.clients.get_mut(&client)?;
        let evict = connections.of(is_busy).remove(&id)?;
        if connections.count() == 0 {
            self.clients.remove(&client);
        }
        self.count -= 1;
        Some(evict)
    }

    fn count_of(&self, client: ClientKey) -> usize {
        self.clients
            .get(&client)
            .map_or(0, ClientConnections::count)
    }

    /// Evicts a connection of the client with the most connections, but not `except`.
    fn evict(&mut self, except: u64, with_busy: bool) -> bool {
        let candidates = self.clients.iter().filter_map(|(client, connections)| {
            let (is_busy, id) = connections.oldest(except, with_busy)?;
            let weight = match client {
                ClientKey::Trusted => 0,
                ClientKey::Network(_) | ClientKey::RunSocket => connections.count(),
            };
            Some((weight, !is_busy, Reverse(id), *client))
        });
        let heaviest = candidates.max_by_key(|(weight, is_idle, id, _)| (*weight, *is_idle, *id));
        self.evict_connection(
            heaviest.map(|(_, is_idle, Reverse(id), client)| (client, !is_idle, id)),
        )
    }

    /// Evicts the oldest connection of a client, but not `except`.
    fn evict_oldest_of(&mut self, client: ClientKey, except: u64) {
        let connections = self.clients.get(&client);
        let oldest = connections.and_then(|connections| connections.oldest(except, true));
        self.evict_connection(oldest.map(|(is_busy, id)| (client, is_busy, id)));
    }

    fn evict_connection(&mut self, connection: Option<(ClientKey, bool, u64)>) -> bool {
        let evict = connection.and_then(|(client, is_busy, id)| self.remove(client, is_busy, id));
        evict.inspect(|evict| evict.notify_one()).is_some()
    }

    /// Maximum number of connections of one client in this pool.
    fn client_limit(&self) -> usize {
        self.capacity.div_ceil(2)
    }
}

impl ConnectionTable {
    /// Creates an empty table for `capacity` connections: half of them anonymous, an eighth with an unverified
    /// signature, the rest authenticated.
    pub(super) fn new(capacity: usize) -> Self {
        let (anonymous, unverified) = (capacity.div_ceil(2), capacity / 8);
        let authenticated = capacity - anonymous - unverified;
        Self {
            next_id: 0,
            pools: [anonymous, unverified, authenticated].map(Pool::new),
        }
    }

    fn pool(&mut self, trust: TrustLevel) -> &mut Pool {
        &mut self.pools[trust as usize]
    }

    /// Adds a connection with its present state. If the pool of its trust level is full, the connection is
    /// counted as anonymous, and an anonymous connection is evicted if there are too many.
    pub(super) fn insert(
        &mut self,
        wanted: TrustLevel,
        client: ClientKey,
        is_busy: bool,
        evict: &Arc<Notify>,
    ) -> PoolEntry {
        self.next_id += 1;
        let id = self.next_id;
        let trust = match wanted {
            TrustLevel::Anonymous => wanted,
            TrustLevel::UnverifiedSignature | TrustLevel::Authenticated
                if self.has_capacity(wanted, client) =>
            {
                wanted
            }
            TrustLevel::UnverifiedSignature | TrustLevel::Authenticated => TrustLevel::Anonymous,
        };
        let entry = PoolEntry {
            trust,
            client,
            is_busy,
            id,
        };
        let pool = self.pool(trust);
        pool.insert(entry, evict);
        if pool.count > pool.capacity {
            pool.evict(id, true);
        } else if client != ClientKey::Trusted && pool.count_of(client) > pool.client_limit() {
            pool.evict_oldest_of(client, id);
        }
        entry
    }

    /// Whether a pool above the anonymous one can take a connection. Evicts an idle connection if needed;
    /// in the pool of unverified signatures, also a busy one.
    fn has_capacity(&mut self, trust: TrustLevel, client: ClientKey) -> bool {
        let pool = self.pool(trust);
        if client != ClientKey::Trusted && pool.count_of(client) >= pool.client_limit() {
            return false;
        }
        let with_busy = trust == TrustLevel::UnverifiedSignature;
        pool.count < pool.capacity || pool.evict(0, with_busy)
    }

    /// Evicts an anonymous connection.
    pub(super) fn evict_anonymous(&mut self) {
        self.pool(TrustLevel::Anonymous).evict(0, true);
    }

    /// Removes a connection, unless it has been evicted.
    pub(super) fn remove(&mut self, entry: PoolEntry) {
        self.pool(entry.trust)
            .remove(entry.client, entry.is_busy, entry.id);
    }
}
