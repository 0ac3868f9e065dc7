//! Tickets of the demo, described in the terms of their ticketing system.

use fake_vendors::FakeVendors;
use fake_vendors::demo::{self, DEMO_TICKETS, Tracker};

/// Reader of the demo's tickets in the fake ticketing system.
pub(super) struct DemoTickets {
    vendors: FakeVendors,
    tracker: Tracker,
}

/// Changes and comments of a ticket so far.
pub(super) struct TicketView {
    /// Key of the ticket.
    pub key: &'static str,
    /// Changes of the label or field that marks the stage, made by the service; oldest first.
    pub changes: Vec<String>,
    /// Texts of the comments, oldest first.
    pub comments: Vec<String>,
}

impl DemoTickets {
    /// Creates a reader for this ticketing system.
    pub(super) fn new(vendors: FakeVendors, tracker: Tracker) -> Self {
        Self { vendors, tracker }
    }

    /// Completes a ticket, and returns its key, for each pull request that was merged and is new.
    pub(super) fn complete_merged(&self, is_new: impl Fn(&str) -> bool) -> Vec<&'static str> {
        let mut merged = demo::merged_tickets(&self.vendors, self.tracker);
        merged.retain(|key| is_new(self.tracker.key(key)));
        for key in &merged {
            demo::complete_ticket(&self.vendors, self.tracker, key);
        }
        merged
            .into_iter()
            .map(|key| self.tracker.key(key))
            .collect()
    }

    /// Ticketing system.
    pub(super) fn tracker(&self) -> Tracker {
        self.tracker
    }

    /// Name of the ticketing system.
    pub(super) fn system_name(&self) -> &'static str {
        self.tracker.name()
    }

    /// Description of the trigger that requests a run.
    pub(super) fn trigger_description(&self) -> &'static str {
        match self.tracker {
            Tracker::Linear | Tracker::GitHub => "the label Agent-Implement",
            Tracker::Jira => "the value Ready in the field Agent-Implement Status",
        }
    }

    /// Current view of each ticket that exists.
    pub(super) fn views(&self) -> Vec<TicketView> {
        let keys = DEMO_TICKETS.iter().map(|ticket| ticket.key);
        let views = keys.filter_map(|key| match self.tracker {
            Tracker::Linear => self.linear_view(key),
            Tracker::Jira => self.jira_view(key),
            Tracker::GitHub => self.github_view(key),
        });
        views.collect()
    }

    fn linear_view(&self, key: &'static str) -> Option<TicketView> {
        let ticket = self.vendors.linear().issue(key).snapshot()?;
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

    fn github_view(&self, key: &'static str) -> Option<TicketView> {
        let issue = demo::demo_issue(&self.vendors, key).snapshot()?;
        let service = self.vendors.github().personal_login();
        let changes = issue.history.into_iter();
        let changes = changes.filter(|change| change.actor == service);
        let changes = changes.map(|change| {
            let verb = if change.added { "gets" } else { "loses" };
            format!("{verb} the label {}", change.label)
        });
        Some(TicketView {
            key: self.tracker.key(key),
            changes: changes.collect(),
            comments: issue.comments,
        })
    }

    fn jira_view(&self, key: &'static str) -> Option<TicketView> {
        let ticket = self.vendors.jira().issue(key).snapshot()?;
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
