//! Everybody beside the runs that wants something of the service while it dies: people who file tickets
//! and comment, an operator, somebody who takes backups, and the weather over the vendors.

use std::collections::HashSet;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use domain::issue::System;
use fake_vendors::{FakeService, InjectedFault};
use reqwest::Method;
use serde_json::json;

use crate::crash_env::{BackupAttempt, CrashEnv, IDLE_TEAM};
use crate::tickets::{self, GAP_FILL_COMMAND, TICKET_KINDS, TicketKind};

const SYSTEMS: [System; 2] = [System::Linear, System::Jira];

/// After how many kills does another ticket come, once one of each kind is there? On a slow machine a
/// life gets as much to do as on a fast one.
const KILLS_A_TICKET: usize = 2;

/// How many of those that come need no run of the real program?
const LIGHT: usize = 7;

/// Sleeps, and says whether to go on.
async fn goes_on(stop: &AtomicBool, span: Duration) -> bool {
    tokio::time::sleep(span).await;
    !stop.load(Ordering::Relaxed)
}

/// One ticket of each kind on each system at once, and then more and more.
pub async fn file_tickets(world: Arc<CrashEnv>, stop: Arc<AtomicBool>) {
    let first = TICKET_KINDS
        .into_iter()
        .flat_map(|kind| SYSTEMS.map(|system| (kind, system)));
    let mut number = 0;
    for (kind, system) in first {
        number += 1;
        tickets::create(&world, kind, system, number);
    }
    let first = number;
    while goes_on(&stop, Duration::from_millis(200)).await {
        if world.record().kills < (number - first) * KILLS_A_TICKET {
            continue;
        }
        number += 1;
        let kind = match fastrand::usize(..10) {
            roll if roll < LIGHT => TicketKind::FakeRun,
            _ => TICKET_KINDS[fastrand::usize(..TICKET_KINDS.len())],
        };
        tickets::create(&world, kind, SYSTEMS[number % 2], number);
    }
}

/// Asks for more on each pull request that is meant for it, once.
pub async fn post_comments(world: Arc<CrashEnv>, stop: Arc<AtomicBool>) {
    let mut done = HashSet::new();
    while goes_on(&stop, Duration::from_millis(400)).await {
        let tickets = world.record().tickets.clone();
        let commanded = tickets
            .iter()
            .filter(|ticket| ticket.kind == TicketKind::WithGapFill);
        let waiting: Vec<_> = commanded
            .filter(|ticket| !done.contains(&ticket.key))
            .collect();
        if waiting.is_empty() {
            continue;
        }
        let pulls = world.repo("shop").pulls();
        for ticket in waiting {
            let title = format!("{}: ", ticket.key);
            let own = pulls.iter().find(|pull| pull.title.starts_with(&title));
            // The host has told of the pull request itself.
            if let Some(pull) = own.filter(|_| ticket.mismatch(&world).is_none()) {
                world
                    .repo("shop")
                    .add_comment(pull.number, "mia", GAP_FILL_COMMAND);
                done.insert(ticket.key.clone());
            }
        }
    }
}

/// Changes a setting all the time: what was acknowledged must be there.
pub async fn change_mapping(world: Arc<CrashEnv>, stop: Arc<AtomicBool>) {
    for cap in 1.. {
        world.record().requested_cap = cap;
        let body = json!({ "maxInProgressAiIssues": cap });
        let path = format!("/api/mappings/{IDLE_TEAM}");
        loop {
            match world.try_request(Method::PATCH, &path, &body).await {
                Some((200, _)) => break world.record().acknowledged_caps.push(cap),
                Some((status, told)) => {
                    world.record_violation(format!("a change was answered {status} {told}"))
                }
                None => {}
            }
            if !goes_on(&stop, Duration::from_millis(50)).await {
                return;
            }
        }
        if !goes_on(&stop, Duration::from_millis(250)).await {
            return;
        }
    }
}

/// Takes backups.
pub async fn take_backups(world: Arc<CrashEnv>, stop: Arc<AtomicBool>) {
    for number in 0.. {
        let file = world.dir.join(format!("backups/{number}"));
        let reports = world.record().reports.len();
        let request = world.control_client().get("http://control/api/backup");
        if let Ok(mut answer) = request.send().await {
            if answer.status() != 200 {
                let status = answer.status();
                world.record_violation(format!("a backup was answered {status}"));
            }
            let mut kept = std::fs::File::create(&file).unwrap();
            let is_whole = loop {
                match answer.chunk().await {
                    Ok(Some(piece)) => kept.write_all(&piece).unwrap(),
                    Ok(None) => break true,
                    Err(_) => break false,
                }
            };
            world.record().backups.push(BackupAttempt {
                file,
                is_complete: is_whole,
                reports_before: reports,
            });
        }
        if !goes_on(&stop, Duration::from_millis(350)).await {
            return;
        }
    }
}

/// Vendors that answer late, or with nonsense, or not at all.
pub async fn inject_faults(world: Arc<CrashEnv>, stop: Arc<AtomicBool>) {
    let mut rng = fastrand::Rng::with_seed(world.seed);
    let vendors = [
        FakeService::Linear,
        FakeService::Jira,
        FakeService::GitHub,
        FakeService::Chat,
    ];
    while goes_on(&stop, Duration::from_millis(rng.u64(80..400))).await {
        let faults = world.vendors.faults(vendors[rng.usize(..vendors.len())]);
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
