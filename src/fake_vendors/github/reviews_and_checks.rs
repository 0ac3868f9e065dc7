//! What reviewers do on the repository host, as in-process verbs: reviews, remarks at lines, check
//! runs, and looking at every push.

use std::sync::Arc;

use anyhow::anyhow;

use super::GitHubInner;
use super::fake_repo::FakeRepo;
use super::model::{CheckKind, CheckRecord, ReviewThreadRecord};
use super::rest::RepoPath;
use crate::clock;
use crate::persistence::lock;

/// Told of a branch that was pushed, and its new commit, before the push is answered.
pub(super) type PushWatcher = Arc<dyn Fn(&str, &str) + Send + Sync>;

/// What an App says about a commit, to be reported by a test.
#[derive(Clone, Copy, Debug)]
pub struct CheckReport<'a> {
    pub name: &'a str,
    pub app: &'a str,
    pub kind: CheckKind,
    /// `None` while it runs; of a commit status its state.
    pub conclusion: Option<&'a str>,
    pub summary: &'a str,
    pub text: &'a str,
}

impl FakeRepo {
    /// Reviews a pull request as a person: `APPROVED`, `CHANGES_REQUESTED` or `COMMENTED`.
    pub fn add_review(&self, number: u64, login: &str, state: &str, body: &str) -> u64 {
        let id = self
            .host
            .add_review(&self.path(), number, login, state, body);
        self.update_model(|_| ());
        id
    }

    /// Reports a check on a commit (a SHA or a branch), in place of the app's last one of that name.
    pub fn report_check(&self, commit: &str, report: CheckReport<'_>) -> anyhow::Result<()> {
        let sha = self
            .git()
            .resolve_commit(commit)
            .ok_or_else(|| anyhow!("no commit {commit}"))?;
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
            });
        });
        Ok(())
    }

    /// Takes a review's verdict away, as a maintainer may.
    pub fn dismiss_review(&self, review: u64) {
        let dismissed = self.update_model(|model| {
            let reviews = &mut model.ensure_repo(&self.owner, &self.name).reviews;
            let review = reviews.iter_mut().find(|one| one.id == review)?;
            review.state = "DISMISSED".into();
            Some(review.clone())
        });
        if let Some(review) = dismissed {
            self.host
                .send_review_webhook(&self.path(), &review, "dismissed");
        }
    }

    /// Remarks something at a line of a pull request, and answers the conversation's id.
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

    /// Settles a conversation, as people do.
    pub fn resolve_thread(&self, thread: u64) {
        let settled = self.update_model(|model| {
            let repo = model.ensure_repo(&self.owner, &self.name);
            let thread = repo.threads.iter_mut().find(|one| one.id == thread)?;
            thread.resolved = true;
            let settled = thread.clone();
            repo.mark_pull_updated(settled.number);
            Some(settled)
        });
        if let Some(thread) = settled {
            self.host
                .send_review_thread_webhook(&self.path(), &thread, "resolved");
        }
    }

    /// Tells of every branch that clients push from now on, and its commit, before their push is
    /// answered. Lasts as long as the host.
    pub fn on_push(&self, watch: impl Fn(&str, &str) + Send + Sync + 'static) {
        lock(&self.host.push_watchers).push((self.full_name(), Arc::new(watch)));
    }
}

impl GitHubInner {
    /// The commits of all branches, when anybody watches them.
    pub fn watched_branch_heads(&self, at: &RepoPath<'_>) -> Vec<(String, String)> {
        if self.watchers_of(at).is_empty() {
            return Vec::new();
        }
        let format = "--format=%(refname:lstrip=2) %(objectname)";
        let heads =
            self.git(at.owner, at.name)
                .output_text(&["for-each-ref", format, "refs/heads"]);
        let heads = heads.unwrap_or_default();
        let pairs = heads.lines().filter_map(|line| line.split_once(' '));
        pairs
            .map(|(name, sha)| (name.to_owned(), sha.to_owned()))
            .collect()
    }

    /// Tells watchers of branches that are not as they were.
    pub fn notify_push_watchers(&self, at: &RepoPath<'_>, before: &[(String, String)]) {
        for head in self
            .watched_branch_heads(at)
            .iter()
            .filter(|head| !before.contains(head))
        {
            for watch in self.watchers_of(at) {
                watch(&head.0, &head.1);
            }
        }
    }

    fn watchers_of(&self, at: &RepoPath<'_>) -> Vec<PushWatcher> {
        let full_name = format!("{}/{}", at.owner, at.name);
        let watchers = lock(&self.push_watchers);
        let own = watchers
            .iter()
            .filter(|(repo, _)| repo.eq_ignore_ascii_case(&full_name));
        own.map(|(_, watch)| watch.clone()).collect()
    }
}
