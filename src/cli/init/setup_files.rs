//! Files that `init` writes: settings in an environment file, and one file for each secret.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, anyhow, bail};

use domain::secret::Secret;
use engine::config::EnvFile;

use crate::cli::DEFAULT_ENV_FILE;

use super::installed_service::DROP_IN_PATH;

/// Environment file of a setup without a package, in its own folder.
const LOCAL_ENV_FILE: &str = "agent-implement/agent-implement.env";

/// Permissions of a file that only its owner may read.
const PRIVATE: u32 = 0o600;

/// Beginning of a new environment file.
const HEADER: &str = "\
# Settings of Agent Implement, one NAME=value per line. `agent-implement serve --help` lists all of them.
# Secrets are files in the folder credentials beside this file, named like their variables.
";

/// Environment file of a service and the folder of its secrets.
pub(super) struct SetupFiles {
    env_file: PathBuf,
}

impl SetupFiles {
    /// Files of the setup: those that the user names, those of an installed package, else a folder below the current
    /// one.
    ///
    /// # Errors
    /// Fails if this user may not write those of the package. Another service could not use its port.
    pub(super) fn locate(named: Option<&Path>) -> anyhow::Result<Self> {
        let file = named.or_else(Self::existing);
        if file.is_none() && Path::new(DEFAULT_ENV_FILE).exists() {
            bail!(
                "the service of the package is set up by root, as this user may not write {DEFAULT_ENV_FILE}: sudo \
                 agent-implement init. To set up another service, name its file: --env-file {LOCAL_ENV_FILE}"
            );
        }
        Ok(Self {
            env_file: file.unwrap_or(Path::new(LOCAL_ENV_FILE)).to_owned(),
        })
    }

    /// Path at which an earlier setup is looked for, if the user names none.
    pub(super) fn existing<'p>() -> Option<&'p Path> {
        let paths = [DEFAULT_ENV_FILE, LOCAL_ENV_FILE].map(Path::new);
        paths.into_iter().find(|path| is_writable(path))
    }

    /// Path of the environment file.
    pub(super) fn env_file(&self) -> &Path {
        &self.env_file
    }

    /// Whether these are the files of an installed package.
    pub(super) fn is_installed(&self) -> bool {
        self.env_file == Path::new(DEFAULT_ENV_FILE)
    }

    /// Creates the folders and the environment file, unless they exist. A new folder is not committed by a git
    /// repository around it.
    pub(super) fn create(&self) -> anyhow::Result<()> {
        let folder = self.folder();
        if !folder.exists() {
            create_private_folder(&folder)?;
            write_file(&folder.join(".gitignore"), "*\n", PRIVATE)?;
        }
        create_private_folder(&self.credentials())?;
        if self.env_file.exists() {
            return Ok(());
        }
        let folder = folder
            .canonicalize()
            .context("finding the folder of the settings")?;
        let set = |text: &str, name, folder_name| {
            let value = folder.join(folder_name).display().to_string();
            EnvFile::with_value(text, name, &value).map_err(anyhow::Error::msg)
        };
        let text = set(HEADER, "DATA_DIR", "data")?;
        let text = set(&text, "CUSTOM_DIR", "custom")?;
        write_file(&self.env_file, &text, PRIVATE)
    }

    /// Reads the variables; those of an empty file if there is none.
    pub(super) fn variables(&self) -> anyhow::Result<EnvFile> {
        match self.env_file.exists() {
            true => EnvFile::read(&self.env_file).map_err(anyhow::Error::msg),
            false => Ok(EnvFile::default()),
        }
    }

    /// Stores a setting. Returns whether the file changed.
    pub(super) fn set(&self, name: &str, value: &str) -> anyhow::Result<bool> {
        let shown = self.env_file.display();
        let text =
            fs::read_to_string(&self.env_file).with_context(|| format!("reading {shown}"))?;
        let changed =
            EnvFile::with_value(&text, name, value).map_err(|cause| anyhow!("{shown}: {cause}"))?;
        if changed == text {
            return Ok(false);
        }
        let mode = fs::metadata(&self.env_file)?.permissions().mode() & 0o777;
        write_file(&self.env_file, &changed, mode)?;
        Ok(true)
    }

    /// Stores a secret in a file of its own. Returns whether the file changed.
    pub(super) fn store_secret(&self, name: &str, secret: &Secret) -> anyhow::Result<bool> {
        let path = self.credentials().join(name);
        let is_stored = |text: String| text.trim_end_matches(['\r', '\n']) == secret.expose();
        if fs::read_to_string(&path).is_ok_and(is_stored) {
            return Ok(false);
        }
        write_file(&path, &format!("{}\n", secret.expose()), PRIVATE)?;
        Ok(true)
    }

    /// Path of a secret's file.
    pub(super) fn secret_path(&self, name: &str) -> PathBuf {
        self.credentials().join(name)
    }

    /// Whether the settings or a secret were changed at this time or later.
    pub(super) fn changed_since(&self, time: SystemTime) -> bool {
        let secrets = fs::read_dir(self.credentials()).into_iter().flatten();
        let secrets = secrets.filter_map(|entry| Some(entry.ok()?.path()));
        let drop_in = self.is_installed().then(|| DROP_IN_PATH.into());
        let mut files = secrets.chain([self.env_file.clone()]).chain(drop_in);
        files.any(|file| modified(&file).is_some_and(|changed| changed >= time))
    }

    fn folder(&self) -> PathBuf {
        match self.env_file.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
            _ => PathBuf::from("."),
        }
    }

    fn credentials(&self) -> PathBuf {
        self.folder().join("credentials")
    }
}

/// Time of the last change of a file, if it exists.
pub(super) fn modified(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).ok()?.modified().ok()
}

fn is_writable(path: &Path) -> bool {
    OpenOptions::new().append(true).open(path).is_ok()
}

fn create_private_folder(folder: &Path) -> anyhow::Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .with_context(|| format!("creating {}", folder.display()))
}

/// Replaces a file as a whole.
fn write_file(path: &Path, text: &str, mode: u32) -> anyhow::Result<()> {
    let written = || -> io::Result<()> {
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(".new");
        let temporary = path.with_file_name(name);
        let _ = fs::remove_file(&temporary);
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(PRIVATE)
            .open(&temporary)?;
        file.write_all(text.as_bytes())?;
        file.set_permissions(fs::Permissions::from_mode(mode))?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    };
    written().with_context(|| format!("writing {}", path.display()))
}
