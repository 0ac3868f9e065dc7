//! What people do to tickets and what the operator does, on the real ones and on the reference.

use reqwest::Method;
use serde_json::{Value, json};

use super::event::ModelEvent;
use super::reference::{ModelResult, TRIGGER};
use super::system_under_test::{SystemUnderTest, TEAMS};
use crate::api_server::ACCESS_CODE;

impl SystemUnderTest {
    /// What people do. They keep away from a ticket while it is not known whether a marker has come.
    pub fn change_ticket(&mut self, event: &ModelEvent, slot: usize) -> bool {
        let at = self.slots[slot];
        let unsure = self
            .outbox_entries(at)
            .first()
            .is_some_and(|errand| errand.attempts > 0);
        let (real, blocker) = (self.ticket(at), self.blocker(at));
        let ticket = &mut self.model.tickets[at];
        match event {
            ModelEvent::Flag(_) if !unsure => {
                real.add_label(TRIGGER);
                ticket.labels.insert(TRIGGER);
            }
            ModelEvent::Unflag(_) if !unsure => {
                real.remove_label(TRIGGER);
                ticket.labels.remove(TRIGGER);
            }
            ModelEvent::Strip(_) if !unsure => {
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

    pub async fn operate(&mut self, event: &ModelEvent) -> ModelResult {
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
        let (method, path, body, wanted) = match event {
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
                let plans = self.model.teams[*team].planning_enabled;
                let file = plans.then_some("agent-plan.yml");
                let body = json!({
                    "teamKey": TEAMS[*team], "owner": "acme", "repo": "shop", "defaultBranch": "main",
                    "ticketingProvider": "A", "planningEnabled": plans, "planningWorkflowFile": file,
                });
                (Method::POST, "/api/mappings".to_owned(), body, 200)
            }
            ModelEvent::ClearDedup(slot) => {
                let held = self.model.deduped_keys().contains(key(slot).as_str());
                let wanted = if held { 200 } else { 404 };
                (
                    Method::DELETE,
                    format!("/api/dedup/{}", key(slot)),
                    Value::Null,
                    wanted,
                )
            }
            ModelEvent::Unpark(slot) => {
                let body = json!({ "issueId": key(slot) });
                (Method::POST, "/api/parked/unpark".to_owned(), body, 200)
            }
            other => unreachable!("{other:?}"),
        };
        let (status, told) = self.admin_request(method, &path, body).await;
        if status != wanted {
            return Err(format!(
                "{event:?} was answered {status} {told}, not {wanted}"
            ));
        }
        match event {
            ModelEvent::Pause(team, paused) if wanted == 200 => {
                self.model.teams[*team].paused = *paused
            }
            ModelEvent::Cap(team, cap) if wanted == 200 => {
                self.model.teams[*team].max_in_progress = *cap
            }
            ModelEvent::Remove(team) => self.model.teams[*team].mapped = false,
            ModelEvent::Add(team) => {
                let team = &mut self.model.teams[*team];
                // Whether it is paused is kept, if it was there; the cap is not told, so its default.
                team.paused &= team.mapped;
                (team.mapped, team.max_in_progress) = (true, 3);
            }
            ModelEvent::ClearDedup(slot) => self.model.tickets[self.slots[*slot]].deduped_at = None,
            ModelEvent::Unpark(slot) => {
                let was = self.model.unpark(self.slots[*slot]);
                if told["unparked"] != json!(was) {
                    return Err(format!("unpark answers {told}, not {was}"));
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Asks the admin API, signed in.
    pub async fn admin_request(&mut self, method: Method, path: &str, body: Value) -> (u16, Value) {
        loop {
            let url = format!("{}{path}", self.world().address);
            let mut request = self
                .client
                .request(method.clone(), url)
                .bearer_auth(&self.token);
            if !body.is_null() {
                request = request.json(&body);
            }
            let answer = request.send().await.unwrap();
            let status = answer.status().as_u16();
            if status != 401 {
                return (status, answer.json().await.unwrap_or_default());
            }
            let url = format!("{}/api/auth", self.world().address);
            let code = json!({ "code": ACCESS_CODE });
            let answer = self.client.post(url).json(&code).send().await.unwrap();
            let signed_in: Value = answer.json().await.unwrap();
            self.token = signed_in["token"].as_str().unwrap().to_owned();
        }
    }
}
