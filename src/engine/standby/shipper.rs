//! Task that writes backups and changed rows to the place.

use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{Notify, watch};

use store::{ChangedRows, ChangesHeader, Store, back_up_snapshot};

use super::lease::BackupList;
use super::place::{PlaceError, StandbyPlace, StoredBackup, surplus};
use super::{StandbyStatus, StandbyTimings};
use crate::clock::Clock;
use crate::periodic_task::ShutdownSignal;

/// Number of backups that are kept, with the rows that changed after them.
const KEPT_BACKUPS: usize = 8;

/// Number of files of changed rows after which a new backup begins.
const MAX_FILES: u64 = 2_000;

/// Size of the files of changed rows after which a new backup begins, in bytes. A restore reads them all.
const MAX_CHANGED_BYTES: usize = 64 << 20;

/// Age of a backup after which a new one begins.
const MAX_AGE: Duration = Duration::from_secs(24 * 60 * 60);

/// Pauses before a failed write is repeated.
const RETRY_PAUSES: [Duration; 4] = [
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(5),
    Duration::from_secs(10),
];

/// Task that writes backups and changed rows to the place.
pub(super) struct Shipper {
    pub(super) place: StandbyPlace,
    pub(super) store: Store,
    pub(super) clock: Clock,
    pub(super) timings: StandbyTimings,
    pub(super) status: watch::Sender<StandbyStatus>,
    pub(super) lists: watch::Sender<BackupList>,
    /// Notified when somebody waits for changes to be in the place.
    pub(super) demand: Arc<Notify>,
    /// Number of the holder.
    pub(super) epoch: u64,
    /// Backups in the place, the oldest first.
    pub(super) backups: Vec<StoredBackup>,
}

/// Backup that changed rows are added to.
struct CurrentBackup {
    name: String,
    begun: Instant,
    files: u64,
    bytes: usize,
}

impl CurrentBackup {
    fn is_used_up(&self) -> bool {
        self.files >= MAX_FILES
            || self.bytes >= MAX_CHANGED_BYTES
            || self.begun.elapsed() >= MAX_AGE
    }
}

impl Shipper {
    /// Works until the lease is lost. Writes what is left when shutdown is requested.
    pub(super) async fn run(mut self, stop: ShutdownSignal) {
        let mut lost = self.status.subscribe();
        let is_lost = async move {
            // An error means that this process ends.
            let _ = lost.wait_for(|status| status.lost.is_some()).await;
        };
        tokio::select! {
            () = self.work(stop) => {}
            () = is_lost => {}
        }
    }

    async fn work(&mut self, stop: ShutdownSignal) {
        let mut current = None;
        loop {
            let backup = match current
                .take()
                .filter(|backup: &CurrentBackup| !backup.is_used_up())
            {
                Some(backup) => backup,
                None => self.begin_backup().await,
            };
            let is_last = stop.is_requested();
            current = self.ship(backup).await;
            if is_last {
                return;
            }
            if current.is_some() {
                tokio::select! {
                    () = self.demand.notified() => {}
                    () = tokio::time::sleep(self.timings.interval) => {}
                    () = stop.requested() => {}
                }
            }
        }
    }

    /// Writes a new backup, and removes those that are no longer kept.
    async fn begin_backup(&mut self) -> CurrentBackup {
        let mut attempt = 0;
        loop {
            match self.try_begin_backup().await {
                Ok(backup) => {
                    self.status.send_modify(|status| status.ship_problem = None);
                    self.remove_old_backups().await;
                    return backup;
                }
                Err(error) => self.pause_after(&error, &mut attempt).await,
            }
        }
    }

    async fn try_begin_backup(&mut self) -> Result<CurrentBackup, PlaceError> {
        let begun = Instant::now();
        let snapshot = self
            .store
            .begin_change_log()
            .map_err(store::BackupError::from)?;
        let last_commit = snapshot.last_commit;
        let now = self.clock.now();
        let name = format!("{:08}-{}", self.epoch, now.to_string().replace(':', "-"));
        self.backups.retain(|backup| backup.name != name);
        self.backups.push(StoredBackup::begun(name.clone(), now));
        // Listed before it is written, so that what an interrupted upload left is found and removed.
        self.list().await;
        let write = move |out: &mut dyn Write| back_up_snapshot(&snapshot.tx, now, out);
        let (parts, header) = self.place.write_backup(&name, write).await?;
        if let Some(written) = self.backups.last_mut() {
            written.complete(parts, &header);
        }
        self.list().await;
        self.status
            .send_modify(|status| status.report_shipped(last_commit, now));
        tracing::info!(backup = name, parts, place = %self.place, "Wrote a backup for the standby.");
        Ok(CurrentBackup {
            name,
            begun,
            files: 0,
            bytes: 0,
        })
    }

    /// Writes the list of backups into the record.
    async fn list(&self) {
        let version = self.lists.borrow().version + 1;
        let backups = self.backups.clone();
        let mut status = self.status.subscribe();
        self.lists.send_replace(BackupList { version, backups });
        // Fails only when this process ends.
        let _ = status.wait_for(|status| status.listed >= version).await;
    }

    /// Removes backups beyond those that are kept, and those whose upload was interrupted.
    async fn remove_old_backups(&mut self) {
        let mut removed = Vec::new();
        for name in surplus(&self.backups, KEPT_BACKUPS) {
            match self.place.remove_backup(&name).await {
                Ok(()) => removed.push(name),
                // Tried again with the next backup.
                Err(error) => {
                    tracing::warn!(backup = name, %error, "Failed to remove an old backup.");
                }
            }
        }
        if !removed.is_empty() {
            self.backups
                .retain(|backup| !removed.contains(&backup.name));
            self.list().await;
        }
    }

    /// Writes the rows that have changed. `None` if they are incomplete, so that a new backup is needed.
    async fn ship(&self, mut backup: CurrentBackup) -> Option<CurrentBackup> {
        let Some(changed) = self.store.take_changes() else {
            tracing::info!(
                "More has changed than is kept in memory; beginning a new backup for the standby."
            );
            return None;
        };
        let now = self.clock.now();
        if !changed.is_empty() {
            backup.files += 1;
            backup.bytes += changed.size();
            self.write_changes(&backup, &changed).await;
        }
        self.status
            .send_modify(|status| status.report_shipped(changed.last_commit, now));
        Some(backup)
    }

    async fn write_changes(&self, backup: &CurrentBackup, changed: &ChangedRows) {
        let header = ChangesHeader {
            backup: backup.name.clone(),
            number: backup.files,
            taken_at: self.clock.now(),
        };
        let mut attempt = 0;
        loop {
            let file = changed.to_file(&header).map_err(store::BackupError::from);
            let written = match file {
                Ok(file) => {
                    let write = self
                        .place
                        .write_changes(&backup.name, backup.files, file.into());
                    write.await
                }
                Err(error) => Err(error.into()),
            };
            match written {
                Ok(()) => return self.status.send_modify(|status| status.ship_problem = None),
                Err(error) => self.pause_after(&error, &mut attempt).await,
            }
        }
    }

    async fn pause_after(&self, error: &PlaceError, attempt: &mut usize) {
        let now = self.clock.now();
        let text = error.to_string();
        self.status
            .send_modify(|status| status.report_ship_problem(text, now));
        let pause = RETRY_PAUSES.get(*attempt).or(RETRY_PAUSES.last());
        *attempt += 1;
        tokio::time::sleep(pause.copied().unwrap_or_default()).await;
    }
}
