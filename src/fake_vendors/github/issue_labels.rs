//! Endpoints of labels, and the change of an issue's labels.

use serde_json::{Value, json};

use super::GitHubInner;
use super::model::{IssueLabelChange, LabelEventRecord, LabelRecord, Model, RepoRecord};
use super::rest::{ApiCall, RepoPath, RestError, RestResult, not_found, ok_json, rest_error};
use crate::clock;
use crate::http::HttpResponse;

/// Maximum number of labels of an issue.
const MAX_LABELS: usize = 100;

impl ApiCall<'_> {
    pub(super) fn create_label(&self, repo_path: &RepoPath<'_>) -> RestResult {
        self.require_permission(repo_path, "issues", "write")?;
        let (name, color) = (self.body_str("name"), self.body_str("color"));
        let name = name.filter(|name| (1..=50).contains(&name.chars().count()));
        let name = name.ok_or_else(|| rest_error(422, "Validation Failed"))?;
        let is_hex = |color: &str| color.len() == 6 && color.bytes().all(|c| c.is_ascii_hexdigit());
        let description = self.body_str("description").unwrap_or_default();
        if color.is_some_and(|color| !is_hex(color)) || description.chars().count() > 100 {
            return Err(rest_error(422, "Validation Failed"));
        }
        let exists = self.read_repo(repo_path, |repo| {
            repo.labels.iter().any(|label| label.is_named(name))
        })?;
        if exists {
            let errors = json!([{"resource": "Label", "code": "already_exists", "field": "name"}]);
            return Err(RestError {
                errors: Some(errors),
                ..rest_error(422, "Validation Failed")
            });
        }
        let label = self.host.model.update(|model| {
            let id = model.next_id();
            let label = LabelRecord {
                id,
                name: name.to_owned(),
                color: color.unwrap_or("ededed").to_owned(),
                description: description.to_owned(),
            };
            let repo = model.ensure_repo(repo_path.owner, repo_path.name);
            repo.labels.push(label.clone());
            label
        });
        Ok(HttpResponse::json(201, &label_json(&label)))
    }

    pub(super) fn get_label(&self, repo_path: &RepoPath<'_>, name: &str) -> RestResult {
        self.require_permission(repo_path, "issues", "read")?;
        let found = self.read_repo(repo_path, |repo| {
            let label = repo.labels.iter().find(|label| label.is_named(name));
            label.map(label_json)
        })?;
        ok_json(found.ok_or_else(not_found)?)
    }

    fn issue_number(&self, repo_path: &RepoPath<'_>, number: &str) -> Result<u64, RestError> {
        let number: u64 = number.parse().map_err(|_| not_found())?;
        let exists = self.read_repo(repo_path, |repo| repo.issue(number).is_some())?;
        if exists { Ok(number) } else { Err(not_found()) }
    }

    pub(super) fn list_labels(&self, repo_path: &RepoPath<'_>, number: &str) -> RestResult {
        self.require_permission(repo_path, "issues", "read")?;
        let number = self.issue_number(repo_path, number)?;
        ok_json(self.read_repo(repo_path, |repo| issue_labels_json(repo, number))?)
    }

    pub(super) fn add_labels(&self, repo_path: &RepoPath<'_>, number: &str) -> RestResult {
        self.require_permission(repo_path, "issues", "write")?;
        let number = self.issue_number(repo_path, number)?;
        let names = self.body["labels"].as_array();
        let names = names.ok_or_else(|| rest_error(422, "Invalid request"))?;
        let names: Vec<&str> = names.iter().filter_map(Value::as_str).collect();
        let actor = self.require_token()?.login.clone();
        for name in &names {
            self.host.set_label(repo_path, number, name, true, &actor);
        }
        ok_json(self.read_repo(repo_path, |repo| issue_labels_json(repo, number))?)
    }

    pub(super) fn remove_label(
        &self,
        repo_path: &RepoPath<'_>,
        number: &str,
        name: &str,
    ) -> RestResult {
        self.require_permission(repo_path, "issues", "write")?;
        let number = self.issue_number(repo_path, number)?;
        let has = self.read_repo(repo_path, |repo| {
            repo.issue(number)
                .is_some_and(|issue| issue.has_label(name))
        })?;
        if !has {
            return Err(rest_error(404, "Label does not exist"));
        }
        let actor = self.require_token()?.login.clone();
        self.host.set_label(repo_path, number, name, false, &actor);
        ok_json(self.read_repo(repo_path, |repo| issue_labels_json(repo, number))?)
    }
}

impl GitHubInner {
    /// Adds or removes a label of an issue, and sends the webhook. A label that the repository lacks is
    /// created. Without a change, nothing happens.
    pub(super) fn set_label(
        &self,
        repo_path: &RepoPath<'_>,
        number: u64,
        name: &str,
        added: bool,
        actor: &str,
    ) {
        let changed = self
            .model
            .update(|model| change_label(model, repo_path, number, name, added, actor));
        if changed.is_some() {
            let action = if added { "labeled" } else { "unlabeled" };
            self.send_issue_webhook(repo_path, number, actor, action);
        }
    }
}

/// Changes a label. `None` if the issue does not exist or need not change.
fn change_label(
    model: &mut Model,
    repo_path: &RepoPath<'_>,
    number: u64,
    name: &str,
    added: bool,
    actor: &str,
) -> Option<()> {
    let (label_id, event_id, now) = (model.next_id(), model.next_id(), clock::now_ms());
    let repo = model.ensure_repo(repo_path.owner, repo_path.name);
    let issue = repo.issue(number)?;
    if issue.has_label(name) == added || (added && issue.labels.len() >= MAX_LABELS) {
        return None;
    }
    let known = repo.labels.iter().find(|label| label.is_named(name));
    let label = match known {
        Some(label) => label.name.clone(),
        None => {
            repo.labels.push(LabelRecord {
                id: label_id,
                name: name.to_owned(),
                color: "ededed".to_owned(),
                description: String::new(),
            });
            name.to_owned()
        }
    };
    let issue = repo.issue_mut(number)?;
    issue.updated_at = now.max(issue.updated_at + 1_000);
    issue.history.push(IssueLabelChange {
        label: label.clone(),
        added,
        actor: actor.to_owned(),
        at_ms: now,
    });
    if added {
        issue.labels.push(label.clone());
        issue.label_events.push(LabelEventRecord {
            id: event_id,
            actor: actor.to_owned(),
            label,
            at_ms: now,
        });
    } else {
        issue
            .labels
            .retain(|label| !label.eq_ignore_ascii_case(name));
    }
    Some(())
}

fn label_json(label: &LabelRecord) -> Value {
    json!({
        "id": label.id, "node_id": format!("LA_{}", label.id), "name": label.name,
        "color": label.color, "description": label.description, "default": false, "url": "",
    })
}

fn issue_labels_json(repo: &RepoRecord, number: u64) -> Value {
    let labels = repo.issue(number).map(|issue| &issue.labels);
    let labels = labels.into_iter().flatten();
    let known = labels.filter_map(|name| {
        let label = repo.labels.iter().find(|label| label.is_named(name));
        label.map(label_json)
    });
    known.collect()
}
