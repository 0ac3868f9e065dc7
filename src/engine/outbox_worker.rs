//! Outbox worker: performs all effects on vendors. No other module changes vendors.
//!
//! Each attempt is claimed in its own transaction before the vendor is called, so that a crash in
//! between leaves an attempt with an unknown outcome. The outcome is recorded in one transaction
//! with its consequence for the job. Queue keys are processed concurrently, each strictly in order.
//!
//! A single process holds the store and runs a single worker, so no other component claims entries.
//! A queue key is marked busy before it is read again.

use std::collections::HashSet;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::task::JoinSet;
use tracing::{Instrument, Span};

use crate::app::{App, Core};
use domain::effect::Effect;
use domain::feedback::PullRequestId;
use domain::ids::{JobId, TeamKey};
use domain::merge_policy::MergeEvent;
use domain::templates::SyncReport;
use domain::transition::{FailureKind, JobEvent};
use store::crash_injection::CrashPoint;
use store::outbox::{self, FailedAttempt, OutboxEntry};
use store::template_syncs::{self, SyncRecord};
use store::{DiskSpace, StoreResult, jobs};
use vendors::http::LONGEST_PAUSE;

use super::effects::{self, EffectFailure, EffectOutcome, PullEvent};
use super::job_events::{self, BreakerPolicy};
use super::periodic_task::{HEARTBEAT_GRACE, ShutdownSignal};
use super::pull_requests::merge;
use super::standby::Standby;

/// Maximum number of queue keys processed concurrently. GitHub allows a hundred requests at once, and reads need some.
const MAX_CONCURRENT_KEYS: usize = 32;

/// Minimum delay before an effect is retried.
const MIN_RETRY_DELAY: Duration = Duration::from_millis(50);

/// Timeout of one attempt. Longer than the timeouts of all its requests together.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(180);

/// Maximum time between two checks of the outbox, which also bounds the time between heartbeats.
const CHECK_INTERVAL: Duration = Duration::from_secs(30);

/// Name of the worker's heartbeat.
const NAME: &str = "outbox";

/// Performs outbox entries until shutdown is requested, then waits for the attempts in progress.
pub async fn run(app: App, stop: ShutdownSignal) {
    let mut busy: HashSet<String> = HashSet::new();
    let mut attempts: JoinSet<(String, StoreResult<()>)> = JoinSet::new();
    // Time of the previous check. The clock may also have been set back before the start.
    let mut checked_at = None;
    while !stop.is_requested() {
        let now = app.core.now();
        let may_be_set_back = checked_at.replace(now).is_none_or(|before| now < before);
        if may_be_set_back && let Err(error) = reschedule_after_clock_step(&app.core).await {
            tracing::error!(%error, "Failed to reschedule outbox entries after a backward clock step.");
            checked_at = None;
        }
        app.live
            .heartbeats
            .expect_within(NAME, CHECK_INTERVAL + HEARTBEAT_GRACE);
        let is_open = app.live.standby.as_ref().is_none_or(Standby::is_open);
        if is_open && let Err(error) = start_due(&app, &mut busy, &mut attempts) {
            tracing::error!(%error, "Failed to read the outbox.");
        }
        tokio::select! {
            () = app.core.store.outbox_notifier().notified() => {}
            () = until_next_due(&app, is_open) => {}
            () = tokio::time::sleep(CHECK_INTERVAL) => {}
            Some(ended) = attempts.join_next() => release(ended, &mut busy),
            () = stop.requested() => {}
        }
    }
    app.live.heartbeats.retire(NAME);
    while let Some(ended) = attempts.join_next().await {
        release(ended, &mut busy);
    }
}

/// Performs everything that is due, sequentially, until nothing is due. For tests that drive the
/// engine step by step.
///
/// # Errors
/// Fails if the store cannot be read or written.
pub async fn drain(app: &App) -> StoreResult<()> {
    loop {
        let due = app
            .core
            .store
            .read(|tx| outbox::due(tx, app.core.now(), MAX_CONCURRENT_KEYS, |_| false))?;
        if due.is_empty() {
            return Ok(());
        }
        for (queue_key, seq) in due {
            attempt(&app.latest(), &queue_key, seq).await?;
        }
    }
}

/// Makes entries due now that are scheduled later than any delay allows: the clock was set back
/// after they were scheduled. An early attempt does no harm.
async fn reschedule_after_clock_step(core: &Core) -> StoreResult<()> {
    let now = core.now();
    let rescheduled = core
        .store
        .write(move |tx| outbox::reschedule_beyond(tx, now + LONGEST_PAUSE, now))
        .await?;
    if rescheduled > 0 {
        tracing::warn!(
            queue_keys = rescheduled,
            "The clock was set back; rescheduled outbox entries to be performed now."
        );
    }
    Ok(())
}

fn start_due(
    app: &App,
    busy: &mut HashSet<String>,
    attempts: &mut JoinSet<(String, StoreResult<()>)>,
) -> StoreResult<()> {
    // If the disk is full, the outcome could not be recorded. The entries stay due.
    if let DiskSpace::Full(_) = app.core.store.disk_space() {
        return Ok(());
    }
    let free = MAX_CONCURRENT_KEYS.saturating_sub(busy.len());
    let due = app.core.store.read(|tx| {
        outbox::due(tx, app.core.now(), free, |queue_key| {
            busy.contains(queue_key)
        })
    })?;
    for (queue_key, seq) in due {
        busy.insert(queue_key.clone());
        let app = app.latest();
        attempts.spawn(async move {
            let result = attempt(&app, &queue_key, seq).await;
            (queue_key, result)
        });
    }
    Ok(())
}

fn release(
    ended: Result<(String, StoreResult<()>), tokio::task::JoinError>,
    busy: &mut HashSet<String>,
) {
    match ended {
        Ok((queue_key, result)) => {
            busy.remove(&queue_key);
            if let Err(error) = result {
                tracing::error!(queue_key, %error, "Failed to record outbox entry outcome.");
            }
        }
        // Panics are caught inside; a task is aborted only when the process ends.
        Err(error) => tracing::error!(%error, "Attempt of an outbox entry ended unexpectedly."),
    }
}

/// Resolves when an entry becomes due. While the standby permits nothing, resolves when it does: entries that are due
/// already wait for it.
async fn until_next_due(app: &App, is_open: bool) {
    if let Some(standby) = &app.live.standby
        && !is_open
    {
        return standby.opened().await;
    }
    let core = &app.core;
    let next = core
        .store
        .read(|tx| outbox::next_due(tx, core.now()))
        .ok()
        .flatten();
    match next {
        Some(due) => tokio::time::sleep(due.since(core.now()) + Duration::from_millis(1)).await,
        None => std::future::pending().await,
    }
}

/// Claims, performs and settles an outbox entry. With a standby, the claim is at its place before the effect is performed.
async fn attempt(app: &App, queue_key: &str, seq: u64) -> StoreResult<()> {
    let (claimed_key, now) = (queue_key.to_owned(), app.core.now());
    let Some(entry) = app
        .core
        .store
        .write(move |tx| outbox::claim(tx, &claimed_key, seq, now))
        .await?
    else {
        return Ok(());
    };
    let span = span(&app.core, &entry);
    let permitted = match &app.live.standby {
        Some(standby) => standby.permit().await,
        None => Ok(()),
    };
    match permitted {
        Ok(()) => perform(app, entry).instrument(span).await,
        Err(reason) => {
            let postponed = EffectOutcome::Postponed(reason);
            settle(app, entry, postponed).instrument(span).await
        }
    }
}

/// Log span of an outbox entry.
fn span(core: &Core, entry: &OutboxEntry) -> Span {
    let (job, issue) = entry.effect.job_and_issue();
    // An effect that names only its issue is logged with the last job of the issue.
    let known = core.store.read(|tx| match (job, issue) {
        (Some(job), _) => jobs::get(tx, job),
        (None, Some(issue)) => Ok(jobs::of_issue(tx, &issue.id)?.pop()),
        (None, None) => Ok(None),
    });
    let known = known.ok().flatten();
    let team = match &entry.effect {
        Effect::SyncWorkflows { team, .. } => Some(team),
        _ => known.as_ref().map(|job| &job.team),
    };
    let of_job = known.as_ref().map(|job| &job.issue);
    tracing::info_span!(
        "effect",
        effect = entry.effect.name(),
        queue_key = entry.queue_key,
        attempt = entry.attempts,
        job_id = known.as_ref().map(|job| job.id.as_str()),
        issue = issue.or(of_job).map(|issue| issue.key.as_str()),
        team = team.map(TeamKey::as_str),
    )
}

/// Performs an effect, at the latest until the lease of the standby ends, and records the outcome.
async fn perform(app: &App, entry: OutboxEntry) -> StoreResult<()> {
    let points = CrashPoints::of(&entry.effect);
    app.core.crash_plan.crash_if_planned(points.claimed);
    let performing = AssertUnwindSafe(tokio::time::timeout(
        ATTEMPT_TIMEOUT,
        effects::perform(app, &entry),
    ))
    .catch_unwind();
    let outcome = tokio::select! {
        // The lease is checked before each step of the effect.
        biased;
        () = lapsed(app.live.standby.as_ref()) => {
            interrupted("the lease in the place of the standby ended")
        }
        outcome = performing => match outcome {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(_)) => interrupted("the attempt timed out"),
            Err(_) => interrupted("the attempt panicked"),
        },
    };
    app.core.crash_plan.crash_if_planned(points.done);
    settle(app, entry, outcome).await?;
    app.live.notifiers.effect_settled.notify_waiters();
    app.core.crash_plan.crash_if_planned(points.settled);
    Ok(())
}

/// Resolves when the lease of the standby has ended, if there is one.
async fn lapsed(standby: Option<&Standby>) {
    match standby {
        Some(standby) => standby.lapsed().await,
        None => std::future::pending().await,
    }
}

fn interrupted(error: &str) -> EffectOutcome {
    EffectOutcome::Failed(EffectFailure {
        error: error.to_owned(),
        cause: FailureKind::Transient,
        is_outcome_unknown: true,
        retry_after: None,
    })
}

async fn settle(app: &App, entry: OutboxEntry, outcome: EffectOutcome) -> StoreResult<()> {
    let now = app.core.now();
    log_outcome(&outcome);
    match outcome {
        EffectOutcome::Done | EffectOutcome::Gone(_) => {
            let requires_run =
                matches!(&entry.effect, Effect::SetMarker { stage, .. } if stage.requires_run());
            app.core
                .store
                .write(move |tx| outbox::complete(tx, &entry, now))
                .await?;
            if requires_run {
                app.live.notifiers.poll.notify_one();
            }
            Ok(())
        }
        EffectOutcome::JobEvent(job, event) => settle_with_event(app, entry, job, *event).await,
        EffectOutcome::PullEvent(pull, event) => {
            settle_with_pull_event(app, entry, pull, event).await
        }
        EffectOutcome::Synced(team, report) => {
            settle_synced(&app.core, entry, team, Ok(report)).await
        }
        EffectOutcome::Postponed(why) => {
            settle_failure(app, entry, EffectFailure::transient(why)).await
        }
        EffectOutcome::Failed(failure) => settle_failure(app, entry, failure).await,
    }
}

/// Completes the entry and applies its event to the job, in one transaction.
async fn settle_with_event(
    app: &App,
    entry: OutboxEntry,
    job: JobId,
    event: JobEvent,
) -> StoreResult<()> {
    let (now, policy) = (app.core.now(), BreakerPolicy::from_config(&app.core.config));
    let started = match (&entry.effect, &event) {
        (Effect::StartRun { issue, .. }, JobEvent::Started { .. }) => Some(issue.id.clone()),
        _ => None,
    };
    let settled = app.core.store.write(move |tx| {
        outbox::complete(tx, &entry, now)?;
        job_events::apply(tx, policy, &job, event.clone(), now)
    });
    job_events::log_job_end(&settled.await?, now);
    if let Some(issue) = started {
        app.live.metrics.observe_dispatch(&issue, now);
    }
    Ok(())
}

/// Completes the entry and applies its event to the pull request, in one transaction.
async fn settle_with_pull_event(
    app: &App,
    entry: OutboxEntry,
    pull: PullRequestId,
    event: PullEvent,
) -> StoreResult<()> {
    let now = app.core.now();
    let changed = pull.clone();
    let is_undecided = matches!(
        event,
        PullEvent::Merge(MergeEvent::Outdated | MergeEvent::NotWanted | MergeEvent::Disarmed)
    );
    let settled = app.core.store.write(move |tx| {
        outbox::complete(tx, &entry, now)?;
        match &event {
            PullEvent::Merge(event) => merge::record_outcome(tx, &pull, event, now),
            PullEvent::BranchDeleted(branch) => merge::record_deletion(tx, &pull, branch, now),
        }
    });
    settled.await?;
    if is_undecided {
        // The state at GitHub has changed. The next cycle reads it and decides about it.
        app.live.reconciliation.note_changed(vec![changed]);
        app.live.notifiers.follow_up.notify_one();
    }
    Ok(())
}

/// Completes the entry and stores the sync report of the project, in one transaction.
async fn settle_synced(
    core: &Core,
    entry: OutboxEntry,
    team: TeamKey,
    outcome: Result<SyncReport, String>,
) -> StoreResult<()> {
    let at = core.now();
    let synced = SyncRecord { at, outcome };
    core.store
        .write(move |tx| {
            outbox::complete(tx, &entry, at)?;
            template_syncs::put(tx, &team, &synced)
        })
        .await
}

async fn settle_failure(app: &App, entry: OutboxEntry, failure: EffectFailure) -> StoreResult<()> {
    let (now, policy) = (app.core.now(), app.core.timings.effect_retry);
    let give_up_at = entry.retry_window_start() + policy.timeout;
    let is_final = failure.cause == FailureKind::Permanent || now >= give_up_at;
    if !is_final {
        let delay = policy.delay(entry.attempts, failure.retry_after, fastrand::f64());
        let due_at = now + delay.max(MIN_RETRY_DELAY);
        let retry = FailedAttempt {
            ended_at: now,
            // An entry is given up only after an attempt, so the last one is made by then.
            due_at: due_at.min(give_up_at),
            is_outcome_unknown: failure.is_outcome_unknown,
            error: failure.error,
        };
        return app
            .core
            .store
            .write(move |tx| outbox::schedule_retry(tx, &entry, &retry))
            .await;
    }
    match entry.effect.clone() {
        // A start that is given up ends its job, which reports more to people than a dead entry.
        Effect::StartRun { job, .. } => {
            let event = effects::start_refused_event(failure.cause, None, &failure.error);
            settle_with_event(app, entry, job, event).await
        }
        Effect::SyncWorkflows { team, .. } => {
            settle_synced(&app.core, entry, team, Err(failure.error)).await
        }
        _ => {
            tracing::error!(
                error = failure.error,
                "Gave up on outbox entry. Retry or drop it in the panel."
            );
            app.core
                .store
                .write(move |tx| outbox::mark_dead(tx, &entry, &failure.error, now))
                .await
        }
    }
}

fn log_outcome(outcome: &EffectOutcome) {
    match outcome {
        EffectOutcome::Done
        | EffectOutcome::JobEvent(..)
        | EffectOutcome::PullEvent(..)
        | EffectOutcome::Synced(..) => {
            tracing::info!("Performed effect.")
        }
        EffectOutcome::Gone(reason) => {
            tracing::warn!(reason, "Skipped effect: its target no longer exists.");
        }
        EffectOutcome::Postponed(reason) => tracing::debug!(reason, "Postponed effect."),
        EffectOutcome::Failed(EffectFailure { error, cause, .. }) => {
            tracing::warn!(error, ?cause, "Failed to perform effect.");
        }
    }
}

/// Crash points of an effect, for crash tests.
struct CrashPoints {
    claimed: CrashPoint,
    done: CrashPoint,
    settled: CrashPoint,
}

impl CrashPoints {
    /// Points of effects without their own.
    const COMMON: Self = Self {
        claimed: CrashPoint::EntryClaimed,
        done: CrashPoint::EntryPerformed,
        settled: CrashPoint::EntryCompleted,
    };

    fn of(effect: &Effect) -> Self {
        match effect {
            Effect::StartRun { .. } => Self {
                claimed: CrashPoint::StartClaimed,
                done: CrashPoint::Started,
                settled: CrashPoint::Adopted,
            },
            Effect::StopRun { .. } => Self {
                claimed: CrashPoint::StopClaimed,
                done: CrashPoint::Stopped,
                settled: CrashPoint::StopRecorded,
            },
            Effect::DestroyMachine { .. } => Self {
                claimed: CrashPoint::DestroyClaimed,
                done: CrashPoint::Destroyed,
                settled: CrashPoint::DestroyRecorded,
            },
            Effect::RerunFailedJobs { .. } => Self {
                done: CrashPoint::RerunPerformed,
                ..Self::COMMON
            },
            Effect::UpdateBranch { .. } => Self {
                done: CrashPoint::BranchUpdatePerformed,
                ..Self::COMMON
            },
            Effect::MergePull { .. } => Self {
                done: CrashPoint::MergePerformed,
                settled: CrashPoint::MergeRecorded,
                ..Self::COMMON
            },
            _ => Self::COMMON,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    /// Returns the levels of the events that logging an outcome emits.
    fn levels(outcome: &EffectOutcome) -> Vec<tracing::Level> {
        struct Levels(Arc<Mutex<Vec<tracing::Level>>>);
        impl<S: tracing::Subscriber> tracing_subscriber::Layer<S> for Levels {
            fn on_event(
                &self,
                event: &tracing::Event<'_>,
                _: tracing_subscriber::layer::Context<'_, S>,
            ) {
                self.0.lock().unwrap().push(*event.metadata().level());
            }
        }
        let seen = Arc::default();
        let layer = Levels(Arc::clone(&seen));
        let subscriber =
            tracing_subscriber::layer::SubscriberExt::with(tracing_subscriber::registry(), layer);
        tracing::subscriber::with_default(subscriber, || log_outcome(outcome));
        let seen = seen.lock().unwrap();
        seen.clone()
    }

    #[test]
    fn does_not_warn_about_a_planned_retry() {
        assert_eq!(
            levels(&EffectOutcome::Postponed("early")),
            [tracing::Level::DEBUG]
        );
        let failed = EffectOutcome::Failed(EffectFailure::transient("refused"));
        assert_eq!(levels(&failed), [tracing::Level::WARN]);
    }
}
