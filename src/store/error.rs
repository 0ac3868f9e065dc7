//! Errors of the store.

use std::io;
use std::path::Path;

/// Result of a store operation.
pub type StoreResult<T> = Result<T, StoreError>;

/// Error of a store operation.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Error of redb.
    #[error("the store: {0}")]
    Db(Box<redb::Error>),
    /// A row is not valid JSON of its type.
    #[error("cannot read row {key} of table {table}: {cause}")]
    Corrupt {
        /// Name of the table.
        table: &'static str,
        /// Key of the row, formatted for people.
        key: String,
        /// Error of the JSON parser.
        cause: serde_json::Error,
    },
    /// A commit failed. Whether its writes are on disk is unknown until the store is opened again.
    #[error("a write to the store failed; only a restart shows whether the last change was saved")]
    OutcomeUnknown,
    /// Another process holds the store.
    #[error(
        "the store {path} is in use (a possible cause is another agent-implement running on the same data directory)"
    )]
    InUse {
        /// Path of the store file.
        path: String,
    },
    /// The schema is newer than this version supports.
    #[error(
        "the store was written by a newer version (schema {found}; this version supports up to {supported}); install that version again"
    )]
    UnsupportedSchema {
        /// Schema version of the store.
        found: u64,
        /// Latest schema version that this version supports.
        supported: u64,
    },
    /// The file cannot be opened. The cause is not a `source`, because it would be printed twice.
    #[error("opening the store {path}: {cause}{}", remedy(cause))]
    Open {
        /// Path of the store file.
        path: String,
        /// Error of the operating system.
        cause: io::Error,
    },
    /// The content of the file is not what was written. The file is not changed.
    #[error(
        "the store {path} is damaged ({cause}) and was not changed; restore a backup: agent-implement restore FILE --replace (this keeps the damaged file in the same folder)"
    )]
    Damaged {
        /// Path of the store file.
        path: String,
        /// Description of the damage.
        cause: String,
    },
    /// The file is a redb database of another program.
    #[error(
        "{path} is a database of another program and was not changed; move it, or set DATA_DIR to another folder"
    )]
    Foreign {
        /// Path of the store file.
        path: String,
    },
    /// Nothing was written. Writes fail until there is free space; with the number of free bytes.
    #[error("the disk is full: {0} bytes are free, which is not enough to write")]
    DiskFull(u64),
    /// The closure of a transaction panicked.
    #[error("a transaction panicked and was rolled back")]
    Panicked,
}

/// Advice for an error of the operating system on opening the store.
fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "; make the service's user the owner of the folder (chown -R), or set DATA_DIR to another folder"
        }
        io::ErrorKind::ReadOnlyFilesystem => {
            "; mount the disk writable (dmesg shows why it is not), or set DATA_DIR to another disk"
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "; free some space, or move DATA_DIR to a larger disk"
        }
        _ => "",
    }
}

impl StoreError {
    /// Whether the file or its disk failed. Later operations of this process are then unreliable.
    pub(super) fn is_disk_failure(&self) -> bool {
        use redb::Error as E;
        let StoreError::Db(error) = self else {
            return false;
        };
        matches!(
            **error,
            E::Corrupted(_) | E::Io(_) | E::PreviousIo | E::LockPoisoned(_) | E::DatabaseClosed
        )
    }

    /// Converts an error of redb on opening the store at this path.
    pub(super) fn at(self, path: &Path) -> Self {
        let shown = path.display().to_string();
        let StoreError::Db(error) = self else {
            return self;
        };
        match *error {
            redb::Error::DatabaseAlreadyOpen => StoreError::InUse { path: shown },
            redb::Error::Io(cause) => StoreError::Open { path: shown, cause },
            redb::Error::Corrupted(cause) => StoreError::Damaged { path: shown, cause },
            other => StoreError::Db(Box::new(other)),
        }
    }
}

impl<E: Into<redb::Error>> From<E> for StoreError {
    fn from(error: E) -> Self {
        StoreError::Db(Box::new(error.into()))
    }
}
