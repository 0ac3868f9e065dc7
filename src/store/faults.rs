//! Tests with a disk that fails at a chosen operation. A restart then opens the content of the page cache
//! (the process ended), or the synced content plus any part of the unsynced writes (power cut).

use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use redb::StorageBackend;
use serde_json::json;

use super::disk_space::DiskSpaceProbe;
use super::tables::META;
use super::{STORE_FILE, Store, StoreError, StoreResult};

/// Effect of a failed operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// Nothing is done (`EIO`).
    Nothing,
    /// Half of a write is done (`ENOSPC`).
    Half,
    /// Everything is done, but an error is returned.
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
    /// Content that readers see.
    current: Vec<u8>,
    /// Content after the last sync.
    synced: Vec<u8>,
    /// Changes since the last sync. After a power cut, any of them may be lost.
    unsynced: Vec<Change>,
    operations: u64,
    /// Operation that fails, and its effect.
    fails: Option<(u64, Fault)>,
    /// Whether all operations after the first failure also fail.
    keeps_failing: bool,
    /// Whether the next sync panics.
    panics: bool,
}

impl State {
    fn fault(&mut self) -> Option<Fault> {
        self.operations += 1;
        let (at, fault) = self.fails?;
        let fails = self.operations == at || (self.keeps_failing && self.operations > at);
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
            done.apply(&mut self.current);
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

    /// Returns a possible content after a power cut.
    fn after_power_cut(&self, rng: &mut fastrand::Rng) -> Vec<u8> {
        let state = self.state();
        let mut bytes = state.synced.clone();
        let surviving = state.unsynced.iter().filter(|_| rng.bool());
        surviving.for_each(|change| change.apply(&mut bytes));
        bytes
    }
}

impl StorageBackend for Disk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.state().current.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let (state, at) = (self.state(), usize::try_from(offset).unwrap());
        let content = state.current.get(at..at + out.len());
        out.copy_from_slice(content.ok_or(io::ErrorKind::UnexpectedEof)?);
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
            state.synced = state.current.clone();
            state.unsynced.clear();
        }
        fault.map_or(Ok(()), |_| Err(io::Error::other("the disk is broken")))
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.state().change(Change::Bytes(offset, data.to_vec()))
    }
}

const ROWS: u64 = 3;

/// Temporary folder, in memory if possible, because hundreds of stores are opened.
fn temporary_folder() -> tempfile::TempDir {
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

/// Counts the rows. Asserts that they are the first ones and that the stored count is right.
fn count(store: &Store) -> StoreResult<u64> {
    store.read(|tx| {
        let stored = META.get(tx, "count")?.and_then(|count| count.as_u64());
        let count = stored.unwrap_or_default();
        for number in 0..ROWS {
            let exists = META.get(tx, row(number).as_str())?.is_some();
            assert_eq!(exists, number < count, "row {number} of {count}");
        }
        Ok(count)
    })
}

/// Writes rows until the disk fails, and checks the content after every kind of restart. Returns whether the
/// failure occurred.
async fn fail_at(operation: u64, fault: Fault, power_cuts: usize, rng: &mut fastrand::Rng) -> bool {
    let disk = Disk::default();
    let store = Store::with_backend(disk.clone(), DiskSpaceProbe::unlimited()).unwrap();
    {
        let mut state = disk.state();
        state.fails = Some((state.operations + operation, fault));
        state.keeps_failing = rng.bool();
    }
    let mut acknowledged = 0;
    let mut failed = None;
    for number in 0..ROWS {
        match put(&store, number).await {
            Ok(()) if failed.is_none() => acknowledged += 1,
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
    // Reads succeed or fail, but never return wrong data.
    if let Ok(count) = count(&store) {
        assert!(
            count == acknowledged || count == acknowledged + 1,
            "{count} of {acknowledged}"
        );
    }
    let mut images = vec![disk.state().current.clone()];
    images.extend((0..power_cuts).map(|_| disk.after_power_cut(rng)));
    for (number, image) in images.into_iter().enumerate() {
        let dir = temporary_folder();
        std::fs::write(dir.path().join(STORE_FILE), image).unwrap();
        let reopened = Store::open(dir.path()).unwrap();
        let found = count(&reopened).unwrap();
        assert!(
            found == acknowledged || found == acknowledged + 1,
            "{found} rows, but {acknowledged} were acknowledged, image {number}"
        );
        put(&reopened, found).await.unwrap();
        assert_eq!(count(&reopened).unwrap(), found + 1);
    }
    true
}

#[tokio::test]
async fn a_panic_of_the_writer_marks_the_store_as_failed() {
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

/// Lets every operation of a few commits fail once, with every fault.
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
async fn keeps_acknowledged_writes_after_any_disk_failure() {
    fail_everywhere(1).await;
}

#[tokio::test]
#[ignore = "takes minutes"]
async fn keeps_acknowledged_writes_after_power_cuts() {
    fail_everywhere(40).await;
}
