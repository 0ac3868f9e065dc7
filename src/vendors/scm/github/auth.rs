//! Tokens: one for each installation of the App, kept until shortly before they expire; and those
//! that are handed to runs, narrowed to one repository.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde::Deserialize;
use serde_json::json;

use crate::http::{Method, Request, Response, VendorError, VendorErrorKind, now_millis};
use domain::ids::Repo;
use domain::secret::Secret;
use domain::time::Timestamp;

use super::{GitHub, ScmCredentials, with_api_headers};

/// How long before its end do we stop using a token?
const EXPIRY_MARGIN: Duration = Duration::from_secs(5 * 60);

/// For how long do we say a plain token is good, as nobody knows?
const PLAIN_TOKEN_LIFETIME: Duration = Duration::from_secs(60 * 60);

/// A token for one repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepoToken {
    pub token: Secret,
    pub expires_at: Timestamp,
}

/// What a run needs its token for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RepoTokenAccess {
    /// To look at the repository: a planning run pushes nothing.
    Read,
    /// To push and to open a pull request.
    Write,
}

/// What we may use towards a repository.
pub(super) struct AccessToken {
    token: Secret,
    installation: Option<u64>,
}

impl AccessToken {
    pub fn authorize(&self, request: Request) -> Request {
        let request = request.bearer(self.token.expose());
        request.account(account(self.installation))
    }

    /// As [`Access::sign`], for the GraphQL interface, whose allowance is counted apart.
    pub fn authorize_graphql(&self, request: Request) -> Request {
        let request = self.authorize(request);
        match self.installation {
            Some(id) => request.account(format!("installation {id} graphql")),
            None => request.account("graphql"),
        }
    }
}

/// Whose allowance it is; a plain token has one for everything.
fn account(installation: Option<u64>) -> String {
    installation.map_or_else(String::new, |id| format!("installation {id}"))
}

/// Installations by repository and tokens by installation.
#[derive(Default)]
pub(super) struct TokenCache {
    installations: Mutex<HashMap<Repo, u64>>,
    tokens: Mutex<HashMap<u64, RepoToken>>,
}

impl TokenCache {
    fn installation(&self, repo: &Repo) -> Option<u64> {
        let known = self.installations.lock();
        known
            .unwrap_or_else(PoisonError::into_inner)
            .get(repo)
            .copied()
    }

    fn set_installation(&self, repo: &Repo, id: Option<u64>) {
        let known = self.installations.lock();
        let mut known = known.unwrap_or_else(PoisonError::into_inner);
        match id {
            Some(id) => known.insert(repo.clone(), id),
            None => known.remove(repo),
        };
    }

    fn token(&self, installation: u64) -> Option<RepoToken> {
        let tokens = self.tokens.lock();
        tokens
            .unwrap_or_else(PoisonError::into_inner)
            .get(&installation)
            .filter(|token| token.expires_at > now() + EXPIRY_MARGIN)
            .cloned()
    }

    fn set_token(&self, installation: u64, token: Option<RepoToken>) {
        let tokens = self.tokens.lock();
        let mut tokens = tokens.unwrap_or_else(PoisonError::into_inner);
        match token {
            Some(token) => tokens.insert(installation, token),
            None => tokens.remove(&installation),
        };
    }
}

impl GitHub {
    /// Until when no request about this repository leaves, because the host said so.
    pub fn limited_until(&self, repo: &Repo) -> Option<Timestamp> {
        let account = account(self.inner.token_cache.installation(repo));
        let until = self.inner.client.limited_until(&account)?;
        Some(Timestamp::from_millis(until))
    }

    /// A token to hand to a run: good for this repository only, and never for workflow files, so
    /// that the host itself refuses a run that changes them. A plain token cannot be narrowed and
    /// is given as it is.
    ///
    /// # Errors
    /// `is_not_found()` when the App is not installed on the repository.
    pub async fn repo_token(
        &self,
        repo: &Repo,
        purpose: RepoTokenAccess,
    ) -> Result<RepoToken, VendorError> {
        if let ScmCredentials::Token(token) = &self.inner.credentials {
            return Ok(RepoToken {
                token: token.clone(),
                expires_at: now() + PLAIN_TOKEN_LIFETIME,
            });
        }
        let permissions = match purpose {
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
        self.mint(repo, "making a token for the run", &scope)
            .await
            .map(|(_, token)| token)
    }

    /// The scopes of a plain token. None for an App, and for a token whose rights the host does not list:
    /// a fine-grained one, or one of an installation.
    ///
    /// # Errors
    /// What asking failed with.
    pub async fn token_scopes(&self) -> Result<Option<Vec<String>>, VendorError> {
        let ScmCredentials::Token(token) = &self.inner.credentials else {
            return Ok(None);
        };
        let request = Request::get("asking what the token may do", self.url("/user"));
        let request = with_api_headers(request).bearer(token.expose());
        match self.inner.client.send(&request).await {
            Ok(answer) => Ok(answer.header("x-oauth-scopes").map(|listed| {
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

    /// Which of these rights, each a permission and its level, the App was not given on a
    /// repository. None with a plain token, whose rights nobody tells. The token in use is dropped,
    /// because one has the rights of the moment it was made at.
    ///
    /// # Errors
    /// What asking failed with.
    pub async fn missing_permissions(
        &self,
        repo: &Repo,
        needed: &[(&'static str, &'static str)],
    ) -> Result<Option<Vec<String>>, VendorError> {
        if let ScmCredentials::Token(_) = &self.inner.credentials {
            return Ok(None);
        }
        let installation = self
            .installation(repo, "asking what the App may do")
            .await?;
        self.inner.token_cache.set_token(installation.id, None);
        let given = installation.permissions;
        let is_given = |(name, level): &(&str, &str)| {
            let has = given.get(*name).map(String::as_str);
            has == Some(level) || has.is_some_and(|has| has == "write" || has == "admin")
        };
        let lacking = needed.iter().filter(|right| !is_given(right));
        let named = lacking.map(|(name, level)| format!("{name}: {level}"));
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
        let known = tokens
            .installation(repo)
            .and_then(|id| Some((id, tokens.token(id)?)));
        let (id, token) = match known {
            Some(known) => known,
            None => {
                let (id, token) = self.mint(repo, action, &json!({})).await?;
                tokens.set_token(id, Some(token.clone()));
                (id, token)
            }
        };
        Ok(AccessToken {
            token: token.token,
            installation: Some(id),
        })
    }

    /// Drops a token that the host no longer takes; false when there is no other to be had.
    pub(super) fn invalidate_token(&self, access: &AccessToken) -> bool {
        if let Some(id) = access.installation {
            self.inner.token_cache.set_token(id, None);
        }
        access.installation.is_some()
    }

    async fn mint(
        &self,
        repo: &Repo,
        action: &'static str,
        scope: &serde_json::Value,
    ) -> Result<(u64, RepoToken), VendorError> {
        let tokens = &self.inner.token_cache;
        let (id, was_known) = match tokens.installation(repo) {
            Some(id) => (id, true),
            None => (self.find_installation(repo, action).await?, false),
        };
        match self.mint_for(id, action, scope).await {
            // The App was removed and installed again since we looked.
            Err(error) if error.is_not_found() && was_known => {
                tokens.set_installation(repo, None);
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
        let id = self.installation(repo, action).await?.id;
        self.inner.token_cache.set_installation(repo, Some(id));
        Ok(id)
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

    async fn mint_for(
        &self,
        installation: u64,
        action: &'static str,
        scope: &serde_json::Value,
    ) -> Result<RepoToken, VendorError> {
        let url = self.url(&format!("/app/installations/{installation}/access_tokens"));
        // One token more than needed hurts nobody, so it may be asked for again.
        let request = Request::new(action, Method::POST, url).json(scope).safe();
        let response = self.send_as_app(with_api_headers(request)).await?;
        let minted: Minted = response.json()?;
        let expires_at = Timestamp::parse(&minted.expires_at)
            .ok_or_else(|| response.decode_error("expires_at is no time"))?;
        Ok(RepoToken {
            token: Secret::new(minted.token),
            expires_at,
        })
    }

    /// Sends a request with the App's own proof, which is good for its installations only.
    pub(super) async fn send_as_app(&self, request: Request) -> Result<Response, VendorError> {
        let ScmCredentials::App { id, key } = &self.inner.credentials else {
            return self.inner.client.send(&request).await;
        };
        let proof = key.token(id, now()).map_err(|cause| {
            let kind = VendorErrorKind::Status {
                status: 401,
                message: cause,
                retry_after: None,
            };
            VendorError::new(self.inner.client.vendor(), request.action(), kind)
        })?;
        let request = request.bearer(proof.expose()).account("app");
        self.inner.client.send(&request).await
    }
}

/// Tokens expire by the world's clock, not by the one that tests turn.
fn now() -> Timestamp {
    Timestamp::from_millis(now_millis())
}

#[derive(Deserialize)]
struct Installation {
    id: u64,
    #[serde(default)]
    permissions: HashMap<String, String>,
}

#[derive(Deserialize)]
struct Minted {
    token: String,
    expires_at: String,
}
