//! Compatibility of stored rows with the version that introduced each spelling.
//!
//! `tests/data/store-0.1.0.redb.gz` holds rows of every table in all their variants, written before the Rust names
//! of many fields changed. Add a further file when the shape of a row changes; never replace one.

use std::io::Read;

use flate2::read::GzDecoder;
use redb::ReadableTable;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::open_tables::TableKey;
use crate::table::{ReadTx, ReadableTx, Table};
use crate::tables::{TableVisitor, visit_all};
use crate::{STORE_FILE, Store, StoreResult};

const STORE_0_1_0: &[u8] = include_bytes!("../../tests/data/store-0.1.0.redb.gz");

/// Decodes each row and encodes it again.
struct RowCheck<'t> {
    tx: &'t ReadTx,
    failures: Vec<String>,
    empty: Vec<&'static str>,
}

impl TableVisitor for RowCheck<'_> {
    fn visit<K: TableKey, V: Serialize + DeserializeOwned>(
        &mut self,
        table: &Table<K, V>,
    ) -> StoreResult<()> {
        let rows = self.tx.open::<K>(table.name())?;
        let mut count = 0;
        for row in rows.iter()? {
            let (_, json) = row?;
            let stored: Value = serde_json::from_slice(json.value()).unwrap();
            let encoded = serde_json::from_slice::<V>(json.value())
                .map(|row| serde_json::to_value(row).unwrap());
            match encoded {
                Ok(encoded) if contains(&encoded, &stored) => {}
                Ok(encoded) => self
                    .failures
                    .push(format!("{}: {stored} became {encoded}", table.name())),
                Err(error) => self
                    .failures
                    .push(format!("{}: {stored}: {error}", table.name())),
            }
            count += 1;
        }
        if count == 0 {
            self.empty.push(table.name());
        }
        Ok(())
    }
}

/// Whether `whole` has everything that `part` has. Newer versions may add fields.
fn contains(whole: &Value, part: &Value) -> bool {
    match (whole, part) {
        (Value::Object(whole), Value::Object(part)) => part.iter().all(|(name, value)| {
            let found = whole.get(name).unwrap_or(&Value::Null);
            contains(found, value)
        }),
        (Value::Array(whole), Value::Array(part)) => {
            whole.len() == part.len() && whole.iter().zip(part).all(|(a, b)| contains(a, b))
        }
        _ => whole == part,
    }
}

#[test]
fn rows_of_version_0_1_0_keep_their_spelling() {
    let dir = tempfile::tempdir().unwrap();
    let mut file = Vec::new();
    GzDecoder::new(STORE_0_1_0).read_to_end(&mut file).unwrap();
    std::fs::write(dir.path().join(STORE_FILE), file).unwrap();
    let store = Store::open(dir.path()).unwrap();
    let (failures, empty) = store
        .read(|tx| {
            let mut check = RowCheck {
                tx,
                failures: Vec::new(),
                empty: Vec::new(),
            };
            visit_all(&mut check)?;
            Ok((check.failures, check.empty))
        })
        .unwrap();
    assert!(failures.is_empty(), "{failures:#?}");
    // Only tables that are newer than the file have no rows in it.
    assert_eq!(
        empty,
        [
            "pull-files-1",
            "declared-files-1",
            "run-logs-1",
            "run-log-chunks-1",
            "evidence-1",
            "evidence-files-1",
            "operator-retries-1",
            "questions-1",
            "plan-gates-1",
            "take-overs-1",
            "ticket-commands-1",
            "comment-cursors-1",
            "connections-1",
            "github-app-states-1"
        ]
    );
}
