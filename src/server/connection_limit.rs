//! Connection limit with eviction.
//!
//! Idle connections use memory and a file descriptor, and any client may open thousands. The number of
//! connections is therefore bounded in total and per client. When a pool is full, the client with the most
//! connections loses its oldest one, idle connections first. A client with few connections is not affected
//! by a client with many, and new connections are accepted without waiting.
//!
//! A connection belongs to the anonymous pool until a request proves more: see [`TrustLevel`].

mod table;

use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use hyper::body::{Body, Frame, SizeHint};
use tokio::sync::{AcquireError, Notify, OwnedSemaphorePermit, Semaphore};

use table::{ConnectionTable, PoolEntry};

/// Number of connections allowed above the limit while evicted connections close.
pub(crate) const EVICTION_HEADROOM: usize = 64;

/// Trust in the sender of a request, as known before the body is read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum TrustLevel {
    /// No valid credential.
    #[default]
    Anonymous,
    /// Webhook with a well-formed signature header. The signature can be verified only with the body.
    UnverifiedSignature,
    /// Valid token, or webhook from a client whose previous webhook had a valid signature. The connection
    /// keeps this level until a request arrives without it.
    Authenticated,
}

/// Key by which the connections of one client are counted together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum ClientKey {
    /// Network of a client, see [`client_network`](super::client_identity::client_network).
    Network(IpAddr),
    /// Trusted proxy between two requests, or the owner of the control socket. Evicted last.
    Trusted,
    /// All clients of the socket of runs together.
    RunSocket,
}

/// Connection limiter of one listener.
pub(crate) struct ConnectionLimit {
    permits: Arc<Semaphore>,
    table: Arc<Mutex<ConnectionTable>>,
}

impl ConnectionLimit {
    /// Creates a limiter for `capacity` connections.
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            permits: Arc::new(Semaphore::new(capacity + EVICTION_HEADROOM)),
            table: Arc::new(Mutex::new(ConnectionTable::new(capacity))),
        }
    }

    /// Acquires a slot for a connection.
    pub(crate) async fn acquire(&self, client: ClientKey) -> ConnectionSlot {
        // Waits only until connections that were already evicted have closed.
        let permit = Arc::clone(&self.permits).acquire_owned().await;
        let evict = Arc::default();
        let entry = lock(&self.table).insert(TrustLevel::Anonymous, client, false, &evict);
        ConnectionSlot {
            evict,
            idle_client: client,
            state: Mutex::new(SlotState {
                entry,
                active_requests: 0,
                has_received_request: false,
                has_rejected_request: false,
            }),
            table: Arc::clone(&self.table),
            _permit: permit,
        }
    }

    /// Evicts an anonymous connection, even if the limit is not reached.
    pub(crate) fn evict_anonymous(&self) {
        lock(&self.table).evict_anonymous();
    }
}

/// Slot of one connection, released when dropped.
pub(crate) struct ConnectionSlot {
    evict: Arc<Notify>,
    /// Client that the connection counts for between two requests.
    idle_client: ClientKey,
    state: Mutex<SlotState>,
    table: Arc<Mutex<ConnectionTable>>,
    /// Never an error, because the semaphore is not closed.
    _permit: Result<OwnedSemaphorePermit, AcquireError>,
}

struct SlotState {
    entry: PoolEntry,
    active_requests: usize,
    has_received_request: bool,
    has_rejected_request: bool,
}

impl ConnectionSlot {
    /// Marks the connection as busy until the returned guard is dropped.
    pub(crate) fn begin_request(
        self: &Arc<Self>,
        trust: TrustLevel,
        client: ClientKey,
    ) -> RequestGuard {
        let mut state = lock(&self.state);
        state.active_requests += 1;
        state.has_received_request = true;
        self.reinsert(&mut state, trust, client, true);
        drop(state);
        RequestGuard(Arc::clone(self))
    }

    /// Resolves when the connection has been evicted.
    pub(crate) async fn evicted(&self) {
        self.evict.notified().await;
    }

    /// Whether a request has ever begun on this connection.
    pub(crate) fn has_received_request(&self) -> bool {
        lock(&self.state).has_received_request
    }

    /// Records that a request was rejected whose body may not have arrived yet.
    pub(crate) fn mark_rejected(&self) {
        lock(&self.state).has_rejected_request = true;
    }

    /// Whether a request was rejected whose body may not have arrived yet.
    pub(crate) fn has_rejected_request(&self) -> bool {
        lock(&self.state).has_rejected_request
    }

    fn end_request(&self) {
        let mut state = lock(&self.state);
        state.active_requests -= 1;
        if state.active_requests == 0 {
            let trust = match state.entry.trust {
                TrustLevel::Authenticated => TrustLevel::Authenticated,
                TrustLevel::UnverifiedSignature | TrustLevel::Anonymous => TrustLevel::Anonymous,
            };
            self.reinsert(&mut state, trust, self.idle_client, false);
        }
    }

    fn reinsert(&self, state: &mut SlotState, trust: TrustLevel, client: ClientKey, is_busy: bool) {
        let mut table = lock(&self.table);
        table.remove(state.entry);
        state.entry = table.insert(trust, client, is_busy, &self.evict);
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let entry = lock(&self.state).entry;
        lock(&self.table).remove(entry);
    }
}

/// Keeps a connection busy until dropped.
pub(crate) struct RequestGuard(Arc<ConnectionSlot>);

impl Drop for RequestGuard {
    fn drop(&mut self) {
        self.0.end_request();
    }
}

/// Response body that keeps its connection busy until the last byte is sent.
pub(crate) struct GuardedBody<B> {
    body: B,
    _guard: RequestGuard,
}

impl<B> GuardedBody<B> {
    /// Wraps a body with the guard of its request.
    pub(crate) fn new(body: B, guard: RequestGuard) -> Self {
        Self {
            body,
            _guard: guard,
        }
    }
}

impl<B: Body + Unpin> Body for GuardedBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    /// Time limit for futures that are ready at once.
    const NOW: Duration = Duration::from_millis(20);

    fn from(last: u8) -> ClientKey {
        ClientKey::Network(IpAddr::from([192, 0, 2, last]))
    }

    async fn connect(limit: &ConnectionLimit, client: ClientKey) -> Arc<ConnectionSlot> {
        let slot = timeout(NOW, limit.acquire(client)).await;
        Arc::new(slot.expect("acquire waits"))
    }

    async fn connect_all(
        limit: &ConnectionLimit,
        clients: impl IntoIterator<Item = ClientKey>,
    ) -> Vec<Arc<ConnectionSlot>> {
        let mut slots = Vec::new();
        for client in clients {
            slots.push(connect(limit, client).await);
        }
        slots
    }

    async fn is_evicted(slot: &ConnectionSlot) -> bool {
        timeout(NOW, slot.evicted()).await.is_ok()
    }

    #[tokio::test]
    async fn evicts_the_longest_idle_connection_before_busy_ones() {
        // Four of eight slots are for anonymous connections.
        let limit = ConnectionLimit::new(8);
        let slots = connect_all(&limit, (1..=4).map(from)).await;
        // The first has completed a request, the second has one in progress.
        drop(slots[0].begin_request(TrustLevel::Anonymous, from(1)));
        let busy = slots[1].begin_request(TrustLevel::Anonymous, from(2));
        let more = connect_all(&limit, [from(5)]).await;
        assert!(is_evicted(&slots[2]).await);
        assert!(!is_evicted(&slots[0]).await && !is_evicted(&slots[1]).await);
        drop(busy);
        let last = connect(&limit, from(6)).await;
        assert!(is_evicted(&slots[3]).await);
        assert!(!is_evicted(&more[0]).await && !is_evicted(&last).await);
    }

    #[tokio::test]
    async fn evicts_connections_of_the_client_with_the_most_connections() {
        let limit = ConnectionLimit::new(16);
        let few = connect_all(&limit, [from(1), from(2)]).await;
        let many = connect_all(&limit, [from(9); 4]).await;
        let guards: Vec<RequestGuard> = many
            .iter()
            .map(|slot| slot.begin_request(TrustLevel::Anonymous, from(9)))
            .collect();
        // A client may have at most half of the slots.
        let more = connect(&limit, from(9)).await;
        assert!(is_evicted(&many[0]).await);
        let others = connect_all(&limit, [from(3), from(4), from(5)]).await;
        assert!(
            is_evicted(&more).await,
            "idle connections are evicted before busy ones"
        );
        for slot in few.iter().chain(&others) {
            assert!(!is_evicted(slot).await);
        }
        drop(guards);
    }

    #[tokio::test]
    async fn anonymous_connections_do_not_evict_authenticated_ones() {
        let limit = ConnectionLimit::new(16);
        let authenticated = connect(&limit, from(1)).await;
        let busy = authenticated.begin_request(TrustLevel::Authenticated, from(1));
        let resting = connect(&limit, from(1)).await;
        drop(resting.begin_request(TrustLevel::Authenticated, from(1)));
        let unverified = connect(&limit, from(1)).await;
        let delivering = unverified.begin_request(TrustLevel::UnverifiedSignature, from(1));
        let anonymous = connect_all(&limit, (0..30).map(from)).await;
        for slot in [&authenticated, &resting, &unverified] {
            assert!(!is_evicted(slot).await);
        }
        assert!(is_evicted(&anonymous[0]).await);
        // A request without the token makes the connection anonymous again.
        drop(delivering);
        drop(resting.begin_request(TrustLevel::Anonymous, from(1)));
        connect_all(&limit, (100..130).map(from)).await;
        assert!(is_evicted(&resting).await && is_evicted(&unverified).await);
        assert!(!is_evicted(&authenticated).await);
        drop(busy);
    }

    #[tokio::test]
    async fn limits_one_authenticated_client_to_half_of_the_pool() {
        let limit = ConnectionLimit::new(16);
        let mut guards = Vec::new();
        for slot in connect_all(&limit, [from(1); 4]).await {
            guards.push((slot.begin_request(TrustLevel::Authenticated, from(1)), slot));
        }
        let other = connect(&limit, from(2)).await;
        guards.push((
            other.begin_request(TrustLevel::Authenticated, from(2)),
            other,
        ));
        let levels: Vec<TrustLevel> = guards
            .iter()
            .map(|(_, slot)| lock(&slot.state).entry.trust)
            .collect();
        // Six slots are for authenticated connections, at most three of them for one client.
        let authenticated = TrustLevel::Authenticated;
        assert_eq!(
            levels,
            [
                authenticated,
                authenticated,
                authenticated,
                TrustLevel::Anonymous,
                authenticated
            ]
        );
    }

    #[tokio::test]
    async fn counts_a_proxied_request_for_its_client() {
        let limit = ConnectionLimit::new(16);
        let idle = connect_all(&limit, [ClientKey::Trusted; 4]).await;
        let proxied = connect_all(&limit, [ClientKey::Trusted; 3]).await;
        let guards: Vec<RequestGuard> = proxied
            .iter()
            .map(|slot| slot.begin_request(TrustLevel::Anonymous, from(6)))
            .collect();
        connect_all(&limit, (20..30).map(from)).await;
        assert!(is_evicted(&proxied[0]).await);
        assert!(!is_evicted(&idle[0]).await);
        drop(guards);
    }
}
