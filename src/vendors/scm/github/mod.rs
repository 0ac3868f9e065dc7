//! The client: where it calls, as whom, and what it remembers between calls.

mod auth;
mod cache;
mod checks;
mod comments;
mod contents;
mod conversation;
mod git_data;
mod graphql;
mod logs;
mod people;
mod pulls;
mod refusal;
mod reviews;
mod runs;
mod secrets;

use std::sync::Arc;

use serde::Deserialize;

use crate::http::{Client, Method, Quota, Request, Response, VendorError, url_encoded};
use domain::ids::Repo;
use domain::keys::app_jwt::AppKey;
use domain::secret::Secret;

pub use auth::{RepoPurpose, RepoToken};
pub use checks::CheckRun;
pub use comments::PrComment;
pub use contents::{FolderEntry, RepoFile};
pub use conversation::{Conversation, OpenPull, Spoken};
pub use git_data::{NewCommit, TreeContent, TreeFile};
pub use logs::{LOG_READ_WITHIN, RunLog};
pub use people::Permission;
pub use pulls::{NewPull, Pull, PullState};
pub use reviews::{Review, ReviewThread};
pub use runs::{DispatchError, RunRef, WorkflowRun};

/// The interface we are written for; the host keeps it for years. (contracts: *GitHub*)
const API_VERSION: &str = "2022-11-28";

/// How many pages of a list do we read at most? The host ends searches at 1,000 entries.
const MAX_PAGES: usize = 20;

/// As whom we speak to the host.
#[derive(Debug, Clone)]
pub enum Credentials {
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
    wire: Client,
    api_url: String,
    credentials: Credentials,
    tokens: auth::Tokens,
    pages: cache::Pages,
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
    pub fn new(wire: Client, api_url: &str, credentials: Credentials) -> Self {
        Self {
            inner: Arc::new(Inner {
                wire,
                api_url: api_url.trim_end_matches('/').to_owned(),
                credentials,
                tokens: auth::Tokens::default(),
                pages: cache::Pages::default(),
            }),
        }
    }

    /// What is left of the scarcest allowance.
    pub fn quota(&self) -> Quota {
        self.inner.wire.quota()
    }

    /// Every installation's allowance.
    pub fn quotas(&self) -> Vec<Quota> {
        self.inner.wire.quotas()
    }

    /// Asks the host who we are, and says it in a few words; of an App also how many accounts it is
    /// installed on. One request.
    ///
    /// # Errors
    /// 401 when the credential is refused.
    pub async fn probe(&self) -> Result<String, VendorError> {
        const ACTION: &str = "asking the repository host who we are";
        match &self.inner.credentials {
            Credentials::Token(token) => {
                let request = headers(Request::get(ACTION, self.url("/user")));
                let user: Named = self
                    .inner
                    .wire
                    .send(&request.bearer(token.expose()))
                    .await?
                    .json()?;
                Ok(format!("user {}", user.login.unwrap_or_default()))
            }
            Credentials::App { .. } => {
                let request = headers(Request::get(ACTION, self.url("/app")));
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
        let (owner, name) = (url_encoded(&repo.owner), url_encoded(&repo.name));
        self.url(&format!("/repos/{owner}/{name}{path}"))
    }

    /// Sends a request with a token for the repository.
    async fn send(&self, repo: &Repo, request: Request) -> Result<Response, VendorError> {
        self.send_signed(repo, request, auth::Access::sign).await
    }

    /// Sends a request that `sign` gives its token. A token that the host refuses is thrown away
    /// and the request sent once more: a 401 means that nothing was done.
    async fn send_signed(
        &self,
        repo: &Repo,
        request: Request,
        sign: fn(&auth::Access, Request) -> Request,
    ) -> Result<Response, VendorError> {
        let request = headers(request);
        let access = self.access(repo, request.action()).await?;
        match self.inner.wire.send(&sign(&access, request.clone())).await {
            Err(error) if error.status() == Some(401) && self.forget_token(&access) => {
                let access = self.access(repo, request.action()).await?;
                self.inner.wire.send(&sign(&access, request)).await
            }
            outcome => outcome,
        }
    }

    /// Sends a change with a JSON body.
    async fn change(
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
    async fn read_all<T: cache::Kept, Item>(
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

fn headers(request: Request) -> Request {
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
