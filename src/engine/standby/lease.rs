//! Lease of the service that works with a place.
//!
//! The holder renews the lease in the record. By its own clock the lease ends a margin before it does for others, who wait
//! for the whole lease after they last saw the record change. No two clocks are compared.
//!
//! A write to a mounted folder can hang, and be performed long after another machine has taken over. Therefore a holder that
//! finds the record of its predecessor writes its own again, and one whose lease had ended waits for that before it goes on.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use tokio::sync::watch;

use domain::time::Timestamp;
use store::{StandbyIdentity, Store, standby_starts};
use vendors::object_store::{ObjectTag, Replaced};

use super::boot_time::BootTime;
use super::place::{PlaceError, StandbyPlace};
use super::record::{PlaceRecord, StoredBackup};
use super::{StandbyStatus, StandbyTimings, StartError};
use crate::clock::Clock;

/// Minimum time between two renewals, and before a failed one is repeated. Some buckets permit one write of an object a
/// second.
pub(super) const MIN_PAUSE: Duration = Duration::from_secs(1);

/// Number of renewals that a lease has time for, one after the other, even if each of them hangs.
const RENEWALS_PER_LEASE: u32 = 5;

/// Backups for the record, with the number of this version of the list.
#[derive(Debug, Clone, Default)]
pub(super) struct BackupList {
    pub version: u64,
    pub backups: Vec<StoredBackup>,
}

/// Lease held by this process.
pub(super) struct Lease {
    place: StandbyPlace,
    folder: IdentifiedFolder,
    clock: Clock,
    timings: StandbyTimings,
    record: PlaceRecord,
    tag: ObjectTag,
    /// Time of a renewal whose answer was not received. The next one has the same, by which it is recognised.
    unanswered: Option<Timestamp>,
    /// End of the lease.
    until: BootTime,
    /// Time of the first renewal after the lease had ended.
    resumed: Option<BootTime>,
}

/// Data folder with its identity.
pub(super) struct IdentifiedFolder {
    identity: StandbyIdentity,
    path: PathBuf,
}

impl IdentifiedFolder {
    pub(super) fn open(path: PathBuf) -> io::Result<Self> {
        let identity = StandbyIdentity::of_folder(&path)?;
        Ok(Self { identity, path })
    }

    async fn save(&self) -> io::Result<()> {
        let (identity, path) = (self.identity.clone(), self.path.clone());
        let saved = tasks::spawn_blocking(move || identity.save(&path)).await;
        saved.unwrap_or_else(|error| Err(io::Error::other(error)))
    }

    /// Stores the number of a renewal, before it is in the record.
    async fn save_renewal(&mut self, renewal: u64) -> io::Result<()> {
        self.identity.renewal = Some(renewal);
        self.save().await
    }

    /// Stores the number of the holder, after it is in the record: a folder with a number is one whose record was there.
    async fn save_epoch(&mut self, epoch: u64) -> io::Result<()> {
        match self.identity.epoch.replace(epoch) == Some(epoch) {
            true => Ok(()),
            false => self.save().await,
        }
    }
}

/// Failure of a renewal.
enum RenewalError {
    /// Another service holds the lease.
    Lost(String),
    /// The place cannot be reached.
    Failed(PlaceError),
}

impl From<PlaceError> for RenewalError {
    fn from(error: PlaceError) -> Self {
        RenewalError::Failed(error)
    }
}

impl Lease {
    /// Takes the lease for a data folder: creates the record in an empty place, and renews a lease of the same folder.
    /// Returns the lease and its end.
    ///
    /// # Errors
    /// If another service works with the place, or has taken over from this data folder.
    pub(super) async fn take(
        place: StandbyPlace,
        store: &Store,
        mut folder: IdentifiedFolder,
        clock: Clock,
        timings: StandbyTimings,
    ) -> Result<(Self, BootTime), StartError> {
        let now = clock.now();
        let lease_ms = timings.lease_ms();
        let (record, tag) = match permitted_record(&place, &folder.identity).await? {
            None => (PlaceRecord::first(&folder.identity, lease_ms, now), None),
            Some((record, tag)) => {
                let record = PlaceRecord {
                    lease_ms,
                    series: false,
                    ..record
                };
                (record, Some(tag))
            }
        };
        let start = begin_start(&place, store, record.start.as_deref()).await?;
        folder.save_renewal(record.renewal + 1).await?;
        let sent = BootTime::now();
        let mut record = PlaceRecord {
            renewal: record.renewal + 1,
            renewed_at: now,
            released: false,
            start: Some(start),
            ..record
        };
        let replaced = place.replace_record_of_start(&mut record, tag.as_ref());
        let tag = match replaced.await? {
            Replaced::Done(tag) => tag,
            Replaced::Changed => {
                return Err(StartError::Contended {
                    place: place.to_string(),
                });
            }
        };
        check_conditions(&place, &record).await?;
        folder.save_epoch(record.epoch).await?;
        let until = timings.end_of_lease(sent);
        let lease = Self {
            place,
            folder,
            clock,
            timings,
            record,
            tag,
            unanswered: None,
            until,
            resumed: None,
        };
        Ok((lease, until))
    }

    /// Number of the holder.
    pub(super) fn epoch(&self) -> u64 {
        self.record.epoch
    }

    /// Backups in the record.
    pub(super) fn backups(&self) -> &[StoredBackup] {
        &self.record.backups
    }

    /// Renews the lease until another service holds it. Each renewal writes the newest list of backups.
    pub(super) async fn keep(
        mut self,
        mut lists: watch::Receiver<BackupList>,
        status: watch::Sender<StandbyStatus>,
    ) {
        let pause = MIN_PAUSE.min(self.timings.renewal);
        loop {
            tokio::time::sleep(pause).await;
            tokio::select! {
                () = tokio::time::sleep(self.timings.renewal.saturating_sub(pause)) => {}
                changed = lists.changed() => if changed.is_err() { return; },
            }
            let list = lists.borrow_and_update().clone();
            let place = self.place.clone();
            let limit = self.timings.lease / RENEWALS_PER_LEASE;
            match place.within(limit, self.renew(&list)).await {
                Ok(()) => {
                    status.send_modify(|status| {
                        status.leased_until = self.until;
                        status.listed = list.version;
                        status.end_lease_problem();
                    });
                }
                Err(RenewalError::Lost(reason)) => {
                    status.send_modify(|status| status.report_lost(reason));
                    return;
                }
                Err(RenewalError::Failed(error)) => {
                    let now = self.clock.now();
                    status.send_modify(|status| status.report_lease_problem(&error, now));
                    lists.mark_changed();
                }
            }
        }
    }

    /// Renews the lease. It is only longer if this process has had it all the time, or nobody else writes the record.
    async fn renew(&mut self, list: &BackupList) -> Result<(), RenewalError> {
        loop {
            let saved = self.folder.save_renewal(self.record.renewal + 1).await;
            if let Err(error) = saved {
                // The next start takes the store for a copy, and restores what is in the place.
                tracing::warn!(%error, "Failed to store the number of a renewal.");
            }
            let sent = BootTime::now();
            let next = PlaceRecord {
                renewal: self.record.renewal + 1,
                renewed_at: *self.unanswered.get_or_insert_with(|| self.clock.now()),
                backups: match list.version {
                    0 => self.record.backups.clone(),
                    _ => list.backups.clone(),
                },
                ..self.record.clone()
            };
            if let Replaced::Done(tag) = self.place.replace_record(&next, Some(&self.tag)).await? {
                self.record = next;
                self.tag = tag;
                self.unanswered = None;
                self.extend(sent);
                return Ok(());
            }
            match self.place.read_record().await? {
                // The answer to an earlier renewal was lost, or one that hung was performed late.
                Some((record, tag)) if record.is_sent_after(&self.record, self.unanswered) => {
                    self.record.renewal = self.record.renewal.max(record.renewal);
                    self.tag = tag;
                    self.unanswered = None;
                }
                Some((record, tag)) if record.epoch < self.record.epoch && self.is_held() => {
                    tracing::warn!(host = %record.host, place = %self.place, "A late write has replaced the record; writing it again.");
                    self.record.renewal = self.record.renewal.max(record.renewal);
                    self.tag = tag;
                }
                Some((record, _)) if record.has_holder_of(&self.record) => {
                    return Err(RenewalError::Lost(format!(
                        "a copy of this service holds the lease in {} since {}: this machine was copied or reverted to a snapshot while the service was running",
                        self.place, record.renewed_at
                    )));
                }
                Some((record, _)) => {
                    return Err(RenewalError::Lost(format!(
                        "{} has taken over the work of this service: it holds the lease in {} since {}",
                        record.host, self.place, record.renewed_at
                    )));
                }
                None => {
                    return Err(RenewalError::Lost(format!(
                        "the record in {} was removed, so another service may have begun there",
                        self.place
                    )));
                }
            }
        }
    }

    fn is_held(&self) -> bool {
        self.until > BootTime::now()
    }

    /// Extends the lease after a renewal that was sent at this time.
    fn extend(&mut self, sent: BootTime) {
        if !self.is_held() {
            // If this renewal has replaced the record of another holder, that one writes it again, or its lease ends.
            let resumed = *self.resumed.get_or_insert(BootTime::now());
            if sent < resumed + self.timings.lease {
                return;
            }
        }
        self.resumed = None;
        self.until = self.timings.end_of_lease(sent);
    }
}

/// Stores the ID of this start, after a check that the store has the one in the record.
async fn begin_start(
    place: &StandbyPlace,
    store: &Store,
    recorded: Option<&str>,
) -> Result<String, StartError> {
    if let Some(recorded) = recorded
        && !store.read(|tx| standby_starts::contains(tx, recorded))?
    {
        return Err(StartError::StoreOutdated {
            place: place.to_string(),
        });
    }
    let start = format!("{:032x}", fastrand::u128(..));
    let added = start.clone();
    let begun = store.write(move |tx| standby_starts::begin(tx, &added));
    begun.await?;
    Ok(start)
}

/// Checks that a place does not replace a record that has changed: some services of buckets ignore the condition. `record`
/// is the current one, so nothing is lost.
async fn check_conditions(place: &StandbyPlace, record: &PlaceRecord) -> Result<(), StartError> {
    let other = ObjectTag::of_no_object();
    match place.replace_record(record, Some(&other)).await {
        Ok(Replaced::Done(_)) => Err(StartError::Unconditional {
            place: place.to_string(),
        }),
        // An error says nothing about that.
        Ok(Replaced::Changed) | Err(_) => Ok(()),
    }
}

/// Checks that a data folder may work with a place.
///
/// # Errors
/// If another service works with it, or the state in it must be restored first.
pub(super) async fn check(
    place: &StandbyPlace,
    identity: &StandbyIdentity,
    has_store: bool,
) -> Result<(), StartError> {
    permitted_record(place, identity).await?;
    // A new store would be empty, and its first backup the latest.
    match has_store || identity.epoch.is_none() {
        true => Ok(()),
        false => Err(StartError::StoreMissing {
            place: place.to_string(),
        }),
    }
}

/// Reads the record that a data folder may work with. `None` in an empty place.
async fn permitted_record(
    place: &StandbyPlace,
    identity: &StandbyIdentity,
) -> Result<Option<(PlaceRecord, ObjectTag)>, StartError> {
    match (place.read_record().await?, identity.epoch) {
        (None, None) => Ok(None),
        (None, Some(_)) => Err(StartError::RecordMissing {
            place: place.to_string(),
        }),
        (Some((record, _)), _) if record.holder != identity.id => {
            Err(refusal(place, &record, identity))
        }
        (Some((record, _)), _) if record.is_of_unrestored_series() => {
            Err(StartError::PlaceOfSeries {
                place: place.to_string(),
            })
        }
        (Some((record, _)), _) if !record.is_known_to(identity) => Err(StartError::StoreOutdated {
            place: place.to_string(),
        }),
        (Some((record, tag)), epoch)
            if epoch == Some(record.epoch) || epoch.is_none() && record.is_first() =>
        {
            Ok(Some((record, tag)))
        }
        _ => Err(StartError::RestoreUnfinished {
            place: place.to_string(),
        }),
    }
}

fn refusal(place: &StandbyPlace, record: &PlaceRecord, identity: &StandbyIdentity) -> StartError {
    let (place, host) = (place.to_string(), record.host.clone());
    match identity.epoch {
        Some(_) => StartError::TakenOver { place, host },
        None => StartError::HeldByOther {
            place,
            host,
            renewed_at: record.renewed_at,
        },
    }
}

#[cfg(test)]
mod tests;
