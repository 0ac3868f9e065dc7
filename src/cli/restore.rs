//! `agent-implement restore`: replaces a store with a backup.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, bail, ensure};

use domain::secret::Secret;
use engine::app::Vault;
use engine::clock::Clock;
use engine::config::{EnvFile, PlaceOptions, command_secret};
use engine::standby::take_over::{
    HeldLease, StoreRelation, TakeOver, TakeOverError, fetch, relation,
};
use engine::standby::{PlaceRecord, StandbyPlace};
use store::{
    Backup, BackupError, ReplacedFiles, RestoredSecrets, SECRETS_KEY_FILE, STORE_FILE,
    StagedRestore, StandbyIdentity, Store, TemporaryFolder, remove_replaced_stores, standby_starts,
};

use vendors::http::Redactor;

use super::backup::key_file_path;
use super::local_service::{ControlClient, ServiceLocation};

/// Folder in the data folder for objects of a place.
const FETCHED_DIR: &str = ".restore.fetched";

/// Number of replaced stores that a take-over with --when-free keeps: a service manager repeats it.
const KEPT_STORES: usize = 2;

/// Arguments of `restore`.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(super) struct RestoreArgs {
    /// Backup file.
    #[arg(required_unless_present = "latest", conflicts_with = "latest")]
    file: Option<PathBuf>,
    /// Take over from another machine: restore the latest state in a place.
    #[arg(long)]
    latest: bool,
    /// Place with the backups of the service: a folder or s3://BUCKET/PREFIX.
    #[arg(long, env = "STANDBY_PLACE", value_name = "PLACE")]
    from: Option<String>,
    /// Wait until the other service is gone. Does nothing if this data folder is the one in use, or the place is empty or
    /// not set.
    #[arg(long, requires = "latest")]
    when_free: bool,
    #[command(flatten)]
    place: PlaceOptions,
    /// Replace the existing store. It is kept in the same folder, with the time in its name.
    #[arg(long)]
    replace: bool,
    /// Leave out the stored secrets, if their key is lost. They must be set again.
    #[arg(long)]
    without_secrets: bool,
    /// Key of the stored secrets, if it is not in DATA_DIR/secrets.key.
    #[arg(
        long,
        env = "SECRETS_KEY",
        hide_env_values = true,
        allow_hyphen_values = true
    )]
    secrets_key: Option<String>,
    #[command(flatten)]
    pub(super) location: ServiceLocation,
}

const HELP: &str = "\
Stop the service first. The backup is verified completely (checksum and every row) before it replaces the \
store atomically. A backup of an older version is migrated; a backup of a newer version is refused. The key \
of its secrets is searched in SECRETS_KEY, DATA_DIR/secrets.key and FILE.key; if none of them decrypts the \
secrets, nothing is changed.

Effects that were pending when the backup was taken may have been performed since. They are retried, but each \
is first looked up at the vendor: a run by its dispatch id, a comment by its id or marker; setting a label or \
status twice changes nothing. Only chat messages can be duplicated. Runs that started after the backup are \
unknown: their reports are refused, and their tickets stay marked as in progress until the trigger is set again.

With --latest, the other service must have been started with STANDBY_PLACE. Everything that it did is known then, and no \
run is started twice. It is waited for until its lease has ended, and it performs nothing more. Copy its secrets.key to \
DATA_DIR of this machine beforehand, or set SECRETS_KEY. Then start the service here, with the same STANDBY_PLACE. \
--when-free replaces only a store that has worked with a place.

A place that 'backup --to' wrote has only what was in the last backup: what was dispatched after it is unknown, as above. \
While that command runs, nothing is restored; stop it and its service first. \
This data folder then continues the series, and 'backup --to' of the other machine is refused there. To try a restore out, \
copy the place.";

/// Restore of a data folder.
struct Restore {
    arguments: RestoreArgs,
    /// Variables of the service, if they are in a file.
    variables: Option<EnvFile>,
    /// Key of the stored secrets from the configuration.
    secrets_key: Option<Secret>,
    /// Data folder.
    dir: PathBuf,
}

/// Restores a backup and prints what was replaced.
pub(super) async fn restore(mut arguments: RestoreArgs) -> anyhow::Result<ExitCode> {
    let dir = data_dir(&arguments.location)?;
    if ControlClient::connect(&dir).await?.is_some() {
        bail!(BackupError::ServiceRunning);
    }
    ensure!(
        arguments.replace || !dir.join(STORE_FILE).exists(),
        BackupError::StoreExists
    );
    let file = arguments.location.env_file.as_deref();
    let variables = file.and_then(|file| EnvFile::read(file).ok());
    let secrets_key = arguments.secrets_key.take();
    let restore = Restore {
        secrets_key: command_secret("SECRETS_KEY", secrets_key, variables.as_ref())?,
        arguments,
        variables,
        dir,
    };
    if restore.arguments.latest {
        return take_over(Arc::new(restore)).await;
    }
    let identity = StandbyIdentity::read(&restore.dir)
        .with_context(|| format!("reading the identity of {}", restore.dir.display()))?;
    ensure!(
        identity.is_none_or(|identity| identity.renewal.is_none()),
        TakeOverError::PlaceInUse
    );
    let file = restore.arguments.file.as_deref().unwrap_or(Path::new(""));
    let backup = Backup::open(file).with_context(|| format!("reading {}", file.display()))?;
    restore.install(backup)?;
    Ok(ExitCode::SUCCESS)
}

/// Takes the lease of a place, and restores the latest state in it.
async fn take_over(restore: Arc<Restore>) -> anyhow::Result<ExitCode> {
    let (arguments, dir) = (&restore.arguments, &restore.dir);
    let Some(place) = &restore.place()? else {
        ensure!(
            arguments.when_free,
            "--latest needs the place with the backups: use --from PLACE, or set STANDBY_PLACE. Nothing was changed"
        );
        println!("STANDBY_PLACE is not set. Nothing was restored.");
        return Ok(ExitCode::SUCCESS);
    };
    let identity = StandbyIdentity::of_folder(dir)
        .with_context(|| format!("reading the identity of {}", dir.display()))?;
    let has_start = |id: &str| restore.has_start(id);
    if dir.join(STORE_FILE).exists() {
        match relation(place, &identity, has_start).await? {
            // An operator may go back to it, but a service manager must not.
            StoreRelation::Restored if !arguments.when_free => {}
            StoreRelation::Current | StoreRelation::Restored => {
                println!(
                    "{} is the store in use. Nothing was restored.",
                    dir.display()
                );
                return Ok(ExitCode::SUCCESS);
            }
            // A service manager must not replace the state that a new standby is meant to protect.
            StoreRelation::Unknown if arguments.when_free => {
                let place = place.to_string();
                bail!(TakeOverError::StoreUnknown { place });
            }
            StoreRelation::Unknown | StoreRelation::Earlier => {}
        }
    }
    let printed = RefCell::new(String::new());
    let take_over = TakeOver {
        place,
        identity: &identity,
        held: match arguments.when_free {
            true => HeldLease::Await,
            false => HeldLease::Refuse,
        },
        has_key: restore.has_key(),
        clock: &Clock::System,
        // Each sentence once, although it is found again every second.
        notify: &|text| {
            if printed.replace(text.to_owned()) != text {
                println!("{text}");
            }
        },
    };
    let claimed = match take_over.claim().await {
        Err(TakeOverError::Empty(_)) if arguments.when_free => {
            println!("{place} is empty. Nothing was restored.");
            return Ok(ExitCode::SUCCESS);
        }
        claimed => claimed?,
    };
    println!("Took over {place} from {}.", claimed.previous_host);
    let record = claimed.record().clone();
    let installed = fetch_and_install(Arc::clone(&restore), place, record, identity);
    claimed.hold_during(installed).await?;
    Ok(ExitCode::SUCCESS)
}

/// Fetches the latest state in a place, and replaces the store by it.
async fn fetch_and_install(
    restore: Arc<Restore>,
    place: &StandbyPlace,
    record: PlaceRecord,
    identity: StandbyIdentity,
) -> anyhow::Result<()> {
    let fetched = TemporaryFolder::create(&restore.dir, FETCHED_DIR)
        .with_context(|| format!("creating {FETCHED_DIR} in {}", restore.dir.display()))?;
    let backup = fetch(place, &record, fetched.path()).await;
    let backup = backup.with_context(|| format!("reading the latest backup in {place}"))?;
    // On a thread of its own, beside the renewals of the lease.
    let install = move || {
        restore.install(backup)?;
        let epoch = Some(record.epoch);
        StandbyIdentity { epoch, ..identity }.save(&restore.dir)?;
        if restore.arguments.when_free
            && let Err(error) = remove_replaced_stores(&restore.dir, KEPT_STORES)
        {
            println!("Stores that earlier restores have replaced are still there: {error}.");
        }
        Ok(())
    };
    tasks::spawn_blocking(install).await?
}

impl Restore {
    /// Place with the backups; `None` if none is set.
    fn place(&self) -> anyhow::Result<Option<StandbyPlace>> {
        let from = self.arguments.from.as_deref().unwrap_or_default().trim();
        if from.is_empty() {
            return Ok(None);
        }
        let options = self.arguments.place.clone();
        let (place, proxies) = options.into_config(from, self.variables.as_ref())?;
        let place = StandbyPlace::open(&place, &proxies, &Redactor::default());
        place.map(Some).map_err(anyhow::Error::msg)
    }

    /// Whether the store has the ID of a start. Also if it cannot be opened: the service then says why.
    fn has_start(&self, id: &str) -> bool {
        let read = Store::open(&self.dir)
            .and_then(|store| store.read(|tx| standby_starts::contains(tx, id)));
        read.unwrap_or(true)
    }

    /// Whether there is a key of stored secrets, or none is needed. Whether it is the right one shows a restore.
    fn has_key(&self) -> bool {
        self.arguments.without_secrets
            || self.secrets_key.is_some()
            || key_in(&self.dir.join(SECRETS_KEY_FILE)).is_some()
    }

    /// Replaces the store by a backup, and prints what was replaced.
    fn install(&self, backup: Backup) -> anyhow::Result<()> {
        let dir = &self.dir;
        let secrets = match self.arguments.without_secrets {
            true => RestoredSecrets::Excluded,
            false => RestoredSecrets::Included,
        };
        let now = Clock::System.now();
        let staged = StagedRestore::prepare(backup, dir, secrets, now)?;
        let key = self.key_to_install(&staged)?;
        let header = staged.header().clone();
        let replaced = staged.install(key.as_ref(), now)?;
        println!(
            "Restored {} from the backup taken at {} by version {}.",
            dir.display(),
            header.taken_at,
            header.version
        );
        print_replaced(&replaced);
        if self.arguments.without_secrets && header.sealed_secrets > 0 {
            println!(
                "Left out {} secrets; set them again in the panel.",
                header.sealed_secrets
            );
        }
        Ok(())
    }

    /// Key that must be installed in the data directory so that the service can decrypt the secrets. `None` if no
    /// key is needed or the right one is already available.
    fn key_to_install(&self, staged: &StagedRestore) -> anyhow::Result<Option<Secret>> {
        let rows = staged.sealed_secrets()?;
        if rows.is_empty() {
            return Ok(None);
        }
        let decrypts = |key: &Secret| Vault::can_open(key, &rows);
        if let Some(key) = &self.secrets_key {
            // The service prefers SECRETS_KEY to the files, so a right key in a file would not help.
            ensure!(
                decrypts(key),
                no_key_message(rows.len(), "SECRETS_KEY is another key")
            );
            return Ok(None);
        }
        let present = key_in(&self.dir.join(SECRETS_KEY_FILE));
        if present.as_ref().is_some_and(decrypts) {
            return Ok(None);
        }
        let beside = self.arguments.file.as_deref().map(key_file_path);
        let saved = beside.and_then(|path| key_in(&path)).filter(decrypts);
        let cause = match present {
            Some(_) => "secrets.key in the data folder is another key",
            None => "there is no secrets.key in the data folder",
        };
        ensure!(saved.is_some(), no_key_message(rows.len(), cause));
        Ok(saved)
    }
}

/// Absolute path of the data folder. A folder that does not exist is accepted only if the user named it;
/// otherwise the backup would go to a folder that the service does not use.
fn data_dir(location: &ServiceLocation) -> anyhow::Result<PathBuf> {
    let dir = std::path::absolute(location.data_dir()).context("finding the current folder")?;
    ensure!(
        location.is_explicit() || dir.is_dir(),
        "there is no data folder {}; set the data folder of the service with --data-dir or --env-file. Nothing was \
         changed",
        dir.display()
    );
    Ok(dir)
}

fn print_replaced(replaced: &ReplacedFiles) {
    if let Some(store) = &replaced.store {
        println!("Moved the previous store to {}.", store.display());
    }
    if let Some(key) = &replaced.key {
        println!("Moved the previous key to {}.", key.display());
    }
}

fn no_key_message(secrets: usize, cause: &str) -> String {
    format!(
        "no key decrypts the {secrets} secrets of the backup: {cause}. Copy secrets.key of the backed-up service to \
         the data folder, or to FILE.key beside the backup, or set SECRETS_KEY; if the key is lost, use \
         --without-secrets. Nothing was changed"
    )
}

fn key_in(path: &Path) -> Option<Secret> {
    let text = std::fs::read_to_string(path).ok()?;
    Some(Secret::new(text.trim()))
}
