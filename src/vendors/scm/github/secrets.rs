//! The names of a repository's secrets, where the App may read them. Their values nobody can.

use serde::Deserialize;

use crate::http::{Request, VendorError};
use domain::ids::Repo;

use super::GitHub;

impl GitHub {
    /// The names of a repository's own secrets for its workflows, the first hundred; none when we may not
    /// see them. Those that its organization shares are not among them.
    ///
    /// # Errors
    /// When the host could not be asked.
    pub async fn secret_names(&self, repo: &Repo) -> Result<Option<Vec<String>>, VendorError> {
        let url = self.repo_url(repo, "/actions/secrets?per_page=100");
        let request = Request::get("reading the names of secrets", url);
        let answer = self
            .send(repo, request.accept_status(403).accept_status(404))
            .await?;
        if answer.status() != 200 {
            return Ok(None);
        }
        let page: Page = answer.json()?;
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
