//! The ends of a job: the state it is left in, and everything that is owed because of it.

use crate::comments;
use crate::effect::{DraftState, Effect, LogLabel, PullCommentStyle};
use crate::issue::Phase;
use crate::job::{Job, JobKind, JobState, RunHandle, RunnerKind, TimeoutReason};
use crate::report::FailureCode;
use crate::stage::Stage;
use crate::time::Timestamp;

use super::{
    BreakerUpdate, DedupUpdate, FailureKind, PlanUpdate, PlannedEffects, Transition,
    add_session_comment,
};

/// A run that ended and told nothing is judged by the host's word and by what it left behind.
pub(super) fn finish_without_report(
    job: Job,
    conclusion: &str,
    draft: Option<DraftState>,
    now: Timestamp,
) -> Transition {
    let silent = |reason: String| JobFailure::new(None, reason);
    match (conclusion, job.kind) {
        ("success", JobKind::GapFill | JobKind::FollowUp) => complete(job, now),
        // A run opens a draft for one reason: its review left blocking findings open.
        ("success", JobKind::Implementation) if draft == Some(DraftState::Draft) => {
            fail_review(job, Vec::new(), now)
        }
        ("success", JobKind::Implementation) if job.pull.is_some() => complete(job, now),
        ("success", JobKind::Implementation) => fail_without_pull_request(job, None, now),
        ("success", JobKind::Planning) => fail(
            job,
            silent("the run ended without reporting a plan".to_owned()),
            now,
        ),
        ("timed_out", _) => time_out(job, TimeoutReason::TimedOut, now),
        ("cancelled", _) if job.has_reached_host_timeout(now) => {
            time_out(job, TimeoutReason::TimedOut, now)
        }
        ("cancelled", _) => {
            let cancelled = "the run was cancelled at its host".to_owned();
            let ending = JobFailure::new(Some(FailureCode::Cancelled), cancelled);
            fail(job, ending, now)
        }
        (other, _) => {
            let told = match job.runner {
                RunnerKind::Ci => format!("the run ended with conclusion {other}"),
                RunnerKind::Vm | RunnerKind::Local => format!("the session ended with {other}"),
            };
            fail(job, silent(format!("{told} and reported no result")), now)
        }
    }
}

/// A run that did well and left no pull request of its own.
pub(super) fn fail_without_pull_request(
    job: Job,
    why: Option<String>,
    now: Timestamp,
) -> Transition {
    let why = why.unwrap_or_else(|| "the run ended without opening a pull request".to_owned());
    let ending = JobFailure::new(None, why).labelled(LogLabel::PrNotFound);
    fail(job, ending, now)
}

pub(super) fn complete(job: Job, now: Timestamp) -> Transition {
    let (mut job, mut owed) = ended(job, JobState::Completed, now);
    owed.breaker = BreakerUpdate::Reset;
    match job.kind.phase() {
        Some(Phase::Planning) => {
            // Out of the way of the implementation dispatch that follows.
            owed.dedup = DedupUpdate::Clear;
            owed.plan = PlanUpdate::Replace;
            owed.effects.push(Effect::SetMarker {
                issue: job.issue.clone(),
                stage: Stage::PlanComplete,
            });
        }
        Some(Phase::Implementation) => pull_opened(&job, &mut owed),
        None => {}
    }
    close(&mut job, owed)
}

pub(super) fn fail_review(job: Job, unresolved: Vec<String>, now: Timestamp) -> Transition {
    let state = JobState::ReviewFailed {
        unresolved: unresolved.clone(),
    };
    let (mut job, mut owed) = ended(job, state, now);
    owed.breaker = BreakerUpdate::Reset;
    if job.kind.phase() == Some(Phase::Implementation) {
        pull_opened(&job, &mut owed);
        let body = comments::review_unresolved(&unresolved);
        owed.effects.push(Effect::TicketComment {
            issue: job.issue.clone(),
            body,
        });
    }
    close(&mut job, owed)
}

fn pull_opened(job: &Job, owed: &mut PlannedEffects) {
    owed.effects.push(Effect::SetMarker {
        issue: job.issue.clone(),
        stage: Stage::PrOpened,
    });
    if let Some(pull) = &job.pull {
        let body = comments::pull_request_opened(pull);
        owed.effects.push(Effect::TicketComment {
            issue: job.issue.clone(),
            body,
        });
    }
}

/// How a run failed.
pub(super) struct JobFailure {
    code: Option<FailureCode>,
    reason: String,
    cause: FailureKind,
    label: Option<LogLabel>,
    last_words: Option<String>,
}

impl JobFailure {
    pub(super) fn new(code: Option<FailureCode>, reason: String) -> Self {
        let cause = match code {
            Some(
                FailureCode::ProviderUnavailable
                | FailureCode::ProviderLimit
                | FailureCode::Cancelled,
            ) => FailureKind::Transient,
            _ => FailureKind::Permanent,
        };
        Self {
            code,
            reason,
            cause,
            label: None,
            last_words: None,
        }
    }

    /// What the agent said last.
    pub(super) fn with_last_agent_message(self, last_words: Option<String>) -> Self {
        Self { last_words, ..self }
    }

    /// What the excerpt of its log is called, when not after the runner alone.
    fn labelled(self, label: LogLabel) -> Self {
        Self {
            label: Some(label),
            ..self
        }
    }

    pub(super) fn with_kind(self, cause: FailureKind) -> Self {
        Self { cause, ..self }
    }
}

pub(super) fn fail(job: Job, ending: JobFailure, now: Timestamp) -> Transition {
    let state = JobState::Failed {
        code: ending.code,
        reason: ending.reason.clone(),
    };
    let (mut job, mut owed) = ended(job, state, now);
    owed.dedup = DedupUpdate::Clear;
    if ending.cause == FailureKind::Permanent {
        owed.breaker = BreakerUpdate::CountFailure;
    }
    let label = ending.label.unwrap_or(match job.runner {
        RunnerKind::Local => LogLabel::ContainerFailed,
        RunnerKind::Ci | RunnerKind::Vm => LogLabel::SessionFailed,
    });
    if job.run.is_some() && !job.failure_reported {
        let sentence = comments::session_failed(&ending.reason);
        add_session_comment(&job, &sentence, now, &mut owed);
    }
    let told = comments::failure_comment(
        &job,
        ending.code,
        &ending.reason,
        ending.last_words.as_deref(),
    );
    failure_effects(&job, ending.code, told, label, &mut owed);
    close(&mut job, owed)
}

pub(super) fn time_out(job: Job, reason: TimeoutReason, now: Timestamp) -> Transition {
    let label = match (reason, job.runner) {
        (TimeoutReason::ContainerTimeout, _) | (_, RunnerKind::Local) => LogLabel::ContainerTimeout,
        (TimeoutReason::MachineTimeout, _) | (_, RunnerKind::Vm) => LogLabel::MachineTimeout,
        (TimeoutReason::RunNotFound | TimeoutReason::TimedOut, RunnerKind::Ci) => {
            LogLabel::SessionFailed
        }
    };
    let told = reason.message(job.timeout_minutes);
    let (mut job, mut owed) = ended(job, JobState::TimedOut { reason }, now);
    owed.dedup = DedupUpdate::Clear;
    owed.breaker = BreakerUpdate::CountFailure;
    add_session_comment(&job, &comments::session_timed_out(&told), now, &mut owed);
    let told = comments::failure_comment(&job, None, &told, None);
    failure_effects(&job, None, told, label, &mut owed);
    // One that said so itself is about to be over; its host may still save what it did.
    if !job.result_accepted {
        add_stop_run(&job, &mut owed);
    }
    close(&mut job, owed)
}

fn failure_effects(
    job: &Job,
    code: Option<FailureCode>,
    told: String,
    label: LogLabel,
    owed: &mut PlannedEffects,
) {
    let stage = match job.kind.phase() {
        Some(Phase::Planning) => Stage::PlanningFailed,
        Some(Phase::Implementation) => Stage::ImplementationFailed,
        // Who asked for it looks at the pull request, not at the ticket.
        None => return owed.effects.extend(pull_comment(job, told)),
    };
    owed.effects.push(Effect::SetMarker {
        issue: job.issue.clone(),
        stage,
    });
    owed.effects.push(Effect::TicketComment {
        issue: job.issue.clone(),
        body: told,
    });
    // The guard's own words name every file; around them the log shows what must not be repeated.
    // What a review found stands in the pull request.
    let untold = [
        FailureCode::SensitiveFilesBlocked,
        FailureCode::ReviewUnapproved,
    ];
    if !code.is_some_and(|code| untold.contains(&code)) {
        excerpt(job, label, owed);
    }
}

/// The end of the log goes to the ticket once the run is over, if there was a run.
fn excerpt(job: &Job, label: LogLabel, owed: &mut PlannedEffects) {
    owed.effects
        .extend(job.run.clone().map(|run| Effect::LogExcerpt {
            issue: job.issue.clone(),
            repo: job.repo.clone(),
            run,
            label,
            comment: None,
        }));
}

fn pull_comment(job: &Job, body: String) -> Option<Effect> {
    let pull = job.pull.as_ref()?;
    Some(Effect::PullComment {
        repo: job.repo.clone(),
        number: pull.number,
        style: PullCommentStyle::New,
        body,
    })
}

/// An end that nobody is to blame for: no failure comment on the ticket, no count, the run itself is
/// ended. The marker goes back to the trigger, or the issue would look busy for ever; who asked for
/// work on a pull request is told there.
pub(super) fn cancel(job: Job, reason: String, now: Timestamp) -> Transition {
    let why = reason.clone();
    let (mut job, mut owed) = ended(
        job,
        JobState::Failed {
            code: Some(FailureCode::Cancelled),
            reason,
        },
        now,
    );
    owed.dedup = DedupUpdate::Clear;
    if job.kind.phase().is_some() {
        owed.effects.push(Effect::SetMarker {
            issue: job.issue.clone(),
            stage: Stage::Triggered,
        });
    } else {
        let told = comments::failure_headline(job.kind, None, &why);
        owed.effects.extend(pull_comment(&job, told));
    }
    add_stop_run(&job, &mut owed);
    close(&mut job, owed)
}

/// An end that time will mend: the run has failed, and what it was to do is taken up again at
/// `until`. The issue is left as the run found it, nothing is counted against it, and its people are
/// told once.
pub(super) fn pause(job: Job, reason: &str, until: Timestamp, now: Timestamp) -> Transition {
    let state = JobState::Failed {
        code: Some(FailureCode::ProviderLimit),
        reason: comments::paused_failure_reason(reason, until),
    };
    let (mut job, mut owed) = ended(job, state, now);
    job.resumes_at = Some(until);
    owed.dedup = DedupUpdate::Clear;
    let told = comments::paused(job.kind, until);
    match job.kind.phase() {
        Some(_) => owed.effects.extend([
            Effect::SetMarker {
                issue: job.issue.clone(),
                stage: job.trigger_stage.unwrap_or(Stage::Triggered),
            },
            Effect::TicketComment {
                issue: job.issue.clone(),
                body: told,
            },
        ]),
        None => owed.effects.extend(pull_comment(&job, told)),
    }
    close(&mut job, owed)
}

fn ended(mut job: Job, state: JobState, now: Timestamp) -> (Job, PlannedEffects) {
    job.state = state;
    job.finished_at = Some(now);
    (job, PlannedEffects::default())
}

/// What every end has in common. Work on an open pull request moves no ticket and is told to the
/// chat only when it failed; a shadow run is told to nobody.
fn close(job: &mut Job, mut owed: PlannedEffects) -> Transition {
    let ticket_run = job.kind.phase().is_some();
    if !ticket_run {
        owed.dedup = DedupUpdate::Keep;
        owed.breaker = BreakerUpdate::Keep;
    }
    if ticket_run || job.state != JobState::Completed {
        owed.effects.push(Effect::Chat {
            message: comments::chat_ended(job),
        });
    }
    // A machine or container is ours to take down; a CI run ends by itself.
    add_destroy_machine(job, &mut owed);
    if job.shadow {
        owed.effects.retain(|effect| {
            matches!(
                effect,
                Effect::StopRun { .. } | Effect::DestroyMachine { .. }
            )
        });
        owed.dedup = DedupUpdate::Keep;
        owed.breaker = BreakerUpdate::Keep;
        owed.plan = PlanUpdate::Keep;
    }
    Transition {
        job: job.clone(),
        planned: owed,
    }
}

/// A run that is at work is asked to end; a machine ends with what is in it. A CI run that was
/// dispatched may be there although nobody has seen it.
pub(super) fn add_stop_run(job: &Job, owed: &mut PlannedEffects) {
    let may_be_there = job.runner == RunnerKind::Ci && job.dispatched_at.is_some();
    if job.run.is_some() || may_be_there {
        owed.effects.push(Effect::StopRun {
            job: job.id.clone(),
            repo: job.repo.clone(),
            run: job.run.clone(),
        });
    }
}

/// After what the ticket is owed before, the machine's log above all.
pub(super) fn add_destroy_machine(job: &Job, owed: &mut PlannedEffects) {
    let machine = job.run.as_ref().and_then(RunHandle::machine);
    let owes_to_ticket = job.kind.phase().is_some() && !job.shadow;
    owed.effects
        .extend(machine.map(|machine| Effect::DestroyMachine {
            machine,
            job: Some(job.id.clone()),
            issue: owes_to_ticket.then(|| job.issue.clone()),
        }));
}
