//! Hosts on which runs execute.
//!
//! [`ci`] dispatches workflows of the repository host. [`SessionHosts`] creates machines: virtual
//! machines of Fly, containers of a Docker engine, or Jobs of a Kubernetes cluster.

pub mod ci;
mod docker;
mod fly_machines;
mod kubernetes;

use futures_util::future::join_all;

use crate::http::{Availability, VendorError};
use domain::ids::JobId;
use domain::machine::{EnvVarMap, HostKind, Machine, MachineRef, MachineSpec};

pub use docker::container_log_tail;
pub use docker::{Docker, ImageBuild, ImageBuildError};
pub use fly_machines::FlyMachines;
pub use kubernetes::{ClusterReport, JobSettings, Kubernetes};

/// Command of every session. It replaces the command of the image.
const SESSION_COMMAND: [&str; 2] = ["agent-implement", "run"];

/// Host of session machines.
#[derive(Clone)]
pub enum SessionHost {
    /// Virtual machines of Fly.
    Vm(FlyMachines),
    /// Containers of a local engine.
    Local(Docker),
    /// Jobs of a Kubernetes cluster.
    Kubernetes(Kubernetes),
}

impl SessionHost {
    /// Returns the kind of this host.
    pub fn kind(&self) -> HostKind {
        match self {
            SessionHost::Vm(_) => HostKind::Vm,
            SessionHost::Local(_) => HostKind::Local,
            SessionHost::Kubernetes(_) => HostKind::Kubernetes,
        }
    }
}

/// Configured session hosts, limited to the machines of this instance. Cheap to clone.
#[derive(Clone, Default)]
pub struct SessionHosts {
    hosts: Vec<SessionHost>,
    /// Instance id in the labels of every machine. Machines with another id are ignored.
    instance: String,
}

/// Outcome of a request to start a machine.
#[derive(Debug)]
pub enum MachineStartOutcome {
    /// The machine was created, or existed already.
    Started(Box<Machine>),
    /// The host has no capacity at the moment. Holds its message.
    NoCapacity(String),
    /// The host rejects the machine permanently.
    Refused {
        /// HTTP status of the response, if a request was sent.
        status: Option<u16>,
        /// Error message of the host.
        reason: String,
    },
}

/// Error of a call to a session host.
#[derive(Debug, thiserror::Error)]
pub enum SessionHostError {
    /// No host of this kind is configured.
    #[error("{}", not_configured(*.0))]
    NotConfigured(HostKind),
    /// The call to the host failed.
    #[error(transparent)]
    Vendor(#[from] VendorError),
}

impl SessionHostError {
    /// Returns whether no response came from the host.
    pub fn is_unanswered(&self) -> bool {
        matches!(self, SessionHostError::Vendor(error) if error.is_unanswered())
    }
}

fn not_configured(host: HostKind) -> &'static str {
    match host {
        HostKind::Vm => "VM sessions are not configured",
        HostKind::Local => "local containers are not configured",
        HostKind::Kubernetes => "Kubernetes is not configured",
    }
}

impl SessionHosts {
    /// Creates the set of session hosts. `instance` identifies this service on its machines.
    pub fn new(hosts: Vec<SessionHost>, instance: String) -> Self {
        Self { hosts, instance }
    }

    /// Returns whether a host of this kind is configured.
    pub fn has_host(&self, host: HostKind) -> bool {
        self.hosts().any(|known| known == host)
    }

    /// Returns the kinds of the configured hosts.
    pub fn hosts(&self) -> impl Iterator<Item = HostKind> {
        self.hosts.iter().map(SessionHost::kind)
    }

    /// Returns what keeps each host from answering at the moment.
    pub fn availability(&self) -> impl Iterator<Item = (HostKind, Availability)> {
        self.hosts.iter().map(|host| {
            let availability = match host {
                SessionHost::Vm(vm) => vm.availability(),
                SessionHost::Local(docker) => docker.availability(),
                SessionHost::Kubernetes(cluster) => cluster.availability(),
            };
            (host.kind(), availability)
        })
    }

    /// Returns the instance id in the labels of every machine.
    pub fn instance(&self) -> &str {
        &self.instance
    }

    fn find_host(&self, host: HostKind) -> Result<&SessionHost, SessionHostError> {
        let found = self.hosts.iter().find(|known| known.kind() == host);
        found.ok_or(SessionHostError::NotConfigured(host))
    }

    /// Creates and starts a machine. Adopts an existing machine of this instance with the same name.
    ///
    /// # Errors
    /// After an ambiguous error the machine may exist: call [`SessionHosts::find`] before starting again.
    pub async fn start(
        &self,
        host: HostKind,
        spec: &MachineSpec,
    ) -> Result<MachineStartOutcome, SessionHostError> {
        Ok(match self.find_host(host)? {
            SessionHost::Vm(vm) => vm.start(spec, &self.instance).await?,
            SessionHost::Local(docker) => docker.start(spec, &self.instance).await?,
            SessionHost::Kubernetes(cluster) => cluster.start(spec, &self.instance).await?,
        })
    }

    /// Finds the machine of a job by its labels.
    ///
    /// # Errors
    /// Fails if the machines cannot be listed.
    pub async fn find(
        &self,
        host: HostKind,
        job: &JobId,
    ) -> Result<Option<Machine>, SessionHostError> {
        let machines = self.list(host).await?;
        Ok(machines
            .into_iter()
            .find(|machine| machine.labels.job == *job))
    }

    /// Lists the machines of this instance on a host.
    ///
    /// # Errors
    /// Fails if the host is not configured, rejects the request or does not respond.
    pub async fn list(&self, host: HostKind) -> Result<Vec<Machine>, SessionHostError> {
        Ok(match self.find_host(host)? {
            SessionHost::Vm(vm) => vm.list(&self.instance).await?,
            SessionHost::Local(docker) => docker.list(&self.instance).await?,
            SessionHost::Kubernetes(cluster) => cluster.list(&self.instance).await?,
        })
    }

    /// Lists the machines of this instance on every host, with one result per host.
    pub async fn list_all(&self) -> Vec<(HostKind, Result<Vec<Machine>, SessionHostError>)> {
        let lists = self.hosts().map(async |host| (host, self.list(host).await));
        join_all(lists).await
    }

    /// Returns the labels of an image of the container engine. `None` if the engine does not have it.
    ///
    /// # Errors
    /// Fails if no engine is configured, or if the engine rejects the request or does not respond.
    pub async fn image_labels(&self, image: &str) -> Result<Option<EnvVarMap>, SessionHostError> {
        match self.find_host(HostKind::Local)? {
            SessionHost::Local(docker) => Ok(docker.image_labels(image).await?),
            SessionHost::Vm(_) | SessionHost::Kubernetes(_) => {
                Err(SessionHostError::NotConfigured(HostKind::Local))
            }
        }
    }

    /// Returns what the Kubernetes cluster allows, and how it protects itself from runs.
    ///
    /// # Errors
    /// Fails if no cluster is configured, or if it rejects the request or does not respond.
    pub async fn cluster_report(&self) -> Result<ClusterReport, SessionHostError> {
        match self.find_host(HostKind::Kubernetes)? {
            SessionHost::Kubernetes(cluster) => Ok(cluster.report().await?),
            SessionHost::Vm(_) | SessionHost::Local(_) => {
                Err(SessionHostError::NotConfigured(HostKind::Kubernetes))
            }
        }
    }

    /// Returns one machine with all its details. `None` if it does not exist or belongs to another instance.
    ///
    /// # Errors
    /// Fails if the host is not configured, rejects the request or does not respond.
    pub async fn inspect(&self, machine: &MachineRef) -> Result<Option<Machine>, SessionHostError> {
        Ok(match self.find_host(machine.host)? {
            SessionHost::Vm(vm) => vm.inspect(&machine.id, &self.instance).await?,
            SessionHost::Local(docker) => docker.inspect(&machine.id, &self.instance).await?,
            SessionHost::Kubernetes(cluster) => {
                cluster.inspect(&machine.id, &self.instance).await?
            }
        })
    }

    /// Stops a machine: SIGTERM, then SIGKILL after 10 seconds. Succeeds if the machine has stopped already
    /// or does not exist.
    ///
    /// # Errors
    /// Fails if the host is not configured, rejects the request or does not respond.
    pub async fn stop(&self, machine: &MachineRef) -> Result<(), SessionHostError> {
        match self.find_host(machine.host)? {
            SessionHost::Vm(vm) => vm.stop(&machine.id).await?,
            SessionHost::Local(docker) => docker.stop(&machine.id).await?,
            SessionHost::Kubernetes(cluster) => cluster.stop(&machine.id, &self.instance).await?,
        }
        Ok(())
    }

    /// Destroys a machine in any state. Succeeds if it does not exist.
    ///
    /// # Errors
    /// Fails if the host is not configured, rejects the request or does not respond.
    pub async fn destroy(&self, machine: &MachineRef) -> Result<(), SessionHostError> {
        match self.find_host(machine.host)? {
            SessionHost::Vm(vm) => vm.destroy(&machine.id).await?,
            SessionHost::Local(docker) => docker.destroy(&machine.id).await?,
            SessionHost::Kubernetes(cluster) => {
                cluster.destroy(&machine.id, &self.instance).await?;
            }
        }
        Ok(())
    }

    /// Returns the redacted log tail of a machine. `None` if the machine or its log does not exist.
    ///
    /// # Errors
    /// Fails if the host is not configured, rejects the request or does not respond.
    pub async fn log_tail(&self, machine: &MachineRef) -> Result<Option<String>, SessionHostError> {
        Ok(match self.find_host(machine.host)? {
            SessionHost::Vm(vm) => vm.log_tail(&machine.id).await?,
            SessionHost::Local(docker) => docker.log_tail(&machine.id).await?,
            SessionHost::Kubernetes(cluster) => {
                cluster.log_tail(&machine.id, &self.instance).await?
            }
        })
    }
}
