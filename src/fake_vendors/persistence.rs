//! Models that outlive the process: one JSON file a vendor, replaced atomically.
//!
//! What is *not* here: any knowledge of a vendor. The invariant: an answer leaves the town only
//! after the state it speaks of is on disk (`settle`), so a `kill -9` loses nothing acknowledged.
//! Two requests that change the model at once share one rewrite: the second finds its version
//! already saved by the first. No fsync: the promise is about the process, not the machine.
//! A town that is asked to may keep its models in memory alone: each change rewrites the whole
//! file, which thousands of rows make too slow for a stand-in under load.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::Context;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A value in memory with its file on disk.
pub(crate) struct PersistedModel<T> {
    path: PathBuf,
    live: Mutex<Versioned<T>>,
    /// Version on disk. Held while writing, so that writers queue and then find their work done.
    saved: Mutex<u64>,
    /// Nothing is written any more.
    in_memory: AtomicBool,
}

struct Versioned<T> {
    value: T,
    version: u64,
}

impl<T: Serialize + DeserializeOwned + Default> PersistedModel<T> {
    pub fn open(path: PathBuf) -> anyhow::Result<Self> {
        let value = match std::fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes)
                .with_context(|| format!("reading {}", path.display()))?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => T::default(),
            Err(error) => {
                return Err(error).with_context(|| format!("reading {}", path.display()));
            }
        };
        Ok(Self {
            path,
            live: Mutex::new(Versioned { value, version: 0 }),
            saved: Mutex::new(0),
            in_memory: AtomicBool::new(false),
        })
    }

    pub fn read<R>(&self, look: impl FnOnce(&T) -> R) -> R {
        look(&lock(&self.live).value)
    }

    /// Changes the model in memory; `settle` makes it last.
    pub fn update<R>(&self, edit: impl FnOnce(&mut T) -> R) -> R {
        let mut live = lock(&self.live);
        live.version += 1;
        edit(&mut live.value)
    }

    /// From now on nothing is written, and what changes is lost with the process.
    pub fn keep_in_memory(&self) {
        self.in_memory.store(true, Ordering::Relaxed);
    }

    /// Returns once everything changed so far is on disk.
    pub fn flush(&self) -> anyhow::Result<()> {
        if self.in_memory.load(Ordering::Relaxed) {
            return Ok(());
        }
        let wanted = lock(&self.live).version;
        let mut saved = lock(&self.saved);
        if *saved >= wanted {
            return Ok(());
        }
        let (version, bytes) = {
            let live = lock(&self.live);
            (live.version, serde_json::to_vec(&live.value)?)
        };
        write_atomic(&self.path, &bytes)?;
        *saved = version;
        Ok(())
    }

    /// Change and settle in one go, for the in-process verbs of tests and stories. A disk that
    /// refuses is said once here and again by the next request, which fails on its own `settle`.
    pub fn update_and_flush<R>(&self, edit: impl FnOnce(&mut T) -> R) -> R {
        let result = self.update(edit);
        if let Err(error) = self.flush() {
            tracing::error!("sandbox state: {error:#}");
        }
        result
    }
}

/// Writes beside the file, then renames over it.
pub(crate) fn write_atomic(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let beside = path.with_extension("tmp");
    std::fs::write(&beside, bytes).with_context(|| format!("writing {}", beside.display()))?;
    std::fs::rename(&beside, path).with_context(|| format!("replacing {}", path.display()))
}

/// A lock that a panic elsewhere does not poison: the sandbox's models stay usable.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
