//! Crash points: places where tests kill the process, to prove that it loses nothing.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Declares the crash points with their names and the list of all.
macro_rules! crash_points {
    ($($(#[doc = $doc:literal])+ $point:ident = $name:literal,)+) => {
        /// Place between two steps where a crash must not lose or repeat anything.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum CrashPoint {
            $($(#[doc = $doc])+ $point,)+
        }

        impl CrashPoint {
            /// All crash points.
            pub const ALL: &'static [CrashPoint] = &[$(CrashPoint::$point,)+];

            /// Name on the command line.
            pub fn name(self) -> &'static str {
                match self {
                    $(CrashPoint::$point => $name,)+
                }
            }
        }
    };
}

crash_points! {
    /// A run is reserved, and no vendor call was made for it.
    Reserved = "reserved",
    /// The start of a run is claimed but not sent.
    StartClaimed = "start-claimed",
    /// The host has accepted a run, but that is not recorded.
    Started = "started",
    /// The run is recorded.
    Adopted = "adopted",
    /// The result of a run is received but not stored.
    ResultReceived = "result-received",
    /// The result of a run is stored, but the request has no response yet.
    ResultStored = "result-stored",
    /// A step of a run is stored, but the request has no response yet.
    ProgressStored = "progress-stored",
    /// An outbox entry is claimed, but its effect is not performed.
    EntryClaimed = "entry-claimed",
    /// The effect of an outbox entry is performed, but that is not recorded.
    EntryPerformed = "entry-performed",
    /// An outbox entry is recorded as completed.
    EntryCompleted = "entry-completed",
    /// The cancellation of a run is claimed but not requested.
    StopClaimed = "stop-claimed",
    /// The host has cancelled a run, but that is not recorded.
    Stopped = "stopped",
    /// A run is recorded as cancelled at its host.
    StopRecorded = "stop-settled",
    /// A cancellation by an operator is stored, and no vendor call was made for it.
    CancelStored = "cancel-stored",
    /// A retry by an operator is stored, and no vendor call was made for it.
    RetryStored = "retry-stored",
    /// An answer to a question is stored, and no vendor call was made for it.
    AnswerStored = "answer-stored",
    /// An approval, a rejection or a request for another plan is stored, and no vendor call was made for it.
    ApprovalStored = "approval-stored",
    /// A command in a comment is carried out, and no vendor call was made for it.
    CommandStored = "command-stored",
    /// The destruction of a machine is claimed but not requested.
    DestroyClaimed = "destroy-claimed",
    /// A machine is destroyed, but that is not recorded.
    Destroyed = "destroyed",
    /// A machine is recorded as destroyed.
    DestroyRecorded = "destroy-settled",
    /// An event of the repository host is authenticated but not stored.
    HostEventReceived = "host-event-received",
    /// An event of the repository host is stored, but the request has no response yet.
    HostEventStored = "host-event-stored",
    /// An event about the checks of a commit is authenticated but not stored.
    CheckEventReceived = "check-event-received",
    /// An event about the checks of a commit is stored, but the request has no response yet.
    CheckEventStored = "check-event-stored",
    /// A step about an open pull request is stored: a rerun, an update of its branch, a run or a merge. No vendor call
    /// was made for it.
    LandingStepStored = "landing-step-stored",
    /// The host runs failed jobs again, but that is not recorded.
    RerunPerformed = "rerun-performed",
    /// The host has updated a branch from its base, but that is not recorded.
    BranchUpdatePerformed = "branch-update-performed",
    /// The host has merged a pull request, but that is not recorded.
    MergePerformed = "merge-performed",
    /// The answer of the host to a merge is recorded.
    MergeRecorded = "merge-recorded",
    /// A take-over, or its end, is stored, and no vendor call was made for it.
    TakeOverStored = "take-over-stored",
    /// An event of a ticketing system is authenticated but not stored.
    TicketEventReceived = "ticket-event-received",
    /// An event of a ticketing system is stored, but the request has no response yet.
    TicketEventStored = "ticket-event-stored",
    /// A change by an operator is stored, but the request has no response yet.
    AdminChangeStored = "admin-stored",
    /// A part of a backup is sent.
    BackupHalfSent = "backup-half-sent",
    /// The closures of a group have run, but the commit has not started.
    CommitBegun = "commit-begun",
    /// The commit of a group is durable, but no caller has its result.
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
            format!("unknown crash point; use one of {}", known.join(", "))
        })
    }
}

/// Trigger of a crash: `POINT`, or `POINT:K` for the K-th time that the point is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CrashTrigger {
    /// Crash point.
    pub point: CrashPoint,
    /// Occurrence that triggers the crash, from 1.
    pub occurrence: u64,
}

impl FromStr for CrashTrigger {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, occurrence) = match text.split_once(':') {
            Some((name, occurrence)) => (name, occurrence.parse().unwrap_or(0)),
            None => (text, 1),
        };
        if occurrence == 0 {
            return Err("the occurrence after the colon must be a whole number from 1".to_owned());
        }
        Ok(Self {
            point: name.parse()?,
            occurrence,
        })
    }
}

/// Planned crash of this process, for tests. Empty in a real service, where passing a crash point costs one
/// comparison.
#[derive(Debug, Clone, Default)]
pub struct CrashPlan(Option<Arc<Planned>>);

#[derive(Debug)]
struct Planned {
    point: CrashPoint,
    /// Number of passes until the crash.
    remaining: AtomicU64,
}

impl CrashPlan {
    /// Plans a crash, or none.
    pub fn new(trigger: Option<CrashTrigger>) -> Self {
        Self(trigger.map(|trigger| {
            Arc::new(Planned {
                point: trigger.point,
                remaining: AtomicU64::new(trigger.occurrence),
            })
        }))
    }

    /// Kills the process as `kill -9` does, if the plan requires it.
    pub fn crash_if_planned(&self, point: CrashPoint) {
        if let Some(planned) = &self.0
            && planned.point == point
            && planned.remaining.fetch_sub(1, Ordering::Relaxed) == 1
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
    fn parses_crash_triggers() {
        for point in CrashPoint::ALL {
            let trigger = |occurrence| {
                Ok(CrashTrigger {
                    point: *point,
                    occurrence,
                })
            };
            assert_eq!(point.name().parse(), trigger(1));
            assert_eq!(format!("{point}:1").parse(), trigger(1));
            assert_eq!(format!("{point}:17").parse(), trigger(17));
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
