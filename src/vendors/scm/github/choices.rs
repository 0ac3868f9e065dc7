//! Lists to choose from in forms: repositories of the credentials, and branches of a repository.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::http::{Request, VendorError};
use domain::ids::Repo;

use super::{GitHub, ScmCredentials, with_api_headers};

/// Number of items in a page, the maximum of the host.
const PAGE_SIZE: usize = 100;

/// Maximum number of installations whose repositories are listed.
const MAX_INSTALLATIONS: usize = 20;

const READING_REPOSITORIES: &str = "listing the repositories";

/// Repository that can be chosen.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ListedRepository {
    /// Owner and name.
    pub full_name: String,
    /// Whether the repository is read-only.
    #[serde(default)]
    pub archived: bool,
}

impl GitHub {
    /// Lists the repositories of the App's installations, or of the plain token; at most `limit`.
    ///
    /// # Errors
    /// Fails if the host rejects a request or does not respond.
    pub async fn repositories(&self, limit: usize) -> Result<Vec<ListedRepository>, VendorError> {
        let mut found = Vec::new();
        if let ScmCredentials::Token(token) = &self.inner.credentials {
            let authorize = |request: Request| request.bearer(token.expose());
            let items = |page: Vec<ListedRepository>| page;
            let path = "/user/repos?sort=full_name&";
            self.list(path, limit, authorize, items, &mut found).await?;
            return Ok(found);
        }
        for installation in self.installations().await? {
            let token = self.installation_token(installation, READING_REPOSITORIES);
            let token = token.await?;
            let authorize = |request: Request| token.authorize(request);
            let items = |page: RepositoryPage| page.repositories;
            let path = "/installation/repositories?";
            self.list(path, limit, authorize, items, &mut found).await?;
            if found.len() >= limit {
                break;
            }
        }
        Ok(found)
    }

    /// Lists the branches of a repository; at most `limit`.
    ///
    /// # Errors
    /// `is_not_found()` if the repository does not exist or is not visible to the credentials.
    pub async fn branches(&self, repo: &Repo, limit: usize) -> Result<Vec<String>, VendorError> {
        const ACTION: &str = "listing the branches";
        let mut found = Vec::new();
        for page in 1.. {
            let path = format!("/branches?per_page={PAGE_SIZE}&page={page}");
            let request = Request::get(ACTION, self.repo_url(repo, &path));
            let branches: Vec<Branch> = self.send(repo, request).await?.json()?;
            let is_last = branches.len() < PAGE_SIZE;
            found.extend(branches.into_iter().map(|branch| branch.name));
            if is_last || found.len() >= limit {
                break;
            }
        }
        found.truncate(limit);
        Ok(found)
    }

    /// Whether the App is installed on an account. A plain token needs no installation.
    ///
    /// # Errors
    /// Fails if the host rejects the request or does not respond.
    pub async fn is_installed(&self) -> Result<bool, VendorError> {
        match &self.inner.credentials {
            ScmCredentials::Token(_) => Ok(true),
            ScmCredentials::App { .. } => Ok(!self.installations().await?.is_empty()),
        }
    }

    /// Returns the ids of the App's installations that are not suspended.
    async fn installations(&self) -> Result<Vec<u64>, VendorError> {
        let url = self.url(&format!("/app/installations?per_page={PAGE_SIZE}"));
        let request = with_api_headers(Request::get(READING_REPOSITORIES, url));
        let all: Vec<Installation> = self.send_as_app(request).await?.json()?;
        let active = all.into_iter().filter(|one| one.suspended_at.is_none());
        Ok(active.map(|one| one.id).take(MAX_INSTALLATIONS).collect())
    }

    /// Reads pages until there are no more or `found` has `limit` items.
    async fn list<T: DeserializeOwned>(
        &self,
        path: &str,
        limit: usize,
        authorize: impl Fn(Request) -> Request,
        items: impl Fn(T) -> Vec<ListedRepository>,
        found: &mut Vec<ListedRepository>,
    ) -> Result<(), VendorError> {
        for page in 1.. {
            let url = self.url(&format!("{path}per_page={PAGE_SIZE}&page={page}"));
            let request = with_api_headers(Request::get(READING_REPOSITORIES, url));
            let response = self.inner.client.send(&authorize(request)).await?;
            let listed = items(response.json()?);
            let is_last = listed.len() < PAGE_SIZE;
            found.extend(listed);
            if is_last || found.len() >= limit {
                break;
            }
        }
        found.truncate(limit);
        Ok(())
    }

    async fn installation_token(
        &self,
        installation: u64,
        action: &'static str,
    ) -> Result<super::auth::AccessToken, VendorError> {
        let tokens = &self.inner.token_cache;
        let token = match tokens.token(installation) {
            Some(token) => token,
            None => {
                let token = self.mint_for(installation, action, &json!({})).await?;
                tokens.set_token(installation, Some(token.clone()));
                token
            }
        };
        Ok(super::auth::AccessToken::of_installation(
            installation,
            token,
        ))
    }
}

#[derive(Deserialize)]
struct Installation {
    id: u64,
    #[serde(default)]
    suspended_at: Option<String>,
}

#[derive(Deserialize)]
struct RepositoryPage {
    repositories: Vec<ListedRepository>,
}

#[derive(Deserialize)]
struct Branch {
    name: String,
}
