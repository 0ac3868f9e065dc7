//! What a demo that was killed and started again leaves behind, and what it has to be.

use std::path::Path;

use fake_vendors::demo::{self, Tracker};
use fake_vendors::{FakeVendors, FakeVendorsOptions, MachineSnapshot};

use crate::demo::DemoRunner;
use crate::program::PROGRAM;

/// The last that a session's ticket is told.
const GONE: &str = "Session machine cleaned up";

/// What is left once nothing is to be done any more.
#[derive(Debug)]
pub struct DemoOutcome {
    workflow_runs: usize,
    /// Of each pull request, those that our runs made.
    commits: Vec<usize>,
    /// Names of all machines that ever were there.
    made: Vec<String>,
    left: Vec<MachineSnapshot>,
    /// What shows each ticket's stage, and its comments.
    tickets: Vec<(Vec<String>, Vec<String>)>,
}

impl DemoOutcome {
    /// Looks at the town of a demo that has ended.
    pub fn load(dir: &Path, tracker: Tracker) -> Self {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let options = FakeVendorsOptions::new(dir.join("town"), PROGRAM);
        let town = runtime.block_on(FakeVendors::start(options)).unwrap();
        let repo = town.github().repo(demo::DEMO_OWNER, demo::DEMO_REPO);
        let commits = |head: &str| {
            let commits = repo.commits(head).into_iter();
            let made = commits.filter(|commit| commit.message.contains("Agent-Implement-Dispatch"));
            made.count()
        };
        let pulls = repo.pulls().into_iter();
        let remains = Self {
            workflow_runs: repo.runs().len(),
            commits: pulls.map(|pull| commits(&pull.head)).collect(),
            made: [town.fly().created_names(), town.docker().created_names()].concat(),
            left: [town.fly().machines(), town.docker().containers()].concat(),
            tickets: TICKETS.map(|key| shown(&town, tracker, key)).to_vec(),
        };
        runtime.block_on(town.stop());
        remains
    }

    /// Everything is as if nothing had been killed.
    pub fn is_as_expected(&self, tracker: Tracker, runner: DemoRunner) -> bool {
        let ran = (self.workflow_runs, self.made.len());
        let all_ran = match runner {
            DemoRunner::Ci => ran == (4, 0),
            DemoRunner::Vm | DemoRunner::Local => ran == (0, 4),
        };
        let mut tickets = self.tickets.iter().zip(ends(tracker, runner));
        all_ran
            && self.commits == [1, 1]
            && self.left.is_empty()
            && tickets.all(|((shown, said), (marker, begins))| {
                shown == marker && said.len() == begins.len() && alike(said, &begins) == said.len()
            })
    }

    /// Each ticket has been told as usual, as far as its run came, and then that it died.
    pub fn is_as_expected_after_machine_loss(&self, tracker: Tracker, runner: DemoRunner) -> bool {
        let mut tickets = self.tickets.iter().zip(ends(tracker, runner));
        self.made.len() <= 4
            && self.commits.iter().all(|commits| *commits == 1)
            && self.left.is_empty()
            && tickets.all(|((_, said), (_, begins))| {
                let (usual, rest) = said.split_at(alike(said, &begins));
                (rest.is_empty() && said.len() == begins.len()) || tells_the_death(usual, rest)
            })
    }
}

/// The demo's tickets.
const TICKETS: [&str; 4] = [
    demo::DEMO_PLAIN,
    demo::DEMO_BLOCKED,
    demo::DEMO_SECRET_LEAK,
    demo::DEMO_PLANNED,
];

/// Each ticket's marker in the end, and how its comments begin.
fn ends(tracker: Tracker, runner: DemoRunner) -> [(&'static [&'static str], Vec<&'static str>); 4] {
    const PULL: &str = "Pull request opened";
    const GUARDED: &str = "🔒 Blocked by security guardrail";
    const MADE: &str = "Session machine created";
    const READY: &str = "Environment ready";
    const FINISHED: &str = "Finished. PR #";
    let [waiting, opened, failed]: [&[&str]; 3] = match tracker {
        Tracker::Linear => [
            &["Agent-Implement"],
            &["Agent-Implement", "Ready for Review"],
            &[],
        ],
        Tracker::Jira => [&["Ready"], &["PR Ready"], &["Implementation Failed"]],
    };
    let plan = ["What is wanted", "Steps"];
    let [plain, leaky, planned] = match runner {
        DemoRunner::Ci => [vec![PULL], vec![GUARDED], [&plan[..], &[PULL]].concat()],
        DemoRunner::Vm | DemoRunner::Local => {
            let plain = vec![MADE, READY, FINISHED, PULL, GONE];
            let planned = [&[MADE], &plan[..], &[GONE], &plain].concat();
            let leaky = vec![MADE, READY, "Session failed: 🔒", GUARDED, GONE];
            [plain, leaky, planned]
        }
    };
    [
        (opened, plain),
        (waiting, vec![]),
        (failed, leaky),
        (opened, planned),
    ]
}

/// How many comments begin as they should, up to the first that does not.
fn alike(said: &[String], begins: &[&str]) -> usize {
    said.iter()
        .zip(begins)
        .take_while(|(said, begin)| said.trim_start_matches("## ").starts_with(**begin))
        .count()
}

/// What a ticket is told of a run that died with its machine, after what it was told as usual. A session
/// that had told of a failure of its own is not told to have failed again; the log is left out where
/// there is none.
fn tells_the_death(usual: &[String], said: &[String]) -> bool {
    const DIED: &str = "failed: the session ended with exit code 137";
    let had_failed = usual
        .last()
        .is_some_and(|last| last.starts_with("Session failed"));
    let of_run = match said.split_first() {
        _ if had_failed => said,
        Some((session, rest)) if session.starts_with(&format!("Session {DIED}")) => rest,
        _ => return false,
    };
    match of_run {
        [run, log @ .., gone] => {
            ["Planning", "Implementation"].contains(&run.split(' ').next().unwrap())
                && run.contains(DIED)
                && log.len() <= 1
                && log.iter().all(|log| log.starts_with("Log excerpt ("))
                && gone.starts_with(GONE)
        }
        _ => false,
    }
}

/// What shows a ticket's stage, and its comments.
fn shown(town: &FakeVendors, tracker: Tracker, key: &str) -> (Vec<String>, Vec<String>) {
    match tracker {
        Tracker::Linear => {
            let ticket = town.linear().issue(key);
            (ticket.labels(), ticket.comments())
        }
        Tracker::Jira => {
            let ticket = town.jira().issue(key);
            (
                Vec::from_iter(ticket.snapshot().unwrap().status),
                ticket.comments(),
            )
        }
    }
}
