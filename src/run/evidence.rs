//! Evidence: files that the `verify` script leaves for people, collected by the run.
//!
//! The folder is outside of the work tree. Its content is untrusted: only regular files are read, by their name in the
//! opened folder, and no link is followed. Processes of the script must be killed before. The rules on content and names
//! are in [`domain::evidence`].

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};

use crate::console::Console;
use crate::folders::{self, Folders};
use domain::evidence::{EvidenceFile, EvidenceFiles, EvidenceRedactor};
use domain::sanitize;

/// Maximum number of entries that are looked at.
const MAX_ENTRIES: usize = 1000;

/// Maximum number of reasons that are returned.
const MAX_REASONS: usize = 20;

/// Maximum length of a name in a reason, in characters.
const MAX_SHOWN_NAME: usize = 100;

/// Files of a run, and why others do not count.
#[derive(Debug, Default)]
pub(crate) struct Collected {
    /// Files.
    pub files: Vec<EvidenceFile>,
    /// Sentences about entries that do not count.
    pub refused: Vec<String>,
}

/// Files that nobody received, of a run that cannot report to the orchestrator. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct UnsentEvidence(Arc<Mutex<Vec<EvidenceFile>>>);

impl UnsentEvidence {
    /// Replaces the files.
    pub(crate) fn put(&self, files: Vec<EvidenceFile>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = files;
    }

    /// Takes the files.
    pub(crate) fn take(&self) -> Vec<EvidenceFile> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl EvidenceRedactor for Console {
    fn sanitize(&self, text: &str) -> String {
        Console::sanitize(self, text)
    }

    fn contains_secret(&self, bytes: &[u8]) -> bool {
        Console::contains_secret(self, bytes)
    }
}

/// Creates the empty folder for the files. Whatever is in its place is removed.
///
/// # Errors
/// If the folder cannot be created.
pub(crate) fn make_folder(folders: &Folders) -> io::Result<PathBuf> {
    let path = folders.evidence();
    folders::remove(&path)?;
    std::fs::create_dir(&path)?;
    Ok(path)
}

/// Reads the files in the folder, in the order of their names.
///
/// # Errors
/// If the folder cannot be read.
pub(crate) fn collect(folder: &Path, redactor: &impl EvidenceRedactor) -> io::Result<Collected> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = rustix::fs::open(folder, flags, Mode::empty())?;
    let (names, is_complete) = names(&folder)?;
    let (mut files, mut collected) = (EvidenceFiles::default(), Collected::default());
    let mut omitted = 0;
    for name in names {
        let shown = String::from_utf8_lossy(&name).into_owned();
        let read = files.room().map_err(|reason| reason.to_string());
        let read = read.and_then(|room| read_file(&folder, &name, room));
        let added = read.and_then(|content| {
            let added = files.add(&shown, content, redactor);
            added.map_err(|reason| reason.to_string())
        });
        match added {
            Err(reason) if collected.refused.len() < MAX_REASONS => {
                let shown = redactor.sanitize(&shown);
                let shown = sanitize::single_line(&shown);
                let shown = sanitize::truncate_chars(shown, MAX_SHOWN_NAME, sanitize::ELLIPSIS);
                collected.refused.push(format!("\"{shown}\": {reason}"));
            }
            Err(_) => omitted += 1,
            Ok(()) => {}
        }
    }
    match (omitted, is_complete) {
        (0, true) => {}
        (0, false) => collected
            .refused
            .push(format!("more than {MAX_ENTRIES} files")),
        (more, true) => collected.refused.push(format!("{more} more files")),
        (more, false) => collected.refused.push(format!("more than {more} files")),
    }
    collected.files = files.into_files();
    Ok(collected)
}

/// Returns the sorted names in a folder, and whether they are all.
fn names(folder: &OwnedFd) -> io::Result<(Vec<Vec<u8>>, bool)> {
    let mut names = Vec::new();
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if matches!(name, b"." | b"..") {
            continue;
        }
        if names.len() == MAX_ENTRIES {
            return Ok((sorted(names), false));
        }
        names.push(name.to_vec());
    }
    Ok((sorted(names), true))
}

fn sorted(mut names: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    names.sort_unstable();
    names
}

/// Reads a regular file of at most `room` bytes.
fn read_file(folder: &OwnedFd, name: &[u8], room: usize) -> Result<Vec<u8>, String> {
    let unreadable = |error: io::Error| format!("it cannot be read: {error}");
    let found = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW);
    let found = found.map_err(|error| unreadable(error.into()))?;
    // Opening a device or a FIFO has effects of its own.
    match FileType::from_raw_mode(found.st_mode) {
        FileType::RegularFile => {}
        FileType::Directory => return Err("it is a folder".to_owned()),
        FileType::Symlink => return Err("it is a link".to_owned()),
        _ => return Err("it is not a regular file".to_owned()),
    }
    let flags =
        OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let opened = rustix::fs::openat(folder, name, flags, Mode::empty());
    let file = File::from(opened.map_err(|error| unreadable(error.into()))?);
    let found = file.metadata().map_err(unreadable)?;
    if !found.is_file() {
        return Err("it is not a regular file".to_owned());
    }
    // One byte more than there is room for is too large, and more is not read.
    let mut content = Vec::new();
    let read = file.take(room as u64 + 1).read_to_end(&mut content);
    read.map_err(unreadable)?;
    Ok(content)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::process::Command;

    use super::*;
    use crate::run_log::RunLog;
    use domain::evidence::{MAX_BYTES, MAX_FILES};
    use vendors::http::Redactor;

    const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR";

    fn console() -> Console {
        Console::plain(Redactor::new(["the-secret-value"]), RunLog::default())
    }

    fn folder() -> (Folders, PathBuf) {
        let folders = Folders::new(&tempfile::env::temp_dir()).unwrap();
        let path = make_folder(&folders).unwrap();
        (folders, path)
    }

    #[test]
    fn only_regular_files_are_read() {
        let (_folders, path) = folder();
        let put = |name: &str, content: &[u8]| std::fs::write(path.join(name), content).unwrap();
        put("shot.png", PNG);
        put("report.txt", b"2 passed, the-secret-value");
        put("empty.txt", b"");
        put("latin1.txt", b"caf\xe9");
        put("page.png", b"<html><script>alert(1)</script>");
        put("evil\n.txt", b"x");
        symlink("/etc/passwd", path.join("passwd.txt")).unwrap();
        symlink("/proc/self/environ", path.join("environ.txt")).unwrap();
        symlink("report.txt", path.join("same.txt")).unwrap();
        std::fs::create_dir_all(path.join("deep/er")).unwrap();
        let fifo = Command::new("mkfifo").arg(path.join("fifo.txt")).status();
        assert!(fifo.unwrap().success());
        let socket = std::os::unix::net::UnixListener::bind(path.join("socket.txt")).unwrap();
        let collected = collect(&path, &console()).unwrap();
        let found = collected.files.iter();
        let found: Vec<(&str, &[u8])> = found
            .map(|file| (file.name.as_str(), file.content.as_slice()))
            .collect();
        assert_eq!(
            found,
            [
                ("evil-.txt", b"x".as_slice()),
                ("page.png.txt", b"<html><script>alert(1)</script>"),
                ("report.txt", b"2 passed, [redacted]"),
                ("shot.png", PNG),
            ]
        );
        assert_eq!(
            collected.refused,
            [
                "\"deep\": it is a folder",
                "\"empty.txt\": it is empty",
                "\"environ.txt\": it is a link",
                "\"fifo.txt\": it is not a regular file",
                "\"latin1.txt\": it is neither a PNG image nor UTF-8 text",
                "\"passwd.txt\": it is a link",
                "\"same.txt\": it is a link",
                "\"socket.txt\": it is not a regular file",
            ]
        );
        drop(socket);
    }

    #[test]
    fn number_and_size_are_limited() {
        let (folders, path) = folder();
        let sparse = File::create(path.join("00-sparse.png")).unwrap();
        sparse.set_len(1 << 40).unwrap();
        std::fs::write(path.join("01-large.txt"), "x".repeat(MAX_BYTES + 1)).unwrap();
        for number in 10..(10 + MAX_FILES + 2) {
            std::fs::write(path.join(format!("{number}.txt")), "x").unwrap();
        }
        for number in 0..MAX_ENTRIES {
            std::fs::write(path.join(format!("z{number}")), "x").unwrap();
        }
        let collected = collect(&path, &console()).unwrap();
        assert_eq!(collected.files.len(), MAX_FILES);
        assert!(
            collected.refused.len() == MAX_REASONS + 1,
            "{:?}",
            collected.refused
        );
        let too_large =
            |name: &str| format!("\"{name}\": the files of a run may have 5 MiB together");
        // Of so many entries, which the first thousand are depends on the file system.
        for reason in &collected.refused[..MAX_REASONS] {
            let is_known = [too_large("00-sparse.png"), too_large("01-large.txt")].contains(reason)
                || reason.ends_with("a run may leave 10 files");
            assert!(is_known, "{reason}");
        }
        let again = make_folder(&folders).unwrap();
        assert!(collect(&again, &console()).unwrap().files.is_empty());
    }

    #[test]
    fn a_link_in_place_of_the_folder_is_replaced() {
        let (folders, path) = folder();
        let elsewhere = folders.make("elsewhere").unwrap();
        std::fs::write(elsewhere.join("a.txt"), "a").unwrap();
        std::fs::remove_dir(&path).unwrap();
        symlink(&elsewhere, &path).unwrap();
        assert!(collect(&path, &console()).is_err());
        let again = make_folder(&folders).unwrap();
        assert!(!again.is_symlink() && elsewhere.join("a.txt").exists());
    }
}
