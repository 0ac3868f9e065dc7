//! Warnings about valid mappings.

use schemars::JsonSchema;
use serde::Serialize;

use super::{ExecutionMode, Mapping};
use crate::machine_size::MachineSize;

/// Warning about a field of a mapping.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct MappingWarning {
    /// Name of the field.
    pub field: &'static str,
    /// Sentence for operators.
    pub message: String,
}

impl Mapping {
    /// Returns warnings about settings that do not take effect as given.
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
