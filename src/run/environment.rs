//! What a run is started with: the only place of the pipeline that reads the process environment.
//!
//! It is read once, before any child starts. Whatever a child may have of it is picked here by
//! name; nothing else is ever passed on.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::agent;
use super::child::ChildEnv;
use super::console::print_line;
use super::git::Transport;
use super::orphan_processes::OrphanProcesses;
use super::reexec;
use domain::ids::Repo;
use domain::machine::{SESSION_SECRETS, SESSION_VARIABLES};
use domain::run_config::RunInputs;
use domain::secret::Secret;
use domain::sensitive_files::find_secrets;
use vendors::http::Proxies;

/// Variables that any child may have: how to find programs, speak and reach the network. None is
/// ours, and none is a credential of ours.
const PASSED_ON: [&str; 31] = [
    "PATH",
    "LANG",
    "LC_ALL",
    "TERM",
    "TZ",
    "CI",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "NODE_EXTRA_CA_CERTS",
    "CARGO_HOME",
    "RUSTUP_HOME",
    "RUSTUP_TOOLCHAIN",
    "GOROOT",
    "JAVA_HOME",
    "MAVEN_HOME",
    "GRADLE_HOME",
    "DOTNET_ROOT",
    "ANDROID_HOME",
    "NVM_DIR",
    "PNPM_HOME",
    "BUN_INSTALL",
    "PYENV_ROOT",
    "RBENV_ROOT",
    "GEM_HOME",
    "PLAYWRIGHT_BROWSERS_PATH",
];

/// What our own process keeps besides: where temporary files go.
const KEPT: &str = "TMPDIR";

/// Where CI keeps the event that started the run, tokens included.
const EVENT_FILE: &str = "GITHUB_EVENT_PATH";

/// Inputs that must not stay where a child could read them.
const TOKEN_INPUTS: [&str; 2] = ["run_token", "run_progress_token"];

/// All that a run knows of the world when it starts. It cannot be printed: its inputs hold tokens.
#[derive(Clone)]
pub struct Environment {
    pub inputs: RunInputs,
    pub repo: Repo,
    pub server_url: String,
    pub api_url: String,
    /// The branch that the work starts from and goes back to.
    pub base_branch: String,
    /// The CI run, where there is one.
    pub run_id: Option<u64>,
    pub run_url: Option<String>,
    /// Where the run may make its work folder.
    pub temp_root: PathBuf,
    /// The home of the user that the run works as.
    pub home: Option<PathBuf>,
    /// The workflow's own token, for the case that the orchestrator cannot be reached.
    pub workflow_token: Option<Secret>,
    /// What a session shows to be known by; CI runs have none.
    pub nonce: Option<Secret>,
    /// The operators' secrets of a session.
    pub secrets: Vec<Secret>,
    /// Model credentials by the variable that agents expect them in.
    pub direct_keys: Vec<(String, Secret)>,
    pub cloud_keys: Vec<(String, Secret)>,
    /// The name of the agent, where the operator chose one.
    pub agent: Option<String>,
    /// The operator's own program in the agent's place, and its arguments.
    pub agent_command: Vec<String>,
    /// Where the operator's own pipelines and steps stand.
    pub custom_root: Option<PathBuf>,
    /// Whether CI reads the log and obeys commands in it.
    pub is_ci: bool,
    /// The way out, for our own calls; children read it for themselves.
    pub proxies: Proxies,
    /// What any child gets.
    pub child_env: ChildEnv,
    pub transport: Transport,
    pub orphan_processes: OrphanProcesses,
}

/// Why the environment makes no run.
#[derive(Debug, thiserror::Error)]
pub enum EnvironmentError {
    #[error("the variable {0} is missing")]
    Missing(&'static str),
    #[error("the variable {0} is not valid: {1}")]
    Invalid(&'static str, String),
    #[error("reading the event file {0}: {1}")]
    EventFile(PathBuf, String),
    #[error("the run cannot leave its first environment behind: {0}")]
    Reexec(std::io::Error),
}

impl Environment {
    /// Puts the process in its own place once more, called with `arguments` and without the
    /// credentials in its environment; [`Environment::take_over`] is how it goes on then. Returns
    /// only when that failed.
    pub fn reexec(arguments: &[&str]) -> EnvironmentError {
        let variables = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect();
        let kept = |name: &str| PASSED_ON.contains(&name) || name == KEPT;
        EnvironmentError::Reexec(reexec::exec_self(&variables, kept, arguments))
    }

    /// Takes what the process was started with, and takes the tokens out of the event file: an
    /// agent of the same user could read it.
    ///
    /// # Errors
    /// When the run's inputs or its repository are missing or malformed.
    pub fn from_reexec() -> Result<Self, EnvironmentError> {
        let variables = reexec::take_variables().map_err(EnvironmentError::Reexec)?;
        let event = event(&variables)?;
        if let (Some(path), Some(event)) = (variables.get(EVENT_FILE), &event) {
            forget_tokens(Path::new(path), event);
        }
        Self::from_variables(&variables, event.as_ref())
    }

    fn from_variables(
        variables: &HashMap<String, String>,
        event: Option<&Value>,
    ) -> Result<Self, EnvironmentError> {
        let given = |name: &str| variables.get(name).filter(|text| !text.is_empty()).cloned();
        let repository =
            given("GITHUB_REPOSITORY").ok_or(EnvironmentError::Missing("GITHUB_REPOSITORY"))?;
        let server_url = given("GITHUB_SERVER_URL").unwrap_or("https://github.com".to_owned());
        let run_id = given("GITHUB_RUN_ID").and_then(|id| id.parse().ok());
        let base_branch = event
            .and_then(|event| event.pointer("/repository/default_branch")?.as_str())
            .map(str::to_owned)
            .or_else(|| given("GITHUB_REF_NAME"))
            .ok_or(EnvironmentError::Missing("GITHUB_REF_NAME"))?;
        Ok(Self {
            inputs: inputs(variables, event)?,
            repo: Repo::parse(&repository).ok_or_else(|| {
                EnvironmentError::Invalid("GITHUB_REPOSITORY", repository.clone())
            })?,
            run_url: run_id.map(|id| format!("{server_url}/{repository}/actions/runs/{id}")),
            api_url: given("GITHUB_API_URL").unwrap_or("https://api.github.com".to_owned()),
            server_url,
            base_branch,
            run_id,
            temp_root: given("RUNNER_TEMP").map_or_else(std::env::temp_dir, PathBuf::from),
            home: given("HOME").map(PathBuf::from),
            workflow_token: given("GITHUB_TOKEN").map(Secret::new),
            nonce: given("SESSION_NONCE").map(Secret::new),
            secrets: listed(variables, SESSION_SECRETS)
                .filter_map(|name| given(name).map(Secret::new))
                .collect(),
            direct_keys: secrets(variables, agent::direct_key_names()),
            cloud_keys: secrets(variables, agent::cloud_key_names()),
            agent: given("AGENT_IMPLEMENT_AGENT"),
            agent_command: given("AGENT_IMPLEMENT_AGENT_COMMAND")
                .unwrap_or_default()
                .split_whitespace()
                .map(str::to_owned)
                .collect(),
            custom_root: given("AGENT_IMPLEMENT_CUSTOM_ROOT").map(PathBuf::from),
            is_ci: given("GITHUB_ACTIONS").is_some(),
            proxies: proxies(given)?,
            child_env: ChildEnv::new(
                PASSED_ON
                    .into_iter()
                    .chain(listed(variables, SESSION_VARIABLES).filter(|name| !is_own(name)))
                    .filter_map(|name| Some((OsString::from(name), OsString::from(given(name)?)))),
            ),
            transport: Transport::Web,
            orphan_processes: OrphanProcesses::Kill,
        })
    }

    /// Where git finds the repository.
    pub fn git_url(&self) -> String {
        format!(
            "{}/{}.git",
            self.server_url.trim_end_matches('/'),
            self.repo
        )
    }
}

/// The proxies, by their usual names, in large letters or in small.
fn proxies(given: impl Fn(&str) -> Option<String>) -> Result<Proxies, EnvironmentError> {
    let either = |large: &str, small: &str| given(large).or_else(|| given(small));
    let https = either("HTTPS_PROXY", "https_proxy");
    let http = either("HTTP_PROXY", "http_proxy");
    let bypass = either("NO_PROXY", "no_proxy").unwrap_or_default();
    Proxies::new(https.as_deref(), http.as_deref(), &bypass)
        .map_err(|cause| EnvironmentError::Invalid("HTTPS_PROXY", cause))
}

/// The names that a variable lists.
fn listed<'a>(variables: &'a HashMap<String, String>, list: &str) -> impl Iterator<Item = &'a str> {
    let names = variables.get(list).map(String::as_str).unwrap_or_default();
    names.split(',').filter(|name| !name.is_empty())
}

/// Whether a variable is the run's or its agent's own, whoever set it.
fn is_own(name: &str) -> bool {
    let mut keys = agent::direct_key_names().chain(agent::cloud_key_names());
    let reserved = ["RUN_CONFIG", "SESSION_", "GITHUB_", "ACTIONS_", "RUNNER_"];
    reserved.iter().any(|prefix| name.starts_with(prefix)) || keys.any(|key| key == name)
}

/// Those of the named variables that are set.
fn secrets(
    variables: &HashMap<String, String>,
    names: impl Iterator<Item = &'static str>,
) -> Vec<(String, Secret)> {
    names
        .filter_map(|name| Some((name.to_owned(), variables.get(name)?)))
        .filter(|(_, value)| !value.is_empty())
        .map(|(name, value)| (name, Secret::new(value.clone())))
        .collect()
}

/// The inputs: of the variable `RUN_CONFIG`, else of the event.
fn inputs(
    variables: &HashMap<String, String>,
    event: Option<&Value>,
) -> Result<RunInputs, EnvironmentError> {
    let given = match variables.get("RUN_CONFIG").filter(|text| !text.is_empty()) {
        // The parser's own words could quote a token.
        Some(text) => serde_json::from_str(text).map_err(|_| {
            EnvironmentError::Invalid("RUN_CONFIG", "it is no JSON object".to_owned())
        })?,
        None => event
            .and_then(|event| event.get("inputs"))
            .cloned()
            .ok_or(EnvironmentError::Missing("RUN_CONFIG"))?,
    };
    let fields = given.as_object().ok_or_else(|| {
        EnvironmentError::Invalid("RUN_CONFIG", "it is no JSON object".to_owned())
    })?;
    Ok(fields
        .iter()
        .filter_map(|(name, value)| {
            let text = match value {
                Value::Null => return None,
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            Some((name.clone(), text))
        })
        .collect())
}

fn event(variables: &HashMap<String, String>) -> Result<Option<Value>, EnvironmentError> {
    let Some(path) = variables.get(EVENT_FILE).filter(|path| !path.is_empty()) else {
        return Ok(None);
    };
    let path = PathBuf::from(path);
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(EnvironmentError::EventFile(path, error.to_string())),
    };
    serde_json::from_str(&text)
        .map(Some)
        .map_err(|_| EnvironmentError::EventFile(path, "it is no JSON".to_owned()))
}

/// Writes the event back without tokens. Where it cannot be written, as in a read-only mount, it is
/// left: the run's other walls stand.
fn forget_tokens(path: &Path, event: &Value) {
    let mut event = event.clone();
    let Some(inputs) = event.get_mut("inputs").and_then(Value::as_object_mut) else {
        return;
    };
    let found = TOKEN_INPUTS
        .iter()
        .filter(|name| inputs.shift_remove(**name).is_some())
        .count();
    if found > 0 && std::fs::write(path, event.to_string()).is_err() {
        print_line("the event file cannot be written; the run's tokens stay in it");
    }
}

/// These variables of our own environment, for a child of a command at a shell.
pub fn inherited_env(names: &[&str]) -> ChildEnv {
    let pairs = names
        .iter()
        .filter_map(|name| Some((OsString::from(name), std::env::var_os(name)?)));
    ChildEnv::new(pairs)
}

/// The lines that tell CI to hide from its log the run's tokens, and whatever secret somebody wrote into
/// the ticket: CI prints all inputs. Read from the event file, because a token in a step's `env` would
/// be printed before it is masked.
///
/// # Errors
/// When the event file is there but cannot be read.
pub fn add_mask_commands() -> Result<Vec<String>, EnvironmentError> {
    let path = std::env::var(EVENT_FILE).unwrap_or_default();
    let event = event(&HashMap::from([(EVENT_FILE.to_owned(), path)]))?;
    let inputs = event.as_ref().and_then(|event| event["inputs"].as_object());
    let mut secrets = Vec::new();
    for (name, text) in inputs.into_iter().flatten() {
        let Some(text) = text.as_str() else {
            continue;
        };
        if TOKEN_INPUTS.contains(&name.as_str()) {
            secrets.push(text.to_owned());
        } else {
            let found = find_secrets(text).into_iter();
            secrets.extend(found.map(|range| text[range].to_owned()));
        }
    }
    let lines = secrets.iter().flat_map(|secret| secret.lines());
    Ok(lines
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with("-----"))
        .map(|line| format!("::add-mask::{line}"))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn variables(pairs: &[(&str, &str)]) -> HashMap<String, String> {
        pairs
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn children_get_listed_variables_only() {
        let environment = Environment::from_variables(
            &variables(&[
                ("PATH", "/bin"),
                ("LANG", "C"),
                ("GITHUB_REPOSITORY", "o/r"),
                ("GITHUB_REF_NAME", "main"),
                ("GITHUB_TOKEN", "t"),
                ("ANTHROPIC_API_KEY", "k"),
                ("GITHUB_ENV", "/x"),
                ("ACTIONS_RUNTIME_TOKEN", "a"),
                ("DATABASE_URL", "d"),
                (
                    "RUN_CONFIG",
                    r#"{"phase":"implementation","max_turns":7,"pr_number":null}"#,
                ),
            ]),
            None,
        )
        .unwrap();
        let names: Vec<_> = environment.child_env.names().collect();
        assert_eq!(names, ["LANG", "PATH"]);
        assert_eq!(environment.inputs["max_turns"], "7");
        assert!(!environment.inputs.contains_key("pr_number"));
        assert_eq!(environment.git_url(), "https://github.com/o/r.git");
    }

    #[test]
    fn a_sessions_variables_are_passed_on_and_its_secrets_are_known() {
        let environment = Environment::from_variables(
            &variables(&[
                ("GITHUB_REPOSITORY", "o/r"),
                ("GITHUB_REF_NAME", "main"),
                ("RUN_CONFIG", r#"{"phase":"implementation"}"#),
                ("SESSION_NONCE", "nonce"),
                ("NPM_TOKEN", "the-npm-token"),
                ("NODE_ENV", "production"),
                ("ANTHROPIC_API_KEY", "k"),
                ("OTHER", "not listed"),
                (
                    "SESSION_VARIABLES",
                    "ANTHROPIC_API_KEY,GONE,NODE_ENV,NPM_TOKEN,SESSION_NONCE",
                ),
                ("SESSION_SECRETS", "NPM_TOKEN"),
            ]),
            None,
        )
        .unwrap();
        let names: Vec<_> = environment.child_env.names().collect();
        assert_eq!(names, ["NODE_ENV", "NPM_TOKEN"]);
        assert_eq!(environment.secrets, [Secret::new("the-npm-token")]);
    }

    #[test]
    fn a_proxy_that_is_none_is_said_in_large_letters_and_in_small_without_its_password() {
        for name in ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"] {
            let taken = Environment::from_variables(
                &variables(&[
                    ("GITHUB_REPOSITORY", "o/r"),
                    ("GITHUB_REF_NAME", "main"),
                    ("RUN_CONFIG", r#"{"phase":"implementation"}"#),
                    (name, "http://us:proxy-word@[bad"),
                ]),
                None,
            );
            let error = taken.err().unwrap().to_string();
            assert!(error.contains("a proxy's address"), "{name}: {error}");
            assert!(!error.contains("proxy-word"), "{error}");
        }
    }

    #[test]
    fn the_default_branch_of_the_event_beats_the_ref() {
        let event = json!({"inputs": {"phase": "implementation"}, "repository": {"default_branch": "trunk"}});
        let environment = Environment::from_variables(
            &variables(&[("GITHUB_REPOSITORY", "o/r"), ("GITHUB_REF_NAME", "main")]),
            Some(&event),
        )
        .unwrap();
        assert_eq!(environment.base_branch, "trunk");
        assert_eq!(environment.inputs["phase"], "implementation");
    }

    #[test]
    fn tokens_leave_the_event_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("event.json");
        let event =
            json!({"inputs": {"run_token": "a.b.c", "run_progress_token": "d.e.f", "phase": "x"}});
        std::fs::write(&path, event.to_string()).unwrap();
        forget_tokens(&path, &event);
        assert_eq!(
            std::fs::read_to_string(&path).unwrap(),
            r#"{"inputs":{"phase":"x"}}"#
        );
    }
}
