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

/// Whether the store has the ID of a start.
///
/// # Errors
/// If the store cannot be read.
pub fn contains(tx: &impl ReadableTx, id: &str) -> StoreResult<bool> {
    let row = META.get(tx, KEY)?;
    let starts = row.as_ref().and_then(|row| row.as_array());
    Ok(starts.is_some_and(|starts| starts.iter().any(|known| known == id)))
}

/// Adds the ID of a start. The one in the record stays valid, because the record is written later.
///
/// # Errors
/// If the store cannot be written.
pub fn begin(tx: &WriteTx<'_>, id: &str, recorded: Option<&str>) -> StoreResult<()> {
    let starts: Vec<&str> = recorded.into_iter().chain([id]).collect();
    META.put(tx, KEY, &json!(starts))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Store;

    #[tokio::test]
    async fn the_id_in_the_record_stays_valid_until_the_next_is_recorded() {
        let store = Store::in_memory().unwrap();
        let begin = async |id: &'static str, recorded: Option<&'static str>| {
            let begun = store.write(move |tx| super::begin(tx, id, recorded));
            begun.await.unwrap();
        };
        let known = || {
            let known = |id: &&str| store.read(|tx| contains(tx, id)).unwrap();
            ["a", "b", "c", "d"]
                .into_iter()
                .filter(known)
                .collect::<String>()
        };
        assert_eq!(known(), "");
        begin("a", None).await;
        assert_eq!(known(), "a");
        // The record of "b" cannot be written, that of "c" is.
        begin("b", Some("a")).await;
        begin("c", Some("a")).await;
        assert_eq!(known(), "ac");
        begin("d", Some("c")).await;
        assert_eq!(known(), "cd");
    }
}
