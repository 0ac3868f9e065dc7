//! Settings that the flags and variables of a command set.

use std::path::PathBuf;

use clap::{ArgMatches, Args, Command, FromArgMatches};

use domain::secret::Secret;

use super::Options;
use super::sources::Sources;

/// Setting that a flag or a variable sets.
#[derive(Debug, Clone)]
pub struct GivenSetting {
    /// Name of its variable.
    pub name: String,
    /// Value. A path is absolute.
    pub value: Secret,
    /// Whether it is a secret, which may come from the file that `NAME_FILE` names.
    pub is_secret: bool,
}

/// Settings that flags and variables set, without those of an environment file. Arguments of a command name it before
/// [`Options`], which takes the values out of the command line.
#[derive(Debug, Clone)]
pub struct GivenSettings(pub Vec<GivenSetting>);

impl GivenSettings {
    /// Value of a setting.
    pub fn get(&self, name: &str) -> Option<&Secret> {
        let mut all = self.0.iter();
        all.find(|one| one.name == name).map(|one| &one.value)
    }

    /// Removes a setting.
    pub fn remove(&mut self, name: &str) {
        self.0.retain(|one| one.name != name);
    }
}

impl Args for GivenSettings {
    fn augment_args(command: Command) -> Command {
        command
    }

    fn augment_args_for_update(command: Command) -> Command {
        command
    }
}

impl FromArgMatches for GivenSettings {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let options = Options::augment_args(Command::new(""));
        let mut sources = Sources::from_process();
        let settings = options.get_arguments().filter_map(|option| {
            let name = option.get_env()?.to_str()?.to_owned();
            let is_secret = option.is_hide_env_values_set();
            let value = given(matches, option.get_id().as_str());
            let value = match is_secret {
                // A file that cannot be read is a problem of the configuration.
                true => sources.secret(&name, value).ok()??,
                false => Secret::new(value?),
            };
            Some(GivenSetting {
                name,
                value,
                is_secret,
            })
        });
        Ok(Self(settings.collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Value of a flag or a variable.
fn given(matches: &ArgMatches, id: &str) -> Option<String> {
    use clap::parser::ValueSource::{CommandLine, EnvVariable};
    let source = matches.value_source(id)?;
    if !matches!(source, CommandLine | EnvVariable) {
        return None;
    }
    match matches.try_get_one::<PathBuf>(id) {
        // The service may have another working directory.
        Ok(path) => Some(std::path::absolute(path?).ok()?.display().to_string()),
        Err(_) => matches.try_get_one::<String>(id).ok()?.cloned(),
    }
}
