//! Issue webhooks of Jira: every change of an issue is sent to one URL, signed as by an
//! administrator's webhook with a secret.

use serde_json::{Map, Value, json};

use super::model::{Model, STATUSES};
use super::{FakeJira, jira_timestamp};
use crate::clock;
use crate::persistence::lock;
use crate::webhook_sender::{WebhookEvent, WebhookHeaders, WebhookSender, WebhookTarget};

impl FakeJira {
    /// Sets the webhook. Changes by people and by the API are sent from now on.
    pub fn set_webhook(&self, url: &str, secret: &str) {
        self.0.model.update(|model| {
            model.changed_issues.clear();
            model.changed_comments.clear();
        });
        *lock(&self.0.webhook_target) = Some(WebhookTarget {
            url: url.to_owned(),
            secret: secret.to_owned(),
        });
    }

    /// Returns the sender of webhooks.
    pub fn webhooks(&self) -> &WebhookSender {
        &self.0.webhook_sender
    }

    /// Queues webhooks for the issues changed since the last call.
    pub(super) fn send_webhooks(&self) {
        let Some(target) = lock(&self.0.webhook_target).clone() else {
            return;
        };
        let base = self.0.base_url.as_str();
        let payloads: Vec<(&'static str, Value)> = self.0.model.update(|model| {
            let changed = std::mem::take(&mut model.changed_issues);
            let comments = std::mem::take(&mut model.changed_comments).into_iter();
            let existing = changed.into_iter().filter(|at| !model.issues[*at].deleted);
            let issues = existing.map(|at| ("jira:issue_updated", payload(model, base, at)));
            let comments = comments
                .filter_map(|(id, event)| Some((event, comment_payload(model, id, event)?)));
            issues.chain(comments).collect()
        });
        for (name, payload) in payloads {
            let event = WebhookEvent {
                id: clock::uuid(),
                name,
                payload,
            };
            self.0.webhook_sender.push(&target, event, headers);
        }
    }
}

fn headers(event: &WebhookEvent, signature: String) -> WebhookHeaders {
    vec![
        ("User-Agent", "Atlassian Webhook HTTP Client".to_owned()),
        ("X-Atlassian-Webhook-Flow", "Primary".to_owned()),
        ("X-Atlassian-Webhook-Identifier", event.id.clone()),
        ("X-Hub-Signature", format!("sha256={signature}")),
    ]
}

/// Returns the event of a comment. It names its issue with few fields. `None` for a comment that was deleted since.
fn comment_payload(model: &Model, id: u64, event: &str) -> Option<Value> {
    let comment = model.comments.iter().find(|comment| comment.id == id)?;
    let issue = &model.issues[comment.issue];
    let (_, status, _) = STATUSES[issue.status];
    let author = super::people::account_json(&comment.author);
    Some(json!({
        "timestamp": clock::now_ms(),
        "webhookEvent": event,
        "comment": {
            "id": id.to_string(), "author": author, "body": super::adf::plain_text(&comment.body),
            "created": jira_timestamp(comment.created_at), "updated": jira_timestamp(comment.updated_at),
        },
        "issue": {
            "id": issue.id.to_string(), "key": model.issue_key(comment.issue),
            "fields": {"summary": issue.summary, "status": {"name": status}},
        },
    }))
}

fn payload(model: &Model, base: &str, at: usize) -> Value {
    let issue = &model.issues[at];
    let (_, status, _) = STATUSES[issue.status];
    let project = &model.projects[issue.project];
    let mut fields = Map::new();
    fields.insert("summary".into(), json!(issue.summary));
    fields.insert("status".into(), json!({"name": status}));
    fields.insert("labels".into(), json!(issue.labels));
    fields.insert(
        "project".into(),
        json!({"id": project.id.to_string(), "key": project.key, "name": project.name}),
    );
    for field in &model.fields {
        let chosen = issue.fields.get(&field.number);
        let option = chosen.and_then(|value| field.option(value));
        let option_json = option.map(|option| {
            let option_url = format!("{base}/rest/api/2/customFieldOption/{}", option.id);
            json!({"self": option_url, "value": option.value, "id": option.id.to_string()})
        });
        fields.insert(field.id(), json!(option_json));
    }
    json!({
        "timestamp": clock::now_ms(),
        "webhookEvent": "jira:issue_updated",
        "issue_event_type_name": "issue_generic",
        "user": {"accountId": "sandbox-user", "displayName": "A person", "active": true},
        "issue": {
            "id": issue.id.to_string(), "key": model.issue_key(at),
            "self": format!("{base}/rest/api/2/issue/{}", issue.id), "fields": fields,
        },
    })
}
