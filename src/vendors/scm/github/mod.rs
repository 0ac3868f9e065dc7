//! The client: where it calls, as whom, and what it remembers between calls.

mod auth;
mod cache;
mod checks;
mod comments;
mod contents;
mod dispatch_errors;
mod git_data;
mod graphql;
mod logs;
mod permissions;
mod pull_feedback;
mod pull_requests;
mod reviews;
mod secrets;
mod workflow_runs;

use std::sync::Arc;

use serde::Deserialize;

use crate::http::{Client, Method, Quota, Request, Response, VendorError, percent_encode};
use domain::crypto::app_jwt::AppKey;
use domain::ids::Repo;
use domain::secret::Secret;

pub use auth::{RepoToken, RepoTokenAccess};
pub use checks::CheckRun;
pub use comments::PullRequestComment;
pub use contents::{FolderEntry, RepoFile};
pub use git_data::{NewCommit, TreeContent, TreeFile};
pub use logs::{LOG_READ_TIMEOUT, WorkflowRunLog};
pub use permissions::RepoPermission;
pub use pull_feedback::{FeedbackItem, OpenPullRequest, PullRequestFeedback};
pub use pull_requests::{NewPullRequest, PullRequest, PullRequestState};
pub use reviews::{PullRequestReview, ReviewThread};
pub use workflow_runs::{DispatchError, WorkflowRun, WorkflowRunRef};

/// The interface we are written for; the host keeps it for years. (contracts: *GitHub*)
const API_VERSION: &str = "2022-11-28";

/// How many pages of a list do we read at most? The host ends searches at 1,000 entries.
const MAX_PAGES: usize = 20;

/// As whom we speak to the host.
#[derive(Debug, Clone)]
pub enum ScmCredentials {
    /// A plain token, for small set-ups. It is used as it is, for every repository.
    Token(Secret),
    /// An App, by its id and private key: short-lived tokens for each installation.
    App { id: String, key: AppKey },
}

/// A client of the repository host. Clones share tokens and caches.
#[derive(Clone)]
pub struct GitHub {
    inner: Arc<Inner>,
}

struct Inner {
    client: Client,
    api_url: String,
    credentials: ScmCredentials,
    token_cache: auth::TokenCache,
    page_cache: cache::PageCache,
}

impl GitHub {
    /// Where the REST interface stands.
    pub fn api_url(&self) -> &str {
        &self.inner.api_url
    }

    /// Where pages and git repositories stand: beside the interface of a host of one's own, and at
    /// the name without `api.` of a hosted one.
    pub fn server_url(&self) -> String {
        let api = self.api_url();
        let hosted = || Some(format!("https://{}", api.strip_prefix("https://api.")?));
        let own = api.strip_suffix("/api/v3").map(str::to_owned);
        own.or_else(hosted).unwrap_or_else(|| api.to_owned())
    }

    /// A client of the host whose REST interface stands at `api_url`.
    pub fn new(wire: Client, api_url: &str, credentials: ScmCredentials) -> Self {
        Self {
            inner: Arc::new(Inner {
                client: wire,
                api_url: api_url.trim_end_matches('/').to_owned(),
                credentials,
                token_cache: auth::TokenCache::default(),
                page_cache: cache::PageCache::default(),
            }),
        }
    }

    /// What is left of the scarcest allowance.
    pub fn quota(&self) -> Quota {
        self.inner.client.quota()
    }

    /// Every installation's allowance.
    pub fn quotas(&self) -> Vec<Quota> {
        self.inner.client.quotas()
    }

    /// Asks the host who we are, and says it in a few words; of an App also how many accounts it is
    /// installed on. One request.
    ///
    /// # Errors
    /// 401 when the credential is refused.
    pub async fn probe(&self) -> Result<String, VendorError> {
        const ACTION: &str = "asking the repository host who we are";
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
                    // Older enterprise hosts do not count.
                    None => String::new(),
                    Some(0) => ", installed nowhere yet".to_owned(),
                    Some(1) => ", 1 installation".to_owned(),
                    Some(many) => format!(", {many} installations"),
                };
                let name = app.slug.or(app.name).unwrap_or_default();
                Ok(format!("App {name}{installed}"))
            }
        }
    }

    /// The branch new work starts from.
    ///
    /// # Errors
    /// `is_not_found()` when the repository does not exist or is hidden from us.
    pub async fn default_branch(&self, repo: &Repo) -> Result<String, VendorError> {
        let page = self
            .read::<Repository>(repo, "reading the repository", self.repo_url(repo, ""))
            .await?;
        Ok(page.value.default_branch)
    }

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.inner.api_url)
    }

    /// Address of something in a repository; `path` is escaped already and begins with a slash.
    fn repo_url(&self, repo: &Repo, path: &str) -> String {
        let (owner, name) = (percent_encode(&repo.owner), percent_encode(&repo.name));
        self.url(&format!("/repos/{owner}/{name}{path}"))
    }

    /// Sends a request with a token for the repository.
    async fn send(&self, repo: &Repo, request: Request) -> Result<Response, VendorError> {
        self.send_authorized(repo, request, auth::AccessToken::authorize)
            .await
    }

    /// Sends a request that `sign` gives its token. A token that the host refuses is thrown away
    /// and the request sent once more: a 401 means that nothing was done.
    async fn send_authorized(
        &self,
        repo: &Repo,
        request: Request,
        sign: fn(&auth::AccessToken, Request) -> Request,
    ) -> Result<Response, VendorError> {
        let request = with_api_headers(request);
        let access = self.access_token(repo, request.action()).await?;
        match self
            .inner
            .client
            .send(&sign(&access, request.clone()))
            .await
        {
            Err(error) if error.status() == Some(401) && self.invalidate_token(&access) => {
                let access = self.access_token(repo, request.action()).await?;
                self.inner.client.send(&sign(&access, request)).await
            }
            outcome => outcome,
        }
    }

    /// Sends a change with a JSON body.
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

    /// Reads a list to its end.
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
            // Our credentials go to nobody else's next page.
            next = page.next.filter(|url| url.starts_with(&self.inner.api_url));
        }
        Ok(all)
    }
}

fn with_api_headers(request: Request) -> Request {
    request
        .header("accept", "application/vnd.github+json")
        .header("x-github-api-version", API_VERSION)
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
}

#[cfg(test)]
mod tests;
