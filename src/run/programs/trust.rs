//! Whether a file could be replaced by code that works as the run's own user.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::process::{getegid, geteuid, getgroups};

/// How many links may one path lead through? The kernel's own limit.
const MAX_LINKS: u32 = 40;

/// The user that foreign code works as, and where it works.
#[derive(Debug, Clone)]
pub struct PathTrust {
    uid: u32,
    groups: Vec<u32>,
    /// Nothing below these is relied on, whoever owns it.
    excluded: Vec<PathBuf>,
    /// Whether the kernel can be asked what the user may write.
    is_own_user: bool,
}

/// Why a file is not relied on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path} {why}")]
pub struct UntrustedPathError {
    path: String,
    why: String,
}

impl UntrustedPathError {
    fn new(path: &Path, why: impl Into<String>) -> Self {
        Self {
            path: path.display().to_string(),
            why: why.into(),
        }
    }
}

impl PathTrust {
    /// The judge of what the process's own user may change. Nothing below the excluded folders is
    /// ever relied on.
    pub fn for_current_user(excluded: impl IntoIterator<Item = PathBuf>) -> Self {
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
        // `/` as a home folder is no place of its own.
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

    /// Follows a path from the root, link by link, and judges every folder on the way and the file.
    /// Answers where it leads.
    ///
    /// # Errors
    /// The first file or folder that the user could change, and why.
    pub fn verify(&self, path: &Path) -> Result<PathBuf, UntrustedPathError> {
        let unreadable = |path: &Path, error: std::io::Error| {
            UntrustedPathError::new(path, format!("cannot be read: {error}"))
        };
        if !path.is_absolute() {
            return Err(UntrustedPathError::new(path, "is no absolute path"));
        }
        let mut at = PathBuf::from("/");
        let root = at.metadata().map_err(|error| unreadable(&at, error))?;
        self.judge(&at, &root)?;
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
                self.judge(&next, &found)?;
                at = next;
                continue;
            }
            // Whoever cannot write its folder cannot change where a link leads.
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

    /// Judges one file or folder, links excluded.
    fn judge(&self, path: &Path, found: &Metadata) -> Result<(), UntrustedPathError> {
        let distrust = |why: String| Err(UntrustedPathError::new(path, why));
        if let Some(dir) = self.excluded.iter().find(|dir| path.starts_with(dir)) {
            return distrust(format!("lies in {}, where the agent works", dir.display()));
        }
        let (owner, group, mode) = (found.uid(), found.gid(), found.mode());
        if self.uid == 0 && owner != 0 {
            // Root may write everything; what others may write besides is not even its own.
            return distrust(format!("belongs to user {owner}, not to root"));
        }
        if self.uid != 0 && owner == self.uid {
            return distrust(format!("belongs to the run's own user {owner}"));
        }
        let by_group = mode & 0o020 != 0
            && match self.uid {
                0 => group != 0,
                _ => self.groups.contains(&group),
            };
        if mode & 0o002 != 0 || by_group {
            return distrust(format!(
                "may be written by others than root (mode {:o})",
                mode & 0o7777
            ));
        }
        // Access lists are not seen in the mode.
        let may_write = self.is_own_user
            && self.uid != 0
            && accessat(CWD, path, Access::WRITE_OK, AtFlags::EACCESS).is_ok();
        if may_write {
            return distrust(format!("may be written by the run's own user {}", self.uid));
        }
        Ok(())
    }
}

/// The names of a path, the last first.
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

    fn why(trust: &PathTrust, path: &Path) -> String {
        trust
            .verify(path)
            .map_or_else(|why| why.to_string(), |_| String::new())
    }

    #[test]
    fn programs_of_the_system_are_relied_on() {
        let trust = PathTrust::for_current_user([]);
        let shell = Path::new("/bin/sh");
        assert_eq!(trust.verify(shell), Ok(shell.canonicalize().unwrap()));
        let below = PathTrust::for_current_user([PathBuf::from("/"), PathBuf::from("/nowhere")]);
        assert!(below.verify(shell).is_ok());
    }

    #[test]
    fn nothing_below_a_temporary_folder_is_relied_on() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("git");
        std::fs::write(&file, "").unwrap();
        let plain = PathTrust::for_current_user([]);
        assert_ne!(why(&plain, &file), "");
        let excluding = PathTrust::for_current_user([PathBuf::from("/usr")]);
        assert!(why(&excluding, Path::new("/usr/bin")).contains("where the agent works"));
        assert!(why(&plain, Path::new("bin/sh")).contains("no absolute path"));
        assert!(why(&plain, Path::new("/nowhere/git")).contains("cannot be read"));
    }

    /// A root of our own, so that `/tmp` does not stand in the way.
    fn judged(uid: u32, owner: u32, group: u32, mode: u32) -> Option<bool> {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        // Only root may give files away; the other rows are for everybody.
        chown(&file, Some(owner), Some(group)).ok()?;
        std::fs::set_permissions(&file, PermissionsExt::from_mode(mode)).unwrap();
        let trust = PathTrust::of(uid, [uid, 50], []);
        let found = file.symlink_metadata().unwrap();
        Some(trust.judge(&file, &found).is_ok())
    }

    #[test]
    fn owner_group_and_mode_decide_for_root_and_for_others() {
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
            // The one row that a user can set up.
            let own = geteuid().as_raw();
            assert_eq!(judged(own, own, getegid().as_raw(), 0o555), Some(false));
            return;
        }
        for (uid, owner, group, mode, relied_on) in rows {
            let row = format!("user {uid}: {owner}:{group} {mode:o}");
            assert_eq!(judged(uid, owner, group, mode), Some(relied_on), "{row}");
        }
    }

    #[test]
    fn every_link_and_folder_on_the_way_counts() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir(at("folder")).unwrap();
        symlink("/bin/sh", at("folder/sh")).unwrap();
        symlink(at("folder/sh"), at("again")).unwrap();
        symlink(at("round"), at("round")).unwrap();
        // A link below a folder that may be written leads wherever its owner wants.
        let trust = PathTrust::for_current_user([dir.path().to_owned()]);
        for name in ["folder/sh", "again", "folder/../again", "round"] {
            assert_ne!(why(&trust, &at(name)), "", "{name}");
        }
        assert_eq!(why(&trust, Path::new("/usr/../bin/../bin/sh")), "");
    }
}
