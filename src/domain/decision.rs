//! Who runs next, and why the others wait.
//!
//! [`decide`] gives every flagged issue exactly one decision per poll. It is pure; what it decides
//! to dispatch is checked once more in the commit that reserves it. (spec: *Blocker reasons*)

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::ids::{IssueId, IssueKey, TeamKey};
use super::issue::{FlaggedIssue, Phase};
use super::mapping::Mapping;
use super::stage::Stage;
use super::time::Timestamp;

/// What was decided about an issue in one poll.
///
/// Stored: fields may be added with a default, never renamed without a migration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Decision {
    pub at: Timestamp,
    pub issue_identifier: IssueKey,
    pub team_key: TeamKey,
    pub outcome: Outcome,
    pub reason: Option<Reason>,
    pub message: String,
    pub phase: Option<Phase>,
}

impl Decision {
    /// Whether it says the same as an earlier one; the time apart.
    pub fn repeats(&self, earlier: &Decision) -> bool {
        Decision {
            at: earlier.at,
            ..self.clone()
        } == *earlier
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    Dispatched,
    Waiting,
    InProgress,
    Done,
}

/// Why an issue waits. The first three are the spec's; the others are ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    Concurrency,
    Dedup,
    NoMapping,
    Blocked,
    Paused,
    Parked,
    Ineligible,
    Quota,
    Budget,
}

/// What the store knew when the poll began, before any ticketing system was asked: an issue whose
/// run ended while they answered still counts as busy, because the labels they show are older than
/// that end.
#[derive(Debug, Clone, Default)]
pub struct View {
    pub mappings: BTreeMap<TeamKey, Mapping>,
    /// Issues with a job that has not ended, by the mapping it counts against.
    pub active: BTreeMap<IssueId, TeamKey>,
    pub deduped: BTreeSet<IssueId>,
    pub parked: BTreeSet<IssueId>,
    /// Issues that are owed an effect: their markers are about to change.
    pub owed: BTreeSet<IssueId>,
    /// Why no run of this mapping can start at all, whatever the issue: by mapping and phase.
    pub ineligible: BTreeMap<(TeamKey, Phase), String>,
}

/// Decides about every issue. The first in the answer is the first to run; the order of the input
/// does not matter.
pub fn decide(
    view: &View,
    issues: &[FlaggedIssue],
    now: Timestamp,
) -> Vec<(FlaggedIssue, Decision)> {
    let mut queue: Vec<&FlaggedIssue> = issues.iter().collect();
    queue.sort_by_key(|issue| turn(issue));
    queue.dedup_by_key(|issue| &issue.issue.id);
    let mut slots = Slots::count(view, &queue);
    let judged = |issue: &FlaggedIssue| {
        let verdict = judge(view, &mut slots, issue);
        (issue.clone(), verdict.into_decision(issue, now))
    };
    queue.into_iter().map(judged).collect()
}

/// Planned issues come before new ones, then the more urgent, then the older. The id makes the
/// order total.
fn turn(issue: &FlaggedIssue) -> (bool, u8, Timestamp, &IssueId) {
    (
        issue.stage != Stage::PlanComplete,
        issue.priority,
        issue.created_at,
        &issue.issue.id,
    )
}

struct Verdict {
    outcome: Outcome,
    reason: Option<Reason>,
    message: String,
    phase: Option<Phase>,
}

impl Verdict {
    fn wait(reason: Reason, phase: Option<Phase>, message: String) -> Self {
        Self {
            outcome: Outcome::Waiting,
            reason: Some(reason),
            message,
            phase,
        }
    }

    fn rest(outcome: Outcome, message: &str) -> Self {
        Self {
            outcome,
            reason: None,
            message: message.to_owned(),
            phase: None,
        }
    }

    fn into_decision(self, issue: &FlaggedIssue, now: Timestamp) -> Decision {
        Decision {
            at: now,
            issue_identifier: issue.issue.key.clone(),
            team_key: issue.team.clone(),
            outcome: self.outcome,
            reason: self.reason,
            message: self.message,
            phase: self.phase,
        }
    }
}

fn judge(view: &View, slots: &mut Slots, issue: &FlaggedIssue) -> Verdict {
    let (id, team) = (&issue.issue.id, &issue.team);
    let planning = view
        .mappings
        .get(team)
        .is_some_and(|mapping| mapping.planning_enabled);
    if view.active.contains_key(id) {
        return Verdict::rest(Outcome::InProgress, "A run is in progress.");
    }
    let Some(phase) = issue.stage.phase_needed(planning) else {
        return at_rest(issue.stage);
    };
    let wait = |reason, message| Verdict::wait(reason, Some(phase), message);
    let Some(mapping) = view.mappings.get(team) else {
        return wait(
            Reason::NoMapping,
            format!("No mapping for team {team}. Add one in Projects."),
        );
    };
    if mapping.paused {
        return wait(Reason::Paused, format!("{team} is paused."));
    }
    if !issue.open_blockers.is_empty() {
        let keys: Vec<&str> = issue
            .open_blockers
            .iter()
            .map(|blocker| blocker.key.as_str())
            .collect();
        return wait(
            Reason::Blocked,
            format!("Blocked by {}, still open.", keys.join(", ")),
        );
    }
    if view.parked.contains(id) {
        return wait(
            Reason::Parked,
            "Parked after repeated failures. Unpark it to try again.".to_owned(),
        );
    }
    if let Some(why) = view.ineligible.get(&(team.clone(), phase)) {
        return wait(Reason::Ineligible, why.clone());
    }
    if view.owed.contains(id) {
        return Verdict::rest(
            Outcome::InProgress,
            "The outcome of its last run is being posted.",
        );
    }
    if view.deduped.contains(id) {
        return wait(
            Reason::Dedup,
            "Already dispatched recently. Waiting for the in-flight job.".to_owned(),
        );
    }
    match slots.take(mapping) {
        Ok(()) => Verdict {
            outcome: Outcome::Dispatched,
            reason: None,
            message: format!("Dispatched for {}.", phase.as_str()),
            phase: Some(phase),
        },
        Err(taken) => wait(
            Reason::Concurrency,
            format!(
                "{team} at concurrency cap ({taken}/{}). Waiting for a slot.",
                mapping.max_in_progress
            ),
        ),
    }
}

fn at_rest(stage: Stage) -> Verdict {
    match stage {
        Stage::PrOpened => Verdict::rest(Outcome::Done, "The pull request is open."),
        Stage::PlanningFailed | Stage::ImplementationFailed => Verdict::rest(
            Outcome::Done,
            "The run failed. Apply the trigger again to retry.",
        ),
        Stage::Planning | Stage::Implementing | Stage::Triggered | Stage::PlanComplete => {
            Verdict::rest(
                Outcome::InProgress,
                "Its marker says that work is in progress.",
            )
        }
    }
}

/// Slots taken per mapping: issues that carry an in-progress marker and issues with an active job
/// of ours, each counted once, so that a slow or lost marker never over-commits.
struct Slots(BTreeMap<TeamKey, u32>);

impl Slots {
    fn count(view: &View, issues: &[&FlaggedIssue]) -> Self {
        let marked = issues.iter().filter(|issue| issue.stage.is_in_progress());
        let marked = marked
            .filter(|issue| !view.active.contains_key(&issue.issue.id))
            .map(|issue| &issue.team);
        let mut taken = BTreeMap::new();
        for team in view.active.values().chain(marked) {
            *taken.entry(team.clone()).or_insert(0) += 1;
        }
        Self(taken)
    }

    fn take(&mut self, mapping: &Mapping) -> Result<(), u32> {
        let taken = self.0.entry(mapping.team_key.clone()).or_insert(0);
        if *taken >= mapping.max_in_progress {
            return Err(*taken);
        }
        *taken += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::issue::{IssueRef, OpenBlocker, Related, System};
    use crate::domain::mapping::{ExecutionMode, Provider, SessionMode, Ticketing};
    use proptest::prelude::*;

    fn mapping(team: &str, cap: u32) -> Mapping {
        Mapping {
            team_key: team.into(),
            owner: "acme".into(),
            repo: "shop".into(),
            default_branch: "main".into(),
            workflow_file: "agent-implement.yml".into(),
            ticketing: Ticketing::A,
            provider: Provider::Direct,
            execution_mode: ExecutionMode::CiWorkflow,
            machine_cpus: 2,
            machine_memory_mb: 4096,
            session_mode: SessionMode::Autonomous,
            branch_prefix: None,
            extra_env: BTreeMap::new(),
            max_in_progress: cap,
            paused: false,
            planning_enabled: false,
            planning_workflow_file: None,
            max_turns: None,
            max_iterations: None,
            max_job_minutes: None,
            created_at: Timestamp::EPOCH,
            updated_at: Timestamp::EPOCH,
        }
    }

    fn issue(number: u32, stage: Stage) -> FlaggedIssue {
        FlaggedIssue {
            issue: IssueRef {
                system: System::A,
                id: IssueId::new(format!("id-{number}")),
                key: IssueKey::new(format!("ENG-{number}")),
                title: "t".into(),
                url: String::new(),
                marker_field: None,
            },
            team: "ENG".into(),
            stage,
            priority: 3,
            created_at: Timestamp::from_millis(u64::from(number)),
            description: String::new(),
            state_name: "Todo".into(),
            open_blockers: vec![],
            related: Related::default(),
        }
    }

    fn view(cap: u32) -> View {
        View {
            mappings: BTreeMap::from([("ENG".into(), mapping("ENG", cap))]),
            ..View::default()
        }
    }

    fn said(
        view: &View,
        issues: &[FlaggedIssue],
    ) -> Vec<(String, Outcome, Option<Reason>, String)> {
        let row = |(_, decision): (FlaggedIssue, Decision)| {
            (
                decision.issue_identifier.to_string(),
                decision.outcome,
                decision.reason,
                decision.message,
            )
        };
        decide(view, issues, Timestamp::EPOCH)
            .into_iter()
            .map(row)
            .collect()
    }

    #[test]
    fn every_reason_is_told_in_its_words() {
        let id = || BTreeSet::from([IssueId::from("id-1")]);
        let mut other_team = issue(1, Stage::Triggered);
        other_team.team = "OPS".into();
        let mut blocked = issue(1, Stage::Triggered);
        blocked.open_blockers = vec![OpenBlocker {
            key: "ENG-9".into(),
            title: "x".into(),
        }];
        let mut paused = view(3);
        if let Some(mapping) = paused.mappings.get_mut("ENG") {
            mapping.paused = true;
        }
        let no_callback = BTreeMap::from([(
            ("ENG".into(), Phase::Implementation),
            "No runner.".to_owned(),
        )]);
        let plain = || issue(1, Stage::Triggered);
        let rows = [
            (
                view(3),
                other_team,
                Reason::NoMapping,
                "No mapping for team OPS. Add one in Projects.",
            ),
            (
                view(0),
                plain(),
                Reason::Concurrency,
                "ENG at concurrency cap (0/0). Waiting for a slot.",
            ),
            (
                View {
                    deduped: id(),
                    ..view(3)
                },
                plain(),
                Reason::Dedup,
                "Already dispatched recently. Waiting for the in-flight job.",
            ),
            (
                view(3),
                blocked,
                Reason::Blocked,
                "Blocked by ENG-9, still open.",
            ),
            (paused, plain(), Reason::Paused, "ENG is paused."),
            (
                View {
                    parked: id(),
                    ..view(3)
                },
                plain(),
                Reason::Parked,
                "Parked after repeated failures. Unpark it to try again.",
            ),
            (
                View {
                    ineligible: no_callback,
                    ..view(3)
                },
                plain(),
                Reason::Ineligible,
                "No runner.",
            ),
        ];
        for (view, issue, reason, message) in rows {
            assert_eq!(
                said(&view, &[issue]),
                [(
                    "ENG-1".to_owned(),
                    Outcome::Waiting,
                    Some(reason),
                    message.to_owned()
                )]
            );
        }
    }

    #[test]
    fn planned_issues_come_first_then_urgent_then_old() {
        let mut urgent = issue(4, Stage::Triggered);
        urgent.priority = 1;
        let order = [
            issue(3, Stage::Triggered),
            issue(2, Stage::Triggered),
            urgent,
            issue(9, Stage::PlanComplete),
        ];
        let keys: Vec<String> = said(&view(9), &order)
            .into_iter()
            .map(|row| row.0)
            .collect();
        assert_eq!(keys, ["ENG-9", "ENG-4", "ENG-2", "ENG-3"]);
    }

    #[test]
    fn markers_and_jobs_share_the_cap_and_an_issue_counts_once() {
        let mut view = view(3);
        view.active.insert("id-1".into(), "ENG".into());
        view.active.insert("id-2".into(), "ENG".into());
        let issues = [
            issue(1, Stage::Implementing),
            issue(3, Stage::Implementing),
            issue(4, Stage::Triggered),
        ];
        let last = said(&view, &issues).pop();
        assert_eq!(
            last.map(|row| row.3).as_deref(),
            Some("ENG at concurrency cap (3/3). Waiting for a slot.")
        );
    }

    #[test]
    fn an_issue_that_is_owed_an_effect_is_not_dispatched_again() {
        let mut view = view(3);
        view.owed.insert("id-1".into());
        assert_eq!(
            said(&view, &[issue(1, Stage::Triggered)])[0].1,
            Outcome::InProgress
        );
    }

    fn any_issue() -> impl Strategy<Value = FlaggedIssue> {
        const STAGES: [Stage; 7] = [
            Stage::Triggered,
            Stage::Planning,
            Stage::PlanComplete,
            Stage::PlanningFailed,
            Stage::Implementing,
            Stage::PrOpened,
            Stage::ImplementationFailed,
        ];
        (
            0u32..40,
            prop::sample::select(&STAGES[..]),
            1u8..6,
            0u64..5,
            any::<bool>(),
            any::<bool>(),
        )
            .prop_map(|(number, stage, priority, created, blocked, mapped)| {
                let mut issue = issue(number, stage);
                issue.priority = priority;
                issue.created_at = Timestamp::from_millis(created);
                if blocked {
                    issue.open_blockers = vec![OpenBlocker {
                        key: "ENG-99".into(),
                        title: "x".into(),
                    }];
                }
                if !mapped {
                    issue.team = "OPS".into();
                }
                issue
            })
    }

    fn ids(numbers: Vec<u32>) -> BTreeSet<IssueId> {
        numbers
            .into_iter()
            .map(|number| IssueId::new(format!("id-{number}")))
            .collect()
    }

    proptest! {
        #[test]
        fn no_decision_breaks_a_rule(
            issues in prop::collection::vec(any_issue(), 0..40),
            cap in 0u32..6,
            active in prop::collection::vec(0u32..40, 0..6),
            deduped in prop::collection::vec(0u32..40, 0..6),
            parked in prop::collection::vec(0u32..40, 0..6),
            owed in prop::collection::vec(0u32..40, 0..6),
            seed in any::<u64>(),
        ) {
            let mut unique = BTreeMap::new();
            for issue in issues {
                unique.insert(issue.issue.id.clone(), issue);
            }
            let issues: Vec<FlaggedIssue> = unique.into_values().collect();
            let mut view = view(cap);
            view.active = ids(active).into_iter().map(|id| (id, "ENG".into())).collect();
            (view.deduped, view.parked, view.owed) = (ids(deduped), ids(parked), ids(owed));
            let decided = decide(&view, &issues, Timestamp::EPOCH);

            prop_assert_eq!(decided.len(), issues.len());
            let dispatched = decided.iter().filter(|(_, decision)| decision.outcome == Outcome::Dispatched);
            let mut taken = view.active.len();
            taken += issues.iter().filter(|i| i.stage.is_in_progress() && i.team.as_str() == "ENG" && !view.active.contains_key(&i.issue.id)).count();
            for (issue, _) in dispatched {
                taken += 1;
                prop_assert!(taken <= cap as usize, "over the cap");
                let id = &issue.issue.id;
                let held = view.active.contains_key(id) || view.deduped.contains(id) || view.parked.contains(id) || view.owed.contains(id);
                prop_assert!(!held && issue.open_blockers.is_empty() && issue.team.as_str() == "ENG");
            }
            let mut shuffled = issues;
            fastrand::Rng::with_seed(seed).shuffle(&mut shuffled);
            prop_assert_eq!(decide(&view, &shuffled, Timestamp::EPOCH), decided);
        }
    }
}
