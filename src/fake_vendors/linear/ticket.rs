//! In-process methods for what people do and see in Linear.

use std::time::Duration;

use super::FakeLinear;
use super::model::{LabelHistoryEntry, Model};
use super::resolvers::ModelView;
use crate::author::FakeAuthor;
use crate::clock;
use crate::html_page;
use crate::http::HttpResponse;

/// Handle of a ticket by its identifier; the ticket need not exist. `title` creates it. The other
/// methods change it, or do nothing if it does not exist. Each change is persisted before the method
/// returns.
#[derive(Clone)]
pub struct LinearTicket {
    linear: FakeLinear,
    identifier: String,
}

/// State of a ticket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinearTicketSnapshot {
    /// Issue UUID.
    pub id: String,
    /// Identifier, e.g. `ENG-1`.
    pub identifier: String,
    /// Title.
    pub title: String,
    /// Description in Markdown.
    pub description: Option<String>,
    /// Priority: 0 none, 1 urgent to 4 low.
    pub priority: u8,
    /// Type of the workflow state, e.g. `started`.
    pub state_type: String,
    /// Name of the workflow state.
    pub state_name: String,
    /// Label names, in the order they were added.
    pub labels: Vec<String>,
    /// Comments, oldest first.
    pub comments: Vec<LinearCommentSnapshot>,
    /// Attached links, oldest first.
    pub links: Vec<LinearLinkSnapshot>,
    /// Label changes since the ticket was created, oldest first.
    pub history: Vec<LabelHistoryEntry>,
}

/// Comment of a ticket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinearCommentSnapshot {
    /// Comment UUID.
    pub id: String,
    /// Body in Markdown.
    pub body: String,
    /// Whether the API created it; otherwise a person did.
    pub by_api: bool,
    /// Account that wrote it.
    pub author: FakeAuthor,
}

/// Link attached to a ticket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinearLinkSnapshot {
    /// Title.
    pub title: String,
    /// Address.
    pub url: String,
}

impl FakeLinear {
    /// Creates the team if it does not exist.
    pub fn ensure_team(&self, key: &str, name: &str) -> &Self {
        self.0
            .model
            .update_and_flush(|model| model.ensure_team(key, name));
        self
    }

    /// Creates the label if it does not exist, in a team or (`None`) in the workspace.
    pub fn ensure_label(&self, team: Option<&str>, name: &str) -> &Self {
        self.0.model.update_and_flush(|model| {
            let team = team.map(|key| model.ensure_team(key, key));
            let known = |label: &super::model::Label| label.team == team && label.name == name;
            if !model.labels.iter().any(known) {
                model.add_label(team, name);
            }
        });
        self
    }

    /// Returns the handle of a ticket, which need not exist.
    pub fn issue(&self, identifier: &str) -> LinearTicket {
        LinearTicket {
            linear: self.clone(),
            identifier: identifier.to_owned(),
        }
    }

    /// Creates the team's next ticket.
    pub fn create_ticket(&self, team: &str, title: &str) -> LinearTicket {
        let identifier = self.0.model.update_and_flush(|model| {
            let team = model.ensure_team(team, team);
            let at = model.add_issue(team, None, title);
            model.identifier(at)
        });
        self.issue(&identifier)
    }

    /// Returns all tickets that are not deleted, oldest first.
    pub fn issues(&self) -> Vec<LinearTicketSnapshot> {
        self.0.model.read(|model| {
            let all = 0..model.issues.len();
            all.filter(|at| !model.issues[*at].deleted)
                .map(|at| snapshot(model, at))
                .collect()
        })
    }

    /// Returns the HTML page of a ticket.
    pub(crate) fn ticket_page(&self, identifier: &str) -> HttpResponse {
        let Some(ticket) = self.issue(identifier).snapshot() else {
            return HttpResponse::text(404, "no such ticket");
        };
        let mut page = html_page::HtmlPage::new(&format!("{} {}", ticket.identifier, ticket.title));
        page.paragraph(&format!(
            "{} · labels: {}",
            ticket.state_name,
            ticket.labels.join(", ")
        ));
        page.preformatted(ticket.description.as_deref().unwrap_or_default());
        for link in &ticket.links {
            page.link(&link.title, &link.url);
        }
        for comment in &ticket.comments {
            page.section(comment.author.display_name(), &comment.body);
        }
        page.comment_form();
        page.into_response()
    }
}

impl LinearTicket {
    /// Returns the identifier, e.g. `ENG-1`.
    pub fn identifier(&self) -> &str {
        &self.identifier
    }

    /// Sets the title. Creates the ticket and its team if they do not exist.
    pub fn title(self, title: &str) -> Self {
        let identifier = self.identifier.clone();
        self.linear.0.model.update_and_flush(|model| {
            let at = model.find_issue(&identifier).or_else(|| {
                let (key, number) = identifier.rsplit_once('-')?;
                let number = number.parse().ok()?;
                let team = model.ensure_team(key, key);
                Some(model.add_issue(team, Some(number), title))
            });
            if let Some(at) = at {
                title.clone_into(&mut model.issues[at].title);
                model.issues[at].updated_at = clock::now_ms();
            }
        });
        self
    }

    /// Sets the description.
    pub fn describe(self, text: &str) -> Self {
        self.edit(|model, at| model.issues[at].description = Some(text.to_owned()))
    }

    /// Sets the priority: 0 none, 1 urgent to 4 low.
    pub fn priority(self, priority: u8) -> Self {
        self.edit(|model, at| model.issues[at].priority = priority)
    }

    /// Adds a label as Robin. Creates the label for the team if the team has no such label.
    pub fn add_label(self, name: &str) -> Self {
        self.add_label_as(&FakeAuthor::default(), name)
    }

    /// Adds a label. Creates the label for the team if the team has no such label.
    pub fn add_label_as(self, author: &FakeAuthor, name: &str) -> Self {
        self.edit(|model, at| {
            let team = model.issues[at].team;
            let label = match model.find_usable_label(team, name) {
                Some(label) => label,
                None => model.add_label(Some(team), name),
            };
            model.set_label(at, label, true, author);
        })
    }

    /// Removes a label as a person.
    pub fn remove_label(self, name: &str) -> Self {
        self.edit(|model, at| {
            let label_positions = model.issues[at].labels.iter().copied();
            let found = label_positions
                .into_iter()
                .find(|label| model.labels[*label].name == name);
            if let Some(label) = found {
                model.set_label(at, label, false, &FakeAuthor::default());
            }
        })
    }

    /// Moves the ticket to a project of its team. Creates the project if it does not exist.
    pub fn project(self, name: &str) -> Self {
        self.edit(|model, at| {
            let project = model.ensure_project(model.issues[at].team, name);
            model.issues[at].project = Some(project);
        })
    }

    /// Adds a relation: another ticket blocks this one.
    pub fn blocked_by(self, blocker: &str) -> Self {
        self.edit(|model, at| {
            if let Some(blocker) = model.find_issue(blocker) {
                model.add_relation(blocker, "blocks", at);
            }
        })
    }

    /// Sets the parent.
    pub fn child_of(self, parent: &str) -> Self {
        self.edit(|model, at| model.issues[at].parent = model.find_issue(parent))
    }

    /// Sets the workflow state: the one with this name, else the team's first one of this type.
    pub fn state(self, type_or_name: &str) -> Self {
        self.edit(|model, at| {
            if let Some(state) = model.find_state(model.issues[at].team, type_or_name) {
                model.set_state(at, state);
            }
        })
    }

    /// Sets the first state of type `completed`.
    pub fn complete(self) -> Self {
        self.state("completed")
    }

    /// Sets the first state of type `canceled`.
    pub fn cancel(self) -> Self {
        self.state("canceled")
    }

    /// Adds a comment as Robin.
    pub fn comment(self, body: &str) -> Self {
        self.comment_as(&FakeAuthor::default(), body)
    }

    /// Adds a comment.
    pub fn comment_as(self, author: &FakeAuthor, body: &str) -> Self {
        self.edit_comments(|model, at| {
            model.add_comment(clock::uuid(), at, body, author);
        })
    }

    /// Adds a comment of a program that chooses its id.
    pub fn comment_with_id(self, author: &FakeAuthor, id: &str, body: &str) -> Self {
        self.edit_comments(|model, at| {
            model.add_comment(id.to_owned(), at, body, author);
        })
    }

    /// Replaces the text of the comment with this id.
    pub fn edit_comment(self, id: &str, body: &str) -> Self {
        self.edit_comments(|model, _| {
            if let Some(comment) = model.find_comment(id) {
                model.edit_comment(comment, body);
            }
        })
    }

    /// Deletes the comment with this id.
    pub fn delete_comment(self, id: &str) -> Self {
        self.edit_comments(|model, _| {
            if let Some(comment) = model.find_comment(id) {
                model.delete_comment(comment);
            }
        })
    }

    /// Moves the times of the comment with this id into the past.
    pub fn age_comment(self, id: &str, age: Duration) -> Self {
        let ms = i64::try_from(age.as_millis()).unwrap_or(0);
        self.edit_comments(|model, _| {
            if let Some(comment) = model.find_comment(id) {
                let row = &mut model.comments[comment];
                row.created_at -= ms;
                row.updated_at -= ms;
                row.edited_at = row.edited_at.map(|at| at - ms);
            }
        })
    }

    /// Deletes the ticket.
    pub fn delete(self) -> Self {
        self.edit(|model, at| model.issues[at].deleted = true)
    }

    /// Returns the ticket's state; `None` if it does not exist.
    pub fn snapshot(&self) -> Option<LinearTicketSnapshot> {
        self.linear.0.model.read(|model| {
            model
                .find_issue(&self.identifier)
                .map(|at| snapshot(model, at))
        })
    }

    /// Returns the label names; empty if the ticket does not exist.
    pub fn labels(&self) -> Vec<String> {
        self.snapshot()
            .map(|ticket| ticket.labels)
            .unwrap_or_default()
    }

    /// Returns the comment bodies, oldest first; empty if the ticket does not exist.
    pub fn comments(&self) -> Vec<String> {
        let comments = self.snapshot().map(|ticket| ticket.comments);
        let comments = comments.unwrap_or_default().into_iter();
        comments.map(|comment| comment.body).collect()
    }

    /// Returns the URL of the ticket's page; `None` if the ticket does not exist.
    pub fn url(&self) -> Option<String> {
        let base = &self.linear.0.base_url;
        self.linear.0.model.read(|model| {
            let at = model.find_issue(&self.identifier)?;
            Some(
                ModelView {
                    model,
                    base_url: base,
                }
                .issue_url(at),
            )
        })
    }

    /// Changes the issue.
    fn edit(self, edit: impl FnOnce(&mut Model, usize)) -> Self {
        self.edit_comments(|model, at| {
            edit(model, at);
            model.changed_issues.insert(at);
        })
    }

    /// Changes the comments of the issue.
    fn edit_comments(self, edit: impl FnOnce(&mut Model, usize)) -> Self {
        self.linear.0.model.update_and_flush(|model| {
            if let Some(at) = model.find_issue(&self.identifier) {
                edit(model, at);
                model.issues[at].updated_at = clock::now_ms();
            }
        });
        self.linear.send_webhooks();
        self
    }
}

fn snapshot(model: &Model, at: usize) -> LinearTicketSnapshot {
    let issue = &model.issues[at];
    let state = &model.states[issue.state];
    let comments = model.comments.iter();
    let links = model.attachments.iter();
    LinearTicketSnapshot {
        id: issue.id.clone(),
        identifier: model.identifier(at),
        title: issue.title.clone(),
        description: issue.description.clone(),
        priority: issue.priority,
        state_type: state.kind.clone(),
        state_name: state.name.clone(),
        labels: issue
            .labels
            .iter()
            .map(|label| model.labels[*label].name.clone())
            .collect(),
        comments: comments
            .filter(|comment| comment.issue == at && !comment.deleted)
            .map(|comment| LinearCommentSnapshot {
                id: comment.id.clone(),
                body: comment.body.clone(),
                by_api: comment.by_api,
                author: comment.author.clone(),
            })
            .collect(),
        links: links
            .filter(|link| link.issue == at)
            .map(|link| LinearLinkSnapshot {
                title: link.title.clone(),
                url: link.url.clone(),
            })
            .collect(),
        history: issue.history.clone(),
    }
}
