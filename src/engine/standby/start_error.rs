//! Reasons for which a service with a standby does not start.

use std::io;

use domain::time::Timestamp;
use store::StoreError;

use super::place::PlaceError;

/// Reason for which a service does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Another data folder holds the lease, and this one never did.
    #[error(
        "{host} works with {place} (last renewal at {renewed_at} by its clock), and this data folder has never been part of that. To take over, stop that service and run 'agent-implement restore --latest --replace'; else set STANDBY_PLACE to another place"
    )]
    HeldByOther {
        /// Address of the place.
        place: String,
        /// Name of the holder's machine.
        host: String,
        /// Time of the last renewal, by the holder's clock.
        renewed_at: Timestamp,
    },
    /// Another data folder has taken over.
    #[error(
        "{host} has taken over the work of this service ({place}), so this data folder is out of date. To take it back, stop the service on {host} and run 'agent-implement restore --latest --replace'"
    )]
    TakenOver {
        /// Address of the place.
        place: String,
        /// Name of the holder's machine.
        host: String,
    },
    /// The lease is of this data folder, but its store was not restored.
    #[error(
        "a restore from {place} was not finished; run 'agent-implement restore --latest --replace' again"
    )]
    RestoreUnfinished {
        /// Address of the place.
        place: String,
    },
    /// The data folder has lost its store.
    #[error(
        "the store of this data folder is gone; run 'agent-implement restore --latest' to get it back from {place}"
    )]
    StoreMissing {
        /// Address of the place.
        place: String,
    },
    /// The store is not the one that works with the place.
    #[error(
        "the store of this data folder is a copy, or an older state, of the one that works with {place}; run 'agent-implement restore --latest --replace'"
    )]
    StoreOutdated {
        /// Address of the place.
        place: String,
    },
    /// The place replaces objects that have changed.
    #[error(
        "{place} ignores If-Match, so two services could work at once; use a bucket of a service that supports conditional writes"
    )]
    Unconditional {
        /// Address of the place.
        place: String,
    },
    /// The place has a series of backups.
    #[error(
        "{place} has backups that 'agent-implement backup --to' wrote for this data folder; set STANDBY_PLACE to another place"
    )]
    PlaceOfSeries {
        /// Address of the place.
        place: String,
    },
    /// The place is empty, although this data folder has worked with it.
    #[error(
        "{place} is empty, but this data folder has worked with a place. If it is a folder that is not mounted, mount it. To start over in it, or to use another place, remove standby.json from the data folder"
    )]
    RecordMissing {
        /// Address of the place.
        place: String,
    },
    /// Two services start in one place.
    #[error("another service is starting with {place}")]
    Contended {
        /// Address of the place.
        place: String,
    },
    /// The place cannot be used.
    #[error("STANDBY_PLACE cannot be used")]
    Place(#[from] PlaceError),
    /// The store cannot be read or written.
    #[error("the start cannot be stored for the standby")]
    Store(#[from] StoreError),
    /// The identity of the data folder cannot be read or written.
    #[error("standby.json in the data folder cannot be used")]
    Identity(#[from] io::Error),
}

impl StartError {
    /// Whether a later start can succeed without a change by an operator.
    pub fn is_temporary(&self) -> bool {
        match self {
            StartError::Place(error) => error.is_temporary(),
            StartError::Contended { .. }
            | StartError::RecordMissing { .. }
            | StartError::Store(_) => true,
            _ => false,
        }
    }

    /// Whether another machine works with the place, or the state in it must be restored first.
    pub fn needs_restore(&self) -> bool {
        matches!(
            self,
            StartError::HeldByOther { .. }
                | StartError::TakenOver { .. }
                | StartError::RestoreUnfinished { .. }
                | StartError::StoreMissing { .. }
                | StartError::StoreOutdated { .. }
        )
    }
}
