//! Id of the instance, created with the store.

use redb::Database;
use serde_json::json;

use super::StoreResult;
use super::table::{ReadableTx, WriteTx};
use super::tables::META;

/// Key of the id in the meta table.
const KEY: &str = "instance";

/// Creates the id if the store has none.
pub(super) fn ensure_id(db: &Database) -> StoreResult<()> {
    let mut tx = db.begin_write()?;
    tx.set_quick_repair(true);
    if !create_if_missing(&WriteTx::new(&tx))? {
        return Ok(tx.abort()?);
    }
    Ok(tx.commit()?)
}

/// Creates the id if the store has none. Returns whether it was created.
fn create_if_missing(tx: &WriteTx<'_>) -> StoreResult<bool> {
    if META.get(tx, KEY)?.is_some() {
        return Ok(false);
    }
    META.put(tx, KEY, &json!(format!("{:032x}", fastrand::u128(..))))?;
    Ok(true)
}

/// Id of the instance.
pub fn id(tx: &impl ReadableTx) -> StoreResult<String> {
    let row = META.get(tx, KEY)?;
    let id = row.as_ref().and_then(|id| id.as_str());
    Ok(id.unwrap_or_default().to_owned())
}
