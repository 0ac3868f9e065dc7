//! Webhooks: every change of an issue is told to one address, signed, as an administrator's webhook
//! with a secret tells it.

use serde_json::{Map, Value, json};

use super::FakeJira;
use super::model::{Model, STATUSES};
use crate::clock;
use crate::webhook_sender::{TicketWebhookDelivery, WebhookFaults};

impl FakeJira {
    /// Tells of every change of an issue from now on: of people's and of the API's.
    pub fn set_webhook(&self, url: &str, secret: &str) {
        self.0.model.update(|model| model.changed_issues.clear());
        self.0.webhook_sender.set_target(url, secret);
    }

    /// How what is told goes astray.
    pub fn set_webhook_faults(&self, dial: WebhookFaults) {
        self.0.webhook_sender.set_faults(dial);
    }

    /// Whether all that is to be told has been sent.
    pub fn is_webhook_queue_empty(&self) -> bool {
        self.0.webhook_sender.is_idle()
    }

    /// What was told so far, each time it was sent.
    pub fn webhook_deliveries(&self) -> Vec<TicketWebhookDelivery> {
        self.0.webhook_sender.deliveries()
    }

    /// Tells of the issues that have changed since the last time.
    pub(super) fn send_webhooks(&self) {
        let base = self.0.base_url.as_str();
        let changed = |model: &mut Model| {
            let touched = std::mem::take(&mut model.changed_issues);
            let living = touched.into_iter().filter(|at| !model.issues[*at].deleted);
            living.map(|at| payload(model, base, at)).collect()
        };
        self.0.webhook_sender.enqueue(
            || self.0.model.update(changed),
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
        let shown = option.map(|option| {
            let own = format!("{base}/rest/api/2/customFieldOption/{}", option.id);
            json!({"self": own, "value": option.value, "id": option.id.to_string()})
        });
        fields.insert(field.id(), json!(shown));
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
