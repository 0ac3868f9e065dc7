//! Setup that is being collected: what is stored, with the answers that are being checked.

use domain::crypto::admin_token::generate_token;
use domain::secret::Secret;
use engine::app::{App, Connection, ProbeResult, ProbeStatus};
use engine::config::{Config, GivenSettings, Options, default_of};
use engine::probe;

use crate::cli::doctor;

use super::setup_files::SetupFiles;

/// Length of a generated access code.
const ACCESS_CODE_LENGTH: usize = 20;

/// Settings that are being collected, and the files that they are stored in.
pub(super) struct Candidate {
    /// Options with the answers.
    pub(super) options: Options,
    /// Settings that flags and variables set and that are not stored yet.
    pub(super) given: GivenSettings,
    /// Files of the setup.
    pub(super) files: SetupFiles,
}

impl Candidate {
    /// Starts with what is stored, given by flags and set in the environment.
    ///
    /// # Errors
    /// Fails if one of these values is not valid.
    pub(super) fn new(
        options: Options,
        given: GivenSettings,
        files: SetupFiles,
    ) -> anyhow::Result<Self> {
        let mut candidate = Self {
            options,
            given,
            files,
        };
        candidate.config()?;
        for name in ["DATA_DIR", "CUSTOM_DIR"] {
            if let Some(folder) = candidate.given.get(name).cloned() {
                candidate.store(name, folder.expose())?;
            }
        }
        // A new file has been written since the command line was read.
        if let Some(folder) = candidate.files.variables()?.get("DATA_DIR") {
            candidate.options.data_dir = folder.into();
        }
        // The service does not start with the addresses alone that need it.
        let allows_plain_http = candidate.options.allow_plain_http.clone();
        candidate.store("ALLOW_PLAIN_HTTP", &allows_plain_http)?;
        Ok(candidate)
    }

    /// Configuration of the service with these values.
    ///
    /// # Errors
    /// Fails if a value is not valid.
    pub(super) fn config(&self) -> anyhow::Result<Config> {
        let variables = self.files.variables()?;
        Ok(Config::from_options(
            self.options.clone(),
            Some(&variables),
        )?)
    }

    /// Clients of the vendors with these values and the credentials that the service has stored, on a store in
    /// memory.
    pub(super) async fn app(&self) -> anyhow::Result<App> {
        doctor::app_of_setup(self.config()?).await
    }

    /// Checks a connection. `None` if it is not configured.
    pub(super) async fn probe(
        &self,
        connection: Connection,
    ) -> anyhow::Result<Option<ProbeResult>> {
        let result = probe::probe(&self.app().await?, connection).await.result;
        Ok((result.status != ProbeStatus::Off).then_some(result))
    }

    /// Stores a setting in the environment file, unless it has its default anyway.
    pub(super) fn store(&mut self, name: &str, value: &str) -> anyhow::Result<()> {
        self.given.remove(name);
        let is_default = || default_of(name).unwrap_or_default() == value;
        if self.files.variables()?.get(name).is_none() && is_default() {
            return Ok(());
        }
        if self.files.set(name, value)? {
            println!("Stored {name} in {}.", self.files.env_file().display());
        }
        Ok(())
    }

    /// Stores a secret in a file of its own.
    pub(super) fn store_secret(&mut self, name: &str, secret: &Secret) -> anyhow::Result<()> {
        self.given.remove(name);
        if self.files.store_secret(name, secret)? {
            println!(
                "Stored {name} in {}.",
                self.files.secret_path(name).display()
            );
        }
        Ok(())
    }

    /// Generates the access code of the panel, unless there is one.
    pub(super) fn ensure_access_code(&mut self) -> anyhow::Result<()> {
        if self.config()?.admin_access_code.is_some() {
            return Ok(());
        }
        let code = generate_token().map_err(anyhow::Error::msg)?;
        let code: String = code.expose().chars().take(ACCESS_CODE_LENGTH).collect();
        self.store_secret("ADMIN_ACCESS_CODE", &Secret::new(code))
    }
}
