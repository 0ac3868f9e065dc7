//! Encrypted secrets. This crate never sees their values.

use serde::{Deserialize, Serialize};

use domain::ids::TeamKey;
use domain::session_secrets::{SecretName, SecretScope};
use domain::time::Timestamp;

use super::StoreResult;
use super::connections;
use super::table::{ReadableTx, WriteTx};
use super::tables::SECRETS;

/// Encrypted value of a secret.
///
/// Stored: fields may be added with a default, never renamed without a migration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SealedSecret {
    /// Encrypted value.
    pub sealed: String,
    /// Time of the last change.
    pub updated_at: Timestamp,
}

/// Stored secret with its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedSecretRow {
    /// Team key in upper case; empty for a global secret; `connection:` and a name for a credential.
    pub owner: String,
    /// Name with the prefix of the team.
    pub stored_name: String,
    /// Encrypted value.
    pub secret: SealedSecret,
}

/// Inserts or replaces a secret.
pub fn put(tx: &WriteTx<'_>, name: &SecretName, secret: &SealedSecret) -> StoreResult<()> {
    let (owner, stored) = (name.scope().owner(), name.stored_name());
    SECRETS.put(tx, (owner.as_str(), stored.as_str()), secret)
}

/// Removes a secret. Returns whether it existed.
pub fn remove(tx: &WriteTx<'_>, name: &SecretName) -> StoreResult<bool> {
    let (owner, stored) = (name.scope().owner(), name.stored_name());
    SECRETS.remove(tx, (owner.as_str(), stored.as_str()))
}

/// Secrets of exactly this scope, ordered by name.
pub fn of_scope(tx: &impl ReadableTx, scope: &SecretScope) -> StoreResult<Vec<SealedSecretRow>> {
    let owner = scope.owner();
    let range = (owner.as_str(), "")..=(owner.as_str(), "\u{10FFFF}");
    SECRETS.collect(tx, range, row)
}

/// Everything that is encrypted: secrets of sessions, and credentials of vendors.
pub fn all(tx: &impl ReadableTx) -> StoreResult<Vec<SealedSecretRow>> {
    let mut rows = SECRETS.collect(tx, .., row)?;
    rows.extend(connections::all(tx)?.into_iter().map(|(_, row)| row));
    Ok(rows)
}

/// Removes the secrets of a team.
pub fn remove_team(tx: &WriteTx<'_>, team: &TeamKey) -> StoreResult<()> {
    for row in of_scope(tx, &SecretScope::Team(team.clone()))? {
        SECRETS.remove(tx, (row.owner.as_str(), row.stored_name.as_str()))?;
    }
    Ok(())
}

fn row((owner, stored): (&str, &str), secret: SealedSecret) -> SealedSecretRow {
    SealedSecretRow {
        owner: owner.to_owned(),
        stored_name: stored.to_owned(),
        secret,
    }
}
