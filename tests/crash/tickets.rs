//! The tickets that keep coming, and what must have become of each in the end: its whole history, not
//! only what it shows.

use domain::issue::System;
use domain::job::{JobKind, JobState};
use fake_vendors::FakeVendors;
use fake_vendors::scripted_agent::{Script, ScriptStep};

use crate::crash_env::CrashEnv;

/// What a person asks for beside the ticket.
pub const GAP_FILL_COMMAND: &str = "/agent-implement say it LOUDER";

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TicketKind {
    /// Becomes a pull request.
    Plain,
    /// Waits for ever for another.
    Blocked,
    /// Is planned first.
    Planned,
    /// Its change holds a secret.
    WithSecret,
    /// Becomes a pull request on which a person asks for more.
    WithGapFill,
    /// Its run is played by this test.
    FakeRun,
}

pub const TICKET_KINDS: [TicketKind; 6] = [
    TicketKind::Plain,
    TicketKind::Planned,
    TicketKind::WithSecret,
    TicketKind::WithGapFill,
    TicketKind::Blocked,
    TicketKind::FakeRun,
];

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ExpectedTicket {
    pub kind: TicketKind,
    pub key: String,
}

const PLAN: [&str; 2] = ["What is wanted", "How it is done"];

/// What stands in the way for ever.
const BLOCKERS: [&str; 2] = ["ENG-9001", "OPS-9001"];

pub fn set_up_vendors(town: &FakeVendors) {
    for team in ["ENG", "PLAN", "PUP"] {
        town.linear().ensure_team(team, team);
    }
    for project in ["OPS", "WAY", "SIM"] {
        town.jira().ensure_project(project, project);
    }
    town.linear().issue(BLOCKERS[0]).title("Stands in the way");
    town.jira().issue(BLOCKERS[1]).title("Stands in the way");
}

/// Files the ticket of a number and flags it.
pub fn create(world: &CrashEnv, kind: TicketKind, system: System, number: usize) {
    let team = match (kind, system) {
        (TicketKind::Planned, System::Linear) => "PLAN",
        (TicketKind::Planned, System::Jira) => "WAY",
        (TicketKind::FakeRun, System::Linear) => "PUP",
        (TicketKind::FakeRun, System::Jira) => "SIM",
        (_, System::Linear) => "ENG",
        (_, System::Jira) => "OPS",
    };
    let key = format!("{team}-{number}");
    if let Some(script) = script(kind) {
        script.save(&world.vendors.scripts_dir(), &key).unwrap();
    }
    // Known before anybody can answer.
    world.record().tickets.push(ExpectedTicket {
        kind,
        key: key.clone(),
    });
    let title = format!("{kind:?} of number {number}");
    match system {
        System::Linear => {
            let mut ticket = world.vendors.linear().issue(&key).title(&title);
            if kind == TicketKind::Blocked {
                ticket = ticket.blocked_by(BLOCKERS[0]);
            }
            ticket.add_label("Agent-Implement");
        }
        System::Jira => {
            let mut ticket = world.vendors.jira().issue(&key).title(&title).repo(team);
            if kind == TicketKind::Blocked {
                ticket = ticket.blocked_by(BLOCKERS[1]);
            }
            ticket.status("Ready");
        }
    }
}

fn script(kind: TicketKind) -> Option<Script> {
    let script = Script::new();
    match kind {
        TicketKind::Plain | TicketKind::Blocked | TicketKind::FakeRun => None,
        TicketKind::Planned => Some(
            script
                .pass_if_prompt_contains(
                    "You are planning",
                    [
                        ScriptStep::write("ai-output/comments/01-what.md", PLAN[0]),
                        ScriptStep::write("ai-output/comments/02-how.md", PLAN[1]),
                        ScriptStep::message("The plan is written."),
                    ],
                )
                .pass_if_prompt_contains(
                    PLAN[1],
                    [
                        ScriptStep::write("planned.txt", "done\n"),
                        ScriptStep::message("Done."),
                    ],
                ),
        ),
        TicketKind::WithSecret => {
            let key = format!("AWS_SECRET={}{}\n", "AKIA", "QWERTYUIOPASDFGH");
            let leak = ScriptStep::write("secrets/.env.production", &key);
            Some(script.pass([leak, ScriptStep::message("It is where it is used.")]))
        }
        TicketKind::WithGapFill => Some(
            script
                .pass([
                    ScriptStep::write("a.txt", "a\n"),
                    ScriptStep::message("I wrote a."),
                ])
                .pass_if_prompt_contains(
                    "LOUDER",
                    [
                        ScriptStep::write("a.txt", "A\n"),
                        ScriptStep::message("I wrote A."),
                    ],
                ),
        ),
    }
}

impl ExpectedTicket {
    pub fn system(&self) -> System {
        match self.team() {
            "ENG" | "PLAN" | "PUP" => System::Linear,
            _ => System::Jira,
        }
    }

    fn team(&self) -> &str {
        self.key.split('-').next().unwrap_or_default()
    }

    pub fn repo(&self) -> &'static str {
        match self.kind {
            TicketKind::FakeRun => "puppets",
            _ => "shop",
        }
    }

    /// The runs that it is to have had, in order, and how each ended.
    pub fn expected_jobs(&self) -> Vec<(JobKind, bool)> {
        let done = (JobKind::Implementation, true);
        match self.kind {
            TicketKind::Plain | TicketKind::FakeRun => vec![done],
            TicketKind::Blocked => vec![],
            TicketKind::Planned => vec![(JobKind::Planning, true), done],
            TicketKind::WithSecret => vec![(JobKind::Implementation, false)],
            TicketKind::WithGapFill => vec![done, (JobKind::GapFill, true)],
        }
    }

    /// How its comments begin.
    pub fn expected_comments(&self) -> Vec<&'static str> {
        const PULL: &str = "Pull request opened";
        match self.kind {
            TicketKind::Plain | TicketKind::FakeRun | TicketKind::WithGapFill => vec![PULL],
            TicketKind::Blocked => vec![],
            TicketKind::Planned => vec![PLAN[0], PLAN[1], PULL],
            TicketKind::WithSecret => vec!["🔒 Blocked by security guardrail"],
        }
    }

    /// Every change of its marker: labels put on (+) and taken off (-), or the values of its field.
    pub fn expected_history(&self) -> Vec<&'static str> {
        match (self.system(), self.kind) {
            (System::Linear, TicketKind::Blocked) => vec!["+Agent-Implement"],
            (System::Jira, TicketKind::Blocked) => vec!["Ready"],
            (System::Linear, TicketKind::Plain | TicketKind::FakeRun | TicketKind::WithGapFill) => {
                vec![
                    "+Agent-Implement",
                    "+Agent-Working",
                    "+Ready for Review",
                    "-Agent-Working",
                ]
            }
            (System::Linear, TicketKind::WithSecret) => vec![
                "+Agent-Implement",
                "+Agent-Working",
                "-Agent-Working",
                "-Agent-Implement",
            ],
            (System::Linear, TicketKind::Planned) => vec![
                "+Agent-Implement",
                "+Agent-Planning",
                "+Plan-Complete",
                "-Agent-Planning",
                "+Agent-Working",
                "-Plan-Complete",
                "+Ready for Review",
                "-Agent-Working",
            ],
            (System::Jira, TicketKind::Plain | TicketKind::FakeRun | TicketKind::WithGapFill) => {
                vec!["Ready", "Implementing", "PR Ready"]
            }
            (System::Jira, TicketKind::WithSecret) => {
                vec!["Ready", "Implementing", "Implementation Failed"]
            }
            (System::Jira, TicketKind::Planned) => vec![
                "Ready",
                "Planning",
                "Plan Approved",
                "Implementing",
                "PR Ready",
            ],
        }
    }

    /// What is wrong with what people see of it; none when all is as it must be.
    pub fn mismatch(&self, world: &CrashEnv) -> Option<String> {
        let seen = Seen::of(self, &world.vendors);
        let said = seen
            .comments
            .iter()
            .map(|said| said.trim_start_matches("## "));
        let is_said = said.clone().count() == self.expected_comments().len()
            && said
                .zip(self.expected_comments())
                .all(|(said, begin)| said.starts_with(begin));
        let is_right = is_said && seen.history == self.expected_history() && seen.links.is_empty();
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
    fn of(ticket: &ExpectedTicket, town: &FakeVendors) -> Self {
        match ticket.system() {
            System::Linear => {
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
            System::Jira => {
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
pub fn ended_as_expected(state: &JobState, is_well: bool) -> bool {
    match state {
        JobState::Completed => is_well,
        JobState::Failed { .. } => !is_well,
        _ => false,
    }
}
