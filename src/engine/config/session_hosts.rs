//! The hosts of session machines, and the model credentials that sessions are handed.

use std::fmt;
use std::path::PathBuf;

use domain::secret::Secret;

use super::validator::Validator;

/// Where an engine listens unless `DOCKER_HOST` says otherwise.
const DEFAULT_SOCKET: &str = "/var/run/docker.sock";

/// The provider of virtual machines.
#[derive(Debug, Clone)]
pub struct VmSessionsConfig {
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
pub struct ContainersConfig {
    pub engine: ContainerEngine,
    /// Whether an operator named the engine; the usual one may not be there.
    pub is_explicit: bool,
    pub image: String,
}

/// How an engine is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ContainerEngine {
    Socket(PathBuf),
    /// A base address; anybody who can reach it rules the machine it stands for.
    Http(String),
}

impl ContainerEngine {
    fn parse(text: &str) -> Option<Self> {
        if let Some(path) = text.strip_prefix("unix://") {
            return path
                .starts_with('/')
                .then(|| ContainerEngine::Socket(path.into()));
        }
        let address = match text.split_once("://") {
            Some(("tcp", rest)) => format!("http://{rest}"),
            Some(("http", _)) => text.to_owned(),
            _ => return None,
        };
        let has_host = reqwest::Url::parse(&address).is_ok_and(|url| url.has_host());
        has_host.then(|| ContainerEngine::Http(address.trim_end_matches('/').to_owned()))
    }
}

impl fmt::Display for ContainerEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ContainerEngine::Socket(path) => write!(f, "unix://{}", path.display()),
            ContainerEngine::Http(address) => f.write_str(address),
        }
    }
}

impl ContainersConfig {
    /// Whether there is an engine to ask: one that was named, or the usual one where it stands.
    pub fn is_available(&self) -> bool {
        match &self.engine {
            ContainerEngine::Socket(path) if !self.is_explicit => path.exists(),
            ContainerEngine::Socket(_) | ContainerEngine::Http(_) => true,
        }
    }
}

impl Validator {
    pub(super) fn vm_sessions(
        &mut self,
        token: Option<Secret>,
        app: Option<String>,
        region: Option<String>,
        api_url: String,
    ) -> VmSessionsConfig {
        let given = |text: Option<String>| text.filter(|text| !text.trim().is_empty());
        VmSessionsConfig {
            token,
            app: given(app),
            region: given(region),
            api_url: self.base_url("VM_API_URL", &api_url),
        }
    }

    pub(super) fn containers(
        &mut self,
        docker_host: Option<String>,
        image: String,
    ) -> ContainersConfig {
        let given = docker_host.filter(|text| !text.trim().is_empty());
        let named = given.is_some();
        let engine = match given {
            Some(text) => {
                let engine = ContainerEngine::parse(text.trim());
                self.require(engine.is_some(), || {
                    format!(
                        "DOCKER_HOST must be unix:///path, tcp://host:port or http://host:port, not '{text}'"
                    )
                });
                engine
            }
            None => None,
        };
        self.require(!image.trim().is_empty(), || {
            "LOCAL_RUNNER_IMAGE must name an image".to_owned()
        });
        ContainersConfig {
            engine: engine.unwrap_or_else(|| ContainerEngine::Socket(DEFAULT_SOCKET.into())),
            is_explicit: named,
            image: image.trim().to_owned(),
        }
    }
}

/// The values in force, for people to look at.
pub(super) fn effective(
    vm: &VmSessionsConfig,
    containers: &ContainersConfig,
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
        let socket = |path: &str| Some(ContainerEngine::Socket(path.into()));
        let web = |address: &str| Some(ContainerEngine::Http(address.to_owned()));
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
            assert_eq!(ContainerEngine::parse(text), engine, "{text}");
        }
    }
}
