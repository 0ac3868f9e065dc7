//! Results and progress reported by runs.
//!
//! A result counts once: accepting it, ending the job and enqueuing its effects happen in one
//! transaction, so exactly one of several equal requests is accepted. A result that arrives after
//! the job has ended, for example by a timeout, is acknowledged and changes nothing but the usage.

use serde_json::Value;

use crate::app::App;
use domain::comments;
use domain::effect::Effect;
use domain::ids::JobId;
use domain::job::{Job, JobProgress, JobState, PullRequestRef, RunHandle, RunnerKind};
use domain::report::{
    FailureCode, ProgressReport, ResultReport, ResultReportError, RunOutcome, RunPhase, StepRecord,
    Usage,
};
use domain::sanitize;
use domain::transition::{JobEvent, RunActivity};
use store::crash_injection::CrashPoint;
use store::{StoreChange, StoreError, jobs, outbox, patches, steps};
use vendors::http::{Redactor, run_blocking_if_large};

use super::git_mirrors;
use super::job_events::{self, BreakerPolicy, EventOutcome};
use super::pull_requests::ownership;
use super::{conversation, provider_limit};

/// Maximum size of a step's outputs, in bytes; longer outputs are cut and marked. With all other
/// texts at their maximum, a step stays below 64 KiB.
const MAX_OUTPUT_BYTES: usize = 56 * 1024;

/// Maximum length of an ID, type, status or time, in bytes.
const MAX_WORD_BYTES: usize = 200;

/// Maximum length of a URL, in bytes.
const MAX_URL_BYTES: usize = 2_000;

/// End of a truncated text.
const TRUNCATION_MARK: &str = " [… cut]";

/// Reason why a report was rejected.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// The job does not exist.
    #[error("no such job")]
    UnknownJob,
    /// The job already has a result.
    #[error("the job already has a result")]
    AlreadyReported,
    /// A required field of the result is missing or invalid.
    #[error("its result is not valid ({})", .0.slug())]
    InvalidResult(ResultReportError),
    /// The result is for another phase than the run.
    #[error("its result is for another phase of the work")]
    PhaseMismatch,
    /// A successful implementation names no pull request.
    #[error("its result names no pull request")]
    MissingPrUrl,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Checks and records the body of a result, which had this many bytes. `phase` is that of the run. Returns
/// warnings about parts of the result that do not count.
///
/// # Errors
/// Fails if the body is not valid, and see [`record_result`]. Nothing is recorded then.
pub async fn record_result_body(
    app: &App,
    job: &Job,
    phase: RunPhase,
    body: Value,
    bytes: usize,
) -> Result<Vec<String>, ReportError> {
    let (report, mut warnings) = ResultReport::parse(&body).map_err(ReportError::InvalidResult)?;
    drop(body);
    if report.phase != phase {
        return Err(ReportError::PhaseMismatch);
    }
    let opened = (report.phase, report.outcome) == (RunPhase::Implementation, RunOutcome::Success);
    if opened && !has_valid_url(job, &report) {
        return Err(ReportError::MissingPrUrl);
    }
    warnings.extend(record_result(app, &job.id, report, bytes).await?);
    Ok(warnings)
}

/// Whether the report has the URL of a pull request. Shadow runs open none; any URL, such as of a branch,
/// is valid.
fn has_valid_url(job: &Job, report: &ResultReport) -> bool {
    let url = report.pr_url.as_deref();
    url.is_some_and(|url| job.shadow || PullRequestRef::from_url(url).is_some())
}

/// Records the result of a run, whose request body had this many bytes. Returns warnings about
/// parts of the result that do not count.
///
/// A pull request named in the result counts after GitHub has confirmed it. That is requested after
/// the transaction that accepts the result. If GitHub does not respond, the job waits and
/// [`run_monitor`](super::run_monitor) requests it again.
///
/// # Errors
/// Fails if the job does not exist, if it already has a result, or if the store cannot be written.
async fn record_result(
    app: &App,
    job: &JobId,
    report: ResultReport,
    bytes: usize,
) -> Result<Vec<String>, ReportError> {
    app.core
        .crash_plan
        .crash_if_planned(CrashPoint::ResultReceived);
    let (id, now, policy) = (
        job.clone(),
        app.core.now(),
        BreakerPolicy::from_config(&app.core.config),
    );
    let redactor = app.secrets.redactor.clone();
    let report = run_blocking_if_large(bytes, move || sanitize_result(&redactor, report)).await;
    let handle = app.clone();
    let accepted = app
        .core
        .store
        .write(move |tx| {
            let Some(job) = jobs::get(tx, &id)? else {
                return Ok(Err(ReportError::UnknownJob));
            };
            if job.result_accepted {
                return Ok(Err(ReportError::AlreadyReported));
            }
            let report = provider_limit::resolve_report(tx, &handle, &job, report.clone(), now)?;
            let report = conversation::resolve_report(tx, &job, report)?;
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
            let outcome = job_events::apply(tx, policy, &id, event, now)?;
            if let EventOutcome::Refused(job, _) = &outcome {
                job_events::record_late_result(tx, job, &report, now)?;
            }
            if let Some(patch) = &report.patch {
                patches::put(tx, &id, patch)?;
            }
            if report.patch_dropped && !job.shadow {
                let (issue, body) = (job.issue.clone(), comments::fresh_start());
                outbox::push(tx, &Effect::TicketComment { issue, body }, now)?;
            }
            Ok(Ok(outcome))
        })
        .await?;
    let outcome = accepted?;
    tracing::info!(job_id = %job, "Recorded the result of a run.");
    job_events::log_job_end(&outcome, now);
    app.core
        .crash_plan
        .crash_if_planned(CrashPoint::ResultStored);
    match outcome {
        EventOutcome::Advanced(job) => Ok(ownership::verify_held_result(app, &job).await?),
        EventOutcome::Refused(..) | EventOutcome::JobNotFound => Ok(Vec::new()),
    }
}

/// Records a step of a run, whose request body had this many bytes. Steps are stored even if the
/// job has ended.
///
/// # Errors
/// Fails if the job does not exist, or if the store cannot be written.
pub async fn record_progress(
    app: &App,
    job: &JobId,
    report: ProgressReport,
    bytes: usize,
) -> Result<(), ReportError> {
    let (id, now, policy) = (
        job.clone(),
        app.core.now(),
        BreakerPolicy::from_config(&app.core.config),
    );
    let (redactor, step, log) = (app.secrets.redactor.clone(), report.step, report.log);
    let reported = ReportedAgent::sanitized(&redactor, report.agent, report.model);
    let (step, log) = run_blocking_if_large(bytes, move || {
        let log = log.map(|lines| redactor.sanitize(&lines));
        (sanitize_step(&redactor, step), log)
    })
    .await;
    let reported_step = step.clone();
    let (run_id, usage, order) = (report.run_id, report.usage, app.core.store.next_order());
    let stored = app
        .core
        .store
        .write(move |tx| {
            let Some(progress) = jobs::run_state(tx, &id)? else {
                return Ok(Err(ReportError::UnknownJob));
            };
            let mut step = step.clone();
            if progress.state.is_terminal()
                && let Some(end) = jobs::get(tx, &id)?.and_then(|job| job.step_end())
            {
                step.close(end);
            }
            steps::put(tx, &id, &step, order)?;
            let (is_usage_new, is_agent_new, event) = (
                has_new_usage(&progress, usage),
                reported.is_new(&progress),
                step_event(&progress, run_id),
            );
            if (is_usage_new || is_agent_new || event.is_some())
                && let Some(mut job) = jobs::get(tx, &id)?
            {
                if is_usage_new {
                    job.usage = usage;
                }
                if is_agent_new {
                    reported.apply_to(&mut job);
                }
                if is_usage_new || is_agent_new {
                    jobs::put(tx, &job)?;
                }
                if let Some(event) = event {
                    job_events::apply_to(tx, policy, job, event, now)?;
                }
            }
            Ok(Ok(()))
        })
        .await?;
    if stored.is_ok() {
        git_mirrors::examine_step(app, job, &reported_step);
    }
    if let (Ok(()), Some(lines)) = (&stored, log) {
        app.live.log_tails.append(job, &lines);
        app.core.store.publish(StoreChange::Step(job.clone()));
    }
    app.core
        .crash_plan
        .crash_if_planned(CrashPoint::ProgressStored);
    stored
}

/// Agent program and model in a step report.
#[derive(Default)]
struct ReportedAgent {
    agent: Option<String>,
    model: Option<String>,
}

impl ReportedAgent {
    /// Drops a name that contains a secret.
    fn sanitized(redactor: &Redactor, agent: Option<String>, model: Option<String>) -> Self {
        Self {
            agent: agent.filter(|name| is_free_of_secrets(redactor, name)),
            model: model.filter(|name| is_free_of_secrets(redactor, name)),
        }
    }

    /// Whether the job lacks a reported name. The first report counts until the result; a job that
    /// has ended does not change.
    fn is_new(&self, job: &JobProgress) -> bool {
        let is_missing =
            |known: &Option<String>, name: &Option<String>| known.is_none() && name.is_some();
        !job.state.is_terminal()
            && (is_missing(&job.agent, &self.agent) || is_missing(&job.model, &self.model))
    }

    fn apply_to(&self, job: &mut Job) {
        job.agent = job.agent.take().or_else(|| self.agent.clone());
        job.model = job.model.take().or_else(|| self.model.clone());
    }
}

fn is_free_of_secrets(redactor: &Redactor, name: &str) -> bool {
    redactor.sanitize(name) == name
}

/// Whether a step reports a usage that differs from the stored one. A job that has ended does not
/// change.
fn has_new_usage(job: &JobProgress, usage: Option<Usage>) -> bool {
    !job.state.is_terminal() && usage.is_some() && job.usage != usage
}

/// Event of a reported step: the run is found, or the job is running. `None` if both are known, or
/// the job has ended.
fn step_event(job: &JobProgress, run_id: Option<u64>) -> Option<JobEvent> {
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

fn sanitize_result(redactor: &Redactor, mut report: ResultReport) -> ResultReport {
    let clean = |text: String| redactor.sanitize(&text);
    for comment in &mut report.comments {
        comment.body = redactor.sanitize(&comment.body);
    }
    report.failure_reason = report.failure_reason.map(clean);
    report.agent = report
        .agent
        .filter(|name| is_free_of_secrets(redactor, name));
    report.model = report
        .model
        .filter(|name| is_free_of_secrets(redactor, name));
    report.last_agent_message = report.last_agent_message.map(clean);
    report.unresolved = report.unresolved.into_iter().map(clean).collect();
    let questions = report.questions.iter();
    let questions = questions.map(|question| question.map_texts(|text| redactor.sanitize(text)));
    report.questions = questions.collect();
    report.patch = report.patch.and_then(|patch| {
        let redacted = redactor.redact(&patch);
        let asks = report.failure_code == Some(FailureCode::NeedsInput);
        // The next run would apply the mark of a redaction.
        (redacted == patch || !asks).then_some(redacted)
    });
    report
}

/// Redacts secrets, strips invisible characters and truncates texts to their maximum length.
fn sanitize_step(redactor: &Redactor, step: StepRecord) -> StepRecord {
    let clean = |text: String, max| {
        sanitize::truncate(redactor.sanitize(&text), max, TRUNCATION_MARK).into_owned()
    };
    let mut outputs = step.outputs;
    if let Some(value) = &mut outputs {
        sanitize::map_strings(value, |text| redactor.sanitize(&text));
    }
    let size = outputs.as_ref().map_or(0, |value| value.to_string().len());
    if size > MAX_OUTPUT_BYTES {
        let text = outputs.as_ref().map(Value::to_string).unwrap_or_default();
        let text = sanitize::truncate(text, MAX_OUTPUT_BYTES / 2, TRUNCATION_MARK);
        outputs = Some(Value::String(text.into_owned()));
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn step(outputs: Value) -> StepRecord {
        let body = json!({"id": "push", "type": "push", "status": "passed", "started_at": "t", "outputs": outputs});
        StepRecord::parse(Some(body)).unwrap()
    }

    #[test]
    fn a_step_advances_its_job_only_if_it_reports_something_new() {
        let usage = Usage {
            turns: 2,
            ..Usage::default()
        };
        let run = RunHandle::Ci {
            id: 1,
            url: String::new(),
        };
        let running = JobProgress {
            runner: RunnerKind::Ci,
            state: JobState::Running,
            run: Some(run),
            usage: Some(usage),
            agent: Some("claude".to_owned()),
            model: None,
        };
        let named = |agent: &str, model: Option<&str>| ReportedAgent {
            agent: Some(agent.to_owned()),
            model: model.map(str::to_owned),
        };
        assert!(!ReportedAgent::default().is_new(&running));
        assert!(!named("codex", None).is_new(&running), "the first counts");
        assert!(named("claude", Some("m")).is_new(&running));
        assert_eq!(step_event(&running, Some(1)), None);
        assert_eq!(step_event(&running, None), None);
        assert!(!has_new_usage(&running, Some(usage)));
        assert!(!has_new_usage(&running, None));
        assert!(has_new_usage(&running, Some(Usage::default())));
        let unlinked = JobProgress {
            run: None,
            ..running.clone()
        };
        assert!(matches!(
            step_event(&unlinked, Some(1)),
            Some(JobEvent::RunFound { .. })
        ));
        assert_eq!(step_event(&unlinked, None), None);
        let dispatched = JobProgress {
            state: JobState::Dispatched,
            ..running.clone()
        };
        assert_eq!(step_event(&dispatched, None), Some(JobEvent::StepReported));
        let ended = JobProgress {
            state: JobState::Completed,
            run: None,
            ..running
        };
        assert_eq!(step_event(&ended, Some(1)), None);
        assert!(!has_new_usage(&ended, Some(Usage::default())));
    }

    #[test]
    fn redacts_secrets_in_every_text_of_a_step_and_nothing_else() {
        let redactor = Redactor::new(["topsecret-value"]);
        let outputs = json!({"u": "https://x", "v": "mail@y", "list": ["a topsecret-value b", "tops\u{200b}ecret-value"], "topsecret-value": 1});
        let kept = sanitize_step(&redactor, step(outputs)).outputs.unwrap();
        assert_eq!(
            (&kept["u"], &kept["v"]),
            (&json!("https://x"), &json!("mail@y"))
        );
        assert!(!kept.to_string().contains("topsecret"), "{kept}");
    }

    #[test]
    fn cuts_a_huge_step_and_marks_the_cut() {
        for filler in ["x", "\n", "ä"] {
            let kept = sanitize_step(&Redactor::default(), step(json!(filler.repeat(200_000))));
            let size = serde_json::to_string(&kept).unwrap().len();
            assert!(size <= 64 * 1024, "{size}");
            assert!(kept.outputs.unwrap().as_str().unwrap().ends_with("[… cut]"));
        }
    }
}
