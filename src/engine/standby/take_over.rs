//! Take-over: waits until the lease of a place is free, takes it, and fetches the latest backup.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::try_join_all;

use domain::time::Timestamp;
use store::{Backup, BackupError, STORE_FILE, StandbyIdentity};
use vendors::object_store::{ObjectTag, Replaced};

use super::StandbyTimings;
use super::lease::MIN_PAUSE;
use super::place::{PlaceError, StandbyPlace};
use super::record::{PlaceRecord, StoredBackup, host_name};
use crate::clock::Clock;

/// Interval at which the record is read while its lease may be held.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum lease that is waited for: the record is data of another machine.
const MAX_LEASE: Duration = Duration::from_secs(5 * 60);

/// Number of objects that are read at once.
const CONCURRENT_READS: u64 = 16;

/// Error of a take-over.
#[derive(Debug, thiserror::Error)]
pub enum TakeOverError {
    /// The place cannot be used.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// The backup cannot be read.
    #[error(transparent)]
    Backup(#[from] BackupError),
    /// The place has no record.
    #[error("{0} has no backup")]
    Empty(String),
    /// The place has no complete backup.
    #[error("{0} has no complete backup yet")]
    NoBackup(String),
    /// The backup is of a newer version.
    #[error("the backup in {0} was written by a newer version; install that version here")]
    NewerSchema(String),
    /// The backup has secrets, and there is no key.
    #[error(
        "the backup has {0} secrets, and this machine has no key of them. Copy secrets.key of the other machine to the data folder, or set SECRETS_KEY"
    )]
    KeyMissing(u64),
    /// The next start would find an older state than that in the place.
    #[error(
        "this data folder has worked with the place of a standby, whose state would replace the restored one. Stop the services of both machines, remove standby.json from their data folders, remove STANDBY_PLACE or set it to an empty place, and try again. Nothing was changed"
    )]
    PlaceInUse,
    /// Another machine has claimed the lease during a restore.
    #[error("another machine has taken over {0} during the restore")]
    Overtaken(String),
    /// A service holds the lease.
    #[error(
        "the service on {host} is working with {place} and renews its lease. Stop it first, or use --when-free to wait until it is gone"
    )]
    Held {
        /// Address of the place.
        place: String,
        /// Name of the holder's machine.
        host: String,
    },
    /// The command that writes a series of backups holds the lease.
    #[error(
        "'agent-implement backup' on {host} is writing to {place}, so its service may be working. Stop both first, or use --when-free to wait until the command is gone. To try a restore out, copy the place"
    )]
    SeriesContinues {
        /// Address of the place.
        place: String,
        /// Name of the holder's machine.
        host: String,
    },
    /// The store of the data folder would be replaced by that of another service.
    #[error(
        "this data folder has a store that has never worked with {place}, and --when-free does not replace it. If this machine is new, stop its service and remove {STORE_FILE} from the data folder. To replace it all the same, use 'agent-implement restore --latest --replace' while no service works with the place"
    )]
    StoreUnknown {
        /// Address of the place.
        place: String,
    },
}

impl From<std::io::Error> for TakeOverError {
    fn from(error: std::io::Error) -> Self {
        TakeOverError::Backup(error.into())
    }
}

/// What to do while another service holds the lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeldLease {
    /// Return an error.
    Refuse,
    /// Wait until it ends.
    Await,
}

/// Relation of the store of a data folder to a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreRelation {
    /// The store is the one that works with the place: there is nothing to restore.
    Current,
    /// The store was restored from the series of backups in the place, and may have changed since.
    Restored,
    /// The store has worked with the place before, or is a copy of one that has, or its restore was interrupted. Or the
    /// place is empty.
    Earlier,
    /// The store has never worked with a place, and this one has the state of another.
    Unknown,
}

/// Returns the relation of the store of a data folder to a place. `has_start` returns whether the store has the ID of a start.
///
/// # Errors
/// If the place cannot be read.
pub async fn relation(
    place: &StandbyPlace,
    identity: &StandbyIdentity,
    has_start: impl FnOnce(&str) -> bool,
) -> Result<StoreRelation, PlaceError> {
    let Some((record, _)) = place.read_record().await? else {
        return Ok(StoreRelation::Earlier);
    };
    let is_holder = record.holder == identity.id;
    Ok(match identity.epoch {
        // The first start was interrupted.
        None if is_holder && record.is_first() => StoreRelation::Current,
        // A series has only backups of this store, which are older.
        None if is_holder && !record.is_of_unrestored_series() => StoreRelation::Earlier,
        None => StoreRelation::Unknown,
        Some(epoch)
            if is_holder
                && record.epoch == epoch
                && record.is_known_to(identity)
                && record.start.as_deref().is_none_or(has_start) =>
        {
            match record.series {
                true => StoreRelation::Restored,
                false => StoreRelation::Current,
            }
        }
        Some(_) => StoreRelation::Earlier,
    })
}

/// Take-over of a place for a data folder.
pub struct TakeOver<'a> {
    /// Place.
    pub place: &'a StandbyPlace,
    /// Identity of the data folder.
    pub identity: &'a StandbyIdentity,
    /// What to do while another service holds the lease.
    pub held: HeldLease,
    /// Whether this machine has a key of stored secrets, or restores without them.
    pub has_key: bool,
    /// Source of the current time.
    pub clock: &'a Clock,
    /// Prints what is waited for.
    pub notify: &'a dyn Fn(&str),
}

/// Tag of the record, and since when it has it.
type SeenRecord = (ObjectTag, Instant);

impl TakeOver<'_> {
    /// Takes the lease, once it is free.
    ///
    /// # Errors
    /// If the place is empty or cannot be restored here, or another service holds the lease and that is not waited for.
    pub async fn claim(&self) -> Result<ClaimedLease, TakeOverError> {
        let mut seen: Option<SeenRecord> = None;
        loop {
            let Some((record, tag)) = self.read(seen.is_some()).await? else {
                tokio::time::sleep(WATCH_INTERVAL).await;
                continue;
            };
            // The state that a service shares with its standby is elsewhere.
            if self.identity.renewal.is_some() && record.series {
                return Err(TakeOverError::PlaceInUse);
            }
            let since = match &seen {
                Some((seen_tag, since)) if *seen_tag == tag => *since,
                _ => Instant::now(),
            };
            if Self::is_free(&record, since) {
                self.check(latest_backup(&record))?;
                match self.take(record, &tag).await? {
                    Some(claimed) => return Ok(claimed),
                    None => continue,
                }
            }
            let has_changed = seen.as_ref().is_some_and(|(seen_tag, _)| *seen_tag != tag);
            if self.held == HeldLease::Refuse && has_changed {
                let (place, host) = (self.place.to_string(), record.host);
                return Err(match record.series {
                    true => TakeOverError::SeriesContinues { place, host },
                    false => TakeOverError::Held { place, host },
                });
            }
            if seen.is_none() {
                // While the other machine works, so that there is time to mend it.
                latest_backup(&record).map_or(Ok(()), |backup| self.check(Some(backup)))?;
                let (place, host) = (self.place, &record.host);
                (self.notify)(&format!(
                    "Waiting until {host} no longer works with {place}."
                ));
            }
            seen = Some((tag, since));
            tokio::time::sleep(WATCH_INTERVAL.min(lease_of(&record) / 4)).await;
        }
    }

    /// Reads the record. `None` if that may succeed later, and is waited for.
    async fn read(
        &self,
        was_seen: bool,
    ) -> Result<Option<(PlaceRecord, ObjectTag)>, TakeOverError> {
        let problem = match self.place.read_record().await {
            Ok(Some(read)) => return Ok(Some(read)),
            // Another service may be at work, in a folder that is not mounted here.
            Ok(None) if was_seen || self.identity.epoch.is_some() => {
                let place = self.place;
                let problem = format!(
                    "{place} is empty, but was not before. If it is a folder that is not mounted, mount it. To start over \
                     in it, remove standby.json from the data folder"
                );
                (problem, TakeOverError::Empty(place.to_string()))
            }
            Ok(None) => return Err(TakeOverError::Empty(self.place.to_string())),
            Err(error) if error.is_temporary() => (error.to_string(), error.into()),
            Err(error) => return Err(error.into()),
        };
        match self.held {
            HeldLease::Refuse => Err(problem.1),
            HeldLease::Await => {
                (self.notify)(&format!("Waiting: {}.", problem.0));
                Ok(None)
            }
        }
    }

    fn is_free(record: &PlaceRecord, since: Instant) -> bool {
        // Even if the holder has the same identity: a copy of a data folder has it, too.
        record.released || since.elapsed() >= lease_of(record)
    }

    /// Checks that a backup can be restored here, as far as its entry in the record tells.
    fn check(&self, backup: Option<&StoredBackup>) -> Result<(), TakeOverError> {
        let backup = backup.ok_or_else(|| TakeOverError::NoBackup(self.place.to_string()))?;
        if backup
            .schema
            .is_some_and(|schema| !store::supports_schema(schema))
        {
            return Err(TakeOverError::NewerSchema(self.place.to_string()));
        }
        match self.has_key || backup.sealed_secrets == 0 {
            true => Ok(()),
            false => Err(TakeOverError::KeyMissing(backup.sealed_secrets)),
        }
    }

    /// Writes the next holder into the record. `None` if it has changed, or the answer was lost.
    async fn take(
        &self,
        record: PlaceRecord,
        tag: &ObjectTag,
    ) -> Result<Option<ClaimedLease>, TakeOverError> {
        let previous_host = record.host;
        let mut record = PlaceRecord {
            epoch: record.epoch + 1,
            holder: self.identity.id.clone(),
            host: host_name(),
            renewal: record.renewal + 1,
            renewed_at: self.clock.now(),
            released: false,
            start: None,
            ..record
        };
        let listed = record.backups.len();
        let replaced = self
            .place
            .replace_record_of_start(&mut record, Some(tag))
            .await;
        let removed = listed - record.backups.len();
        if removed > 0 {
            (self.notify)(&format!(
                "Removed old backups ({removed}), because {} is full.",
                self.place
            ));
        }
        match replaced {
            Ok(Replaced::Done(tag)) => Ok(Some(ClaimedLease {
                place: self.place.clone(),
                clock: self.clock.clone(),
                record,
                tag,
                unanswered: None,
                previous_host,
            })),
            Ok(Replaced::Changed) => Ok(None),
            // If only the answer was lost, the lease is of this folder now.
            Err(error) if self.held == HeldLease::Await && error.is_temporary() => {
                (self.notify)(&format!("Waiting: {error}."));
                tokio::time::sleep(WATCH_INTERVAL).await;
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }
}

fn lease_of(record: &PlaceRecord) -> Duration {
    Duration::from_millis(record.lease_ms).min(MAX_LEASE)
}

fn latest_backup(record: &PlaceRecord) -> Option<&StoredBackup> {
    let mut backups = record.backups.iter().rev();
    backups.find(|backup| backup.parts.is_some())
}

/// Lease that was taken over. It is renewed while the state is restored.
pub struct ClaimedLease {
    place: StandbyPlace,
    clock: Clock,
    record: PlaceRecord,
    tag: ObjectTag,
    /// Time of a renewal whose answer was not received. The next one has the same, by which it is recognised.
    unanswered: Option<Timestamp>,
    /// Name of the machine that held the lease before.
    pub previous_host: String,
}

impl ClaimedLease {
    /// Record with the new holder.
    pub fn record(&self) -> &PlaceRecord {
        &self.record
    }

    /// Restores the state, and renews the lease meanwhile. If that fails, the lease is released: another machine may
    /// succeed.
    ///
    /// # Errors
    /// If `restore` fails, or another machine has taken over meanwhile.
    pub async fn hold_during<T, E: From<TakeOverError>>(
        mut self,
        restore: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let restored = tokio::select! {
            biased;
            error = self.keep() => Err(error.into()),
            restored = restore => restored,
        };
        match restored {
            // The service that starts now has the whole lease for that, and checks it. None holds that of a series.
            Ok(restored) => match self.renew(self.record.series).await {
                Err(error @ TakeOverError::Overtaken(_)) => Err(error.into()),
                _ => Ok(restored),
            },
            Err(error) => {
                // Without an answer, others wait until the lease ends.
                let _ = self.renew(true).await;
                Err(error)
            }
        }
    }

    /// Renews the lease until another machine has taken over.
    async fn keep(&mut self) -> TakeOverError {
        let renewal = StandbyTimings::default().renewal;
        let interval = match lease_of(&self.record) {
            Duration::ZERO => renewal,
            lease => renewal.min(lease / 4),
        };
        let mut pause = interval;
        loop {
            tokio::time::sleep(pause).await;
            let (place, limit) = (self.place.clone(), interval.max(MIN_PAUSE));
            pause = match place.within(limit, self.renew(false)).await {
                Err(TakeOverError::Place(error)) if error.is_temporary() => interval.min(MIN_PAUSE),
                Err(error) => return error,
                Ok(()) => interval,
            };
        }
    }

    async fn renew(&mut self, released: bool) -> Result<(), TakeOverError> {
        loop {
            let record = PlaceRecord {
                renewal: self.record.renewal + 1,
                renewed_at: *self.unanswered.get_or_insert_with(|| self.clock.now()),
                released,
                ..self.record.clone()
            };
            let replaced = self.place.replace_record(&record, Some(&self.tag)).await?;
            if let Replaced::Done(tag) = replaced {
                (self.record, self.tag, self.unanswered) = (record, tag, None);
                return Ok(());
            }
            match self.place.read_record().await? {
                // The answer to an earlier renewal was lost, or one that hung was performed late.
                Some((found, tag)) if found.is_sent_after(&self.record, self.unanswered) => {
                    self.record.renewal = self.record.renewal.max(found.renewal);
                    (self.tag, self.unanswered) = (tag, None);
                }
                _ => return Err(TakeOverError::Overtaken(self.place.to_string())),
            }
        }
    }
}

/// Fetches the latest backup of a record and the rows that changed after it into files of `dir`.
///
/// # Errors
/// If there is none, or an object cannot be read or is damaged.
pub async fn fetch(
    place: &StandbyPlace,
    record: &PlaceRecord,
    dir: &Path,
) -> Result<Backup, TakeOverError> {
    let latest = latest_backup(record);
    let latest = latest.ok_or_else(|| TakeOverError::NoBackup(place.to_string()))?;
    let path = dir.join("backup");
    fetch_parts(place, latest, &path).await?;
    let changes = fetch_changes(place, latest, dir).await?;
    let name = latest.name.clone();
    let opened = tasks::spawn_blocking(move || Backup::open(&path)?.with_changes(&name, &changes));
    let opened = opened
        .await
        .unwrap_or_else(|error| Err(std::io::Error::other(error).into()));
    Ok(opened?)
}

async fn fetch_parts(
    place: &StandbyPlace,
    backup: &StoredBackup,
    path: &Path,
) -> Result<(), TakeOverError> {
    let mut file = tokio::fs::File::create(path).await?;
    for number in 1..=backup.parts.unwrap_or_default() {
        let part = place.read_part(&backup.name, number).await?;
        let part = part.ok_or(BackupError::Damaged)?;
        tokio::io::AsyncWriteExt::write_all(&mut file, &part).await?;
    }
    Ok(tokio::io::AsyncWriteExt::flush(&mut file).await?)
}

/// Fetches the files of changed rows. Returns their paths. One that is missing before another, or before the number in the
/// record, was removed, unless a holder that still writes has written both since the first was looked for.
async fn fetch_changes(
    place: &StandbyPlace,
    backup: &StoredBackup,
    dir: &Path,
) -> Result<Vec<PathBuf>, TakeOverError> {
    let mut paths = Vec::new();
    let mut last_gap = None;
    loop {
        let first = paths.len() as u64 + 1;
        let numbers = first..first + CONCURRENT_READS;
        let reads = numbers.map(|number| place.read_changes(&backup.name, number));
        let files: Vec<Option<Bytes>> = try_join_all(reads).await?;
        let (mut is_end, mut has_gap) = (false, false);
        for file in files {
            match file {
                Some(_) if is_end => has_gap = true,
                Some(file) => {
                    let path = dir.join(format!("changes-{}", paths.len() + 1));
                    tokio::fs::write(&path, &file).await?;
                    paths.push(path);
                }
                None => is_end = true,
            }
        }
        if has_gap && last_gap.replace(paths.len()) != Some(paths.len()) {
            continue;
        }
        if is_end {
            return match has_gap || (paths.len() as u64) < backup.changes {
                true => Err(BackupError::Damaged.into()),
                false => Ok(paths),
            };
        }
    }
}

#[cfg(test)]
mod tests;
