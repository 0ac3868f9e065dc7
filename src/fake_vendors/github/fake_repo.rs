//! In-process methods for what people do and see on GitHub.

use std::sync::Arc;

use anyhow::Context;
use serde_json::{Map, Value};

use super::GitHubInner;
use super::git::{BareRepository, CommitSnapshot};
use super::model::{Model, PullRecord, RunRecord};
use super::rest::RepoPath;
use crate::clock;

/// Author of commits that a person makes in-process: name and email.
const PERSON: (&str, &str) = ("Robin Example", "robin@sandbox.example");

/// Handle of a repository, which need not exist. Each change is persisted before the method returns.
#[derive(Clone)]
pub struct FakeRepo {
    pub(super) host: Arc<GitHubInner>,
    pub(super) owner: String,
    pub(super) name: String,
}

/// State of a workflow run.
#[derive(Clone, Debug, PartialEq)]
pub struct RunSnapshot {
    /// Run ID.
    pub id: u64,
    /// File name of the workflow.
    pub workflow: String,
    /// Evaluated `run-name`, or the workflow's name.
    pub title: String,
    /// Status: `queued`, `in_progress` or `completed`.
    pub status: String,
    /// Conclusion, once completed.
    pub conclusion: Option<String>,
    /// Attempt, counted from 1.
    pub attempt: u64,
    /// Inputs as the dispatch sent them.
    pub inputs: Map<String, Value>,
    /// Branch of the dispatch.
    pub branch: String,
    /// Labels of the runner of the first job.
    pub runner_labels: Vec<String>,
}

/// State of a pull request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PullSnapshot {
    /// Number.
    pub number: u64,
    /// Title.
    pub title: String,
    /// Body in Markdown.
    pub body: String,
    /// Head branch.
    pub head: String,
    /// Head commit.
    pub head_sha: String,
    /// Base branch.
    pub base: String,
    /// Login of the author.
    pub author: String,
    /// Whether it is open.
    pub open: bool,
    /// Whether it is a draft.
    pub draft: bool,
    /// Whether it is merged.
    pub merged: bool,
    /// Login of the account that merged it.
    pub merged_by: Option<String>,
}

/// Comment of a pull request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PullCommentSnapshot {
    /// Comment ID.
    pub id: u64,
    /// Login of the author.
    pub author: String,
    /// Body in Markdown.
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

    /// Returns `owner/name`.
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

    pub(super) fn read<R>(&self, read: impl FnOnce(&super::model::RepoRecord) -> R) -> Option<R> {
        self.host.model.read(|model| {
            let row = model.find_repo(&self.owner, &self.name)?;
            Some(read(&model.repos[row]))
        })
    }

    /// Renames the repository for the API. Its former name leads to it.
    pub fn rename(&self, name: &str) {
        self.update_model(|model| {
            let repo = model.ensure_repo(&self.owner, &self.name);
            repo.former_name = Some(repo.full_name());
            repo.name = name.to_owned();
        });
    }

    /// Returns whether the repository exists.
    pub fn exists(&self) -> bool {
        self.read(|_| ()).is_some()
    }

    /// Returns the bare repository.
    pub fn git_dir(&self) -> std::path::PathBuf {
        self.git().dir
    }

    /// Creates the repository if it does not exist, and commits these files to its default branch.
    /// Returns the commit's SHA.
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

    /// Commits these files to a branch, created from the default branch if it does not exist. Returns the
    /// commit's SHA.
    pub fn commit(
        &self,
        branch: &str,
        files: &[(&str, &str)],
        message: &str,
    ) -> anyhow::Result<String> {
        self.commit_as(branch, files, message, PERSON)
    }

    /// Commits files as [`FakeRepo::commit`], with this name and email of the author.
    pub fn commit_as(
        &self,
        branch: &str,
        files: &[(&str, &str)],
        message: &str,
        author: (&str, &str),
    ) -> anyhow::Result<String> {
        let git = self.git();
        let default = self
            .read(|repo| repo.default_branch.clone())
            .context("Repository does not exist")?;
        if git.branch_head(branch).is_none()
            && let Some(tip) = git.branch_head(&default)
        {
            git.update_ref(&format!("refs/heads/{branch}"), &tip)?;
        }
        let files: Vec<_> = files
            .iter()
            .map(|(path, text)| (*path, Some(text.as_bytes())))
            .collect();
        git.commit(branch, &files, message, author)
    }

    /// Commits the removal of files. Returns the commit's SHA.
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

    /// Enables the setting that lets workflows open pull requests with their own token.
    pub fn allow_actions_to_open_pulls(&self) -> &Self {
        self.update_model(|model| {
            model
                .ensure_repo(&self.owner, &self.name)
                .actions_can_open_pulls = true
        });
        self
    }

    /// Rejects every dispatch with this error, as GitHub does if a repository is archived or has no Actions.
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

    /// Makes a run exceed its timeout, so that it is ended.
    pub fn time_out_run(&self, id: u64) {
        self.update_model(|model| {
            if let Some(run) = model.ensure_repo(&self.owner, &self.name).run_mut(id) {
                run.timeout_ms = 0;
            }
        });
    }

    /// Deletes a run and its log.
    pub fn delete_run(&self, id: u64) {
        self.update_model(|model| {
            let runs = &mut model.ensure_repo(&self.owner, &self.name).runs;
            runs.retain(|run| run.id != id);
        });
    }

    /// Returns the workflow runs, oldest first.
    pub fn runs(&self) -> Vec<RunSnapshot> {
        let runs = self.read(|repo| {
            let runs = repo.runs.iter().map(run_snapshot);
            runs.collect()
        });
        runs.unwrap_or_default()
    }

    /// Returns a run's log with secrets masked: the logs of all jobs, in order.
    pub fn run_log(&self, id: u64) -> String {
        let run = self
            .read(|repo| repo.runs.iter().find(|run| run.id == id).cloned())
            .flatten();
        let Some(run) = run else {
            return String::new();
        };
        let logs = (0..100).map_while(|index| self.host.job_log(&run, index));
        logs.collect()
    }

    /// Returns the folder of a run's latest attempt. It contains `work`, `temp` and `event.json`.
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

    /// Returns the pull requests, oldest first.
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
                merged_by: pull.merged.as_ref().map(|merge| merge.by.clone()),
            });
            pulls.collect()
        });
        pulls.unwrap_or_default()
    }

    /// Returns the changes of a pull request as a diff. Empty if there are none, or no such pull request.
    pub fn diff(&self, pull: &PullSnapshot) -> String {
        let diff = self
            .host
            .pull_diff(&self.path(), &pull.base, &pull.head_sha);
        diff.unwrap_or_default()
    }

    /// Returns the comments of a pull request, oldest first.
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

    /// Adds a comment to a pull request as a person. Returns the comment's ID.
    pub fn add_comment(&self, number: u64, login: &str, body: &str) -> u64 {
        let id = self.host.add_comment(&self.path(), number, login, body);
        self.update_model(|_| ());
        id
    }

    /// Sets the webhook: pull request events are sent to this URL from now on, signed with the secret.
    pub fn set_webhook(&self, url: &str, secret: &str) {
        self.host
            .webhooks
            .set_target(&self.full_name(), url, secret);
    }

    /// Opens a pull request of a branch. Returns its number.
    pub fn open_pull(&self, head: &str, author: &str, title: &str, body: &str) -> u64 {
        let head_sha = self.git().branch_head(head).unwrap_or_default();
        let (number, base) = self.update_model(|model| {
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
                head_sha: head_sha.clone(),
                author: author.to_owned(),
                open: true,
                draft: false,
                merged: None,
                mergeability: Default::default(),
                auto_merge: None,
                queued_by: None,
                created_at: now,
                updated_at: now,
                closed_at: None,
            });
            (number, repo.default_branch.clone())
        });
        // Like GitHub, which compares both ends as soon as the pull request is open.
        self.host.compare(&self.path(), &base, &head_sha);
        number
    }

    /// Closes a pull request without a merge.
    pub fn close_pull(&self, number: u64) {
        self.host.update_pull(&self.path(), number, |pull| {
            pull.close(clock::now_ms());
        });
        self.update_model(|_| ());
        self.host
            .send_pull_webhook_of(&self.path(), number, "closed");
    }

    /// Opens a closed pull request again.
    pub fn reopen_pull(&self, number: u64) {
        self.host.update_pull(&self.path(), number, |pull| {
            pull.open = true;
            pull.closed_at = None;
        });
        self.update_model(|_| ());
        self.host
            .send_pull_webhook_of(&self.path(), number, "reopened");
    }

    /// Returns the names of all branches.
    pub fn branches(&self) -> Vec<String> {
        let refs =
            self.git()
                .output_text(&["for-each-ref", "--format=%(refname:lstrip=2)", "refs/heads"]);
        refs.unwrap_or_default()
            .lines()
            .map(str::to_owned)
            .collect()
    }

    /// Returns the commit at a branch's tip.
    pub fn branch_head(&self, branch: &str) -> Option<String> {
        self.git().branch_head(branch)
    }

    /// Moves the head branch of a pull request to a fork of this owner.
    pub fn move_pull_to_fork(&self, number: u64, owner: &str) {
        self.update_model(|model| {
            let pulls = &mut model.ensure_repo(&self.owner, &self.name).pulls;
            let pull = pulls.iter_mut().find(|pull| pull.number == number);
            pull.expect("no such pull request").fork_owner = Some(owner.to_owned());
        });
    }

    /// Returns a file's text on a branch.
    pub fn read_file(&self, branch: &str, path: &str) -> Option<String> {
        let bytes = self.git().read_file(branch, path)?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Returns a branch's commits, newest first.
    pub fn commits(&self, branch: &str) -> Vec<CommitSnapshot> {
        self.git().log(branch)
    }

    /// Returns the URL for `git clone`.
    pub fn clone_url(&self) -> String {
        format!("{}/{}.git", self.host.server_url, self.full_name())
    }

    /// Returns the URL of a pull request's page.
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
        runner_labels: run.runner_labels.clone(),
    }
}
