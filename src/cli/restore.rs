//! `agent-implement restore`: a backup in the place of a store.

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

#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct RestoreArgs {
    /// The backup.
    file: PathBuf,
    /// Take the place of the store that is there; it is kept beside, under the time's name.
    #[arg(long)]
    replace: bool,
    /// Leave the stored secrets out, because their key is lost. They are to be set again.
    #[arg(long)]
    without_secrets: bool,
    /// Key of the stored secrets, where it is not in a file of DATA_DIR.
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
Stop the service first. The backup is read to its end, checked by its checksum and row by row, and only then \
put in its place, at once. A backup of an older version is brought up to date, one of a newer is refused. \
The key of its secrets is looked for in SECRETS_KEY, in DATA_DIR/secrets.key and in FILE.key; when none of \
them opens the secrets, nothing is changed.

What was owed when the backup was taken may have been done since. It is tried again, but not blindly: a run \
is looked for by its dispatch id and adopted, a comment by its id or mark, a label or status is set to what \
it may be already. Only a chat message can come twice. Runs that began \
after the backup are unknown: their reports are refused, and their tickets stay marked as in progress until \
somebody sets the trigger again.";

pub async fn restore(arguments: RestoreArgs) -> anyhow::Result<ExitCode> {
    let dir = &folder(&arguments.location)?;
    if ControlClient::connect(dir).await?.is_some() {
        bail!(BackupError::ServiceRunning);
    }
    ensure!(
        arguments.replace || !dir.join(STORE_FILE).exists(),
        BackupError::StoreExists
    );
    let shown = arguments.file.display();
    let backup = Backup::open(&arguments.file).with_context(|| format!("reading {shown}"))?;
    let sealed = match arguments.without_secrets {
        true => RestoredSecrets::Excluded,
        false => RestoredSecrets::Included,
    };
    let now = Clock::System.now();
    let staged = StagedRestore::prepare(backup, dir, sealed, now)?;
    let key = key_to_put(&staged, &arguments, dir)?;
    let header = staged.header().clone();
    let aside = staged.install(key.as_ref(), now)?;
    println!(
        "{} is again as it was at {} (backup of version {}).",
        dir.display(),
        header.taken_at,
        header.version
    );
    tell(&aside);
    if arguments.without_secrets && header.sealed_secrets > 0 {
        println!(
            "{} secrets were left out; set them again in the panel.",
            header.sealed_secrets
        );
    }
    Ok(ExitCode::SUCCESS)
}

/// The whole path of the data folder, for what is told of it. One that is not there yet is made only
/// where somebody named it: else the service's own would stay as it is.
fn folder(place: &ServiceLocation) -> anyhow::Result<PathBuf> {
    let dir = std::path::absolute(place.data_dir()).context("finding the current folder")?;
    ensure!(
        place.is_explicit() || dir.is_dir(),
        "there is no data folder {}; name the service's with --data-dir, or with --env-file and its environment \
         file. Nothing was changed",
        dir.display()
    );
    Ok(dir)
}

fn tell(aside: &ReplacedFiles) {
    if let Some(store) = &aside.store {
        println!("The store that was there is now {}.", store.display());
    }
    if let Some(key) = &aside.key {
        println!("The key that was there is now {}.", key.display());
    }
}

/// The key that must be put into the data directory for the service to open the secrets; none when it
/// needs none, or has it.
fn key_to_put(
    staged: &StagedRestore,
    arguments: &RestoreArgs,
    dir: &Path,
) -> anyhow::Result<Option<Secret>> {
    let rows = staged.sealed_secrets()?;
    if rows.is_empty() {
        return Ok(None);
    }
    let given = arguments.secrets_key.as_deref();
    let given = given.filter(|text| !text.is_empty()).map(Secret::new);
    let opens = |key: &Secret| Vault::can_open(key, &rows);
    if let Some(key) = &given {
        // It beats the files when the service starts, so another that fits would be of no use.
        ensure!(opens(key), no_key(rows.len(), "SECRETS_KEY does not fit"));
        return Ok(None);
    }
    let present = key_in(&dir.join(SECRETS_KEY_FILE));
    if present.as_ref().is_some_and(opens) {
        return Ok(None);
    }
    let saved = key_in(&key_file_path(&arguments.file)).filter(opens);
    let why = match present {
        Some(_) => "secrets.key in the data folder is another's",
        None => "there is no secrets.key in the data folder",
    };
    ensure!(saved.is_some(), no_key(rows.len(), why));
    Ok(saved)
}

fn no_key(secrets: usize, why: &str) -> String {
    format!(
        "the backup holds {secrets} sealed secrets and no key that opens them: {why}. Put the file secrets.key of \
         the machine that it was taken on into the data folder or beside the backup as FILE.key, or set SECRETS_KEY; if the key \
         is lost, --without-secrets leaves the secrets out. Nothing was changed"
    )
}

fn key_in(path: &Path) -> Option<Secret> {
    let text = std::fs::read_to_string(path).ok()?;
    Some(Secret::new(text.trim()))
}
