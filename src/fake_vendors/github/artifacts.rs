//! Artifacts of runs: what the upload step of a workflow stored, and what a test planted.
//!
//! An attempt's folder has one folder per artifact, with the uploaded files. It is packed when it is
//! downloaded. A test plants an archive of its own as a file `<name>.zip` beside these folders.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::GitHubInner;
use super::fake_repo::FakeRepo;
use super::jobs::Download;
use super::model::RunRecord;
use super::rest::{ApiCall, RepoPath, RestResult, not_found};
use super::zip::{ArchiveEntry, zip_archive};
use crate::clock;

/// Folder of an attempt's artifacts.
pub(crate) const FOLDER: &str = "artifacts";

/// Maximum number of artifacts of one run.
const MAX_ARTIFACTS: u64 = 1_000;

/// Artifact of a run.
struct StoredArtifact {
    id: u64,
    name: String,
    path: PathBuf,
}

impl StoredArtifact {
    /// Returns its archive.
    fn archive(&self) -> io::Result<Vec<u8>> {
        match self.path.is_dir() {
            true => pack(&self.path),
            false => fs::read(&self.path),
        }
    }
}

impl ApiCall<'_> {
    pub(super) fn list_artifacts(&self, repo_path: &RepoPath<'_>, id: &str) -> RestResult {
        self.require_permission(repo_path, "actions", "read")?;
        let run = self.find_run(repo_path, id)?;
        let name = self.request.query_param("name");
        let stored = self.host.artifacts(&run).into_iter();
        let named =
            stored.filter(|artifact| name.as_ref().is_none_or(|name| artifact.name == *name));
        let items = named.map(|artifact| self.artifact_json(repo_path, &run, &artifact));
        let items: Result<Vec<Value>, _> = items.collect();
        self.paginate(
            items.map_err(anyhow::Error::from)?,
            |total, items| json!({"total_count": total, "artifacts": items}),
        )
    }

    fn artifact_json(
        &self,
        repo_path: &RepoPath<'_>,
        run: &RunRecord,
        artifact: &StoredArtifact,
    ) -> io::Result<Value> {
        let url = format!(
            "{}/repos/{}/{}/actions/artifacts/{}",
            self.host.api_url, repo_path.owner, repo_path.name, artifact.id
        );
        Ok(json!({
            "id": artifact.id, "name": artifact.name, "size_in_bytes": artifact.archive()?.len(),
            "url": url, "archive_download_url": format!("{url}/zip"), "expired": false,
            "created_at": clock::iso_seconds(run.updated_at), "expires_at": clock::iso_seconds(run.updated_at),
            "workflow_run": {"id": run.id, "head_branch": run.branch, "head_sha": run.sha},
        }))
    }

    pub(super) fn download_artifact(&self, repo_path: &RepoPath<'_>, id: &str) -> RestResult {
        self.require_permission(repo_path, "actions", "read")?;
        let id: u64 = id.parse().map_err(|_| not_found())?;
        let run = self.find_run(repo_path, &(id / MAX_ARTIFACTS).to_string())?;
        let mut stored = self.host.artifacts(&run).into_iter();
        let artifact = stored.find(|artifact| artifact.id == id);
        let archive = artifact.ok_or_else(not_found)?.archive();
        let archive = archive.map_err(anyhow::Error::from)?;
        self.redirect_to_download(Download::Archive(archive))
    }
}

impl GitHubInner {
    /// Returns the artifacts of all attempts of a run.
    fn artifacts(&self, run: &RunRecord) -> Vec<StoredArtifact> {
        let folders =
            (1..=run.attempt).map(|attempt| self.attempt_dir(run.id, attempt).join(FOLDER));
        let mut paths: Vec<PathBuf> = folders
            .filter_map(|folder| fs::read_dir(folder).ok())
            .flatten()
            .filter_map(|entry| Some(entry.ok()?.path()))
            .collect();
        paths.sort();
        let stored = (run.id * MAX_ARTIFACTS..).zip(paths);
        stored
            .map(|(id, path)| StoredArtifact {
                id,
                name: path
                    .file_stem()
                    .map(|name| name.to_string_lossy().into_owned())
                    .unwrap_or_default(),
                path,
            })
            .collect()
    }
}

impl FakeRepo {
    /// Stores an archive as an artifact of a run's first attempt, as a hostile step could upload it.
    ///
    /// # Errors
    /// If the archive cannot be written.
    pub fn plant_artifact(&self, run: u64, name: &str, archive: &[u8]) -> io::Result<()> {
        let folder = self.host.attempt_dir(run, 1).join(FOLDER);
        fs::create_dir_all(&folder)?;
        fs::write(folder.join(format!("{name}.zip")), archive)
    }
}

/// Returns the shell script that does what the upload action does with one file or folder: it follows links,
/// and does nothing if the path does not exist.
pub(crate) fn upload_script(attempt_dir: &Path, name: &str, path: &str) -> String {
    format!(
        "[ -e {path} ] || {{ echo 'No files were found with the provided path.'; exit 0; }}\n\
         mkdir -p {folder} && cp -RL {path} {folder}/\n",
        path = quoted(path),
        folder = quoted(&attempt_dir.join(FOLDER).join(name).to_string_lossy()),
    )
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// Packs the files of a folder, without folders in it.
fn pack(folder: &Path) -> io::Result<Vec<u8>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.path().is_file() {
            files.push((
                entry.file_name().to_string_lossy().into_owned(),
                fs::read(entry.path())?,
            ));
        }
    }
    let entries = files
        .iter()
        .map(|(name, content)| ArchiveEntry::file(name, content));
    zip_archive(&entries.collect::<Vec<_>>())
}
