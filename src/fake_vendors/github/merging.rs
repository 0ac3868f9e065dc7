//! Merges of pull requests: the endpoint, auto-merge, the merge queue, and the rules of the base branch.
//!
//! As on GitHub, auto-merge merges by itself once nothing is missing, and a pull request without missing requirements
//! cannot be armed. The merge queue merges when a test says so.

use anyhow::{Context, anyhow, bail};
use serde_json::{Value, json};

use super::GitHubInner;
use super::check_rollup::latest_opinions;
use super::fake_repo::FakeRepo;
use super::git::BareRepository;
use super::mergeability::Mergeability;
use super::model::{AutoMerge, BranchProtection, CheckRecord, Merge, PullRecord, RepoRecord};
use super::rest::{ApiCall, RepoPath, RestResult, ok_json, rest_error};
use crate::clock;
use crate::persistence::lock;

/// Author of merge commits: name and email.
const MERGER: (&str, &str) = ("GitHub", "noreply@github.com");

/// Account that merges what leaves the merge queue.
const QUEUE: &str = "github-merge-queue[bot]";

/// Methods of a merge.
const METHODS: [&str; 3] = ["merge", "squash", "rebase"];

/// State of an open pull request, as GitHub names it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum MergeStateStatus {
    Behind,
    Blocked,
    Clean,
    Dirty,
    Draft,
    Unknown,
    Unstable,
}

impl MergeStateStatus {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Behind => "BEHIND",
            Self::Blocked => "BLOCKED",
            Self::Clean => "CLEAN",
            Self::Dirty => "DIRTY",
            Self::Draft => "DRAFT",
            Self::Unknown => "UNKNOWN",
            Self::Unstable => "UNSTABLE",
        }
    }

    /// Returns the state of a pull request.
    pub(super) fn of(repo: &RepoRecord, pull: &PullRecord, mergeability: Mergeability) -> Self {
        let is_unsuccessful = |check: &CheckRecord| {
            let state = check.conclusion.as_deref().unwrap_or(&check.status);
            !matches!(state, "success" | "neutral" | "skipped")
        };
        let of_head = |check: &&CheckRecord| check.sha == pull.head_sha;
        match () {
            () if mergeability == Mergeability::Unknown => Self::Unknown,
            () if mergeability == Mergeability::Conflicting => Self::Dirty,
            () if pull.draft => Self::Draft,
            () if mergeability == Mergeability::Behind => Self::Behind,
            () if missing_requirement(repo, pull).is_some() => Self::Blocked,
            () if repo.checks.iter().filter(of_head).any(is_unsuccessful) => Self::Unstable,
            () => Self::Clean,
        }
    }
}

/// Returns the message about a rule of the base branch that a pull request does not meet.
pub(super) fn missing_requirement(repo: &RepoRecord, pull: &PullRecord) -> Option<String> {
    let protection = repo.protection_of(&pull.base)?;
    if pull.queued_by.is_none() && protection.has_merge_queue {
        return Some("Changes must be made through the merge queue".to_owned());
    }
    let approving = latest_opinions(repo, pull.number)
        .into_iter()
        .filter(|review| {
            let role = repo.collaborators.get(&review.author).map(String::as_str);
            review.state == "APPROVED" && matches!(role, Some("write" | "maintain" | "admin"))
        });
    if approving.count() < protection.required_reviews {
        let required = protection.required_reviews;
        return Some(format!(
            "At least {required} approving review is required by reviewers with write access."
        ));
    }
    let succeeded = |context: &String| {
        repo.checks.iter().any(|check| {
            let state = check.conclusion.as_deref().unwrap_or(&check.status);
            check.sha == pull.head_sha && check.name == *context && state == "success"
        })
    };
    let missing = protection
        .required_checks
        .iter()
        .find(|one| !succeeded(one))?;
    Some(format!("Required status check \"{missing}\" is expected."))
}

impl RepoRecord {
    /// Returns the protection of a branch: only the default branch can have one.
    pub(super) fn protection_of(&self, branch: &str) -> Option<&BranchProtection> {
        self.protection
            .as_ref()
            .filter(|_| branch == self.default_branch)
    }
}

impl FakeRepo {
    /// Protects the default branch.
    pub fn protect(&self, protection: BranchProtection) -> &Self {
        self.update_model(|model| {
            model.ensure_repo(&self.owner, &self.name).protection = Some(protection);
        });
        self.host.merge_armed(&self.path());
        self
    }

    /// Allows auto-merge. Off in a new repository, as on GitHub.
    pub fn allow_auto_merge(&self) -> &Self {
        self.update_model(|model| {
            model.ensure_repo(&self.owner, &self.name).allows_auto_merge = true;
        });
        self
    }

    /// Denies a method of merging: `merge`, `squash` or `rebase`.
    pub fn deny_merge_method(&self, method: &str) -> &Self {
        self.update_model(|model| {
            let repo = model.ensure_repo(&self.owner, &self.name);
            repo.denied_merge_methods.insert(method.to_owned());
        });
        self
    }

    /// Merges a pull request into its base branch with a merge commit, as a person. Returns the commit's SHA.
    pub fn merge_pull(&self, number: u64) -> anyhow::Result<String> {
        self.host.refresh_pull_heads(&self.path());
        let sha = self
            .host
            .merge_pull(&self.path(), number, "merge", "maintainer")?;
        self.update_model(|_| ());
        Ok(sha)
    }

    /// Merges all pull requests in the merge queue. Returns their number.
    pub fn run_merge_queue(&self) -> anyhow::Result<usize> {
        self.host.refresh_pull_heads(&self.path());
        let queued = self.pulls_where(|pull| pull.queued_by.is_some());
        for number in &queued {
            self.host
                .merge_pull(&self.path(), *number, "merge", QUEUE)?;
        }
        self.update_model(|_| ());
        Ok(queued.len())
    }

    /// Removes a pull request from the merge queue and disarms it, as a person.
    pub fn stop_merge(&self, number: u64) {
        self.host.update_pull(&self.path(), number, |pull| {
            pull.queued_by = None;
            pull.auto_merge = None;
        });
        self.update_model(|_| ());
        self.host
            .send_pull_webhook_of(&self.path(), number, "auto_merge_disabled");
    }

    /// Returns the numbers of the pull requests that are armed.
    pub fn armed_pulls(&self) -> Vec<u64> {
        self.pulls_where(|pull| pull.auto_merge.is_some())
    }

    /// Returns the numbers of the pull requests in the merge queue.
    pub fn queued_pulls(&self) -> Vec<u64> {
        self.pulls_where(|pull| pull.queued_by.is_some())
    }

    fn pulls_where(&self, matches: impl Fn(&PullRecord) -> bool) -> Vec<u64> {
        let numbers = self.read(|repo| {
            let open = repo.pulls.iter().filter(|pull| pull.open && matches(pull));
            open.map(|pull| pull.number).collect()
        });
        numbers.unwrap_or_default()
    }
}

impl GitHubInner {
    /// Merges an open pull request, whatever the rules of its base branch are. Returns the SHA of the merge commit.
    pub(super) fn merge_pull(
        &self,
        repo_path: &RepoPath<'_>,
        number: u64,
        method: &str,
        by: &str,
    ) -> anyhow::Result<String> {
        let _merging = lock(&self.merging);
        let found = self.model.read(|model| {
            let repo = &model.repos[model.find_repo(repo_path.owner, repo_path.name)?];
            repo.pull(number).filter(|pull| pull.open).cloned()
        });
        let pull = found.ok_or_else(|| anyhow!("No open pull request {number}"))?;
        let git = self.git(repo_path.owner, repo_path.name);
        let base = git
            .branch_head(&pull.base)
            .context("Base branch does not exist")?;
        let sha = match method {
            "squash" => squash(&git, &base, &pull)?,
            "rebase" => rebase(&git, &base, &pull)?,
            _ => merge(&git, &base, &pull, repo_path.owner)?,
        };
        git.update_ref(&format!("refs/heads/{}", pull.base), &sha)?;
        let now = clock::now_ms();
        self.update_pull(repo_path, number, |pull| {
            pull.close(now);
            pull.merged = Some(Merge {
                sha: sha.clone(),
                merged_at: now,
                by: by.to_owned(),
            });
        });
        self.close_fixed_issues(repo_path, &pull.body);
        self.send_pull_webhook_of(repo_path, number, "closed");
        Ok(sha)
    }

    pub(super) fn send_pull_webhook_of(&self, repo_path: &RepoPath<'_>, number: u64, action: &str) {
        let pull = self.model.read(|model| {
            let repo = &model.repos[model.find_repo(repo_path.owner, repo_path.name)?];
            repo.pull(number).cloned()
        });
        if let Some(pull) = pull {
            self.send_pull_webhook(repo_path, &pull, action);
        }
    }

    /// Closes the issues that the body of a merged pull request names with a closing keyword, `Fixes #12`.
    fn close_fixed_issues(&self, repo_path: &RepoPath<'_>, body: &str) {
        let numbers = body
            .lines()
            .filter_map(|line| line.trim().strip_prefix("Fixes #"));
        for number in numbers.filter_map(|number| number.parse().ok()) {
            self.model.update(|model| {
                let repo = model.ensure_repo(repo_path.owner, repo_path.name);
                if let Some(issue) = repo.issue_mut(number) {
                    issue.open = false;
                    issue.state_reason = Some("COMPLETED".to_owned());
                    issue.updated_at = clock::now_ms().max(issue.updated_at + 1_000);
                }
            });
            self.send_issue_webhook(repo_path, number, "maintainer", "closed");
        }
    }

    pub(super) fn merge_state(
        &self,
        repo_path: &RepoPath<'_>,
        pull: &PullRecord,
    ) -> MergeStateStatus {
        let mergeability = self.mergeability(repo_path, pull.number, "mergeStateStatus");
        let state = self.model.read(|model| {
            let repo = &model.repos[model.find_repo(repo_path.owner, repo_path.name)?];
            Some(MergeStateStatus::of(repo, pull, mergeability))
        });
        state.unwrap_or(MergeStateStatus::Dirty)
    }

    /// Merges the armed pull requests for which nothing is missing any more.
    pub(super) fn merge_armed(&self, repo_path: &RepoPath<'_>) {
        let armed: Vec<(PullRecord, AutoMerge)> = self
            .model
            .read(|model| {
                let repo = &model.repos[model.find_repo(repo_path.owner, repo_path.name)?];
                let open = repo.pulls.iter().filter(|pull| pull.open);
                let armed = open.filter_map(|pull| Some((pull.clone(), pull.auto_merge.clone()?)));
                Some(armed.collect())
            })
            .unwrap_or_default();
        for (pull, armed) in armed {
            if is_ready(self.merge_state(repo_path, &pull)) {
                let merged =
                    self.merge_pull(repo_path, pull.number, &armed.method, &armed.enabled_by);
                drop(merged);
            }
        }
    }
}

fn is_ready(state: MergeStateStatus) -> bool {
    matches!(state, MergeStateStatus::Clean | MergeStateStatus::Unstable)
}

fn merged_tree(git: &BareRepository, base: &str, head: &str) -> anyhow::Result<String> {
    let tree = git.output_text(&["merge-tree", "--write-tree", base, head])?;
    Ok(tree.lines().next().unwrap_or_default().to_owned())
}

fn merge(
    git: &BareRepository,
    base: &str,
    pull: &PullRecord,
    owner: &str,
) -> anyhow::Result<String> {
    let tree = merged_tree(git, base, &pull.head_sha)?;
    let message = format!(
        "Merge pull request #{} from {owner}/{}",
        pull.number, pull.head
    );
    let parents = [base.to_owned(), pull.head_sha.clone()];
    git.commit_tree(&tree, &parents, &message, MERGER)
}

fn squash(git: &BareRepository, base: &str, pull: &PullRecord) -> anyhow::Result<String> {
    let tree = merged_tree(git, base, &pull.head_sha)?;
    let message = format!("{} (#{})", pull.title, pull.number);
    git.commit_tree(&tree, &[base.to_owned()], &message, MERGER)
}

/// Commits the changes of each commit of the branch on top of the base.
fn rebase(git: &BareRepository, base: &str, pull: &PullRecord) -> anyhow::Result<String> {
    let mut onto = base.to_owned();
    for commit in git.log(&format!("{base}..{}", pull.head_sha)).iter().rev() {
        let [parent] = commit.parents.as_slice() else {
            bail!("{} is a merge commit", commit.sha);
        };
        let merge_base = format!("--merge-base={parent}");
        let tree = git.output_text(&[
            "merge-tree",
            "--write-tree",
            &merge_base,
            &onto,
            &commit.sha,
        ])?;
        let tree = tree.lines().next().unwrap_or_default();
        let author = (commit.author.as_str(), commit.email.as_str());
        onto = git.commit_tree(tree, &[onto], &commit.message, author)?;
    }
    Ok(onto)
}

impl ApiCall<'_> {
    pub(super) fn merge(&self, repo_path: &RepoPath<'_>, number: &str) -> RestResult {
        self.require_permission(repo_path, "contents", "write")?;
        let pull = self.pull(repo_path, number)?;
        let method = self.body_str("merge_method").unwrap_or("merge");
        if !METHODS.contains(&method) {
            return Err(rest_error(422, "Invalid request.\n\nInvalid merge_method"));
        }
        let not_mergeable = "Pull Request is not mergeable";
        if !pull.open || pull.draft {
            return Err(rest_error(405, not_mergeable));
        }
        if self.body_str("sha").is_some_and(|sha| sha != pull.head_sha) {
            let message = "Head branch was modified. Review and try the merge again.";
            return Err(rest_error(409, message));
        }
        let (is_denied, missing) = self.read_repo(repo_path, |repo| {
            let is_denied = repo.denied_merge_methods.contains(method);
            (is_denied, missing_requirement(repo, &pull))
        })?;
        if is_denied {
            let message = format!("{method} merges are not allowed on this repository.");
            return Err(rest_error(405, message));
        }
        match self.host.merge_state(repo_path, &pull) {
            MergeStateStatus::Dirty | MergeStateStatus::Unknown => {
                return Err(rest_error(405, not_mergeable));
            }
            MergeStateStatus::Behind => {
                let message = "Head branch is out of date. Review and try the merge again.";
                return Err(rest_error(405, message));
            }
            _ => {}
        }
        if let Some(missing) = missing {
            return Err(rest_error(405, missing));
        }
        let by = &self.require_token()?.login;
        let sha = self.host.merge_pull(repo_path, pull.number, method, by)?;
        ok_json(json!({"sha": sha, "merged": true, "message": "Pull Request successfully merged"}))
    }

    /// Lists the rules of rulesets for a branch. The protection of the fake has its merge queue there, as on GitHub.
    pub(super) fn branch_rules(&self, repo_path: &RepoPath<'_>, branch: &str) -> RestResult {
        self.require_permission(repo_path, "metadata", "read")?;
        let rules = self.read_repo(repo_path, |repo| {
            let has_queue = repo
                .protection_of(branch)
                .is_some_and(|protection| protection.has_merge_queue);
            match has_queue {
                true => vec![json!({"type": "merge_queue", "ruleset_id": 1})],
                false => Vec::new(),
            }
        })?;
        self.paginate(rules, |_, items| items.into())
    }
}

impl BranchProtection {
    pub(super) fn json(&self) -> Value {
        let checks = &self.required_checks;
        json!({"enabled": true, "required_status_checks": {
            "enforcement_level": if checks.is_empty() { "off" } else { "everyone" }, "contexts": checks, "checks": [],
        }})
    }
}
