//! Tickets and mappings of tests that run on both ticketing systems.

use domain::issue::System;
use domain::mapping::Mapping;

use crate::jira::mapping_with_query;
use crate::test_env::{TestEnv, mapping, planning_mapping};

/// Both ticketing systems.
pub const SYSTEMS: [System; 2] = [System::Linear, System::Jira];

/// Ticket of a fake ticketing system.
pub enum TestTicket {
    Linear(fake_vendors::LinearTicket),
    Jira(fake_vendors::JiraTicket),
}

impl TestTicket {
    /// Creates a ticket without a trigger. Its key names the team or project. A Jira ticket names the
    /// mapping with the same name as its project.
    pub fn create(env: &TestEnv, system: System, key: &str, title: &str) -> Self {
        match system {
            System::Linear => Self::Linear(env.vendors.linear().issue(key).title(title)),
            System::Jira => {
                let (project, _) = key.split_once('-').unwrap();
                Self::Jira(env.vendors.jira().issue(key).title(title).repo(project))
            }
        }
    }

    /// Requests a run as a person does: applies the trigger again.
    pub fn trigger(&self) {
        match self {
            Self::Linear(ticket) => {
                ticket.clone().remove_label("Agent-Implement");
                ticket.clone().add_label("Agent-Implement");
            }
            Self::Jira(ticket) => drop(ticket.clone().status("Ready")),
        }
    }

    /// Adds a ticket that blocks this one.
    pub fn add_blocker(&self, blocker: &str) {
        match self {
            Self::Linear(ticket) => drop(ticket.clone().blocked_by(blocker)),
            Self::Jira(ticket) => drop(ticket.clone().blocked_by(blocker)),
        }
    }

    /// Sets the in-progress marker, although the service has no run.
    pub fn mark_in_progress(&self) {
        match self {
            Self::Linear(ticket) => drop(ticket.clone().add_label("Agent-Working")),
            Self::Jira(ticket) => drop(ticket.clone().status("Implementing")),
        }
    }

    /// Removes every marker of the service and applies the trigger.
    pub fn reset_to_trigger(&self) {
        if let Self::Linear(ticket) = self {
            for label in ticket.labels() {
                ticket.clone().remove_label(&label);
            }
        }
        self.trigger();
    }

    /// Returns the markers of its stage: its labels, or the value of its status field.
    pub fn markers(&self) -> Vec<String> {
        match self {
            Self::Linear(ticket) => ticket.labels(),
            Self::Jira(ticket) => Vec::from_iter(ticket.snapshot().unwrap().status),
        }
    }

    /// Returns start and end of its only in-progress period, in milliseconds of the vendor's clock.
    pub fn in_progress_period(&self) -> (u64, u64) {
        let moments: Vec<i64> = match self {
            Self::Linear(ticket) => {
                let history = ticket.snapshot().unwrap().history.into_iter();
                let of_label = history.filter(|change| change.label == "Agent-Working");
                of_label.map(|change| change.at_ms).collect()
            }
            Self::Jira(ticket) => {
                let history = ticket.snapshot().unwrap().history.into_iter();
                let of_field = history.filter(|change| change.field == "Agent-Implement Status");
                let from_start =
                    of_field.skip_while(|change| change.value.as_deref() != Some("Implementing"));
                from_start.map(|change| change.at_ms).collect()
            }
        };
        let [from, to] = moments[..] else {
            panic!("{moments:?}")
        };
        (from.unsigned_abs(), to.unsigned_abs())
    }

    /// Returns its comments, oldest first: Markdown on Linear, the plain text of the rich text on Jira.
    pub fn comments(&self) -> Vec<String> {
        match self {
            Self::Linear(ticket) => split_comments(ticket.comments()),
            Self::Jira(ticket) => split_comments(ticket.comments()),
        }
    }

    /// Returns its complete state as text, for comparison.
    pub fn snapshot_text(&self) -> String {
        match self {
            Self::Linear(ticket) => format!("{:#?}", ticket.snapshot().unwrap()),
            Self::Jira(ticket) => format!("{:#?}", ticket.snapshot().unwrap()),
        }
    }
}

/// Returns the mapping of a team or project to `acme/shop`.
pub fn mapping_for(system: System, team: &str) -> Mapping {
    match system {
        System::Linear => Mapping {
            team_key: team.into(),
            ..mapping()
        },
        System::Jira => mapping_with_query(team, &format!("project = {team}"), team),
    }
}

/// Returns the mapping with planning before implementation.
pub fn with_planning(mapping: Mapping) -> Mapping {
    Mapping {
        team_key: mapping.team_key,
        ticketing: mapping.ticketing,
        ..planning_mapping()
    }
}

/// Splits failure comments into the parts that tests compare: the description of the failure, and the label
/// of the log excerpt. Other comments stay whole.
pub fn split_comments(comments: Vec<String>) -> Vec<String> {
    comments.into_iter().flat_map(split_comment).collect()
}

fn split_comment(comment: String) -> Vec<String> {
    let separators = ["\n\n**What to do:** ", "\nWhat to do: "];
    let Some(at) = separators
        .iter()
        .find_map(|separator| comment.find(separator))
    else {
        return vec![comment];
    };
    let (failure, rest) = comment.split_at(at);
    let label = rest
        .split_once("Log excerpt (")
        .and_then(|(_, log)| log.split_once(')'))
        .map(|(label, _)| format!("Log excerpt (`{label}`)"));
    std::iter::once(failure.to_owned()).chain(label).collect()
}
