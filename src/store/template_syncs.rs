//! How the last sync of each project ended.

use serde::{Deserialize, Serialize};

use domain::ids::TeamKey;
use domain::templates::SyncReport;
use domain::time::Timestamp;

use super::StoreResult;
use super::table::{ReadableTx, WriteTx};
use super::tables::TEMPLATE_SYNCS;

/// The end of a sync.
///
/// Stored: fields may be added with a default, never renamed without a migration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SyncRecord {
    pub at: Timestamp,
    /// What came of it, or why nothing did.
    pub outcome: Result<SyncReport, String>,
}

pub fn last(tx: &impl ReadableTx, team: &TeamKey) -> StoreResult<Option<SyncRecord>> {
    TEMPLATE_SYNCS.get(tx, team.as_str())
}

pub fn put(tx: &WriteTx<'_>, team: &TeamKey, synced: &SyncRecord) -> StoreResult<()> {
    TEMPLATE_SYNCS.put(tx, team.as_str(), synced)
}
