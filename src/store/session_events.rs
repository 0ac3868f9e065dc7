//! Events that sessions have reported, to ignore repeated reports.

use domain::ids::JobId;
use domain::limits;

use super::StoreResult;
use super::table::{ReadableTx, WriteTx};
use super::tables::SESSION_EVENTS;

/// Records an event. Returns false if it is a repeat, or if the session has reached the maximum number of
/// events.
pub fn record(tx: &WriteTx<'_>, job: &JobId, identity: &str) -> StoreResult<bool> {
    let key = (job.as_str(), identity);
    let range = (job.as_str(), "")..=(job.as_str(), "\u{10FFFF}");
    let reported = SESSION_EVENTS.collect(tx, range, |_, ()| ())?.len();
    if reported >= limits::MAX_SESSION_COMMENTS || SESSION_EVENTS.get(tx, key)?.is_some() {
        return Ok(false);
    }
    SESSION_EVENTS.put(tx, key, &())?;
    Ok(true)
}

/// Whether a session has reported this event.
pub fn is_recorded(tx: &impl ReadableTx, job: &JobId, identity: &str) -> StoreResult<bool> {
    Ok(SESSION_EVENTS.get(tx, (job.as_str(), identity))?.is_some())
}
