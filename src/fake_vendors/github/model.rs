//! Stored state of the fake GitHub, except what git stores in the bare repositories.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::ci::event_runs::DISPATCH;
use crate::clock;

#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Model {
    /// Owners in order of creation. An installation's ID is derived from the position.
    pub owners: Vec<String>,
    pub repos: Vec<RepoRecord>,
    pub tokens: BTreeMap<String, IssuedToken>,
    /// Permissions that the App requests and was not granted.
    #[serde(rename = "withheld")]
    pub denied_permissions: BTreeSet<String>,
    /// Whether the App is installed nowhere, as a new App is.
    pub is_app_uninstalled: bool,
    /// Permissions that the personal token, a fine-grained one, does not have.
    pub denied_token_permissions: BTreeSet<String>,
    /// Scopes of the personal token, if it is a classic one.
    #[serde(default)]
    pub token_scopes: Option<String>,
    pub last_id: u64,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct RepoRecord {
    pub id: u64,
    pub owner: String,
    pub name: String,
    /// `owner/name` before the repository was renamed.
    pub former_name: Option<String>,
    pub default_branch: String,
    #[serde(rename = "at")]
    pub created_at: i64,
    pub secrets: BTreeMap<String, String>,
    pub variables: BTreeMap<String, String>,
    /// Role by login: `read`, `triage`, `write`, `maintain`, `admin`.
    #[serde(rename = "people")]
    pub collaborators: BTreeMap<String, String>,
    pub pulls: Vec<PullRecord>,
    pub issues: Vec<IssueRecord>,
    pub labels: Vec<LabelRecord>,
    /// `public`, `internal`, or empty for a private repository.
    #[serde(rename = "visibility")]
    pub open_visibility: String,
    pub issues_disabled: bool,
    pub comments: Vec<CommentRecord>,
    pub reviews: Vec<ReviewRecord>,
    pub threads: Vec<ReviewThreadRecord>,
    pub runs: Vec<RunRecord>,
    pub checks: Vec<CheckRecord>,
    /// Whether pushes and pull requests start workflow runs.
    pub has_checks: bool,
    /// Head commits by branch whose runs were started.
    pub checked_heads: BTreeMap<String, String>,
    /// Head commits by pull request whose runs were started.
    pub checked_pulls: BTreeMap<u64, String>,
    /// Names of the checks that the default branch requires.
    pub required_checks: BTreeSet<String>,
    /// Status with which every request for a rerun is refused.
    pub rerun_error: Option<u16>,
    /// Whether workflows may open pull requests. Off in a new repository, as on GitHub.
    #[serde(rename = "actions_open_pulls")]
    pub actions_can_open_pulls: bool,
    /// Whether the rules of the default branch want branches that are up to date with it.
    pub wants_up_to_date: bool,
    /// Number of reads after each change of a head or base for which it is unknown whether a pull request can be
    /// merged.
    pub unknown_reads: u32,
    /// Status and message with which every dispatch is rejected.
    #[serde(rename = "refuses_dispatches")]
    pub dispatch_error: Option<(u16, String)>,
    /// Whether auto-merge is allowed. Off in a new repository, as on GitHub.
    pub allows_auto_merge: bool,
    /// Methods of merging that are not allowed.
    pub denied_merge_methods: BTreeSet<String>,
    /// Protection of the default branch.
    pub protection: Option<BranchProtection>,
    pub last_number: u64,
}

/// Protection of the default branch.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct BranchProtection {
    /// Names of checks that must succeed.
    pub required_checks: Vec<String>,
    /// Number of approvals of people with write permission.
    pub required_reviews: usize,
    /// Whether merges must go through the merge queue.
    pub has_merge_queue: bool,
}

/// Armed auto-merge of a pull request.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct AutoMerge {
    /// Method, in lower case.
    pub method: String,
    pub enabled_by: String,
}

#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct PullRecord {
    pub id: u64,
    pub number: u64,
    pub title: String,
    pub body: String,
    pub head: String,
    /// Owner of the fork that contains the head branch.
    #[serde(rename = "fork", default)]
    pub fork_owner: Option<String>,
    pub base: String,
    /// Head commit as last read from git. If the branch exists, git is authoritative.
    pub head_sha: String,
    pub author: String,
    pub open: bool,
    pub draft: bool,
    pub merged: Option<Merge>,
    /// Head and base for which it was read whether the pull request can be merged, with the number of reads.
    #[serde(default)]
    pub mergeability: (String, u32),
    #[serde(default)]
    pub auto_merge: Option<AutoMerge>,
    /// Account that added it to the merge queue, while it is there.
    #[serde(default)]
    pub queued_by: Option<String>,
    #[serde(rename = "at")]
    pub created_at: i64,
    #[serde(rename = "updated")]
    pub updated_at: i64,
    #[serde(rename = "closed")]
    pub closed_at: Option<i64>,
}

impl PullRecord {
    /// Returns the head as `owner:branch`, in a repository of this owner.
    pub(crate) fn label(&self, owner: &str) -> String {
        format!(
            "{}:{}",
            self.fork_owner.as_deref().unwrap_or(owner),
            self.head
        )
    }

    /// Closes it, merged or not. A closed pull request is neither armed nor in the merge queue, also after it is opened
    /// again.
    pub(crate) fn close(&mut self, now: i64) {
        self.open = false;
        self.auto_merge = None;
        self.queued_by = None;
        self.closed_at = Some(now);
    }
}

#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Merge {
    pub sha: String,
    #[serde(rename = "at")]
    pub merged_at: i64,
    #[serde(default)]
    pub by: String,
}

#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct IssueRecord {
    pub id: u64,
    pub number: u64,
    pub title: String,
    pub body: String,
    pub author: String,
    pub open: bool,
    /// Reason of the last change of the state, in upper case.
    pub state_reason: Option<String>,
    pub labels: Vec<String>,
    pub label_events: Vec<LabelEventRecord>,
    /// Changes of labels, oldest first.
    pub history: Vec<IssueLabelChange>,
    /// Ids of blocking issues.
    pub blocked_by: Vec<u64>,
    /// Id of the parent.
    pub parent: Option<u64>,
    pub created_at: i64,
    pub updated_at: i64,
}

impl IssueRecord {
    pub(crate) fn has_label(&self, name: &str) -> bool {
        let mut labels = self.labels.iter();
        labels.any(|label| label.eq_ignore_ascii_case(name))
    }
}

/// Event of a timeline: a label was set.
#[derive(Clone, Default, Serialize, Deserialize)]
pub(crate) struct LabelEventRecord {
    pub id: u64,
    pub actor: String,
    pub label: String,
    pub at_ms: i64,
}

/// Change of a label of an issue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IssueLabelChange {
    /// Label name.
    pub label: String,
    /// Whether the label was added; otherwise it was removed.
    pub added: bool,
    /// Login of the account that changed it.
    pub actor: String,
    /// Time in milliseconds since the epoch.
    pub at_ms: i64,
}

#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct LabelRecord {
    pub id: u64,
    pub name: String,
    pub color: String,
    pub description: String,
}

impl LabelRecord {
    /// Names of labels differ in more than case.
    pub(crate) fn is_named(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name)
    }
}

#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct CommentRecord {
    pub id: u64,
    pub number: u64,
    pub author: String,
    pub body: String,
    #[serde(rename = "at")]
    pub created_at: i64,
    #[serde(rename = "updated")]
    pub updated_at: i64,
}

#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct ReviewRecord {
    pub id: u64,
    pub number: u64,
    pub author: String,
    /// State in upper case, as in the REST API.
    pub state: String,
    pub body: String,
    pub sha: String,
    #[serde(rename = "at")]
    pub submitted_at: i64,
}

/// Review thread, stored as its first comment.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct ReviewThreadRecord {
    pub id: u64,
    pub number: u64,
    pub author: String,
    pub path: String,
    pub line: u64,
    pub body: String,
    pub resolved: bool,
    /// Whether the file has changed since.
    pub outdated: bool,
    #[serde(rename = "at", default)]
    pub created_at: i64,
}

/// Check run or commit status of an App.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct CheckRecord {
    pub id: u64,
    pub sha: String,
    pub name: String,
    pub app: String,
    #[serde(rename = "means", default)]
    pub kind: CheckKind,
    pub status: String,
    pub conclusion: Option<String>,
    pub summary: String,
    #[serde(default)]
    pub text: String,
    #[serde(rename = "at")]
    pub created_at: i64,
    #[serde(default)]
    pub details_url: Option<String>,
    #[serde(default)]
    pub suite: Option<u64>,
}

/// Kind of a check that an App reports on a commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum CheckKind {
    #[default]
    /// Check run.
    CheckRun,
    /// Commit status.
    CommitStatus,
}

/// Workflow run. Its files are in the runs folder under its ID.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct RunRecord {
    pub id: u64,
    pub number: u64,
    /// Event that started the run.
    #[serde(default = "dispatch_event")]
    pub event: String,
    pub workflow: String,
    pub workflow_name: String,
    pub title: String,
    pub branch: String,
    pub sha: String,
    pub actor: String,
    /// Inputs as sent; defaults are added when the job starts.
    pub inputs: Map<String, Value>,
    pub status: RunStatus,
    pub conclusion: Option<String>,
    pub attempt: u64,
    #[serde(rename = "at")]
    pub created_at: i64,
    #[serde(rename = "updated")]
    pub updated_at: i64,
    /// Earliest start of the job, in milliseconds since the epoch.
    #[serde(rename = "due")]
    pub start_at: i64,
    /// Time from which listings contain the run, in milliseconds since the epoch.
    #[serde(rename = "listed")]
    pub listed_from: i64,
    #[serde(rename = "started")]
    pub started_at: Option<i64>,
    pub timeout_ms: i64,
    #[serde(default)]
    pub runner_labels: Vec<String>,
    #[serde(rename = "cancelled")]
    pub cancel_requested_at: Option<i64>,
}

fn dispatch_event() -> String {
    DISPATCH.to_owned()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RunStatus {
    Queued,
    InProgress,
    Completed,
}

impl RunStatus {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::InProgress => "in_progress",
            Self::Completed => "completed",
        }
    }
}

/// Installation token, job token or personal token.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct IssuedToken {
    pub login: String,
    /// Full names; `None` means every repository of the owner.
    pub repos: Option<Vec<String>>,
    pub owner: Option<String>,
    /// Permissions and their levels; `None` means every permission.
    pub permissions: Option<BTreeMap<String, String>>,
    #[serde(rename = "expires")]
    pub expires_at: Option<i64>,
    /// Run of a job token, which expires with its run.
    #[serde(rename = "run")]
    pub run_id: Option<u64>,
}

impl Model {
    pub(crate) fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        1_000_000 + self.last_id
    }

    pub(crate) fn find_repo(&self, owner: &str, name: &str) -> Option<usize> {
        let name = format!("{owner}/{name}");
        let is_named = |repo: &RepoRecord| repo.full_name().eq_ignore_ascii_case(&name);
        // Like GitHub, which redirects requests about a former name until another repository has it.
        let was_named = |repo: &RepoRecord| repo.former_name.as_deref() == Some(&name);
        let mut repos = self.repos.iter();
        repos
            .position(is_named)
            .or_else(|| self.repos.iter().position(was_named))
    }

    /// Returns the repository. Creates it if it does not exist.
    pub(crate) fn ensure_repo(&mut self, owner: &str, name: &str) -> &mut RepoRecord {
        let at = match self.find_repo(owner, name) {
            Some(at) => at,
            None => {
                let id = self.next_id();
                self.repos.push(RepoRecord {
                    id,
                    owner: owner.to_owned(),
                    name: name.to_owned(),
                    default_branch: "main".into(),
                    created_at: clock::now_ms(),
                    ..RepoRecord::default()
                });
                if !self.owners.iter().any(|existing| existing == owner) {
                    self.owners.push(owner.to_owned());
                }
                self.repos.len() - 1
            }
        };
        &mut self.repos[at]
    }

    /// Owners on whose account the App is installed.
    pub(crate) fn installed_on(&self) -> &[String] {
        match self.is_app_uninstalled {
            true => &[],
            false => &self.owners,
        }
    }

    pub(crate) fn installation_id(&self, owner: &str) -> Option<u64> {
        let at = self
            .installed_on()
            .iter()
            .position(|existing| existing.eq_ignore_ascii_case(owner))?;
        Some(5_000 + at as u64)
    }

    pub(crate) fn installation_owner(&self, id: u64) -> Option<&str> {
        let at = usize::try_from(id.checked_sub(5_000)?).ok()?;
        self.installed_on().get(at).map(String::as_str)
    }
}

impl RepoRecord {
    pub(crate) fn full_name(&self) -> String {
        format!("{}/{}", self.owner, self.name)
    }

    pub(crate) fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    pub(crate) fn pull(&self, number: u64) -> Option<&PullRecord> {
        self.pulls.iter().find(|pull| pull.number == number)
    }

    pub(crate) fn issue(&self, number: u64) -> Option<&IssueRecord> {
        self.issues.iter().find(|issue| issue.number == number)
    }

    pub(crate) fn issue_mut(&mut self, number: u64) -> Option<&mut IssueRecord> {
        self.issues.iter_mut().find(|issue| issue.number == number)
    }

    pub(crate) fn visibility(&self) -> &str {
        match self.open_visibility.as_str() {
            "" => "private",
            open => open,
        }
    }

    /// Updates a pull request's `updated_at`.
    pub(crate) fn mark_pull_updated(&mut self, number: u64) {
        let pulls = self.pulls.iter_mut();
        for pull in pulls.filter(|pull| pull.number == number) {
            pull.updated_at = clock::now_ms();
        }
    }

    pub(crate) fn run_mut(&mut self, id: u64) -> Option<&mut RunRecord> {
        self.runs.iter_mut().find(|run| run.id == id)
    }
}
