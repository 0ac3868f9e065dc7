//! Webhooks: every change of an issue is told to one address, signed, as the vendor tells it.

use serde_json::{Value, json};

use super::Linear;
use super::fields::View;
use super::model::Model;
use crate::clock;
use crate::post::{HookDial, TicketEvent};

impl Linear {
    /// Tells of every change of an issue from now on: of people's and of the API's.
    pub fn send_events_to(&self, url: &str, secret: &str) {
        self.0.shelf.change(|model| model.touched.clear());
        self.0.hook.aim(url, secret);
    }

    /// How what is told goes astray.
    pub fn set_hook_dial(&self, dial: HookDial) {
        self.0.hook.dial(dial);
    }

    /// Whether all that is to be told has been sent.
    pub fn has_delivered(&self) -> bool {
        self.0.hook.is_idle()
    }

    /// What was told so far, each time it was sent.
    pub fn events(&self) -> Vec<TicketEvent> {
        self.0.hook.sent()
    }

    /// Tells of the issues that have changed since the last time.
    pub(super) fn tell(&self) {
        let base = self.0.base.as_str();
        let changed = |model: &mut Model| {
            let touched = std::mem::take(&mut model.touched);
            let living = touched.into_iter().filter(|at| !model.issues[*at].deleted);
            living.map(|at| payload(model, base, at)).collect()
        };
        self.0.hook.tell(
            || self.0.shelf.change(changed),
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
    let url = View { model, base }.issue_url(at);
    json!({
        "action": "update",
        "type": "Issue",
        "actor": {"id": "sandbox-user", "name": "Robin", "type": "user"},
        "createdAt": clock::iso(issue.updated),
        "data": {
            "id": issue.id, "createdAt": clock::iso(issue.at), "updatedAt": clock::iso(issue.updated),
            "number": issue.number, "identifier": model.identifier(at), "title": issue.title,
            "description": issue.description, "priority": issue.priority, "url": url,
            "teamId": team.id, "team": {"id": team.id, "key": team.key, "name": team.name},
            "stateId": state.id, "state": {"id": state.id, "name": state.name, "type": state.kind, "color": "#bec2c8"},
            "labelIds": ids, "labels": shown,
        },
        "updatedFrom": {"updatedAt": clock::iso(issue.at)},
        "url": url,
        "organizationId": "sandbox-organization",
        "webhookId": "sandbox-webhook",
        "webhookTimestamp": clock::now_ms(),
    })
}
