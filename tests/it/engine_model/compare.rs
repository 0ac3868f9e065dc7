//! What is to be seen of the real engine and of its vendors, compared with the reference.

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
            .world()
            .app
            .store
            .read(|tx| jobs::latest(tx, 10_000))
            .unwrap();
        let tickets = &self.model.tickets;
        let told = jobs.into_iter().map(|job| {
            let ticket = tickets
                .iter()
                .position(|ticket| ticket.key == job.issue.key.as_str());
            (job.id.as_str().to_owned(), told(&job, ticket.unwrap()))
        });
        told.collect()
    }

    /// Compares everything that can be compared at any time.
    pub fn check_observed(&mut self, did: StepActivity) -> ModelResult {
        self.observe_hosted()?;
        let jobs = self.jobs();
        let polled = matches!(did, StepActivity::Poll | StepActivity::Partial);
        self.model
            .check_jobs(&jobs, polled, did == StepActivity::GapFillRequested)?;
        self.observe_hosted()?;
        if did == StepActivity::Watch && !self.has_pending_faults() {
            self.model.record_watch();
        }
        let (now, window) = (self.world().app.now(), self.world().app.config.dedup_window);
        let held = self.world().app.store.read(dedup::all).unwrap().into_iter();
        let held: Vec<_> = held.filter(|entry| entry.is_active(window, now)).collect();
        let held: BTreeSet<&str> = held.iter().map(|entry| entry.issue.key.as_str()).collect();
        if held != self.model.deduped_keys() {
            return Err(format!(
                "dedup holds {held:?}, not {:?}",
                self.model.deduped_keys()
            ));
        }
        let parked = self.world().app.store.read(dispatch_breaker::all).unwrap();
        let parked: BTreeSet<&str> = parked
            .iter()
            .map(|parked| parked.issue.key.as_str())
            .collect();
        let is_parked = |ticket: &&ModelTicket| ticket.parked.is_some();
        let wanted = self.model.tickets.iter().filter(is_parked);
        let wanted: BTreeSet<&str> = wanted.map(|ticket| ticket.key.as_str()).collect();
        if parked != wanted {
            return Err(format!("parked are {parked:?}, not {wanted:?}"));
        }
        (0..SLOTS).try_for_each(|slot| self.observe_ticket(self.slots[slot]))
    }

    /// The host's own list: one run for each dispatch.
    fn observe_hosted(&mut self) -> ModelResult {
        let (now, mut seen) = (self.model.now, BTreeSet::new());
        for run in self.world().repo().runs() {
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

    /// Labels are as the markers that have arrived leave them; comments come once and in order.
    fn observe_ticket(&mut self, at: usize) -> ModelResult {
        let lane = self.outbox_entries(at);
        let is_move =
            |errand: &&outbox::OutboxEntry| matches!(errand.effect, Effect::SetMarker { .. });
        let waiting = lane.iter().filter(is_move).count();
        let tried = lane
            .first()
            .is_some_and(|head| is_move(&head) && head.attempts > 0);
        let Some(shown) = self.ticket(at).snapshot() else {
            return Ok(());
        };
        let ticket = &mut self.model.tickets[at];
        while ticket.pending_markers.len() > waiting {
            let moved = ticket.pending_markers.pop_front().unwrap();
            ticket.apply_marker_change(moved);
        }
        if ticket.pending_markers.len() < waiting {
            return Err(format!(
                "{} is owed markers that nobody asked for: {lane:#?}",
                ticket.key
            ));
        }
        let labels: BTreeSet<&str> = shown.labels.iter().map(String::as_str).collect();
        if labels != ticket.labels {
            let mut next = ModelTicket {
                labels: ticket.labels.clone(),
                ..ModelTicket::default()
            };
            let arrived = ticket.pending_markers.front().filter(|_| tried);
            arrived
                .into_iter()
                .for_each(|moved| next.apply_marker_change(*moved));
            if labels != next.labels {
                return Err(format!("{} shows {labels:?}\n{ticket:#?}", ticket.key));
            }
        }
        let comments = shown.comments.into_iter().map(|comment| comment.body);
        let comments = comments.filter(|body| !body.starts_with("Not started yet: "));
        let comments = split_comments(comments.collect());
        let mut expected = ticket.comments.iter();
        for comment in &comments {
            let met = expected.find(|said| comment.starts_with(&said.0) || !said.1);
            if !met.is_some_and(|said| comment.starts_with(&said.0)) {
                return Err(format!(
                    "{comment:?} was not to be said\n{comments:#?}\n{ticket:#?}"
                ));
            }
        }
        let missing = expected.find(|said| !said.1);
        match missing.filter(|_| lane.is_empty()) {
            Some(said) => Err(format!(
                "{said:?} was never said\n{comments:#?}\n{ticket:#?}"
            )),
            None => Ok(()),
        }
    }

    /// Compares what must hold when all is quiet.
    pub async fn check_quiescent(&mut self) -> ModelResult {
        self.model.check_quiescent()?;
        let dead = self.world().app.store.read(outbox::dead).unwrap();
        if !dead.is_empty() {
            return Err(format!("given up: {dead:#?}"));
        }
        for run in self.world().repo().runs() {
            let known = &self.model.runs[input_text(&run, "dispatch_id")];
            if run.status != "completed" && !known.is_active() && !known.reported {
                return Err(format!("a run goes on for nobody: {known:?}"));
            }
        }
        for slot in 0..SLOTS {
            let at = self.slots[slot];
            let ticket = &self.model.tickets[at];
            if ticket.closed || !ticket.labels.contains(TRIGGER) {
                continue;
            }
            let (wanted, path) = (
                self.model.possible_outcomes(at),
                format!("/api/why/{}", ticket.key),
            );
            let (_, why) = self.admin_request(Method::GET, &path, Value::Null).await;
            let decision = &why["decision"];
            let told = decision["reason"]
                .as_str()
                .or(decision["outcome"].as_str())
                .unwrap_or_default();
            if !wanted.contains(&told) {
                let ticket = &self.model.tickets[at];
                return Err(format!(
                    "{why:#} is told, not one of {wanted:?}\n{ticket:#?}"
                ));
            }
            *self.reasons_seen.entry(told.to_owned()).or_default() += 1;
        }
        let (_, log) = self
            .admin_request(Method::GET, "/api/log", Value::Null)
            .await;
        let log = log.as_array().into_iter().flatten();
        let told = |job: &Value| {
            (
                job["id"].as_str().unwrap().to_owned(),
                job["status"].as_str().unwrap().to_owned(),
            )
        };
        let log: BTreeMap<String, String> = log.map(told).collect();
        let jobs = self
            .model
            .runs
            .iter()
            .map(|(id, run)| (id.clone(), run.status.to_owned()));
        if log != jobs.collect() {
            return Err(format!(
                "the log tells {log:#?}, not {:#?}",
                self.model.runs
            ));
        }
        Ok(())
    }
}

fn told(job: &RealJob, ticket: usize) -> ObservedJob {
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
            JobKind::GapFill | JobKind::FollowUp => ModelJobKind::GapFill,
        },
        status: job.state.status(),
        timeout,
        reason,
        dispatched: job.dispatched_at.is_some(),
        linked: job.run.is_some(),
        has_pull: job.pull.is_some(),
    }
}
