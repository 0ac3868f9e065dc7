//! Which file the agent's program is.

use super::{Agent, AgentCli};
use crate::programs::{Program, ProgramError};

impl Agent {
    /// Finds the agent's program. Called before any foreign code runs, which could put another one
    /// in its place to be given the model's key.
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

    /// The program as it was found, if it still is that.
    pub(super) fn verified_program(&self) -> Result<Program, ProgramError> {
        let program = self.program.clone().unwrap_or_else(|| self.find())?;
        program.verify_unchanged().map(|()| program)
    }
}
