//! Actions of users and of the operator, on the real system and on the reference model.

use reqwest::Method;
use serde_json::{Value, json};

use super::event::ModelEvent;
use super::reference::{ModelResult, TRIGGER};
use super::system_under_test::{SystemUnderTest, TEAMS};
use crate::api_server::ACCESS_CODE;

impl SystemUnderTest {
    /// Applies a user's action. Labels are not changed while a marker change is in flight.
    pub fn change_ticket(&mut self, event: &ModelEvent, slot: usize) -> bool {
        let at = self.slots[slot];
        let marker_in_flight = self
            .outbox_entries(at)
            .first()
            .is_some_and(|entry| entry.attempts > 0);
        let (real, blocker) = (self.ticket(at), self.blocker(at));
        let ticket = &mut self.model.tickets[at];
        match event {
            ModelEvent::Flag(_) if !marker_in_flight => {
                real.add_label(TRIGGER);
                ticket.labels.insert(TRIGGER);
            }
            ModelEvent::Unflag(_) if !marker_in_flight => {
                real.remove_label(TRIGGER);
                ticket.labels.remove(TRIGGER);
            }
            ModelEvent::Strip(_) if !marker_in_flight => {
                for label in std::mem::take(&mut ticket.labels) {
                    real.clone().remove_label(label);
                }
            }
            ModelEvent::Close(_) => {
                real.complete();
                ticket.closed = true;
            }
            ModelEvent::Reopen(_) if ticket.closed => {
                real.state("unstarted");
                ticket.closed = false;
            }
            ModelEvent::Delete(_) => {
                real.delete();
                ticket.deleted = true;
                self.create_ticket(slot);
            }
            ModelEvent::Block(_) => {
                blocker.state("unstarted");
                ticket.blocked = true;
            }
            ModelEvent::Unblock(_) => {
                blocker.complete();
                ticket.blocked = false;
            }
            _ => return false,
        }
        true
    }

    pub async fn apply_operator_event(&mut self, event: &ModelEvent) -> ModelResult {
        let at = |slot: &usize| self.slots[*slot];
        let known = |team: &usize| {
            if self.model.teams[*team].mapped {
                200
            } else {
                404
            }
        };
        let url = |team: &usize| format!("/api/mappings/{}", TEAMS[*team]);
        let key = |slot: &usize| &self.model.tickets[at(slot)].key;
        let (method, path, body, expected) = match event {
            ModelEvent::Pause(team, paused) => (
                Method::PATCH,
                url(team),
                json!({ "paused": paused }),
                known(team),
            ),
            ModelEvent::Cap(team, cap) => (
                Method::PATCH,
                url(team),
                json!({"maxInProgressAiIssues": cap}),
                known(team),
            ),
            ModelEvent::Remove(team) => (Method::DELETE, url(team), Value::Null, known(team)),
            ModelEvent::Add(team) => {
                let planning = self.model.teams[*team].planning_enabled;
                let file = planning.then_some("agent-plan.yml");
                let body = json!({
                    "teamKey": TEAMS[*team], "owner": "acme", "repo": "shop", "defaultBranch": "main",
                    "ticketingProvider": "A", "planningEnabled": planning, "planningWorkflowFile": file,
                });
                (Method::POST, "/api/mappings".to_owned(), body, 200)
            }
            ModelEvent::ClearDedup(slot) => {
                let is_deduped = self.model.deduped_keys().contains(key(slot).as_str());
                let expected = if is_deduped { 200 } else { 404 };
                (
                    Method::DELETE,
                    format!("/api/dedup/{}", key(slot)),
                    Value::Null,
                    expected,
                )
            }
            ModelEvent::Unpark(slot) => {
                let body = json!({ "issueId": key(slot) });
                (Method::POST, "/api/parked/unpark".to_owned(), body, 200)
            }
            other => unreachable!("{other:?}"),
        };
        let (status, response) = self.admin_request(method, &path, body).await;
        if status != expected {
            return Err(format!(
                "{event:?} got status {status} {response}, not {expected}"
            ));
        }
        match event {
            ModelEvent::Pause(team, paused) if expected == 200 => {
                self.model.teams[*team].paused = *paused
            }
            ModelEvent::Cap(team, cap) if expected == 200 => {
                self.model.teams[*team].max_in_progress = *cap
            }
            ModelEvent::Remove(team) => self.model.teams[*team].mapped = false,
            ModelEvent::Add(team) => {
                let team = &mut self.model.teams[*team];
                // An existing mapping keeps its paused state; the cap is omitted, so it gets its
                // default.
                team.paused &= team.mapped;
                (team.mapped, team.max_in_progress) = (true, 3);
            }
            ModelEvent::ClearDedup(slot) => self.model.tickets[self.slots[*slot]].deduped_at = None,
            ModelEvent::Unpark(slot) => {
                let was_parked = self.model.unpark(self.slots[*slot]);
                if response["unparked"] != json!(was_parked) {
                    return Err(format!("unpark returned {response}, expected {was_parked}"));
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Sends an admin API request and signs in when needed.
    pub async fn admin_request(&mut self, method: Method, path: &str, body: Value) -> (u16, Value) {
        loop {
            let url = format!("{}{path}", self.env().address);
            let mut request = self
                .client
                .request(method.clone(), url)
                .bearer_auth(&self.token);
            if !body.is_null() {
                request = request.json(&body);
            }
            let response = request.send().await.unwrap();
            let status = response.status().as_u16();
            if status != 401 {
                return (status, response.json().await.unwrap_or_default());
            }
            let url = format!("{}/api/auth", self.env().address);
            let code = json!({ "code": ACCESS_CODE });
            let response = self.client.post(url).json(&code).send().await.unwrap();
            let signed_in: Value = response.json().await.unwrap();
            self.token = signed_in["token"].as_str().unwrap().to_owned();
        }
    }
}
