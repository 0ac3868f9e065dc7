//! Mutations of auto-merge and of the merge queue.

use serde_json::{Map, Value};

use super::graphql::{Node, Session, failure};
use super::merging::{MergeStateStatus, missing_requirement};
use super::model::{AutoMerge, PullRecord};
use super::rest::RepoPath;
use crate::graphql::FieldError;

impl Session<'_, '_> {
    /// Performs a mutation of auto-merge or of the merge queue.
    pub(super) fn change_merge(
        &self,
        mutation: &str,
        args: &Map<String, Value>,
    ) -> Result<Node, FieldError> {
        let input = args.get("input").cloned().unwrap_or_default();
        let id = match mutation {
            "dequeuePullRequest" => &input["id"],
            _ => &input["pullRequestId"],
        };
        let node = self.find_node(id.as_str().unwrap_or_default())?;
        let Node::Pull(owner, name, number) = &node else {
            return Err(unprocessable("The node is not a pull request."));
        };
        let repo_path = RepoPath { owner, name };
        for permission in ["pull_requests", "contents"] {
            let allowed = self
                .call
                .require_permission(&repo_path, permission, "write");
            allowed.map_err(|_| {
                failure("FORBIDDEN", "Resource not accessible by integration".into())
            })?;
        }
        let expected = input["expectedHeadOid"].as_str();
        let by = self.call.require_token().map(|token| token.login.clone());
        let by = by.unwrap_or_default();
        let (host, number) = (self.call.host, *number);
        let pull = self.with_pull(&node, |_, pull| pull.clone());
        let pull = pull.filter(|pull| pull.open);
        let pull = pull.ok_or_else(|| unprocessable("Pull request is closed"))?;
        if expected.is_some_and(|expected| expected != pull.head_sha) {
            return Err(unprocessable(
                "Head branch was modified. Review and try the merge again.",
            ));
        }
        let payload = match mutation {
            "enablePullRequestAutoMerge" => {
                self.check_armable(&repo_path, &pull)?;
                let method = input["mergeMethod"]
                    .as_str()
                    .unwrap_or("MERGE")
                    .to_lowercase();
                host.update_pull(&repo_path, number, |pull| {
                    pull.auto_merge = Some(AutoMerge {
                        method,
                        enabled_by: by,
                    });
                });
                "EnablePullRequestAutoMergePayload"
            }
            "disablePullRequestAutoMerge" => {
                if pull.auto_merge.is_none() {
                    return Err(unprocessable(
                        "Can't disable auto-merge for this pull request.",
                    ));
                }
                host.update_pull(&repo_path, number, |pull| pull.auto_merge = None);
                "DisablePullRequestAutoMergePayload"
            }
            "enqueuePullRequest" => {
                self.check_queueable(&node, &pull)?;
                host.update_pull(&repo_path, number, |pull| pull.queued_by = Some(by));
                "EnqueuePullRequestPayload"
            }
            _ => {
                if pull.queued_by.is_none() {
                    return Err(unprocessable("Pull request is not in the merge queue"));
                }
                host.update_pull(&repo_path, number, |pull| pull.queued_by = None);
                "DequeuePullRequestPayload"
            }
        };
        Ok(Node::Payload(payload, Box::new(node)))
    }

    /// Checks whether auto-merge can be armed: it is allowed, and something is missing.
    fn check_armable(&self, repo_path: &RepoPath<'_>, pull: &PullRecord) -> Result<(), FieldError> {
        let allows = self
            .call
            .read_repo(repo_path, |repo| repo.allows_auto_merge);
        if !allows.unwrap_or_default() {
            return Err(unprocessable(
                "Auto merge is not allowed for this repository",
            ));
        }
        match self.call.host.merge_state(repo_path, pull) {
            MergeStateStatus::Blocked | MergeStateStatus::Behind => Ok(()),
            MergeStateStatus::Draft => Err(unprocessable("Pull request is in draft state")),
            state => {
                let name = state.name().to_lowercase();
                let message = format!("Pull request Pull request is in {name} status");
                Err(unprocessable(&message))
            }
        }
    }

    /// Checks whether a pull request can be added to the merge queue: nothing else is missing.
    fn check_queueable(&self, node: &Node, pull: &PullRecord) -> Result<(), FieldError> {
        if pull.queued_by.is_some() {
            return Err(unprocessable("Pull request is already in the merge queue"));
        }
        let missing = self.with_pull(node, |repo, pull| {
            let has_queue = repo
                .protection_of(&pull.base)
                .is_some_and(|protection| protection.has_merge_queue);
            let queued = PullRecord {
                queued_by: Some(String::new()),
                ..pull.clone()
            };
            match has_queue {
                true => missing_requirement(repo, &queued),
                false => Some("Merge queue is not enabled for this branch".to_owned()),
            }
        });
        match missing.flatten() {
            Some(message) => Err(unprocessable(&message)),
            None => Ok(()),
        }
    }
}

fn unprocessable(message: &str) -> FieldError {
    failure("UNPROCESSABLE", message.to_owned())
}
