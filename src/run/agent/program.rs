//! Location and verification of the agent program.

use super::{Agent, AgentCli};
use crate::programs::{Program, ProgramError};

impl Agent {
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
