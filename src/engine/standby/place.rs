//! Place that a service and its standby share: the record, backups in parts, and files of changed rows.

use std::io::{self, Write};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::try_join_all;

use domain::secret::Secret;
use domain::time::duration_text;
use store::BackupError;
use vendors::http::{Client, Redactor};
use vendors::object_store::{Bucket, Folder, ObjectStore, ObjectStoreError, ObjectTag, Replaced};

use super::record::{PlaceRecord, StoredBackup, forget, surplus};
use crate::config::{PlaceConfig, ProxyConfig};

/// Name of the record.
const RECORD: &str = "standby.json";

/// Number of objects that are looked for, and removed, at once.
const REMOVED_AT_ONCE: u64 = 16;

/// Size of the parts of a backup, in bytes.
const PART_BYTES: usize = 4 << 20;

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

/// Time since the last renewal of a lease, for people. Leases last for seconds.
pub(crate) fn age_text(age: Duration) -> String {
    match age.as_secs() {
        seconds @ 0..60 => format!("{seconds} s"),
        _ => duration_text(age),
    }
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
    fn names_of_backups_are_no_paths() {
        assert!(is_name("00000003-2026-11-27T01-02-03.456Z"));
        for path in ["", "..", "../1", "1/../2", "/1", "1 ", "a"] {
            assert!(!is_name(path), "{path}");
        }
    }
}
