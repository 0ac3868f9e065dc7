//! Tickets, independent of the ticketing system.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::agent_choice::AgentChoice;
use super::ids::{IssueId, IssueKey, Repo, TeamKey};
use super::mapping::ticket_match::TicketFacts;
use super::sanitize;
use super::stage::{ALL_LABELS, Stage};
use super::string_arena::ArenaStr;
use super::ticket_comment::TicketComment;
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
    /// GitHub Issues: label-based, scoped by the repository of the mapping.
    #[serde(rename = "C", alias = "github")]
    GitHub,
}

/// Account that set the trigger label of an issue last. On repositories in which strangers may file
/// issues, it decides whether a run may start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum TriggerAuthor {
    /// Not checked: only people of the organization can set the trigger.
    #[default]
    Trusted,
    /// Person with this login. Its permission decides.
    Person(String),
    /// App or bot with this name.
    App(String),
    /// The trigger label is not set, or the vendor does not return who set it.
    Unknown,
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
    /// Returns whether `named` is the id of the issue, or its key in any case. The key of an issue of
    /// GitHub may name the owner of the repository: `acme/shop#12`.
    pub fn matches_id_or_key(&self, named: &str) -> bool {
        self.id.as_str() == named
            || self.key.as_str().eq_ignore_ascii_case(named)
            || self.is_repo_issue(&IssueKey::from(named))
    }

    /// Returns whether a key that names the owner of a repository is that of this issue.
    fn is_repo_issue(&self, key: &IssueKey) -> bool {
        let Some((Some(owner), name, number)) = key.repo_and_number() else {
            return false;
        };
        self.system == System::GitHub
            && self.repo_and_number().is_some_and(|(repo, own_number)| {
                own_number == number
                    && repo.owner.eq_ignore_ascii_case(owner)
                    && repo.name.eq_ignore_ascii_case(name)
            })
    }

    /// Returns the repository and the number of an issue of GitHub, from the address of its page.
    pub fn repo_and_number(&self) -> Option<(Repo, u64)> {
        let (repo, number) = self.url.trim_end_matches('/').rsplit_once("/issues/")?;
        let mut parts = repo.rsplit('/');
        let (name, owner) = (parts.next()?, parts.next()?);
        let repo = Repo::parse(&format!("{owner}/{name}"))?;
        Some((repo, number.parse().ok()?))
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
    /// Key of the mapping that takes the issue, once one is chosen; else the team that it was found in. On GitHub, it
    /// is then the first mapping of its repository.
    pub team: TeamKey,
    /// What decides which mapping of the team or repository takes the issue. `None` once a mapping is chosen.
    pub facts: Option<Box<TicketFacts>>,
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
    /// Names of its labels. `None` if they are read just before a run starts.
    pub labels: Option<Vec<String>>,
    /// Agent and model that its labels choose.
    pub agent_choice: AgentChoice,
    /// Account that set its trigger.
    pub trigger_author: TriggerAuthor,
    /// Whether the trigger is set. In Jira, every value of the status field counts.
    pub has_trigger: bool,
    /// Time of the last change, if the poll returns it.
    pub updated_at: Option<Timestamp>,
}

impl FlaggedIssue {
    /// Drops the fields that only a run needs. For thousands of waiting issues, they are most of
    /// the memory.
    pub fn without_run_context(self) -> Self {
        Self {
            description: ArenaStr::default(),
            related: RelatedIssues::default(),
            labels: None,
            ..self
        }
    }
}

/// Part of an issue that only a run needs, read just before the run starts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RunContext {
    /// Other children of the same parent, one line of text each.
    pub siblings: Vec<String>,
    /// Names of its labels. `None` if the poll has returned them.
    pub labels: Option<Vec<String>>,
    /// Description. `None` if the poll has returned it.
    pub description: Option<String>,
}

/// Maximum number of labels of an issue that are stored.
const MAX_LABELS: usize = 20;

/// Maximum length of a stored label, in bytes.
const MAX_LABEL: usize = 80;

/// Maximum number of bytes of a label that are sanitized. No ticketing system allows longer labels.
const MAX_RAW_LABEL: usize = 1024;

/// Returns the labels of an issue in the form in which its jobs store them: without the labels of the
/// service, as one sanitized and bounded line each, in alphabetical order. Labels are untrusted.
pub fn stored_labels(names: &[String], sanitize: impl Fn(&str) -> String) -> Vec<String> {
    let own = names
        .iter()
        .filter(|name| !ALL_LABELS.contains(&name.trim()))
        .map(|name| {
            let text = sanitize(&sanitize::truncate(name.as_str(), MAX_RAW_LABEL, ""));
            let line = sanitize::single_line(&text);
            let kept = sanitize::truncate(line.trim(), MAX_LABEL, "…");
            kept.trim().to_owned()
        })
        .filter(|label| !label.is_empty());
    let labels: BTreeSet<String> = own.take(MAX_LABELS).collect();
    labels.into_iter().collect()
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
    /// Names of its labels.
    pub labels: Vec<String>,
}

/// Text of a ticket and what people added to it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TicketText {
    /// Title.
    pub title: String,
    /// Description in Markdown, as the poll or the run context returns it.
    pub description: String,
    /// Newest comments, at most 50, oldest first.
    pub comments: Vec<TicketComment>,
    /// Attachments, and links to the vendor's upload host in description and comments.
    pub attachments: Vec<Attachment>,
}

/// Attachment of a ticket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attachment {
    /// Address of its content at the ticketing system.
    pub url: String,
    /// Name that people gave it. Untrusted.
    pub title: String,
    /// Size in bytes, if the ticketing system returns it.
    pub bytes: Option<u64>,
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
    /// Comments that were asked for, and commands on any ticket.
    pub comments: Vec<TicketComment>,
    /// Whether all comments that were asked for could be read. Otherwise the same are asked for by the next poll.
    pub comments_read: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(names: &[&str]) -> Vec<String> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        stored_labels(&names, |text| text.replace("hunter2", "***"))
    }

    #[test]
    fn stored_labels_are_those_of_people() {
        let labels = stored(&[
            "ui",
            "Agent-Implement",
            "bug",
            "Ready for Review",
            " ui ",
            "",
        ]);
        assert_eq!(labels, ["bug", "ui"]);
        let unsafe_labels = ["a\nb", "\u{202e}evil\u{7}", "\u{200b}", "key hunter2"];
        assert_eq!(stored(&unsafe_labels), ["a b", "evil", "key ***"]);
    }

    #[test]
    fn stored_labels_are_bounded_in_number_and_length() {
        let many: Vec<String> = (0..10_000)
            .map(|number| format!("label-{number}"))
            .collect();
        let huge = ["x".repeat(1 << 20), "ä".repeat(1 << 20)];
        let labels = stored_labels(&[&huge[..], &many].concat(), str::to_owned);
        assert_eq!(labels.len(), MAX_LABELS);
        assert!(labels.iter().all(|label| label.len() <= MAX_LABEL));
        assert!(labels[19].starts_with("ää") && labels[19].ends_with('…'));
    }
}
