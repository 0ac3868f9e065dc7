//! Connection limit with eviction.
//!
//! A connection takes memory and a file descriptor while it does nothing, and anybody may open thousands.
//! So connections have places, which are counted in all and by client. Where a share of the places is full,
//! the client that has most of them loses its oldest connection, one without a request first. A client with few
//! connections is not reached by one with many, and nobody waits at the door.
//!
//! A place belongs to the strangers until a request shows more: see [`Standing`].

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use hyper::body::{Body, Frame, SizeHint};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// How many connections more there may be for the moment that those which were evicted take to end.
pub const EVICTION_HEADROOM: usize = 64;

/// What a request has shown of its sender before its body is read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TrustLevel {
    #[default]
    Anonymous,
    /// A webhook with a header that looks like a signature. Whether it is one depends on the body.
    UnverifiedSignature,
    /// A good token, or a webhook from a client whose last one was well signed. The connection keeps its standing
    /// until a request comes without.
    Authenticated,
}

/// Whose connections are counted together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ClientKey {
    Network(IpAddr),
    /// A trusted proxy between two requests, and the owner of the control socket. Evicted last.
    Trusted,
}

/// All connections of a door.
pub struct ConnectionLimit {
    room: Arc<Semaphore>,
    seats: Arc<Mutex<Seats>>,
}

struct Seats {
    next: u64,
    /// By [`Standing`].
    shares: [Share; 3],
}

/// Some of the places.
struct Share {
    capacity: usize,
    count: usize,
    owners: HashMap<ClientKey, Group>,
}

/// The connections of one owner in the order in which they became idle or busy.
#[derive(Default)]
struct Group {
    idle: BTreeMap<u64, Arc<Notify>>,
    busy: BTreeMap<u64, Arc<Notify>>,
}

/// Where a connection is counted.
#[derive(Debug, Clone, Copy)]
struct Seat {
    standing: TrustLevel,
    owner: ClientKey,
    is_busy: bool,
    number: u64,
}

impl Group {
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

    /// The number of the oldest that may be evicted, and whether it is busy.
    fn oldest(&self, spared: u64, with_busy: bool) -> Option<(bool, u64)> {
        let first = |seats: &BTreeMap<u64, _>| seats.keys().copied().find(|at| *at != spared);
        let busy = || first(&self.busy).filter(|_| with_busy);
        first(&self.idle)
            .map(|number| (false, number))
            .or_else(|| busy().map(|number| (true, number)))
    }
}

impl Share {
    fn new(capacity: usize) -> Self {
        Self {
            capacity,
            count: 0,
            owners: HashMap::new(),
        }
    }

    fn put(&mut self, seat: Seat, leave: &Arc<Notify>) {
        let group = self.owners.entry(seat.owner).or_default();
        group
            .of(seat.is_busy)
            .insert(seat.number, Arc::clone(leave));
        self.count += 1;
    }

    fn take(&mut self, owner: ClientKey, is_busy: bool, number: u64) -> Option<Arc<Notify>> {
        let group = self.owners.get_mut(&owner)?;
        let leave = group.of(is_busy).remove(&number)?;
        if group.count() == 0 {
            self.owners.remove(&owner);
        }
        self.count -= 1;
        Some(leave)
    }

    fn of(&self, owner: ClientKey) -> usize {
        self.owners.get(&owner).map_or(0, Group::count)
    }

    /// Has a connection leave of the owner with most of them, but not the `spared` one.
    fn evict(&mut self, spared: u64, with_busy: bool) -> bool {
        let candidates = self.owners.iter().filter_map(|(owner, group)| {
            let (is_busy, number) = group.oldest(spared, with_busy)?;
            let weight = match owner {
                ClientKey::Trusted => 0,
                ClientKey::Network(_) => group.count(),
            };
            Some((weight, !is_busy, Reverse(number), *owner))
        });
        let heaviest =
            candidates.max_by_key(|(weight, is_idle, number, _)| (*weight, *is_idle, *number));
        self.send_away(
            heaviest.map(|(_, is_idle, Reverse(number), owner)| (owner, !is_idle, number)),
        )
    }

    /// Has the oldest connection of an owner leave, but not the `spared` one.
    fn evict_of(&mut self, owner: ClientKey, spared: u64) {
        let group = self.owners.get(&owner);
        let oldest = group.and_then(|group| group.oldest(spared, true));
        self.send_away(oldest.map(|(is_busy, number)| (owner, is_busy, number)));
    }

    fn send_away(&mut self, found: Option<(ClientKey, bool, u64)>) -> bool {
        let leave = found.and_then(|(owner, is_busy, number)| self.take(owner, is_busy, number));
        leave.inspect(|leave| leave.notify_one()).is_some()
    }

    /// The most that one owner may have of this share.
    fn each(&self) -> usize {
        self.capacity.div_ceil(2)
    }
}

impl Seats {
    fn share(&mut self, standing: TrustLevel) -> &mut Share {
        &mut self.shares[standing as usize]
    }

    /// Counts a connection as what it is now. A share of those who have shown something may have no room;
    /// then it is counted among the strangers, of whom one leaves if there are too many.
    fn sit(
        &mut self,
        wanted: TrustLevel,
        owner: ClientKey,
        is_busy: bool,
        leave: &Arc<Notify>,
    ) -> Seat {
        self.next += 1;
        let number = self.next;
        let standing = match wanted {
            TrustLevel::Anonymous => wanted,
            TrustLevel::UnverifiedSignature | TrustLevel::Authenticated
                if self.admits(wanted, owner) =>
            {
                wanted
            }
            TrustLevel::UnverifiedSignature | TrustLevel::Authenticated => TrustLevel::Anonymous,
        };
        let seat = Seat {
            standing,
            owner,
            is_busy,
            number,
        };
        let share = self.share(standing);
        share.put(seat, leave);
        if share.count > share.capacity {
            share.evict(number, true);
        } else if owner != ClientKey::Trusted && share.of(owner) > share.each() {
            share.evict_of(owner, number);
        }
        seat
    }

    /// Whether there is room in a share of those who have shown something, once an idle one has left
    /// or, of those whose signature is still to be checked, any.
    fn admits(&mut self, standing: TrustLevel, owner: ClientKey) -> bool {
        let share = self.share(standing);
        if owner != ClientKey::Trusted && share.of(owner) >= share.each() {
            return false;
        }
        let with_busy = standing == TrustLevel::UnverifiedSignature;
        share.count < share.capacity || share.evict(0, with_busy)
    }

    fn leave(&mut self, seat: Seat) {
        self.share(seat.standing)
            .take(seat.owner, seat.is_busy, seat.number);
    }
}

impl ConnectionLimit {
    /// With places for so many connections: half of them for strangers, an eighth for webhooks that may be
    /// signed, the rest for those who are known.
    pub fn new(room: usize) -> Self {
        let (strangers, signed) = (room.div_ceil(2), room / 8);
        let known = room - strangers - signed;
        Self {
            room: Arc::new(Semaphore::new(room + EVICTION_HEADROOM)),
            seats: Arc::new(Mutex::new(Seats {
                next: 0,
                shares: [strangers, signed, known].map(Share::new),
            })),
        }
    }

    /// A place for a connection. None never comes: the room is not closed.
    pub async fn acquire(&self, owner: ClientKey) -> Option<ConnectionSlot> {
        // Waits only until those have ended that were evicted already.
        let permit = Arc::clone(&self.room).acquire_owned().await.ok()?;
        let leave = Arc::default();
        let seat = lock(&self.seats).sit(TrustLevel::Anonymous, owner, false, &leave);
        Some(ConnectionSlot {
            leave,
            home: owner,
            state: Mutex::new(State {
                seat,
                under_way: 0,
                has_asked: false,
                has_refused: false,
            }),
            seats: Arc::clone(&self.seats),
            _permit: permit,
        })
    }

    /// Has a stranger leave, whatever room there is.
    pub fn evict_anonymous(&self) {
        lock(&self.seats)
            .share(TrustLevel::Anonymous)
            .evict(0, true);
    }
}

/// The place of one connection.
pub struct ConnectionSlot {
    leave: Arc<Notify>,
    /// Who has the connection between two requests.
    home: ClientKey,
    state: Mutex<State>,
    seats: Arc<Mutex<Seats>>,
    _permit: OwnedSemaphorePermit,
}

struct State {
    seat: Seat,
    under_way: usize,
    has_asked: bool,
    has_refused: bool,
}

impl ConnectionSlot {
    /// Marks a request as under way, until what is answered is dropped.
    pub fn begin_request(self: &Arc<Self>, standing: TrustLevel, owner: ClientKey) -> RequestGuard {
        let mut state = lock(&self.state);
        state.under_way += 1;
        state.has_asked = true;
        self.move_to(&mut state, standing, owner, true);
        drop(state);
        RequestGuard(Arc::clone(self))
    }

    /// Resolves when the connection is to make place for another.
    pub async fn evicted(&self) {
        self.leave.notified().await;
    }

    /// Whether a request has ever begun.
    pub fn has_received_request(&self) -> bool {
        lock(&self.state).has_asked
    }

    /// Notes that a request was refused whose body may not have come yet.
    pub fn mark_rejected(&self) {
        lock(&self.state).has_refused = true;
    }

    /// Whether a request was refused whose body may not have come yet.
    pub fn has_rejected_request(&self) -> bool {
        lock(&self.state).has_refused
    }

    fn end(&self) {
        let mut state = lock(&self.state);
        state.under_way -= 1;
        if state.under_way == 0 {
            let standing = match state.seat.standing {
                TrustLevel::Authenticated => TrustLevel::Authenticated,
                TrustLevel::UnverifiedSignature | TrustLevel::Anonymous => TrustLevel::Anonymous,
            };
            self.move_to(&mut state, standing, self.home, false);
        }
    }

    fn move_to(&self, state: &mut State, standing: TrustLevel, owner: ClientKey, is_busy: bool) {
        let mut seats = lock(&self.seats);
        seats.leave(state.seat);
        state.seat = seats.sit(standing, owner, is_busy, &self.leave);
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let seat = lock(&self.state).seat;
        lock(&self.seats).leave(seat);
    }
}

/// A request under way.
pub struct RequestGuard(Arc<ConnectionSlot>);

impl Drop for RequestGuard {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// What is answered to a request, which is under way until the last of it is sent.
pub struct GuardedBody<B> {
    body: B,
    _busy: RequestGuard,
}

impl<B> GuardedBody<B> {
    pub fn new(body: B, busy: RequestGuard) -> Self {
        Self { body, _busy: busy }
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

    /// Long enough for what is there already.
    const NOW: Duration = Duration::from_millis(20);

    fn from(last: u8) -> ClientKey {
        ClientKey::Network(IpAddr::from([192, 0, 2, last]))
    }

    async fn enter(crowd: &ConnectionLimit, owner: ClientKey) -> Arc<ConnectionSlot> {
        let place = timeout(NOW, crowd.acquire(owner)).await;
        Arc::new(place.expect("somebody waits at the door").unwrap())
    }

    async fn enter_all(
        crowd: &ConnectionLimit,
        owners: impl IntoIterator<Item = ClientKey>,
    ) -> Vec<Arc<ConnectionSlot>> {
        let mut places = Vec::new();
        for owner in owners {
            places.push(enter(crowd, owner).await);
        }
        places
    }

    async fn must_leave(place: &ConnectionSlot) -> bool {
        timeout(NOW, place.evicted()).await.is_ok()
    }

    #[tokio::test]
    async fn whoever_was_idle_longest_makes_place_and_busy_ones_last() {
        // Four places for strangers.
        let crowd = ConnectionLimit::new(8);
        let places = enter_all(&crowd, (1..=4).map(from)).await;
        // The first has had a request meanwhile, the second has one now.
        drop(places[0].begin_request(TrustLevel::Anonymous, from(1)));
        let busy = places[1].begin_request(TrustLevel::Anonymous, from(2));
        let more = enter_all(&crowd, [from(5)]).await;
        assert!(must_leave(&places[2]).await);
        assert!(!must_leave(&places[0]).await && !must_leave(&places[1]).await);
        drop(busy);
        let last = enter(&crowd, from(6)).await;
        assert!(must_leave(&places[3]).await);
        assert!(!must_leave(&more[0]).await && !must_leave(&last).await);
    }

    #[tokio::test]
    async fn the_client_with_most_connections_makes_place_even_for_itself() {
        let crowd = ConnectionLimit::new(16);
        let few = enter_all(&crowd, [from(1), from(2)]).await;
        let many = enter_all(&crowd, [from(9); 4]).await;
        let held: Vec<RequestGuard> = many
            .iter()
            .map(|place| place.begin_request(TrustLevel::Anonymous, from(9)))
            .collect();
        // No client has more than half.
        let more = enter(&crowd, from(9)).await;
        assert!(must_leave(&many[0]).await);
        let others = enter_all(&crowd, [from(3), from(4), from(5)]).await;
        assert!(must_leave(&more).await, "an idle one before the busy ones");
        for place in few.iter().chain(&others) {
            assert!(!must_leave(place).await);
        }
        drop(held);
    }

    #[tokio::test]
    async fn what_is_known_has_places_that_no_stranger_takes() {
        let crowd = ConnectionLimit::new(16);
        let known = enter(&crowd, from(1)).await;
        let busy = known.begin_request(TrustLevel::Authenticated, from(1));
        let resting = enter(&crowd, from(1)).await;
        drop(resting.begin_request(TrustLevel::Authenticated, from(1)));
        let signed = enter(&crowd, from(1)).await;
        let delivering = signed.begin_request(TrustLevel::UnverifiedSignature, from(1));
        let strangers = enter_all(&crowd, (0..30).map(from)).await;
        for place in [&known, &resting, &signed] {
            assert!(!must_leave(place).await);
        }
        assert!(must_leave(&strangers[0]).await);
        // What comes without its token is a stranger again.
        drop(delivering);
        drop(resting.begin_request(TrustLevel::Anonymous, from(1)));
        enter_all(&crowd, (100..130).map(from)).await;
        assert!(must_leave(&resting).await && must_leave(&signed).await);
        assert!(!must_leave(&known).await);
        drop(busy);
    }

    #[tokio::test]
    async fn one_that_is_known_takes_no_more_than_half_of_those_places() {
        let crowd = ConnectionLimit::new(16);
        let mut held = Vec::new();
        for place in enter_all(&crowd, [from(1); 4]).await {
            held.push((
                place.begin_request(TrustLevel::Authenticated, from(1)),
                place,
            ));
        }
        let other = enter(&crowd, from(2)).await;
        held.push((
            other.begin_request(TrustLevel::Authenticated, from(2)),
            other,
        ));
        let standings: Vec<TrustLevel> = held
            .iter()
            .map(|(_, place)| lock(&place.state).seat.standing)
            .collect();
        // Six are for those who are known, three of them for one client.
        let known = TrustLevel::Authenticated;
        assert_eq!(
            standings,
            [known, known, known, TrustLevel::Anonymous, known]
        );
    }

    #[tokio::test]
    async fn behind_a_proxy_the_client_counts_that_it_speaks_for() {
        let crowd = ConnectionLimit::new(16);
        let idle = enter_all(&crowd, [ClientKey::Trusted; 4]).await;
        let proxied = enter_all(&crowd, [ClientKey::Trusted; 3]).await;
        let held: Vec<RequestGuard> = proxied
            .iter()
            .map(|place| place.begin_request(TrustLevel::Anonymous, from(6)))
            .collect();
        enter_all(&crowd, (20..30).map(from)).await;
        assert!(must_leave(&proxied[0]).await);
        assert!(!must_leave(&idle[0]).await);
        drop(held);
    }
}
