//! Field values of every GraphQL type. Read-only; changes are in `mutations`.

use serde_json::{Value, json};

use super::model::Model;
use crate::author::FakeAuthor;
use crate::clock::{self, iso};
use crate::graphql::Resolved;

/// GraphQL object: a row by its position, or a part of a response.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Node {
    Query,
    Mutation,
    Organization,
    User(FakeAuthor),
    /// Program or external person, of this type.
    Actor(&'static str, FakeAuthor),
    /// Entry of the history of an issue.
    History(usize, usize),
    Team(usize),
    State(usize),
    Label(usize),
    Project(usize),
    Issue(usize),
    Comment(usize),
    Relation(usize),
    Attachment(usize),
    /// Payload of a mutation: type name and changed node.
    Payload(&'static str, Option<Box<Node>>),
    RateLimit,
    RateLimitResult,
}

pub(super) type Field = Resolved<Node>;

const ORGANIZATION: &str = "b9b1f4f2-5d8f-4c1c-9a53-6a1a2f3c0001";

impl Node {
    pub(super) fn type_name(&self) -> &'static str {
        match self {
            Self::Query => "Query",
            Self::Mutation => "Mutation",
            Self::Organization => "Organization",
            Self::User(_) => "User",
            Self::Actor(name, _) => name,
            Self::History(..) => "IssueHistory",
            Self::Team(_) => "Team",
            Self::State(_) => "WorkflowState",
            Self::Label(_) => "IssueLabel",
            Self::Project(_) => "Project",
            Self::Issue(_) => "Issue",
            Self::Comment(_) => "Comment",
            Self::Relation(_) => "IssueRelation",
            Self::Attachment(_) => "Attachment",
            Self::Payload(name, _) => name,
            Self::RateLimit => "RateLimitPayload",
            Self::RateLimitResult => "RateLimitResultPayload",
        }
    }

    /// Returns the time in the field `by` (`updatedAt` or `createdAt`), and the row.
    pub(super) fn sort_key(&self, model: &Model, by: &str) -> (i64, i64) {
        let updated = by == "updatedAt";
        let (time, row) = match *self {
            Self::Issue(at) => {
                let issue = &model.issues[at];
                (
                    if updated {
                        issue.updated_at
                    } else {
                        issue.created_at
                    },
                    at,
                )
            }
            Self::Comment(at) => {
                let comment = &model.comments[at];
                (
                    if updated {
                        comment.updated_at
                    } else {
                        comment.created_at
                    },
                    at,
                )
            }
            Self::History(issue, at) => (model.issues[issue].history[at].at_ms, at),
            Self::Attachment(at) => (model.attachments[at].created_at, at),
            Self::Relation(at) => (model.relations[at].created_at, at),
            Self::Team(at) => (model.teams[at].created_at, at),
            Self::State(at) => (model.states[at].created_at, at),
            Self::Label(at) => (model.labels[at].created_at, at),
            Self::Project(at) => (model.projects[at].created_at, at),
            _ => (0, 0),
        };
        (time, row as i64)
    }
}

/// Model with the base URL of its links.
pub(crate) struct ModelView<'a> {
    pub model: &'a Model,
    pub base_url: &'a str,
}

impl ModelView<'_> {
    /// Returns the value of a field without its arguments: a connection contains all nodes.
    pub(super) fn get(&self, node: &Node, name: &str) -> Field {
        match *node {
            Node::Team(at) => self.team(at, name),
            Node::State(at) => self.state(at, name),
            Node::Label(at) => self.label(at, name),
            Node::Project(at) => self.project(at, name),
            Node::Issue(at) => self.issue(at, name),
            Node::Comment(at) => self.comment(at, name),
            Node::Relation(at) => self.relation(at, name),
            Node::Attachment(at) => self.attachment(at, name),
            Node::User(ref author) => super::accounts::user(author, self.base_url, name),
            Node::Actor(_, ref author) => super::accounts::actor(author, name),
            Node::History(issue, at) => self.history(issue, at, name),
            Node::Organization => self.organization(name),
            Node::Payload(_, ref payload) => match name {
                "success" => leaf(true),
                "lastSyncId" => leaf(self.model.issues.len() + self.model.comments.len()),
                "entityId" => leaf(payload.as_deref().map(|node| self.id(node))),
                _ => payload
                    .clone()
                    .map_or(Resolved::Null, |node| Resolved::Node(*node)),
            },
            Node::Query => self.root_connection(name),
            Node::RateLimit => match name {
                "limits" => Resolved::Nodes(vec![Node::RateLimitResult]),
                "kind" => leaf("user"),
                _ => leaf(super::accounts::id(&FakeAuthor::Service)),
            },
            Node::RateLimitResult => match name {
                "type" => leaf("requests"),
                "reset" => leaf(clock::now_ms() + 3_600_000),
                "period" => leaf(3_600_000),
                "requestedAmount" => leaf(1),
                _ => leaf(5_000),
            },
            _ => Resolved::Null,
        }
    }

    fn id(&self, node: &Node) -> Value {
        match self.get(node, "id") {
            Resolved::Leaf(value) => value,
            _ => Value::Null,
        }
    }

    fn root_connection(&self, name: &str) -> Field {
        let model = self.model;
        Resolved::Connection(match name {
            "issues" => nodes_where(&model.issues, |issue| !issue.deleted, Node::Issue),
            "teams" => nodes_where(&model.teams, |_| true, Node::Team),
            "issueLabels" => nodes_where(&model.labels, |_| true, Node::Label),
            "workflowStates" => nodes_where(&model.states, |_| true, Node::State),
            "comments" => nodes_where(&model.comments, |comment| !comment.deleted, Node::Comment),
            _ => return Resolved::Null,
        })
    }

    fn team(&self, at: usize, name: &str) -> Field {
        let model = self.model;
        let team = &model.teams[at];
        match name {
            "id" => leaf(&team.id),
            "key" => leaf(&team.key),
            "name" | "displayName" => leaf(&team.name),
            "private" => leaf(false),
            "createdAt" | "updatedAt" => leaf(iso(team.created_at)),
            "states" => Resolved::Connection(nodes_where(
                &model.states,
                |state| state.team == at,
                Node::State,
            )),
            "labels" => Resolved::Connection(nodes_where(
                &model.labels,
                |label| label.team == Some(at),
                Node::Label,
            )),
            "projects" => Resolved::Connection(nodes_where(
                &model.projects,
                |project| project.team == at,
                Node::Project,
            )),
            "issues" => Resolved::Connection(nodes_where(
                &model.issues,
                |issue| issue.team == at && !issue.deleted,
                Node::Issue,
            )),
            _ => leaf(Value::Null),
        }
    }

    fn state(&self, at: usize, name: &str) -> Field {
        let state = &self.model.states[at];
        match name {
            "id" => leaf(&state.id),
            "name" => leaf(&state.name),
            "type" => leaf(&state.kind),
            "position" => leaf(state.position),
            "color" => leaf("#e2e2e2"),
            "team" => Resolved::Node(Node::Team(state.team)),
            "createdAt" | "updatedAt" => leaf(iso(state.created_at)),
            _ => leaf(Value::Null),
        }
    }

    fn label(&self, at: usize, name: &str) -> Field {
        let label = &self.model.labels[at];
        match name {
            "id" => leaf(&label.id),
            "name" => leaf(&label.name),
            "color" => leaf(&label.color),
            "description" => leaf(&label.description),
            "isGroup" => leaf(false),
            "team" => label
                .team
                .map_or(Resolved::Null, |team| Resolved::Node(Node::Team(team))),
            "parent" => Resolved::Null,
            "createdAt" | "updatedAt" => leaf(iso(label.created_at)),
            _ => leaf(Value::Null),
        }
    }

    fn project(&self, at: usize, name: &str) -> Field {
        let project = &self.model.projects[at];
        match name {
            "id" => leaf(&project.id),
            "name" => leaf(&project.name),
            "createdAt" | "updatedAt" => leaf(iso(project.created_at)),
            _ => leaf(Value::Null),
        }
    }

    fn issue(&self, at: usize, name: &str) -> Field {
        let model = self.model;
        let issue = &model.issues[at];
        match name {
            "id" => leaf(&issue.id),
            "identifier" => leaf(model.identifier(at)),
            "number" => leaf(issue.number),
            "title" => leaf(&issue.title),
            "description" => leaf(&issue.description),
            "url" => leaf(self.issue_url(at)),
            "priority" => leaf(issue.priority),
            "priorityLabel" => leaf(
                ["No priority", "Urgent", "High", "Medium", "Low"]
                    [usize::from(issue.priority.min(4))],
            ),
            "createdAt" => leaf(iso(issue.created_at)),
            "updatedAt" => leaf(iso(issue.updated_at)),
            "startedAt" => leaf(issue.started_at.map(iso)),
            "completedAt" => leaf(issue.completed_at.map(iso)),
            "canceledAt" => leaf(issue.canceled_at.map(iso)),
            "trashed" => leaf(Value::Null),
            "branchName" => leaf(self.branch_name(at)),
            "previousIdentifiers" => leaf(json!([])),
            "labelIds" => leaf(
                issue
                    .labels
                    .iter()
                    .map(|label| model.labels[*label].id.clone())
                    .collect::<Vec<_>>(),
            ),
            "state" => Resolved::Node(Node::State(issue.state)),
            "team" => Resolved::Node(Node::Team(issue.team)),
            "project" => issue.project.map_or(Resolved::Null, |project| {
                Resolved::Node(Node::Project(project))
            }),
            "creator" => Resolved::Node(Node::User(FakeAuthor::default())),
            "assignee" => Resolved::Null,
            "parent" => issue
                .parent
                .map_or(Resolved::Null, |parent| Resolved::Node(Node::Issue(parent))),
            "labels" => {
                Resolved::Connection(issue.labels.iter().map(|at| Node::Label(*at)).collect())
            }
            _ => self.issue_connections(at, name),
        }
    }

    fn issue_connections(&self, at: usize, name: &str) -> Field {
        let model = self.model;
        let exists = |other: usize| !model.issues[other].deleted;
        Resolved::Connection(match name {
            "children" => nodes_where(
                &model.issues,
                |issue| issue.parent == Some(at) && !issue.deleted,
                Node::Issue,
            ),
            "comments" => nodes_where(
                &model.comments,
                |comment| comment.issue == at && !comment.deleted,
                Node::Comment,
            ),
            "attachments" => nodes_where(
                &model.attachments,
                |item| item.issue == at,
                Node::Attachment,
            ),
            "relations" => nodes_where(
                &model.relations,
                |relation| relation.issue == at && exists(relation.related),
                Node::Relation,
            ),
            "inverseRelations" => nodes_where(
                &model.relations,
                |relation| relation.related == at && exists(relation.issue),
                Node::Relation,
            ),
            "history" => (0..model.issues[at].history.len())
                .map(|entry| Node::History(at, entry))
                .collect(),
            _ => return leaf(Value::Null),
        })
    }

    fn history(&self, issue: usize, at: usize, name: &str) -> Field {
        let entry = &self.model.issues[issue].history[at];
        let labels = |added: bool| match entry.added == added {
            true => {
                let is_same = |label: &super::model::Label| label.name == entry.label;
                Resolved::Nodes(nodes_where(&self.model.labels, is_same, Node::Label))
            }
            false => Resolved::Null,
        };
        match name {
            "id" => leaf(format!("history-{issue}-{at}")),
            "createdAt" | "updatedAt" => leaf(iso(entry.at_ms)),
            "actor" => super::accounts::user_of(&entry.author),
            "botActor" => super::accounts::bot_of(&entry.author),
            "addedLabels" => labels(true),
            "removedLabels" => labels(false),
            "issue" => Resolved::Node(Node::Issue(issue)),
            _ => leaf(Value::Null),
        }
    }

    pub(super) fn issue_url(&self, at: usize) -> String {
        let slug = slug(&self.model.issues[at].title);
        format!(
            "{}/issue/{}/{slug}",
            self.base_url,
            self.model.identifier(at)
        )
    }

    fn branch_name(&self, at: usize) -> String {
        let identifier = self.model.identifier(at).to_lowercase();
        format!("robin/{identifier}-{}", slug(&self.model.issues[at].title))
    }

    fn comment(&self, at: usize, name: &str) -> Field {
        let comment = &self.model.comments[at];
        match name {
            "id" => leaf(&comment.id),
            "body" => leaf(&comment.body),
            "url" => {
                let url = self.issue_url(comment.issue);
                leaf(format!(
                    "{url}#comment-{}",
                    &comment.id[..8.min(comment.id.len())]
                ))
            }
            "createdAt" => leaf(iso(comment.created_at)),
            "updatedAt" => leaf(iso(comment.updated_at)),
            "editedAt" => leaf(comment.edited_at.map(iso)),
            "issue" => Resolved::Node(Node::Issue(comment.issue)),
            "issueId" => leaf(&self.model.issues[comment.issue].id),
            "user" => super::accounts::user_of(&comment.author),
            "botActor" => super::accounts::bot_of(&comment.author),
            "externalUser" => super::accounts::external_of(&comment.author),
            _ => leaf(Value::Null),
        }
    }

    fn relation(&self, at: usize, name: &str) -> Field {
        let relation = &self.model.relations[at];
        match name {
            "id" => leaf(&relation.id),
            "type" => leaf(&relation.kind),
            "issue" => Resolved::Node(Node::Issue(relation.issue)),
            "relatedIssue" => Resolved::Node(Node::Issue(relation.related)),
            "createdAt" | "updatedAt" => leaf(iso(relation.created_at)),
            _ => leaf(Value::Null),
        }
    }

    fn attachment(&self, at: usize, name: &str) -> Field {
        let attachment = &self.model.attachments[at];
        match name {
            "id" => leaf(&attachment.id),
            "title" => leaf(&attachment.title),
            "subtitle" => leaf(&attachment.subtitle),
            "url" => leaf(&attachment.url),
            "metadata" => leaf(&attachment.metadata),
            "issue" => Resolved::Node(Node::Issue(attachment.issue)),
            "createdAt" => leaf(iso(attachment.created_at)),
            "updatedAt" => leaf(iso(attachment.updated_at)),
            _ => leaf(Value::Null),
        }
    }

    fn organization(&self, name: &str) -> Field {
        match name {
            "id" => leaf(ORGANIZATION),
            "name" => leaf("Sandbox"),
            "urlKey" => leaf("sandbox"),
            _ => leaf(iso(0)),
        }
    }
}

pub(super) fn leaf(value: impl serde::Serialize) -> Field {
    Resolved::Leaf(json!(value))
}

/// Returns the rows that satisfy `counts`, as nodes.
fn nodes_where<T>(
    rows: &[T],
    predicate: impl Fn(&T) -> bool,
    node: impl Fn(usize) -> Node,
) -> Vec<Node> {
    let rows = rows.iter().enumerate();
    rows.filter(|(_, row)| predicate(row))
        .map(|(at, _)| node(at))
        .collect()
}

fn slug(title: &str) -> String {
    let words: Vec<String> = title
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .collect();
    let mut slug = words.join("-");
    slug.truncate(50);
    slug
}
