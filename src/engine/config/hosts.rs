//! The hosts of session machines, and the model credentials that sessions are handed.

use std::fmt;
use std::path::PathBuf;

use domain::secret::Secret;

use super::check::Check;

/// Where an engine listens unless `DOCKER_HOST` says otherwise.
const DEFAULT_SOCKET: &str = "/var/run/docker.sock";

/// The provider of virtual machines.
#[derive(Debug, Clone)]
pub struct VmSessions {
    /// None switches it off.
    pub token: Option<Secret>,
    /// Beats the stored one.
    pub app: Option<String>,
    /// Beats the stored one.
    pub region: Option<String>,
    pub api_url: String,
}

/// The container engine of this machine.
#[derive(Debug, Clone)]
pub struct Containers {
    pub engine: Engine,
    /// Whether an operator named the engine; the usual one may not be there.
    pub named: bool,
    pub image: String,
}

/// How an engine is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Engine {
    Socket(PathBuf),
    /// A base address; anybody who can reach it rules the machine it stands for.
    Web(String),
}

impl Engine {
    fn parse(text: &str) -> Option<Self> {
        if let Some(path) = text.strip_prefix("unix://") {
            return path.starts_with('/').then(|| Engine::Socket(path.into()));
        }
        let address = match text.split_once("://") {
            Some(("tcp", rest)) => format!("http://{rest}"),
            Some(("http", _)) => text.to_owned(),
            _ => return None,
        };
        let has_host = reqwest::Url::parse(&address).is_ok_and(|url| url.has_host());
        has_host.then(|| Engine::Web(address.trim_end_matches('/').to_owned()))
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Engine::Socket(path) => write!(f, "unix://{}", path.display()),
            Engine::Web(address) => f.write_str(address),
        }
    }
}

impl Containers {
    /// Whether there is an engine to ask: one that was named, or the usual one where it stands.
    pub fn is_there(&self) -> bool {
        match &self.engine {
            Engine::Socket(path) if !self.named => path.exists(),
            Engine::Socket(_) | Engine::Web(_) => true,
        }
    }
}

impl Check {
    pub(super) fn vm_sessions(
        &mut self,
        token: Option<Secret>,
        app: Option<String>,
        region: Option<String>,
        api_url: String,
    ) -> VmSessions {
        let given = |text: Option<String>| text.filter(|text| !text.trim().is_empty());
        VmSessions {
            token,
            app: given(app),
            region: given(region),
            api_url: self.base("VM_API_URL", &api_url),
        }
    }

    pub(super) fn containers(&mut self, docker_host: Option<String>, image: String) -> Containers {
        let given = docker_host.filter(|text| !text.trim().is_empty());
        let named = given.is_some();
        let engine = match given {
            Some(text) => {
                let engine = Engine::parse(text.trim());
                self.that(engine.is_some(), || {
                    format!(
                        "DOCKER_HOST must be unix:///path, tcp://host:port or http://host:port, not '{text}'"
                    )
                });
                engine
            }
            None => None,
        };
        self.that(!image.trim().is_empty(), || {
            "LOCAL_RUNNER_IMAGE must name an image".to_owned()
        });
        Containers {
            engine: engine.unwrap_or_else(|| Engine::Socket(DEFAULT_SOCKET.into())),
            named,
            image: image.trim().to_owned(),
        }
    }
}

/// The values in force, for people to look at.
pub(super) fn effective(
    vm: &VmSessions,
    containers: &Containers,
    model_keys: &[(&'static str, Secret)],
) -> Vec<(&'static str, String)> {
    let mask = |set: bool| if set { "<set>" } else { "<unset>" }.to_owned();
    let plain = |value: &Option<String>| value.clone().unwrap_or_else(|| "<unset>".to_owned());
    let has = |name| model_keys.iter().any(|(known, _)| *known == name);
    vec![
        ("VM_SESSIONS_TOKEN", mask(vm.token.is_some())),
        ("VM_SESSIONS_APP", plain(&vm.app)),
        ("VM_SESSIONS_REGION", plain(&vm.region)),
        ("VM_API_URL", vm.api_url.clone()),
        ("LOCAL_RUNNER_IMAGE", containers.image.clone()),
        ("DOCKER_HOST", containers.engine.to_string()),
        ("ANTHROPIC_API_KEY", mask(has("ANTHROPIC_API_KEY"))),
        (
            "CLAUDE_CODE_OAUTH_TOKEN",
            mask(has("CLAUDE_CODE_OAUTH_TOKEN")),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_is_a_socket_or_a_plain_address() {
        let socket = |path: &str| Some(Engine::Socket(path.into()));
        let web = |address: &str| Some(Engine::Web(address.to_owned()));
        for (text, engine) in [
            ("unix:///run/docker.sock", socket("/run/docker.sock")),
            ("tcp://127.0.0.1:2375", web("http://127.0.0.1:2375")),
            ("http://engine:2375/", web("http://engine:2375")),
            ("unix://relative", None),
            ("ssh://host", None),
            ("https://host", None),
            ("tcp://", None),
            ("/run/docker.sock", None),
        ] {
            assert_eq!(Engine::parse(text), engine, "{text}");
        }
    }
}
