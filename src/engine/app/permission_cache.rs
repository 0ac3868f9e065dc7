//! Cache of permissions, kept in memory only.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use domain::time::Timestamp;

/// Lifetime of a cached permission. A person who loses access keeps it that long.
const TTL: Duration = Duration::from_secs(5 * 60);

/// Maximum number of cached permissions. The cache is cleared when it is full.
const MAX_ENTRIES: usize = 2_000;

/// Repository or issue, and the account.
type Key = (String, String);

/// Whether accounts may write to repositories or issues.
#[derive(Default)]
pub struct PermissionCache(Mutex<HashMap<Key, (bool, Timestamp)>>);

impl PermissionCache {
    /// Returns the cached permission of an account; `None` if there is none or it has expired.
    pub fn get(&self, key: &Key, now: Timestamp) -> Option<bool> {
        let (may_write, cached_at) = *self.lock().get(key)?;
        (now.since(cached_at) < TTL).then_some(may_write)
    }

    /// Discards all cached permissions.
    pub fn clear(&self) {
        self.lock().clear();
    }

    /// Caches the permission of an account.
    pub fn insert(&self, key: Key, may_write: bool, now: Timestamp) {
        let mut cache = self.lock();
        if cache.len() >= MAX_ENTRIES {
            cache.clear();
        }
        cache.insert(key, (may_write, now));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, (bool, Timestamp)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
