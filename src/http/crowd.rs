//! How many connections there are at once, and which goes when one more comes.
//!
//! A connection costs memory while it does nothing, and anybody may open thousands. So there is room
//! for a number of them; beyond it, the one that has been idle longest makes place. Whoever has a
//! request under way stays, and when all have, those that come wait at the door.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use hyper::body::{Body, Frame, SizeHint};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// How many connections may be open: far more than a hundred runs, a host's webhooks and some
/// panels have, and some 10 MiB when all are idle.
pub const ROOM: usize = 1024;

/// All connections of a door.
pub struct Crowd {
    room: Arc<Semaphore>,
    idle: Arc<Mutex<Idle>>,
}

/// Connections without a request under way, in the order in which they became so.
#[derive(Default)]
struct Idle {
    next: u64,
    resting: BTreeMap<u64, Arc<Notify>>,
    /// Whether somebody waits at the door for one to leave.
    is_awaited: bool,
}

impl Idle {
    fn send_the_oldest_away(&mut self) {
        let oldest = self.resting.pop_first();
        self.is_awaited = oldest.is_none();
        if let Some((_, leave)) = oldest {
            leave.notify_one();
        }
    }
}

impl Crowd {
    pub fn new(room: usize) -> Self {
        Self {
            room: Arc::new(Semaphore::new(room)),
            idle: Arc::default(),
        }
    }

    /// A place for a connection, as soon as there is one. None never comes: the room is not closed.
    pub async fn enter(&self) -> Option<Place> {
        let permit = match Arc::clone(&self.room).try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => {
                lock(&self.idle).send_the_oldest_away();
                Arc::clone(&self.room).acquire_owned().await.ok()?
            }
        };
        let place = Place {
            leave: Arc::default(),
            idle: Arc::clone(&self.idle),
            since: AtomicU64::default(),
            _permit: permit,
        };
        place.rest();
        Some(place)
    }
}

/// The place of one connection.
pub struct Place {
    leave: Arc<Notify>,
    idle: Arc<Mutex<Idle>>,
    /// Its number among the idle ones. Of a busy one, that which it had.
    since: AtomicU64,
    _permit: OwnedSemaphorePermit,
}

impl Place {
    /// Marks a request as under way, until what is answered is dropped.
    pub fn begin(self: &Arc<Self>) -> Busy {
        self.stir();
        Busy(Arc::clone(self))
    }

    /// Resolves when the connection is to make place for another.
    pub async fn asked_to_leave(&self) {
        self.leave.notified().await;
    }

    fn rest(&self) {
        let mut idle = lock(&self.idle);
        idle.next += 1;
        let number = idle.next;
        self.since.store(number, Ordering::Relaxed);
        idle.resting.insert(number, Arc::clone(&self.leave));
        if idle.is_awaited {
            idle.send_the_oldest_away();
        }
    }

    fn stir(&self) {
        let number = self.since.load(Ordering::Relaxed);
        lock(&self.idle).resting.remove(&number);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.stir();
    }
}

/// A request under way.
pub struct Busy(Arc<Place>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.rest();
    }
}

/// What is answered to a request, which is under way until the last of it is sent.
pub struct Attended<B> {
    body: B,
    _busy: Busy,
}

impl<B> Attended<B> {
    pub fn new(body: B, busy: Busy) -> Self {
        Self { body, _busy: busy }
    }
}

impl<B: Body + Unpin> Body for Attended<B> {
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

    async fn enter(crowd: &Crowd) -> Arc<Place> {
        Arc::new(crowd.enter().await.unwrap())
    }

    async fn must_leave(place: &Place) -> bool {
        timeout(NOW, place.asked_to_leave()).await.is_ok()
    }

    #[tokio::test]
    async fn whoever_was_idle_longest_makes_place() {
        let crowd = Crowd::new(3);
        let (first, second, third) = (
            enter(&crowd).await,
            enter(&crowd).await,
            enter(&crowd).await,
        );
        // The first has had a request meanwhile, the second has one now.
        drop(first.begin());
        let busy = second.begin();
        assert!(timeout(NOW, crowd.enter()).await.is_err(), "there is room");
        assert!(must_leave(&third).await);
        assert!(!must_leave(&first).await && !must_leave(&second).await);
        drop(third);
        let fourth = enter(&crowd).await;
        drop(busy);
        assert!(timeout(NOW, crowd.enter()).await.is_err(), "there is room");
        assert!(must_leave(&first).await);
        assert!(!must_leave(&second).await && !must_leave(&fourth).await);
    }

    #[tokio::test]
    async fn when_all_are_busy_the_next_to_rest_makes_place() {
        let crowd = Crowd::new(1);
        let only = enter(&crowd).await;
        let busy = only.begin();
        let comes = crowd.enter();
        tokio::pin!(comes);
        assert!(timeout(NOW, &mut comes).await.is_err());
        assert!(!must_leave(&only).await);
        drop(busy);
        assert!(must_leave(&only).await);
        drop(only);
        assert!(timeout(NOW, comes).await.is_ok());
    }
}
