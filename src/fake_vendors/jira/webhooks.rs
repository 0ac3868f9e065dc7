//! Issue webhooks of Jira: every change of an issue is sent to one URL, signed as by an
//! administrator's webhook with a secret.

use serde_json::{Map, Value, json};

use super::FakeJira;
use super::model::{Model, STATUSES};
use crate::clock;
use crate::webhook_sender::{TicketWebhookDelivery, WebhookFaults};

impl FakeJira {
    /// Sets the webhook. Changes by people and by the API are sent from now on.
    pub fn set_webhook(&self, url: &str, secret: &str) {
        self.0.model.update(|model| model.changed_issues.clear());
        self.0.webhook_sender.set_target(url, secret);
    }

    /// Sets the faults of webhook deliveries.
    pub fn set_webhook_faults(&self, faults: WebhookFaults) {
        self.0.webhook_sender.set_faults(faults);
    }

    /// Returns whether all queued webhooks have been sent.
    pub fn is_webhook_queue_empty(&self) -> bool {
        self.0.webhook_sender.is_idle()
    }

    /// Returns the deliveries so far, including repeated ones.
    pub fn webhook_deliveries(&self) -> Vec<TicketWebhookDelivery> {
        self.0.webhook_sender.deliveries()
    }

    /// Queues webhooks for the issues changed since the last call.
    pub(super) fn send_webhooks(&self) {
        let base = self.0.base_url.as_str();
        let payloads = |model: &mut Model| {
            let changed = std::mem::take(&mut model.changed_issues);
            let existing = changed.into_iter().filter(|at| !model.issues[*at].deleted);
            existing.map(|at| payload(model, base, at)).collect()
        };
        self.0.webhook_sender.enqueue(
            || self.0.model.update(payloads),
            |_, signature| {
                vec![
                    ("User-Agent", "Atlassian Webhook HTTP Client".to_owned()),
                    ("X-Atlassian-Webhook-Flow", "Primary".to_owned()),
                    ("X-Atlassian-Webhook-Identifier", clock::uuid()),
                    ("X-Hub-Signature", format!("sha256={signature}")),
                ]
            },
        );
    }
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
