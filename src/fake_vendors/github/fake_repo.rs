//! What people do and see on the repository host, as in-process verbs.

use std::sync::Arc;

use anyhow::{Context, anyhow};
use serde_json::{Map, Value};

use super::GitHubInner;
use super::git::{BareRepository, CommitSnapshot};
use super::model::{Merge, Model, PullRecord, RunRecord};
use super::rest::RepoPath;
use crate::clock;

/// The person behind in-process commits.
const PERSON: (&str, &str) = ("Robin Example", "robin@sandbox.example");

/// One repository by its address, there or not. Each verb is stored before it returns.
#[derive(Clone)]
pub struct FakeRepo {
    pub(super) host: Arc<GitHubInner>,
    pub(super) owner: String,
    pub(super) name: String,
}

/// A workflow run as it stands.
#[derive(Clone, Debug, PartialEq)]
pub struct RunSnapshot {
    pub id: u64,
    /// The workflow's file name.
    pub workflow: String,
    /// Its `run-name`, evaluated.
    pub title: String,
    pub status: String,
    pub conclusion: Option<String>,
    pub attempt: u64,
    /// As the dispatch sent them.
    pub inputs: Map<String, Value>,
    pub branch: String,
}

/// A pull request as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PullSnapshot {
    pub number: u64,
    pub title: String,
    pub body: String,
    pub head: String,
    pub head_sha: String,
    pub base: String,
    pub author: String,
    pub open: bool,
    pub draft: bool,
    pub merged: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PullCommentSnapshot {
    pub id: u64,
    pub author: String,
    pub body: String,
}

impl FakeRepo {
    pub(super) fn new(host: Arc<GitHubInner>, owner: &str, name: &str) -> Self {
        Self {
            host,
            owner: owner.to_owned(),
            name: name.to_owned(),
        }
    }

    /// `owner/name`
    pub fn full_name(&self) -> String {
        format!("{}/{}", self.owner, self.name)
    }

    pub(super) fn path(&self) -> RepoPath<'_> {
        RepoPath {
            owner: &self.owner,
            name: &self.name,
        }
    }

    pub(super) fn git(&self) -> BareRepository {
        self.host.git(&self.owner, &self.name)
    }

    pub(super) fn update_model<R>(&self, edit: impl FnOnce(&mut Model) -> R) -> R {
        self.host.model.update_and_flush(edit)
    }

    fn read<R>(&self, look: impl FnOnce(&super::model::RepoRecord) -> R) -> Option<R> {
        self.host.model.read(|model| {
            let row = model.find_repo(&self.owner, &self.name)?;
            Some(look(&model.repos[row]))
        })
    }

    /// Whether it is there.
    pub fn exists(&self) -> bool {
        self.read(|_| ()).is_some()
    }

    /// Makes the repository when it is new and commits these files to its default branch.
    pub fn seed(&self, files: &[(&str, &str)], message: &str) -> anyhow::Result<String> {
        let branch = self.update_model(|model| {
            model
                .ensure_repo(&self.owner, &self.name)
                .default_branch
                .clone()
        });
        BareRepository::init(self.git().dir, &branch)?;
        self.commit(&branch, files, message)
    }

    /// Commits these files to a branch, which starts at the default branch when it is new.
    pub fn commit(
        &self,
        branch: &str,
        files: &[(&str, &str)],
        message: &str,
    ) -> anyhow::Result<String> {
        let git = self.git();
        let default = self
            .read(|repo| repo.default_branch.clone())
            .context("no such repository")?;
        if git.branch_head(branch).is_none()
            && let Some(tip) = git.branch_head(&default)
        {
            git.update_ref(&format!("refs/heads/{branch}"), &tip)?;
        }
        let files: Vec<_> = files
            .iter()
            .map(|(path, text)| (*path, Some(text.as_bytes())))
            .collect();
        git.commit(branch, &files, message, PERSON)
    }

    /// Commits the removal of files.
    pub fn remove_files(
        &self,
        branch: &str,
        paths: &[&str],
        message: &str,
    ) -> anyhow::Result<String> {
        let files: Vec<_> = paths.iter().map(|path| (*path, None)).collect();
        self.git().commit(branch, &files, message, PERSON)
    }

    /// Sets an Actions secret.
    pub fn set_secret(&self, name: &str, value: &str) -> &Self {
        self.update_model(|model| {
            let repo = model.ensure_repo(&self.owner, &self.name);
            repo.secrets.insert(name.to_owned(), value.to_owned());
        });
        self
    }

    /// Switches on that workflows may open pull requests with their own token.
    pub fn allow_actions_to_open_pulls(&self) -> &Self {
        self.update_model(|model| {
            model
                .ensure_repo(&self.owner, &self.name)
                .actions_can_open_pulls = true
        });
        self
    }

    /// Refuses every dispatch, as an archived repository does, or one without Actions.
    pub fn reject_dispatches(&self, status: u16, message: &str) -> &Self {
        self.update_model(|model| {
            let repo = model.ensure_repo(&self.owner, &self.name);
            repo.dispatch_error = Some((status, message.to_owned()));
        });
        self
    }

    /// Sets an Actions variable.
    pub fn set_variable(&self, name: &str, value: &str) -> &Self {
        self.update_model(|model| {
            let repo = model.ensure_repo(&self.owner, &self.name);
            repo.variables.insert(name.to_owned(), value.to_owned());
        });
        self
    }

    /// Gives a person a role: `read`, `triage`, `write`, `maintain` or `admin`.
    pub fn set_collaborator_role(&self, login: &str, role: &str) -> &Self {
        self.update_model(|model| {
            let repo = model.ensure_repo(&self.owner, &self.name);
            repo.collaborators.insert(login.to_owned(), role.to_owned());
        });
        self
    }

    /// Lets a run's time be up, so that the host ends it.
    pub fn time_out_run(&self, id: u64) {
        self.update_model(|model| {
            if let Some(run) = model.ensure_repo(&self.owner, &self.name).run_mut(id) {
                run.timeout_ms = 0;
            }
        });
    }

    /// Deletes a run and its log, as a person may.
    pub fn delete_run(&self, id: u64) {
        self.update_model(|model| {
            let runs = &mut model.ensure_repo(&self.owner, &self.name).runs;
            runs.retain(|run| run.id != id);
        });
    }

    /// Oldest first.
    pub fn runs(&self) -> Vec<RunSnapshot> {
        let runs = self.read(|repo| {
            let runs = repo.runs.iter().map(run_snapshot);
            runs.collect()
        });
        runs.unwrap_or_default()
    }

    /// What a run has printed, masked as the host serves it; all jobs one after another.
    pub fn run_log(&self, id: u64) -> String {
        let run = self
            .read(|repo| repo.runs.iter().find(|run| run.id == id).cloned())
            .flatten();
        let Some(run) = run else {
            return String::new();
        };
        let logs = (0..100).map_while(|place| self.host.job_log(&run, place));
        logs.collect()
    }

    /// The folder of a run's latest attempt: `work`, `temp`, `event.json`.
    pub fn run_dir(&self, id: u64) -> Option<std::path::PathBuf> {
        let run = self
            .read(|repo| repo.runs.iter().find(|run| run.id == id).cloned())
            .flatten()?;
        Some(self.host.attempt_dir(id, run.attempt))
    }

    /// Cancels a run as a person would.
    pub fn cancel_run(&self, id: u64) {
        self.update_model(|model| {
            if let Some(run) = model.ensure_repo(&self.owner, &self.name).run_mut(id) {
                run.cancel_requested_at = run.cancel_requested_at.or(Some(clock::now_ms()));
            }
        });
    }

    /// Oldest first.
    pub fn pulls(&self) -> Vec<PullSnapshot> {
        self.host.refresh_pull_heads(&self.path());
        let pulls = self.read(|repo| {
            let pulls = repo.pulls.iter().map(|pull| PullSnapshot {
                number: pull.number,
                title: pull.title.clone(),
                body: pull.body.clone(),
                head: pull.head.clone(),
                head_sha: pull.head_sha.clone(),
                base: pull.base.clone(),
                author: pull.author.clone(),
                open: pull.open,
                draft: pull.draft,
                merged: pull.merged.is_some(),
            });
            pulls.collect()
        });
        pulls.unwrap_or_default()
    }

    /// Comments of a pull request, oldest first.
    pub fn comments(&self, number: u64) -> Vec<PullCommentSnapshot> {
        let comments = self.read(|repo| {
            let comments = repo
                .comments
                .iter()
                .filter(|comment| comment.number == number);
            let comments = comments.map(|comment| PullCommentSnapshot {
                id: comment.id,
                author: comment.author.clone(),
                body: comment.body.clone(),
            });
            comments.collect()
        });
        comments.unwrap_or_default()
    }

    /// Comments on a pull request as a person, and answers the comment's id.
    pub fn add_comment(&self, number: u64, login: &str, body: &str) -> u64 {
        let id = self.host.add_comment(&self.path(), number, login, body);
        self.update_model(|_| ());
        id
    }

    /// Tells an address of what happens on pull requests from now on, signed with a secret.
    pub fn set_webhook(&self, url: &str, secret: &str) {
        self.host.webhooks.add(&self.full_name(), url, secret);
    }

    /// Opens a pull request of a branch as somebody, and answers its number.
    pub fn open_pull(&self, head: &str, author: &str, title: &str, body: &str) -> u64 {
        let git = self.git();
        self.update_model(|model| {
            let id = model.next_id();
            let repo = model.ensure_repo(&self.owner, &self.name);
            let (number, now) = (repo.next_number(), clock::now_ms());
            repo.pulls.push(PullRecord {
                id,
                number,
                title: title.to_owned(),
                body: body.to_owned(),
                head: head.to_owned(),
                fork_owner: None,
                base: repo.default_branch.clone(),
                head_sha: git.branch_head(head).unwrap_or_default(),
                author: author.to_owned(),
                open: true,
                draft: false,
                merged: None,
                created_at: now,
                updated_at: now,
                closed_at: None,
            });
            number
        })
    }

    /// Merges a pull request into its base with a merge commit.
    pub fn merge_pull(&self, number: u64) -> anyhow::Result<String> {
        let pulls = self.pulls();
        let pull = pulls.iter().find(|pull| pull.number == number && pull.open);
        let pull = pull.ok_or_else(|| anyhow!("no open pull request {number}"))?;
        let git = self.git();
        let base = git.branch_head(&pull.base).context("base branch is gone")?;
        let tree = git.output_text(&["merge-tree", "--write-tree", &base, &pull.head_sha])?;
        let tree = tree.lines().next().unwrap_or_default();
        let message = format!(
            "Merge pull request #{number} from {}/{}",
            self.owner, pull.head
        );
        let sha = git.commit_tree(tree, &[base, pull.head_sha.clone()], &message, PERSON)?;
        git.update_ref(&format!("refs/heads/{}", pull.base), &sha)?;
        let now = clock::now_ms();
        self.host.update_pull(&self.path(), number, |pull| {
            pull.open = false;
            pull.closed_at = Some(now);
            pull.merged = Some(Merge {
                sha: sha.clone(),
                created_at: now,
            });
        });
        self.update_model(|_| ());
        self.tell_pull(number, "closed");
        Ok(sha)
    }

    /// Closes a pull request without merging it.
    pub fn close_pull(&self, number: u64) {
        self.host.update_pull(&self.path(), number, |pull| {
            pull.open = false;
            pull.closed_at = Some(clock::now_ms());
        });
        self.update_model(|_| ());
        self.tell_pull(number, "closed");
    }

    fn tell_pull(&self, number: u64, action: &str) {
        if let Some(pull) = self.read(|repo| repo.pull(number).cloned()).flatten() {
            self.host.send_pull_webhook(&self.path(), &pull, action);
        }
    }

    pub fn branches(&self) -> Vec<String> {
        let refs =
            self.git()
                .output_text(&["for-each-ref", "--format=%(refname:lstrip=2)", "refs/heads"]);
        refs.unwrap_or_default()
            .lines()
            .map(str::to_owned)
            .collect()
    }

    /// The commit at a branch's tip.
    pub fn branch_head(&self, branch: &str) -> Option<String> {
        self.git().branch_head(branch)
    }

    pub fn delete_branch(&self, branch: &str) -> anyhow::Result<()> {
        self.git()
            .output_text(&["update-ref", "-d", &format!("refs/heads/{branch}")])
            .map(drop)
    }

    /// Moves the branch of a pull request to somebody's fork.
    pub fn move_pull_to_fork(&self, number: u64, owner: &str) {
        self.update_model(|model| {
            let pulls = &mut model.ensure_repo(&self.owner, &self.name).pulls;
            let pull = pulls.iter_mut().find(|pull| pull.number == number);
            pull.expect("a pull request").fork_owner = Some(owner.to_owned());
        });
    }

    /// A file's text on a branch.
    pub fn read_file(&self, branch: &str, path: &str) -> Option<String> {
        let bytes = self.git().read_file(branch, path)?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// A branch's commits, newest first.
    pub fn commits(&self, branch: &str) -> Vec<CommitSnapshot> {
        self.git().log(branch)
    }

    /// Where git clones it from.
    pub fn clone_url(&self) -> String {
        format!("{}/{}.git", self.host.server_url, self.full_name())
    }

    /// The page of a pull request.
    pub fn pull_url(&self, number: u64) -> String {
        format!(
            "{}/{}/pull/{number}",
            self.host.server_url,
            self.full_name()
        )
    }
}

pub(super) fn run_snapshot(run: &RunRecord) -> RunSnapshot {
    RunSnapshot {
        id: run.id,
        workflow: run.workflow.clone(),
        title: run.title.clone(),
        status: run.status.as_str().to_owned(),
        conclusion: run.conclusion.clone(),
        attempt: run.attempt,
        inputs: run.inputs.clone(),
        branch: run.branch.clone(),
    }
}
