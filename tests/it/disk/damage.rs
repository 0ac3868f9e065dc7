//! Store files with random damage. The store either opens with exactly its original rows, or rejects the
//! file and leaves it unchanged.

use std::fs;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};
use std::time::Instant;

use domain::job::JobKind;
use domain::time::Timestamp;
use store::{STORE_FILE, Store, StoreError, jobs};

use crate::api_server::dispatched_job;

/// Page size of redb, in bytes.
const PAGE: usize = 4096;
/// Header size of redb, in bytes.
const HEADER: usize = 320;

#[derive(Debug, Clone, Copy)]
enum Damage {
    Bit { at: usize, bit: u32 },
    HeaderBit { at: usize, bit: u32 },
    Noise { page: usize },
    Zeros { page: usize },
    Swapped { page: usize, with: usize },
    CutTo { length: usize },
    Longer { by: usize },
}

impl Damage {
    fn random(length: usize, rng: &mut fastrand::Rng) -> Self {
        let (pages, bit) = (length / PAGE, rng.u32(..8));
        let page = rng.usize(..pages);
        match rng.u8(..10) {
            0..4 => Damage::Bit {
                at: rng.usize(..length),
                bit,
            },
            4 | 5 => Damage::HeaderBit {
                at: rng.usize(..HEADER),
                bit,
            },
            6 => Damage::Noise { page },
            7 => Damage::Zeros { page },
            8 => Damage::Swapped {
                page,
                with: rng.usize(..pages),
            },
            _ if rng.bool() => Damage::CutTo {
                length: rng.usize(..length),
            },
            _ => Damage::Longer {
                by: rng.usize(1..3 * PAGE),
            },
        }
    }

    /// Applies the damage to the bytes of a file.
    fn apply(self, bytes: &mut Vec<u8>, rng: &mut fastrand::Rng) {
        let range = |page: usize| page * PAGE..(page + 1) * PAGE;
        match self {
            Damage::Bit { at, bit } | Damage::HeaderBit { at, bit } => bytes[at] ^= 1 << bit,
            Damage::Noise { page } => rng.fill(&mut bytes[range(page)]),
            Damage::Zeros { page } => bytes[range(page)].fill(0),
            Damage::Swapped { page, with } => {
                let (first, second) = (bytes[range(page)].to_vec(), bytes[range(with)].to_vec());
                bytes[range(page)].copy_from_slice(&second);
                bytes[range(with)].copy_from_slice(&first);
            }
            Damage::CutTo { length } => bytes.truncate(length),
            Damage::Longer { by } => bytes.resize(bytes.len() + by, 0xA5),
        }
    }
}

/// Returns a temporary folder, in memory if possible, because the tests open thousands of stores.
fn folder() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    tempfile::tempdir_in(memory)
        .or_else(|_| tempfile::tempdir())
        .unwrap()
}

/// Undamaged store file and its rows.
struct Original {
    bytes: Vec<u8>,
    content: Vec<u8>,
}

/// Creates a store with jobs. Returns its file as a killed process and as a stopped process leaves it.
async fn originals(dir: &Path) -> [Original; 2] {
    let store = Store::open(dir).unwrap();
    for first in (0..300).step_by(100) {
        let written = store.write(move |tx| {
            (first..first + 100).try_for_each(|number| {
                jobs::put(
                    tx,
                    &dispatched_job(&format!("01JOB{number:08}"), JobKind::Implementation),
                )
            })
        });
        written.await.unwrap();
    }
    let (content, file) = (content(&store), dir.join(STORE_FILE));
    // No writer is active here.
    let killed = fs::read(&file).unwrap();
    drop(store);
    // The writer thread closes the store.
    while matches!(Store::open(dir), Err(StoreError::InUse { .. })) {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    while fs::File::open(&file).unwrap().try_lock().is_err() {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    let stopped = fs::read(&file).unwrap();
    [killed, stopped].map(|bytes| Original {
        bytes,
        content: content.clone(),
    })
}

/// Returns all rows of all tables.
fn content(store: &Store) -> Vec<u8> {
    let mut rows = Vec::new();
    store.back_up(Timestamp::EPOCH, &mut rows).unwrap();
    rows
}

#[derive(Debug, Default)]
struct Count {
    opened: u32,
    rejected: u32,
}

/// Damages a store and opens it. Returns whether it opened, or the violated rule.
fn open_damaged(
    original: &Original,
    damage: Damage,
    dir: PathBuf,
    rng: &mut fastrand::Rng,
) -> Result<bool, String> {
    let mut bytes = original.bytes.clone();
    damage.apply(&mut bytes, rng);
    let file = dir.join(STORE_FILE);
    fs::write(&file, &bytes).unwrap();
    let opened = catch_unwind(|| Store::open(&dir).map(|store| content(&store)));
    match opened {
        Ok(Ok(content)) if content == original.content => Ok(true),
        Ok(Ok(_)) => Err("opened with other rows".to_owned()),
        Ok(Err(StoreError::Damaged { .. })) if fs::read(&file).unwrap() == bytes => Ok(false),
        Ok(Err(StoreError::Damaged { .. })) => Err("rejected, but the file changed".to_owned()),
        Ok(Err(other)) => Err(format!("rejected with another error: {other}")),
        Err(_) => Err("panicked".to_owned()),
    }
}

/// Damages this many stores at random.
async fn open_many_damaged(count: u32) {
    let seed = std::env::var("DAMAGE_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    let mut rng = fastrand::Rng::with_seed(seed);
    let (dir, began) = (folder(), Instant::now());
    let originals = originals(dir.path()).await;
    let mut counts: [Count; 2] = Default::default();
    let mut violations = Vec::new();
    for number in 0..count {
        let which = usize::try_from(number % 2).unwrap();
        let original = &originals[which];
        let damage = Damage::random(original.bytes.len(), &mut rng);
        // A new folder each time, because the previous store may still be closing.
        let folder = dir.path().join(number.to_string());
        fs::create_dir(&folder).unwrap();
        match open_damaged(original, damage, folder.clone(), &mut rng) {
            Ok(true) => counts[which].opened += 1,
            Ok(false) => counts[which].rejected += 1,
            Err(violation) => {
                violations.push(format!("{damage:?}, number {number}: {violation}"));
            }
        }
        // The writer thread can close a file that has been removed.
        fs::remove_dir_all(&folder).unwrap();
    }
    let [killed, stopped] = counts;
    println!(
        "seed {seed}: {count} damaged stores in {:.0?}; killed process: {killed:?}; stopped process: {stopped:?}",
        began.elapsed()
    );
    assert!(
        violations.is_empty(),
        "DAMAGE_SEED={seed}\n{}",
        violations.join("\n")
    );
    assert!(killed.opened > 0 && killed.rejected > 0 && stopped.opened > 0 && stopped.rejected > 0);
}

#[tokio::test]
async fn random_damage_is_rejected_or_harmless() {
    open_many_damaged(200).await;
}

#[tokio::test]
#[ignore = "long form: takes minutes"]
async fn random_damage_is_rejected_or_harmless_ten_thousand_times() {
    open_many_damaged(10_000).await;
}

/// The bit that selects one of two commits is not covered by a checksum. If flipped, it would restore the
/// previous commit without an error.
#[tokio::test]
async fn flipped_header_bits_are_rejected_or_harmless() {
    let dir = folder();
    let mut rng = fastrand::Rng::with_seed(1);
    for (which, original) in originals(dir.path()).await.iter().enumerate() {
        for at in 0..64 {
            for bit in 0..8 {
                let folder = dir.path().join(format!("{which}-{at}-{bit}"));
                fs::create_dir(&folder).unwrap();
                let damage = Damage::HeaderBit { at, bit };
                let result = open_damaged(original, damage, folder.clone(), &mut rng);
                fs::remove_dir_all(&folder).unwrap();
                result.unwrap_or_else(|violation| {
                    panic!("{which}, byte {at}, bit {bit}: {violation}")
                });
            }
        }
    }
}
