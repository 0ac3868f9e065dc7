//! Checks of everything the setup depends on beyond this machine: connections, permissions, and
//! whether the runs of every project can start. Changes nothing and sends no message.

mod address;
mod cluster;
mod container_network;
mod github_app;
mod local_image;
mod merging;
mod projects;
mod repository_rights;
mod run_socket;
mod standby;

pub(crate) use projects::MODEL_SECRETS;
pub use repository_rights::{repository_rights, token_permissions};

use std::time::Duration;

use futures_util::future::{join, join_all};

use crate::app::{App, Connection, ProbeStatus, Vendors};
use domain::check_result::{CheckLevel, CheckResult};
use domain::mapping::Mapping;
use domain::time::Timestamp;
use store::{StoreResult, mappings};
use vendors::http::{Client, Request, now_millis};

use super::admin::connections;
use super::{github_token, probe};

/// Clock skew above which vendors reject requests. The token request of a GitHub App is dated one
/// minute back.
const MAX_SKEW: Duration = Duration::from_secs(60);
/// Clock skew above which the operator is warned.
const WARNING_SKEW: Duration = Duration::from_secs(10);

/// State of the service that is checked. Only a running service answers at its callback URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServiceState {
    /// Running; the callback URL is probed.
    Running,
    /// Stopped; the callback URL cannot be probed.
    Stopped,
}

/// Runs all checks: connections first, then projects.
///
/// # Errors
/// Fails if the store cannot be read.
pub async fn examine(app: &App, service_state: ServiceState) -> StoreResult<Vec<CheckResult>> {
    let all = app.core.store.read(mappings::all)?;
    let (checks, skew) = join(probe::probe_all(app), clock(app)).await;
    let mut found = Vec::new();
    found.extend(skew);
    found.extend(missing_ticketing(&app.vendors, &all));
    found.extend(
        checks
            .into_iter()
            .map(|check| connection(check, service_state)),
    );
    let sources = connections::sources_sentence(app)?;
    found.push(CheckResult::ok("credentials", sources));
    found.extend(address::check_callback_url(app));
    found.extend(address::check_chat_webhook(app));
    if all.is_empty() {
        found.push(
            CheckResult::warning("projects", "no project is mapped")
                .with_impact("Tickets of a team without a project wait for one.")
                .with_remedy("Add a project for each team in the panel (Projects, New project)."),
        );
    }
    found.extend(github_token::examine(app).await);
    found.extend(github_app::examine(app).await);
    let projects = projects::examine(app, &all).await?;
    let is_local = |one: &CheckResult| {
        one.check == "project-runner" && one.message == projects::RUNS_IN_LOCAL_CONTAINERS
    };
    let is_needed = projects.iter().any(is_local);
    found.extend(local_image::examine(app, is_needed).await);
    found.extend(run_socket::examine(&app.core.config, is_needed));
    found.extend(container_network::examine(&app.core.config, is_needed));
    found.extend(cluster::examine(app).await);
    found.extend(standby::examine(app).await);
    found.extend(projects);
    Ok(found)
}

fn missing_ticketing(vendors: &Vendors, all: &[Mapping]) -> Option<CheckResult> {
    let is_mapped = |system| all.iter().any(|mapping| mapping.system() == system);
    let none = vendors.ticketing_in_use(is_mapped).next().is_none();
    none.then(|| {
        CheckResult::error("ticketing", "no ticketing system is connected")
            .with_impact("The service sees no tickets.")
            .with_remedy("Set LINEAR_API_KEY, or JIRA_SITE_URL, JIRA_EMAIL and JIRA_API_TOKEN, or map a project to GitHub Issues.")
    })
}

/// Check result of a connection, from its probe.
fn connection(check: probe::ConnectionStatus, service_state: ServiceState) -> CheckResult {
    let probe::ConnectionStatus { connection, result } = check;
    let (name, impact, credential_remedy) = connection_texts(connection);
    let unreachable = result
        .is_unanswered
        .then(|| address_variable(connection))
        .flatten();
    let remedy = unreachable.map_or_else(|| credential_remedy.to_owned(), |variable| {
        format!(
            "Check that {variable} is correct and that this machine can reach it (DNS, firewall, HTTPS_PROXY). \
             The credential was not checked."
        )
    });
    let level = match (result.status, connection) {
        (ProbeStatus::Ok, _) => return CheckResult::ok(name, result.detail),
        (ProbeStatus::Off, Connection::RepoHost) => CheckLevel::Error,
        (ProbeStatus::Off, Connection::RunnerCallback | Connection::Webhook) => CheckLevel::Warning,
        (ProbeStatus::Off, _) => return CheckResult::not_configured(name, result.detail),
        (ProbeStatus::Error, Connection::RunnerCallback)
            if service_state == ServiceState::Stopped =>
        {
            return CheckResult::warning(
                name,
                "not checked: the service is stopped and cannot answer at its callback URL",
            )
            .with_impact(impact)
            .with_remedy("Start the service and run this check again.");
        }
        (ProbeStatus::Limited, _) => CheckLevel::Warning,
        (ProbeStatus::Error, _) => CheckLevel::Error,
    };
    let found = match level {
        CheckLevel::Warning => CheckResult::warning(name, result.detail),
        CheckLevel::Error | CheckLevel::Ok | CheckLevel::NotConfigured => {
            CheckResult::error(name, result.detail)
        }
    };
    found.with_impact(impact).with_remedy(remedy)
}

/// Name of a connection, the impact of its failure, and the remedy.
pub(crate) fn connection_texts(
    connection: Connection,
) -> (&'static str, &'static str, &'static str) {
    match connection {
        Connection::Linear => (
            "ticketing-a",
            "Linear tickets are neither seen nor moved.",
            "Create a new API key in Linear (Settings, Security & access) and set LINEAR_API_KEY to it.",
        ),
        Connection::Jira => (
            "ticketing-b",
            "Jira tickets are neither seen nor moved.",
            "Create a new API token for the account of JIRA_EMAIL and set JIRA_API_TOKEN to it. Check that JIRA_SITE_URL is the address of the site.",
        ),
        Connection::RepoHost => (
            "repo-host",
            "Without GitHub no run can start.",
            "Set GITHUB_APP_ID and GITHUB_APP_PRIVATE_KEY to the values on the App's settings page. For GitHub Enterprise Server, set GITHUB_API_URL too.",
        ),
        Connection::RunnerCallback => (
            "runner-callback",
            "Runs report steps and results to this address. Without it, machines do not start, and steps and logs of CI runs are not shown while they run.",
            "Set RUNNER_CALLBACK_BASE_URL to the https address of this service, and RUNNER_TOKEN_SECRET to at least 32 random bytes.",
        ),
        Connection::GapFillTrigger => (
            "gap-fill-trigger",
            "The workflows of repositories cannot start runs for comments on pull requests.",
            "Set GAP_FILL_TRIGGER_SECRET.",
        ),
        Connection::Webhook => (
            "webhook",
            "Reviews and merges are found only by periodic reconciliation, minutes later.",
            "Set SCM_WEBHOOK_SECRET, and the same secret in the App's webhook, whose URL must end in /api/repo-host/webhook.",
        ),
        Connection::VmSessions => (
            "vm-sessions",
            "Machines can be neither created nor destroyed.",
            "Check that VM_SESSIONS_TOKEN is a deploy token of the app VM_SESSIONS_APP, and that the app exists.",
        ),
        Connection::LocalContainers => (
            "local-containers",
            "Containers can be neither created nor destroyed.",
            "Start the container engine, and give the service's user access to its socket (DOCKER_HOST).",
        ),
        Connection::Kubernetes => (
            "kubernetes",
            "Kubernetes Jobs can be neither created nor deleted.",
            "Check the account of KUBECONFIG, or the service account of the pod, and its rights in KUBERNETES_NAMESPACE. The file runs.yaml in packaging/kubernetes, or in /usr/share/agent-implement/kubernetes of a package, grants them.",
        ),
        Connection::Notifications => (
            "notifications",
            "No chat messages are sent for now.",
            "Wait. Pending messages are kept and sent later.",
        ),
    }
}

/// Variable that holds the address of a vendor.
fn address_variable(connection: Connection) -> Option<&'static str> {
    match connection {
        Connection::Linear => Some("LINEAR_API_URL"),
        Connection::Jira => Some("JIRA_SITE_URL (or JIRA_API_URL)"),
        Connection::RepoHost => Some("GITHUB_API_URL"),
        Connection::VmSessions => Some("VM_API_URL"),
        Connection::Kubernetes => Some("the server in KUBECONFIG"),
        Connection::RunnerCallback
        | Connection::GapFillTrigger
        | Connection::Webhook
        | Connection::LocalContainers
        | Connection::Notifications => None,
    }
}

/// Checks the clock of this machine against those of the vendors.
async fn clock(app: &App) -> Option<CheckResult> {
    let config = &app.vendors.credentials;
    let bases = [
        config.github.as_ref().map(|github| &github.api_url),
        config.linear.as_ref().map(|linear| &linear.api_url),
        config.jira.as_ref().map(|jira| &jira.api_url),
    ];
    let measurements = bases.into_iter().flatten().map(|base| skew(app, base));
    let (skew, base) = join_all(measurements).await.into_iter().flatten().max()?;
    let what = format!(
        "the clock of this machine differs from that of {base} by {} seconds",
        skew.as_secs()
    );
    let impact =
        "Vendors reject tokens that are dated in the future, and timeouts end at the wrong time.";
    let remedy = "Synchronize the clock: timedatectl set-ntp true.";
    Some(if skew > MAX_SKEW {
        CheckResult::error("clock", what)
            .with_impact(impact)
            .with_remedy(remedy)
    } else if skew > WARNING_SKEW {
        CheckResult::warning("clock", what)
            .with_impact(impact)
            .with_remedy(remedy)
    } else {
        CheckResult::ok(
            "clock",
            "the clock of this machine matches those of the vendors",
        )
    })
}

/// Measures the difference to a vendor's clock. Returns `None` if the vendor does not respond,
/// which the connection check reports.
async fn skew(app: &App, base: &str) -> Option<(Duration, String)> {
    let client = Client::new("the clock", app.secrets.redactor.clone()).ok()?;
    let refusals = [400, 401, 403, 404, 405, 415];
    let request = refusals.into_iter().fold(
        Request::new(
            "reading the vendor's clock",
            vendors::http::Method::GET,
            base,
        ),
        Request::accept_status,
    );
    let response = tokio::time::timeout(Duration::from_secs(5), client.send(&request));
    let response = response.await.ok()?.ok()?;
    let theirs = Timestamp::parse_http(response.header("date")?)?;
    let ours = Timestamp::from_millis(now_millis());
    Some((ours.since(theirs).max(theirs.since(ours)), base.to_owned()))
}
