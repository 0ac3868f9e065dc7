//! State shared by the engine's tasks and the HTTP server: configuration, store, clients, caches.

mod app_error;
mod comment_reads;
mod heartbeats;
mod ignored_deliveries;
mod live_state;
mod log_tails;
mod lookups;
mod merge_checks;
mod metrics;
mod permission_cache;
mod poll_snapshots;
mod probe_cache;
mod reconciliation;
mod run_log_limiter;
mod run_watches;
mod session_hosts;
mod sign_in_limiter;
mod stream_subscribers;
mod vault;
mod vendor_clients;

use std::ops::Deref;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use crate::clock::Clock;
use crate::config::{Config, Credentials};
use crate::program::OwnProgram;
use crate::standby::{Standby, StandbyTimings};
use domain::connection::CredentialValues;
use domain::crypto::run_token::RunTokenIssuer;
use domain::machine::HostKind;
use domain::retry::RetryPolicy;
use domain::runner_mode::{RunnerAvailability, RunnerMode};
use domain::secret::Secret;
use domain::time::Timestamp;
use store::crash_injection::CrashPlan;
use store::{ReadTx, ReadableTx, Store, StoreReader, StoreResult, settings};
use vendors::http::{Client, Redactor};

pub use app_error::AppError;
pub use comment_reads::CommentReads;
pub use heartbeats::{Heartbeat, Heartbeats, PollOutcome};
pub use ignored_deliveries::IgnoredDeliveries;
pub use live_state::{LiveState, Notifiers};
pub use log_tails::LogTails;
pub use lookups::FormLookups;
pub use merge_checks::MergeChecks;
pub use metrics::{HostMachineStats, Metrics, RouteMetrics, STATUSES};
pub use permission_cache::PermissionCache;
pub use poll_snapshots::{PollFailure, PollSnapshot, PollSnapshots, PolledIssue};
pub use probe_cache::{Connection, ProbeCache, ProbeResult, ProbeStatus};
pub use reconciliation::{Reconciliation, ReconciliationStats};
pub use run_log_limiter::RunLogLimiter;
pub use run_watches::RunWatches;
pub use session_hosts::DEFAULT_REGION;
pub(crate) use session_hosts::docker as docker_client;
pub use sign_in_limiter::SignInLimiter;
pub use stream_subscribers::StreamSubscribers;
pub use vault::{Vault, VaultError};
use vendor_clients::VendorSetup;
pub use vendor_clients::Vendors;

/// Handle of the engine's shared state; cheap to clone.
///
/// A handle and its clones keep the vendor clients of the time of [`App::latest`], so that one request, cycle
/// or effect ends with the clients it began with.
#[derive(Clone)]
pub struct App {
    inner: Arc<AppInner>,
    /// Clients of the vendors.
    pub vendors: Arc<Vendors>,
}

/// Shared state behind [`App`], in groups: a function that needs one group takes that group.
pub struct AppInner {
    /// Configuration, store and time.
    pub core: Core,
    /// Secrets and what keeps them out of logs.
    pub secrets: Secrets,
    /// State of this process, which a restart loses.
    pub live: LiveState,
    current_vendors: RwLock<Arc<Vendors>>,
    /// Held while clients are replaced, so that the last replacement sees the last change.
    replacement: Mutex<()>,
}

/// Configuration, store and time.
pub struct Core {
    /// Configuration of the process.
    pub config: Config,
    /// Persistent state. Other crates can only read it: see [`Core::store`].
    pub(crate) store: Store,
    /// Source of the current time.
    pub clock: Clock,
    /// Stored settings, as of the start of the process.
    pub startup_settings: StartupSettings,
    /// Intervals and delays.
    pub timings: Timings,
    /// Crash injection, for tests.
    pub crash_plan: CrashPlan,
    /// Program of this process, as runs fetch it.
    pub program: OwnProgram,
}

impl Core {
    /// Read access to the persistent state.
    pub fn store(&self) -> &StoreReader {
        &self.store
    }

    /// Effective runner mode: from the environment, else the stored setting.
    ///
    /// # Errors
    /// Fails if the store cannot be read.
    pub fn runner_mode(&self, tx: &impl ReadableTx) -> StoreResult<RunnerMode> {
        let stored = settings::runner_mode(tx)?;
        Ok(self.config.runner_mode.or(stored).unwrap_or_default())
    }

    /// Current time.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }
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

/// Secrets and what keeps them out of logs.
pub struct Secrets {
    /// Stored secrets for sessions.
    pub vault: Vault,
    /// Issuer of run tokens.
    pub run_tokens: RunTokenIssuer,
    /// Redactor of secrets in logs and error messages.
    pub redactor: Redactor,
}

impl Deref for App {
    type Target = AppInner;

    fn deref(&self) -> &AppInner {
        &self.inner
    }
}

/// Retries of an effect, with full jitter.
const EFFECT_RETRY: RetryPolicy = RetryPolicy {
    first_delay: Duration::from_secs(1),
    max_delay: Duration::from_secs(5 * 60),
    jitter: 1.0,
    honors_vendor: true,
    max_attempts: u32::MAX,
    timeout: Duration::from_secs(24 * 60 * 60),
};

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
    /// Retries of an effect.
    pub effect_retry: RetryPolicy,
    /// Durations of the standby.
    pub standby: StandbyTimings,
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
            standby: StandbyTimings {
                lease: Duration::from_secs(4),
                renewal: Duration::from_millis(500),
                margin: Duration::from_secs(1),
                interval: Duration::from_secs(1),
            },
            effect_retry: RetryPolicy {
                first_delay: Duration::from_millis(200),
                max_delay: Duration::from_secs(5),
                ..EFFECT_RETRY
            },
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
            effect_retry: EFFECT_RETRY,
            standby: StandbyTimings::default(),
            stream_heartbeat_interval: Duration::from_secs(15),
        }
    }
}

/// Options that differ between the service, a demo and a test.
#[derive(Clone, Default)]
pub struct AppOptions {
    /// Source of the current time.
    pub clock: Clock,
    /// Intervals and delays.
    pub timings: Timings,
    /// Crash injection, for tests.
    pub crash_plan: CrashPlan,
    /// Redactor of logs, which learns all secrets of the service.
    pub redactor: Redactor,
    /// Standby of the service.
    pub standby: Option<Standby>,
    /// Program that runs fetch; `None` for the running one. For tests, whose process is another program.
    pub program: Option<PathBuf>,
}

impl App {
    /// Creates the clients of all configured vendors.
    ///
    /// # Errors
    /// Fails if an HTTP client cannot be created, or if the stored secrets cannot be decrypted.
    pub fn new(config: Config, store: Store, options: AppOptions) -> Result<Self, AppError> {
        let vault = Vault::open(config.secrets_key.as_ref(), &store)?;
        let startup_settings = store.read(StartupSettings::read)?;
        let redactor = options.redactor;
        redactor.learn(config.secrets());
        let stored = store.read(|tx| Ok(vault.credentials(tx)))??;
        let credentials = in_force(&config, &stored);
        redactor.learn(credentials.secrets().map(Secret::expose));
        let setup = VendorSetup {
            config: &config,
            store: &store,
            startup_settings: &startup_settings,
            redactor: &redactor,
        };
        let vendors = setup.build(credentials, None);
        let vendors = Arc::new(vendors.map_err(AppError::Client)?);
        let signing_secret = match &config.runner_token_secret {
            Some(secret) => secret.clone(),
            None => vault.run_token_secret()?,
        };
        let inner = AppInner {
            current_vendors: RwLock::new(Arc::clone(&vendors)),
            replacement: Mutex::new(()),
            secrets: Secrets {
                run_tokens: RunTokenIssuer::new(&signing_secret),
                vault,
                redactor,
            },
            live: LiveState::new(options.clock.now(), options.standby),
            core: Core {
                config,
                store,
                clock: options.clock,
                startup_settings,
                timings: options.timings,
                crash_plan: options.crash_plan,
                program: OwnProgram::new(options.program),
            },
        };
        Ok(Self {
            inner: Arc::new(inner),
            vendors,
        })
    }

    /// Returns a handle with the vendor clients in force now.
    pub fn latest(&self) -> Self {
        let current = self.inner.current_vendors.read();
        Self {
            inner: Arc::clone(&self.inner),
            vendors: Arc::clone(&current.unwrap_or_else(PoisonError::into_inner)),
        }
    }

    /// Returns a handle with clients for these values, which replace the stored ones of their connection. Its
    /// redactor knows them, and that of the service does not.
    ///
    /// # Errors
    /// Fails if an HTTP client cannot be created.
    pub(crate) fn with_candidate(&self, credentials: Credentials) -> Result<Self, String> {
        let secrets = credentials.secrets().map(Secret::expose);
        let redactor = self.secrets.redactor.with(secrets);
        let vendors = self
            .vendor_setup(&redactor)
            .build(credentials, Some(&self.vendors))?;
        Ok(Self {
            inner: Arc::clone(&self.inner),
            vendors: Arc::new(vendors),
        })
    }

    /// Replaces the vendor clients by those of the credentials that are stored now. Returns the new handle.
    ///
    /// # Errors
    /// Fails if the store cannot be read, a row was altered, or an HTTP client cannot be created.
    pub(crate) fn replace_vendors(&self) -> Result<Self, String> {
        let _replacing = self.inner.replacement.lock();
        let stored = self
            .core
            .store
            .read(|tx| Ok(self.secrets.vault.credentials(tx)));
        let stored = stored.map_err(|error| error.to_string())?;
        let credentials = in_force(
            &self.core.config,
            &stored.map_err(|error| error.to_string())?,
        );
        let redactor = &self.secrets.redactor;
        redactor.learn(credentials.secrets().map(Secret::expose));
        let previous = self.latest().vendors;
        let vendors = self
            .vendor_setup(redactor)
            .build(credentials, Some(&previous))?;
        let current = self.inner.current_vendors.write();
        *current.unwrap_or_else(PoisonError::into_inner) = Arc::new(vendors);
        Ok(self.latest())
    }

    /// Creates an HTTP client for GitHub, without credentials.
    ///
    /// # Errors
    /// Fails if it cannot be created.
    pub(crate) fn github_client(&self) -> Result<Client, String> {
        self.vendor_setup(&self.secrets.redactor).github_client()
    }

    fn vendor_setup<'a>(&'a self, redactor: &'a Redactor) -> VendorSetup<'a> {
        VendorSetup {
            config: &self.core.config,
            store: &self.core.store,
            startup_settings: &self.core.startup_settings,
            redactor,
        }
    }

    /// Runners that are configured.
    pub fn available_runners(&self) -> RunnerAvailability {
        RunnerAvailability {
            vm: self.vendors.sessions.has_host(HostKind::Vm),
            local: self.vendors.sessions.has_host(HostKind::Local),
            kubernetes: self.vendors.sessions.has_host(HostKind::Kubernetes),
            callbacks: self.core.config.has_callbacks(),
            container_reports: self.core.config.containers_can_report(),
        }
    }
}

/// Returns the credentials in force: those of the environment, completed by stored ones. A stored set that is
/// invalid, such as with an address that the configuration no longer allows, is left out.
fn in_force(config: &Config, stored: &CredentialValues) -> Credentials {
    let (stored, problems) =
        Credentials::from_values(stored, &config.vendor_addresses, config.allow_plain_http);
    for problem in problems {
        tracing::warn!(problem, "A stored credential cannot be used.");
    }
    config.credentials.clone().or(stored)
}
