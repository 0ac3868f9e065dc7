//! Issue webhooks of Linear: every change of an issue is sent to one URL, signed as by Linear.

use serde_json::{Value, json};

use super::FakeLinear;
use super::model::Model;
use super::resolvers::ModelView;
use crate::clock;
use crate::persistence::lock;
use crate::webhook_sender::{WebhookEvent, WebhookHeaders, WebhookSender, WebhookTarget};

impl FakeLinear {
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
            let issues = existing.map(|at| ("Issue", payload(model, base, at)));
            let comments =
                comments.map(|(at, action)| ("Comment", comment_payload(model, base, at, action)));
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
        ("User-Agent", "Linear-Webhook".to_owned()),
        ("Linear-Delivery", event.id.clone()),
        ("Linear-Event", event.name.to_owned()),
        ("Linear-Signature", signature),
        (
            "Linear-Timestamp",
            event.payload["webhookTimestamp"].to_string(),
        ),
    ]
}

fn comment_payload(model: &Model, base: &str, at: usize, action: &str) -> Value {
    let comment = &model.comments[at];
    let issue = &model.issues[comment.issue];
    let url = ModelView {
        model,
        base_url: base,
    }
    .issue_url(comment.issue);
    let user = super::accounts::id(&comment.author);
    let name = comment.author.display_name();
    let team = &model.teams[issue.team];
    json!({
        "action": action,
        "type": "Comment",
        "actor": {"id": user, "name": name, "type": "user"},
        "createdAt": clock::iso(comment.updated_at),
        "data": {
            "id": comment.id, "createdAt": clock::iso(comment.created_at), "updatedAt": clock::iso(comment.updated_at),
            "body": comment.body, "issueId": issue.id, "userId": user, "reactionData": [],
            "issue": {
                "id": issue.id, "title": issue.title, "identifier": model.identifier(comment.issue),
                "teamId": team.id, "team": {"id": team.id, "key": team.key, "name": team.name}, "url": url,
            },
            "user": {"id": user, "name": name},
        },
        "url": format!("{url}#comment-{}", &comment.id[..8.min(comment.id.len())]),
        "organizationId": "sandbox-organization",
        "webhookId": "sandbox-webhook",
        "webhookTimestamp": clock::now_ms(),
    })
}

fn payload(model: &Model, base: &str, at: usize) -> Value {
    let issue = &model.issues[at];
    let (team, state) = (&model.teams[issue.team], &model.states[issue.state]);
    let labels = issue.labels.iter().map(|label| &model.labels[*label]);
    let label_values: Vec<Value> = labels
        .clone()
        .map(|label| json!({"id": label.id, "color": label.color, "name": label.name}))
        .collect();
    let label_ids: Vec<&String> = labels.map(|label| &label.id).collect();
    let url = ModelView {
        model,
        base_url: base,
    }
    .issue_url(at);
    json!({
        "action": "update",
        "type": "Issue",
        "actor": {"id": "sandbox-user", "name": "Robin", "type": "user"},
        "createdAt": clock::iso(issue.updated_at),
        "data": {
            "id": issue.id, "createdAt": clock::iso(issue.created_at), "updatedAt": clock::iso(issue.updated_at),
            "number": issue.number, "identifier": model.identifier(at), "title": issue.title,
            "description": issue.description, "priority": issue.priority, "url": url,
            "teamId": team.id, "team": {"id": team.id, "key": team.key, "name": team.name},
            "stateId": state.id, "state": {"id": state.id, "name": state.name, "type": state.kind, "color": "#bec2c8"},
            "labelIds": label_ids, "labels": label_values,
        },
        "updatedFrom": {"updatedAt": clock::iso(issue.created_at)},
        "url": url,
        "organizationId": "sandbox-organization",
        "webhookId": "sandbox-webhook",
        "webhookTimestamp": clock::now_ms(),
    })
}
