//! A ticket of a story that happens on both ticketing systems, and the mapping that finds it.

use domain::issue::System;
use domain::mapping::Mapping;

use crate::jira::mapping_with_query;
use crate::test_env::{TestEnv, mapping, planning_mapping};

/// Both ticketing systems.
pub const SYSTEMS: [System; 2] = [System::Linear, System::Jira];

/// A ticket that people and the service change.
pub enum TestTicket {
    Linear(fake_vendors::LinearTicket),
    Jira(fake_vendors::JiraTicket),
}

impl TestTicket {
    /// Files a ticket that nobody has flagged yet: of the team or project in its key, and for the
    /// repository of the mapping of that name.
    pub fn create(world: &TestEnv, system: System, key: &str, title: &str) -> Self {
        match system {
            System::Linear => Self::Linear(world.vendors.linear().issue(key).title(title)),
            System::Jira => {
                let (project, _) = key.split_once('-').unwrap();
                Self::Jira(world.vendors.jira().issue(key).title(title).repo(project))
            }
        }
    }

    /// Asks for a run, as a person does: applies the trigger anew.
    pub fn trigger(&self) {
        match self {
            Self::Linear(ticket) => {
                ticket.clone().remove_label("Agent-Implement");
                ticket.clone().add_label("Agent-Implement");
            }
            Self::Jira(ticket) => drop(ticket.clone().status("Ready")),
        }
    }

    /// Says that another ticket blocks it.
    pub fn add_blocker(&self, blocker: &str) {
        match self {
            Self::Linear(ticket) => drop(ticket.clone().blocked_by(blocker)),
            Self::Jira(ticket) => drop(ticket.clone().blocked_by(blocker)),
        }
    }

    /// Shows work in progress that the service knows nothing of.
    pub fn mark_in_progress(&self) {
        match self {
            Self::Linear(ticket) => drop(ticket.clone().add_label("Agent-Working")),
            Self::Jira(ticket) => drop(ticket.clone().status("Implementing")),
        }
    }

    /// Takes every marker of the service away, so that only the trigger is left.
    pub fn reset_to_trigger(&self) {
        if let Self::Linear(ticket) = self {
            for label in ticket.labels() {
                ticket.clone().remove_label(&label);
            }
        }
        self.trigger();
    }

    /// What shows its stage: its labels, or the value of its status field.
    pub fn markers(&self) -> Vec<String> {
        match self {
            Self::Linear(ticket) => ticket.labels(),
            Self::Jira(ticket) => Vec::from_iter(ticket.snapshot().unwrap().status),
        }
    }

    /// From when to when it showed work in progress, in milliseconds of the vendor's clock; once.
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
                let from_there =
                    of_field.skip_while(|change| change.value.as_deref() != Some("Implementing"));
                from_there.map(|change| change.at_ms).collect()
            }
        };
        let [from, to] = moments[..] else {
            panic!("{moments:?}")
        };
        (from.unsigned_abs(), to.unsigned_abs())
    }

    /// Its comments, oldest first: Markdown on Linear, the words of the rich text on Jira.
    pub fn comments(&self) -> Vec<String> {
        match self {
            Self::Linear(ticket) => split_comments(ticket.comments()),
            Self::Jira(ticket) => split_comments(ticket.comments()),
        }
    }

    /// Everything that is to be seen of it, to tell whether anything has changed.
    pub fn snapshot_text(&self) -> String {
        match self {
            Self::Linear(ticket) => format!("{:#?}", ticket.snapshot().unwrap()),
            Self::Jira(ticket) => format!("{:#?}", ticket.snapshot().unwrap()),
        }
    }
}

/// The mapping of a team or project to `acme/shop`.
pub fn mapping_for(system: System, team: &str) -> Mapping {
    match system {
        System::Linear => Mapping {
            team_key: team.into(),
            ..mapping()
        },
        System::Jira => mapping_with_query(team, &format!("project = {team}"), team),
    }
}

/// The same, with planning before implementation.
pub fn with_planning(mapping: Mapping) -> Mapping {
    Mapping {
        team_key: mapping.team_key,
        ticketing: mapping.ticketing,
        ..planning_mapping()
    }
}

/// Comments as stories compare them: of one about a failure what happened, and by itself what its log is
/// labelled with.
pub fn split_comments(comments: Vec<String>) -> Vec<String> {
    comments.into_iter().flat_map(parts).collect()
}

fn parts(comment: String) -> Vec<String> {
    let marks = ["\n\n**What to do:** ", "\nWhat to do: "];
    let Some(at) = marks.iter().find_map(|mark| comment.find(mark)) else {
        return vec![comment];
    };
    let (happened, rest) = comment.split_at(at);
    let label = rest
        .split_once("Log excerpt (")
        .and_then(|(_, log)| log.split_once(')'))
        .map(|(label, _)| format!("Log excerpt (`{label}`)"));
    std::iter::once(happened.to_owned()).chain(label).collect()
}
