//! `agent-implement backup`: a copy of the store, whether the service runs or not.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail, ensure};
use tempfile::NamedTempFile;

use engine::clock::Clock;
use store::{Backup, SECRETS_KEY_FILE};

use super::local_service::{ServiceLocation, ServiceOrStore, connect_or_open};

#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct BackupArgs {
    /// Where the backup goes; - is the standard output.
    file: PathBuf,
    /// Write over a file that is there.
    #[arg(long)]
    force: bool,
    /// Also copy the key of the stored secrets, to FILE.key. Keep it elsewhere: the two together open
    /// the secrets.
    #[arg(long)]
    with_key: bool,
    #[command(flatten)]
    pub(super) location: ServiceLocation,
}

const HELP: &str = "\
The copy is of one instant, and has everything that was acknowledged before the command began. The service \
goes on meanwhile. The file is of mode 0600, and in its place only once it is whole and on the disk.

Secrets are in it sealed, and their key is not: save DATA_DIR/secrets.key (or SECRETS_KEY) once, elsewhere, \
or use --with-key. Nothing else is in it: not the configuration, not the logs.";

pub async fn backup(arguments: BackupArgs) -> anyhow::Result<ExitCode> {
    let BackupArgs {
        file,
        force,
        location: place,
        ..
    } = &arguments;
    if file.as_os_str() == "-" {
        ensure!(
            !arguments.with_key,
            "--with-key needs a FILE to write the key beside"
        );
        let mut output = io::stdout();
        take(place.data_dir(), &mut output).await?;
        output.flush()?;
        return Ok(ExitCode::SUCCESS);
    }
    refuse_to_replace(file, *force)?;
    let key_file = key_file_path(file);
    if arguments.with_key {
        refuse_to_replace(&key_file, *force)?;
    }
    let mut fresh = beside(file)?;
    take(place.data_dir(), fresh.as_file_mut()).await?;
    let header = Backup::open(fresh.path())?.header;
    keep(fresh, file, *force)?;
    println!(
        "{} holds everything of {} as it was at {}.",
        file.display(),
        place.data_dir().display(),
        header.taken_at
    );
    let key = place.data_dir().join(SECRETS_KEY_FILE);
    if arguments.with_key {
        copy_key(&key, &key_file, *force)?;
        println!(
            "{} holds the key of its secrets: keep the two apart.",
            key_file.display()
        );
    } else if header.sealed_secrets > 0 {
        println!(
            "Its secrets ({}) open only with their key, which is not in it: save {} elsewhere, or SECRETS_KEY where that is set.",
            header.sealed_secrets,
            key.display()
        );
    }
    Ok(ExitCode::SUCCESS)
}

/// Where the key of a backup's secrets is saved.
pub(super) fn key_file_path(backup: &Path) -> PathBuf {
    let mut name = backup.as_os_str().to_owned();
    name.push(".key");
    name.into()
}

async fn take(dir: &Path, output: &mut (impl Write + Send)) -> anyhow::Result<()> {
    match connect_or_open(dir).await? {
        ServiceOrStore::Running(service) => {
            let take = |piece: &[u8]| output.write_all(piece);
            service.download("/api/backup", take).await
        }
        ServiceOrStore::Stopped(store) => {
            store.back_up(Clock::System.now(), output)?;
            Ok(())
        }
    }
}

fn copy_key(from: &Path, to: &Path, force: bool) -> anyhow::Result<()> {
    let key = std::fs::read(from).with_context(|| {
        format!(
            "reading {} (where SECRETS_KEY is set, that is the key: save it)",
            from.display()
        )
    })?;
    let mut fresh = beside(to)?;
    fresh.write_all(&key)?;
    keep(fresh, to, force)
}

fn refuse_to_replace(file: &Path, force: bool) -> anyhow::Result<()> {
    if !force && file.symlink_metadata().is_ok() {
        bail!(
            "{} is there already; --force writes over it",
            file.display()
        );
    }
    Ok(())
}

/// A file of its own beside the place, which only its owner may read.
fn beside(file: &Path) -> anyhow::Result<NamedTempFile> {
    let folder = folder_of(file);
    NamedTempFile::new_in(folder).with_context(|| format!("writing into {}", folder.display()))
}

fn folder_of(file: &Path) -> &Path {
    let folder = file.parent().filter(|path| !path.as_os_str().is_empty());
    folder.unwrap_or(Path::new("."))
}

/// Puts it in its place, durably.
fn keep(fresh: NamedTempFile, file: &Path, force: bool) -> anyhow::Result<()> {
    fresh.as_file().sync_all()?;
    let kept = if force {
        fresh.persist(file)
    } else {
        fresh.persist_noclobber(file)
    };
    kept.with_context(|| format!("putting {} in its place", file.display()))?;
    Ok(File::open(folder_of(file))?.sync_all()?)
}
