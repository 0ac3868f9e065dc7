//! Record of a place that a service and its standby share: who works with the place, and which backups are in it.

use serde::{Deserialize, Serialize};

use domain::time::Timestamp;
use store::{BackupHeader, StandbyIdentity};

/// Record of a place: which service works with it, and the backups in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlaceRecord {
    /// ID of the data folder whose service holds the lease.
    pub holder: String,
    /// Name of the holder's machine, for people.
    pub host: String,
    /// Number of the holder: each one that takes over has the next.
    pub epoch: u64,
    /// Number of renewals of the lease.
    pub renewal: u64,
    /// Time of the last renewal, by the holder's clock.
    pub renewed_at: Timestamp,
    /// Duration of the lease after a renewal, in milliseconds.
    pub lease_ms: u64,
    /// Whether `backup --to` writes the place, and not a service.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub series: bool,
    /// Whether the holder has given the lease back, so that it is free at once.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub released: bool,
    /// ID of the start of the holder's service; `None` while its store is being restored.
    #[serde(default)]
    pub start: Option<String>,
    /// Backups, the oldest first.
    pub backups: Vec<StoredBackup>,
}

/// Number in the record of a series.
const SERIES_EPOCH: u64 = 0;

/// Number of the first holder of a place.
const FIRST_EPOCH: u64 = 1;

impl PlaceRecord {
    /// Record of the first service that works with a place.
    pub(super) fn first(identity: &StandbyIdentity, lease_ms: u64, now: Timestamp) -> Self {
        Self {
            holder: identity.id.clone(),
            host: host_name(),
            epoch: FIRST_EPOCH,
            renewal: 0,
            renewed_at: now,
            lease_ms,
            series: false,
            released: false,
            start: None,
            backups: Vec::new(),
        }
    }

    /// Record of a new series of backups.
    pub(super) fn first_of_series(
        identity: &StandbyIdentity,
        lease_ms: u64,
        now: Timestamp,
    ) -> Self {
        Self {
            epoch: SERIES_EPOCH,
            series: true,
            ..Self::first(identity, lease_ms, now)
        }
    }

    /// Whether the first holder has not begun its first backup.
    pub(super) fn is_first(&self) -> bool {
        self.epoch == FIRST_EPOCH && self.backups.is_empty()
    }

    /// Whether the place has a series of backups that was not restored.
    pub(super) fn is_of_unrestored_series(&self) -> bool {
        self.series && self.epoch == SERIES_EPOCH
    }

    /// Whether a data folder with the identity of the holder has begun the last renewal. Its copy has not.
    pub(super) fn is_known_to(&self, identity: &StandbyIdentity) -> bool {
        let is_later = |renewal: u64| self.renewal > renewal;
        self.start.is_none() || !identity.renewal.is_some_and(is_later)
    }

    /// Whether the process that wrote `last` has sent this record, too: it is not later, or has the time of the renewal whose
    /// answer that process has not received. A live copy of the process, or itself before its machine was reverted to a
    /// snapshot, has the same start, but sends the next renewal at another time.
    pub(super) fn is_sent_after(&self, last: &Self, unanswered: Option<Timestamp>) -> bool {
        let is_own = self.renewal <= last.renewal || unanswered == Some(self.renewed_at);
        is_own && self.has_holder_of(last)
    }

    /// Whether the holder is that of another version of the record. A copy of its data folder has another start.
    pub(super) fn has_holder_of(&self, other: &Self) -> bool {
        let holder = |record: &Self| (record.holder.clone(), record.epoch, record.start.clone());
        holder(self) == holder(other)
    }
}

/// Backup in a place. Files with the rows that changed later follow it, numbered from 1.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StoredBackup {
    /// Name, which is the folder of its objects.
    pub name: String,
    /// Time of the backup.
    pub taken_at: Timestamp,
    /// Number of parts; `None` while the backup is being written.
    pub parts: Option<u32>,
    /// Number of files of changed rows, at least: it is written with the next renewal of the lease.
    #[serde(default)]
    pub changes: u64,
    /// Version of the schema of its store; `None` if that is unknown.
    #[serde(default)]
    pub schema: Option<u64>,
    /// Number of encrypted secrets in it.
    #[serde(default)]
    pub sealed_secrets: u64,
}

impl StoredBackup {
    /// Entry of a backup that is being written.
    pub(super) fn begun(name: String, taken_at: Timestamp) -> Self {
        Self {
            name,
            taken_at,
            parts: None,
            changes: 0,
            schema: None,
            sealed_secrets: 0,
        }
    }

    /// Completes the entry of a backup with its number of parts and its header.
    pub(super) fn complete(&mut self, parts: u32, header: &BackupHeader) {
        self.parts = Some(parts);
        self.schema = Some(header.schema);
        self.sealed_secrets = header.sealed_secrets;
    }
}

/// Name of this machine, for people.
pub(super) fn host_name() -> String {
    let system = rustix::system::uname();
    match system.nodename().to_str() {
        Ok(name) if !name.is_empty() => name.to_owned(),
        _ => "another machine".to_owned(),
    }
}

/// Names of the backups that are removed: all that were not completed, and the oldest beyond the number to keep.
pub(super) fn surplus(backups: &[StoredBackup], kept: usize) -> Vec<String> {
    let complete = backups
        .iter()
        .filter(|backup| backup.parts.is_some())
        .count();
    let mut old = complete.saturating_sub(kept);
    let is_removed = |backup: &&StoredBackup| {
        let is_old = backup.parts.is_some() && old > 0;
        old -= usize::from(is_old);
        is_old || backup.parts.is_none()
    };
    let removed = backups.iter().filter(is_removed);
    removed.map(|backup| backup.name.clone()).collect()
}

/// Takes removed backups from a list. The last one stays if its upload was interrupted: a write that hangs may be performed
/// after the removal, so it is removed again with the next backup.
pub(super) fn forget(backups: &mut Vec<StoredBackup>, removed: &[String]) {
    let interrupted = backups.pop_if(|backup| backup.parts.is_none());
    backups.retain(|backup| !removed.contains(&backup.name));
    backups.extend(interrupted);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_newest_complete_backups() {
        let backup = |(number, parts): (u32, Option<u32>)| StoredBackup {
            parts,
            ..StoredBackup::begun(number.to_string(), Timestamp::EPOCH)
        };
        let listed = [
            (1, Some(3)),
            (2, None),
            (3, Some(1)),
            (4, Some(1)),
            (5, None),
        ]
        .map(backup);
        assert_eq!(surplus(&listed, 2), ["1", "2", "5"]);
        assert_eq!(surplus(&listed, 1), ["1", "2", "3", "5"]);
        assert_eq!(surplus(&listed, 9), ["2", "5"]);
    }
}
