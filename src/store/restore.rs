//! Putting a backup in a store's place: made beside it, checked to the last row, then moved in whole.

use std::fs::{self, DirBuilder, File, Permissions, TryLockError};
use std::io;
use std::ops::ControlFlow;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use redb::{Database, Key, ReadableDatabase, TableDefinition, WriteTransaction};
use serde::Serialize;
use serde::de::DeserializeOwned;

use domain::secret::Secret;
use domain::time::Timestamp;

use super::backup::{Backup, BackupError, BackupHeader, BackupRecord, key_type_name};
use super::key_file::{self, SECRETS_KEY_FILE};
use super::open_tables::TableKey;
use super::outbox::OutboxEntry;
use super::table::{ReadTx, ScanDirection, Table, WriteTx};
use super::tables::{self, OUTBOX, OUTBOX_DEAD, SECRETS, TableVisitor};
use super::{CACHE_BYTES, STORE_FILE, StoreResult, migrations, secrets};

/// The folder inside the data directory that a store is made in before it is put in its place.
const STAGE: &str = ".restore.new";

/// A store made of a backup, not in its place yet. Dropped, it is gone.
pub struct StagedRestore {
    header: BackupHeader,
    dir: PathBuf,
    db: Database,
    /// The store that is there now, locked so that no service begins meanwhile.
    present: Option<File>,
}

/// What becomes of a backup's secrets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestoredSecrets {
    Included,
    /// Left out, because their key is lost.
    Excluded,
}

/// Where what stood there before is now.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ReplacedFiles {
    pub store: Option<PathBuf>,
    pub key: Option<PathBuf>,
}

impl StagedRestore {
    /// Makes a store of a backup beside its place in `dir` and checks that every row of it can be read.
    /// An older schema is brought up to date. Whatever was owed when the backup was taken may have been
    /// done since: before any of it is done again, the outside is looked at.
    ///
    /// # Errors
    /// When a service holds the store in `dir`, or the backup cannot be read.
    pub fn prepare(
        mut backup: Backup,
        dir: &Path,
        sealed: RestoredSecrets,
        now: Timestamp,
    ) -> Result<Self, BackupError> {
        fs::create_dir_all(dir)?;
        let present = locked(&dir.join(STORE_FILE))?;
        let stage = dir.join(STAGE);
        remove_stage(&stage)?;
        DirBuilder::new().mode(0o700).create(&stage)?;
        let made = fill(&mut backup, &stage.join(STORE_FILE), sealed).and_then(|db| {
            migrations::migrate_to_latest(&db)?;
            doubt_what_is_owed(&db, now)?;
            read_all(&db)?;
            Ok(db)
        });
        match made {
            Ok(db) => Ok(Self {
                header: backup.header,
                dir: dir.to_owned(),
                db,
                present,
            }),
            Err(error) => {
                // The first error is the one to tell.
                let _ = remove_stage(&stage);
                Err(error)
            }
        }
    }

    pub fn header(&self) -> &BackupHeader {
        &self.header
    }

    /// The secrets in it, which only their key opens.
    pub fn sealed_secrets(&self) -> StoreResult<Vec<secrets::SealedSecretRow>> {
        secrets::all(&ReadTx::new(self.db.begin_read()?))
    }

    /// Puts it in its place, durably and at once; with the key of its secrets, where that is not there
    /// already. What it takes the place of is kept aside under the time's name.
    ///
    /// # Errors
    /// When a file cannot be moved; what was there is there still.
    pub fn install(
        self,
        key: Option<&Secret>,
        now: Timestamp,
    ) -> Result<ReplacedFiles, BackupError> {
        let mut aside = ReplacedFiles::default();
        let (from, to) = (self.stage().join(STORE_FILE), self.dir.join(STORE_FILE));
        fs::set_permissions(&from, Permissions::from_mode(0o600))?;
        owned_like(&self.dir, &from)?;
        File::open(&from)?.sync_all()?;
        if let Some(key) = key {
            let path = self.dir.join(SECRETS_KEY_FILE);
            if path.try_exists()? {
                aside.key = Some(set_aside(&path, now)?);
            }
            key_file::create(&self.dir, &path, key)?;
            owned_like(&self.dir, &path)?;
        }
        if self.present.is_some() {
            let kept = named_aside(&to, now);
            // A second name first: there is no instant at which neither store is there.
            fs::hard_link(&to, &kept)?;
            fs::rename(&from, &to)?;
            aside.store = Some(kept);
        } else {
            // Not a move: a service that has begun meanwhile must keep what it made.
            fs::hard_link(&from, &to)?;
        }
        File::open(&self.dir)?.sync_all()?;
        Ok(aside)
    }

    fn stage(&self) -> PathBuf {
        self.dir.join(STAGE)
    }
}

impl Drop for StagedRestore {
    fn drop(&mut self) {
        // What stays is removed by the next.
        let _ = remove_stage(&self.stage());
    }
}

/// Locks the store that is there, as the service does.
fn locked(path: &Path) -> Result<Option<File>, BackupError> {
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

fn remove_stage(stage: &Path) -> io::Result<()> {
    match fs::remove_dir_all(stage) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn fill(
    backup: &mut Backup,
    path: &Path,
    sealed: RestoredSecrets,
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
        sealed,
        rows: 0,
    };
    let mut next = filler.backup.read_record()?;
    let told = loop {
        next = match next {
            BackupRecord::Table {
                name,
                key_type: shape,
            } => filler.table(&name, &shape)?,
            BackupRecord::Row { .. } => return Err(BackupError::Damaged),
            BackupRecord::End { rows } => break rows,
        };
    };
    if told != filler.rows {
        return Err(BackupError::Damaged);
    }
    tx.commit().map_err(super::StoreError::from)?;
    Ok(db)
}

struct Filler<'b> {
    backup: &'b mut Backup,
    tx: &'b WriteTransaction,
    sealed: RestoredSecrets,
    rows: u64,
}

impl Filler<'_> {
    /// Fills one table, of whatever version, and answers what comes after it.
    fn table(&mut self, name: &str, kind: &str) -> Result<BackupRecord, BackupError> {
        type Two = (&'static str, &'static str);
        type Numbered = (&'static str, u64);
        type Three = (&'static str, u64, &'static str);
        type Timed = (u64, &'static str);
        type Words = (&'static str, &'static str, &'static str);
        match kind {
            _ if kind == key_type_name::<&str>() => self.rows::<&str>(name),
            _ if kind == key_type_name::<u64>() => self.rows::<u64>(name),
            _ if kind == key_type_name::<Two>() => self.rows::<Two>(name),
            _ if kind == key_type_name::<Numbered>() => self.rows::<Numbered>(name),
            _ if kind == key_type_name::<Three>() => self.rows::<Three>(name),
            _ if kind == key_type_name::<Timed>() => self.rows::<Timed>(name),
            _ if kind == key_type_name::<Words>() => self.rows::<Words>(name),
            _ => Err(BackupError::UnsupportedTable(format!("{name} by {kind}"))),
        }
    }

    fn rows<K: Key + 'static>(&mut self, name: &str) -> Result<BackupRecord, BackupError> {
        let definition = TableDefinition::<K, &'static [u8]>::new(name);
        let mut table = self
            .tx
            .open_table(definition)
            .map_err(super::StoreError::from)?;
        let is_kept = self.sealed == RestoredSecrets::Included || name != SECRETS.name();
        loop {
            match self.backup.read_record()? {
                BackupRecord::Row { key, value } => {
                    self.rows += 1;
                    if is_kept {
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

/// Marks every errand as one whose answer may have been lost, so that its run is looked for before it
/// is started, and its comment before it is written.
fn doubt_what_is_owed(db: &Database, now: Timestamp) -> StoreResult<()> {
    let mut tx = db.begin_write()?;
    tx.set_quick_repair(true);
    {
        let view = WriteTx::new(&tx);
        let doubted = |errand: OutboxEntry| OutboxEntry {
            outcome_unknown_since: Some(errand.outcome_unknown_since.unwrap_or(now)),
            claimed_at: None,
            ..errand
        };
        for errand in OUTBOX.collect(&view, .., |_, errand| doubted(errand))? {
            OUTBOX.put(&view, (errand.queue_key.as_str(), errand.seq), &errand)?;
        }
        for errand in OUTBOX_DEAD.collect(&view, .., |_, errand| doubted(errand))? {
            OUTBOX_DEAD.put(&view, errand.seq, &errand)?;
        }
    }
    Ok(tx.commit()?)
}

/// Reads every row of every table.
fn read_all(db: &Database) -> StoreResult<()> {
    tables::visit_all(&mut Reader(ReadTx::new(db.begin_read()?)))
}

struct Reader(ReadTx);

impl TableVisitor for Reader {
    fn visit<K: TableKey, V: Serialize + DeserializeOwned>(
        &mut self,
        shelf: &Table<K, V>,
    ) -> StoreResult<()> {
        shelf.scan(&self.0, .., ScanDirection::Ascending, |_, _| {
            ControlFlow::Continue(())
        })
    }
}

fn named_aside(path: &Path, now: Timestamp) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}", now.to_string().replace(':', "-")));
    path.with_file_name(name)
}

fn set_aside(path: &Path, now: Timestamp) -> io::Result<PathBuf> {
    let kept = named_aside(path, now);
    fs::rename(path, &kept)?;
    Ok(kept)
}

/// Gives a file to whom its folder belongs: root restores for the service's user.
fn owned_like(dir: &Path, file: &Path) -> io::Result<()> {
    let (wanted, is) = (fs::metadata(dir)?, fs::metadata(file)?);
    if (wanted.uid(), wanted.gid()) == (is.uid(), is.gid()) || !rustix::process::geteuid().is_root()
    {
        return Ok(());
    }
    chown(file, Some(wanted.uid()), Some(wanted.gid()))
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
    async fn what_was_owed_is_looked_for_before_it_is_done_again() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::in_memory().unwrap();
        let effect = Effect::SetDraft {
            repo: Repo::new("acme", "shop"),
            number: 7,
            draft: DraftState::Ready,
        };
        let pushed = store.write(move |tx| outbox::push(tx, &effect, Timestamp::EPOCH));
        pushed.await.unwrap();
        let staged = staged(dir.path(), &store).await.unwrap();
        let tx = ReadTx::new(staged.db.begin_read().unwrap());
        let owed = outbox::pending(&tx).unwrap();
        assert_eq!(owed.len(), 1);
        assert_eq!(owed[0].outcome_unknown_since, Some(NOW));
        assert_eq!(owed[0].pushed_at, Timestamp::EPOCH, "its stamp stays");
    }

    #[tokio::test]
    async fn a_newer_schema_and_a_row_that_cannot_be_read_are_refused_and_leave_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::in_memory().unwrap();
        let newer = store.write(|tx| META.put(tx, "schema", &json!(99)));
        newer.await.unwrap();
        let told = staged(dir.path(), &store).await.err().unwrap().to_string();
        assert!(told.contains("written by a newer version"), "{told}");

        let store = Store::in_memory().unwrap();
        let odd = Table::<&str, serde_json::Value>::new("jobs-1");
        let broken = store.write(move |tx| odd.put(tx, "01JOB", &json!("no job")));
        broken.await.unwrap();
        let told = staged(dir.path(), &store).await.err().unwrap().to_string();
        assert!(told.contains("01JOB") && told.contains("jobs-1"), "{told}");
        let left = fs::read_dir(dir.path().join("data")).unwrap().count();
        assert_eq!(left, 0);
    }
}
