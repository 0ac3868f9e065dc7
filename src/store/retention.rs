//! Which stored output of runs is removed.

use domain::ids::JobId;
use domain::time::Timestamp;

/// Returns the jobs whose output is to be removed, oldest first: those with none since `keep_since`, and the oldest of
/// the others until the rest takes at most `max_bytes`. `outputs` has the time of the last output of each job, and its
/// size in bytes as stored.
pub(super) fn removable(
    mut outputs: Vec<(Timestamp, JobId, u64)>,
    keep_since: Timestamp,
    max_bytes: u64,
) -> Vec<JobId> {
    outputs.sort_unstable();
    let mut left: u64 = outputs.iter().map(|(_, _, bytes)| bytes).sum();
    let mut removable = Vec::new();
    for (updated_at, job, bytes) in outputs {
        if updated_at < keep_since || left > max_bytes {
            left -= bytes;
            removable.push(job);
        }
    }
    removable
}
