//! `/api/outbox`: pending and failed outbox entries. See docs/behaviour.md#effects-and-retries.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;

use crate::error::{AdminApiError, ApiError};
use crate::routing::{ApiResult, PathSegment, Route, ok};
use domain::audit::Actor;
use domain::effect::Effect;
use domain::ids::IssueKey;
use domain::time::Timestamp;
use domain::vendor::Vendor;
use engine::admin::outbox::{self, OutboxError};
use engine::app::{App, Vendors};
use engine::incidents::{self, Incident};
use store::outbox::OutboxEntry;
use store::{ReadableTx, StoreResult, jobs};

/// Routes of `/api/outbox`.
pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::get("/api/outbox", "listOutbox", list).mentions::<EntryView>(),
        Route::delete("/api/outbox/:id", "dropEffect", remove),
        Route::post("/api/outbox/:id/retry", "retryEffect", retry),
    ]
}

async fn list(app: App) -> ApiResult {
    let (handle, incidents) = (app.clone(), incidents::current(&app.vendors));
    let read = app.core.store().read_long(move |tx| {
        let pending = store::outbox::pending(tx)?.into_iter();
        let pending = pending.map(|entry| {
            let wait = Wait::of(tx, &handle.vendors, &entry, &incidents)?;
            EntryView::of(tx, entry, wait)
        });
        let pending = pending.collect::<StoreResult<Vec<_>>>()?;
        let dead = store::outbox::dead(tx)?.into_iter();
        let dead = dead.map(|entry| EntryView::of(tx, entry, Wait::default()));
        Ok((pending, dead.collect::<StoreResult<Vec<_>>>()?))
    });
    let (pending, dead) = read.await?;
    Ok(ok(&json!({"pending": pending, "dead": dead})))
}

async fn retry(PathSegment(id): PathSegment, by: Actor, app: App) -> ApiResult {
    outbox::retry(&app.core, by, parse_seq(&id)?).await?;
    Ok(ok(&json!({"retried": true})))
}

async fn remove(PathSegment(id): PathSegment, by: Actor, app: App) -> ApiResult {
    let removed = match parse_seq(&id) {
        Ok(seq) => outbox::drop_entry(&app, by, seq).await,
        Err(error) => Err(error),
    };
    match removed {
        Ok(()) => Ok(ok(&json!({"deleted": true}))),
        Err(OutboxError::NotFound) => Err(AdminApiError::NothingDeleted.into()),
        Err(error) => Err(ApiError::from(error)),
    }
}

/// Parses the id of an outbox entry. Anything but a number is an unknown id.
fn parse_seq(id: &str) -> Result<u64, OutboxError> {
    id.parse().map_err(|_| OutboxError::NotFound)
}

/// Outbox entry without its content, which contains untrusted text.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Effect")]
struct EntryView {
    id: String,
    #[serde(rename = "lane")]
    /// Queue key. Effects with the same key are performed in order.
    queue_key: String,
    #[schemars(extend("enum" = [
        "start run",
        "end run",
        "destroy machine",
        "move marker",
        "comment on ticket",
        "comment about waiting on ticket",
        "log excerpt on ticket",
        "comment on pull request",
        "set draft flag",
        "update branch",
        "merge pull request",
        "stop merge of pull request",
        "delete branch",
        "rerun of failed jobs",
        "chat message",
        "sync workflows",
    ]))]
    name: &'static str,
    /// Key of the issue that the effect is for, if there is one.
    #[schemars(example = "ENG-42")]
    issue_identifier: Option<IssueKey>,
    /// What the effect does, for operators.
    #[schemars(example = "update status label")]
    description: String,
    /// Vendor that does not accept the effect at the moment. `None` if nothing keeps it from being performed.
    #[schemars(example = &"Linear")]
    waits_for: Option<&'static str>,
    /// End of the vendor's rate limit, if there is one.
    waits_until: Option<Timestamp>,
    attempts: u32,
    pushed_at: Timestamp,
    due_at: Timestamp,
    /// Start of the current attempt.
    claimed_at: Option<Timestamp>,
    last_error: Option<String>,
}

impl EntryView {
    fn of(tx: &impl ReadableTx, entry: OutboxEntry, wait: Wait) -> StoreResult<Self> {
        Ok(Self {
            id: entry.seq.to_string(),
            name: entry.effect.name(),
            issue_identifier: issue_key(tx, &entry.effect)?,
            description: entry.effect.description(),
            waits_for: wait.vendor.map(Vendor::name),
            waits_until: wait.until,
            queue_key: entry.queue_key,
            attempts: entry.attempts,
            pushed_at: entry.pushed_at,
            due_at: entry.due_at,
            claimed_at: entry.claimed_at,
            last_error: entry.last_error,
        })
    }
}

/// Key of the issue that an effect is for: named by the effect, by its job, or by the jobs of its pull request.
fn issue_key(tx: &impl ReadableTx, effect: &Effect) -> StoreResult<Option<IssueKey>> {
    let job = match (effect, effect.job_and_issue()) {
        (_, (_, Some(issue))) => return Ok(Some(issue.key.clone())),
        (_, (Some(job), None)) => jobs::get(tx, job)?,
        (
            Effect::PullComment { repo, number, .. }
            | Effect::SetDraft { repo, number, .. }
            | Effect::UpdateBranch { repo, number, .. }
            | Effect::RerunFailedJobs { repo, number, .. },
            _,
        ) => jobs::of_pull(tx, repo, *number)?.pop(),
        _ => None,
    };
    Ok(job.map(|job| job.issue.key))
}

/// Vendor that an entry waits for.
#[derive(Default)]
struct Wait {
    vendor: Option<Vendor>,
    until: Option<Timestamp>,
}

impl Wait {
    /// A vendor with an incident comes first. Without one, a failed attempt waits for its vendor to accept the
    /// next.
    fn of(
        tx: &impl ReadableTx,
        vendors: &Vendors,
        entry: &OutboxEntry,
        incidents: &BTreeMap<Vendor, Incident>,
    ) -> StoreResult<Self> {
        let blocking = incidents::delaying(tx, vendors, &entry.effect, incidents)?;
        let failed = match &entry.last_error {
            Some(_) => incidents::vendors_of(tx, &entry.effect)?.first().copied(),
            None => None,
        };
        Ok(Self {
            vendor: blocking.map(|incident| incident.vendor).or(failed),
            until: blocking.and_then(|incident| incident.until),
        })
    }
}
