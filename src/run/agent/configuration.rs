//! Agent of a run: program, credentials and settings.

use super::cli::AgentCli;
use super::credentials::{cloud_key_names, is_base_url};
use crate::child::ChildEnv;
use crate::programs::{Program, ProgramError};
use domain::secret::Secret;

/// Number of request retries at the provider before a pass fails. With backoff about two minutes.
pub const RETRIES: u32 = 8;

/// Agent of a run.
#[derive(Debug, Clone)]
pub struct Agent {
    /// Agent program.
    pub cli: AgentCli,
    /// Program and arguments configured by the operator, for [`AgentCli::Command`].
    pub command: Vec<String>,
    /// Located program, or the error. Located on first use if `None`.
    pub program: Option<Result<Program, ProgramError>>,
    /// Base environment of every child.
    pub env: ChildEnv,
    /// Every model credential of the run, by variable. A program gets only its own.
    pub keys: Vec<(String, Secret)>,
    /// Region of the cloud provider, if the run uses it.
    pub cloud_region: Option<String>,
    /// Model of the next pass; `None` leaves the choice to the program.
    pub model: Option<String>,
    /// Number of request retries at the provider.
    pub retries: u32,
}

impl Agent {
    /// Validates that this agent can work in this run.
    ///
    /// # Errors
    /// The missing configuration, for the operator.
    pub fn validate(&self) -> Result<(), String> {
        let name = self.cli.name();
        if self.cli == AgentCli::Command && self.command.is_empty() {
            return Err(
                "AGENT_IMPLEMENT_AGENT is command, but AGENT_IMPLEMENT_AGENT_COMMAND is empty"
                    .to_owned(),
            );
        }
        let is_cloud = self.cloud_region.is_some();
        if is_cloud && matches!(self.cli, AgentCli::Codex | AgentCli::Gemini) {
            return Err(format!("agent {name} does not support the provider cloud"));
        }
        // In the cloud, a machine may have a role of its own. A custom command may need no key.
        let keys: Vec<&str> = self.cli.keys();
        let has_key = keys
            .iter()
            .any(|key| !is_base_url(key) && self.key(key).is_some());
        if has_key || is_cloud || self.cli == AgentCli::Command {
            return Ok(());
        }
        let credentials: Vec<&str> = keys.into_iter().filter(|key| !is_base_url(key)).collect();
        Err(format!(
            "agent {name} has no model credential: set {} in the secrets of the repository",
            credentials.join(" or ")
        ))
    }

    /// Returns the value of a provider variable.
    pub(super) fn key(&self, name: &str) -> Option<&str> {
        let found = self.keys.iter().find(|(known, _)| known == name);
        found.map(|(_, key)| key.expose())
    }

    /// Returns the base environment plus the program's own credentials.
    pub(super) fn base_env(&self) -> ChildEnv {
        let mut names = self.cli.keys();
        if self.cloud_region.is_some() {
            names = cloud_key_names().collect();
        }
        let own = names
            .into_iter()
            .filter_map(|name| Some((name, self.key(name)?)));
        own.fold(self.env.clone(), |env, (name, key)| env.with(name, key))
    }

    /// Locates the agent program. Must be called before repository code runs, which could install
    /// another program to obtain the model key.
    pub fn pin_program(&mut self) {
        self.program = Some(self.find());
    }

    fn find(&self) -> Result<Program, ProgramError> {
        let name = match self.cli {
            AgentCli::Command => self.command.first().map_or("", String::as_str),
            named => named.name(),
        };
        Program::find(name.as_ref(), self.env.get("PATH").unwrap_or_default())
    }

    /// Returns the located program after verifying that it is unchanged.
    pub(super) fn verified_program(&self) -> Result<Program, ProgramError> {
        let program = self.program.clone().unwrap_or_else(|| self.find())?;
        program.verify_unchanged().map(|()| program)
    }
}
