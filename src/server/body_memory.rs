//! Memory for large request bodies, shared fairly between clients.
//!
//! A body reserves memory as its bytes arrive. When the memory is full, reservations are revoked: those of
//! bodies that have been stalled for [`STALL_TIMEOUT`], and those of clients that use more than the waiting
//! client. Freed memory goes to the client that uses least, and within that client to the newest body: under
//! a flood, the sender of the newest body is most likely to be still waiting.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use super::connection_limit::ClientKey;

/// Time without progress after which any other body may take the memory of a body.
const STALL_TIMEOUT: Duration = Duration::from_millis(200);

/// Memory budget for the bodies of one trust level, in bytes.
pub(crate) struct BodyMemory {
    capacity: usize,
    reservations: Mutex<Reservations>,
}

struct Reservations {
    next_id: u64,
    by_id: BTreeMap<u64, ReservationState>,
}

struct ReservationState {
    client: ClientKey,
    bytes: usize,
    /// Requested new size in bytes, while the body waits for memory.
    wanted: Option<usize>,
    last_progress: Instant,
    is_revoked: bool,
    changed: Arc<Notify>,
}

/// Memory reserved by one body. Released when dropped.
pub(crate) struct BodyReservation {
    memory: &'static BodyMemory,
    id: u64,
    changed: Arc<Notify>,
}

/// Error: the memory of the body was given to another body.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ReservationRevoked;

impl BodyMemory {
    /// Creates a budget of `capacity` bytes.
    pub(crate) const fn new(capacity: usize) -> Self {
        Self {
            capacity,
            reservations: Mutex::new(Reservations {
                next_id: 0,
                by_id: BTreeMap::new(),
            }),
        }
    }

    /// Creates an empty reservation for a body of this client.
    pub(crate) fn reserve(&'static self, client: ClientKey) -> BodyReservation {
        let mut reservations = self.lock();
        reservations.next_id += 1;
        let (id, changed) = (reservations.next_id, Arc::<Notify>::default());
        let state = ReservationState {
            client,
            bytes: 0,
            wanted: None,
            last_progress: Instant::now(),
            is_revoked: false,
            changed: Arc::clone(&changed),
        };
        reservations.by_id.insert(id, state);
        BodyReservation {
            memory: self,
            id,
            changed,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Reservations> {
        self.reservations
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl ReservationState {
    fn revoke(&mut self) {
        self.is_revoked = true;
        self.changed.notify_one();
    }

    /// Whether revoking this reservation frees memory.
    fn is_revocable(&self) -> bool {
        !self.is_revoked && self.bytes > 0
    }

    /// Returns the time since the last progress; zero for a body that waits for memory, as it is not read.
    fn stalled_for(&self, now: Instant) -> Duration {
        match self.wanted {
            Some(_) => Duration::ZERO,
            None => now.duration_since(self.last_progress),
        }
    }
}

impl Reservations {
    /// Grants free memory to waiting bodies. Revokes reservations in favor of the first body that must wait.
    fn allocate(&mut self, capacity: usize) {
        let now = Instant::now();
        let mut totals = self.totals();
        let (mut reserved, mut revoked) = (0, 0);
        for state in self.by_id.values() {
            reserved += state.bytes;
            revoked += if state.is_revoked { state.bytes } else { 0 };
        }
        for id in self.waiting(&totals) {
            let Some(waiting) = self.by_id.get_mut(&id) else {
                continue;
            };
            let wanted = waiting.wanted.unwrap_or_default();
            let more = wanted.saturating_sub(waiting.bytes);
            *totals.entry(waiting.client).or_default() += more;
            if reserved + more > capacity {
                let lacking = (reserved + more).saturating_sub(capacity + revoked);
                if lacking > 0 {
                    let waiting = (id, waiting.client);
                    self.revoke_others(waiting, lacking, &totals, now);
                }
                return;
            }
            (waiting.bytes, waiting.wanted) = (wanted, None);
            waiting.last_progress = now;
            waiting.changed.notify_one();
            reserved += more;
        }
    }

    /// Revokes other reservations in favor of one body, if that frees the lacking bytes.
    fn revoke_others(
        &mut self,
        (id, client): (u64, ClientKey),
        lacking: usize,
        totals: &HashMap<ClientKey, usize>,
        now: Instant,
    ) {
        let client_total =
            |state: &ReservationState| totals.get(&state.client).copied().unwrap_or_default();
        let others = self.by_id.iter_mut().filter(|(other, state)| {
            let is_heavier =
                state.client != client && Some(&client_total(state)) >= totals.get(&client);
            let yields = is_heavier || state.stalled_for(now) >= STALL_TIMEOUT;
            **other != id && state.is_revocable() && yields
        });
        let mut others: Vec<_> = others.map(|(_, state)| state).collect();
        others.sort_by_key(|state| Reverse((client_total(state), state.stalled_for(now))));
        let mut freed = 0;
        let enough = others.iter().position(|state| {
            freed += state.bytes;
            freed >= lacking
        });
        match enough {
            Some(last) => others
                .into_iter()
                .take(last + 1)
                .for_each(ReservationState::revoke),
            None => self.break_deadlock(),
        }
    }

    /// Revokes the newest of several bodies that wait for each other, so that the oldest can continue.
    fn break_deadlock(&mut self) {
        if self.by_id.values().any(|state| state.is_revoked) {
            return;
        }
        let mut waiting = self
            .by_id
            .values_mut()
            .filter(|state| state.wanted.is_some());
        waiting.next();
        if let Some(newest) = waiting.rfind(|state| state.is_revocable()) {
            newest.revoke();
        }
    }

    /// Returns the ids of the waiting bodies in the order in which they are granted memory.
    fn waiting(&self, totals: &HashMap<ClientKey, usize>) -> Vec<u64> {
        let waiting = self.by_id.iter();
        let mut waiting: Vec<_> = waiting
            .filter(|(_, state)| state.wanted.is_some() && !state.is_revoked)
            .map(|(id, state)| (totals.get(&state.client), Reverse(*id)))
            .collect();
        waiting.sort_unstable();
        waiting.into_iter().map(|(_, Reverse(id))| id).collect()
    }

    /// Returns the bytes reserved by each client, without revoked reservations.
    fn totals(&self) -> HashMap<ClientKey, usize> {
        let mut totals = HashMap::new();
        for state in self.by_id.values().filter(|state| state.is_revocable()) {
            *totals.entry(state.client).or_default() += state.bytes;
        }
        totals
    }
}

impl BodyReservation {
    /// Records that bytes of the body have arrived.
    pub(crate) fn record_progress(&self) {
        if let Some(state) = self.memory.lock().by_id.get_mut(&self.id) {
            state.last_progress = Instant::now();
        }
    }

    /// Grows the reservation to `to` bytes. Waits until there is memory.
    ///
    /// # Errors
    /// When the reservation is revoked.
    pub(crate) async fn grow(&self, to: usize) -> Result<(), ReservationRevoked> {
        if let Some(state) = self.memory.lock().by_id.get_mut(&self.id) {
            state.wanted = Some(to);
        }
        loop {
            {
                let mut reservations = self.memory.lock();
                reservations.allocate(self.memory.capacity);
                match reservations.by_id.get(&self.id) {
                    Some(state) if !state.is_revoked && state.wanted.is_some() => {}
                    Some(state) if !state.is_revoked => return Ok(()),
                    _ => return Err(ReservationRevoked),
                }
            }
            // No notification is sent when another body stalls, so this is checked periodically.
            let _ = timeout(STALL_TIMEOUT, self.changed.notified()).await;
        }
    }

    /// Resolves when the reservation is revoked.
    pub(crate) async fn revoked(&self) {
        loop {
            let is_revoked = |reservations: &Reservations| {
                reservations
                    .by_id
                    .get(&self.id)
                    .is_none_or(|state| state.is_revoked)
            };
            if is_revoked(&self.memory.lock()) {
                return;
            }
            self.changed.notified().await;
        }
    }
}

impl Drop for BodyReservation {
    fn drop(&mut self) {
        let mut reservations = self.memory.lock();
        if reservations
            .by_id
            .remove(&self.id)
            .is_some_and(|state| state.bytes > 0)
        {
            reservations.allocate(self.memory.capacity);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    const NOW: Duration = Duration::from_millis(20);

    fn memory(capacity: usize) -> &'static BodyMemory {
        Box::leak(Box::new(BodyMemory::new(capacity)))
    }

    fn from(last: u8) -> ClientKey {
        ClientKey::Network(IpAddr::from([192, 0, 2, last]))
    }

    /// Returns `None` if the reservation must wait.
    async fn grown(
        reservation: &BodyReservation,
        to: usize,
    ) -> Option<Result<(), ReservationRevoked>> {
        timeout(NOW, reservation.grow(to)).await.ok()
    }

    #[tokio::test]
    async fn revokes_a_body_of_the_client_that_uses_most() {
        let memory = memory(100);
        let (large, larger) = (memory.reserve(from(1)), memory.reserve(from(1)));
        let (other, small) = (memory.reserve(from(2)), memory.reserve(from(3)));
        assert_eq!(grown(&large, 30).await, Some(Ok(())));
        assert_eq!(grown(&larger, 30).await, Some(Ok(())));
        assert_eq!(grown(&other, 40).await, Some(Ok(())));
        // The memory is free once the revoked reservation is dropped.
        assert_eq!(grown(&small, 10).await, None);
        assert_eq!(timeout(NOW, large.revoked()).await, Ok(()));
        assert_eq!(grown(&large, 31).await, Some(Err(ReservationRevoked)));
        assert!(timeout(NOW, larger.revoked()).await.is_err());
        drop(large);
        assert_eq!(grown(&small, 10).await, Some(Ok(())));
        assert_eq!(grown(&larger, 40).await, Some(Ok(())));
    }

    #[tokio::test]
    async fn lets_the_oldest_body_of_one_client_continue() {
        let memory = memory(100);
        let (first, second) = (memory.reserve(from(1)), memory.reserve(from(1)));
        assert_eq!(grown(&first, 50).await, Some(Ok(())));
        assert_eq!(grown(&second, 50).await, Some(Ok(())));
        assert_eq!(grown(&second, 60).await, None);
        assert_eq!(grown(&first, 60).await, None);
        assert_eq!(grown(&second, 60).await, Some(Err(ReservationRevoked)));
        drop(second);
        assert_eq!(grown(&first, 100).await, Some(Ok(())));
        let third = memory.reserve(from(1));
        assert_eq!(grown(&third, 1).await, None);
        drop(first);
        assert_eq!(grown(&third, 1).await, Some(Ok(())));
    }

    #[tokio::test]
    async fn revokes_a_stalled_body_in_favor_of_its_own_client() {
        let memory = memory(100);
        let (stalled, busy) = (memory.reserve(from(1)), memory.reserve(from(1)));
        assert_eq!(grown(&stalled, 50).await, Some(Ok(())));
        assert_eq!(grown(&busy, 50).await, Some(Ok(())));
        tokio::time::sleep(STALL_TIMEOUT).await;
        busy.record_progress();
        let newer = memory.reserve(from(1));
        assert_eq!(grown(&newer, 50).await, None);
        assert_eq!(timeout(NOW, stalled.revoked()).await, Ok(()));
        assert!(timeout(NOW, busy.revoked()).await.is_err());
        drop(stalled);
        assert_eq!(grown(&newer, 50).await, Some(Ok(())));
    }

    #[tokio::test]
    async fn grants_freed_memory_to_the_newest_body_of_the_client_that_uses_least() {
        let memory = memory(100);
        let first = memory.reserve(from(1));
        assert_eq!(grown(&first, 60).await, Some(Ok(())));
        let second = memory.reserve(from(2));
        assert_eq!(grown(&second, 40).await, Some(Ok(())));
        let (older, newer) = (memory.reserve(from(3)), memory.reserve(from(3)));
        let (heavy, done) = (memory.reserve(from(2)), std::sync::Mutex::new(Vec::new()));
        let grow = async |name, reservation: &BodyReservation| {
            reservation.grow(60).await.unwrap();
            done.lock().unwrap().push(name);
            std::future::pending::<()>().await
        };
        let waiting = async {
            tokio::join!(
                grow("older", &older),
                grow("newer", &newer),
                grow("heavy", &heavy)
            )
        };
        let freeing = async {
            first.revoked().await;
            drop(first);
        };
        let _ = timeout(NOW, async { tokio::join!(waiting, freeing) }).await;
        assert_eq!(*done.lock().unwrap(), ["newer"]);
    }
}
