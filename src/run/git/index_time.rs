//! Time of the index, by which git recognises changed files.
//!
//! Git compares times in whole seconds. A file that was changed in the second in which the index was written may have
//! changed afterwards, so git reads every such file again, in each command: after a checkout of 100 MB for half a second
//! each. Nothing runs right after the checkout that could change a file. So the index gets the time of the next second,
//! and foreign code starts only then. Its changes have that time or a later one.

use std::fs::File;
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// Longest time to wait. The agent could set the time of the index.
const MAX_WAIT: Duration = Duration::from_secs(1);

/// Time by which the clock of a file system may be late.
const CLOCK_LAG: Duration = Duration::from_millis(20);

/// Size of an index from which this is worth the time: about a thousand files. Others are read faster than a second ends.
const MIN_SIZE: u64 = 100 << 10;

/// Sets the time of an index to the next second. It must have been written just now, by a checkout.
pub(super) fn postpone(index: &Path) -> io::Result<()> {
    let file = File::options().write(true).open(index)?;
    if file.metadata()?.len() < MIN_SIZE {
        return Ok(());
    }
    let since_epoch = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    let next = Duration::from_secs(since_epoch.as_secs() + 1);
    file.set_modified(SystemTime::UNIX_EPOCH + next)
}

/// Returns the time until the index has no time in the future.
pub(super) fn remaining(index: &Path) -> Duration {
    let modified = index.metadata().and_then(|metadata| metadata.modified());
    let remaining = modified.map(|modified| modified.duration_since(SystemTime::now()));
    match remaining {
        Ok(Ok(remaining)) => (remaining + CLOCK_LAG).min(MAX_WAIT),
        Ok(Err(_)) | Err(_) => Duration::ZERO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_for_the_time_of_a_large_index_only() {
        let dir = tempfile::tempdir().unwrap();
        let index = dir.path().join("index");
        for (size, waits) in [(1 << 10, false), (1 << 20, true)] {
            std::fs::write(&index, vec![0; size]).unwrap();
            postpone(&index).unwrap();
            let left = remaining(&index);
            assert_eq!(!left.is_zero(), waits, "{size}: {left:?}");
            assert!(left <= MAX_WAIT);
        }
        let file = File::options().write(true).open(&index).unwrap();
        file.set_modified(SystemTime::now() + Duration::from_secs(1_000))
            .unwrap();
        assert_eq!(remaining(&index), MAX_WAIT);
        assert_eq!(remaining(Path::new("/nowhere")), Duration::ZERO);
    }
}
