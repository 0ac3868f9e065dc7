//! Fields of a pull request in the GraphQL API.

use std::sync::Arc;

use serde_json::json;

use super::check_rollup::{CheckRollup, latest_opinions};
use super::comparison::Comparison;
use super::graphql::{Node, Session};
use super::mergeability::Mergeability;
use super::merging::MergeStateStatus;
use super::rest::RepoPath;
use crate::clock::iso_seconds as iso;
use crate::graphql::Resolved;

impl Session<'_, '_> {
    pub(super) fn threads(&self, pull: &Node) -> Vec<Node> {
        let threads = self.with_pull(pull, |repo, pull| {
            let items = repo
                .threads
                .iter()
                .filter(|thread| thread.number == pull.number);
            items
                .map(|thread| Node::Thread(Box::new(thread.clone())))
                .collect()
        });
        threads.unwrap_or_default()
    }

    pub(super) fn comments_or_reviews(&self, pull: &Node, name: &str) -> Vec<Node> {
        let nodes = self.with_pull(pull, |repo, pull| {
            if name == "comments" {
                let items = repo
                    .comments
                    .iter()
                    .filter(|comment| comment.number == pull.number);
                items
                    .map(|comment| Node::Comment(Box::new(comment.clone())))
                    .collect()
            } else {
                let items = repo
                    .reviews
                    .iter()
                    .filter(|review| review.number == pull.number);
                items
                    .map(|review| Node::Review(Box::new(review.clone())))
                    .collect()
            }
        });
        nodes.unwrap_or_default()
    }

    pub(super) fn author(&self, pull: &Node) -> Resolved<Node> {
        let author = self.with_pull(pull, |_, pull| pull.author.clone());
        author.map_or(Resolved::Null, |login| Resolved::Node(Node::Actor(login)))
    }

    /// Lists the commits of a pull request, oldest first.
    pub(super) fn commits(&self, node: &Node) -> Vec<Node> {
        let Node::Pull(owner, name, _) = node else {
            return Vec::new();
        };
        let range = self.with_pull(node, |_, pull| {
            let base = pull.merged.as_ref().map(|merge| format!("{}^1", merge.sha));
            format!(
                "{}..{}",
                base.unwrap_or_else(|| pull.base.clone()),
                pull.head_sha
            )
        });
        let log = self
            .call
            .host
            .git(owner, name)
            .log(&range.unwrap_or_default());
        let commits = log.into_iter().rev().enumerate();
        commits
            .map(|(place, commit)| Node::PullCommit(place, commit))
            .collect()
    }

    /// Lists the files that a pull request changes, by path.
    pub(super) fn changed_files(&self, node: &Node) -> Vec<Node> {
        let comparison = self.comparison(node);
        let paths = comparison.iter().flat_map(|changes| &changes.paths);
        paths.cloned().map(Node::PullFile).collect()
    }

    pub(super) fn merge_commit(&self, pull: &Node) -> Resolved<Node> {
        let merge = self
            .with_pull(pull, |_, pull| pull.merged.clone())
            .flatten();
        merge.map_or(Resolved::Null, |merge| {
            Resolved::Node(Node::Commit(merge.sha))
        })
    }

    pub(super) fn latest_opinions(&self, pull: &Node) -> Vec<Node> {
        let reviews = self.with_pull(pull, |repo, pull| latest_opinions(repo, pull.number));
        let reviews = reviews.unwrap_or_default().into_iter();
        reviews
            .map(|review| Node::Review(Box::new(review)))
            .collect()
    }

    pub(super) fn check_rollup(&self, pull: &Node) -> Resolved<Node> {
        let rollup = self.with_pull(pull, |repo, pull| {
            CheckRollup::of(repo, self.call.host.checks_of(repo, &pull.head_sha))
        });
        let rollup = rollup.flatten();
        rollup.map_or(Resolved::Null, |rollup| {
            Resolved::Node(Node::Rollup(rollup))
        })
    }

    /// Returns the base branch of a pull request.
    pub(super) fn base_branch(&self, node: &Node) -> Resolved<Node> {
        let Node::Pull(owner, name, _) = node else {
            return Resolved::Null;
        };
        let branch = self.with_pull(node, |_, pull| pull.base.clone());
        let git = self.call.host.git(owner, name);
        let branch = branch.and_then(|branch| {
            let head = git.branch_head(&branch)?;
            Some(Node::Branch(branch, head))
        });
        branch.map_or(Resolved::Null, Resolved::Node)
    }

    /// Returns whether the pull request can be merged, if that is asked for.
    fn mergeability(&self, node: &Node, field: &str) -> Mergeability {
        match (node, field) {
            (Node::Pull(owner, name, number), "mergeable" | "mergeStateStatus") => {
                let repo_path = RepoPath { owner, name };
                self.call.host.mergeability(&repo_path, *number, field)
            }
            _ => Mergeability::Clean,
        }
    }

    pub(super) fn auto_merge(&self, pull: &Node) -> Resolved<Node> {
        let armed = self.with_pull(pull, |_, pull| pull.auto_merge.clone());
        let armed = armed.flatten();
        armed.map_or(Resolved::Null, |armed| {
            Resolved::Node(Node::AutoMerge(armed))
        })
    }

    pub(super) fn merged_by(&self, pull: &Node) -> Resolved<Node> {
        let merge = self.with_pull(pull, |_, pull| pull.merged.clone());
        let merge = merge.flatten();
        merge.map_or(Resolved::Null, |merge| {
            Resolved::Node(Node::Actor(merge.by))
        })
    }

    /// Returns the decision of the reviewers. Only a protected branch has one.
    pub(super) fn review_decision(&self, pull: &Node) -> Resolved<Node> {
        let decision = self.with_pull(pull, |repo, pull| {
            let required = repo.protection_of(&pull.base)?.required_reviews;
            let latest = latest_opinions(repo, pull.number);
            let count = |state| latest.iter().filter(|review| review.state == state).count();
            (required > 0).then(|| match count("CHANGES_REQUESTED") {
                0 if count("APPROVED") >= required => "APPROVED",
                0 => "REVIEW_REQUIRED",
                _ => "CHANGES_REQUESTED",
            })
        });
        Resolved::Leaf(json!(decision.flatten()))
    }

    pub(super) fn merge_setting(&self, repo_path: &RepoPath<'_>, name: &str) -> Resolved<Node> {
        let allowed = self.call.read_repo(repo_path, |repo| {
            let is_allowed = |method: &str| !repo.denied_merge_methods.contains(method);
            match name {
                "squashMergeAllowed" => is_allowed("squash"),
                "mergeCommitAllowed" => is_allowed("merge"),
                "rebaseMergeAllowed" => is_allowed("rebase"),
                _ => repo.allows_auto_merge,
            }
        });
        Resolved::Leaf(json!(allowed.unwrap_or_default()))
    }

    /// Compares a pull request with its base.
    fn comparison(&self, node: &Node) -> Option<Arc<Comparison>> {
        let Node::Pull(owner, name, _) = node else {
            return None;
        };
        let ends = self.with_pull(node, |_, pull| (pull.base.clone(), pull.head_sha.clone()));
        let (base, head) = ends?;
        let repo_path = RepoPath { owner, name };
        Some(self.call.host.compare(&repo_path, &base, &head))
    }

    pub(super) fn pull_field(&self, node: &Node, name: &str) -> Resolved<Node> {
        let mergeability = self.mergeability(node, name);
        let comparison = match name {
            "changedFiles" | "additions" | "deletions" => self.comparison(node),
            _ => None,
        };
        let leaf = self.with_pull(node, |repo, pull| {
            let state = match (&pull.merged, pull.open) {
                (Some(_), _) => "MERGED",
                (None, true) => "OPEN",
                (None, false) => "CLOSED",
            };
            match name {
                "id" => json!(format!("PR_{}", pull.id)),
                "number" => json!(pull.number),
                "title" => json!(pull.title),
                "body" => json!(pull.body),
                "isDraft" => json!(pull.draft),
                "state" => json!(state),
                "merged" => json!(pull.merged.is_some()),
                "mergeable" => json!(mergeability.mergeable()),
                "mergeStateStatus" => {
                    json!(MergeStateStatus::of(repo, pull, mergeability).name())
                }
                "isCrossRepository" => json!(pull.fork_owner.is_some()),
                "isInMergeQueue" => json!(pull.queued_by.is_some()),
                "changedFiles" => json!(comparison.map(|changes| changes.paths.len())),
                "additions" => json!(comparison.map(|changes| changes.additions)),
                "deletions" => json!(comparison.map(|changes| changes.deletions)),
                "headRefName" => json!(pull.head),
                "headRefOid" => json!(pull.head_sha),
                "baseRefName" => json!(pull.base),
                "createdAt" => json!(iso(pull.created_at)),
                "mergedAt" => json!(pull.merged.as_ref().map(|merge| iso(merge.merged_at))),
                _ => json!(format!(
                    "{}/pull/{}",
                    self.call.host.repo_html_url(repo),
                    pull.number
                )),
            }
        });
        Resolved::Leaf(leaf.unwrap_or_default())
    }
}
