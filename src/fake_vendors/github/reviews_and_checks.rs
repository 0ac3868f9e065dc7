//! In-process methods for what reviewers and Apps do on GitHub: reviews, review comments, checks; and
//! watching of pushes.

use std::sync::Arc;

use anyhow::anyhow;

use super::GitHubInner;
use super::fake_repo::FakeRepo;
use super::model::{CheckKind, CheckRecord, ReviewThreadRecord};
use super::rest::RepoPath;
use crate::clock;
use crate::persistence::lock;

/// Callback for pushes: gets the branch and its new commit before the push is answered.
pub(super) type PushWatcher = Arc<dyn Fn(&str, &str) + Send + Sync>;

/// Check run or commit status that a test reports on a commit.
#[derive(Clone, Copy, Debug)]
pub struct CheckReport<'a> {
    /// Check name.
    pub name: &'a str,
    /// Slug of the App.
    pub app: &'a str,
    /// Kind of check.
    pub kind: CheckKind,
    /// Conclusion of a check run (`None` while it runs), or state of a commit status.
    pub conclusion: Option<&'a str>,
    /// Summary, or description of a commit status.
    pub summary: &'a str,
    /// Details of a check run.
    pub text: &'a str,
    /// Address of the details.
    pub url: Option<&'a str>,
}

fn is_pending(status: &str) -> bool {
    matches!(status, "queued" | "in_progress" | "pending")
}

impl FakeRepo {
    /// Adds a review as a person: `APPROVED`, `CHANGES_REQUESTED` or `COMMENTED`. Returns the review's ID.
    pub fn add_review(&self, number: u64, login: &str, state: &str, body: &str) -> u64 {
        let id = self
            .host
            .add_review(&self.path(), number, login, state, body);
        self.update_model(|_| ());
        id
    }

    /// Reports a check on a commit (a SHA or a branch). Replaces the App's check of the same name and kind.
    pub fn report_check(&self, commit: &str, report: CheckReport<'_>) -> anyhow::Result<()> {
        let sha = self
            .git()
            .resolve_commit(commit)
            .ok_or_else(|| anyhow!("No commit {commit}"))?;
        self.update_model(|model| {
            let id = model.next_id();
            let repo = model.ensure_repo(&self.owner, &self.name);
            repo.checks.retain(|check| {
                !(check.sha == sha
                    && check.name == report.name
                    && check.app == report.app
                    && check.kind == report.kind)
            });
            let status = match (report.kind, report.conclusion) {
                (CheckKind::CheckRun, Some(_)) => "completed",
                (CheckKind::CheckRun, None) => "in_progress",
                (CheckKind::CommitStatus, state) => state.unwrap_or("pending"),
            };
            repo.checks.push(CheckRecord {
                id,
                sha,
                name: report.name.to_owned(),
                app: report.app.to_owned(),
                kind: report.kind,
                status: status.to_owned(),
                conclusion: report.conclusion.map(str::to_owned),
                summary: report.summary.to_owned(),
                text: report.text.to_owned(),
                created_at: clock::now_ms(),
                details_url: report.url.map(str::to_owned),
                suite: None,
            });
        });
        self.host.merge_armed(&self.path());
        self.update_model(|_| ());
        let reported = self.host.model.read(|model| {
            let repo = &model.repos[model.find_repo(&self.owner, &self.name)?];
            let is_ended = |check: &&CheckRecord| !is_pending(&check.status);
            repo.checks.last().filter(is_ended).cloned()
        });
        if let Some(check) = reported {
            self.host.send_check_webhook(&self.path(), &check);
        }
        Ok(())
    }

    /// Switches checks on: from now on, pushes and pull requests start the workflows of their commit that name
    /// these events, and jobs are check runs. The current heads of all branches are checked too.
    pub fn run_checks(&self) -> &Self {
        self.update_model(|model| {
            model.ensure_repo(&self.owner, &self.name).has_checks = true;
        });
        self
    }

    /// Makes a check required.
    pub fn require_check(&self, name: &str) -> &Self {
        self.update_model(|model| {
            let repo = model.ensure_repo(&self.owner, &self.name);
            repo.required_checks.insert(name.to_owned());
        });
        self
    }

    /// Refuses every request for a rerun with this status.
    pub fn reject_reruns(&self, status: u16) -> &Self {
        self.update_model(|model| {
            model.ensure_repo(&self.owner, &self.name).rerun_error = Some(status);
        });
        self
    }

    /// Returns name and conclusion of the checks of a commit (a SHA or a branch), in order of their names.
    pub fn checks(&self, commit: &str) -> Vec<(String, Option<String>)> {
        let sha = self.git().resolve_commit(commit).unwrap_or_default();
        let checks = self.host.model.read(|model| {
            let row = model.find_repo(&self.owner, &self.name)?;
            Some(self.host.checks_of(&model.repos[row], &sha))
        });
        let checks = checks.unwrap_or_default().into_iter();
        let mut checks: Vec<_> = checks.map(|check| (check.name, check.conclusion)).collect();
        checks.sort();
        checks
    }

    /// Dismisses a review.
    pub fn dismiss_review(&self, review: u64) {
        let dismissed = self.update_model(|model| {
            let reviews = &mut model.ensure_repo(&self.owner, &self.name).reviews;
            let review = reviews.iter_mut().find(|record| record.id == review)?;
            review.state = "DISMISSED".into();
            Some(review.clone())
        });
        if let Some(review) = dismissed {
            self.host
                .send_review_webhook(&self.path(), &review, "dismissed");
        }
    }

    /// Adds a review comment to a line of a pull request. Returns the thread's ID.
    pub fn add_review_comment(
        &self,
        number: u64,
        login: &str,
        path: &str,
        line: u64,
        body: &str,
    ) -> u64 {
        let thread = self.update_model(|model| {
            let thread = ReviewThreadRecord {
                id: model.next_id(),
                number,
                author: login.to_owned(),
                path: path.to_owned(),
                line,
                body: body.to_owned(),
                resolved: false,
                outdated: false,
                created_at: clock::now_ms(),
            };
            let repo = model.ensure_repo(&self.owner, &self.name);
            repo.threads.push(thread.clone());
            repo.mark_pull_updated(number);
            thread
        });
        self.host.send_review_comment_webhook(&self.path(), &thread);
        thread.id
    }

    /// Resolves a review thread.
    pub fn resolve_thread(&self, thread: u64) {
        let resolved = self.update_model(|model| {
            let repo = model.ensure_repo(&self.owner, &self.name);
            let thread = repo.threads.iter_mut().find(|record| record.id == thread)?;
            thread.resolved = true;
            let resolved = thread.clone();
            repo.mark_pull_updated(resolved.number);
            Some(resolved)
        });
        if let Some(thread) = resolved {
            self.host
                .send_review_thread_webhook(&self.path(), &thread, "resolved");
        }
    }

    /// Adds a callback that is called with branch and commit of every pushed branch, before the push is
    /// answered. It lasts as long as the host.
    pub fn on_push(&self, watch: impl Fn(&str, &str) + Send + Sync + 'static) {
        lock(&self.host.push_watchers).push((self.full_name(), Arc::new(watch)));
    }
}

impl GitHubInner {
    /// Returns the head commits of all branches. Empty if the repository has no watchers.
    pub(crate) fn watched_branch_heads(&self, repo_path: &RepoPath<'_>) -> Vec<(String, String)> {
        if self.watchers_of(repo_path).is_empty() {
            return Vec::new();
        }
        let format = "--format=%(refname:lstrip=2) %(objectname)";
        let heads = self.git(repo_path.owner, repo_path.name).output_text(&[
            "for-each-ref",
            format,
            "refs/heads",
        ]);
        let heads = heads.unwrap_or_default();
        let pairs = heads.lines().filter_map(|line| line.split_once(' '));
        pairs
            .map(|(name, sha)| (name.to_owned(), sha.to_owned()))
            .collect()
    }

    /// Calls the watchers of all branches that changed.
    pub(crate) fn notify_push_watchers(
        &self,
        repo_path: &RepoPath<'_>,
        before: &[(String, String)],
    ) {
        for head in self
            .watched_branch_heads(repo_path)
            .iter()
            .filter(|head| !before.contains(head))
        {
            for watch in self.watchers_of(repo_path) {
                watch(&head.0, &head.1);
            }
        }
    }

    fn watchers_of(&self, repo_path: &RepoPath<'_>) -> Vec<PushWatcher> {
        let full_name = format!("{}/{}", repo_path.owner, repo_path.name);
        let watchers = lock(&self.push_watchers);
        let matching = watchers
            .iter()
            .filter(|(repo, _)| repo.eq_ignore_ascii_case(&full_name));
        matching.map(|(_, watch)| watch.clone()).collect()
    }
}
