//! Tickets of the crash tests and their expected final state, including the whole history.

use domain::issue::System;
use domain::job::{JobKind, JobState};
use fake_vendors::FakeVendors;
use fake_vendors::scripted_agent::{Script, ScriptStep};

use crate::conversation::{CONVERSATIONS, Conversation};
use crate::crash_env::CrashEnv;
use crate::landing::{LANDING, Landing, PROTECTED, UP_TO_DATE};
use crate::visible_state::VisibleState;

/// Command that a user posts on a pull request.
pub const GAP_FILL_COMMAND: &str = "/agent-implement say it LOUDER";

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TicketKind {
    /// Becomes a pull request.
    Plain,
    /// Waits forever for another ticket.
    Blocked,
    /// Is planned first.
    Planned,
    /// Its change contains a secret.
    WithSecret,
    /// Becomes a pull request with a gap-fill command.
    WithGapFill,
    /// Its run is a fake run.
    FakeRun,
    /// Its run is cancelled by the operator.
    Cancelled,
    /// Its run is cancelled by the operator, who then retries it.
    Retried,
    /// It waits for people.
    Conversation(Conversation),
    /// Its pull request is brought to its merge.
    Landing(Landing),
}

/// Kinds of tickets that wait for nobody, and end with their runs.
const UNATTENDED: [TicketKind; 8] = [
    TicketKind::Plain,
    TicketKind::Planned,
    TicketKind::WithSecret,
    TicketKind::WithGapFill,
    TicketKind::Blocked,
    TicketKind::FakeRun,
    TicketKind::Cancelled,
    TicketKind::Retried,
];

/// All kinds but those that land.
pub fn ticket_kinds() -> Vec<TicketKind> {
    let conversations = CONVERSATIONS.map(TicketKind::Conversation);
    [&UNATTENDED[..], &conversations].concat()
}

impl TicketKind {
    pub fn has_fake_run(self) -> bool {
        matches!(
            self,
            TicketKind::FakeRun
                | TicketKind::Cancelled
                | TicketKind::Retried
                | TicketKind::Conversation(_)
        )
    }
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ExpectedTicket {
    pub kind: TicketKind,
    pub key: String,
}

const PLAN: [&str; 2] = ["What is wanted", "How it is done"];

/// Keys of the permanent blockers.
const BLOCKERS: [&str; 2] = ["ENG-9001", "OPS-9001"];

const LINEAR_TEAMS: [&str; 8] = [
    "ENG", "PLAN", "FAKE", "GATE", "RULE", "LAND", "BEHIND", "ARM",
];

pub fn set_up_vendors(vendors: &FakeVendors) {
    for team in LINEAR_TEAMS {
        vendors.linear().ensure_team(team, team);
    }
    for project in ["OPS", "WAY", "SIM", "ASK", "AUTO", "PORT", "LAG", "HOLD"] {
        vendors.jira().ensure_project(project, project);
    }
    vendors.linear().issue(BLOCKERS[0]).title("Blocker");
    vendors.jira().issue(BLOCKERS[1]).title("Blocker");
}

/// Repositories of all runs. The issues of all but the first two are tickets.
pub const REPOS: [&str; 10] = [
    "shop",
    FAKE_RUNS,
    LANDING,
    UP_TO_DATE,
    PROTECTED,
    ISSUES,
    PLANNED_ISSUES,
    FAKE_RUN_ISSUES,
    GATED_ISSUES,
    RULED_ISSUES,
];

/// Repositories whose runs are fake.
pub const FAKE_RUN_REPOS: [&str; 4] = [FAKE_RUNS, FAKE_RUN_ISSUES, GATED_ISSUES, RULED_ISSUES];

/// Repository of the fake runs of tickets in Linear and Jira.
pub const FAKE_RUNS: &str = "fake-runs";

/// Repository with issues.
pub const ISSUES: &str = "issues";
/// Repository whose issues are planned first.
pub const PLANNED_ISSUES: &str = "planned-issues";
/// Repository of issues whose runs are fake.
pub const FAKE_RUN_ISSUES: &str = "fake-run-issues";
/// Repository of issues whose plans wait, and whose runs are fake.
pub const GATED_ISSUES: &str = "gated-issues";
/// Repository of issues whose plans a rule approves, and whose runs are fake.
pub const RULED_ISSUES: &str = "ruled-issues";

/// Number of the permanent blocker.
const BLOCKING_ISSUE: u64 = 9_000_001;

/// Distance between the numbers of two issues. Pull requests take numbers in between.
const ISSUE_STEP: usize = 100;

/// Creates and triggers the ticket with this number.
pub fn create(env: &CrashEnv, kind: TicketKind, system: System, number: usize) {
    let team = match (kind, system) {
        (TicketKind::Conversation(Conversation::ApprovedByRule), system) => match system {
            System::Linear => "RULE",
            System::Jira => "AUTO",
            System::GitHub => RULED_ISSUES,
        },
        (TicketKind::Conversation(one), system) if one.is_planned() => match system {
            System::Linear => "GATE",
            System::Jira => "ASK",
            System::GitHub => GATED_ISSUES,
        },
        (TicketKind::Landing(one), system) => one.team(system),
        (TicketKind::Planned, System::Linear) => "PLAN",
        (TicketKind::Planned, System::Jira) => "WAY",
        (kind, System::Linear) if kind.has_fake_run() => "FAKE",
        (kind, System::Jira) if kind.has_fake_run() => "SIM",
        (_, System::Linear) => "ENG",
        (_, System::Jira) => "OPS",
        (TicketKind::Planned, System::GitHub) => PLANNED_ISSUES,
        (kind, System::GitHub) if kind.has_fake_run() => FAKE_RUN_ISSUES,
        (_, System::GitHub) => ISSUES,
    };
    let key = match system {
        System::Linear | System::Jira => format!("{team}-{number}"),
        System::GitHub => format!("{team}#{}", number * ISSUE_STEP),
    };
    if let Some(script) = script(env, kind, &key) {
        script.save(&env.vendors.scripts_dir(), &key).unwrap();
    }
    // Recorded before the service can react.
    env.record().tickets.push(ExpectedTicket {
        kind,
        key: key.clone(),
    });
    let title = format!("{kind:?} ticket {number}");
    match system {
        System::Linear => {
            let mut ticket = env.vendors.linear().issue(&key).title(&title);
            if kind == TicketKind::Blocked {
                ticket = ticket.blocked_by(BLOCKERS[0]);
            }
            ticket.add_label("Agent-Implement");
        }
        System::Jira => {
            let mut ticket = env.vendors.jira().issue(&key).title(&title).repo(team);
            if kind == TicketKind::Blocked {
                ticket = ticket.blocked_by(BLOCKERS[1]);
            }
            ticket.status("Ready");
        }
        System::GitHub => {
            let repo = env.repo(team);
            let number = (number * ISSUE_STEP) as u64;
            let mut issue = repo.issue(number).title(&title);
            if kind == TicketKind::Blocked {
                let blocker = repo.issue(BLOCKING_ISSUE).title("Blocker");
                issue = issue.blocked_by_issue(&blocker);
            }
            issue.add_label("Agent-Implement");
        }
    }
}

fn script(env: &CrashEnv, kind: TicketKind, key: &str) -> Option<Script> {
    let script = Script::new();
    match kind {
        TicketKind::Plain
        | TicketKind::Blocked
        | TicketKind::FakeRun
        | TicketKind::Cancelled
        | TicketKind::Retried
        | TicketKind::Conversation(_) => None,
        TicketKind::Landing(one) => Some(one.script(env, key)),
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
            _ if self.key.contains('#') => System::GitHub,
            team if LINEAR_TEAMS.contains(&team) => System::Linear,
            _ => System::Jira,
        }
    }

    fn team(&self) -> &str {
        self.key.split('-').next().unwrap_or_default()
    }

    pub fn repo(&self) -> &'static str {
        match (self.system(), self.kind) {
            (_, TicketKind::Landing(one)) => one.repo(),
            (System::GitHub, TicketKind::Planned) => PLANNED_ISSUES,
            (System::GitHub, TicketKind::Conversation(Conversation::ApprovedByRule)) => {
                RULED_ISSUES
            }
            (System::GitHub, TicketKind::Conversation(one)) if one.is_planned() => GATED_ISSUES,
            (System::GitHub, kind) if kind.has_fake_run() => FAKE_RUN_ISSUES,
            (System::GitHub, _) => ISSUES,
            (_, kind) if kind.has_fake_run() => FAKE_RUNS,
            _ => "shop",
        }
    }

    /// Number of the issue.
    pub fn number(&self) -> u64 {
        self.key.split_once('#').unwrap().1.parse().unwrap()
    }

    /// Expected jobs in order, and whether each succeeds.
    pub fn expected_jobs(&self) -> Vec<(JobKind, bool)> {
        let done = (JobKind::Implementation, true);
        match self.kind {
            TicketKind::Plain | TicketKind::FakeRun => vec![done],
            TicketKind::Blocked => vec![],
            TicketKind::Planned => vec![(JobKind::Planning, true), done],
            TicketKind::WithSecret | TicketKind::Cancelled => {
                vec![(JobKind::Implementation, false)]
            }
            TicketKind::Retried => vec![(JobKind::Implementation, false), done],
            TicketKind::WithGapFill => vec![done, (JobKind::GapFill, true)],
            TicketKind::Conversation(one) => one.expected_jobs(),
            TicketKind::Landing(one) => one.expected_jobs(),
        }
    }

    /// Expected comment prefixes.
    pub fn expected_comments(&self) -> Vec<&'static str> {
        const PULL: &str = "Pull request opened";
        const CANCELLED: &str = "Implementation cancelled by an operator";
        match self.kind {
            TicketKind::Plain | TicketKind::FakeRun | TicketKind::WithGapFill => vec![PULL],
            TicketKind::Blocked => vec![],
            TicketKind::Planned => vec![PLAN[0], PLAN[1], PULL],
            TicketKind::WithSecret => vec!["🔒 Blocked by security guardrail"],
            TicketKind::Cancelled => vec![CANCELLED],
            TicketKind::Retried => vec![CANCELLED, PULL],
            TicketKind::Conversation(one) => {
                let lines = one.lines().iter();
                lines.filter_map(|line| line.comment()).collect()
            }
            TicketKind::Landing(one) => vec![PULL, one.last_comment()],
        }
    }

    /// Expected chat messages, and how many of them equal an earlier one, as those about the starts of two runs of one
    /// kind do.
    pub fn expected_chat(&self) -> (usize, usize) {
        if let TicketKind::Conversation(one) = self.kind {
            return one.expected_chat();
        }
        let jobs = self.expected_jobs().into_iter();
        let messages = jobs.map(|(kind, succeeds)| match kind.phase() {
            Some(_) => 2,
            None => usize::from(!succeeds),
        });
        let repeated = usize::from(self.kind == TicketKind::Retried);
        (messages.sum(), repeated)
    }

    /// Expected marker changes: labels added (+) and removed (-), or the values of the status field.
    pub fn expected_history(&self) -> Vec<&'static str> {
        match (self.system(), self.kind) {
            (system, TicketKind::Conversation(one)) => one.expected_history(system),
            (System::Linear | System::GitHub, TicketKind::Blocked) => vec!["+Agent-Implement"],
            (System::Jira, TicketKind::Blocked) => vec!["Ready"],
            (
                System::Linear | System::GitHub,
                TicketKind::Plain
                | TicketKind::FakeRun
                | TicketKind::WithGapFill
                | TicketKind::Landing(_),
            ) => {
                vec![
                    "+Agent-Implement",
                    "+Agent-Working",
                    "+Ready for Review",
                    "-Agent-Working",
                ]
            }
            (System::GitHub, TicketKind::Retried) => vec![
                "+Agent-Implement",
                "+Agent-Working",
                "-Agent-Implement",
                "-Agent-Working",
                "+Agent-Implement",
                "+Agent-Working",
                "+Ready for Review",
                "-Agent-Working",
            ],
            (System::GitHub, TicketKind::WithSecret | TicketKind::Cancelled) => vec![
                "+Agent-Implement",
                "+Agent-Working",
                "-Agent-Implement",
                "-Agent-Working",
            ],
            (System::Linear, TicketKind::Retried) => vec![
                "+Agent-Implement",
                "+Agent-Working",
                "-Agent-Working",
                "-Agent-Implement",
                "+Agent-Implement",
                "+Agent-Working",
                "+Ready for Review",
                "-Agent-Working",
            ],
            (System::Linear, TicketKind::WithSecret | TicketKind::Cancelled) => vec![
                "+Agent-Implement",
                "+Agent-Working",
                "-Agent-Working",
                "-Agent-Implement",
            ],
            (System::Linear | System::GitHub, TicketKind::Planned) => vec![
                "+Agent-Implement",
                "+Agent-Planning",
                "+Plan-Complete",
                "-Agent-Planning",
                "+Agent-Working",
                "-Plan-Complete",
                "+Ready for Review",
                "-Agent-Working",
            ],
            (
                System::Jira,
                TicketKind::Plain
                | TicketKind::FakeRun
                | TicketKind::WithGapFill
                | TicketKind::Landing(_),
            ) => {
                vec!["Ready", "Implementing", "PR Ready"]
            }
            (System::Jira, TicketKind::Cancelled) => vec!["Ready", "Implementing", ""],
            (System::Jira, TicketKind::Retried) => vec![
                "Ready",
                "Implementing",
                "",
                "Ready",
                "Implementing",
                "PR Ready",
            ],
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

    /// Whether the ticket shows that work is in progress, or did so.
    pub fn has_shown_work(&self, env: &CrashEnv) -> bool {
        let history = VisibleState::of(self, &env.vendors).history;
        let markers = ["+Agent-Working", "Implementing"];
        history
            .iter()
            .any(|change| markers.contains(&change.as_str()))
    }

    /// Comments on the ticket, oldest first.
    pub fn comments(&self, env: &CrashEnv) -> Vec<String> {
        VisibleState::of(self, &env.vendors).comments
    }

    /// Checks that exactly the runs whose start was not confirmed before their end have no marker of progress.
    pub fn check_progress(&self, env: &CrashEnv, unconfirmed: usize) -> Result<(), String> {
        let begins = |change: &&str| PROGRESS_BEGINS.contains(change);
        let history = VisibleState::of(self, &env.vendors).history;
        let shown = history.iter().map(String::as_str).filter(begins).count();
        let expected = self
            .expected_history()
            .into_iter()
            .filter(|one| begins(one));
        match shown + unconfirmed == expected.count() {
            true => Ok(()),
            false => Err(format!(
                "{unconfirmed} unconfirmed starts of {self:?}: {history:?}"
            )),
        }
    }

    /// Difference between the visible and the expected state, if any.
    pub fn mismatch(&self, env: &CrashEnv) -> Option<String> {
        let state = VisibleState::of(self, &env.vendors);
        let comments = state
            .comments
            .iter()
            .map(|comment| comment.trim_start_matches("## "));
        let comments_match = comments.clone().count() == self.expected_comments().len()
            && comments
                .zip(self.expected_comments())
                .all(|(comment, prefix)| comment.starts_with(prefix));
        let history: Vec<&str> = state.history.iter().map(String::as_str).collect();
        let history_matches = match env.record().machines_before {
            0 => history == self.expected_history(),
            _ => matches_after_take_over(&history, &self.expected_history()),
        };
        let matches = comments_match && history_matches && state.links.is_empty();
        (!matches).then(|| format!("{self:?}: {state:?}"))
    }
}

/// Markers that show that a run is at work.
const PROGRESS_BEGINS: [&str; 4] = [
    "+Agent-Working",
    "+Agent-Planning",
    "Implementing",
    "Planning",
];

/// Changes of such a marker.
const PROGRESS: [&str; 6] = [
    "+Agent-Working",
    "-Agent-Working",
    "+Agent-Planning",
    "-Agent-Planning",
    "Implementing",
    "Planning",
];

/// Whether a history is as expected but for markers of progress. How many of these are missing is checked at the end
/// ([`ExpectedTicket::check_progress`]).
fn matches_after_take_over(history: &[&str], expected: &[&str]) -> bool {
    let lasting = |changes: &[&str]| -> [Vec<String>; 2] {
        let lasting = changes.iter().filter(|change| !PROGRESS.contains(change));
        let lasting = lasting.map(|change| (*change).to_owned());
        let (mut removed, set): (Vec<_>, Vec<_>) = lasting.partition(|one| one.starts_with('-'));
        // A marker is removed after the next one is set, whichever that is.
        removed.sort();
        [set, removed]
    };
    let count =
        |changes: &[&str], one: &str| changes.iter().filter(|change| **change == one).count();
    lasting(history) == lasting(expected)
        && PROGRESS
            .iter()
            .all(|one| count(history, one) <= count(expected, one))
}

/// Whether a job ended as expected.
pub fn ended_as_expected(state: &JobState, succeeds: bool) -> bool {
    match state {
        JobState::Completed => succeeds,
        JobState::Failed { .. } => !succeeds,
        _ => false,
    }
}
