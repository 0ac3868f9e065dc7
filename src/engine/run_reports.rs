//! What runs tell us.
//!
//! A result counts once: taking it, the job's end and everything owed for it are one commit, so of
//! many equal posts exactly one is taken. A result that comes after its job has ended (a deadline
//! was faster) is acknowledged, and changes nothing.

use serde_json::Value;

use crate::app::App;
use domain::ids::JobId;
use domain::job::{JobProgress, JobState, RunHandle, RunnerKind};
use domain::report::{ProgressReport, ResultReport, StepRecord, Usage};
use domain::transition::{JobEvent, RunActivity};
use store::crash_injection::CrashPoint;
use store::{StoreChange, StoreError, jobs, patches, steps};
use vendors::http::{Redactor, run_blocking_if_large};

use super::job_events::{self, BreakerPolicy, EventOutcome};
use super::{provider_limit, pull_ownership};

/// Most bytes of a step's outputs; what is over is cut, with a mark. With its other texts at their
/// longest, a step stays below 64 KiB.
const MAX_OUTPUT_BYTES: usize = 56 * 1024;

/// Most bytes of an id, a word or a time.
const MAX_WORD_BYTES: usize = 200;

/// Most bytes of an address.
const MAX_URL_BYTES: usize = 2_000;

/// Why a report was not taken.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    #[error("no such job")]
    UnknownJob,
    #[error("the job's result has been reported before")]
    AlreadyReported,
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Takes the one result of a run, which came in a body of this many bytes, and answers what in it does
/// not count.
///
/// A pull request that it names counts when the host has confirmed it. That is asked after the commit
/// that takes the result: while the host does not answer, the job waits, and
/// [`watch`](super::watch) asks again.
pub async fn record_result(
    app: &App,
    job: &JobId,
    report: ResultReport,
    bytes: usize,
) -> Result<Vec<String>, ReportError> {
    app.crash_plan.crash_if_planned(CrashPoint::ResultReceived);
    let (id, now, policy) = (
        job.clone(),
        app.now(),
        BreakerPolicy::from_config(&app.config),
    );
    let redactor = app.redactor.clone();
    let report = run_blocking_if_large(bytes, move || redacted(&redactor, report)).await;
    let taken = app
        .store
        .write(move |tx| {
            let Some(job) = jobs::get(tx, &id)? else {
                return Ok(Err(ReportError::UnknownJob));
            };
            if job.result_accepted {
                return Ok(Err(ReportError::AlreadyReported));
            }
            let report = provider_limit::clamp_retry_at(tx, &job, report.clone(), now)?;
            let event = match job.may_open_pull_request() && report.pr_url.is_some() {
                true => JobEvent::UnconfirmedResultReported {
                    report: ResultReport {
                        patch: None,
                        ..report.clone()
                    },
                },
                false => JobEvent::ResultReported {
                    report: report.clone(),
                },
            };
            let happened = job_events::apply(tx, policy, &id, event, now)?;
            if let EventOutcome::Refused(job, _) = &happened {
                job_events::record_late_result(tx, job, &report, now)?;
            }
            if let Some(patch) = &report.patch {
                patches::put(tx, &id, patch)?;
            }
            Ok(Ok(happened))
        })
        .await?;
    let happened = taken?;
    tracing::info!(job_id = %job, "The run reported its result.");
    job_events::log_job_end(&happened, now);
    app.crash_plan.crash_if_planned(CrashPoint::ResultStored);
    match happened {
        EventOutcome::Advanced(job) => Ok(pull_ownership::verify_held_result(app, &job).await?),
        EventOutcome::Refused(..) | EventOutcome::JobNotFound => Ok(Vec::new()),
    }
}

/// Takes one step of a run, which came in a body of this many bytes. Steps are kept even when the job
/// has ended.
pub async fn record_progress(
    app: &App,
    job: &JobId,
    report: ProgressReport,
    bytes: usize,
) -> Result<(), ReportError> {
    let (id, now, policy) = (
        job.clone(),
        app.now(),
        BreakerPolicy::from_config(&app.config),
    );
    let (redactor, step, log) = (app.redactor.clone(), report.step, report.log);
    let (step, log) = run_blocking_if_large(bytes, move || {
        let log = log.map(|lines| redactor.redact_owned(lines));
        (presentable(&redactor, step), log)
    })
    .await;
    let (run_id, usage, order) = (report.run_id, report.usage, app.store.next_order());
    let taken = app
        .store
        .write(move |tx| {
            let Some(standing) = jobs::run_state(tx, &id)? else {
                return Ok(Err(ReportError::UnknownJob));
            };
            steps::put(tx, &id, &step, order)?;
            let (used, event) = (used_otherwise(&standing, usage), moving(&standing, run_id));
            if (used || event.is_some())
                && let Some(mut job) = jobs::get(tx, &id)?
            {
                if used {
                    job.usage = usage;
                    jobs::put(tx, &job)?;
                }
                if let Some(event) = event {
                    job_events::apply_to(tx, policy, job, event, now)?;
                }
            }
            Ok(Ok(()))
        })
        .await?;
    if let (Ok(()), Some(lines)) = (&taken, log) {
        app.log_tails.append(job, &lines);
        app.store.publish(StoreChange::Step(job.clone()));
    }
    app.crash_plan.crash_if_planned(CrashPoint::ProgressStored);
    taken
}

/// Whether a step tells another use than is known. A job that has ended stays as it is.
fn used_otherwise(job: &JobProgress, usage: Option<Usage>) -> bool {
    !job.state.is_terminal() && usage.is_some() && job.usage != usage
}

/// What a step shows of its run: that it runs, and perhaps first which one it is. None when that is
/// known, or the job has ended.
fn moving(job: &JobProgress, run_id: Option<u64>) -> Option<JobEvent> {
    match (&job.run, job.runner, run_id) {
        _ if job.state.is_terminal() => None,
        (None, RunnerKind::Ci, Some(id)) => Some(JobEvent::RunFound {
            run: RunHandle::Ci {
                id,
                url: String::new(),
            },
            activity: RunActivity::InProgress,
        }),
        _ if job.state == JobState::Running => None,
        _ => Some(JobEvent::StepReported),
    }
}

fn redacted(redactor: &Redactor, mut report: ResultReport) -> ResultReport {
    for comment in &mut report.comments {
        comment.body = redactor.redact(&comment.body);
    }
    report.failure_reason = report.failure_reason.map(|reason| redactor.redact(&reason));
    report.last_agent_message = report
        .last_agent_message
        .map(|words| redactor.redact(&words));
    report.patch = report.patch.map(|patch| redactor.redact(&patch));
    report.unresolved = report
        .unresolved
        .iter()
        .map(|finding| redactor.redact(finding))
        .collect();
    report
}

/// Without our secrets, and no larger than a stored step may be.
fn presentable(redactor: &Redactor, step: StepRecord) -> StepRecord {
    let clean = |text: String, bytes| cut(redactor.redact_owned(text), bytes);
    let mut outputs = step.outputs;
    outputs
        .iter_mut()
        .for_each(|value| redact_strings(redactor, value));
    let size = outputs.as_ref().map_or(0, |value| value.to_string().len());
    if size > MAX_OUTPUT_BYTES {
        let text = outputs.as_ref().map(Value::to_string).unwrap_or_default();
        outputs = Some(Value::String(cut(text, MAX_OUTPUT_BYTES / 2)));
    }
    StepRecord {
        id: clean(step.id, MAX_WORD_BYTES),
        kind: clean(step.kind, MAX_WORD_BYTES),
        status: clean(step.status, MAX_WORD_BYTES),
        started_at: clean(step.started_at, MAX_WORD_BYTES),
        ended_at: step.ended_at.map(|text| clean(text, MAX_WORD_BYTES)),
        elapsed_ms: step.elapsed_ms,
        parent_step_id: step.parent_step_id.map(|text| clean(text, MAX_WORD_BYTES)),
        outputs,
        logs_url: step.logs_url.map(|text| clean(text, MAX_URL_BYTES)),
    }
}

/// Each text by itself: across fields, what looks like a secret may be two innocent neighbours.
fn redact_strings(redactor: &Redactor, value: &mut Value) {
    match value {
        Value::String(text) => *text = redactor.redact_owned(std::mem::take(text)),
        Value::Array(items) => items
            .iter_mut()
            .for_each(|item| redact_strings(redactor, item)),
        Value::Object(fields) => {
            fields
                .values_mut()
                .for_each(|field| redact_strings(redactor, field));
            if !fields.keys().all(|name| redactor.is_clean(name)) {
                *fields = std::mem::take(fields)
                    .into_iter()
                    .map(|(name, field)| (redactor.redact_owned(name), field))
                    .collect();
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn cut(text: String, bytes: usize) -> String {
    if text.len() <= bytes {
        return text;
    }
    let end = (0..=bytes)
        .rev()
        .find(|at| text.is_char_boundary(*at))
        .unwrap_or(0);
    format!("{} [… cut]", &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn step(outputs: Value) -> StepRecord {
        let body = json!({"id": "push", "type": "push", "status": "passed", "started_at": "t", "outputs": outputs});
        StepRecord::parse(Some(body)).unwrap()
    }

    #[test]
    fn a_step_moves_its_job_when_it_tells_something_new_of_it() {
        let usage = Usage {
            turns: 2,
            ..Usage::default()
        };
        let run = RunHandle::Ci {
            id: 1,
            url: String::new(),
        };
        let at_work = JobProgress {
            runner: RunnerKind::Ci,
            state: JobState::Running,
            run: Some(run),
            usage: Some(usage),
        };
        assert_eq!(moving(&at_work, Some(1)), None);
        assert_eq!(moving(&at_work, None), None);
        assert!(!used_otherwise(&at_work, Some(usage)));
        assert!(!used_otherwise(&at_work, None));
        assert!(used_otherwise(&at_work, Some(Usage::default())));
        let unlinked = JobProgress {
            run: None,
            ..at_work.clone()
        };
        assert!(matches!(
            moving(&unlinked, Some(1)),
            Some(JobEvent::RunFound { .. })
        ));
        assert_eq!(moving(&unlinked, None), None);
        let dispatched = JobProgress {
            state: JobState::Dispatched,
            ..at_work.clone()
        };
        assert_eq!(moving(&dispatched, None), Some(JobEvent::StepReported));
        let ended = JobProgress {
            state: JobState::Completed,
            run: None,
            ..at_work
        };
        assert_eq!(moving(&ended, Some(1)), None);
        assert!(!used_otherwise(&ended, Some(Usage::default())));
    }

    #[test]
    fn secrets_leave_every_text_of_a_step_and_nothing_else() {
        let redactor = Redactor::new(["topsecret-value"]);
        let told = json!({"u": "https://x", "v": "mail@y", "list": ["a topsecret-value b"], "topsecret-value": 1});
        let kept = presentable(&redactor, step(told)).outputs.unwrap();
        assert_eq!(
            (&kept["u"], &kept["v"]),
            (&json!("https://x"), &json!("mail@y"))
        );
        assert!(!kept.to_string().contains("topsecret"), "{kept}");
    }

    #[test]
    fn a_huge_step_is_cut_with_a_mark() {
        for filler in ["x", "\n", "ä"] {
            let kept = presentable(&Redactor::default(), step(json!(filler.repeat(200_000))));
            let size = serde_json::to_string(&kept).unwrap().len();
            assert!(size <= 64 * 1024, "{size}");
            assert!(kept.outputs.unwrap().as_str().unwrap().ends_with("[… cut]"));
        }
    }
}
