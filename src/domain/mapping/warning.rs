//! What an operator should know about a mapping that is valid all the same.

use serde::Serialize;

use super::{ExecutionMode, Mapping};
use crate::machine_size::MachineSize;

/// Warning about a field of a mapping.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MappingWarning {
    pub field: &'static str,
    /// A sentence for operators.
    pub message: String,
}

impl Mapping {
    /// Returns what does not happen as its fields say.
    pub fn warnings(&self) -> Vec<MappingWarning> {
        let on_machines = self.execution_mode == ExecutionMode::VmMachines;
        let size = on_machines.then(|| MachineSize::from_mapping(self).warning());
        let field = "machineCpus";
        size.flatten()
            .map(|message| MappingWarning { field, message })
            .into_iter()
            .collect()
    }
}
