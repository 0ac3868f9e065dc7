//! IDs of the starts of a service that works with a place.
//!
//! The ID is in the store and in the record of the place. A store without the ID in the record is a copy, or an older state,
//! of the one that works there.

use serde_json::json;

use super::StoreResult;
use super::table::{ReadableTx, WriteTx};
use super::tables::META;

/// Key of the IDs in the meta table.
const KEY: &str = "standby-starts";

/// Number of IDs that are kept: more than a service attempts to start before it gives up.
const KEPT_STARTS: usize = 8;

/// Whether the store has the ID of a start.
///
/// # Errors
/// If the store cannot be read.
pub fn contains(tx: &impl ReadableTx, id: &str) -> StoreResult<bool> {
    let row = META.get(tx, KEY)?;
    let starts = row.as_ref().and_then(|row| row.as_array());
    Ok(starts.is_some_and(|starts| starts.iter().any(|known| known == id)))
}

/// Adds the ID of a start. Earlier ones stay valid, because the record is written later, and a write of an earlier attempt
/// may arrive late.
///
/// # Errors
/// If the store cannot be written.
pub fn begin(tx: &WriteTx<'_>, id: &str) -> StoreResult<()> {
    let known = META.get(tx, KEY)?;
    let known = known.as_ref().and_then(|row| row.as_array());
    let mut starts = known.cloned().unwrap_or_default();
    starts.push(id.into());
    let surplus = starts.len().saturating_sub(KEPT_STARTS);
    META.put(tx, KEY, &json!(starts[surplus..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Store;

    #[tokio::test]
    async fn the_last_starts_stay_valid() {
        let store = Store::in_memory().unwrap();
        let known = |id: u32| store.read(|tx| contains(tx, &id.to_string())).unwrap();
        assert!(!known(0));
        for id in 0..10_u32 {
            let begun = store.write(move |tx| begin(tx, &id.to_string()));
            begun.await.unwrap();
        }
        let valid: Vec<u32> = (0..12).filter(|id| known(*id)).collect();
        assert_eq!(valid, Vec::from_iter(2..10));
    }
}
