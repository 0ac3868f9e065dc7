//! Lifecycle of an issue, and its markers in each ticketing system. See
//! docs/behaviour.md#issue-lifecycle.

use serde::{Deserialize, Serialize};

use super::issue::Phase;

/// Stage of an issue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// The trigger was applied.
    Triggered,
    /// A planning run is active.
    Planning,
    /// The plan is complete.
    PlanComplete,
    /// The plan is complete and waits for an approval. In Linear and GitHub it is read as [`Stage::PlanComplete`].
    PlanReady,
    /// The plan is approved. In Jira it is read as [`Stage::PlanComplete`].
    PlanApproved,
    /// Planning failed.
    PlanningFailed,
    /// An implementation run is active.
    Implementing,
    /// The last run asked a question.
    NeedsInput,
    /// The pull request is open.
    PrOpened,
    /// Implementation failed.
    ImplementationFailed,
    /// An operator cancelled the run and wants no other. Set, never read: the issue has no marker.
    Cancelled,
    /// An operator requested another run. Set, never read: the issue is read as
    /// [`Stage::Triggered`].
    Retriggered,
}

/// Label that triggers a run in Linear and GitHub.
pub const TRIGGER_LABEL: &str = "Agent-Implement";

/// All labels of the service in Linear and GitHub. A failure and a cancellation remove them.
pub const ALL_LABELS: [&str; 7] = [
    TRIGGER_LABEL,
    "Agent-Planning",
    "Plan-Complete",
    "Plan-Approved",
    "Agent-Working",
    "Agent-Waiting",
    "Ready for Review",
];

impl Stage {
    /// Returns the label of this stage in Linear and GitHub. `None` after a failure or a cancellation: all
    /// labels are removed, so that applying the trigger again is a new request.
    pub fn label(self) -> Option<&'static str> {
        match self {
            Stage::Triggered | Stage::Retriggered => Some(TRIGGER_LABEL),
            Stage::Planning => Some("Agent-Planning"),
            Stage::PlanComplete | Stage::PlanReady => Some("Plan-Complete"),
            Stage::PlanApproved => Some("Plan-Approved"),
            Stage::Implementing => Some("Agent-Working"),
            Stage::NeedsInput => Some("Agent-Waiting"),
            Stage::PrOpened => Some("Ready for Review"),
            Stage::PlanningFailed | Stage::ImplementationFailed | Stage::Cancelled => None,
        }
    }

    /// All stages that an issue can be read in.
    pub const ALL: [Stage; 10] = [
        Stage::Triggered,
        Stage::Planning,
        Stage::PlanComplete,
        Stage::PlanReady,
        Stage::PlanApproved,
        Stage::PlanningFailed,
        Stage::Implementing,
        Stage::NeedsInput,
        Stage::PrOpened,
        Stage::ImplementationFailed,
    ];

    /// Returns the value of the status field for this stage in Jira. `None` for an empty field.
    pub fn jira_status(self) -> Option<&'static str> {
        Some(match self {
            Stage::Triggered | Stage::Retriggered => "Ready",
            Stage::Planning => "Planning",
            Stage::PlanComplete | Stage::PlanApproved => "Plan Approved",
            Stage::PlanReady => "Plan Ready",
            Stage::NeedsInput => "Needs Input",
            Stage::PlanningFailed => "Planning Failed",
            Stage::Implementing => "Implementing",
            Stage::PrOpened => "PR Ready",
            Stage::ImplementationFailed => "Implementation Failed",
            Stage::Cancelled => return None,
        })
    }

    /// Returns the stage of a value of the status field in Jira. `None` for other values.
    pub fn from_jira_status(value: &str) -> Option<Self> {
        let mut all = Stage::ALL.into_iter();
        all.find(|stage| stage.jira_status() == Some(value))
    }

    /// Returns the stage of a set of labels. `None` if no label belongs to the service.
    ///
    /// The most advanced stage wins, so that a leftover label never starts another run.
    pub fn from_labels<'a>(labels: impl IntoIterator<Item = &'a str>) -> Option<Self> {
        let furthest_first = [
            Stage::PrOpened,
            Stage::Implementing,
            Stage::NeedsInput,
            Stage::PlanApproved,
            Stage::PlanComplete,
            Stage::Planning,
            Stage::Triggered,
        ];
        let labels: Vec<&str> = labels.into_iter().collect();
        furthest_first
            .into_iter()
            .find(|stage| stage.label().is_some_and(|label| labels.contains(&label)))
    }

    /// Returns the labels to add and to remove for this stage.
    ///
    /// A person sets the trigger label. Only a failure or a cancellation removes it, and only a
    /// retry by an operator adds it again. Of the other labels, an issue has one at a time.
    pub fn label_change(self) -> LabelChange {
        let sets_trigger = self == Stage::Retriggered;
        let add = self
            .label()
            .filter(|label| *label != TRIGGER_LABEL || sets_trigger);
        let remove = ALL_LABELS
            .into_iter()
            .filter(|label| Some(*label) != add)
            .filter(|label| *label != TRIGGER_LABEL || self.removes_trigger())
            .collect();
        LabelChange { add, remove }
    }

    /// Returns whether the trigger is removed with the other markers.
    pub(crate) fn removes_trigger(self) -> bool {
        matches!(
            self,
            Stage::PlanningFailed | Stage::ImplementationFailed | Stage::Cancelled
        )
    }

    /// Returns whether an issue in this stage waits for a run.
    pub fn requires_run(self) -> bool {
        self.required_phase(false).is_some()
    }

    /// Returns whether the issue counts against the concurrency cap of its mapping.
    pub fn is_in_progress(self) -> bool {
        matches!(self, Stage::Planning | Stage::Implementing)
    }

    /// Returns whether the plan of the issue is complete and its implementation has not begun.
    pub fn has_plan(self) -> bool {
        matches!(
            self,
            Stage::PlanComplete | Stage::PlanReady | Stage::PlanApproved
        )
    }

    /// Returns the phase of the run that this stage requires, depending on whether the mapping
    /// plans first. A question that is no longer open counts as a new request.
    pub fn required_phase(self, planning_enabled: bool) -> Option<Phase> {
        match self {
            Stage::Triggered | Stage::Retriggered | Stage::NeedsInput if planning_enabled => {
                Some(Phase::Planning)
            }
            Stage::Triggered
            | Stage::Retriggered
            | Stage::NeedsInput
            | Stage::PlanComplete
            | Stage::PlanReady
            | Stage::PlanApproved => Some(Phase::Implementation),
            Stage::Planning
            | Stage::PlanningFailed
            | Stage::Implementing
            | Stage::PrOpened
            | Stage::ImplementationFailed
            | Stage::Cancelled => None,
        }
    }
}

/// Labels to add and to remove.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabelChange {
    /// Label to add.
    pub add: Option<&'static str>,
    /// Labels to remove.
    pub remove: Vec<&'static str>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_advanced_label_wins() {
        assert_eq!(Stage::from_labels(["bug"]), None);
        assert_eq!(
            Stage::from_labels(["Agent-Implement"]),
            Some(Stage::Triggered)
        );
        assert_eq!(
            Stage::from_labels(["Agent-Implement", "Plan-Complete"]),
            Some(Stage::PlanComplete)
        );
        assert_eq!(
            Stage::from_labels(["Agent-Working", "Ready for Review"]),
            Some(Stage::PrOpened)
        );
    }

    #[test]
    fn parses_every_status() {
        for stage in Stage::ALL {
            assert_ne!(stage.jira_status(), None, "{stage:?}");
        }
        assert_eq!(Stage::Cancelled.jira_status(), None);
        for stage in [
            Stage::Triggered,
            Stage::PlanComplete,
            Stage::PlanReady,
            Stage::NeedsInput,
            Stage::ImplementationFailed,
        ] {
            let status = stage.jira_status().unwrap();
            assert_eq!(Stage::from_jira_status(status), Some(stage));
        }
        assert_eq!(Stage::from_jira_status("In Progress"), None);
    }

    #[test]
    fn only_a_failure_or_a_cancellation_removes_the_trigger() {
        for stage in [Stage::ImplementationFailed, Stage::Cancelled] {
            assert_eq!(
                stage.label_change(),
                LabelChange {
                    add: None,
                    remove: ALL_LABELS.to_vec()
                }
            );
        }
        assert_eq!(
            Stage::Retriggered.label_change(),
            LabelChange {
                add: Some(TRIGGER_LABEL),
                remove: ALL_LABELS[1..].to_vec()
            }
        );
        assert_eq!(Stage::Triggered.label_change().add, None);
        for stage in [
            Stage::Planning,
            Stage::PlanComplete,
            Stage::PlanReady,
            Stage::PlanApproved,
            Stage::Implementing,
            Stage::NeedsInput,
            Stage::PrOpened,
        ] {
            let change = stage.label_change();
            assert_eq!(change.add, stage.label());
            assert!(!change.remove.contains(&TRIGGER_LABEL), "{stage:?}");
            assert_eq!(change.remove.len(), 5, "{stage:?}");
        }
    }

    #[test]
    fn only_waiting_stages_require_a_run() {
        assert_eq!(Stage::Triggered.required_phase(true), Some(Phase::Planning));
        assert_eq!(
            Stage::Triggered.required_phase(false),
            Some(Phase::Implementation)
        );
        assert_eq!(
            Stage::PlanComplete.required_phase(true),
            Some(Phase::Implementation)
        );
        assert_eq!(Stage::Implementing.required_phase(false), None);
        assert_eq!(Stage::PrOpened.required_phase(false), None);
    }
}
