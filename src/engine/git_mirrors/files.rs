//! Folders of mirrors.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use domain::git_mirror::{FOLDER, MARKER};
use domain::time::Timestamp;

/// Name of the folder that an update works in.
const NEW: &str = "new";

/// Time after which a generation is removed that was replaced: a container that mounted it has cloned.
const KEPT: Duration = Duration::from_secs(10 * 60);

/// Number of packs from which they are packed into one. Each fetch adds one.
const MAX_PACKS: usize = 10;

/// Folder of the mirror of one repository.
#[derive(Clone)]
pub(super) struct MirrorFolder(PathBuf);

/// Generation that is being made.
pub(super) struct NewGeneration {
    pub path: PathBuf,
    /// Whether it has the files of the newest generation.
    pub is_copy: bool,
}

impl MirrorFolder {
    pub(super) fn new(data_dir: &Path, key: &str) -> Self {
        Self(data_dir.join(FOLDER).join(key))
    }

    /// Returns the name of the newest complete generation.
    pub(super) fn newest(&self) -> Option<String> {
        let newest = self.generations().into_iter().max()?.to_string();
        let is_complete = self.0.join(&newest).join(MARKER).exists();
        is_complete.then_some(newest)
    }

    /// The same, unless it has more than `max_bytes`.
    pub(super) fn newest_up_to(&self, max_bytes: u64) -> Option<String> {
        let newest = self.newest()?;
        let bytes = size(&self.0.join(&newest)).ok()?;
        (bytes <= max_bytes).then_some(newest)
    }

    fn generations(&self) -> Vec<u64> {
        let entries = fs::read_dir(&self.0).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        names.filter_map(|name| name.parse().ok()).collect()
    }

    /// Makes the folder for a new generation, with the files of the newest one or empty. Removes what an update that
    /// was killed left behind.
    pub(super) fn prepare(&self, copies: bool) -> io::Result<NewGeneration> {
        self.discard()?;
        let path = self.0.join(NEW);
        let newest = self.newest().filter(|_| copies);
        match &newest {
            Some(newest) => link_folder(&self.0.join(newest), &path)?,
            None => fs::create_dir_all(&path)?,
        }
        Ok(NewGeneration {
            path,
            is_copy: newest.is_some(),
        })
    }

    /// Makes a new generation the newest one, unless nothing was fetched. Removes old ones.
    pub(super) fn publish(&self, new: &NewGeneration, now: Timestamp) -> io::Result<()> {
        let generations = self.generations();
        let newest = generations.iter().copied().max();
        let old = newest.map(|newest| self.0.join(newest.to_string()));
        let is_same = new.is_copy && old.is_some_and(|old| heads(&old) == heads(&new.path));
        if is_same {
            fs::remove_dir_all(&new.path)?;
        } else {
            make_readable(&new.path)?;
            // The clock may have been set back.
            let name = now.as_millis().max(newest.unwrap_or_default() + 1);
            fs::rename(&new.path, self.0.join(name.to_string()))?;
        }
        // A generation was replaced when the next one was made.
        let mut generations = generations;
        generations.sort_unstable();
        for pair in generations.windows(2) {
            if now.since(Timestamp::from_millis(pair[1])) > KEPT {
                remove_generation(&self.0.join(pair[0].to_string()))?;
            }
        }
        Ok(())
    }

    /// Removes the folder of a new generation that cannot be completed.
    pub(super) fn discard(&self) -> io::Result<()> {
        match fs::remove_dir_all(self.0.join(NEW)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

/// Whether a generation has so many packs that they should become one.
pub(super) fn has_many_packs(generation: &Path) -> io::Result<bool> {
    let files = fs::read_dir(generation.join("objects/pack"))?.flatten();
    let packs = files.filter(|file| file.path().extension().is_some_and(|end| end == "pack"));
    Ok(packs.count() > MAX_PACKS)
}

/// Removes the mirrors that were not updated for the longest time, until the others take up at most `limit` bytes.
pub(super) fn remove_above(data_dir: &Path, limit: u64) -> io::Result<()> {
    let mut mirrors = Vec::new();
    for entry in fs::read_dir(data_dir.join(FOLDER))? {
        let path = entry?.path();
        let updated = path
            .metadata()?
            .modified()
            .unwrap_or(SystemTime::UNIX_EPOCH);
        let bytes = size(&path)?;
        mirrors.push((updated, bytes, path));
    }
    mirrors.sort();
    let mut total: u64 = mirrors.iter().map(|(_, bytes, _)| bytes).sum();
    for (_, bytes, path) in mirrors {
        if total <= limit {
            break;
        }
        tracing::info!(bytes, "Removed the mirror of a repository for others.");
        for entry in fs::read_dir(&path)?.flatten() {
            remove_generation(&entry.path())?;
        }
        fs::remove_dir_all(&path)?;
        total -= bytes;
    }
    Ok(())
}

/// Removes a generation. A run that copies it at this time finds out by the marker, which is removed first.
fn remove_generation(path: &Path) -> io::Result<()> {
    match fs::remove_file(path.join(MARKER)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    fs::remove_dir_all(path)
}

/// Returns the branches with their commits.
fn heads(generation: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let mut folders = vec![generation.join("refs/heads")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            match path.is_dir() {
                true => folders.push(path),
                false => {
                    let name = path.strip_prefix(generation).unwrap_or(&path).to_owned();
                    found.push((name, fs::read(&path).unwrap_or_default()));
                }
            }
        }
    }
    found.sort();
    found
}

/// Links every file of a folder into a new one. Git never changes a file in place.
fn link_folder(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        match entry.file_type()?.is_dir() {
            true => link_folder(&entry.path(), &target)?,
            false => fs::hard_link(entry.path(), target)?,
        }
    }
    Ok(())
}

/// Lets the user of containers read a generation. The service's umask permits only its own user.
fn make_readable(path: &Path) -> io::Result<()> {
    let metadata = path.symlink_metadata()?;
    if metadata.is_dir() {
        for entry in fs::read_dir(path)? {
            make_readable(&entry?.path())?;
        }
        return fs::set_permissions(path, fs::Permissions::from_mode(0o755));
    }
    fs::set_permissions(path, fs::Permissions::from_mode(0o444))
}

/// Returns the size of the files below a folder. Those with several links count once.
pub(super) fn size(folder: &Path) -> io::Result<u64> {
    let (mut total, mut seen) = (0, HashSet::new());
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            match entry.metadata() {
                Ok(metadata) if metadata.is_dir() => folders.push(entry.path()),
                Ok(metadata) if seen.insert(metadata.ino()) => total += metadata.len(),
                // Git removes temporary files.
                Ok(_) | Err(_) => {}
            }
        }
    }
    Ok(total)
}
