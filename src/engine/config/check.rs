//! Reading each value, and collecting what is wrong with any.

use std::net::IpAddr;
use std::time::Duration;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

use domain::keys::app_jwt::AppKey;
use domain::secret::Secret;
use domain::templates::is_image;
use vendors::chat::ChatKind;

use super::address::{is_encrypted, is_http, is_loopback};
use super::{GitHub, GitHubCredentials, LogFormat, Notify};

/// Collects what is wrong.
pub(super) struct Check {
    pub(super) wrong: Vec<String>,
    pub(super) allow_plain_http: bool,
    /// Variables whose address is plain HTTP beyond this machine, which is allowed.
    pub(super) plain_http: Vec<&'static str>,
}

impl Check {
    pub(super) fn new(wrong: Vec<String>, allow_plain_http: &str) -> Self {
        let mut check = Self {
            wrong,
            allow_plain_http: false,
            plain_http: Vec::new(),
        };
        check.allow_plain_http =
            check.parse::<bool>("ALLOW_PLAIN_HTTP", allow_plain_http, "true or false");
        check
    }

    pub(super) fn that(&mut self, holds: bool, problem: impl FnOnce() -> String) {
        if !holds {
            self.wrong.push(problem());
        }
    }

    pub(super) fn parse<T: Parsed>(&mut self, name: &str, text: &str, what: &str) -> T::Read {
        T::read(text.trim()).unwrap_or_else(|| {
            self.wrong
                .push(format!("{name} must be {what}, not '{text}'"));
            T::Read::default()
        })
    }

    pub(super) fn milliseconds(&mut self, name: &str, text: &str, least: u64) -> Duration {
        let milliseconds = text.trim().parse().unwrap_or_default();
        self.that(milliseconds >= least, || {
            format!("{name} must be at least {least} milliseconds, not '{text}'")
        });
        Duration::from_millis(milliseconds)
    }

    pub(super) fn url(&mut self, name: &'static str, text: Option<String>) -> Option<String> {
        text.filter(|text| !text.trim().is_empty())
            .map(|text| self.base(name, &text))
    }

    pub(super) fn base(&mut self, name: &'static str, text: &str) -> String {
        // The parser forgives blanks around it; what is put together with it would hold them.
        let text = text.trim();
        if is_http(text) {
            self.encrypted(name, text);
        } else {
            self.wrong.push(format!(
                "{name} must be an http or https address, not '{text}'"
            ));
        }
        text.trim_end_matches('/').to_owned()
    }

    /// Refuses plain HTTP beyond this machine, unless it is allowed: a credential goes along with each
    /// request. The address is not shown; it may be a credential itself.
    fn encrypted(&mut self, name: &'static str, address: &str) {
        if is_encrypted(address) || is_loopback(address) {
            return;
        }
        if self.allow_plain_http {
            self.plain_http.push(name);
        } else {
            self.wrong.push(format!(
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
            api_url: self.base("GITHUB_API_URL", &url),
        })
    }

    fn no_github(&mut self, problem: &str) -> Option<GitHub> {
        self.wrong.push(problem.to_owned());
        None
    }

    pub(super) fn notify(&mut self, url: Option<Secret>, kind: &str) -> Option<Notify> {
        let kind = match kind {
            "channel-a" | "slack" => Some(ChatKind::ChannelA),
            "channel-b" | "teams" => Some(ChatKind::ChannelB),
            _ => None,
        };
        self.that(kind.is_some(), || {
            "NOTIFY_TYPE must be channel-a or channel-b".to_owned()
        });
        let url = url?;
        self.that(is_http(url.expose()), || {
            "NOTIFY_WEBHOOK_URL must be an http or https address".to_owned()
        });
        self.encrypted("NOTIFY_WEBHOOK_URL", url.expose());
        Some(Notify { url, kind: kind? })
    }

    pub(super) fn image(&mut self, name: &str, image: Option<String>) -> Option<String> {
        let image = image
            .map(|image| image.trim().to_owned())
            .filter(|image| !image.is_empty())?;
        self.that(is_image(&image), || {
            format!("{name} must be the name of a container image, not '{image}'")
        });
        Some(image)
    }

    pub(super) fn proxies(&mut self, list: &str) -> Vec<IpAddr> {
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

    pub(super) fn log_format(&mut self, text: &str) -> LogFormat {
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

    /// A word that is no level would be taken for the name of a module, and silence everything else.
    pub(super) fn log_level(&mut self, text: String) -> String {
        if text.trim().is_empty() {
            return LevelFilter::INFO.to_string();
        }
        // What stands in braces are conditions on fields, which may hold commas of their own.
        let is_word = |part: &&str| !part.contains(['=', '[', '{', '}']);
        let mut words = text.split(',').filter(is_word).map(str::trim);
        let are_levels =
            text.contains('{') || words.all(|word| word.parse::<LevelFilter>().is_ok());
        let is_filter = EnvFilter::builder().parse(&text).is_ok();
        self.that(are_levels && is_filter, || {
            format!(
                "LOG_LEVEL must be error, warn, info, debug, trace, or a filter such as \
                 info,agent_implement=debug, not '{text}'"
            )
        });
        text
    }
}

/// What [`Check::parse`] can read; a value that cannot be read stands in as its default, since the
/// configuration is refused anyway.
pub(super) trait Parsed {
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
parsed_number!(u16, u32);

impl Parsed for bool {
    type Read = bool;
    fn read(text: &str) -> Option<Self::Read> {
        match text {
            "true" | "1" => Some(true),
            "false" | "0" | "" => Some(false),
            _ => None,
        }
    }
}
