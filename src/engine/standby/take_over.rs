//! Take-over: waits until the lease of a place is free, takes it, and fetches the latest backup.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::try_join_all;

use store::{Backup, BackupError, StandbyIdentity};
use vendors::object_store::{ObjectTag, Replaced};

use super::place::{PlaceError, PlaceRecord, StandbyPlace, StoredBackup, age_text, host_name};
use crate::clock::Clock;

/// Interval at which the record is read while its lease may be held.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);

/// Difference between two clocks beyond which nobody runs a service. A lease that ended this long ago by both clocks is
/// free at once.
const MAX_CLOCK_DIFFERENCE: Duration = Duration::from_secs(15 * 60);

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
    /// The place has no backup.
    #[error("{0} has no backup")]
    Empty(String),
    /// A service holds the lease.
    #[error(
        "the service on {host} is working with {place} (its lease was renewed {age} ago). Stop it first, or use --when-free to wait until it is gone"
    )]
    Held {
        /// Address of the place.
        place: String,
        /// Name of the holder's machine.
        host: String,
        /// Time since the last renewal.
        age: String,
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

/// Whether the store of a data folder is the one that works with the place, so that there is nothing to restore.
///
/// # Errors
/// If the place cannot be read.
pub async fn is_current(
    place: &StandbyPlace,
    identity: &StandbyIdentity,
) -> Result<bool, PlaceError> {
    let record = place.read_record().await?;
    Ok(record.is_some_and(|(record, _)| {
        record.holder == identity.id && Some(record.epoch) == identity.epoch
    }))
}

/// Lease that was taken over.
pub struct Claimed {
    /// Record with the new holder.
    pub record: PlaceRecord,
    /// Name of the machine that held the lease before.
    pub previous_host: String,
}

/// Takes the lease for a data folder, once it is free.
///
/// # Errors
/// If the place is empty, or another service holds the lease and that is not waited for.
pub async fn claim(
    place: &StandbyPlace,
    identity: &StandbyIdentity,
    held: HeldLease,
    clock: &Clock,
) -> Result<Claimed, TakeOverError> {
    let mut seen: Option<(ObjectTag, Instant)> = None;
    loop {
        let read = match place.read_record().await {
            Err(error) if held == HeldLease::Await && error.is_temporary() => {
                tracing::warn!(%error, "The place cannot be read; trying again.");
                tokio::time::sleep(WATCH_INTERVAL).await;
                continue;
            }
            read => read?,
        };
        let Some((record, tag)) = read else {
            // Another service may be at work behind a record that was removed, or in a folder that is not mounted here.
            if held == HeldLease::Await && (seen.is_some() || identity.epoch.is_some()) {
                tracing::warn!(place = %place, "The place is empty, but was not before; waiting.");
                tokio::time::sleep(WATCH_INTERVAL).await;
                continue;
            }
            return Err(TakeOverError::Empty(place.to_string()));
        };
        let now = Instant::now();
        let since = match &seen {
            Some((seen_tag, since)) if *seen_tag == tag => *since,
            _ => now,
        };
        let age = clock.now().since(record.renewed_at);
        let lease = Duration::from_millis(record.lease_ms).min(MAX_LEASE);
        let is_free = record.holder == identity.id
            || now.duration_since(since) >= lease
            || age >= lease + MAX_CLOCK_DIFFERENCE;
        if is_free {
            let previous_host = record.host;
            let record = PlaceRecord {
                epoch: record.epoch + 1,
                holder: identity.id.clone(),
                host: host_name(),
                renewal: record.renewal + 1,
                renewed_at: clock.now(),
                ..record
            };
            match place.replace_record(&record, Some(&tag)).await {
                Ok(Replaced::Done(_)) => {
                    return Ok(Claimed {
                        record,
                        previous_host,
                    });
                }
                Ok(Replaced::Changed) => continue,
                // If only the answer was lost, the lease is of this folder now.
                Err(error) if held == HeldLease::Await && error.is_temporary() => continue,
                Err(error) => return Err(error.into()),
            }
        }
        if held == HeldLease::Refuse && seen.as_ref().is_some_and(|(seen_tag, _)| *seen_tag != tag)
        {
            return Err(TakeOverError::Held {
                place: place.to_string(),
                host: record.host,
                age: age_text(age),
            });
        }
        if seen.is_none() {
            tracing::info!(host = record.host, place = %place, "Waiting until the lease ends.");
        }
        seen = Some((tag, since));
        tokio::time::sleep(WATCH_INTERVAL.min(lease / 4)).await;
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
    let mut backups = record.backups.iter().rev();
    let written = |backup: &&StoredBackup| backup.parts.is_some();
    let latest = backups.find(written);
    let latest = latest.ok_or_else(|| TakeOverError::Empty(place.to_string()))?;
    let path = dir.join("backup");
    fetch_parts(place, latest, &path).await?;
    let changes = fetch_changes(place, &latest.name, dir).await?;
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

/// Fetches files until one does not exist. Returns their paths.
async fn fetch_changes(
    place: &StandbyPlace,
    backup: &str,
    dir: &Path,
) -> Result<Vec<PathBuf>, TakeOverError> {
    let mut paths = Vec::new();
    loop {
        let first = paths.len() as u64 + 1;
        let reads =
            (first..first + CONCURRENT_READS).map(|number| place.read_changes(backup, number));
        let files: Vec<Option<Bytes>> = try_join_all(reads).await?;
        for file in files {
            let Some(file) = file else {
                return Ok(paths);
            };
            let path = dir.join(format!("changes-{}", paths.len() + 1));
            tokio::fs::write(&path, &file).await?;
            paths.push(path);
        }
    }
}
