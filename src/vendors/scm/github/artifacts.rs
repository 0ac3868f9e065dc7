//! Artifacts of workflow runs.

use serde::{Deserialize, Serialize};

use crate::http::{Request, Response, VendorError, percent_encode};
use domain::ids::Repo;

use super::GitHub;

/// Artifact of a workflow run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Artifact {
    /// Id of the artifact.
    pub id: u64,
    /// Name, chosen by the workflow that uploaded it.
    name: String,
    /// Size of its archive, in bytes.
    #[serde(rename = "size_in_bytes", default)]
    pub bytes: u64,
    /// Whether its content was deleted.
    #[serde(default)]
    expired: bool,
}

#[derive(Serialize, Deserialize)]
struct ArtifactPage {
    artifacts: Vec<Artifact>,
}

impl GitHub {
    /// Returns the latest artifact of a run with this name.
    ///
    /// # Errors
    /// Fails if the artifacts cannot be listed.
    pub async fn find_artifact(
        &self,
        repo: &Repo,
        run_id: u64,
        name: &str,
    ) -> Result<Option<Artifact>, VendorError> {
        let url = self.repo_url(
            repo,
            &format!(
                "/actions/runs/{run_id}/artifacts?per_page=100&name={}",
                percent_encode(name)
            ),
        );
        let page = self
            .read::<ArtifactPage>(repo, "listing the run's artifacts", url)
            .await?;
        let named = page.value.artifacts.into_iter();
        // Older enterprise servers ignore the name in the query.
        let named = named.filter(|artifact| artifact.name == name && !artifact.expired);
        Ok(named.max_by_key(|artifact| artifact.id))
    }

    /// Downloads the archive of an artifact. `None` if it is larger than `max_bytes`.
    ///
    /// # Errors
    /// Fails if the archive cannot be read.
    pub async fn download_artifact(
        &self,
        repo: &Repo,
        artifact: &Artifact,
        max_bytes: usize,
    ) -> Result<Option<Response>, VendorError> {
        if usize::try_from(artifact.bytes).map_or(true, |bytes| bytes > max_bytes) {
            return Ok(None);
        }
        let url = self.repo_url(repo, &format!("/actions/artifacts/{}/zip", artifact.id));
        // The redirect leads to a signed address of another host, which must not get the token.
        let request = Request::get("downloading the artifact", url)
            .redirect_without_authorization()
            .max_body(max_bytes);
        self.send(repo, request).await.map(Some)
    }
}
