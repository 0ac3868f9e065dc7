//! Environment of a run: the only file of the run that reads process environment variables.
//!
//! The environment is read once, before any child starts. Children receive selected variables by
//! name and nothing else.

mod event_file;

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::agent;
use super::child::ChildEnv;
use super::egress_relay;
use super::git::Transport;
use super::home_template;
use super::orphan_processes::OrphanProcesses;
use super::reexec;
use domain::git_mirror;
use domain::ids::Repo;
use domain::machine::{SESSION_ENDS_AT, SESSION_SECRETS, SESSION_VARIABLES};
use domain::reserved_variables;
use domain::run_config::RunInputs;
use domain::run_socket::PROXY_VARIABLE;
use domain::secret::Secret;
use domain::time::Timestamp;
use event_file::{EventFile, EventFileError};
use vendors::http::Proxies;

/// Variables passed to every child: search path, locale, network and tool homes. None holds a
/// credential of the run.
const CHILD_VARIABLES: [&str; 33] = [
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
    "NODE_USE_ENV_PROXY",
    "JAVA_TOOL_OPTIONS",
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

/// Variable that the run itself keeps besides the child variables: the folder for temporary files.
const TEMP_DIR_VARIABLE: &str = "TMPDIR";

/// Variable with the path of the CI event file, which contains the run's inputs and tokens.
const EVENT_FILE_VARIABLE: &str = "GITHUB_EVENT_PATH";

/// Environment of a run. Not `Debug`, because its inputs contain tokens.
#[derive(Clone)]
pub struct Environment {
    /// Inputs of the dispatch.
    pub inputs: RunInputs,
    /// Repository of the run.
    pub repo: Repo,
    /// Base URL of GitHub.
    pub server_url: String,
    /// Base URL of the GitHub API.
    pub api_url: String,
    /// Branch that pull requests are merged into.
    pub base_branch: String,
    /// Id of the CI run, if any.
    pub run_id: Option<u64>,
    /// Attempt of the CI run, from 1.
    pub run_attempt: u64,
    /// URL of the CI run, if any.
    pub run_url: Option<String>,
    /// Workspace folder of the CI job, if any. The run leaves nothing in it but its report file.
    pub workspace: Option<PathBuf>,
    /// Files of the CI step, if any.
    pub step_files: Option<StepFiles>,
    /// Folder in which the work folder is created.
    pub temp_root: PathBuf,
    /// Home folder of the run's user.
    pub home: Option<PathBuf>,
    /// Workflow token of CI, used if the orchestrator cannot be reached.
    pub workflow_token: Option<Secret>,
    /// Nonce that authenticates a session. `None` in CI.
    pub nonce: Option<Secret>,
    /// End of the time budget by the clock of the service, if the machine may have started late.
    pub ends_at: Option<Timestamp>,
    /// Secrets configured for the session.
    pub secrets: Vec<Secret>,
    /// Credentials of direct model providers, by variable.
    pub direct_keys: Vec<(String, Secret)>,
    /// Credentials of the cloud provider, by variable.
    pub cloud_keys: Vec<(String, Secret)>,
    /// Name of the agent, if configured by the operator.
    pub agent: Option<String>,
    /// Whether the run may install the agent if its image does not contain it.
    pub may_install_agent: bool,
    /// Custom agent program and its arguments.
    pub agent_command: Vec<String>,
    /// Folder of custom pipelines and steps.
    pub custom_root: Option<PathBuf>,
    /// Whether CI reads the log and executes commands in it.
    pub is_ci: bool,
    /// Proxies for the run's own requests. Children read the variables themselves.
    pub proxies: Proxies,
    /// Variables passed to every child.
    pub child_env: ChildEnv,
    /// Mirror of the repository, mounted into the container.
    pub mirror: Option<PathBuf>,
    /// Template of the home folder, in the image.
    pub home_template: Option<PathBuf>,
    /// Protocol that repositories are fetched with.
    pub transport: Transport,
    /// Handling of orphan processes.
    pub orphan_processes: OrphanProcesses,
}

/// Files in which a CI step leaves values for later steps.
#[derive(Debug, Clone)]
pub struct StepFiles {
    /// Outputs of the step.
    pub output: PathBuf,
    /// Environment variables of later steps.
    pub environment: PathBuf,
    /// Folders to add to the search path of later steps.
    pub search_path: PathBuf,
}

/// Error of reading the environment.
#[derive(Debug, thiserror::Error)]
pub enum EnvironmentError {
    /// A required variable is missing.
    #[error("environment variable {0} is missing")]
    Missing(&'static str),
    /// A variable has an invalid value: name and cause.
    #[error("environment variable {0} is invalid: {1}")]
    Invalid(&'static str, String),
    /// The event file cannot be read or parsed.
    #[error(transparent)]
    EventFile(#[from] EventFileError),
    /// The way out of the container could not be opened.
    #[error("cannot open a port for connections to other hosts: {0}")]
    EgressRelay(std::io::Error),
    /// The process could not be re-executed.
    #[error("cannot re-execute the run without credentials in its environment: {0}")]
    Reexec(std::io::Error),
}

impl Environment {
    /// Re-executes the process with `arguments` and without credentials in its environment. The new
    /// process continues with [`Environment::from_reexec`]. Returns only on failure.
    pub fn reexec(arguments: &[&str]) -> EnvironmentError {
        let variables = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect();
        let keep = |name: &str| CHILD_VARIABLES.contains(&name) || name == TEMP_DIR_VARIABLE;
        EnvironmentError::Reexec(reexec::exec_self(&variables, keep, arguments))
    }

    /// Reads the environment passed by [`Environment::reexec`], and removes the tokens from the
    /// event file, which the agent could read. Opens the way out of a container without a network. Requires a Tokio
    /// runtime.
    ///
    /// # Errors
    /// If inputs or repository are missing or malformed.
    pub fn from_reexec() -> Result<Self, EnvironmentError> {
        let mut variables = reexec::take_variables().map_err(EnvironmentError::Reexec)?;
        if let Some(socket) = variables.remove(PROXY_VARIABLE) {
            let nonce = variables.get("SESSION_NONCE").cloned().unwrap_or_default();
            let relay = egress_relay::open(Path::new(&socket), Secret::new(nonce));
            let relay = relay.map_err(EnvironmentError::EgressRelay)?;
            egress_relay::set_variables(&mut variables, relay);
        }
        let file = match variables.get(EVENT_FILE_VARIABLE) {
            Some(path) => event_file(path)?,
            None => None,
        };
        if let Some(file) = &file {
            file.remove_tokens();
        }
        Self::from_variables(&variables, file.as_ref().map(EventFile::event))
    }

    fn from_variables(
        variables: &HashMap<String, String>,
        event: Option<&Value>,
    ) -> Result<Self, EnvironmentError> {
        let variable = |name: &str| variables.get(name).filter(|text| !text.is_empty()).cloned();
        let repository =
            variable("GITHUB_REPOSITORY").ok_or(EnvironmentError::Missing("GITHUB_REPOSITORY"))?;
        let server_url = variable("GITHUB_SERVER_URL").unwrap_or("https://github.com".to_owned());
        let run_id = variable("GITHUB_RUN_ID").and_then(|id| id.parse().ok());
        // Not the default branch in the event: a project can name another one, and is dispatched on it.
        let base_branch =
            variable("GITHUB_REF_NAME").ok_or(EnvironmentError::Missing("GITHUB_REF_NAME"))?;
        Ok(Self {
            inputs: inputs(variables, event)?,
            repo: Repo::parse(&repository).ok_or_else(|| {
                EnvironmentError::Invalid("GITHUB_REPOSITORY", repository.clone())
            })?,
            run_url: run_id.map(|id| format!("{server_url}/{repository}/actions/runs/{id}")),
            api_url: variable("GITHUB_API_URL").unwrap_or("https://api.github.com".to_owned()),
            server_url,
            base_branch,
            run_id,
            run_attempt: variable("GITHUB_RUN_ATTEMPT")
                .and_then(|attempt| attempt.parse().ok())
                .unwrap_or(1),
            workspace: variable("GITHUB_WORKSPACE").map(PathBuf::from),
            step_files: step_files(variable),
            temp_root: variable("RUNNER_TEMP").map_or_else(std::env::temp_dir, PathBuf::from),
            home: variable("HOME").map(PathBuf::from),
            workflow_token: variable("GITHUB_TOKEN").map(Secret::new),
            nonce: variable("SESSION_NONCE").map(Secret::new),
            ends_at: variable(SESSION_ENDS_AT).and_then(|at| Timestamp::parse(&at)),
            secrets: listed(variables, SESSION_SECRETS)
                .filter_map(|name| variable(name).map(Secret::new))
                .collect(),
            direct_keys: secrets(variables, agent::direct_key_names()),
            cloud_keys: secrets(variables, agent::cloud_key_names()),
            agent: variable("AGENT_IMPLEMENT_AGENT"),
            may_install_agent: variable("AGENT_IMPLEMENT_INSTALL_AGENT").as_deref() == Some("true"),
            agent_command: variable("AGENT_IMPLEMENT_AGENT_COMMAND")
                .unwrap_or_default()
                .split_whitespace()
                .map(str::to_owned)
                .collect(),
            custom_root: variable("AGENT_IMPLEMENT_CUSTOM_ROOT").map(PathBuf::from),
            is_ci: variable("GITHUB_ACTIONS").is_some(),
            proxies: proxies(variable)?,
            child_env: ChildEnv::new(
                CHILD_VARIABLES
                    .into_iter()
                    .chain(listed(variables, SESSION_VARIABLES).filter(|name| !is_withheld(name)))
                    .filter_map(|name| {
                        Some((OsString::from(name), OsString::from(variable(name)?)))
                    }),
            ),
            mirror: variable(git_mirror::VARIABLE).map(PathBuf::from),
            home_template: variable(home_template::VARIABLE).map(PathBuf::from),
            transport: Transport::Web,
            orphan_processes: OrphanProcesses::Kill,
        })
    }

    /// Returns the URL from which git fetches the repository.
    pub fn git_url(&self) -> String {
        format!(
            "{}/{}.git",
            self.server_url.trim_end_matches('/'),
            self.repo
        )
    }
}

/// Returns the files of the CI step; `None` outside a CI job.
fn step_files(variable: impl Fn(&str) -> Option<String>) -> Option<StepFiles> {
    let path = |name| variable(name).map(PathBuf::from);
    Some(StepFiles {
        output: path("GITHUB_OUTPUT")?,
        environment: path("GITHUB_ENV")?,
        search_path: path("GITHUB_PATH")?,
    })
}

/// Reads the proxy variables in upper or lower case.
fn proxies(variable: impl Fn(&str) -> Option<String>) -> Result<Proxies, EnvironmentError> {
    let either = |upper: &str, lower: &str| variable(upper).or_else(|| variable(lower));
    let https = either("HTTPS_PROXY", "https_proxy");
    let http = either("HTTP_PROXY", "http_proxy");
    let bypass = either("NO_PROXY", "no_proxy").unwrap_or_default();
    Proxies::new(https.as_deref(), http.as_deref(), &bypass)
        .map_err(|cause| EnvironmentError::Invalid("HTTPS_PROXY", cause))
}

/// Returns the comma-separated names in a variable.
fn listed<'a>(variables: &'a HashMap<String, String>, list: &str) -> impl Iterator<Item = &'a str> {
    let names = variables.get(list).map(String::as_str).unwrap_or_default();
    names.split(',').filter(|name| !name.is_empty())
}

/// Whether a variable belongs to the run or its agent and must not be passed to children.
fn is_withheld(name: &str) -> bool {
    let mut keys = agent::direct_key_names().chain(agent::cloud_key_names());
    reserved_variables::is_reserved(name) || keys.any(|key| key == name)
}

/// Returns the named variables that are set.
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

/// Reads the inputs from `RUN_CONFIG`, else from the event.
fn inputs(
    variables: &HashMap<String, String>,
    event: Option<&Value>,
) -> Result<RunInputs, EnvironmentError> {
    let inputs = match variables.get("RUN_CONFIG").filter(|text| !text.is_empty()) {
        // The parser's message could quote a token.
        Some(text) => serde_json::from_slice(text.as_bytes())
            .map_err(|_| EnvironmentError::Invalid("RUN_CONFIG", "not a JSON object".to_owned()))?,
        None => event
            .and_then(|event| event.get("inputs"))
            .cloned()
            .ok_or(EnvironmentError::Missing("RUN_CONFIG"))?,
    };
    let fields = inputs
        .as_object()
        .ok_or_else(|| EnvironmentError::Invalid("RUN_CONFIG", "not a JSON object".to_owned()))?;
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

/// Reads the event file; `None` if there is none.
fn event_file(path: &str) -> Result<Option<EventFile>, EventFileError> {
    match path {
        "" => Ok(None),
        path => EventFile::read(Path::new(path)),
    }
}

/// Returns these variables of the process, for commands started from a shell.
pub(crate) fn inherited_env(names: &[&str]) -> ChildEnv {
    let pairs = names
        .iter()
        .filter_map(|name| Some((OsString::from(name), std::env::var_os(name)?)));
    ChildEnv::new(pairs)
}

/// Returns the `add-mask` commands by which CI hides the run's tokens, and secrets in the ticket's
/// text, from its log. CI prints all inputs. The values are read from the event file, because a
/// token in a step's `env` would be printed before it is masked.
///
/// # Errors
/// If the event file exists but cannot be read.
pub fn add_mask_commands() -> Result<Vec<String>, EnvironmentError> {
    let path = std::env::var(EVENT_FILE_VARIABLE).unwrap_or_default();
    let file = event_file(&path)?;
    Ok(file.map_or(Vec::new(), |file| file.add_mask_commands()))
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
    fn passes_session_variables_and_reads_session_secrets() {
        let environment = Environment::from_variables(
            &variables(&[
                ("GITHUB_REPOSITORY", "o/r"),
                ("GITHUB_REF_NAME", "main"),
                ("RUN_CONFIG", r#"{"phase":"implementation"}"#),
                ("SESSION_NONCE", "nonce"),
                ("NPM_TOKEN", "the-npm-token"),
                ("NODE_ENV", "production"),
                ("SESSION_COOKIE_NAME", "shop"),
                ("ANTHROPIC_API_KEY", "k"),
                ("OTHER", "not listed"),
                (
                    "SESSION_VARIABLES",
                    "ANTHROPIC_API_KEY,UNSET,NODE_ENV,NPM_TOKEN,SESSION_NONCE,SESSION_COOKIE_NAME",
                ),
                ("SESSION_SECRETS", "NPM_TOKEN"),
            ]),
            None,
        )
        .unwrap();
        let names: Vec<_> = environment.child_env.names().collect();
        assert_eq!(names, ["NODE_ENV", "NPM_TOKEN", "SESSION_COOKIE_NAME"]);
        assert_eq!(environment.secrets, [Secret::new("the-npm-token")]);
    }

    #[test]
    fn the_end_of_the_time_is_read_if_it_is_a_timestamp() {
        let at = Timestamp::parse("2026-01-02T03:04:05Z").unwrap();
        for (value, expected) in [(at.to_string(), Some(at)), ("soon".to_owned(), None)] {
            let environment = Environment::from_variables(
                &variables(&[
                    ("GITHUB_REPOSITORY", "o/r"),
                    ("GITHUB_REF_NAME", "main"),
                    ("RUN_CONFIG", r#"{"phase":"implementation"}"#),
                    ("SESSION_ENDS_AT", &value),
                ]),
                None,
            );
            assert_eq!(environment.unwrap().ends_at, expected, "{value}");
        }
    }

    #[test]
    fn rejects_an_invalid_proxy_without_quoting_its_password() {
        for name in ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"] {
            let result = Environment::from_variables(
                &variables(&[
                    ("GITHUB_REPOSITORY", "o/r"),
                    ("GITHUB_REF_NAME", "main"),
                    ("RUN_CONFIG", r#"{"phase":"implementation"}"#),
                    (name, "http://us:proxy-word@[bad"),
                ]),
                None,
            );
            let error = result.err().unwrap().to_string();
            assert!(error.contains("a proxy's address"), "{name}: {error}");
            assert!(!error.contains("proxy-word"), "{error}");
        }
    }

    #[test]
    fn the_base_is_the_branch_of_the_dispatch() {
        let event = json!({"inputs": {"phase": "implementation"}, "repository": {"default_branch": "main"}});
        let environment = Environment::from_variables(
            &variables(&[("GITHUB_REPOSITORY", "o/r"), ("GITHUB_REF_NAME", "trunk")]),
            Some(&event),
        )
        .unwrap();
        assert_eq!(environment.base_branch, "trunk");
        assert_eq!(environment.inputs["phase"], "implementation");
    }
}
