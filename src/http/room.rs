//! Memory for large bodies, shared by client.
//!
//! A body takes room as its bytes come. Where a room is full, the client that holds most of it loses its
//! youngest body, so that a client with a small one is not kept out by those with large ones. A client that
//! holds most itself waits for its own older bodies, of which the oldest always goes on.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::crowd::Owner;

/// Room for the bodies of one kind of request, in bytes.
pub struct Room {
    capacity: usize,
    holds: Mutex<Holds>,
    freed: Notify,
}

struct Holds {
    next: u64,
    by_number: BTreeMap<u64, Held>,
}

struct Held {
    owner: Owner,
    bytes: usize,
    cut: Arc<Notify>,
    is_cut: bool,
}

/// What one body holds of a room, until it is dropped.
pub struct Hold {
    room: &'static Room,
    number: u64,
    cut: Arc<Notify>,
}

/// The body must make room for others.
#[derive(Debug, PartialEq, Eq)]
pub struct Crowded;

enum Grown {
    Done,
    Cut,
    Later,
}

impl Room {
    pub const fn new(capacity: usize) -> Self {
        Self {
            capacity,
            holds: Mutex::new(Holds {
                next: 0,
                by_number: BTreeMap::new(),
            }),
            freed: Notify::const_new(),
        }
    }

    /// A hold of nothing yet.
    pub fn hold(&'static self, owner: Owner) -> Hold {
        let mut holds = self.lock();
        holds.next += 1;
        let (number, cut) = (holds.next, Arc::<Notify>::default());
        let held = Held {
            owner,
            bytes: 0,
            cut: Arc::clone(&cut),
            is_cut: false,
        };
        holds.by_number.insert(number, held);
        Hold {
            room: self,
            number,
            cut,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Holds> {
        self.holds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn try_grow(&self, number: u64, to: usize) -> Grown {
        let mut holds = self.lock();
        let taken: usize = holds.by_number.values().map(|held| held.bytes).sum();
        let leaving = holds.by_number.values().filter(|held| held.is_cut);
        let leaving: usize = leaving.map(|held| held.bytes).sum();
        let Some(mine) = holds.by_number.get_mut(&number) else {
            return Grown::Cut;
        };
        if mine.is_cut {
            return Grown::Cut;
        }
        let more = to.saturating_sub(mine.bytes);
        if taken + more <= self.capacity {
            mine.bytes += more;
            return Grown::Done;
        }
        // What was cut already may do, once it is gone.
        if taken - leaving + more > self.capacity
            && let Some(victim) = holds.victim(number)
            && let Some(held) = holds.by_number.get_mut(&victim)
        {
            held.is_cut = true;
            held.cut.notify_one();
        }
        Grown::Later
    }
}

impl Holds {
    /// The body that makes room for this one: the youngest of the client that holds most. Of one's own, a
    /// younger one.
    fn victim(&self, number: u64) -> Option<u64> {
        let mut totals: HashMap<Owner, (usize, u64)> = HashMap::new();
        for (number, held) in &self.by_number {
            if !held.is_cut && held.bytes > 0 {
                let (bytes, youngest) = totals.entry(held.owner).or_default();
                *bytes += held.bytes;
                *youngest = *number;
            }
        }
        // Of two clients that hold the same, the one that came last.
        let (owner, (_, youngest)) = totals.into_iter().max_by_key(|(_, total)| *total)?;
        let mine = self.by_number.get(&number)?.owner;
        (owner != mine || youngest > number).then_some(youngest)
    }
}

impl Hold {
    /// Holds so many bytes from now on, as soon as there is room.
    ///
    /// # Errors
    /// When it must make room itself.
    pub async fn grow(&self, to: usize) -> Result<(), Crowded> {
        loop {
            let mut freed = std::pin::pin!(self.room.freed.notified());
            freed.as_mut().enable();
            match self.room.try_grow(self.number, to) {
                Grown::Done => return Ok(()),
                Grown::Cut => return Err(Crowded),
                Grown::Later => {}
            }
            tokio::select! {
                () = freed => {}
                () = self.cut.notified() => return Err(Crowded),
            }
        }
    }

    /// Resolves when it must make room for others.
    pub async fn cut(&self) {
        self.cut.notified().await;
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.room.lock().by_number.remove(&self.number);
        self.room.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    const NOW: Duration = Duration::from_millis(20);

    fn room(capacity: usize) -> &'static Room {
        Box::leak(Box::new(Room::new(capacity)))
    }

    fn from(last: u8) -> Owner {
        Owner::Network(IpAddr::from([192, 0, 2, last]))
    }

    /// None while it has to wait.
    async fn grown(hold: &Hold, to: usize) -> Option<Result<(), Crowded>> {
        timeout(NOW, hold.grow(to)).await.ok()
    }

    #[tokio::test]
    async fn whoever_holds_most_makes_room() {
        let room = room(100);
        let (large, larger) = (room.hold(from(1)), room.hold(from(1)));
        let (other, small) = (room.hold(from(2)), room.hold(from(3)));
        assert_eq!(grown(&large, 30).await, Some(Ok(())));
        assert_eq!(grown(&larger, 30).await, Some(Ok(())));
        assert_eq!(grown(&other, 40).await, Some(Ok(())));
        // Room is there once the other is gone.
        assert_eq!(grown(&small, 10).await, None);
        assert_eq!(timeout(NOW, larger.cut()).await, Ok(()));
        assert_eq!(grown(&larger, 31).await, Some(Err(Crowded)));
        assert!(timeout(NOW, large.cut()).await.is_err());
        drop(larger);
        assert_eq!(grown(&small, 10).await, Some(Ok(())));
        assert_eq!(grown(&large, 40).await, Some(Ok(())));
    }

    #[tokio::test]
    async fn of_the_bodies_of_one_client_the_oldest_goes_on() {
        let room = room(100);
        let (first, second) = (room.hold(from(1)), room.hold(from(1)));
        assert_eq!(grown(&first, 50).await, Some(Ok(())));
        assert_eq!(grown(&second, 50).await, Some(Ok(())));
        assert_eq!(grown(&second, 60).await, None);
        assert_eq!(grown(&first, 60).await, None);
        assert_eq!(grown(&second, 60).await, Some(Err(Crowded)));
        drop(second);
        assert_eq!(grown(&first, 100).await, Some(Ok(())));
        let third = room.hold(from(1));
        assert_eq!(grown(&third, 1).await, None);
        drop(first);
        assert_eq!(grown(&third, 1).await, Some(Ok(())));
    }
}
