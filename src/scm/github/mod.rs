//! The client: where it calls, as whom, and what it remembers between calls.

mod auth;
mod comments;
mod pulls;
mod runs;

use std::sync::Arc;

use crate::domain::ids::Repo;
use crate::domain::secret::Secret;
use crate::keys::app_jwt::AppKey;
use crate::wire::{Client, Quota, VendorError};

pub use auth::RepoToken;
pub use comments::PrComment;
pub use pulls::{NewPull, Pull, PullState};
pub use runs::{DispatchError, RunRef, WorkflowRun};

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
}

impl GitHub {
    /// A client of the host whose REST interface stands at `api_url`.
    pub fn new(wire: Client, api_url: &str, credentials: Credentials) -> Self {
        Self {
            inner: Arc::new(Inner {
                wire,
                api_url: api_url.trim_end_matches('/').to_owned(),
                credentials,
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

    /// Asks the host who we are, and says it in a few words.
    pub async fn probe(&self) -> Result<String, VendorError> {
        todo!()
    }

    /// The branch new work starts from.
    pub async fn default_branch(&self, repo: &Repo) -> Result<String, VendorError> {
        todo!("{repo}")
    }
}
