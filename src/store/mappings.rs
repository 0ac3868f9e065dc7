//! Project mappings by team key.

use crate::domain::ids::TeamKey;
use crate::domain::mapping::Mapping;

use super::StoreResult;
use super::shelf::{Rows, WriteTx};
use super::tables::MAPPINGS;

pub fn get(tx: &impl Rows, team: &TeamKey) -> StoreResult<Option<Mapping>> {
    MAPPINGS.get(tx, team.as_str())
}

/// All mappings in the order of their keys.
pub fn all(tx: &impl Rows) -> StoreResult<Vec<Mapping>> {
    MAPPINGS.collect(tx, .., |_, mapping| mapping)
}

pub fn put(tx: &WriteTx<'_>, mapping: &Mapping) -> StoreResult<()> {
    MAPPINGS.put(tx, mapping.team_key.as_str(), mapping)
}

/// Whether there was such a mapping.
pub fn remove(tx: &WriteTx<'_>, team: &TeamKey) -> StoreResult<bool> {
    MAPPINGS.remove(tx, team.as_str())
}
