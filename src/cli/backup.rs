//! `agent-implement backup`: copies the store of a running or stopped service.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail, ensure};
use tempfile::NamedTempFile;

use engine::clock::Clock;
use store::{Backup, SECRETS_KEY_FILE};

use super::local_service::{ServiceLocation, ServiceOrStore, connect_or_open};

/// Arguments of `backup`.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(super) struct BackupArgs {
    /// File to write the backup to; - for standard output.
    file: PathBuf,
    /// Overwrite an existing file.
    #[arg(long)]
    force: bool,
    /// Also copy the key of the stored secrets to FILE.key. Store it elsewhere: anyone with both files can
    /// read the secrets.
    #[arg(long)]
    with_key: bool,
    #[command(flatten)]
    pub(super) location: ServiceLocation,
}

const HELP: &str = "\
The backup is a consistent snapshot. It contains everything that was acknowledged before the command began. \
The service keeps running. FILE has mode 0600 and appears only when it is complete and on disk.

Secrets in the backup are encrypted, and their key is not included: save DATA_DIR/secrets.key (or SECRETS_KEY) \
once, in another place, or use --with-key. The configuration and the logs are not included.";

/// Writes a backup of the store and prints where it is.
pub(super) async fn backup(arguments: BackupArgs) -> anyhow::Result<ExitCode> {
    let BackupArgs {
        file,
        force,
        location,
        ..
    } = &arguments;
    if file.as_os_str() == "-" {
        ensure!(
            !arguments.with_key,
            "--with-key needs a FILE; it cannot be used with standard output"
        );
        let mut output = io::stdout();
        write_backup(location.data_dir(), &mut output).await?;
        output.flush()?;
        return Ok(ExitCode::SUCCESS);
    }
    refuse_to_replace(file, *force)?;
    let key_file = key_file_path(file);
    if arguments.with_key {
        refuse_to_replace(&key_file, *force)?;
    }
    let mut temporary = temporary_file_beside(file)?;
    write_backup(location.data_dir(), temporary.as_file_mut()).await?;
    let header = Backup::open(temporary.path())?.header;
    persist(temporary, file, *force)?;
    println!(
        "Backed up to {}: {} as of {}.",
        file.display(),
        location.data_dir().display(),
        header.taken_at
    );
    let key = location.data_dir().join(SECRETS_KEY_FILE);
    if arguments.with_key {
        copy_key(&key, &key_file, *force)?;
        println!(
            "Copied the key of its secrets to {}. Store the two files in different places.",
            key_file.display()
        );
    } else if header.sealed_secrets > 0 {
        println!(
            "The backup does not include the key of its {} secrets: also save {} in another place (or SECRETS_KEY, if that is set).",
            header.sealed_secrets,
            key.display()
        );
    }
    Ok(ExitCode::SUCCESS)
}

/// Path of the file with the key of a backup's secrets.
pub(super) fn key_file_path(backup: &Path) -> PathBuf {
    let mut name = backup.as_os_str().to_owned();
    name.push(".key");
    name.into()
}

async fn write_backup(dir: &Path, output: &mut (impl Write + Send)) -> anyhow::Result<()> {
    match connect_or_open(dir).await? {
        ServiceOrStore::Running(service) => {
            let write_chunk = |chunk: &[u8]| output.write_all(chunk);
            service.download("/api/backup", write_chunk).await
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
            "reading {} (if SECRETS_KEY is set, it is the key: save its value instead)",
            from.display()
        )
    })?;
    let mut temporary = temporary_file_beside(to)?;
    temporary.write_all(&key)?;
    persist(temporary, to, force)
}

fn refuse_to_replace(file: &Path, force: bool) -> anyhow::Result<()> {
    if !force && file.symlink_metadata().is_ok() {
        bail!(
            "{} already exists; use --force to overwrite it",
            file.display()
        );
    }
    Ok(())
}

/// Temporary file in the folder of `file`, readable by its owner only.
fn temporary_file_beside(file: &Path) -> anyhow::Result<NamedTempFile> {
    let folder = parent_folder(file);
    NamedTempFile::new_in(folder).with_context(|| format!("writing into {}", folder.display()))
}

fn parent_folder(file: &Path) -> &Path {
    let folder = file.parent().filter(|path| !path.as_os_str().is_empty());
    folder.unwrap_or(Path::new("."))
}

/// Moves the temporary file to its final path, durably.
fn persist(temporary: NamedTempFile, file: &Path, force: bool) -> anyhow::Result<()> {
    temporary.as_file().sync_all()?;
    let persisted = if force {
        temporary.persist(file)
    } else {
        temporary.persist_noclobber(file)
    };
    persisted.with_context(|| format!("creating {}", file.display()))?;
    Ok(File::open(parent_folder(file))?.sync_all()?)
}
