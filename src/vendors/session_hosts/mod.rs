//! FLOOR 4: the places a run can run in.
//!
//! [`ci`] starts workflows of the repository host. [`Sessions`] makes machines: of a provider of
//! virtual machines, or containers of a Docker engine.

pub mod ci;
mod docker;
mod fly_machines;
mod log_tail;

use futures_util::future::join_all;

use crate::http::VendorError;
use domain::ids::JobId;
use domain::machine::{EnvVarMap, HostKind, Machine, MachineRef, MachineSpec};

pub use docker::Docker;
pub use docker::container_log_tail;
pub use fly_machines::FlyMachines;

/// What a session runs, whatever its image starts by itself.
const SESSION_COMMAND: [&str; 2] = ["agent-implement", "run"];

/// A place where machines stand.
#[derive(Clone)]
pub enum SessionHost {
    Vm(FlyMachines),
    Local(Docker),
}

impl SessionHost {
    pub fn kind(&self) -> HostKind {
        match self {
            SessionHost::Vm(_) => HostKind::Vm,
            SessionHost::Local(_) => HostKind::Local,
        }
    }
}

/// The hosts that are configured, and the machines of ours there. Cheap to clone.
#[derive(Clone, Default)]
pub struct SessionHosts {
    hosts: Vec<SessionHost>,
    /// Stamped on every machine; machines without it are not seen.
    instance: String,
}

/// What came of a wish for a machine.
#[derive(Debug)]
pub enum MachineStartOutcome {
    /// It was made, or was there already.
    Started(Box<Machine>),
    /// The host has no room at the moment; what it said.
    NoCapacity(String),
    /// The host will not make such a machine; what it said, and with which HTTP status.
    Refused { status: Option<u16>, reason: String },
}

/// Why a machine could not be reached.
#[derive(Debug, thiserror::Error)]
pub enum SessionHostError {
    #[error("{}", not_configured(*.0))]
    NotConfigured(HostKind),
    #[error(transparent)]
    Vendor(#[from] VendorError),
}

impl SessionHostError {
    /// Returns whether the host gave no answer at all.
    pub fn is_unanswered(&self) -> bool {
        matches!(self, SessionHostError::Vendor(error) if error.is_unanswered())
    }
}

fn not_configured(host: HostKind) -> &'static str {
    match host {
        HostKind::Vm => "VM sessions are not configured",
        HostKind::Local => "local containers are not configured",
    }
}

impl SessionHosts {
    pub fn new(hosts: Vec<SessionHost>, instance: String) -> Self {
        Self { hosts, instance }
    }

    /// Whether machines of this kind can be had.
    pub fn has_host(&self, host: HostKind) -> bool {
        self.hosts().any(|known| known == host)
    }

    pub fn hosts(&self) -> impl Iterator<Item = HostKind> {
        self.hosts.iter().map(SessionHost::kind)
    }

    /// The stamp of ours.
    pub fn instance(&self) -> &str {
        &self.instance
    }

    fn at(&self, host: HostKind) -> Result<&SessionHost, SessionHostError> {
        let found = self.hosts.iter().find(|known| known.kind() == host);
        found.ok_or(SessionHostError::NotConfigured(host))
    }

    /// Makes a machine and lets it start. One of the same name that is ours is adopted.
    ///
    /// # Errors
    /// An ambiguous one may have made the machine: look with [`Sessions::find`] before asking again.
    pub async fn start(
        &self,
        host: HostKind,
        spec: &MachineSpec,
    ) -> Result<MachineStartOutcome, SessionHostError> {
        Ok(match self.at(host)? {
            SessionHost::Vm(vm) => vm.start(spec, &self.instance).await?,
            SessionHost::Local(docker) => docker.start(spec, &self.instance).await?,
        })
    }

    /// The machine that was made for a dispatch, by its stamp.
    ///
    /// # Errors
    /// What the host's list failed with.
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

    /// Our machines at a host; those of others are left out.
    ///
    /// # Errors
    /// What the host answered.
    pub async fn list(&self, host: HostKind) -> Result<Vec<Machine>, SessionHostError> {
        Ok(match self.at(host)? {
            SessionHost::Vm(vm) => vm.list(&self.instance).await?,
            SessionHost::Local(docker) => docker.list(&self.instance).await?,
        })
    }

    /// Our machines at every host, or what a host answered instead.
    pub async fn list_all(&self) -> Vec<(HostKind, Result<Vec<Machine>, SessionHostError>)> {
        let looks = self.hosts().map(async |host| (host, self.list(host).await));
        join_all(looks).await
    }

    /// The labels of an image of the container engine; none when it is not there.
    ///
    /// # Errors
    /// What the engine answered, or that there is none.
    pub async fn image_labels(&self, image: &str) -> Result<Option<EnvVarMap>, SessionHostError> {
        match self.at(HostKind::Local)? {
            SessionHost::Local(docker) => Ok(docker.image_labels(image).await?),
            SessionHost::Vm(_) => Err(SessionHostError::NotConfigured(HostKind::Local)),
        }
    }

    /// One machine with everything the host knows of it; none when it is gone, or not ours.
    ///
    /// # Errors
    /// What the host answered.
    pub async fn inspect(&self, machine: &MachineRef) -> Result<Option<Machine>, SessionHostError> {
        Ok(match self.at(machine.host)? {
            SessionHost::Vm(vm) => vm.inspect(&machine.id, &self.instance).await?,
            SessionHost::Local(docker) => docker.inspect(&machine.id, &self.instance).await?,
        })
    }

    /// Asks the machine's program to end, and ends it soon after. One that has ended, or is gone, is
    /// fine.
    ///
    /// # Errors
    /// What the host answered.
    pub async fn stop(&self, machine: &MachineRef) -> Result<(), SessionHostError> {
        match self.at(machine.host)? {
            SessionHost::Vm(vm) => vm.stop(&machine.id).await?,
            SessionHost::Local(docker) => docker.stop(&machine.id).await?,
        }
        Ok(())
    }

    /// Takes the machine down, whatever it is doing. One that is gone is fine.
    ///
    /// # Errors
    /// What the host answered.
    pub async fn destroy(&self, machine: &MachineRef) -> Result<(), SessionHostError> {
        match self.at(machine.host)? {
            SessionHost::Vm(vm) => vm.destroy(&machine.id).await?,
            SessionHost::Local(docker) => docker.destroy(&machine.id).await?,
        }
        Ok(())
    }

    /// The end of what the machine's program wrote, redacted; none when the machine or its log is
    /// gone.
    ///
    /// # Errors
    /// What the host answered.
    pub async fn log_tail(&self, machine: &MachineRef) -> Result<Option<String>, SessionHostError> {
        Ok(match self.at(machine.host)? {
            SessionHost::Vm(vm) => vm.log_tail(&machine.id).await?,
            SessionHost::Local(docker) => docker.log_tail(&machine.id).await?,
        })
    }
}
