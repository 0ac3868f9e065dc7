//! Tickets, independent of the ticketing system.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ids::{IssueId, IssueKey, TeamKey};
use super::stage::Stage;
use super::string_arena::ArenaStr;
use super::time::Timestamp;

/// Ticketing system. See docs/behaviour.md#issue-lifecycle.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub enum System {
    /// Linear: label-based, scoped by a team key.
    #[serde(rename = "A", alias = "linear")]
    Linear,
    /// Jira: status-field-based, scoped by a query clause and a repo-field value.
    #[serde(rename = "B", alias = "jira")]
    Jira,
}

/// Reference to an issue, with enough data to name it, link to it and change it.
///
/// Stored: fields may be added with a default, never renamed without a migration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IssueRef {
    /// Ticketing system that holds the issue.
    pub system: System,
    /// Id at the ticketing system. It never changes.
    pub id: IssueId,
    /// Key shown to people, such as `ENG-42`.
    pub key: IssueKey,
    /// Title of the issue.
    pub title: String,
    /// Address of its page.
    pub url: String,
    /// Id of the field that holds the marker, for Jira: the status field through which the issue
    /// was found. `None` stands for the field of the default name.
    #[serde(default)]
    pub marker_field: Option<String>,
}

impl IssueRef {
    /// Returns whether `named` is the id of the issue, or its key in any case.
    pub fn matches_id_or_key(&self, named: &str) -> bool {
        self.id.as_str() == named || self.key.as_str().eq_ignore_ascii_case(named)
    }
}

/// Phase of an issue that a run can advance.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Planning.
    Planning,
    /// Implementation.
    Implementation,
}

impl Phase {
    /// Returns the name in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Phase::Planning => "planning",
            Phase::Implementation => "implementation",
        }
    }
}

/// Open issue that blocks another issue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenBlocker {
    /// Key of the blocking issue.
    pub key: IssueKey,
    /// Its title.
    pub title: String,
}

/// Issues related to a ticket, one line of text each. Passed to the run as context.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RelatedIssues {
    /// Parent issue.
    pub parent: Option<String>,
    /// Other children of the parent.
    pub siblings: Vec<String>,
    /// Issues that the ticket depends on.
    pub dependencies: Vec<String>,
}

/// Issue with a marker of the service, as returned by one poll.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlaggedIssue {
    /// Reference to the issue.
    pub issue: IssueRef,
    /// Team or scope that the issue was found in. A mapping with this key may not exist.
    pub team: TeamKey,
    /// Stage that its marker shows.
    pub stage: Stage,
    /// Priority: 1 is the most urgent. Issues without priority sort last.
    pub priority: u8,
    /// Creation time.
    pub created_at: Timestamp,
    /// Description.
    pub description: ArenaStr,
    /// Name of its workflow state at the ticketing system.
    pub state_name: String,
    /// Category of that state.
    pub status_category: StatusCategory,
    /// Open issues that block it.
    pub open_blockers: Vec<OpenBlocker>,
    /// Related issues.
    pub related: RelatedIssues,
}

impl FlaggedIssue {
    /// Drops the fields that only a run needs. For thousands of waiting issues, they are most of
    /// the memory.
    pub fn without_run_context(self) -> Self {
        Self {
            description: ArenaStr::default(),
            related: RelatedIssues::default(),
            ..self
        }
    }
}

/// Issue looked up by id or key, in any state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssueLookup {
    /// Reference to the issue.
    pub issue: IssueRef,
    /// Key of the mapping that owns it.
    pub team: TeamKey,
    /// Description.
    pub description: String,
    /// Related issues.
    pub related: RelatedIssues,
}

/// Category of a workflow state at the ticketing system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum StatusCategory {
    /// Not started.
    Unstarted,
    /// In progress.
    Started,
    /// Done.
    Completed,
    /// Cancelled.
    Cancelled,
}

/// Result of polling one ticketing account.
#[derive(Debug, Clone, Default)]
pub struct PollResult {
    /// Issues found.
    pub issues: Vec<FlaggedIssue>,
    /// Mappings whose issues could not be read. Their last decisions stay in force.
    pub failed_teams: Vec<TeamKey>,
}
