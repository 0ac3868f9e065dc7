//! What is shown: what was counted as it went, and what is looked up now.

use std::collections::BTreeMap;
use std::fs;

use super::exposition::Exposition;
use super::requests::ROUTES;
use domain::decision::{DecisionOutcome, WaitReason};
use domain::job::{Job, JobKind};
use domain::machine::HostKind;
use domain::reaper::ReaperRule;
use domain::time::Timestamp;
use engine::app::{App, STATUSES};
use engine::probe;
use store::{ReadableTx, STORE_FILE, StoreResult, audit, jobs, outbox};
use vendors::http::now_millis;

const KINDS: [JobKind; 4] = [
    JobKind::Planning,
    JobKind::Implementation,
    JobKind::GapFill,
    JobKind::FollowUp,
];
const OPEN: [&str; 3] = ["unknown", "dispatched", "running"];
const ENDED: [&str; 4] = ["completed", "review_failed", "failed", "timed_out"];
/// What the store holds, in one look. None of it takes longer the older the store is.
pub struct StoreSnapshot {
    active: Vec<Job>,
    ended: BTreeMap<String, u64>,
    outbox: outbox::OutboxDepth,
    audited: u64,
}

impl StoreSnapshot {
    pub fn read(tx: &impl ReadableTx) -> StoreResult<Self> {
        Ok(Self {
            active: jobs::active(tx)?,
            ended: jobs::ended_counts(tx)?,
            outbox: outbox::depth(tx)?,
            audited: audit::head(tx)?.seq,
        })
    }
}

/// Everything there is to show.
pub fn render(app: &App, held: &StoreSnapshot) -> Exposition {
    let mut page = Exposition::default();
    process(&mut page, app);
    of_jobs(&mut page, held);
    polls(&mut page, app);
    owed(&mut page, held, app.now());
    vendors(&mut page, app);
    machines(&mut page, app);
    store(&mut page, app, held);
    requests(&mut page, app);
    page
}

fn process(page: &mut Exposition, app: &App) {
    page.gauge(
        "agent_implement_build_info",
        "The version that runs; always 1.",
    )
    .count(&[("version", env!("CARGO_PKG_VERSION"))], 1);
    page.gauge(
        "process_start_time_seconds",
        "When the process began, since the epoch.",
    )
    .sample(&[], seconds(app.metrics.started_at.as_millis()));
    if let Some(bytes) = resident_bytes() {
        page.gauge(
            "process_resident_memory_bytes",
            "Memory that the process holds.",
        )
        .count(&[], bytes);
    }
    page.gauge(
        "agent_implement_event_listeners",
        "Event streams that are open.",
    )
    .count(&[], app.stream_subscribers.count() as u64);
}

fn seconds(millis: u64) -> f64 {
    millis as f64 / 1e3
}

/// None where the system does not say.
fn resident_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}

fn of_jobs(page: &mut Exposition, held: &StoreSnapshot) {
    let mut family = page.gauge(
        "agent_implement_jobs",
        "Runs that have not ended, by status and kind.",
    );
    for status in OPEN {
        for kind in KINDS {
            let is_it = |job: &&Job| job.state.status() == status && job.kind == kind;
            let count = held.active.iter().filter(is_it).count();
            family.count(&[("status", status), ("kind", kind.as_str())], count as u64);
        }
    }
    let mut family = page.counter(
        "agent_implement_jobs_ended_total",
        "Runs that have ended, by status and kind, restarts included.",
    );
    for status in ENDED {
        for kind in KINDS {
            let key = jobs::ended_count_key(status, kind);
            let count = held.ended.get(&key).copied().unwrap_or(0);
            family.count(&[("status", status), ("kind", kind.as_str())], count);
        }
    }
}

fn polls(page: &mut Exposition, app: &App) {
    page.histogram(
        "agent_implement_poll_duration_seconds",
        "How long polls took.",
    )
    .histogram(&[], &app.metrics.poll_duration.snapshot());
    let mut family = page.gauge(
        "agent_implement_poll_last_success_age_seconds",
        "Time since a ticketing system last answered a poll, or since the start if it never did.",
    );
    let seen_at = app.poll_snapshots.polled_at();
    for account in &app.ticketing {
        let seen = seen_at.get(&account.system()).copied().flatten();
        let age = app.now().since(seen.unwrap_or(app.metrics.started_at));
        family.sample(&[("system", account.name())], age.as_secs_f64());
    }
    let mut family = page.gauge(
        "agent_implement_decisions",
        "Flagged issues by what the last poll decided about them, and why they wait.",
    );
    let counts = app.poll_snapshots.decision_counts();
    let count = |outcome, reason| counts.get(&(outcome, reason)).copied().unwrap_or(0);
    for (outcome, word) in [
        (DecisionOutcome::Dispatched, "dispatched"),
        (DecisionOutcome::InProgress, "in-progress"),
        (DecisionOutcome::Done, "done"),
        (DecisionOutcome::Failed, "failed"),
    ] {
        family.count(&[("outcome", word), ("reason", "")], count(outcome, None));
    }
    for reason in WaitReason::ALL {
        let labels = [("outcome", "waiting"), ("reason", reason.as_str())];
        family.count(&labels, count(DecisionOutcome::Waiting, Some(reason)));
    }
    page.histogram(
        "agent_implement_trigger_to_dispatch_seconds",
        "From when a flagged issue was first seen to when its runner took the run.",
    )
    .histogram(&[], &app.metrics.trigger_to_dispatch.snapshot());
}

fn owed(page: &mut Exposition, held: &StoreSnapshot, now: Timestamp) {
    let depth = &held.outbox;
    page.gauge(
        "agent_implement_outbox_pending",
        "Effects that are owed to the outside.",
    )
    .count(&[], depth.pending);
    let age = depth
        .oldest_pushed_at
        .map_or(0.0, |at| now.since(at).as_secs_f64());
    page.gauge(
        "agent_implement_outbox_oldest_age_seconds",
        "Age of the oldest effect that is owed; 0 without one.",
    )
    .sample(&[], age);
    page.gauge(
        "agent_implement_outbox_dead",
        "Effects that were given up, and wait for an operator.",
    )
    .count(&[], depth.dead);
}

fn vendors(page: &mut Exposition, app: &App) {
    let allowances = probe::quotas(app);
    let mut family = page.gauge(
        "agent_implement_vendor_quota_remaining",
        "Requests that a vendor still takes before its quota is reset.",
    );
    for one in &allowances {
        if let Some(remaining) = one.quota.remaining {
            family.count(&[("account", &one.account)], remaining);
        }
    }
    let mut family = page.gauge(
        "agent_implement_vendor_quota_limit",
        "Requests that a vendor takes between two resets.",
    );
    for one in &allowances {
        if let Some(limit) = one.quota.limit {
            family.count(&[("account", &one.account)], limit);
        }
    }
    let mut family = page.gauge(
        "agent_implement_vendor_limited",
        "Whether a vendor takes no requests at the moment.",
    );
    for one in &allowances {
        let is_limited = one.quota.is_limited(now_millis());
        family.count(&[("account", &one.account)], is_limited.into());
    }
}

fn machines(page: &mut Exposition, app: &App) {
    let hosts = [HostKind::Vm, HostKind::Local].map(|host| (host, app.metrics.host_machines(host)));
    let mut family = page.gauge(
        "agent_implement_machines",
        "Machines of ours that the last sweep saw.",
    );
    for (host, machines) in &hosts {
        family.count(&[("host", host.as_str())], machines.count);
    }
    let mut family = page.gauge(
        "agent_implement_machine_oldest_age_seconds",
        "Age of the oldest of them; 0 without one.",
    );
    for (host, machines) in &hosts {
        let age = machines
            .oldest_created_at
            .map_or(0.0, |at| app.now().since(at).as_secs_f64());
        family.sample(&[("host", host.as_str())], age);
    }
    let mut family = page.counter(
        "agent_implement_machines_reaped_total",
        "Machines that the reaper had destroyed, by its rule.",
    );
    for rule in ReaperRule::ALL {
        family.count(&[("rule", rule.as_str())], app.metrics.destroyed_by(rule));
    }
}

fn store(page: &mut Exposition, app: &App, held: &StoreSnapshot) {
    let meters = app.store.commit_metrics();
    page.histogram(
        "agent_implement_store_commit_seconds",
        "How long commits to the disk took.",
    )
    .histogram(&[], &meters.duration.snapshot());
    page.histogram(
        "agent_implement_store_commit_writes",
        "How many writes shared a commit.",
    )
    .histogram(&[], &meters.group_size.snapshot());
    page.gauge(
        "agent_implement_store_healthy",
        "Whether the store can still be written to.",
    )
    .count(&[], app.store.is_healthy().into());
    if let Ok(file) = fs::metadata(app.config.data_dir.join(STORE_FILE)) {
        page.gauge("agent_implement_store_bytes", "Size of the store's file.")
            .count(&[], file.len());
    }
    page.counter(
        "agent_implement_audit_entries_total",
        "Entries in the audit, restarts included.",
    )
    .count(&[], held.audited);
}

/// Of routes that were asked for at all.
fn requests(page: &mut Exposition, app: &App) {
    let routes = || ROUTES.iter().zip(app.metrics.routes());
    let mut family = page.counter(
        "agent_implement_http_requests_total",
        "Requests that were answered, by route and status.",
    );
    for (route, meter) in routes() {
        for (status, count) in STATUSES.iter().zip(meter.by_status()) {
            if count > 0 {
                let status = match status {
                    0 => "other".to_owned(),
                    status => status.to_string(),
                };
                family.count(&[("route", route), ("status", &status)], count);
            }
        }
    }
    let mut family = page.histogram(
        "agent_implement_http_request_seconds",
        "How long requests took until the head of their answer.",
    );
    for (route, meter) in routes() {
        let seen = meter.latency.snapshot();
        if seen.count > 0 {
            family.histogram(&[("route", route)], &seen);
        }
    }
}
