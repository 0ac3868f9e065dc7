//! Actions of runs and deliveries of their repository.

use std::time::Duration;

use engine::outbox_worker;
use fake_vendors::RunSnapshot;
use serde_json::{Value, json};

use super::event::{Forgery, ModelEvent, ReportedOutcome, RunSelector};
use super::reference::{ModelJobKind, ModelResult};
use super::system_under_test::{StepActivity, SystemUnderTest, input_text};
use crate::gap_fill::TRIGGER_SECRET;
use crate::webhooks;

impl SystemUnderTest {
    pub fn select_run(&self, which: RunSelector) -> Option<RunSnapshot> {
        let mut runs = self.env().repo().runs();
        let at = match which {
            RunSelector::Live(at) => {
                runs.retain(|run| run.status != "completed");
                at
            }
            RunSelector::Any(at) => at,
        };
        (!runs.is_empty()).then(|| runs.swap_remove(at % runs.len()))
    }

    /// Performs a run's event and returns whether it applied.
    pub async fn perform_run_event(
        &mut self,
        event: &ModelEvent,
        run: &RunSnapshot,
    ) -> Result<bool, String> {
        let id = input_text(run, "dispatch_id");
        match event {
            ModelEvent::Begin(_) if run.status == "queued" => self.env().repo().start_run(run.id),
            ModelEvent::Progress(_, with_run_id) => {
                let step =
                    json!({"id": "clone", "type": "clone", "status": "passed", "started_at": "t"});
                let body = match with_run_id {
                    true => json!({"step": step, "runId": run.id}),
                    false => json!({ "step": step }),
                };
                let status = self
                    .report(
                        "/runner/progress",
                        input_text(run, "run_progress_token"),
                        &body,
                    )
                    .await;
                // Like the result token, the progress token expires; unlike it, it can be used
                // repeatedly.
                let mut expected = vec![200];
                expected.extend(self.model.runs[id].hosted_at.map(|_| 401));
                if !expected.contains(&status) {
                    return Err(format!("progress of {id} got status {status}"));
                }
                let job = &self.jobs()[id];
                if status == 200 && matches!(job.status, "unknown" | "dispatched") {
                    return Err(format!("{id} reported a step and is not running: {job:?}"));
                }
            }
            ModelEvent::Result(_, outcome) => {
                return self.post_result(run, *outcome).await.map(|()| true);
            }
            ModelEvent::Forge(_, forgery) => {
                return self.post_forged_result(run, *forgery).await.map(|()| true);
            }
            ModelEvent::End(_, conclusion, leaves_pull) if run.status != "completed" => {
                if *leaves_pull && self.model.runs[id].kind == ModelJobKind::Implementation {
                    self.open_pull(run);
                }
                self.env().repo().complete_run(run.id, conclusion.as_str());
                let now = self.model.now;
                self.model.runs.get_mut(id).unwrap().host_end = Some((*conclusion, now));
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    async fn report(&self, path: &str, token: &str, body: &Value) -> u16 {
        let request = self.client.post(format!("{}{path}", self.env().address));
        let answer = request.bearer_auth(token).json(body).send().await.unwrap();
        answer.status().as_u16()
    }

    /// Number of the pull request on the run's branch; opens one if there is none.
    fn open_pull(&mut self, run: &RunSnapshot) -> u64 {
        let at = self.model.runs[input_text(run, "dispatch_id")].ticket;
        let repo = self.env().repo();
        let existing = self.model.tickets[at].pull;
        let number = existing
            .unwrap_or_else(|| repo.open_pull(input_text(run, "branch"), "agent", "Work", ""));
        self.model.tickets[at].pull = Some(number);
        number
    }

    async fn post_result(&mut self, run: &RunSnapshot, outcome: ReportedOutcome) -> ModelResult {
        let id = input_text(run, "dispatch_id").to_owned();
        let kind = self.model.runs[&id].kind;
        let outcome = match (kind, outcome) {
            (ModelJobKind::Implementation, outcome) => outcome,
            (_, ReportedOutcome::DoneWithFindings) => ReportedOutcome::Done,
            (_, ReportedOutcome::Unapproved) => ReportedOutcome::Failed,
            (_, outcome) => outcome,
        };
        let mut body = result(kind, &id, outcome);
        if kind == ModelJobKind::Implementation
            && matches!(
                outcome,
                ReportedOutcome::Done
                    | ReportedOutcome::DoneWithFindings
                    | ReportedOutcome::Unapproved
            )
        {
            let number = self.open_pull(run);
            body["prUrl"] = json!(self.env().repo().pull_url(number));
        }
        let expected = self.model.report_result(&id, outcome)?;
        let status = self
            .report("/runner/result", input_text(run, "run_token"), &body)
            .await;
        if status != expected {
            return Err(format!(
                "{outcome:?} of {id} got status {status}, not {expected}"
            ));
        }
        Ok(())
    }

    async fn post_forged_result(&mut self, run: &RunSnapshot, forgery: Forgery) -> ModelResult {
        let id = input_text(run, "dispatch_id");
        let mut body = result(self.model.runs[id].kind, id, ReportedOutcome::Failed);
        let token = match forgery {
            Forgery::Audience => input_text(run, "run_progress_token").to_owned(),
            Forgery::Signature => format!("{}A", input_text(run, "run_token")),
            Forgery::Phase => {
                let other = ["planning", "gap-analysis"]
                    .into_iter()
                    .find(|phase| body["phase"] != *phase);
                body["phase"] = json!(other);
                input_text(run, "run_token").to_owned()
            }
        };
        let status = self.report("/runner/result", &token, &body).await;
        match (status, forgery) {
            (401, _) | (400, Forgery::Phase) => Ok(()),
            _ => Err(format!("{forgery:?} of {id} got status {status}")),
        }
    }

    /// A user requests a gap fill on a pull request. The response waits for the start, so the outbox is
    /// drained meanwhile.
    pub async fn trigger_gap_fill(&mut self, slot: usize) -> Result<bool, String> {
        let at = self.slots[slot];
        let Some(number) = self.model.tickets[at].pull else {
            return Ok(false);
        };
        let (ticket, team) = (
            &self.model.tickets[at],
            &self.model.teams[self.model.tickets[at].team],
        );
        let faults_pending =
            self.model.refusals_left + self.model.failures_left > 0 || self.has_pending_faults();
        let expected = match () {
            () if !team.mapped || (!ticket.pull_known && !team.paused) => 404,
            () if team.paused => 423,
            () if self.model.has_active_run(at) || ticket.merged || faults_pending => 502,
            () => 200,
        };
        let url = format!("{}/trigger/gap-fill", self.env().address);
        let body = json!({"issueKey": ticket.key, "prNumber": number});
        let request = self
            .client
            .post(url)
            .bearer_auth(TRIGGER_SECRET)
            .json(&body)
            .send();
        let mut request = std::pin::pin!(request);
        let answer = loop {
            tokio::select! {
                answer = &mut request => break answer.unwrap(),
                () = tokio::time::sleep(Duration::from_millis(3)) => {
                    outbox_worker::drain(&self.env().app).await.unwrap();
                }
            }
        };
        let status = answer.status().as_u16();
        if status != expected && !(faults_pending && status == 200) {
            return Err(format!(
                "the gap-fill of {} got status {status}, not {expected}",
                ticket.key
            ));
        }
        let before = self.model.runs.len();
        self.check_observed(StepActivity::GapFillRequested)?;
        match (status, self.model.runs.len() - before) {
            (200, 1) | (502, 0 | 1) | (404 | 423, 0) => Ok(true),
            (status, started) => Err(format!(
                "a gap-fill got status {status} and started {started} runs"
            )),
        }
    }

    pub async fn send_webhook_twice(&mut self, slot: usize) -> ModelResult {
        let mut body = webhooks::payload("merged");
        body["pull_request"]["number"] =
            json!(self.model.tickets[self.slots[slot]].pull.unwrap_or(9_999));
        let (body, id) = (body.to_string(), format!("{:032x}", fastrand::u128(..)));
        for repeated in [false, true] {
            let request = self
                .client
                .post(format!("{}/api/repo-host/webhook", self.env().address));
            let request = request
                .header("x-hub-signature-256", webhooks::signature(body.as_bytes()))
                .header("x-github-event", "pull_request")
                .header("x-github-delivery", &id);
            let answer = request.body(body.clone()).send().await.unwrap();
            let (status, response) = (
                answer.status().as_u16(),
                answer.json::<Value>().await.unwrap(),
            );
            if status != 200 || (response["reason"] == json!("duplicate")) != repeated {
                return Err(format!(
                    "a webhook, repeated: {repeated}, got status {status} {response}"
                ));
            }
        }
        self.model.record_merge(self.slots[slot]);
        Ok(())
    }
}

fn result(kind: ModelJobKind, id: &str, outcome: ReportedOutcome) -> Value {
    let phase = match kind {
        ModelJobKind::Planning => "planning",
        ModelJobKind::Implementation => "implementation",
        ModelJobKind::GapFill => "gap-analysis",
    };
    let mut body = json!({"phase": phase, "outcome": "success", "comments": [{"body": format!("Comment of {id}")}]});
    let failure = match outcome {
        ReportedOutcome::Done => return body,
        ReportedOutcome::DoneWithFindings => {
            body["unresolved"] = json!(["a race"]);
            return body;
        }
        ReportedOutcome::Unapproved => json!("REVIEW_UNAPPROVED"),
        ReportedOutcome::Failed => json!("VERIFY_FAILED"),
        ReportedOutcome::InfrastructureFailure => json!("PROVIDER_UNAVAILABLE"),
    };
    body["outcome"] = json!("failure");
    body["failureCode"] = failure;
    body["failureReason"] = json!("it did not work");
    body
}
