//! The steps that runs report. Kept for ever. (spec: *Job and step record*)

use serde::{Deserialize, Serialize};

use crate::domain::ids::JobId;
use crate::domain::report::Step;

use super::StoreResult;
use super::news::News;
use super::shelf::{Rows, WriteTx};
use super::tables::STEPS;

/// A step, and the order in which it was first heard of: quick steps start in the same
/// millisecond.
///
/// Stored: fields may be added with a default, never renamed without a migration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepRow {
    pub order: u64,
    pub step: Step,
}

/// The same, of a step that is only looked at.
#[derive(Serialize)]
struct NewRow<'s> {
    order: u64,
    step: &'s Step,
}

/// What a report needs to know of the step it replaces.
#[derive(Deserialize)]
struct Place {
    order: u64,
}

/// Stores a step; one of the same id is replaced and keeps its place. `order` comes from
/// [`super::Store::next_order`].
pub fn put(tx: &WriteTx<'_>, job: &JobId, step: &Step, order: u64) -> StoreResult<()> {
    let key = (job.as_str(), step.id.as_str());
    let known: Option<Place> = STEPS.glimpse(tx, key)?;
    let order = known.map_or(order, |known| known.order);
    STEPS.put_as(tx, key, &NewRow { order, step })?;
    tx.tell(News::Step(job.clone()));
    Ok(())
}

/// The steps of a job in the order they started.
pub fn of_job(tx: &impl Rows, job: &JobId) -> StoreResult<Vec<Step>> {
    let range = (job.as_str(), "")..=(job.as_str(), "\u{10FFFF}");
    let mut rows = STEPS.collect(tx, range, |_, row| row)?;
    rows.sort_by(|a, b| (&a.step.started_at, a.order).cmp(&(&b.step.started_at, b.order)));
    Ok(rows.into_iter().map(|row| row.step).collect())
}
