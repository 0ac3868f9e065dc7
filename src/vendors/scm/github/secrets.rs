//! Names of a repository's Actions secrets. The API never returns their values.

use serde::Deserialize;

use crate::http::{Request, VendorError};
use domain::ids::Repo;

use super::GitHub;

impl GitHub {
    /// Returns the names of the first 100 Actions secrets of a repository, without those of its
    /// organization. `None` if the credentials do not permit reading them.
    ///
    /// # Errors
    /// Fails if the host rejects the request or does not respond.
    pub async fn secret_names(&self, repo: &Repo) -> Result<Option<Vec<String>>, VendorError> {
        let url = self.repo_url(repo, "/actions/secrets?per_page=100");
        let request = Request::get("reading the names of secrets", url);
        let response = self
            .send(repo, request.accept_status(403).accept_status(404))
            .await?;
        if response.status() != 200 {
            return Ok(None);
        }
        let page: Page = response.json()?;
        let names = page.secrets.into_iter().map(|secret| secret.name);
        Ok(Some(names.collect()))
    }
}

#[derive(Deserialize)]
struct Page {
    secrets: Vec<Named>,
}

#[derive(Deserialize)]
struct Named {
    name: String,
}
