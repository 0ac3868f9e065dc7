//! Compares the observable state of the real engine and its vendors with the reference model.

use std::collections::{BTreeMap, BTreeSet};

use domain::effect::Effect;
use domain::job::{Job as RealJob, JobKind, JobState};
use reqwest::Method;
use serde_json::Value;
use store::{dedup, dispatch_breaker, jobs, outbox};

use super::event::Conclusion;
use super::reference::{ModelJobKind, ModelResult, ModelTicket, ObservedJob, SLOTS, TRIGGER};
use super::system_under_test::{StepActivity, SystemUnderTest, input_text};
use crate::test_ticket::split_comments;

impl SystemUnderTest {
    pub fn job_statuses(&self) -> Vec<(String, &'static str)> {
        let jobs = self.jobs().into_iter();
        jobs.map(|(id, job)| (id, job.status)).collect()
    }

    pub fn jobs(&self) -> BTreeMap<String, ObservedJob> {
        let jobs = self
            .env()
            .store
            .read(|tx| jobs::latest(tx, 10_000))
            .unwrap();
        let tickets = &self.model.tickets;
        let observed = jobs.into_iter().map(|job| {
            let ticket = tickets
                .iter()
                .position(|ticket| ticket.key == job.issue.key.as_str());
            (
                job.id.as_str().to_owned(),
                observe_job(&job, ticket.unwrap()),
            )
        });
        observed.collect()
    }

    /// Compares everything that can be compared at any time.
    pub fn check_observed(&mut self, activity: StepActivity) -> ModelResult {
        self.observe_hosted()?;
        let jobs = self.jobs();
        let polled = matches!(activity, StepActivity::Poll | StepActivity::Partial);
        self.model
            .check_jobs(&jobs, polled, activity == StepActivity::GapFillRequested)?;
        self.observe_hosted()?;
        if activity == StepActivity::Watch && !self.has_pending_faults() {
            self.model.record_watch();
        }
        let (now, window) = (
            self.env().app.core.now(),
            self.env().app.core.config.dedup_window,
        );
        let deduped = self.env().store.read(dedup::all).unwrap().into_iter();
        let deduped: Vec<_> = deduped
            .filter(|entry| entry.is_active(window, now))
            .collect();
        let deduped: BTreeSet<&str> = deduped
            .iter()
            .map(|entry| entry.issue.key.as_str())
            .collect();
        if deduped != self.model.deduped_keys() {
            return Err(format!(
                "deduplicated: {deduped:?}, expected {:?}",
                self.model.deduped_keys()
            ));
        }
        let parked = self.env().store.read(dispatch_breaker::all).unwrap();
        let parked: BTreeSet<&str> = parked
            .iter()
            .map(|parked| parked.issue.key.as_str())
            .collect();
        let is_parked = |ticket: &&ModelTicket| ticket.parked.is_some();
        let expected = self.model.tickets.iter().filter(is_parked);
        let expected: BTreeSet<&str> = expected.map(|ticket| ticket.key.as_str()).collect();
        if parked != expected {
            return Err(format!("parked: {parked:?}, expected {expected:?}"));
        }
        (0..SLOTS).try_for_each(|slot| self.observe_ticket(self.slots[slot]))
    }

    /// The host must list exactly one run per dispatch.
    fn observe_hosted(&mut self) -> ModelResult {
        let (now, mut seen) = (self.model.now, BTreeSet::new());
        for run in self.env().repo().runs() {
            let id = input_text(&run, "dispatch_id").to_owned();
            if !seen.insert(id.clone()) {
                return Err(format!("{id} runs twice"));
            }
            let Some(known) = self.model.runs.get_mut(&id) else {
                continue;
            };
            known.hosted_at.get_or_insert(now);
            if run.status == "completed" {
                known.host_end.get_or_insert((Conclusion::Cancelled, now));
            }
        }
        Ok(())
    }

    /// Labels must match the applied marker changes; comments must appear once and in order.
    fn observe_ticket(&mut self, at: usize) -> ModelResult {
        let entries = self.outbox_entries(at);
        let is_marker_change =
            |entry: &&outbox::OutboxEntry| matches!(entry.effect, Effect::SetMarker { .. });
        let waiting = entries.iter().filter(is_marker_change).count();
        let tried = entries
            .first()
            .is_some_and(|head| is_marker_change(&head) && head.attempts > 0);
        let Some(snapshot) = self.ticket(at).snapshot() else {
            return Ok(());
        };
        let ticket = &mut self.model.tickets[at];
        while ticket.pending_markers.len() > waiting {
            let change = ticket.pending_markers.pop_front().unwrap();
            ticket.apply_marker_change(change);
        }
        if ticket.pending_markers.len() < waiting {
            return Err(format!(
                "{} has unexpected queued marker changes: {entries:#?}",
                ticket.key
            ));
        }
        let labels: BTreeSet<&str> = snapshot.labels.iter().map(String::as_str).collect();
        if labels != ticket.labels {
            let mut next = ModelTicket {
                labels: ticket.labels.clone(),
                ..ModelTicket::default()
            };
            let arrived = ticket.pending_markers.front().filter(|_| tried);
            arrived
                .into_iter()
                .for_each(|change| next.apply_marker_change(*change));
            if labels != next.labels {
                return Err(format!("{} shows {labels:?}\n{ticket:#?}", ticket.key));
            }
        }
        let comments = snapshot.comments.into_iter().map(|comment| comment.body);
        let comments = comments.filter(|body| !body.starts_with("Not started yet: "));
        let comments = split_comments(comments.collect());
        let mut expected = ticket.comments.iter();
        for comment in &comments {
            let matched = expected
                .find(|comment_prefix| comment.starts_with(&comment_prefix.0) || !comment_prefix.1);
            if !matched.is_some_and(|comment_prefix| comment.starts_with(&comment_prefix.0)) {
                return Err(format!(
                    "unexpected comment {comment:?}\n{comments:#?}\n{ticket:#?}"
                ));
            }
        }
        let missing = expected.find(|comment_prefix| !comment_prefix.1);
        match missing.filter(|_| entries.is_empty()) {
            Some(comment_prefix) => Err(format!(
                "missing comment {comment_prefix:?}\n{comments:#?}\n{ticket:#?}"
            )),
            None => Ok(()),
        }
    }

    /// Compares what must hold when the system is quiescent.
    pub async fn check_quiescent(&mut self) -> ModelResult {
        self.model.check_quiescent()?;
        self.check_cancellations()?;
        let dead = self.env().store.read(outbox::dead).unwrap();
        if !dead.is_empty() {
            return Err(format!("dead outbox entries: {dead:#?}"));
        }
        for run in self.env().repo().runs() {
            let known = &self.model.runs[input_text(&run, "dispatch_id")];
            if run.status != "completed" && !known.is_active() && !known.reported {
                return Err(format!("a run continues without an active job: {known:?}"));
            }
        }
        for slot in 0..SLOTS {
            let at = self.slots[slot];
            let ticket = &self.model.tickets[at];
            if ticket.closed || !ticket.labels.contains(TRIGGER) {
                continue;
            }
            let (expected, path) = (
                self.model.possible_outcomes(at),
                format!("/api/why/{}", ticket.key),
            );
            let (_, why) = self.admin_request(Method::GET, &path, Value::Null).await;
            let decision = &why["decision"];
            let reason = decision["reason"]
                .as_str()
                .or(decision["outcome"].as_str())
                .unwrap_or_default();
            if !expected.contains(&reason) {
                let ticket = &self.model.tickets[at];
                return Err(format!(
                    "unexpected decision {why:#}, expected one of {expected:?}\n{ticket:#?}"
                ));
            }
            *self.reasons_seen.entry(reason.to_owned()).or_default() += 1;
        }
        let (_, log) = self
            .admin_request(Method::GET, "/api/log", Value::Null)
            .await;
        let log = log.as_array().into_iter().flatten();
        let id_and_status = |job: &Value| {
            (
                job["id"].as_str().unwrap().to_owned(),
                job["status"].as_str().unwrap().to_owned(),
            )
        };
        let log: BTreeMap<String, String> = log.map(id_and_status).collect();
        let jobs = self
            .model
            .runs
            .iter()
            .map(|(id, run)| (id.clone(), run.status.to_owned()));
        if log != jobs.collect() {
            return Err(format!(
                "the log shows {log:#?}, expected {:#?}",
                self.model.runs
            ));
        }
        Ok(())
    }
}

fn observe_job(job: &RealJob, ticket: usize) -> ObservedJob {
    let reason = match &job.state {
        JobState::Failed { reason, .. } => reason.clone(),
        _ => String::new(),
    };
    let timeout = match &job.state {
        JobState::TimedOut { reason } => Some(reason.as_str()),
        _ => None,
    };
    ObservedJob {
        ticket,
        kind: match job.kind {
            JobKind::Planning => ModelJobKind::Planning,
            JobKind::Implementation => ModelJobKind::Implementation,
            JobKind::GapFill | JobKind::FollowUp | JobKind::CiFix | JobKind::Conflict => {
                ModelJobKind::GapFill
            }
        },
        status: job.state.status(),
        timeout,
        reason,
        dispatched: job.dispatched_at.is_some(),
        linked: job.run.is_some(),
        has_pull: job.pull.is_some(),
    }
}
