//! A consistent copy of the store as one stream of bytes, taken while the store is in use.
//!
//! The rows of one snapshot, table after table, as they lie there; a header before them, and behind
//! them their number and a digest of everything, so that a copy that is cut off or altered is known as
//! such. Writers are not held up: they go on in pages of their own. The form is independent of redb's
//! own files; [`restore`](super::restore) makes a fresh file of it, dense and whole.

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
use super::tables::{self, META, SECRETS, TableVisitor};
use super::{Store, StoreError, StoreResult, instance};

/// How a backup begins; the number is the form's.
const MAGIC: &[u8] = b"agent-implement backup 1\n";

/// How much is gathered before it is passed on.
const CHUNK: usize = 64 << 10;

const HEADER: u8 = b'H';
const TABLE: u8 = b'T';
const ROW: u8 = b'R';
const END: u8 = b'E';

/// What a backup says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BackupHeader {
    /// Version of the program that took it.
    pub version: String,
    /// Version of the store's schema.
    pub schema: u64,
    pub taken_at: Timestamp,
    /// Whose store it is a copy of.
    pub instance: String,
    /// How many secrets it holds that only the vault's key opens.
    pub sealed_secrets: u64,
}

/// Why there is no backup, or none that can be used.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("this is not a backup of agent-implement")]
    UnrecognizedFormat,
    #[error("the backup is cut off or damaged: its checksum does not fit what it holds")]
    Damaged,
    #[error("the backup holds a table that this version cannot read ({0}); install a newer one")]
    UnsupportedTable(String),
    #[error(
        "a service is running on this folder; stop it first (systemctl stop agent-implement), then restore"
    )]
    ServiceRunning,
    #[error("there is a store already; --replace puts it aside and the backup in its place")]
    StoreExists,
}

impl Store {
    /// Writes a copy of the store as it is now. Blocks the caller's thread, no writer, and needs little
    /// memory however large the store is. As long as it takes, the store's file keeps the pages of the
    /// snapshot.
    ///
    /// # Errors
    /// What reading the store or `out` failed with.
    pub fn back_up(&self, now: Timestamp, out: impl Write) -> Result<BackupHeader, BackupError> {
        self.read(|tx| Ok(copy(tx, now, out)))?
    }
}

fn copy(tx: &ReadTx, now: Timestamp, out: impl Write) -> Result<BackupHeader, BackupError> {
    let header = BackupHeader {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        schema: META
            .get(tx, "schema")?
            .and_then(|version| version.as_u64())
            .unwrap_or_default(),
        taken_at: now,
        instance: instance::id(tx)?,
        sealed_secrets: SECRETS.collect(tx, .., |_, _| ())?.len() as u64,
    };
    let mut teller = Teller {
        tx,
        rows: 0,
        fault: None,
        out: Digested::new(out),
    };
    teller.out.put(MAGIC)?;
    let words = serde_json::to_vec(&header).map_err(io::Error::from)?;
    teller.out.record(HEADER, &[&words])?;
    let visited = tables::visit_all(&mut teller);
    if let Some(fault) = teller.fault {
        return Err(fault.into());
    }
    visited?;
    let rows = teller.rows;
    teller.out.put(&[END])?;
    teller.out.put(&rows.to_le_bytes())?;
    teller.out.end()?;
    Ok(header)
}

/// What a kind of key is called, in redb's words.
pub(super) fn key_type_name<K: Key>() -> String {
    K::type_name().name().to_owned()
}

struct Teller<'t, W: Write> {
    tx: &'t ReadTx,
    rows: u64,
    /// What writing failed with; the store did not.
    fault: Option<io::Error>,
    out: Digested<W>,
}

impl<W: Write> TableVisitor for Teller<'_, W> {
    fn visit<K: TableKey, V: Serialize + DeserializeOwned>(
        &mut self,
        shelf: &Table<K, V>,
    ) -> StoreResult<()> {
        let (out, rows, fault) = (&mut self.out, &mut self.rows, &mut self.fault);
        let mut told = |done: io::Result<()>| {
            done.map_err(|error| {
                *fault = Some(error);
                StoreError::Panicked
            })
        };
        let kind = key_type_name::<K>();
        told(out.record(TABLE, &[shelf.name().as_bytes(), kind.as_bytes()]))?;
        shelf.scan_raw(self.tx, |key, value| {
            *rows += 1;
            told(out.record(ROW, &[key, value]))
        })
    }
}

/// Gathers bytes into chunks and knows the digest of all.
struct Digested<W: Write> {
    out: W,
    chunk: Vec<u8>,
    digest: Context,
}

impl<W: Write> Digested<W> {
    fn new(out: W) -> Self {
        Self {
            out,
            chunk: Vec::with_capacity(2 * CHUNK),
            digest: Context::new(&SHA256),
        }
    }

    fn record(&mut self, tag: u8, parts: &[&[u8]]) -> io::Result<()> {
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
        if self.chunk.len() >= CHUNK {
            self.pass_on()?;
        }
        Ok(())
    }

    fn pass_on(&mut self) -> io::Result<()> {
        self.digest.update(&self.chunk);
        self.out.write_all(&self.chunk)?;
        self.chunk.clear();
        Ok(())
    }

    fn end(mut self) -> io::Result<()> {
        self.pass_on()?;
        self.out.write_all(self.digest.finish().as_ref())?;
        self.out.flush()
    }
}

/// A backup that is whole, ready to be read.
pub struct Backup {
    pub header: BackupHeader,
    input: Input,
}

type Input = io::Take<BufReader<File>>;

/// One piece of a backup.
pub(super) enum BackupRecord {
    Table { name: String, key_type: String },
    Row { key: Vec<u8>, value: Vec<u8> },
    End { rows: u64 },
}

impl Backup {
    /// Opens a backup and checks it from end to end.
    ///
    /// # Errors
    /// When it is none, is cut off, or was altered.
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
        let told = length.checked_sub(SHA256_OUTPUT_LEN as u64);
        let told = told.ok_or(BackupError::Damaged)?;
        if !check(&mut file, told)? {
            return Err(BackupError::Damaged);
        }
        file.seek(SeekFrom::Start(MAGIC.len() as u64))?;
        let body = told.saturating_sub(MAGIC.len() as u64);
        let mut input = BufReader::with_capacity(1 << 20, file).take(body);
        if byte(&mut input)? != HEADER {
            return Err(BackupError::Damaged);
        }
        let header = serde_json::from_slice(&part(&mut input)?);
        let header = header.map_err(|_| BackupError::Damaged)?;
        Ok(Self { header, input })
    }

    /// The next piece.
    ///
    /// # Errors
    /// When the pieces do not follow each other as they should.
    pub(super) fn read_record(&mut self) -> Result<BackupRecord, BackupError> {
        let text = |bytes| String::from_utf8(bytes).map_err(|_| BackupError::Damaged);
        match byte(&mut self.input)? {
            TABLE => Ok(BackupRecord::Table {
                name: text(part(&mut self.input)?)?,
                key_type: text(part(&mut self.input)?)?,
            }),
            ROW => Ok(BackupRecord::Row {
                key: part(&mut self.input)?,
                value: part(&mut self.input)?,
            }),
            END => {
                let mut rows = [0; 8];
                fill(&mut self.input, &mut rows)?;
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

fn byte(input: &mut Input) -> Result<u8, BackupError> {
    let mut one = [0];
    fill(input, &mut one)?;
    Ok(one[0])
}

fn part(input: &mut Input) -> Result<Vec<u8>, BackupError> {
    let mut length = [0; 4];
    fill(input, &mut length)?;
    let length = u32::from_le_bytes(length);
    if u64::from(length) > input.limit() {
        return Err(BackupError::Damaged);
    }
    let mut part = vec![0; length as usize];
    fill(input, &mut part)?;
    Ok(part)
}

fn fill(input: &mut Input, bytes: &mut [u8]) -> Result<(), BackupError> {
    let filled = input.read_exact(bytes);
    filled.map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => BackupError::Damaged,
        _ => error.into(),
    })
}

/// Whether the digest behind the first `length` bytes is theirs.
fn check(file: &mut File, length: u64) -> io::Result<bool> {
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
    let mut told = [0; SHA256_OUTPUT_LEN];
    file.read_exact(&mut told)?;
    Ok(digest.finish().as_ref() == told)
}
