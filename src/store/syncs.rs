//! How the last sync of each project ended.

use serde::{Deserialize, Serialize};

use domain::ids::TeamKey;
use domain::templates::SyncReport;
use domain::time::Timestamp;

use super::StoreResult;
use super::shelf::{Rows, WriteTx};
use super::tables::SYNCS;

/// The end of a sync.
///
/// Stored: fields may be added with a default, never renamed without a migration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Synced {
    pub at: Timestamp,
    /// What came of it, or why nothing did.
    pub outcome: Result<SyncReport, String>,
}

pub fn last(tx: &impl Rows, team: &TeamKey) -> StoreResult<Option<Synced>> {
    SYNCS.get(tx, team.as_str())
}

pub fn put(tx: &WriteTx<'_>, team: &TeamKey, synced: &Synced) -> StoreResult<()> {
    SYNCS.put(tx, team.as_str(), synced)
}
