//! Series of whole backups in a place, written from outside of the service. It holds no lease, so nothing keeps another
//! service from working with what is restored.

use std::fs::File;
use std::io::Seek;

use domain::time::Timestamp;
use store::{BackupError, BackupHeader, StandbyIdentity};
use vendors::object_store::{ObjectTag, Replaced};

use super::place::{
    PlaceError, PlaceRecord, SERIES_EPOCH, StandbyPlace, StoredBackup, forget, host_name, surplus,
};

/// Error of a series.
#[derive(Debug, thiserror::Error)]
pub enum SeriesError {
    /// The place cannot be used.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// Another service uses the place.
    #[error("{place} has the backups of {host}; use another place, or remove what is there")]
    UsedByOther {
        /// Address of the place.
        place: String,
        /// Name of the machine.
        host: String,
    },
    /// The place is that of a standby.
    #[error(
        "{place} is the STANDBY_PLACE of the service on {host}, which writes its backups itself"
    )]
    OfStandby {
        /// Address of the place.
        place: String,
        /// Name of the machine.
        host: String,
    },
}

impl SeriesError {
    /// Whether trying again is of no use.
    pub fn is_final(&self) -> bool {
        !matches!(self, SeriesError::Place(_))
    }
}

/// Series of whole backups.
pub struct BackupSeries {
    place: StandbyPlace,
    record: PlaceRecord,
    tag: Option<ObjectTag>,
    /// Number of backups that are kept.
    kept: usize,
}

impl BackupSeries {
    /// Opens the series of a data folder, or begins one in an empty place.
    ///
    /// # Errors
    /// If another service uses the place, or it cannot be read.
    pub async fn open(
        place: StandbyPlace,
        identity: &StandbyIdentity,
        kept: usize,
        now: Timestamp,
    ) -> Result<Self, SeriesError> {
        let (record, tag) = match place.read_record().await? {
            None => (
                PlaceRecord {
                    holder: identity.id.clone(),
                    host: host_name(),
                    epoch: SERIES_EPOCH,
                    renewal: 0,
                    renewed_at: now,
                    lease_ms: 0,
                    released: false,
                    start: None,
                    backups: Vec::new(),
                },
                None,
            ),
            Some((record, tag)) => {
                let (place, host) = (place.to_string(), record.host.clone());
                if record.has_lease() {
                    return Err(SeriesError::OfStandby { place, host });
                }
                if record.holder != identity.id {
                    return Err(SeriesError::UsedByOther { place, host });
                }
                (record, Some(tag))
            }
        };
        Ok(Self {
            place,
            record,
            tag,
            kept,
        })
    }

    /// Adds a backup with its header, and removes those that are no longer kept.
    ///
    /// # Errors
    /// If the file or the place cannot be used, or another service uses the place by now.
    pub async fn add(&mut self, mut file: File, header: BackupHeader) -> Result<(), SeriesError> {
        let taken_at = header.taken_at;
        let name = format!(
            "{:08}-{}",
            self.record.epoch,
            taken_at.to_string().replace(':', "-")
        );
        // What earlier attempts have left.
        self.remove_old(taken_at).await?;
        let stored = StoredBackup::begun(name.clone(), taken_at);
        self.record.backups.retain(|backup| backup.name != name);
        self.record.backups.push(stored);
        self.list(taken_at).await?;
        let copy = move |out: &mut dyn std::io::Write| {
            file.rewind()?;
            Ok::<_, BackupError>(std::io::copy(&mut file, out)?)
        };
        let (parts, _) = self.place.write_backup(&name, copy).await?;
        if let Some(written) = self.record.backups.last_mut() {
            written.complete(parts, &header);
        }
        self.list(taken_at).await?;
        self.remove_old(taken_at).await
    }

    /// Removes backups that are no longer kept, and those whose upload was interrupted.
    async fn remove_old(&mut self, now: Timestamp) -> Result<(), SeriesError> {
        let removed = surplus(&self.record.backups, self.kept);
        for backup in &removed {
            self.place.remove_backup(backup).await?;
        }
        if !removed.is_empty() {
            forget(&mut self.record.backups, &removed);
            self.list(now).await?;
        }
        Ok(())
    }

    async fn list(&mut self, now: Timestamp) -> Result<(), SeriesError> {
        self.record.renewal += 1;
        self.record.renewed_at = now;
        loop {
            let replaced = self.place.replace_record(&self.record, self.tag.as_ref());
            if let Replaced::Done(tag) = replaced.await? {
                self.tag = Some(tag);
                return Ok(());
            }
            // The answer to an earlier write may have been lost.
            match self.place.read_record().await? {
                Some((record, tag)) if record.has_holder_of(&self.record) => self.tag = Some(tag),
                found => {
                    return Err(SeriesError::UsedByOther {
                        place: self.place.to_string(),
                        host: found.map_or_else(|| "nobody".to_owned(), |(record, _)| record.host),
                    });
                }
            }
        }
    }
}
