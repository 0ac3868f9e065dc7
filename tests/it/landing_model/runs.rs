//! Runs of the service, which the model plays: they push, open pull requests and report.

use std::collections::BTreeSet;

use domain::feedback::COMMIT_EMAIL;
use domain::ids::JobId;
use domain::job::JobKind;
use fake_vendors::RunSnapshot;
use serde_json::{Value, json};
use store::jobs;

use super::ci::WORKFLOW;
use super::event::RunEnd;
use super::projects::PROJECTS;
use super::world::{ModelPull, World};
use crate::webhooks::meta_block;

/// Account that opens the pull requests of runs.
pub const BOT: &str = "agent-implement[bot]";

/// Author of the commits of runs.
const RUN: (&str, &str) = ("Agent Implement", COMMIT_EMAIL);

impl World {
    /// Runs of the service on a repository.
    pub fn our_runs(&self, project: usize) -> Vec<RunSnapshot> {
        let mut runs = self.repo(project).runs();
        runs.retain(|run| run.workflow != WORKFLOW);
        runs
    }

    /// Ends a live run of the service.
    pub async fn end_run(&mut self, which: usize, end: RunEnd) -> bool {
        let runs = (0..PROJECTS).flat_map(|project| {
            let runs = self.our_runs(project).into_iter();
            runs.map(move |run| (project, run))
        });
        let live: Vec<_> = runs.filter(|(_, run)| run.status != "completed").collect();
        let Some((project, run)) = live.get(which % live.len().max(1)).cloned() else {
            return false;
        };
        let job = JobId::from(input(&run, "dispatch_id"));
        let read = self.env().store.read(|tx| jobs::get(tx, &job));
        let Some(job) = read.unwrap() else {
            return false;
        };
        let mut body = json!({"outcome": "success", "comments": []});
        body["phase"] = match job.kind {
            JobKind::Implementation => json!("implementation"),
            _ => json!("gap-analysis"),
        };
        if matches!(end, RunEnd::Done | RunEnd::Unreported) {
            self.push(project, &run, job.kind, &mut body);
        }
        let failure = match end {
            RunEnd::Failed => Some("VERIFY_FAILED"),
            RunEnd::Rejected => Some("PUSH_REJECTED"),
            RunEnd::Done | RunEnd::Unreported | RunEnd::Vanished => None,
        };
        if let Some(code) = failure {
            body["outcome"] = json!("failure");
            body["failureCode"] = json!(code);
            body["failureReason"] = json!("it did not work");
            if job.kind == JobKind::Conflict {
                body["merge"] = json!({"conflicts": ["src/part-0.rs"]});
            }
        }
        if !matches!(end, RunEnd::Unreported | RunEnd::Vanished) {
            let url = format!("{}/runner/result", self.env().address);
            let request = reqwest::Client::new().post(url);
            let request = request.bearer_auth(input(&run, "run_token"));
            request.json(&body).send().await.unwrap();
        }
        let conclusion = match end {
            RunEnd::Done => "success",
            _ => "failure",
        };
        self.repo(project).complete_run(run.id, conclusion);
        true
    }

    /// Pushes the work of a run, and opens its pull request.
    fn push(&mut self, project: usize, run: &RunSnapshot, kind: JobKind, body: &mut Value) {
        let (repo, change, branch) = (self.repo(project), self.change(), input(run, "branch"));
        if kind == JobKind::Conflict {
            let base = repo.branch_head("main").unwrap();
            let head = repo.branch_head(branch).unwrap_or_default();
            let conflicts: &[&str] = match repo.are_in_conflict(&base, &head) {
                true => &["src/part-0.rs"],
                false => &[],
            };
            body["merge"] = json!({ "conflicts": conflicts });
            repo.merge_default_branch_into(branch, "Merge", RUN)
                .unwrap();
            return;
        }
        let key = input(run, "issue_identifier");
        let ticket = self.tickets.iter().position(|ticket| ticket.key == key);
        let ticket = ticket.unwrap();
        let text = format!("{key} {change}\n");
        let mut names = vec![format!("run-{change}.txt")];
        if kind == JobKind::Implementation {
            names.extend(self.tickets[ticket].files.iter().cloned());
        }
        let files: Vec<(&str, &str)> = names
            .iter()
            .map(|name| (name.as_str(), text.as_str()))
            .collect();
        repo.commit_as(branch, &files, &format!("{key}: Work"), RUN)
            .unwrap();
        if kind == JobKind::Implementation {
            let number = self.open_pull(project, ticket, branch, input(run, "dispatch_id"));
            body["prUrl"] = json!(repo.pull_url(number));
        }
    }

    /// Number of the open pull request of a branch. Opens one if there is none.
    fn open_pull(&mut self, project: usize, ticket: usize, branch: &str, job: &str) -> u64 {
        let repo = self.repo(project);
        let mut open = repo.pulls().into_iter().filter(|pull| pull.open);
        if let Some(pull) = open.find(|pull| pull.head == branch) {
            return pull.number;
        }
        let title = format!("{}: Work", self.tickets[ticket].key);
        let body = meta_block(self.issue_id(ticket).as_str(), job);
        let number = repo.open_pull(branch, BOT, &title, &body);
        self.pulls.push(ModelPull {
            project,
            number,
            ticket,
            branch: branch.to_owned(),
            heads: Vec::new(),
            pushed_by_person: None,
            repairs: 0,
            conflicts: BTreeSet::new(),
            reviews: Vec::new(),
            threads: Vec::new(),
        });
        number
    }
}

pub fn input<'r>(run: &'r RunSnapshot, name: &str) -> &'r str {
    run.inputs[name].as_str().unwrap()
}
