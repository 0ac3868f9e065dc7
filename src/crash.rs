//! Places at which a process can be told to die, to prove that it loses nothing there.

use std::fmt;

/// A place between two steps that a crash must not separate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CrashPoint {
    /// A run is reserved and nobody outside knows of it.
    Reserved,
    /// The start of a run is claimed and not yet sent.
    StartClaimed,
    /// The host has taken a run and we have not noted it.
    Started,
    /// The run is noted.
    Adopted,
    /// A run's result has arrived and is not stored.
    ResultReceived,
    /// A run's result is stored and not yet answered.
    ResultStored,
    /// An errand is claimed and not yet done.
    ErrandClaimed,
    /// An errand is done outside and we have not noted it.
    ErrandDone,
    /// An errand is noted as done.
    ErrandSettled,
}

impl CrashPoint {
    pub const ALL: [CrashPoint; 9] = [
        CrashPoint::Reserved,
        CrashPoint::StartClaimed,
        CrashPoint::Started,
        CrashPoint::Adopted,
        CrashPoint::ResultReceived,
        CrashPoint::ResultStored,
        CrashPoint::ErrandClaimed,
        CrashPoint::ErrandDone,
        CrashPoint::ErrandSettled,
    ];

    pub fn name(self) -> &'static str {
        match self {
            CrashPoint::Reserved => "reserved",
            CrashPoint::StartClaimed => "start-claimed",
            CrashPoint::Started => "started",
            CrashPoint::Adopted => "adopted",
            CrashPoint::ResultReceived => "result-received",
            CrashPoint::ResultStored => "result-stored",
            CrashPoint::ErrandClaimed => "errand-claimed",
            CrashPoint::ErrandDone => "errand-done",
            CrashPoint::ErrandSettled => "errand-settled",
        }
    }
}

impl fmt::Display for CrashPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for CrashPoint {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|point| point.name() == name)
            .ok_or_else(|| {
                let known = Self::ALL.map(Self::name).join(", ");
                format!("no such crash point; known are {known}")
            })
    }
}

/// Which place, if any, this process dies at.
#[derive(Debug, Clone, Copy, Default)]
pub struct CrashPlan(Option<CrashPoint>);

impl CrashPlan {
    pub fn at(point: Option<CrashPoint>) -> Self {
        Self(point)
    }

    /// Ends the process as `kill -9` would, when it was told to die here.
    pub fn reach(self, point: CrashPoint) {
        if self.0 == Some(point) {
            let _ = rustix::process::kill_process(
                rustix::process::getpid(),
                rustix::process::Signal::KILL,
            );
        }
    }
}
