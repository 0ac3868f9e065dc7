//! Visible state of a ticket in its ticketing system.

use domain::issue::System;
use fake_vendors::FakeVendors;

use crate::tickets::ExpectedTicket;

/// What a ticketing system shows about a ticket: nothing before it is filed.
#[derive(Debug, Default)]
pub struct VisibleState {
    pub history: Vec<String>,
    pub comments: Vec<String>,
    pub links: Vec<String>,
}

impl VisibleState {
    /// Reads the state of a ticket.
    pub fn of(ticket: &ExpectedTicket, vendors: &FakeVendors) -> Self {
        match ticket.system() {
            System::Linear => {
                let Some(state) = vendors.linear().issue(&ticket.key).snapshot() else {
                    return Self::default();
                };
                let prefix = |added| if added { '+' } else { '-' };
                let history = state.history.iter();
                Self {
                    history: history
                        .map(|change| format!("{}{}", prefix(change.added), change.label))
                        .collect(),
                    comments: state
                        .comments
                        .into_iter()
                        .map(|comment| comment.body)
                        .collect(),
                    links: state.links.into_iter().map(|link| link.url).collect(),
                }
            }
            System::GitHub => {
                let repo = vendors.github().repo("acme", ticket.repo());
                let Some(state) = repo.issue(ticket.number()).snapshot() else {
                    return Self::default();
                };
                let prefix = |added| if added { '+' } else { '-' };
                let history = state.history.iter();
                Self {
                    history: history
                        .map(|change| format!("{}{}", prefix(change.added), change.label))
                        .collect(),
                    comments: state.comments,
                    links: Vec::new(),
                }
            }
            System::Jira => {
                let Some(state) = vendors.jira().issue(&ticket.key).snapshot() else {
                    return Self::default();
                };
                let history = state.history.into_iter();
                Self {
                    history: history
                        .filter(|change| change.field == "Agent-Implement Status")
                        .map(|change| change.value.unwrap_or_default())
                        .collect(),
                    comments: state
                        .comments
                        .into_iter()
                        .map(|comment| comment.text)
                        .collect(),
                    links: state.links,
                }
            }
        }
    }
}
