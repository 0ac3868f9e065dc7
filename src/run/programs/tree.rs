//! Folder of programs that the run's own user can write, and whose every file is compared before each use.
//!
//! An agent that the run has installed for itself could be changed by code of the repository: its launcher, a
//! file that it loads, or a module that it would find before or after its own. So the identity of every entry
//! is recorded right after the installation, before any foreign code runs, and compared before each start. The
//! identity holds the inode and the change time, which the kernel sets and no user can set back, so no content
//! is read again. No foreign process is alive at that moment: the run kills them first. What changes later
//! affects only the pass that is running, whose key its commands can read anyway.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::{LoadedFile, ProgramError};

/// Maximum number of entries of a folder.
const MAX_ENTRIES: usize = 200_000;

/// Folder in which Node.js looks for modules, in every folder above a file.
const MODULES: &str = "node_modules";

/// Recorded entries of a folder, and of the places above it in which Node.js looks for modules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProgramTree {
    root: PathBuf,
    /// Every entry in a fixed order, the root first.
    entries: Vec<TreeEntry>,
    /// Module folders above the root. Usually none exists.
    modules_above: Vec<LoadedFile>,
}

/// Entry of a folder. A symbolic link is recorded itself, not its target.
#[derive(Debug, Clone, PartialEq, Eq)]
struct TreeEntry {
    path: PathBuf,
    device: u64,
    inode: u64,
    mode: u32,
    owner: (u32, u32),
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl TreeEntry {
    fn from_path(path: PathBuf) -> io::Result<(Self, bool)> {
        let metadata = path.symlink_metadata()?;
        let entry = Self {
            path,
            device: metadata.dev(),
            inode: metadata.ino(),
            mode: metadata.mode(),
            owner: (metadata.uid(), metadata.gid()),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        };
        Ok((entry, metadata.is_dir()))
    }
}

impl ProgramTree {
    /// Records a folder.
    ///
    /// # Errors
    /// The folder cannot be read, or has too many entries.
    pub(crate) fn record(root: &Path) -> io::Result<Self> {
        let (first, _) = TreeEntry::from_path(root.to_owned())?;
        let (mut entries, mut folders) = (vec![first], vec![root.to_owned()]);
        while let Some(folder) = folders.pop() {
            let mut paths = Vec::new();
            for entry in fs::read_dir(&folder)? {
                paths.push(entry?.path());
            }
            paths.sort();
            for path in paths {
                if entries.len() >= MAX_ENTRIES {
                    let problem = format!("it has more than {MAX_ENTRIES} files");
                    return Err(io::Error::other(problem));
                }
                let (entry, is_folder) = TreeEntry::from_path(path.clone())?;
                entries.push(entry);
                folders.extend(is_folder.then_some(path));
            }
        }
        let above = root.ancestors().skip(1);
        let above = above.filter(|folder| folder.file_name().is_none_or(|name| name != MODULES));
        Ok(Self {
            root: root.to_owned(),
            entries,
            modules_above: above
                .map(|folder| LoadedFile::from_path(folder.join(MODULES)))
                .collect(),
        })
    }

    /// Verifies that nothing was changed, added or removed since the folder was recorded.
    ///
    /// # Errors
    /// [`ProgramError::Changed`] with the first entry that differs.
    pub(crate) fn verify_unchanged(&self) -> Result<(), ProgramError> {
        let changed = |path: &Path| ProgramError::Changed(path.to_owned());
        for modules in &self.modules_above {
            modules
                .verify_unchanged()
                .map_err(|_| changed(modules.path()))?;
        }
        let now = Self::record(&self.root).map_err(|_| changed(&self.root))?;
        let pairs = self.entries.iter().zip(&now.entries);
        let differing = pairs.filter(|(before, after)| before != after);
        // The time of a folder changes with its entries; the entry itself says more.
        let differing = differing
            .map(|(before, _)| before.path.as_path())
            .next_back();
        match differing {
            Some(path) => Err(changed(path)),
            None if self.entries.len() != now.entries.len() => Err(changed(&self.root)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn installation() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("agent/node_modules");
        fs::create_dir_all(root.join("cli/lib")).unwrap();
        fs::create_dir_all(root.join(".bin")).unwrap();
        for (file, text) in [
            ("cli/cli.js", "#!/usr/bin/env node\n"),
            ("cli/lib/a.js", "a"),
        ] {
            fs::write(root.join(file), text).unwrap();
        }
        symlink("../cli/cli.js", root.join(".bin/cli")).unwrap();
        (dir, root)
    }

    #[test]
    fn an_unchanged_installation_passes_again_and_again() {
        let (_dir, root) = installation();
        let tree = ProgramTree::record(&root).unwrap();
        assert_eq!(tree.entries.len(), 7);
        for _ in 0..2 {
            fs::read(root.join("cli/lib/a.js")).unwrap();
            assert_eq!(tree.verify_unchanged(), Ok(()));
        }
    }

    type Attack = fn(&Path);

    #[test]
    fn every_way_to_change_what_runs_is_found() {
        let attacks: [(&str, Attack); 12] = [
            ("rewrite a library", |root| {
                fs::write(root.join("cli/lib/a.js"), "b").unwrap()
            }),
            ("rewrite with the same size and times", |root| {
                let path = root.join("cli/lib/a.js");
                let before = path.metadata().unwrap();
                let file = fs::File::options().write(true).open(&path).unwrap();
                std::io::Write::write_all(&mut &file, b"X").unwrap();
                file.set_modified(before.modified().unwrap()).unwrap();
            }),
            ("replace a file", |root| {
                fs::write(root.join("new"), "a").unwrap();
                fs::rename(root.join("new"), root.join("cli/lib/a.js")).unwrap();
            }),
            ("redirect the launcher", |root| {
                fs::remove_file(root.join(".bin/cli")).unwrap();
                symlink("/bin/true", root.join(".bin/cli")).unwrap();
            }),
            ("add a module", |root| {
                fs::create_dir_all(root.join("evil")).unwrap();
            }),
            ("add a nested module", |root| {
                fs::create_dir_all(root.join("cli/node_modules/evil")).unwrap();
            }),
            ("plant a module above", |root| {
                let above = root.ancestors().nth(2).unwrap();
                fs::create_dir(above.join("node_modules")).unwrap();
            }),
            ("remove a file", |root| {
                fs::remove_file(root.join("cli/lib/a.js")).unwrap()
            }),
            ("make a file executable", |root| {
                let mode = fs::Permissions::from_mode(0o777);
                fs::set_permissions(root.join("cli/cli.js"), mode).unwrap();
            }),
            ("exchange the whole folder", |root| {
                let copy = root.with_file_name("copy");
                let status = std::process::Command::new("cp")
                    .arg("-a")
                    .args([root, &copy])
                    .status();
                assert!(status.unwrap().success());
                fs::remove_dir_all(root).unwrap();
                fs::rename(copy, root).unwrap();
            }),
            ("replace the folder by a link", |root| {
                let other = root.with_file_name("other");
                fs::rename(root, &other).unwrap();
                symlink(&other, root).unwrap();
            }),
            ("remove everything", |root| {
                fs::remove_dir_all(root).unwrap()
            }),
        ];
        for (attack, change) in attacks {
            let (_dir, root) = installation();
            std::thread::sleep(std::time::Duration::from_millis(20));
            let tree = ProgramTree::record(&root).unwrap();
            change(&root);
            let result = tree.verify_unchanged();
            assert!(
                matches!(result, Err(ProgramError::Changed(_))),
                "{attack}: {result:?}"
            );
        }
    }
}
