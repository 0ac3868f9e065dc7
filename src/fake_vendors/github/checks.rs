//! Endpoints of check runs, commit statuses and collaborators' roles. Tests set their content.

use serde_json::{Value, json};

use super::api_json::user_json;
use super::model::CheckKind;
use super::rest::{ApiCall, RepoPath, RestError, RestResult, ok_json, rest_error};

impl ApiCall<'_> {
    fn resolve_commit(&self, repo_path: &RepoPath<'_>, name: &str) -> Result<String, RestError> {
        let sha = self
            .host
            .git(repo_path.owner, repo_path.name)
            .resolve_commit(name);
        sha.ok_or_else(|| rest_error(422, format!("No commit found for SHA: {name}")))
    }

    pub(super) fn check_runs(&self, repo_path: &RepoPath<'_>, name: &str) -> RestResult {
        self.require_permission(repo_path, "checks", "read")?;
        let sha = self.resolve_commit(repo_path, name)?;
        let items = self.read_repo(repo_path, |repo| {
            let checks = self.host.checks_of(repo, &sha).into_iter();
            let checks = checks.filter(|check| check.kind == CheckKind::CheckRun);
            checks
                .map(|check| self.host.check_run_json(&check))
                .collect::<Vec<Value>>()
        })?;
        self.paginate(
            items,
            |total, items| json!({"total_count": total, "check_runs": items}),
        )
    }

    /// Lists commit statuses, newest first as on GitHub.
    pub(super) fn commit_statuses(&self, repo_path: &RepoPath<'_>, name: &str) -> RestResult {
        self.require_permission(repo_path, "statuses", "read")?;
        let sha = self.resolve_commit(repo_path, name)?;
        let items = self.read_repo(repo_path, |repo| {
            let statuses = repo
                .checks
                .iter()
                .filter(|check| check.sha == sha && check.kind == CheckKind::CommitStatus);
            let items = statuses
                .rev()
                .map(|check| self.host.commit_status_json(check));
            items.collect::<Vec<Value>>()
        })?;
        self.paginate(items, |_, items| json!(items))
    }

    pub(super) fn permission(&self, repo_path: &RepoPath<'_>, login: &str) -> RestResult {
        self.require_permission(repo_path, "metadata", "read")?;
        let role = self.read_repo(repo_path, |repo| repo.collaborators.get(login).cloned())?;
        let role = role.unwrap_or_else(|| "none".into());
        let permission = match role.as_str() {
            "maintain" => "write",
            "triage" => "read",
            role => role,
        };
        ok_json(json!({"permission": permission, "role_name": role, "user": user_json(login)}))
    }
}
