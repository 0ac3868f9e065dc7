//! Tickets and mappings of tests that run on all ticketing systems.

mod conversation;

pub use conversation::{call_on_command_line, poll_comments, set_clock_ahead, settle};

use domain::issue::System;
use domain::mapping::{Mapping, TicketingConfig};

use crate::jira::mapping_with_query;
use crate::test_env::{TestEnv, mapping, planning_mapping};

/// All ticketing systems.
pub const SYSTEMS: [System; 3] = [System::Linear, System::Jira, System::GitHub];

/// Ticket of a fake ticketing system.
pub enum TestTicket {
    Linear(fake_vendors::LinearTicket),
    Jira(fake_vendors::JiraTicket),
    GitHub(fake_vendors::FakeIssue),
}

impl TestTicket {
    /// Creates a ticket without a trigger. Its key names the team, project or repository. A Jira ticket names
    /// the mapping with the same name as its project.
    pub fn create(env: &TestEnv, system: System, key: &str, title: &str) -> Self {
        match system {
            System::Linear => Self::Linear(env.vendors.linear().issue(key).title(title)),
            System::Jira => {
                let (project, _) = key.split_once('-').unwrap();
                Self::Jira(env.vendors.jira().issue(key).title(title).repo(project))
            }
            System::GitHub => Self::GitHub(env.github_issue(key).unwrap().title(title)),
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
            Self::GitHub(issue) => {
                issue.clone().remove_label("Agent-Implement");
                issue.clone().add_label("Agent-Implement");
            }
        }
    }

    /// Adds a ticket that blocks this one. An issue of GitHub is in the same repository.
    pub fn add_blocker(&self, blocker: &str) {
        match self {
            Self::Linear(ticket) => drop(ticket.clone().blocked_by(blocker)),
            Self::Jira(ticket) => drop(ticket.clone().blocked_by(blocker)),
            Self::GitHub(issue) => {
                let (_, number) = blocker.rsplit_once('#').unwrap();
                drop(issue.clone().blocked_by(number.parse().unwrap()));
            }
        }
    }

    /// Sets the in-progress marker, although the service has no run.
    pub fn mark_in_progress(&self) {
        match self {
            Self::Linear(ticket) => drop(ticket.clone().add_label("Agent-Working")),
            Self::Jira(ticket) => drop(ticket.clone().status("Implementing")),
            Self::GitHub(issue) => drop(issue.clone().add_label("Agent-Working")),
        }
    }

    /// Removes every marker of the service and applies the trigger.
    pub fn reset_to_trigger(&self) {
        if let Self::Linear(ticket) = self {
            for label in ticket.labels() {
                ticket.clone().remove_label(&label);
            }
        }
        if let Self::GitHub(issue) = self {
            for label in issue.labels() {
                issue.clone().remove_label(&label);
            }
        }
        self.trigger();
    }

    /// Returns the markers of its stage: its labels, or the value of its status field.
    pub fn markers(&self) -> Vec<String> {
        match self {
            Self::Linear(ticket) => ticket.labels(),
            Self::Jira(ticket) => Vec::from_iter(ticket.snapshot().unwrap().status),
            Self::GitHub(issue) => issue.labels(),
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
            Self::GitHub(issue) => {
                let history = issue.snapshot().unwrap().history.into_iter();
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

    /// Returns its comments, oldest first: Markdown on Linear, Markdown without the marker on GitHub, the
    /// plain text of the rich text on Jira.
    pub fn comments(&self) -> Vec<String> {
        match self {
            Self::Linear(ticket) => split_comments(ticket.comments()),
            Self::Jira(ticket) => split_comments(ticket.comments()),
            Self::GitHub(issue) => {
                let comments = issue.comments().into_iter();
                let comments = comments.map(|comment| without_marker(&comment));
                split_comments(comments.collect())
            }
        }
    }

    /// Returns its complete state as text, for comparison.
    pub fn snapshot_text(&self) -> String {
        match self {
            Self::Linear(ticket) => format!("{:#?}", ticket.snapshot().unwrap()),
            Self::Jira(ticket) => format!("{:#?}", ticket.snapshot().unwrap()),
            Self::GitHub(issue) => format!("{:#?}", issue.snapshot().unwrap()),
        }
    }
}

/// Returns a comment of GitHub as people see it.
fn without_marker(comment: &str) -> String {
    let marked = comment.split_once("\n\n<!-- agent-implement:");
    marked.map_or(comment, |(text, _)| text).to_owned()
}

/// Returns the key of a ticket in a system, from `TEAM-1`: `team#1` on GitHub.
pub fn key_in(system: System, key: &str) -> String {
    match system {
        System::Linear | System::Jira => key.to_owned(),
        System::GitHub => key.to_lowercase().replace('-', "#"),
    }
}

/// Returns the key of the ticket with this number in the team, project or repository of [`mapping_for`]'s examples.
pub fn example_key(system: System, number: u32) -> String {
    let team = example_team(system);
    key_in(system, &format!("{team}-{number}"))
}

/// Returns a team, project or repository of a system.
pub fn example_team(system: System) -> &'static str {
    match system {
        System::Linear => "ENG",
        System::Jira => "OPS",
        System::GitHub => "SHOP",
    }
}

/// Returns the mapping of the issues of a repository of GitHub.
pub fn github_mapping(team: &str, owner: &str, repo: &str) -> Mapping {
    Mapping {
        team_key: team.into(),
        owner: owner.to_owned(),
        repo: repo.to_owned(),
        ticketing: TicketingConfig::GitHub { matching: None },
        ..mapping()
    }
}

/// Returns the mapping of a team or project to `acme/shop`, or of the repository of `acme` with the name of
/// the team, in lower case.
pub fn mapping_for(system: System, team: &str) -> Mapping {
    match system {
        System::Linear => Mapping {
            team_key: team.into(),
            ..mapping()
        },
        System::Jira => mapping_with_query(team, &format!("project = {team}"), team),
        System::GitHub => github_mapping(team, "acme", &team.to_lowercase()),
    }
}

/// Returns the mapping with planning before implementation.
pub fn with_planning(mapping: Mapping) -> Mapping {
    Mapping {
        team_key: mapping.team_key,
        ticketing: mapping.ticketing,
        owner: mapping.owner,
        repo: mapping.repo,
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
