//! Ids of the webhook deliveries that were ignored last. A repetition of one is answered as such, although nothing
//! about it is stored.

use std::collections::{HashSet, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, PoisonError};

/// Number of ids that are remembered.
const CAPACITY: usize = 10_000;

/// Ids of the webhook deliveries that were ignored last.
#[derive(Default)]
pub struct IgnoredDeliveries {
    hasher: RandomState,
    recent: Mutex<Recent>,
}

/// Hashes of ids: senders choose ids, and those of all have the same size.
#[derive(Default)]
struct Recent {
    known: HashSet<u64>,
    oldest_first: VecDeque<u64>,
}

impl IgnoredDeliveries {
    /// Remembers an ignored delivery. Returns whether it was remembered before.
    pub fn is_repeated(&self, id: &str) -> bool {
        let hash = self.hasher.hash_one(id);
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        if !recent.known.insert(hash) {
            return true;
        }
        recent.oldest_first.push_back(hash);
        if recent.oldest_first.len() > CAPACITY
            && let Some(oldest) = recent.oldest_first.pop_front()
        {
            recent.known.remove(&oldest);
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remembers_the_last_ids() {
        let ignored = IgnoredDeliveries::default();
        assert!(!ignored.is_repeated("first"));
        assert!(ignored.is_repeated("first"));
        for number in 0..CAPACITY {
            assert!(!ignored.is_repeated(&number.to_string()));
        }
        assert!(ignored.is_repeated("9999"));
        assert!(!ignored.is_repeated("first"));
    }
}
