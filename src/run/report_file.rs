//! Report file of a CI run that cannot reach the service. The workflow uploads it as an artifact.
//!
//! The agent has the same user. It may have put anything in place of the file, or replace the file later.
//! That only loses the report: the service accepts nothing without a signature by the key of the job, which
//! no process of the agent can read.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::environment::Environment;
use crate::random::random_hex;
use domain::ids::JobId;
use domain::report::{ResultReport, StepRecord};
use domain::report_artifact::{self, FILE, ReportOrigin};
use domain::secret::Secret;

/// Report file to be written at the end of the run.
pub(crate) struct ReportFile {
    path: PathBuf,
    key: Secret,
    origin: ReportOrigin,
}

impl ReportFile {
    /// Returns the file of a run with this key. `None` outside a CI job. Removes the file of an earlier job
    /// on the same runner.
    pub(crate) fn prepare(
        environment: &Environment,
        dispatch_id: JobId,
        key: Secret,
    ) -> Option<Self> {
        let file = Self {
            path: environment.workspace.as_ref()?.join(FILE),
            key,
            origin: ReportOrigin {
                dispatch_id,
                run_id: environment.run_id?,
                run_attempt: environment.run_attempt,
            },
        };
        // If this fails, so does writing the report, which is logged.
        let _ = move_away(&file.path);
        Some(file)
    }

    /// Writes the signed report.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(crate) fn write(&self, result: &ResultReport, steps: &[StepRecord]) -> io::Result<()> {
        let content = report_artifact::sign(&self.key, &self.origin, result, steps)?;
        move_away(&self.path)?;
        // A new file: links are not followed.
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o644)
            .open(&self.path)?;
        file.write_all(content.as_bytes())
    }
}

/// Removes whatever has this path. A folder is renamed, because it may be too large to delete in time.
fn move_away(path: &Path) -> io::Result<()> {
    let found = match fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    match found.is_dir() {
        true => fs::rename(path, path.with_extension(random_hex())),
        false => fs::remove_file(path),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn removes_links_folders_and_files_in_its_place() {
        let dir = tempfile::tempdir().unwrap();
        let (path, victim) = (dir.path().join(FILE), dir.path().join("victim"));
        fs::write(&victim, "kept").unwrap();
        move_away(&path).unwrap();
        symlink(&victim, &path).unwrap();
        move_away(&path).unwrap();
        fs::create_dir_all(path.join("deep/folder")).unwrap();
        move_away(&path).unwrap();
        fs::write(&path, "planted").unwrap();
        move_away(&path).unwrap();
        assert!(fs::symlink_metadata(&path).is_err());
        assert_eq!(fs::read_to_string(&victim).unwrap(), "kept");
    }
}
