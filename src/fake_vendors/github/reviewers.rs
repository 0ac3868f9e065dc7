//! What reviewers do on the repository host, as in-process verbs: reviews, remarks at lines, check
//! runs, and looking at every push.

use std::sync::Arc;

use anyhow::anyhow;

use super::Inner;
use super::model::{Check, Means, Thread};
use super::repo::Repo;
use super::rest::Place;
use crate::clock;
use crate::state::lock;

/// Told of a branch that was pushed, and its new commit, before the push is answered.
pub(super) type Watcher = Arc<dyn Fn(&str, &str) + Send + Sync>;

/// What an App says about a commit, to be reported by a test.
#[derive(Clone, Copy, Debug)]
pub struct CheckReport<'a> {
    pub name: &'a str,
    pub app: &'a str,
    pub means: Means,
    /// `None` while it runs; of a commit status its state.
    pub conclusion: Option<&'a str>,
    pub summary: &'a str,
    pub text: &'a str,
}

impl Repo {
    /// Reviews a pull request as a person: `APPROVED`, `CHANGES_REQUESTED` or `COMMENTED`.
    pub fn review(&self, number: u64, login: &str, state: &str, body: &str) -> u64 {
        let id = self.host.add_review(&self.at(), number, login, state, body);
        self.edit(|_| ());
        id
    }

    /// Reports a check on a commit (a SHA or a branch), in place of the app's last one of that name.
    pub fn check(&self, commit: &str, report: CheckReport<'_>) -> anyhow::Result<()> {
        let sha = self
            .git()
            .rev(commit)
            .ok_or_else(|| anyhow!("no commit {commit}"))?;
        self.edit(|model| {
            let id = model.next_id();
            let repo = model.repo(&self.owner, &self.name);
            repo.checks.retain(|check| {
                !(check.sha == sha
                    && check.name == report.name
                    && check.app == report.app
                    && check.means == report.means)
            });
            let status = match (report.means, report.conclusion) {
                (Means::CheckRun, Some(_)) => "completed",
                (Means::CheckRun, None) => "in_progress",
                (Means::CommitStatus, state) => state.unwrap_or("pending"),
            };
            repo.checks.push(Check {
                id,
                sha,
                name: report.name.to_owned(),
                app: report.app.to_owned(),
                means: report.means,
                status: status.to_owned(),
                conclusion: report.conclusion.map(str::to_owned),
                summary: report.summary.to_owned(),
                text: report.text.to_owned(),
                at: clock::now_ms(),
            });
        });
        Ok(())
    }

    /// Takes a review's verdict away, as a maintainer may.
    pub fn dismiss(&self, review: u64) {
        let dismissed = self.edit(|model| {
            let reviews = &mut model.repo(&self.owner, &self.name).reviews;
            let review = reviews.iter_mut().find(|one| one.id == review)?;
            review.state = "DISMISSED".into();
            Some(review.clone())
        });
        if let Some(review) = dismissed {
            self.host.tell_review(&self.at(), &review, "dismissed");
        }
    }

    /// Remarks something at a line of a pull request, and answers the conversation's id.
    pub fn remark(&self, number: u64, login: &str, path: &str, line: u64, body: &str) -> u64 {
        let thread = self.edit(|model| {
            let thread = Thread {
                id: model.next_id(),
                number,
                author: login.to_owned(),
                path: path.to_owned(),
                line,
                body: body.to_owned(),
                resolved: false,
                outdated: false,
                at: clock::now_ms(),
            };
            let repo = model.repo(&self.owner, &self.name);
            repo.threads.push(thread.clone());
            repo.touch(number);
            thread
        });
        self.host.tell_remark(&self.at(), &thread);
        thread.id
    }

    /// Settles a conversation, as people do.
    pub fn resolve(&self, thread: u64) {
        let settled = self.edit(|model| {
            let repo = model.repo(&self.owner, &self.name);
            let thread = repo.threads.iter_mut().find(|one| one.id == thread)?;
            thread.resolved = true;
            let settled = thread.clone();
            repo.touch(settled.number);
            Some(settled)
        });
        if let Some(thread) = settled {
            self.host.tell_thread(&self.at(), &thread, "resolved");
        }
    }

    /// Tells of every branch that clients push from now on, and its commit, before their push is
    /// answered. Lasts as long as the host.
    pub fn on_push(&self, watch: impl Fn(&str, &str) + Send + Sync + 'static) {
        lock(&self.host.watchers).push((self.full_name(), Arc::new(watch)));
    }
}

impl Inner {
    /// The commits of all branches, when anybody watches them.
    pub fn watched(&self, at: &Place<'_>) -> Vec<(String, String)> {
        if self.watchers_of(at).is_empty() {
            return Vec::new();
        }
        let format = "--format=%(refname:lstrip=2) %(objectname)";
        let heads = self
            .git(at.owner, at.name)
            .text(&["for-each-ref", format, "refs/heads"]);
        let heads = heads.unwrap_or_default();
        let pairs = heads.lines().filter_map(|line| line.split_once(' '));
        pairs
            .map(|(name, sha)| (name.to_owned(), sha.to_owned()))
            .collect()
    }

    /// Tells watchers of branches that are not as they were.
    pub fn tell_watchers(&self, at: &Place<'_>, before: &[(String, String)]) {
        for head in self
            .watched(at)
            .iter()
            .filter(|head| !before.contains(head))
        {
            for watch in self.watchers_of(at) {
                watch(&head.0, &head.1);
            }
        }
    }

    fn watchers_of(&self, at: &Place<'_>) -> Vec<Watcher> {
        let full_name = format!("{}/{}", at.owner, at.name);
        let watchers = lock(&self.watchers);
        let own = watchers
            .iter()
            .filter(|(repo, _)| repo.eq_ignore_ascii_case(&full_name));
        own.map(|(_, watch)| watch.clone()).collect()
    }
}
