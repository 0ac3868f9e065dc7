//! Begun creations of a GitHub App. Only hashes of their states are stored.

use serde::{Deserialize, Serialize};

use domain::time::Timestamp;

use super::StoreResult;
use super::table::WriteTx;
use super::tables::GITHUB_APP_STATES;

/// Maximum number of creations at a time. The oldest is removed.
const MAX_STATES: usize = 20;

/// Begun creation, stored under the hash of its state.
///
/// Stored: fields may be added with a default, never renamed without a migration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GitHubAppState {
    /// Actor who began, as in the audit.
    pub began_by: String,
    /// Hash of the value that the browser keeps; `None` if the creation is not bound to a browser.
    #[serde(default)]
    pub binding_hash: Option<String>,
    /// Time from which the state is refused.
    pub expires_at: Timestamp,
}

/// Stores a begun creation, and removes expired ones.
pub fn put(
    tx: &WriteTx<'_>,
    hash: &str,
    state: &GitHubAppState,
    now: Timestamp,
) -> StoreResult<()> {
    let mut rows =
        GITHUB_APP_STATES.collect(tx, .., |hash, state| (state.expires_at, hash.to_owned()))?;
    rows.sort_unstable();
    let surplus = (rows.len() + 1).saturating_sub(MAX_STATES);
    for (n, (expires_at, hash)) in rows.iter().enumerate() {
        if n < surplus || *expires_at <= now {
            GITHUB_APP_STATES.remove(tx, hash.as_str())?;
        }
    }
    GITHUB_APP_STATES.put(tx, hash, state)
}

/// Removes and returns a begun creation that has not expired and belongs to this browser. A state of another
/// browser stays.
pub fn take(
    tx: &WriteTx<'_>,
    hash: &str,
    binding_hash: Option<&str>,
    now: Timestamp,
) -> StoreResult<Option<GitHubAppState>> {
    let found = GITHUB_APP_STATES.get(tx, hash)?.filter(|state| {
        let bound = state.binding_hash.as_deref();
        state.expires_at > now && (bound.is_none() || bound == binding_hash)
    });
    if found.is_some() {
        GITHUB_APP_STATES.remove(tx, hash)?;
    }
    Ok(found)
}
