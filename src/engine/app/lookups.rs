//! Lookups at vendors for the forms of operators: their rate limit, and a short cache of choices.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};

use crate::choices::{ChoiceList, VendorList};
use domain::time::Timestamp;

/// Lifetime of a cached list.
const TTL: Duration = Duration::from_secs(30);

/// Maximum number of cached lists. The cache is cleared when it is full.
const MAX_LISTS: usize = 200;

/// Maximum number of lookups within [`WINDOW`], of all operators.
const MAX_LOOKUPS: usize = 60;

const WINDOW: Duration = Duration::from_secs(60);

/// Rate limit and cache of lookups for forms.
#[derive(Default)]
pub struct FormLookups {
    recent: Mutex<VecDeque<Timestamp>>,
    lists: Mutex<HashMap<VendorList, CachedList>>,
}

type Outcome = Shared<BoxFuture<'static, ChoiceList>>;

struct CachedList {
    started_at: Timestamp,
    outcome: Outcome,
}

impl FormLookups {
    /// Counts a lookup.
    ///
    /// # Errors
    /// The time to wait, if there were too many in the last minute.
    pub(crate) fn try_start(&self, now: Timestamp) -> Result<(), Duration> {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        // A clock that was set back must not block lookups.
        recent.retain(|at| *at <= now && now.since(*at) < WINDOW);
        if let (Some(first), MAX_LOOKUPS..) = (recent.front(), recent.len()) {
            return Err((*first + WINDOW).since(now));
        }
        recent.push_back(now);
        Ok(())
    }

    /// Returns a list that was read in the last 30 seconds, or waits for the one being read. Calls `read`
    /// otherwise.
    pub(crate) async fn list(
        &self,
        wanted: VendorList,
        now: Timestamp,
        read: impl FnOnce() -> BoxFuture<'static, ChoiceList>,
    ) -> ChoiceList {
        self.outcome(wanted, now, read).await
    }

    /// Discards all cached lists.
    pub(crate) fn clear(&self) {
        let mut lists = self.lists.lock().unwrap_or_else(PoisonError::into_inner);
        lists.clear();
    }

    fn outcome(
        &self,
        wanted: VendorList,
        now: Timestamp,
        read: impl FnOnce() -> BoxFuture<'static, ChoiceList>,
    ) -> Outcome {
        let mut lists = self.lists.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = lists.get(&wanted).filter(|last| last.is_valid(now)) {
            return last.outcome.clone();
        }
        if let Err(wait) = self.try_start(now) {
            let seconds = wait.as_secs().max(1);
            let sentence = format!("Too many lookups. Try again in {seconds} seconds.");
            return std::future::ready(ChoiceList::failed(sentence))
                .boxed()
                .shared();
        }
        if lists.len() >= MAX_LISTS {
            lists.clear();
        }
        // A task of its own, because the first caller may be dropped while others wait.
        let outcome = tokio::spawn(read()).map(|read| {
            read.unwrap_or_else(|_| ChoiceList::failed("The lookup ended unexpectedly.".to_owned()))
        });
        let outcome = outcome.boxed().shared();
        let cached = CachedList {
            started_at: now,
            outcome: outcome.clone(),
        };
        lists.insert(wanted, cached);
        outcome
    }
}

impl CachedList {
    /// Whether the list may be returned. A failure is not kept, so that a retry reads again.
    fn is_valid(&self, now: Timestamp) -> bool {
        let has_failed = self.outcome.peek().is_some_and(|list| list.error.is_some());
        !has_failed && now >= self.started_at && now.since(self.started_at) < TTL
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use domain::issue::System;

    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_000_000);

    async fn read(lookups: &FormLookups, reads: &Arc<AtomicUsize>, now: Timestamp, fails: bool) {
        let reads = Arc::clone(reads);
        let wanted = VendorList::Teams(System::Linear);
        let list = lookups.list(wanted, now, move || {
            async move {
                reads.fetch_add(1, Ordering::SeqCst);
                match fails {
                    true => ChoiceList::failed("no".to_owned()),
                    false => ChoiceList::default(),
                }
            }
            .boxed()
        });
        assert_eq!(list.await.error.is_some(), fails);
    }

    #[tokio::test]
    async fn a_list_is_read_once_in_thirty_seconds_unless_it_failed() {
        let (lookups, reads) = (FormLookups::default(), Arc::new(AtomicUsize::new(0)));
        let count = || reads.load(Ordering::SeqCst);
        let many = (0..10).map(|_| read(&lookups, &reads, NOW, false));
        futures_util::future::join_all(many).await;
        assert_eq!(count(), 1);
        read(&lookups, &reads, NOW + Duration::from_secs(29), false).await;
        assert_eq!(count(), 1);
        read(&lookups, &reads, NOW + TTL, true).await;
        read(&lookups, &reads, NOW + TTL, true).await;
        assert_eq!(count(), 3);
    }

    #[test]
    fn limits_lookups_per_minute() {
        let lookups = FormLookups::default();
        for _ in 0..MAX_LOOKUPS {
            assert_eq!(lookups.try_start(NOW), Ok(()));
        }
        let later = NOW + Duration::from_secs(20);
        assert_eq!(lookups.try_start(later), Err(Duration::from_secs(40)));
        assert_eq!(lookups.try_start(NOW + WINDOW), Ok(()));
        let set_back = Timestamp::from_millis(5_000);
        assert_eq!(lookups.try_start(set_back), Ok(()));
    }
}
