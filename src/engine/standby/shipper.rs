//! Task that writes backups and changed rows to the place.
//!
//! A new backup is uploaded beside the current one. Until it is complete, changed rows are written to both, so that what is
//! in the place can be restored at any time.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use store::{BackupHeader, ChangedRows, ChangesHeader, Store, back_up_snapshot};

use super::boot_time::BootTime;
use super::lease::{BackupList, MIN_PAUSE};
use super::place::{PlaceError, StandbyPlace};
use super::record::{StoredBackup, forget, surplus};
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
    pub(super) progress: Progress,
}

/// What the task is doing.
#[derive(Default)]
pub(super) struct Progress {
    /// Complete backup that changed rows are added to; `None` before the first one.
    current: Option<CurrentBackup>,
    background: Background,
    /// Number of uploads that have failed since the last one that has not.
    failed_uploads: usize,
    /// Time of the next upload after a failed one.
    retry_at: Option<Instant>,
}

/// Backup that changed rows are added to.
struct CurrentBackup {
    name: String,
    begun: Instant,
    files: u64,
    bytes: usize,
}

/// Work beside the files of changed rows.
#[derive(Default)]
enum Background {
    #[default]
    Idle,
    /// Upload of the next backup.
    Upload(Upload),
    /// Removal of old backups. Returns the names of those that are gone.
    Removal(BoxFuture<'static, Vec<String>>),
}

struct Upload {
    backup: CurrentBackup,
    work: BoxFuture<'static, UploadResult>,
}

/// Number of parts and header of an uploaded backup.
type UploadResult = Result<(u32, BackupHeader), PlaceError>;

/// Result of work in the background.
enum Finished {
    Upload(UploadResult),
    Removal(Vec<String>),
}

impl CurrentBackup {
    fn is_used_up(&self) -> bool {
        self.files >= MAX_FILES
            || self.bytes >= MAX_CHANGED_BYTES
            || self.begun.elapsed() >= MAX_AGE
    }
}

impl Background {
    /// Resolves when the work has ended.
    async fn finished(&mut self) -> Finished {
        match self {
            Background::Idle => std::future::pending().await,
            Background::Upload(upload) => Finished::Upload((&mut upload.work).await),
            Background::Removal(work) => Finished::Removal(work.await),
        }
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
        loop {
            let is_stopping = stop.is_requested();
            if !(is_stopping && self.progress.current.is_some()) {
                self.begin_upload_if_due().await;
            }
            self.ship().await;
            let is_full = self.status.borrow().is_full();
            if is_full {
                self.make_space().await;
            }
            if is_stopping && self.progress.current.is_some() {
                return;
            }
            let wake_up = self.next_wake_up();
            let mut status = self.status.subscribe();
            let finished = tokio::select! {
                () = self.demand.notified() => None,
                () = tokio::time::sleep_until(wake_up) => None,
                // A renewal has met the end of the space, or has found some again.
                _ = status.wait_for(|status| status.is_full() != is_full) => None,
                () = stop.requested(), if !is_stopping => None,
                finished = self.progress.background.finished() => Some(finished),
            };
            match finished {
                Some(Finished::Upload(result)) => self.finish_upload(result).await,
                Some(Finished::Removal(removed)) => self.finish_removal(&removed).await,
                None => {}
            }
        }
    }

    fn next_wake_up(&self) -> Instant {
        let interval = Instant::now() + self.timings.interval;
        let retry = self.progress.retry_at.filter(|at| *at > Instant::now());
        retry.map_or(interval, |at| at.min(interval))
    }

    /// Begins to upload a backup if there is none, or the current one is used up.
    async fn begin_upload_if_due(&mut self) {
        let progress = &self.progress;
        let is_due = progress
            .current
            .as_ref()
            .is_none_or(CurrentBackup::is_used_up)
            && matches!(progress.background, Background::Idle)
            && progress.retry_at.is_none_or(|at| at <= Instant::now());
        if is_due && let Err(error) = self.begin_upload().await {
            self.upload_failed(&error);
        }
    }

    async fn begin_upload(&mut self) -> Result<(), PlaceError> {
        let begun = Instant::now();
        let snapshot = self.store.begin_change_log();
        let snapshot = snapshot.map_err(store::BackupError::from)?;
        // Rows of commits before the snapshot are missing only in the current backup.
        match snapshot.changed_before {
            Some(changed) => self.ship_to_current(&changed).await,
            None => self.progress.current = None,
        }
        let now = self.clock.now();
        let name = format!("{:08}-{}", self.epoch, now.to_string().replace(':', "-"));
        self.backups.retain(|backup| backup.name != name);
        self.backups.push(StoredBackup::begun(name.clone(), now));
        // Listed before it is written, so that what an interrupted upload left is found and removed.
        if !self.list().await {
            self.delay_upload();
            return Ok(());
        }
        let (place, to, tx) = (self.place.clone(), name.clone(), snapshot.tx);
        let write = move |out: &mut dyn Write| back_up_snapshot(&tx, now, out);
        let work = Box::pin(async move { place.write_backup(&to, write).await });
        let backup = CurrentBackup {
            name,
            begun,
            files: 0,
            bytes: 0,
        };
        self.progress.background = Background::Upload(Upload { backup, work });
        Ok(())
    }

    async fn finish_upload(&mut self, result: UploadResult) {
        let Background::Upload(upload) = std::mem::take(&mut self.progress.background) else {
            return;
        };
        match result {
            Ok((parts, header)) => {
                let name = upload.backup.name.clone();
                let mut entries = self.backups.iter_mut();
                if let Some(entry) = entries.find(|backup| backup.name == name) {
                    entry.complete(parts, &header);
                }
                // In the record, the backup before this one is the newest that is complete.
                while !self.list().await {
                    self.place.make_space(&mut self.backups, 2).await;
                    tokio::time::sleep(MIN_PAUSE).await;
                }
                self.progress.current = Some(upload.backup);
                (self.progress.failed_uploads, self.progress.retry_at) = (0, None);
                tracing::info!(backup = name, parts, place = %self.place, "Wrote a backup for the standby.");
            }
            Err(error) => {
                self.upload_failed(&error);
                if error.is_full() {
                    self.make_space().await;
                }
            }
        }
        self.begin_removal();
    }

    /// Schedules the next upload. While there is a current backup, nothing waits for it.
    fn upload_failed(&mut self, error: &PlaceError) {
        tracing::warn!(%error, "Failed to write a backup for the standby.");
        if self.progress.current.is_none() {
            self.report_problem(error);
        }
        self.delay_upload();
    }

    fn delay_upload(&mut self) {
        let pause = pause_after(self.progress.failed_uploads);
        self.progress.failed_uploads += 1;
        self.progress.retry_at = Some(Instant::now() + pause);
    }

    /// Writes the list of backups into the record. Returns whether it is there: not if the place is full.
    async fn list(&mut self) -> bool {
        let version = self.lists.borrow().version + 1;
        let backups = self.backups.clone();
        let mut status = self.status.subscribe();
        self.lists.send_replace(BackupList { version, backups });
        let is_full = |status: &StandbyStatus| {
            let problem = status.lease_problem.as_ref();
            problem.is_some_and(|problem| problem.is_full)
        };
        let done = status.wait_for(|status| status.listed >= version || is_full(status));
        // Fails only when this process ends.
        done.await.is_ok_and(|status| status.listed >= version)
    }

    /// Begins to remove backups beyond those that are kept, and those whose upload was interrupted.
    fn begin_removal(&mut self) {
        let names = surplus(&self.backups, KEPT_BACKUPS);
        if names.is_empty() {
            return;
        }
        let place = self.place.clone();
        let removal = async move { place.remove_backups(names).await };
        self.progress.background = Background::Removal(Box::pin(removal));
    }

    /// Removes all backups but the newest one, so that changes and the record can be written to a full place.
    async fn make_space(&mut self) {
        if let Background::Upload(_) = std::mem::take(&mut self.progress.background) {
            self.delay_upload();
        }
        self.place.make_space(&mut self.backups, 1).await;
    }

    async fn finish_removal(&mut self, removed: &[String]) {
        self.progress.background = Background::Idle;
        if !removed.is_empty() {
            forget(&mut self.backups, removed);
            // If the place is full, the next list is without them, too.
            self.list().await;
        }
    }

    /// Writes the rows that have changed to the current backup, and to the one that is being uploaded.
    async fn ship(&mut self) {
        let Some(changed) = self.store.take_changes() else {
            self.discard_incomplete();
            return;
        };
        let now = self.clock.now();
        if !changed.is_empty() {
            self.ship_to_upload(&changed).await;
            self.ship_to_current(&changed).await;
        }
        if self.progress.current.is_some() {
            self.status
                .send_modify(|status| status.report_shipped(changed.last_commit, now));
        }
    }

    /// Rows are missing, so only a new backup can be restored with all of them.
    fn discard_incomplete(&mut self) {
        let is_uploading = matches!(self.progress.background, Background::Upload(_));
        if self.progress.current.take().is_some() || is_uploading {
            tracing::info!(
                "More has changed than is kept in memory; beginning a new backup for the standby."
            );
        }
        self.status.send_modify(StandbyStatus::report_incomplete);
        self.abandon_upload();
    }

    fn abandon_upload(&mut self) {
        if matches!(self.progress.background, Background::Upload(_)) {
            self.progress.background = Background::Idle;
            self.begin_removal();
        }
    }

    async fn ship_to_upload(&mut self, changed: &ChangedRows) {
        let Background::Upload(Upload { backup, .. }) = &mut self.progress.background else {
            return;
        };
        let result = write_changes(&self.place, &self.clock, backup, changed).await;
        let (name, files) = (backup.name.clone(), backup.files);
        match result {
            Ok(()) => self.note_files(&name, files),
            Err(error) => {
                self.upload_failed(&error);
                self.abandon_upload();
            }
        }
    }

    async fn ship_to_current(&mut self, changed: &ChangedRows) {
        let mut attempt = 0;
        while !changed.is_empty()
            && let Some(backup) = &mut self.progress.current
        {
            match write_changes(&self.place, &self.clock, backup, changed).await {
                Ok(()) => {
                    let (name, files) = (backup.name.clone(), backup.files);
                    self.note_files(&name, files);
                    return;
                }
                Err(error) => {
                    self.report_problem(&error);
                    if error.is_full() {
                        self.make_space().await;
                    }
                    tokio::time::sleep(pause_after(attempt)).await;
                    attempt += 1;
                }
            }
        }
    }

    /// Notes the number of files of a backup for the next renewal, which writes it into the record.
    fn note_files(&mut self, name: &str, files: u64) {
        let mut backups = self.backups.iter_mut();
        let Some(backup) = backups.find(|backup| backup.name == name) else {
            return;
        };
        backup.changes = files;
        self.lists.send_if_modified(|list| {
            list.backups.clone_from(&self.backups);
            // A renewal of its own would take as long as the file.
            false
        });
    }

    fn report_problem(&self, error: &PlaceError) {
        let now = self.clock.now();
        let until = self.timings.end_of_lease(BootTime::now());
        self.status
            .send_modify(|status| status.report_ship_problem(error, now, until));
    }
}

/// Writes the next file of changed rows of a backup.
async fn write_changes(
    place: &StandbyPlace,
    clock: &Clock,
    backup: &mut CurrentBackup,
    changed: &ChangedRows,
) -> Result<(), PlaceError> {
    let header = ChangesHeader {
        backup: backup.name.clone(),
        number: backup.files + 1,
        taken_at: clock.now(),
    };
    let file = changed.to_file(&header).map_err(store::BackupError::from)?;
    let written = place.write_changes(&backup.name, header.number, file.into());
    written.await?;
    backup.files = header.number;
    backup.bytes += changed.size();
    Ok(())
}

fn pause_after(attempt: usize) -> Duration {
    let pause = RETRY_PAUSES.get(attempt).or(RETRY_PAUSES.last());
    pause.copied().unwrap_or_default()
}

#[cfg(test)]
mod tests;
