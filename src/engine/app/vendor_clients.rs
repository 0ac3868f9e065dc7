//! Clients of the configured vendors.

use crate::config::{self, Config, Credentials, GitHubAuthConfig};
use domain::crypto::app_jwt::AppKey;
use domain::ids::Repo;
use domain::issue::System;
use domain::vendor::Vendor;
use store::StoreReader;
use vendors::chat::ChatWebhook;
use vendors::http::{Client, Redactor};
use vendors::scm::{GitHub, ScmCredentials};
use vendors::session_hosts::SessionHosts;
use vendors::ticketing::{GitHubIssues, Jira, Linear, TicketingClient};

use super::{StartupSettings, session_hosts};

/// Clients of the configured vendors, with the credentials that they were made from.
pub struct Vendors {
    /// Credentials in force: from the environment, else stored.
    pub credentials: Credentials,
    /// Clients of the configured ticketing accounts.
    pub ticketing: Vec<TicketingClient>,
    /// GitHub client; `None` if GitHub is not configured.
    pub github: Option<GitHub>,
    /// Chat webhook client; `None` if chat is not configured.
    pub chat: Option<ChatWebhook>,
    /// Client for requests to the service's own callback URL.
    pub callback_client: Client,
    /// Session hosts that are configured.
    pub sessions: SessionHosts,
}

/// Parts of the service from which clients are made.
pub(super) struct VendorSetup<'a> {
    pub config: &'a Config,
    pub store: &'a StoreReader,
    pub startup_settings: &'a StartupSettings,
    pub redactor: &'a Redactor,
}

impl VendorSetup<'_> {
    /// Creates an HTTP client for GitHub, without credentials.
    ///
    /// # Errors
    /// Fails if it cannot be created.
    pub(super) fn github_client(&self) -> Result<Client, String> {
        let proxies = self.config.proxy.for_clients()?;
        Client::with_proxies(&proxies, Vendor::GitHub.name(), self.redactor.clone())
    }

    /// Creates the clients for these credentials. A client of `previous` is kept, with its caches and its rate
    /// limit, if its credentials are the same.
    ///
    /// # Errors
    /// Fails if an HTTP client cannot be created.
    pub(super) fn build(
        &self,
        credentials: Credentials,
        previous: Option<&Vendors>,
    ) -> Result<Vendors, String> {
        let proxies = self.config.proxy.for_clients()?;
        let client = |vendor| Client::with_proxies(&proxies, vendor, self.redactor.clone());
        let kept = |is_same: fn(&Credentials, &Credentials) -> bool| {
            previous.filter(|previous| is_same(&previous.credentials, &credentials))
        };
        let mut ticketing = Vec::new();
        if let Some(config) = &credentials.linear {
            let same = kept(|old, new| old.linear == new.linear);
            ticketing.push(match same.and_then(|old| old.account(System::Linear)) {
                Some(account) => account.clone(),
                None => {
                    let http = client(Vendor::Linear.name())?;
                    let linear = Linear::new(http, &config.api_url, config.credentials.clone());
                    TicketingClient::Linear(linear.with_uploads_url(&config.uploads_url))
                }
            });
        }
        if let Some(config) = &credentials.jira {
            let same = kept(|old, new| old.jira == new.jira);
            ticketing.push(match same.and_then(|old| old.account(System::Jira)) {
                Some(account) => account.clone(),
                None => TicketingClient::Jira(Jira::new(
                    client(Vendor::Jira.name())?,
                    &config.api_url,
                    config.site_url.as_deref(),
                    &config.credentials,
                )),
            });
        }
        let github = match (
            &credentials.github,
            kept(|old, new| old.github == new.github),
        ) {
            (_, Some(same)) => same.github.clone(),
            (Some(config), None) => Some(github(client(Vendor::GitHub.name())?, config)?),
            (None, None) => None,
        };
        if let Some(github) = &github {
            ticketing.push(TicketingClient::GitHub(GitHubIssues::new(github.clone())));
        }
        let chat = match (&credentials.chat, kept(|old, new| old.chat == new.chat)) {
            (_, Some(same)) => same.chat.clone(),
            (Some(chat), None) => {
                let client = client("the chat")?;
                Some(ChatWebhook::new(client, chat.url.clone(), chat.kind))
            }
            (None, None) => None,
        };
        let sessions = match kept(|old, new| old.vm_token == new.vm_token) {
            Some(same) => same.sessions.clone(),
            None => session_hosts::build(
                self.config,
                credentials.vm_token.as_ref(),
                self.startup_settings,
                self.store,
                self.redactor,
                &proxies,
            )?,
        };
        Ok(Vendors {
            ticketing,
            github,
            chat,
            callback_client: match previous {
                Some(previous) => previous.callback_client.clone(),
                None => client("the callback address")?,
            },
            sessions,
            credentials,
        })
    }
}

impl Vendors {
    /// Client of a ticketing system; `None` if the system is not configured.
    pub fn account(&self, system: System) -> Option<&TicketingClient> {
        self.ticketing
            .iter()
            .find(|account| account.system() == system)
    }

    /// Clients of the ticketing systems in use. GitHub is configured for its repositories; its issues are
    /// in use only if a mapping takes them, as `is_used` says.
    pub fn ticketing_in_use(
        &self,
        is_used: impl Fn(System) -> bool,
    ) -> impl Iterator<Item = &TicketingClient> {
        let accounts = self.ticketing.iter();
        accounts.filter(move |account| match account.system() {
            System::Linear | System::Jira => true,
            System::GitHub => is_used(System::GitHub),
        })
    }

    /// URL of a pull request on GitHub.
    pub fn pull_url(&self, repo: &Repo, number: u64) -> String {
        let hosted = || "https://github.com".to_owned();
        let server = self.github.as_ref().map_or_else(hosted, GitHub::server_url);
        format!("{server}/{repo}/pull/{number}")
    }
}

fn github(client: Client, config: &config::GitHubConfig) -> Result<GitHub, String> {
    let credentials = match &config.credentials {
        GitHubAuthConfig::Token(token) => ScmCredentials::Token(token.clone()),
        GitHubAuthConfig::App { id, private_key } => ScmCredentials::App {
            id: id.clone(),
            key: AppKey::from_pem(private_key.expose())?,
        },
    };
    Ok(GitHub::new(client, &config.api_url, credentials))
}
