//! Usage limits of model providers that runs have met, and how often an issue met one.

use serde::{Deserialize, Serialize};

use domain::ids::{IssueId, JobId};
use domain::issue::Phase;
use domain::time::Timestamp;

use super::StoreResult;
use super::table::{ReadableTx, WriteTx};
use super::tables::{PROVIDER_LIMIT_HITS, PROVIDER_LIMITS};

/// A limit that holds for everybody who uses the same credentials.
///
/// Stored: fields may be added with a default, never renamed without a migration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProviderLimit {
    pub until: Timestamp,
    /// The job that told of it last.
    pub job: JobId,
}

/// Until when the credentials of this name are of no use; none when they are now.
pub fn until(
    tx: &impl ReadableTx,
    account: &str,
    now: Timestamp,
) -> StoreResult<Option<Timestamp>> {
    let known = PROVIDER_LIMITS.get(tx, account)?.map(|limit| limit.until);
    Ok(known.filter(|until| *until > now))
}

/// Notes a limit. Of two that overlap, the later end counts.
pub fn record(tx: &WriteTx<'_>, account: &str, limit: &ProviderLimit) -> StoreResult<()> {
    let known = PROVIDER_LIMITS.get(tx, account)?;
    if known.is_some_and(|known| known.until >= limit.until) {
        return Ok(());
    }
    PROVIDER_LIMITS.put(tx, account, limit)
}

/// How often in a row runs of this issue and phase have met a limit.
pub fn hits(tx: &impl ReadableTx, issue: &IssueId, phase: Phase) -> StoreResult<u32> {
    let hits = PROVIDER_LIMIT_HITS.get(tx, (issue.as_str(), phase.as_str()))?;
    Ok(hits.unwrap_or_default())
}

pub fn count_hit(tx: &WriteTx<'_>, issue: &IssueId, phase: Phase) -> StoreResult<()> {
    let hits = hits(tx, issue, phase)?.saturating_add(1);
    PROVIDER_LIMIT_HITS.put(tx, (issue.as_str(), phase.as_str()), &hits)
}

/// A run ended in another way.
pub fn reset_hits(tx: &WriteTx<'_>, issue: &IssueId, phase: Phase) -> StoreResult<()> {
    let key = (issue.as_str(), phase.as_str());
    PROVIDER_LIMIT_HITS.remove(tx, key).map(drop)
}
