//! Memory for large bodies, shared by client.
//!
//! A body takes room as its bytes come. Where a room is full, a body gives way to another: one of which nothing has
//! come for a while, or one of a client that holds more. Freed room goes to the client that holds least, and
//! of its bodies to the newest: under a flood the newest has the best chance that its sender still waits.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use super::connection_limit::ClientKey;

/// A body of which nothing has come for so long gives way to any other.
const SILENCE: Duration = Duration::from_millis(200);

/// Room for the bodies of one kind of request, in bytes.
pub struct BodyMemory {
    capacity: usize,
    holds: Mutex<Holds>,
}

struct Holds {
    next: u64,
    by_number: BTreeMap<u64, Held>,
}

struct Held {
    owner: ClientKey,
    bytes: usize,
    /// How many bytes it waits to hold.
    wanted: Option<usize>,
    /// When something of it came last.
    progress: Instant,
    is_cut: bool,
    changed: Arc<Notify>,
}

/// What one body holds of a room, until it is dropped.
pub struct BodyReservation {
    room: &'static BodyMemory,
    number: u64,
    changed: Arc<Notify>,
}

/// The body must make room for others.
#[derive(Debug, PartialEq, Eq)]
pub struct ReservationRevoked;

impl BodyMemory {
    pub const fn new(capacity: usize) -> Self {
        Self {
            capacity,
            holds: Mutex::new(Holds {
                next: 0,
                by_number: BTreeMap::new(),
            }),
        }
    }

    /// A hold of nothing yet.
    pub fn reserve(&'static self, owner: ClientKey) -> BodyReservation {
        let mut holds = self.lock();
        holds.next += 1;
        let (number, changed) = (holds.next, Arc::<Notify>::default());
        let held = Held {
            owner,
            bytes: 0,
            wanted: None,
            progress: Instant::now(),
            is_cut: false,
            changed: Arc::clone(&changed),
        };
        holds.by_number.insert(number, held);
        BodyReservation {
            room: self,
            number,
            changed,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Holds> {
        self.holds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    fn cut(&mut self) {
        self.is_cut = true;
        self.changed.notify_one();
    }

    /// Whether it can be cut and that helps.
    fn is_in_the_way(&self) -> bool {
        !self.is_cut && self.bytes > 0
    }

    /// For how long nothing of it has come. What waits for room is not read meanwhile.
    fn silence(&self, now: Instant) -> Duration {
        match self.wanted {
            Some(_) => Duration::ZERO,
            None => now.duration_since(self.progress),
        }
    }
}

impl Holds {
    /// Gives out what is free, and has bodies cut for the first that must wait.
    fn settle(&mut self, capacity: usize) {
        let now = Instant::now();
        let mut totals = self.totals();
        let (mut taken, mut leaving) = (0, 0);
        for held in self.by_number.values() {
            taken += held.bytes;
            leaving += if held.is_cut { held.bytes } else { 0 };
        }
        for number in self.waiting(&totals) {
            let Some(waiting) = self.by_number.get_mut(&number) else {
                continue;
            };
            let wanted = waiting.wanted.unwrap_or_default();
            let more = wanted.saturating_sub(waiting.bytes);
            *totals.entry(waiting.owner).or_default() += more;
            if taken + more > capacity {
                let lacking = (taken + more).saturating_sub(capacity + leaving);
                if lacking > 0 {
                    let waiting = (number, waiting.owner);
                    self.make_room(waiting, lacking, &totals, now);
                }
                return;
            }
            (waiting.bytes, waiting.wanted) = (wanted, None);
            waiting.progress = now;
            waiting.changed.notify_one();
            taken += more;
        }
    }

    /// Cuts other bodies for one, if that gives the bytes that are lacking.
    fn make_room(
        &mut self,
        (number, owner): (u64, ClientKey),
        lacking: usize,
        totals: &HashMap<ClientKey, usize>,
        now: Instant,
    ) {
        let of_its_client = |held: &Held| totals.get(&held.owner).copied().unwrap_or_default();
        let others = self.by_number.iter_mut().filter(|(other, held)| {
            let is_heavier =
                held.owner != owner && Some(&of_its_client(held)) >= totals.get(&owner);
            let gives_way = is_heavier || held.silence(now) >= SILENCE;
            **other != number && held.is_in_the_way() && gives_way
        });
        let mut others: Vec<_> = others.map(|(_, held)| held).collect();
        others.sort_by_key(|held| Reverse((of_its_client(held), held.silence(now))));
        let mut found = 0;
        let enough = others.iter().position(|held| {
            found += held.bytes;
            found >= lacking
        });
        match enough {
            Some(last) => others.into_iter().take(last + 1).for_each(Held::cut),
            None => self.let_the_oldest_go_on(),
        }
    }

    /// Cuts the youngest of those that wait for one another.
    fn let_the_oldest_go_on(&mut self) {
        if self.by_number.values().any(|held| held.is_cut) {
            return;
        }
        let mut waiting = self
            .by_number
            .values_mut()
            .filter(|held| held.wanted.is_some());
        waiting.next();
        if let Some(youngest) = waiting.rfind(|held| held.is_in_the_way()) {
            youngest.cut();
        }
    }

    /// Those that wait, in the order in which they get room.
    fn waiting(&self, totals: &HashMap<ClientKey, usize>) -> Vec<u64> {
        let waiting = self.by_number.iter();
        let mut waiting: Vec<_> = waiting
            .filter(|(_, held)| held.wanted.is_some() && !held.is_cut)
            .map(|(number, held)| (totals.get(&held.owner), Reverse(*number)))
            .collect();
        waiting.sort_unstable();
        waiting
            .into_iter()
            .map(|(_, Reverse(number))| number)
            .collect()
    }

    /// How many bytes each client holds, but for what was cut.
    fn totals(&self) -> HashMap<ClientKey, usize> {
        let mut totals = HashMap::new();
        for held in self.by_number.values().filter(|held| held.is_in_the_way()) {
            *totals.entry(held.owner).or_default() += held.bytes;
        }
        totals
    }
}

impl BodyReservation {
    /// Notes that something of the body came.
    pub fn record_progress(&self) {
        if let Some(held) = self.room.lock().by_number.get_mut(&self.number) {
            held.progress = Instant::now();
        }
    }

    /// Holds so many bytes from now on, as soon as there is room.
    ///
    /// # Errors
    /// When it must make room itself.
    pub async fn grow(&self, to: usize) -> Result<(), ReservationRevoked> {
        if let Some(held) = self.room.lock().by_number.get_mut(&self.number) {
            held.wanted = Some(to);
        }
        loop {
            {
                let mut holds = self.room.lock();
                holds.settle(self.room.capacity);
                match holds.by_number.get(&self.number) {
                    Some(held) if !held.is_cut && held.wanted.is_some() => {}
                    Some(held) if !held.is_cut => return Ok(()),
                    _ => return Err(ReservationRevoked),
                }
            }
            // Others may fall silent meanwhile, of which nobody is notified.
            let _ = timeout(SILENCE, self.changed.notified()).await;
        }
    }

    /// Resolves when it must make room for others.
    pub async fn revoked(&self) {
        loop {
            let is_cut = |holds: &Holds| {
                holds
                    .by_number
                    .get(&self.number)
                    .is_none_or(|held| held.is_cut)
            };
            if is_cut(&self.room.lock()) {
                return;
            }
            self.changed.notified().await;
        }
    }
}

impl Drop for BodyReservation {
    fn drop(&mut self) {
        let mut holds = self.room.lock();
        if holds
            .by_number
            .remove(&self.number)
            .is_some_and(|held| held.bytes > 0)
        {
            holds.settle(self.room.capacity);
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

    fn room(capacity: usize) -> &'static BodyMemory {
        Box::leak(Box::new(BodyMemory::new(capacity)))
    }

    fn from(last: u8) -> ClientKey {
        ClientKey::Network(IpAddr::from([192, 0, 2, last]))
    }

    /// None while it has to wait.
    async fn grown(hold: &BodyReservation, to: usize) -> Option<Result<(), ReservationRevoked>> {
        timeout(NOW, hold.grow(to)).await.ok()
    }

    #[tokio::test]
    async fn whoever_holds_most_makes_room() {
        let room = room(100);
        let (large, larger) = (room.reserve(from(1)), room.reserve(from(1)));
        let (other, small) = (room.reserve(from(2)), room.reserve(from(3)));
        assert_eq!(grown(&large, 30).await, Some(Ok(())));
        assert_eq!(grown(&larger, 30).await, Some(Ok(())));
        assert_eq!(grown(&other, 40).await, Some(Ok(())));
        // Room is there once the other is gone.
        assert_eq!(grown(&small, 10).await, None);
        assert_eq!(timeout(NOW, large.revoked()).await, Ok(()));
        assert_eq!(grown(&large, 31).await, Some(Err(ReservationRevoked)));
        assert!(timeout(NOW, larger.revoked()).await.is_err());
        drop(large);
        assert_eq!(grown(&small, 10).await, Some(Ok(())));
        assert_eq!(grown(&larger, 40).await, Some(Ok(())));
    }

    #[tokio::test]
    async fn of_the_bodies_of_one_client_the_oldest_goes_on() {
        let room = room(100);
        let (first, second) = (room.reserve(from(1)), room.reserve(from(1)));
        assert_eq!(grown(&first, 50).await, Some(Ok(())));
        assert_eq!(grown(&second, 50).await, Some(Ok(())));
        assert_eq!(grown(&second, 60).await, None);
        assert_eq!(grown(&first, 60).await, None);
        assert_eq!(grown(&second, 60).await, Some(Err(ReservationRevoked)));
        drop(second);
        assert_eq!(grown(&first, 100).await, Some(Ok(())));
        let third = room.reserve(from(1));
        assert_eq!(grown(&third, 1).await, None);
        drop(first);
        assert_eq!(grown(&third, 1).await, Some(Ok(())));
    }

    #[tokio::test]
    async fn a_silent_body_gives_way_even_to_its_own_client() {
        let room = room(100);
        let (silent, busy) = (room.reserve(from(1)), room.reserve(from(1)));
        assert_eq!(grown(&silent, 50).await, Some(Ok(())));
        assert_eq!(grown(&busy, 50).await, Some(Ok(())));
        tokio::time::sleep(SILENCE).await;
        busy.record_progress();
        let newer = room.reserve(from(1));
        assert_eq!(grown(&newer, 50).await, None);
        assert_eq!(timeout(NOW, silent.revoked()).await, Ok(()));
        assert!(timeout(NOW, busy.revoked()).await.is_err());
        drop(silent);
        assert_eq!(grown(&newer, 50).await, Some(Ok(())));
    }

    #[tokio::test]
    async fn freed_room_goes_to_whoever_holds_least_and_came_last() {
        let room = room(100);
        let first = room.reserve(from(1));
        assert_eq!(grown(&first, 60).await, Some(Ok(())));
        let second = room.reserve(from(2));
        assert_eq!(grown(&second, 40).await, Some(Ok(())));
        let (older, newer) = (room.reserve(from(3)), room.reserve(from(3)));
        let (heavy, done) = (room.reserve(from(2)), std::sync::Mutex::new(Vec::new()));
        let grow = async |name, hold: &BodyReservation| {
            hold.grow(60).await.unwrap();
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
