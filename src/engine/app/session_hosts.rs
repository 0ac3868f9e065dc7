//! The hosts of session machines, as the configuration and the stored settings name them.

use std::time::Duration;

use crate::config::{Config, ContainerEngine};
use store::{Store, instance};
use vendors::http::{Client, Proxies, Redactor, Timeouts};
use vendors::session_hosts::{Docker, FlyMachines, SessionHost, SessionHosts};

use super::StartupSettings;

/// Where machines are made when nobody says where.
pub const DEFAULT_REGION: &str = "iad";

/// How long may it take to fetch an image? Less than one try of an effect may.
const FETCH_TIMEOUT: Duration = Duration::from_secs(150);

/// What the address of an engine behind a socket is called; nobody looks it up.
const BEHIND_SOCKET: &str = "http://docker";

/// The hosts that are configured. What the environment says beats what is stored. The container
/// engine is this machine's or its neighbour's, and no proxy stands before it.
pub(super) fn build(
    config: &Config,
    stored: &StartupSettings,
    store: &Store,
    redactor: &Redactor,
    proxies: &Proxies,
) -> Result<SessionHosts, String> {
    let instance = store
        .read(instance::id)
        .map_err(|error| error.to_string())?;
    let mut hosts = Vec::new();
    let vm = &config.vm_sessions;
    let app = vm.app.as_ref().or(stored.vm_sessions_app.as_ref());
    if let (Some(token), Some(app)) = (&vm.token, app) {
        let region = vm
            .region
            .as_deref()
            .or(stored.vm_sessions_region.as_deref());
        let region = region.unwrap_or(DEFAULT_REGION);
        let client = Client::with_proxies(proxies, "fly", redactor.clone())?;
        let machines = FlyMachines::new(client, &vm.api_url, app, region, token.clone());
        hosts.push(SessionHost::Vm(machines));
    }
    if config.containers.is_available() {
        hosts.push(SessionHost::Local(docker(
            &config.containers.engine,
            redactor,
        )?));
    }
    Ok(SessionHosts::new(hosts, instance))
}

fn docker(engine: &ContainerEngine, redactor: &Redactor) -> Result<Docker, String> {
    let patient = Timeouts {
        total: FETCH_TIMEOUT,
        ..Timeouts::default()
    };
    let client = |timeouts| match engine {
        ContainerEngine::Socket(path) => {
            Client::with_unix_socket("docker", redactor.clone(), timeouts, path)
        }
        ContainerEngine::Http(_) => Client::with_timeouts("docker", redactor.clone(), timeouts),
    };
    let base = match engine {
        ContainerEngine::Socket(_) => BEHIND_SOCKET,
        ContainerEngine::Http(address) => address,
    };
    Ok(Docker::new(
        client(Timeouts::default())?,
        client(patient)?,
        base,
    ))
}
