//! Configuration, read once from the environment and the command line.
//!
//! Every variable is also a flag. A secret is set as `NAME`, as a file named by `NAME_FILE`, or as
//! a systemd credential called `NAME`. All errors are reported in one message. A missing optional
//! value disables its feature.

mod address;
mod effective;
mod env_file;
mod notices;
mod observability;
mod options;
mod proxy;
mod runner;
mod session_hosts;
mod sources;
mod supervisor;
mod ticketing;
mod validator;

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use domain::runner_mode::RunnerMode;
use domain::secret::Secret;
use vendors::chat::ChatKind;

pub use address::is_loopback;
pub use env_file::EnvFile;
pub use notices::Notices;
pub use observability::MetricsConfig;
pub use options::Options;
pub use proxy::{ProxyAddress, ProxyConfig};
pub use session_hosts::{ContainerEngine, ContainersConfig, VmSessionsConfig};
use sources::Sources;
pub use sources::allows_colours;
pub use supervisor::Supervisor;
use ticketing::TicketingSecrets;
pub use ticketing::{JiraConfig, LinearConfig};
use validator::Validator;

/// Minimum length of the secret that signs run tokens, in bytes.
const MIN_TOKEN_SECRET_LENGTH: usize = 32;

/// Minimum length of the access code, in bytes. Guesses are limited to a few per minute.
const MIN_ACCESS_CODE_LENGTH: usize = 8;

/// Minimum length of secrets that sign or authenticate requests, in bytes. Does not apply to the
/// ticketing systems, which generate theirs.
const MIN_SHARED_SECRET_LENGTH: usize = 8;

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
    /// Secret that signs run tokens; `None` disables callbacks.
    pub runner_token_secret: Option<Secret>,
    /// Secret of the repository webhook; `None` disables it.
    pub scm_webhook_secret: Option<Secret>,
    /// Secret of Linear's webhook; `None` disables it.
    pub linear_webhook_secret: Option<Secret>,
    /// Secret of Jira's webhook; `None` disables it.
    pub jira_webhook_secret: Option<Secret>,
    /// Secret of the gap-fill trigger; `None` disables it.
    pub gap_fill_trigger_secret: Option<Secret>,
    /// Linear account.
    pub linear: Option<LinearConfig>,
    /// Jira account.
    pub jira: Option<JiraConfig>,
    /// GitHub account.
    pub github: Option<GitHubConfig>,
    /// Image of runs whose repository names none.
    pub session_image: Option<String>,
    /// Fly Machines.
    pub vm_sessions: VmSessionsConfig,
    /// Local container engine.
    pub containers: ContainersConfig,
    /// Model credentials of sessions, by the variable that agents read.
    pub model_keys: Vec<(&'static str, Secret)>,
    /// Chat webhook.
    pub chat: Option<ChatConfig>,
    /// Age after which a dedup entry expires; `None` means never.
    pub dedup_window: Option<Duration>,
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
    pub trusted_proxies: Vec<IpAddr>,
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
#[derive(Debug, Clone)]
pub struct GitHubConfig {
    /// Credentials.
    pub credentials: GitHubAuthConfig,
    /// Base URL of the API.
    pub api_url: String,
}

/// Credentials of GitHub.
#[derive(Debug, Clone)]
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
#[derive(Debug, Clone)]
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
    /// Validates the options; secrets are read from files and credentials.
    ///
    /// # Errors
    /// Returns all problems together.
    pub fn from_options(options: Options) -> Result<Self, ConfigError> {
        Self::without_problems(Self::build(options, &mut Sources::from_process()))
    }

    /// Validates the options and returns the usable part of the configuration, with the problems of
    /// the rest. If `file` is set, it holds the variables of the service; a variable that it does
    /// not name is read from the environment of this process.
    pub fn from_options_lenient(
        options: Options,
        file: Option<&EnvFile>,
    ) -> (Self, Result<(), ConfigError>) {
        let mut sources = match file {
            Some(file) => Sources::from_env_file(file.clone()),
            None => Sources::from_process(),
        };
        let (mut config, problems) = Self::build(options, &mut sources);
        let is_invalid = |name: &str| problems.iter().any(|problem| problem.starts_with(name));
        let keep = |name: &str| !is_invalid(name);
        config.linear = config.linear.filter(|_| keep("LINEAR_"));
        config.jira = config.jira.filter(|_| keep("JIRA_"));
        config.github = config.github.filter(|_| keep("GITHUB_"));
        config.chat = config.chat.filter(|_| keep("NOTIFY_"));
        config.secrets_key = config.secrets_key.filter(|_| keep("SECRETS_KEY"));
        let callback = config.callback_base_url;
        config.callback_base_url = callback.filter(|_| keep("RUNNER_CALLBACK_BASE_URL"));
        let token = config.vm_sessions.token;
        config.vm_sessions.token = token.filter(|_| keep("VM_"));
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
    fn build(options: Options, sources: &mut Sources) -> (Self, Vec<String>) {
        let mut problems = Vec::new();
        let mut secret = |name, value| {
            sources.secret(name, value).unwrap_or_else(|problem| {
                problems.push(problem);
                None
            })
        };
        let admin_access_code = secret("ADMIN_ACCESS_CODE", options.admin_access_code.clone());
        let runner_token_secret =
            secret("RUNNER_TOKEN_SECRET", options.runner_token_secret.clone());
        let scm_webhook_secret = secret("SCM_WEBHOOK_SECRET", options.scm_webhook_secret.clone());
        let linear_webhook_secret = secret(
            "LINEAR_WEBHOOK_SECRET",
            options.linear_webhook_secret.clone(),
        );
        let jira_webhook_secret =
            secret("JIRA_WEBHOOK_SECRET", options.jira_webhook_secret.clone());
        let gap_fill_trigger_secret = secret(
            "GAP_FILL_TRIGGER_SECRET",
            options.gap_fill_trigger_secret.clone(),
        );
        let ticketing = TicketingSecrets {
            linear_key: secret("LINEAR_API_KEY", options.linear_api_key.clone()),
            linear_client_secret: secret(
                "LINEAR_CLIENT_SECRET",
                options.linear_client_secret.clone(),
            ),
            jira_token: secret("JIRA_API_TOKEN", options.jira_api_token.clone()),
        };
        let app_key = secret(
            "GITHUB_APP_PRIVATE_KEY",
            options.github_app_private_key.clone(),
        );
        let github_token = secret("GITHUB_TOKEN", options.github_token.clone());
        let notify_url = secret("NOTIFY_WEBHOOK_URL", options.notify_webhook_url.clone());
        let vm_token = secret("VM_SESSIONS_TOKEN", options.vm_sessions_token.clone());
        let model_keys = [
            ("ANTHROPIC_API_KEY", options.anthropic_api_key.clone()),
            (
                "CLAUDE_CODE_OAUTH_TOKEN",
                options.claude_code_oauth_token.clone(),
            ),
        ];
        let model_keys = model_keys
            .into_iter()
            .filter_map(|(name, value)| Some((name, secret(name, value)?)))
            .collect();
        let secrets_key = secret("SECRETS_KEY", options.secrets_key.clone());
        let metrics_token = secret("METRICS_TOKEN", options.metrics_token.clone());
        let https_proxy = secret("HTTPS_PROXY", options.https_proxy.clone());
        let http_proxy = secret("HTTP_PROXY", options.http_proxy.clone());

        let mut check = Validator::new(problems, &options.allow_plain_http);
        let (linear, jira) = (
            check.linear(&options, &ticketing),
            check.jira(&options, &ticketing),
        );
        let address = check.parse::<IpAddr>("LISTEN_ADDR", &options.listen_addr, "an IP address");
        let port = check.parse::<u16>("PORT", &options.port, "a port number");
        let poll_interval = check.milliseconds(
            "POLL_INTERVAL_MS",
            &options.poll_interval_ms,
            MIN_POLL_INTERVAL_MS,
        );
        for (name, secret, min_length) in [
            (
                "ADMIN_ACCESS_CODE",
                &admin_access_code,
                MIN_ACCESS_CODE_LENGTH,
            ),
            (
                "RUNNER_TOKEN_SECRET",
                &runner_token_secret,
                MIN_TOKEN_SECRET_LENGTH,
            ),
            (
                "SCM_WEBHOOK_SECRET",
                &scm_webhook_secret,
                MIN_SHARED_SECRET_LENGTH,
            ),
            (
                "GAP_FILL_TRIGGER_SECRET",
                &gap_fill_trigger_secret,
                MIN_SHARED_SECRET_LENGTH,
            ),
        ] {
            let is_long = |secret: &Secret| secret.expose().len() >= min_length;
            check.require(secret.as_ref().is_none_or(is_long), || {
                format!("{name} must be at least {min_length} bytes long")
            });
        }
        let dedup_hours = check.parse::<u32>(
            "DEDUP_WINDOW_HOURS",
            &options.dedup_window_hours,
            "a whole number of hours",
        );
        let threshold = check.parse::<u32>(
            "DISPATCH_BREAKER_THRESHOLD",
            &options.dispatch_breaker_threshold,
            "a whole number",
        );
        let config = Self {
            listen: SocketAddr::new(address.unwrap_or(IpAddr::from([127, 0, 0, 1])), port),
            data_dir: options.data_dir,
            custom_dir: options.custom_dir,
            admin_access_code,
            poll_interval,
            callback_base_url: check
                .optional_url("RUNNER_CALLBACK_BASE_URL", options.runner_callback_base_url),
            runner_token_secret,
            scm_webhook_secret,
            linear_webhook_secret,
            jira_webhook_secret,
            gap_fill_trigger_secret,
            linear,
            jira,
            github: check.github(
                options.github_app_id,
                app_key,
                github_token,
                options.github_api_url,
            ),
            session_image: check.image("SESSION_IMAGE", options.session_image),
            vm_sessions: check.vm_sessions(
                vm_token,
                options.vm_sessions_app,
                options.vm_sessions_region,
                options.vm_api_url,
            ),
            containers: check.containers(options.docker_host, options.local_runner_image),
            model_keys,
            chat: check.chat(notify_url, &options.notify_type),
            dedup_window: (dedup_hours > 0)
                .then(|| Duration::from_secs(u64::from(dedup_hours) * 3600)),
            breaker_threshold: Some(threshold).filter(|threshold| *threshold > 0),
            secrets_key: check.secrets_key(secrets_key),
            runner_mode: check.runner_mode(options.runner_mode.as_deref()),
            image_prefixes: check.image_prefixes(options.runner_image_prefixes.as_deref()),
            reaper: check.reaper(&options.reaper_dry_run, &options.reaper_alert_threshold),
            trusted_proxies: check
                .trusted_proxies(options.trusted_proxies.as_deref().unwrap_or_default()),
            proxy: check.proxy(sources, (https_proxy, http_proxy, options.no_proxy)),
            supervisor: supervisor::supervisor(sources, std::process::id()),
            metrics: check.metrics(&options.metrics, metrics_token),
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

    /// Whether runs can report to this service.
    pub fn has_callbacks(&self) -> bool {
        self.callback_base_url.is_some() && self.runner_token_secret.is_some()
    }
}

#[cfg(test)]
mod tests;
