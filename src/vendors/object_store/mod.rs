//! Object store: a bucket of a service that is compatible with S3, or a folder.
//!
//! Objects are written whole. One that several machines write is replaced only if it is still the one that was read.

mod bucket;
mod folder;

use std::fmt;
use std::io;
use std::path::Path;

use bytes::Bytes;

use crate::http::VendorError;

pub use bucket::{Bucket, BucketAddress};
pub use folder::Folder;

/// Maximum size of an object that is read, in bytes.
pub const MAX_OBJECT_BYTES: usize = 64 << 20;

/// Object store; cheap to clone.
#[derive(Clone)]
pub enum ObjectStore {
    /// Folder of this machine, usually a mounted one.
    Folder(Folder),
    /// Bucket.
    Bucket(Bucket),
}

/// Object that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    /// Content.
    pub bytes: Bytes,
    /// Tag of the content.
    pub tag: ObjectTag,
}

/// Tag of the content of an object. Another content has another tag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectTag(String);

impl ObjectTag {
    /// Tag that no object has.
    pub fn of_no_object() -> Self {
        Self(format!("\"{:032}\"", 0))
    }
}

/// Outcome of replacing an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Replaced {
    /// The object has the new content, with this tag.
    Done(ObjectTag),
    /// The object is no longer the one that was read.
    Changed,
}

/// Error of an object store.
#[derive(Debug, thiserror::Error)]
pub enum ObjectStoreError {
    /// The folder cannot be read or written.
    #[error("{action} {path}: {cause}")]
    Folder {
        /// What was tried, such as `reading`.
        action: &'static str,
        /// Path of the object.
        path: String,
        /// Error of the file system.
        cause: io::Error,
    },
    /// The bucket did not accept the request.
    #[error(transparent)]
    Bucket(#[from] VendorError),
    /// The bucket does not permit to read an object, or to see that there is none.
    #[error(
        "{0}. The access key needs s3:GetObject for the objects, and s3:ListBucket for the bucket: without it, the answer is the same for an object that does not exist"
    )]
    Unreadable(VendorError),
}

impl ObjectStoreError {
    /// Whether the same operation may succeed later.
    pub fn is_temporary(&self) -> bool {
        match self {
            ObjectStoreError::Folder { cause, .. } => {
                cause.kind() != io::ErrorKind::PermissionDenied
            }
            // A machine that has just started may not have the time yet.
            ObjectStoreError::Bucket(error) => {
                !error.is_permanent() || error.has_code("RequestTimeTooSkewed")
            }
            ObjectStoreError::Unreadable(_) => false,
        }
    }

    /// Whether there is no space left.
    pub fn is_full(&self) -> bool {
        let full = [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded];
        matches!(self, ObjectStoreError::Folder { cause, .. } if full.contains(&cause.kind()))
    }
}

impl ObjectStore {
    /// Reads an object. `None` if it does not exist.
    ///
    /// # Errors
    /// If the store cannot be reached or does not permit it.
    pub async fn get(&self, name: &str) -> Result<Option<Object>, ObjectStoreError> {
        match self {
            ObjectStore::Folder(folder) => folder.get(name).await,
            ObjectStore::Bucket(bucket) => {
                bucket
                    .get(name)
                    .await
                    .map_err(|error| match error.status() {
                        Some(403) if error.has_code("AccessDenied") => {
                            ObjectStoreError::Unreadable(error)
                        }
                        _ => error.into(),
                    })
            }
        }
    }

    /// Whether an object exists.
    ///
    /// # Errors
    /// If the store cannot be reached or does not permit it.
    pub async fn exists(&self, name: &str) -> Result<bool, ObjectStoreError> {
        match self {
            ObjectStore::Folder(folder) => folder.exists(name).await,
            ObjectStore::Bucket(bucket) => Ok(bucket.exists(name).await?),
        }
    }

    /// Creates or replaces an object, durably.
    ///
    /// # Errors
    /// If the store cannot be reached or does not permit it. The object may then have either content.
    pub async fn put(&self, name: &str, bytes: Bytes) -> Result<(), ObjectStoreError> {
        match self {
            ObjectStore::Folder(folder) => folder.put(name, bytes).await,
            ObjectStore::Bucket(bucket) => Ok(bucket.put(name, bytes).await?),
        }
    }

    /// Replaces an object if it has the tag `read`; creates it if that is `None` and there is no object.
    ///
    /// # Errors
    /// If the store cannot be reached or does not permit it. The object may then have either content.
    pub async fn replace(
        &self,
        name: &str,
        bytes: Bytes,
        read: Option<&ObjectTag>,
    ) -> Result<Replaced, ObjectStoreError> {
        match self {
            ObjectStore::Folder(folder) => folder.replace(name, bytes, read).await,
            ObjectStore::Bucket(bucket) => Ok(bucket.replace(name, bytes, read).await?),
        }
    }

    /// Removes an object. Does nothing if it does not exist.
    ///
    /// # Errors
    /// If the store cannot be reached or does not permit it.
    pub async fn delete(&self, name: &str) -> Result<(), ObjectStoreError> {
        match self {
            ObjectStore::Folder(folder) => folder.delete(name).await,
            ObjectStore::Bucket(bucket) => Ok(bucket.delete(name).await?),
        }
    }
}

impl fmt::Display for ObjectStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ObjectStore::Folder(folder) => Path::display(folder.path()).fmt(f),
            ObjectStore::Bucket(bucket) => bucket.fmt(f),
        }
    }
}
