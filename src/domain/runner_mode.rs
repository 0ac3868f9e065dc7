//! Where a run executes: the operator's mode, the mapping's own choice, and what is set up.
//! (spec: *Runner modes*)

use serde::{Deserialize, Serialize};

use super::job::RunnerKind;
use super::machine_size::MachineSize;
use super::mapping::{ExecutionMode, Mapping, ModelProvider};

/// The global override of where runs execute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RunnerMode {
    /// Each mapping's own `executionMode` decides.
    #[default]
    Default,
    Ci,
    Vm,
    Local,
    /// The CI run is the real one; a VM run beside it is kept for comparison.
    Shadow,
}

/// The refusal of anything else, in the spec's words.
pub const INVALID_MODE_MESSAGE: &str = "mode must be one of: default, gha, fly, local, shadow";

impl RunnerMode {
    /// Reads a mode; the vendors' short names are taken as well.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "default" => Some(RunnerMode::Default),
            "ci" | "gha" => Some(RunnerMode::Ci),
            "vm" | "fly" => Some(RunnerMode::Vm),
            "local" => Some(RunnerMode::Local),
            "shadow" => Some(RunnerMode::Shadow),
            _ => None,
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            RunnerMode::Default => "default",
            RunnerMode::Ci => "ci",
            RunnerMode::Vm => "vm",
            RunnerMode::Local => "local",
            RunnerMode::Shadow => "shadow",
        }
    }
}

/// What is set up for sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RunnerAvailability {
    pub vm: bool,
    pub local: bool,
    /// Whether runs can report to us.
    pub callbacks: bool,
}

/// Where a job runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placement {
    Ci,
    Vm,
    Local,
    /// In CI, with a VM run beside it that changes nothing outside.
    Shadow,
}

impl Placement {
    /// The runner of the run that counts.
    pub fn runner(self) -> RunnerKind {
        match self {
            Placement::Ci | Placement::Shadow => RunnerKind::Ci,
            Placement::Vm => RunnerKind::Vm,
            Placement::Local => RunnerKind::Local,
        }
    }
}

/// Where the runs of a mapping execute in this mode, or why they cannot.
///
/// Only CI has the identity that a cloud provider's role trusts (spec: *Authentication* 8), so in
/// mode `shadow` such a mapping has its CI run alone.
///
/// # Errors
/// A sentence for operators.
pub fn choose_placement(
    mode: RunnerMode,
    mapping: &Mapping,
    available: RunnerAvailability,
) -> Result<Placement, String> {
    let is_cloud = matches!(mapping.provider, ModelProvider::Cloud { .. });
    let wanted = match (mode, mapping.execution_mode) {
        (RunnerMode::Ci, _) | (RunnerMode::Default, ExecutionMode::CiWorkflow) => Placement::Ci,
        (RunnerMode::Vm, _) | (RunnerMode::Default, ExecutionMode::VmMachines) => Placement::Vm,
        (RunnerMode::Local, _) => Placement::Local,
        (RunnerMode::Shadow, _) if is_cloud => Placement::Ci,
        (RunnerMode::Shadow, _) => Placement::Shadow,
    };
    let obstacle = match wanted {
        Placement::Ci => None,
        Placement::Vm | Placement::Shadow if !available.vm => {
            Some("VM sessions are not configured: set VM_SESSIONS_TOKEN and VM_SESSIONS_APP.")
        }
        Placement::Local if !available.local => {
            Some("Local containers are not configured: no container engine is set up.")
        }
        Placement::Vm if is_cloud => Some(
            "provider 'bedrock' is not supported with executionMode 'fly-machines': its role trusts CI alone.",
        ),
        Placement::Local if is_cloud => Some(
            "provider 'bedrock' is not supported with local containers: its role trusts CI alone.",
        ),
        _ if !available.callbacks => Some(
            "Sessions need runs that report: set RUNNER_CALLBACK_BASE_URL and RUNNER_TOKEN_SECRET.",
        ),
        Placement::Vm | Placement::Local | Placement::Shadow => None,
    };
    if let Some(why) = obstacle {
        return Err(why.to_owned());
    }
    if matches!(wanted, Placement::Vm | Placement::Shadow) {
        let sold = MachineSize::from_mapping(mapping).smallest_available();
        sold.map_err(|too_large| too_large.to_string())?;
    }
    Ok(wanted)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::mapping;

    const ALL: RunnerAvailability = RunnerAvailability {
        vm: true,
        local: true,
        callbacks: true,
    };

    fn mapping(provider: &str, execution: &str) -> Mapping {
        mapping::example_mapping(&json!({
            "provider": provider, "cloudRegion": "eu-west-1", "executionMode": execution,
        }))
    }

    #[test]
    fn the_mode_beats_the_mapping_and_default_leaves_it_the_choice() {
        use Placement as P;
        use RunnerMode as M;
        let (ci, vm) = (
            mapping("direct", "ci-workflow"),
            mapping("direct", "vm-machines"),
        );
        let cloud = mapping("cloud", "ci-workflow");
        let rows = [
            (M::Default, &ci, Some(P::Ci)),
            (M::Default, &vm, Some(P::Vm)),
            (M::Default, &cloud, Some(P::Ci)),
            (M::Ci, &vm, Some(P::Ci)),
            (M::Ci, &cloud, Some(P::Ci)),
            (M::Vm, &ci, Some(P::Vm)),
            (M::Vm, &cloud, None),
            (M::Local, &vm, Some(P::Local)),
            (M::Local, &cloud, None),
            (M::Shadow, &ci, Some(P::Shadow)),
            (M::Shadow, &vm, Some(P::Shadow)),
            (M::Shadow, &cloud, Some(P::Ci)),
        ];
        for (mode, mapping, placed) in rows {
            assert_eq!(
                choose_placement(mode, mapping, ALL).ok(),
                placed,
                "{mode:?}"
            );
        }
    }

    #[test]
    fn what_is_not_set_up_is_said() {
        let ci = mapping("direct", "ci-workflow");
        let without = |change: fn(&mut RunnerAvailability)| {
            let mut available = ALL;
            change(&mut available);
            available
        };
        let rows = [
            (RunnerMode::Vm, without(|a| a.vm = false), "VM_SESSIONS_APP"),
            (
                RunnerMode::Shadow,
                without(|a| a.vm = false),
                "VM_SESSIONS_APP",
            ),
            (
                RunnerMode::Local,
                without(|a| a.local = false),
                "container engine",
            ),
            (
                RunnerMode::Local,
                without(|a| a.callbacks = false),
                "RUNNER_CALLBACK_BASE_URL",
            ),
            (
                RunnerMode::Vm,
                without(|a| a.callbacks = false),
                "RUNNER_CALLBACK_BASE_URL",
            ),
        ];
        for (mode, available, word) in rows {
            let why = choose_placement(mode, &ci, available).unwrap_err();
            assert!(why.contains(word), "{mode:?}: {why}");
        }
        assert_eq!(
            choose_placement(RunnerMode::Ci, &ci, RunnerAvailability::default()),
            Ok(Placement::Ci)
        );
    }

    #[test]
    fn a_machine_that_is_not_sold_keeps_from_machines_alone() {
        let huge = mapping::example_mapping(&json!({"machineCpus": 16}));
        for mode in [RunnerMode::Vm, RunnerMode::Shadow] {
            let why = choose_placement(mode, &huge, ALL).unwrap_err();
            assert!(why.contains("16 CPUs and 4096 MB"), "{mode:?}: {why}");
        }
        for mode in [RunnerMode::Ci, RunnerMode::Local] {
            assert!(choose_placement(mode, &huge, ALL).is_ok(), "{mode:?}");
        }
        let odd = mapping::example_mapping(&json!({"machineCpus": 3}));
        assert_eq!(
            choose_placement(RunnerMode::Vm, &odd, ALL),
            Ok(Placement::Vm)
        );
    }

    #[test]
    fn a_mode_is_read_by_either_name_and_printed_by_ours() {
        for (text, mode) in [("gha", "ci"), ("fly", "vm"), ("shadow", "shadow")] {
            assert_eq!(RunnerMode::parse(text).map(RunnerMode::as_str), Some(mode));
        }
        for text in ["", "CI", "docker", "default "] {
            assert_eq!(RunnerMode::parse(text), None);
        }
    }
}
