//! In-process methods for what people do and see in Jira.

use std::time::Duration;

use serde_json::Value;

use super::model::{ChangeSource, FieldHistoryEntry, Model, REPO_FIELD, STATUS_FIELD, STATUSES};
use super::{FakeJira, adf};
use crate::author::FakeAuthor;
use crate::clock;
use crate::html_page;
use crate::http::HttpResponse;

/// Handle of a ticket by its key; the ticket need not exist. `title` creates it. The other methods
/// change it, or do nothing if it does not exist. Each change is persisted before the method returns.
#[derive(Clone)]
pub struct JiraTicket {
    pub(super) jira: FakeJira,
    key: String,
}

/// State of a ticket.
#[derive(Clone, Debug, PartialEq)]
pub struct JiraTicketSnapshot {
    /// Issue ID.
    pub id: String,
    /// Issue key.
    pub key: String,
    /// Summary.
    pub title: String,
    /// Status in the workflow; not the select field of the same name.
    pub workflow_status: String,
    /// Value of the select field "Agent-Implement Status".
    pub status: Option<String>,
    /// Value of the select field "Agent-Implement Repo".
    pub repo: Option<String>,
    /// Comments, oldest first.
    pub comments: Vec<JiraCommentSnapshot>,
    /// URLs of the remote links.
    pub links: Vec<String>,
    /// Changes of select fields since the ticket was created, oldest first.
    pub history: Vec<FieldHistoryEntry>,
}

/// Comment of a ticket.
#[derive(Clone, Debug, PartialEq)]
pub struct JiraCommentSnapshot {
    /// Comment ID.
    pub id: String,
    /// Atlassian document as sent.
    pub body: Value,
    /// Plain text of the document.
    pub text: String,
    /// Whether the API created it; otherwise a person did.
    pub by_api: bool,
    /// Account that wrote it.
    pub author: FakeAuthor,
}

impl FakeJira {
    /// Creates the project and the two select fields if they do not exist.
    pub fn ensure_project(&self, key: &str, name: &str) -> &Self {
        self.0
            .model
            .update_and_flush(|model| model.ensure_project(key, name));
        self
    }

    /// Creates a select field and its options if they do not exist. Returns the field's ID.
    pub fn ensure_select_field(&self, name: &str, options: &[&str]) -> String {
        self.0.model.update_and_flush(|model| {
            let at = model.ensure_field(name, options);
            model.fields[at].id()
        })
    }

    /// Removes an option from a select field. Tickets with this value keep it.
    pub fn remove_option(&self, field: &str, value: &str) {
        self.0.model.update_and_flush(|model| {
            if let Some(at) = model.find_field(field) {
                model.fields[at]
                    .options
                    .retain(|option| option.value != value);
            }
        });
    }

    /// Returns the handle of a ticket, which need not exist.
    pub fn issue(&self, key: &str) -> JiraTicket {
        JiraTicket {
            jira: self.clone(),
            key: key.to_owned(),
        }
    }

    /// Returns the HTML page of a ticket.
    pub(crate) fn ticket_page(&self, key: &str) -> HttpResponse {
        let Some(ticket) = self.issue(key).snapshot() else {
            return HttpResponse::text(404, "no such ticket");
        };
        let mut page = html_page::HtmlPage::new(&format!("{}: {}", ticket.key, ticket.title));
        let status = ticket.status.as_deref().unwrap_or("none");
        page.paragraph(&format!(
            "{} · {STATUS_FIELD}: {status}",
            ticket.workflow_status
        ));
        for comment in &ticket.comments {
            page.section(comment.author.display_name(), &comment.text);
        }
        for url in &ticket.links {
            page.link(url, url);
        }
        page.comment_form();
        page.into_response()
    }
}

impl JiraTicket {
    /// Sets the title. Creates the ticket and its project if they do not exist.
    pub fn title(self, title: &str) -> Self {
        let ticket_key = self.key.clone();
        self.jira.0.model.update_and_flush(|model| {
            let at = model.find_issue(&ticket_key).or_else(|| {
                let (key, number) = ticket_key.rsplit_once('-')?;
                let number = number.parse().ok()?;
                let project = model.ensure_project(key, key);
                Some(model.add_issue(project, Some(number), title))
            });
            if let Some(at) = at {
                title.clone_into(&mut model.issues[at].summary);
            }
        });
        self
    }

    /// Sets the description in plain paragraphs.
    pub fn describe(self, text: &str) -> Self {
        self.document(adf::from_plain_text(text))
    }

    /// Sets the description as an Atlassian document.
    pub fn document(self, document: Value) -> Self {
        self.edit(|model, at| model.issues[at].description = Some(document))
    }

    /// Sets the select field "Agent-Implement Status".
    pub fn status(self, value: &str) -> Self {
        self.field(STATUS_FIELD, value)
    }

    /// Sets the select field "Agent-Implement Repo".
    pub fn repo(self, value: &str) -> Self {
        self.field(REPO_FIELD, value)
    }

    /// Sets a select field as Robin. Creates the field and the option if they do not exist.
    pub fn field(self, name: &str, value: &str) -> Self {
        self.field_as(&FakeAuthor::default(), name, value)
    }

    /// Sets a select field. Creates the field and the option if they do not exist.
    pub fn field_as(self, author: &FakeAuthor, name: &str, value: &str) -> Self {
        self.edit(|model, at| {
            let field = model.ensure_field(name, &[value]);
            let source = ChangeSource::Person(author.clone());
            model.set_field(at, field, Some(value), &source);
        })
    }

    /// Clears the select field "Agent-Implement Status" as Robin.
    pub fn clear_status(self) -> Self {
        self.edit(|model, at| {
            if let Some(field) = model.find_field(STATUS_FIELD) {
                let source = ChangeSource::Person(FakeAuthor::default());
                model.set_field(at, field, None, &source);
            }
        })
    }

    /// Sets the priority, from `Highest` to `Lowest`.
    pub fn priority(self, name: &str) -> Self {
        self.edit(|model, at| model.issues[at].priority = Some(name.to_owned()))
    }

    /// Adds a label.
    pub fn label(self, name: &str) -> Self {
        self.labels([name.to_owned()])
    }

    /// Adds labels.
    pub fn labels(self, names: impl IntoIterator<Item = String>) -> Self {
        self.edit(|model, at| model.issues[at].labels.extend(names))
    }

    /// Adds a link: another ticket blocks this one.
    pub fn blocked_by(self, blocker: &str) -> Self {
        self.edit(|model, at| {
            if let Some(blocker) = model.find_issue(blocker) {
                model.add_blocking_link(blocker, at);
            }
        })
    }

    /// Sets the parent.
    pub fn child_of(self, parent: &str) -> Self {
        self.edit(|model, at| model.issues[at].parent = model.find_issue(parent))
    }

    /// Sets the status in the workflow: `To Do`, `In Progress` or `Done`.
    pub(crate) fn workflow_status(self, name: &str) -> Self {
        self.edit(|model, at| {
            let status = STATUSES.iter().position(|(_, status, _)| *status == name);
            model.issues[at].status = status.unwrap_or(model.issues[at].status);
        })
    }

    /// Sets the workflow status `Done`.
    pub fn complete(self) -> Self {
        self.workflow_status("Done")
    }

    /// Adds a comment as Robin.
    pub fn comment(self, text: &str) -> Self {
        self.comment_as(&FakeAuthor::default(), text)
    }

    /// Adds a comment.
    pub fn comment_as(self, author: &FakeAuthor, text: &str) -> Self {
        self.edit_comments(|model, at| {
            model.add_comment(at, adf::from_plain_text(text), Vec::new(), author);
        })
    }

    /// Adds a comment of a program that sets comment properties.
    pub fn comment_with_properties(
        self,
        author: &FakeAuthor,
        text: &str,
        properties: Vec<Value>,
    ) -> Self {
        self.edit_comments(|model, at| {
            model.add_comment(at, adf::from_plain_text(text), properties, author);
        })
    }

    /// Replaces the text of the comment with this id.
    pub fn edit_comment(self, id: &str, text: &str) -> Self {
        self.edit_comments(|model, _| {
            if let Some(at) = find_comment(model, id) {
                model.edit_comment(at, adf::from_plain_text(text));
            }
        })
    }

    /// Deletes the comment with this id.
    pub fn delete_comment(self, id: &str) -> Self {
        self.edit_comments(|model, _| {
            if let Some(at) = find_comment(model, id) {
                model.comments.remove(at);
            }
        })
    }

    /// Moves the times of the comment with this id into the past.
    pub fn age_comment(self, id: &str, age: Duration) -> Self {
        let ms = i64::try_from(age.as_millis()).unwrap_or(0);
        self.edit_comments(|model, _| {
            if let Some(at) = find_comment(model, id) {
                model.comments[at].created_at -= ms;
                model.comments[at].updated_at -= ms;
            }
        })
    }

    /// Deletes the ticket.
    pub fn delete(self) -> Self {
        self.edit(|model, at| model.issues[at].deleted = true)
    }

    /// Returns the ticket's state; `None` if it does not exist.
    pub fn snapshot(&self) -> Option<JiraTicketSnapshot> {
        self.jira.0.model.read(|model| {
            let at = model.find_issue(&self.key)?;
            Some(snapshot(model, at))
        })
    }

    /// Returns the plain text of its comments, oldest first; empty if it does not exist.
    pub fn comments(&self) -> Vec<String> {
        let comments = self.snapshot().map(|ticket| ticket.comments);
        let comments = comments.unwrap_or_default().into_iter();
        comments.map(|comment| comment.text).collect()
    }

    /// Changes the issue.
    pub(super) fn edit(self, edit: impl FnOnce(&mut Model, usize)) -> Self {
        self.edit_comments(|model, at| {
            edit(model, at);
            model.changed_issues.insert(at);
        })
    }

    /// Changes the comments of the issue.
    fn edit_comments(self, edit: impl FnOnce(&mut Model, usize)) -> Self {
        self.jira.0.model.update_and_flush(|model| {
            if let Some(at) = model.find_issue(&self.key) {
                edit(model, at);
                model.issues[at].updated_at = clock::now_ms();
            }
        });
        self.jira.send_webhooks();
        self
    }
}

fn find_comment(model: &Model, id: &str) -> Option<usize> {
    model
        .comments
        .iter()
        .position(|row| row.id.to_string() == id)
}

fn snapshot(model: &Model, at: usize) -> JiraTicketSnapshot {
    let issue = &model.issues[at];
    let value_of = |name: &str| {
        let field = model.find_field(name)?;
        issue.fields.get(&model.fields[field].number).cloned()
    };
    let (_, workflow_status, _) = STATUSES[issue.status];
    let comments = model.comments.iter().filter(|comment| comment.issue == at);
    let links = model.remote_links.iter().filter(|link| link.issue == at);
    JiraTicketSnapshot {
        id: issue.id.to_string(),
        key: model.issue_key(at),
        title: issue.summary.clone(),
        workflow_status: workflow_status.to_owned(),
        status: value_of(STATUS_FIELD),
        repo: value_of(REPO_FIELD),
        comments: comments
            .map(|comment| JiraCommentSnapshot {
                id: comment.id.to_string(),
                author: comment.author.clone(),
                body: comment.body.clone(),
                text: adf::plain_text(&comment.body),
                by_api: comment.by_api,
            })
            .collect(),
        links: links.map(|link| link.url.clone()).collect(),
        history: issue.history.clone(),
    }
}
