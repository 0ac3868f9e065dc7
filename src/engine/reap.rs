//! Machines that nobody needs any more.
//!
//! Every machine and container that carries our stamp is held against the rules of
//! `domain::reaping`. What is to go is noted and owed in one commit, with what it means for its job;
//! a host that does not answer is left alone. At the start of the service this also settles what
//! happened while it was down.

use std::collections::{BTreeMap, HashSet};
use std::pin::pin;
use std::time::Duration;

use tokio::time::timeout;

use crate::app::App;
use domain::audit::{Action as Did, Actor};
use domain::comments;
use domain::effect::Effect;
use domain::ids::{IssueId, IssueKey, JobId, TeamKey};
use domain::issue::IssueRef;
use domain::job::{Job, RunHandle};
use domain::machine::{HostKind, Machine, MachineRef};
use domain::reaper::{self, IssueStatus, ReapOutcome, ReaperRule};
use domain::stage::Stage;
use domain::time::Timestamp;
use domain::transition::JobEvent;
use store::outbox::OutboxEntry;
use store::reaper_log::{self, ReaperAction};
use store::{ReadableTx, StoreResult, WriteTx, audit, dedup, jobs, outbox};
use vendors::session_hosts::SessionHostError;

use super::job_events::{self, BreakerPolicy};

/// What one sweep saw.
struct Sweep {
    machines: Vec<Machine>,
    /// The host that did not list its machines, and why.
    failure: Option<(HostKind, SessionHostError)>,
}

/// Looks once at every machine of ours.
pub async fn run_once(app: &App) -> StoreResult<()> {
    let Sweep { machines, failure } = look(app).await;
    let now = app.now();
    let (machines, lanes) = app.store.read(|tx| {
        let with_job = |machine: Machine| Ok((job_in(tx, &machine)?, machine));
        let machines = machines.into_iter().map(with_job);
        Ok((
            machines.collect::<StoreResult<Vec<_>>>()?,
            outbox::queue_keys(tx)?,
        ))
    })?;
    let known = machines.iter().filter_map(|(job, _)| job.as_ref());
    let closed = closed(app, known).await;
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
        let is_owed = lanes.contains(&destruction(machine, None).queue_key());
        (!is_owed).then(|| (machine.clone(), rule))
    });
    let doomed: Vec<(Machine, ReaperRule)> = doomed.collect();
    let there: HashSet<String> = machines
        .into_iter()
        .map(|(_, machine)| machine.id)
        .collect();
    if failure.is_none() {
        forget(app, &there).await?;
    }
    settle(app, doomed, now).await?;
    app.heartbeats.record_sweep(app.now());
    Ok(())
}

async fn look(app: &App) -> Sweep {
    let mut sweep = Sweep {
        machines: Vec::new(),
        failure: None,
    };
    for (host, listed) in app.sessions.list_all().await {
        match listed {
            Ok(machines) => {
                let made = machines.iter().map(|machine| machine.created_at);
                app.metrics.set_host_machines(host, made);
                sweep.machines.extend(machines);
            }
            Err(error) => {
                tracing::warn!(host = host.as_str(), %error, "Machines could not be listed; none is touched.");
                sweep.failure = Some((host, error));
            }
        }
    }
    sweep
}

/// The job that a machine is for. A job whose run is elsewhere does not need this one.
fn job_in(tx: &impl ReadableTx, machine: &Machine) -> StoreResult<Option<Job>> {
    let job = jobs::get(tx, &machine.labels.job)?;
    Ok(job.filter(|job| is_for(job, machine)))
}

fn is_for(job: &Job, machine: &Machine) -> bool {
    job.run
        .as_ref()
        .is_none_or(|run| run.machine().is_some_and(|own| own == machine.reference()))
}

/// Which of the jobs' issues are closed. An issue that the last poll showed is open; of the others
/// only their system knows.
async fn closed<'a>(app: &App, jobs: impl Iterator<Item = &'a Job>) -> HashSet<IssueId> {
    let sightings = app.poll_snapshots.all();
    let flagged: HashSet<&IssueId> = sightings
        .values()
        .flat_map(|sighting| sighting.issues.iter())
        .map(|sighted| &sighted.issue.issue.id)
        .collect();
    // Work on an open pull request outlives its ticket.
    let unseen: Vec<&IssueRef> = jobs
        .filter(|job| job.kind.phase().is_some())
        .map(|job| &job.issue)
        .filter(|issue| !flagged.contains(&issue.id))
        .collect();
    let mut closed = HashSet::new();
    for account in &app.ticketing {
        let own = unseen
            .iter()
            .filter(|issue| issue.system == account.system());
        let asked: Vec<IssueRef> = own.map(|issue| (*issue).clone()).collect();
        if asked.is_empty() {
            continue;
        }
        match account.closed_issues(&asked).await {
            Ok(found) => closed.extend(found),
            Err(error) => {
                tracing::warn!(account = account.name(), %error, "The states of issues with a machine could not be read.");
            }
        }
    }
    closed
}

/// Notes what is to go and owes it; in a dry run it is only noted.
async fn settle(app: &App, doomed: Vec<(Machine, ReaperRule)>, now: Timestamp) -> StoreResult<()> {
    let badge = match app.config.reaper.dry_run {
        true => ReapOutcome::DryRun,
        false => ReapOutcome::Destroyed,
    };
    let doomed = app.store.read(|tx| {
        let mut news = Vec::new();
        for (machine, rule) in doomed {
            let is_noted = reaper_log::is_recorded(tx, &machine.id, rule, badge)?;
            if badge == ReapOutcome::Destroyed || !is_noted {
                news.push((machine, rule));
            }
        }
        Ok(news)
    })?;
    if doomed.is_empty() {
        return Ok(());
    }
    let (policy, threshold) = (
        BreakerPolicy::from_config(&app.config),
        app.config.reaper.alert_threshold.unwrap_or(u32::MAX),
    );
    for (machine, rule) in &doomed {
        tracing::info!(machine_id = machine.id, job_id = %machine.labels.job, issue = machine.labels.issue.as_ref().map(IssueKey::as_str), team = machine.labels.team.as_ref().map(TeamKey::as_str), rule = rule.as_str(), dry_run = badge == ReapOutcome::DryRun, "A machine is to be destroyed.");
    }
    let rules: Vec<ReaperRule> = doomed.iter().map(|(_, rule)| *rule).collect();
    let write = app.store.write(move |tx| {
        let mut counts: BTreeMap<ReaperRule, usize> = BTreeMap::new();
        for (machine, rule) in &doomed {
            reaper_log::record(tx, &action(machine, *rule, badge, now))?;
            if badge == ReapOutcome::Destroyed {
                enqueue_destroy(tx, policy, machine, event(*rule), now)?;
                let deed = Actor::service().audit_event(Did::MachineDestroyed, machine.reference());
                let told = told(
                    rule.as_str(),
                    &machine.labels.job,
                    machine.labels.issue.as_ref(),
                );
                audit::append(tx, &deed.with_detail(told), now)?;
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
    if badge == ReapOutcome::Destroyed {
        rules
            .iter()
            .for_each(|rule| app.metrics.count_destroyed(*rule));
    }
    Ok(())
}

/// What the audit says of a machine's end.
fn told(why: &str, job: &JobId, issue: Option<&IssueKey>) -> String {
    let issue = issue.map_or("no issue", IssueKey::as_str);
    format!("{why}, run {job} of {issue}")
}

fn action(machine: &Machine, rule: ReaperRule, badge: ReapOutcome, now: Timestamp) -> ReaperAction {
    ReaperAction {
        at: now,
        rule,
        machine_id: machine.id.clone(),
        tenant: machine.labels.team.clone(),
        issue: machine.labels.issue.clone(),
        age_seconds: now.since(machine.created_at).as_secs(),
        outcome: badge,
    }
}

fn event(rule: ReaperRule) -> JobEvent {
    match rule {
        ReaperRule::IssueTerminal => JobEvent::IssueClosed,
        ReaperRule::Orphan | ReaperRule::StaleTerminalJob | ReaperRule::MaxAgeExceeded => {
            JobEvent::Cancelled {
                by: format!("the reaper ({})", rule.as_str()),
            }
        }
    }
}

/// Owes the end of a machine, in the commit that tells its job; the job's own end takes down the
/// machine that it knows. (spec: *Other state rules* 2)
pub fn enqueue_destroy(
    tx: &WriteTx<'_>,
    policy: BreakerPolicy,
    machine: &Machine,
    event: JobEvent,
    now: Timestamp,
) -> StoreResult<()> {
    let job = job_in(tx, machine)?;
    let mut is_owed = false;
    if let Some(job) = job.as_ref().filter(|job| job.is_active()) {
        job_events::apply(tx, policy, &job.id, event, now)?;
        is_owed = job.run.is_some();
    }
    if job.is_none() {
        free_issue(tx, machine, now)?;
    }
    if is_owed {
        return Ok(());
    }
    outbox::push(tx, &destruction(machine, job.as_ref()), now).map(drop)
}

/// What came of an operator's wish.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DestroyOutcome {
    Destroyed,
    /// What its host said; it is tried again.
    Retrying(String),
    /// Why a host that may have the machine gave no answer.
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

/// Takes the machine of this id down because an operator wants it, and waits a while for its end.
/// One that is gone already, or is none of ours, counts as taken down.
///
/// # Errors
/// When it cannot be stored.
pub async fn destroy_session(
    app: &App,
    by: Actor,
    id: &str,
    patience: Duration,
) -> StoreResult<DestroyOutcome> {
    let of_job = app.store.read(|tx| {
        let active = jobs::active(tx)?.into_iter();
        let mut in_machines =
            active.filter_map(|job| machine_of(&job).map(|machine| (job, machine)));
        Ok(in_machines.find(|(_, machine)| machine.id == id))
    })?;
    let (policy, now) = (BreakerPolicy::from_config(&app.config), app.now());
    let owed_before = app.store.read(outbox::last_seq)?;
    let event = JobEvent::Cancelled {
        by: "an operator".to_owned(),
    };
    if let Some((job, machine)) = of_job {
        let deed = by.audit_event(Did::SessionDestroyed, id);
        let deed = deed.with_detail(told("asked for", &job.id, Some(&job.issue.key)));
        let told = app.store.write(move |tx| {
            audit::append(tx, &deed, now)?;
            job_events::apply(tx, policy, &job.id, event.clone(), now)
        });
        job_events::log_job_end(&told.await?, now);
        return Ok(waited(app, &machine, owed_before, patience).await);
    }
    let Sweep {
        machines, failure, ..
    } = look(app).await;
    let Some(machine) = machines.into_iter().find(|machine| machine.id == id) else {
        return Ok(failure.map_or(DestroyOutcome::Destroyed, DestroyOutcome::failed));
    };
    let known = machine.reference();
    let deed = by.audit_event(Did::SessionDestroyed, id);
    let deed = deed.with_detail(told(
        "asked for",
        &machine.labels.job,
        machine.labels.issue.as_ref(),
    ));
    let owed = app.store.write(move |tx| {
        audit::append(tx, &deed, now)?;
        enqueue_destroy(tx, policy, &machine, event.clone(), now)
    });
    owed.await?;
    Ok(waited(app, &known, owed_before, patience).await)
}

fn machine_of(job: &Job) -> Option<MachineRef> {
    job.run.as_ref().and_then(RunHandle::machine)
}

/// Waits until the end of a machine that is owed since is done, or its host has refused it. Longer
/// than that it goes on by itself.
async fn waited(app: &App, machine: &MachineRef, since: u64, patience: Duration) -> DestroyOutcome {
    let waiting = async {
        loop {
            let mut settled = pin!(app.notifiers.effect_settled.notified());
            // From here on no bell is missed.
            settled.as_mut().enable();
            let pending = app.store.read(outbox::pending).unwrap_or_default();
            let is_owed =
                |errand: &OutboxEntry| errand.seq > since && is_end_of(&errand.effect, machine);
            let owed = pending.into_iter().find(is_owed);
            match owed.map(|errand| errand.last_error) {
                None => return DestroyOutcome::Destroyed,
                Some(Some(error)) => return why_not_yet(app, machine.host, error).await,
                Some(None) => settled.await,
            }
        }
    };
    let waited = timeout(patience, waiting).await;
    waited.unwrap_or(DestroyOutcome::Destroyed)
}

/// The outbox keeps what the host said, and not whether it said anything.
async fn why_not_yet(app: &App, host: HostKind, error: String) -> DestroyOutcome {
    match app.sessions.list(host).await {
        Err(silent) if silent.is_unanswered() => DestroyOutcome::Unanswered(host, error),
        _ => DestroyOutcome::Retrying(error),
    }
}

fn is_end_of(effect: &Effect, wanted: &MachineRef) -> bool {
    matches!(effect, Effect::DestroyMachine { machine, .. } if machine == wanted)
}

/// It waits for nothing that its ticket is owed.
fn destruction(machine: &Machine, job: Option<&Job>) -> Effect {
    Effect::DestroyMachine {
        machine: machine.reference(),
        job: job.map(|job| job.id.clone()),
        issue: None,
    }
}

/// An issue that waits for a machine without a job waits for nothing.
fn free_issue(tx: &WriteTx<'_>, machine: &Machine, now: Timestamp) -> StoreResult<()> {
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
    let freed = Effect::SetMarker {
        issue: entry.issue,
        stage: Stage::Triggered,
    };
    outbox::push(tx, &freed, now).map(drop)
}

/// What was noted about machines that are no more is forgotten.
async fn forget(app: &App, there: &HashSet<String>) -> StoreResult<()> {
    let mut gone = app.store.read(reaper_log::recorded_machines)?;
    gone.retain(|machine| !there.contains(machine));
    if gone.is_empty() {
        return Ok(());
    }
    let write = app.store.write(move |tx| {
        gone.iter()
            .try_for_each(|machine| reaper_log::remove_machine(tx, machine))
    });
    write.await
}
