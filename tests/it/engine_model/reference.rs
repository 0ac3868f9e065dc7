//! What the service should do, written from its specification alone and kept as plain as it can be.
//!
//! It is told what people, the operator and the runs did. It is shown the jobs after every step and
//! says whether what it sees could have come of that; where the moment is the engine's, any is good
//! until everything is quiet.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::event::{Conclusion, ReportedOutcome};
use super::job_end::JobEnd;

/// How many tickets live at a time; the last ones are of the team that plans.
pub const SLOTS: usize = 5;
pub const TRIGGER: &str = "Agent-Implement";
const OURS: [&str; 4] = [
    "Agent-Planning",
    "Plan-Complete",
    "Agent-Working",
    "Ready for Review",
];

const SECOND: u64 = 1_000;
const MINUTE: u64 = 60 * SECOND;
pub const DAY: u64 = 24 * 60 * MINUTE;
pub const MAX_FAILURES: u32 = 3;
pub const LINK_TIMEOUT: u64 = 10 * MINUTE;
/// What a run has, after which its host ends it; and what it has with our grace.
pub const RUN_TIMEOUT: u64 = 90 * MINUTE;
pub const JOB_TIMEOUT: u64 = RUN_TIMEOUT + 5 * MINUTE;
/// How late its start is noticed, at most.
pub const START_DETECTION_LIMIT: u64 = 2 * MINUTE;
pub const REPORT_GRACE: u64 = 2 * MINUTE;
/// From the start: the budget, the time to be found, and a quarter of an hour for late words.
const TOKEN_LIFE: u64 = JOB_TIMEOUT + LINK_TIMEOUT + 15 * MINUTE;

pub type ModelResult = Result<(), String>;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ModelJobKind {
    Planning,
    Implementation,
    GapFill,
}

#[derive(Debug)]
pub struct ModelTeam {
    pub mapped: bool,
    pub paused: bool,
    pub planning_enabled: bool,
    pub max_in_progress: u32,
}

#[derive(Debug, Default)]
pub struct ModelTicket {
    pub key: String,
    pub team: usize,
    pub deleted: bool,
    pub closed: bool,
    pub blocked: bool,
    /// What it shows now, as far as what was owed to it has arrived.
    pub labels: BTreeSet<&'static str>,
    /// Markers that it is still to be given, oldest first.
    pub pending_markers: VecDeque<MarkerChange>,
    pub comments: Vec<ExpectedComment>,
    pub failures: BTreeMap<ModelJobKind, u32>,
    pub parked: Option<ModelJobKind>,
    pub deduped_at: Option<u64>,
    /// The pull request on its branch, and whether a job of ours is known to have opened it.
    pub pull: Option<u64>,
    pub pull_known: bool,
    pub merged: bool,
}

/// Puts one marker on, takes our others off; a failure takes the trigger off, too.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MarkerChange {
    on: Option<&'static str>,
    failed: bool,
}

/// A comment, by how it begins. What depends on a log may be left out.
#[derive(Debug)]
pub struct ExpectedComment(pub String, pub bool);

#[derive(Debug)]
pub struct ModelRun {
    pub ticket: usize,
    pub kind: ModelJobKind,
    pub status: &'static str,
    pub began_at: u64,
    pub dispatched_at: Option<u64>,
    pub reported: bool,
    /// What it has just told, until it is seen to have ended.
    pub reported_outcome: Option<ReportedOutcome>,
    /// When the host has first shown it, and how and when it ended there.
    pub hosted_at: Option<u64>,
    pub host_end: Option<(Conclusion, u64)>,
    /// When the service has looked at it after that for the first time.
    pub end_seen_at: Option<u64>,
}

/// A job as the service shows it.
#[derive(Debug, Clone)]
pub struct ObservedJob {
    pub ticket: usize,
    pub kind: ModelJobKind,
    pub status: &'static str,
    pub timeout: Option<&'static str>,
    pub reason: String,
    pub dispatched: bool,
    pub linked: bool,
    /// Whether it names a pull request.
    pub has_pull: bool,
}

#[derive(Debug, Default)]
pub struct ReferenceModel {
    pub now: u64,
    pub teams: Vec<ModelTeam>,
    pub tickets: Vec<ModelTicket>,
    pub runs: BTreeMap<String, ModelRun>,
    /// Dispatches that the host may still refuse, or fail.
    pub refusals_left: u32,
    pub failures_left: u32,
    /// What was reached: ends of jobs, parked tickets.
    pub milestones: BTreeMap<String, u64>,
}

impl ModelTicket {
    /// Whether it asks for a run: by its trigger, or by a plan that was made for it.
    fn flagged(&self) -> bool {
        let asks = self.labels.contains(TRIGGER) || self.marker() == Some("Plan-Complete");
        !self.deleted && !self.closed && asks
    }

    /// The marker that is furthest on.
    fn marker(&self) -> Option<&'static str> {
        let furthest = [
            "Ready for Review",
            "Agent-Working",
            "Plan-Complete",
            "Agent-Planning",
        ];
        furthest
            .into_iter()
            .find(|label| self.labels.contains(label))
    }

    pub fn apply_marker_change(&mut self, moved: MarkerChange) {
        self.labels
            .retain(|label| !(OURS.contains(label) || moved.failed && *label == TRIGGER));
        self.labels.extend(moved.on);
    }

    pub fn queue_marker_change(&mut self, on: Option<&'static str>, failed: bool) {
        self.pending_markers.push_back(MarkerChange { on, failed });
    }

    pub fn expect_comment(&mut self, text: impl Into<String>) {
        self.comments.push(ExpectedComment(text.into(), false));
    }

    fn deduped(&self, now: u64) -> bool {
        self.deduped_at.is_some_and(|since| now < since + DAY)
    }
}

impl ModelRun {
    pub fn is_active(&self) -> bool {
        matches!(self.status, "unknown" | "dispatched" | "running")
    }

    pub fn is_for_ticket(&self) -> bool {
        self.kind != ModelJobKind::GapFill
    }
}

impl ReferenceModel {
    pub fn has_active_run(&self, ticket: usize) -> bool {
        self.runs
            .values()
            .any(|run| run.ticket == ticket && run.is_active())
    }

    pub fn deduped_keys(&self) -> BTreeSet<&str> {
        let held = self
            .tickets
            .iter()
            .filter(|ticket| ticket.deduped(self.now));
        held.map(|ticket| ticket.key.as_str()).collect()
    }

    /// How many tickets of a team are in progress, by their markers and by their jobs.
    pub fn in_progress(&self, team: usize) -> usize {
        let busy = |(at, ticket): &(usize, &ModelTicket)| {
            let marked = matches!(ticket.marker(), Some("Agent-Working" | "Agent-Planning"));
            let works =
                |run: &ModelRun| run.ticket == *at && run.is_active() && run.is_for_ticket();
            ticket.team == team
                && (self.runs.values().any(works) || (marked && !ticket.deleted && !ticket.closed))
        };
        self.tickets.iter().enumerate().filter(busy).count()
    }

    /// What may be told of a flagged ticket when all is quiet; more than one when several hold.
    pub fn possible_outcomes(&self, at: usize) -> Vec<&'static str> {
        let (ticket, team) = (&self.tickets[at], &self.teams[self.tickets[at].team]);
        if self.has_active_run(at) {
            return vec!["in-progress"];
        }
        if ticket.marker() == Some("Ready for Review") {
            return vec!["done"];
        }
        let holds = [
            (!team.mapped, "no-mapping"),
            (team.mapped && team.paused, "paused"),
            (ticket.blocked, "blocked"),
            (ticket.parked.is_some(), "parked"),
            (ticket.deduped(self.now), "dedup"),
            (
                team.mapped && self.in_progress(ticket.team) >= team.max_in_progress as usize,
                "concurrency",
            ),
        ];
        holds
            .into_iter()
            .filter(|(held, _)| *held)
            .map(|(_, reason)| reason)
            .collect()
    }

    /// A job that nobody had seen: was it to begin?
    fn begins(&mut self, id: &str, job: &ObservedJob, polled: bool, asked: bool) -> ModelResult {
        let (ticket, team) = (
            &self.tickets[job.ticket],
            &self.teams[self.tickets[job.ticket].team],
        );
        let fits = match job.kind {
            ModelJobKind::Planning => team.planning_enabled && ticket.marker().is_none(),
            ModelJobKind::Implementation if team.planning_enabled => {
                ticket.marker() == Some("Plan-Complete")
            }
            ModelJobKind::Implementation => matches!(ticket.marker(), None | Some("Plan-Complete")),
            ModelJobKind::GapFill => asked && ticket.pull_known && !ticket.merged,
        };
        let queued = polled
            && ticket.flagged()
            && !ticket.blocked
            && ticket.parked.is_none()
            && !ticket.deduped(self.now);
        let may = fits && team.mapped && !team.paused && !self.has_active_run(job.ticket);
        if !may || !(queued || job.kind == ModelJobKind::GapFill) {
            return Err(format!("{job:?} must not begin\n{ticket:#?}\n{team:?}"));
        }
        let (team_at, now) = (ticket.team, self.now);
        let on_team = |run: &&ModelRun| {
            run.is_active() && run.is_for_ticket() && self.tickets[run.ticket].team == team_at
        };
        let active = self.runs.values().filter(on_team).count();
        if job.kind != ModelJobKind::GapFill
            && active >= self.teams[team_at].max_in_progress as usize
        {
            return Err(format!("{job:?} is one too many beside {active}"));
        }
        if job.kind != ModelJobKind::GapFill {
            self.tickets[job.ticket].deduped_at = Some(now);
        }
        let run = ModelRun {
            ticket: job.ticket,
            kind: job.kind,
            status: "unknown",
            began_at: now,
            dispatched_at: None,
            reported: false,
            reported_outcome: None,
            hosted_at: None,
            host_end: None,
            end_seen_at: None,
        };
        self.runs.insert(id.to_owned(), run);
        Ok(())
    }

    /// Everything that is to be seen after a step of the engine or of anybody else.
    pub fn check_jobs(
        &mut self,
        jobs: &BTreeMap<String, ObservedJob>,
        polled: bool,
        asked: bool,
    ) -> ModelResult {
        // Who ended gives way only to what a later poll begins.
        let fresh = jobs.iter().filter(|(id, _)| !self.runs.contains_key(*id));
        for (id, job) in fresh.collect::<Vec<_>>() {
            self.begins(id, job, polled, asked)?;
        }
        for (id, run) in &self.runs {
            let job = jobs
                .get(id)
                .ok_or_else(|| format!("{id} is lost: {run:?}"))?;
            let rank = |status| match status {
                "unknown" => 0,
                "dispatched" => 1,
                "running" => 2,
                _ => 3,
            };
            let moves_on = job.status == run.status
                || (run.is_active() && rank(job.status) > rank(run.status));
            if !moves_on {
                return Err(format!("{id} went from {} to {}", run.status, job.status));
            }
            if run.reported_outcome.is_some() && rank(job.status) < 3 {
                return Err(format!("{id} told its result and goes on: {job:?}"));
            }
        }
        for (id, job) in jobs {
            self.advances(id, job, polled)?;
        }
        Ok(())
    }

    fn advances(&mut self, id: &str, job: &ObservedJob, polled: bool) -> ModelResult {
        let (now, at) = (self.now, job.ticket);
        let run = self.runs.get_mut(id).ok_or("no such run")?;
        let was_active = run.is_active();
        run.status = job.status;
        if job.dispatched && run.dispatched_at.is_none() {
            run.dispatched_at = Some(now);
            match run.kind {
                ModelJobKind::Planning => {
                    self.tickets[at].queue_marker_change(Some("Agent-Planning"), false)
                }
                ModelJobKind::Implementation => {
                    self.tickets[at].queue_marker_change(Some("Agent-Working"), false)
                }
                ModelJobKind::GapFill => {}
            }
        }
        if was_active && !self.runs[id].is_active() {
            let end = self.classify_end(id, job, polled)?;
            let name = match &end {
                JobEnd::Failed { counts: false, .. } => "failed, not counted",
                JobEnd::Cancelled => "failed, cancelled",
                _ => job.status,
            };
            let name = format!("{:?} {name} {}", job.kind, job.timeout.unwrap_or_default());
            *self.milestones.entry(name.trim().to_owned()).or_default() += 1;
            self.apply_end(id, job, end);
        }
        Ok(())
    }

    /// The host tells that the pull request was merged: the ticket may run again.
    pub fn record_merge(&mut self, at: usize) {
        let ticket = &mut self.tickets[at];
        if ticket.pull_known && !ticket.merged {
            (ticket.merged, ticket.deduped_at) = (true, None);
        }
    }

    /// The operator releases a ticket; whether there was anything to release.
    pub fn unpark(&mut self, at: usize) -> bool {
        let ticket = &mut self.tickets[at];
        let Some(kind) = ticket.parked.take() else {
            return false;
        };
        ticket.failures.remove(&kind);
        true
    }

    /// A run reports its result: the status that it is answered, and what that means.
    pub fn report_result(&mut self, id: &str, told: ReportedOutcome) -> Result<u16, String> {
        let now = self.now;
        let run = self.runs.get_mut(id).ok_or("a result of no run")?;
        if run.hosted_at.is_some_and(|at| now >= at + TOKEN_LIFE) {
            return Ok(401);
        }
        if run.reported {
            return Ok(409);
        }
        run.reported = true;
        run.reported_outcome = run.is_active().then_some(told);
        Ok(200)
    }

    /// The service has looked at all runs that it knows to be under way.
    pub fn record_watch(&mut self) {
        let now = self.now;
        for run in self
            .runs
            .values_mut()
            .filter(|run| run.is_active() && run.dispatched_at.is_some())
        {
            run.end_seen_at = run.end_seen_at.or(run.host_end.map(|_| now));
        }
    }

    /// What must not be left when everything is quiet.
    pub fn check_quiescent(&self) -> ModelResult {
        for (id, run) in self.runs.iter().filter(|(_, run)| run.is_active()) {
            let past = |since: Option<u64>, span| since.is_some_and(|at| self.now >= at + span);
            let ticket = &self.tickets[run.ticket];
            let wrongs = [
                (run.dispatched_at.is_none(), "was never dispatched"),
                (
                    run.end_seen_at.is_none() && past(run.dispatched_at, JOB_TIMEOUT),
                    "is over its budget",
                ),
                (past(run.end_seen_at, REPORT_GRACE), "has ended long ago"),
                (
                    run.hosted_at.is_none() && past(run.dispatched_at, LINK_TIMEOUT),
                    "has no run",
                ),
                (
                    run.is_for_ticket() && (ticket.closed || ticket.deleted),
                    "works for a closed ticket",
                ),
            ];
            if let Some((_, why)) = wrongs.iter().find(|(holds, _)| *holds) {
                return Err(format!("{id} {why}: {run:?}"));
            }
        }
        for (at, ticket) in self.tickets.iter().enumerate() {
            let waits = ticket.flagged() && !self.has_active_run(at);
            if waits && self.possible_outcomes(at).is_empty() {
                return Err(format!("{} waits for nothing: {ticket:#?}", ticket.key));
            }
        }
        Ok(())
    }
}
