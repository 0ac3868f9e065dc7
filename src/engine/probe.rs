//! Asking those we depend on whether they answer.
//!
//! Everything is asked side by side, each within a few seconds and at most once a minute. Whoever
//! holds our requests back is not asked at all: an answer could only lengthen the wait.

use std::net::IpAddr;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all};
use reqwest::Url;

use crate::app::{App, Connection, ProbeResult, ProbeStatus};
use crate::config::is_loopback;
use domain::issue::System;
use domain::machine::HostKind;
use domain::time::Timestamp;
use vendors::chat::ChatWebhook;
use vendors::http::{Client, Method, Quota, Request, VendorError, now_millis};
use vendors::session_hosts::SessionHostError;

/// How long may one take to answer?
const DEADLINE: Duration = Duration::from_secs(5);

/// What it means that runs have no address to report to, or no token to report with.
const WITHOUT_CALLBACKS: &str = "Runs cannot report. CI implementation runs are followed by polling \
    alone, without live steps, and push with their workflow's own token: no checks start on their \
    pull requests, and each repository must have \"Allow GitHub Actions to create and approve pull \
    requests\" switched on. Planning, VM sessions and local containers do not start.";

/// In the order in which an operator sets them up.
const ALL: [Connection; 9] = [
    Connection::Linear,
    Connection::Jira,
    Connection::RepoHost,
    Connection::RunnerCallback,
    Connection::GapFillTrigger,
    Connection::Webhook,
    Connection::VmSessions,
    Connection::LocalContainers,
    Connection::Notifications,
];

/// A connection and how it is.
#[derive(Debug, Clone)]
pub struct ConnectionStatus {
    pub connection: Connection,
    pub result: ProbeResult,
}

/// What a vendor still lets us ask.
#[derive(Debug, Clone)]
pub struct VendorQuota {
    /// The vendor, and which of its accounts where it keeps several.
    pub account: String,
    pub quota: Quota,
}

/// How every connection is.
pub async fn probe_all(app: &App) -> Vec<ConnectionStatus> {
    join_all(ALL.map(|connection| check(app, connection))).await
}

/// Every allowance that a vendor has told of.
pub fn quotas(app: &App) -> Vec<VendorQuota> {
    let ticketing = app
        .ticketing
        .iter()
        .map(|account| (account.name(), account.quota()));
    let github = app.github.iter().flat_map(|github| github.quotas());
    ticketing
        .chain(github.map(|quota| ("github", quota)))
        .filter(|(_, quota)| quota.remaining.is_some() || quota.limited_until.is_some())
        .map(|(vendor, quota)| VendorQuota {
            account: format!("{vendor} {}", quota.account).trim_end().to_owned(),
            quota,
        })
        .collect()
}

/// What can be said of a connection at once, or what it takes.
enum Look {
    Known(ProbeResult),
    Ask {
        quota: Quota,
        probe: BoxFuture<'static, ProbeResult>,
    },
}

impl Look {
    fn off(detail: impl Into<String>) -> Self {
        Look::Known(ProbeResult::new(ProbeStatus::Off, detail))
    }
}

async fn check(app: &App, connection: Connection) -> ConnectionStatus {
    let finding = match look(app, connection) {
        Look::Known(finding) => finding,
        Look::Ask { quota, probe } => match limit(&quota) {
            Some(limited) => limited,
            None => {
                let probe = in_time(probe);
                app.probe_cache
                    .get_or_probe(connection, app.now(), probe)
                    .await
            }
        },
    };
    let finding = ProbeResult {
        detail: app.redactor.redact(&finding.detail),
        ..finding
    };
    ConnectionStatus {
        connection,
        result: finding,
    }
}

async fn in_time(probe: BoxFuture<'static, ProbeResult>) -> ProbeResult {
    let late =
        |_| ProbeResult::unanswered(format!("no answer within {} seconds", DEADLINE.as_secs()));
    tokio::time::timeout(DEADLINE, probe)
        .await
        .unwrap_or_else(late)
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
        "Rate limited: no requests{whose} before {until}. What is owed is kept and done then."
    );
    Some(ProbeResult::new(ProbeStatus::Limited, detail))
}

fn look(app: &App, connection: Connection) -> Look {
    let config = &app.config;
    match connection {
        Connection::Linear => ticketing(
            app,
            System::Linear,
            "Set LINEAR_API_KEY, or LINEAR_CLIENT_ID and LINEAR_CLIENT_SECRET.",
        ),
        Connection::Jira => ticketing(
            app,
            System::Jira,
            "Set JIRA_SITE_URL, JIRA_EMAIL and JIRA_API_TOKEN.",
        ),
        Connection::RepoHost => repo_host(app),
        Connection::RunnerCallback => runner_callback(app),
        Connection::GapFillTrigger => secret(
            config.gap_fill_trigger_secret.is_some(),
            "GAP_FILL_TRIGGER_SECRET",
            "comments on pull requests start no runs",
        ),
        Connection::Webhook => secret(
            config.scm_webhook_secret.is_some(),
            "SCM_WEBHOOK_SECRET",
            "reviews and merges are not heard of",
        ),
        Connection::VmSessions => machines(
            app,
            HostKind::Vm,
            "VM sessions are not configured. They take VM_SESSIONS_TOKEN and VM_SESSIONS_APP.",
        ),
        Connection::LocalContainers => machines(
            app,
            HostKind::Local,
            "Local containers are not configured. They take DOCKER_HOST.",
        ),
        Connection::Notifications => notifications(app.chat.as_ref()),
    }
}

fn ticketing(app: &App, system: System, how: &str) -> Look {
    let Some(account) = app.account(system).cloned() else {
        return Look::off(how);
    };
    Look::Ask {
        quota: account.quota(),
        probe: async move { told(account.probe().await) }.boxed(),
    }
}

fn repo_host(app: &App) -> Look {
    let Some(github) = app.github.clone() else {
        return Look::off(
            "Nothing can run. Set GITHUB_APP_ID and GITHUB_APP_PRIVATE_KEY, or GITHUB_TOKEN.",
        );
    };
    Look::Ask {
        quota: github.quota(),
        probe: async move { told(github.probe().await) }.boxed(),
    }
}

/// A host that lists our machines can also make them, as far as anybody can tell without making one.
fn machines(app: &App, host: HostKind, how: &str) -> Look {
    if !app.sessions.has_host(host) {
        return Look::off(how);
    }
    let sessions = app.sessions.clone();
    let probe = async move {
        match sessions.list(host).await {
            Ok(machines) => {
                let count = machines.len();
                let detail = format!("The host answers; machines of ours there: {count}.");
                ProbeResult::new(ProbeStatus::Ok, detail)
            }
            Err(SessionHostError::Vendor(error)) => told(Err(error)),
            Err(error) => ProbeResult::new(ProbeStatus::Error, error.to_string()),
        }
    };
    Look::Ask {
        quota: Quota::default(),
        probe: probe.boxed(),
    }
}

fn told(answer: Result<String, VendorError>) -> ProbeResult {
    match answer {
        Ok(words) => ProbeResult::new(ProbeStatus::Ok, words),
        Err(error) if error.is_rate_limited() => {
            ProbeResult::new(ProbeStatus::Limited, error.to_string())
        }
        Err(error) if error.is_permanent() => {
            ProbeResult::new(ProbeStatus::Error, error.to_string())
        }
        Err(error) => ProbeResult::unanswered(error.to_string()),
    }
}

fn secret(is_set: bool, variable: &str, without: &str) -> Look {
    if is_set {
        Look::Known(ProbeResult::new(
            ProbeStatus::Ok,
            format!("{variable} is set."),
        ))
    } else {
        Look::off(format!("Without {variable}, {without}."))
    }
}

/// No message is posted to find out: people would read it.
fn notifications(chat: Option<&ChatWebhook>) -> Look {
    let Some(chat) = chat else {
        return Look::off("Set NOTIFY_WEBHOOK_URL to have dispatches and ends told in a chat.");
    };
    let configured = || {
        ProbeResult::new(
            ProbeStatus::Ok,
            "NOTIFY_WEBHOOK_URL is set; nothing is posted to try it.",
        )
    };
    Look::Known(limit(&chat.quota()).unwrap_or_else(configured))
}

fn runner_callback(app: &App) -> Look {
    let config = &app.config;
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
        Some(base) if missing.is_empty() => Look::Ask {
            quota: app.callback_client.quota(),
            probe: own_address(app.callback_client.clone(), base.clone()).boxed(),
        },
        _ => Look::off(format!(
            "{WITHOUT_CALLBACKS} Set {}.",
            missing.join(" and ")
        )),
    }
}

/// Asks ourselves at the address that runs are given, in the way that runs ask: a report without a
/// token, which nobody else refuses in these words. A look at the front page would miss a proxy
/// that lets through only that, and one that sends reports elsewhere.
async fn own_address(client: Client, base: String) -> ProbeResult {
    let url = format!("{base}/runner/progress");
    let request = Request::new("asking for ourselves", Method::POST, url)
        .json(&serde_json::json!({}))
        .accept_status(401);
    let wrong = |detail| ProbeResult::new(ProbeStatus::Error, detail);
    match client.send(&request).await {
        Ok(answer) if answer.text().contains("missing_bearer") => ProbeResult::new(
            ProbeStatus::Ok,
            format!("This service answers at {base}{}", reach(&base)),
        ),
        Ok(answer) => wrong(stranger(&base, answer.status())),
        Err(error) => match error.status() {
            Some(status @ 300..400) => wrong(format!(
                "{base} answers {status} and leads elsewhere; reports do not follow. Set \
                 RUNNER_CALLBACK_BASE_URL to the address where it ends."
            )),
            Some(status) => wrong(stranger(&base, status)),
            None if error.is_rate_limited() => told(Err(error)),
            None => wrong(format!(
                "{error}. From here {base} cannot be reached. Behind NAT or a firewall that may be \
                 so for this machine alone; if runs do not report either, correct \
                 RUNNER_CALLBACK_BASE_URL or open the way to it."
            )),
        },
    }
}

fn stranger(base: &str, status: u16) -> String {
    format!(
        "{base} is answered ({status}) by something that is not this service. /runner and \
         /api/token below it must lead here."
    )
}

/// How far an address reaches, where that can be told from its looks.
fn reach(base: &str) -> &'static str {
    let url = Url::parse(base).ok();
    let host = url.as_ref().and_then(Url::host_str).unwrap_or_default();
    let is_private = match host.trim_matches(['[', ']']).parse() {
        Ok(IpAddr::V4(address)) => address.is_private() || address.is_link_local(),
        Ok(IpAddr::V6(address)) => address.is_unique_local() || address.is_unicast_link_local(),
        Err(_) => false,
    };
    match (is_loopback(base), is_private) {
        (true, _) => ". It is an address of this machine: runs elsewhere cannot reach it.",
        (false, true) => ". It is a private address: runs outside of this network cannot reach it.",
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
    fn addresses_that_do_not_reach_far_are_called_so() {
        let rows = [
            ("http://127.0.0.1:8080", "of this machine"),
            ("http://localhost", "of this machine"),
            ("http://[::1]:80", "of this machine"),
            ("http://192.168.1.5", "private"),
            ("http://[fd00::1]", "private"),
        ];
        for (base, words) in rows {
            assert!(reach(base).contains(words), "{base}");
        }
        for base in [
            "https://agents.example.com",
            "http://203.0.113.7",
            "http://[2001:db8::1]",
        ] {
            assert_eq!(reach(base), ".", "{base}");
        }
    }

    async fn asked(status: u16, error: &'static str) -> ProbeResult {
        let server = TestServer::start(move |asked, _| {
            let line = (asked.method.as_str(), asked.path.as_str());
            assert_eq!(line, ("POST", "/runner/progress"));
            StubReply::json(status, &json!({ "error": error }))
                .header("location", "https://elsewhere.test/")
        })
        .await;
        own_address(
            Client::new("the callback address", Redactor::default()).unwrap(),
            server.url.clone(),
        )
        .await
    }

    #[tokio::test]
    async fn only_our_own_refusal_proves_that_runs_reach_us() {
        let ours = asked(401, "missing_bearer").await;
        assert_eq!(ours.status, ProbeStatus::Ok);
        for (status, words) in [
            (401, "(401) by something"),
            (200, "(200) by something"),
            (404, "(404) by something"),
            (301, "answers 301 and leads elsewhere"),
        ] {
            let found = asked(status, "sign in").await;
            assert_eq!(found.status, ProbeStatus::Error);
            assert!(found.detail.contains(words), "{found:?}");
        }
        test_support::install_tls();
        let nobody = own_address(
            Client::new("the callback address", Redactor::default()).unwrap(),
            "http://127.0.0.1:1".into(),
        )
        .await;
        assert_eq!(nobody.status, ProbeStatus::Error);
        assert!(
            nobody.detail.contains("cannot be reached. Behind NAT"),
            "{nobody:?}"
        );
    }
}
