//! Configuration of session hosts and of the model credentials for sessions.

use std::path::{Path, PathBuf};
use std::{fmt, io};

use domain::connection::CredentialSet;
use domain::egress::HostPattern;
use domain::run_socket;

use super::Credentials;
use super::validator::Validator;
use super::{Config, is_loopback};

/// Socket of the container engine if `DOCKER_HOST` is unset.
const DEFAULT_SOCKET: &str = "/var/run/docker.sock";

/// Configuration of Fly Machines.
#[derive(Debug, Clone)]
pub struct VmSessionsConfig {
    /// Fly app; takes precedence over the stored one.
    pub app: Option<String>,
    /// Fly region; takes precedence over the stored one.
    pub region: Option<String>,
    /// Base URL of the API.
    pub api_url: String,
}

/// Configuration of the local container engine.
#[derive(Debug, Clone)]
pub struct ContainersConfig {
    /// Address of the engine.
    pub engine: ContainerEngine,
    /// Whether DOCKER_HOST is set; the default socket may not exist.
    pub is_explicit: bool,
    /// Image of runs in local containers.
    pub image: String,
    /// Path of the data directory on the engine's machine, if it differs.
    pub data_dir_on_host: Option<PathBuf>,
    /// Network of the containers.
    pub network: ContainerNetwork,
    /// Megabytes that mirrors of repositories may take up; 0 disables them.
    pub mirror_limit_mb: u32,
}

/// Network of local containers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ContainerNetwork {
    /// None: they reach these hosts through the proxy of the service.
    Proxy(Vec<HostPattern>),
    /// That of the engine, because LOCAL_EGRESS says so.
    Open,
    /// That of the engine, because it cannot mount the socket of the proxy, and nothing is configured.
    OpenByDefault,
}

/// Address of a container engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ContainerEngine {
    /// Unix socket.
    Socket(PathBuf),
    /// Base URL. Access to it is control of the engine's machine.
    Http(String),
}

impl ContainerEngine {
    /// Returns the engine that a value of DOCKER_HOST names, else the default socket.
    ///
    /// # Errors
    /// Returns a sentence for operators if the value is invalid.
    pub(crate) fn from_docker_host(docker_host: Option<&str>) -> Result<Self, String> {
        let named = docker_host.map(str::trim).filter(|text| !text.is_empty());
        let Some(text) = named else {
            return Ok(ContainerEngine::Socket(DEFAULT_SOCKET.into()));
        };
        Self::parse(text).ok_or_else(|| {
            format!("DOCKER_HOST must be unix:///path, tcp://host:port or http://host:port, not '{text}'")
        })
    }

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

    /// Whether the engine can mount folders of this service: it runs on this machine, or the path of the data directory
    /// on its machine is known.
    fn can_mount_data_dir(&self, data_dir_on_host: Option<&Path>) -> bool {
        let is_on_this_machine = match self {
            ContainerEngine::Socket(_) => true,
            ContainerEngine::Http(address) => is_loopback(address),
        };
        is_on_this_machine || data_dir_on_host.is_some()
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
    /// Whether the engine can be used: DOCKER_HOST is set, or the default socket exists.
    pub(crate) fn is_available(&self) -> bool {
        match &self.engine {
            ContainerEngine::Socket(path) if !self.is_explicit => path.exists(),
            ContainerEngine::Socket(_) | ContainerEngine::Http(_) => true,
        }
    }

    /// Whether the engine can mount folders of this service.
    fn can_mount_data_dir(&self) -> bool {
        self.engine
            .can_mount_data_dir(self.data_dir_on_host.as_deref())
    }
}

impl Config {
    /// Whether runs in containers can report: at the address of the service, or through its socket.
    pub fn containers_can_report(&self) -> bool {
        self.has_callbacks() || self.containers.can_mount_data_dir()
    }

    /// Whether containers get no network, and reach other hosts through the proxy of the service.
    pub fn isolates_containers(&self) -> bool {
        matches!(self.containers.network, ContainerNetwork::Proxy(_))
    }

    /// Whether containers get mirrors of repositories.
    pub(crate) fn mirrors_repositories(&self) -> bool {
        self.containers.mirror_limit_mb > 0 && self.containers.can_mount_data_dir()
    }

    /// Returns the folder with the socket of runs, as the container engine sees it.
    ///
    /// # Errors
    /// If the data directory cannot be resolved.
    pub(crate) fn socket_folder_on_host(&self) -> io::Result<PathBuf> {
        Ok(self.data_dir_on_host()?.join(run_socket::FOLDER))
    }

    /// Returns the data directory, as the container engine sees it.
    ///
    /// # Errors
    /// If the data directory cannot be resolved.
    pub(crate) fn data_dir_on_host(&self) -> io::Result<PathBuf> {
        match &self.containers.data_dir_on_host {
            Some(known) => Ok(known.clone()),
            None => self.data_dir.canonicalize(),
        }
    }
}

impl Validator {
    pub(super) fn vm_sessions(
        &mut self,
        app: Option<String>,
        region: Option<String>,
        api_url: String,
    ) -> VmSessionsConfig {
        let non_blank = |text: Option<String>| text.filter(|text| !text.trim().is_empty());
        VmSessionsConfig {
            app: non_blank(app),
            region: non_blank(region),
            api_url: self.base_url("VM_API_URL", &api_url),
        }
    }

    pub(super) fn containers(
        &mut self,
        docker_host: Option<String>,
        image: String,
        data_dir_on_host: Option<PathBuf>,
        (egress, hosts): (Option<&str>, Option<&str>),
        mirror_limit_mb: &str,
    ) -> ContainersConfig {
        let docker_host = docker_host.filter(|text| !text.trim().is_empty());
        let engine = ContainerEngine::from_docker_host(docker_host.as_deref());
        if let Err(problem) = &engine {
            self.require(false, || problem.clone());
        }
        self.require(!image.trim().is_empty(), || {
            "LOCAL_RUNNER_IMAGE must name an image".to_owned()
        });
        let data_dir_on_host = data_dir_on_host.filter(|path| !path.as_os_str().is_empty());
        self.require(
            data_dir_on_host
                .as_ref()
                .is_none_or(|path| path.is_absolute()),
            || "DATA_DIR_ON_HOST must be an absolute path".to_owned(),
        );
        let engine = engine.unwrap_or_else(|_| ContainerEngine::Socket(DEFAULT_SOCKET.into()));
        let can_mount = engine.can_mount_data_dir(data_dir_on_host.as_deref());
        ContainersConfig {
            network: self.container_network(egress, hosts, can_mount),
            mirror_limit_mb: self.parse::<u32>(
                "GIT_MIRROR_LIMIT_MB",
                mirror_limit_mb,
                "a whole number of megabytes",
            ),
            engine,
            is_explicit: docker_host.is_some(),
            image: image.trim().to_owned(),
            data_dir_on_host,
        }
    }
}

impl Validator {
    /// Network of containers, whose engine can or cannot mount the socket of the proxy.
    fn container_network(
        &mut self,
        egress: Option<&str>,
        hosts: Option<&str>,
        can_mount: bool,
    ) -> ContainerNetwork {
        let egress = egress.map(str::trim).filter(|mode| !mode.is_empty());
        self.require(matches!(egress, None | Some("proxy" | "open")), || {
            let mode = egress.unwrap_or_default();
            format!("LOCAL_EGRESS must be proxy or open, not '{mode}'")
        });
        let patterns = self.host_patterns(hosts.unwrap_or("*"));
        match egress {
            Some("open") => ContainerNetwork::Open,
            None if hosts.is_none() && !can_mount => ContainerNetwork::OpenByDefault,
            _ => {
                self.require(can_mount, || {
                    "LOCAL_EGRESS=proxy and LOCAL_EGRESS_HOSTS need DATA_DIR_ON_HOST (the path of DATA_DIR on the machine \
                     of DOCKER_HOST), because containers reach the proxy by a socket in that folder. Set it, or \
                     LOCAL_EGRESS=open without LOCAL_EGRESS_HOSTS"
                        .to_owned()
                });
                ContainerNetwork::Proxy(patterns)
            }
        }
    }

    fn host_patterns(&mut self, hosts: &str) -> Vec<HostPattern> {
        let entries = hosts.split(',').map(str::trim);
        let mut patterns = Vec::new();
        for entry in entries.filter(|entry| !entry.is_empty()) {
            let pattern = HostPattern::parse(entry);
            self.require(pattern.is_some(), || {
                format!(
                    "LOCAL_EGRESS_HOSTS must list hosts such as github.com, *.npmjs.org, 10.1.2.3:5432 or *, not '{entry}'"
                )
            });
            patterns.extend(pattern);
        }
        patterns
    }
}

/// Effective values for display, with secrets masked.
pub(super) fn effective(
    vm: &VmSessionsConfig,
    containers: &ContainersConfig,
    credentials: &Credentials,
) -> Vec<(&'static str, String)> {
    let mask = |set: bool| if set { "<set>" } else { "<unset>" }.to_owned();
    let plain = |value: &Option<String>| value.clone().unwrap_or_else(|| "<unset>".to_owned());
    vec![
        ("VM_SESSIONS_TOKEN", mask(credentials.vm_token.is_some())),
        ("VM_SESSIONS_APP", plain(&vm.app)),
        ("VM_SESSIONS_REGION", plain(&vm.region)),
        ("VM_API_URL", vm.api_url.clone()),
        ("LOCAL_RUNNER_IMAGE", containers.image.clone()),
        ("DOCKER_HOST", containers.engine.to_string()),
        (
            "LOCAL_EGRESS",
            match &containers.network {
                ContainerNetwork::Proxy(_) => "proxy".to_owned(),
                ContainerNetwork::Open | ContainerNetwork::OpenByDefault => "open".to_owned(),
            },
        ),
        (
            "LOCAL_EGRESS_HOSTS",
            match &containers.network {
                ContainerNetwork::Proxy(hosts) => {
                    let hosts: Vec<String> = hosts.iter().map(ToString::to_string).collect();
                    hosts.join(",")
                }
                ContainerNetwork::Open | ContainerNetwork::OpenByDefault => "<unused>".to_owned(),
            },
        ),
        (
            "GIT_MIRROR_LIMIT_MB",
            containers.mirror_limit_mb.to_string(),
        ),
        (
            "DATA_DIR_ON_HOST",
            plain(
                &containers
                    .data_dir_on_host
                    .as_ref()
                    .map(|path| path.display().to_string()),
            ),
        ),
        (
            "ANTHROPIC_API_KEY",
            mask(credentials.has(CredentialSet::AnthropicKey)),
        ),
        (
            "CLAUDE_CODE_OAUTH_TOKEN",
            mask(credentials.has(CredentialSet::ClaudeCodeToken)),
        ),
        (
            "OPENAI_API_KEY",
            mask(credentials.has(CredentialSet::OpenAiKey)),
        ),
        (
            "GEMINI_API_KEY",
            mask(credentials.has(CredentialSet::GeminiKey)),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_sockets_and_plain_addresses() {
        let socket = |path: &str| Some(ContainerEngine::Socket(path.into()));
        let http = |address: &str| Some(ContainerEngine::Http(address.to_owned()));
        for (text, engine) in [
            ("unix:///run/docker.sock", socket("/run/docker.sock")),
            ("tcp://127.0.0.1:2375", http("http://127.0.0.1:2375")),
            ("http://engine:2375/", http("http://engine:2375")),
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
