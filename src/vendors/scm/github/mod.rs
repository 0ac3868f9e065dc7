//! GitHub client: addresses, credentials, and caches of tokens and pages.
//!
//! Rightly ours: `octocrab` retries all methods or none, also a dispatch whose workflow may have started. Its
//! conditional requests are for events only. It adds 16 packages.

mod accounts;
mod app_manifest;
mod artifacts;
mod auth;
mod branch_rules;
mod cache;
mod changed_paths;
mod checks;
mod choices;
mod comments;
mod contents;
mod dispatch_errors;
mod git_data;
mod graphql;
mod head_checks;
mod labels;
mod logs;
mod merge_facts;
mod merging;
mod permissions;
mod pull_feedback;
mod pull_readiness;
mod pull_reports;
mod pull_requests;
mod repo_files;
mod reruns;
mod reviews;
mod secrets;
mod token_rights;
mod workflow_runs;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use reqwest::Url;
use serde::Deserialize;

use crate::http::{
    Availability, Client, Method, Quota, Request, Response, VendorError, percent_encode,
};
use domain::crypto::app_jwt::AppKey;
use domain::ids::Repo;
use domain::secret::Secret;

pub use accounts::RateLimitScope;
pub use app_manifest::{AppCreation, CreatedApp};
pub use auth::{RepoToken, RepoTokenAccess};
pub use branch_rules::BranchRules;
pub use changed_paths::ChangedPaths;
pub use checks::CheckRun;
pub use choices::ListedRepository;
pub use comments::PullRequestComment;
pub use contents::{FolderEntry, RepoFile};
pub use git_data::{NewCommit, TreeContent, TreeFile};
pub(crate) use graphql::PartialError;
pub(crate) use labels::NewLabel;
pub use logs::{LOG_READ_TIMEOUT, LOG_WRITE_DELAY, WorkflowRunLog};
pub use merge_facts::{OpinionatedReview, PullMergeFacts};
pub use merging::{MergeSettings, MergeStatus};
pub use permissions::RepoPermission;
pub use pull_feedback::{FeedbackItem, OpenPullRequest, PullRequestFeedback};
pub use pull_reports::{PullRequestReport, PullRequestSelection};
pub use pull_requests::{NewPullRequest, PullRequest, PullRequestState};
pub use repo_files::FileResult;
pub use reruns::RerunOutcome;
pub use reviews::{PullRequestReview, ReviewThread};
pub use token_rights::{TokenGaps, TokenPermission};
pub use workflow_runs::{DispatchError, WorkflowRun, WorkflowRunRef};

/// Version of the REST API that the client uses. GitHub supports a version for years.
const API_VERSION: &str = "2022-11-28";

/// Maximum number of pages read of one list. The host limits searches to 1,000 entries.
const MAX_PAGES: usize = 20;

/// Credentials for the repository host.
#[derive(Debug, Clone)]
pub enum ScmCredentials {
    /// Plain token, for small installations. Used unchanged for every repository.
    Token(Secret),
    /// GitHub App, with short-lived tokens for each of its installations.
    App {
        /// Id of the App.
        id: String,
        /// Private key of the App.
        key: AppKey,
    },
}

/// Client of the repository host. Clones share tokens and caches.
#[derive(Clone)]
pub struct GitHub {
    inner: Arc<Inner>,
}

struct Inner {
    client: Client,
    api_url: String,
    credentials: ScmCredentials,
    token_cache: auth::TokenCache,
    /// Name of the App in addresses, as of the first probe.
    app_slug: OnceLock<String>,
    page_cache: cache::PageCache,
}

impl GitHub {
    /// Returns the address of the REST API.
    pub fn api_url(&self) -> &str {
        &self.inner.api_url
    }

    /// Returns the address of web pages and git repositories: the API address without `/api/v3` on an
    /// enterprise server, without `api.` on github.com.
    pub fn server_url(&self) -> String {
        web_address(self.api_url())
    }

    /// Returns the page on which the App is installed; `None` for a plain token, and before the first
    /// successful [`probe`](Self::probe).
    pub fn install_url(&self) -> Option<String> {
        let slug = percent_encode(self.inner.app_slug.get()?);
        let server = self.server_url();
        // Enterprise servers have another path.
        let apps = match self.api_url().ends_with("/api/v3") {
            true => "github-apps",
            false => "apps",
        };
        Some(format!("{server}/{apps}/{slug}/installations/new"))
    }

    /// Creates a client of the host with the REST API at `api_url`.
    pub fn new(client: Client, api_url: &str, credentials: ScmCredentials) -> Self {
        Self {
            inner: Arc::new(Inner {
                client,
                api_url: api_url.trim_end_matches('/').to_owned(),
                credentials,
                token_cache: auth::TokenCache::default(),
                app_slug: OnceLock::new(),
                page_cache: cache::PageCache::default(),
            }),
        }
    }

    /// Returns whether the credentials are those of a GitHub App.
    pub(crate) fn is_app(&self) -> bool {
        matches!(self.inner.credentials, ScmCredentials::App { .. })
    }

    /// Returns what keeps GitHub from answering at the moment.
    pub fn availability(&self) -> Availability {
        self.inner.client.availability()
    }

    /// Returns the rate limit with the least remaining requests.
    pub fn quota(&self) -> Quota {
        self.inner.client.quota()
    }

    /// Returns the rate limits of all accounts.
    pub fn quotas(&self) -> Vec<Quota> {
        self.inner.client.quotas()
    }

    /// Returns the name of the authenticated user or App, and of an App the number of its installations.
    /// Takes one request.
    ///
    /// # Errors
    /// 401 if the credential is rejected.
    pub async fn probe(&self) -> Result<String, VendorError> {
        const ACTION: &str = "checking the credentials of the repository host";
        match &self.inner.credentials {
            ScmCredentials::Token(token) => {
                let request = with_api_headers(Request::get(ACTION, self.url("/user")));
                let user: Named = self
                    .inner
                    .client
                    .send(&request.bearer(token.expose()))
                    .await?
                    .json()?;
                Ok(format!("user {}", user.login.unwrap_or_default()))
            }
            ScmCredentials::App { .. } => {
                let request = with_api_headers(Request::get(ACTION, self.url("/app")));
                let app: Named = self.send_as_app(request).await?.json()?;
                let installed = match app.installations_count {
                    // Older enterprise servers do not return the number.
                    None => String::new(),
                    Some(0) => ", not installed yet".to_owned(),
                    Some(1) => ", 1 installation".to_owned(),
                    Some(many) => format!(", {many} installations"),
                };
                if let Some(slug) = &app.slug {
                    let _ = self.inner.app_slug.set(slug.clone());
                }
                let name = app.slug.or(app.name).unwrap_or_default();
                Ok(format!("App {name}{installed}"))
            }
        }
    }

    /// Returns what the App may do, as its settings say. `None` with a plain token.
    ///
    /// # Errors
    /// 401 if the credential is rejected.
    pub async fn app_settings(&self) -> Result<Option<AppSettings>, VendorError> {
        if let ScmCredentials::Token(_) = &self.inner.credentials {
            return Ok(None);
        }
        let request = Request::get("reading the settings of the App", self.url("/app"));
        let response = self.send_as_app(with_api_headers(request)).await?;
        response.json().map(Some)
    }

    /// Returns the name of the default branch.
    ///
    /// # Errors
    /// `is_not_found()` if the repository does not exist or is not visible to the credentials.
    pub async fn default_branch(&self, repo: &Repo) -> Result<String, VendorError> {
        Ok(self.repository(repo).await?.default_branch)
    }

    /// Returns the present name of a repository that was renamed or transferred; `None` if it has this one. GitHub
    /// redirects the requests about the former name, but knows it neither in scopes of tokens nor in filters.
    ///
    /// # Errors
    /// `is_not_found()` if the repository does not exist or is not visible to the credentials.
    pub async fn present_name(&self, repo: &Repo) -> Result<Option<Repo>, VendorError> {
        let found = Repo::parse(&self.repository(repo).await?.full_name);
        let name = repo.to_string();
        Ok(found.filter(|found| !found.to_string().eq_ignore_ascii_case(&name)))
    }

    async fn repository(&self, repo: &Repo) -> Result<Repository, VendorError> {
        let url = self.repo_url(repo, "");
        let page = self.read(repo, "reading the repository", url).await?;
        Ok(page.value)
    }

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.inner.api_url)
    }

    /// Returns the API address of a path in a repository. `path` is already percent-encoded and begins with a
    /// slash.
    fn repo_url(&self, repo: &Repo, path: &str) -> String {
        let (owner, name) = (percent_encode(&repo.owner), percent_encode(&repo.name));
        self.url(&format!("/repos/{owner}/{name}{path}"))
    }

    /// Sends a request with a token for the repository.
    async fn send(&self, repo: &Repo, request: Request) -> Result<Response, VendorError> {
        self.send_authorized(repo, request, auth::AccessToken::authorize)
            .await
    }

    /// Sends a request that `authorize` adds the token to. If the host refuses the token, it is discarded and the
    /// request is sent once more with a new one, because the refused request had no effect.
    async fn send_authorized(
        &self,
        repo: &Repo,
        request: Request,
        authorize: fn(&auth::AccessToken, Request) -> Request,
    ) -> Result<Response, VendorError> {
        let request = with_api_headers(request);
        let client = &self.inner.client;
        let access = self.access_token(repo, request.action()).await?;
        let outcome = client.send(&authorize(&access, request.clone())).await;
        if access.is_refused(&outcome) && self.invalidate_token(&access) {
            let access = self.access_token(repo, request.action()).await?;
            return client.send(&authorize(&access, request)).await;
        }
        outcome
    }

    /// Sends a request with a JSON body.
    async fn send_json(
        &self,
        repo: &Repo,
        action: &'static str,
        method: Method,
        url: String,
        body: &serde_json::Value,
    ) -> Result<Response, VendorError> {
        self.send(repo, Request::new(action, method, url).json(body))
            .await
    }

    /// Returns a link of a response at the configured address. A server may have several names, and another server must
    /// not get our credentials.
    fn at_own_address(&self, link: &str) -> Option<String> {
        let mut own = Url::parse(&self.inner.api_url).ok()?;
        let link = Url::parse(link).ok()?;
        own.set_path(link.path());
        own.set_query(link.query());
        Some(own.into())
    }

    /// Reads all pages of a list, up to `MAX_PAGES`.
    async fn read_all<T: cache::Cacheable, Item>(
        &self,
        repo: &Repo,
        action: &'static str,
        url: String,
        items: impl Fn(T) -> Vec<Item>,
    ) -> Result<Vec<Item>, VendorError> {
        let mut all = Vec::new();
        let mut next = Some(url);
        for _ in 0..MAX_PAGES {
            let Some(url) = next else { break };
            let page = self.read::<T>(repo, action, url).await?;
            all.extend(items(page.value));
            next = page.next.and_then(|link| self.at_own_address(&link));
        }
        Ok(all)
    }
}

/// Returns the address of web pages and git repositories for the address of a REST API: without `/api/v3` on an
/// enterprise server, without `api.` on github.com.
pub fn web_address(api_url: &str) -> String {
    let api = api_url.trim_end_matches('/');
    let hosted = || Some(format!("https://{}", api.strip_prefix("https://api.")?));
    let own = api.strip_suffix("/api/v3").map(str::to_owned);
    own.or_else(hosted).unwrap_or_else(|| api.to_owned())
}

fn with_api_headers(request: Request) -> Request {
    request
        .header("accept", "application/vnd.github+json")
        .header("x-github-api-version", API_VERSION)
}

/// Settings of the App. Each installation has the permissions that its owner has accepted.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct AppSettings {
    /// Permissions that the App requests, with their levels.
    #[serde(default)]
    pub permissions: BTreeMap<String, String>,
    /// Events that the App receives.
    #[serde(default)]
    pub events: Vec<String>,
}

#[derive(Deserialize)]
struct Named {
    login: Option<String>,
    slug: Option<String>,
    name: Option<String>,
    installations_count: Option<u64>,
}

#[derive(serde::Serialize, Deserialize)]
struct Repository {
    default_branch: String,
    /// Owner and name.
    full_name: String,
}

#[cfg(test)]
mod tests;
