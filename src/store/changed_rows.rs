//! Encoding of changed rows, and the file that has them.
//!
//! A file has a header, the rows in the order in which they changed, and a digest (see [`records`]). It applies to one
//! backup, and follows the file with the number before its own.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use redb::Key;
use serde::{Deserialize, Serialize};

use domain::time::Timestamp;

use super::backup::{BackupError, key_type_name};
use super::change_log::ChangedRows;
use super::records::{self, DigestWriter, Input, encode_record, read_byte, read_part, read_text};

/// First bytes of a file of changed rows, with the version of the format.
const MAGIC: &[u8] = b"agent-implement changes 1\n";

const HEADER: u8 = b'H';
const PUT: u8 = b'P';
const REMOVE: u8 = b'D';
const END: u8 = b'E';

/// Header of a file of changed rows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ChangesHeader {
    /// Name of the backup that the rows apply to.
    pub backup: String,
    /// Number of the file, counted from 1.
    pub number: u64,
    /// Time at which the rows were taken from the log.
    pub taken_at: Timestamp,
}

/// Appends a row that was put (with its value) or removed.
pub(super) fn encode<K: Key>(to: &mut Vec<u8>, table: &str, key: &[u8], value: Option<&[u8]>) {
    let key_type = key_type_name::<K>();
    let (table, key_type) = (table.as_bytes(), key_type.as_bytes());
    let encoded = match value {
        Some(value) => encode_record(to, PUT, &[table, key_type, key, value]),
        None => encode_record(to, REMOVE, &[table, key_type, key]),
    };
    // Rows of 4 GiB cannot be stored.
    debug_assert!(encoded.is_ok());
}

impl ChangedRows {
    /// Returns the file of these rows.
    ///
    /// # Errors
    /// Never in practice: memory is written.
    pub fn to_file(&self, header: &ChangesHeader) -> io::Result<Vec<u8>> {
        let mut file = Vec::with_capacity(self.records.len() + 512);
        let mut out = DigestWriter::new(&mut file);
        out.put(MAGIC)?;
        out.put_record(HEADER, &[&serde_json::to_vec(header)?])?;
        out.put(&self.records)?;
        out.put(&[END])?;
        out.finish()?;
        Ok(file)
    }
}

/// Changed row.
pub(super) struct ChangedRow {
    pub(super) table: String,
    pub(super) key_type: String,
    pub(super) key: Vec<u8>,
    /// New value; `None` if the row was removed.
    pub(super) value: Option<Vec<u8>>,
}

/// Verified file of changed rows, ready to be read.
pub struct ChangesFile {
    /// Header of the file.
    pub header: ChangesHeader,
    input: Input,
}

impl ChangesFile {
    /// Opens a file and verifies its digest.
    ///
    /// # Errors
    /// If the file has another format, is truncated or was changed.
    pub fn open(path: &Path) -> Result<Self, BackupError> {
        let mut input = records::verified(File::open(path)?, MAGIC)?;
        let header = records::read_header(&mut input, HEADER)?;
        Ok(Self { header, input })
    }

    /// Reads the next row. `None` at the end.
    pub(super) fn next_row(&mut self) -> Result<Option<ChangedRow>, BackupError> {
        next_row(&mut self.input)
    }
}

fn next_row(input: &mut Input<impl Read>) -> Result<Option<ChangedRow>, BackupError> {
    let tag = read_byte(input)?;
    if tag == END {
        return match input.limit() {
            0 => Ok(None),
            _ => Err(BackupError::Damaged),
        };
    }
    if tag != PUT && tag != REMOVE {
        return Err(BackupError::Damaged);
    }
    Ok(Some(ChangedRow {
        table: read_text(input)?,
        key_type: read_text(input)?,
        key: read_part(input)?,
        value: match tag {
            PUT => Some(read_part(input)?),
            _ => None,
        },
    }))
}

/// Parses the rows of a file, for fuzzing. Asserts that what was read is what was written.
#[doc(hidden)]
pub fn fuzz_changed_rows(data: &[u8]) {
    let mut input = data.take(data.len() as u64);
    let mut encoded = Vec::new();
    while let Ok(Some(row)) = next_row(&mut input) {
        let (table, key_type) = (row.table.as_bytes(), row.key_type.as_bytes());
        let parts = [table, key_type, &row.key];
        let written = match &row.value {
            Some(value) => encode_record(&mut encoded, PUT, &[&parts[..], &[value]].concat()),
            None => encode_record(&mut encoded, REMOVE, &parts),
        };
        assert!(written.is_ok() && data.starts_with(&encoded));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::PathBuf;

    use serde_json::{Value, json};

    use super::*;
    use crate::table::{ReadTx, Table, WriteTx};
    use crate::tables::{META, RUN_LOGS};
    use crate::{Backup, RestoredSecrets, StagedRestore, Store, StoreError, back_up_snapshot};

    const NOW: Timestamp = Timestamp::from_millis(1_000_000);

    const NUMBERED: Table<(&str, u64), Value> = Table::new("numbered-rows-of-this-test");

    /// Rows of the two tables that the test changes.
    type Rows = (BTreeMap<String, Value>, BTreeMap<(String, u64), Value>);

    fn rows(tx: &ReadTx) -> Rows {
        let text = META.collect(tx, .., |key, row| (key.to_owned(), row));
        let numbered =
            NUMBERED.collect(tx, .., |(key, number), row| ((key.to_owned(), number), row));
        let text = text.unwrap().into_iter().collect();
        // Restored only if it has rows.
        (text, numbered.unwrap_or_default().into_iter().collect())
    }

    /// Puts and removes some rows in a few commits, with the first of four kinds of changes. Some closures fail after
    /// they have written. Backups have only the first table.
    async fn change(store: &Store, rng: &mut fastrand::Rng, kinds: u8) {
        let mut writes = tokio::task::JoinSet::new();
        for _ in 0..rng.usize(1..6) {
            let (rng, fails) = (rng.fork(), rng.u8(..8) == 0);
            let store = store.clone();
            let changed = move |tx: &WriteTx<'_>| {
                // The same changes each time that the closure runs.
                let mut rng = rng.clone();
                for _ in 0..rng.usize(1..5) {
                    let (key, number) = (format!("k{}", rng.u8(..6)), rng.u64(..4));
                    let row = json!(rng.u32(..));
                    match rng.u8(..kinds) {
                        0 => META.put(tx, key.as_str(), &row)?,
                        1 => drop(META.remove(tx, key.as_str())?),
                        2 => NUMBERED.put(tx, (key.as_str(), number), &row)?,
                        _ => drop(NUMBERED.remove(tx, (key.as_str(), number))?),
                    }
                }
                match fails {
                    true => Err(StoreError::Panicked),
                    false => Ok(()),
                }
            };
            writes.spawn(async move { store.write(changed).await });
        }
        for result in writes.join_all().await {
            assert!(
                matches!(result, Ok(()) | Err(StoreError::Panicked)),
                "{result:?}"
            );
        }
    }

    struct Files {
        dir: tempfile::TempDir,
        changes: Vec<PathBuf>,
    }

    impl Files {
        /// Backs up a store in a folder of its own. Changes of the store are logged from then on.
        fn with_backup(store: &Store) -> Self {
            let dir = tempfile::tempdir().unwrap();
            let snapshot = store.begin_change_log().unwrap();
            let mut backup = std::fs::File::create(dir.path().join("backup")).unwrap();
            back_up_snapshot(&snapshot.tx, NOW, &mut backup).unwrap();
            Self {
                dir,
                changes: Vec::new(),
            }
        }

        fn add(&mut self, changed: &ChangedRows) {
            let number = self.changes.len() as u64 + 1;
            let header = ChangesHeader {
                backup: "first".to_owned(),
                number,
                taken_at: NOW,
            };
            let path = self.dir.path().join(format!("changes-{number}"));
            std::fs::write(&path, changed.to_file(&header).unwrap()).unwrap();
            self.changes.push(path);
        }

        fn restore(&self) -> Result<StagedRestore, BackupError> {
            let backup = Backup::open(&self.dir.path().join("backup"))?;
            let backup = backup.with_changes("first", &self.changes)?;
            let data = self.dir.path().join("data");
            StagedRestore::prepare(backup, &data, RestoredSecrets::Included, NOW)
        }
    }

    #[tokio::test]
    async fn a_backup_and_the_changed_rows_have_the_state_of_the_store() {
        for seed in 0..20 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let store = Store::in_memory().unwrap();
            change(&store, &mut rng, 2).await;
            let created = store.write(|tx| NUMBERED.remove(tx, ("k", 9)));
            created.await.unwrap();
            let mut files = Files {
                dir: tempfile::tempdir().unwrap(),
                changes: Vec::new(),
            };
            let snapshot = store.begin_change_log().unwrap();
            change(&store, &mut rng, 4).await;
            let mut backup = std::fs::File::create(files.dir.path().join("backup")).unwrap();
            back_up_snapshot(&snapshot.tx, NOW, &mut backup).unwrap();
            for _ in 0..rng.usize(1..4) {
                change(&store, &mut rng, 4).await;
                let taken = store.take_changes().unwrap();
                assert_eq!(taken.last_commit, store.last_commit());
                files.add(&taken);
            }
            let restored = files.restore().unwrap();
            assert_eq!(
                restored.read(rows),
                store.read(|tx| Ok(rows(tx))).unwrap(),
                "seed {seed}"
            );
        }
    }

    #[tokio::test]
    async fn files_that_do_not_follow_each_other_are_refused() {
        let store = Store::in_memory().unwrap();
        let mut files = Files::with_backup(&store);
        for number in 0..3 {
            let put = store.write(move |tx| META.put(tx, "k", &json!(number)));
            put.await.unwrap();
            files.add(&store.take_changes().unwrap());
        }
        // Logs of runs are not part of backups.
        let logged = store.write(|tx| RUN_LOGS.remove(tx, "01JOB").map(drop));
        logged.await.unwrap();
        assert!(store.take_changes().unwrap().is_empty());
        files.restore().unwrap();
        let refused = |files: &Files| files.restore().err().map(|error| error.to_string());
        let damaged = Some(BackupError::Damaged.to_string());
        let second = files.changes.remove(1);
        assert_eq!(refused(&files), damaged);
        files.changes.insert(1, second.clone());
        let whole = std::fs::read(&second).unwrap();
        std::fs::write(&second, &whole[..whole.len() - 1]).unwrap();
        assert_eq!(refused(&files), damaged);
        std::fs::write(&second, b"agent-implement backup 1\n").unwrap();
        let error = refused(&files).unwrap();
        assert!(error.contains("not a backup"), "{error}");
    }

    #[tokio::test]
    async fn keys_that_do_not_have_the_form_of_their_type_are_damage() {
        let store = Store::in_memory().unwrap();
        let mut files = Files::with_backup(&store);
        let mut records = Vec::new();
        encode::<(&str, u64)>(&mut records, NUMBERED.name(), b"x", Some(b"1"));
        files.add(&ChangedRows {
            last_commit: 1,
            records,
        });
        let refused = files.restore().err().map(|error| error.to_string());
        assert_eq!(refused, Some(BackupError::Damaged.to_string()));
    }
}
