//! Work of runs that could not be pushed, as patches.

use domain::ids::JobId;

use super::StoreResult;
use super::table::{ReadableTx, WriteTx};
use super::tables::PATCHES;

/// Keeps the patch of a job.
pub fn put(tx: &WriteTx<'_>, job: &JobId, patch: &str) -> StoreResult<()> {
    PATCHES.put(tx, job.as_str(), &patch.to_owned())
}

/// The patch of a job, if it left one.
pub fn get(tx: &impl ReadableTx, job: &JobId) -> StoreResult<Option<String>> {
    PATCHES.get(tx, job.as_str())
}
