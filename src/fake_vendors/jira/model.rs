//! Stored state of the fake Jira.
//!
//! Rows refer to each other by position and are marked as deleted instead of being removed. A lower
//! position means an older row.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::author::FakeAuthor;
use crate::clock;

/// Select field that every project starts with, as an operator would create it: status.
pub(crate) const STATUS_FIELD: &str = "Agent-Implement Status";
/// Select field that every project starts with: repository.
pub(crate) const REPO_FIELD: &str = "Agent-Implement Repo";

/// Options of the status field.
const STATUS_OPTIONS: [&str; 9] = [
    "Ready",
    "Planning",
    "Plan Ready",
    "Plan Approved",
    "Needs Input",
    "Planning Failed",
    "Implementing",
    "PR Ready",
    "Implementation Failed",
];

/// Workflow statuses: ID, name, category.
pub(crate) const STATUSES: [(&str, &str, &str); 3] = [
    ("10000", "To Do", "new"),
    ("10001", "In Progress", "indeterminate"),
    ("10002", "Done", "done"),
];

/// Priorities, most urgent first. IDs are positions counted from 1.
pub(crate) const PRIORITIES: [&str; 5] = ["Highest", "High", "Medium", "Low", "Lowest"];

#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Model {
    pub projects: Vec<Project>,
    pub fields: Vec<CustomField>,
    pub issues: Vec<Issue>,
    pub comments: Vec<Comment>,
    pub links: Vec<IssueLink>,
    pub remote_links: Vec<RemoteLink>,
    /// Changed issues whose webhooks are not yet queued.
    #[serde(skip)]
    pub changed_issues: BTreeSet<usize>,
    /// Ids of changed comments whose webhooks are not yet queued, with the event.
    #[serde(skip)]
    pub changed_comments: Vec<(u64, &'static str)>,
    pub attachments: Vec<Attachment>,
    /// Accounts that may read issues and not edit them.
    pub readers: BTreeSet<String>,
    last_id: u64,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct Project {
    pub id: u64,
    pub key: String,
    pub name: String,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct CustomField {
    pub number: u64,
    pub name: String,
    pub options: Vec<FieldOption>,
    #[serde(default)]
    pub is_on_default_screen: bool,
}

/// Select field as an administrator sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SelectFieldSnapshot {
    /// Name.
    pub name: String,
    /// Options in their order.
    pub options: Vec<String>,
    /// Whether the field is on the default screen.
    pub is_on_default_screen: bool,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct FieldOption {
    pub id: u64,
    pub value: String,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct Issue {
    pub id: u64,
    pub project: usize,
    pub number: u64,
    pub summary: String,
    pub description: Option<Value>,
    /// Position in [`STATUSES`].
    pub status: usize,
    pub priority: Option<String>,
    pub labels: Vec<String>,
    /// Values of select fields, by field number.
    pub fields: BTreeMap<u64, String>,
    /// Values of select fields in the search index.
    #[serde(rename = "indexed")]
    pub indexed_fields: BTreeMap<u64, String>,
    pub parent: Option<usize>,
    #[serde(rename = "at")]
    pub created_at: i64,
    #[serde(rename = "updated")]
    pub updated_at: i64,
    pub deleted: bool,
    pub history: Vec<FieldHistoryEntry>,
}

/// Change of a select field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FieldHistoryEntry {
    /// Name of the field.
    pub field: String,
    /// New value; `None` if it was cleared.
    pub value: Option<String>,
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
    pub id: u64,
    pub issue: usize,
    pub body: Value,
    pub properties: Vec<Value>,
    pub by_api: bool,
    #[serde(default)]
    pub author: FakeAuthor,
    #[serde(rename = "at")]
    pub created_at: i64,
    #[serde(default)]
    pub updated_at: i64,
}

/// File on an issue. Its content is kept by the upload host under `path`.
#[derive(Serialize, Deserialize)]
pub(crate) struct Attachment {
    pub id: u64,
    pub issue: usize,
    pub filename: String,
    pub size: u64,
    pub path: String,
}

/// Link of type "Blocks".
#[derive(Serialize, Deserialize)]
pub(crate) struct IssueLink {
    pub id: u64,
    pub blocker: usize,
    pub blocked: usize,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct RemoteLink {
    pub id: u64,
    pub issue: usize,
    pub global_id: Option<String>,
    pub title: String,
    pub url: String,
}

impl CustomField {
    pub(super) fn id(&self) -> String {
        format!("customfield_{}", self.number)
    }

    pub(super) fn option(&self, value: &str) -> Option<&FieldOption> {
        self.options.iter().find(|option| option.value == value)
    }
}

impl Model {
    /// Returns a new ID, unique across all kinds of rows.
    pub(super) fn next_id(&mut self) -> u64 {
        self.last_id = self.last_id.max(10_049) + 1;
        self.last_id
    }

    /// Returns the project with this key. Creates it with the two select fields if it does not exist.
    pub(super) fn ensure_project(&mut self, key: &str, name: &str) -> usize {
        if let Some(at) = self.projects.iter().position(|project| project.key == key) {
            return at;
        }
        let id = self.next_id();
        self.projects.push(Project {
            id,
            key: key.to_owned(),
            name: name.to_owned(),
        });
        self.ensure_field(STATUS_FIELD, &STATUS_OPTIONS);
        self.ensure_field(REPO_FIELD, &[]);
        self.projects.len() - 1
    }

    /// Returns the field with this name. Creates the field and missing options.
    pub(super) fn ensure_field(&mut self, name: &str, options: &[&str]) -> usize {
        let existing = self.fields.iter().position(|field| field.name == name);
        let at = existing.unwrap_or_else(|| self.add_field(name));
        for value in options {
            if self.fields[at].option(value).is_none() {
                let option = FieldOption {
                    id: self.next_id(),
                    value: (*value).to_owned(),
                };
                self.fields[at].options.push(option);
            }
        }
        at
    }

    /// Adds a field without options.
    pub(super) fn add_field(&mut self, name: &str) -> usize {
        let number = self.next_id();
        self.fields.push(CustomField {
            number,
            name: name.to_owned(),
            options: Vec::new(),
            is_on_default_screen: false,
        });
        self.fields.len() - 1
    }

    /// Finds a field by `customfield_N` or by name.
    pub(super) fn find_field(&self, id_or_name: &str) -> Option<usize> {
        self.fields
            .iter()
            .position(|field| field.id() == id_or_name || field.name == id_or_name)
    }

    pub(super) fn issue_key(&self, issue: usize) -> String {
        let issue = &self.issues[issue];
        format!("{}-{}", self.projects[issue.project].key, issue.number)
    }

    /// Finds an issue by ID or key, unless it is deleted.
    pub(super) fn find_issue(&self, id_or_key: &str) -> Option<usize> {
        let positions = || 0..self.issues.len();
        positions().find(|at| {
            let issue = &self.issues[*at];
            let is_named = issue.id.to_string() == id_or_key
                || self.issue_key(*at).eq_ignore_ascii_case(id_or_key);
            is_named && !issue.deleted
        })
    }

    /// Adds an issue with this number, or with the project's next number.
    pub(super) fn add_issue(
        &mut self,
        project: usize,
        number: Option<u64>,
        summary: &str,
    ) -> usize {
        let of_project = self.issues.iter().filter(|issue| issue.project == project);
        let last = of_project.map(|issue| issue.number).max().unwrap_or(0);
        let (id, now) = (self.next_id(), clock::now_ms());
        self.issues.push(Issue {
            id,
            project,
            number: number.unwrap_or(last + 1),
            summary: summary.to_owned(),
            description: None,
            status: 0,
            priority: Some("Medium".into()),
            labels: Vec::new(),
            fields: BTreeMap::new(),
            indexed_fields: BTreeMap::new(),
            parent: None,
            created_at: now,
            updated_at: now,
            deleted: false,
            history: Vec::new(),
        });
        self.issues.len() - 1
    }

    /// Sets or clears a select field. A call without effect adds no history.
    pub(super) fn set_field(
        &mut self,
        issue: usize,
        field: usize,
        value: Option<&str>,
        by: &ChangeSource,
    ) {
        let (number, name) = (self.fields[field].number, self.fields[field].name.clone());
        if self.issues[issue].fields.get(&number).map(String::as_str) == value {
            return;
        }
        self.changed_issues.insert(issue);
        let issue = &mut self.issues[issue];
        match value {
            Some(value) => issue.fields.insert(number, value.to_owned()),
            None => issue.fields.remove(&number),
        };
        issue.updated_at = clock::now_ms();
        issue.history.push(FieldHistoryEntry {
            field: name,
            value: value.map(str::to_owned),
            by_api: !matches!(by, ChangeSource::Person(_)),
            author: by.author(),
            at_ms: issue.updated_at,
        });
        if *by != ChangeSource::ApiWithIndexLag {
            issue.indexed_fields = issue.fields.clone();
        }
    }

    pub(super) fn add_comment(
        &mut self,
        issue: usize,
        body: Value,
        properties: Vec<Value>,
        author: &FakeAuthor,
    ) -> usize {
        let (id, now) = (self.next_id(), clock::now_ms());
        self.issues[issue].updated_at = now;
        self.changed_comments.push((id, "comment_created"));
        self.comments.push(Comment {
            id,
            issue,
            body,
            properties,
            by_api: author.is_service(),
            author: author.clone(),
            created_at: now,
            updated_at: now,
        });
        self.comments.len() - 1
    }

    pub(super) fn edit_comment(&mut self, comment: usize, body: Value) {
        let row = &mut self.comments[comment];
        row.body = body;
        row.updated_at = clock::now_ms();
        self.issues[row.issue].updated_at = row.updated_at;
        self.changed_comments.push((row.id, "comment_updated"));
    }

    /// Adds a link of type "Blocks" if it does not exist.
    pub(super) fn add_blocking_link(&mut self, blocker: usize, blocked: usize) {
        let is_same = |link: &IssueLink| link.blocker == blocker && link.blocked == blocked;
        if !self.links.iter().any(is_same) {
            let id = self.next_id();
            self.links.push(IssueLink {
                id,
                blocker,
                blocked,
            });
        }
    }
}

/// Source of a change, and whether the search index is updated with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ChangeSource {
    Person(FakeAuthor),
    Api,
    ApiWithIndexLag,
}

impl ChangeSource {
    fn author(&self) -> FakeAuthor {
        match self {
            Self::Person(author) => author.clone(),
            Self::Api | Self::ApiWithIndexLag => FakeAuthor::Service,
        }
    }
}
