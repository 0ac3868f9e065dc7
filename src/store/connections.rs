//! Encrypted credentials of vendors, stored by operators. This crate never sees their values.

use domain::connection::{ConnectionName, CredentialField};

use super::StoreResult;
use super::secrets::{SealedSecret, SealedSecretRow};
use super::table::{ReadableTx, WriteTx};
use super::tables::CONNECTIONS;

/// Returns the owner of the rows of a connection in [`SealedSecretRow`]. No team key has a colon.
pub fn owner(name: ConnectionName) -> String {
    format!("connection:{}", name.slug())
}

/// Inserts or replaces the value of a field.
pub fn put(tx: &WriteTx<'_>, field: CredentialField, value: &SealedSecret) -> StoreResult<()> {
    CONNECTIONS.put(tx, key(field), value)
}

/// Removes the value of a field. Returns whether it existed.
pub fn remove(tx: &WriteTx<'_>, field: CredentialField) -> StoreResult<bool> {
    CONNECTIONS.remove(tx, key(field))
}

/// All stored values. Fields that this version does not know are left out.
pub fn all(tx: &impl ReadableTx) -> StoreResult<Vec<(CredentialField, SealedSecretRow)>> {
    let rows = CONNECTIONS.collect(tx, .., |(_, variable), secret| {
        let field = CredentialField::parse(variable)?;
        Some((field, row(field, secret)))
    })?;
    Ok(rows.into_iter().flatten().collect())
}

/// Returns the stored row of a field.
pub fn row(field: CredentialField, secret: SealedSecret) -> SealedSecretRow {
    SealedSecretRow {
        owner: owner(field.set().connection()),
        stored_name: field.variable().to_owned(),
        secret,
    }
}

fn key(field: CredentialField) -> (&'static str, &'static str) {
    (field.set().connection().slug(), field.variable())
}
