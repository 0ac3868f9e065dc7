//! Check runs, commit statuses and people's roles: set by tests, read by clients.

use serde_json::{Value, json};

use super::api_json::user_json;
use super::model::CheckKind;
use super::rest::{ApiCall, RepoPath, RestError, RestResult, ok_json, rest_error};

impl ApiCall<'_> {
    fn commit_of(&self, at: &RepoPath<'_>, name: &str) -> Result<String, RestError> {
        let sha = self.host.git(at.owner, at.name).resolve_commit(name);
        sha.ok_or_else(|| rest_error(422, format!("No commit found for SHA: {name}")))
    }

    pub fn check_runs(&self, at: &RepoPath<'_>, name: &str) -> RestResult {
        self.require_permission(at, "checks", "read")?;
        let sha = self.commit_of(at, name)?;
        let shapes = self.read_repo(at, |repo| {
            let checks = repo
                .checks
                .iter()
                .filter(|check| check.sha == sha && check.kind == CheckKind::CheckRun);
            checks
                .map(|check| self.host.check_run_json(check))
                .collect::<Vec<Value>>()
        })?;
        self.paginate(
            shapes,
            |total, items| json!({"total_count": total, "check_runs": items}),
        )
    }

    /// The newest first, as the host lists them.
    pub fn commit_statuses(&self, at: &RepoPath<'_>, name: &str) -> RestResult {
        self.require_permission(at, "statuses", "read")?;
        let sha = self.commit_of(at, name)?;
        let shapes = self.read_repo(at, |repo| {
            let statuses = repo
                .checks
                .iter()
                .filter(|check| check.sha == sha && check.kind == CheckKind::CommitStatus);
            let shapes = statuses
                .rev()
                .map(|check| self.host.commit_status_json(check));
            shapes.collect::<Vec<Value>>()
        })?;
        self.paginate(shapes, |_, items| json!(items))
    }

    pub fn permission(&self, at: &RepoPath<'_>, login: &str) -> RestResult {
        self.require_permission(at, "metadata", "read")?;
        let role = self.read_repo(at, |repo| repo.collaborators.get(login).cloned())?;
        let role = role.unwrap_or_else(|| "none".into());
        let permission = match role.as_str() {
            "maintain" => "write",
            "triage" => "read",
            same => same,
        };
        ok_json(json!({"permission": permission, "role_name": role, "user": user_json(login)}))
    }
}
