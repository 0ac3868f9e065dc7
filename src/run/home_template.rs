//! Template of the home folder: a folder of the image with caches of package managers, which were filled from the lock
//! file when the image was built. See docs/repository-settings.md#package-caches.
//!
//! A layer of an image cannot be changed by a run, and package managers must write to their caches, so that each run gets
//! a copy.

use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use tokio::task::JoinHandle;

use crate::failure::RunFailure;
use domain::report::FailureCode;

/// Variable of the image with the path of the template.
pub(crate) const VARIABLE: &str = "AGENT_IMPLEMENT_HOME_TEMPLATE";

/// Copy in progress, on a thread of its own.
pub(crate) struct HomeCopy(Option<JoinHandle<Result<(), String>>>);

impl HomeCopy {
    /// Begins to copy a template, if there is one, into an empty home folder.
    pub(crate) fn begin(template: Option<&Path>, home: io::Result<PathBuf>) -> Self {
        let Some(template) = template.map(Path::to_owned) else {
            return Self(None);
        };
        Self(Some(tokio::task::spawn_blocking(move || {
            let home = home.map_err(|error| error.to_string())?;
            copy_folder(&template, &home)
        })))
    }

    /// Waits for the end of the copy.
    ///
    /// # Errors
    /// If the template is missing, or cannot be copied.
    pub(crate) async fn end(self) -> Result<(), RunFailure> {
        let Some(copy) = self.0 else {
            return Ok(());
        };
        let copied = copy.await.unwrap_or_else(|error| Err(error.to_string()));
        copied.map_err(|cause| {
            let reason = format!("cannot copy the folder of {VARIABLE}: {cause}");
            RunFailure::new(FailureCode::SetupFailed, reason)
        })
    }
}

/// Copies files, folders and links. The copies of folders are writable: those of Go's cache are not.
fn copy_folder(from: &Path, to: &Path) -> Result<(), String> {
    let failed = |error: io::Error| format!("{}: {error}", from.display());
    for entry in fs::read_dir(from).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        let failed = |error: io::Error| format!("{}: {error}", path.display());
        let kind = entry.file_type().map_err(failed)?;
        if kind.is_dir() {
            fs::create_dir_all(&target).map_err(failed)?;
            copy_folder(&path, &target)?;
        } else if kind.is_symlink() {
            let link = fs::read_link(&path);
            link.and_then(|link| symlink(link, &target))
                .map_err(failed)?;
        } else if kind.is_file() {
            fs::copy(&path, &target).map_err(failed)?;
            let mode = fs::metadata(&target).map_err(failed)?.permissions().mode();
            let writable = fs::Permissions::from_mode(mode | 0o200);
            fs::set_permissions(&target, writable).map_err(failed)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn copies_files_and_links_and_makes_them_writable() {
        let folders = tempfile::tempdir().unwrap();
        let (template, home) = (folders.path().join("template"), folders.path().join("home"));
        let cache = template.join("go/pkg");
        fs::create_dir_all(&cache).unwrap();
        fs::create_dir(&home).unwrap();
        fs::write(cache.join("tool"), "tool").unwrap();
        symlink("tool", cache.join("link")).unwrap();
        symlink("/nowhere", cache.join("dangling")).unwrap();
        fs::set_permissions(cache.join("tool"), fs::Permissions::from_mode(0o555)).unwrap();
        fs::set_permissions(&cache, fs::Permissions::from_mode(0o555)).unwrap();

        let copy = HomeCopy::begin(Some(&template), Ok(home.clone()));
        copy.end().await.unwrap();
        let copied = home.join("go/pkg");
        assert_eq!(fs::read_to_string(copied.join("link")).unwrap(), "tool");
        assert_eq!(
            fs::read_link(copied.join("dangling")).unwrap(),
            Path::new("/nowhere")
        );
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&copied.join("tool")), 0o755);
        assert_eq!(mode(&copied) & 0o700, 0o700);
        fs::set_permissions(&cache, fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[tokio::test]
    async fn a_missing_template_is_a_failure_that_names_it() {
        let home = tempfile::tempdir().unwrap();
        let template = Path::new("/nowhere/template");
        let copy = HomeCopy::begin(Some(template), Ok(home.path().to_owned()));
        let failure = copy.end().await.unwrap_err();
        assert_eq!(failure.code, Some(FailureCode::SetupFailed));
        for part in [VARIABLE, "/nowhere/template"] {
            assert!(failure.reason.contains(part), "{}", failure.reason);
        }
        assert!(
            HomeCopy::begin(None, Ok(PathBuf::new()))
                .end()
                .await
                .is_ok()
        );
    }
}
