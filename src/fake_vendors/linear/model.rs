//! Stored state of the fake Linear.
//!
//! Rows refer to each other by position and are marked as deleted instead of being removed, so that
//! positions in a saved file stay valid. A lower position means an older row.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::author::FakeAuthor;
use crate::clock;

#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Model {
    pub teams: Vec<Team>,
    pub states: Vec<WorkflowState>,
    pub labels: Vec<Label>,
    pub projects: Vec<Project>,
    pub issues: Vec<Issue>,
    pub comments: Vec<Comment>,
    pub relations: Vec<Relation>,
    pub attachments: Vec<Attachment>,
    /// Changed issues whose webhooks are not yet queued.
    #[serde(skip)]
    pub changed_issues: BTreeSet<usize>,
    /// Changed comments whose webhooks are not yet queued, with the action.
    #[serde(skip)]
    pub changed_comments: Vec<(usize, &'static str)>,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct Team {
    pub id: String,
    pub key: String,
    pub name: String,
    #[serde(rename = "at")]
    pub created_at: i64,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct WorkflowState {
    pub id: String,
    pub team: usize,
    pub name: String,
    pub kind: String,
    pub position: f64,
    #[serde(rename = "at")]
    pub created_at: i64,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct Label {
    pub id: String,
    pub name: String,
    pub color: String,
    pub description: Option<String>,
    pub team: Option<usize>,
    #[serde(rename = "at")]
    pub created_at: i64,
}

/// Project of a team.
#[derive(Serialize, Deserialize)]
pub(crate) struct Project {
    pub id: String,
    pub name: String,
    pub team: usize,
    #[serde(rename = "at")]
    pub created_at: i64,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct Issue {
    pub id: String,
    pub team: usize,
    pub number: u64,
    pub title: String,
    pub description: Option<String>,
    pub priority: u8,
    pub state: usize,
    pub labels: Vec<usize>,
    #[serde(default)]
    pub project: Option<usize>,
    pub parent: Option<usize>,
    #[serde(rename = "at")]
    pub created_at: i64,
    #[serde(rename = "updated")]
    pub updated_at: i64,
    #[serde(rename = "started")]
    pub started_at: Option<i64>,
    #[serde(rename = "completed")]
    pub completed_at: Option<i64>,
    #[serde(rename = "canceled")]
    pub canceled_at: Option<i64>,
    pub deleted: bool,
    pub history: Vec<LabelHistoryEntry>,
}

/// Label added to or removed from an issue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LabelHistoryEntry {
    /// Label name.
    pub label: String,
    /// Whether the label was added; otherwise it was removed.
    pub added: bool,
    /// Whether the API made the change; otherwise a person did.
    pub by_api: bool,
    /// Account that made the change.
    #[serde(default)]
    pub author: FakeAuthor,
    /// Time of the change, in milliseconds since the epoch.
    pub at_ms: i64,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct Comment {
    pub id: String,
    pub issue: usize,
    pub body: String,
    pub by_api: bool,
    #[serde(default)]
    pub author: FakeAuthor,
    #[serde(rename = "at")]
    pub created_at: i64,
    #[serde(rename = "updated")]
    pub updated_at: i64,
    #[serde(rename = "edited")]
    pub edited_at: Option<i64>,
    pub deleted: bool,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct Relation {
    pub id: String,
    pub kind: String,
    /// Blocking issue, if the kind is `blocks`.
    pub issue: usize,
    pub related: usize,
    #[serde(rename = "at")]
    pub created_at: i64,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct Attachment {
    pub id: String,
    pub issue: usize,
    pub title: String,
    pub subtitle: Option<String>,
    pub url: String,
    pub metadata: serde_json::Value,
    #[serde(rename = "at")]
    pub created_at: i64,
    #[serde(rename = "updated")]
    pub updated_at: i64,
}

/// Initial workflow states of a team: name, type.
const STATES: &[(&str, &str)] = &[
    ("Triage", "triage"),
    ("Backlog", "backlog"),
    ("Todo", "unstarted"),
    ("In Progress", "started"),
    ("In Review", "started"),
    ("Done", "completed"),
    ("Canceled", "canceled"),
    ("Duplicate", "duplicate"),
];

impl Model {
    /// Returns the team with this key. Creates it if it does not exist.
    pub(super) fn ensure_team(&mut self, key: &str, name: &str) -> usize {
        if let Some(at) = self.teams.iter().position(|team| team.key == key) {
            return at;
        }
        let now = clock::now_ms();
        self.teams.push(Team {
            id: clock::uuid(),
            key: key.to_owned(),
            name: name.to_owned(),
            created_at: now,
        });
        let team = self.teams.len() - 1;
        for (position, (name, kind)) in STATES.iter().enumerate() {
            self.states.push(WorkflowState {
                id: clock::uuid(),
                team,
                name: (*name).to_owned(),
                kind: (*kind).to_owned(),
                position: position as f64,
                created_at: now,
            });
        }
        team
    }

    /// Finds a workflow state of a team by name, else the first one of this type.
    pub(super) fn find_state(&self, team: usize, name_or_type: &str) -> Option<usize> {
        let of_team = |state: &&WorkflowState| state.team == team;
        let by_name = |state: &&WorkflowState| state.name.eq_ignore_ascii_case(name_or_type);
        let states = || self.states.iter();
        states()
            .position(|state| of_team(&state) && by_name(&state))
            .or_else(|| states().position(|state| of_team(&state) && state.kind == name_or_type))
    }

    pub(super) fn identifier(&self, issue: usize) -> String {
        let issue = &self.issues[issue];
        format!("{}-{}", self.teams[issue.team].key, issue.number)
    }

    /// Finds an issue by UUID or identifier, unless it is deleted.
    pub(super) fn find_issue(&self, id: &str) -> Option<usize> {
        let by_id = || {
            self.issues
                .iter()
                .position(|issue| !issue.deleted && issue.id == id)
        };
        let by_identifier = || {
            let (key, number) = id.rsplit_once('-')?;
            let number: u64 = number.parse().ok()?;
            self.issues.iter().position(|issue| {
                !issue.deleted
                    && issue.number == number
                    && self.teams[issue.team].key.eq_ignore_ascii_case(key)
            })
        };
        by_identifier().or_else(by_id)
    }

    /// Adds an issue with this number, or with the team's next number.
    pub(super) fn add_issue(&mut self, team: usize, number: Option<u64>, title: &str) -> usize {
        let of_team = self.issues.iter().filter(|issue| issue.team == team);
        let last = of_team.map(|issue| issue.number).max().unwrap_or(0);
        // Later than the issue before it, so that their order is known.
        let newest = self.issues.last().map_or(0, |issue| issue.created_at);
        let now = clock::now_ms();
        let state = self.find_state(team, "unstarted").unwrap_or(0);
        self.issues.push(Issue {
            id: clock::uuid(),
            team,
            number: number.unwrap_or(last + 1),
            title: title.to_owned(),
            description: None,
            priority: 0,
            state,
            labels: Vec::new(),
            project: None,
            parent: None,
            created_at: now.max(newest + 1),
            updated_at: now,
            started_at: None,
            completed_at: None,
            canceled_at: None,
            deleted: false,
            history: Vec::new(),
        });
        self.issues.len() - 1
    }

    /// Finds a label that issues of this team can have: the team's own, else the workspace's.
    pub(super) fn find_usable_label(&self, team: usize, name: &str) -> Option<usize> {
        let find = |scope: Option<usize>| {
            self.labels
                .iter()
                .position(|label| label.team == scope && label.name == name)
        };
        find(Some(team)).or_else(|| find(None))
    }

    pub(super) fn add_label(&mut self, team: Option<usize>, name: &str) -> usize {
        self.labels.push(Label {
            id: clock::uuid(),
            name: name.to_owned(),
            color: "#bec2c8".into(),
            description: None,
            team,
            created_at: clock::now_ms(),
        });
        self.labels.len() - 1
    }

    /// Returns the project of a team with this name. Creates it if it does not exist.
    pub(super) fn ensure_project(&mut self, team: usize, name: &str) -> usize {
        let is_same = |project: &Project| project.team == team && project.name == name;
        if let Some(at) = self.projects.iter().position(is_same) {
            return at;
        }
        self.projects.push(Project {
            id: clock::uuid(),
            name: name.to_owned(),
            team,
            created_at: clock::now_ms(),
        });
        self.projects.len() - 1
    }

    /// Adds or removes a label. A call without effect adds no history.
    pub(super) fn set_label(
        &mut self,
        issue: usize,
        label: usize,
        added: bool,
        author: &FakeAuthor,
    ) {
        let name = self.labels[label].name.clone();
        if self.issues[issue].labels.contains(&label) == added {
            return;
        }
        self.changed_issues.insert(issue);
        let issue = &mut self.issues[issue];
        if added {
            issue.labels.push(label);
        } else {
            issue.labels.retain(|other| *other != label);
        }
        issue.updated_at = clock::now_ms();
        issue.history.push(LabelHistoryEntry {
            label: name,
            added,
            by_api: author.is_service(),
            author: author.clone(),
            at_ms: issue.updated_at,
        });
    }

    pub(super) fn set_state(&mut self, issue: usize, state: usize) {
        let kind = self.states[state].kind.clone();
        let now = clock::now_ms();
        self.changed_issues.insert(issue);
        let issue = &mut self.issues[issue];
        issue.state = state;
        issue.updated_at = now;
        match kind.as_str() {
            "started" => issue.started_at = issue.started_at.or(Some(now)),
            "completed" => issue.completed_at = Some(now),
            "canceled" | "duplicate" => issue.canceled_at = Some(now),
            _ => {}
        }
        if !matches!(kind.as_str(), "completed" | "canceled" | "duplicate") {
            issue.completed_at = None;
            issue.canceled_at = None;
        }
    }

    /// Adds a comment. The caller has checked that the ID is unused.
    pub(super) fn add_comment(
        &mut self,
        id: String,
        issue: usize,
        body: &str,
        author: &FakeAuthor,
    ) -> usize {
        let now = clock::now_ms();
        self.comments.push(Comment {
            id,
            issue,
            body: body.to_owned(),
            by_api: author.is_service(),
            author: author.clone(),
            created_at: now,
            updated_at: now,
            edited_at: None,
            deleted: false,
        });
        self.changed_comments
            .push((self.comments.len() - 1, "create"));
        self.comments.len() - 1
    }

    /// Finds a comment by id, unless it is deleted.
    pub(super) fn find_comment(&self, id: &str) -> Option<usize> {
        let mut rows = self.comments.iter();
        rows.position(|comment| comment.id == id && !comment.deleted)
    }

    pub(super) fn edit_comment(&mut self, comment: usize, body: &str) {
        let row = &mut self.comments[comment];
        row.body = body.to_owned();
        row.updated_at = clock::now_ms();
        row.edited_at = Some(row.updated_at);
        self.changed_comments.push((comment, "update"));
    }

    pub(super) fn delete_comment(&mut self, comment: usize) {
        self.comments[comment].deleted = true;
        self.changed_comments.push((comment, "remove"));
    }

    pub(super) fn add_relation(&mut self, issue: usize, kind: &str, related: usize) -> usize {
        let existing = self.relations.iter().position(|relation| {
            relation.issue == issue && relation.related == related && relation.kind == kind
        });
        existing.unwrap_or_else(|| {
            self.relations.push(Relation {
                id: clock::uuid(),
                kind: kind.to_owned(),
                issue,
                related,
                created_at: clock::now_ms(),
            });
            self.relations.len() - 1
        })
    }
}
