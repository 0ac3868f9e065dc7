//! What people may do in repositories, remembered for a short while.
//!
//! Kept in memory: who was asked about is asked about again after a restart.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use domain::ids::Repo;
use domain::time::Timestamp;
use vendors::scm::RepoPermission;

/// For how long is an answer good? Somebody who is removed from a repository is heard that long.
const GOOD_FOR: Duration = Duration::from_secs(5 * 60);

/// How many answers are remembered?
const MAX_ANSWERS: usize = 2_000;

#[derive(Default)]
pub struct PermissionCache(Mutex<HashMap<(Repo, String), (RepoPermission, Timestamp)>>);

impl PermissionCache {
    /// What is known of somebody.
    pub fn get(&self, repo: &Repo, login: &str, now: Timestamp) -> Option<RepoPermission> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (permission, asked_at) = known.get(&(repo.clone(), login.to_owned()))?;
        (now.since(*asked_at) < GOOD_FOR).then_some(*permission)
    }

    pub fn insert(&self, repo: &Repo, login: &str, permission: RepoPermission, now: Timestamp) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MAX_ANSWERS {
            known.clear();
        }
        known.insert((repo.clone(), login.to_owned()), (permission, now));
    }
}
