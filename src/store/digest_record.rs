//! Record of the last digest of what waits for people.

use domain::digest::DigestRecord;
use serde_json::json;

use super::StoreResult;
use super::table::{ReadableTx, WriteTx};
use super::tables::META;

/// Key in the meta table.
const KEY: &str = "digest";

/// Last digest. The default before the first.
pub fn get(tx: &impl ReadableTx) -> StoreResult<DigestRecord> {
    let row = META.get(tx, KEY)?;
    Ok(row
        .and_then(|row| serde_json::from_value(row).ok())
        .unwrap_or_default())
}

/// Replaces the record.
pub fn put(tx: &WriteTx<'_>, record: &DigestRecord) -> StoreResult<()> {
    META.put(tx, KEY, &json!(record))
}
