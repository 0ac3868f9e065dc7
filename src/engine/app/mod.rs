//! State shared by the engine's tasks and the HTTP server: configuration, store, clients, caches.

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
use store::{ReadTx, ReadableTx, Store, StoreReader, StoreResult, settings};
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

/// Handle of the engine's shared state; cheap to clone.
#[derive(Clone)]
pub struct App(Arc<AppInner>);

/// Shared state behind [`App`].
pub struct AppInner {
    /// Configuration of the process.
    pub config: Config,
    /// Persistent state. Other crates can only read it: see [`App::store`].
    pub(crate) store: Store,
    /// Source of the current time.
    pub clock: Clock,
    /// Clients of the configured ticketing accounts.
    pub ticketing: Vec<TicketingClient>,
    /// GitHub client; `None` if GitHub is not configured.
    pub github: Option<GitHub>,
    /// Chat webhook client; `None` if chat is not configured.
    pub chat: Option<ChatWebhook>,
    /// Client for requests to the service's own callback URL.
    pub callback_client: Client,
    /// Issuer of run tokens; `None` without a signing secret.
    pub run_tokens: Option<RunTokenIssuer>,
    /// Session hosts that are configured.
    pub sessions: SessionHosts,
    /// Stored settings, as of the start of the process.
    pub startup_settings: StartupSettings,
    /// Stored secrets for sessions.
    pub vault: Vault,
    /// Redactor of secrets in logs and error messages.
    pub redactor: Redactor,
    /// Intervals and delays.
    pub timings: Timings,
    /// Crash injection, for tests.
    pub crash_plan: CrashPlan,
    /// Wake-ups of the engine's tasks.
    pub notifiers: Notifiers,
    /// Heartbeats of the engine's tasks.
    pub heartbeats: Heartbeats,
    /// Issues of the latest polls.
    pub poll_snapshots: PollSnapshots,
    /// Latest results of connection probes.
    pub probe_cache: ProbeCache,
    /// Repository permissions of commenters.
    pub permission_cache: PermissionCache,
    /// State of reconciliation sweeps.
    pub reconciliation: Reconciliation,
    /// Last lines of each run's output.
    pub log_tails: LogTails,
    /// Clients of event streams.
    pub stream_subscribers: StreamSubscribers,
    /// Rate limits of audit entries about failed sign-ins.
    pub sign_in_limiter: SignInLimiter,
    /// Metrics of the process.
    pub metrics: Metrics,
}

impl Deref for App {
    type Target = AppInner;

    fn deref(&self) -> &AppInner {
        &self.0
    }
}

/// Wake-ups of the engine's tasks before their interval has passed.
#[derive(Default)]
pub struct Notifiers {
    /// Wakes the poll.
    pub poll: Notify,
    /// Signals a ticketing event that the poll must handle.
    pub ticket_event: Notify,
    /// Signals a ticketing event of a system whose search index may lag behind.
    pub delayed_ticket_event: Notify,
    /// Wakes the run monitor.
    pub run_monitor: Notify,
    /// Wakes the reaper.
    pub reap: Notify,
    /// Wakes the follow-up task.
    pub follow_up: Notify,
    /// Wakes reconciliation.
    pub reconcile: Notify,
    /// Wakes maintenance.
    pub maintenance: Notify,
    /// Notifies all waiters after the outcome of an outbox entry is recorded.
    pub effect_settled: Notify,
}

/// Stored settings that take effect at a restart.
#[derive(Debug, Clone, Default)]
pub struct StartupSettings {
    /// Fly app of session machines.
    pub vm_sessions_app: Option<String>,
    /// Fly region of session machines.
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

/// Intervals and delays of the engine. See docs/behaviour.md#limits.
#[derive(Debug, Clone, Copy)]
pub struct Timings {
    /// Interval of the run monitor.
    pub run_monitor_interval: Duration,
    /// Interval of the reaper.
    pub reap_interval: Duration,
    /// Interval of reconciliation.
    pub reconcile_interval: Duration,
    /// Time within which a run or comment may still appear at the vendor after a call whose
    /// response was lost. Longer than the client's request timeout, because the vendor may process
    /// the request all that time.
    pub max_visibility_delay: Duration,
    /// Delay before the first retry of an effect. It doubles with each attempt.
    pub first_retry_delay: Duration,
    /// Maximum delay before a retry of an effect.
    pub max_retry_delay: Duration,
    /// Interval of heartbeats on an idle event stream. The client's token is checked at the same
    /// interval.
    pub stream_heartbeat_interval: Duration,
}

impl Timings {
    /// Short intervals for fake vendors, which respond immediately.
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

/// Options that differ between the service, a demo and a test.
#[derive(Debug, Clone, Default)]
pub struct AppOptions {
    /// Source of the current time.
    pub clock: Clock,
    /// Intervals and delays.
    pub timings: Timings,
    /// Crash injection, for tests.
    pub crash_plan: CrashPlan,
}

impl App {
    /// Creates the clients of all configured vendors.
    ///
    /// # Errors
    /// Fails if an HTTP client cannot be created, or if the stored secrets cannot be decrypted.
    pub fn new(config: Config, store: Store, options: AppOptions) -> Result<Self, String> {
        let vault =
            Vault::open(config.secrets_key.as_ref(), &store).map_err(|error| error.to_string())?;
        let startup_settings = store.read(StartupSettings::read);
        let startup_settings = startup_settings.map_err(|error| error.to_string())?;
        let redactor = Redactor::new(config.secrets());
        let proxies = proxies(&config.proxy)?;
        let client = |vendor| Client::with_proxies(&proxies, vendor, redactor.clone());
        let mut ticketing = Vec::new();
        if let Some(config) = &config.linear {
            ticketing.push(TicketingClient::Linear(linear(client("linear")?, config)));
        }
        if let Some(config) = &config.jira {
            ticketing.push(TicketingClient::Jira(jira(client("jira")?, config)));
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
        let sessions =
            session_hosts::build(&config, &startup_settings, &store, &redactor, &proxies)?;
        Ok(Self(Arc::new(AppInner {
            run_tokens: config.runner_token_secret.as_ref().map(RunTokenIssuer::new),
            config,
            store,
            metrics: Metrics::new(options.clock.now()),
            clock: options.clock,
            ticketing,
            github,
            chat,
            callback_client: callback,
            sessions,
            startup_settings,
            vault,
            redactor,
            timings: options.timings,
            crash_plan: options.crash_plan,
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

    /// Read access to the persistent state.
    pub fn store(&self) -> &StoreReader {
        &self.store
    }

    /// Client of a ticketing system; `None` if the system is not configured.
    pub fn account(&self, system: System) -> Option<&TicketingClient> {
        self.ticketing
            .iter()
            .find(|account| account.system() == system)
    }

    /// Runners that are configured.
    pub fn available_runners(&self) -> RunnerAvailability {
        RunnerAvailability {
            vm: self.sessions.has_host(HostKind::Vm),
            local: self.sessions.has_host(HostKind::Local),
            callbacks: self.config.has_callbacks(),
        }
    }

    /// Effective runner mode: from the environment, else the stored setting.
    ///
    /// # Errors
    /// Fails if the store cannot be read.
    pub fn runner_mode(&self, tx: &impl ReadableTx) -> StoreResult<RunnerMode> {
        let stored = settings::runner_mode(tx)?;
        Ok(self.config.runner_mode.or(stored).unwrap_or_default())
    }

    /// URL of a pull request on GitHub.
    pub fn pull_url(&self, repo: &Repo, number: u64) -> String {
        let hosted = || "https://github.com".to_owned();
        let server = self.github.as_ref().map_or_else(hosted, GitHub::server_url);
        format!("{server}/{repo}/pull/{number}")
    }

    /// Current time.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
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

fn linear(client: Client, config: &config::LinearConfig) -> Linear {
    let credentials = match config.credentials.clone() {
        config::LinearAuthConfig::Key(key) => LinearCredentials::ApiKey(key),
        config::LinearAuthConfig::Client { id, secret } => {
            LinearCredentials::OAuthClient { id, secret }
        }
    };
    Linear::new(client, &config.api_url, credentials)
}

fn jira(client: Client, config: &config::JiraConfig) -> Jira {
    let credentials = match config.credentials.clone() {
        config::JiraAuthConfig::Basic { email, token } => JiraCredentials::Basic { email, token },
        config::JiraAuthConfig::Bearer(token) => JiraCredentials::Bearer(token),
    };
    Jira::new(
        client,
        &config.api_url,
        config.site_url.as_deref(),
        &credentials,
    )
}
