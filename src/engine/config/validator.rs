//! Validation of values, collecting all problems.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use tracing_subscriber::filter::{LevelFilter, Targets};

use domain::crypto::app_jwt::AppKey;
use domain::runner_image::is_image_name;
use domain::secret::Secret;
use vendors::chat::ChatKind;

use super::address::{is_http, is_https, is_loopback};
use super::options::default_of;
use super::{ChatConfig, GitHubAuthConfig, GitHubConfig, LogFormat, TrustedProxies};

/// Validator that collects problems.
pub(super) struct Validator {
    pub(super) problems: Vec<String>,
    pub(super) allow_plain_http: bool,
    /// Variables whose address is plain HTTP on another machine, which the configuration allows.
    pub(super) plain_http_variables: Vec<&'static str>,
}

impl Validator {
    pub(super) fn new(problems: Vec<String>, allow_plain_http: &str) -> Self {
        let mut validator = Self {
            problems,
            allow_plain_http: false,
            plain_http_variables: Vec::new(),
        };
        validator.allow_plain_http =
            validator.parse::<bool>("ALLOW_PLAIN_HTTP", allow_plain_http, "true or false");
        validator
    }

    pub(super) fn require(&mut self, holds: bool, problem: impl FnOnce() -> String) {
        if !holds {
            self.problems.push(problem());
        }
    }

    pub(super) fn parse<T: ConfigValue>(
        &mut self,
        name: &str,
        text: &str,
        what: &str,
    ) -> T::Output {
        T::read(text.trim()).unwrap_or_else(|| {
            self.problems
                .push(format!("{name} must be {what}, not '{text}'"));
            T::Output::default()
        })
    }

    pub(super) fn milliseconds(&mut self, name: &str, text: &str, min: u64) -> Duration {
        let milliseconds = text.trim().parse().unwrap_or_default();
        self.require(milliseconds >= min, || {
            format!("{name} must be at least {min} milliseconds, not '{text}'")
        });
        Duration::from_millis(milliseconds)
    }

    pub(super) fn listen(&mut self, address: &str, port: &str) -> SocketAddr {
        let address = self.parse::<IpAddr>("LISTEN_ADDR", address, "an IP address");
        let port = self.parse::<u16>("PORT", port, "a port number");
        SocketAddr::new(address.unwrap_or(IpAddr::from([127, 0, 0, 1])), port)
    }

    pub(super) fn folder(&mut self, name: &str, path: PathBuf) -> PathBuf {
        let is_set = !path.as_os_str().is_empty();
        self.require(is_set, || format!("{name} must be the path of a folder"));
        match is_set {
            true => path,
            false => default_of(name).unwrap_or_default().into(),
        }
    }

    pub(super) fn optional_url(
        &mut self,
        name: &'static str,
        text: Option<String>,
    ) -> Option<String> {
        text.filter(|text| !text.trim().is_empty())
            .map(|text| self.base_url(name, &text))
    }

    pub(super) fn base_url(&mut self, name: &'static str, text: &str) -> String {
        // The URL parser ignores surrounding blanks, but paths are appended to the text itself.
        let text = text.trim();
        if is_http(text) {
            self.require_encryption(name, text);
        } else {
            self.problems.push(format!(
                "{name} must be an http or https address, not '{text}'"
            ));
        }
        text.trim_end_matches('/').to_owned()
    }

    /// Rejects plain HTTP to other machines unless it is allowed, because each request carries a
    /// credential. The error does not quote the address, which may be a credential itself.
    fn require_encryption(&mut self, name: &'static str, address: &str) {
        if is_https(address) || is_loopback(address) {
            return;
        }
        if self.allow_plain_http {
            self.plain_http_variables.push(name);
        } else {
            self.problems.push(format!(
                "{name} must be an https address: over plain http, anyone on the network path can read the \
                 credentials (ALLOW_PLAIN_HTTP=true allows it)"
            ));
        }
    }

    pub(super) fn github(
        &mut self,
        app: Option<String>,
        key: Option<Secret>,
        token: Option<Secret>,
        url: &str,
    ) -> Option<GitHubConfig> {
        let credentials = match (app, key, token) {
            (Some(id), Some(private_key), None) => {
                if let Err(cause) = AppKey::from_pem(private_key.expose()) {
                    self.problems
                        .push(format!("GITHUB_APP_PRIVATE_KEY: {cause}"));
                }
                GitHubAuthConfig::App { id, private_key }
            }
            (None, None, Some(token)) => GitHubAuthConfig::Token(token),
            (None, None, None) => return None,
            (Some(_), None, _) => {
                return self
                    .reject_github("GITHUB_APP_ID is set and GITHUB_APP_PRIVATE_KEY is not");
            }
            (None, Some(_), _) => {
                return self
                    .reject_github("GITHUB_APP_PRIVATE_KEY is set and GITHUB_APP_ID is not");
            }
            (Some(_), Some(_), Some(_)) => {
                return self.reject_github("GITHUB_TOKEN and a GitHub App are both set; set one");
            }
        };
        Some(GitHubConfig {
            credentials,
            api_url: self.base_url("GITHUB_API_URL", url),
        })
    }

    fn reject_github(&mut self, problem: &str) -> Option<GitHubConfig> {
        self.problems.push(problem.to_owned());
        None
    }

    pub(super) fn chat(&mut self, url: Option<Secret>, kind: &str) -> Option<ChatConfig> {
        let kind = match kind {
            "channel-a" | "slack" => Some(ChatKind::Slack),
            "channel-b" | "teams" => Some(ChatKind::Teams),
            _ => None,
        };
        self.require(kind.is_some(), || {
            "NOTIFY_TYPE must be channel-a or channel-b".to_owned()
        });
        let url = url?;
        self.require(is_http(url.expose()), || {
            "NOTIFY_WEBHOOK_URL must be an http or https address".to_owned()
        });
        self.require_encryption("NOTIFY_WEBHOOK_URL", url.expose());
        Some(ChatConfig { url, kind: kind? })
    }

    pub(super) fn image(&mut self, name: &str, image: Option<String>) -> Option<String> {
        let image = image
            .map(|image| image.trim().to_owned())
            .filter(|image| !image.is_empty())?;
        self.require(is_image_name(&image), || {
            format!("{name} must be the name of a container image, not '{image}'")
        });
        Some(image)
    }

    pub(super) fn trusted_proxies(&mut self, list: &str) -> TrustedProxies {
        list.parse().unwrap_or_else(|problem| {
            self.problems.push(format!("TRUSTED_PROXIES {problem}"));
            TrustedProxies::default()
        })
    }

    pub(super) fn log_format(&mut self, text: &str) -> LogFormat {
        match text {
            "json" => LogFormat::Json,
            "text" => LogFormat::Text,
            other => {
                self.problems
                    .push(format!("LOG_FORMAT must be text or json, not '{other}'"));
                LogFormat::Text
            }
        }
    }

    /// Validates the log filter. A word that is not a level would count as a module name and
    /// disable all other logs.
    pub(super) fn log_level(&mut self, text: String) -> String {
        if text.trim().is_empty() {
            return LevelFilter::INFO.to_string();
        }
        let mut words = text.split(',').filter(|part| !part.contains('='));
        let are_levels = words.all(|word| word.trim().parse::<LevelFilter>().is_ok());
        let is_filter = text.parse::<Targets>().is_ok();
        self.require(are_levels && is_filter, || {
            format!(
                "LOG_LEVEL must be error, warn, info, debug, trace, or a filter such as \
                 info,engine=debug, not '{text}'"
            )
        });
        text
    }
}

/// Value that [`Validator::parse`] can read. An invalid value is replaced by its default; the
/// configuration is rejected anyway.
pub(super) trait ConfigValue {
    type Output: Default;
    fn read(text: &str) -> Option<Self::Output>;
}

impl ConfigValue for IpAddr {
    type Output = Option<IpAddr>;
    fn read(text: &str) -> Option<Self::Output> {
        text.parse().ok().map(Some)
    }
}

macro_rules! parsed_number {
    ($($number:ty),*) => {$(
        impl ConfigValue for $number {
            type Output = $number;
            fn read(text: &str) -> Option<Self::Output> {
                text.parse().ok()
            }
        }
    )*};
}
parsed_number!(u16, u32);

impl ConfigValue for bool {
    type Output = bool;
    fn read(text: &str) -> Option<Self::Output> {
        match text {
            "true" | "1" => Some(true),
            "false" | "0" | "" => Some(false),
            _ => None,
        }
    }
}
