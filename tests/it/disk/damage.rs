//! A store's file with random damage: it is opened with exactly what was in it, or refused and left as
//! it is. Nothing between.

use std::fs;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};
use std::time::Instant;

use domain::job::JobKind;
use domain::time::Timestamp;
use store::{STORE_FILE, Store, StoreError, jobs};

use crate::api_server::dispatched_job;

/// As redb lays its file out.
const PAGE: usize = 4096;
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
    fn any(length: usize, rng: &mut fastrand::Rng) -> Self {
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

    fn done_to(self, bytes: &mut Vec<u8>, rng: &mut fastrand::Rng) {
        let range = |page: usize| page * PAGE..(page + 1) * PAGE;
        match self {
            Damage::Bit { at, bit } | Damage::HeaderBit { at, bit } => bytes[at] ^= 1 << bit,
            Damage::Noise { page } => rng.fill(&mut bytes[range(page)]),
            Damage::Zeros { page } => bytes[range(page)].fill(0),
            Damage::Swapped { page, with } => {
                let (one, two) = (bytes[range(page)].to_vec(), bytes[range(with)].to_vec());
                bytes[range(page)].copy_from_slice(&two);
                bytes[range(with)].copy_from_slice(&one);
            }
            Damage::CutTo { length } => bytes.truncate(length),
            Damage::Longer { by } => bytes.resize(bytes.len() + by, 0xA5),
        }
    }
}

/// Memory, where there is a folder in it: thousands of stores are opened.
fn folder() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    tempfile::tempdir_in(memory)
        .or_else(|_| tempfile::tempdir())
        .unwrap()
}

/// A store with jobs in it, as a process leaves it that stops, and as one that is killed.
struct Original {
    bytes: Vec<u8>,
    content: Vec<u8>,
}

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
    // Nothing is written meanwhile.
    let killed = fs::read(&file).unwrap();
    drop(store);
    // The thread that writes closes it.
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

/// Every row of every table.
fn content(store: &Store) -> Vec<u8> {
    let mut rows = Vec::new();
    store.back_up(Timestamp::EPOCH, &mut rows).unwrap();
    rows
}

#[derive(Debug, Default)]
struct Count {
    worked: u32,
    refused: u32,
}

/// Damages a store and opens it.
fn suffer(
    original: &Original,
    damage: Damage,
    dir: PathBuf,
    rng: &mut fastrand::Rng,
) -> Result<bool, String> {
    let mut bytes = original.bytes.clone();
    damage.done_to(&mut bytes, rng);
    let file = dir.join(STORE_FILE);
    fs::write(&file, &bytes).unwrap();
    let opened = catch_unwind(|| Store::open(&dir).map(|store| content(&store)));
    match opened {
        Ok(Ok(content)) if content == original.content => Ok(true),
        Ok(Ok(_)) => Err("it was opened with other rows than were in it".to_owned()),
        Ok(Err(StoreError::Damaged { .. })) if fs::read(&file).unwrap() == bytes => Ok(false),
        Ok(Err(StoreError::Damaged { .. })) => Err("it was refused and changed".to_owned()),
        Ok(Err(other)) => Err(format!("it was refused with other words: {other}")),
        Err(_) => Err("it panicked".to_owned()),
    }
}

async fn suffer_many(count: u32) {
    let seed = std::env::var("DAMAGE_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    let mut rng = fastrand::Rng::with_seed(seed);
    let (dir, began) = (folder(), Instant::now());
    let originals = originals(dir.path()).await;
    let mut counts: [Count; 2] = Default::default();
    let mut faults = Vec::new();
    for number in 0..count {
        let which = usize::try_from(number % 2).unwrap();
        let original = &originals[which];
        let damage = Damage::any(original.bytes.len(), &mut rng);
        // A folder of its own: the one before may be closing yet.
        let place = dir.path().join(number.to_string());
        fs::create_dir(&place).unwrap();
        match suffer(original, damage, place.clone(), &mut rng) {
            Ok(true) => counts[which].worked += 1,
            Ok(false) => counts[which].refused += 1,
            Err(fault) => faults.push(format!("{damage:?}, number {number}: {fault}")),
        }
        // Whoever closes it needs no name for it.
        fs::remove_dir_all(&place).unwrap();
    }
    let [killed, stopped] = counts;
    println!(
        "seed {seed}: {count} damages in {:.0?}; of a killed process: {killed:?}; of one that stopped: {stopped:?}",
        began.elapsed()
    );
    assert!(
        faults.is_empty(),
        "DAMAGE_SEED={seed}\n{}",
        faults.join("\n")
    );
    assert!(killed.worked > 0 && killed.refused > 0 && stopped.worked > 0 && stopped.refused > 0);
}

#[tokio::test]
async fn random_damage_is_refused_or_does_not_matter() {
    suffer_many(200).await;
}

#[tokio::test]
#[ignore = "the long form: minutes"]
async fn random_damage_is_refused_or_does_not_matter_ten_thousand_times() {
    suffer_many(10_000).await;
}

/// The bit that says which of two commits counts is in no checksum: turned over, it would bring back
/// the commit before the last, whole and wrong.
#[tokio::test]
async fn every_single_bit_of_the_header_is_refused_or_does_not_matter() {
    let dir = folder();
    let mut rng = fastrand::Rng::with_seed(1);
    for (which, original) in originals(dir.path()).await.iter().enumerate() {
        for at in 0..64 {
            for bit in 0..8 {
                let place = dir.path().join(format!("{which}-{at}-{bit}"));
                fs::create_dir(&place).unwrap();
                let damage = Damage::HeaderBit { at, bit };
                let suffered = suffer(original, damage, place.clone(), &mut rng);
                fs::remove_dir_all(&place).unwrap();
                suffered.unwrap_or_else(|fault| panic!("{which}, byte {at}, bit {bit}: {fault}"));
            }
        }
    }
}
