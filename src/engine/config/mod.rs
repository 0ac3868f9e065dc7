//! Configuration: the environment and the command line, read once.
//!
//! Every variable is also a flag. A secret may be given as `NAME`, as a file named by `NAME_FILE`,
//! or as a systemd credential called `NAME`. Whatever is wrong is said in one message; whatever is
//! missing and optional switches its feature off.

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
pub use ticketing::{JiraAuthConfig, JiraConfig, LinearAuthConfig, LinearConfig};
use validator::Validator;

/// Shortest secret that run tokens may be signed with, in bytes.
const MIN_TOKEN_SECRET: usize = 32;

/// Shortest access code, in bytes. Guesses are limited to a few a minute.
const MIN_ACCESS_CODE: usize = 8;

/// Shortest secret that requests are signed with or shown, in bytes. The ticketing systems make theirs
/// themselves.
const MIN_SHARED_SECRET: usize = 8;

/// Shortest time between two polls, in milliseconds.
const MIN_POLL_MS: u64 = 1_000;

/// Valid configuration.
#[derive(Debug, Clone)]
pub struct Config {
    pub listen: SocketAddr,
    pub data_dir: PathBuf,
    /// The operator's own pipelines and steps; it need not be there.
    pub custom_dir: PathBuf,
    pub admin_access_code: Option<Secret>,
    pub poll_interval: Duration,
    /// Without a trailing slash.
    pub callback_base_url: Option<String>,
    pub runner_token_secret: Option<Secret>,
    /// None switches the repository host's webhooks off.
    pub scm_webhook_secret: Option<Secret>,
    /// None switches the webhooks of Linear off.
    pub linear_webhook_secret: Option<Secret>,
    /// None switches the webhooks of Jira off.
    pub jira_webhook_secret: Option<Secret>,
    /// None switches the gap-fill trigger off.
    pub gap_fill_trigger_secret: Option<Secret>,
    pub linear: Option<LinearConfig>,
    pub jira: Option<JiraConfig>,
    pub github: Option<GitHubConfig>,
    pub session_image: Option<String>,
    pub vm_sessions: VmSessionsConfig,
    pub containers: ContainersConfig,
    /// Model credentials of sessions, by the variable that agents expect them in.
    pub model_keys: Vec<(&'static str, Secret)>,
    pub chat: Option<ChatConfig>,
    /// None means that an entry never ages out.
    pub dedup_window: Option<Duration>,
    /// None means that nothing is ever parked.
    pub breaker_threshold: Option<u32>,
    /// Key of the stored secrets; None means the file beside the store.
    pub secrets_key: Option<Secret>,
    /// Beats the stored mode.
    pub runner_mode: Option<RunnerMode>,
    /// What images that repositories name may begin with; none means those of their owner.
    pub image_prefixes: Vec<String>,
    pub reaper: ReaperConfig,
    pub trusted_proxies: Vec<IpAddr>,
    /// The way to the vendors.
    pub proxy: ProxyConfig,
    /// The service manager that started us.
    pub supervisor: Option<Supervisor>,
    pub metrics: MetricsConfig,
    pub log_format: LogFormat,
    pub log_level: String,
    /// For how many days log files are kept; 0 writes none.
    pub log_keep_days: u32,
    /// Whether vendors and runs may be reached over plain HTTP beyond this machine.
    pub allow_plain_http: bool,
    /// Whether runs may be handed a GITHUB_TOKEN that can change workflows.
    pub allow_workflow_token: bool,
    pub notices: Notices,
}

#[derive(Debug, Clone)]
pub struct GitHubConfig {
    pub credentials: GitHubAuthConfig,
    pub api_url: String,
}

#[derive(Debug, Clone)]
pub enum GitHubAuthConfig {
    Token(Secret),
    App { id: String, private_key: Secret },
}

#[derive(Debug, Clone)]
pub struct ChatConfig {
    pub url: Secret,
    pub kind: ChatKind,
}

/// How the reaper behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReaperConfig {
    /// Record what would be destroyed, and destroy nothing.
    pub dry_run: bool,
    /// How many destructions in one sweep the chat is told of; None means that it never is.
    pub alert_threshold: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    Text,
    Json,
}

/// Everything that is wrong with the configuration, together.
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
    /// A single problem that was found after the values had been checked.
    pub fn single(problem: impl Into<String>) -> Self {
        Self(vec![problem.into()])
    }

    /// Each of the problems.
    pub fn problems(&self) -> &[String] {
        &self.0
    }
}

impl Config {
    /// Checks what was given, with secrets from files and credentials filled in.
    pub fn from_options(options: Options) -> Result<Self, ConfigError> {
        Self::whole(Self::build(options, &mut Sources::from_process()))
    }

    /// As much of the configuration as can be used, and what is wrong with the rest, which is left
    /// out. With a file, its variables are those of the service; a variable that it does not name is
    /// looked up in this process's own environment.
    pub fn from_options_lenient(
        options: Options,
        file: Option<&EnvFile>,
    ) -> (Self, Result<(), ConfigError>) {
        let mut sources = match file {
            Some(file) => Sources::from_env_file(file.clone()),
            None => Sources::from_process(),
        };
        let (mut config, wrong) = Self::build(options, &mut sources);
        let is_wrong = |name: &str| wrong.iter().any(|problem| problem.starts_with(name));
        let keep = |name: &str| !is_wrong(name);
        config.linear = config.linear.filter(|_| keep("LINEAR_"));
        config.jira = config.jira.filter(|_| keep("JIRA_"));
        config.github = config.github.filter(|_| keep("GITHUB_"));
        config.chat = config.chat.filter(|_| keep("NOTIFY_"));
        config.secrets_key = config.secrets_key.filter(|_| keep("SECRETS_KEY"));
        let callback = config.callback_base_url;
        config.callback_base_url = callback.filter(|_| keep("RUNNER_CALLBACK_BASE_URL"));
        let token = config.vm_sessions.token;
        config.vm_sessions.token = token.filter(|_| keep("VM_"));
        (config, Self::judge(wrong))
    }

    fn whole((config, wrong): (Self, Vec<String>)) -> Result<Self, ConfigError> {
        Self::judge(wrong).map(|()| config)
    }

    fn judge(wrong: Vec<String>) -> Result<(), ConfigError> {
        match wrong.is_empty() {
            true => Ok(()),
            false => Err(ConfigError(wrong)),
        }
    }

    /// The configuration and what is wrong with it. A wrong value stands in it as its default.
    fn build(given: Options, sources: &mut Sources) -> (Self, Vec<String>) {
        let mut wrong = Vec::new();
        let mut secret = |name, value| {
            sources.secret(name, value).unwrap_or_else(|problem| {
                wrong.push(problem);
                None
            })
        };
        let admin_access_code = secret("ADMIN_ACCESS_CODE", given.admin_access_code.clone());
        let runner_token_secret = secret("RUNNER_TOKEN_SECRET", given.runner_token_secret.clone());
        let scm_webhook_secret = secret("SCM_WEBHOOK_SECRET", given.scm_webhook_secret.clone());
        let linear_webhook_secret =
            secret("LINEAR_WEBHOOK_SECRET", given.linear_webhook_secret.clone());
        let jira_webhook_secret = secret("JIRA_WEBHOOK_SECRET", given.jira_webhook_secret.clone());
        let gap_fill_trigger_secret = secret(
            "GAP_FILL_TRIGGER_SECRET",
            given.gap_fill_trigger_secret.clone(),
        );
        let ticketing = TicketingSecrets {
            linear_key: secret("LINEAR_API_KEY", given.linear_api_key.clone()),
            linear_client_secret: secret(
                "LINEAR_CLIENT_SECRET",
                given.linear_client_secret.clone(),
            ),
            jira_token: secret("JIRA_API_TOKEN", given.jira_api_token.clone()),
        };
        let app_key = secret(
            "GITHUB_APP_PRIVATE_KEY",
            given.github_app_private_key.clone(),
        );
        let github_token = secret("GITHUB_TOKEN", given.github_token.clone());
        let notify_url = secret("NOTIFY_WEBHOOK_URL", given.notify_webhook_url.clone());
        let vm_token = secret("VM_SESSIONS_TOKEN", given.vm_sessions_token.clone());
        let model_keys = [
            ("ANTHROPIC_API_KEY", given.anthropic_api_key.clone()),
            (
                "CLAUDE_CODE_OAUTH_TOKEN",
                given.claude_code_oauth_token.clone(),
            ),
        ];
        let model_keys = model_keys
            .into_iter()
            .filter_map(|(name, value)| Some((name, secret(name, value)?)))
            .collect();
        let secrets_key = secret("SECRETS_KEY", given.secrets_key.clone());
        let metrics_token = secret("METRICS_TOKEN", given.metrics_token.clone());
        let https_proxy = secret("HTTPS_PROXY", given.https_proxy.clone());
        let http_proxy = secret("HTTP_PROXY", given.http_proxy.clone());

        let mut check = Validator::new(wrong, &given.allow_plain_http);
        let (linear, jira) = (
            check.linear(&given, &ticketing),
            check.jira(&given, &ticketing),
        );
        let address = check.parse::<IpAddr>("LISTEN_ADDR", &given.listen_addr, "an IP address");
        let port = check.parse::<u16>("PORT", &given.port, "a port number");
        let poll_interval =
            check.milliseconds("POLL_INTERVAL_MS", &given.poll_interval_ms, MIN_POLL_MS);
        for (name, secret, least) in [
            ("ADMIN_ACCESS_CODE", &admin_access_code, MIN_ACCESS_CODE),
            (
                "RUNNER_TOKEN_SECRET",
                &runner_token_secret,
                MIN_TOKEN_SECRET,
            ),
            ("SCM_WEBHOOK_SECRET", &scm_webhook_secret, MIN_SHARED_SECRET),
            (
                "GAP_FILL_TRIGGER_SECRET",
                &gap_fill_trigger_secret,
                MIN_SHARED_SECRET,
            ),
        ] {
            let is_long = |secret: &Secret| secret.expose().len() >= least;
            check.require(secret.as_ref().is_none_or(is_long), || {
                format!("{name} must be at least {least} bytes long")
            });
        }
        let dedup_hours = check.parse::<u32>(
            "DEDUP_WINDOW_HOURS",
            &given.dedup_window_hours,
            "a whole number of hours",
        );
        let threshold = check.parse::<u32>(
            "DISPATCH_BREAKER_THRESHOLD",
            &given.dispatch_breaker_threshold,
            "a whole number",
        );
        let config = Self {
            listen: SocketAddr::new(address.unwrap_or(IpAddr::from([127, 0, 0, 1])), port),
            data_dir: given.data_dir,
            custom_dir: given.custom_dir,
            admin_access_code,
            poll_interval,
            callback_base_url: check
                .optional_url("RUNNER_CALLBACK_BASE_URL", given.runner_callback_base_url),
            runner_token_secret,
            scm_webhook_secret,
            linear_webhook_secret,
            jira_webhook_secret,
            gap_fill_trigger_secret,
            linear,
            jira,
            github: check.github(
                given.github_app_id,
                app_key,
                github_token,
                given.github_api_url,
            ),
            session_image: check.image("SESSION_IMAGE", given.session_image),
            vm_sessions: check.vm_sessions(
                vm_token,
                given.vm_sessions_app,
                given.vm_sessions_region,
                given.vm_api_url,
            ),
            containers: check.containers(given.docker_host, given.local_runner_image),
            model_keys,
            chat: check.chat(notify_url, &given.notify_type),
            dedup_window: (dedup_hours > 0)
                .then(|| Duration::from_secs(u64::from(dedup_hours) * 3600)),
            breaker_threshold: Some(threshold).filter(|threshold| *threshold > 0),
            secrets_key: check.secrets_key(secrets_key),
            runner_mode: check.runner_mode(given.runner_mode.as_deref()),
            image_prefixes: check.image_prefixes(given.runner_image_prefixes.as_deref()),
            reaper: check.reaper(&given.reaper_dry_run, &given.reaper_alert_threshold),
            trusted_proxies: check
                .trusted_proxies(given.trusted_proxies.as_deref().unwrap_or_default()),
            proxy: check.proxy(sources, (https_proxy, http_proxy, given.no_proxy)),
            supervisor: supervisor::supervisor(sources, std::process::id()),
            metrics: check.metrics(&given.metrics, metrics_token),
            log_format: check.log_format(&given.log_format),
            log_level: check.log_level(given.log_level),
            log_keep_days: check.log_keep_days(&given.log_keep_days),
            allow_plain_http: check.allow_plain_http,
            allow_workflow_token: check.parse::<bool>(
                "ALLOW_WORKFLOW_TOKEN",
                &given.allow_workflow_token,
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

    /// Whether runs can report to us at all.
    pub fn has_callbacks(&self) -> bool {
        self.callback_base_url.is_some() && self.runner_token_secret.is_some()
    }
}

#[cfg(test)]
mod tests;
