//! What the service should do, written from its specification alone and kept as plain as it can be.
//!
//! It is told what people, the operator and the runs did. It is shown the jobs after every step and
//! says whether what it sees could have come of that; where the moment is the engine's, any is good
//! until everything is quiet.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::ends::End;
use super::event::{Conclusion, Told};

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
pub const BREAKER: u32 = 3;
pub const LINKED_WITHIN: u64 = 10 * MINUTE;
/// What a run has, after which its host ends it; and what it has with our grace.
pub const TIME: u64 = 90 * MINUTE;
pub const BUDGET: u64 = TIME + 5 * MINUTE;
/// How late its start is noticed, at most.
pub const SEEN_WITHIN: u64 = 2 * MINUTE;
pub const REPORT_GRACE: u64 = 2 * MINUTE;
/// From the start: the budget, the time to be found, and a quarter of an hour for late words.
const TOKEN_LIFE: u64 = BUDGET + LINKED_WITHIN + 15 * MINUTE;

pub type Verdict = Result<(), String>;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Planning,
    Implementation,
    GapFill,
}

#[derive(Debug)]
pub struct Team {
    pub mapped: bool,
    pub paused: bool,
    pub plans: bool,
    pub cap: u32,
}

#[derive(Debug, Default)]
pub struct Ticket {
    pub key: String,
    pub team: usize,
    pub gone: bool,
    pub closed: bool,
    pub blocked: bool,
    /// What it shows now, as far as what was owed to it has arrived.
    pub labels: BTreeSet<&'static str>,
    /// Markers that it is still to be given, oldest first.
    pub moves: VecDeque<Move>,
    pub said: Vec<Said>,
    pub failures: BTreeMap<Kind, u32>,
    pub parked: Option<Kind>,
    pub dedup: Option<u64>,
    /// The pull request on its branch, and whether a job of ours is known to have opened it.
    pub pull: Option<u64>,
    pub pull_known: bool,
    pub merged: bool,
}

/// Puts one marker on, takes our others off; a failure takes the trigger off, too.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Move {
    on: Option<&'static str>,
    failed: bool,
}

/// A comment, by how it begins. What depends on a log may be left out.
#[derive(Debug)]
pub struct Said(pub String, pub bool);

#[derive(Debug)]
pub struct Run {
    pub ticket: usize,
    pub kind: Kind,
    pub status: &'static str,
    pub began: u64,
    pub dispatched: Option<u64>,
    pub reported: bool,
    /// What it has just told, until it is seen to have ended.
    pub told: Option<Told>,
    /// When the host has first shown it, and how and when it ended there.
    pub hosted: Option<u64>,
    pub host_end: Option<(Conclusion, u64)>,
    /// When the service has looked at it after that for the first time.
    pub end_seen: Option<u64>,
}

/// A job as the service shows it.
#[derive(Debug, Clone)]
pub struct Job {
    pub ticket: usize,
    pub kind: Kind,
    pub status: &'static str,
    pub timeout: Option<&'static str>,
    pub reason: String,
    pub dispatched: bool,
    pub linked: bool,
    /// Whether it names a pull request.
    pub pulled: bool,
}

#[derive(Debug, Default)]
pub struct Reference {
    pub now: u64,
    pub teams: Vec<Team>,
    pub tickets: Vec<Ticket>,
    pub runs: BTreeMap<String, Run>,
    /// Dispatches that the host may still refuse, or fail.
    pub refusals: u32,
    pub failures: u32,
    /// What was reached: ends of jobs, parked tickets.
    pub reached: BTreeMap<String, u64>,
}

impl Ticket {
    /// Whether it asks for a run: by its trigger, or by a plan that was made for it.
    fn flagged(&self) -> bool {
        let asks = self.labels.contains(TRIGGER) || self.marker() == Some("Plan-Complete");
        !self.gone && !self.closed && asks
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

    pub fn arrive(&mut self, moved: Move) {
        self.labels
            .retain(|label| !(OURS.contains(label) || moved.failed && *label == TRIGGER));
        self.labels.extend(moved.on);
    }

    pub fn owe(&mut self, on: Option<&'static str>, failed: bool) {
        self.moves.push_back(Move { on, failed });
    }

    pub fn say(&mut self, text: impl Into<String>) {
        self.said.push(Said(text.into(), false));
    }

    fn deduped(&self, now: u64) -> bool {
        self.dedup.is_some_and(|since| now < since + DAY)
    }
}

impl Run {
    pub fn active(&self) -> bool {
        matches!(self.status, "unknown" | "dispatched" | "running")
    }

    pub fn on_ticket(&self) -> bool {
        self.kind != Kind::GapFill
    }
}

impl Reference {
    pub fn active(&self, ticket: usize) -> bool {
        self.runs
            .values()
            .any(|run| run.ticket == ticket && run.active())
    }

    pub fn deduped(&self) -> BTreeSet<&str> {
        let held = self
            .tickets
            .iter()
            .filter(|ticket| ticket.deduped(self.now));
        held.map(|ticket| ticket.key.as_str()).collect()
    }

    /// How many tickets of a team are in progress, by their markers and by their jobs.
    pub fn in_progress(&self, team: usize) -> usize {
        let busy = |(at, ticket): &(usize, &Ticket)| {
            let marked = matches!(ticket.marker(), Some("Agent-Working" | "Agent-Planning"));
            let works = |run: &Run| run.ticket == *at && run.active() && run.on_ticket();
            ticket.team == team
                && (self.runs.values().any(works) || (marked && !ticket.gone && !ticket.closed))
        };
        self.tickets.iter().enumerate().filter(busy).count()
    }

    /// What may be told of a flagged ticket when all is quiet; more than one when several hold.
    pub fn verdicts(&self, at: usize) -> Vec<&'static str> {
        let (ticket, team) = (&self.tickets[at], &self.teams[self.tickets[at].team]);
        if self.active(at) {
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
                team.mapped && self.in_progress(ticket.team) >= team.cap as usize,
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
    fn begins(&mut self, id: &str, job: &Job, polled: bool, asked: bool) -> Verdict {
        let (ticket, team) = (
            &self.tickets[job.ticket],
            &self.teams[self.tickets[job.ticket].team],
        );
        let fits = match job.kind {
            Kind::Planning => team.plans && ticket.marker().is_none(),
            Kind::Implementation if team.plans => ticket.marker() == Some("Plan-Complete"),
            Kind::Implementation => matches!(ticket.marker(), None | Some("Plan-Complete")),
            Kind::GapFill => asked && ticket.pull_known && !ticket.merged,
        };
        let queued = polled
            && ticket.flagged()
            && !ticket.blocked
            && ticket.parked.is_none()
            && !ticket.deduped(self.now);
        let may = fits && team.mapped && !team.paused && !self.active(job.ticket);
        if !may || !(queued || job.kind == Kind::GapFill) {
            return Err(format!("{job:?} must not begin\n{ticket:#?}\n{team:?}"));
        }
        let (team_at, now) = (ticket.team, self.now);
        let on_team = |run: &&Run| {
            run.active() && run.on_ticket() && self.tickets[run.ticket].team == team_at
        };
        let active = self.runs.values().filter(on_team).count();
        if job.kind != Kind::GapFill && active >= self.teams[team_at].cap as usize {
            return Err(format!("{job:?} is one too many beside {active}"));
        }
        if job.kind != Kind::GapFill {
            self.tickets[job.ticket].dedup = Some(now);
        }
        let run = Run {
            ticket: job.ticket,
            kind: job.kind,
            status: "unknown",
            began: now,
            dispatched: None,
            reported: false,
            told: None,
            hosted: None,
            host_end: None,
            end_seen: None,
        };
        self.runs.insert(id.to_owned(), run);
        Ok(())
    }

    /// Everything that is to be seen after a step of the engine or of anybody else.
    pub fn observe(&mut self, jobs: &BTreeMap<String, Job>, polled: bool, asked: bool) -> Verdict {
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
            let moves_on =
                job.status == run.status || (run.active() && rank(job.status) > rank(run.status));
            if !moves_on {
                return Err(format!("{id} went from {} to {}", run.status, job.status));
            }
            if run.told.is_some() && rank(job.status) < 3 {
                return Err(format!("{id} told its result and goes on: {job:?}"));
            }
        }
        for (id, job) in jobs {
            self.advances(id, job, polled)?;
        }
        Ok(())
    }

    fn advances(&mut self, id: &str, job: &Job, polled: bool) -> Verdict {
        let (now, at) = (self.now, job.ticket);
        let run = self.runs.get_mut(id).ok_or("no such run")?;
        let was_active = run.active();
        run.status = job.status;
        if job.dispatched && run.dispatched.is_none() {
            run.dispatched = Some(now);
            match run.kind {
                Kind::Planning => self.tickets[at].owe(Some("Agent-Planning"), false),
                Kind::Implementation => self.tickets[at].owe(Some("Agent-Working"), false),
                Kind::GapFill => {}
            }
        }
        if was_active && !self.runs[id].active() {
            let end = self.end(id, job, polled)?;
            let name = match &end {
                End::Failed { counts: false, .. } => "failed, not counted",
                End::Cancelled => "failed, cancelled",
                _ => job.status,
            };
            let name = format!("{:?} {name} {}", job.kind, job.timeout.unwrap_or_default());
            *self.reached.entry(name.trim().to_owned()).or_default() += 1;
            self.ends(id, job, end);
        }
        Ok(())
    }

    /// The host tells that the pull request was merged: the ticket may run again.
    pub fn merges(&mut self, at: usize) {
        let ticket = &mut self.tickets[at];
        if ticket.pull_known && !ticket.merged {
            (ticket.merged, ticket.dedup) = (true, None);
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
    pub fn reports(&mut self, id: &str, told: Told) -> Result<u16, String> {
        let now = self.now;
        let run = self.runs.get_mut(id).ok_or("a result of no run")?;
        if run.hosted.is_some_and(|at| now >= at + TOKEN_LIFE) {
            return Ok(401);
        }
        if run.reported {
            return Ok(409);
        }
        run.reported = true;
        run.told = run.active().then_some(told);
        Ok(200)
    }

    /// The service has looked at all runs that it knows to be under way.
    pub fn watched(&mut self) {
        let now = self.now;
        for run in self
            .runs
            .values_mut()
            .filter(|run| run.active() && run.dispatched.is_some())
        {
            run.end_seen = run.end_seen.or(run.host_end.map(|_| now));
        }
    }

    /// What must not be left when everything is quiet.
    pub fn at_rest(&self) -> Verdict {
        for (id, run) in self.runs.iter().filter(|(_, run)| run.active()) {
            let past = |since: Option<u64>, span| since.is_some_and(|at| self.now >= at + span);
            let ticket = &self.tickets[run.ticket];
            let wrongs = [
                (run.dispatched.is_none(), "was never dispatched"),
                (
                    run.end_seen.is_none() && past(run.dispatched, BUDGET),
                    "is over its budget",
                ),
                (past(run.end_seen, REPORT_GRACE), "has ended long ago"),
                (
                    run.hosted.is_none() && past(run.dispatched, LINKED_WITHIN),
                    "has no run",
                ),
                (
                    run.on_ticket() && (ticket.closed || ticket.gone),
                    "works for a closed ticket",
                ),
            ];
            if let Some((_, why)) = wrongs.iter().find(|(holds, _)| *holds) {
                return Err(format!("{id} {why}: {run:?}"));
            }
        }
        for (at, ticket) in self.tickets.iter().enumerate() {
            let waits = ticket.flagged() && !self.active(at);
            if waits && self.verdicts(at).is_empty() {
                return Err(format!("{} waits for nothing: {ticket:#?}", ticket.key));
            }
        }
        Ok(())
    }
}
