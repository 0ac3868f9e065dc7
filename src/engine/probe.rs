//! Probes of the connections to vendors and to the service's own callback URL.
//!
//! All probes run concurrently, each with a timeout of a few seconds and at most once a minute. A
//! vendor with an active rate limit is not probed: a request could only lengthen the wait.

use std::net::IpAddr;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all};
use reqwest::Url;

use crate::app::{App, Connection, ProbeResult, ProbeStatus, Vendors};
use crate::config::is_loopback;
use domain::issue::System;
use domain::machine::HostKind;
use domain::time::Timestamp;
use domain::vendor::Vendor;
use vendors::chat::ChatWebhook;
use vendors::http::{Client, Method, Quota, Request, VendorError, VendorErrorKind, now_millis};
use vendors::session_hosts::SessionHostError;

/// Timeout of one probe.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// What works without a callback URL or token secret, and what does not.
const WITHOUT_CALLBACKS: &str = "Runs cannot connect to this service over the network. CI runs leave their result \
    as an artifact, which is fetched after their end, and local containers report through a socket. There are no \
    live steps and logs of CI runs. CI runs push with their workflow's own token: no checks start on their pull \
    requests, and each repository must have \"Allow GitHub Actions to create and approve pull requests\" switched \
    on. VM sessions and Kubernetes Jobs do not start.";

/// All connections, in the order in which an operator sets them up.
const ALL: [Connection; 10] = [
    Connection::Linear,
    Connection::Jira,
    Connection::RepoHost,
    Connection::RunnerCallback,
    Connection::GapFillTrigger,
    Connection::Webhook,
    Connection::VmSessions,
    Connection::LocalContainers,
    Connection::Kubernetes,
    Connection::Notifications,
];

/// Connection with the result of its probe.
#[derive(Debug, Clone)]
pub struct ConnectionStatus {
    /// Probed connection.
    pub connection: Connection,
    /// Result of the probe, with secrets redacted.
    pub result: ProbeResult,
}

/// Remaining quota of requests or points at a vendor.
#[derive(Debug, Clone)]
pub struct VendorQuota {
    /// Vendor.
    pub vendor: Vendor,
    /// Quota as of the vendor's last response.
    pub quota: Quota,
}

impl VendorQuota {
    /// Returns the name of the vendor, followed by the name of the account if the vendor has several.
    pub fn name(&self) -> String {
        self.with_account(self.vendor.name())
    }

    /// Returns the same as [`VendorQuota::name`] with the name of the vendor in ids and metrics.
    pub fn id(&self) -> String {
        self.with_account(self.vendor.slug())
    }

    fn with_account(&self, vendor: &str) -> String {
        format!("{vendor} {}", self.quota.account)
            .trim_end()
            .to_owned()
    }
}

/// Probes all connections.
pub async fn probe_all(app: &App) -> Vec<ConnectionStatus> {
    join_all(ALL.map(|connection| probe(app, connection))).await
}

/// Quotas of all vendors that have reported one.
pub fn quotas(vendors: &Vendors) -> Vec<VendorQuota> {
    let ticketing = vendors
        .ticketing
        .iter()
        // The issues of GitHub share the accounts of the repository host.
        .filter(|account| account.system() != System::GitHub)
        .flat_map(|account| {
            let vendor = Vendor::from(account.system());
            let quotas = account.quotas().into_iter();
            quotas.map(move |quota| (vendor, quota))
        });
    let github = vendors.github.iter().flat_map(|github| github.quotas());
    ticketing
        .chain(github.map(|quota| (Vendor::GitHub, quota)))
        .filter(|(_, quota)| quota.remaining.is_some() || quota.limited_until.is_some())
        .map(|(vendor, quota)| VendorQuota { vendor, quota })
        .collect()
}

/// Plan of a check: a result that needs no request, or a probe.
enum ProbePlan {
    Known(ProbeResult),
    Probe {
        quota: Quota,
        probe: BoxFuture<'static, ProbeResult>,
    },
}

impl ProbePlan {
    fn off(detail: impl Into<String>) -> Self {
        ProbePlan::Known(ProbeResult::new(ProbeStatus::Off, detail))
    }
}

/// Probes one connection.
pub async fn probe(app: &App, connection: Connection) -> ConnectionStatus {
    let result = match plan(app, connection) {
        ProbePlan::Known(result) => result,
        ProbePlan::Probe { quota, probe } => match limit(&quota) {
            Some(limited) => limited,
            None => {
                let probe = with_timeout(probe);
                app.live
                    .probe_cache
                    .get_or_probe(connection, app.core.now(), probe)
                    .await
            }
        },
    };
    let result = ProbeResult {
        detail: app.secrets.redactor.redact(&result.detail),
        ..result
    };
    ConnectionStatus { connection, result }
}

/// Probes one connection of a handle whose credentials are not in force, past the cache.
pub(crate) async fn check_candidate(app: &App, connection: Connection) -> ProbeResult {
    match plan(app, connection) {
        ProbePlan::Known(result) => result,
        ProbePlan::Probe { probe, .. } => with_timeout(probe).await,
    }
}

async fn with_timeout(probe: BoxFuture<'static, ProbeResult>) -> ProbeResult {
    let timed_out = |_| {
        ProbeResult::unanswered(format!(
            "no response within {} seconds",
            PROBE_TIMEOUT.as_secs()
        ))
    };
    tokio::time::timeout(PROBE_TIMEOUT, probe)
        .await
        .unwrap_or_else(timed_out)
}

fn limit(quota: &Quota) -> Option<ProbeResult> {
    let until = quota
        .limited_until
        .filter(|_| quota.is_limited(now_millis()))?;
    let until = Timestamp::from_millis(until);
    let whose = match quota.account.as_str() {
        "" => String::new(),
        account => format!(" of {account}"),
    };
    let detail = format!(
        "Rate limited: no requests{whose} before {}. Pending updates are kept and sent then.",
        until.date_text()
    );
    Some(ProbeResult::new(ProbeStatus::Limited, detail))
}

fn plan(app: &App, connection: Connection) -> ProbePlan {
    let config = &app.core.config;
    match connection {
        Connection::Linear => ticketing(
            &app.vendors,
            System::Linear,
            "Set LINEAR_API_KEY, or LINEAR_CLIENT_ID and LINEAR_CLIENT_SECRET.",
        ),
        Connection::Jira => ticketing(
            &app.vendors,
            System::Jira,
            "Set JIRA_SITE_URL, JIRA_EMAIL and JIRA_API_TOKEN.",
        ),
        Connection::RepoHost => repo_host(&app.vendors),
        Connection::RunnerCallback => runner_callback(app),
        Connection::GapFillTrigger => gap_fill_trigger(
            config.gap_fill_trigger_secret.is_some(),
            app.vendors.credentials.scm_webhook_secret.is_some(),
        ),
        Connection::Webhook => secret(
            app.vendors.credentials.scm_webhook_secret.is_some(),
            "SCM_WEBHOOK_SECRET",
            "reviews and merges arrive late",
        ),
        Connection::VmSessions => machines(
            &app.vendors,
            HostKind::Vm,
            "VM sessions are not configured. Set VM_SESSIONS_TOKEN and VM_SESSIONS_APP.",
        ),
        Connection::LocalContainers => machines(
            &app.vendors,
            HostKind::Local,
            "Local containers are not configured. Set DOCKER_HOST.",
        ),
        Connection::Kubernetes => machines(
            &app.vendors,
            HostKind::Kubernetes,
            "Kubernetes is not configured. Set KUBERNETES_NAMESPACE.",
        ),
        Connection::Notifications => notifications(app.vendors.chat.as_ref()),
    }
}

fn ticketing(vendors: &Vendors, system: System, remedy: &str) -> ProbePlan {
    let Some(account) = vendors.account(system).cloned() else {
        return ProbePlan::off(remedy);
    };
    ProbePlan::Probe {
        quota: account.quota(),
        probe: async move { result_of(account.probe().await) }.boxed(),
    }
}

fn repo_host(vendors: &Vendors) -> ProbePlan {
    let Some(github) = vendors.github.clone() else {
        return ProbePlan::off(
            "No run can start. Set GITHUB_APP_ID and GITHUB_APP_PRIVATE_KEY, or GITHUB_TOKEN.",
        );
    };
    ProbePlan::Probe {
        quota: github.quota(),
        probe: async move { result_of(github.probe().await) }.boxed(),
    }
}

/// Lists the machines of a host. The probe does not create one, so it does not prove that the host
/// can.
fn machines(vendors: &Vendors, host: HostKind, remedy: &str) -> ProbePlan {
    if !vendors.sessions.has_host(host) {
        return ProbePlan::off(remedy);
    }
    let sessions = vendors.sessions.clone();
    let probe = async move {
        match sessions.list(host).await {
            Ok(machines) => {
                let count = machines.len();
                let detail = format!("The host responds; machines of this service: {count}.");
                ProbeResult::new(ProbeStatus::Ok, detail)
            }
            Err(SessionHostError::Vendor(error)) => result_of(Err(error)),
            Err(error) => ProbeResult::new(ProbeStatus::Error, error.to_string()),
        }
    };
    ProbePlan::Probe {
        quota: Quota::default(),
        probe: probe.boxed(),
    }
}

fn result_of(response: Result<String, VendorError>) -> ProbeResult {
    match response {
        Ok(detail) => ProbeResult::new(ProbeStatus::Ok, detail),
        Err(error) if error.is_rate_limited() => {
            ProbeResult::new(ProbeStatus::Limited, error.to_string())
        }
        // A request that was not sent, because its token could not be read, does not make the address doubtful.
        Err(error)
            if error.is_permanent() || matches!(error.kind, VendorErrorKind::Precondition(_)) =>
        {
            ProbeResult::new(ProbeStatus::Error, error.to_string())
        }
        Err(error) => ProbeResult::unanswered(error.to_string()),
    }
}

fn secret(is_set: bool, variable: &str, impact: &str) -> ProbePlan {
    if is_set {
        ProbePlan::Known(ProbeResult::new(
            ProbeStatus::Ok,
            format!("{variable} is set."),
        ))
    } else {
        ProbePlan::off(format!("Without {variable}, {impact}."))
    }
}

/// Result for the trigger of gap-fill runs. Commands in comments reach the service by this trigger,
/// by GitHub's webhook, or by both.
fn gap_fill_trigger(is_set: bool, has_webhook: bool) -> ProbePlan {
    let impact = match has_webhook {
        true => "comments on pull requests start runs only by GitHub's webhook",
        false => "and without SCM_WEBHOOK_SECRET, comments on pull requests do not start runs",
    };
    secret(is_set, "GAP_FILL_TRIGGER_SECRET", impact)
}

/// Result for the chat webhook. No test message is posted, because people would see it.
fn notifications(chat: Option<&ChatWebhook>) -> ProbePlan {
    let Some(chat) = chat else {
        return ProbePlan::off(
            "Set NOTIFY_WEBHOOK_URL to post the start and end of runs to a chat.",
        );
    };
    let configured = || {
        ProbeResult::new(
            ProbeStatus::Ok,
            "NOTIFY_WEBHOOK_URL is set. It is not tested, because that would post a message.",
        )
    };
    ProbePlan::Known(limit(&chat.quota()).unwrap_or_else(configured))
}

fn runner_callback(app: &App) -> ProbePlan {
    let config = &app.core.config;
    let missing: Vec<&str> = [
        (
            "RUNNER_CALLBACK_BASE_URL",
            config.callback_base_url.is_some(),
        ),
        ("RUNNER_TOKEN_SECRET", config.runner_token_secret.is_some()),
    ]
    .into_iter()
    .filter_map(|(variable, is_set)| (!is_set).then_some(variable))
    .collect();
    match &config.callback_base_url {
        Some(base) if missing.is_empty() => ProbePlan::Probe {
            quota: app.vendors.callback_client.quota(),
            probe: callback_url(app.vendors.callback_client.clone(), base.clone()).boxed(),
        },
        _ => ProbePlan::off(format!(
            "{WITHOUT_CALLBACKS} Set {}.",
            missing.join(" and ")
        )),
    }
}

/// Requests this service at its callback URL, as runs do: a progress report without a token, whose
/// rejection is unmistakable. A request of the front page would miss a proxy that forwards only
/// that page, or that routes reports elsewhere.
async fn callback_url(client: Client, base: String) -> ProbeResult {
    let url = format!("{base}/runner/progress");
    let request = Request::new("probing the callback URL", Method::POST, url)
        .json(&serde_json::json!({}))
        .accept_status(401);
    let error_result = |detail| ProbeResult::new(ProbeStatus::Error, detail);
    match client.send(&request).await {
        Ok(response) if response.text().contains("missing_bearer") => ProbeResult::new(
            ProbeStatus::Ok,
            format!("This service responds at {base}{}", reach_note(&base)),
        ),
        Ok(response) => error_result(other_service(&base, response.status())),
        Err(error) => match error.status() {
            Some(status @ 300..400) => error_result(format!(
                "{base} responds with a redirect ({status}), which reports do not follow. Set \
                 RUNNER_CALLBACK_BASE_URL to the target of the redirect."
            )),
            Some(status) => error_result(other_service(&base, status)),
            None if error.is_rate_limited() => result_of(Err(error)),
            None => error_result(format!(
                "{error}. This machine cannot reach {base}. Behind NAT or a firewall that may \
                 affect only this machine. If runs do not report either, correct \
                 RUNNER_CALLBACK_BASE_URL or make it reachable."
            )),
        },
    }
}

fn other_service(base: &str, status: u16) -> String {
    format!(
        "Another service responds at {base} (status {status}). Route {base}/runner and \
         {base}/api/token to this service."
    )
}

/// Note about an address with limited reach: loopback and private addresses.
fn reach_note(base: &str) -> &'static str {
    let url = Url::parse(base).ok();
    let host = url.as_ref().and_then(Url::host_str).unwrap_or_default();
    let is_private = match host.trim_matches(['[', ']']).parse() {
        Ok(IpAddr::V4(address)) => address.is_private() || address.is_link_local(),
        Ok(IpAddr::V6(address)) => address.is_unique_local() || address.is_unicast_link_local(),
        Err(_) => false,
    };
    match (is_loopback(base), is_private) {
        (true, _) => ". It is a loopback address: runs on other machines cannot reach it.",
        (false, true) => ". It is a private address: runs outside this network cannot reach it.",
        (false, false) => ".",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use test_support::{StubReply, TestServer};
    use vendors::http::{Client, Redactor};

    #[test]
    fn notes_loopback_and_private_addresses() {
        let rows = [
            ("http://127.0.0.1:8080", "loopback"),
            ("http://localhost", "loopback"),
            ("http://[::1]:80", "loopback"),
            ("http://192.168.1.5", "private"),
            ("http://[fd00::1]", "private"),
        ];
        for (base, words) in rows {
            assert!(reach_note(base).contains(words), "{base}");
        }
        for base in [
            "https://agents.example.com",
            "http://203.0.113.7",
            "http://[2001:db8::1]",
        ] {
            assert_eq!(reach_note(base), ".", "{base}");
        }
    }

    #[test]
    fn comments_start_runs_by_the_trigger_or_by_the_webhook() {
        let rows = [
            (true, false, "GAP_FILL_TRIGGER_SECRET is set."),
            (
                false,
                true,
                "Without GAP_FILL_TRIGGER_SECRET, comments on pull requests start runs only by GitHub's webhook.",
            ),
            (
                false,
                false,
                "Without GAP_FILL_TRIGGER_SECRET, and without SCM_WEBHOOK_SECRET, comments on pull requests do not start runs.",
            ),
        ];
        for (is_set, has_webhook, expected) in rows {
            let ProbePlan::Known(result) = gap_fill_trigger(is_set, has_webhook) else {
                panic!("{expected}");
            };
            assert_eq!(result.detail, expected);
        }
    }

    async fn probe_with(status: u16, error: &'static str) -> ProbeResult {
        let server = TestServer::start(move |request, _| {
            let line = (request.method.as_str(), request.path.as_str());
            assert_eq!(line, ("POST", "/runner/progress"));
            StubReply::json(status, &json!({ "error": error }))
                .header("location", "https://elsewhere.test/")
        })
        .await;
        callback_url(
            Client::new("the callback address", Redactor::default()).unwrap(),
            server.url.clone(),
        )
        .await
    }

    #[tokio::test]
    async fn only_the_own_rejection_proves_that_runs_reach_the_service() {
        let ours = probe_with(401, "missing_bearer").await;
        assert_eq!(ours.status, ProbeStatus::Ok);
        for (status, words) in [
            (401, "Another service responds"),
            (200, "(status 200)"),
            (404, "(status 404)"),
            (301, "responds with a redirect (301)"),
        ] {
            let found = probe_with(status, "sign in").await;
            assert_eq!(found.status, ProbeStatus::Error);
            assert!(found.detail.contains(words), "{found:?}");
        }
        test_support::install_tls();
        let unreachable = callback_url(
            Client::new("the callback address", Redactor::default()).unwrap(),
            "http://127.0.0.1:1".into(),
        )
        .await;
        assert_eq!(unreachable.status, ProbeStatus::Error);
        assert!(
            unreachable.detail.contains("This machine cannot reach"),
            "{unreachable:?}"
        );
    }
}
