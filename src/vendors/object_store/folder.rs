//! Objects as files of a folder, which other machines may have mounted.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, chown};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tasks::AbortOnDrop;
use tokio::sync::{Semaphore, oneshot};

use domain::crypto;

use super::{Object, ObjectStoreError, ObjectTag, Replaced};

/// Maximum duration of an operation: a mounted folder can hang.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum number of operations at once. One that hangs keeps its thread even after its timeout.
const MAX_THREADS: usize = 4;

/// File that is locked while an object is compared and replaced.
const LOCK_FILE: &str = ".lock";

/// End of the names of files that are being written.
const TEMPORARY: &str = ".new";

/// Folder of objects; cheap to clone. It is never created: a folder that is missing is one that is not mounted.
#[derive(Clone)]
pub struct Folder {
    root: Arc<PathBuf>,
    /// Permits of operations, held until they end.
    threads: Arc<Semaphore>,
}

impl Folder {
    /// Names a folder, which need not exist yet.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            root: Arc::new(path.into()),
            threads: Arc::new(Semaphore::new(MAX_THREADS)),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.root
    }

    pub(super) async fn get(&self, name: &str) -> Result<Option<Object>, ObjectStoreError> {
        self.run("reading", name, |path| read(&path)).await
    }

    pub(super) async fn exists(&self, name: &str) -> Result<bool, ObjectStoreError> {
        self.run("reading", name, |path| path.try_exists()).await
    }

    pub(super) async fn put(&self, name: &str, bytes: Bytes) -> Result<(), ObjectStoreError> {
        let root = self.root.clone();
        self.run("writing", name, move |path| write(&root, &path, &bytes))
            .await
    }

    pub(super) async fn replace(
        &self,
        name: &str,
        bytes: Bytes,
        read_tag: Option<&ObjectTag>,
    ) -> Result<Replaced, ObjectStoreError> {
        let (read_tag, root) = (read_tag.cloned(), self.root.clone());
        let replace = move |path: PathBuf| {
            let lock_path = root.join(LOCK_FILE);
            let mut options = File::options();
            let options = options.create(true).truncate(false).write(true);
            let lock = options.mode(0o600).open(&lock_path)?;
            give_to_owner(&root, &lock_path)?;
            // Released when the file is closed.
            lock.lock()?;
            if read(&path)?.map(|object| object.tag) != read_tag {
                return Ok(Replaced::Changed);
            }
            // A machine that has lost the lock on the way cannot go on.
            remove_temporary_files_of(&path)?;
            write(&root, &path, &bytes)?;
            Ok(Replaced::Done(tag_of(&bytes)))
        };
        self.run("writing", name, replace).await
    }

    pub(super) async fn delete(&self, name: &str) -> Result<(), ObjectStoreError> {
        let delete = |path: PathBuf| {
            unless_missing(fs::remove_file(&path))?;
            remove_temporary_files_of(&path)?;
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
        let (root, path) = (self.root.clone(), self.root.join(name));
        let shown = path.display().to_string();
        let threads = Arc::clone(&self.threads);
        let (sender, result) = oneshot::channel();
        // A task of its own, because a permit that is given to a caller who does something else would keep others waiting.
        // It ends with its caller, unless the operation has begun.
        let _task = AbortOnDrop::spawn(async move {
            let permit = threads.acquire_owned().await;
            let work = move || {
                let _permit = permit;
                check_folder(&root)?;
                operation(path)
            };
            if let Ok(done) = tasks::spawn_blocking(work).await {
                let _ = sender.send(done);
            }
        });
        let result = match tokio::time::timeout(TIMEOUT, result).await {
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

/// Refuses a folder that does not exist. Its objects would look as if they had been removed.
fn check_folder(root: &Path) -> io::Result<()> {
    match unless_missing(fs::metadata(root))? {
        Some(found) if found.is_dir() => Ok(()),
        _ => Err(io::Error::new(
            io::ErrorKind::NotFound,
            format!(
                "there is no folder {}; mount it, or create it",
                root.display()
            ),
        )),
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

/// Writes a file under a temporary name and renames it, both durably. The name is new, because a write that hangs may go
/// on after a later one has begun, also one of another machine.
fn write(root: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = create_folder_of(root, path)?;
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(format!(".{:016x}{TEMPORARY}", fastrand::u64(..)));
    let temporary = PathBuf::from(temporary);
    let written = write_new(root, &temporary, bytes).and_then(|()| fs::rename(&temporary, path));
    if let Err(error) = written {
        let _ = fs::remove_file(&temporary);
        return Err(error);
    }
    File::open(folder)?.sync_all()
}

fn write_new(root: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut options = File::options();
    let mut file = options
        .create_new(true)
        .write(true)
        .mode(0o600)
        .open(path)?;
    give_to_owner(root, path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Removes what interrupted writes of a file have left.
fn remove_temporary_files_of(path: &Path) -> io::Result<()> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Ok(());
    };
    let prefix = format!("{}.", name.display());
    for entry in unless_missing(fs::read_dir(folder))?.into_iter().flatten() {
        let entry = entry?;
        let is_temporary = |name: &str| name.starts_with(&prefix) && name.ends_with(TEMPORARY);
        if entry.file_name().to_str().is_some_and(is_temporary) {
            unless_missing(fs::remove_file(entry.path()))?;
        }
    }
    Ok(())
}

/// Creates the folder of a file, readable by its owner only, but none above it.
fn create_folder_of<'a>(root: &Path, path: &'a Path) -> io::Result<&'a Path> {
    let folder = path.parent().unwrap_or(path);
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(folder),
        created => {
            created?;
            give_to_owner(root, folder)?;
            Ok(folder)
        }
    }
}

/// Gives a file to the owner of the place: root runs commands for the user of the service. Others may not, and need not.
fn give_to_owner(root: &Path, path: &Path) -> io::Result<()> {
    let owner = fs::metadata(root)?;
    match chown(path, Some(owner.uid()), Some(owner.gid())) {
        Err(error) if error.kind() != io::ErrorKind::PermissionDenied => Err(error),
        _ => Ok(()),
    }
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

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use futures_util::future::try_join_all;

    use super::*;

    fn root_entries(root: &Path) -> Vec<String> {
        let entries = fs::read_dir(root).unwrap().flatten();
        let names = entries.map(|entry| entry.file_name().into_string().unwrap());
        names.collect()
    }

    #[tokio::test]
    async fn a_folder_that_is_missing_is_not_empty_and_never_created() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("not-mounted");
        let folder = Folder::new(&root);
        let object = Bytes::from_static(b"1");
        let errors = [
            folder.get("a").await.map(drop),
            folder.put("x/a", object.clone()).await,
            folder.replace("a", object.clone(), None).await.map(drop),
            folder.delete("x/a").await,
        ];
        for error in errors.map(Result::unwrap_err) {
            assert!(error.is_temporary());
            let text = error.to_string();
            assert!(text.contains("mount it, or create it"), "{text}");
        }
        assert!(!root.exists());

        fs::create_dir(&root).unwrap();
        assert_eq!(folder.get("x/a").await.unwrap(), None);
        folder.put("x/a", object.clone()).await.unwrap();
        assert_eq!(folder.get("x/a").await.unwrap().unwrap().bytes, object);
    }

    #[tokio::test]
    async fn an_interrupted_write_does_not_keep_a_folder_from_being_removed() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::new(dir.path());
        folder.put("x/a", Bytes::from_static(b"1")).await.unwrap();
        fs::write(dir.path().join("x/a.0123.new"), b"cut off").unwrap();
        folder.delete("x/a").await.unwrap();
        assert_eq!(root_entries(dir.path()), Vec::<String>::new());
    }

    #[tokio::test]
    async fn a_replaced_object_removes_what_an_interrupted_write_has_left() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::new(dir.path());
        let object = Bytes::from_static(b"1");
        folder.put("b", object.clone()).await.unwrap();
        for name in ["a.01.new", "b.01.new"] {
            fs::write(dir.path().join(name), b"cut off").unwrap();
        }
        folder.replace("a", object, None).await.unwrap();
        let mut left = root_entries(dir.path());
        left.sort();
        assert_eq!(left, [".lock", "a", "b", "b.01.new"]);
    }

    #[tokio::test]
    async fn operations_that_nobody_waits_for_do_not_delay_others() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::new(dir.path());
        let names = (0..4 * MAX_THREADS).map(|number| number.to_string());
        let exist = names.map(async |name| folder.exists(&name).await);
        let mut waiting = Box::pin(try_join_all(exist));
        assert!((&mut waiting).now_or_never().is_none());
        let put = folder.put("a", Bytes::from_static(b"1"));
        let put = tokio::time::timeout(Duration::from_secs(10), put).await;
        put.unwrap().unwrap();
        assert_eq!(waiting.await.unwrap(), [false; 4 * MAX_THREADS]);
    }
}
