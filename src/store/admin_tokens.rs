//! Tokens of the admin API. Only keyed hashes of tokens are stored.

use serde::{Deserialize, Serialize};

use domain::time::Timestamp;

use super::StoreResult;
use super::table::{ReadableTx, WriteTx};
use super::tables::ADMIN_TOKENS;

/// Admin token, stored under its keyed hash.
///
/// Stored: fields may be added with a default, never renamed without a migration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AdminToken {
    /// Time at which the token expires.
    pub expires_at: Timestamp,
}

/// Token with this hash, even if it has expired.
pub fn get(tx: &impl ReadableTx, hash: &str) -> StoreResult<Option<AdminToken>> {
    ADMIN_TOKENS.get(tx, hash)
}

/// Stores a token and removes expired ones.
pub fn put(tx: &WriteTx<'_>, hash: &str, token: &AdminToken, now: Timestamp) -> StoreResult<()> {
    let tokens = ADMIN_TOKENS.collect(tx, .., |hash, token| (hash.to_owned(), token))?;
    for (expired, _) in tokens.iter().filter(|(_, token)| token.expires_at <= now) {
        ADMIN_TOKENS.remove(tx, expired.as_str())?;
    }
    ADMIN_TOKENS.put(tx, hash, token)
}

/// Removes a token. Returns whether it existed.
pub fn remove(tx: &WriteTx<'_>, hash: &str) -> StoreResult<bool> {
    ADMIN_TOKENS.remove(tx, hash)
}
