//! Choice of the runner: from the runner mode, the mapping and the configured runners. See
//! docs/behaviour.md#runner-modes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::job::RunnerKind;
use super::machine_size::MachineSize;
use super::mapping::{ExecutionMode, Mapping, ModelProvider};

/// Runner mode: the global override of where runs execute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(rename = "RunnerModeName")]
pub enum RunnerMode {
    /// The `executionMode` of each mapping applies.
    #[default]
    Default,
    /// CI workflows.
    Ci,
    /// Virtual machines.
    Vm,
    /// Local containers.
    Local,
    /// CI workflows whose results are used, plus a shadow run in a VM for comparison.
    Shadow,
    /// Jobs of a Kubernetes cluster.
    Kubernetes,
}

/// Error message for an unknown mode.
pub const INVALID_MODE_MESSAGE: &str = "mode must be one of: default, gha, fly, local, shadow";

impl RunnerMode {
    /// Parses a mode. The vendors' short names are accepted.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "default" => Some(RunnerMode::Default),
            "ci" | "gha" => Some(RunnerMode::Ci),
            "vm" | "fly" => Some(RunnerMode::Vm),
            "local" => Some(RunnerMode::Local),
            "shadow" => Some(RunnerMode::Shadow),
            "kubernetes" | "k8s" => Some(RunnerMode::Kubernetes),
            _ => None,
        }
    }

    /// Whether this mode keeps the runs of every project out of CI.
    pub fn excludes_ci(self) -> bool {
        matches!(
            self,
            RunnerMode::Vm | RunnerMode::Local | RunnerMode::Kubernetes
        )
    }

    /// Returns the name in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            RunnerMode::Default => "default",
            RunnerMode::Ci => "ci",
            RunnerMode::Vm => "vm",
            RunnerMode::Local => "local",
            RunnerMode::Shadow => "shadow",
            RunnerMode::Kubernetes => "kubernetes",
        }
    }
}

/// Runners that are configured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RunnerAvailability {
    /// Whether VM sessions are configured.
    pub vm: bool,
    /// Whether a container engine is configured.
    pub local: bool,
    /// Whether a Kubernetes cluster is configured.
    pub kubernetes: bool,
    /// Whether runs on other machines can report to the service at its address.
    pub callbacks: bool,
    /// Whether containers can report to the service, at its address or through its socket.
    pub container_reports: bool,
}

/// Placement of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placement {
    /// CI workflow.
    Ci,
    /// Virtual machine.
    Vm,
    /// Local container.
    Local,
    /// Kubernetes Job.
    Kubernetes,
    /// CI workflow, plus a shadow run in a VM that changes nothing outside its branch.
    Shadow,
}

impl Placement {
    /// Returns the runner of the run whose result is used.
    pub fn runner(self) -> RunnerKind {
        match self {
            Placement::Ci | Placement::Shadow => RunnerKind::Ci,
            Placement::Vm => RunnerKind::Vm,
            Placement::Local => RunnerKind::Local,
            Placement::Kubernetes => RunnerKind::Kubernetes,
        }
    }
}

/// Returns where the runs of a mapping execute in this mode.
///
/// The role of a cloud provider trusts only the identity of CI runs. In mode `shadow`, such a
/// mapping therefore gets no shadow run.
///
/// # Errors
/// A sentence for operators about why no run can start.
pub fn choose_placement(
    mode: RunnerMode,
    mapping: &Mapping,
    available: RunnerAvailability,
) -> Result<Placement, String> {
    let is_cloud = matches!(mapping.provider, ModelProvider::Cloud { .. });
    let placement = match (mode, mapping.execution_mode) {
        (RunnerMode::Ci, _) | (RunnerMode::Default, ExecutionMode::CiWorkflow) => Placement::Ci,
        (RunnerMode::Vm, _) | (RunnerMode::Default, ExecutionMode::VmMachines) => Placement::Vm,
        (RunnerMode::Local, _) => Placement::Local,
        (RunnerMode::Kubernetes, _) | (RunnerMode::Default, ExecutionMode::Kubernetes) => {
            Placement::Kubernetes
        }
        (RunnerMode::Shadow, _) if is_cloud => Placement::Ci,
        (RunnerMode::Shadow, _) => Placement::Shadow,
    };
    let obstacle = match placement {
        Placement::Ci => None,
        Placement::Vm | Placement::Shadow if !available.vm => {
            Some("VM sessions are not configured: set VM_SESSIONS_TOKEN and VM_SESSIONS_APP.")
        }
        Placement::Local if !available.local => {
            Some("Local containers are not configured: no container engine is set up.")
        }
        Placement::Kubernetes if !available.kubernetes => {
            Some("Kubernetes is not configured: set KUBERNETES_NAMESPACE.")
        }
        Placement::Vm if is_cloud => Some(
            "Amazon Bedrock works only on GitHub Actions, not on Fly Machines: its role trusts only CI runs.",
        ),
        Placement::Local if is_cloud => Some(
            "Amazon Bedrock works only on GitHub Actions, not in local containers: its role trusts only CI runs.",
        ),
        Placement::Kubernetes if is_cloud => Some(
            "Amazon Bedrock works only on GitHub Actions, not on Kubernetes: its role trusts only CI runs.",
        ),
        Placement::Local if !available.container_reports => Some(
            "The container engine runs on another machine, so containers cannot reach this service through a socket: set RUNNER_CALLBACK_BASE_URL and RUNNER_TOKEN_SECRET.",
        ),
        Placement::Vm | Placement::Shadow | Placement::Kubernetes if !available.callbacks => Some(
            "Sessions require run callbacks: set RUNNER_CALLBACK_BASE_URL and RUNNER_TOKEN_SECRET.",
        ),
        Placement::Vm | Placement::Local | Placement::Shadow | Placement::Kubernetes => None,
    };
    if let Some(reason) = obstacle {
        return Err(reason.to_owned());
    }
    if matches!(placement, Placement::Vm | Placement::Shadow) {
        let size = MachineSize::from_mapping(mapping).smallest_available();
        size.map_err(|too_large| too_large.to_string())?;
    }
    Ok(placement)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::mapping;

    const ALL: RunnerAvailability = RunnerAvailability {
        vm: true,
        local: true,
        kubernetes: true,
        callbacks: true,
        container_reports: true,
    };

    fn mapping(provider: &str, execution: &str) -> Mapping {
        mapping::example_mapping(&json!({
            "provider": provider, "cloudRegion": "eu-west-1", "executionMode": execution,
        }))
    }

    #[test]
    fn the_mode_overrides_the_mapping() {
        use Placement as P;
        use RunnerMode as M;
        let (ci, vm) = (
            mapping("direct", "ci-workflow"),
            mapping("direct", "vm-machines"),
        );
        let cloud = mapping("cloud", "ci-workflow");
        let kubernetes = mapping("direct", "k8s");
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
            (M::Default, &kubernetes, Some(P::Kubernetes)),
            (M::Kubernetes, &vm, Some(P::Kubernetes)),
            (M::Kubernetes, &cloud, None),
            (M::Ci, &kubernetes, Some(P::Ci)),
        ];
        for (mode, mapping, expected) in rows {
            assert_eq!(
                choose_placement(mode, mapping, ALL).ok(),
                expected,
                "{mode:?}"
            );
        }
    }

    #[test]
    fn names_the_missing_configuration() {
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
                without(|a| a.container_reports = false),
                "RUNNER_CALLBACK_BASE_URL",
            ),
            (
                RunnerMode::Vm,
                without(|a| a.callbacks = false),
                "RUNNER_CALLBACK_BASE_URL",
            ),
            (
                RunnerMode::Kubernetes,
                without(|a| a.kubernetes = false),
                "KUBERNETES_NAMESPACE",
            ),
            (
                RunnerMode::Kubernetes,
                without(|a| a.callbacks = false),
                "RUNNER_CALLBACK_BASE_URL",
            ),
        ];
        for (mode, available, word) in rows {
            let reason = choose_placement(mode, &ci, available).unwrap_err();
            assert!(reason.contains(word), "{mode:?}: {reason}");
        }
        assert_eq!(
            choose_placement(RunnerMode::Ci, &ci, RunnerAvailability::default()),
            Ok(Placement::Ci)
        );
        assert_eq!(
            choose_placement(RunnerMode::Local, &ci, without(|a| a.callbacks = false)),
            Ok(Placement::Local)
        );
    }

    #[test]
    fn an_unavailable_size_only_blocks_machines() {
        let huge = mapping::example_mapping(&json!({"machineCpus": 16}));
        for mode in [RunnerMode::Vm, RunnerMode::Shadow] {
            let reason = choose_placement(mode, &huge, ALL).unwrap_err();
            assert!(reason.contains("16 CPUs and 4096 MB"), "{mode:?}: {reason}");
        }
        for mode in [RunnerMode::Ci, RunnerMode::Local, RunnerMode::Kubernetes] {
            assert!(choose_placement(mode, &huge, ALL).is_ok(), "{mode:?}");
        }
        let odd = mapping::example_mapping(&json!({"machineCpus": 3}));
        assert_eq!(
            choose_placement(RunnerMode::Vm, &odd, ALL),
            Ok(Placement::Vm)
        );
    }

    #[test]
    fn parses_vendor_names_of_modes() {
        let rows = [
            ("gha", "ci"),
            ("fly", "vm"),
            ("shadow", "shadow"),
            ("k8s", "kubernetes"),
        ];
        for (text, mode) in rows {
            assert_eq!(RunnerMode::parse(text).map(RunnerMode::as_str), Some(mode));
        }
        for text in ["", "CI", "docker", "default "] {
            assert_eq!(RunnerMode::parse(text), None);
        }
    }
}
