//! The ends of a job, as the specification has them: which one may be seen, and what each means to the
//! ticket.

use super::event::{Conclusion, Told};
use super::reference::{
    BREAKER, BUDGET, DAY, Job, Kind, LINKED_WITHIN, REPORT_GRACE, Reference, SEEN_WITHIN, Said,
    TIME,
};

impl Reference {
    /// Why a job may have ended as it did.
    pub fn end(&mut self, id: &str, job: &Job, polled: bool) -> Result<End, String> {
        let (run, ticket) = (&self.runs[id], &self.tickets[job.ticket]);
        let past = |since: Option<u64>, span| since.is_some_and(|since| self.now >= since + span);
        let failed = |counts| End::Failed {
            counts,
            label: "session_failed",
        };
        let unstarted = run.dispatched.is_none();
        let silent = run
            .host_end
            .filter(|(_, at)| past(Some(*at), REPORT_GRACE))
            .map(|(how, _)| how);
        // Ended by its host about when its time was over; when it was seen to start is not known here.
        let seen_at_its_end = run.end_seen.is_some_and(|at| {
            run.dispatched
                .is_some_and(|since| at + SEEN_WITHIN >= since + TIME)
        });
        let cut_off = silent == Some(Conclusion::Cancelled) && seen_at_its_end;
        let judged = silent.map(|how| match (how, run.kind) {
            (Conclusion::Success, Kind::GapFill) => End::Completed,
            (Conclusion::Success, Kind::Implementation) if ticket.pull.is_some() => End::Completed,
            (Conclusion::Success, Kind::Implementation) => End::Failed {
                counts: true,
                label: "pr_not_found",
            },
            (Conclusion::Success, Kind::Planning) | (Conclusion::Failure, _) => failed(true),
            (Conclusion::Cancelled, _) => failed(false),
            (Conclusion::TimedOut, _) => End::TimedOut("timed_out"),
        });
        let told = run.told.map(|told| match told {
            Told::Done => End::Completed,
            Told::Noted | Told::Unapproved => End::ReviewFailed,
            Told::Failed => failed(true),
            Told::Unavailable => failed(false),
        });
        let is_over = polled && run.on_ticket() && (ticket.closed || ticket.gone);
        let refused = unstarted && self.refusals > 0;
        let given_up = unstarted && self.failures > 0 && past(Some(run.began), DAY);
        let lost = run.hosted.is_none() && past(run.dispatched, LINKED_WITHIN);
        let candidates = match told {
            Some(end) => vec![end],
            None => [
                judged,
                cut_off.then_some(End::TimedOut("timed_out")),
                is_over.then_some(End::Cancelled),
                refused.then(|| failed(true)),
                given_up.then(|| failed(false)),
                lost.then_some(End::TimedOut("run_not_found")),
                past(run.dispatched, BUDGET).then_some(End::TimedOut("timed_out")),
            ]
            .into_iter()
            .flatten()
            .collect(),
        };
        let closed = job.reason == "the issue was closed";
        let looks = |end: &End| match end {
            End::Completed => {
                job.status == "completed" && (job.pulled || job.kind == Kind::Planning)
            }
            End::ReviewFailed => job.status == "review_failed" && job.pulled,
            End::Failed { .. } => job.status == "failed" && !closed,
            End::Cancelled => job.status == "failed" && closed,
            End::TimedOut(why) => job.status == "timed_out" && job.timeout == Some(why),
        };
        let end = candidates.iter().position(looks);
        let end = end.ok_or_else(|| {
            format!("{job:?} must not end so, but as {candidates:?}\n{run:?}\n{ticket:?}")
        })?;
        if refused && matches!(candidates[end], End::Failed { .. }) {
            self.refusals -= 1;
        }
        Ok(candidates[end])
    }

    /// What an end means to the ticket.
    pub fn ends(&mut self, id: &str, job: &Job, end: End) {
        let run = self.runs.get_mut(id).expect("it has ended");
        let told = run.told.take();
        let had_ended = run.host_end.is_some();
        let ticket = &mut self.tickets[job.ticket];
        // A run that failed may have left one, too.
        ticket.pull_known |= job.pulled;
        if job.kind == Kind::GapFill {
            // Its comments are all that the ticket hears of it.
            if told.is_some() {
                ticket.say(format!("Said by {id}"));
            }
            return;
        }
        if !matches!(end, End::Completed | End::ReviewFailed) || job.kind == Kind::Planning {
            ticket.dedup = None;
        }
        match (end, job.kind) {
            (End::Completed, Kind::Planning) => ticket.owe(Some("Plan-Complete"), false),
            (End::Completed | End::ReviewFailed, _) => ticket.owe(Some("Ready for Review"), false),
            (End::Failed { .. } | End::TimedOut(_), _) => ticket.owe(None, true),
            (End::Cancelled, _) => ticket.owe(None, false),
        }
        if told.is_some() {
            ticket.say(format!("Said by {id}"));
        }
        let mut log = None;
        match end {
            End::Completed | End::ReviewFailed => {
                ticket.failures.remove(&job.kind);
                if job.kind == Kind::Implementation {
                    ticket.say("Pull request opened: ");
                }
                if end == End::ReviewFailed {
                    ticket.say("The pull request stays a draft");
                }
            }
            End::Failed { label, .. } => log = Some(label),
            End::TimedOut(_) => log = Some("session_failed"),
            End::Cancelled => {}
        }
        if matches!(end, End::Failed { .. } | End::TimedOut(_)) {
            let why = job.reason.split(':').next().unwrap_or_default();
            ticket.say(format!("{:?} failed: {why}", job.kind));
        }
        if let Some(label) = log.filter(|_| job.linked) {
            let text = format!("Log excerpt (`{label}`)");
            ticket.said.push(Said(text, !had_ended));
        }
        if matches!(end, End::Failed { counts: true, .. } | End::TimedOut(_)) {
            let failures = ticket.failures.entry(job.kind).or_default();
            *failures += 1;
            if *failures >= BREAKER && ticket.parked.is_none() {
                ticket.parked = Some(job.kind);
                ticket.say("Parked after 3 failures in a row");
                *self.reached.entry("parked".to_owned()).or_default() += 1;
            }
        }
    }
}

/// How a job ended, as far as it makes a difference.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum End {
    Completed,
    ReviewFailed,
    Failed { counts: bool, label: &'static str },
    TimedOut(&'static str),
    Cancelled,
}
