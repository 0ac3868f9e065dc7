//! What runs tell us.
//!
//! A result counts once: taking it, the job's end and everything owed for it are one commit, so of
//! many equal posts exactly one is taken. A result that comes after its job has ended (a deadline
//! was faster) is acknowledged, and changes nothing.

use serde_json::Value;

use crate::app::App;
use crate::crash::CrashPoint;
use crate::domain::ids::JobId;
use crate::domain::job::{Job, RunHandle, RunnerKind};
use crate::domain::report::{ProgressReport, ResultReport, Step};
use crate::domain::transition::{Activity, Event};
use crate::store::{StoreError, StoreResult, WriteTx, jobs, steps};
use crate::wire::Redactor;

use super::commit::{self, Happened, Policy};

/// Most bytes of a stored step; what is over is cut, with a mark.
pub const MAX_STEP_BYTES: usize = 64 * 1024;

/// Why a report was not taken.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    #[error("no such job")]
    UnknownJob,
    #[error("the job's result has been reported before")]
    AlreadyConsumed,
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Takes the one result of a run.
pub async fn result(app: &App, job: &JobId, report: ResultReport) -> Result<(), ReportError> {
    app.crash.reach(CrashPoint::ResultReceived);
    let (id, now, policy) = (job.clone(), app.now(), Policy::of(&app.config));
    let report = redacted(&app.redactor, report);
    let taken = app
        .store
        .write(move |tx| {
            let Some(job) = jobs::get(tx, &id)? else {
                return Ok(Err(ReportError::UnknownJob));
            };
            if job.reported {
                return Ok(Err(ReportError::AlreadyConsumed));
            }
            let event = Event::ResultReported {
                report: report.clone(),
            };
            if let Happened::Refused(job, _) = commit::happen(tx, policy, &id, event, now)? {
                jobs::put(
                    tx,
                    &Job {
                        reported: true,
                        ..*job
                    },
                )?;
            }
            Ok(Ok(()))
        })
        .await?;
    if taken.is_ok() {
        tracing::info!(job.id = %job, "The run reported its result.");
        app.crash.reach(CrashPoint::ResultStored);
    }
    taken
}

/// Takes one step of a run. Steps are kept even when the job has ended.
pub async fn progress(app: &App, job: &JobId, report: ProgressReport) -> Result<(), ReportError> {
    let (id, now, policy) = (job.clone(), app.now(), Policy::of(&app.config));
    let step = presentable(&app.redactor, report.step);
    let (run_id, order) = (report.run_id, app.store.next_order());
    app.store
        .write(move |tx| {
            let Some(job) = jobs::get(tx, &id)? else {
                return Ok(Err(ReportError::UnknownJob));
            };
            steps::put(tx, &id, &step, order)?;
            note_run(tx, policy, &job, run_id, now)?;
            Ok(Ok(()))
        })
        .await?
}

/// A report proves that the run runs, and may be the first to say which one it is.
fn note_run(
    tx: &WriteTx<'_>,
    policy: Policy,
    job: &Job,
    run_id: Option<u64>,
    now: crate::domain::time::Timestamp,
) -> StoreResult<()> {
    if !job.is_active() {
        return Ok(());
    }
    let event = match (&job.run, job.runner, run_id) {
        (None, RunnerKind::Ci, Some(id)) => Event::RunSeen {
            run: RunHandle::Ci {
                id,
                url: String::new(),
            },
            activity: Activity::InProgress,
        },
        _ => Event::StepReported,
    };
    commit::happen(tx, policy, &job.id, event, now).map(|_| ())
}

fn redacted(redactor: &Redactor, mut report: ResultReport) -> ResultReport {
    for comment in &mut report.comments {
        comment.body = redactor.redact(&comment.body);
    }
    report.failure_reason = report.failure_reason.map(|reason| redactor.redact(&reason));
    report.unresolved = report
        .unresolved
        .iter()
        .map(|finding| redactor.redact(finding))
        .collect();
    report
}

/// Without our secrets, and no larger than a stored step may be.
fn presentable(redactor: &Redactor, step: Step) -> Step {
    let Ok(json) = serde_json::to_string(&step) else {
        return step;
    };
    let step = serde_json::from_str(&redactor.redact(&json)).unwrap_or(step);
    if json.len() <= MAX_STEP_BYTES {
        return step;
    }
    let outputs = step
        .outputs
        .as_ref()
        .map(Value::to_string)
        .unwrap_or_default();
    Step {
        id: cut(&step.id, 200),
        kind: cut(&step.kind, 200),
        status: cut(&step.status, 200),
        started_at: cut(&step.started_at, 200),
        outputs: Some(Value::String(cut(&outputs, MAX_STEP_BYTES / 2))),
        ended_at: step.ended_at.map(|text| cut(&text, 200)),
        parent_step_id: step.parent_step_id.map(|text| cut(&text, 200)),
        logs_url: step.logs_url.map(|text| cut(&text, 2_000)),
        elapsed_ms: step.elapsed_ms,
    }
}

fn cut(text: &str, bytes: usize) -> String {
    if text.len() <= bytes {
        return text.to_owned();
    }
    let end = (0..=bytes)
        .rev()
        .find(|at| text.is_char_boundary(*at))
        .unwrap_or(0);
    format!("{} [… cut]", &text[..end])
}
