//! Looking at everything a set-up depends on beyond this machine: who answers, what we may do there, and
//! whether every project can run. Nothing is changed anywhere, and no message is sent.

mod address;
mod local_image;
mod projects;

use std::time::Duration;

use futures_util::future::{join, join_all};

use crate::app::{App, Connection, ProbeStatus};
use domain::check_result::{CheckLevel, CheckResult};
use domain::time::Timestamp;
use store::{StoreResult, mappings};
use vendors::http::{Client, Request, now_millis};

use super::{github_token, probe};

/// How far may our clock be from a vendor's? The proof of a GitHub App is dated a minute back.
const MOST_SKEW: Duration = Duration::from_secs(60);
const SOME_SKEW: Duration = Duration::from_secs(10);

/// Whether the service that is checked runs, so that it can answer for itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServiceState {
    Running,
    Stopped,
}

/// Everything there is to find. The connections first, then the projects.
///
/// # Errors
/// When the store cannot be read.
pub async fn examine(app: &App, standing: ServiceState) -> StoreResult<Vec<CheckResult>> {
    let all = app.store.read(mappings::all)?;
    let (checks, skew) = join(probe::probe_all(app), clock(app)).await;
    let mut found = Vec::new();
    found.extend(skew);
    found.extend(ticketing_at_all(app));
    found.extend(checks.into_iter().map(|check| connection(check, standing)));
    found.extend(address::check_callback_url(app));
    found.extend(address::check_chat_webhook(app));
    if all.is_empty() {
        found.push(
            CheckResult::warning("projects", "no project is mapped")
                .with_impact("Tickets of a team without a mapping wait for one.")
                .with_remedy(
                    "Map a team to its repository: the panel's Projects, or POST /api/mappings.",
                ),
        );
    }
    found.extend(github_token::examine(app).await);
    let projects = projects::examine(app, &all).await?;
    let is_local = |one: &CheckResult| {
        one.check == "project-runner" && one.message == projects::RUNS_IN_LOCAL_CONTAINERS
    };
    let is_needed = projects.iter().any(is_local);
    found.extend(local_image::examine(app, is_needed).await);
    found.extend(projects);
    Ok(found)
}

fn ticketing_at_all(app: &App) -> Option<CheckResult> {
    let none = app.ticketing.is_empty();
    none.then(|| {
        CheckResult::error("ticketing", "no ticketing system is connected")
            .with_impact("No ticket is ever seen.")
            .with_remedy("Set LINEAR_API_KEY, or JIRA_SITE_URL, JIRA_EMAIL and JIRA_API_TOKEN.")
    })
}

/// A connection's probe, with why it matters and what to do.
fn connection(check: probe::ConnectionStatus, standing: ServiceState) -> CheckResult {
    let probe::ConnectionStatus {
        connection,
        result: finding,
    } = check;
    let (name, why, credentials) = words(connection);
    let reached = finding
        .is_unanswered
        .then(|| address_of(connection))
        .flatten();
    let remedy = reached.map_or_else(|| credentials.to_owned(), |address| {
        format!(
            "See that {address} is right and that this machine reaches it (DNS, firewall, HTTPS_PROXY); the \
             credential was not judged."
        )
    });
    let level = match (finding.status, connection) {
        (ProbeStatus::Ok, _) => return CheckResult::ok(name, finding.detail),
        (ProbeStatus::Off, Connection::RepoHost) => CheckLevel::Error,
        (ProbeStatus::Off, Connection::RunnerCallback | Connection::Webhook) => CheckLevel::Warning,
        (ProbeStatus::Off, _) => return CheckResult::not_configured(name, finding.detail),
        (ProbeStatus::Error, Connection::RunnerCallback) if standing == ServiceState::Stopped => {
            return CheckResult::warning(
                name,
                "not checked: the service is stopped, so nobody can answer at its address",
            )
            .with_impact(why)
            .with_remedy("Start the service and run this again.");
        }
        (ProbeStatus::Limited, _) => CheckLevel::Warning,
        (ProbeStatus::Error, _) => CheckLevel::Error,
    };
    let found = match level {
        CheckLevel::Warning => CheckResult::warning(name, finding.detail),
        CheckLevel::Error | CheckLevel::Ok | CheckLevel::NotConfigured => {
            CheckResult::error(name, finding.detail)
        }
    };
    found.with_impact(why).with_remedy(remedy)
}

/// A connection's name, why it matters, and what mends it.
fn words(connection: Connection) -> (&'static str, &'static str, &'static str) {
    match connection {
        Connection::Linear => (
            "ticketing-a",
            "Tickets of Linear are neither seen nor moved.",
            "Make a new key in Linear (Settings, Security & access) and set LINEAR_API_KEY to it.",
        ),
        Connection::Jira => (
            "ticketing-b",
            "Tickets of Jira are neither seen nor moved.",
            "Make a new API token for JIRA_EMAIL's account and set JIRA_API_TOKEN to it; see that JIRA_SITE_URL is the site's address.",
        ),
        Connection::RepoHost => (
            "repo-host",
            "Nothing can run without the repository host.",
            "Set GITHUB_APP_ID and GITHUB_APP_PRIVATE_KEY to those of the App's settings page, and GITHUB_API_URL for a host of your own.",
        ),
        Connection::RunnerCallback => (
            "runner-callback",
            "Runs report steps and results there; without it planning, machines and containers do not start.",
            "Set RUNNER_CALLBACK_BASE_URL to the https address that leads to this service, and RUNNER_TOKEN_SECRET to 32 random bytes or more.",
        ),
        Connection::GapFillTrigger => (
            "gap-fill-trigger",
            "Comments on pull requests start no runs.",
            "Set GAP_FILL_TRIGGER_SECRET.",
        ),
        Connection::Webhook => (
            "webhook",
            "Reviews and merges are found by sweeps only, minutes later.",
            "Set SCM_WEBHOOK_SECRET and the same secret at the App's webhook, which leads to /api/repo-host/webhook.",
        ),
        Connection::VmSessions => (
            "vm-sessions",
            "No machines can be made or destroyed.",
            "See that VM_SESSIONS_TOKEN is a deploy token of the app VM_SESSIONS_APP, and that the app exists.",
        ),
        Connection::LocalContainers => (
            "local-containers",
            "No containers can be made or destroyed.",
            "Start the container engine, and let the service's user open its socket (DOCKER_HOST).",
        ),
        Connection::Notifications => (
            "notifications",
            "The chat is told nothing for the moment.",
            "Wait; what is owed to the chat is kept.",
        ),
    }
}

/// Where a vendor's address is set.
fn address_of(connection: Connection) -> Option<&'static str> {
    match connection {
        Connection::Linear => Some("LINEAR_API_URL"),
        Connection::Jira => Some("JIRA_SITE_URL (or JIRA_API_URL)"),
        Connection::RepoHost => Some("GITHUB_API_URL"),
        Connection::VmSessions => Some("VM_API_URL"),
        Connection::RunnerCallback
        | Connection::GapFillTrigger
        | Connection::Webhook
        | Connection::LocalContainers
        | Connection::Notifications => None,
    }
}

/// How far our clock is from those of the vendors.
async fn clock(app: &App) -> Option<CheckResult> {
    let config = &app.config;
    let bases = [
        config.github.as_ref().map(|github| &github.api_url),
        config.linear.as_ref().map(|linear| &linear.api_url),
        config.jira.as_ref().map(|jira| &jira.api_url),
    ];
    let asked = bases.into_iter().flatten().map(|base| skew(app, base));
    let (skew, base) = join_all(asked).await.into_iter().flatten().max()?;
    let what = format!(
        "this machine's clock is {} seconds from that of {base}",
        skew.as_secs()
    );
    let why =
        "Vendors refuse proofs that are dated in the future, and deadlines end at the wrong time.";
    let remedy = "Let the machine keep time: timedatectl set-ntp true.";
    Some(if skew > MOST_SKEW {
        CheckResult::error("clock", what)
            .with_impact(why)
            .with_remedy(remedy)
    } else if skew > SOME_SKEW {
        CheckResult::warning("clock", what)
            .with_impact(why)
            .with_remedy(remedy)
    } else {
        CheckResult::ok("clock", "this machine's clock is that of the vendors")
    })
}

/// The distance to a vendor's clock; none when it does not say. Whether it answers at all is another
/// check's matter.
async fn skew(app: &App, base: &str) -> Option<(Duration, String)> {
    let client = Client::new("the clock", app.redactor.clone()).ok()?;
    let refusals = [400, 401, 403, 404, 405, 415];
    let request = refusals.into_iter().fold(
        Request::new("asking for the time", vendors::http::Method::GET, base),
        Request::accept_status,
    );
    let answer = tokio::time::timeout(Duration::from_secs(5), client.send(&request));
    let answer = answer.await.ok()?.ok()?;
    let theirs = Timestamp::parse_http(answer.header("date")?)?;
    let ours = Timestamp::from_millis(now_millis());
    Some((ours.since(theirs).max(theirs.since(ours)), base.to_owned()))
}
