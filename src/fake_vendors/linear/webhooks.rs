//! Webhooks: every change of an issue is told to one address, signed, as the vendor tells it.

use serde_json::{Value, json};

use super::FakeLinear;
use super::model::Model;
use super::resolvers::ModelView;
use crate::clock;
use crate::webhook_sender::{TicketWebhookDelivery, WebhookFaults};

impl FakeLinear {
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
            |payload, signature| {
                vec![
                    ("User-Agent", "Linear-Webhook".to_owned()),
                    ("Linear-Delivery", clock::uuid()),
                    ("Linear-Event", "Issue".to_owned()),
                    ("Linear-Signature", signature),
                    ("Linear-Timestamp", payload["webhookTimestamp"].to_string()),
                ]
            },
        );
    }
}

fn payload(model: &Model, base: &str, at: usize) -> Value {
    let issue = &model.issues[at];
    let (team, state) = (&model.teams[issue.team], &model.states[issue.state]);
    let labels = issue.labels.iter().map(|label| &model.labels[*label]);
    let shown: Vec<Value> = labels
        .clone()
        .map(|label| json!({"id": label.id, "color": label.color, "name": label.name}))
        .collect();
    let ids: Vec<&String> = labels.map(|label| &label.id).collect();
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
            "labelIds": ids, "labels": shown,
        },
        "updatedFrom": {"updatedAt": clock::iso(issue.created_at)},
        "url": url,
        "organizationId": "sandbox-organization",
        "webhookId": "sandbox-webhook",
        "webhookTimestamp": clock::now_ms(),
    })
}
