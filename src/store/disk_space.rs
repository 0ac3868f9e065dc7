//! How much room the disk has for the store.
//!
//! A commit that fails for want of room ends the process, so it is looked before: while there is
//! little, nothing new begins and what is under way is seen to its end; while there is next to none,
//! writes are refused and reads go on, until there is room again.

use std::path::Path;
use std::sync::Arc;

/// Below this many free bytes, nothing new begins.
pub const MIN_FREE_FOR_NEW_WORK: u64 = 64 << 20;

/// Below this many free bytes, nothing is written: more than what may wait for one commit needs.
pub const MIN_FREE_FOR_WRITES: u64 = 16 << 20;

/// What the free space allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskSpace {
    Ample,
    /// Only what is under way goes on; so many bytes are free.
    Low(u64),
    /// Nothing can be written; so many bytes are free.
    Full(u64),
}

impl DiskSpace {
    /// What follows from so many free bytes; nothing does where they are not known.
    fn of(free: Option<u64>) -> Self {
        match free {
            Some(free) if free < MIN_FREE_FOR_WRITES => DiskSpace::Full(free),
            Some(free) if free < MIN_FREE_FOR_NEW_WORK => DiskSpace::Low(free),
            Some(_) | None => DiskSpace::Ample,
        }
    }

    /// What is wrong, in a clause for operators; none while nothing is.
    pub fn problem(self) -> Option<String> {
        let (free, what) = match self {
            DiskSpace::Ample => return None,
            DiskSpace::Low(free) => (free, "nothing new is started"),
            DiskSpace::Full(free) => (free, "nothing can be stored"),
        };
        Some(format!(
            "only {} MiB are free on the disk of DATA_DIR: {what}",
            free >> 20
        ))
    }
}

/// How many bytes are free where a folder is; none where that cannot be told.
pub fn free_bytes(dir: &Path) -> Option<u64> {
    let disk = rustix::fs::statvfs(dir).ok()?;
    Some(disk.f_bavail.saturating_mul(disk.f_frsize))
}

/// Tells the free bytes of the disk that a store is on.
#[derive(Clone)]
pub(super) struct DiskSpaceProbe(Arc<dyn Fn() -> Option<u64> + Send + Sync>);

impl DiskSpaceProbe {
    pub(super) fn new(free: impl Fn() -> Option<u64> + Send + Sync + 'static) -> Self {
        Self(Arc::new(free))
    }

    pub(super) fn for_dir(dir: &Path) -> Self {
        let dir = dir.to_owned();
        Self::new(move || free_bytes(&dir))
    }

    /// Of a store that is on no disk.
    pub(super) fn unlimited() -> Self {
        Self::new(|| None)
    }

    pub(super) fn read(&self) -> DiskSpace {
        DiskSpace::of((self.0)())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_room_begins_nothing_and_next_to_none_writes_nothing() {
        let mib = |count: u64| Some(count << 20);
        for (free, space, told) in [
            (None, DiskSpace::Ample, ""),
            (mib(64), DiskSpace::Ample, ""),
            (mib(63), DiskSpace::Low(63 << 20), "only 63 MiB are free"),
            (mib(16), DiskSpace::Low(16 << 20), "nothing new is started"),
            (mib(15), DiskSpace::Full(15 << 20), "nothing can be stored"),
            (Some(0), DiskSpace::Full(0), "only 0 MiB"),
        ] {
            assert_eq!(DiskSpace::of(free), space);
            let trouble = space.problem().unwrap_or_default();
            assert!(trouble.contains(told), "{trouble}");
            assert_eq!(trouble.is_empty(), told.is_empty(), "{trouble}");
        }
    }
}
