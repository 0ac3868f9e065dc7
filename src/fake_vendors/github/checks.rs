//! Check runs, commit statuses and people's roles: set by tests, read by clients.

use serde_json::{Value, json};

use super::model::Means;
use super::rest::{Answer, Call, Place, Refusal, ok, refuse};
use super::shapes::user;

impl Call<'_> {
    fn commit_of(&self, at: &Place<'_>, name: &str) -> Result<String, Refusal> {
        let sha = self.host.git(at.owner, at.name).rev(name);
        sha.ok_or_else(|| refuse(422, format!("No commit found for SHA: {name}")))
    }

    pub fn check_runs(&self, at: &Place<'_>, name: &str) -> Answer {
        self.need(at, "checks", "read")?;
        let sha = self.commit_of(at, name)?;
        let shapes = self.read(at, |repo| {
            let checks = repo
                .checks
                .iter()
                .filter(|check| check.sha == sha && check.means == Means::CheckRun);
            checks
                .map(|check| self.host.check_shape(check))
                .collect::<Vec<Value>>()
        })?;
        self.page(
            shapes,
            |total, items| json!({"total_count": total, "check_runs": items}),
        )
    }

    /// The newest first, as the host lists them.
    pub fn commit_statuses(&self, at: &Place<'_>, name: &str) -> Answer {
        self.need(at, "statuses", "read")?;
        let sha = self.commit_of(at, name)?;
        let shapes = self.read(at, |repo| {
            let statuses = repo
                .checks
                .iter()
                .filter(|check| check.sha == sha && check.means == Means::CommitStatus);
            let shapes = statuses.rev().map(|check| self.host.status_shape(check));
            shapes.collect::<Vec<Value>>()
        })?;
        self.page(shapes, |_, items| json!(items))
    }

    pub fn permission(&self, at: &Place<'_>, login: &str) -> Answer {
        self.need(at, "metadata", "read")?;
        let role = self.read(at, |repo| repo.people.get(login).cloned())?;
        let role = role.unwrap_or_else(|| "none".into());
        let permission = match role.as_str() {
            "maintain" => "write",
            "triage" => "read",
            same => same,
        };
        ok(json!({"permission": permission, "role_name": role, "user": user(login)}))
    }
}
