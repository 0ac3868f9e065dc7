//! Free space of the disk of the store.
//!
//! A commit that fails because the disk is full ends the process, so the free space is checked first. As it
//! shrinks, first no logs of runs are stored. With low space, nothing new starts and runs in progress continue.
//! With almost none, writes are rejected and reads still work.

use std::path::Path;
use std::sync::Arc;

/// Free bytes below which no log of a run is stored: logs are dropped before work is.
pub const MIN_FREE_FOR_LOGS: u64 = 2 * MIN_FREE_FOR_NEW_WORK;

/// Free bytes below which nothing new starts.
pub const MIN_FREE_FOR_NEW_WORK: u64 = 64 << 20;

/// Free bytes below which nothing is written. Exceeds the size of the largest possible commit.
pub(crate) const MIN_FREE_FOR_WRITES: u64 = 16 << 20;

/// Level of free space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskSpace {
    /// Enough, or unknown.
    Ample,
    /// Nothing new starts; with the number of free bytes.
    Low(u64),
    /// Nothing can be written; with the number of free bytes.
    Full(u64),
}

impl DiskSpace {
    /// Level for a number of free bytes. Unknown free space counts as ample.
    fn from_free_bytes(free: Option<u64>) -> Self {
        match free {
            Some(free) if free < MIN_FREE_FOR_WRITES => DiskSpace::Full(free),
            Some(free) if free < MIN_FREE_FOR_NEW_WORK => DiskSpace::Low(free),
            Some(_) | None => DiskSpace::Ample,
        }
    }

    /// Problem as a clause for operators. `None` if there is enough space.
    pub fn problem(self) -> Option<String> {
        let (free, consequence) = match self {
            DiskSpace::Ample => return None,
            DiskSpace::Low(free) => (free, "nothing new is started"),
            DiskSpace::Full(free) => (free, "nothing can be stored"),
        };
        Some(format!(
            "only {} MiB are free on the disk of DATA_DIR: {consequence}",
            free >> 20
        ))
    }
}

/// Free bytes on the disk of a folder. `None` if they cannot be determined.
pub fn free_bytes(dir: &Path) -> Option<u64> {
    let disk = rustix::fs::statvfs(dir).ok()?;
    Some(disk.f_bavail.saturating_mul(disk.f_frsize))
}

/// Source of the number of free bytes.
#[derive(Clone)]
pub(super) struct DiskSpaceProbe(Arc<dyn Fn() -> Option<u64> + Send + Sync>);

impl DiskSpaceProbe {
    /// Probe that calls this function.
    pub(super) fn new(free: impl Fn() -> Option<u64> + Send + Sync + 'static) -> Self {
        Self(Arc::new(free))
    }

    /// Probe of the disk of a folder.
    pub(super) fn for_dir(dir: &Path) -> Self {
        let dir = dir.to_owned();
        Self::new(move || free_bytes(&dir))
    }

    /// Probe for a store that is not on a disk.
    pub(super) fn unlimited() -> Self {
        Self::new(|| None)
    }

    /// Current level of free space.
    pub(super) fn read(&self) -> DiskSpace {
        DiskSpace::from_free_bytes((self.0)())
    }

    /// Whether there is room for logs of runs. Unknown free space counts as enough.
    pub(super) fn has_room_for_logs(&self) -> bool {
        (self.0)().is_none_or(|free| free >= MIN_FREE_FOR_LOGS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_free_bytes_to_levels() {
        let mib = |count: u64| Some(count << 20);
        for (free, space, expected) in [
            (None, DiskSpace::Ample, ""),
            (mib(64), DiskSpace::Ample, ""),
            (mib(63), DiskSpace::Low(63 << 20), "only 63 MiB are free"),
            (mib(16), DiskSpace::Low(16 << 20), "nothing new is started"),
            (mib(15), DiskSpace::Full(15 << 20), "nothing can be stored"),
            (Some(0), DiskSpace::Full(0), "only 0 MiB"),
        ] {
            assert_eq!(DiskSpace::from_free_bytes(free), space);
            let problem = space.problem().unwrap_or_default();
            assert!(problem.contains(expected), "{problem}");
            assert_eq!(problem.is_empty(), expected.is_empty(), "{problem}");
        }
    }
}
