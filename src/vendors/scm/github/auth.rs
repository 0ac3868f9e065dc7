//! Tokens of the repository host: cached tokens of each App installation, and tokens of runs, which are
//! limited to one repository.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde::Deserialize;
use serde_json::json;

use crate::http::{Method, Request, Response, VendorError, VendorErrorKind, now_millis};
use domain::ids::Repo;
use domain::secret::Secret;
use domain::time::Timestamp;

use super::{GitHub, ScmCredentials, accounts, with_api_headers};

/// Time before its expiry from which a token is no longer used.
const EXPIRY_MARGIN: Duration = Duration::from_secs(5 * 60);

/// Assumed lifetime of a plain token, whose expiry is unknown.
const PLAIN_TOKEN_LIFETIME: Duration = Duration::from_secs(60 * 60);

/// Token for one repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepoToken {
    /// Token value.
    pub token: Secret,
    /// Time of expiry.
    pub expires_at: Timestamp,
}

/// Access level of a run's token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RepoTokenAccess {
    /// Read access, for planning runs, which push nothing.
    Read,
    /// Write access, to push and to open a pull request.
    Write,
}

/// Part of the host's message about a permission that the App lacks.
const LACKS_PERMISSION: &str = "not accessible by integration";

/// Age from which an installation token may lack permissions that were accepted since: it keeps those of its creation.
const MAY_BE_OUTDATED: Duration = Duration::from_secs(60);

/// Lifetime of an installation token.
const INSTALLATION_TOKEN_LIFETIME: Duration = Duration::from_secs(60 * 60);

/// Token for requests of the service about a repository.
pub(super) struct AccessToken {
    token: Secret,
    installation: Option<Installed>,
}

/// Installation of a token.
struct Installed {
    id: u64,
    expires_at: Timestamp,
}

impl AccessToken {
    /// Creates the token of an installation.
    pub(super) fn of_installation(id: u64, token: RepoToken) -> Self {
        Self {
            token: token.token,
            installation: Some(Installed {
                id,
                expires_at: token.expires_at,
            }),
        }
    }

    fn installation_id(&self) -> Option<u64> {
        self.installation.as_ref().map(|installed| installed.id)
    }

    /// Returns whether the host refused the token itself, or a permission that a newer token may have.
    pub(super) fn is_refused(&self, outcome: &Result<Response, VendorError>) -> bool {
        let Some(installed) = &self.installation else {
            return false;
        };
        let age = INSTALLATION_TOKEN_LIFETIME.saturating_sub(installed.expires_at.since(now()));
        let lacks_permission = || match outcome {
            Ok(response) => {
                response.status() == 403 && response.error_message().contains(LACKS_PERMISSION)
            }
            Err(error) => {
                error.status() == Some(403) && error.to_string().contains(LACKS_PERMISSION)
            }
        };
        let is_rejected = matches!(outcome, Err(error) if error.status() == Some(401));
        is_rejected || age >= MAY_BE_OUTDATED && lacks_permission()
    }

    /// Adds the token to a REST request.
    pub(super) fn authorize(&self, request: Request) -> Request {
        let request = request.bearer(self.token.expose());
        request.account(accounts::rest(self.installation_id()))
    }

    /// Adds the token to a GraphQL request. The GraphQL API has its own rate limit.
    pub(super) fn authorize_graphql(&self, request: Request) -> Request {
        let request = self.authorize(request);
        request.account(accounts::graphql(self.installation_id()))
    }
}

/// Cache of installation ids by owner and of tokens by installation. An App has one installation per owner, which
/// may leave out some of the owner's repositories.
#[derive(Default)]
pub(super) struct TokenCache {
    /// By the owner's name; by owner and name for a repository that was transferred to another owner, whose
    /// installation the host names for the former name as well. In lower case.
    installations: Mutex<HashMap<String, u64>>,
    tokens: Mutex<HashMap<u64, RepoToken>>,
}

impl TokenCache {
    fn installation(&self, repo: &Repo) -> Option<u64> {
        let cached = self.installations.lock();
        let cached = cached.unwrap_or_else(PoisonError::into_inner);
        let of_repo = cached.get(&repo.to_string().to_lowercase());
        of_repo
            .or_else(|| cached.get(&repo.owner.to_lowercase()))
            .copied()
    }

    fn set_installation(&self, repo: &Repo, installation: &Installation) {
        let cached = self.installations.lock();
        let mut cached = cached.unwrap_or_else(PoisonError::into_inner);
        let (repo_key, owner_key) = (repo.to_string().to_lowercase(), repo.owner.to_lowercase());
        let account = installation.account.as_ref();
        if account.is_some_and(|account| account.login.to_lowercase() == owner_key) {
            cached.remove(&repo_key);
            cached.insert(owner_key, installation.id);
        } else {
            cached.insert(repo_key, installation.id);
        }
    }

    pub(super) fn token(&self, installation: u64) -> Option<RepoToken> {
        let tokens = self.tokens.lock();
        tokens
            .unwrap_or_else(PoisonError::into_inner)
            .get(&installation)
            .filter(|token| token.expires_at > now() + EXPIRY_MARGIN)
            .cloned()
    }

    pub(super) fn set_token(&self, installation: u64, token: Option<RepoToken>) {
        let tokens = self.tokens.lock();
        let mut tokens = tokens.unwrap_or_else(PoisonError::into_inner);
        match token {
            Some(token) => tokens.insert(installation, token),
            None => tokens.remove(&installation),
        };
    }
}

impl GitHub {
    /// Returns the end of the current rate limit for requests about this repository. `None` if not limited.
    pub fn limited_until(&self, repo: &Repo) -> Option<Timestamp> {
        let account = accounts::rest(self.inner.token_cache.installation(repo));
        let until = self.inner.client.limited_until(&account)?;
        Some(Timestamp::from_millis(until))
    }

    /// Creates a token for a run. The token is limited to this repository and has no permission for workflow
    /// files, so that the host rejects a push that changes them. A plain token cannot be limited and is
    /// returned unchanged.
    ///
    /// # Errors
    /// `is_not_found()` if the App is not installed on the repository.
    pub async fn repo_token(
        &self,
        repo: &Repo,
        access: RepoTokenAccess,
    ) -> Result<RepoToken, VendorError> {
        if let ScmCredentials::Token(token) = &self.inner.credentials {
            return Ok(RepoToken {
                token: token.clone(),
                expires_at: now() + PLAIN_TOKEN_LIFETIME,
            });
        }
        let permissions = match access {
            RepoTokenAccess::Read => json!({ "contents": "read", "metadata": "read" }),
            RepoTokenAccess::Write => json!({
                "contents": "write",
                "pull_requests": "write",
                "issues": "write",
                "checks": "read",
                "statuses": "read",
                "metadata": "read",
            }),
        };
        let scope = json!({ "repositories": [repo.name], "permissions": permissions });
        self.mint(repo, "creating a token for the run", &scope)
            .await
            .map(|(_, token)| token)
    }

    /// Returns the scopes of a plain token. `None` for an App, and for tokens whose permissions the host does
    /// not list: fine-grained tokens and installation tokens.
    ///
    /// # Errors
    /// Fails if the host rejects the request or does not respond.
    pub async fn token_scopes(&self) -> Result<Option<Vec<String>>, VendorError> {
        let ScmCredentials::Token(token) = &self.inner.credentials else {
            return Ok(None);
        };
        let request = Request::get("reading the token's scopes", self.url("/user"));
        let request = with_api_headers(request).bearer(token.expose());
        match self.inner.client.send(&request).await {
            Ok(response) => Ok(response.header("x-oauth-scopes").map(|listed| {
                let scopes = listed.split(',').map(str::trim);
                scopes
                    .filter(|scope| !scope.is_empty())
                    .map(str::to_owned)
                    .collect()
            })),
            Err(error) if error.status() == Some(403) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns which of the `needed` permissions, each with its level, the App lacks on a repository. `None`
    /// with a plain token, whose permissions cannot be read. Discards the cached token, because a token keeps
    /// the permissions of the time of its creation.
    ///
    /// # Errors
    /// Fails if the host rejects the request or does not respond.
    pub async fn missing_permissions(
        &self,
        repo: &Repo,
        needed: &[(&'static str, &'static str)],
    ) -> Result<Option<Vec<String>>, VendorError> {
        if let ScmCredentials::Token(_) = &self.inner.credentials {
            return Ok(None);
        }
        let installation = self
            .installation(repo, "reading the App's permissions")
            .await?;
        self.inner.token_cache.set_token(installation.id, None);
        let granted = installation.permissions;
        let is_granted = |(name, level): &(&str, &str)| {
            let has = granted.get(*name).map(String::as_str);
            has == Some(level) || has.is_some_and(|has| has == "write" || has == "admin")
        };
        let missing = needed.iter().filter(|permission| !is_granted(permission));
        let named = missing.map(|(name, level)| format!("{name}: {level}"));
        Ok(Some(named.collect()))
    }

    pub(super) async fn access_token(
        &self,
        repo: &Repo,
        action: &'static str,
    ) -> Result<AccessToken, VendorError> {
        if let ScmCredentials::Token(token) = &self.inner.credentials {
            return Ok(AccessToken {
                token: token.clone(),
                installation: None,
            });
        }
        let tokens = &self.inner.token_cache;
        let cached = tokens
            .installation(repo)
            .and_then(|id| Some((id, tokens.token(id)?)));
        let (id, token) = match cached {
            Some(cached) => cached,
            None => {
                let (id, token) = self.mint(repo, action, &json!({})).await?;
                tokens.set_token(id, Some(token.clone()));
                (id, token)
            }
        };
        Ok(AccessToken::of_installation(id, token))
    }

    /// Discards a token that the host rejected. Returns whether a new one can be requested.
    pub(super) fn invalidate_token(&self, access: &AccessToken) -> bool {
        let id = access.installation_id();
        if let Some(id) = id {
            self.inner.token_cache.set_token(id, None);
        }
        id.is_some()
    }

    async fn mint(
        &self,
        repo: &Repo,
        action: &'static str,
        scope: &serde_json::Value,
    ) -> Result<(u64, RepoToken), VendorError> {
        let tokens = &self.inner.token_cache;
        let (id, was_cached) = match tokens.installation(repo) {
            Some(id) => (id, true),
            None => (self.find_installation(repo, action).await?, false),
        };
        match self.mint_for(id, action, scope).await {
            // The App was installed again since the id was cached, or the owner left this repository out.
            Err(error) if was_cached && matches!(error.status(), Some(404 | 410 | 422)) => {
                let id = self.find_installation(repo, action).await?;
                Ok((id, self.mint_for(id, action, scope).await?))
            }
            outcome => Ok((id, outcome?)),
        }
    }

    async fn find_installation(
        &self,
        repo: &Repo,
        action: &'static str,
    ) -> Result<u64, VendorError> {
        let installation = self.installation(repo, action).await?;
        self.inner.token_cache.set_installation(repo, &installation);
        Ok(installation.id)
    }

    /// Looks up the installation of a repository that the host did not find with a cached one. Returns whether
    /// another installation is responsible for it.
    ///
    /// # Errors
    /// `is_not_found()` if the App is not installed on the repository.
    pub(super) async fn has_other_installation(
        &self,
        repo: &Repo,
        action: &'static str,
    ) -> Result<bool, VendorError> {
        if let ScmCredentials::Token(_) = &self.inner.credentials {
            return Ok(false);
        }
        let cached = self.inner.token_cache.installation(repo);
        Ok(Some(self.find_installation(repo, action).await?) != cached)
    }

    async fn installation(
        &self,
        repo: &Repo,
        action: &'static str,
    ) -> Result<Installation, VendorError> {
        let request = Request::get(action, self.repo_url(repo, "/installation")).accept_status(404);
        let response = self.send_as_app(with_api_headers(request)).await?;
        if response.status() == 404 {
            return Err(response.status_error(404, &format!("the App is not installed on {repo}")));
        }
        response.json()
    }

    pub(super) async fn mint_for(
        &self,
        installation: u64,
        action: &'static str,
        scope: &serde_json::Value,
    ) -> Result<RepoToken, VendorError> {
        let url = self.url(&format!("/app/installations/{installation}/access_tokens"));
        // A surplus token does no harm, so the request may be repeated.
        let request = Request::new(action, Method::POST, url).json(scope).safe();
        let response = self.send_as_app(with_api_headers(request)).await?;
        let minted: Minted = response.json()?;
        let expires_at = Timestamp::parse(&minted.expires_at)
            .ok_or_else(|| response.decode_error("expires_at is not a timestamp"))?;
        Ok(RepoToken {
            token: Secret::new(minted.token),
            expires_at,
        })
    }

    /// Sends a request authenticated as the App itself, which the host accepts for App endpoints only.
    pub(super) async fn send_as_app(&self, request: Request) -> Result<Response, VendorError> {
        let ScmCredentials::App { id, key } = &self.inner.credentials else {
            return self.inner.client.send(&request).await;
        };
        let jwt = key.token(id, now()).map_err(|cause| {
            let kind = VendorErrorKind::Status {
                status: 401,
                message: cause,
                retry_after: None,
            };
            VendorError::new(self.inner.client.vendor(), request.action(), kind)
        })?;
        let request = request.bearer(jwt.expose()).account("app");
        self.inner.client.send(&request).await
    }
}

/// Returns the wall-clock time. Tokens expire by it, and not by the adjustable clock of tests.
fn now() -> Timestamp {
    Timestamp::from_millis(now_millis())
}

#[derive(Deserialize)]
struct Installation {
    id: u64,
    /// Owner of the installation.
    account: Option<Account>,
    #[serde(default)]
    permissions: HashMap<String, String>,
}

#[derive(Deserialize)]
struct Account {
    #[serde(default)]
    login: String,
}

#[derive(Deserialize)]
struct Minted {
    token: String,
    expires_at: String,
}
