//! Fields of a pull request in the GraphQL API.

use serde_json::json;

use super::check_rollup::{CheckRollup, latest_opinions};
use super::graphql::{Node, Session};
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
        let rollup = self.with_pull(pull, |repo, pull| CheckRollup::of(repo, &pull.head_sha));
        let rollup = rollup.flatten();
        rollup.map_or(Resolved::Null, |rollup| {
            Resolved::Node(Node::Rollup(rollup))
        })
    }

    pub(super) fn pull_field(&self, node: &Node, name: &str) -> Resolved<Node> {
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
                "mergeable" => json!("MERGEABLE"),
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
