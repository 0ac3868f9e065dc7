//! Reference model of the service, written from the specification alone and as simple as possible.
//!
//! It receives the actions of users, the operator and the runs. After every step it checks whether the
//! observed jobs are a possible consequence. Where the engine decides the moment, any moment is valid
//! until everything is quiescent.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::event::{Conclusion, ReportedOutcome};
use super::job_end::JobEnd;

/// Number of live tickets; the last ones belong to the team with planning.
pub const SLOTS: usize = 5;
pub const TRIGGER: &str = "Agent-Implement";
const OUR_LABELS: [&str; 4] = [
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
/// Timeout after which the host ends a run, and the service's timeout including its grace period.
pub const RUN_TIMEOUT: u64 = 90 * MINUTE;
pub const JOB_TIMEOUT: u64 = RUN_TIMEOUT + 5 * MINUTE;
/// Maximum delay until the start of a run is noticed.
pub const START_DETECTION_LIMIT: u64 = 2 * MINUTE;
pub const REPORT_GRACE: u64 = 2 * MINUTE;
/// Lifetime of a run's tokens: job timeout, time to find the run, and 15 minutes for late reports.
const TOKEN_LIFETIME: u64 = JOB_TIMEOUT + LINK_TIMEOUT + 15 * MINUTE;

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
    /// Current labels, as far as marker changes have been applied.
    pub labels: BTreeSet<&'static str>,
    /// Marker changes that are still queued, oldest first.
    pub pending_markers: VecDeque<MarkerChange>,
    pub comments: Vec<ExpectedComment>,
    pub failures: BTreeMap<ModelJobKind, u32>,
    pub parked: Option<ModelJobKind>,
    pub deduped_at: Option<u64>,
    /// Pull request on the ticket's branch, and whether the service knows that one of its jobs opened
    /// it.
    pub pull: Option<u64>,
    pub pull_known: bool,
    pub merged: bool,
    /// Gap fills that an operator retried and that have not started yet.
    pub retried_gap_fills: u32,
}

/// Sets one marker and removes our others. A failure removes the trigger label as well.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MarkerChange {
    on: Option<&'static str>,
    failed: bool,
}

/// Prefix of a comment, and whether the comment is optional because it depends on a log.
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
    /// Outcome just reported, until the job is seen to have ended.
    pub reported_outcome: Option<ReportedOutcome>,
    /// Time at which the host first listed the run, and how and when it ended there.
    pub hosted_at: Option<u64>,
    pub host_end: Option<(Conclusion, u64)>,
    /// Time at which the service first checked the run after that.
    pub end_seen_at: Option<u64>,
    /// Whether the run implements a completed plan.
    pub from_plan: bool,
    /// Whether an operator cancelled the run, and with a retry.
    pub cancelled: Option<bool>,
}

/// Job as the service shows it.
#[derive(Debug, Clone)]
pub struct ObservedJob {
    pub ticket: usize,
    pub kind: ModelJobKind,
    pub status: &'static str,
    pub timeout: Option<&'static str>,
    pub reason: String,
    pub dispatched: bool,
    pub linked: bool,
    /// Whether the job has a pull request.
    pub has_pull: bool,
}

#[derive(Debug, Default)]
pub struct ReferenceModel {
    pub now: u64,
    pub teams: Vec<ModelTeam>,
    pub tickets: Vec<ModelTicket>,
    pub runs: BTreeMap<String, ModelRun>,
    /// Dispatches that the host may still reject or fail.
    pub refusals_left: u32,
    pub failures_left: u32,
    /// Counts of job ends and parked tickets.
    pub milestones: BTreeMap<String, u64>,
}

impl ModelTicket {
    /// Whether the ticket requests a run, by its trigger or by a completed plan.
    fn flagged(&self) -> bool {
        let requests_run = self.labels.contains(TRIGGER) || self.marker() == Some("Plan-Complete");
        !self.deleted && !self.closed && requests_run
    }

    /// Most advanced marker of the ticket.
    fn marker(&self) -> Option<&'static str> {
        let by_progress = [
            "Ready for Review",
            "Agent-Working",
            "Plan-Complete",
            "Agent-Planning",
        ];
        by_progress
            .into_iter()
            .find(|label| self.labels.contains(label))
    }

    pub fn apply_marker_change(&mut self, change: MarkerChange) {
        self.labels
            .retain(|label| !(OUR_LABELS.contains(label) || change.failed && *label == TRIGGER));
        self.labels.extend(change.on);
    }

    pub fn queue_marker_change(&mut self, on: Option<&'static str>, failed: bool) {
        self.pending_markers.push_back(MarkerChange { on, failed });
    }

    /// Sets the trigger again, and the completed plan if the run was for one.
    pub fn queue_retry(&mut self, from_plan: bool) {
        self.queue_marker_change(Some(TRIGGER), false);
        if from_plan {
            self.queue_marker_change(Some("Plan-Complete"), false);
        }
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

    /// Number of tickets of a team in progress, by their markers and jobs.
    pub fn in_progress(&self, team: usize) -> usize {
        let is_in_progress = |(at, ticket): &(usize, &ModelTicket)| {
            let has_marker = matches!(ticket.marker(), Some("Agent-Working" | "Agent-Planning"));
            let is_working =
                |run: &ModelRun| run.ticket == *at && run.is_active() && run.is_for_ticket();
            ticket.team == team
                && (self.runs.values().any(is_working)
                    || (has_marker && !ticket.deleted && !ticket.closed))
        };
        self.tickets
            .iter()
            .enumerate()
            .filter(is_in_progress)
            .count()
    }

    /// Reasons that may be shown for a labelled ticket when the system is quiescent; several if more
    /// than one applies.
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

    /// Checks whether a newly seen job was allowed to start.
    fn check_start(
        &mut self,
        id: &str,
        job: &ObservedJob,
        polled: bool,
        gap_fill_requested: bool,
    ) -> ModelResult {
        let (ticket, team) = (
            &self.tickets[job.ticket],
            &self.teams[self.tickets[job.ticket].team],
        );
        let kind_allowed = match job.kind {
            ModelJobKind::Planning => team.planning_enabled && ticket.marker().is_none(),
            ModelJobKind::Implementation if team.planning_enabled => {
                ticket.marker() == Some("Plan-Complete")
            }
            ModelJobKind::Implementation => matches!(ticket.marker(), None | Some("Plan-Complete")),
            ModelJobKind::GapFill => {
                let requested = gap_fill_requested || ticket.retried_gap_fills > 0;
                requested && ticket.pull_known && !ticket.merged
            }
        };
        let queued = polled
            && ticket.flagged()
            && !ticket.blocked
            && ticket.parked.is_none()
            && !ticket.deduped(self.now);
        let may_start =
            kind_allowed && team.mapped && !team.paused && !self.has_active_run(job.ticket);
        if !may_start || !(queued || job.kind == ModelJobKind::GapFill) {
            return Err(format!("{job:?} must not start\n{ticket:#?}\n{team:?}"));
        }
        let (team_at, now) = (ticket.team, self.now);
        let on_team = |run: &&ModelRun| {
            run.is_active() && run.is_for_ticket() && self.tickets[run.ticket].team == team_at
        };
        let active = self.runs.values().filter(on_team).count();
        if job.kind != ModelJobKind::GapFill
            && active >= self.teams[team_at].max_in_progress as usize
        {
            return Err(format!("{job:?} exceeds the limit beside {active} active"));
        }
        let ticket = &mut self.tickets[job.ticket];
        let from_plan = ticket.marker() == Some("Plan-Complete");
        if job.kind != ModelJobKind::GapFill {
            ticket.deduped_at = Some(now);
        } else if !gap_fill_requested {
            ticket.retried_gap_fills -= 1;
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
            from_plan,
            cancelled: None,
        };
        self.runs.insert(id.to_owned(), run);
        Ok(())
    }

    /// Checks everything observable after a step.
    pub fn check_jobs(
        &mut self,
        jobs: &BTreeMap<String, ObservedJob>,
        polled: bool,
        gap_fill_requested: bool,
    ) -> ModelResult {
        // New jobs come first: an ended job makes room only for jobs of a later poll.
        let new_jobs = jobs.iter().filter(|(id, _)| !self.runs.contains_key(*id));
        for (id, job) in new_jobs.collect::<Vec<_>>() {
            self.check_start(id, job, polled, gap_fill_requested)?;
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
            let is_forward = job.status == run.status
                || (run.is_active() && rank(job.status) > rank(run.status));
            if !is_forward {
                return Err(format!("{id} went from {} to {}", run.status, job.status));
            }
            if run.reported_outcome.is_some() && rank(job.status) < 3 {
                return Err(format!(
                    "{id} reported its result and is still active: {job:?}"
                ));
            }
        }
        for (id, job) in jobs {
            self.apply_progress(id, job, polled)?;
        }
        Ok(())
    }

    fn apply_progress(&mut self, id: &str, job: &ObservedJob, polled: bool) -> ModelResult {
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
                JobEnd::CancelledByOperator { retry: true } => "failed, cancelled with retry",
                JobEnd::CancelledByOperator { retry: false } => "failed, cancelled for good",
                _ => job.status,
            };
            let name = format!("{:?} {name} {}", job.kind, job.timeout.unwrap_or_default());
            *self.milestones.entry(name.trim().to_owned()).or_default() += 1;
            self.apply_end(id, job, end);
        }
        Ok(())
    }

    /// Records that the pull request was merged, so that the ticket may run again.
    pub fn record_merge(&mut self, at: usize) {
        let ticket = &mut self.tickets[at];
        if ticket.pull_known && !ticket.merged {
            (ticket.merged, ticket.deduped_at) = (true, None);
        }
    }

    /// Releases a parked ticket and returns whether it was parked.
    pub fn unpark(&mut self, at: usize) -> bool {
        let ticket = &mut self.tickets[at];
        let Some(kind) = ticket.parked.take() else {
            return false;
        };
        ticket.failures.remove(&kind);
        true
    }

    /// Records the result of a run and returns the expected response status.
    pub fn report_result(&mut self, id: &str, outcome: ReportedOutcome) -> Result<u16, String> {
        let now = self.now;
        let run = self.runs.get_mut(id).ok_or("result of an unknown run")?;
        if run.hosted_at.is_some_and(|at| now >= at + TOKEN_LIFETIME) {
            return Ok(401);
        }
        if run.reported {
            return Ok(409);
        }
        run.reported = true;
        run.reported_outcome = run.is_active().then_some(outcome);
        Ok(200)
    }

    /// Records that the service has checked all runs that it knows to be active.
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

    /// Checks that nothing is left undone when the system is quiescent.
    pub fn check_quiescent(&self) -> ModelResult {
        for (id, run) in self.runs.iter().filter(|(_, run)| run.is_active()) {
            let elapsed = |since: Option<u64>, span| since.is_some_and(|at| self.now >= at + span);
            let ticket = &self.tickets[run.ticket];
            let violations = [
                (run.dispatched_at.is_none(), "was never dispatched"),
                (
                    run.end_seen_at.is_none() && elapsed(run.dispatched_at, JOB_TIMEOUT),
                    "exceeded its timeout",
                ),
                (elapsed(run.end_seen_at, REPORT_GRACE), "ended long ago"),
                (
                    run.hosted_at.is_none() && elapsed(run.dispatched_at, LINK_TIMEOUT),
                    "has no run",
                ),
                (
                    run.is_for_ticket() && (ticket.closed || ticket.deleted),
                    "works for a closed ticket",
                ),
            ];
            if let Some((_, why)) = violations.iter().find(|(holds, _)| *holds) {
                return Err(format!("{id} {why}: {run:?}"));
            }
        }
        for (at, ticket) in self.tickets.iter().enumerate() {
            let is_waiting = ticket.flagged() && !self.has_active_run(at);
            if is_waiting && self.possible_outcomes(at).is_empty() {
                return Err(format!(
                    "{} waits without a reason: {ticket:#?}",
                    ticket.key
                ));
            }
        }
        Ok(())
    }
}
