//! Daily log files with limited size and retention.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use domain::time::Timestamp;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

const PREFIX: &str = "agent-implement.";
const SUFFIX: &str = ".log";

/// Maximum size of a daily file in bytes. The store is on the same disk, and logs must not fill it. Lines
/// above the limit go to standard error only.
pub(super) const MAX_FILE_BYTES: u64 = 256 << 20;

/// Writer to the file of the current day (UTC).
pub(super) struct DailyLogFiles<Now> {
    dir: PathBuf,
    /// Number of days that files are kept, including today.
    keep_days: u32,
    max_bytes: u64,
    now: Now,
    open: Option<OpenFile>,
}

/// Open file of one day.
struct OpenFile {
    day: String,
    file: File,
    written: u64,
    is_full: bool,
}

impl<Now: FnMut() -> Timestamp> DailyLogFiles<Now> {
    /// Opens today's file. A full disk is not an error: opening is retried with every line.
    ///
    /// # Errors
    /// If the file cannot be written for another reason.
    pub(super) fn start(dir: &Path, keep_days: u32, max_bytes: u64, now: Now) -> io::Result<Self> {
        let mut files = Self {
            dir: dir.to_owned(),
            keep_days,
            max_bytes,
            now,
            open: None,
        };
        match files.today() {
            Err(error) if is_full(&error) => {}
            Err(error) => return Err(error),
            Ok(_) => {}
        }
        Ok(files)
    }

    fn today(&mut self) -> io::Result<&mut OpenFile> {
        let now = (self.now)();
        let day = day(now);
        let current = self.open.take().filter(|open| open.day == day);
        let open = match current {
            Some(open) => open,
            None => {
                prune(&self.dir, now, self.keep_days);
                OpenFile::open(&self.dir, day)?
            }
        };
        Ok(self.open.insert(open))
    }
}

impl OpenFile {
    fn open(dir: &Path, day: String) -> io::Result<Self> {
        std::fs::create_dir_all(dir)?;
        let path = dir.join(format!("{PREFIX}{day}{SUFFIX}"));
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        let written = file.metadata()?.len();
        Ok(Self {
            day,
            file,
            written,
            is_full: false,
        })
    }
}

impl<Now: FnMut() -> Timestamp> Write for DailyLogFiles<Now> {
    /// Writes a whole line. Lines above the size limit are dropped; a final line records that.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let (max_bytes, now) = (self.max_bytes, (self.now)());
        let open = self.today()?;
        if open.written + line.len() as u64 <= max_bytes && !open.is_full {
            open.file.write_all(line)?;
            open.written += line.len() as u64;
        } else if !open.is_full {
            open.is_full = true;
            writeln!(
                open.file,
                r#"{{"timestamp":"{now}","level":"WARN","message":"Daily log file is full; the rest of the day is only on standard error."}}"#
            )?;
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.open {
            Some(open) => open.file.flush(),
            None => Ok(()),
        }
    }
}

fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind as Kind;
    matches!(error.kind(), Kind::StorageFull | Kind::QuotaExceeded)
}

fn day(at: Timestamp) -> String {
    at.to_string().chars().take_while(|c| *c != 'T').collect()
}

/// Removes log files that are older than the retention. Failed removals are retried the next day.
fn prune(dir: &Path, now: Timestamp, keep_days: u32) {
    let oldest = day(now - DAY * keep_days.saturating_sub(1));
    let Ok(entries) = std::fs::read_dir(dir) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let file_day = name
            .to_str()
            .and_then(|name| name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX));
        if file_day.is_some_and(|day| is_day(day) && *day < *oldest) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

fn is_day(text: &str) -> bool {
    Timestamp::parse(&format!("{text}T00:00:00Z")).is_some()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn at(text: &str) -> Timestamp {
        Timestamp::parse(text).unwrap()
    }

    fn names(dir: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(dir).unwrap();
        let name = |entry: io::Result<std::fs::DirEntry>| entry.unwrap().file_name();
        let mut names: Vec<String> = entries
            .map(|entry| name(entry).into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn writes_one_file_per_day_and_removes_old_ones() {
        let dir = tempfile::tempdir().unwrap();
        for other in [
            "agent-implement.notes.log",
            "agent-implement.2026-11-01.txt",
        ] {
            std::fs::write(dir.path().join(other), "other").unwrap();
        }
        let now = Cell::new(at("2026-11-20T23:59:59.999Z"));
        let mut files = DailyLogFiles::start(dir.path(), 3, MAX_FILE_BYTES, || now.get()).unwrap();
        for day in 0..6 {
            writeln!(files, "line of day {day}").unwrap();
            now.set(now.get() + DAY);
        }
        assert_eq!(
            names(dir.path()),
            [
                "agent-implement.2026-11-01.txt",
                "agent-implement.2026-11-23.log",
                "agent-implement.2026-11-24.log",
                "agent-implement.2026-11-25.log",
                "agent-implement.notes.log",
            ]
        );
        let last = std::fs::read_to_string(dir.path().join("agent-implement.2026-11-25.log"));
        assert_eq!(last.unwrap(), "line of day 5\n");
    }

    #[test]
    fn appends_to_the_same_file_after_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let now = Cell::new(at("2026-11-21T10:00:00Z"));
        for _ in 0..5 {
            let mut files =
                DailyLogFiles::start(dir.path(), 1, MAX_FILE_BYTES, || now.get()).unwrap();
            writeln!(files, "started").unwrap();
        }
        let path = dir.path().join("agent-implement.2026-11-21.log");
        assert_eq!(
            std::fs::read_to_string(path).unwrap(),
            "started\n".repeat(5)
        );
    }

    #[test]
    fn stops_at_the_size_limit_until_the_next_day() {
        let dir = tempfile::tempdir().unwrap();
        let now = Cell::new(at("2026-11-21T10:00:00Z"));
        let mut files = DailyLogFiles::start(dir.path(), 2, 100, || now.get()).unwrap();
        for _ in 0..500 {
            files
                .write_all(b"0123456789012345678901234567890123456789\n")
                .unwrap();
        }
        let today = dir.path().join("agent-implement.2026-11-21.log");
        let content = std::fs::read_to_string(&today).unwrap();
        let lines: Vec<&str> = content.lines().collect();
        assert_eq!(lines.len(), 3, "{content}");
        assert!(lines[2].contains("log file is full"), "{content}");
        serde_json::from_str::<serde_json::Value>(lines[2]).unwrap();
        now.set(now.get() + DAY);
        files.write_all(b"a new day\n").unwrap();
        let tomorrow = dir.path().join("agent-implement.2026-11-22.log");
        assert_eq!(std::fs::read_to_string(tomorrow).unwrap(), "a new day\n");
    }
}
