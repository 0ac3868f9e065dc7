//! The steps that runs report. Kept for ever. (spec: *Job and step record*)

use crate::domain::ids::JobId;
use crate::domain::report::Step;

use super::StoreResult;
use super::shelf::{Rows, WriteTx};
use super::tables::STEPS;

/// Stores a step; one of the same id is replaced.
pub fn put(tx: &WriteTx<'_>, job: &JobId, step: &Step) -> StoreResult<()> {
    STEPS.put(tx, (job.as_str(), step.id.as_str()), step)
}

/// The steps of a job in the order they started.
pub fn of_job(tx: &impl Rows, job: &JobId) -> StoreResult<Vec<Step>> {
    let range = (job.as_str(), "")..=(job.as_str(), "\u{10FFFF}");
    let mut steps = STEPS.collect(tx, range, |_, step| step)?;
    steps.sort_by(|a, b| a.started_at.cmp(&b.started_at));
    Ok(steps)
}
