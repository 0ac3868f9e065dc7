//! What runs do, and what reaches the service from their repository.

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
        let mut runs = self.world().repo().runs();
        let at = match which {
            RunSelector::Live(at) => {
                runs.retain(|run| run.status != "completed");
                at
            }
            RunSelector::Any(at) => at,
        };
        (!runs.is_empty()).then(|| runs.swap_remove(at % runs.len()))
    }

    /// What a run does; whether it applied.
    pub async fn perform_run_event(
        &mut self,
        event: &ModelEvent,
        run: &RunSnapshot,
    ) -> Result<bool, String> {
        let id = input_text(run, "dispatch_id");
        match event {
            ModelEvent::Begin(_) if run.status == "queued" => self.world().repo().start_run(run.id),
            ModelEvent::Progress(_, named) => {
                let step =
                    json!({"id": "clone", "type": "clone", "status": "passed", "started_at": "t"});
                let body = match named {
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
                // As with a result, but it may be told again and again.
                let mut wanted = vec![200];
                wanted.extend(self.model.runs[id].hosted_at.map(|_| 401));
                if !wanted.contains(&status) {
                    return Err(format!("progress of {id} was answered {status}"));
                }
                let job = &self.jobs()[id];
                if status == 200 && matches!(job.status, "unknown" | "dispatched") {
                    return Err(format!("{id} has told a step and does not run: {job:?}"));
                }
            }
            ModelEvent::Result(_, told) => {
                return self.tell_result(run, *told).await.map(|()| true);
            }
            ModelEvent::Forge(_, forgery) => return self.forge(run, *forgery).await.map(|()| true),
            ModelEvent::End(_, conclusion, leaves_pull) if run.status != "completed" => {
                if *leaves_pull && self.model.runs[id].kind == ModelJobKind::Implementation {
                    self.open_pull(run);
                }
                self.world()
                    .repo()
                    .complete_run(run.id, conclusion.as_str());
                let now = self.model.now;
                self.model.runs.get_mut(id).unwrap().host_end = Some((*conclusion, now));
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    async fn report(&self, path: &str, token: &str, body: &Value) -> u16 {
        let request = self.client.post(format!("{}{path}", self.world().address));
        let answer = request.bearer_auth(token).json(body).send().await.unwrap();
        answer.status().as_u16()
    }

    /// The pull request on the run's branch, opened if it is not there.
    fn open_pull(&mut self, run: &RunSnapshot) -> u64 {
        let at = self.model.runs[input_text(run, "dispatch_id")].ticket;
        let repo = self.world().repo();
        let known = self.model.tickets[at].pull;
        let number =
            known.unwrap_or_else(|| repo.open_pull(input_text(run, "branch"), "agent", "Work", ""));
        self.model.tickets[at].pull = Some(number);
        number
    }

    async fn tell_result(&mut self, run: &RunSnapshot, told: ReportedOutcome) -> ModelResult {
        let id = input_text(run, "dispatch_id").to_owned();
        let kind = self.model.runs[&id].kind;
        let told = match (kind, told) {
            (ModelJobKind::Implementation, told) => told,
            (_, ReportedOutcome::DoneWithFindings) => ReportedOutcome::Done,
            (_, ReportedOutcome::Unapproved) => ReportedOutcome::Failed,
            (_, told) => told,
        };
        let mut body = result(kind, &id, told);
        if kind == ModelJobKind::Implementation
            && matches!(
                told,
                ReportedOutcome::Done
                    | ReportedOutcome::DoneWithFindings
                    | ReportedOutcome::Unapproved
            )
        {
            let number = self.open_pull(run);
            body["prUrl"] = json!(self.world().repo().pull_url(number));
        }
        let wanted = self.model.report_result(&id, told)?;
        let status = self
            .report("/runner/result", input_text(run, "run_token"), &body)
            .await;
        if status != wanted {
            return Err(format!(
                "{told:?} of {id} was answered {status}, not {wanted}"
            ));
        }
        Ok(())
    }

    async fn forge(&mut self, run: &RunSnapshot, forgery: Forgery) -> ModelResult {
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
            _ => Err(format!("{forgery:?} of {id} was answered {status}")),
        }
    }

    /// A person asks for more work on a pull request. The answer waits for the start, so it is
    /// delivered meanwhile.
    pub async fn trigger_gap_fill(&mut self, slot: usize) -> Result<bool, String> {
        let at = self.slots[slot];
        let Some(number) = self.model.tickets[at].pull else {
            return Ok(false);
        };
        let (ticket, team) = (
            &self.model.tickets[at],
            &self.model.teams[self.model.tickets[at].team],
        );
        let troubled =
            self.model.refusals_left + self.model.failures_left > 0 || self.has_pending_faults();
        let wanted = match () {
            () if !team.mapped || (!ticket.pull_known && !team.paused) => 404,
            () if team.paused => 423,
            () if self.model.has_active_run(at) || ticket.merged || troubled => 502,
            () => 200,
        };
        let url = format!("{}/trigger/gap-fill", self.world().address);
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
                    outbox_worker::drain(&self.world().app).await.unwrap();
                }
            }
        };
        let status = answer.status().as_u16();
        if status != wanted && !(troubled && status == 200) {
            return Err(format!(
                "the gap-fill of {} was answered {status}, not {wanted}",
                ticket.key
            ));
        }
        let before = self.model.runs.len();
        self.check_observed(StepActivity::GapFillRequested)?;
        match (status, self.model.runs.len() - before) {
            (200, 1) | (502, 0 | 1) | (404 | 423, 0) => Ok(true),
            (status, begun) => Err(format!(
                "a gap-fill was answered {status} and began {begun} runs"
            )),
        }
    }

    pub async fn send_webhook_twice(&mut self, slot: usize) -> ModelResult {
        let mut body = webhooks::payload("merged");
        body["pull_request"]["number"] =
            json!(self.model.tickets[self.slots[slot]].pull.unwrap_or(9_999));
        let (body, id) = (body.to_string(), format!("{:032x}", fastrand::u128(..)));
        for again in [false, true] {
            let request = self
                .client
                .post(format!("{}/api/repo-host/webhook", self.world().address));
            let request = request
                .header("x-hub-signature-256", webhooks::signature(body.as_bytes()))
                .header("x-github-event", "pull_request")
                .header("x-github-delivery", &id);
            let answer = request.body(body.clone()).send().await.unwrap();
            let (status, told) = (
                answer.status().as_u16(),
                answer.json::<Value>().await.unwrap(),
            );
            if status != 200 || (told["reason"] == json!("duplicate")) != again {
                return Err(format!(
                    "a webhook, again {again}, was answered {status} {told}"
                ));
            }
        }
        self.model.record_merge(self.slots[slot]);
        Ok(())
    }
}

fn result(kind: ModelJobKind, id: &str, told: ReportedOutcome) -> Value {
    let phase = match kind {
        ModelJobKind::Planning => "planning",
        ModelJobKind::Implementation => "implementation",
        ModelJobKind::GapFill => "gap-analysis",
    };
    let mut body = json!({"phase": phase, "outcome": "success", "comments": [{"body": format!("Said by {id}")}]});
    let failure = match told {
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
