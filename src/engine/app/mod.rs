//! Everything the engine holds: handles, no behaviour.

mod heartbeats;
mod log_tails;
mod metrics;
mod permission_cache;
mod poll_snapshots;
mod probe_cache;
mod reconciliation;
mod session_hosts;
mod sign_in_limiter;
mod stream_subscribers;
mod vault;

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use crate::clock::Clock;
use crate::config::{self, Config, GitHubAuthConfig};
use domain::crypto::app_jwt::AppKey;
use domain::crypto::run_token::RunTokenIssuer;
use domain::ids::Repo;
use domain::issue::System;
use domain::machine::HostKind;
use domain::runner_mode::{RunnerAvailability, RunnerMode};
use domain::time::Timestamp;
use store::crash_injection::CrashPlan;
use store::{ReadTx, ReadableTx, Store, StoreResult, settings};
use vendors::chat::ChatWebhook;
use vendors::http::{Client, Proxies, Redactor};
use vendors::scm::{GitHub, ScmCredentials};
use vendors::session_hosts::SessionHosts;
use vendors::ticketing::{Jira, JiraCredentials, Linear, LinearCredentials, TicketingClient};

pub use heartbeats::{Heartbeat, Heartbeats};
pub use log_tails::LogTails;
pub use metrics::{HostMachineStats, MAX_ROUTES, Metrics, STATUSES};
pub use permission_cache::PermissionCache;
pub use poll_snapshots::{PollSnapshot, PollSnapshots, PolledIssue};
pub use probe_cache::{Connection, ProbeCache, ProbeResult, ProbeStatus};
pub use reconciliation::{Reconciliation, ReconciliationStats};
pub use session_hosts::DEFAULT_REGION;
pub use sign_in_limiter::SignInLimiter;
pub use stream_subscribers::StreamSubscribers;
pub use vault::{Vault, VaultError};

/// The engine's handles; cheap to clone.
#[derive(Clone)]
pub struct App(Arc<AppInner>);

pub struct AppInner {
    pub config: Config,
    pub store: Store,
    pub clock: Clock,
    /// The ticketing accounts that are configured.
    pub ticketing: Vec<TicketingClient>,
    pub github: Option<GitHub>,
    pub chat: Option<ChatWebhook>,
    /// Asks ourselves at the address that runs are given.
    pub callback_client: Client,
    /// None without a secret to sign them with.
    pub run_tokens: Option<RunTokenIssuer>,
    /// The machines of sessions, where they can be had.
    pub sessions: SessionHosts,
    /// The settings that were stored when the process began.
    pub startup_settings: StartupSettings,
    /// The operators' secrets for sessions.
    pub vault: Vault,
    pub redactor: Redactor,
    pub timings: Timings,
    pub crash_plan: CrashPlan,
    pub notifiers: Notifiers,
    pub heartbeats: Heartbeats,
    pub poll_snapshots: PollSnapshots,
    pub probe_cache: ProbeCache,
    pub permission_cache: PermissionCache,
    pub reconciliation: Reconciliation,
    pub log_tails: LogTails,
    pub stream_subscribers: StreamSubscribers,
    pub sign_in_limiter: SignInLimiter,
    pub metrics: Metrics,
}

impl Deref for App {
    type Target = AppInner;

    fn deref(&self) -> &AppInner {
        &self.0
    }
}

/// Waking a task before its period is over, and whoever waits for what is owed.
#[derive(Default)]
pub struct Notifiers {
    pub poll: Notify,
    /// Something happened in a ticketing system that the poll should look at.
    pub ticket_event: Notify,
    /// The same in one whose search may not find it yet.
    pub delayed_ticket_event: Notify,
    pub run_monitor: Notify,
    pub reap: Notify,
    pub follow_up: Notify,
    pub reconcile: Notify,
    pub maintenance: Notify,
    /// Rung for all that wait, when it is noted what came of trying an effect.
    pub effect_settled: Notify,
}

/// Stored settings that count from a start on.
#[derive(Debug, Clone, Default)]
pub struct StartupSettings {
    pub vm_sessions_app: Option<String>,
    pub vm_sessions_region: Option<String>,
}

impl StartupSettings {
    fn read(tx: &ReadTx) -> StoreResult<Self> {
        Ok(Self {
            vm_sessions_app: settings::get(tx, settings::OperatorSetting::VmSessionsApp)?,
            vm_sessions_region: settings::get(tx, settings::OperatorSetting::VmSessionsRegion)?,
        })
    }
}

/// How fast the engine moves where the spec does not say. Hosts that answer at once, such as those
/// of the demo, allow a quicker one.
#[derive(Debug, Clone, Copy)]
pub struct Timings {
    /// How often are open runs looked at?
    pub run_monitor_interval: Duration,
    /// How often are machines looked at that nobody needs any more?
    pub reap_interval: Duration,
    /// How often are open pull requests looked at for what no webhook told?
    pub reconcile_interval: Duration,
    /// How long after a try whose answer was lost may its run or comment still appear at the host?
    /// Longer than a client waits for an answer: the host may have been at it all that time.
    pub max_visibility_delay: Duration,
    /// How long is the first wait before an effect is tried again? It doubles each time.
    pub first_retry_delay: Duration,
    /// How long is the longest?
    pub max_retry_delay: Duration,
    /// How often is a silent stream of events given a sign of life, and its reader's token looked at
    /// again?
    pub stream_heartbeat_interval: Duration,
}

impl Timings {
    /// For stand-in vendors, which answer at once: nobody has to be waited for as long as the real
    /// ones.
    pub fn for_fake_vendors() -> Self {
        Self {
            run_monitor_interval: Duration::from_secs(1),
            max_visibility_delay: Duration::from_secs(2),
            first_retry_delay: Duration::from_millis(200),
            max_retry_delay: Duration::from_secs(5),
            ..Self::default()
        }
    }
}

impl Default for Timings {
    fn default() -> Self {
        Self {
            run_monitor_interval: Duration::from_secs(15),
            reap_interval: Duration::from_secs(60),
            reconcile_interval: Duration::from_secs(10 * 60),
            max_visibility_delay: Duration::from_secs(45),
            first_retry_delay: Duration::from_secs(1),
            max_retry_delay: Duration::from_secs(5 * 60),
            stream_heartbeat_interval: Duration::from_secs(15),
        }
    }
}

/// What differs between a service, a demo and a test.
#[derive(Debug, Clone, Default)]
pub struct AppOptions {
    pub clock: Clock,
    pub timings: Timings,
    pub crash_plan: CrashPlan,
}

impl App {
    /// Makes the clients that the configuration allows.
    ///
    /// # Errors
    /// When an HTTP client cannot be made at all, or the stored secrets cannot be opened.
    pub fn new(config: Config, store: Store, setting: AppOptions) -> Result<Self, String> {
        let vault =
            Vault::open(config.secrets_key.as_ref(), &store).map_err(|error| error.to_string())?;
        let started_with = store.read(StartupSettings::read);
        let started_with = started_with.map_err(|error| error.to_string())?;
        let redactor = Redactor::new(config.secrets());
        let proxies = outbound(&config.proxy)?;
        let client = |vendor| Client::with_proxies(&proxies, vendor, redactor.clone());
        let mut ticketing = Vec::new();
        if let Some(given) = &config.linear {
            ticketing.push(TicketingClient::Linear(linear(client("linear")?, given)));
        }
        if let Some(given) = &config.jira {
            ticketing.push(TicketingClient::Jira(jira(client("jira")?, given)));
        }
        let github = match &config.github {
            Some(github) => {
                let credentials = match &github.credentials {
                    GitHubAuthConfig::Token(token) => ScmCredentials::Token(token.clone()),
                    GitHubAuthConfig::App { id, private_key } => ScmCredentials::App {
                        id: id.clone(),
                        key: AppKey::from_pem(private_key.expose())?,
                    },
                };
                Some(GitHub::new(client("github")?, &github.api_url, credentials))
            }
            None => None,
        };
        let chat = match &config.chat {
            Some(notify) => Some(ChatWebhook::new(
                client("chat")?,
                notify.url.clone(),
                notify.kind,
            )),
            None => None,
        };
        let callback = client("the callback address")?;
        let sessions = session_hosts::build(&config, &started_with, &store, &redactor, &proxies)?;
        Ok(Self(Arc::new(AppInner {
            run_tokens: config.runner_token_secret.as_ref().map(RunTokenIssuer::new),
            config,
            store,
            metrics: Metrics::new(setting.clock.now()),
            clock: setting.clock,
            ticketing,
            github,
            chat,
            callback_client: callback,
            sessions,
            startup_settings: started_with,
            vault,
            redactor,
            timings: setting.timings,
            crash_plan: setting.crash_plan,
            notifiers: Notifiers::default(),
            heartbeats: Heartbeats::default(),
            poll_snapshots: PollSnapshots::default(),
            probe_cache: ProbeCache::default(),
            permission_cache: PermissionCache::default(),
            reconciliation: Reconciliation::default(),
            log_tails: LogTails::default(),
            stream_subscribers: StreamSubscribers::default(),
            sign_in_limiter: SignInLimiter::default(),
        })))
    }

    /// The account of a ticketing system, when it is configured.
    pub fn account(&self, system: System) -> Option<&TicketingClient> {
        self.ticketing
            .iter()
            .find(|account| account.system() == system)
    }

    /// What is set up for sessions.
    pub fn available_runners(&self) -> RunnerAvailability {
        RunnerAvailability {
            vm: self.sessions.has_host(HostKind::Vm),
            local: self.sessions.has_host(HostKind::Local),
            callbacks: self.config.has_callbacks(),
        }
    }

    /// The runner mode in force: the environment's, else the stored one.
    pub fn runner_mode(&self, tx: &impl ReadableTx) -> StoreResult<RunnerMode> {
        let stored = settings::runner_mode(tx)?;
        Ok(self.config.runner_mode.or(stored).unwrap_or_default())
    }

    /// Page of a pull request at the repository host.
    pub fn pull_url(&self, repo: &Repo, number: u64) -> String {
        let hosted = || "https://github.com".to_owned();
        let server = self.github.as_ref().map_or_else(hosted, GitHub::server_url);
        format!("{server}/{repo}/pull/{number}")
    }

    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }
}

fn outbound(given: &config::ProxyConfig) -> Result<Proxies, String> {
    let address = |proxy: &Option<config::ProxyAddress>| {
        let proxy = proxy.as_ref();
        proxy.map(|proxy| proxy.address.expose().to_owned())
    };
    let (https, http) = (address(&given.https_proxy), address(&given.http_proxy));
    Proxies::new(https.as_deref(), http.as_deref(), &given.no_proxy)
}

fn linear(client: Client, given: &config::LinearConfig) -> Linear {
    let credentials = match given.credentials.clone() {
        config::LinearAuthConfig::Key(key) => LinearCredentials::ApiKey(key),
        config::LinearAuthConfig::Client { id, secret } => {
            LinearCredentials::OAuthClient { id, secret }
        }
    };
    Linear::new(client, &given.api_url, credentials)
}

fn jira(client: Client, given: &config::JiraConfig) -> Jira {
    let credentials = match given.credentials.clone() {
        config::JiraAuthConfig::Basic { email, token } => JiraCredentials::Basic { email, token },
        config::JiraAuthConfig::Bearer(token) => JiraCredentials::Bearer(token),
    };
    Jira::new(
        client,
        &given.api_url,
        given.site_url.as_deref(),
        &credentials,
    )
}
