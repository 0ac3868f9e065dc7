//! Workflow runs that pushes and pull requests start, in repositories whose checks are switched on, and the check
//! runs of their jobs.

use std::collections::BTreeMap;

use serde_json::{Map, json};

use super::workflow::Workflow;
use crate::github::GitHubInner;
use crate::github::actions::NewRun;
use crate::github::model::{CheckKind, CheckRecord, RepoRecord, RunRecord};
use crate::github::rest::RepoPath;

/// Event of runs that a dispatch starts.
pub(crate) const DISPATCH: &str = "workflow_dispatch";

/// Slug of the App that reports the jobs of workflows.
const ACTIONS_APP: &str = "github-actions";

/// Head commits whose runs were started: by branch, and by number of the pull request.
type StartedHeads = (BTreeMap<String, String>, BTreeMap<u64, String>);

impl GitHubInner {
    /// Starts the runs of branches and pull requests that have a new head commit.
    pub(super) fn start_event_runs(&self) {
        let repos = self.model.read(|model| {
            let checked = model.repos.iter().filter(|repo| repo.has_checks);
            let names = checked.map(|repo| (repo.owner.clone(), repo.name.clone()));
            names.collect::<Vec<_>>()
        });
        for (owner, name) in repos {
            self.start_event_runs_of(&RepoPath {
                owner: &owner,
                name: &name,
            });
        }
    }

    /// Starts the runs of the new heads of a repository.
    pub(crate) fn start_event_runs_of(&self, repo_path: &RepoPath<'_>) {
        let heads = self.git(repo_path.owner, repo_path.name).branch_heads();
        let (known, pulls) = self.model.read(|model| {
            let Some(row) = model.find_repo(repo_path.owner, repo_path.name) else {
                return (StartedHeads::default(), Vec::new());
            };
            let repo = &model.repos[row];
            let open = repo.pulls.iter().filter(|pull| pull.open);
            let pulls = open.map(|pull| (pull.number, pull.head.clone()));
            let known = (repo.checked_heads.clone(), repo.checked_pulls.clone());
            (known, pulls.collect::<Vec<_>>())
        });
        let of_pulls = pulls.into_iter().filter_map(|(number, branch)| {
            let sha = heads.get(&branch)?.clone();
            Some((number, branch, sha))
        });
        let of_pulls: Vec<(u64, String, String)> = of_pulls.collect();
        let new_heads = heads
            .iter()
            .filter(|(branch, sha)| known.0.get(*branch) != Some(*sha));
        let new_heads: Vec<(&String, &String)> = new_heads.collect();
        let new_pulls: Vec<_> = of_pulls
            .iter()
            .filter(|(number, _, sha)| known.1.get(number) != Some(sha))
            .collect();
        if new_heads.is_empty() && new_pulls.is_empty() {
            return;
        }
        self.model.update_and_flush(|model| {
            let repo = model.ensure_repo(repo_path.owner, repo_path.name);
            repo.checked_heads.clone_from(&heads);
            for (number, _, sha) in &of_pulls {
                repo.checked_pulls.insert(*number, sha.clone());
            }
        });
        // Pull requests get the event of their new head commit.
        self.refresh_pull_heads(repo_path);
        for (branch, sha) in new_heads {
            self.start_runs_of_event(repo_path, "push", branch, sha);
        }
        for (_, branch, sha) in new_pulls {
            self.start_runs_of_event(repo_path, "pull_request", branch, sha);
        }
    }

    fn start_runs_of_event(
        &self,
        repo_path: &RepoPath<'_>,
        event: &'static str,
        branch: &str,
        sha: &str,
    ) {
        let git = self.git(repo_path.owner, repo_path.name);
        let files = git.list_tree(sha, ".github/workflows").unwrap_or_default();
        for file in files {
            let path = format!(".github/workflows/{}", file.path);
            let text = git.read_file(sha, &path).unwrap_or_default();
            let workflow = Workflow::parse_any(&String::from_utf8_lossy(&text));
            if let Ok(workflow) = workflow
                && workflow.events.iter().any(|one| one == event)
            {
                let run = NewRun {
                    event,
                    file: file.path,
                    branch: branch.to_owned(),
                    sha: sha.to_owned(),
                    inputs: Map::new(),
                    actor: "maintainer",
                };
                self.add_run(repo_path, &workflow, run);
            }
        }
    }

    /// Returns the checks of a commit: those that Apps reported, and the jobs of runs that an event started.
    pub(crate) fn checks_of(&self, repo: &RepoRecord, sha: &str) -> Vec<CheckRecord> {
        let reported = repo.checks.iter().filter(|check| check.sha == sha).cloned();
        let runs = repo.runs.iter();
        let runs = runs.filter(|run| run.sha == sha && run.event != DISPATCH);
        let jobs = runs.flat_map(|run| self.checks_of_run(repo, run));
        reported.chain(jobs).collect()
    }

    pub(crate) fn checks_of_run(&self, repo: &RepoRecord, run: &RunRecord) -> Vec<CheckRecord> {
        let repo_path = RepoPath {
            owner: &repo.owner,
            name: &repo.name,
        };
        let text = |value: &serde_json::Value| value.as_str().map(str::to_owned);
        let jobs = self.jobs_json(&repo_path, run).into_iter();
        let checks = jobs.map(|job| CheckRecord {
            id: job["id"].as_u64().unwrap_or(0),
            sha: run.sha.clone(),
            name: text(&job["name"]).unwrap_or_default(),
            app: ACTIONS_APP.into(),
            kind: CheckKind::CheckRun,
            status: text(&job["status"]).unwrap_or_default(),
            conclusion: text(&job["conclusion"]),
            summary: String::new(),
            text: String::new(),
            created_at: run.created_at,
            details_url: text(&job["html_url"]),
            suite: Some(run.id),
        });
        checks.collect()
    }

    /// Sends the webhooks about an ended run that an event started.
    pub(super) fn send_run_webhooks(&self, owner: &str, name: &str, id: u64) {
        let found = self.model.read(|model| {
            let repo = &model.repos[model.find_repo(owner, name)?];
            let run = repo.runs.iter().find(|run| run.id == id)?;
            let is_of_event = run.event != DISPATCH;
            is_of_event.then(|| (run.clone(), self.checks_of_run(repo, run)))
        });
        let Some((run, checks)) = found else {
            return;
        };
        let repo_path = RepoPath { owner, name };
        for check in &checks {
            self.send_check_webhook(&repo_path, check);
        }
        let suite = json!({"id": run.id, "head_sha": run.sha, "head_branch": run.branch,
            "status": "completed", "conclusion": run.conclusion});
        self.send_ci_webhook(&repo_path, "check_suite", move |_| suite);
        self.send_ci_webhook(&repo_path, "workflow_run", |repo| self.run_json(repo, &run));
    }
}
