//! Backup: a consistent copy of the store as one stream of bytes, taken while the store is in use.
//!
//! A backup contains a header, the encoded rows of one snapshot, table by table, the number of rows, and a
//! SHA-256 digest of everything before it, so that a truncated or changed backup is detected. Writers are not
//! blocked. Logs of runs are left out. The format is independent of redb's file format; [`restore`](super::restore) creates a new file
//! from it.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::path::Path;

use redb::Key;
use ring::digest::{Context, SHA256, SHA256_OUTPUT_LEN};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use domain::time::Timestamp;

use super::open_tables::TableKey;
use super::table::{ReadTx, Table};
use super::tables::{self, META, RUN_LOG_CHUNKS, RUN_LOGS, TableVisitor};
use super::{StoreError, StoreReader, StoreResult, instance, secrets};

/// First bytes of a backup, with the version of the format.
const MAGIC: &[u8] = b"agent-implement backup 1\n";

/// Size of the chunks in which a backup is written, in bytes.
const CHUNK_BYTES: usize = 64 << 10;

/// Tables that are left out: they are large, and no decision depends on them.
const LEFT_OUT: [&str; 2] = [RUN_LOGS.name(), RUN_LOG_CHUNKS.name()];

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
        self.read(|tx| Ok(copy(tx, now, &mut out)))?
    }
}

fn copy(tx: &ReadTx, now: Timestamp, out: &mut dyn Write) -> Result<BackupHeader, BackupError> {
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

/// Buffered writer that computes a digest of everything written.
struct DigestWriter<'w> {
    out: &'w mut dyn Write,
    chunk: Vec<u8>,
    digest: Context,
}

impl<'w> DigestWriter<'w> {
    fn new(out: &'w mut dyn Write) -> Self {
        Self {
            out,
            chunk: Vec::with_capacity(2 * CHUNK_BYTES),
            digest: Context::new(&SHA256),
        }
    }

    fn put_record(&mut self, tag: u8, parts: &[&[u8]]) -> io::Result<()> {
        self.put(&[tag])?;
        for part in parts {
            let length = u32::try_from(part.len()).map_err(|_| io::ErrorKind::FileTooLarge)?;
            self.put(&length.to_le_bytes())?;
            self.put(part)?;
        }
        Ok(())
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.chunk.extend_from_slice(bytes);
        if self.chunk.len() >= CHUNK_BYTES {
            self.write_chunk()?;
        }
        Ok(())
    }

    fn write_chunk(&mut self) -> io::Result<()> {
        self.digest.update(&self.chunk);
        self.out.write_all(&self.chunk)?;
        self.chunk.clear();
        Ok(())
    }

    fn finish(mut self) -> io::Result<()> {
        self.write_chunk()?;
        self.out.write_all(self.digest.finish().as_ref())?;
        self.out.flush()
    }
}

/// Verified backup, ready to be read.
pub struct Backup {
    /// Header of the backup.
    pub header: BackupHeader,
    input: Input,
}

type Input = io::Take<BufReader<File>>;

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
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        let mut begin = vec![0; MAGIC.len()];
        match file.read_exact(&mut begin) {
            Ok(()) if begin == MAGIC => {}
            Ok(()) => return Err(BackupError::UnrecognizedFormat),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Err(BackupError::UnrecognizedFormat);
            }
            Err(error) => return Err(error.into()),
        }
        let content = length.checked_sub(SHA256_OUTPUT_LEN as u64);
        let content = content.ok_or(BackupError::Damaged)?;
        if !has_valid_digest(&mut file, content)? {
            return Err(BackupError::Damaged);
        }
        file.seek(SeekFrom::Start(MAGIC.len() as u64))?;
        let body = content.saturating_sub(MAGIC.len() as u64);
        let mut input = BufReader::with_capacity(1 << 20, file).take(body);
        if read_byte(&mut input)? != HEADER {
            return Err(BackupError::Damaged);
        }
        let header = serde_json::from_slice(&read_part(&mut input)?);
        let header = header.map_err(|_| BackupError::Damaged)?;
        Ok(Self { header, input })
    }

    /// Reads the next record.
    ///
    /// # Errors
    /// If the record is invalid.
    pub(super) fn read_record(&mut self) -> Result<BackupRecord, BackupError> {
        let text = |bytes| String::from_utf8(bytes).map_err(|_| BackupError::Damaged);
        match read_byte(&mut self.input)? {
            TABLE => Ok(BackupRecord::Table {
                name: text(read_part(&mut self.input)?)?,
                key_type: text(read_part(&mut self.input)?)?,
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

fn read_byte(input: &mut Input) -> Result<u8, BackupError> {
    let mut byte = [0];
    read_exact(input, &mut byte)?;
    Ok(byte[0])
}

/// Reads a length-prefixed part of a record.
fn read_part(input: &mut Input) -> Result<Vec<u8>, BackupError> {
    let mut length = [0; 4];
    read_exact(input, &mut length)?;
    let length = u32::from_le_bytes(length);
    if u64::from(length) > input.limit() {
        return Err(BackupError::Damaged);
    }
    let mut part = vec![0; length as usize];
    read_exact(input, &mut part)?;
    Ok(part)
}

fn read_exact(input: &mut Input, bytes: &mut [u8]) -> Result<(), BackupError> {
    let read = input.read_exact(bytes);
    read.map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => BackupError::Damaged,
        _ => error.into(),
    })
}

/// Whether the first `length` bytes have the digest that follows them.
fn has_valid_digest(file: &mut File, length: u64) -> io::Result<bool> {
    file.rewind()?;
    let mut digest = Context::new(&SHA256);
    let mut rest = length;
    let mut chunk = vec![0; 1 << 20];
    while rest > 0 {
        let wanted = usize::try_from(rest).unwrap_or(usize::MAX).min(chunk.len());
        let part = &mut chunk[..wanted];
        file.read_exact(part)?;
        digest.update(part);
        rest -= wanted as u64;
    }
    let mut expected = [0; SHA256_OUTPUT_LEN];
    file.read_exact(&mut expected)?;
    Ok(digest.finish().as_ref() == expected)
}
