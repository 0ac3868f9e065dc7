//! Content of the place that a service and its standby share: the record, backups in parts, and files of changed rows.

use std::io::{self, Write};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::try_join_all;
use serde::{Deserialize, Serialize};

use domain::secret::Secret;
use domain::time::{Timestamp, duration_text};
use store::{BackupError, BackupHeader, StandbyIdentity};
use vendors::http::{Client, Redactor};
use vendors::object_store::{Bucket, Folder, ObjectStore, ObjectStoreError, ObjectTag, Replaced};

use crate::config::{PlaceConfig, ProxyConfig};

/// Name of the record.
const RECORD: &str = "standby.json";

/// Number of objects that are looked for, and removed, at once.
const REMOVED_AT_ONCE: u64 = 16;

/// Size of the parts of a backup, in bytes.
const PART_BYTES: usize = 4 << 20;

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
pub(super) const SERIES_EPOCH: u64 = 0;

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
            released: false,
            start: None,
            backups: Vec::new(),
        }
    }

    /// Whether the first holder has not begun its first backup.
    pub(super) fn is_first(&self) -> bool {
        self.epoch == FIRST_EPOCH && self.backups.is_empty()
    }

    /// Whether a service holds, or held, a lease. A series of backups has none.
    pub(super) fn has_lease(&self) -> bool {
        self.lease_ms > 0
    }

    /// Whether the place has a series of backups that was not restored.
    pub(super) fn is_of_series(&self) -> bool {
        !self.has_lease() && self.epoch == SERIES_EPOCH
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

/// Error of a place.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    /// The place cannot be reached or does not permit it.
    #[error(transparent)]
    Objects(#[from] ObjectStoreError),
    /// A backup cannot be made or read.
    #[error(transparent)]
    Backup(#[from] BackupError),
    /// The place does not answer in time.
    #[error("{place} did not answer within {} s", limit.as_secs_f32())]
    Slow {
        /// Address of the place.
        place: String,
        /// Time that was waited.
        limit: Duration,
    },
    /// The record is not one of this program.
    #[error("{place}/{RECORD} cannot be read: {cause}")]
    Record {
        /// Address of the place.
        place: String,
        /// Error of the decoder.
        cause: serde_json::Error,
    },
}

impl PlaceError {
    /// Whether the place may be available later.
    pub(super) fn is_temporary(&self) -> bool {
        match self {
            PlaceError::Objects(error) => error.is_temporary(),
            PlaceError::Slow { .. } => true,
            PlaceError::Backup(_) | PlaceError::Record { .. } => false,
        }
    }

    /// Whether there is no space left in the place.
    pub(super) fn is_full(&self) -> bool {
        matches!(self, PlaceError::Objects(error) if error.is_full())
    }
}

impl From<tokio::task::JoinError> for PlaceError {
    fn from(error: tokio::task::JoinError) -> Self {
        PlaceError::Backup(io::Error::other(error).into())
    }
}

/// Place that a service and its standby share; cheap to clone.
#[derive(Clone)]
pub struct StandbyPlace(ObjectStore);

impl StandbyPlace {
    /// Creates the client of a place.
    ///
    /// # Errors
    /// If TLS cannot be set up, or the address of a proxy is invalid.
    pub fn open(
        config: &PlaceConfig,
        proxies: &ProxyConfig,
        redactor: &Redactor,
    ) -> Result<Self, String> {
        Ok(Self(match config {
            PlaceConfig::Folder(path) => ObjectStore::Folder(Folder::new(path)),
            PlaceConfig::Bucket {
                address,
                key,
                session_token,
            } => {
                redactor.learn(config.secrets().map(Secret::expose));
                let proxies = proxies.for_clients()?;
                let client = Client::with_proxies(&proxies, "the bucket", redactor.clone())?;
                ObjectStore::Bucket(Bucket::new(
                    client,
                    address.clone(),
                    key.clone(),
                    session_token.clone(),
                ))
            }
        }))
    }

    /// Reads the record. `None` if the place is empty.
    ///
    /// # Errors
    /// If the place cannot be reached, or the record is invalid.
    pub async fn read_record(&self) -> Result<Option<(PlaceRecord, ObjectTag)>, PlaceError> {
        let Some(object) = self.0.get(RECORD).await? else {
            return Ok(None);
        };
        let record = serde_json::from_slice(&object.bytes);
        let mut record: PlaceRecord = record.map_err(|cause| PlaceError::Record {
            place: self.0.to_string(),
            cause,
        })?;
        // Names become paths.
        record.backups.retain(|backup| is_name(&backup.name));
        Ok(Some((record, object.tag)))
    }

    /// Replaces the record that has the tag `read`, or creates it.
    pub(super) async fn replace_record(
        &self,
        record: &PlaceRecord,
        read: Option<&ObjectTag>,
    ) -> Result<Replaced, PlaceError> {
        let json = serde_json::to_vec(record).map_err(io::Error::from);
        let json = json.map_err(BackupError::from)?;
        Ok(self.0.replace(RECORD, json.into(), read).await?)
    }

    /// Replaces the record like [`replace_record`](Self::replace_record) by that of a service that begins. In a full place,
    /// old backups are removed for that.
    pub(super) async fn replace_record_of_start(
        &self,
        record: &mut PlaceRecord,
        read: Option<&ObjectTag>,
    ) -> Result<Replaced, PlaceError> {
        match self.replace_record(record, read).await {
            Err(error) if error.is_full() => {
                self.make_space(&mut record.backups, 1).await;
                self.replace_record(record, read).await
            }
            replaced => replaced,
        }
    }

    /// Writes a backup in parts, which `write` produces. Returns their number and the result of `write`. Holds two parts in
    /// memory.
    pub(super) async fn write_backup<T: Send + 'static>(
        &self,
        name: &str,
        write: impl FnOnce(&mut dyn Write) -> Result<T, BackupError> + Send + 'static,
    ) -> Result<(u32, T), PlaceError> {
        let (sender, mut parts) = tokio::sync::mpsc::channel(1);
        let writing = tasks::spawn_blocking(move || {
            let mut out = PartWriter {
                part: Vec::new(),
                sender,
            };
            let written = write(&mut out)?;
            out.send()?;
            Ok::<_, BackupError>(written)
        });
        let mut number = 0;
        while let Some(part) = parts.recv().await {
            number += 1;
            self.0.put(&part_name(name, number.into()), part).await?;
        }
        Ok((number, writing.await??))
    }

    /// Reads a part of a backup, counted from 1.
    pub(super) async fn read_part(
        &self,
        backup: &str,
        number: u32,
    ) -> Result<Option<Bytes>, PlaceError> {
        let part = self.0.get(&part_name(backup, number.into())).await?;
        Ok(part.map(|object| object.bytes))
    }

    /// Writes the file with this number of rows that changed after a backup.
    pub(super) async fn write_changes(
        &self,
        backup: &str,
        number: u64,
        file: Bytes,
    ) -> Result<(), PlaceError> {
        Ok(self.0.put(&changes_name(backup, number), file).await?)
    }

    /// Reads the file with this number of rows that changed after a backup. `None` after the last.
    pub(super) async fn read_changes(
        &self,
        backup: &str,
        number: u64,
    ) -> Result<Option<Bytes>, PlaceError> {
        let file = self.0.get(&changes_name(backup, number)).await?;
        Ok(file.map(|object| object.bytes))
    }

    /// Removes all backups but this number of the newest from the place and the list, because the place is full.
    pub(super) async fn make_space(&self, backups: &mut Vec<StoredBackup>, kept: usize) {
        let removed = self.remove_backups(surplus(backups, kept)).await;
        let listed = backups.len();
        forget(backups, &removed);
        if backups.len() < listed {
            tracing::warn!(place = %self, backups = listed - backups.len(), "Removed old backups, because the place of the standby is full.");
        }
    }

    /// Removes backups. Returns the names of those that are gone.
    pub(super) async fn remove_backups(&self, names: Vec<String>) -> Vec<String> {
        let mut removed = Vec::new();
        for name in names {
            match self.remove_backup(&name).await {
                Ok(()) => removed.push(name),
                // Tried again with the next backup.
                Err(error) => {
                    tracing::warn!(backup = name, %error, "Failed to remove an old backup.");
                }
            }
        }
        removed
    }

    /// Removes a backup and the rows that changed after it.
    pub(super) async fn remove_backup(&self, backup: &str) -> Result<(), PlaceError> {
        self.remove_numbered(|number| changes_name(backup, number))
            .await?;
        self.remove_numbered(|number| part_name(backup, number))
            .await
    }

    /// Removes the objects with the numbers from 1, from the last to the first. An interrupted removal can be repeated: it
    /// leaves no gap that is longer than what is looked at once.
    async fn remove_numbered(&self, name: impl Fn(u64) -> String) -> Result<(), PlaceError> {
        let mut last = 0;
        loop {
            let numbers = last + 1..=last + REMOVED_AT_ONCE;
            let exist = numbers.map(async |number| {
                let exists = self.0.exists(&name(number)).await?;
                Ok::<_, PlaceError>(exists.then_some(number))
            });
            match try_join_all(exist).await?.into_iter().flatten().max() {
                Some(number) => last = number,
                None => break,
            }
        }
        while last > 0 {
            let first = last.saturating_sub(REMOVED_AT_ONCE) + 1;
            let removals = (first..=last).map(async |number| self.0.delete(&name(number)).await);
            try_join_all(removals).await?;
            last = first - 1;
        }
        Ok(())
    }

    /// Limits the time of a request, so that one which hangs leaves time for another.
    pub(super) async fn within<T, E: From<PlaceError>>(
        &self,
        limit: Duration,
        request: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let place = || PlaceError::Slow {
            place: self.to_string(),
            limit,
        };
        match tokio::time::timeout(limit, request).await {
            Ok(result) => result,
            Err(_) => Err(place().into()),
        }
    }
}

impl std::fmt::Display for StandbyPlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
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

/// Time since the last renewal of a lease, for people. Leases last for seconds.
pub(crate) fn age_text(age: Duration) -> String {
    match age.as_secs() {
        seconds @ 0..60 => format!("{seconds} s"),
        _ => duration_text(age),
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

/// Whether a text is the name of a backup: digits, letters, points and hyphens, beginning with a digit.
fn is_name(text: &str) -> bool {
    let is_permitted = |byte: u8| byte.is_ascii_alphanumeric() || b".-".contains(&byte);
    text.starts_with(|first: char| first.is_ascii_digit()) && text.bytes().all(is_permitted)
}

fn part_name(backup: &str, number: u64) -> String {
    format!("{backup}/backup-{number:06}")
}

fn changes_name(backup: &str, number: u64) -> String {
    format!("{backup}/changes-{number:06}")
}

/// Writer that sends what it gets in parts.
struct PartWriter {
    part: Vec<u8>,
    sender: tokio::sync::mpsc::Sender<Bytes>,
}

impl PartWriter {
    fn send(&mut self) -> io::Result<()> {
        let part = std::mem::take(&mut self.part);
        let sent = self.sender.blocking_send(part.into());
        sent.map_err(|_| io::ErrorKind::Interrupted.into())
    }
}

impl Write for PartWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.part.extend_from_slice(bytes);
        if self.part.len() >= PART_BYTES {
            self.send()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
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

    #[test]
    fn names_of_backups_are_no_paths() {
        assert!(is_name("00000003-2026-11-27T01-02-03.456Z"));
        for path in ["", "..", "../1", "1/../2", "/1", "1 ", "a"] {
            assert!(!is_name(path), "{path}");
        }
    }
}
