//! Connections of runs in isolated containers: which hosts they may reach, and which they were refused.

use domain::egress::{Destination, EgressPolicy};
use domain::ids::JobId;
use domain::job::Job;
use reqwest::Url;
use store::{StoreResult, jobs};

use crate::app::App;
use crate::config::ContainerNetwork;

/// Maximum number of refused hosts that are stored of a run.
const MAX_REFUSED_HOSTS: usize = 50;

/// Returns the policy about the hosts that runs may reach. It always permits GitHub. An isolated run reports through its
/// socket, so it does not need the address of the service.
pub fn policy(app: &App) -> EgressPolicy {
    let github = app.vendors.github.as_ref();
    let github = github.map(|github| [github.api_url().to_owned(), github.server_url()]);
    let urls = github.into_iter().flatten();
    EgressPolicy {
        required: urls.filter_map(|url| destination(&url)).collect(),
        permitted: match &app.core.config.containers.network {
            ContainerNetwork::Proxy(hosts) => hosts.clone(),
            ContainerNetwork::Open | ContainerNetwork::OpenByDefault => Vec::new(),
        },
    }
}

fn destination(url: &str) -> Option<Destination> {
    let url = Url::parse(url).ok()?;
    let (host, port) = (url.host_str()?, url.port_or_known_default()?);
    Destination::parse(&format!("{host}:{port}"))
}

/// Records that a run was refused a connection.
///
/// # Errors
/// Fails if the store cannot be written.
pub async fn record_refusal(app: &App, job: &JobId, refused: &Destination) -> StoreResult<()> {
    let host = refused.to_string();
    let is_new = |job: &Job| {
        job.refused_hosts.len() < MAX_REFUSED_HOSTS && !job.refused_hosts.contains(&host)
    };
    let known = app.core.store.read(|tx| jobs::get(tx, job))?;
    if !known.as_ref().is_some_and(is_new) {
        return Ok(());
    }
    tracing::info!(job_id = %job, host, "Refused a connection of a run.");
    let (id, host) = (job.clone(), host.clone());
    app.core
        .store
        .write(move |tx| {
            let Some(mut job) = jobs::get(tx, &id)? else {
                return Ok(());
            };
            let hosts = &mut job.refused_hosts;
            if hosts.len() < MAX_REFUSED_HOSTS && !hosts.contains(&host) {
                hosts.push(host.clone());
                jobs::put(tx, &job)?;
            }
            Ok(())
        })
        .await
}
