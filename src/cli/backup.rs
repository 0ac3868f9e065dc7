//! `agent-implement backup`: copies the store of a running or stopped service.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use tempfile::NamedTempFile;

use domain::time::Timestamp;
use engine::clock::Clock;
use engine::config::{EnvFile, PlaceOptions};
use engine::standby::StandbyPlace;
use engine::standby::series::{BackupSeries, SeriesError};
use store::{Backup, SECRETS_KEY_FILE, StandbyIdentity};

use vendors::http::Redactor;

use super::local_service::{ServiceLocation, ServiceOrStore, connect_or_open, require_store};
use super::stop_signal::stop_signal;

/// Arguments of `backup`.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(super) struct BackupArgs {
    /// File to write the backup to; - for standard output.
    #[arg(required_unless_present = "to")]
    file: Option<PathBuf>,
    /// Write backups to a place, a folder or s3://BUCKET/PREFIX, until this command is stopped.
    #[arg(
        long,
        value_name = "PLACE",
        requires = "every",
        conflicts_with = "file"
    )]
    to: Option<String>,
    /// Time between two backups with --to, such as 30s, 15m or 6h.
    #[arg(long, value_name = "TIME", requires = "to", value_parser = parse_interval)]
    every: Option<Duration>,
    /// Number of backups that are kept with --to.
    #[arg(long, value_name = "NUMBER", requires = "to", default_value_t = 48)]
    keep: u16,
    #[command(flatten)]
    place: PlaceOptions,
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
once, in another place, or use --with-key. The configuration and the logs are not included.

With --to, 'agent-implement restore --latest' restores the newest backup. What was dispatched after it is not known then. \
For a machine that takes over without that gap, set STANDBY_PLACE for the service instead of running this command.";

/// Writes a backup of the store and prints where it is.
pub(super) async fn backup(arguments: BackupArgs) -> anyhow::Result<ExitCode> {
    if arguments.to.is_some() {
        return write_series(arguments).await;
    }
    let BackupArgs {
        file,
        force,
        location,
        ..
    } = &arguments;
    let file = file.as_deref().unwrap_or(Path::new("-"));
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

/// Writes backups to a place until this process is stopped, which gives its lease back, or the place is no longer its own.
async fn write_series(arguments: BackupArgs) -> anyhow::Result<ExitCode> {
    let (to, every) = (arguments.to.unwrap_or_default(), arguments.every);
    let dir = arguments.location.data_dir();
    // Else an identity would be written into a folder that no service uses.
    require_store(dir)?;
    let file = arguments.location.env_file.as_deref();
    let variables = file.and_then(|file| EnvFile::read(file).ok());
    let (place, proxies) = arguments.place.into_config(&to, variables.as_ref())?;
    let place = StandbyPlace::open(&place, &proxies, &Redactor::default());
    let place = place.map_err(anyhow::Error::msg)?;
    let identity = StandbyIdentity::of_folder(dir)
        .with_context(|| format!("reading the identity of {}", dir.display()))?;
    let stop = stop_signal()?;
    let kept = usize::from(arguments.keep.max(1));
    let address = place.to_string();
    let report = |error: &SeriesError| {
        eprintln!("agent-implement: renewing the lease of the place failed: {error}");
    };
    let mut series = BackupSeries::open(place, &identity, kept, Clock::System, report).await?;
    tokio::select! {
        error = add_backups(&mut series, &address, dir, every.unwrap_or_default()) => return Err(error),
        () = stop => {}
    }
    series.release().await?;
    Ok(ExitCode::SUCCESS)
}

/// Adds backups to a series until another service uses its place.
async fn add_backups(
    series: &mut BackupSeries,
    place: &str,
    dir: &Path,
    every: Duration,
) -> anyhow::Error {
    println!("Writing backups of {} to {place}.", dir.display());
    loop {
        let begun = Instant::now();
        match add_backup(series, dir).await {
            Ok(taken_at) => println!("Backed up to {place} as of {taken_at}."),
            Err(error) if error.downcast_ref().is_some_and(SeriesError::is_final) => {
                return error;
            }
            // The service or the place may be away for a while.
            Err(error) => eprintln!("agent-implement: the backup failed: {error:#}"),
        }
        let pause = every.saturating_sub(begun.elapsed());
        let pause = tokio::time::sleep(pause.max(Duration::from_secs(1)));
        if let Err(error) = series.hold_during(pause).await {
            return error.into();
        }
    }
}

/// Adds a backup of the service to a series. Returns its time.
async fn add_backup(series: &mut BackupSeries, dir: &Path) -> anyhow::Result<Timestamp> {
    // Without a name, so that nothing is left when this process is stopped.
    let mut file = tempfile::tempfile_in(dir)?;
    series.hold_during(write_backup(dir, &mut file)).await??;
    let header = Backup::of_file(file.try_clone()?)?.header;
    let taken_at = header.taken_at;
    series.add(file, header).await?;
    Ok(taken_at)
}

/// Parses a time such as `30s`, `15m` or `6h`.
fn parse_interval(text: &str) -> Result<Duration, String> {
    let invalid = || "expected a time such as 30s, 15m or 6h".to_owned();
    let unit = match text.chars().last() {
        Some('s') => 1,
        Some('m') => 60,
        Some('h') => 3_600,
        _ => return Err(invalid()),
    };
    let number = text
        .get(..text.len() - 1)
        .and_then(|number| number.parse::<u32>().ok());
    let seconds = number.filter(|number| *number > 0).ok_or_else(invalid)?;
    Ok(Duration::from_secs(u64::from(seconds) * unit))
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
