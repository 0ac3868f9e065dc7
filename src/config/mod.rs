//! Configuration: the environment and the command line, read once.
//!
//! Every variable is also a flag. A secret may be given as `NAME`, as a file named by `NAME_FILE`,
//! or as a systemd credential called `NAME`. Whatever is wrong is said in one message; whatever is
//! missing and optional switches its feature off.

mod check;
mod env_file;
mod hosts;
mod observing;
mod options;
mod outbound;
mod sessions;
mod sources;
mod supervisor;
mod ticketing;

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use crate::chat::ChatKind;
use crate::domain::runner_mode::RunnerMode;
use crate::domain::secret::Secret;

use check::Check;
pub use env_file::EnvFile;
pub use hosts::{Containers, Engine, VmSessions};
pub use observing::Metrics;
pub use options::Options;
pub use outbound::{Outbound, ProxyAddress};
use sources::Sources;
pub use supervisor::Supervisor;
use ticketing::TicketingSecrets;
pub use ticketing::{Jira, JiraCredentials, Linear, LinearCredentials};

/// Shortest secret that run tokens may be signed with, in bytes.
const MIN_TOKEN_SECRET: usize = 32;

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
    pub linear: Option<Linear>,
    pub jira: Option<Jira>,
    pub github: Option<GitHub>,
    pub session_image: Option<String>,
    pub vm_sessions: VmSessions,
    pub containers: Containers,
    /// Model credentials of sessions, by the variable that agents expect them in.
    pub model_keys: Vec<(&'static str, Secret)>,
    pub notify: Option<Notify>,
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
    pub reaper: Reaper,
    pub trusted_proxies: Vec<IpAddr>,
    /// The way to the vendors.
    pub outbound: Outbound,
    /// The service manager that started us.
    pub supervisor: Option<Supervisor>,
    pub metrics: Metrics,
    pub log_format: LogFormat,
    pub log_level: String,
    /// For how many days log files are kept; 0 writes none.
    pub log_keep_days: u32,
}

#[derive(Debug, Clone)]
pub struct GitHub {
    pub credentials: GitHubCredentials,
    pub api_url: String,
}

#[derive(Debug, Clone)]
pub enum GitHubCredentials {
    Token(Secret),
    App { id: String, private_key: Secret },
}

#[derive(Debug, Clone)]
pub struct Notify {
    pub url: Secret,
    pub kind: ChatKind,
}

/// How the reaper behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reaper {
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
    /// Each of the problems.
    pub fn problems(&self) -> &[String] {
        &self.0
    }
}

impl Config {
    /// Checks what was given, with secrets from files and credentials filled in.
    pub fn from_options(options: Options) -> Result<Self, ConfigError> {
        Self::build(options, &mut Sources::of_process())
    }

    /// As [`Config::from_options`], for a service whose environment is this file. What the file does not
    /// name is looked for in this process's own environment.
    pub fn from_file(options: Options, file: &EnvFile) -> Result<Self, ConfigError> {
        Self::build(options, &mut Sources::of_file(file.clone()))
    }

    fn build(given: Options, sources: &mut Sources) -> Result<Self, ConfigError> {
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
            linear_client: secret("LINEAR_CLIENT_SECRET", given.linear_client_secret.clone()),
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

        let mut check = Check { wrong };
        let (linear, jira) = (
            check.linear(&given, &ticketing),
            check.jira(&given, &ticketing),
        );
        let address = check.parse::<IpAddr>("LISTEN_ADDR", &given.listen_addr, "an IP address");
        let port = check.parse::<u16>("PORT", &given.port, "a port number");
        let poll_interval =
            check.milliseconds("POLL_INTERVAL_MS", &given.poll_interval_ms, MIN_POLL_MS);
        check.that(
            runner_token_secret
                .as_ref()
                .is_none_or(|secret| secret.expose().len() >= MIN_TOKEN_SECRET),
            || format!("RUNNER_TOKEN_SECRET must be at least {MIN_TOKEN_SECRET} bytes long"),
        );
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
                .url("RUNNER_CALLBACK_BASE_URL", given.runner_callback_base_url),
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
            notify: check.notify(notify_url, &given.notify_type),
            dedup_window: (dedup_hours > 0)
                .then(|| Duration::from_secs(u64::from(dedup_hours) * 3600)),
            breaker_threshold: Some(threshold).filter(|threshold| *threshold > 0),
            secrets_key: check.secrets_key(secrets_key),
            runner_mode: check.runner_mode(given.runner_mode.as_deref()),
            image_prefixes: check.image_prefixes(given.runner_image_prefixes.as_deref()),
            reaper: check.reaper(&given.reaper_dry_run, &given.reaper_alert_threshold),
            trusted_proxies: check.proxies(given.trusted_proxies.as_deref().unwrap_or_default()),
            outbound: check.outbound(sources, (https_proxy, http_proxy, given.no_proxy)),
            supervisor: supervisor::supervisor(sources, std::process::id()),
            metrics: check.metrics(&given.metrics, metrics_token),
            log_format: check.log_format(&given.log_format),
            log_level: check.log_level(given.log_level),
            log_keep_days: check.log_keep_days(&given.log_keep_days),
        };
        check.done(config)
    }

    /// Whether runs can report to us at all.
    pub fn has_callbacks(&self) -> bool {
        self.callback_base_url.is_some() && self.runner_token_secret.is_some()
    }

    /// Every value in force, secrets masked, for people to look at.
    pub fn effective(&self) -> Vec<(&'static str, String)> {
        let mask = |set: bool| {
            if set {
                "<set>".to_owned()
            } else {
                "<unset>".to_owned()
            }
        };
        let plain = |value: Option<&str>| value.map_or_else(|| "<unset>".to_owned(), str::to_owned);
        let app = self
            .github
            .as_ref()
            .and_then(|github| match &github.credentials {
                GitHubCredentials::App { id, .. } => Some(id.as_str()),
                GitHubCredentials::Token(_) => None,
            });
        let proxies: Vec<String> = self.trusted_proxies.iter().map(IpAddr::to_string).collect();
        let mut values = vec![
            ("LISTEN_ADDR", self.listen.ip().to_string()),
            ("PORT", self.listen.port().to_string()),
            ("DATA_DIR", self.data_dir.display().to_string()),
            ("CUSTOM_DIR", self.custom_dir.display().to_string()),
            ("ADMIN_ACCESS_CODE", mask(self.admin_access_code.is_some())),
            (
                "POLL_INTERVAL_MS",
                self.poll_interval.as_millis().to_string(),
            ),
            (
                "RUNNER_CALLBACK_BASE_URL",
                plain(self.callback_base_url.as_deref()),
            ),
            (
                "RUNNER_TOKEN_SECRET",
                mask(self.runner_token_secret.is_some()),
            ),
            (
                "SCM_WEBHOOK_SECRET",
                mask(self.scm_webhook_secret.is_some()),
            ),
            (
                "LINEAR_WEBHOOK_SECRET",
                mask(self.linear_webhook_secret.is_some()),
            ),
            (
                "JIRA_WEBHOOK_SECRET",
                mask(self.jira_webhook_secret.is_some()),
            ),
            (
                "GAP_FILL_TRIGGER_SECRET",
                mask(self.gap_fill_trigger_secret.is_some()),
            ),
            ("GITHUB_APP_ID", plain(app)),
            ("GITHUB_APP_PRIVATE_KEY", mask(app.is_some())),
            ("GITHUB_TOKEN", mask(self.github.is_some() && app.is_none())),
            (
                "GITHUB_API_URL",
                plain(self.github.as_ref().map(|github| github.api_url.as_str())),
            ),
            ("SESSION_IMAGE", plain(self.session_image.as_deref())),
            ("NOTIFY_WEBHOOK_URL", mask(self.notify.is_some())),
            (
                "NOTIFY_TYPE",
                plain(self.notify.as_ref().map(|notify| match notify.kind {
                    ChatKind::ChannelA => "channel-a",
                    ChatKind::ChannelB => "channel-b",
                })),
            ),
            (
                "DEDUP_WINDOW_HOURS",
                (self.dedup_window.unwrap_or_default().as_secs() / 3600).to_string(),
            ),
            (
                "DISPATCH_BREAKER_THRESHOLD",
                self.breaker_threshold.unwrap_or(0).to_string(),
            ),
            ("SECRETS_KEY", mask(self.secrets_key.is_some())),
            (
                "RUNNER_MODE",
                plain(self.runner_mode.map(RunnerMode::as_str)),
            ),
            ("RUNNER_IMAGE_PREFIXES", self.image_prefixes.join(",")),
            ("REAPER_DRY_RUN", self.reaper.dry_run.to_string()),
            (
                "REAPER_ALERT_THRESHOLD",
                self.reaper.alert_threshold.unwrap_or(0).to_string(),
            ),
            ("TRUSTED_PROXIES", proxies.join(",")),
            (
                "LOG_FORMAT",
                match self.log_format {
                    LogFormat::Text => "text",
                    LogFormat::Json => "json",
                }
                .to_owned(),
            ),
            ("LOG_LEVEL", self.log_level.clone()),
            ("LOG_KEEP_DAYS", self.log_keep_days.to_string()),
            ("METRICS", self.metrics.on.to_string()),
            ("METRICS_TOKEN", mask(self.metrics.token.is_some())),
        ];
        values.extend(hosts::effective(
            &self.vm_sessions,
            &self.containers,
            &self.model_keys,
        ));
        values.extend(self.outbound.effective());
        values.extend(ticketing::effective(
            self.linear.as_ref(),
            self.jira.as_ref(),
        ));
        values
    }

    /// Every secret value, so that it can be kept out of logs and errors.
    pub fn secrets(&self) -> Vec<&str> {
        let github = self
            .github
            .as_ref()
            .map(|github| match &github.credentials {
                GitHubCredentials::Token(token) => token,
                GitHubCredentials::App { private_key, .. } => private_key,
            });
        [
            self.admin_access_code.as_ref(),
            self.runner_token_secret.as_ref(),
            self.scm_webhook_secret.as_ref(),
            self.linear_webhook_secret.as_ref(),
            self.jira_webhook_secret.as_ref(),
            self.gap_fill_trigger_secret.as_ref(),
            self.linear.as_ref().map(Linear::secret),
            self.jira.as_ref().map(Jira::secret),
            github,
            self.notify.as_ref().map(|notify| &notify.url),
            self.secrets_key.as_ref(),
            self.vm_sessions.token.as_ref(),
            self.metrics.token.as_ref(),
        ]
        .into_iter()
        .flatten()
        .chain(self.model_keys.iter().map(|(_, key)| key))
        .chain(self.outbound.secrets())
        .map(Secret::expose)
        .collect()
    }
}

#[cfg(test)]
mod tests;
