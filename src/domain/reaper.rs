//! Rules for destroying leftover machines. See docs/behaviour.md#reaper.
//!
//! Only machines with the labels of this instance are checked. The first matching rule applies.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::job::Job;
use super::machine::{Machine, MachinePhase};
use super::time::Timestamp;

/// Minimum age of a machine without a job. A younger machine may not be recorded yet.
const ORPHAN_AGE: Duration = Duration::from_secs(5 * 60);

/// Time after the end of its job until a machine counts as stale. Before that, the outbox may still
/// destroy it.
const STALE_AGE: Duration = Duration::from_secs(10 * 60);

/// Maximum age of a machine. Not configurable. See docs/behaviour.md#limits.
const MAX_AGE: Duration = Duration::from_secs(4 * 60 * 60);

/// Rule by which a machine is destroyed.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum ReaperRule {
    /// No job has this machine.
    Orphan,
    /// Its job ended at least 10 minutes ago.
    StaleTerminalJob,
    /// The machine is at least 4 hours old.
    MaxAgeExceeded,
    /// Its issue is closed or deleted.
    IssueTerminal,
}

impl ReaperRule {
    /// All rules, in the order of the API.
    pub const ALL: [ReaperRule; 4] = [
        ReaperRule::Orphan,
        ReaperRule::StaleTerminalJob,
        ReaperRule::MaxAgeExceeded,
        ReaperRule::IssueTerminal,
    ];

    /// Returns the name in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            ReaperRule::Orphan => "orphan",
            ReaperRule::StaleTerminalJob => "stale-terminal-job",
            ReaperRule::MaxAgeExceeded => "max-age-exceeded",
            ReaperRule::IssueTerminal => "issue-terminal",
        }
    }

    /// Returns the text for people, as in the panel.
    pub fn label(self) -> &'static str {
        match self {
            ReaperRule::Orphan => "Orphaned",
            ReaperRule::StaleTerminalJob => "Run ended long ago",
            ReaperRule::MaxAgeExceeded => "Older than 4 hours",
            ReaperRule::IssueTerminal => "Issue closed",
        }
    }
}

/// Status of the issue of a machine's job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IssueStatus {
    /// Open.
    Open,
    /// Closed or deleted.
    Closed,
}

/// Returns the rule by which a machine is to be destroyed, if any. A machine that is being
/// destroyed matches none.
pub fn matching_rule(
    machine: &Machine,
    job: Option<&Job>,
    issue: IssueStatus,
    now: Timestamp,
) -> Option<ReaperRule> {
    let age = now.since(machine.created_at);
    if machine.state.phase() == MachinePhase::Destroying {
        return None;
    }
    let is_stale = |job: &Job| {
        let ended = job.finished_at.filter(|_| !job.is_active());
        ended.is_some_and(|ended| now.since(ended) >= STALE_AGE)
    };
    match job {
        None if age >= ORPHAN_AGE => Some(ReaperRule::Orphan),
        Some(job) if is_stale(job) => Some(ReaperRule::StaleTerminalJob),
        _ if age >= MAX_AGE => Some(ReaperRule::MaxAgeExceeded),
        Some(_) if issue == IssueStatus::Closed => Some(ReaperRule::IssueTerminal),
        _ => None,
    }
}

/// Outcome of a reaper action.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum ReapOutcome {
    /// Only recorded, because the reaper runs in dry-run mode.
    DryRun,
    /// The machine was destroyed.
    Destroyed,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::JobState;
    use crate::machine::{HostKind, MachineLabels, MachineState};
    use serde_json::json;

    const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);

    fn minutes(count: u64) -> Duration {
        Duration::from_secs(count * 60)
    }

    fn machine(state: &str, age: Duration) -> Machine {
        Machine {
            host: HostKind::Vm,
            id: "m1".into(),
            name: "agent-01j".into(),
            state: MachineState::new(state),
            exit: None,
            problem: None,
            region: None,
            log_url: None,
            created_at: NOW - age,
            labels: MachineLabels {
                instance: "i".into(),
                job: "01J".into(),
                issue: None,
                team: None,
                repo: None,
                expires_at: None,
            },
        }
    }

    fn job(ended: Option<Duration>) -> Job {
        let mut job: Job = serde_json::from_value(json!({
            "id": "01J", "group": "01J", "kind": "implementation", "team": "ENG",
            "issue": {"system": "A", "id": "i", "key": "ENG-1", "title": "", "url": ""},
            "repo": {"owner": "acme", "name": "shop"}, "runner": "vm", "dispatchNumber": 1,
            "branch": "b", "callbacks": true, "minutes": 60, "state": {"status": "running"},
            "reservedAt": NOW,
        }))
        .unwrap();
        job.finished_at = ended.map(|ago| NOW - ago);
        if ended.is_some() {
            job.state = JobState::Completed;
        }
        job
    }

    #[test]
    fn each_rule_applies_from_its_bound() {
        let (open, closed) = (IssueStatus::Open, IssueStatus::Closed);
        let just_below = |bound: Duration| bound - Duration::from_millis(1);
        let (old, stale) = (MAX_AGE, STALE_AGE);
        let (running, ended) = (job(None), |ago| job(Some(ago)));
        let rows = [
            ("started", just_below(ORPHAN_AGE), None, open, None),
            ("started", ORPHAN_AGE, None, open, Some(ReaperRule::Orphan)),
            ("stopped", ORPHAN_AGE, None, open, Some(ReaperRule::Orphan)),
            ("destroying", ORPHAN_AGE, None, open, None),
            ("started", MAX_AGE, None, open, Some(ReaperRule::Orphan)),
            ("started", minutes(30), Some(running.clone()), open, None),
            (
                "started",
                just_below(old),
                Some(running.clone()),
                open,
                None,
            ),
            (
                "started",
                old,
                Some(running.clone()),
                open,
                Some(ReaperRule::MaxAgeExceeded),
            ),
            (
                "started",
                minutes(1),
                Some(running),
                closed,
                Some(ReaperRule::IssueTerminal),
            ),
            (
                "stopped",
                minutes(60),
                Some(ended(just_below(stale))),
                open,
                None,
            ),
            (
                "stopped",
                minutes(60),
                Some(ended(stale)),
                open,
                Some(ReaperRule::StaleTerminalJob),
            ),
            (
                "stopped",
                minutes(60),
                Some(ended(minutes(1))),
                closed,
                Some(ReaperRule::IssueTerminal),
            ),
            (
                "stopped",
                old,
                Some(ended(stale)),
                closed,
                Some(ReaperRule::StaleTerminalJob),
            ),
        ];
        for (state, age, job, issue, expected) in rows {
            let rule = matching_rule(&machine(state, age), job.as_ref(), issue, NOW);
            assert_eq!(rule, expected, "{state} {age:?} {issue:?}");
        }
    }
}
