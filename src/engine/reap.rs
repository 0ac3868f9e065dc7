//! Reaper: destroys machines that are no longer needed.
//!
//! Every machine and container with our labels is checked against the rules of `domain::reaper`.
//! The reaper log entry, the destruction and its consequence for the job are stored in one
//! transaction. Machines of a host that does not respond are not touched. The first sweep after a
//! start also cleans up what happened while the service was down.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use tokio::time::timeout;

use crate::app::{App, Core, Vendors};
use domain::audit::{Action, Actor};
use domain::comments;
use domain::effect::Effect;
use domain::ids::{IssueId, IssueKey, JobId, TeamKey};
use domain::issue::IssueRef;
use domain::job::{AfterCancel, Job, RunHandle};
use domain::machine::{HostKind, Machine, MachineRef};
use domain::reaper::{self, IssueStatus, ReapOutcome, ReaperRule};
use domain::stage::Stage;
use domain::time::Timestamp;
use domain::transition::JobEvent;
use store::outbox::OutboxEntry;
use store::reaper_log::{self, ReaperAction};
use store::{ReadableTx, StoreError, StoreResult, WriteTx, audit, dedup, jobs, outbox};
use vendors::session_hosts::SessionHostError;

use super::control;
use super::job_events::{self, BreakerPolicy};

/// Machines seen by one sweep.
struct Sweep {
    machines: Vec<Machine>,
    /// Host that failed to list its machines, with the error.
    failure: Option<(HostKind, SessionHostError)>,
}

/// Checks every machine once.
///
/// # Errors
/// Fails if the store cannot be read or written.
pub async fn run_once(app: &App) -> StoreResult<()> {
    let Sweep { machines, failure } = list_machines(app).await;
    let now = app.core.now();
    let (machines, queue_keys) = app.core.store.read(|tx| {
        let with_job = |machine: Machine| Ok((job_of_machine(tx, &machine)?, machine));
        let machines = machines.into_iter().map(with_job);
        let mut queue_keys = outbox::queue_keys(tx)?;
        // Operators retry or delete the destructions that were given up.
        queue_keys.extend(outbox::dead(tx)?.into_iter().map(|entry| entry.queue_key));
        Ok((machines.collect::<StoreResult<Vec<_>>>()?, queue_keys))
    })?;
    let known_jobs = machines.iter().filter_map(|(job, _)| job.as_ref());
    let closed = closed_issues(app, known_jobs).await;
    let doomed = machines.iter().filter_map(|(job, machine)| {
        let is_closed = job
            .as_ref()
            .is_some_and(|job| closed.contains(&job.issue.id));
        let issue = if is_closed {
            IssueStatus::Closed
        } else {
            IssueStatus::Open
        };
        let rule = reaper::matching_rule(machine, job.as_ref(), issue, now)?;
        let is_pending = queue_keys.contains(&destruction(machine, None).queue_key());
        (!is_pending).then(|| (machine.clone(), rule))
    });
    let doomed: Vec<(Machine, ReaperRule)> = doomed.collect();
    let existing: HashSet<String> = machines
        .into_iter()
        .map(|(_, machine)| machine.id)
        .collect();
    if failure.is_none() {
        remove_old_records(&app.core, &existing).await?;
    }
    destroy(app, doomed, now).await?;
    app.live.heartbeats.record_sweep(app.core.now());
    Ok(())
}

async fn list_machines(app: &App) -> Sweep {
    let mut sweep = Sweep {
        machines: Vec::new(),
        failure: None,
    };
    for (host, listed) in app.vendors.sessions.list_all().await {
        match listed {
            Ok(machines) => {
                let created = machines.iter().map(|machine| machine.created_at);
                app.live.metrics.set_host_machines(host, created);
                sweep.machines.extend(machines);
            }
            Err(error) => {
                tracing::warn!(host = host.as_str(), %error, "Could not list session machines; the reaper skips this host.");
                sweep.failure = Some((host, error));
            }
        }
    }
    sweep
}

/// Job of a machine. A job whose run is on another machine does not need this one.
fn job_of_machine(tx: &impl ReadableTx, machine: &Machine) -> StoreResult<Option<Job>> {
    let job = jobs::get(tx, &machine.labels.job)?;
    Ok(job.filter(|job| uses_machine(job, machine)))
}

fn uses_machine(job: &Job, machine: &Machine) -> bool {
    job.run
        .as_ref()
        .is_none_or(|run| run.machine().is_some_and(|own| own == machine.reference()))
}

/// Closed issues among those of the jobs. An issue in the latest poll snapshot is open; the others
/// are looked up.
async fn closed_issues<'a>(app: &App, jobs: impl Iterator<Item = &'a Job>) -> HashSet<IssueId> {
    let snapshots = app.live.poll_snapshots.all();
    let flagged: HashSet<&IssueId> = snapshots
        .values()
        .flat_map(|snapshot| snapshot.issues.iter())
        .map(|polled| &polled.issue.issue.id)
        .collect();
    // Work on an open pull request outlives its ticket.
    let unseen: Vec<&IssueRef> = jobs
        .filter(|job| job.kind.phase().is_some())
        .map(|job| &job.issue)
        .filter(|issue| !flagged.contains(&issue.id))
        .collect();
    let mut closed = HashSet::new();
    for account in &app.vendors.ticketing {
        let own = unseen
            .iter()
            .filter(|issue| issue.system == account.system());
        let issues: Vec<IssueRef> = own.map(|issue| (*issue).clone()).collect();
        if issues.is_empty() {
            continue;
        }
        match account.closed_issues(&issues).await {
            Ok(found) => closed.extend(found),
            Err(error) => {
                tracing::warn!(account = account.name(), %error, "Failed to read the states of issues with a machine.");
            }
        }
    }
    closed
}

/// Records the machines to destroy and enqueues their destruction; a dry run only records them.
async fn destroy(app: &App, doomed: Vec<(Machine, ReaperRule)>, now: Timestamp) -> StoreResult<()> {
    let outcome = match app.core.config.reaper.dry_run {
        true => ReapOutcome::DryRun,
        false => ReapOutcome::Destroyed,
    };
    let doomed = app.core.store.read(|tx| {
        let mut pending = Vec::new();
        for (machine, rule) in doomed {
            let is_recorded = reaper_log::is_recorded(tx, &machine.id, rule, outcome)?;
            if outcome == ReapOutcome::Destroyed || !is_recorded {
                pending.push((machine, rule));
            }
        }
        Ok(pending)
    })?;
    if doomed.is_empty() {
        return Ok(());
    }
    let (policy, threshold) = (
        BreakerPolicy::from_config(&app.core.config),
        app.core.config.reaper.alert_threshold.unwrap_or(u32::MAX),
    );
    for (machine, rule) in &doomed {
        tracing::info!(machine_id = machine.id, job_id = %machine.labels.job, issue = machine.labels.issue.as_ref().map(IssueKey::as_str), team = machine.labels.team.as_ref().map(TeamKey::as_str), rule = rule.as_str(), dry_run = outcome == ReapOutcome::DryRun, "Reaper selected a machine to destroy.");
    }
    let rules: Vec<ReaperRule> = doomed.iter().map(|(_, rule)| *rule).collect();
    let write = app.core.store.write(move |tx| {
        let mut counts: BTreeMap<ReaperRule, usize> = BTreeMap::new();
        for (machine, rule) in &doomed {
            reaper_log::record(tx, &action(machine, *rule, outcome, now))?;
            if outcome == ReapOutcome::Destroyed {
                enqueue_destroy(tx, policy, machine, event(*rule), now)?;
                let audit_event =
                    Actor::service().audit_event(Action::MachineDestroyed, machine.reference());
                let details = audit_details(
                    rule.as_str(),
                    &machine.labels.job,
                    machine.labels.issue.as_ref(),
                );
                audit::append(tx, &audit_event.with_detail(details), now)?;
                *counts.entry(*rule).or_default() += 1;
            }
        }
        if counts.values().sum::<usize>() >= threshold as usize {
            let message = comments::chat_reaped(&counts);
            outbox::push(tx, &Effect::Chat { message }, now)?;
        }
        Ok(())
    });
    write.await?;
    if outcome == ReapOutcome::Destroyed {
        rules
            .iter()
            .for_each(|rule| app.live.metrics.count_destroyed(*rule));
    }
    Ok(())
}

/// Details of a destruction for the audit.
fn audit_details(why: &str, job: &JobId, issue: Option<&IssueKey>) -> String {
    let issue = issue.map_or("no issue", IssueKey::as_str);
    format!("{why}, run {job} of {issue}")
}

fn action(
    machine: &Machine,
    rule: ReaperRule,
    outcome: ReapOutcome,
    now: Timestamp,
) -> ReaperAction {
    ReaperAction {
        at: now,
        rule,
        machine_id: machine.id.clone(),
        tenant: machine.labels.team.clone(),
        issue: machine.labels.issue.clone(),
        age_seconds: now.since(machine.created_at).as_secs(),
        outcome,
    }
}

fn event(rule: ReaperRule) -> JobEvent {
    match rule {
        ReaperRule::IssueTerminal => JobEvent::IssueClosed,
        ReaperRule::Orphan | ReaperRule::StaleTerminalJob | ReaperRule::MaxAgeExceeded => {
            JobEvent::Cancelled {
                by: format!("the reaper ({})", rule.as_str()),
                then: AfterCancel::Release,
            }
        }
    }
}

/// Enqueues the destruction of a machine, in the transaction that applies the event to its job. If
/// the job knows the machine, the end of the job enqueues the destruction. See
/// docs/behaviour.md#reaper.
///
/// # Errors
/// Fails if the store cannot be written.
fn enqueue_destroy(
    tx: &WriteTx<'_>,
    policy: BreakerPolicy,
    machine: &Machine,
    event: JobEvent,
    now: Timestamp,
) -> StoreResult<()> {
    let job = job_of_machine(tx, machine)?;
    let mut is_enqueued = false;
    if let Some(job) = job.as_ref().filter(|job| job.is_active()) {
        job_events::apply(tx, policy, &job.id, event, now)?;
        is_enqueued = job.run.is_some();
    }
    if job.is_none() {
        reset_issue(tx, machine, now)?;
    }
    if is_enqueued {
        return Ok(());
    }
    outbox::push(tx, &destruction(machine, job.as_ref()), now).map(drop)
}

/// Outcome of an operator's request to destroy a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DestroyOutcome {
    /// The machine is destroyed, or its destruction is still in progress.
    Destroyed,
    /// The host rejected the destruction with this error; it is retried.
    Retrying(String),
    /// A host that may have the machine did not respond.
    Unanswered(HostKind, String),
}

impl DestroyOutcome {
    fn failed((host, error): (HostKind, SessionHostError)) -> Self {
        match error.is_unanswered() {
            true => DestroyOutcome::Unanswered(host, error.to_string()),
            false => DestroyOutcome::Retrying(error.to_string()),
        }
    }
}

/// Destroys the machine with this ID on behalf of an operator, and waits up to `max_wait`. A
/// machine that does not exist, or does not belong to this service, counts as destroyed.
///
/// # Errors
/// Fails if the store cannot be read or written.
pub async fn destroy_session(
    app: &App,
    actor: Actor,
    id: &str,
    max_wait: Duration,
) -> StoreResult<DestroyOutcome> {
    let of_job = app.core.store.read(|tx| {
        let active = jobs::active(tx)?.into_iter();
        let mut on_machines =
            active.filter_map(|job| machine_of(&job).map(|machine| (job, machine)));
        Ok(on_machines.find(|(_, machine)| machine.id == id))
    })?;
    let (policy, now) = (BreakerPolicy::from_config(&app.core.config), app.core.now());
    let last_seq = app.core.store.read(outbox::last_seq)?;
    if let Some((job, machine)) = of_job {
        let audit_event = actor.audit_event(Action::SessionDestroyed, id);
        let details = audit_details("requested", &job.id, Some(&job.issue.key));
        let audit_event = audit_event.with_detail(details);
        let outcome = app.core.store.write(move |tx| {
            audit::append(tx, &audit_event, now)?;
            control::cancel_run(tx, policy, &job.id, &actor, AfterCancel::Release, now)
        });
        job_events::log_job_end(&outcome.await?, now);
        return Ok(wait_for_destruction(app, &machine, last_seq, max_wait).await);
    }
    let Sweep {
        machines, failure, ..
    } = list_machines(app).await;
    let Some(machine) = machines.into_iter().find(|machine| machine.id == id) else {
        return Ok(failure.map_or(DestroyOutcome::Destroyed, DestroyOutcome::failed));
    };
    let reference = machine.reference();
    let event = control::cancel_event(&actor, AfterCancel::Release);
    let audit_event = actor.audit_event(Action::SessionDestroyed, id);
    let audit_event = audit_event.with_detail(audit_details(
        "requested",
        &machine.labels.job,
        machine.labels.issue.as_ref(),
    ));
    let enqueued = app.core.store.write(move |tx| {
        audit::append(tx, &audit_event, now)?;
        enqueue_destroy(tx, policy, &machine, event.clone(), now)
    });
    enqueued.await?;
    Ok(wait_for_destruction(app, &reference, last_seq, max_wait).await)
}

fn machine_of(job: &Job) -> Option<MachineRef> {
    job.run.as_ref().and_then(RunHandle::machine)
}

/// Waits until a destruction enqueued after `since` is done, or its host has rejected it. After
/// `max_wait` it continues in the background.
async fn wait_for_destruction(
    app: &App,
    machine: &MachineRef,
    since: u64,
    max_wait: Duration,
) -> DestroyOutcome {
    let waiting = async {
        let attempted = app.live.notifiers.await_effects(|| {
            let pending = app.core.store.read(outbox::pending)?;
            let is_destruction =
                |entry: &OutboxEntry| entry.seq > since && destroys_machine(&entry.effect, machine);
            let entry = pending.into_iter().find(is_destruction);
            Ok::<_, StoreError>(match entry.map(|entry| entry.last_error) {
                None => Some(None),
                Some(Some(error)) => Some(Some(error)),
                Some(None) => None,
            })
        });
        match attempted.await {
            Ok(Some(error)) => pending_outcome(&app.vendors, machine.host, error).await,
            // Without the store, the destruction continues in the background.
            Ok(None) | Err(_) => DestroyOutcome::Destroyed,
        }
    };
    let waited = timeout(max_wait, waiting).await;
    waited.unwrap_or(DestroyOutcome::Destroyed)
}

/// Outcome of a failed attempt. The outbox stores only the error, so the host is requested again to
/// find out whether it responds.
async fn pending_outcome(vendors: &Vendors, host: HostKind, error: String) -> DestroyOutcome {
    match vendors.sessions.list(host).await {
        Err(list_error) if list_error.is_unanswered() => DestroyOutcome::Unanswered(host, error),
        _ => DestroyOutcome::Retrying(error),
    }
}

fn destroys_machine(effect: &Effect, wanted: &MachineRef) -> bool {
    matches!(effect, Effect::DestroyMachine { machine, .. } if machine == wanted)
}

/// Destruction of a machine. Without an issue it does not wait for the effects of the ticket.
fn destruction(machine: &Machine, job: Option<&Job>) -> Effect {
    Effect::DestroyMachine {
        machine: machine.reference(),
        job: job.map(|job| job.id.clone()),
        issue: None,
    }
}

/// Moves the issue of a machine without a job back to its trigger stage, and removes its dedup
/// entry.
fn reset_issue(tx: &WriteTx<'_>, machine: &Machine, now: Timestamp) -> StoreResult<()> {
    let Some(key) = &machine.labels.issue else {
        return Ok(());
    };
    let mut entries = dedup::all(tx)?.into_iter();
    let Some(entry) = entries.find(|entry| entry.issue.key == *key) else {
        return Ok(());
    };
    if jobs::of_issue(tx, &entry.issue.id)?
        .iter()
        .any(Job::is_active)
    {
        return Ok(());
    }
    dedup::remove(tx, &entry.issue.id)?;
    let marker = Effect::SetMarker {
        issue: entry.issue,
        stage: Stage::Triggered,
    };
    outbox::push(tx, &marker, now).map(drop)
}

/// Removes the reaper's records of machines that no longer exist.
async fn remove_old_records(core: &Core, existing: &HashSet<String>) -> StoreResult<()> {
    let mut gone = core.store.read(reaper_log::recorded_machines)?;
    gone.retain(|machine| !existing.contains(machine));
    if gone.is_empty() {
        return Ok(());
    }
    let write = core.store.write(move |tx| {
        gone.iter()
            .try_for_each(|machine| reaper_log::remove_machine(tx, machine))
    });
    write.await
}
