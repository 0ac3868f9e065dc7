//! The lifecycle of an issue and how each ticketing system shows it. (spec: *Issue lifecycle*)

use serde::{Deserialize, Serialize};

use super::issue::Phase;

/// Where an issue stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    Triggered,
    Planning,
    PlanComplete,
    PlanningFailed,
    Implementing,
    PrOpened,
    ImplementationFailed,
}

/// The label that flags an issue on system A.
pub const TRIGGER_LABEL: &str = "Agent-Implement";

/// Every label of ours on system A. A failure removes all of them.
pub const ALL_LABELS: [&str; 5] = [
    TRIGGER_LABEL,
    "Agent-Planning",
    "Plan-Complete",
    "Agent-Working",
    "Ready for Review",
];

impl Stage {
    /// The label that shows this stage on system A. A failed stage has none: all labels go, so
    /// that applying the trigger again is a new request.
    pub fn linear_label(self) -> Option<&'static str> {
        match self {
            Stage::Triggered => Some(TRIGGER_LABEL),
            Stage::Planning => Some("Agent-Planning"),
            Stage::PlanComplete => Some("Plan-Complete"),
            Stage::Implementing => Some("Agent-Working"),
            Stage::PrOpened => Some("Ready for Review"),
            Stage::PlanningFailed | Stage::ImplementationFailed => None,
        }
    }

    pub const ALL: [Stage; 7] = [
        Stage::Triggered,
        Stage::Planning,
        Stage::PlanComplete,
        Stage::PlanningFailed,
        Stage::Implementing,
        Stage::PrOpened,
        Stage::ImplementationFailed,
    ];

    /// The value of the status field that shows this stage on system B.
    pub fn jira_status(self) -> &'static str {
        match self {
            Stage::Triggered => "Ready",
            Stage::Planning => "Planning",
            Stage::PlanComplete => "Plan Approved",
            Stage::PlanningFailed => "Planning Failed",
            Stage::Implementing => "Implementing",
            Stage::PrOpened => "PR Ready",
            Stage::ImplementationFailed => "Implementation Failed",
        }
    }

    /// The stage that a value of the status field on system B shows, or none when it is not ours.
    pub fn from_jira_status(value: &str) -> Option<Self> {
        let mut all = Stage::ALL.into_iter();
        all.find(|stage| stage.jira_status() == value)
    }

    /// The stage that a set of labels on system A shows, or none when no label is ours.
    ///
    /// The furthest one wins: a label that a person forgot to take off never starts a run again.
    pub fn from_linear_labels<'a>(labels: impl IntoIterator<Item = &'a str>) -> Option<Self> {
        let furthest_first = [
            Stage::PrOpened,
            Stage::Implementing,
            Stage::PlanComplete,
            Stage::Planning,
            Stage::Triggered,
        ];
        let labels: Vec<&str> = labels.into_iter().collect();
        furthest_first.into_iter().find(|stage| {
            stage
                .linear_label()
                .is_some_and(|label| labels.contains(&label))
        })
    }

    /// What has to change on system A to show this stage: labels to add and labels to remove.
    ///
    /// The trigger belongs to the operator and stays until a failure takes it away; of our own
    /// labels an issue carries one at a time.
    pub fn label_change(self) -> LabelChange {
        let add = self.linear_label().filter(|label| *label != TRIGGER_LABEL);
        let remove = ALL_LABELS
            .into_iter()
            .filter(|label| Some(*label) != add)
            .filter(|label| *label != TRIGGER_LABEL || self.is_failed())
            .collect();
        LabelChange { add, remove }
    }

    pub fn is_failed(self) -> bool {
        matches!(self, Stage::PlanningFailed | Stage::ImplementationFailed)
    }

    /// Whether an issue here counts against its mapping's concurrency cap.
    pub fn is_in_progress(self) -> bool {
        matches!(self, Stage::Planning | Stage::Implementing)
    }

    /// The run this stage asks for, given whether the mapping plans first.
    pub fn required_phase(self, planning_enabled: bool) -> Option<Phase> {
        match self {
            Stage::Triggered if planning_enabled => Some(Phase::Planning),
            Stage::Triggered | Stage::PlanComplete => Some(Phase::Implementation),
            Stage::Planning
            | Stage::PlanningFailed
            | Stage::Implementing
            | Stage::PrOpened
            | Stage::ImplementationFailed => None,
        }
    }
}

/// Labels to put on and to take off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabelChange {
    pub add: Option<&'static str>,
    pub remove: Vec<&'static str>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_furthest_label_wins() {
        assert_eq!(Stage::from_linear_labels(["bug"]), None);
        assert_eq!(
            Stage::from_linear_labels(["Agent-Implement"]),
            Some(Stage::Triggered)
        );
        assert_eq!(
            Stage::from_linear_labels(["Agent-Implement", "Plan-Complete"]),
            Some(Stage::PlanComplete)
        );
        assert_eq!(
            Stage::from_linear_labels(["Agent-Working", "Ready for Review"]),
            Some(Stage::PrOpened)
        );
    }

    #[test]
    fn every_status_reads_as_its_stage() {
        for stage in [
            Stage::Triggered,
            Stage::PlanComplete,
            Stage::ImplementationFailed,
        ] {
            assert_eq!(Stage::from_jira_status(stage.jira_status()), Some(stage));
        }
        assert_eq!(Stage::from_jira_status("In Progress"), None);
    }

    #[test]
    fn a_failure_removes_every_label_and_nothing_else_removes_the_trigger() {
        assert_eq!(
            Stage::ImplementationFailed.label_change(),
            LabelChange {
                add: None,
                remove: ALL_LABELS.to_vec()
            }
        );
        for stage in [
            Stage::Planning,
            Stage::PlanComplete,
            Stage::Implementing,
            Stage::PrOpened,
        ] {
            let change = stage.label_change();
            assert_eq!(change.add, stage.linear_label());
            assert!(!change.remove.contains(&TRIGGER_LABEL), "{stage:?}");
            assert_eq!(change.remove.len(), 3, "{stage:?}");
        }
    }

    #[test]
    fn only_waiting_stages_ask_for_a_run() {
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
