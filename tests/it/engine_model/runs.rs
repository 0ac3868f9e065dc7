//! What runs do, and what reaches the service from their repository.

use std::time::Duration;

use engine::deliver;
use fake_vendors::RunSnapshot;
use serde_json::{Value, json};

use super::event::{Event, Forgery, Told, Which};
use super::reference::{Kind, Verdict};
use super::system::{Did, System, text};
use crate::gap_fill::TRIGGER_SECRET;
use crate::webhooks;

impl System {
    pub fn pick(&self, which: Which) -> Option<RunSnapshot> {
        let mut runs = self.world().repo().runs();
        let at = match which {
            Which::Live(at) => {
                runs.retain(|run| run.status != "completed");
                at
            }
            Which::Any(at) => at,
        };
        (!runs.is_empty()).then(|| runs.swap_remove(at % runs.len()))
    }

    /// What a run does; whether it applied.
    pub async fn run(&mut self, event: &Event, run: &RunSnapshot) -> Result<bool, String> {
        let id = text(run, "dispatch_id");
        match event {
            Event::Begin(_) if run.status == "queued" => self.world().repo().begin_run(run.id),
            Event::Progress(_, named) => {
                let step =
                    json!({"id": "clone", "type": "clone", "status": "passed", "started_at": "t"});
                let body = match named {
                    true => json!({"step": step, "runId": run.id}),
                    false => json!({ "step": step }),
                };
                let status = self
                    .report("/runner/progress", text(run, "run_progress_token"), &body)
                    .await;
                // As with a result, but it may be told again and again.
                let mut wanted = vec![200];
                wanted.extend(self.model.runs[id].hosted.map(|_| 401));
                if !wanted.contains(&status) {
                    return Err(format!("progress of {id} was answered {status}"));
                }
                let job = &self.jobs()[id];
                if status == 200 && matches!(job.status, "unknown" | "dispatched") {
                    return Err(format!("{id} has told a step and does not run: {job:?}"));
                }
            }
            Event::Result(_, told) => return self.tell_result(run, *told).await.map(|()| true),
            Event::Forge(_, forgery) => return self.forge(run, *forgery).await.map(|()| true),
            Event::End(_, conclusion, leaves_pull) if run.status != "completed" => {
                if *leaves_pull && self.model.runs[id].kind == Kind::Implementation {
                    self.open_pull(run);
                }
                self.world().repo().end_run(run.id, conclusion.word());
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
        let at = self.model.runs[text(run, "dispatch_id")].ticket;
        let repo = self.world().repo();
        let known = self.model.tickets[at].pull;
        let number =
            known.unwrap_or_else(|| repo.open_pull(text(run, "branch"), "agent", "Work", ""));
        self.model.tickets[at].pull = Some(number);
        number
    }

    async fn tell_result(&mut self, run: &RunSnapshot, told: Told) -> Verdict {
        let id = text(run, "dispatch_id").to_owned();
        let kind = self.model.runs[&id].kind;
        let told = match (kind, told) {
            (Kind::Implementation, told) => told,
            (_, Told::Noted) => Told::Done,
            (_, Told::Unapproved) => Told::Failed,
            (_, told) => told,
        };
        let mut body = result(kind, &id, told);
        if kind == Kind::Implementation
            && matches!(told, Told::Done | Told::Noted | Told::Unapproved)
        {
            let number = self.open_pull(run);
            body["prUrl"] = json!(self.world().repo().pull_url(number));
        }
        let wanted = self.model.reports(&id, told)?;
        let status = self
            .report("/runner/result", text(run, "run_token"), &body)
            .await;
        if status != wanted {
            return Err(format!(
                "{told:?} of {id} was answered {status}, not {wanted}"
            ));
        }
        Ok(())
    }

    async fn forge(&mut self, run: &RunSnapshot, forgery: Forgery) -> Verdict {
        let id = text(run, "dispatch_id");
        let mut body = result(self.model.runs[id].kind, id, Told::Failed);
        let token = match forgery {
            Forgery::Audience => text(run, "run_progress_token").to_owned(),
            Forgery::Signature => format!("{}A", text(run, "run_token")),
            Forgery::Phase => {
                let other = ["planning", "gap-analysis"]
                    .into_iter()
                    .find(|phase| body["phase"] != *phase);
                body["phase"] = json!(other);
                text(run, "run_token").to_owned()
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
    pub async fn ask_for_more(&mut self, slot: usize) -> Result<bool, String> {
        let at = self.slots[slot];
        let Some(number) = self.model.tickets[at].pull else {
            return Ok(false);
        };
        let (ticket, team) = (
            &self.model.tickets[at],
            &self.model.teams[self.model.tickets[at].team],
        );
        let troubled = self.model.refusals + self.model.failures > 0 || self.troubled();
        let wanted = match () {
            () if !team.mapped || (!ticket.pull_known && !team.paused) => 404,
            () if team.paused => 423,
            () if self.model.active(at) || ticket.merged || troubled => 502,
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
                    deliver::drain(&self.world().app).await.unwrap();
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
        self.observe(Did::Asked)?;
        match (status, self.model.runs.len() - before) {
            (200, 1) | (502, 0 | 1) | (404 | 423, 0) => Ok(true),
            (status, begun) => Err(format!(
                "a gap-fill was answered {status} and began {begun} runs"
            )),
        }
    }

    pub async fn hook_twice(&mut self, slot: usize) -> Verdict {
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
        self.model.merges(self.slots[slot]);
        Ok(())
    }
}

fn result(kind: Kind, id: &str, told: Told) -> Value {
    let phase = match kind {
        Kind::Planning => "planning",
        Kind::Implementation => "implementation",
        Kind::GapFill => "gap-analysis",
    };
    let mut body = json!({"phase": phase, "outcome": "success", "comments": [{"body": format!("Said by {id}")}]});
    let failure = match told {
        Told::Done => return body,
        Told::Noted => {
            body["unresolved"] = json!(["a race"]);
            return body;
        }
        Told::Unapproved => json!("REVIEW_UNAPPROVED"),
        Told::Failed => json!("VERIFY_FAILED"),
        Told::Unavailable => json!("PROVIDER_UNAVAILABLE"),
    };
    body["outcome"] = json!("failure");
    body["failureCode"] = failure;
    body["failureReason"] = json!("it did not work");
    body
}
