//! The demo's tickets as people see them, in the words of the system they are filed in.

use fake_vendors::FakeVendors;
use fake_vendors::demo::{DEMO_TICKETS, Tracker};

pub(super) struct DemoTickets {
    town: FakeVendors,
    tracker: Tracker,
}

/// What has become of a ticket so far.
pub(super) struct TicketView {
    pub key: &'static str,
    /// Every change that the service made to what shows its stage, oldest first.
    pub changes: Vec<String>,
    /// Oldest first.
    pub comments: Vec<String>,
}

impl DemoTickets {
    pub fn new(town: FakeVendors, tracker: Tracker) -> Self {
        Self { town, tracker }
    }

    /// The system's name.
    pub fn system_name(&self) -> &'static str {
        self.tracker.name()
    }

    /// What a person does to ask for a run.
    pub fn trigger_description(&self) -> &'static str {
        match self.tracker {
            Tracker::Linear => "the label Agent-Implement",
            Tracker::Jira => "the value Ready in the field Agent-Implement Status",
        }
    }

    pub fn views(&self) -> Vec<TicketView> {
        let keys = DEMO_TICKETS.iter().map(|ticket| ticket.key);
        let seen = keys.filter_map(|key| match self.tracker {
            Tracker::Linear => self.on_linear(key),
            Tracker::Jira => self.on_jira(key),
        });
        seen.collect()
    }

    fn on_linear(&self, key: &'static str) -> Option<TicketView> {
        let ticket = self.town.linear().issue(key).snapshot()?;
        let changes = ticket.history.into_iter().filter(|change| change.by_api);
        let changes = changes.map(|change| {
            let verb = if change.added { "gets" } else { "loses" };
            format!("{verb} the label {}", change.label)
        });
        let comments = ticket.comments.into_iter().map(|comment| comment.body);
        Some(TicketView {
            key,
            changes: changes.collect(),
            comments: comments.collect(),
        })
    }

    fn on_jira(&self, key: &'static str) -> Option<TicketView> {
        let ticket = self.town.jira().issue(key).snapshot()?;
        let changes = ticket.history.into_iter().filter(|change| change.by_api);
        let changes = changes.map(|change| {
            let value = change.value.as_deref().unwrap_or("nothing");
            format!("has its {} set to {value}", change.field)
        });
        let comments = ticket.comments.into_iter().map(|comment| comment.text);
        Some(TicketView {
            key,
            changes: changes.collect(),
            comments: comments.collect(),
        })
    }
}
