//! State that a killed and restarted demo leaves behind, and the expected state.

use std::path::Path;

use fake_vendors::demo::{self, Tracker};
use fake_vendors::{FakeRepo, FakeVendors, FakeVendorsOptions, MachineSnapshot};

use crate::demo::DemoRunner;
use crate::program::PROGRAM;

/// Last comment about a session.
const CLEANED_UP: &str = "Session machine cleaned up";

/// Comment about a plan that a rule approved.
const IN_BOUNDS: &str = "The plan is inside the bounds of the project";

/// Final state of a demo.
#[derive(Debug)]
pub struct DemoOutcome {
    workflow_runs: usize,
    /// Number of our runs' commits, by pull request.
    commits: Vec<usize>,
    /// Names of all machines that were ever created.
    created: Vec<String>,
    remaining: Vec<MachineSnapshot>,
    /// Markers and comments of each ticket.
    tickets: Vec<(Vec<String>, Vec<String>)>,
}

impl DemoOutcome {
    /// Reads the state of the fake vendors after a demo has ended.
    pub fn load(dir: &Path, tracker: Tracker) -> Self {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let options = FakeVendorsOptions::new(dir.join("vendors"), PROGRAM);
        let vendors = runtime.block_on(FakeVendors::start(options)).unwrap();
        let names = match tracker {
            Tracker::GitHub => &[demo::DEMO_REPO, demo::DEMO_PLANNING_REPO][..],
            Tracker::Linear | Tracker::Jira => &[demo::DEMO_REPO],
        };
        let repos = names.iter();
        let repos: Vec<_> = repos
            .map(|name| vendors.github().repo(demo::DEMO_OWNER, name))
            .collect();
        let commits = |repo: &FakeRepo, head: &str| {
            let commits = repo.commits(head).into_iter();
            let created =
                commits.filter(|commit| commit.message.contains("Agent-Implement-Dispatch"));
            created.count()
        };
        let pulls = repos
            .iter()
            .flat_map(|repo| repo.pulls().into_iter().map(move |pull| (repo, pull)));
        let outcome = Self {
            workflow_runs: repos.iter().map(|repo| repo.runs().len()).sum(),
            commits: pulls
                .map(|(repo, pull)| commits(repo, &pull.head))
                .collect(),
            created: [
                vendors.fly().host().created_names(),
                vendors.docker().host().created_names(),
                vendors.kubernetes().host().created_names(),
            ]
            .concat(),
            remaining: [
                vendors.fly().host().snapshots(),
                vendors.docker().host().snapshots(),
                vendors.kubernetes().host().snapshots(),
            ]
            .concat(),
            tickets: TICKETS
                .map(|key| ticket_state(&vendors, tracker, key))
                .to_vec(),
        };
        runtime.block_on(vendors.stop());
        outcome
    }

    /// Whether the outcome is the same as without a kill.
    pub fn is_as_expected(&self, tracker: Tracker, runner: DemoRunner) -> bool {
        let counts = (self.workflow_runs, self.created.len());
        let all_runs_done = match runner {
            DemoRunner::Ci => counts == (8, 0),
            DemoRunner::Vm | DemoRunner::Local | DemoRunner::Kubernetes => counts == (0, 8),
        };
        let mut tickets = self.tickets.iter().zip(expected_tickets(tracker, runner));
        all_runs_done
            && self.commits == [1, 1, 1, 1]
            && self.remaining.is_empty()
            && tickets.all(|((actual, comments), (markers, prefixes))| {
                actual == markers
                    && comments.len() == prefixes.len()
                    && matching_prefix(comments, &prefixes) == comments.len()
            })
    }

    /// Whether each ticket has the usual comments up to the loss of its run, followed by the report of
    /// the loss.
    pub fn is_as_expected_after_machine_loss(&self, tracker: Tracker, runner: DemoRunner) -> bool {
        let mut tickets = self.tickets.iter().zip(expected_tickets(tracker, runner));
        self.created.len() <= 8
            && self.commits.iter().all(|commits| *commits == 1)
            && self.remaining.is_empty()
            && tickets.all(|((_, comments), (_, prefixes))| {
                let (before, rest) = comments.split_at(matching_prefix(comments, &prefixes));
                (rest.is_empty() && comments.len() == prefixes.len())
                    || reports_machine_loss(before, rest)
            })
    }
}

/// Tickets of the demo.
const TICKETS: [&str; 6] = [
    demo::DEMO_PLAIN,
    demo::DEMO_BLOCKED,
    demo::DEMO_SECRET_LEAK,
    demo::DEMO_QUESTION,
    demo::DEMO_PLANNED,
    demo::DEMO_APPROVAL,
];

/// Final markers of each ticket, and the prefixes of its comments.
fn expected_tickets(
    tracker: Tracker,
    runner: DemoRunner,
) -> [(&'static [&'static str], Vec<&'static str>); 6] {
    const PULL: &str = "Pull request opened";
    const GUARDED: &str = "🔒 Blocked by security guardrail";
    const CREATED: &str = "Session machine created";
    const READY: &str = "Environment ready";
    const FINISHED: &str = "Finished. PR #";
    const ASKED: &str = "The implementation needs an answer from you:";
    const ANSWERED: &str = "Answered by an operator: Good evening";
    let [waiting, opened, failed]: [&[&str]; 3] = match tracker {
        Tracker::Linear | Tracker::GitHub => [
            &["Agent-Implement"],
            &["Agent-Implement", "Ready for Review"],
            &[],
        ],
        Tracker::Jira => [&["Ready"], &["PR Ready"], &["Implementation Failed"]],
    };
    let plan = ["What is wanted", "Steps"];
    let in_bounds = [IN_BOUNDS];
    let one_plan = ["What is wanted"];
    let approved = [
        "The plan waits for approval. The plan changes LICENSE",
        "Plan approved by an operator.",
    ];
    let [plain, with_secret, asked, planned, approved] = match runner {
        DemoRunner::Ci => [
            vec![PULL],
            vec![GUARDED],
            vec![ASKED, ANSWERED, PULL],
            [&plan[..], &in_bounds, &[PULL]].concat(),
            [&one_plan[..], &approved, &[PULL]].concat(),
        ],
        DemoRunner::Vm | DemoRunner::Local | DemoRunner::Kubernetes => {
            let plain = vec![CREATED, READY, FINISHED, PULL, CLEANED_UP];
            let planned = |plan: &[&'static str], then: &[&'static str]| {
                [&[CREATED], plan, &[CLEANED_UP], then, &plain].concat()
            };
            let asked = [
                &[CREATED, READY, ASKED, CLEANED_UP, ANSWERED][..],
                &plain[..],
            ];
            let (asked, approved) = (asked.concat(), planned(&one_plan, &approved));
            let planned = planned(&plan, &in_bounds);
            let with_secret = vec![CREATED, READY, "Session failed: 🔒", GUARDED, CLEANED_UP];
            [plain, with_secret, asked, planned, approved]
        }
    };
    [
        (opened, plain),
        (waiting, vec![]),
        (failed, with_secret),
        (opened, asked),
        (opened, planned),
        (opened, approved),
    ]
}

/// Number of leading comments with the expected prefixes.
fn matching_prefix(comments: &[String], prefixes: &[&str]) -> usize {
    comments
        .iter()
        .zip(prefixes)
        .take_while(|(comment, prefix)| comment.trim_start_matches("## ").starts_with(**prefix))
        .count()
}

/// Whether the comments after the usual ones report a run lost with its machine. A session that has
/// already reported a failure does not report a second one. The log excerpt is optional.
fn reports_machine_loss(before: &[String], comments: &[String]) -> bool {
    const KILLED: &str = "failed: the session ended with exit code 137";
    let failed_before = before
        .last()
        .is_some_and(|last| last.starts_with("Session failed"));
    let run_comments = match comments.split_first() {
        _ if failed_before => comments,
        Some((session, rest)) if session.starts_with(&format!("Session {KILLED}")) => rest,
        _ => return false,
    };
    match run_comments {
        [run, log @ .., cleanup] => {
            ["Planning", "Implementation"].contains(&run.split(' ').next().unwrap())
                && run.contains(KILLED)
                && log.len() <= 1
                && log.iter().all(|log| log.starts_with("Log excerpt ("))
                && cleanup.starts_with(CLEANED_UP)
        }
        _ => false,
    }
}

/// Markers and comments of a ticket.
fn ticket_state(vendors: &FakeVendors, tracker: Tracker, key: &str) -> (Vec<String>, Vec<String>) {
    let (markers, mut comments) = match tracker {
        Tracker::Linear => {
            let ticket = vendors.linear().issue(key);
            (ticket.labels(), ticket.comments())
        }
        Tracker::GitHub => {
            let issue = demo::demo_issue(vendors, key);
            (issue.labels(), issue.comments())
        }
        Tracker::Jira => {
            let ticket = vendors.jira().issue(key);
            (
                Vec::from_iter(ticket.snapshot().unwrap().status),
                ticket.comments(),
            )
        }
    };
    // The approval of a plan does not wait for the end of its machine.
    for at in 1..comments.len() {
        if comments[at - 1].starts_with(IN_BOUNDS) && comments[at].starts_with(CLEANED_UP) {
            comments.swap(at - 1, at);
        }
    }
    (markers, comments)
}
