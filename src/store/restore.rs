//! Restore: creates a store from a backup beside the current one, verifies every row, then replaces the
//! current store atomically.

use std::fs::{self, DirBuilder, File, Permissions, TryLockError};
use std::io;
use std::ops::ControlFlow;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, lchown};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use redb::{Database, Key, ReadableDatabase, TableDefinition, WriteTransaction};
use serde::Serialize;
use serde::de::DeserializeOwned;

use domain::secret::Secret;
use domain::time::Timestamp;

use super::backup::{Backup, BackupError, BackupHeader, BackupRecord, key_type_name};
use super::changed_rows::{ChangedRow, ChangesFile};
use super::key_file::{self, SECRETS_KEY_FILE};
use super::open_tables::TableKey;
use super::outbox::OutboxEntry;
use super::table::{ReadTx, ScanDirection, Table, WriteTx};
use super::tables::{self, CONNECTIONS, OUTBOX, OUTBOX_DEAD, SECRETS, TableVisitor};
use super::{CACHE_BYTES, STORE_FILE, StoreResult, migrations, secrets};

/// Folder in the data directory in which the new store is created.
const STAGING_DIR: &str = ".restore.new";

/// Folder in a data folder for files of a restore. Dropping it removes it.
pub struct TemporaryFolder(PathBuf);

/// Store created from a backup, not installed yet. Dropping it removes its files.
pub struct StagedRestore {
    header: BackupHeader,
    dir: PathBuf,
    db: Database,
    stage: TemporaryFolder,
    /// Current store, locked so that no service starts meanwhile.
    current: Option<File>,
}

/// Treatment of the secrets of a backup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestoredSecrets {
    /// The secrets are restored.
    Included,
    /// The secrets are left out, because their key is lost.
    Excluded,
}

/// New paths of the replaced files.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ReplacedFiles {
    /// Path of the previous store, if there was one.
    pub store: Option<PathBuf>,
    /// Path of the previous key file, if it was replaced.
    pub key: Option<PathBuf>,
}

impl TemporaryFolder {
    /// Creates an empty folder of this name in a data folder, for its owner only. Removes what an interrupted restore has
    /// left there.
    ///
    /// # Errors
    /// If the folder cannot be created.
    pub fn create(data_dir: &Path, name: &str) -> io::Result<Self> {
        fs::create_dir_all(data_dir)?;
        let path = data_dir.join(name);
        match fs::remove_dir_all(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        DirBuilder::new().mode(0o700).create(&path)?;
        let folder = Self(path);
        // Else a restore of the service's user could not remove what one of root has left.
        copy_owner(data_dir, folder.path())?;
        Ok(folder)
    }

    /// Path of the folder.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        // Remaining files are removed by the next restore.
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl StagedRestore {
    /// Creates a store from a backup in a staging folder of `dir`, migrates an older schema and verifies that
    /// every row can be read. The outcome of every outbox entry is marked as unknown: its effect may have
    /// been performed after the backup, so it is looked up at the vendor before it is performed again.
    ///
    /// # Errors
    /// If a service holds the store in `dir`, or the backup cannot be read.
    pub fn prepare(
        mut backup: Backup,
        dir: &Path,
        secrets: RestoredSecrets,
        now: Timestamp,
    ) -> Result<Self, BackupError> {
        let current = lock_store(&dir.join(STORE_FILE))?;
        let stage = TemporaryFolder::create(dir, STAGING_DIR)?;
        let create = || {
            let db = fill(&mut backup, &stage.path().join(STORE_FILE), secrets)?;
            migrations::migrate_to_latest(&db)?;
            mark_outcomes_unknown(&db, now)?;
            read_all(&db)?;
            Ok(db)
        };
        // redb panics on keys that do not have the form of their type.
        let created = catch_unwind(AssertUnwindSafe(create));
        Ok(Self {
            db: created.unwrap_or(Err(BackupError::Damaged))?,
            header: backup.header,
            dir: dir.to_owned(),
            stage,
            current,
        })
    }

    /// Header of the backup.
    pub fn header(&self) -> &BackupHeader {
        &self.header
    }

    /// Encrypted secrets of the backup.
    pub fn sealed_secrets(&self) -> StoreResult<Vec<secrets::SealedSecretRow>> {
        secrets::all(&ReadTx::new(self.db.begin_read()?))
    }

    /// Installs the store atomically and durably, and the key of its secrets, if one is passed. Replaced
    /// files are kept in the same folder, with the time in their names.
    ///
    /// # Errors
    /// If a file cannot be moved; the current store then stays in place.
    pub fn install(
        self,
        key: Option<&Secret>,
        now: Timestamp,
    ) -> Result<ReplacedFiles, BackupError> {
        let mut replaced = ReplacedFiles::default();
        let (from, to) = (
            self.stage.path().join(STORE_FILE),
            self.dir.join(STORE_FILE),
        );
        fs::set_permissions(&from, Permissions::from_mode(0o600))?;
        copy_owner(&self.dir, &from)?;
        File::open(&from)?.sync_all()?;
        if let Some(key) = key {
            let path = self.dir.join(SECRETS_KEY_FILE);
            if path.try_exists()? {
                replaced.key = Some(rename_with_time(&path, now)?);
            }
            key_file::create(&self.dir, &path, key)?;
        }
        if self.current.is_some() {
            let kept = path_with_time(&to, now);
            // Links before it renames, so that a store exists at every moment.
            fs::hard_link(&to, &kept)?;
            fs::rename(&from, &to)?;
            replaced.store = Some(kept);
        } else {
            // Not a rename: it would replace the store of a service that has started meanwhile.
            fs::hard_link(&from, &to)?;
        }
        File::open(&self.dir)?.sync_all()?;
        Ok(replaced)
    }

    /// Reads the store.
    #[cfg(test)]
    pub(super) fn read<T>(&self, f: impl FnOnce(&ReadTx) -> T) -> T {
        f(&ReadTx::new(self.db.begin_read().unwrap()))
    }
}

/// Locks the current store, as the service does. Returns `None` if there is no store.
fn lock_store(path: &Path) -> Result<Option<File>, BackupError> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Err(BackupError::ServiceRunning),
        Err(TryLockError::Error(error)) => Err(error.into()),
    }
}

/// Creates a store file with the rows of a backup.
fn fill(
    backup: &mut Backup,
    path: &Path,
    secrets: RestoredSecrets,
) -> Result<Database, BackupError> {
    let db = Database::builder()
        .set_cache_size(CACHE_BYTES)
        .create(path)
        .map_err(super::StoreError::from)?;
    let mut tx = db.begin_write().map_err(super::StoreError::from)?;
    tx.set_quick_repair(true);
    let mut filler = Filler {
        backup,
        tx: &tx,
        secrets,
        rows: 0,
    };
    let mut next = filler.backup.read_record()?;
    let expected_rows = loop {
        next = match next {
            BackupRecord::Table { name, key_type } => filler.fill_table(&name, &key_type)?,
            BackupRecord::Row { .. } => return Err(BackupError::Damaged),
            BackupRecord::End { rows } => break rows,
        };
    };
    if expected_rows != filler.rows {
        return Err(BackupError::Damaged);
    }
    for path in std::mem::take(&mut filler.backup.changes) {
        let mut file = ChangesFile::open(&path)?;
        while let Some(row) = file.next_row()? {
            filler.change(&row)?;
        }
    }
    tx.commit().map_err(super::StoreError::from)?;
    Ok(db)
}

/// Evaluates an expression with the key type of a table of any schema version.
macro_rules! with_key_type {
    ($table:expr, $key_type:expr, $key:ident => $body:expr) => {
        with_key_type!(@types $table, $key_type, $key => $body,
            &'static str,
            u64,
            (&'static str, &'static str),
            (&'static str, u64),
            (&'static str, u64, &'static str),
            (u64, &'static str),
            (&'static str, &'static str, &'static str))
    };
    (@types $table:expr, $key_type:expr, $key:ident => $body:expr, $($known:ty),*) => {
        $(if $key_type == key_type_name::<$known>() {
            type $key = $known;
            $body
        } else)* {
            let (table, key_type) = (&$table, &$key_type);
            Err(BackupError::UnsupportedTable(format!("{table} with keys of type {key_type}")))
        }
    };
}

/// Copies records of a backup to tables.
struct Filler<'b> {
    backup: &'b mut Backup,
    tx: &'b WriteTransaction,
    secrets: RestoredSecrets,
    rows: u64,
}

impl Filler<'_> {
    /// Fills one table of any schema version and returns the record after its rows.
    fn fill_table(&mut self, name: &str, key_type: &str) -> Result<BackupRecord, BackupError> {
        with_key_type!(name, key_type, K => self.fill_rows::<K>(name))
    }

    /// Puts or removes a row that changed after the backup.
    fn change(&self, row: &ChangedRow) -> Result<(), BackupError> {
        if self.secrets == RestoredSecrets::Excluded && is_secret(&row.table) {
            return Ok(());
        }
        with_key_type!(row.table, row.key_type, K => change_row::<K>(self.tx, row))
    }

    fn fill_rows<K: Key + 'static>(&mut self, name: &str) -> Result<BackupRecord, BackupError> {
        let definition = TableDefinition::<K, &'static [u8]>::new(name);
        let mut table = self
            .tx
            .open_table(definition)
            .map_err(super::StoreError::from)?;
        let is_included = self.secrets == RestoredSecrets::Included || !is_secret(name);
        loop {
            match self.backup.read_record()? {
                BackupRecord::Row { key, value } => {
                    self.rows += 1;
                    if is_included {
                        table
                            .insert(K::from_bytes(&key), value.as_slice())
                            .map_err(super::StoreError::from)?;
                    }
                }
                other => return Ok(other),
            }
        }
    }
}

fn is_secret(table: &str) -> bool {
    table == SECRETS.name() || table == CONNECTIONS.name()
}

fn change_row<K: Key + 'static>(
    tx: &WriteTransaction,
    row: &ChangedRow,
) -> Result<(), BackupError> {
    let table = tx.open_table(TableDefinition::<K, &'static [u8]>::new(&row.table));
    let mut table = table.map_err(super::StoreError::from)?;
    let key = K::from_bytes(&row.key);
    let changed = match &row.value {
        Some(value) => table.insert(key, value.as_slice()).map(drop),
        None => table.remove(key).map(drop),
    };
    Ok(changed.map_err(super::StoreError::from)?)
}

/// Marks the outcome of every outbox entry as unknown, so that the effect is looked up at the vendor before
/// it is performed again.
fn mark_outcomes_unknown(db: &Database, now: Timestamp) -> StoreResult<()> {
    let mut tx = db.begin_write()?;
    tx.set_quick_repair(true);
    {
        let view = WriteTx::new(&tx);
        let with_unknown_outcome = |entry: OutboxEntry| OutboxEntry {
            // A later attempt may have been under way until the machine was lost.
            outcome_unknown_since: Some(now),
            claimed_at: None,
            ..entry
        };
        for entry in OUTBOX.collect(&view, .., |_, entry| with_unknown_outcome(entry))? {
            OUTBOX.put(&view, (entry.queue_key.as_str(), entry.seq), &entry)?;
        }
        for entry in OUTBOX_DEAD.collect(&view, .., |_, entry| with_unknown_outcome(entry))? {
            OUTBOX_DEAD.put(&view, entry.seq, &entry)?;
        }
    }
    Ok(tx.commit()?)
}

/// Verifies that every row of every table can be read.
fn read_all(db: &Database) -> StoreResult<()> {
    tables::visit_all(&mut Reader(ReadTx::new(db.begin_read()?)))
}

struct Reader(ReadTx);

impl TableVisitor for Reader {
    fn visit<K: TableKey, V: Serialize + DeserializeOwned>(
        &mut self,
        table: &Table<K, V>,
    ) -> StoreResult<()> {
        table.scan(&self.0, .., ScanDirection::Ascending, |_, _| {
            ControlFlow::Continue(())
        })
    }
}

/// Path of the file with the time appended to its name.
fn path_with_time(path: &Path, now: Timestamp) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}", now.to_string().replace(':', "-")));
    path.with_file_name(name)
}

/// Removes the stores that earlier restores have replaced, except for the newest `kept`.
///
/// # Errors
/// If the folder cannot be read, or a file cannot be removed.
pub fn remove_replaced_stores(dir: &Path, kept: usize) -> io::Result<()> {
    let prefix = format!("{STORE_FILE}.");
    let is_replaced = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        let time = name.and_then(|name| name.strip_prefix(&prefix));
        time.is_some_and(|time| time.starts_with(|first: char| first.is_ascii_digit()))
    };
    let entries = fs::read_dir(dir)?.collect::<io::Result<Vec<_>>>()?;
    let paths = entries.into_iter().map(|entry| entry.path());
    let mut replaced: Vec<PathBuf> = paths.filter(is_replaced).collect();
    // The time in their names sorts them.
    replaced.sort();
    let surplus = replaced.len().saturating_sub(kept);
    replaced
        .into_iter()
        .take(surplus)
        .try_for_each(fs::remove_file)
}

fn rename_with_time(path: &Path, now: Timestamp) -> io::Result<PathBuf> {
    let kept = path_with_time(path, now);
    fs::rename(path, &kept)?;
    Ok(kept)
}

/// Makes the owner of the folder the owner of the file. Needed when root restores for the service's user, or sets it up.
pub(super) fn copy_owner(dir: &Path, file: &Path) -> io::Result<()> {
    let (wanted, actual) = (fs::metadata(dir)?, fs::symlink_metadata(file)?);
    if (wanted.uid(), wanted.gid()) == (actual.uid(), actual.gid())
        || !rustix::process::geteuid().is_root()
    {
        return Ok(());
    }
    // Not through a link, which the service's user could put there.
    match lchown(file, Some(wanted.uid()), Some(wanted.gid())) {
        // In a container without this right or this user, or a mounted folder that knows no owners, the service runs as
        // root, too.
        Err(error) if has_no_owners(&error) => Ok(()),
        changed => changed,
    }
}

fn has_no_owners(error: &io::Error) -> bool {
    use io::ErrorKind as Kind;
    matches!(
        error.kind(),
        Kind::PermissionDenied | Kind::InvalidInput | Kind::Unsupported
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::META;
    use crate::{Store, outbox};
    use domain::effect::{DraftState, Effect};
    use domain::ids::Repo;
    use serde_json::json;

    const NOW: Timestamp = Timestamp::from_millis(1_000_000);

    async fn staged(dir: &Path, store: &Store) -> Result<StagedRestore, BackupError> {
        let file = dir.join("backup");
        let header = store.back_up(NOW, File::create(&file)?)?;
        let backup = Backup::open(&file)?;
        assert_eq!(backup.header, header);
        StagedRestore::prepare(backup, &dir.join("data"), RestoredSecrets::Included, NOW)
    }

    #[tokio::test]
    async fn marks_outcomes_of_pending_entries_as_unknown() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::in_memory().unwrap();
        let effect = Effect::SetDraft {
            repo: Repo::new("acme", "shop"),
            number: 7,
            draft: DraftState::Ready,
        };
        let pushed = store.write(move |tx| outbox::push(tx, &effect, Timestamp::EPOCH));
        pushed.await.unwrap();
        // The second attempt of two was under way when the machine was lost.
        for _ in 0..2 {
            let entry = store.read(|tx| Ok(outbox::pending(tx)?.remove(0))).unwrap();
            let claim = move |tx: &WriteTx<'_>| {
                outbox::claim(tx, &entry.queue_key, entry.seq, Timestamp::EPOCH)
            };
            store.write(claim).await.unwrap();
        }
        let staged = staged(dir.path(), &store).await.unwrap();
        let tx = ReadTx::new(staged.db.begin_read().unwrap());
        let pending = outbox::pending(&tx).unwrap();
        assert_eq!(pending.len(), 1);
        assert_eq!(pending[0].outcome_unknown_since, Some(NOW));
        let pushed_at = pending[0].pushed_at;
        assert_eq!(pushed_at, Timestamp::EPOCH, "the idempotency key stays");
    }

    #[test]
    fn keeps_the_newest_replaced_stores() {
        let dir = tempfile::tempdir().unwrap();
        let replaced = |day: u8| format!("{STORE_FILE}.2026-11-{day:02}T01-02-03.456Z");
        let others = [STORE_FILE.to_owned(), format!("{STORE_FILE}.moved")];
        for name in others.iter().cloned().chain((1..5).map(replaced)) {
            fs::write(dir.path().join(name), "").unwrap();
        }
        remove_replaced_stores(dir.path(), 2).unwrap();
        for name in others.iter().cloned().chain((3..5).map(replaced)) {
            assert!(dir.path().join(&name).exists(), "{name}");
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 4);
    }

    #[tokio::test]
    async fn rejects_a_newer_schema_and_unreadable_rows() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::in_memory().unwrap();
        let newer = store.write(|tx| META.put(tx, "schema", &json!(99)));
        newer.await.unwrap();
        let error = staged(dir.path(), &store).await.err().unwrap().to_string();
        assert!(error.contains("written by a newer version"), "{error}");

        let store = Store::in_memory().unwrap();
        let jobs = Table::<&str, serde_json::Value>::new("jobs-1");
        let broken = store.write(move |tx| jobs.put(tx, "01JOB", &json!("no job")));
        broken.await.unwrap();
        let error = staged(dir.path(), &store).await.err().unwrap().to_string();
        assert!(
            error.contains("01JOB") && error.contains("jobs-1"),
            "{error}"
        );
        let left = fs::read_dir(dir.path().join("data")).unwrap().count();
        assert_eq!(left, 0);
    }
}
