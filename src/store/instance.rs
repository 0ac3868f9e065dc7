//! Who we are among others of our kind: an id that is made with the store and stays with it.

use redb::Database;
use serde_json::json;

use super::StoreResult;
use super::table::{ReadableTx, WriteTx};
use super::tables::META;

const KEY: &str = "instance";

/// Makes the id, unless the store has one.
pub(super) fn ensure_id(db: &Database) -> StoreResult<()> {
    let mut tx = db.begin_write()?;
    tx.set_quick_repair(true);
    if !is_made(&WriteTx::new(&tx))? {
        return Ok(tx.abort()?);
    }
    Ok(tx.commit()?)
}

/// Whether the id was made now.
fn is_made(tx: &WriteTx<'_>) -> StoreResult<bool> {
    if META.get(tx, KEY)?.is_some() {
        return Ok(false);
    }
    META.put(tx, KEY, &json!(format!("{:032x}", fastrand::u128(..))))?;
    Ok(true)
}

/// The id.
pub fn id(tx: &impl ReadableTx) -> StoreResult<String> {
    let row = META.get(tx, KEY)?;
    let id = row.as_ref().and_then(|id| id.as_str());
    Ok(id.unwrap_or_default().to_owned())
}
