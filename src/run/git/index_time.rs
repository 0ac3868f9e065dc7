//! Time of the index, by which git recognises changed files.
//!
//! Git compares whole seconds. A file that has the second of the index may have changed after the index was written, so
//! each command reads every such file again: most files right after a checkout. But nothing runs then that could change
//! one. So the index is one second ahead until foreign code runs.

use std::fs::File;
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};

const SECOND: Duration = Duration::from_secs(1);

/// Time by which the clock of a file system may be late.
const CLOCK_LAG: Duration = Duration::from_millis(20);

/// Sets the time of an index, which a checkout has written just now, to the next second.
pub(super) fn advance(index: &Path) -> io::Result<()> {
    let since_epoch = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    let next = Duration::from_secs(since_epoch.as_secs()) + SECOND;
    let file = File::options().write(true).open(index)?;
    file.set_modified(SystemTime::UNIX_EPOCH + next)
}

/// Sets the time of an index back if that second has not begun. Later changes of files could not be told apart.
pub(super) fn restore(index: &Path) -> io::Result<()> {
    let file = File::options().write(true).open(index)?;
    let modified = file.metadata()?.modified()?;
    match modified + CLOCK_LAG > SystemTime::now() {
        true => file.set_modified(modified - SECOND),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_ahead_until_it_is_restored() {
        let dir = tempfile::tempdir().unwrap();
        let index = dir.path().join("index");
        std::fs::write(&index, "").unwrap();
        let modified = || index.metadata().unwrap().modified().unwrap();
        let written = modified();
        advance(&index).unwrap();
        assert!(modified() > written);
        let ahead = modified();
        restore(&index).unwrap();
        assert_eq!(modified(), ahead - SECOND);
        // A second that has begun stays.
        restore(&index).unwrap();
        let begun = modified();
        std::thread::sleep(Duration::from_millis(1_050));
        restore(&index).unwrap();
        assert_eq!(modified(), begun);
    }
}
