//! Containers as the engine returns them.

use serde::Deserialize;

use domain::machine::{
    EnvVarMap, HostKind, Machine, MachineExit, MachineLabels, MachinePhase, MachineState,
};
use domain::time::Timestamp;

/// Container in the engine's list.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct ContainerSummary {
    id: String,
    #[serde(default)]
    names: Vec<String>,
    #[serde(default)]
    state: String,
    #[serde(default)]
    created: u64,
    #[serde(default)]
    labels: Option<EnvVarMap>,
}

impl ContainerSummary {
    pub(super) fn into_own_machine(self, instance: &str) -> Option<Machine> {
        let labels = MachineLabels::read(self.labels.as_ref()?, instance)?;
        let name = self.names.first().map(String::as_str).unwrap_or_default();
        Some(Machine {
            host: HostKind::Local,
            name: name.trim_start_matches('/').to_owned(),
            state: state(&self.state),
            exit: None,
            problem: None,
            region: None,
            log_url: None,
            created_at: Timestamp::from_millis(self.created.saturating_mul(1_000)),
            id: self.id,
            labels,
        })
    }
}

/// Container as returned by inspect.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct ContainerDetails {
    id: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    created: String,
    state: ContainerState,
    config: ContainerConfig,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ContainerState {
    #[serde(default)]
    status: String,
    #[serde(default)]
    exit_code: i32,
    #[serde(default, rename = "OOMKilled")]
    oom_killed: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ContainerConfig {
    #[serde(default)]
    labels: Option<EnvVarMap>,
}

impl ContainerDetails {
    pub(super) fn into_own_machine(self, instance: &str) -> Option<Machine> {
        let labels = MachineLabels::read(self.config.labels.as_ref()?, instance)?;
        let state = state(&self.state.status);
        let is_stopped = state.phase() == MachinePhase::Stopped;
        let exit = is_stopped.then_some(MachineExit {
            code: Some(self.state.exit_code),
            out_of_memory: self.state.oom_killed,
        });
        Some(Machine {
            host: HostKind::Local,
            name: self.name.trim_start_matches('/').to_owned(),
            state,
            exit,
            problem: None,
            region: None,
            log_url: None,
            created_at: Timestamp::parse(&self.created).unwrap_or_default(),
            id: self.id,
            labels,
        })
    }
}

/// Maps the engine's container state to the machine state that all session hosts share.
fn state(engine_state: &str) -> MachineState {
    MachineState::new(match engine_state {
        "running" | "paused" | "restarting" => "started",
        "exited" | "dead" => "stopped",
        "removing" => "destroying",
        other => other,
    })
}
