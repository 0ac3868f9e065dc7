//! JSON representations of GitHub's objects, limited to the members that clients read.

use serde_json::{Value, json};

use super::GitHubInner;
use super::comparison::Comparison;
use super::mergeability::Mergeability;
use super::merging::MergeStateStatus;
use super::model::{
    CheckRecord, CommentRecord, PullRecord, RepoRecord, ReviewRecord, ReviewThreadRecord, RunRecord,
};
use crate::clock::iso_seconds as iso;

/// Returns an account as JSON.
pub(crate) fn user_json(login: &str) -> Value {
    let kind = if login.ends_with("[bot]") {
        "Bot"
    } else {
        "User"
    };
    let id = stable_id(login);
    json!({"login": login, "id": id, "node_id": format!("U_{id}"), "type": kind, "site_admin": false})
}

/// Derives a stable number from a name.
fn stable_id(name: &str) -> u64 {
    name.bytes()
        .fold(7u64, |id, byte| (id * 31 + u64::from(byte)) % 100_000_000)
}

impl GitHubInner {
    pub(crate) fn repo_api_url(&self, repo: &RepoRecord) -> String {
        format!("{}/repos/{}", self.api_url, repo.full_name())
    }

    pub(crate) fn repo_html_url(&self, repo: &RepoRecord) -> String {
        format!("{}/{}", self.server_url, repo.full_name())
    }

    pub(crate) fn repo_json(&self, repo: &RepoRecord) -> Value {
        let (api, html) = (self.repo_api_url(repo), self.repo_html_url(repo));
        json!({
            "id": repo.id, "node_id": format!("R_{}", repo.id), "name": repo.name,
            "full_name": repo.full_name(), "private": repo.visibility() == "private", "visibility": repo.visibility(),
            "owner": {"login": repo.owner, "id": 1, "type": "Organization"},
            "html_url": html, "url": api, "clone_url": format!("{html}.git"),
            "git_url": format!("{html}.git"), "ssh_url": format!("{html}.git"),
            "default_branch": repo.default_branch, "description": null, "fork": false,
            "archived": false, "disabled": false, "has_issues": !repo.issues_disabled, "language": null,
            "created_at": iso(repo.created_at), "updated_at": iso(repo.created_at), "pushed_at": iso(repo.created_at),
            "permissions": {"admin": false, "maintain": false, "push": true, "triage": true, "pull": true},
        })
    }

    pub(crate) fn pull_json(&self, repo: &RepoRecord, pull: &PullRecord) -> Value {
        let (api, html) = (self.repo_api_url(repo), self.repo_html_url(repo));
        let git = self.git(&repo.owner, &repo.name);
        let base_sha = git.branch_head(&pull.base).unwrap_or_default();
        let side = |branch: &str, sha: &str| {
            json!({
                "ref": branch, "sha": sha, "label": format!("{}:{branch}", repo.owner),
                "repo": self.repo_json(repo), "user": user_json(&repo.owner),
            })
        };
        let mut value = json!({
            "id": pull.id, "node_id": format!("PR_{}", pull.id), "number": pull.number,
            "url": format!("{api}/pulls/{}", pull.number),
            "html_url": format!("{html}/pull/{}", pull.number),
            "issue_url": format!("{api}/issues/{}", pull.number),
            "state": if pull.open { "open" } else { "closed" },
            "locked": false, "draft": pull.draft, "title": pull.title, "body": pull.body,
            "user": user_json(&pull.author), "labels": [], "assignees": [], "requested_reviewers": [],
            "head": side(&pull.head, &pull.head_sha), "base": side(&pull.base, &base_sha),
            "created_at": iso(pull.created_at), "updated_at": iso(pull.updated_at),
            "closed_at": pull.closed_at.map(iso), "merged_at": pull.merged.as_ref().map(|m| iso(m.merged_at)),
            "merge_commit_sha": pull.merged.as_ref().map(|m| m.sha.clone()),
            "author_association": "CONTRIBUTOR",
        });
        if let Some(owner) = &pull.fork_owner {
            value["head"]["label"] = json!(pull.label(&repo.owner));
            value["head"]["user"] = user_json(owner);
            value["head"]["repo"]["full_name"] = json!(format!("{owner}/{}", repo.name));
            value["head"]["repo"]["owner"]["login"] = json!(owner);
            value["head"]["repo"]["fork"] = json!(true);
        }
        value
    }

    /// Returns a pull request with the members that only its own resource and its events have.
    pub(crate) fn pull_details_json(
        &self,
        repo: &RepoRecord,
        pull: &PullRecord,
        comparison: &Comparison,
    ) -> Value {
        let Comparison { is_mergeable, .. } = *comparison;
        let mergeability = match is_mergeable {
            true => Mergeability::Clean,
            false => Mergeability::Conflicting,
        };
        let state = MergeStateStatus::of(repo, pull, mergeability).name();
        let is_of_pull = |comment: &&CommentRecord| comment.number == pull.number;
        let mut value = self.pull_json(repo, pull);
        value["merged"] = json!(pull.merged.is_some());
        value["mergeable"] = json!(pull.open.then_some(is_mergeable));
        value["mergeable_state"] = json!(state.to_lowercase());
        value["changed_files"] = json!(comparison.paths.len());
        value["additions"] = json!(comparison.additions);
        value["deletions"] = json!(comparison.deletions);
        value["commits"] = json!(comparison.commits);
        value["comments"] = json!(repo.comments.iter().filter(is_of_pull).count());
        value
    }

    pub(crate) fn comment_json(&self, repo: &RepoRecord, comment: &CommentRecord) -> Value {
        let (api, html) = (self.repo_api_url(repo), self.repo_html_url(repo));
        json!({
            "id": comment.id, "node_id": format!("IC_{}", comment.id),
            "url": format!("{api}/issues/comments/{}", comment.id),
            "html_url": format!("{html}/pull/{}#issuecomment-{}", comment.number, comment.id),
            "issue_url": format!("{api}/issues/{}", comment.number),
            "body": comment.body, "user": user_json(&comment.author),
            "created_at": iso(comment.created_at), "updated_at": iso(comment.updated_at),
            "author_association": association(repo, &comment.author),
        })
    }

    pub(crate) fn review_json(&self, repo: &RepoRecord, review: &ReviewRecord) -> Value {
        let html = self.repo_html_url(repo);
        json!({
            "id": review.id, "node_id": format!("PRR_{}", review.id), "user": user_json(&review.author),
            "body": review.body, "state": review.state, "commit_id": review.sha,
            "html_url": format!("{html}/pull/{}#pullrequestreview-{}", review.number, review.id),
            "pull_request_url": format!("{}/pulls/{}", self.repo_api_url(repo), review.number),
            "submitted_at": iso(review.submitted_at), "author_association": association(repo, &review.author),
        })
    }

    /// Returns the first comment of a review thread as JSON.
    pub(crate) fn review_comment_json(
        &self,
        repo: &RepoRecord,
        thread: &ReviewThreadRecord,
    ) -> Value {
        let (api, html) = (self.repo_api_url(repo), self.repo_html_url(repo));
        json!({
            "id": thread.id, "node_id": format!("PRRC_{}", thread.id), "user": user_json(&thread.author),
            "path": thread.path, "line": thread.line, "original_line": thread.line, "side": "RIGHT",
            "body": thread.body, "diff_hunk": "@@ -1 +1 @@", "pull_request_review_id": null,
            "url": format!("{api}/pulls/comments/{}", thread.id),
            "html_url": format!("{html}/pull/{}#discussion_r{}", thread.number, thread.id),
            "created_at": iso(thread.created_at), "updated_at": iso(thread.created_at),
            "author_association": association(repo, &thread.author),
        })
    }

    pub(crate) fn run_json(&self, repo: &RepoRecord, run: &RunRecord) -> Value {
        let (api, html) = (self.repo_api_url(repo), self.repo_html_url(repo));
        let url = format!("{api}/actions/runs/{}", run.id);
        json!({
            "id": run.id, "node_id": format!("WFR_{}", run.id), "name": run.title,
            "display_title": run.title, "run_number": run.number, "run_attempt": run.attempt,
            "event": run.event, "status": run.status.as_str(), "conclusion": run.conclusion,
            "workflow_id": workflow_id(&run.workflow), "path": format!(".github/workflows/{}", run.workflow),
            "head_branch": run.branch, "head_sha": run.sha, "url": url,
            "html_url": format!("{html}/actions/runs/{}", run.id),
            "jobs_url": format!("{url}/jobs"), "logs_url": format!("{url}/logs"),
            "cancel_url": format!("{url}/cancel"), "created_at": iso(run.created_at),
            "updated_at": iso(run.updated_at), "run_started_at": iso(run.started_at.unwrap_or(run.created_at)),
            "actor": user_json(&run.actor), "triggering_actor": user_json(&run.actor),
            "repository": self.repo_json(repo), "pull_requests": [], "check_suite_id": run.id,
        })
    }

    pub(crate) fn check_run_json(&self, check: &CheckRecord) -> Value {
        json!({
            "details_url": check.details_url, "check_suite": {"id": check.suite.unwrap_or(check.id)},
            "id": check.id, "name": check.name, "head_sha": check.sha, "status": check.status,
            "conclusion": check.conclusion, "started_at": iso(check.created_at),
            "completed_at": check.conclusion.as_ref().map(|_| iso(check.created_at)),
            "output": {"title": check.name, "summary": check.summary, "text": check.text, "annotations_count": 0},
            "app": {"id": stable_id(&check.app), "slug": check.app, "name": check.app},
        })
    }

    pub(crate) fn commit_status_json(&self, status: &CheckRecord) -> Value {
        json!({
            "id": status.id, "node_id": format!("SC_{}", status.id), "url": "", "avatar_url": null,
            "state": status.status, "description": status.summary, "target_url": status.details_url,
            "context": status.name, "created_at": iso(status.created_at), "updated_at": iso(status.created_at),
            "creator": user_json(&format!("{}[bot]", status.app)),
        })
    }
}

/// Derives a stable ID from a workflow's file name.
pub(crate) fn workflow_id(file: &str) -> u64 {
    file.bytes().fold(11u64, |id, byte| {
        (id * 131 + u64::from(byte)) % 1_000_000_000
    })
}

fn association(repo: &RepoRecord, login: &str) -> &'static str {
    match repo.collaborators.get(login).map(String::as_str) {
        Some("admin" | "maintain" | "write") => "MEMBER",
        Some(_) => "COLLABORATOR",
        None => "NONE",
    }
}
