//! Clients of the configured vendors.

use crate::config::{self, Config, GitHubAuthConfig};
use domain::crypto::app_jwt::AppKey;
use domain::ids::Repo;
use domain::issue::System;
use domain::vendor::Vendor;
use store::StoreReader;
use vendors::chat::ChatWebhook;
use vendors::http::{Client, Proxies, Redactor};
use vendors::scm::{GitHub, ScmCredentials};
use vendors::session_hosts::SessionHosts;
use vendors::ticketing::{Jira, Linear, TicketingClient};

use super::{StartupSettings, session_hosts};

/// Clients of the configured vendors.
pub struct Vendors {
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

impl Vendors {
    /// Creates the clients.
    ///
    /// # Errors
    /// Fails if an HTTP client cannot be created.
    pub(super) fn new(
        config: &Config,
        store: &StoreReader,
        startup_settings: &StartupSettings,
        redactor: &Redactor,
    ) -> Result<Self, String> {
        let proxies = proxies(&config.proxy)?;
        let client = |vendor| Client::with_proxies(&proxies, vendor, redactor.clone());
        let mut ticketing = Vec::new();
        if let Some(config) = &config.linear {
            ticketing.push(TicketingClient::Linear(Linear::new(
                client(Vendor::Linear.name())?,
                &config.api_url,
                config.credentials.clone(),
            )));
        }
        if let Some(config) = &config.jira {
            ticketing.push(TicketingClient::Jira(Jira::new(
                client(Vendor::Jira.name())?,
                &config.api_url,
                config.site_url.as_deref(),
                &config.credentials,
            )));
        }
        let github = match &config.github {
            Some(config) => Some(github(client(Vendor::GitHub.name())?, config)?),
            None => None,
        };
        let chat = match &config.chat {
            Some(chat) => Some(ChatWebhook::new(
                client("the chat")?,
                chat.url.clone(),
                chat.kind,
            )),
            None => None,
        };
        Ok(Self {
            ticketing,
            github,
            chat,
            callback_client: client("the callback address")?,
            sessions: session_hosts::build(config, startup_settings, store, redactor, &proxies)?,
        })
    }

    /// Client of a ticketing system; `None` if the system is not configured.
    pub fn account(&self, system: System) -> Option<&TicketingClient> {
        self.ticketing
            .iter()
            .find(|account| account.system() == system)
    }

    /// URL of a pull request on GitHub.
    pub fn pull_url(&self, repo: &Repo, number: u64) -> String {
        let hosted = || "https://github.com".to_owned();
        let server = self.github.as_ref().map_or_else(hosted, GitHub::server_url);
        format!("{server}/{repo}/pull/{number}")
    }
}

fn proxies(config: &config::ProxyConfig) -> Result<Proxies, String> {
    let address = |proxy: &Option<config::ProxyAddress>| {
        let proxy = proxy.as_ref();
        proxy.map(|proxy| proxy.address.expose().to_owned())
    };
    let (https, http) = (address(&config.https_proxy), address(&config.http_proxy));
    Proxies::new(https.as_deref(), http.as_deref(), &config.no_proxy)
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
