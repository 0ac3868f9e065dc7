//! Sealed secrets. This floor never sees a value.

use serde::{Deserialize, Serialize};

use domain::ids::TeamKey;
use domain::session_secrets::{SecretName, SecretScope};
use domain::time::Timestamp;

use super::StoreResult;
use super::table::{ReadableTx, WriteTx};
use super::tables::SECRETS;

/// A value that only the key of the vault opens.
///
/// Stored: fields may be added with a default, never renamed without a migration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SealedSecret {
    pub sealed: String,
    pub updated_at: Timestamp,
}

/// A secret as it lies here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedSecretRow {
    /// The team in upper case; empty for a global one.
    pub owner: String,
    /// The name with the team's prefix before it.
    pub stored_name: String,
    pub secret: SealedSecret,
}

pub fn put(tx: &WriteTx<'_>, name: &SecretName, secret: &SealedSecret) -> StoreResult<()> {
    let (owner, stored) = (name.scope().owner(), name.stored_name());
    SECRETS.put(tx, (owner.as_str(), stored.as_str()), secret)
}

/// Whether there was such a secret.
pub fn remove(tx: &WriteTx<'_>, name: &SecretName) -> StoreResult<bool> {
    let (owner, stored) = (name.scope().owner(), name.stored_name());
    SECRETS.remove(tx, (owner.as_str(), stored.as_str()))
}

/// The secrets of exactly this scope, in the order of their names.
pub fn of_scope(tx: &impl ReadableTx, scope: &SecretScope) -> StoreResult<Vec<SealedSecretRow>> {
    let owner = scope.owner();
    let range = (owner.as_str(), "")..=(owner.as_str(), "\u{10FFFF}");
    SECRETS.collect(tx, range, row)
}

/// Every secret there is.
pub fn all(tx: &impl ReadableTx) -> StoreResult<Vec<SealedSecretRow>> {
    SECRETS.collect(tx, .., row)
}

/// Forgets the secrets of a team whose mapping goes.
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
