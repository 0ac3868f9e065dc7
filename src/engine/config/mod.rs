//! Configuration, read once from the environment and the command line.
//!
//! Every variable is also a flag. A secret is set as `NAME`, as a file named by `NAME_FILE`, or as
//! a systemd credential called `NAME`. All errors are reported in one message. A missing optional
//! value disables its feature.

mod address;
mod credentials;
mod dispatch;
mod effective;
mod env_file;
mod given;
mod kubernetes;
mod notices;
mod observability;
mod options;
mod proxy;
mod runner_program;
mod secrets;
mod session_hosts;
mod sources;
mod standby;
mod supervisor;
mod ticketing;
mod trusted_proxies;
mod validator;

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use domain::runner_mode::RunnerMode;
use domain::secret::Secret;
use vendors::chat::ChatKind;

pub use address::is_loopback;
pub use credentials::{Credentials, VendorAddresses};
pub use env_file::EnvFile;
pub use given::GivenSettings;
pub use kubernetes::KubernetesConfig;
use kubernetes::KubernetesOptions;
pub use notices::Notices;
pub use observability::MetricsConfig;
pub use options::{Options, default_of};
pub use proxy::{ProxyAddress, ProxyConfig};
pub use runner_program::RunnerProgramConfig;
use secrets::OptionSecrets;
pub use session_hosts::{ContainerEngine, ContainerNetwork, ContainersConfig, VmSessionsConfig};
use sources::Sources;
pub use sources::allows_colours;
pub use standby::{BucketOptions, PlaceConfig, PlaceOptions, StandbyConfig, command_secret};
pub use supervisor::Supervisor;
pub use ticketing::{JiraConfig, LinearConfig};
pub use trusted_proxies::TrustedProxies;
use validator::Validator;

/// Minimum interval between two polls, in milliseconds.
const MIN_POLL_INTERVAL_MS: u64 = 1_000;

/// Valid configuration.
#[derive(Debug, Clone)]
pub struct Config {
    /// Listening address.
    pub listen: SocketAddr,
    /// Data directory.
    pub data_dir: PathBuf,
    /// Directory of the operator's own pipelines and steps; it may be missing.
    pub custom_dir: PathBuf,
    /// Access code of the panel and the admin API; `None` disables both.
    pub admin_access_code: Option<Secret>,
    /// Interval between two polls.
    pub poll_interval: Duration,
    /// URL at which runs reach this service, without a trailing slash.
    pub callback_base_url: Option<String>,
    /// Secret that signs run tokens; `None` disables reports over the network, and a key derived from
    /// the key of the stored secrets signs the tokens.
    pub runner_token_secret: Option<Secret>,
    /// Secret of the gap-fill trigger; `None` disables it.
    pub gap_fill_trigger_secret: Option<Secret>,
    /// Credentials of the vendors. They take precedence over the stored ones.
    pub credentials: Credentials,
    /// Addresses of the vendors' APIs.
    pub vendor_addresses: VendorAddresses,
    /// Image of runs whose repository names none.
    pub session_image: Option<String>,
    /// Release from which CI runs fetch the program; `None` for this service.
    pub runner_program: Option<RunnerProgramConfig>,
    /// Fly Machines.
    pub vm_sessions: VmSessionsConfig,
    /// Local container engine.
    pub containers: ContainersConfig,
    /// Kubernetes cluster in which runs execute.
    pub kubernetes: Option<KubernetesConfig>,
    /// Place that the service shares with its standby.
    pub standby: Option<StandbyConfig>,
    /// Age after which a dedup entry expires; `None` means never.
    pub dedup_window: Option<Duration>,
    /// Hour of the day (UTC) of the digest of what waits for people; `None` for no digest.
    pub digest_hour: Option<u8>,
    /// Consecutive failures after which an issue is parked; `None` means never.
    pub breaker_threshold: Option<u32>,
    /// Key of the stored secrets; `None` selects the key file in the data directory.
    pub secrets_key: Option<Secret>,
    /// Runner mode; takes precedence over the stored one.
    pub runner_mode: Option<RunnerMode>,
    /// Allowed prefixes of images named by repositories; if empty, images of the repository's
    /// owner.
    pub image_prefixes: Vec<String>,
    /// Reaper options.
    pub reaper: ReaperConfig,
    /// Proxies whose forwarding headers are trusted.
    pub trusted_proxies: TrustedProxies,
    /// Outbound proxies.
    pub proxy: ProxyConfig,
    /// Service manager that started this process.
    pub supervisor: Option<Supervisor>,
    /// Metrics endpoint.
    pub metrics: MetricsConfig,
    /// Format of the log.
    pub log_format: LogFormat,
    /// Filter of the log.
    pub log_level: String,
    /// Number of days for which log files are kept; 0 disables log files.
    pub log_keep_days: u32,
    /// Whether vendors and runs on other machines may be reached over plain HTTP.
    pub allow_plain_http: bool,
    /// Whether runs may get a GITHUB_TOKEN that can change workflows.
    pub allow_workflow_token: bool,
    /// Notices for the operator.
    pub notices: Notices,
}

/// GitHub account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitHubConfig {
    /// Credentials.
    pub credentials: GitHubAuthConfig,
    /// Base URL of the API.
    pub api_url: String,
}

/// Credentials of GitHub.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GitHubAuthConfig {
    /// Plain token.
    Token(Secret),
    /// GitHub App.
    App {
        /// ID of the App.
        id: String,
        /// Private key in PEM format.
        private_key: Secret,
    },
}

/// Chat webhook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChatConfig {
    /// Webhook URL, which is a credential.
    pub url: Secret,
    /// Kind of chat.
    pub kind: ChatKind,
}

/// Options of the reaper.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReaperConfig {
    /// Whether the reaper only records what it would destroy.
    pub dry_run: bool,
    /// Number of destructions in one sweep from which a chat message is sent; `None` means never.
    pub alert_threshold: Option<u32>,
}

/// Format of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// Readable text.
    Text,
    /// One JSON object per line.
    Json,
}

/// All problems of a configuration.
#[derive(Debug, PartialEq, Eq)]
pub struct ConfigError(Vec<String>);

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the configuration cannot be used:")?;
        self.0
            .iter()
            .try_for_each(|problem| write!(f, "\n  - {problem}"))
    }
}

impl std::error::Error for ConfigError {}

impl ConfigError {
    /// Creates an error with a single problem.
    pub fn single(problem: impl Into<String>) -> Self {
        Self(vec![problem.into()])
    }

    /// All problems.
    pub fn problems(&self) -> &[String] {
        &self.0
    }
}

impl Config {
    /// Validates the options; secrets are read from files and credentials. `file` names the variables of the
    /// service, if they are in a file.
    ///
    /// # Errors
    /// Returns all problems together.
    pub fn from_options(options: Options, file: Option<&EnvFile>) -> Result<Self, ConfigError> {
        Self::without_problems(Self::build(options, &mut sources_of(file)))
    }

    /// Validates the options and returns the usable part of the configuration, with the problems of
    /// the rest.
    pub fn from_options_lenient(
        options: Options,
        file: Option<&EnvFile>,
    ) -> (Self, Result<(), ConfigError>) {
        let (mut config, problems) = Self::build(options, &mut sources_of(file));
        let is_invalid = |name: &str| problems.iter().any(|problem| problem.starts_with(name));
        let keep = |name: &str| !is_invalid(name);
        config.credentials.remove_invalid(&problems);
        config.secrets_key = config.secrets_key.filter(|_| keep("SECRETS_KEY"));
        let callback = config.callback_base_url;
        config.callback_base_url = callback.filter(|_| keep("RUNNER_CALLBACK_BASE_URL"));
        (config, Self::check_problems(problems))
    }

    fn without_problems((config, problems): (Self, Vec<String>)) -> Result<Self, ConfigError> {
        Self::check_problems(problems).map(|()| config)
    }

    fn check_problems(problems: Vec<String>) -> Result<(), ConfigError> {
        match problems.is_empty() {
            true => Ok(()),
            false => Err(ConfigError(problems)),
        }
    }

    /// Returns the configuration and its problems. An invalid value is replaced by its default.
    fn build(mut options: Options, sources: &mut Sources) -> (Self, Vec<String>) {
        let (secrets, problems) = OptionSecrets::take(&mut options, sources);
        let mut check = Validator::new(problems, &options.allow_plain_http);
        let vendor_addresses = VendorAddresses {
            linear_api_url: options.linear_api_url,
            linear_uploads_url: options.linear_uploads_url,
            jira_api_url: options.jira_api_url,
            github_api_url: options.github_api_url,
        };
        let credentials = check.credentials(&secrets.credentials, &vendor_addresses);
        let listen = check.listen(&options.listen_addr, &options.port);
        let poll_interval = check.milliseconds(
            "POLL_INTERVAL_MS",
            &options.poll_interval_ms,
            MIN_POLL_INTERVAL_MS,
        );
        secrets.check_lengths(&mut check);
        let dedup_window = check.dedup_window(&options.dedup_window_hours);
        let digest_hour = check.digest_hour(&options.notify_digest_hour);
        let breaker_threshold = check.breaker_threshold(&options.dispatch_breaker_threshold);
        let config = Self {
            listen,
            data_dir: check.folder("DATA_DIR", options.data_dir),
            custom_dir: check.folder("CUSTOM_DIR", options.custom_dir),
            admin_access_code: secrets.admin_access_code,
            poll_interval,
            callback_base_url: check
                .optional_url("RUNNER_CALLBACK_BASE_URL", options.runner_callback_base_url),
            runner_token_secret: secrets.runner_token_secret,
            gap_fill_trigger_secret: secrets.gap_fill_trigger_secret,
            credentials,
            vendor_addresses,
            session_image: check.image("SESSION_IMAGE", options.session_image),
            runner_program: check
                .runner_program(options.runner_program_url, options.runner_program_sha256),
            vm_sessions: check.vm_sessions(
                options.vm_sessions_app,
                options.vm_sessions_region,
                options.vm_api_url,
            ),
            containers: check.containers(
                options.docker_host,
                options.local_runner_image,
                options.data_dir_on_host,
                (
                    options.local_egress.as_deref(),
                    options.local_egress_hosts.as_deref(),
                ),
                &options.git_mirror_limit_mb,
            ),
            kubernetes: check.kubernetes(
                KubernetesOptions {
                    kubeconfig: options.kubeconfig,
                    namespace: options.kubernetes_namespace,
                    runtime_class: options.kubernetes_runtime_class,
                    pull_secret: options.kubernetes_pull_secret,
                },
                sources,
            ),
            standby: check.standby(
                options.standby_place,
                &options.standby_interval,
                options.bucket,
            ),
            dedup_window,
            digest_hour,
            breaker_threshold,
            secrets_key: check.secrets_key(secrets.secrets_key),
            runner_mode: check.runner_mode(options.runner_mode.as_deref()),
            image_prefixes: check.image_prefixes(options.runner_image_prefixes.as_deref()),
            reaper: check.reaper(&options.reaper_dry_run, &options.reaper_alert_threshold),
            trusted_proxies: check
                .trusted_proxies(options.trusted_proxies.as_deref().unwrap_or_default()),
            proxy: check.proxy(
                sources,
                (secrets.https_proxy, secrets.http_proxy, options.no_proxy),
            ),
            supervisor: supervisor::supervisor(sources, std::process::id()),
            metrics: check.metrics(&options.metrics, secrets.metrics_token),
            log_format: check.log_format(&options.log_format),
            log_level: check.log_level(options.log_level),
            log_keep_days: check.log_keep_days(&options.log_keep_days),
            allow_plain_http: check.allow_plain_http,
            allow_workflow_token: check.parse::<bool>(
                "ALLOW_WORKFLOW_TOKEN",
                &options.allow_workflow_token,
                "true or false",
            ),
            notices: Notices::default(),
        };
        let notices = Notices {
            unknown_names: notices::unknown_names(sources),
            secret_files: std::mem::take(&mut sources.secret_files),
            plain_http_variables: check.plain_http_variables,
        };
        (Self { notices, ..config }, check.problems)
    }

    /// Whether runs can report to this service over the network.
    pub fn has_callbacks(&self) -> bool {
        self.callback_base_url.is_some() && self.runner_token_secret.is_some()
    }
}

/// Sources of the values. If `file` is set, it holds the variables of the service; a variable that it
/// does not name is read from the environment of this process.
fn sources_of(file: Option<&EnvFile>) -> Sources {
    match file {
        Some(file) => Sources::from_env_file(file.clone()),
        None => Sources::from_process(),
    }
}

#[cfg(test)]
mod tests;
