//! Whether a pull request can be merged, as git says, and updates of its branch from its base.

use anyhow::Context;
use serde_json::json;

use super::GitHubInner;
use super::fake_repo::FakeRepo;
use super::git::BareRepository;
use super::rest::{ApiCall, RepoPath, RestResult, rest_error};
use crate::http::HttpResponse;

/// Whether a pull request can be merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mergeability {
    /// Not computed yet.
    Unknown,
    /// In conflict with the base.
    Conflicting,
    /// Without conflicts, but the rules of the base want it up to date.
    Behind,
    /// Can be merged.
    Clean,
}

impl Mergeability {
    /// Returns the value of `mergeable` in GraphQL.
    pub(super) fn mergeable(self) -> &'static str {
        match self {
            Mergeability::Unknown => "UNKNOWN",
            Mergeability::Conflicting => "CONFLICTING",
            Mergeability::Behind | Mergeability::Clean => "MERGEABLE",
        }
    }
}

impl BareRepository {
    /// Returns whether the base has commits that the head does not contain.
    fn is_behind(&self, base: &str, head: &str) -> bool {
        self.merge_base(base, head).is_some_and(|from| from != base)
    }
}

impl GitHubInner {
    /// Returns whether a pull request can be merged. Reading the field `mergeable` counts as a read.
    pub(super) fn mergeability(
        &self,
        repo_path: &RepoPath<'_>,
        number: u64,
        field: &str,
    ) -> Mergeability {
        let git = self.git(repo_path.owner, repo_path.name);
        let found = self.model.read(|model| {
            let repo = &model.repos[model.find_repo(repo_path.owner, repo_path.name)?];
            let pull = repo.pull(number)?;
            let ends = (pull.base.clone(), pull.head_sha.clone());
            Some((ends, repo.wants_up_to_date, repo.unknown_reads))
        });
        let Some(((base_branch, head), wants_up_to_date, unknown_reads)) = found else {
            return Mergeability::Clean;
        };
        // A test may open a pull request without a commit.
        if head.is_empty() {
            return Mergeability::Clean;
        }
        let Some(base) = git.branch_head(&base_branch) else {
            return Mergeability::Unknown;
        };
        if unknown_reads > 0 {
            let key = format!("{base} {head}");
            let reads = self.model.update(|model| {
                let pulls = &mut model.ensure_repo(repo_path.owner, repo_path.name).pulls;
                let pull = pulls.iter_mut().find(|pull| pull.number == number)?;
                if pull.mergeability.0 != key {
                    pull.mergeability = (key, 0);
                }
                pull.mergeability.1 += u32::from(field == "mergeable");
                Some(pull.mergeability.1)
            });
            if reads.unwrap_or_default() <= unknown_reads {
                return Mergeability::Unknown;
            }
        }
        match self.compare(repo_path, &base_branch, &head).is_mergeable {
            false => Mergeability::Conflicting,
            true if wants_up_to_date && git.is_behind(&base, &head) => Mergeability::Behind,
            true => Mergeability::Clean,
        }
    }
}

impl ApiCall<'_> {
    /// Merges the base into the branch of a pull request. GitHub answers before; this fake after it.
    pub(super) fn update_branch(&self, repo_path: &RepoPath<'_>, number: &str) -> RestResult {
        self.require_permission(repo_path, "pull_requests", "write")?;
        self.require_permission(repo_path, "contents", "write")?;
        let pull = self.pull(repo_path, number)?;
        let git = self.host.git(repo_path.owner, repo_path.name);
        let head = &pull.head_sha;
        let is_expected = self
            .body_str("expected_head_sha")
            .is_none_or(|sha| sha == head);
        if !is_expected {
            let error = "expected head sha didn’t match current head ref.";
            return Err(rest_error(422, error));
        }
        let base = git.branch_head(&pull.base).unwrap_or_default();
        if !pull.open || !git.is_behind(&base, head) {
            let error = "There are no new commits on the base branch.";
            return Err(rest_error(422, error));
        }
        if !git.is_mergeable(&base, head) {
            return Err(rest_error(422, "merge conflict between base and head"));
        }
        let tree = git.output_text(&["merge-tree", "--write-tree", &base, head])?;
        let login = &self.require_token()?.login;
        let email = format!("{login}@users.noreply.github.com");
        let message = format!("Merge branch '{}' into {}", pull.base, pull.head);
        let parents = [head.clone(), base];
        let merge = git.commit_tree(&tree, &parents, &message, (login, &email))?;
        git.update_ref(&format!("refs/heads/{}", pull.head), &merge)?;
        self.host.refresh_pull_heads(repo_path);
        let body = json!({
            "message": "Updating pull request branch.",
            "url": format!("{}/pull/{}", repo_path.name, pull.number),
        });
        Ok(HttpResponse::json(202, &body))
    }
}

impl FakeRepo {
    /// Sets whether the rules of the default branch want branches that are up to date with it.
    pub fn require_up_to_date(&self, is_required: bool) -> &Self {
        self.update_model(|model| {
            let repo = model.ensure_repo(&self.owner, &self.name);
            repo.wants_up_to_date = is_required;
        });
        self
    }

    /// Sets the number of reads after each change for which it is unknown whether a pull request can be merged.
    pub fn set_unknown_reads(&self, count: u32) -> &Self {
        self.update_model(|model| {
            model.ensure_repo(&self.owner, &self.name).unknown_reads = count;
        });
        self
    }

    /// Returns whether two commits are in conflict.
    pub fn are_in_conflict(&self, base: &str, head: &str) -> bool {
        !self.git().is_mergeable(base, head)
    }

    /// Merges the default branch into a branch, as this author: name and email. Files in conflict keep both sides
    /// between markers. Returns the SHA of the merge commit.
    pub fn merge_default_branch_into(
        &self,
        branch: &str,
        message: &str,
        author: (&str, &str),
    ) -> anyhow::Result<String> {
        let git = self.git();
        let default = self.read(|repo| repo.default_branch.clone());
        let default = default.context("No such repository")?;
        let head = git.branch_head(branch).context("No such branch")?;
        let base = git.branch_head(&default).context("No default branch")?;
        let merged = git.run(&["merge-tree", "--write-tree", &head, &base], None, &[])?;
        let text = String::from_utf8_lossy(&merged.stdout);
        let tree = text.lines().next().unwrap_or_default();
        let merge = git.commit_tree(tree, &[head, base], message, author)?;
        git.update_ref(&format!("refs/heads/{branch}"), &merge)?;
        Ok(merge)
    }

    /// Changes the base branch of a pull request.
    pub fn set_pull_base(&self, number: u64, base: &str) {
        self.host
            .update_pull(&self.path(), number, |pull| pull.base = base.to_owned());
        self.update_model(|_| ());
    }
}
