//! Path trust: whether code of the run's own user could replace a file.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::process::{getegid, geteuid, getgroups};

/// Maximum number of symlinks in one path, as in the kernel.
const MAX_LINKS: u32 = 40;

/// Check whether a user can change files.
#[derive(Debug, Clone)]
pub(crate) struct PathTrust {
    /// User that untrusted code runs as.
    uid: u32,
    /// Groups of that user.
    groups: Vec<u32>,
    /// Folders whose contents are never trusted, regardless of their owner.
    excluded: Vec<PathBuf>,
    /// Whether the user is the process's own, so that `access` can be queried.
    is_own_user: bool,
}

/// Reason why a path is not trusted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path} {reason}")]
pub(crate) struct UntrustedPathError {
    path: String,
    reason: String,
}

impl UntrustedPathError {
    fn new(path: &Path, reason: impl Into<String>) -> Self {
        Self {
            path: path.display().to_string(),
            reason: reason.into(),
        }
    }
}

impl PathTrust {
    /// Creates the check for the current user. Nothing below the excluded folders is trusted.
    pub(crate) fn for_current_user(excluded: impl IntoIterator<Item = PathBuf>) -> Self {
        let groups = getgroups().unwrap_or_default().into_iter();
        let groups = groups.chain([getegid()]).map(|group| group.as_raw());
        Self {
            is_own_user: true,
            ..Self::of(geteuid().as_raw(), groups, excluded)
        }
    }

    fn of(
        uid: u32,
        groups: impl IntoIterator<Item = u32>,
        excluded: impl IntoIterator<Item = PathBuf>,
    ) -> Self {
        // A home folder of `/` would exclude every path.
        let excluded = excluded.into_iter().filter(|dir| dir.parent().is_some());
        Self {
            uid,
            groups: groups.into_iter().collect(),
            excluded: excluded
                .map(|dir| dir.canonicalize().unwrap_or(dir))
                .collect(),
            is_own_user: false,
        }
    }

    /// Follows a path from the root, link by link, and checks every folder and the file. Returns the
    /// canonical path.
    ///
    /// # Errors
    /// The first file or folder that the user could change, with the reason.
    pub(crate) fn verify(&self, path: &Path) -> Result<PathBuf, UntrustedPathError> {
        let unreadable = |path: &Path, error: std::io::Error| {
            UntrustedPathError::new(path, format!("cannot be read: {error}"))
        };
        if !path.is_absolute() {
            return Err(UntrustedPathError::new(path, "is not an absolute path"));
        }
        let mut at = PathBuf::from("/");
        let root = at.metadata().map_err(|error| unreadable(&at, error))?;
        self.check(&at, &root)?;
        let mut left = components(path);
        let mut links = 0;
        while let Some(name) = left.pop() {
            if name == ".." {
                at.pop();
                continue;
            }
            let next = at.join(&name);
            let found = next
                .symlink_metadata()
                .map_err(|error| unreadable(&next, error))?;
            if !found.is_symlink() {
                self.check(&next, &found)?;
                at = next;
                continue;
            }
            // A link cannot be changed by a user who cannot write its folder.
            links += 1;
            if links > MAX_LINKS {
                return Err(UntrustedPathError::new(
                    path,
                    "leads through too many links",
                ));
            }
            let target = next.read_link().map_err(|error| unreadable(&next, error))?;
            if target.is_absolute() {
                at = PathBuf::from("/");
            }
            left.extend(components(&target));
        }
        Ok(at)
    }

    /// Checks one file or folder that is not a link.
    fn check(&self, path: &Path, found: &Metadata) -> Result<(), UntrustedPathError> {
        let distrust = |reason: String| Err(UntrustedPathError::new(path, reason));
        if let Some(dir) = self.excluded.iter().find(|dir| path.starts_with(dir)) {
            return distrust(format!("is in {}, where the agent works", dir.display()));
        }
        let (owner, group, mode) = (found.uid(), found.gid(), found.mode());
        if self.uid == 0 && owner != 0 {
            // Root can write every file, so a file of another user is one that this user can write.
            return distrust(format!("is owned by user {owner}, not by root"));
        }
        if self.uid != 0 && owner == self.uid {
            return distrust(format!("is owned by the run's own user {owner}"));
        }
        let by_group = mode & 0o020 != 0
            && match self.uid {
                0 => group != 0,
                _ => self.groups.contains(&group),
            };
        if mode & 0o002 != 0 || by_group {
            return distrust(format!(
                "is writable by users other than root (mode {:o})",
                mode & 0o7777
            ));
        }
        // Access control lists are not visible in the mode.
        let may_write = self.is_own_user
            && self.uid != 0
            && accessat(CWD, path, Access::WRITE_OK, AtFlags::EACCESS).is_ok();
        if may_write {
            return distrust(format!("is writable by the run's own user {}", self.uid));
        }
        Ok(())
    }
}

/// Returns the components of a path in reverse order.
fn components(path: &Path) -> Vec<std::ffi::OsString> {
    let names = path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    });
    let mut names: Vec<_> = names.collect();
    names.reverse();
    names
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use super::*;

    fn distrust_reason(trust: &PathTrust, path: &Path) -> String {
        trust
            .verify(path)
            .map_or_else(|error| error.to_string(), |_| String::new())
    }

    #[test]
    fn trusts_system_programs() {
        let trust = PathTrust::for_current_user([]);
        let shell = Path::new("/bin/sh");
        assert_eq!(trust.verify(shell), Ok(shell.canonicalize().unwrap()));
        let below = PathTrust::for_current_user([PathBuf::from("/"), PathBuf::from("/nowhere")]);
        assert!(below.verify(shell).is_ok());
    }

    #[test]
    fn distrusts_files_in_temporary_folders() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("git");
        std::fs::write(&file, "").unwrap();
        let plain = PathTrust::for_current_user([]);
        assert_ne!(distrust_reason(&plain, &file), "");
        let excluding = PathTrust::for_current_user([PathBuf::from("/usr")]);
        let reason = distrust_reason(&excluding, Path::new("/usr/bin"));
        assert!(reason.contains("where the agent works"));
        assert!(distrust_reason(&plain, Path::new("bin/sh")).contains("not an absolute path"));
        assert!(distrust_reason(&plain, Path::new("/nowhere/git")).contains("cannot be read"));
    }

    /// Checks a file below the temporary folder on its own, because `/tmp` itself is not trusted.
    /// `None` if the test may not change the owner.
    fn is_trusted(uid: u32, owner: u32, group: u32, mode: u32) -> Option<bool> {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        // Only root can change the owner of a file.
        chown(&file, Some(owner), Some(group)).ok()?;
        std::fs::set_permissions(&file, PermissionsExt::from_mode(mode)).unwrap();
        let trust = PathTrust::of(uid, [uid, 50], []);
        let found = file.symlink_metadata().unwrap();
        Some(trust.check(&file, &found).is_ok())
    }

    #[test]
    fn decides_by_owner_group_and_mode() {
        let rows = [
            // user, owner, group, mode
            (1001, 0, 0, 0o755, true),
            (1001, 0, 7, 0o775, true),
            (1001, 0, 50, 0o775, false),
            (1001, 0, 1001, 0o664, false),
            (1001, 0, 0, 0o757, false),
            (1001, 1001, 0, 0o555, false),
            (1001, 7, 7, 0o755, true),
            (0, 0, 0, 0o755, true),
            (0, 0, 0, 0o775, true),
            (0, 0, 50, 0o775, false),
            (0, 0, 0, 0o757, false),
            (0, 1001, 0, 0o755, false),
        ];
        if !geteuid().is_root() {
            // The only row that a user can set up.
            let own = geteuid().as_raw();
            assert_eq!(is_trusted(own, own, getegid().as_raw(), 0o555), Some(false));
            return;
        }
        for (uid, owner, group, mode, trusted) in rows {
            let row = format!("user {uid}: {owner}:{group} {mode:o}");
            assert_eq!(is_trusted(uid, owner, group, mode), Some(trusted), "{row}");
        }
    }

    #[test]
    fn checks_every_link_and_folder_of_a_path() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir(at("folder")).unwrap();
        symlink("/bin/sh", at("folder/sh")).unwrap();
        symlink(at("folder/sh"), at("again")).unwrap();
        symlink(at("round"), at("round")).unwrap();
        // A link in a writable folder can be redirected by its owner.
        let trust = PathTrust::for_current_user([dir.path().to_owned()]);
        for name in ["folder/sh", "again", "folder/../again", "round"] {
            assert_ne!(distrust_reason(&trust, &at(name)), "", "{name}");
        }
        assert_eq!(
            distrust_reason(&trust, Path::new("/usr/../bin/../bin/sh")),
            ""
        );
    }
}
