//! Clients of the service while it is killed: users who create tickets and comment, an operator,
//! backups, and vendor faults.

use std::collections::HashSet;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use domain::issue::System;
use fake_vendors::{FakeService, InjectedFault};
use reqwest::Method;
use serde_json::json;

use vendors::http::percent_encode;

use crate::crash_env::{BackupAttempt, CrashEnv, IDLE_TEAM};
use crate::landing::LANDINGS;
use crate::tickets::{self, GAP_FILL_COMMAND, TicketKind, ticket_kinds};

const SYSTEMS: [System; 3] = [System::Linear, System::Jira, System::GitHub];

/// Kills per new ticket, once there is one of each kind. The count makes the load per kill independent
/// of the machine's speed.
const KILLS_PER_TICKET: usize = 2;

/// Weight, out of 10, of tickets with a fake run among the new ones.
const FAKE_RUN_WEIGHT: usize = 4;

/// Weight, out of 10, of tickets that land among the new ones.
const LANDING_WEIGHT: usize = 1;

/// Sleeps and returns whether to continue.
async fn sleep_unless_stopped(stop: &AtomicBool, span: Duration) -> bool {
    tokio::time::sleep(span).await;
    !stop.load(Ordering::Relaxed)
}

/// Creates one ticket of each kind on each system, and then more over time. Those that land have several runs each, so
/// `landing_systems` says on how many systems they begin.
pub async fn file_tickets(env: Arc<CrashEnv>, stop: Arc<AtomicBool>, landing_systems: usize) {
    let landings = LANDINGS.iter().zip(0..).flat_map(|(landing, at)| {
        let systems = (0..landing_systems).map(move |more| SYSTEMS[(at + more) % SYSTEMS.len()]);
        systems.map(|system| (TicketKind::Landing(*landing), system))
    });
    let others = ticket_kinds()
        .into_iter()
        .flat_map(|kind| SYSTEMS.map(|system| (kind, system)));
    let mut number = 0;
    for (kind, system) in landings.chain(others) {
        number += 1;
        tickets::create(&env, kind, system, number);
    }
    let first = number;
    while sleep_unless_stopped(&stop, Duration::from_millis(200)).await {
        if env.record().kills < (number - first) * KILLS_PER_TICKET {
            continue;
        }
        number += 1;
        let kind = match fastrand::usize(..10) {
            roll if roll < FAKE_RUN_WEIGHT => TicketKind::FakeRun,
            roll if roll < FAKE_RUN_WEIGHT + LANDING_WEIGHT => {
                TicketKind::Landing(fastrand::choice(LANDINGS).unwrap())
            }
            _ => fastrand::choice(ticket_kinds()).unwrap(),
        };
        tickets::create(&env, kind, SYSTEMS[number % SYSTEMS.len()], number);
    }
}

/// Posts one gap-fill command on each pull request meant for it.
pub async fn post_comments(env: Arc<CrashEnv>, stop: Arc<AtomicBool>) {
    let mut done = HashSet::new();
    while sleep_unless_stopped(&stop, Duration::from_millis(400)).await {
        let tickets = env.record().tickets.clone();
        let with_command = tickets
            .iter()
            .filter(|ticket| ticket.kind == TicketKind::WithGapFill);
        let waiting: Vec<_> = with_command
            .filter(|ticket| !done.contains(&ticket.key))
            .collect();
        if waiting.is_empty() {
            continue;
        }
        for ticket in waiting {
            let repo = env.repo(ticket.repo());
            let pulls = repo.pulls();
            let title = format!("{}: ", ticket.key);
            let pull = pulls.iter().find(|pull| pull.title.starts_with(&title));
            // The ticket already shows its pull request.
            if let Some(pull) = pull.filter(|_| ticket.mismatch(&env).is_none()) {
                repo.add_comment(pull.number, "mia", GAP_FILL_COMMAND);
                done.insert(ticket.key.clone());
            }
        }
    }
}

/// Cancels the run of each ticket meant for it, and retries it if that is meant, until acknowledged.
pub async fn control_runs(env: Arc<CrashEnv>, stop: Arc<AtomicBool>) {
    let (mut cancelled, mut done) = (HashSet::new(), HashSet::new());
    while sleep_unless_stopped(&stop, Duration::from_millis(150)).await {
        let tickets = env.record().tickets.clone();
        for ticket in tickets {
            let is_retried = ticket.kind == TicketKind::Retried;
            let is_meant = is_retried || ticket.kind == TicketKind::Cancelled;
            if !is_meant || done.contains(&ticket.key) || !ticket.has_shown_work(&env) {
                continue;
            }
            // 409 means that an earlier attempt, whose response was lost, was accepted.
            if !cancelled.contains(&ticket.key) {
                let accepted = [200, 409];
                if !is_accepted(&env, &ticket.key, "cancel", &accepted).await {
                    continue;
                }
                cancelled.insert(ticket.key.clone());
            }
            if is_retried && !is_accepted(&env, &ticket.key, "retry", &[202, 409]).await {
                continue;
            }
            env.record().retried.insert(ticket.key.clone());
            done.insert(ticket.key);
        }
    }
}

/// Sends an action on the run of a ticket. Returns whether it was accepted.
async fn is_accepted(env: &CrashEnv, key: &str, action: &str, accepted: &[u16]) -> bool {
    let path = format!("/api/jobs/{}/{action}", percent_encode(key));
    match env.try_request(Method::POST, &path, &json!({})).await {
        Some((status, _)) if accepted.contains(&status) => true,
        // A vendor did not answer.
        Some((503, _)) | None => false,
        Some((status, body)) => {
            env.record_violation(format!("{action} of {key} got status {status}: {body}"));
            true
        }
    }
}

/// Raises the cap of the idle team repeatedly and records each acknowledged value.
pub async fn change_mapping(env: Arc<CrashEnv>, stop: Arc<AtomicBool>) {
    let first_cap = env.record().requested_cap;
    for cap in first_cap + 1.. {
        env.record().requested_cap = cap;
        let body = json!({ "maxInProgressAiIssues": cap });
        let path = format!("/api/mappings/{IDLE_TEAM}");
        loop {
            match env.try_request(Method::PATCH, &path, &body).await {
                Some((200, _)) => break env.record().acknowledged_caps.push(cap),
                Some((status, body)) => {
                    env.record_violation(format!("a change got status {status}: {body}"))
                }
                None => {}
            }
            if !sleep_unless_stopped(&stop, Duration::from_millis(50)).await {
                return;
            }
        }
        if !sleep_unless_stopped(&stop, Duration::from_millis(250)).await {
            return;
        }
    }
}

/// Takes backups.
pub async fn take_backups(env: Arc<CrashEnv>, stop: Arc<AtomicBool>) {
    for number in 0.. {
        let file = env.dir.join(format!("backups/{number}"));
        let reports = env.record().reports.len();
        let request = env.control_client().get("http://control/api/backup");
        if let Ok(mut response) = request.send().await {
            if response.status() != 200 {
                let status = response.status();
                env.record_violation(format!("a backup got status {status}"));
            }
            let mut output = std::fs::File::create(&file).unwrap();
            let is_complete = loop {
                match response.chunk().await {
                    Ok(Some(chunk)) => output.write_all(&chunk).unwrap(),
                    Ok(None) => break true,
                    Err(_) => break false,
                }
            };
            env.record().backups.push(BackupAttempt {
                file,
                is_complete,
                reports_before: reports,
            });
        }
        if !sleep_unless_stopped(&stop, Duration::from_millis(350)).await {
            return;
        }
    }
}

/// Makes vendors respond late, with errors, or not at all.
pub async fn inject_faults(env: Arc<CrashEnv>, stop: Arc<AtomicBool>) {
    let mut rng = fastrand::Rng::with_seed(env.seed);
    let vendors = [
        FakeService::Linear,
        FakeService::Jira,
        FakeService::GitHub,
        FakeService::Chat,
    ];
    while sleep_unless_stopped(&stop, Duration::from_millis(rng.u64(80..400))).await {
        let faults = env.vendors.faults(vendors[rng.usize(..vendors.len())]);
        if faults.pending() > 0 {
            continue;
        }
        faults.inject_next(match rng.u8(..8) {
            0 => InjectedFault::ErrorStatus(500),
            1 => InjectedFault::ErrorStatus(503),
            2 => InjectedFault::ReplaceResponseStatus(502),
            3 => InjectedFault::DropRequest,
            4 | 5 => InjectedFault::DropResponse,
            6 => InjectedFault::DelayResponse(Duration::from_millis(rng.u64(200..1_500))),
            _ => InjectedFault::RateLimited(Duration::from_secs(1)),
        });
    }
}
