//! Notices about the configuration that are not errors.

use std::path::PathBuf;

use clap::Args;

use super::Options;
use super::sources::{CREDENTIAL_PREFIX, Sources, VariableNames};
use domain::edit_distance::{closest_name, closest_name_within};

/// Notices about the configuration for the operator.
#[derive(Debug, Clone, Default)]
pub struct Notices {
    /// A sentence for each unknown name that resembles a setting.
    pub unknown_names: Vec<String>,
    /// Files that secrets were read from.
    pub secret_files: Vec<PathBuf>,
    /// Variables whose address is plain HTTP beyond this machine.
    pub plain_http_variables: Vec<&'static str>,
}

/// Maximum number of credential files that are checked.
const MAX_CREDENTIALS: usize = 1_000;

/// Variables of other programs, by name or prefix.
const FOREIGN_VARIABLES: [&str; 25] = [
    "ALL_PROXY",
    "AWS_",
    "CREDENTIALS_DIRECTORY",
    "HOME",
    "INVOCATION_ID",
    "JOURNAL_STREAM",
    "KUBERNETES_PORT",
    "KUBERNETES_SERVICE_",
    "LANG",
    "LC_",
    "LISTEN_FDS",
    "LISTEN_FDNAMES",
    "LISTEN_PID",
    "LOGNAME",
    "MALLOC_",
    "MEMORY_PRESSURE_",
    "NOTIFY_SOCKET",
    "PATH",
    "RUST_BACKTRACE",
    "SSL_CERT_",
    "TMPDIR",
    "TZ",
    "USER",
    "WATCHDOG_",
    "XDG_",
];

/// Prefixes that only settings of this service have.
const OUR_PREFIXES: [&str; 8] = [
    "DEDUP_",
    "DISPATCH_",
    "GAP_FILL_",
    "JIRA_",
    "LINEAR_",
    "NOTIFY_",
    "REAPER_",
    "VM_SESSIONS_",
];

/// Names of all settings.
struct SettingNames {
    variables: Vec<String>,
    secrets: Vec<String>,
}

impl SettingNames {
    fn new() -> Self {
        let command = Options::augment_args(clap::Command::new(""));
        let (mut variables, mut secrets) = (Vec::new(), Vec::new());
        for arg in command.get_arguments() {
            let Some(name) = arg.get_env().and_then(|name| name.to_str()) else {
                continue;
            };
            variables.push(name.to_owned());
            if arg.is_hide_env_values_set() {
                variables.push(format!("{name}_FILE"));
                secrets.push(name.to_owned());
            }
        }
        Self { variables, secrets }
    }

    fn variables(&self) -> impl Iterator<Item = &str> {
        self.variables.iter().map(String::as_str)
    }

    fn has(&self, name: &str) -> bool {
        // Proxy variables are also read in lower case.
        let is_proxy = name.ends_with("_proxy");
        is_proxy || self.variables().any(|known| known == name)
    }
}

/// Names of all settings that are secrets.
pub(super) fn secret_names() -> Vec<String> {
    SettingNames::new().secrets
}

/// Returns a sentence for each unknown name that resembles a setting.
pub(super) fn unknown_names(sources: &Sources) -> Vec<String> {
    let known = SettingNames::new();
    let mut found: Vec<String> = match &sources.variable_names {
        VariableNames::Dedicated(names) => names
            .iter()
            .filter(|name| !known.has(name) && !is_foreign(name))
            .map(|name| unknown_variable(name, closest_name(name, known.variables())))
            .collect(),
        VariableNames::Shared(names) => names
            .iter()
            .filter(|name| !known.has(name) && !is_foreign(name))
            .filter_map(|name| {
                let is_ours = OUR_PREFIXES.iter().any(|prefix| name.starts_with(prefix));
                let suggestion = match is_ours {
                    true => closest_name(name, known.variables()),
                    // Names of other programs can resemble settings by chance.
                    false => closest_name_within(name, (name.len() / 6).min(2), known.variables()),
                };
                (is_ours || suggestion.is_some()).then(|| unknown_variable(name, suggestion))
            })
            .collect(),
    };
    found.extend(credentials(sources).filter_map(|name| unknown_credential(&known, &name)));
    found.sort();
    found
}

fn is_foreign(name: &str) -> bool {
    let is_one = |other: &str| match other.ends_with('_') {
        true => name.starts_with(other),
        false => name == other,
    };
    FOREIGN_VARIABLES.iter().any(|other| is_one(other))
}

fn unknown_variable(name: &str, suggestion: Option<&str>) -> String {
    let name = name.escape_debug();
    match suggestion {
        Some(suggestion) => {
            format!("The variable {name} is not a setting. Did you mean {suggestion}?")
        }
        None => format!(
            "The variable {name} is not a setting; agent-implement serve --help lists all settings."
        ),
    }
}

/// Names of the existing credential files.
fn credentials(sources: &Sources) -> impl Iterator<Item = String> {
    let folder = sources.credentials_dir();
    let entries = folder.and_then(|folder| std::fs::read_dir(folder).ok());
    let entries = entries.into_iter().flatten().take(MAX_CREDENTIALS);
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.filter(|name| !name.starts_with('.'))
}

fn unknown_credential(known: &SettingNames, file: &str) -> Option<String> {
    let name = file.strip_prefix(CREDENTIAL_PREFIX).unwrap_or(file);
    let secrets = || known.secrets.iter().map(String::as_str);
    if secrets().any(|secret| secret == name) {
        return None;
    }
    let shown = name.escape_debug();
    Some(if known.has(name) {
        format!("The credential {shown} is not read: it is not a secret. Set the variable {name}.")
    } else {
        match closest_name(name, secrets()) {
            Some(suggestion) => {
                format!(
                    "The credential {shown} is not read. Rename the file if you mean {suggestion}."
                )
            }
            None => format!("The credential {shown} is not read: no secret has that name."),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(names: VariableNames) -> Vec<String> {
        unknown_names(&Sources::new(Box::new(|_| None), names))
    }

    fn words(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn a_shared_environment_is_searched_for_similar_names() {
        let others = [
            "HOME",
            "HOST",
            "PATH",
            "PWD",
            "TERM",
            "LANG",
            "HTTP_PORT",
            "GITHUB_ACTOR_ID",
            "RUNNER_OS",
            "NOTIFY_SOCKET",
            "https_proxy",
            "no_proxy",
            "DOCKER_CONFIG",
            "SECRET_KEY_BASE",
            "DATA",
        ];
        assert_eq!(found(VariableNames::Shared(words(&others))), [""; 0]);
        let ours = [
            "LINEAR_APIKEY",
            "JIRA_HOST",
            "GITHUB_TOKN",
            "PORT",
            "GITHUB_TOKEN_FILE",
        ];
        assert_eq!(
            found(VariableNames::Shared(words(&ours))),
            [
                "The variable GITHUB_TOKN is not a setting. Did you mean GITHUB_TOKEN?",
                "The variable JIRA_HOST is not a setting; agent-implement serve --help lists all settings.",
                "The variable LINEAR_APIKEY is not a setting. Did you mean LINEAR_API_KEY?",
            ]
        );
    }

    #[test]
    fn reports_every_unknown_name_in_a_dedicated_file() {
        let names = ["TZ", "LC_ALL", "WEBHOOK", "PORT", "LOG_LEVL", "PORT_FILE"];
        assert_eq!(
            found(VariableNames::Dedicated(words(&names))),
            [
                "The variable LOG_LEVL is not a setting. Did you mean LOG_LEVEL?",
                "The variable PORT_FILE is not a setting; agent-implement serve --help lists all settings.",
                "The variable WEBHOOK is not a setting; agent-implement serve --help lists all settings.",
            ]
        );
    }

    #[test]
    fn reports_a_credential_that_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        for name in [
            "NOTIFY_WEBHOOK_URL.txt",
            "agent-implement_LINEAR_APIKEY",
            "agent-implement_LINEAR_API_KEY",
            "JIRA_API_TOKEN",
            "PORT",
            "notes",
            ".hidden",
        ] {
            std::fs::write(dir.path().join(name), "x").unwrap();
        }
        let folder = dir.path().display().to_string();
        let variable = move |name: &str| (name == "CREDENTIALS_DIRECTORY").then(|| folder.clone());
        let sources = Sources::new(Box::new(variable), VariableNames::Shared(Vec::new()));
        assert_eq!(
            unknown_names(&sources),
            [
                "The credential LINEAR_APIKEY is not read. Rename the file if you mean LINEAR_API_KEY.",
                "The credential NOTIFY_WEBHOOK_URL.txt is not read. Rename the file if you mean NOTIFY_WEBHOOK_URL.",
                "The credential PORT is not read: it is not a secret. Set the variable PORT.",
                "The credential notes is not read: no secret has that name.",
            ]
        );
    }
}
