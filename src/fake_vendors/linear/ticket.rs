//! What people do and see in the ticketing vendor's app, as in-process verbs.

use super::FakeLinear;
use super::model::{LabelHistoryEntry, Model};
use super::resolvers::ModelView;
use crate::clock;
use crate::html_page;
use crate::http::HttpResponse;

/// One ticket by its identifier, there or not. `title` makes it; the other verbs change it, and do
/// nothing to a ticket that is not there. Each verb is stored before it returns.
#[derive(Clone)]
pub struct LinearTicket {
    linear: FakeLinear,
    identifier: String,
}

/// A ticket as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinearTicketSnapshot {
    pub id: String,
    pub identifier: String,
    pub title: String,
    pub description: Option<String>,
    pub priority: u8,
    pub state_type: String,
    pub state_name: String,
    /// Names, in the order they were put on.
    pub labels: Vec<String>,
    /// Oldest first.
    pub comments: Vec<LinearCommentSnapshot>,
    pub links: Vec<LinearLinkSnapshot>,
    /// Every label change since the ticket was made.
    pub history: Vec<LabelHistoryEntry>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinearCommentSnapshot {
    pub id: String,
    pub body: String,
    pub by_api: bool,
}

/// A link attached to a ticket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinearLinkSnapshot {
    pub title: String,
    pub url: String,
}

impl FakeLinear {
    /// Makes sure that a team with this key exists.
    pub fn ensure_team(&self, key: &str, name: &str) -> &Self {
        self.0
            .model
            .update_and_flush(|model| model.ensure_team(key, name));
        self
    }

    /// Makes sure that a label exists, in a team or (`None`) in the workspace.
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

    /// The ticket with this identifier, there or not.
    pub fn issue(&self, identifier: &str) -> LinearTicket {
        LinearTicket {
            linear: self.clone(),
            identifier: identifier.to_owned(),
        }
    }

    /// Files the team's next ticket.
    pub fn create_ticket(&self, team: &str, title: &str) -> LinearTicket {
        let identifier = self.0.model.update_and_flush(|model| {
            let team = model.ensure_team(team, team);
            let at = model.add_issue(team, None, title);
            model.identifier(at)
        });
        self.issue(&identifier)
    }

    /// All living tickets, oldest first.
    pub fn issues(&self) -> Vec<LinearTicketSnapshot> {
        self.0.model.read(|model| {
            let all = 0..model.issues.len();
            all.filter(|at| !model.issues[*at].deleted)
                .map(|at| snapshot(model, at))
                .collect()
        })
    }

    /// A page for people who follow a link to a ticket.
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
            page.section(
                if comment.by_api {
                    "Agent Implement"
                } else {
                    "Robin"
                },
                &comment.body,
            );
        }
        page.into_response()
    }
}

impl LinearTicket {
    pub fn identifier(&self) -> &str {
        &self.identifier
    }

    /// Makes the ticket (and its team) when it is not there, and titles it.
    pub fn title(self, title: &str) -> Self {
        let wanted = self.identifier.clone();
        self.linear.0.model.update_and_flush(|model| {
            let at = model.find_issue(&wanted).or_else(|| {
                let (key, number) = wanted.rsplit_once('-')?;
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

    pub fn describe(self, text: &str) -> Self {
        self.edit(|model, at| model.issues[at].description = Some(text.to_owned()))
    }

    /// 0 none, 1 urgent … 4 low.
    pub fn priority(self, priority: u8) -> Self {
        self.edit(|model, at| model.issues[at].priority = priority)
    }

    /// Puts a label on as a person; a label the team cannot use yet is made for the team.
    pub fn add_label(self, name: &str) -> Self {
        self.edit(|model, at| {
            let team = model.issues[at].team;
            let label = match model.find_usable_label(team, name) {
                Some(label) => label,
                None => model.add_label(Some(team), name),
            };
            model.set_label(at, label, true, false);
        })
    }

    /// Takes a label off as a person.
    pub fn remove_label(self, name: &str) -> Self {
        self.edit(|model, at| {
            let on = model.issues[at].labels.iter().copied();
            let found = on
                .into_iter()
                .find(|label| model.labels[*label].name == name);
            if let Some(label) = found {
                model.set_label(at, label, false, false);
            }
        })
    }

    /// Says that another ticket blocks this one.
    pub fn blocked_by(self, blocker: &str) -> Self {
        self.edit(|model, at| {
            if let Some(blocker) = model.find_issue(blocker) {
                model.add_relation(blocker, "blocks", at);
            }
        })
    }

    pub fn child_of(self, parent: &str) -> Self {
        self.edit(|model, at| model.issues[at].parent = model.find_issue(parent))
    }

    /// Moves to the team's first state of this type, or the state with this name.
    pub fn state(self, type_or_name: &str) -> Self {
        self.edit(|model, at| {
            if let Some(state) = model.find_state(model.issues[at].team, type_or_name) {
                model.set_state(at, state);
            }
        })
    }

    pub fn complete(self) -> Self {
        self.state("completed")
    }

    pub fn cancel(self) -> Self {
        self.state("canceled")
    }

    /// Comments as a person.
    pub fn comment(self, body: &str) -> Self {
        self.edit(|model, at| {
            model.add_comment(clock::uuid(), at, body, false);
        })
    }

    pub fn delete(self) -> Self {
        self.edit(|model, at| model.issues[at].deleted = true)
    }

    /// `None` when there is no such ticket.
    pub fn snapshot(&self) -> Option<LinearTicketSnapshot> {
        self.linear.0.model.read(|model| {
            model
                .find_issue(&self.identifier)
                .map(|at| snapshot(model, at))
        })
    }

    /// Label names; empty when there is no such ticket.
    pub fn labels(&self) -> Vec<String> {
        self.snapshot()
            .map(|ticket| ticket.labels)
            .unwrap_or_default()
    }

    /// Comment bodies, oldest first; empty when there is no such ticket.
    pub fn comments(&self) -> Vec<String> {
        let comments = self.snapshot().map(|ticket| ticket.comments);
        let comments = comments.unwrap_or_default().into_iter();
        comments.map(|comment| comment.body).collect()
    }

    /// The vendor's address of the ticket.
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

    fn edit(self, edit: impl FnOnce(&mut Model, usize)) -> Self {
        self.linear.0.model.update_and_flush(|model| {
            if let Some(at) = model.find_issue(&self.identifier) {
                edit(model, at);
                model.issues[at].updated_at = clock::now_ms();
                model.changed_issues.insert(at);
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
