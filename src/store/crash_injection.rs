//! Places at which a process can be told to die, to prove that it loses nothing there.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Names each place once: for its value, its word and the list of all.
macro_rules! crash_points {
    ($($(#[doc = $doc:literal])+ $point:ident = $name:literal,)+) => {
        /// A place between two steps that a crash must not separate.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum CrashPoint {
            $($(#[doc = $doc])+ $point,)+
        }

        impl CrashPoint {
            pub const ALL: &'static [CrashPoint] = &[$(CrashPoint::$point,)+];

            /// Its word on the command line.
            pub fn name(self) -> &'static str {
                match self {
                    $(CrashPoint::$point => $name,)+
                }
            }
        }
    };
}

crash_points! {
    /// A run is reserved and nobody outside knows of it.
    Reserved = "reserved",
    /// The start of a run is claimed and not yet sent.
    StartClaimed = "start-claimed",
    /// The host has taken a run and we have not noted it.
    Started = "started",
    /// The run is noted.
    Adopted = "adopted",
    /// A run's result has arrived and is not stored.
    ResultReceived = "result-received",
    /// A run's result is stored and not yet answered.
    ResultStored = "result-stored",
    /// A run's step is stored and not yet answered.
    ProgressStored = "progress-stored",
    /// An errand is claimed and not yet done.
    EntryClaimed = "errand-claimed",
    /// An errand is done outside and we have not noted it.
    EntryPerformed = "errand-done",
    /// An errand is noted as done.
    EntryCompleted = "errand-settled",
    /// The end of a machine is claimed and not yet asked for.
    DestroyClaimed = "destroy-claimed",
    /// A machine is gone and we have not noted it.
    Destroyed = "destroyed",
    /// A machine is noted as gone.
    DestroyRecorded = "destroy-settled",
    /// An event of the repository host is believed and not stored.
    HostEventReceived = "host-event-received",
    /// An event of the repository host is stored and not yet answered.
    HostEventStored = "host-event-stored",
    /// An event of a ticketing system is believed and not stored.
    TicketEventReceived = "ticket-event-received",
    /// An event of a ticketing system is stored and not yet answered.
    TicketEventStored = "ticket-event-stored",
    /// What an operator changed is stored and not yet answered.
    AdminChangeStored = "admin-stored",
    /// A part of a backup is handed over, and its end is not.
    BackupHalfSent = "backup-half-sent",
    /// The writes of a group are done, and the disk has none of them.
    CommitBegun = "commit-begun",
    /// The disk has the writes of a group, and nobody has been told.
    CommitDone = "commit-done",
}

impl fmt::Display for CrashPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for CrashPoint {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let named = Self::ALL.iter().find(|point| point.name() == name);
        named.copied().ok_or_else(|| {
            let known: Vec<&str> = Self::ALL.iter().map(|point| point.name()).collect();
            format!("no such crash point; known are {}", known.join(", "))
        })
    }
}

/// A visit of a place: `POINT`, or `POINT:K` for the K-th time it is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CrashTrigger {
    pub point: CrashPoint,
    /// From 1.
    pub occurrence: u64,
}

impl FromStr for CrashTrigger {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, times) = match text.split_once(':') {
            Some((name, times)) => (name, times.parse().unwrap_or(0)),
            None => (text, 1),
        };
        if times == 0 {
            return Err("how often it is reached is a whole number from 1".to_owned());
        }
        Ok(Self {
            point: name.parse()?,
            occurrence: times,
        })
    }
}

/// Which visit, if any, this process does not survive. None in a service that nobody tries to kill;
/// passing a place costs it one comparison.
#[derive(Debug, Clone, Default)]
pub struct CrashPlan(Option<Arc<Planned>>);

#[derive(Debug)]
struct Planned {
    point: CrashPoint,
    left: AtomicU64,
}

impl CrashPlan {
    pub fn new(visit: Option<CrashTrigger>) -> Self {
        Self(visit.map(|visit| {
            Arc::new(Planned {
                point: visit.point,
                left: AtomicU64::new(visit.occurrence),
            })
        }))
    }

    /// Ends the process as `kill -9` would, when it was told to die here.
    pub fn crash_if_planned(&self, point: CrashPoint) {
        if let Some(planned) = &self.0
            && planned.point == point
            && planned.left.fetch_sub(1, Ordering::Relaxed) == 1
        {
            let _ = rustix::process::kill_process(
                rustix::process::getpid(),
                rustix::process::Signal::KILL,
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_visit_is_a_place_and_how_often_it_is_reached() {
        for point in CrashPoint::ALL {
            let visit = |times| {
                Ok(CrashTrigger {
                    point: *point,
                    occurrence: times,
                })
            };
            assert_eq!(point.name().parse(), visit(1));
            assert_eq!(format!("{point}:1").parse(), visit(1));
            assert_eq!(format!("{point}:17").parse(), visit(17));
        }
        for wrong in [
            "",
            "nowhere",
            "reserved:",
            "reserved:0",
            "reserved:-1",
            ":1",
            "reserved:x",
        ] {
            assert!(wrong.parse::<CrashTrigger>().is_err(), "{wrong}");
        }
    }
}
