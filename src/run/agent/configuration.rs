//! Agent of a run: program, credentials and settings.

use super::cli::AgentCli;
use super::credentials::{cloud_key_names, is_base_url};
use super::installation::Installation;
use crate::child::ChildEnv;
use crate::folders::Folders;
use crate::programs::{Program, ProgramError};
use domain::agent::AgentName;
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
    /// Whether the run may install the agent if its image does not contain it.
    pub may_install: bool,
    /// Installation by the run.
    pub installation: Option<Installation>,
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

    /// Returns the agents for which this run has credentials, whichever agent it uses.
    pub(crate) fn named_agents_with_credentials(&self) -> Vec<AgentName> {
        let names = || self.keys.iter().map(|(name, _)| name.as_str());
        let all = AgentName::ALL.into_iter();
        all.filter(|agent| self.cloud_region.is_none() && agent.has_credential(names()))
            .collect()
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

    /// Installs the agent if the operator allows that and the image does not contain it. Must be called before
    /// repository code runs.
    ///
    /// # Errors
    /// A sentence for the operator if the installation fails.
    pub async fn install_if_missing(
        &mut self,
        folders: &Folders,
        log: impl Fn(&str),
    ) -> Result<(), String> {
        let Some(agent) = self.cli.named().filter(|_| self.may_install) else {
            return Ok(());
        };
        if self.find().is_ok() {
            return Ok(());
        }
        log(&format!(
            "Installing {} {} from npm",
            agent.product, agent.version
        ));
        self.installation = Some(Installation::install(agent, &self.env, folders).await?);
        Ok(())
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
        let path = self.env.get("PATH").unwrap_or_default();
        match &self.installation {
            Some(installation) => Program::find(installation.program().as_os_str(), path),
            None => Program::find(name.as_ref(), path),
        }
    }

    /// Returns the located program after verifying that it is unchanged.
    pub(super) fn verified_program(&self) -> Result<Program, ProgramError> {
        let program = self.program.clone().unwrap_or_else(|| self.find())?;
        program.verify_unchanged()?;
        if let Some(installation) = &self.installation {
            installation.verify_unchanged()?;
        }
        Ok(program)
    }
}
