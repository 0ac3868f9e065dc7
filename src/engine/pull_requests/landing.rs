//! Automatic work that brings open pull requests to their merge: branch updates, repairs of failing checks, merges.
//!
//! Runs after the follow-ups of a cycle, so that people's commands and feedback come first. Each part reads the
//! store, asks GitHub only if something is due, and decides again in the transaction that commits its effect.

use std::collections::BTreeSet;

use futures_util::{TryStreamExt, stream};

use crate::app::App;
use domain::feedback::PullRequestId;
use domain::time::Timestamp;
use store::crash_injection::CrashPoint;
use store::{ReadableTx, StoreResult, pull_feedback};

use super::branch_updates::{self, DueStep};
use super::follow_up::MAX_CONCURRENT_PULLS;
use super::{checks, merge};

/// Checks every open pull request once.
pub(super) async fn run_once(app: &App) -> StoreResult<()> {
    let Some(github) = &app.vendors.github else {
        return Ok(());
    };
    let open = app.core.store.read(pull_feedback::open_pulls)?;
    let still_open = open.iter().cloned().collect();
    app.live.reconciliation.retain_checks(&still_open);
    app.live.merge_checks.retain(&still_open);
    let (handle, now) = (app.clone(), app.core.now());
    // There may be a thousand open pull requests.
    let read = app
        .core
        .store
        .read_long(move |tx| DueWork::read(tx, &handle, &open, now));
    let due = read.await?;
    for step in due.branch_steps {
        branch_updates::perform(app, github, step, now).await?;
    }
    stream::iter(due.pulls.iter().map(Ok))
        .try_for_each_concurrent(MAX_CONCURRENT_PULLS, |pull| process_pull(app, pull))
        .await
}

/// What may be due on the open pull requests.
#[derive(Default)]
struct DueWork {
    branch_steps: Vec<DueStep>,
    /// Pull requests whose checks or merge may need a decision.
    pulls: BTreeSet<PullRequestId>,
}

impl DueWork {
    /// Reads the record of each pull request once; `open` is sorted by repository.
    fn read(
        tx: &impl ReadableTx,
        app: &App,
        open: &[PullRequestId],
        now: Timestamp,
    ) -> StoreResult<Self> {
        let mut due = Self::default();
        for pulls in open.chunk_by(|one, next| one.repo == next.repo) {
            let records = branch_updates::read_records(tx, pulls.iter().cloned())?;
            let steps = branch_updates::due_steps(tx, app, &records, now)?;
            // A step reads the state of its pull request again, which may be new.
            due.pulls
                .extend(steps.iter().map(|step| step.pull().clone()));
            due.branch_steps.extend(steps);
            let with_work = records.into_iter().filter(|(pull, record)| {
                checks::may_be_due(app, pull, record, now) || merge::may_be_due(record)
            });
            due.pulls.extend(with_work.map(|(pull, _)| pull));
        }
        Ok(due)
    }
}

/// Kills the process if a test planned it for the time after a step was stored.
pub(super) fn crash_if_planned(app: &App) {
    app.core
        .crash_plan
        .crash_if_planned(CrashPoint::LandingStepStored);
}

async fn process_pull(app: &App, pull: &PullRequestId) -> StoreResult<()> {
    checks::process(app, pull).await?;
    merge::process(app, pull).await
}
