//! `agent-implement restore`: replaces a store with a backup.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail, ensure};

use domain::secret::Secret;
use engine::app::Vault;
use engine::clock::Clock;
use store::{
    Backup, BackupError, ReplacedFiles, RestoredSecrets, SECRETS_KEY_FILE, STORE_FILE,
    StagedRestore,
};

use super::backup::key_file_path;
use super::local_service::{ControlClient, ServiceLocation};

/// Arguments of `restore`.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(super) struct RestoreArgs {
    /// Backup file.
    file: PathBuf,
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
unknown: their reports are refused, and their tickets stay marked as in progress until the trigger is set again.";

/// Restores a backup and prints what was replaced.
pub(super) async fn restore(arguments: RestoreArgs) -> anyhow::Result<ExitCode> {
    let dir = &data_dir(&arguments.location)?;
    if ControlClient::connect(dir).await?.is_some() {
        bail!(BackupError::ServiceRunning);
    }
    ensure!(
        arguments.replace || !dir.join(STORE_FILE).exists(),
        BackupError::StoreExists
    );
    let shown = arguments.file.display();
    let backup = Backup::open(&arguments.file).with_context(|| format!("reading {shown}"))?;
    let secrets = match arguments.without_secrets {
        true => RestoredSecrets::Excluded,
        false => RestoredSecrets::Included,
    };
    let now = Clock::System.now();
    let staged = StagedRestore::prepare(backup, dir, secrets, now)?;
    let key = key_to_install(&staged, &arguments, dir)?;
    let header = staged.header().clone();
    let replaced = staged.install(key.as_ref(), now)?;
    println!(
        "Restored {} from the backup taken at {} by version {}.",
        dir.display(),
        header.taken_at,
        header.version
    );
    print_replaced(&replaced);
    if arguments.without_secrets && header.sealed_secrets > 0 {
        println!(
            "Left out {} secrets; set them again in the panel.",
            header.sealed_secrets
        );
    }
    Ok(ExitCode::SUCCESS)
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

/// Key that must be installed in the data directory so that the service can decrypt the secrets. `None` if no
/// key is needed or the right one is already available.
fn key_to_install(
    staged: &StagedRestore,
    arguments: &RestoreArgs,
    dir: &Path,
) -> anyhow::Result<Option<Secret>> {
    let rows = staged.sealed_secrets()?;
    if rows.is_empty() {
        return Ok(None);
    }
    let variable = arguments.secrets_key.as_deref();
    let variable = variable.filter(|text| !text.is_empty()).map(Secret::new);
    let decrypts = |key: &Secret| Vault::can_open(key, &rows);
    if let Some(key) = &variable {
        // The service prefers SECRETS_KEY to the files, so a right key in a file would not help.
        ensure!(
            decrypts(key),
            no_key_message(rows.len(), "SECRETS_KEY is another key")
        );
        return Ok(None);
    }
    let present = key_in(&dir.join(SECRETS_KEY_FILE));
    if present.as_ref().is_some_and(decrypts) {
        return Ok(None);
    }
    let saved = key_in(&key_file_path(&arguments.file)).filter(decrypts);
    let cause = match present {
        Some(_) => "secrets.key in the data folder is another key",
        None => "there is no secrets.key in the data folder",
    };
    ensure!(saved.is_some(), no_key_message(rows.len(), cause));
    Ok(saved)
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
