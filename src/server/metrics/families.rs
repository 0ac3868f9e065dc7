//! Metric families: counters kept by the service, and gauges read when they are requested.

use std::collections::BTreeMap;
use std::fs;

use super::exposition::Exposition;
use domain::decision::{DecisionOutcome, WaitReason};
use domain::job::{Job, JobKind};
use domain::machine::HostKind;
use domain::reaper::ReaperRule;
use domain::time::Timestamp;
use engine::app::{App, STATUSES};
use engine::probe;
use store::{ReadableTx, STORE_FILE, StoreResult, audit, jobs, outbox};
use vendors::http::now_millis;

const OPEN: [&str; 3] = ["unknown", "dispatched", "running"];
const ENDED: [&str; 4] = ["completed", "review_failed", "failed", "timed_out"];

/// Values read from the store in one transaction. The cost does not grow with the age of the store.
pub(super) struct StoreSnapshot {
    active: Vec<Job>,
    ended: BTreeMap<String, u64>,
    outbox: outbox::OutboxDepth,
    audited: u64,
}

impl StoreSnapshot {
    /// Reads the snapshot.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub(super) fn read(tx: &impl ReadableTx) -> StoreResult<Self> {
        Ok(Self {
            active: jobs::active(tx)?,
            ended: jobs::ended_counts(tx)?,
            outbox: outbox::depth(tx)?,
            audited: audit::head(tx)?.seq,
        })
    }
}

/// Renders all metric families.
pub(super) fn render(app: &App, snapshot: &StoreSnapshot) -> Exposition {
    let mut page = Exposition::default();
    process(&mut page, app);
    jobs(&mut page, snapshot);
    polls(&mut page, app);
    outbox(&mut page, snapshot, app.core.now());
    vendors(&mut page, app);
    machines(&mut page, app);
    checks(&mut page, app);
    store(&mut page, app, snapshot);
    requests(&mut page, app);
    page
}

fn process(page: &mut Exposition, app: &App) {
    page.gauge(
        "agent_implement_build_info",
        "Version of the running service, as a label. Always 1.",
    )
    .count(&[("version", env!("CARGO_PKG_VERSION"))], 1);
    page.gauge(
        "process_start_time_seconds",
        "Start time of the process, in seconds since the Unix epoch.",
    )
    .sample(&[], seconds(app.live.metrics.started_at.as_millis()));
    if let Some(bytes) = resident_bytes() {
        page.gauge(
            "process_resident_memory_bytes",
            "Resident memory of the process, in bytes.",
        )
        .count(&[], bytes);
    }
    page.gauge("agent_implement_event_listeners", "Open event streams.")
        .count(&[], app.live.stream_subscribers.count() as u64);
}

fn seconds(millis: u64) -> f64 {
    millis as f64 / 1e3
}

/// Returns the resident memory; `None` if /proc does not provide it.
fn resident_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}

fn jobs(page: &mut Exposition, snapshot: &StoreSnapshot) {
    let mut family = page.gauge("agent_implement_jobs", "Active runs by status and kind.");
    for status in OPEN {
        for kind in JobKind::ALL {
            let matches = |job: &&Job| job.state.status() == status && job.kind == kind;
            let count = snapshot.active.iter().filter(matches).count();
            family.count(&[("status", status), ("kind", kind.as_str())], count as u64);
        }
    }
    let mut family = page.counter(
        "agent_implement_jobs_ended_total",
        "Ended runs by status and kind, kept across restarts.",
    );
    for status in ENDED {
        for kind in JobKind::ALL {
            let key = jobs::ended_count_key(status, kind);
            let count = snapshot.ended.get(&key).copied().unwrap_or(0);
            family.count(&[("status", status), ("kind", kind.as_str())], count);
        }
    }
}

fn polls(page: &mut Exposition, app: &App) {
    page.histogram(
        "agent_implement_poll_duration_seconds",
        "Duration of polls, in seconds.",
    )
    .histogram(&[], &app.live.metrics.poll_duration.snapshot());
    let mut family = page.gauge(
        "agent_implement_poll_last_success_age_seconds",
        "Seconds since a ticketing system last answered a poll, or since the start if it never did.",
    );
    let polled_at = app.live.poll_snapshots.polled_at();
    for account in app
        .vendors
        .ticketing_in_use(|system| polled_at.contains_key(&system))
    {
        let last_polled_at = polled_at.get(&account.system()).copied().flatten();
        let age = app
            .core
            .now()
            .since(last_polled_at.unwrap_or(app.live.metrics.started_at));
        family.sample(&[("system", account.name())], age.as_secs_f64());
    }
    let mut family = page.gauge(
        "agent_implement_decisions",
        "Flagged issues by decision of the last poll and reason for waiting.",
    );
    let counts = app.live.poll_snapshots.decision_counts();
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
        "Seconds from the first poll that found a flagged issue to the dispatch of its run.",
    )
    .histogram(&[], &app.live.metrics.trigger_to_dispatch.snapshot());
}

fn outbox(page: &mut Exposition, snapshot: &StoreSnapshot, now: Timestamp) {
    let depth = &snapshot.outbox;
    page.gauge("agent_implement_outbox_pending", "Pending outbox entries.")
        .count(&[], depth.pending);
    let age = depth
        .oldest_pushed_at
        .map_or(0.0, |at| now.since(at).as_secs_f64());
    page.gauge(
        "agent_implement_outbox_oldest_age_seconds",
        "Age of the oldest pending outbox entry, in seconds; 0 if there is none.",
    )
    .sample(&[], age);
    page.gauge(
        "agent_implement_outbox_dead",
        "Failed outbox entries that need an operator.",
    )
    .count(&[], depth.dead);
}

fn vendors(page: &mut Exposition, app: &App) {
    let quotas = probe::quotas(&app.vendors);
    let mut family = page.gauge(
        "agent_implement_vendor_quota_remaining",
        "Requests left in the current quota window of a vendor account.",
    );
    for account in &quotas {
        if let Some(remaining) = account.quota.remaining {
            family.count(&[("account", &account.id())], remaining);
        }
    }
    let mut family = page.gauge(
        "agent_implement_vendor_quota_limit",
        "Requests allowed per quota window of a vendor account.",
    );
    for account in &quotas {
        if let Some(limit) = account.quota.limit {
            family.count(&[("account", &account.id())], limit);
        }
    }
    let mut family = page.gauge(
        "agent_implement_vendor_limited",
        "1 while a vendor account is rate limited, else 0.",
    );
    for account in &quotas {
        let is_limited = account.quota.is_limited(now_millis());
        family.count(&[("account", &account.id())], is_limited.into());
    }
}

fn machines(page: &mut Exposition, app: &App) {
    let hosts = HostKind::ALL.map(|host| (host, app.live.metrics.host_machines(host)));
    let mut family = page.gauge(
        "agent_implement_machines",
        "Machines found by the last reaper sweep.",
    );
    for (host, machines) in &hosts {
        family.count(&[("host", host.as_str())], machines.count);
    }
    let mut family = page.gauge(
        "agent_implement_machine_oldest_age_seconds",
        "Age of the oldest machine found by the last reaper sweep, in seconds; 0 if there is none.",
    );
    for (host, machines) in &hosts {
        let age = machines
            .oldest_created_at
            .map_or(0.0, |at| app.core.now().since(at).as_secs_f64());
        family.sample(&[("host", host.as_str())], age);
    }
    let mut family = page.counter(
        "agent_implement_machines_reaped_total",
        "Machines destroyed by the reaper, by rule.",
    );
    for rule in ReaperRule::ALL {
        family.count(
            &[("rule", rule.as_str())],
            app.live.metrics.destroyed_by(rule),
        );
    }
}

fn checks(page: &mut Exposition, app: &App) {
    page.counter(
        "agent_implement_ci_reruns_total",
        "Requested reruns of failed jobs of pull requests.",
    )
    .count(&[], app.live.metrics.ci_reruns.get());
    page.counter(
        "agent_implement_ci_flakes_total",
        "Reruns in which checks passed that had failed.",
    )
    .count(&[], app.live.metrics.ci_flakes.get());
}

fn store(page: &mut Exposition, app: &App, snapshot: &StoreSnapshot) {
    let commits = app.core.store().commit_metrics();
    page.histogram(
        "agent_implement_store_commit_seconds",
        "Duration of commits to disk, in seconds.",
    )
    .histogram(&[], &commits.duration.snapshot());
    page.histogram(
        "agent_implement_store_commit_writes",
        "Number of writes per commit.",
    )
    .histogram(&[], &commits.group_size.snapshot());
    page.gauge(
        "agent_implement_store_healthy",
        "1 if the store is writable, else 0.",
    )
    .count(&[], app.core.store().is_healthy().into());
    if let Ok(file) = fs::metadata(app.core.config.data_dir.join(STORE_FILE)) {
        page.gauge(
            "agent_implement_store_bytes",
            "Size of the store file, in bytes.",
        )
        .count(&[], file.len());
    }
    page.counter(
        "agent_implement_audit_entries_total",
        "Entries in the audit log, kept across restarts.",
    )
    .count(&[], snapshot.audited);
}

/// Adds request metrics of the routes that have received requests.
fn requests(page: &mut Exposition, app: &App) {
    let routes = app.live.metrics.routes();
    let mut family = page.counter(
        "agent_implement_http_requests_total",
        "HTTP requests by route and status.",
    );
    for meter in &routes {
        for (status, count) in STATUSES.iter().zip(meter.by_status()) {
            if count > 0 {
                let status = match status {
                    0 => "other".to_owned(),
                    status => status.to_string(),
                };
                family.count(&[("route", meter.route), ("status", &status)], count);
            }
        }
    }
    let mut family = page.histogram(
        "agent_implement_http_request_seconds",
        "Seconds from the request head to the response head, by route.",
    );
    for meter in &routes {
        let latency = meter.latency.snapshot();
        if latency.count > 0 {
            family.histogram(&[("route", meter.route)], &latency);
        }
    }
}
