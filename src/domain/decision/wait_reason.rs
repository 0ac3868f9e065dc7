//! Reasons for waiting. See docs/behaviour.md#reasons-for-waiting.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Reason for waiting. See docs/behaviour.md#reasons-for-waiting.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
#[schemars(rename = "Reason")]
pub enum WaitReason {
    /// The mapping is at its concurrency cap.
    Concurrency,
    /// The issue is in the dedup window.
    Dedup,
    /// No mapping takes the tickets of the team, or this one of them.
    NoMapping,
    /// Several mappings of the team match the issue.
    Ambiguous,
    /// An open issue blocks the issue.
    Blocked,
    /// The mapping is paused.
    Paused,
    /// The issue is parked after repeated failures.
    Parked,
    /// Runs of the mapping cannot start on the configured runner.
    Ineligible,
    /// A vendor's rate limit or usage limit is reached.
    Quota,
    /// The budget of the mapping is used up.
    Budget,
    /// The last run asked a question that nobody has answered yet.
    Question,
    /// The plan waits for an approval.
    Approval,
    /// A person continues the work by hand.
    TakenOver,
    /// Outside the dispatch hours of the mapping.
    OutsideHours,
    /// People have as many pull requests to review as the mapping allows.
    ReviewCapacity,
    /// Another issue of the repository changes the same files.
    Collision,
}

impl WaitReason {
    /// All reasons.
    pub const ALL: [Self; 16] = [
        WaitReason::Concurrency,
        WaitReason::Dedup,
        WaitReason::NoMapping,
        WaitReason::Ambiguous,
        WaitReason::Blocked,
        WaitReason::Paused,
        WaitReason::Parked,
        WaitReason::Ineligible,
        WaitReason::Quota,
        WaitReason::Budget,
        WaitReason::Question,
        WaitReason::Approval,
        WaitReason::TakenOver,
        WaitReason::OutsideHours,
        WaitReason::ReviewCapacity,
        WaitReason::Collision,
    ];

    /// Returns the name in texts for people.
    pub fn title(self) -> &'static str {
        match self {
            WaitReason::Concurrency => "At capacity",
            WaitReason::Dedup => "Dispatched recently",
            WaitReason::NoMapping => "No project",
            WaitReason::Ambiguous => "Several projects",
            WaitReason::Blocked => "Blocked",
            WaitReason::Paused => "Paused",
            WaitReason::Parked => "Parked",
            WaitReason::Ineligible => "Cannot run",
            WaitReason::Quota => "Rate limited",
            WaitReason::Budget => "Budget spent",
            WaitReason::Question => "Waits for an answer",
            WaitReason::Approval => "Waits for approval",
            WaitReason::TakenOver => "Taken over",
            WaitReason::OutsideHours => "Outside dispatch hours",
            WaitReason::ReviewCapacity => "Waits for review",
            WaitReason::Collision => "Changes the same files",
        }
    }

    /// Returns the name in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            WaitReason::Concurrency => "concurrency",
            WaitReason::Dedup => "dedup",
            WaitReason::NoMapping => "no-mapping",
            WaitReason::Ambiguous => "ambiguous",
            WaitReason::Blocked => "blocked",
            WaitReason::Paused => "paused",
            WaitReason::Parked => "parked",
            WaitReason::Ineligible => "ineligible",
            WaitReason::Quota => "quota",
            WaitReason::Budget => "budget",
            WaitReason::Question => "question",
            WaitReason::Approval => "approval",
            WaitReason::TakenOver => "taken-over",
            WaitReason::OutsideHours => "outside-hours",
            WaitReason::ReviewCapacity => "review-capacity",
            WaitReason::Collision => "collision",
        }
    }
}
