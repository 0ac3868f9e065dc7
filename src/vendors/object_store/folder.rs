//! Objects as files of a folder, which other machines may have mounted.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use domain::crypto;

use super::{Object, ObjectStoreError, ObjectTag, Replaced};

/// Maximum duration of an operation: a mounted folder can hang.
const TIMEOUT: Duration = Duration::from_secs(30);

/// File that is locked while an object is compared and replaced.
const LOCK_FILE: &str = ".lock";

/// Folder of objects; cheap to clone.
#[derive(Clone)]
pub struct Folder(Arc<PathBuf>);

impl Folder {
    /// Names a folder, which need not exist.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(Arc::new(path.into()))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    pub(super) async fn get(&self, name: &str) -> Result<Option<Object>, ObjectStoreError> {
        self.run("reading", name, |path| read(&path)).await
    }

    pub(super) async fn put(&self, name: &str, bytes: Bytes) -> Result<(), ObjectStoreError> {
        self.run("writing", name, move |path| write(&path, &bytes))
            .await
    }

    pub(super) async fn replace(
        &self,
        name: &str,
        bytes: Bytes,
        read_tag: Option<&ObjectTag>,
    ) -> Result<Replaced, ObjectStoreError> {
        let (read_tag, lock) = (read_tag.cloned(), self.0.join(LOCK_FILE));
        let replace = move |path: PathBuf| {
            create_folder_of(&lock)?;
            let lock = File::options()
                .create(true)
                .truncate(false)
                .write(true)
                .mode(0o600)
                .open(&lock)?;
            // Released when the file is closed.
            lock.lock()?;
            if read(&path)?.map(|object| object.tag) != read_tag {
                return Ok(Replaced::Changed);
            }
            write(&path, &bytes)?;
            Ok(Replaced::Done(tag_of(&bytes)))
        };
        self.run("writing", name, replace).await
    }

    pub(super) async fn delete(&self, name: &str) -> Result<(), ObjectStoreError> {
        let delete = |path: PathBuf| {
            unless_missing(fs::remove_file(&path))?;
            // Fails while other objects are there.
            let _ = path.parent().map(fs::remove_dir);
            Ok(())
        };
        self.run("removing", name, delete).await
    }

    async fn run<T: Send + 'static>(
        &self,
        action: &'static str,
        name: &str,
        operation: impl FnOnce(PathBuf) -> io::Result<T> + Send + 'static,
    ) -> Result<T, ObjectStoreError> {
        let path = self.0.join(name);
        let shown = path.display().to_string();
        let running = tasks::spawn_blocking(move || operation(path));
        let result = match tokio::time::timeout(TIMEOUT, running).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(io::Error::other("the operation was interrupted")),
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        };
        result.map_err(|cause| ObjectStoreError::Folder {
            action,
            path: shown,
            cause,
        })
    }
}

fn read(path: &Path) -> io::Result<Option<Object>> {
    let Some(bytes) = unless_missing(fs::read(path))? else {
        return Ok(None);
    };
    let tag = tag_of(&bytes);
    Ok(Some(Object {
        bytes: bytes.into(),
        tag,
    }))
}

/// Writes a file under a temporary name and renames it, both durably.
fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = create_folder_of(path)?;
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".new");
    let mut options = File::options();
    let options = options.create(true).truncate(true).write(true);
    let mut file = options.mode(0o600).open(&temporary)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&temporary, path)?;
    File::open(folder)?.sync_all()
}

/// Creates the folder of a file, readable by its owner only.
fn create_folder_of(path: &Path) -> io::Result<&Path> {
    let folder = path.parent().unwrap_or(path);
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)?;
    Ok(folder)
}

fn unless_missing<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn tag_of(bytes: &[u8]) -> ObjectTag {
    ObjectTag(crypto::sha256_hex(bytes))
}
