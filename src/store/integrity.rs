//! Integrity check of the store file before it is opened.
//!
//! redb verifies checksums only during a repair. Otherwise a flipped bit in a row would be returned as data,
//! and one in the records of free space would overwrite rows. Therefore every page of the last commit is
//! compared with its checksum each time the file is opened. The check runs on an overlay that keeps writes of
//! redb in memory, so a damaged file is not changed.
//!
//! Only the header page has no checksum over all its bytes. It holds two commits and a bit that selects the
//! current one. If both commits are intact, the newer one must be current. (Layout: redb's file format 3,
//! `docs/design.md` of redb.)

use std::collections::BTreeMap;
use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redb::{Database, DatabaseError, ReadableDatabase, RepairSession, StorageBackend, TableHandle};

use super::{CACHE_BYTES, StoreError};

const HEADER_BYTES: usize = 320;
const MAGIC: &[u8] = b"redb\x1a\x0a\xa9\x0d\x0a";
/// Offset of the flags: which commit is current, and how the last process ended.
const FLAGS_AT: usize = 9;
/// Flag that selects the current commit.
const PRIMARY: u8 = 1;
/// Flag of a two-phase commit.
const TWO_PHASE: u8 = 4;
/// Offsets of the two commits.
const SLOT_AT: [usize; 2] = [64, 192];
/// Offsets within a commit: its number and its checksum.
const NUMBER_AT: usize = 104;
const CHECKSUM_AT: std::ops::Range<usize> = 112..128;

/// Size of the overlay's blocks, in bytes.
const BLOCK: usize = 4096;

/// Reason why a file is not opened.
#[derive(Debug)]
pub(super) enum IntegrityError {
    /// Another process holds the file.
    InUse,
    /// The file is a database of another program.
    Foreign,
    /// The file is damaged; with a description.
    Damaged(String),
    /// The file cannot be read.
    Io(io::Error),
}

impl IntegrityError {
    /// Converts the error for the store at this path.
    pub(super) fn into_store_error(self, path: &Path) -> StoreError {
        let path = path.display().to_string();
        match self {
            IntegrityError::InUse => StoreError::InUse { path },
            IntegrityError::Foreign => StoreError::Foreign { path },
            IntegrityError::Damaged(cause) => StoreError::Damaged { path, cause },
            IntegrityError::Io(cause) => StoreError::Open { path, cause },
        }
    }
}

impl From<io::Error> for IntegrityError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            // The file is shorter than its pages require.
            io::ErrorKind::UnexpectedEof => {
                IntegrityError::Damaged("the file is cut off".to_owned())
            }
            _ => IntegrityError::Io(error),
        }
    }
}

/// Verifies the checksum of every page of the last commit. If the newer commit is intact but not current,
/// because the process died before it set the flag, makes it current; changes nothing else. `marker_table` is
/// a table that every store of this program has.
///
/// # Errors
/// If the file is in use, foreign, damaged or cannot be read.
pub(super) fn verify(path: &Path, marker_table: &str) -> Result<(), IntegrityError> {
    let file = File::options().read(true).write(true).open(path)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(IntegrityError::InUse),
        // On file systems without locks, redb does not lock either.
        Err(TryLockError::Error(_)) => {}
    }
    let verified = verify_locked(&file, marker_table);
    // Explicitly, because a child process that is being started may hold a copy of the handle.
    let _ = file.unlock();
    verified
}

fn verify_locked(file: &File, marker_table: &str) -> Result<(), IntegrityError> {
    let header = Header::read(file)?;
    let current = header.primary();
    verify_commit(file, &header, current, marker_table)?;
    let other = 1 - current;
    if header.number(other) > header.number(current)
        && verify_commit(file, &header, other, marker_table).is_ok()
    {
        file.write_all_at(&[header.flags() ^ PRIMARY], FLAGS_AT as u64)?;
        file.sync_all()?;
        tracing::warn!("Recovered the last commit: it was intact but not marked as current.");
    }
    Ok(())
}

/// Verifies that all pages of one of the two commits are intact and belong to this program.
fn verify_commit(
    file: &File,
    header: &Header,
    slot: usize,
    marker_table: &str,
) -> Result<(), IntegrityError> {
    if !has_valid_checksums(file, header.with_only(slot))? {
        return Err(IntegrityError::Damaged("a checksum is wrong".to_owned()));
    }
    let names = table_names(file, header.with_primary(slot))?;
    if names.is_empty() || names.iter().any(|name| name == marker_table) {
        return Ok(());
    }
    Err(IntegrityError::Foreign)
}

/// Whether every page that is reachable from a header has a valid checksum.
fn has_valid_checksums(file: &File, header: [u8; HEADER_BYTES]) -> Result<bool, IntegrityError> {
    let overlay = Overlay::new(file.try_clone()?, header)?;
    let is_valid = Arc::new(AtomicBool::new(true));
    let result = is_valid.clone();
    // Called before each pass of a repair: before the second if a checksum is wrong, before the third if all
    // are valid. The third pass would only read everything again.
    let on_progress = move |repair: &mut RepairSession| match repair.progress() {
        ..0.2 => {}
        ..0.5 => {
            result.store(false, Ordering::Release);
            repair.abort();
        }
        _ => repair.abort(),
    };
    catch_redb_errors(|| {
        let opened = Database::builder()
            .set_cache_size(CACHE_BYTES)
            .set_repair_callback(on_progress)
            .create_with_backend(overlay);
        match opened {
            Ok(_) | Err(DatabaseError::RepairAborted) => Ok(is_valid.load(Ordering::Acquire)),
            Err(error) => Err(error.into()),
        }
    })
}

fn table_names(file: &File, header: [u8; HEADER_BYTES]) -> Result<Vec<String>, IntegrityError> {
    let overlay = Overlay::new(file.try_clone()?, header)?;
    catch_redb_errors(|| {
        let db = Database::builder()
            .set_cache_size(CACHE_BYTES)
            .create_with_backend(overlay)?;
        let tables = db.begin_read()?;
        let names = tables.list_tables()?.map(|table| table.name().to_owned());
        Ok(names.collect())
    })
}

/// Runs redb on a file that may be damaged and converts its errors. redb may panic on such a file.
fn catch_redb_errors<T>(
    read: impl FnOnce() -> Result<T, redb::Error>,
) -> Result<T, IntegrityError> {
    match catch_unwind(AssertUnwindSafe(read)) {
        Ok(Ok(read)) => Ok(read),
        Ok(Err(redb::Error::Io(error))) => Err(error.into()),
        Ok(Err(error)) => Err(IntegrityError::Damaged(error.to_string())),
        Err(_) => Err(IntegrityError::Damaged(
            "its content cannot be interpreted".to_owned(),
        )),
    }
}

/// Header of a store file.
struct Header([u8; HEADER_BYTES]);

impl Header {
    fn read(file: &File) -> Result<Self, IntegrityError> {
        let mut bytes = [0; HEADER_BYTES];
        file.read_exact_at(&mut bytes, 0)?;
        if !bytes.starts_with(MAGIC) {
            return Err(IntegrityError::Damaged(
                "the header of the file is wrong".to_owned(),
            ));
        }
        Ok(Self(bytes))
    }

    fn flags(&self) -> u8 {
        self.0[FLAGS_AT]
    }

    /// Index of the current commit.
    fn primary(&self) -> usize {
        usize::from(self.flags() & PRIMARY)
    }

    fn number(&self, slot: usize) -> u64 {
        let mut bytes = [0; 8];
        let at = SLOT_AT[slot] + NUMBER_AT;
        bytes.copy_from_slice(&self.0[at..at + 8]);
        u64::from_le_bytes(bytes)
    }

    /// Copy of the header with this commit as the current one.
    fn with_primary(&self, slot: usize) -> [u8; HEADER_BYTES] {
        let mut bytes = self.0;
        bytes[FLAGS_AT] &= !PRIMARY;
        bytes[FLAGS_AT] |= u8::try_from(slot).unwrap_or_default();
        bytes
    }

    /// Copy of the header in which only this commit is valid and not trusted. redb then verifies every page
    /// of the commit.
    fn with_only(&self, slot: usize) -> [u8; HEADER_BYTES] {
        let mut bytes = self.with_primary(slot);
        bytes[FLAGS_AT] &= !TWO_PHASE;
        let other = SLOT_AT[1 - slot];
        for byte in &mut bytes[other + CHECKSUM_AT.start..other + CHECKSUM_AT.end] {
            *byte = !*byte;
        }
        bytes
    }
}

/// Storage backend that reads a file and keeps writes in memory.
#[derive(Debug)]
struct Overlay {
    file: File,
    length: AtomicU64,
    written: Mutex<Written>,
}

#[derive(Debug)]
struct Written {
    /// Offset from which the content of the file is ignored, because the overlay was truncated there.
    file_end: u64,
    blocks: BTreeMap<u64, Box<[u8; BLOCK]>>,
}

impl Overlay {
    fn new(file: File, header: [u8; HEADER_BYTES]) -> io::Result<Self> {
        let length = file.metadata()?.len();
        let overlay = Self {
            file,
            length: AtomicU64::new(length),
            written: Mutex::new(Written {
                file_end: length,
                blocks: BTreeMap::new(),
            }),
        };
        overlay.write(0, &header)?;
        Ok(overlay)
    }

    fn written(&self) -> MutexGuard<'_, Written> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads from the file; fills with zeros beyond `file_end`.
    fn read_file(&self, file_end: u64, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let available = file_end.saturating_sub(offset).min(out.len() as u64);
        let (from_file, zeros) = out.split_at_mut(usize::try_from(available).unwrap_or_default());
        zeros.fill(0);
        self.file.read_exact_at(from_file, offset)
    }
}

/// Parts of a byte range, one per block: block number, offset in the block, length.
fn blocks(offset: u64, length: usize) -> impl Iterator<Item = (u64, usize, usize)> {
    let (block, end) = (BLOCK as u64, offset + length as u64);
    let mut at = offset;
    std::iter::from_fn(move || {
        let begin = usize::try_from(at % block).ok()?;
        let length = usize::try_from(end.checked_sub(at)?)
            .ok()?
            .min(BLOCK - begin);
        let number = at / block;
        at += length as u64;
        (length > 0).then_some((number, begin, length))
    })
}

impl StorageBackend for Overlay {
    fn len(&self) -> io::Result<u64> {
        Ok(self.length.load(Ordering::Acquire))
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let end = offset.checked_add(out.len() as u64);
        if end.is_none_or(|end| end > self.length.load(Ordering::Acquire)) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let written = self.written();
        self.read_file(written.file_end, offset, out)?;
        let mut done = 0;
        for (number, begin, length) in blocks(offset, out.len()) {
            if let Some(block) = written.blocks.get(&number) {
                out[done..done + length].copy_from_slice(&block[begin..begin + length]);
            }
            done += length;
        }
        Ok(())
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        let mut written = self.written();
        let before = self.length.swap(length, Ordering::AcqRel);
        if length < before {
            written.file_end = written.file_end.min(length);
            written
                .blocks
                .retain(|number, _| number * (BLOCK as u64) < length);
        }
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut written = self.written();
        let mut rest = data;
        for (number, begin, length) in blocks(offset, data.len()) {
            if !written.blocks.contains_key(&number) {
                let mut block = Box::new([0; BLOCK]);
                let offset = number * BLOCK as u64;
                self.read_file(written.file_end, offset, block.as_mut_slice())?;
                written.blocks.insert(number, block);
            }
            let (part, others) = rest.split_at(length);
            if let Some(block) = written.blocks.get_mut(&number) {
                block[begin..begin + length].copy_from_slice(part);
            }
            rest = others;
        }
        Ok(())
    }
}
