//! Session hosts, built from the configuration and the stored settings.

use crate::config::{Config, ContainerEngine, KubernetesConfig};
use domain::kubeconfig::Material;
use domain::secret::Secret;
use domain::vendor::Vendor;
use store::{StoreReader, instance};
use vendors::http::{Client, Proxies, Redactor, Timeouts};
use vendors::session_hosts::{Docker, FlyMachines, Kubernetes, SessionHost, SessionHosts};

use super::StartupSettings;

/// Fly region used if none is configured.
pub const DEFAULT_REGION: &str = "iad";

/// Base URL of a container engine behind a Unix socket; the host name is never resolved.
const SOCKET_BASE_URL: &str = "http://docker";

/// Builds the configured hosts. The environment takes precedence over stored settings. Requests to
/// the container engine bypass the proxy, because it runs on this machine or in its network.
pub(super) fn build(
    config: &Config,
    vm_token: Option<&Secret>,
    stored: &StartupSettings,
    store: &StoreReader,
    redactor: &Redactor,
    proxies: &Proxies,
) -> Result<SessionHosts, String> {
    let instance = store
        .read(instance::id)
        .map_err(|error| error.to_string())?;
    let mut hosts = Vec::new();
    let vm = &config.vm_sessions;
    let app = vm.app.as_ref().or(stored.vm_sessions_app.as_ref());
    if let (Some(token), Some(app)) = (vm_token, app) {
        let region = vm
            .region
            .as_deref()
            .or(stored.vm_sessions_region.as_deref());
        let region = region.unwrap_or(DEFAULT_REGION);
        let client = Client::with_proxies(proxies, Vendor::FlyMachines.name(), redactor.clone())?;
        let machines = FlyMachines::new(client, &vm.api_url, app, region, token.clone());
        hosts.push(SessionHost::Vm(machines));
    }
    if config.containers.is_available() {
        hosts.push(SessionHost::Local(docker(
            &config.containers.engine,
            redactor,
        )?));
    }
    if let Some(cluster) = &config.kubernetes {
        hosts.push(SessionHost::Kubernetes(kubernetes(
            cluster, redactor, proxies,
        )?));
    }
    Ok(SessionHosts::new(hosts, instance))
}

/// Creates the client of a Kubernetes cluster. Requests to the cluster that the service runs in bypass the proxy.
fn kubernetes(
    config: &KubernetesConfig,
    redactor: &Redactor,
    proxies: &Proxies,
) -> Result<Kubernetes, String> {
    let access = &config.access;
    let source = match config.kubeconfig {
        Some(_) => "KUBECONFIG",
        None => "the service account of the pod",
    };
    let read = |material: &Material| read(material).map_err(|cause| format!("{source}: {cause}"));
    let authority = access.authority.as_ref().map(&read).transpose()?;
    let identity = access.identity.as_ref().map(|[certificate, key]| {
        Ok::<_, String>(format!("{}\n{}", read(certificate)?, read(key)?))
    });
    let proxies = match config.kubeconfig {
        Some(_) => proxies,
        None => &Proxies::default(),
    };
    let client = Client::with_certificates(
        proxies,
        Vendor::Kubernetes.name(),
        redactor.clone(),
        authority.as_deref(),
        identity.transpose()?.as_deref(),
    )?;
    Ok(Kubernetes::new(
        client,
        &access.server,
        access.token.clone(),
        config.jobs.clone(),
        redactor.clone(),
    ))
}

fn read(material: &Material) -> Result<String, String> {
    match material {
        Material::Text(text) => Ok(text.expose().to_owned()),
        Material::File(path) => {
            let read = std::fs::read_to_string(path);
            read.map_err(|error| format!("cannot read {}: {error}", path.display()))
        }
    }
}

/// Creates the client of a container engine.
///
/// # Errors
/// Returns an error if HTTP cannot be set up.
pub(crate) fn docker(engine: &ContainerEngine, redactor: &Redactor) -> Result<Docker, String> {
    const NAME: &str = "the container engine";
    let (redactor, timeouts) = (redactor.clone(), Timeouts::default());
    let (client, base) = match engine {
        ContainerEngine::Socket(path) => (
            Client::with_unix_socket(NAME, redactor, timeouts, path)?,
            SOCKET_BASE_URL,
        ),
        ContainerEngine::Http(address) => (
            Client::with_timeouts(NAME, redactor, timeouts)?,
            address.as_str(),
        ),
    };
    Ok(Docker::new(client, base))
}
