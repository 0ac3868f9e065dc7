//! Vendors, by the names that people know.

use std::fmt;

use super::issue::System;
use super::job::RunnerKind;
use super::machine::HostKind;

/// System outside of the service that runs depend on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Vendor {
    /// Linear.
    Linear,
    /// Jira.
    Jira,
    /// GitHub.
    GitHub,
    /// Fly Machines.
    FlyMachines,
    /// Local container engine.
    ContainerEngine,
    /// Kubernetes cluster.
    Kubernetes,
    /// Chat webhook.
    Chat,
}

impl Vendor {
    /// Returns the name that people know.
    pub fn name(self) -> &'static str {
        match self {
            Vendor::Linear => "Linear",
            Vendor::Jira => "Jira",
            Vendor::GitHub => "GitHub",
            Vendor::FlyMachines => "Fly Machines",
            Vendor::ContainerEngine => "Container engine",
            Vendor::Kubernetes => "Kubernetes",
            Vendor::Chat => "Chat",
        }
    }

    /// Returns the name in ids and metrics.
    pub fn slug(self) -> &'static str {
        match self {
            Vendor::Linear => "linear",
            Vendor::Jira => "jira",
            Vendor::GitHub => "github",
            Vendor::FlyMachines => "fly-machines",
            Vendor::ContainerEngine => "container-engine",
            Vendor::Kubernetes => "kubernetes",
            Vendor::Chat => "chat",
        }
    }
}

impl fmt::Display for Vendor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl From<System> for Vendor {
    fn from(system: System) -> Self {
        match system {
            System::Linear => Vendor::Linear,
            System::Jira => Vendor::Jira,
            System::GitHub => Vendor::GitHub,
        }
    }
}

impl From<HostKind> for Vendor {
    fn from(host: HostKind) -> Self {
        match host {
            HostKind::Vm => Vendor::FlyMachines,
            HostKind::Local => Vendor::ContainerEngine,
            HostKind::Kubernetes => Vendor::Kubernetes,
        }
    }
}

impl From<RunnerKind> for Vendor {
    /// Vendor that executes the runs.
    fn from(runner: RunnerKind) -> Self {
        runner.host().map_or(Vendor::GitHub, Vendor::from)
    }
}
