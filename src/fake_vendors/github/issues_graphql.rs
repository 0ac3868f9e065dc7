//! Issues in the GraphQL API: lists by label, dependencies, sub-issues, and who set a label.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::graphql::{Node, Session, failure};
use super::model::{IssueRecord, LabelEventRecord, LabelRecord, Model, RepoRecord};
use super::rest::RepoPath;
use crate::clock::iso_seconds as iso;
use crate::graphql::{FieldError, Resolved};

/// Issue with its repository.
pub(super) struct IssueView {
    owner: String,
    repo: String,
    record: IssueRecord,
}

impl IssueView {
    fn of(repo: &RepoRecord, record: &IssueRecord) -> Arc<Self> {
        Arc::new(Self {
            owner: repo.owner.clone(),
            repo: repo.name.clone(),
            record: record.clone(),
        })
    }

    /// Connections sort in descending order; negated values list the oldest first.
    pub(super) fn sort_key(&self) -> (i64, i64) {
        let id = i64::try_from(self.record.id).unwrap_or(0);
        (-self.record.created_at, -id)
    }
}

fn find(model: &Model, id: u64) -> Option<Arc<IssueView>> {
    model.repos.iter().find_map(|repo| {
        let record = repo.issues.iter().find(|issue| issue.id == id)?;
        Some(IssueView::of(repo, record))
    })
}

impl Session<'_, '_> {
    fn may_read_issues(&self, owner: &str, name: &str) -> bool {
        let repo_path = RepoPath { owner, name };
        self.call
            .require_permission(&repo_path, "issues", "read")
            .is_ok()
    }

    pub(super) fn issue_by_node_id(&self, node_id: &str) -> Option<Arc<IssueView>> {
        let id = node_id.strip_prefix("I_")?.parse().ok()?;
        let issue = self.call.host.model.read(|model| find(model, id))?;
        self.may_read_issues(&issue.owner, &issue.repo)
            .then_some(issue)
    }

    pub(super) fn issue_tracker_field(
        &self,
        repo_path: &RepoPath<'_>,
        name: &str,
        args: &Map<String, Value>,
    ) -> Result<Resolved<Node>, FieldError> {
        let forbidden = || {
            failure(
                "FORBIDDEN",
                "Resource not accessible by integration".to_owned(),
            )
        };
        let missing = |what: String| failure("NOT_FOUND", format!("Could not resolve to {what}."));
        let gone = || missing("a Repository".to_owned());
        if !matches!(name, "visibility" | "hasIssuesEnabled")
            && !self.may_read_issues(repo_path.owner, repo_path.name)
        {
            return Err(forbidden());
        }
        let read = self.call.read_repo(repo_path, |repo| match name {
            "visibility" => Ok(Resolved::Leaf(json!(repo.visibility().to_uppercase()))),
            "hasIssuesEnabled" => Ok(Resolved::Leaf(json!(!repo.issues_disabled))),
            "issues" => Ok(Resolved::Connection(list(repo, args))),
            "label" => {
                let wanted = args.get("name").and_then(Value::as_str).unwrap_or_default();
                let label = repo.labels.iter().find(|label| label.is_named(wanted));
                Ok(label.map_or(Resolved::Null, |label| {
                    Resolved::Node(Node::Label(label.clone()))
                }))
            }
            _ => {
                let number = args.get("number").and_then(Value::as_u64).unwrap_or(0);
                let issue = repo.issue(number);
                let issue = issue
                    .ok_or_else(|| missing(format!("an Issue with the number of {number}")))?;
                Ok(Resolved::Node(Node::Issue(IssueView::of(repo, issue))))
            }
        });
        read.map_err(|_| gone())?
    }

    pub(super) fn issue_field(
        &self,
        issue: &Arc<IssueView>,
        name: &str,
        args: &Map<String, Value>,
    ) -> Result<Resolved<Node>, FieldError> {
        let record = &issue.record;
        let server = &self.call.host.server_url;
        Ok(match name {
            "id" => Resolved::Leaf(json!(format!("I_{}", record.id))),
            "number" => Resolved::Leaf(json!(record.number)),
            "title" => Resolved::Leaf(json!(record.title)),
            "body" => Resolved::Leaf(json!(record.body)),
            "state" => Resolved::Leaf(json!(if record.open { "OPEN" } else { "CLOSED" })),
            "stateReason" => Resolved::Leaf(json!(record.state_reason)),
            "createdAt" => Resolved::Leaf(json!(iso(record.created_at))),
            "updatedAt" => Resolved::Leaf(json!(iso(record.updated_at))),
            "url" => Resolved::Leaf(json!(format!(
                "{server}/{}/{}/issues/{}",
                issue.owner, issue.repo, record.number
            ))),
            "repository" => Resolved::Node(Node::Repo(issue.owner.clone(), issue.repo.clone())),
            "author" => Resolved::Node(Node::Actor(record.author.clone())),
            "parent" => {
                let parent = record.parent.and_then(|id| self.visible(id));
                parent.map_or(Resolved::Null, |parent| Resolved::Node(Node::Issue(parent)))
            }
            "labels" => Resolved::Connection(self.labels(issue)),
            "blockedBy" => {
                let blockers = record.blocked_by.iter();
                let visible = blockers.filter_map(|id| self.visible(*id));
                Resolved::Connection(visible.map(Node::Issue).collect())
            }
            "subIssues" => {
                let children = self.call.host.model.read(|model| {
                    let all = model.repos.iter().flat_map(|repo| {
                        let own = repo.issues.iter();
                        let own = own.filter(|child| child.parent == Some(record.id));
                        own.map(|child| IssueView::of(repo, child))
                    });
                    all.collect::<Vec<_>>()
                });
                Resolved::Connection(children.into_iter().map(Node::Issue).collect())
            }
            "comments" => {
                let repo_path = RepoPath {
                    owner: &issue.owner,
                    name: &issue.repo,
                };
                let comments = self.call.read_repo(&repo_path, |repo| {
                    let comments = repo.comments.iter();
                    let comments = comments.filter(|comment| comment.number == record.number);
                    comments
                        .map(|comment| Node::Comment(Box::new(comment.clone())))
                        .collect()
                });
                Resolved::Connection(comments.unwrap_or_default())
            }
            "issueDependenciesSummary" => Resolved::Node(Node::DependencySummary(issue.clone())),
            _ => {
                let kinds = args.get("itemTypes").and_then(Value::as_array);
                let is_wanted = kinds.is_none_or(|kinds| kinds.contains(&json!("LABELED_EVENT")));
                let events = record.label_events.iter().filter(|_| is_wanted);
                Resolved::Connection(events.cloned().map(Node::LabelEvent).collect())
            }
        })
    }

    pub(super) fn dependency_count(&self, issue: &IssueView, name: &str) -> Value {
        let blockers = issue.record.blocked_by.iter();
        let open = blockers
            .filter(|id| {
                self.visible(**id)
                    .is_some_and(|blocker| blocker.record.open)
            })
            .count();
        match name {
            "blockedBy" => json!(open),
            "totalBlockedBy" => json!(issue.record.blocked_by.len()),
            _ => json!(0),
        }
    }

    fn visible(&self, id: u64) -> Option<Arc<IssueView>> {
        self.issue_by_node_id(&format!("I_{id}"))
    }

    fn labels(&self, issue: &IssueView) -> Vec<Node> {
        let names = issue.record.labels.iter();
        names
            .map(|name| {
                Node::Label(LabelRecord {
                    name: name.clone(),
                    ..LabelRecord::default()
                })
            })
            .collect()
    }
}

/// Lists the issues of a repository with any of the labels and any of the states.
fn list(repo: &RepoRecord, args: &Map<String, Value>) -> Vec<Node> {
    let words = |name: &str| {
        let words = args.get(name).and_then(Value::as_array);
        words.map(|words| words.iter().filter_map(Value::as_str).collect::<Vec<_>>())
    };
    let (labels, states) = (words("labels"), words("states"));
    let has_label = |issue: &IssueRecord| {
        labels.as_ref().is_none_or(|labels| {
            let mut labels = labels.iter();
            labels.any(|label| issue.has_label(label))
        })
    };
    let has_state = |issue: &IssueRecord| {
        let state = if issue.open { "OPEN" } else { "CLOSED" };
        states.as_ref().is_none_or(|states| states.contains(&state))
    };
    let issues = repo.issues.iter();
    let issues = issues.filter(|issue| has_label(issue) && has_state(issue));
    issues
        .map(|issue| Node::Issue(IssueView::of(repo, issue)))
        .collect()
}

pub(super) fn label_event_field(event: &LabelEventRecord, name: &str) -> Resolved<Node> {
    match name {
        "actor" => Resolved::Node(Node::Actor(event.actor.clone())),
        "label" => Resolved::Node(Node::Label(LabelRecord {
            name: event.label.clone(),
            ..LabelRecord::default()
        })),
        "createdAt" => Resolved::Leaf(json!(iso(event.at_ms))),
        _ => Resolved::Leaf(json!(format!("LE_{}", event.id))),
    }
}
