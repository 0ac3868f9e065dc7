//! Ends of a job according to the specification: which ends are allowed, and their effects on the
//! ticket.

use super::event::{Conclusion, ReportedOutcome};
use super::reference::{
    DAY, ExpectedComment, JOB_TIMEOUT, LINK_TIMEOUT, MAX_FAILURES, ModelJobKind, ObservedJob,
    REPORT_GRACE, RUN_TIMEOUT, ReferenceModel, START_DETECTION_LIMIT,
};

impl ReferenceModel {
    /// Determines the end of a job, or fails if the observed end is not allowed.
    pub fn classify_end(
        &mut self,
        id: &str,
        job: &ObservedJob,
        polled: bool,
    ) -> Result<JobEnd, String> {
        let (run, ticket) = (&self.runs[id], &self.tickets[job.ticket]);
        let elapsed =
            |since: Option<u64>, span| since.is_some_and(|since| self.now >= since + span);
        let failed = |counts| JobEnd::Failed {
            counts,
            label: "session_failed",
        };
        let unstarted = run.dispatched_at.is_none();
        let silent = run
            .host_end
            .filter(|(_, at)| elapsed(Some(*at), REPORT_GRACE))
            .map(|(conclusion, _)| conclusion);
        // Ended by its host at about the timeout. The model does not know when the service saw the run
        // start.
        let seen_at_its_end = run.end_seen_at.is_some_and(|at| {
            run.dispatched_at
                .is_some_and(|since| at + START_DETECTION_LIMIT >= since + RUN_TIMEOUT)
        });
        let cut_off = silent == Some(Conclusion::Cancelled) && seen_at_its_end;
        let from_conclusion = silent.map(|conclusion| match (conclusion, run.kind) {
            (Conclusion::Success, ModelJobKind::GapFill) => JobEnd::Completed,
            (Conclusion::Success, ModelJobKind::Implementation) if ticket.pull.is_some() => {
                JobEnd::Completed
            }
            (Conclusion::Success, ModelJobKind::Implementation) => JobEnd::Failed {
                counts: true,
                label: "pr_not_found",
            },
            (Conclusion::Success, ModelJobKind::Planning) | (Conclusion::Failure, _) => {
                failed(true)
            }
            (Conclusion::Cancelled, _) => failed(false),
            (Conclusion::TimedOut, _) => JobEnd::TimedOut("timed_out"),
        });
        let reported = run.reported_outcome.map(|reported| match reported {
            ReportedOutcome::Done => JobEnd::Completed,
            ReportedOutcome::DoneWithFindings | ReportedOutcome::Unapproved => JobEnd::ReviewFailed,
            ReportedOutcome::Failed => failed(true),
            ReportedOutcome::InfrastructureFailure => failed(false),
        });
        let ticket_gone = polled && run.is_for_ticket() && (ticket.closed || ticket.deleted);
        // The host has accepted a run that reports, whether or not its answer arrived.
        let refused = unstarted && reported.is_none() && self.refusals_left > 0;
        let given_up = unstarted && self.failures_left > 0 && elapsed(Some(run.began_at), DAY);
        let lost = run.hosted_at.is_none() && elapsed(run.dispatched_at, LINK_TIMEOUT);
        let cancelled = run
            .cancelled
            .map(|retry| JobEnd::CancelledByOperator { retry });
        let candidates = match reported.or(cancelled) {
            Some(end) => vec![end],
            None => [
                from_conclusion,
                cut_off.then_some(JobEnd::TimedOut("timed_out")),
                ticket_gone.then_some(JobEnd::Cancelled),
                refused.then(|| failed(true)),
                given_up.then(|| failed(false)),
                lost.then_some(JobEnd::TimedOut("run_not_found")),
                elapsed(run.dispatched_at, JOB_TIMEOUT).then_some(JobEnd::TimedOut("timed_out")),
            ]
            .into_iter()
            .flatten()
            .collect(),
        };
        let closed = job.reason == "the issue was closed";
        let by_operator = job.reason == "cancelled by an operator";
        let matches_job = |end: &JobEnd| match end {
            JobEnd::Completed => {
                job.status == "completed" && (job.has_pull || job.kind == ModelJobKind::Planning)
            }
            JobEnd::ReviewFailed => job.status == "review_failed" && job.has_pull,
            JobEnd::Failed { .. } => job.status == "failed" && !closed && !by_operator,
            JobEnd::CancelledByOperator { .. } => job.status == "failed" && by_operator,
            JobEnd::Cancelled => job.status == "failed" && closed,
            JobEnd::TimedOut(why) => job.status == "timed_out" && job.timeout == Some(why),
        };
        let end = candidates.iter().position(matches_job);
        let end = end.ok_or_else(|| {
            format!("{job:?} ended unexpectedly; allowed ends: {candidates:?}\n{run:?}\n{ticket:?}")
        })?;
        if refused && matches!(candidates[end], JobEnd::Failed { .. }) {
            self.refusals_left -= 1;
        }
        Ok(candidates[end])
    }

    /// Applies the effects of an end to the ticket.
    pub fn apply_end(&mut self, id: &str, job: &ObservedJob, end: JobEnd) {
        let run = self.runs.get_mut(id).expect("it has ended");
        let reported = run.reported_outcome.take();
        let had_ended = run.host_end.is_some();
        let ticket = &mut self.tickets[job.ticket];
        // A failed run may have left a pull request, too.
        ticket.pull_known |= job.has_pull;
        if job.kind == ModelJobKind::GapFill {
            // A gap fill affects the ticket only by its comments.
            if reported.is_some() {
                ticket.expect_comment(format!("Comment of {id}"));
            }
            if end == (JobEnd::CancelledByOperator { retry: true }) {
                ticket.retried_gap_fills += 1;
            }
            return;
        }
        if !matches!(end, JobEnd::Completed | JobEnd::ReviewFailed)
            || job.kind == ModelJobKind::Planning
        {
            ticket.deduped_at = None;
        }
        match (end, job.kind) {
            (JobEnd::Completed, ModelJobKind::Planning) => {
                ticket.queue_marker_change(Some("Plan-Complete"), false)
            }
            (JobEnd::Completed | JobEnd::ReviewFailed, _) => {
                ticket.queue_marker_change(Some("Ready for Review"), false)
            }
            (JobEnd::Failed { .. } | JobEnd::TimedOut(_), _) => {
                ticket.queue_marker_change(None, true)
            }
            (JobEnd::Cancelled, _) => ticket.queue_marker_change(None, false),
            (JobEnd::CancelledByOperator { retry: true }, _) => {
                ticket.queue_retry(run.from_plan);
            }
            (JobEnd::CancelledByOperator { retry: false }, _) => {
                ticket.queue_marker_change(None, true);
                ticket.expect_comment(format!("{:?} cancelled by an operator", job.kind));
            }
        }
        if reported.is_some() {
            ticket.expect_comment(format!("Comment of {id}"));
        }
        let mut log = None;
        match end {
            JobEnd::Completed | JobEnd::ReviewFailed => {
                ticket.failures.remove(&job.kind);
                if job.kind == ModelJobKind::Implementation {
                    ticket.expect_comment("Pull request opened: ");
                }
                if end == JobEnd::ReviewFailed {
                    ticket.expect_comment("The pull request stays a draft");
                }
            }
            JobEnd::Failed { label, .. } => log = Some(label),
            JobEnd::TimedOut(_) => log = Some("session_failed"),
            JobEnd::Cancelled | JobEnd::CancelledByOperator { .. } => {}
        }
        if matches!(end, JobEnd::Failed { .. } | JobEnd::TimedOut(_)) {
            let why = job.reason.split(':').next().unwrap_or_default();
            ticket.expect_comment(format!("{:?} failed: {why}", job.kind));
        }
        if let Some(label) = log.filter(|_| job.linked) {
            let text = format!("Log excerpt (`{label}`)");
            ticket.comments.push(ExpectedComment(text, !had_ended));
        }
        if matches!(
            end,
            JobEnd::Failed { counts: true, .. } | JobEnd::TimedOut(_)
        ) {
            let failures = ticket.failures.entry(job.kind).or_default();
            *failures += 1;
            if *failures >= MAX_FAILURES && ticket.parked.is_none() {
                ticket.parked = Some(job.kind);
                ticket.expect_comment("Parked after 3 failures in a row");
                *self.milestones.entry("parked".to_owned()).or_default() += 1;
            }
        }
    }
}

/// End of a job, as far as the model distinguishes it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum JobEnd {
    Completed,
    ReviewFailed,
    Failed {
        counts: bool,
        label: &'static str,
    },
    TimedOut(&'static str),
    /// Its issue was closed.
    Cancelled,
    CancelledByOperator {
        retry: bool,
    },
}
