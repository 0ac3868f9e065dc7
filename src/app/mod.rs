//! Everything the engine holds: handles, no behaviour.

mod audience;
mod probes;
mod pulse;
mod sightings;
mod tails;

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use crate::chat::Chat;
use crate::clock::Clock;
use crate::config::{self, Config, GitHubCredentials};
use crate::crash::CrashPlan;
use crate::domain::issue::System;
use crate::domain::time::Timestamp;
use crate::keys::app_jwt::AppKey;
use crate::keys::run_token::RunTokens;
use crate::scm::{Credentials, GitHub};
use crate::store::Store;
use crate::ticketing::{Account, Jira, JiraCredentials, Linear, LinearCredentials};
use crate::wire::{Client, Redactor};

pub use audience::Audience;
pub use probes::{Condition, Connection, Finding, Probes};
pub use pulse::{Beat, Pulse};
pub use sightings::{Sighted, Sighting, Sightings};
pub use tails::Tails;

/// The engine's handles; cheap to clone.
#[derive(Clone)]
pub struct App(Arc<Handles>);

pub struct Handles {
    pub config: Config,
    pub store: Store,
    pub clock: Clock,
    /// The ticketing accounts that are configured.
    pub ticketing: Vec<Account>,
    pub github: Option<GitHub>,
    pub chat: Option<Chat>,
    /// Asks ourselves at the address that runs are given.
    pub callback: Client,
    /// None without a secret to sign them with.
    pub run_tokens: Option<RunTokens>,
    pub redactor: Redactor,
    pub pace: Pace,
    pub crash: CrashPlan,
    pub bells: Bells,
    pub pulse: Pulse,
    pub sightings: Sightings,
    pub probes: Probes,
    pub tails: Tails,
    pub audience: Audience,
}

impl Deref for App {
    type Target = Handles;

    fn deref(&self) -> &Handles {
        &self.0
    }
}

/// Waking a task before its period is over, and whoever waits for what is owed.
#[derive(Default)]
pub struct Bells {
    pub poll: Notify,
    pub watch: Notify,
    /// Rung for all that wait, when it is noted what came of trying an effect.
    pub settled: Notify,
}

/// How fast the engine moves where the spec does not say. Hosts that answer at once, such as those
/// of the demo, allow a quicker one.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// How often are open runs looked at?
    pub watch: Duration,
    /// How long after a dispatch whose answer was lost may its run still appear in the host's list?
    pub run_appears_within: Duration,
    /// How long is the first wait before an effect is tried again? It doubles each time.
    pub first_retry: Duration,
    /// How long is the longest?
    pub longest_retry: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            watch: Duration::from_secs(15),
            run_appears_within: Duration::from_secs(20),
            first_retry: Duration::from_secs(1),
            longest_retry: Duration::from_secs(5 * 60),
        }
    }
}

/// What differs between a service, a demo and a test.
#[derive(Debug, Clone, Default)]
pub struct Setting {
    pub clock: Clock,
    pub pace: Pace,
    pub crash: CrashPlan,
}

impl App {
    /// Makes the clients that the configuration allows.
    ///
    /// # Errors
    /// When an HTTP client cannot be made at all.
    pub fn new(config: Config, store: Store, setting: Setting) -> Result<Self, String> {
        let redactor = Redactor::new(config.secrets());
        let client = |vendor| Client::new(vendor, redactor.clone());
        let mut ticketing = Vec::new();
        if let Some(given) = &config.linear {
            ticketing.push(Account::Linear(linear(client("linear")?, given)));
        }
        if let Some(given) = &config.jira {
            ticketing.push(Account::Jira(jira(client("jira")?, given)));
        }
        let github = match &config.github {
            Some(github) => {
                let credentials = match &github.credentials {
                    GitHubCredentials::Token(token) => Credentials::Token(token.clone()),
                    GitHubCredentials::App { id, private_key } => Credentials::App {
                        id: id.clone(),
                        key: AppKey::from_pem(private_key.expose())?,
                    },
                };
                Some(GitHub::new(client("github")?, &github.api_url, credentials))
            }
            None => None,
        };
        let chat = match &config.notify {
            Some(notify) => Some(Chat::new(client("chat")?, notify.url.clone(), notify.kind)),
            None => None,
        };
        let callback = client("the callback address")?;
        Ok(Self(Arc::new(Handles {
            run_tokens: config.runner_token_secret.as_ref().map(RunTokens::new),
            config,
            store,
            clock: setting.clock,
            ticketing,
            github,
            chat,
            callback,
            redactor,
            pace: setting.pace,
            crash: setting.crash,
            bells: Bells::default(),
            pulse: Pulse::default(),
            sightings: Sightings::default(),
            probes: Probes::default(),
            tails: Tails::default(),
            audience: Audience::default(),
        })))
    }

    /// The account of a ticketing system, when it is configured.
    pub fn account(&self, system: System) -> Option<&Account> {
        self.ticketing
            .iter()
            .find(|account| account.system() == system)
    }

    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }
}

fn linear(client: Client, given: &config::Linear) -> Linear {
    let credentials = match given.credentials.clone() {
        config::LinearCredentials::Key(key) => LinearCredentials::Key(key),
        config::LinearCredentials::Client { id, secret } => {
            LinearCredentials::Client { id, secret }
        }
    };
    Linear::new(client, &given.api_url, credentials)
}

fn jira(client: Client, given: &config::Jira) -> Jira {
    let credentials = match given.credentials.clone() {
        config::JiraCredentials::Basic { email, token } => JiraCredentials::Basic { email, token },
        config::JiraCredentials::Bearer(token) => JiraCredentials::Bearer(token),
    };
    Jira::new(
        client,
        &given.api_url,
        given.site_url.as_deref(),
        &credentials,
    )
}
