//! Result of the last template sync of each project.

use serde::{Deserialize, Serialize};

use domain::ids::TeamKey;
use domain::templates::SyncReport;
use domain::time::Timestamp;

use super::StoreResult;
use super::table::{ReadableTx, WriteTx};
use super::tables::TEMPLATE_SYNCS;

/// Result of a template sync.
///
/// Stored: fields may be added with a default, never renamed without a migration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SyncRecord {
    /// Time of the end of the sync.
    pub at: Timestamp,
    /// Report of the sync, or the error.
    pub outcome: Result<SyncReport, String>,
}

/// Last sync of a team.
pub fn last(tx: &impl ReadableTx, team: &TeamKey) -> StoreResult<Option<SyncRecord>> {
    TEMPLATE_SYNCS.get(tx, team.as_str())
}

/// Stores the last sync of a team.
pub fn put(tx: &WriteTx<'_>, team: &TeamKey, record: &SyncRecord) -> StoreResult<()> {
    TEMPLATE_SYNCS.put(tx, team.as_str(), record)
}
