//! Sources of values: variables, files named by variables, and systemd credentials.

use std::path::{Path, PathBuf};

use domain::secret::Secret;

use super::EnvFile;

/// Prefix of credential names that the systemd unit loads from a folder.
pub(super) const CREDENTIAL_PREFIX: &str = "agent-implement_";

/// Whether the environment allows colors on a terminal.
pub fn allows_colours() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Lookup of an environment variable.
pub(super) type Lookup = Box<dyn Fn(&str) -> Option<String>>;

/// Sources of secrets besides their own variable.
pub(super) struct Sources {
    pub(super) lookup: Lookup,
    /// Names of all variables that are set.
    pub(super) variable_names: VariableNames,
    /// Files that secrets were read from.
    pub(super) secret_files: Vec<PathBuf>,
}

/// Names of variables, by the kind of their source.
pub(super) enum VariableNames {
    /// From an environment file of this service only.
    Dedicated(Vec<String>),
    /// From an environment that other programs use too.
    Shared(Vec<String>),
}

impl Sources {
    pub(super) fn from_process() -> Self {
        let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        Self::new(Box::new(variable), VariableNames::Shared(names.collect()))
    }

    pub(super) fn from_env_file(file: EnvFile) -> Self {
        let Self {
            lookup: process, ..
        } = Self::from_process();
        let names = VariableNames::Dedicated(file.names().map(str::to_owned).collect());
        let variable = move |name: &str| match file.get(name) {
            Some(value) => Some(value.to_owned()).filter(|value| !value.is_empty()),
            None => process(name),
        };
        Self::new(Box::new(variable), names)
    }

    pub(super) fn new(lookup: Lookup, variable_names: VariableNames) -> Self {
        Self {
            lookup,
            variable_names,
            secret_files: Vec::new(),
        }
    }

    /// Directory of systemd credentials.
    pub(super) fn credentials_dir(&self) -> Option<PathBuf> {
        (self.lookup)("CREDENTIALS_DIRECTORY").map(PathBuf::from)
    }

    /// Reads a secret from its option, from the file that `NAME_FILE` names, or from a systemd
    /// credential. Setting both option and file is an error, because one of them would be ignored
    /// silently.
    pub(super) fn secret(
        &mut self,
        name: &str,
        value: Option<String>,
    ) -> Result<Option<Secret>, String> {
        let value = value.filter(|value| !value.is_empty());
        let file = (self.lookup)(&format!("{name}_FILE"));
        let credential = self.credentials_dir().and_then(|dir| {
            let names = [name.to_owned(), format!("{CREDENTIAL_PREFIX}{name}")];
            let mut paths = names.map(|name| dir.join(name)).into_iter();
            paths.find(|path| path.exists())
        });
        match (value, file) {
            (Some(_), Some(_)) => Err(format!("{name} and {name}_FILE are both set; set one")),
            (Some(value), None) => Ok(Some(Secret::new(value))),
            (None, Some(file)) => self
                .read_secret(Path::new(&file))
                .map_err(|cause| format!("{name}_FILE: {cause}")),
            (None, None) => match credential {
                Some(path) => self
                    .read_secret(&path)
                    .map_err(|cause| format!("the credential {name}: {cause}")),
                None => Ok(None),
            },
        }
    }

    fn read_secret(&mut self, path: &Path) -> Result<Option<Secret>, String> {
        self.secret_files.push(path.to_owned());
        let text = std::fs::read_to_string(path)
            .map_err(|cause| format!("reading {}: {cause}", path.display()))?;
        match text.trim_end_matches(['\r', '\n']) {
            "" => Err(format!("{} is empty", path.display())),
            value => Ok(Some(Secret::new(value))),
        }
    }
}
