//! Report file of a CI run that cannot reach the service. The workflow uploads it as an artifact.
//!
//! The agent has the same user. It may have put anything in place of the file, or replace the file later.
//! That only loses the report: the service accepts nothing without a signature by the key of the job, which
//! no process of the agent can read.
//!
//! The upload is a step after code of the agent ran, and the step gets tokens of the job. The run therefore permits
//! it only if the files of the job's actions are unchanged, and discards what was written for later steps. The permit
//! is a value that the agent cannot compute, so ending the run early permits nothing.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::environment::{Environment, StepFiles};
use crate::programs::tree::ProgramTree;
use crate::random::random_hex;
use domain::evidence::EvidenceFile;
use domain::ids::JobId;
use domain::report::{ResultReport, StepRecord};
use domain::report_artifact::{self, FILE, ReportOrigin, upload_permit};
use domain::secret::Secret;

/// Report file to be written at the end of the run.
pub(crate) struct ReportFile {
    path: PathBuf,
    key: Secret,
    origin: ReportOrigin,
    actions: ActionFiles,
    step_files: Option<StepFiles>,
}

/// Folder of the job's actions, beside the folder of temporary files.
const ACTIONS: &str = "_actions";

/// Files of the job's actions, as they were before any code of the agent ran.
struct ActionFiles {
    folder: PathBuf,
    /// `None` if the folder does not exist.
    recorded: io::Result<Option<ProgramTree>>,
}

impl ActionFiles {
    fn record(temp_root: &Path) -> Self {
        let folder = temp_root.parent().unwrap_or(temp_root).join(ACTIONS);
        let recorded = match folder.symlink_metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            _ => ProgramTree::record(&folder).map(Some),
        };
        Self { folder, recorded }
    }

    /// Fails if a file was changed, added or removed, or if it is unknown.
    fn verify_unchanged(&self) -> io::Result<()> {
        let is_unchanged = match &self.recorded {
            Ok(Some(tree)) => tree.verify_unchanged().is_ok(),
            Ok(None) => !self.folder.exists(),
            Err(_) => false,
        };
        match is_unchanged {
            true => Ok(()),
            false => Err(io::Error::other(
                "the files of the job's actions were changed, so the report is not uploaded",
            )),
        }
    }
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
            actions: ActionFiles::record(&environment.temp_root),
            step_files: environment.step_files.clone(),
        };
        // If this fails, so does writing the report, which is logged.
        let _ = move_away(&file.path);
        Some(file)
    }

    /// Writes the signed report and permits its upload. No process of the agent may be alive.
    ///
    /// # Errors
    /// If a file cannot be written, or the upload must not be permitted.
    pub(crate) fn write(
        &self,
        result: &ResultReport,
        steps: &[StepRecord],
        evidence: &[EvidenceFile],
    ) -> io::Result<()> {
        let content = report_artifact::sign(&self.key, &self.origin, result, steps, evidence)?;
        replace(&self.path, &content)?;
        let Some(files) = &self.step_files else {
            return Ok(());
        };
        for unused in [&files.environment, &files.search_path] {
            replace(unused, "")?;
        }
        self.actions.verify_unchanged()?;
        let permit = upload_permit(&self.key);
        replace(&files.output, &format!("upload={}\n", permit.expose()))
    }
}

/// Writes a new file in place of whatever has this path. Links are not followed.
fn replace(path: &Path, content: &str) -> io::Result<()> {
    move_away(path)?;
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o644)
        .open(path)?;
    file.write_all(content.as_bytes())
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

    use domain::report::RunPhase;

    use super::*;
    use crate::failure::RunFailure;
    use crate::result_report;

    fn report_file(dir: &Path) -> ReportFile {
        ReportFile {
            path: dir.join(FILE),
            key: Secret::new("key"),
            origin: ReportOrigin {
                dispatch_id: "01J".into(),
                run_id: 1,
                run_attempt: 1,
            },
            actions: ActionFiles::record(&dir.join("_temp")),
            step_files: Some(StepFiles {
                output: dir.join("output"),
                environment: dir.join("env"),
                search_path: dir.join("path"),
            }),
        }
    }

    #[test]
    fn permits_the_upload_unless_the_actions_were_changed() {
        let result = result_report::failed(RunPhase::Planning, &RunFailure::other("no"));
        let permit = format!("upload={}\n", upload_permit(&Secret::new("key")).expose());
        type Attack = fn(&Path);
        let attacks: [(Attack, bool); 4] = [
            (|_| {}, true),
            (
                |action| fs::write(action.join("index.js"), "steal()").unwrap(),
                false,
            ),
            (
                |action| fs::write(action.join("new.js"), "").unwrap(),
                false,
            ),
            (
                |action| fs::rename(action, action.with_extension("old")).unwrap(),
                false,
            ),
        ];
        for (attack, is_permitted) in attacks {
            let dir = tempfile::tempdir().unwrap();
            let action = dir.path().join("_actions/actions/upload-artifact");
            fs::create_dir_all(&action).unwrap();
            fs::write(action.join("index.js"), "upload()").unwrap();
            let file = report_file(dir.path());
            fs::write(dir.path().join("env"), "LD_PRELOAD=/tmp/evil.so\n").unwrap();
            symlink(dir.path().join("victim"), dir.path().join("output")).unwrap();
            attack(&action);
            assert_eq!(file.write(&result, &[], &[]).is_ok(), is_permitted);
            assert_eq!(fs::read_to_string(dir.path().join("env")).unwrap(), "");
            let output = fs::read_to_string(dir.path().join("output")).unwrap_or_default();
            assert_eq!(output, if is_permitted { permit.as_str() } else { "" });
            assert!(!dir.path().join("victim").exists());
        }
    }

    #[test]
    fn a_folder_of_actions_that_appears_is_not_trusted() {
        let dir = tempfile::tempdir().unwrap();
        let actions = ActionFiles::record(&dir.path().join("_temp"));
        assert!(actions.verify_unchanged().is_ok());
        fs::create_dir(dir.path().join(ACTIONS)).unwrap();
        assert!(actions.verify_unchanged().is_err());
    }

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
