//! Models that survive a restart of the process: one JSON file per vendor, replaced atomically.
//!
//! Knows nothing about any vendor. Invariant: a response is sent only after the state that it
//! reports is on disk (`flush`), so `kill -9` loses nothing that a client was answered. Concurrent
//! changes share one write: the second `flush` finds its version already saved by the first. There
//! is no fsync: the guarantee covers a crash of the process, not of the machine. On request a model
//! stays in memory only: each change rewrites the whole file, which is too slow for load tests with
//! thousands of rows.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::Context;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// In-memory value with its file on disk.
pub(crate) struct PersistedModel<T> {
    path: PathBuf,
    live: Mutex<Versioned<T>>,
    /// Version on disk. Locked during a write: later writers wait, then find their version saved.
    saved: Mutex<u64>,
    /// Whether writes to disk are disabled.
    in_memory: AtomicBool,
}

struct Versioned<T> {
    value: T,
    version: u64,
}

impl<T: Serialize + DeserializeOwned + Default> PersistedModel<T> {
    pub(crate) fn open(path: PathBuf) -> anyhow::Result<Self> {
        let value = match std::fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes)
                .with_context(|| format!("Cannot read {}", path.display()))?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => T::default(),
            Err(error) => {
                return Err(error).with_context(|| format!("Cannot read {}", path.display()));
            }
        };
        Ok(Self {
            path,
            live: Mutex::new(Versioned { value, version: 0 }),
            saved: Mutex::new(0),
            in_memory: AtomicBool::new(false),
        })
    }

    pub(crate) fn read<R>(&self, read: impl FnOnce(&T) -> R) -> R {
        read(&lock(&self.live).value)
    }

    /// Changes the model in memory only; `flush` persists the change.
    pub(crate) fn update<R>(&self, edit: impl FnOnce(&mut T) -> R) -> R {
        let mut live = lock(&self.live);
        live.version += 1;
        edit(&mut live.value)
    }

    /// Disables writes to disk. Later changes are lost when the process exits.
    pub(crate) fn keep_in_memory(&self) {
        self.in_memory.store(true, Ordering::Relaxed);
    }

    /// Returns after all changes made so far are on disk.
    pub(crate) fn flush(&self) -> anyhow::Result<()> {
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

    /// Changes the model and flushes it, for the in-process methods of tests and demos. A write error
    /// is only logged here. The next request fails with it, because it flushes too.
    pub(crate) fn update_and_flush<R>(&self, edit: impl FnOnce(&mut T) -> R) -> R {
        let result = self.update(edit);
        if let Err(error) = self.flush() {
            tracing::error!("Failed to persist the state of a fake vendor: {error:#}");
        }
        result
    }
}

/// Writes a temporary file beside the target and renames it over the target.
pub(crate) fn write_atomic(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let temporary = path.with_extension("tmp");
    std::fs::write(&temporary, bytes)
        .with_context(|| format!("Cannot write {}", temporary.display()))?;
    std::fs::rename(&temporary, path).with_context(|| format!("Cannot replace {}", path.display()))
}

/// Locks a mutex and ignores poisoning, so that a panic elsewhere leaves the models usable.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
