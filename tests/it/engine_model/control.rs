//! Cancel and retry by the operator, on the real system and on the reference model.

use std::collections::BTreeMap;

use domain::effect::Effect;
use domain::ids::JobId;
use domain::job::{Job, JobState};
use fake_vendors::FakeService;
use reqwest::Method;
use serde_json::json;
use store::outbox::OutboxEntry;
use store::{jobs, outbox};

use super::reference::{ModelJobKind, ModelResult, ModelRun};
use super::system_under_test::SystemUnderTest;

/// Controls and the states of the latest run in which many cases must have exercised them.
pub const REQUIRED_COVERAGE: [&str; 17] = [
    "cancel: no run",
    "cancel: reserved",
    "cancel: start unanswered",
    "cancel: not linked",
    "cancel: dispatched",
    "cancel: running",
    "cancel: on a pull request",
    "cancel: ended",
    "cancel: ended, effects pending",
    "cancel with retry: reserved",
    "cancel with retry: start unanswered",
    "cancel with retry: not linked",
    "cancel with retry: dispatched",
    "cancel with retry: running",
    "retry: running",
    "retry: ended",
    "retry: ended, effects pending",
];

/// Names the state of a run that an operator controls.
fn state_name(job: &Job, pending: &[OutboxEntry]) -> &'static str {
    let is_start = |entry: &&OutboxEntry| matches!(&entry.effect, Effect::StartRun { job: id, .. } if *id == job.id);
    let start = pending.iter().find(is_start);
    let is_of_job = |entry: &OutboxEntry| {
        let (of_job, of_issue) = entry.effect.job_and_issue();
        of_job == Some(&job.id) || of_issue.is_some_and(|issue| issue.id == job.issue.id)
    };
    match (start, &job.state) {
        (_, state) if state.is_terminal() => match pending.iter().any(is_of_job) {
            true => "ended, effects pending",
            false => "ended",
        },
        (Some(start), _) if start.outcome_unknown_since.is_some() => "start unanswered",
        (Some(start), _) if start.attempts > 0 => "start failed",
        (Some(_), _) => "reserved",
        _ if job.kind.phase().is_none() => "on a pull request",
        _ if job.run.is_none() => "not linked",
        (None, JobState::Running) => "running",
        (None, _) => "dispatched",
    }
}

impl SystemUnderTest {
    /// Latest run of a ticket.
    fn latest_run(&self, at: usize) -> Option<(String, &ModelRun)> {
        let runs = self.model.runs.iter().rev();
        let mut of_ticket = runs.filter(|(_, run)| run.ticket == at);
        of_ticket.next().map(|(id, run)| (id.clone(), run))
    }

    /// Counts the state in which an operator controls the latest run of a ticket.
    fn count_control(&mut self, control: &str, at: usize) {
        let id = self.latest_run(at).map(|(id, _)| JobId::new(id));
        let store = &self.env().store;
        let pending = store.read(outbox::pending).unwrap();
        let job = id.and_then(|id| store.read(|tx| jobs::get(tx, &id)).unwrap());
        let state = job.map_or("no run", |job| state_name(&job, &pending));
        let name = format!("{control}: {state}");
        *self.model.milestones.entry(name).or_default() += 1;
    }

    pub async fn cancel_run(&mut self, slot: usize, retry: bool) -> ModelResult {
        self.wait(1);
        let at = self.slots[slot];
        let control = if retry { "cancel with retry" } else { "cancel" };
        self.count_control(control, at);
        let expected = match self.latest_run(at) {
            None => 404,
            Some(_) if self.model.has_active_run(at) => 200,
            Some(_) => 409,
        };
        let path = format!("/api/jobs/{}/cancel", self.model.tickets[at].key);
        let body = json!({ "retry": retry });
        let (status, answer) = self.admin_request(Method::POST, &path, body).await;
        if status != expected {
            return Err(format!(
                "a cancellation got {status} {answer}, not {expected}"
            ));
        }
        if status == 200 {
            let id = answer["jobId"].as_str().unwrap();
            let run = self
                .model
                .runs
                .get_mut(id)
                .ok_or("cancelled an unknown run")?;
            run.cancelled = Some(retry);
        }
        // A decision of the moment in which a run failed does not replace the failure.
        self.wait(1);
        Ok(())
    }

    pub async fn retry_run(&mut self, slot: usize) -> ModelResult {
        // A decision of the moment in which a run failed does not replace the failure.
        self.wait(1);
        let at = self.slots[slot];
        self.count_control("retry", at);
        let latest = self.latest_run(at);
        let latest = latest.map(|(_, run)| (run.kind, run.from_plan));
        let is_busy = self.model.has_active_run(at);
        let ticket = &self.model.tickets[at];
        let expected: &[u16] = match latest {
            None => &[404],
            Some(_) if is_busy => &[409],
            // Its pull request may be merged, or its project removed.
            Some((ModelJobKind::GapFill, _)) => &[202, 409],
            Some(_) if ticket.closed || ticket.deleted => &[409],
            Some(_) => &[202],
        };
        let path = format!("/api/jobs/{}/retry", ticket.key);
        let (status, answer) = self.admin_request(Method::POST, &path, json!({})).await;
        let unanswered = status == 503 && self.has_pending_faults();
        if !expected.contains(&status) && !unanswered {
            return Err(format!("a retry got {status} {answer}, not {expected:?}"));
        }
        let ticket = &mut self.model.tickets[at];
        match latest {
            Some((ModelJobKind::GapFill, _)) if status == 202 => ticket.retried_gap_fills += 1,
            Some((_, from_plan)) if status == 202 => {
                (ticket.deduped_at, ticket.parked) = (None, None);
                ticket.failures.clear();
                ticket.queue_retry(from_plan);
                *self
                    .model
                    .milestones
                    .entry("retried".to_owned())
                    .or_default() += 1;
            }
            _ => {}
        }
        Ok(())
    }

    /// The host must have accepted at most one cancellation of each run.
    pub fn check_cancellations(&self) -> ModelResult {
        let mut accepted: BTreeMap<String, u32> = BTreeMap::new();
        for request in self
            .env()
            .vendors
            .requests()
            .for_service(FakeService::GitHub)
        {
            if request.url.ends_with("/cancel") && request.status == Some(202) {
                *accepted.entry(request.url).or_default() += 1;
            }
        }
        match accepted.iter().find(|(_, count)| **count > 1) {
            Some((url, count)) => Err(format!("{url} was accepted {count} times")),
            None => Ok(()),
        }
    }
}
