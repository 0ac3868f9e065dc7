//! The tickets that keep coming, and what must have become of each in the end: its whole history, not
//! only what it shows.

use domain::issue::System;
use domain::job::{JobKind, JobState};
use fake_vendors::Town;
use fake_vendors::scripted_agent::{Script, Step};

use crate::world::World;

/// What a person asks for beside the ticket.
pub const COMMAND: &str = "/agent-implement say it LOUDER";

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Becomes a pull request.
    Plain,
    /// Waits for ever for another.
    Blocked,
    /// Is planned first.
    Planned,
    /// Its change holds a secret.
    Leaky,
    /// Becomes a pull request on which a person asks for more.
    Commanded,
    /// Its run is played by this test.
    Puppet,
}

pub const KINDS: [Kind; 6] = [
    Kind::Plain,
    Kind::Planned,
    Kind::Leaky,
    Kind::Commanded,
    Kind::Blocked,
    Kind::Puppet,
];

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket {
    pub kind: Kind,
    pub key: String,
}

const PLAN: [&str; 2] = ["What is wanted", "How it is done"];

/// What stands in the way for ever.
const BLOCKERS: [&str; 2] = ["ENG-9001", "OPS-9001"];

pub fn furnish(town: &Town) {
    for team in ["ENG", "PLAN", "PUP"] {
        town.linear().team(team, team);
    }
    for project in ["OPS", "WAY", "SIM"] {
        town.jira().project(project, project);
    }
    town.linear().issue(BLOCKERS[0]).title("Stands in the way");
    town.jira().issue(BLOCKERS[1]).title("Stands in the way");
}

/// Files the ticket of a number and flags it.
pub fn file(world: &World, kind: Kind, system: System, number: usize) {
    let team = match (kind, system) {
        (Kind::Planned, System::A) => "PLAN",
        (Kind::Planned, System::B) => "WAY",
        (Kind::Puppet, System::A) => "PUP",
        (Kind::Puppet, System::B) => "SIM",
        (_, System::A) => "ENG",
        (_, System::B) => "OPS",
    };
    let key = format!("{team}-{number}");
    if let Some(script) = script(kind) {
        script.save(&world.town.scripts(), &key).unwrap();
    }
    // Known before anybody can answer.
    world.record().tickets.push(Ticket {
        kind,
        key: key.clone(),
    });
    let title = format!("{kind:?} of number {number}");
    match system {
        System::A => {
            let mut ticket = world.town.linear().issue(&key).title(&title);
            if kind == Kind::Blocked {
                ticket = ticket.blocked_by(BLOCKERS[0]);
            }
            ticket.add_label("Agent-Implement");
        }
        System::B => {
            let mut ticket = world.town.jira().issue(&key).title(&title).repo(team);
            if kind == Kind::Blocked {
                ticket = ticket.blocked_by(BLOCKERS[1]);
            }
            ticket.status("Ready");
        }
    }
}

fn script(kind: Kind) -> Option<Script> {
    let script = Script::new();
    match kind {
        Kind::Plain | Kind::Blocked | Kind::Puppet => None,
        Kind::Planned => Some(
            script
                .pass_when(
                    "You are planning",
                    [
                        Step::write("ai-output/comments/01-what.md", PLAN[0]),
                        Step::write("ai-output/comments/02-how.md", PLAN[1]),
                        Step::say("The plan is written."),
                    ],
                )
                .pass_when(
                    PLAN[1],
                    [Step::write("planned.txt", "done\n"), Step::say("Done.")],
                ),
        ),
        Kind::Leaky => {
            let key = format!("AWS_SECRET={}{}\n", "AKIA", "QWERTYUIOPASDFGH");
            let leak = Step::write("secrets/.env.production", &key);
            Some(script.pass([leak, Step::say("It is where it is used.")]))
        }
        Kind::Commanded => Some(
            script
                .pass([Step::write("a.txt", "a\n"), Step::say("I wrote a.")])
                .pass_when(
                    "LOUDER",
                    [Step::write("a.txt", "A\n"), Step::say("I wrote A.")],
                ),
        ),
    }
}

impl Ticket {
    pub fn system(&self) -> System {
        match self.team() {
            "ENG" | "PLAN" | "PUP" => System::A,
            _ => System::B,
        }
    }

    fn team(&self) -> &str {
        self.key.split('-').next().unwrap_or_default()
    }

    pub fn repo(&self) -> &'static str {
        match self.kind {
            Kind::Puppet => "puppets",
            _ => "shop",
        }
    }

    /// The runs that it is to have had, in order, and how each ended.
    pub fn jobs(&self) -> Vec<(JobKind, bool)> {
        let done = (JobKind::Implementation, true);
        match self.kind {
            Kind::Plain | Kind::Puppet => vec![done],
            Kind::Blocked => vec![],
            Kind::Planned => vec![(JobKind::Planning, true), done],
            Kind::Leaky => vec![(JobKind::Implementation, false)],
            Kind::Commanded => vec![done, (JobKind::GapFill, true)],
        }
    }

    /// How its comments begin.
    pub fn comments(&self) -> Vec<&'static str> {
        const PULL: &str = "Pull request opened";
        match self.kind {
            Kind::Plain | Kind::Puppet | Kind::Commanded => vec![PULL],
            Kind::Blocked => vec![],
            Kind::Planned => vec![PLAN[0], PLAN[1], PULL],
            Kind::Leaky => vec!["🔒 Blocked by security guardrail"],
        }
    }

    /// Every change of its marker: labels put on (+) and taken off (-), or the values of its field.
    pub fn history(&self) -> Vec<&'static str> {
        match (self.system(), self.kind) {
            (System::A, Kind::Blocked) => vec!["+Agent-Implement"],
            (System::B, Kind::Blocked) => vec!["Ready"],
            (System::A, Kind::Plain | Kind::Puppet | Kind::Commanded) => vec![
                "+Agent-Implement",
                "+Agent-Working",
                "+Ready for Review",
                "-Agent-Working",
            ],
            (System::A, Kind::Leaky) => vec![
                "+Agent-Implement",
                "+Agent-Working",
                "-Agent-Working",
                "-Agent-Implement",
            ],
            (System::A, Kind::Planned) => vec![
                "+Agent-Implement",
                "+Agent-Planning",
                "+Plan-Complete",
                "-Agent-Planning",
                "+Agent-Working",
                "-Plan-Complete",
                "+Ready for Review",
                "-Agent-Working",
            ],
            (System::B, Kind::Plain | Kind::Puppet | Kind::Commanded) => {
                vec!["Ready", "Implementing", "PR Ready"]
            }
            (System::B, Kind::Leaky) => vec!["Ready", "Implementing", "Implementation Failed"],
            (System::B, Kind::Planned) => vec![
                "Ready",
                "Planning",
                "Plan Approved",
                "Implementing",
                "PR Ready",
            ],
        }
    }

    /// What is wrong with what people see of it; none when all is as it must be.
    pub fn wrong(&self, world: &World) -> Option<String> {
        let seen = Seen::of(self, &world.town);
        let said = seen
            .comments
            .iter()
            .map(|said| said.trim_start_matches("## "));
        let is_said = said.clone().count() == self.comments().len()
            && said
                .zip(self.comments())
                .all(|(said, begin)| said.starts_with(begin));
        let is_right = is_said && seen.history == self.history() && seen.links.is_empty();
        (!is_right).then(|| format!("{self:?}: {seen:?}"))
    }
}

/// What people see of a ticket.
#[derive(Debug)]
struct Seen {
    history: Vec<String>,
    comments: Vec<String>,
    links: Vec<String>,
}

impl Seen {
    fn of(ticket: &Ticket, town: &Town) -> Self {
        match ticket.system() {
            System::A => {
                let seen = town.linear().issue(&ticket.key).snapshot().unwrap();
                let sign = |added| if added { '+' } else { '-' };
                let history = seen.history.iter();
                Self {
                    history: history
                        .map(|change| format!("{}{}", sign(change.added), change.label))
                        .collect(),
                    comments: seen.comments.into_iter().map(|said| said.body).collect(),
                    links: seen.links.into_iter().map(|link| link.url).collect(),
                }
            }
            System::B => {
                let seen = town.jira().issue(&ticket.key).snapshot().unwrap();
                let history = seen.history.into_iter();
                Self {
                    history: history
                        .filter(|change| change.field == "Agent-Implement Status")
                        .map(|change| change.value.unwrap_or_default())
                        .collect(),
                    comments: seen.comments.into_iter().map(|said| said.text).collect(),
                    links: seen.links,
                }
            }
        }
    }
}

/// Whether a job has ended as it was to.
pub fn is_as_told(state: &JobState, is_well: bool) -> bool {
    match state {
        JobState::Completed => is_well,
        JobState::Failed { .. } => !is_well,
        _ => false,
    }
}
