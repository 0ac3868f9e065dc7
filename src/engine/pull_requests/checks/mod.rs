//! Repairs of failing checks on open pull requests.
//!
//! If the checks of a head commit may need a decision, they are read from GitHub. Then the head commit is compared
//! again, and one transaction decides from the store, records the state, and enqueues a rerun or reserves a run. If
//! something cannot be read, or has changed meanwhile, nothing changes and a later cycle tries again.

mod base_checks;
mod failure_details;
mod notices;
mod repair;
mod situation;

use std::sync::Arc;

use domain::comments;
use domain::effect::Effect;
use domain::feedback::{
    FollowUpPolicy, PullRequestId, PullRequestReadiness, PullRequestRecord, PullRequestStatus,
    automatic_runs_resume_at,
};
use domain::red_checks::{CiRecord, CiRerun, CiStatus, CiStep, CiStop, HeadCheck};
use domain::time::Timestamp;
use store::{StoreResult, WriteTx, outbox, pull_feedback};
use vendors::scm::GitHub;

use super::landing;
use super::stored_pull::{Block, StoredPull};
use super::wait_comments::{self, BUDGET_COMMENT, FOLLOW_UP_BUDGET_COMMENT};
use crate::app::App;

pub use base_checks::BaseChecks;
pub(super) use notices::remove_ticket_comment;

/// Returns whether something about the checks of a pull request may have changed.
pub(super) fn may_be_due(
    app: &App,
    pull: &PullRequestId,
    record: &PullRequestRecord,
    now: Timestamp,
) -> bool {
    app.live.reconciliation.is_check_noted(pull) || record.ci.is_due(&record.readiness, now)
}

/// Decides once about the failing checks of a pull request, if something about them may have changed.
pub(super) async fn process(app: &App, pull: &PullRequestId) -> StoreResult<()> {
    let now = app.core.now();
    let record = app
        .core
        .store
        .read(|tx| pull_feedback::get_pull(tx, pull))?;
    let is_named = app.live.reconciliation.is_check_noted(pull);
    if !may_be_due(app, pull, &record, now) {
        return Ok(());
    }
    let stored = app
        .core
        .store
        .read(|tx| StoredPull::read(tx, app, pull, now))?;
    let (Some(stored), Some(github)) = (stored, &app.vendors.github) else {
        return Ok(());
    };
    if !stored.is_free_for_automatic_work() {
        return Ok(());
    }
    let is_only_due = !is_named && !stored.record.ci.must_be_read(&stored.record.readiness, now);
    if is_only_due && wait_before_repair(app, pull, &stored, now).await? {
        return Ok(());
    }
    app.live.reconciliation.take_check(pull);
    match decide(app, github, pull, &stored, now).await {
        Ok(Some(decision)) => settle(app, github, pull, Arc::new(stored), decision, now).await,
        Ok(None) => Ok(()),
        Err(reason) => {
            tracing::warn!(repo = %pull.repo, pull = pull.number, reason, "Postponed a decision about failing checks.");
            app.live.reconciliation.note_check(pull.clone());
            Ok(())
        }
    }
}

/// Step about the checks of a pull request, with what it was decided from.
struct Decision {
    /// Record for the head commit that was judged.
    ci: CiRecord,
    step: CiStep,
    /// Failing checks that are the pull request's.
    failing: Vec<HeadCheck>,
    /// Names of the checks that turned out to be flaky. `None` if the end of a rerun is not known.
    flaky: Option<Vec<String>>,
    /// Whether GitHub was asked, so that the head commit must be compared again.
    is_read: bool,
}

/// Decides the next step. Returns `None` if the pull request has no known head commit.
async fn decide(
    app: &App,
    github: &GitHub,
    pull: &PullRequestId,
    stored: &StoredPull,
    now: Timestamp,
) -> Result<Option<Decision>, String> {
    let record = &stored.record;
    let Some(head) = &record.readiness.head else {
        return Ok(None);
    };
    let ci = record.ci.clone().at_head(head, record.head_is_ours());
    let unread = ci.next_step_unread(&record.readiness, record.head_seen_at, now);
    if let Some(step) = unread {
        let is_green = step == CiStep::Settle(CiStatus::Quiet);
        return Ok(Some(Decision {
            flaky: is_green.then(|| ci.flaky_checks(&[])),
            ci,
            step,
            failing: Vec::new(),
            is_read: false,
        }));
    }
    let read = situation::read(app, github, pull, stored, &ci, &head.sha).await?;
    let step = ci.next_step(&read.verdict, &read.situation(stored, now));
    Ok(Some(Decision {
        flaky: read.flaky_checks(&ci, &step),
        ci: CiRecord {
            settings_error: read.settings.ci_error.clone(),
            ..ci
        },
        step,
        failing: read.into_failing(),
        is_read: true,
    }))
}

/// Commits a decision, after the head commit was compared again.
async fn settle(
    app: &App,
    github: &GitHub,
    pull: &PullRequestId,
    stored: Arc<StoredPull>,
    decision: Decision,
    now: Timestamp,
) -> StoreResult<()> {
    let is_waiting = decision.step == CiStep::Wait;
    if decision.is_read && !is_waiting && !is_current(app, github, pull, &decision.ci).await {
        return Ok(());
    }
    let Decision {
        mut ci,
        step,
        failing,
        flaky,
        ..
    } = decision;
    if let Some(flaky) = flaky {
        if !flaky.is_empty() {
            app.live.metrics.ci_flakes.add(1);
            tracing::info!(repo = %pull.repo, pull = pull.number, checks = ?flaky, "A check is flaky: it passed when it ran again.");
        }
        ci = ci.with_rerun_settled(flaky, now);
    }
    let readiness = &stored.record.readiness;
    let (ci, effects) = match step {
        CiStep::Wait => {
            let seen_at = stored.record.head_seen_at;
            (ci.waiting(readiness, seen_at, now), Vec::new())
        }
        CiStep::Settle(status) => (settled(ci, readiness, status), Vec::new()),
        CiStep::Rerun { runs, checks } => {
            let seen_at = stored.record.head_seen_at;
            let head = ci.head.clone().unwrap_or_default();
            let effects = runs.iter().map(|run| Effect::RerunFailedJobs {
                repo: pull.repo.clone(),
                number: pull.number,
                head: head.clone(),
                run: *run,
            });
            let effects = effects.collect();
            let ci = CiRecord {
                status: CiStatus::Rerunning {
                    checks: checks.clone(),
                },
                rerun: Some(CiRerun {
                    head,
                    runs,
                    checks,
                    at: now,
                    is_settled: false,
                }),
                ..ci
            };
            (ci.waiting(readiness, seen_at, now), effects)
        }
        CiStep::Repair {
            checks,
            attempt,
            of,
        } => {
            let due = CiStatus::Due {
                checks,
                attempt,
                of,
            };
            let ci = ci.judged(readiness, due);
            if stored.block.is_none() && resume_at(&stored, now).is_none() {
                return repair::start(app, github, pull, stored, ci, failing, now).await;
            }
            wait_before_repair(app, pull, &stored, now).await?;
            (ci, Vec::new())
        }
    };
    commit(app, pull, stored, ci, effects, now).await
}

/// Returns the record after a judgement without a run.
fn settled(ci: CiRecord, readiness: &PullRequestReadiness, status: CiStatus) -> CiRecord {
    let stop = match status {
        CiStatus::Stopped { reason, .. } if reason != CiStop::Off => Some(reason),
        _ => ci.stop,
    };
    CiRecord { stop, ..ci }.judged(readiness, status)
}

/// Returns whether the head commit that was judged is still the head commit. If not, the pull request is read again.
async fn is_current(app: &App, github: &GitHub, pull: &PullRequestId, ci: &CiRecord) -> bool {
    let is_current = match github.pull(&pull.repo, pull.number).await {
        Ok(found) => Some(&found.head_sha) == ci.head.as_ref(),
        Err(error) => {
            tracing::warn!(repo = %pull.repo, pull = pull.number, %error, "Failed to compare the head commit of a pull request.");
            app.live.reconciliation.note_check(pull.clone());
            return false;
        }
    };
    if !is_current {
        tracing::info!(repo = %pull.repo, pull = pull.number, "The head commit moved during a decision about its checks.");
        app.live.reconciliation.note_changed(vec![pull.clone()]);
    }
    is_current
}

/// Returns when the daily limit of automatic runs lets another one start, if it is reached.
fn resume_at(stored: &StoredPull, now: Timestamp) -> Option<Timestamp> {
    automatic_runs_resume_at(&FollowUpPolicy::default(), &stored.jobs, now)
}

/// Returns whether a run must wait for the budget, a usage limit or the daily limit. Posts once why.
async fn wait_before_repair(
    app: &App,
    pull: &PullRequestId,
    stored: &StoredPull,
    now: Timestamp,
) -> StoreResult<bool> {
    let (until, name, body) = match (&stored.block, resume_at(stored, now)) {
        (Some(Block::ProviderLimit(_)), _) => return Ok(true),
        (Some(Block::Budget(spending)), _) => {
            let reason = spending.exhausted_message(&stored.mapping.team_key);
            let body = comments::follow_ups_over_budget(&reason);
            (spending.month.end(), BUDGET_COMMENT, body)
        }
        (None, Some(until)) => {
            let limit = FollowUpPolicy::default().max_follow_ups;
            let body = comments::repairs_limit_reached(limit, until);
            (until, FOLLOW_UP_BUDGET_COMMENT, body)
        }
        (None, None) => return Ok(false),
    };
    wait_comments::post_once(&app.core, pull, until, name, body).await?;
    Ok(true)
}

/// Stores the record with its comments and effects, unless the pull request has changed since it was read.
async fn commit(
    app: &App,
    pull: &PullRequestId,
    stored: Arc<StoredPull>,
    ci: CiRecord,
    effects: Vec<Effect>,
    now: Timestamp,
) -> StoreResult<()> {
    if ci == stored.record.ci && effects.is_empty() {
        return Ok(());
    }
    let is_rerun = !effects.is_empty();
    let pull = pull.clone();
    let write = app.core.store.write(move |tx| {
        if !is_unchanged(tx, &pull, &stored)? {
            return Ok(());
        }
        for effect in &effects {
            outbox::push(tx, effect, now)?;
        }
        notices::put(tx, &pull, &stored, ci.clone(), now)
    });
    write.await?;
    if is_rerun {
        landing::crash_if_planned(app);
    }
    Ok(())
}

/// Returns whether the pull request is open, with the head commit and the record from which was decided.
fn is_unchanged(tx: &WriteTx<'_>, pull: &PullRequestId, stored: &StoredPull) -> StoreResult<bool> {
    let row = pull_feedback::get_pull(tx, pull)?;
    let has_moved = row.readiness.head != stored.record.readiness.head;
    Ok(row.status == PullRequestStatus::Open && !has_moved && row.ci == stored.record.ci)
}
