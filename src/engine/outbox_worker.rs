//! The only door out: what we owe is performed here, and nowhere else.
//!
//! Claim, act, settle. A try is claimed in a commit of its own before anything leaves, so that a
//! crash in the middle is seen as a try whose outcome is not known; it is settled in one commit
//! with what it means for the job. Lanes are worked side by side, each strictly in order.
//!
//! Races: one process holds the store and one worker this loop, so nobody else claims; a lane is
//! marked busy before it is looked at again.

use std::collections::HashSet;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::task::JoinSet;
use tracing::{Instrument, Span};

use crate::app::{App, Timings};
use domain::effect::Effect;
use domain::ids::{JobId, TeamKey};
use domain::templates::SyncReport;
use domain::transition::{FailureKind, JobEvent};
use store::crash_injection::CrashPoint;
use store::outbox::{self, FailedAttempt, OutboxEntry};
use store::template_syncs::{self, SyncRecord};
use store::{DiskSpace, StoreResult, jobs};
use vendors::http::LONGEST_PAUSE;

use super::effects::{self, EffectFailure, EffectOutcome};
use super::job_events::{self, BreakerPolicy};
use super::periodic_task::{HEARTBEAT_GRACE, ShutdownSignal};

/// How many lanes are worked at once?
const LANES: usize = 8;

/// After how long is an effect given up?
const GIVE_UP_AFTER: Duration = Duration::from_secs(24 * 60 * 60);

/// How long may one try take? Longer than all time-outs of its calls together.
const TRY_DEADLINE: Duration = Duration::from_secs(180);

/// How often does the worker look around although nobody rang? It shows that it is not stuck.
const LOOK_AROUND: Duration = Duration::from_secs(30);

/// What the worker is called where tasks are watched.
const NAME: &str = "deliver";

/// Delivers until told to stop, then lets what is under way end.
pub async fn run(app: App, stop: ShutdownSignal) {
    let mut busy: HashSet<String> = HashSet::new();
    let mut tries: JoinSet<(String, StoreResult<()>)> = JoinSet::new();
    if let Err(error) = call_back(&app).await {
        tracing::error!(%error, "What waits in the outbox could not be called back.");
    }
    while !stop.is_requested() {
        app.heartbeats
            .expect_within(NAME, LOOK_AROUND + HEARTBEAT_GRACE);
        if let Err(error) = start_due(&app, &mut busy, &mut tries) {
            tracing::error!(%error, "The outbox could not be read.");
        }
        tokio::select! {
            () = app.store.outbox_notifier().notified() => {}
            () = until_next_due(&app) => {}
            () = tokio::time::sleep(LOOK_AROUND) => {}
            Some(ended) = tries.join_next() => free(ended, &mut busy),
            () = stop.requested() => {}
        }
    }
    app.heartbeats.retire(NAME);
    while let Some(ended) = tries.join_next().await {
        free(ended, &mut busy);
    }
}

/// Delivers everything that is due, one after the other, until nothing is; for tests that turn the
/// engine by hand.
pub async fn drain(app: &App) -> StoreResult<()> {
    loop {
        let due = app
            .store
            .read(|tx| outbox::due(tx, app.now(), LANES, |_| false))?;
        if due.is_empty() {
            return Ok(());
        }
        for (lane, seq) in due {
            deliver(app, &lane, seq).await?;
        }
    }
}

/// Has tried now what would wait for longer than any pause lasts: the clock was set back since it was
/// put off. To try too early does no harm.
async fn call_back(app: &App) -> StoreResult<()> {
    let now = app.now();
    let called = app
        .store
        .write(move |tx| outbox::reschedule_beyond(tx, now + LONGEST_PAUSE, now))
        .await?;
    if called > 0 {
        tracing::warn!(
            lanes = called,
            "The clock was set back: what is owed is tried now instead of hours later."
        );
    }
    Ok(())
}

fn start_due(
    app: &App,
    busy: &mut HashSet<String>,
    tries: &mut JoinSet<(String, StoreResult<()>)>,
) -> StoreResult<()> {
    // What cannot be noted is not begun; it stays due.
    if let DiskSpace::Full(_) = app.store.disk_space() {
        return Ok(());
    }
    let free = LANES.saturating_sub(busy.len());
    let due = app
        .store
        .read(|tx| outbox::due(tx, app.now(), free, |lane| busy.contains(lane)))?;
    for (lane, seq) in due {
        busy.insert(lane.clone());
        let app = app.clone();
        tries.spawn(async move {
            let delivered = deliver(&app, &lane, seq).await;
            (lane, delivered)
        });
    }
    Ok(())
}

fn free(
    ended: Result<(String, StoreResult<()>), tokio::task::JoinError>,
    busy: &mut HashSet<String>,
) {
    match ended {
        Ok((lane, delivered)) => {
            busy.remove(&lane);
            if let Err(error) = delivered {
                tracing::error!(lane, %error, "An effect could not be noted.");
            }
        }
        // Panics are caught inside; a task that was aborted belongs to a process that ends.
        Err(error) => tracing::error!(%error, "A delivery ended early."),
    }
}

async fn until_next_due(app: &App) {
    let next = app
        .store
        .read(|tx| outbox::next_due(tx, app.now()))
        .ok()
        .flatten();
    match next {
        Some(due) => tokio::time::sleep(due.since(app.now()) + Duration::from_millis(1)).await,
        None => std::future::pending().await,
    }
}

/// Claims, acts, settles.
async fn deliver(app: &App, lane: &str, seq: u64) -> StoreResult<()> {
    let (claim_lane, now) = (lane.to_owned(), app.now());
    let Some(errand) = app
        .store
        .write(move |tx| outbox::claim(tx, &claim_lane, seq, now))
        .await?
    else {
        return Ok(());
    };
    let span = span(app, &errand);
    perform(app, errand).instrument(span).await
}

/// What every line about an effect carries.
fn span(app: &App, errand: &OutboxEntry) -> Span {
    let (job, issue) = errand.effect.job_and_issue();
    // The job tells the rest; of an effect that names its issue alone, the issue's last job does.
    let known = app.store.read(|tx| match (job, issue) {
        (Some(job), _) => jobs::get(tx, job),
        (None, Some(issue)) => Ok(jobs::of_issue(tx, &issue.id)?.pop()),
        (None, None) => Ok(None),
    });
    let known = known.ok().flatten();
    let team = match &errand.effect {
        Effect::SyncWorkflows { team, .. } => Some(team),
        _ => known.as_ref().map(|job| &job.team),
    };
    let of_job = known.as_ref().map(|job| &job.issue);
    tracing::info_span!(
        "effect",
        effect = errand.effect.name(),
        lane = errand.queue_key,
        attempt = errand.attempts,
        job_id = known.as_ref().map(|job| job.id.as_str()),
        issue = issue.or(of_job).map(|issue| issue.key.as_str()),
        team = team.map(TeamKey::as_str),
    )
}

async fn perform(app: &App, errand: OutboxEntry) -> StoreResult<()> {
    let points = CrashPoints::of(&errand.effect);
    app.crash_plan.crash_if_planned(points.claimed);
    let acting = AssertUnwindSafe(tokio::time::timeout(
        TRY_DEADLINE,
        effects::perform(app, &errand),
    ))
    .catch_unwind();
    let acted = match acting.await {
        Ok(Ok(acted)) => acted,
        Ok(Err(_)) => broken_off("it took too long"),
        Err(_) => broken_off("it panicked"),
    };
    app.crash_plan.crash_if_planned(points.done);
    settle(app, errand, acted).await?;
    app.notifiers.effect_settled.notify_waiters();
    app.crash_plan.crash_if_planned(points.settled);
    Ok(())
}

fn broken_off(error: &str) -> EffectOutcome {
    EffectOutcome::Failed(EffectFailure {
        error: error.to_owned(),
        cause: FailureKind::Transient,
        is_outcome_unknown: true,
        retry_after: None,
    })
}

async fn settle(app: &App, errand: OutboxEntry, acted: EffectOutcome) -> StoreResult<()> {
    let now = app.now();
    tell(&acted);
    match acted {
        EffectOutcome::Done | EffectOutcome::Gone(_) => {
            app.store
                .write(move |tx| outbox::complete(tx, &errand, now))
                .await
        }
        EffectOutcome::JobEvent(job, event) => settle_told(app, errand, job, event).await,
        EffectOutcome::Synced(team, report) => settle_synced(app, errand, team, Ok(report)).await,
        EffectOutcome::Postponed(why) => {
            settle_failure(app, errand, EffectFailure::transient(why)).await
        }
        EffectOutcome::Failed(failure) => settle_failure(app, errand, failure).await,
    }
}

/// One commit for the errand and for what its outcome means to the job.
async fn settle_told(
    app: &App,
    errand: OutboxEntry,
    job: JobId,
    event: JobEvent,
) -> StoreResult<()> {
    let (now, policy) = (app.now(), BreakerPolicy::from_config(&app.config));
    let started = match (&errand.effect, &event) {
        (Effect::StartRun { issue, .. }, JobEvent::Started { .. }) => Some(issue.id.clone()),
        _ => None,
    };
    let settled = app.store.write(move |tx| {
        outbox::complete(tx, &errand, now)?;
        job_events::apply(tx, policy, &job, event.clone(), now)
    });
    job_events::log_job_end(&settled.await?, now);
    if let Some(issue) = started {
        app.metrics.observe_dispatch(&issue, now);
    }
    Ok(())
}

/// One commit for the errand and for what the project's operator is told of it.
async fn settle_synced(
    app: &App,
    errand: OutboxEntry,
    team: TeamKey,
    outcome: Result<SyncReport, String>,
) -> StoreResult<()> {
    let at = app.now();
    let synced = SyncRecord { at, outcome };
    app.store
        .write(move |tx| {
            outbox::complete(tx, &errand, at)?;
            template_syncs::put(tx, &team, &synced)
        })
        .await
}

async fn settle_failure(app: &App, errand: OutboxEntry, failure: EffectFailure) -> StoreResult<()> {
    let now = app.now();
    let given_up_at = errand.retry_window_start() + GIVE_UP_AFTER;
    let hopeless = failure.cause == FailureKind::Permanent || now >= given_up_at;
    if !hopeless {
        let due_at = now + wait(&app.timings, errand.attempts, failure.retry_after);
        let retry = FailedAttempt {
            ended_at: now,
            // Only a try is judged, so the last one is no later than that.
            due_at: due_at.min(given_up_at),
            is_outcome_unknown: failure.is_outcome_unknown,
            error: failure.error,
        };
        return app
            .store
            .write(move |tx| outbox::schedule_retry(tx, &errand, &retry))
            .await;
    }
    match errand.effect.clone() {
        // A start that is given up ends its job, which tells people more than a dead letter would.
        Effect::StartRun { job, .. } => {
            let event = effects::start_refused_event(failure.cause, None, &failure.error);
            settle_told(app, errand, job, event).await
        }
        Effect::SyncWorkflows { team, .. } => {
            settle_synced(app, errand, team, Err(failure.error)).await
        }
        _ => {
            tracing::error!(
                error = failure.error,
                "Given up; an operator may try it again."
            );
            app.store
                .write(move |tx| outbox::mark_dead(tx, &errand, &failure.error, now))
                .await
        }
    }
}

/// Exponential with full jitter, never sooner than the vendor asks.
fn wait(pace: &Timings, attempts: u32, retry_after: Option<Duration>) -> Duration {
    let doubled = pace
        .first_retry_delay
        .saturating_mul(1 << attempts.saturating_sub(1).min(20));
    let longest = doubled.min(pace.max_retry_delay);
    let jittered = longest.mul_f64(fastrand::f64());
    jittered
        .max(retry_after.unwrap_or_default())
        .max(Duration::from_millis(50))
}

fn tell(acted: &EffectOutcome) {
    match acted {
        EffectOutcome::Done | EffectOutcome::JobEvent(..) | EffectOutcome::Synced(..) => {
            tracing::info!("Delivered.")
        }
        EffectOutcome::Gone(why) => tracing::warn!(why, "Dropped: what it would change is gone."),
        EffectOutcome::Postponed(why) => tracing::debug!(why, "Postponed."),
        EffectOutcome::Failed(EffectFailure { error, cause, .. }) => {
            tracing::warn!(error, ?cause, "Not delivered.");
        }
    }
}

/// Where a crash test may end the process in the delivery of an effect.
struct CrashPoints {
    claimed: CrashPoint,
    done: CrashPoint,
    settled: CrashPoint,
}

impl CrashPoints {
    fn of(effect: &Effect) -> Self {
        match effect {
            Effect::StartRun { .. } => Self {
                claimed: CrashPoint::StartClaimed,
                done: CrashPoint::Started,
                settled: CrashPoint::Adopted,
            },
            Effect::DestroyMachine { .. } => Self {
                claimed: CrashPoint::DestroyClaimed,
                done: CrashPoint::Destroyed,
                settled: CrashPoint::DestroyRecorded,
            },
            _ => Self {
                claimed: CrashPoint::EntryClaimed,
                done: CrashPoint::EntryPerformed,
                settled: CrashPoint::EntryCompleted,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    /// The levels of the events that telling an outcome logs.
    fn levels(acted: &EffectOutcome) -> Vec<tracing::Level> {
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
        tracing::subscriber::with_default(subscriber, || tell(acted));
        let seen = seen.lock().unwrap();
        seen.clone()
    }

    #[test]
    fn a_planned_retry_is_no_warning() {
        assert_eq!(
            levels(&EffectOutcome::Postponed("early")),
            [tracing::Level::DEBUG]
        );
        let failed = EffectOutcome::Failed(EffectFailure::transient("refused"));
        assert_eq!(levels(&failed), [tracing::Level::WARN]);
    }

    #[test]
    fn waits_grow_to_their_limit_and_honour_the_vendor() {
        let pace = Timings::default();
        for attempts in 1..40 {
            let most = Duration::from_secs(1 << (attempts - 1).min(9)).min(pace.max_retry_delay);
            for _ in 0..50 {
                assert!(
                    wait(&pace, attempts, None) <= most.max(Duration::from_millis(50)),
                    "{attempts}"
                );
            }
        }
        assert_eq!(
            wait(&pace, 1, Some(Duration::from_secs(90))),
            Duration::from_secs(90)
        );
    }
}
