//! Runs that repair failing checks.

use std::sync::Arc;

use domain::audit::Actor;
use domain::feedback::PullRequestId;
use domain::issue::IssueLookup;
use domain::job::JobKind;
use domain::red_checks::{
    CiAttempt, CiRecord, CiStatus, CiStop, FailedCheck, HeadCheck, fingerprint, format_failures,
};
use domain::runner_image::RequestedImage;
use domain::time::Timestamp;
use store::{StoreResult, WriteTx};
use vendors::scm::GitHub;

use super::{commit, failure_details, is_current, is_unchanged, notices, resume_at, settled};
use crate::app::App;
use crate::pull_requests::landing;
use crate::pull_requests::run::{self, PullRunRequest};
use crate::pull_requests::stored_pull::{StoredPull, current_ticket};
use crate::repo_image;

/// What a run for failing checks needs from GitHub and the ticketing system.
#[derive(Clone)]
struct RepairInputs {
    failures: Vec<FailedCheck>,
    ticket: IssueLookup,
    image: RequestedImage,
}

/// Starts a run for failing checks. If an earlier run got the same failure, the failure is left to a person.
/// `ci` has the state [`CiStatus::Due`].
pub(super) async fn start(
    app: &App,
    github: &GitHub,
    pull: &PullRequestId,
    stored: Arc<StoredPull>,
    ci: CiRecord,
    failing: Vec<HeadCheck>,
    now: Timestamp,
) -> StoreResult<()> {
    let inputs = match read(app, github, pull, &stored, &failing, now).await {
        Ok(inputs) => inputs,
        Err(reason) => {
            tracing::warn!(repo = %pull.repo, pull = pull.number, reason, "Postponed a run for failing checks.");
            app.live.reconciliation.note_check(pull.clone());
            return Ok(());
        }
    };
    // Reading the logs took time, in which somebody may have pushed.
    if !is_current(app, github, pull, &ci).await {
        return Ok(());
    }
    let fingerprint = fingerprint(&inputs.failures);
    let CiStatus::Due {
        checks,
        attempt,
        of,
    } = ci.status.clone()
    else {
        return Ok(());
    };
    if ci.has_seen(&fingerprint, &stored.jobs) {
        let reason = CiStop::SameFailure;
        let ci = settled(
            ci,
            &stored.record.readiness,
            CiStatus::Stopped { checks, reason },
        );
        return commit(app, pull, stored, ci, Vec::new(), now).await;
    }
    let repairing = CiRecord {
        status: CiStatus::Repairing {
            checks,
            attempt,
            of,
        },
        ..ci.clone()
    };
    let (handle, pull_id, before) = (app.clone(), pull.clone(), Arc::clone(&stored));
    let write = app.core.store.write(move |tx| {
        let repair = (repairing.clone(), fingerprint.clone());
        reserve(tx, &handle, &pull_id, &before, &inputs, repair, now)
    });
    if write.await? {
        landing::crash_if_planned(app);
        tracing::info!(repo = %pull.repo, pull = pull.number, attempt, of, "Reserved a run for failing checks.");
        return Ok(());
    }
    // No runner is available now.
    commit(app, pull, stored, ci, Vec::new(), now).await
}

async fn read(
    app: &App,
    github: &GitHub,
    pull: &PullRequestId,
    stored: &StoredPull,
    failing: &[HeadCheck],
    now: Timestamp,
) -> Result<RepairInputs, String> {
    Ok(RepairInputs {
        failures: failure_details::read(app, github, pull, failing, now).await?,
        ticket: current_ticket(&app.vendors, stored).await?,
        image: repo_image::fetch(app, &pull.repo, &stored.mapping.default_branch).await?,
    })
}

/// Reserves the run and records the attempt, unless something has changed since it was decided. Returns whether a
/// run was reserved.
fn reserve(
    tx: &WriteTx<'_>,
    app: &App,
    pull: &PullRequestId,
    before: &StoredPull,
    inputs: &RepairInputs,
    (ci, fingerprint): (CiRecord, String),
    now: Timestamp,
) -> StoreResult<bool> {
    let Some(stored) = StoredPull::read(tx, app, pull, now)? else {
        return Ok(false);
    };
    let is_free = stored.is_free_for_automatic_work() && stored.block.is_none();
    if !is_free || resume_at(&stored, now).is_some() || !is_unchanged(tx, pull, before)? {
        return Ok(false);
    }
    let request = PullRunRequest {
        kind: JobKind::CiFix,
        actor: Actor::service(),
        last_job: &stored.last_job,
        mapping: &stored.mapping,
        issue: &inputs.ticket,
        instruction: None,
        findings: Some(format_failures(&inputs.failures)),
        image: inputs.image.clone(),
    };
    let Some(job) = run::reserve(tx, app, request, now)? else {
        return Ok(false);
    };
    let attempt = CiAttempt {
        job,
        fingerprint,
        commit: None,
    };
    let ci = ci.with_attempt(attempt, &stored.jobs);
    notices::put(tx, pull, &stored, ci, now)?;
    Ok(true)
}
