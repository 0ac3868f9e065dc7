//! What the repository host remembers, except what git itself remembers in the bare repositories.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::clock;

#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Model {
    /// Owners in the order they appeared; an installation's id follows from the place.
    pub owners: Vec<String>,
    pub repos: Vec<RepoRecord>,
    pub tokens: BTreeMap<String, IssuedToken>,
    /// Permissions that the App asks for and was not given.
    #[serde(rename = "withheld")]
    pub denied_permissions: BTreeSet<String>,
    /// The scopes of the plain token, as the host lists those of a classic one.
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
    pub default_branch: String,
    #[serde(rename = "at")]
    pub created_at: i64,
    pub secrets: BTreeMap<String, String>,
    pub variables: BTreeMap<String, String>,
    /// Role by login: `read`, `triage`, `write`, `maintain`, `admin`.
    #[serde(rename = "people")]
    pub collaborators: BTreeMap<String, String>,
    pub pulls: Vec<PullRecord>,
    pub comments: Vec<CommentRecord>,
    pub reviews: Vec<ReviewRecord>,
    pub threads: Vec<ReviewThreadRecord>,
    pub runs: Vec<RunRecord>,
    pub checks: Vec<CheckRecord>,
    /// Off in a new repository, as at the host.
    #[serde(rename = "actions_open_pulls")]
    pub actions_can_open_pulls: bool,
    /// Status and message that every dispatch is answered with.
    #[serde(rename = "refuses_dispatches")]
    pub dispatch_error: Option<(u16, String)>,
    pub last_number: u64,
}

#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct PullRecord {
    pub id: u64,
    pub number: u64,
    pub title: String,
    pub body: String,
    pub head: String,
    /// Owner of the fork that the branch is in.
    #[serde(rename = "fork", default)]
    pub fork_owner: Option<String>,
    pub base: String,
    /// Head commit as last seen; the branch itself decides while it exists.
    pub head_sha: String,
    pub author: String,
    pub open: bool,
    pub draft: bool,
    pub merged: Option<Merge>,
    #[serde(rename = "at")]
    pub created_at: i64,
    #[serde(rename = "updated")]
    pub updated_at: i64,
    #[serde(rename = "closed")]
    pub closed_at: Option<i64>,
}

impl PullRecord {
    /// Its branch as the host writes it, in a repository of this owner.
    pub fn label(&self, owner: &str) -> String {
        format!(
            "{}:{}",
            self.fork_owner.as_deref().unwrap_or(owner),
            self.head
        )
    }
}

#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Merge {
    pub sha: String,
    #[serde(rename = "at")]
    pub created_at: i64,
}

#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct CommentRecord {
    pub id: u64,
    pub number: u64,
    pub author: String,
    pub body: String,
    #[serde(rename = "at")]
    pub submitted_at: i64,
    #[serde(rename = "updated")]
    pub updated_at: i64,
}

#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct ReviewRecord {
    pub id: u64,
    pub number: u64,
    pub author: String,
    /// Upper case, as REST has it.
    pub state: String,
    pub body: String,
    pub sha: String,
    #[serde(rename = "at")]
    pub created_at: i64,
}

/// A conversation at a line, by what it began with.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct ReviewThreadRecord {
    pub id: u64,
    pub number: u64,
    pub author: String,
    pub path: String,
    pub line: u64,
    pub body: String,
    pub resolved: bool,
    /// The line has changed since.
    pub outdated: bool,
    #[serde(rename = "at", default)]
    pub created_at: i64,
}

/// A check run or, with an empty app, a commit status.
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
}

/// By what means an App says something about a commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum CheckKind {
    #[default]
    CheckRun,
    CommitStatus,
}

/// One workflow run. Its files stand in the runs folder under its id.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct RunRecord {
    pub id: u64,
    pub number: u64,
    pub workflow: String,
    pub workflow_name: String,
    pub title: String,
    pub branch: String,
    pub sha: String,
    pub actor: String,
    /// As sent; declared defaults are filled in when the job starts.
    pub inputs: Map<String, Value>,
    pub status: RunStatus,
    pub conclusion: Option<String>,
    pub attempt: u64,
    #[serde(rename = "at")]
    pub at: i64,
    #[serde(rename = "updated")]
    pub updated_at: i64,
    /// The job does not start before.
    #[serde(rename = "due")]
    pub start_at: i64,
    /// Listings do not show the run before.
    #[serde(rename = "listed")]
    pub listed_from: i64,
    #[serde(rename = "started")]
    pub started_at: Option<i64>,
    pub timeout_ms: i64,
    #[serde(rename = "cancelled")]
    pub cancel_requested_at: Option<i64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RunStatus {
    Queued,
    InProgress,
    Completed,
}

impl RunStatus {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::InProgress => "in_progress",
            Self::Completed => "completed",
        }
    }
}

/// An installation token, a job's token, or a person's.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct IssuedToken {
    pub login: String,
    /// Full names; `None` is every repository of the owner.
    pub repos: Option<Vec<String>>,
    pub owner: Option<String>,
    /// `None` may do everything.
    pub permissions: Option<BTreeMap<String, String>>,
    #[serde(rename = "expires")]
    pub expires_at: Option<i64>,
    /// A job's token ends with its run.
    #[serde(rename = "run")]
    pub run_id: Option<u64>,
}

impl Model {
    pub fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        1_000_000 + self.last_id
    }

    pub fn find_repo(&self, owner: &str, name: &str) -> Option<usize> {
        self.repos.iter().position(|repo| {
            repo.owner.eq_ignore_ascii_case(owner) && repo.name.eq_ignore_ascii_case(name)
        })
    }

    /// The repository, made when it is new.
    pub fn ensure_repo(&mut self, owner: &str, name: &str) -> &mut RepoRecord {
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
                if !self.owners.iter().any(|known| known == owner) {
                    self.owners.push(owner.to_owned());
                }
                self.repos.len() - 1
            }
        };
        &mut self.repos[at]
    }

    pub fn installation_id(&self, owner: &str) -> Option<u64> {
        let at = self
            .owners
            .iter()
            .position(|known| known.eq_ignore_ascii_case(owner))?;
        Some(5_000 + at as u64)
    }

    pub fn installation_owner(&self, id: u64) -> Option<&str> {
        let at = usize::try_from(id.checked_sub(5_000)?).ok()?;
        self.owners.get(at).map(String::as_str)
    }
}

impl RepoRecord {
    pub fn full_name(&self) -> String {
        format!("{}/{}", self.owner, self.name)
    }

    pub fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    pub fn pull(&self, number: u64) -> Option<&PullRecord> {
        self.pulls.iter().find(|pull| pull.number == number)
    }

    /// Something was said on a pull request.
    pub fn mark_pull_updated(&mut self, number: u64) {
        let pulls = self.pulls.iter_mut();
        for pull in pulls.filter(|pull| pull.number == number) {
            pull.updated_at = clock::now_ms();
        }
    }

    pub fn run_mut(&mut self, id: u64) -> Option<&mut RunRecord> {
        self.runs.iter_mut().find(|run| run.id == id)
    }
}
