//! Everything the engine holds: handles, no behaviour.

mod audience;
mod door;
mod healing;
mod hosts;
mod metrics;
mod probes;
mod pulse;
mod sightings;
mod tails;
mod trust;
mod vault;

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use crate::clock::Clock;
use crate::config::{self, Config, GitHubCredentials};
use domain::ids::Repo;
use domain::issue::System;
use domain::keys::app_jwt::AppKey;
use domain::keys::run_token::RunTokens;
use domain::machine::HostKind;
use domain::runner_mode::{Available, RunnerMode};
use domain::time::Timestamp;
use store::crash::CrashPlan;
use store::{ReadTx, Rows, Store, StoreResult, settings};
use vendors::chat::Chat;
use vendors::http::{Client, Proxies, Redactor};
use vendors::scm::{Credentials, GitHub};
use vendors::session_hosts::Sessions;
use vendors::ticketing::{Account, Jira, JiraCredentials, Linear, LinearCredentials};

pub use audience::Audience;
pub use door::Door;
pub use healing::{Healed, Healing};
pub use hosts::DEFAULT_REGION;
pub use metrics::{MAX_ROUTES, Machines, Metrics, STATUSES};
pub use probes::{Condition, Connection, Finding, Probes};
pub use pulse::{Beat, Pulse};
pub use sightings::{Sighted, Sighting, Sightings};
pub use tails::Tails;
pub use trust::Trust;
pub use vault::{Vault, VaultError};

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
    /// The machines of sessions, where they can be had.
    pub sessions: Sessions,
    /// The settings that were stored when the process began.
    pub started_with: StartedWith,
    /// The operators' secrets for sessions.
    pub vault: Vault,
    pub redactor: Redactor,
    pub pace: Pace,
    pub crash: CrashPlan,
    pub bells: Bells,
    pub pulse: Pulse,
    pub sightings: Sightings,
    pub probes: Probes,
    pub trust: Trust,
    pub healing: Healing,
    pub tails: Tails,
    pub audience: Audience,
    pub door: Door,
    pub metrics: Metrics,
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
    /// Something happened in a ticketing system that the poll should look at.
    pub event: Notify,
    /// The same in one whose search may not find it yet.
    pub late_event: Notify,
    pub watch: Notify,
    pub reap: Notify,
    pub follow_up: Notify,
    pub heal: Notify,
    pub door: Notify,
    /// Rung for all that wait, when it is noted what came of trying an effect.
    pub settled: Notify,
}

/// Stored settings that count from a start on.
#[derive(Debug, Clone, Default)]
pub struct StartedWith {
    pub app: Option<String>,
    pub region: Option<String>,
}

impl StartedWith {
    fn read(tx: &ReadTx) -> StoreResult<Self> {
        Ok(Self {
            app: settings::get(tx, settings::Setting::VmSessionsApp)?,
            region: settings::get(tx, settings::Setting::VmSessionsRegion)?,
        })
    }
}

/// How fast the engine moves where the spec does not say. Hosts that answer at once, such as those
/// of the demo, allow a quicker one.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// How often are open runs looked at?
    pub watch: Duration,
    /// How often are machines looked at that nobody needs any more?
    pub reap: Duration,
    /// How often are open pull requests looked at for what no webhook told?
    pub heal: Duration,
    /// How long after a try whose answer was lost may its run or comment still appear at the host?
    /// Longer than a client waits for an answer: the host may have been at it all that time.
    pub appears_within: Duration,
    /// How long is the first wait before an effect is tried again? It doubles each time.
    pub first_retry: Duration,
    /// How long is the longest?
    pub longest_retry: Duration,
    /// How often is a silent stream of events given a sign of life, and its reader's token looked at
    /// again?
    pub heartbeat: Duration,
}

impl Pace {
    /// For stand-in vendors, which answer at once: nobody has to be waited for as long as the real
    /// ones.
    pub fn quick() -> Self {
        Self {
            watch: Duration::from_secs(1),
            appears_within: Duration::from_secs(2),
            first_retry: Duration::from_millis(200),
            longest_retry: Duration::from_secs(5),
            ..Self::default()
        }
    }
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            watch: Duration::from_secs(15),
            reap: Duration::from_secs(60),
            heal: Duration::from_secs(10 * 60),
            appears_within: Duration::from_secs(45),
            first_retry: Duration::from_secs(1),
            longest_retry: Duration::from_secs(5 * 60),
            heartbeat: Duration::from_secs(15),
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
    /// When an HTTP client cannot be made at all, or the stored secrets cannot be opened.
    pub fn new(config: Config, store: Store, setting: Setting) -> Result<Self, String> {
        let vault =
            Vault::open(config.secrets_key.as_ref(), &store).map_err(|error| error.to_string())?;
        let started_with = store.read(StartedWith::read);
        let started_with = started_with.map_err(|error| error.to_string())?;
        let redactor = Redactor::new(config.secrets());
        let proxies = outbound(&config.outbound)?;
        let client = |vendor| Client::through(&proxies, vendor, redactor.clone());
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
        let sessions = hosts::sessions(&config, &started_with, &store, &redactor, &proxies)?;
        Ok(Self(Arc::new(Handles {
            run_tokens: config.runner_token_secret.as_ref().map(RunTokens::new),
            config,
            store,
            metrics: Metrics::new(setting.clock.now()),
            clock: setting.clock,
            ticketing,
            github,
            chat,
            callback,
            sessions,
            started_with,
            vault,
            redactor,
            pace: setting.pace,
            crash: setting.crash,
            bells: Bells::default(),
            pulse: Pulse::default(),
            sightings: Sightings::default(),
            probes: Probes::default(),
            trust: Trust::default(),
            healing: Healing::default(),
            tails: Tails::default(),
            audience: Audience::default(),
            door: Door::default(),
        })))
    }

    /// The account of a ticketing system, when it is configured.
    pub fn account(&self, system: System) -> Option<&Account> {
        self.ticketing
            .iter()
            .find(|account| account.system() == system)
    }

    /// What is set up for sessions.
    pub fn available(&self) -> Available {
        Available {
            vm: self.sessions.has(HostKind::Vm),
            local: self.sessions.has(HostKind::Local),
            callbacks: self.config.has_callbacks(),
        }
    }

    /// The runner mode in force: the environment's, else the stored one.
    pub fn runner_mode(&self, tx: &impl Rows) -> StoreResult<RunnerMode> {
        let stored = settings::runner_mode(tx)?;
        Ok(self.config.runner_mode.or(stored).unwrap_or_default())
    }

    /// Page of a pull request at the repository host.
    pub fn pull_page(&self, repo: &Repo, number: u64) -> String {
        let hosted = || "https://github.com".to_owned();
        let server = self.github.as_ref().map_or_else(hosted, GitHub::server_url);
        format!("{server}/{repo}/pull/{number}")
    }

    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }
}

fn outbound(given: &config::Outbound) -> Result<Proxies, String> {
    let address = |proxy: &Option<config::ProxyAddress>| {
        let proxy = proxy.as_ref();
        proxy.map(|proxy| proxy.address.expose().to_owned())
    };
    let (https, http) = (address(&given.https_proxy), address(&given.http_proxy));
    Proxies::new(https.as_deref(), http.as_deref(), &given.no_proxy)
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
