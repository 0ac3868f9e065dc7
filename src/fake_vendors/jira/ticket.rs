//! What people do and see in the vendor's app, as in-process verbs.

use serde_json::Value;

use super::model::{ChangeSource, FieldHistoryEntry, Model, REPO_FIELD, STATUS_FIELD, STATUSES};
use super::{FakeJira, adf};
use crate::clock;
use crate::html_page;
use crate::http::HttpResponse;

/// One ticket by its key, there or not. `title` makes it; the other verbs change it, and do nothing
/// to a ticket that is not there. Each verb is stored before it returns.
#[derive(Clone)]
pub struct JiraTicket {
    jira: FakeJira,
    key: String,
}

/// A ticket as it stands.
#[derive(Clone, Debug, PartialEq)]
pub struct JiraTicketSnapshot {
    pub id: String,
    pub key: String,
    pub title: String,
    /// The workflow's status, which is not the select field of the same name.
    pub workflow_status: String,
    /// The select field that shows the stage.
    pub status: Option<String>,
    pub repo: Option<String>,
    /// Oldest first.
    pub comments: Vec<JiraCommentSnapshot>,
    /// Addresses of remote links.
    pub links: Vec<String>,
    /// Every change of a select field since the ticket was made.
    pub history: Vec<FieldHistoryEntry>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct JiraCommentSnapshot {
    /// The document as it was sent.
    pub body: Value,
    /// Its words.
    pub text: String,
    pub by_api: bool,
}

impl FakeJira {
    /// Makes sure that a project with this key exists, and the two select fields.
    pub fn ensure_project(&self, key: &str, name: &str) -> &Self {
        self.0
            .model
            .update_and_flush(|model| model.ensure_project(key, name));
        self
    }

    /// Makes sure that a select field exists and has these options; answers its id.
    pub fn ensure_select_field(&self, name: &str, options: &[&str]) -> String {
        self.0.model.update_and_flush(|model| {
            let at = model.ensure_field(name, options);
            model.fields[at].id()
        })
    }

    /// Takes an option from a select field; tickets that have it keep it.
    pub fn remove_option(&self, field: &str, value: &str) {
        self.0.model.update_and_flush(|model| {
            if let Some(at) = model.find_field(field) {
                model.fields[at]
                    .options
                    .retain(|option| option.value != value);
            }
        });
    }

    /// The ticket with this key, there or not.
    pub fn issue(&self, key: &str) -> JiraTicket {
        JiraTicket {
            jira: self.clone(),
            key: key.to_owned(),
        }
    }

    /// The page of a ticket, for people who follow its link.
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
            let head = if comment.by_api {
                "Agent Implement"
            } else {
                "A person"
            };
            page.section(head, &comment.text);
        }
        for url in &ticket.links {
            page.link(url, url);
        }
        page.into_response()
    }
}

impl JiraTicket {
    /// Makes the ticket (and its project) when it is not there, and titles it.
    pub fn title(self, title: &str) -> Self {
        let wanted = self.key.clone();
        self.jira.0.model.update_and_flush(|model| {
            let at = model.find_issue(&wanted).or_else(|| {
                let (key, number) = wanted.rsplit_once('-')?;
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

    /// Describes it in plain paragraphs.
    pub fn describe(self, text: &str) -> Self {
        self.document(adf::from_plain_text(text))
    }

    /// Describes it in rich text.
    pub fn document(self, document: Value) -> Self {
        self.edit(|model, at| model.issues[at].description = Some(document))
    }

    /// Sets the select field that shows the stage.
    pub fn status(self, value: &str) -> Self {
        self.field(STATUS_FIELD, value)
    }

    /// Sets the select field that says which repository it is for.
    pub fn repo(self, value: &str) -> Self {
        self.field(REPO_FIELD, value)
    }

    /// Sets a select field as a person; an option it lacks is made.
    pub fn field(self, name: &str, value: &str) -> Self {
        self.edit(|model, at| {
            let field = model.ensure_field(name, &[value]);
            model.set_field(at, field, Some(value), ChangeSource::Person);
        })
    }

    /// `Highest` to `Lowest`.
    pub fn priority(self, name: &str) -> Self {
        self.edit(|model, at| model.issues[at].priority = Some(name.to_owned()))
    }

    pub fn label(self, name: &str) -> Self {
        self.edit(|model, at| model.issues[at].labels.push(name.to_owned()))
    }

    /// Says that another ticket blocks this one.
    pub fn blocked_by(self, blocker: &str) -> Self {
        self.edit(|model, at| {
            if let Some(blocker) = model.find_issue(blocker) {
                model.add_blocking_link(blocker, at);
            }
        })
    }

    pub fn child_of(self, parent: &str) -> Self {
        self.edit(|model, at| model.issues[at].parent = model.find_issue(parent))
    }

    /// Moves it through the workflow: `To Do`, `In Progress` or `Done`.
    pub fn workflow_status(self, name: &str) -> Self {
        self.edit(|model, at| {
            let known = STATUSES.iter().position(|(_, known, _)| *known == name);
            model.issues[at].status = known.unwrap_or(model.issues[at].status);
        })
    }

    pub fn complete(self) -> Self {
        self.workflow_status("Done")
    }

    /// Comments as a person.
    pub fn comment(self, text: &str) -> Self {
        self.edit(|model, at| {
            model.add_comment(at, adf::from_plain_text(text), Vec::new(), false);
        })
    }

    pub fn delete(self) -> Self {
        self.edit(|model, at| model.issues[at].deleted = true)
    }

    /// `None` when there is no such ticket.
    pub fn snapshot(&self) -> Option<JiraTicketSnapshot> {
        self.jira.0.model.read(|model| {
            let at = model.find_issue(&self.key)?;
            Some(snapshot(model, at))
        })
    }

    /// The words of its comments, oldest first; empty when there is no such ticket.
    pub fn comments(&self) -> Vec<String> {
        let comments = self.snapshot().map(|ticket| ticket.comments);
        let comments = comments.unwrap_or_default().into_iter();
        comments.map(|comment| comment.text).collect()
    }

    fn edit(self, edit: impl FnOnce(&mut Model, usize)) -> Self {
        self.jira.0.model.update_and_flush(|model| {
            if let Some(at) = model.find_issue(&self.key) {
                edit(model, at);
                model.issues[at].updated_at = clock::now_ms();
                model.changed_issues.insert(at);
            }
        });
        self.jira.send_webhooks();
        self
    }
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
                body: comment.body.clone(),
                text: adf::plain_text(&comment.body),
                by_api: comment.by_api,
            })
            .collect(),
        links: links.map(|link| link.url.clone()).collect(),
        history: issue.history.clone(),
    }
}
