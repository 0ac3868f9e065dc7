//! Where a secret may stand besides its variable.

use std::path::Path;

use crate::domain::secret::Secret;

/// What systemd puts before the names of credentials that our unit takes from a folder.
const OF_A_FOLDER: &str = "agent-implement_";

/// Finds an environment variable.
pub(super) type Lookup = Box<dyn Fn(&str) -> Option<String>>;

/// Where secrets may come from besides their variable.
pub(super) struct Sources {
    pub(super) variable: Lookup,
}

impl Sources {
    pub(super) fn of_process() -> Self {
        Self {
            variable: Box::new(|name| std::env::var(name).ok().filter(|value| !value.is_empty())),
        }
    }

    /// The secret called `name`: given, or in the file that `NAME_FILE` names, or a credential of
    /// systemd. Given twice is an error, because one of the two would be silently ignored.
    pub(super) fn secret(
        &mut self,
        name: &str,
        given: Option<String>,
    ) -> Result<Option<Secret>, String> {
        let given = given.filter(|value| !value.is_empty());
        let file = (self.variable)(&format!("{name}_FILE"));
        let credential = (self.variable)("CREDENTIALS_DIRECTORY").and_then(|dir| {
            let names = [name.to_owned(), format!("{OF_A_FOLDER}{name}")];
            let mut paths = names.map(|name| Path::new(&dir).join(name)).into_iter();
            paths.find(|path| path.exists())
        });
        match (given, file) {
            (Some(_), Some(_)) => Err(format!("{name} and {name}_FILE are both set; set one")),
            (Some(value), None) => Ok(Some(Secret::new(value))),
            (None, Some(file)) => {
                read_secret(Path::new(&file)).map_err(|cause| format!("{name}_FILE: {cause}"))
            }
            (None, None) => match credential {
                Some(path) => {
                    read_secret(&path).map_err(|cause| format!("the credential {name}: {cause}"))
                }
                None => Ok(None),
            },
        }
    }
}

fn read_secret(path: &Path) -> Result<Option<Secret>, String> {
    let text = std::fs::read_to_string(path)
        .map_err(|cause| format!("reading {}: {cause}", path.display()))?;
    match text.trim_end_matches(['\r', '\n']) {
        "" => Err(format!("{} is empty", path.display())),
        value => Ok(Some(Secret::new(value))),
    }
}
