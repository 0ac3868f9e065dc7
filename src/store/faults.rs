//! A disk that fails at a chosen operation, and what a restart finds on it: with the memory of the
//! machine kept (the process alone ended), or with any part of what was not synced gone (a power cut).

use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use redb::StorageBackend;
use serde_json::json;

use super::disk_space::DiskSpaceProbe;
use super::tables::META;
use super::{STORE_FILE, Store, StoreError, StoreResult};

/// How an operation fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// Nothing of it is done. (`EIO`)
    Nothing,
    /// Half of a write is done. (`ENOSPC`)
    Half,
    /// All of it is done, and an error answered.
    All,
}

const FAULTS: [Fault; 3] = [Fault::Nothing, Fault::Half, Fault::All];

#[derive(Debug, Clone)]
enum Change {
    Bytes(u64, Vec<u8>),
    Length(u64),
}

impl Change {
    fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            Change::Bytes(at, data) => {
                let at = usize::try_from(*at).unwrap();
                bytes.resize(bytes.len().max(at + data.len()), 0);
                bytes[at..at + data.len()].copy_from_slice(data);
            }
            Change::Length(length) => bytes.resize(usize::try_from(*length).unwrap(), 0),
        }
    }
}

#[derive(Debug, Default)]
struct State {
    /// What a reader sees.
    now: Vec<u8>,
    /// What a power cut leaves.
    synced: Vec<u8>,
    /// What it may leave any part of.
    unsynced: Vec<Change>,
    operations: u64,
    fails: Option<(u64, Fault)>,
    /// Whether everything after the first failure fails as well.
    stays_broken: bool,
    /// Whether the next sync panics.
    panics: bool,
}

impl State {
    fn fault(&mut self) -> Option<Fault> {
        self.operations += 1;
        let (at, fault) = self.fails?;
        let fails = self.operations == at || (self.stays_broken && self.operations > at);
        fails.then_some(fault)
    }

    fn change(&mut self, change: Change) -> io::Result<()> {
        let fault = self.fault();
        let done = match (fault, &change) {
            (Some(Fault::Nothing), _) | (Some(Fault::Half), Change::Length(_)) => None,
            (Some(Fault::Half), Change::Bytes(at, data)) => {
                Some(Change::Bytes(*at, data[..data.len() / 2].to_vec()))
            }
            (Some(Fault::All) | None, _) => Some(change),
        };
        if let Some(done) = done {
            done.apply(&mut self.now);
            self.unsynced.push(done);
        }
        fault.map_or(Ok(()), |_| Err(io::ErrorKind::StorageFull.into()))
    }
}

#[derive(Debug, Clone, Default)]
struct Disk(Arc<Mutex<State>>);

impl Disk {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// What a power cut may leave.
    fn after_power_cut(&self, rng: &mut fastrand::Rng) -> Vec<u8> {
        let state = self.state();
        let mut bytes = state.synced.clone();
        let kept = state.unsynced.iter().filter(|_| rng.bool());
        kept.for_each(|change| change.apply(&mut bytes));
        bytes
    }
}

impl StorageBackend for Disk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.state().now.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let (state, at) = (self.state(), usize::try_from(offset).unwrap());
        let there = state.now.get(at..at + out.len());
        out.copy_from_slice(there.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.state().change(Change::Length(length))
    }

    fn sync_data(&self) -> io::Result<()> {
        let panics = std::mem::take(&mut self.state().panics);
        assert!(!panics, "on purpose");
        let mut state = self.state();
        let fault = state.fault();
        if fault.is_none_or(|fault| fault == Fault::All) {
            state.synced = state.now.clone();
            state.unsynced.clear();
        }
        fault.map_or(Ok(()), |_| Err(io::Error::other("the disk is broken")))
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.state().change(Change::Bytes(offset, data.to_vec()))
    }
}

const ROWS: u64 = 3;

/// In memory, where there is a folder in it: hundreds of stores are opened.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .unwrap()
}

fn row(number: u64) -> String {
    format!("row-{number}")
}

async fn put(store: &Store, number: u64) -> StoreResult<()> {
    let filling = "x".repeat(3000);
    let write = store.write(move |tx| {
        META.put(tx, "count", &json!(number + 1))?;
        META.put(tx, row(number).as_str(), &json!(filling))
    });
    write.await
}

/// How many rows are there; they must be the first ones, with their number beside them.
fn count(store: &Store) -> StoreResult<u64> {
    store.read(|tx| {
        let told = META.get(tx, "count")?.and_then(|count| count.as_u64());
        let count = told.unwrap_or_default();
        for number in 0..ROWS {
            let is_there = META.get(tx, row(number).as_str())?.is_some();
            assert_eq!(is_there, number < count, "row {number} of {count}");
        }
        Ok(count)
    })
}

/// Writes rows until the disk fails, and looks at what every kind of restart finds. Answers whether
/// the failure came.
async fn fail_at(operation: u64, fault: Fault, power_cuts: usize, rng: &mut fastrand::Rng) -> bool {
    let disk = Disk::default();
    let store = Store::with_backend(disk.clone(), DiskSpaceProbe::unlimited()).unwrap();
    {
        let mut state = disk.state();
        state.fails = Some((state.operations + operation, fault));
        state.stays_broken = rng.bool();
    }
    let mut kept = 0;
    let mut failed = None;
    for number in 0..ROWS {
        match put(&store, number).await {
            Ok(()) if failed.is_none() => kept += 1,
            Ok(()) => panic!("a write was acknowledged after {failed:?}"),
            Err(error) => failed = Some(failed.unwrap_or(error)),
        }
    }
    let Some(failed) = failed else { return false };
    assert!(matches!(failed, StoreError::OutcomeUnknown), "{failed}");
    assert!(!store.is_healthy());
    tokio::time::timeout(std::time::Duration::from_secs(9), store.failed())
        .await
        .unwrap();
    // Reads go on, or say that they cannot; they never answer what was not there.
    if let Ok(count) = count(&store) {
        assert!(count == kept || count == kept + 1, "{count} of {kept}");
    }
    let mut images = vec![disk.state().now.clone()];
    images.extend((0..power_cuts).map(|_| disk.after_power_cut(rng)));
    for (number, image) in images.into_iter().enumerate() {
        let dir = folder();
        std::fs::write(dir.path().join(STORE_FILE), image).unwrap();
        let again = Store::open(dir.path()).unwrap();
        let found = count(&again).unwrap();
        assert!(
            found == kept || found == kept + 1,
            "{found} rows where {kept} were acknowledged, image {number}"
        );
        put(&again, found).await.unwrap();
        assert_eq!(count(&again).unwrap(), found + 1);
    }
    true
}

#[tokio::test]
async fn a_writer_that_panicked_is_known_to_be_lost() {
    let disk = Disk::default();
    let store = Store::with_backend(disk.clone(), DiskSpaceProbe::unlimited()).unwrap();
    put(&store, 0).await.unwrap();
    disk.state().panics = true;
    let failed = put(&store, 1).await;
    assert!(
        matches!(failed, Err(StoreError::OutcomeUnknown)),
        "{failed:?}"
    );
    assert!(!store.is_healthy());
    tokio::time::timeout(std::time::Duration::from_secs(9), store.failed())
        .await
        .unwrap();
    let later = put(&store, 1).await;
    assert!(
        matches!(later, Err(StoreError::OutcomeUnknown)),
        "{later:?}"
    );
}

/// Every operation of a few commits fails once, in every way.
async fn fail_everywhere(power_cuts: usize) {
    let seed = fastrand::u64(..);
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut total = 0;
    for fault in FAULTS {
        let mut failures = 0;
        for operation in 1.. {
            println!("seed {seed}, {fault:?} at operation {operation}");
            if !fail_at(operation, fault, power_cuts, &mut rng).await {
                break;
            }
            failures += 1;
        }
        assert!(failures >= 2 * ROWS, "only {failures} operations failed");
        total += failures;
    }
    println!("seed {seed}: {total} failures, {power_cuts} power cuts after each");
}

#[tokio::test]
async fn whatever_write_or_sync_fails_everything_acknowledged_is_there_after_a_restart() {
    fail_everywhere(1).await;
}

#[tokio::test]
#[ignore = "the long form: minutes"]
async fn whatever_fails_no_power_cut_takes_what_was_acknowledged() {
    fail_everywhere(40).await;
}
