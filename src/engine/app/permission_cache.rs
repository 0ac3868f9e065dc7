//! Cache of repository permissions, kept in memory only.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use domain::ids::Repo;
use domain::time::Timestamp;
use vendors::scm::RepoPermission;

/// Lifetime of a cached permission. A person who is removed from a repository keeps access that
/// long.
const TTL: Duration = Duration::from_secs(5 * 60);

/// Maximum number of cached permissions. The cache is cleared when it is full.
const MAX_ENTRIES: usize = 2_000;

#[derive(Default)]
/// Cache of repository permissions, by repository and login.
pub struct PermissionCache(Mutex<HashMap<(Repo, String), (RepoPermission, Timestamp)>>);

impl PermissionCache {
    /// Returns the cached permission of a login; `None` if there is none or it has expired.
    pub fn get(&self, repo: &Repo, login: &str, now: Timestamp) -> Option<RepoPermission> {
        let cache = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (permission, cached_at) = cache.get(&(repo.clone(), login.to_owned()))?;
        (now.since(*cached_at) < TTL).then_some(*permission)
    }

    /// Discards all cached permissions.
    pub fn clear(&self) {
        let mut cache = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        cache.clear();
    }

    /// Caches the permission of a login.
    pub fn insert(&self, repo: &Repo, login: &str, permission: RepoPermission, now: Timestamp) {
        let mut cache = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if cache.len() >= MAX_ENTRIES {
            cache.clear();
        }
        cache.insert((repo.clone(), login.to_owned()), (permission, now));
    }
}
