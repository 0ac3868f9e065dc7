//! Whether a store's file is whole, found out before anything trusts it.
//!
//! redb believes what it reads: it compares checksums only when it repairs, so that a flipped bit in a
//! row would be a wrong answer, and one in its records of free space the overwriting of rows. So every
//! page that a commit reaches is compared with its checksum each time the file is opened. That is done
//! on an overlay that reads the file and keeps what redb writes in memory: a file that is damaged stays
//! as it was found.
//!
//! The header is the one page whose bytes no checksum covers as a whole. It holds two commits and a bit
//! that says which of them counts; of two that are whole, the older must not pass for the newer.
//! (The layout is that of redb's file format 3, `docs/design.md` of redb.)

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
/// Which commit counts, and how the last process ended.
const FLAGS_AT: usize = 9;
const PRIMARY: u8 = 1;
const TWO_PHASE: u8 = 4;
/// The two commits.
const SLOT_AT: [usize; 2] = [64, 192];
/// Inside of a commit: its number and its checksum.
const NUMBER_AT: usize = 104;
const CHECKSUM_AT: std::ops::Range<usize> = 112..128;

const BLOCK: usize = 4096;

/// Why a file is not opened.
#[derive(Debug)]
pub(super) enum IntegrityError {
    InUse,
    /// A database, of somebody else.
    Foreign,
    Damaged(String),
    Io(io::Error),
}

impl IntegrityError {
    /// As it is told of the store at this path.
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
            // It ends before its own pages do.
            io::ErrorKind::UnexpectedEof => IntegrityError::Damaged("it is cut off".to_owned()),
            _ => IntegrityError::Io(error),
        }
    }
}

/// Compares every page that the last commit reaches with its checksum. A commit that had reached the
/// disk whole when the process died before it could say so is made to count; nothing else is changed.
/// `mark` is a table that every store of ours has.
pub(super) fn verify(path: &Path, mark: &str) -> Result<(), IntegrityError> {
    let file = File::options().read(true).write(true).open(path)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(IntegrityError::InUse),
        // Where there are no locks, redb does without as well.
        Err(TryLockError::Error(_)) => {}
    }
    let examined = examine_locked(&file, mark);
    // Not left to its end: a process that is just being started may have a copy of the handle.
    let _ = file.unlock();
    examined
}

fn examine_locked(file: &File, mark: &str) -> Result<(), IntegrityError> {
    let header = Header::read(file)?;
    let counts = header.primary();
    check(file, &header, counts, mark)?;
    let other = 1 - counts;
    if header.number(other) > header.number(counts) && check(file, &header, other, mark).is_ok() {
        file.write_all_at(&[header.flags() ^ PRIMARY], FLAGS_AT as u64)?;
        file.sync_all()?;
        tracing::warn!("The last commit was whole and not marked as such; it counts.");
    }
    Ok(())
}

/// Whether all that one of the two commits reaches is as it was written, and ours.
fn check(file: &File, header: &Header, slot: usize, mark: &str) -> Result<(), IntegrityError> {
    if !fits(file, header.alone(slot))? {
        return Err(IntegrityError::Damaged(
            "a checksum does not fit".to_owned(),
        ));
    }
    let names = table_names(file, header.counting(slot))?;
    if names.is_empty() || names.iter().any(|name| name == mark) {
        return Ok(());
    }
    Err(IntegrityError::Foreign)
}

/// Whether every page that a header leads to fits its checksum.
fn fits(file: &File, header: [u8; HEADER_BYTES]) -> Result<bool, IntegrityError> {
    let overlay = Overlay::over(file.try_clone()?, header)?;
    let fits = Arc::new(AtomicBool::new(true));
    let told = fits.clone();
    // Called before each pass of a repair: before the second when a checksum did not fit, before the
    // third when all did. What comes then would only read everything once more.
    let judge = move |repair: &mut RepairSession| match repair.progress() {
        ..0.2 => {}
        ..0.5 => {
            told.store(false, Ordering::Release);
            repair.abort();
        }
        _ => repair.abort(),
    };
    understood(|| {
        let opened = Database::builder()
            .set_cache_size(CACHE_BYTES)
            .set_repair_callback(judge)
            .create_with_backend(overlay);
        match opened {
            Ok(_) | Err(DatabaseError::RepairAborted) => Ok(fits.load(Ordering::Acquire)),
            Err(error) => Err(error.into()),
        }
    })
}

fn table_names(file: &File, header: [u8; HEADER_BYTES]) -> Result<Vec<String>, IntegrityError> {
    let overlay = Overlay::over(file.try_clone()?, header)?;
    understood(|| {
        let db = Database::builder()
            .set_cache_size(CACHE_BYTES)
            .create_with_backend(overlay)?;
        let tables = db.begin_read()?;
        let names = tables.list_tables()?.map(|table| table.name().to_owned());
        Ok(names.collect())
    })
}

/// What redb makes of a file; it may panic at one that is not its own work.
fn understood<T>(read: impl FnOnce() -> Result<T, redb::Error>) -> Result<T, IntegrityError> {
    match catch_unwind(AssertUnwindSafe(read)) {
        Ok(Ok(read)) => Ok(read),
        Ok(Err(redb::Error::Io(error))) => Err(error.into()),
        Ok(Err(error)) => Err(IntegrityError::Damaged(error.to_string())),
        Err(_) => Err(IntegrityError::Damaged(
            "it cannot be made sense of".to_owned(),
        )),
    }
}

/// The first bytes of a file.
struct Header([u8; HEADER_BYTES]);

impl Header {
    fn read(file: &File) -> Result<Self, IntegrityError> {
        let mut bytes = [0; HEADER_BYTES];
        file.read_exact_at(&mut bytes, 0)?;
        if !bytes.starts_with(MAGIC) {
            return Err(IntegrityError::Damaged(
                "it does not begin as one".to_owned(),
            ));
        }
        Ok(Self(bytes))
    }

    fn flags(&self) -> u8 {
        self.0[FLAGS_AT]
    }

    /// Which of the two commits counts.
    fn primary(&self) -> usize {
        usize::from(self.flags() & PRIMARY)
    }

    fn number(&self, slot: usize) -> u64 {
        let mut bytes = [0; 8];
        let at = SLOT_AT[slot] + NUMBER_AT;
        bytes.copy_from_slice(&self.0[at..at + 8]);
        u64::from_le_bytes(bytes)
    }

    /// The same, with this of the two commits as the one that counts.
    fn counting(&self, slot: usize) -> [u8; HEADER_BYTES] {
        let mut bytes = self.0;
        bytes[FLAGS_AT] &= !PRIMARY;
        bytes[FLAGS_AT] |= u8::try_from(slot).unwrap_or_default();
        bytes
    }

    /// The same, with one of the two commits only, and none of the shortcuts that trust it: redb then
    /// looks at every page of that commit.
    fn alone(&self, slot: usize) -> [u8; HEADER_BYTES] {
        let mut bytes = self.counting(slot);
        bytes[FLAGS_AT] &= !TWO_PHASE;
        let other = SLOT_AT[1 - slot];
        for byte in &mut bytes[other + CHECKSUM_AT.start..other + CHECKSUM_AT.end] {
            *byte = !*byte;
        }
        bytes
    }
}

/// A file, and in memory what was written over it.
#[derive(Debug)]
struct Overlay {
    file: File,
    length: AtomicU64,
    written: Mutex<Written>,
}

#[derive(Debug)]
struct Written {
    /// Beyond it, the file counts no more.
    floor: u64,
    blocks: BTreeMap<u64, Box<[u8; BLOCK]>>,
}

impl Overlay {
    fn over(file: File, header: [u8; HEADER_BYTES]) -> io::Result<Self> {
        let length = file.metadata()?.len();
        let overlay = Self {
            file,
            length: AtomicU64::new(length),
            written: Mutex::new(Written {
                floor: length,
                blocks: BTreeMap::new(),
            }),
        };
        overlay.write(0, &header)?;
        Ok(overlay)
    }

    fn written(&self) -> MutexGuard<'_, Written> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the file has there; nothing but zeros beyond its end.
    fn below(&self, floor: u64, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let there = floor.saturating_sub(offset).min(out.len() as u64);
        let (there, beyond) = out.split_at_mut(usize::try_from(there).unwrap_or_default());
        beyond.fill(0);
        self.file.read_exact_at(there, offset)
    }
}

/// The pieces of a range of bytes, block by block: number, begin inside of it, length.
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
        self.below(written.floor, offset, out)?;
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
            written.floor = written.floor.min(length);
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
                let mut fresh = Box::new([0; BLOCK]);
                self.below(written.floor, number * BLOCK as u64, fresh.as_mut_slice())?;
                written.blocks.insert(number, fresh);
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
