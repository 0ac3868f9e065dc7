//! A ticket as the engine sees it, whichever system it lives in.

use serde::{Deserialize, Serialize};

use super::ids::{IssueId, IssueKey, TeamKey};
use super::stage::Stage;
use super::string_arena::ArenaStr;
use super::time::Timestamp;

/// A ticketing system. (spec: *Issue lifecycle*)
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum System {
    /// Linear: label-based, scoped by a team key.
    #[serde(rename = "A", alias = "linear")]
    Linear,
    /// Jira: status-field-based, scoped by a query clause and a repo-field value.
    #[serde(rename = "B", alias = "jira")]
    Jira,
}

/// Enough of an issue to name it, link it and change it.
///
/// Stored: fields may be added with a default, never renamed without a migration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IssueRef {
    pub system: System,
    pub id: IssueId,
    pub key: IssueKey,
    pub title: String,
    pub url: String,
    /// The field that holds its marker, where the system lets each project choose: on Jira the id
    /// of the status field that the issue was found by. None means the field of our name.
    #[serde(default)]
    pub marker_field: Option<String>,
}

impl IssueRef {
    /// Whether an operator means this issue: by its id, or by what people call it in any case.
    pub fn matches_id_or_key(&self, named: &str) -> bool {
        self.id.as_str() == named || self.key.as_str().eq_ignore_ascii_case(named)
    }
}

/// What an issue that waits may be waiting for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    Planning,
    Implementation,
}

impl Phase {
    pub fn as_str(self) -> &'static str {
        match self {
            Phase::Planning => "planning",
            Phase::Implementation => "implementation",
        }
    }
}

/// An open issue that stands in the way of another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenBlocker {
    pub key: IssueKey,
    pub title: String,
}

/// Issues around a ticket, as one line of text each. They travel to the run as context.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RelatedIssues {
    pub parent: Option<String>,
    pub siblings: Vec<String>,
    pub dependencies: Vec<String>,
}

/// An issue that carries one of our markers, as a ticketing system showed it in one poll.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlaggedIssue {
    pub issue: IssueRef,
    /// The team or scope it was found in; a mapping of that key may or may not exist.
    pub team: TeamKey,
    pub stage: Stage,
    /// 1 is most urgent; an issue without priority sorts last.
    pub priority: u8,
    pub created_at: Timestamp,
    pub description: ArenaStr,
    pub state_name: String,
    pub status_category: StatusCategory,
    pub open_blockers: Vec<OpenBlocker>,
    pub related: RelatedIssues,
}

impl FlaggedIssue {
    /// Lets go of what only a run of it needs. Of thousands that wait, that is most of the memory.
    pub fn without_run_context(self) -> Self {
        Self {
            description: ArenaStr::default(),
            related: RelatedIssues::default(),
            ..self
        }
    }
}

/// An issue that somebody named, in whatever state it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssueLookup {
    pub issue: IssueRef,
    /// The mapping that owns it.
    pub team: TeamKey,
    pub description: String,
    pub related: RelatedIssues,
}

/// Where people have an issue on their own board.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StatusCategory {
    Unstarted,
    Started,
    Completed,
    Cancelled,
}

/// What one ticketing account showed in one poll.
#[derive(Debug, Clone, Default)]
pub struct PollResult {
    pub issues: Vec<FlaggedIssue>,
    /// Mappings whose issues could not be read although others' could: what was last decided
    /// about theirs stands.
    pub failed_teams: Vec<TeamKey>,
}
