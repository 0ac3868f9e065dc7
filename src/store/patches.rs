//! Patches with the work of runs that could not push.

use domain::ids::JobId;

use super::StoreResult;
use super::table::{ReadableTx, WriteTx};
use super::tables::PATCHES;

/// Stores the patch of a job.
pub fn put(tx: &WriteTx<'_>, job: &JobId, patch: &str) -> StoreResult<()> {
    PATCHES.put(tx, job.as_str(), &patch.to_owned())
}

/// Patch of a job, if there is one.
pub fn get(tx: &impl ReadableTx, job: &JobId) -> StoreResult<Option<String>> {
    PATCHES.get(tx, job.as_str())
}
