//! Usage limits of model providers that runs have hit, and numbers of hits per issue.

use serde::{Deserialize, Serialize};

use domain::agent::AgentName;
use domain::ids::{IssueId, JobId};
use domain::issue::Phase;
use domain::time::Timestamp;

use super::StoreResult;
use super::table::{ReadableTx, WriteTx};
use super::tables::{PROVIDER_LIMIT_HITS, PROVIDER_LIMITS};

/// Usage limit of model credentials, shared by all their users.
///
/// Stored: fields may be added with a default, never renamed without a migration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProviderLimit {
    /// End of the limit.
    pub until: Timestamp,
    /// Job that reported the limit last.
    pub job: JobId,
    /// Agents for which that job's run had credentials. Known for CI runs only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub with_credentials: Vec<AgentName>,
}

/// Current limit of these credentials. `None` if no limit is in force.
pub fn current(
    tx: &impl ReadableTx,
    account: &str,
    now: Timestamp,
) -> StoreResult<Option<ProviderLimit>> {
    let limit = PROVIDER_LIMITS.get(tx, account)?;
    Ok(limit.filter(|limit| limit.until > now))
}

/// Stores a limit, unless a later one is stored.
pub fn record(tx: &WriteTx<'_>, account: &str, limit: &ProviderLimit) -> StoreResult<()> {
    let stored = PROVIDER_LIMITS.get(tx, account)?;
    if stored.is_some_and(|stored| stored.until >= limit.until) {
        return Ok(());
    }
    PROVIDER_LIMITS.put(tx, account, limit)
}

/// Number of consecutive runs of this issue and phase that hit a limit.
pub fn hits(tx: &impl ReadableTx, issue: &IssueId, phase: Phase) -> StoreResult<u32> {
    let hits = PROVIDER_LIMIT_HITS.get(tx, (issue.as_str(), phase.as_str()))?;
    Ok(hits.unwrap_or_default())
}

/// Counts a run that hit a limit.
pub fn count_hit(tx: &WriteTx<'_>, issue: &IssueId, phase: Phase) -> StoreResult<()> {
    let hits = hits(tx, issue, phase)?.saturating_add(1);
    PROVIDER_LIMIT_HITS.put(tx, (issue.as_str(), phase.as_str()), &hits)
}

/// Resets the count after a run that did not hit a limit.
pub fn reset_hits(tx: &WriteTx<'_>, issue: &IssueId, phase: Phase) -> StoreResult<()> {
    let key = (issue.as_str(), phase.as_str());
    PROVIDER_LIMIT_HITS.remove(tx, key).map(drop)
}
