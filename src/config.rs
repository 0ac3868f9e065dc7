//! Configuration: the environment and the command line, read once.
//!
//! Every variable is also a flag. A secret may be given as `NAME`, as a file named by `NAME_FILE`,
//! or as a systemd credential called `NAME`. Whatever is wrong is said in one message; whatever is
//! missing and optional switches its feature off.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::chat::ChatKind;
use crate::domain::secret::Secret;
use crate::keys::app_jwt::AppKey;

/// Shortest secret that run tokens may be signed with, in bytes.
const MIN_TOKEN_SECRET: usize = 32;

/// Shortest time between two polls, in milliseconds.
const MIN_POLL_MS: u64 = 1_000;

/// What `serve` takes, as it was given.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// Address to listen on.
    #[arg(long, env = "LISTEN_ADDR", default_value = "127.0.0.1")]
    pub listen_addr: String,
    /// Port to listen on.
    #[arg(long, env = "PORT", default_value = "8080")]
    pub port: String,
    /// Folder for the store, the key and the logs.
    #[arg(long, env = "DATA_DIR", default_value = "./data")]
    pub data_dir: PathBuf,
    /// Access code of the admin panel and API; unset switches both off.
    #[arg(long, env = "ADMIN_ACCESS_CODE", hide_env_values = true)]
    pub admin_access_code: Option<String>,
    /// Milliseconds between two polls of the ticketing systems; at least 1000.
    #[arg(long, env = "POLL_INTERVAL_MS", default_value = "60000")]
    pub poll_interval_ms: String,
    /// Address under which runs reach this service; unset means that runs cannot report.
    #[arg(long, env = "RUNNER_CALLBACK_BASE_URL")]
    pub runner_callback_base_url: Option<String>,
    /// Secret that run tokens are signed with; at least 32 bytes.
    #[arg(long, env = "RUNNER_TOKEN_SECRET", hide_env_values = true)]
    pub runner_token_secret: Option<String>,
    /// API key of Linear.
    #[arg(long, env = "LINEAR_API_KEY", hide_env_values = true)]
    pub linear_api_key: Option<String>,
    /// Base address of Linear's API.
    #[arg(long, env = "LINEAR_API_URL", default_value = "https://api.linear.app")]
    pub linear_api_url: String,
    /// Id of the GitHub App.
    #[arg(long, env = "GITHUB_APP_ID")]
    pub github_app_id: Option<String>,
    /// Private key of the GitHub App, as PEM; `\n` stands for a line break.
    #[arg(long, env = "GITHUB_APP_PRIVATE_KEY", hide_env_values = true)]
    pub github_app_private_key: Option<String>,
    /// A plain GitHub token, for small set-ups without an App.
    #[arg(long, env = "GITHUB_TOKEN", hide_env_values = true)]
    pub github_token: Option<String>,
    /// Base address of GitHub's API.
    #[arg(long, env = "GITHUB_API_URL", default_value = "https://api.github.com")]
    pub github_api_url: String,
    /// Image that CI runs use; unset leaves the choice to the repository.
    #[arg(long, env = "SESSION_IMAGE")]
    pub session_image: Option<String>,
    /// Chat webhook that is told of dispatches and ends.
    #[arg(long, env = "NOTIFY_WEBHOOK_URL", hide_env_values = true)]
    pub notify_webhook_url: Option<String>,
    /// Kind of the chat webhook: channel-a (Slack) or channel-b (Teams).
    #[arg(long, env = "NOTIFY_TYPE", default_value = "channel-a")]
    pub notify_type: String,
    /// Hours that a dispatched issue is not dispatched again; 0 means until its entry is cleared.
    #[arg(long, env = "DEDUP_WINDOW_HOURS", default_value = "24")]
    pub dedup_window_hours: String,
    /// Failures in a row after which an issue is parked; 0 means never.
    #[arg(long, env = "DISPATCH_BREAKER_THRESHOLD", default_value = "3")]
    pub dispatch_breaker_threshold: String,
    /// Addresses of reverse proxies whose X-Forwarded-For is believed, separated by commas.
    #[arg(long, env = "TRUSTED_PROXIES")]
    pub trusted_proxies: Option<String>,
    /// Form of the log on standard error: text or json.
    #[arg(long, env = "LOG_FORMAT", default_value = "text")]
    pub log_format: String,
    /// What is logged: error, warn, info, debug, trace, or a filter such as info,agent_implement=debug.
    #[arg(long, env = "LOG_LEVEL", default_value = "info")]
    pub log_level: String,
}

/// Valid configuration.
#[derive(Debug, Clone)]
pub struct Config {
    pub listen: SocketAddr,
    pub data_dir: PathBuf,
    pub admin_access_code: Option<Secret>,
    pub poll_interval: Duration,
    /// Without a trailing slash.
    pub callback_base_url: Option<String>,
    pub runner_token_secret: Option<Secret>,
    pub linear: Option<Linear>,
    pub github: Option<GitHub>,
    pub session_image: Option<String>,
    pub notify: Option<Notify>,
    /// None means that an entry never ages out.
    pub dedup_window: Option<Duration>,
    /// None means that nothing is ever parked.
    pub breaker_threshold: Option<u32>,
    pub trusted_proxies: Vec<IpAddr>,
    pub log_format: LogFormat,
    pub log_level: String,
}

#[derive(Debug, Clone)]
pub struct Linear {
    pub api_key: Secret,
    pub api_url: String,
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

impl Config {
    /// Checks what was given, with secrets from files and credentials filled in.
    pub fn from_options(options: Options) -> Result<Self, ConfigError> {
        Self::build(options, &mut Sources::of_process())
    }

    fn build(given: Options, sources: &mut Sources) -> Result<Self, ConfigError> {
        let mut wrong = Vec::new();
        let mut secret = |name, value| {
            sources.secret(name, value).unwrap_or_else(|problem| {
                wrong.push(problem);
                None
            })
        };
        let admin_access_code = secret("ADMIN_ACCESS_CODE", given.admin_access_code);
        let runner_token_secret = secret("RUNNER_TOKEN_SECRET", given.runner_token_secret);
        let linear_key = secret("LINEAR_API_KEY", given.linear_api_key);
        let app_key = secret("GITHUB_APP_PRIVATE_KEY", given.github_app_private_key);
        let github_token = secret("GITHUB_TOKEN", given.github_token);
        let notify_url = secret("NOTIFY_WEBHOOK_URL", given.notify_webhook_url);

        let mut check = Check { wrong };
        let address = check.parse::<IpAddr>("LISTEN_ADDR", &given.listen_addr, "an IP address");
        let port = check.parse::<u16>("PORT", &given.port, "a port number");
        let poll_ms = check.parse::<u64>(
            "POLL_INTERVAL_MS",
            &given.poll_interval_ms,
            "a number of milliseconds",
        );
        check.that(poll_ms >= MIN_POLL_MS, || {
            format!("POLL_INTERVAL_MS must be at least {MIN_POLL_MS}")
        });
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
            admin_access_code,
            poll_interval: Duration::from_millis(poll_ms),
            callback_base_url: check
                .url("RUNNER_CALLBACK_BASE_URL", given.runner_callback_base_url),
            runner_token_secret,
            linear: linear_key.map(|api_key| Linear {
                api_key,
                api_url: check.base("LINEAR_API_URL", given.linear_api_url),
            }),
            github: check.github(
                given.github_app_id,
                app_key,
                github_token,
                given.github_api_url,
            ),
            session_image: given.session_image.filter(|image| !image.is_empty()),
            notify: check.notify(notify_url, &given.notify_type),
            dedup_window: (dedup_hours > 0)
                .then(|| Duration::from_secs(u64::from(dedup_hours) * 3600)),
            breaker_threshold: Some(threshold).filter(|threshold| *threshold > 0),
            trusted_proxies: check.proxies(given.trusted_proxies.as_deref().unwrap_or_default()),
            log_format: check.log_format(&given.log_format),
            log_level: check.log_level(given.log_level),
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
        vec![
            ("LISTEN_ADDR", self.listen.ip().to_string()),
            ("PORT", self.listen.port().to_string()),
            ("DATA_DIR", self.data_dir.display().to_string()),
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
            ("LINEAR_API_KEY", mask(self.linear.is_some())),
            (
                "LINEAR_API_URL",
                plain(self.linear.as_ref().map(|linear| linear.api_url.as_str())),
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
        ]
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
            self.linear.as_ref().map(|linear| &linear.api_key),
            github,
            self.notify.as_ref().map(|notify| &notify.url),
        ]
        .into_iter()
        .flatten()
        .map(Secret::expose)
        .collect()
    }
}

/// Where secrets may come from besides their variable.
struct Sources {
    variable: Box<dyn Fn(&str) -> Option<String>>,
}

impl Sources {
    fn of_process() -> Self {
        Self {
            variable: Box::new(|name| std::env::var(name).ok().filter(|value| !value.is_empty())),
        }
    }

    /// The secret called `name`: given, or in the file that `NAME_FILE` names, or a credential of
    /// systemd. Given twice is an error, because one of the two would be silently ignored.
    fn secret(&mut self, name: &str, given: Option<String>) -> Result<Option<Secret>, String> {
        let given = given.filter(|value| !value.is_empty());
        let file = (self.variable)(&format!("{name}_FILE"));
        let credential =
            (self.variable)("CREDENTIALS_DIRECTORY").map(|dir| Path::new(&dir).join(name));
        match (given, file) {
            (Some(_), Some(_)) => Err(format!("{name} and {name}_FILE are both set; set one")),
            (Some(value), None) => Ok(Some(Secret::new(value))),
            (None, Some(file)) => {
                read_secret(Path::new(&file)).map_err(|cause| format!("{name}_FILE: {cause}"))
            }
            (None, None) => match credential.filter(|path| path.exists()) {
                Some(path) => {
                    read_secret(&path).map_err(|cause| format!("the credential {name}: {cause}"))
                }
                None => Ok(None),
            },
        }
    }
}

fn read_secret(path: &Path) -> Result<Option<Secret>, String> {
    let text = std::fs::read_to_string(path)
        .map_err(|cause| format!("reading {}: {cause}", path.display()))?;
    match text.trim_end_matches(['\r', '\n']) {
        "" => Err(format!("{} is empty", path.display())),
        value => Ok(Some(Secret::new(value))),
    }
}

/// Collects what is wrong.
struct Check {
    wrong: Vec<String>,
}

impl Check {
    fn that(&mut self, holds: bool, problem: impl FnOnce() -> String) {
        if !holds {
            self.wrong.push(problem());
        }
    }

    fn parse<T: Parsed>(&mut self, name: &str, text: &str, what: &str) -> T::Read {
        T::read(text.trim()).unwrap_or_else(|| {
            self.wrong
                .push(format!("{name} must be {what}, not '{text}'"));
            T::Read::default()
        })
    }

    fn url(&mut self, name: &str, text: Option<String>) -> Option<String> {
        text.filter(|text| !text.is_empty())
            .map(|text| self.base(name, text))
    }

    fn base(&mut self, name: &str, text: String) -> String {
        let is_http = reqwest::Url::parse(&text)
            .is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
        self.that(is_http, || {
            format!("{name} must be an http or https address, not '{text}'")
        });
        text.trim_end_matches('/').to_owned()
    }

    fn github(
        &mut self,
        app: Option<String>,
        key: Option<Secret>,
        token: Option<Secret>,
        url: String,
    ) -> Option<GitHub> {
        let credentials = match (app.filter(|id| !id.is_empty()), key, token) {
            (Some(id), Some(private_key), None) => {
                if let Err(cause) = AppKey::from_pem(private_key.expose()) {
                    self.wrong.push(format!("GITHUB_APP_PRIVATE_KEY: {cause}"));
                }
                GitHubCredentials::App { id, private_key }
            }
            (None, None, Some(token)) => GitHubCredentials::Token(token),
            (None, None, None) => return None,
            (Some(_), None, _) => {
                return self.no_github("GITHUB_APP_ID is set and GITHUB_APP_PRIVATE_KEY is not");
            }
            (None, Some(_), _) => {
                return self.no_github("GITHUB_APP_PRIVATE_KEY is set and GITHUB_APP_ID is not");
            }
            (Some(_), Some(_), Some(_)) => {
                return self.no_github("GITHUB_TOKEN and a GitHub App are both set; set one");
            }
        };
        Some(GitHub {
            credentials,
            api_url: self.base("GITHUB_API_URL", url),
        })
    }

    fn no_github(&mut self, problem: &str) -> Option<GitHub> {
        self.wrong.push(problem.to_owned());
        None
    }

    fn notify(&mut self, url: Option<Secret>, kind: &str) -> Option<Notify> {
        let kind = match kind {
            "channel-a" | "slack" => Some(ChatKind::ChannelA),
            "channel-b" | "teams" => Some(ChatKind::ChannelB),
            _ => None,
        };
        self.that(kind.is_some(), || {
            "NOTIFY_TYPE must be channel-a or channel-b".to_owned()
        });
        let url = url?;
        let is_http = reqwest::Url::parse(url.expose())
            .is_ok_and(|url| matches!(url.scheme(), "http" | "https"));
        self.that(is_http, || {
            "NOTIFY_WEBHOOK_URL must be an http or https address".to_owned()
        });
        Some(Notify { url, kind: kind? })
    }

    fn proxies(&mut self, list: &str) -> Vec<IpAddr> {
        let addresses = list
            .split(',')
            .map(str::trim)
            .filter(|address| !address.is_empty());
        addresses
            .filter_map(|text| {
                self.parse::<IpAddr>("TRUSTED_PROXIES", text, "a list of IP addresses")
            })
            .collect()
    }

    fn log_format(&mut self, text: &str) -> LogFormat {
        match text {
            "json" => LogFormat::Json,
            "text" => LogFormat::Text,
            other => {
                self.wrong
                    .push(format!("LOG_FORMAT must be text or json, not '{other}'"));
                LogFormat::Text
            }
        }
    }

    fn log_level(&mut self, text: String) -> String {
        let valid = tracing_subscriber::EnvFilter::builder()
            .parse(&text)
            .is_ok();
        self.that(valid, || {
            format!("LOG_LEVEL is not a level or filter: '{text}'")
        });
        text
    }

    fn done(self, config: Config) -> Result<Config, ConfigError> {
        if self.wrong.is_empty() {
            Ok(config)
        } else {
            Err(ConfigError(self.wrong))
        }
    }
}

/// What [`Check::parse`] can read; a value that cannot be read stands in as its default, since the
/// configuration is refused anyway.
trait Parsed {
    type Read: Default;
    fn read(text: &str) -> Option<Self::Read>;
}

impl Parsed for IpAddr {
    type Read = Option<IpAddr>;
    fn read(text: &str) -> Option<Self::Read> {
        text.parse().ok().map(Some)
    }
}

macro_rules! parsed_number {
    ($($number:ty),*) => {$(
        impl Parsed for $number {
            type Read = $number;
            fn read(text: &str) -> Option<Self::Read> {
                text.parse().ok()
            }
        }
    )*};
}
parsed_number!(u16, u32, u64);

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    fn read(flags: &[&str], files: &[(&str, &str)]) -> Result<Config, ConfigError> {
        let options =
            Line::parse_from(std::iter::once("serve").chain(flags.iter().copied())).options;
        let files: Vec<(String, String)> = files
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect();
        let find = move |name: &str| {
            files
                .iter()
                .find(|(key, _)| key == name)
                .map(|(_, value)| value.clone())
        };
        Config::build(
            options,
            &mut Sources {
                variable: Box::new(find),
            },
        )
    }

    #[test]
    fn nothing_configured_is_a_valid_service_with_everything_off() {
        let config = read(&[], &[]).unwrap();
        assert_eq!(config.listen.to_string(), "127.0.0.1:8080");
        assert!(
            config.admin_access_code.is_none()
                && config.github.is_none()
                && !config.has_callbacks()
        );
        assert_eq!(config.dedup_window, Some(Duration::from_secs(24 * 3600)));
    }

    #[test]
    fn everything_that_is_wrong_is_said_at_once() {
        let flags = [
            "--port=x",
            "--poll-interval-ms=5",
            "--runner-token-secret=short",
            "--github-app-id=1",
            "--notify-type=pigeon",
            "--log-format=xml",
            "--trusted-proxies=10.0.0.1,nowhere",
            "--runner-callback-base-url=ftp://x",
        ];
        let told = read(&flags, &[]).unwrap_err().to_string();
        for problem in [
            "PORT must be a port number, not 'x'",
            "POLL_INTERVAL_MS must be at least 1000",
            "RUNNER_TOKEN_SECRET must be at least 32 bytes long",
            "GITHUB_APP_ID is set and GITHUB_APP_PRIVATE_KEY is not",
            "NOTIFY_TYPE must be channel-a or channel-b",
            "LOG_FORMAT must be text or json, not 'xml'",
            "TRUSTED_PROXIES must be a list of IP addresses, not 'nowhere'",
            "RUNNER_CALLBACK_BASE_URL must be an http or https address, not 'ftp://x'",
        ] {
            assert!(told.contains(problem), "{problem:?} in {told}");
        }
        assert_eq!(told.lines().count(), 9);
    }

    #[test]
    fn a_secret_comes_from_a_file_and_never_from_two_places() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("code");
        std::fs::write(&path, "open sesame\n").unwrap();
        let file = path.to_str().unwrap();
        let config = read(&[], &[("ADMIN_ACCESS_CODE_FILE", file)]).unwrap();
        assert_eq!(config.admin_access_code.unwrap().expose(), "open sesame");
        let both = read(
            &["--admin-access-code=x"],
            &[("ADMIN_ACCESS_CODE_FILE", file)],
        )
        .unwrap_err();
        assert!(both.to_string().contains("both set"));
        std::fs::rename(&path, dir.path().join("LINEAR_API_KEY")).unwrap();
        let config = read(
            &[],
            &[("CREDENTIALS_DIRECTORY", dir.path().to_str().unwrap())],
        )
        .unwrap();
        assert_eq!(config.linear.unwrap().api_key.expose(), "open sesame");
    }

    #[test]
    fn effective_values_hide_every_secret() {
        let flags = [
            "--admin-access-code=topsecret",
            "--github-token=ghp_topsecret",
            "--linear-api-key=lin_topsecret",
        ];
        let config = read(&flags, &[]).unwrap();
        let shown = format!("{:?} {config:?}", config.effective());
        assert!(!shown.contains("topsecret"), "{shown}");
        assert_eq!(config.secrets().len(), 3);
    }
}
