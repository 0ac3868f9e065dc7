//! Series of whole backups in a place, written from outside of the service.
//!
//! The command that writes it holds the lease of the place, so that no other machine restores a backup while the service
//! of this one may be working. The service does not know of the lease: if the command ends, the service continues.

use std::fs::File;
use std::io::Seek;
use std::pin::pin;

use store::{BackupError, BackupHeader, StandbyIdentity};
use vendors::object_store::{ObjectTag, Replaced};

use super::StandbyTimings;
use super::place::{PlaceError, StandbyPlace};
use super::record::{PlaceRecord, StoredBackup, forget, surplus};
use crate::clock::Clock;

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
    clock: Clock,
    record: PlaceRecord,
    tag: Option<ObjectTag>,
    /// Number of backups that are kept.
    kept: usize,
    /// Reports the first of several renewals that fail one after the other.
    report: fn(&SeriesError),
    /// Whether the last renewal failed.
    is_failing: bool,
}

impl BackupSeries {
    /// Opens the series of a data folder, or begins one in an empty place. `report` is called when renewals of the lease
    /// begin to fail.
    ///
    /// # Errors
    /// If another service uses the place, or it cannot be read.
    pub async fn open(
        place: StandbyPlace,
        identity: &StandbyIdentity,
        kept: usize,
        clock: Clock,
        report: fn(&SeriesError),
    ) -> Result<Self, SeriesError> {
        let (record, tag) = match place.read_record().await? {
            None => {
                let lease_ms = StandbyTimings::default().lease_ms();
                let record = PlaceRecord::first_of_series(identity, lease_ms, clock.now());
                (record, None)
            }
            Some((record, tag)) => {
                let (place, host) = (place.to_string(), record.host.clone());
                if !record.series {
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
            clock,
            record,
            tag,
            kept,
            report,
            is_failing: false,
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
        self.remove_old().await?;
        let stored = StoredBackup::begun(name.clone(), taken_at);
        self.record.backups.retain(|backup| backup.name != name);
        self.record.backups.push(stored);
        self.renew().await?;
        let copy = move |out: &mut dyn std::io::Write| {
            file.rewind()?;
            Ok::<_, BackupError>(std::io::copy(&mut file, out)?)
        };
        let place = self.place.clone();
        let (parts, _) = self.hold_during(place.write_backup(&name, copy)).await??;
        if let Some(written) = self.record.backups.last_mut() {
            written.complete(parts, &header);
        }
        self.renew().await?;
        self.remove_old().await
    }

    /// Renews the lease until `work` has ended.
    ///
    /// # Errors
    /// If another service uses the place by now.
    pub async fn hold_during<T>(
        &mut self,
        work: impl Future<Output = T>,
    ) -> Result<T, SeriesError> {
        let mut work = pin!(work);
        let interval = StandbyTimings::default().renewal;
        loop {
            tokio::select! {
                result = &mut work => return Ok(result),
                () = tokio::time::sleep(interval) => match self.renew().await {
                    // The lease has time for other attempts.
                    Err(error) if !error.is_final() => {
                        if !std::mem::replace(&mut self.is_failing, true) {
                            (self.report)(&error);
                        }
                    }
                    renewed => renewed?,
                },
            }
        }
    }

    /// Gives the lease back, so that another machine can restore a backup at once.
    ///
    /// # Errors
    /// If the place cannot be used, or another service uses it by now.
    pub async fn release(&mut self) -> Result<(), SeriesError> {
        match self.tag {
            Some(_) => self.write_record(true).await,
            None => Ok(()),
        }
    }

    /// Removes backups that are no longer kept, and those whose upload was interrupted.
    async fn remove_old(&mut self) -> Result<(), SeriesError> {
        let removed = surplus(&self.record.backups, self.kept);
        for backup in &removed {
            self.place.remove_backup(backup).await?;
        }
        if !removed.is_empty() {
            forget(&mut self.record.backups, &removed);
            self.renew().await?;
        }
        Ok(())
    }

    /// Renews the lease, and writes the list of backups.
    async fn renew(&mut self) -> Result<(), SeriesError> {
        self.write_record(false).await
    }

    async fn write_record(&mut self, released: bool) -> Result<(), SeriesError> {
        self.record.renewal += 1;
        self.record.renewed_at = self.clock.now();
        self.record.released = released;
        loop {
            let replaced = self.place.replace_record(&self.record, self.tag.as_ref());
            if let Replaced::Done(tag) = replaced.await? {
                self.tag = Some(tag);
                self.is_failing = false;
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
