//! Backup: a consistent copy of the store as one stream of bytes, taken while the store is in use.
//!
//! A backup contains a header, the encoded rows of one snapshot, table by table, the number of rows, and a
//! SHA-256 digest of everything before it, so that a truncated or changed backup is detected. Writers are not
//! blocked. Logs of runs are left out. The format is independent of redb's file format; [`restore`](super::restore) creates a new file
//! from it.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use redb::Key;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use domain::time::Timestamp;

use super::changed_rows::ChangesFile;
use super::open_tables::TableKey;
use super::records::{self, DigestWriter, Input, read_byte, read_exact, read_part, read_text};
use super::table::{ReadTx, Table};
use super::tables::{self, META, RUN_LOG_CHUNKS, RUN_LOGS, TableVisitor};
use super::{StoreError, StoreReader, StoreResult, instance, secrets};

/// First bytes of a backup, with the version of the format.
const MAGIC: &[u8] = b"agent-implement backup 1\n";

/// Tables that are left out: they are large, and no decision depends on them.
pub(super) const LEFT_OUT: [&str; 2] = [RUN_LOGS.name(), RUN_LOG_CHUNKS.name()];

const HEADER: u8 = b'H';
const TABLE: u8 = b'T';
const ROW: u8 = b'R';
const END: u8 = b'E';

/// Header of a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BackupHeader {
    /// Version of the program that took the backup.
    pub version: String,
    /// Version of the store's schema.
    pub schema: u64,
    /// Time of the backup.
    pub taken_at: Timestamp,
    /// Id of the instance that the store belongs to.
    pub instance: String,
    /// Number of encrypted secrets in the backup.
    pub sealed_secrets: u64,
}

/// Error of a backup or restore.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// Reading or writing a file failed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// Reading or writing the store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The file is not a backup.
    #[error("this is not a backup of agent-implement")]
    UnrecognizedFormat,
    /// The backup is truncated or was changed.
    #[error("the backup is cut off or damaged: its checksum is wrong")]
    Damaged,
    /// The key type of a table is unknown; with the name and key type of the table.
    #[error("this version cannot read table {0} of the backup; install a newer version")]
    UnsupportedTable(String),
    /// A service uses the data directory.
    #[error(
        "a service is running on this folder; stop it first (systemctl stop agent-implement), then restore"
    )]
    ServiceRunning,
    /// The data directory already has a store.
    #[error(
        "the data folder already has a store; use --replace to replace it (the old store is kept)"
    )]
    StoreExists,
}

impl StoreReader {
    /// Writes a backup of the current state to `out`. Blocks the calling thread but no writer, and needs
    /// little memory. Until it ends, the store file cannot reuse the pages of the snapshot.
    ///
    /// # Errors
    /// If reading the store or writing to `out` fails.
    pub fn back_up(
        &self,
        now: Timestamp,
        mut out: impl Write,
    ) -> Result<BackupHeader, BackupError> {
        self.read(|tx| Ok(back_up_snapshot(tx, now, &mut out)))?
    }
}

/// Writes a backup of a snapshot to `out`.
///
/// # Errors
/// If reading the store or writing to `out` fails.
pub fn back_up_snapshot(
    tx: &ReadTx,
    now: Timestamp,
    out: &mut dyn Write,
) -> Result<BackupHeader, BackupError> {
    let header = BackupHeader {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        schema: META
            .get(tx, "schema")?
            .and_then(|version| version.as_u64())
            .unwrap_or_default(),
        taken_at: now,
        instance: instance::id(tx)?,
        sealed_secrets: secrets::all(tx)?.len() as u64,
    };
    let mut dump = BackupDump {
        tx,
        rows: 0,
        write_error: None,
        out: DigestWriter::new(out),
    };
    dump.out.put(MAGIC)?;
    let json = serde_json::to_vec(&header).map_err(io::Error::from)?;
    dump.out.put_record(HEADER, &[&json])?;
    let visited = tables::visit_all(&mut dump);
    if let Some(error) = dump.write_error {
        return Err(error.into());
    }
    visited?;
    let rows = dump.rows;
    dump.out.put(&[END])?;
    dump.out.put(&rows.to_le_bytes())?;
    dump.out.finish()?;
    Ok(header)
}

/// Name of a key type in redb.
pub(super) fn key_type_name<K: Key>() -> String {
    K::type_name().name().to_owned()
}

/// Visitor that writes all tables to a backup.
struct BackupDump<'t> {
    tx: &'t ReadTx,
    rows: u64,
    /// Error of writing to `out`, as opposed to an error of the store.
    write_error: Option<io::Error>,
    out: DigestWriter<'t>,
}

impl TableVisitor for BackupDump<'_> {
    fn visit<K: TableKey, V: Serialize + DeserializeOwned>(
        &mut self,
        table: &Table<K, V>,
    ) -> StoreResult<()> {
        if LEFT_OUT.contains(&table.name()) {
            return Ok(());
        }
        let (out, rows, write_error) = (&mut self.out, &mut self.rows, &mut self.write_error);
        let mut check = |written: io::Result<()>| {
            written.map_err(|error| {
                *write_error = Some(error);
                StoreError::Panicked
            })
        };
        let key_type = key_type_name::<K>();
        check(out.put_record(TABLE, &[table.name().as_bytes(), key_type.as_bytes()]))?;
        table.scan_raw(self.tx, |key, value| {
            *rows += 1;
            check(out.put_record(ROW, &[key, value]))
        })
    }
}

/// Verified backup, ready to be read.
pub struct Backup {
    /// Header of the backup.
    pub header: BackupHeader,
    input: Input,
    /// Files of rows that changed after the backup.
    pub(super) changes: Vec<PathBuf>,
}

/// Record of a backup.
pub(super) enum BackupRecord {
    Table { name: String, key_type: String },
    Row { key: Vec<u8>, value: Vec<u8> },
    End { rows: u64 },
}

impl Backup {
    /// Opens a backup and verifies its digest.
    ///
    /// # Errors
    /// If the file is not a backup, is truncated or was changed.
    pub fn open(path: &Path) -> Result<Self, BackupError> {
        Self::of_file(File::open(path)?)
    }

    /// Reads a backup in an open file from its beginning, and verifies its digest.
    ///
    /// # Errors
    /// If the file is not a backup, is truncated or was changed.
    pub fn of_file(file: File) -> Result<Self, BackupError> {
        let mut input = records::verified(file, MAGIC)?;
        let header = records::read_header(&mut input, HEADER)?;
        Ok(Self {
            header,
            input,
            changes: Vec::new(),
        })
    }

    /// Adds the files of rows that changed after the backup, which has this name.
    ///
    /// # Errors
    /// If a file is truncated or was changed, or does not follow the one before it.
    pub fn with_changes(mut self, name: &str, files: &[PathBuf]) -> Result<Self, BackupError> {
        for (number, path) in (1..).zip(files) {
            let file = ChangesFile::open(path)?;
            if file.header.backup != name || file.header.number != number {
                return Err(BackupError::Damaged);
            }
            self.header.taken_at = file.header.taken_at;
            self.changes.push(path.clone());
        }
        Ok(self)
    }

    /// Reads the next record.
    ///
    /// # Errors
    /// If the record is invalid.
    pub(super) fn read_record(&mut self) -> Result<BackupRecord, BackupError> {
        match read_byte(&mut self.input)? {
            TABLE => Ok(BackupRecord::Table {
                name: read_text(&mut self.input)?,
                key_type: read_text(&mut self.input)?,
            }),
            ROW => Ok(BackupRecord::Row {
                key: read_part(&mut self.input)?,
                value: read_part(&mut self.input)?,
            }),
            END => {
                let mut rows = [0; 8];
                read_exact(&mut self.input, &mut rows)?;
                let rows = u64::from_le_bytes(rows);
                match self.input.limit() {
                    0 => Ok(BackupRecord::End { rows }),
                    _ => Err(BackupError::Damaged),
                }
            }
            _ => Err(BackupError::Damaged),
        }
    }
}
