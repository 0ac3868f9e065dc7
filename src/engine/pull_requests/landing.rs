//! Automatic work that brings open pull requests to their merge: branch updates, repairs of failing checks, merges.
//!
//! Runs after the follow-ups of a cycle, so that people's commands and feedback come first. Each part reads the
//! store, asks GitHub only if something is due, and decides again in the transaction that commits its effect.

use futures_util::{TryStreamExt, stream};

use crate::app::App;
use domain::feedback::PullRequestId;
use store::crash_injection::CrashPoint;
use store::{StoreResult, pull_feedback};

use super::follow_up::MAX_CONCURRENT_PULLS;
use super::{branch_updates, checks, merge};

/// Checks every open pull request once.
pub(super) async fn run_once(app: &App) -> StoreResult<()> {
    let pulls = app.core.store.read(pull_feedback::open_pulls)?;
    app.live.reconciliation.retain_checks(&pulls);
    branch_updates::run_once(app, &pulls).await?;
    app.live
        .merge_checks
        .retain(&pulls.iter().cloned().collect());
    stream::iter(pulls.iter().map(Ok))
        .try_for_each_concurrent(MAX_CONCURRENT_PULLS, |pull| process_pull(app, pull))
        .await
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
