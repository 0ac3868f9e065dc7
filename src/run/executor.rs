//! Execution of a pipeline's steps, with a progress report for each.

use serde_json::{Value, json};

use super::context::{RunContext, StepOutcome};
use super::failure::RunFailure;
use super::steps;
use super::text;
use crate::clock;
use domain::report::{RunPhase, StepRecord};
use domain::session_event::SessionEvent;
use domain::time::Timestamp;
use pipeline::PipelineDefinition;

/// Maximum length of a step's reason, in bytes.
const MAX_REASON: usize = 4000;

/// Executes every step in order. After a failure the remaining steps are skipped.
pub(crate) async fn execute(
    run: &mut RunContext,
    definition: &PipelineDefinition,
) -> Result<(), RunFailure> {
    let mut steps = definition.steps.iter();
    let mut result = Ok(());
    let mut is_ready = run.config.phase == RunPhase::Planning;
    for planned in steps.by_ref() {
        if !is_ready && !planned.implementation.is_preparation() {
            run.status_reporter.report(&SessionEvent::SetupComplete);
            is_ready = true;
        }
        let step = begin_step(run, &planned.id, &planned.kind);
        run.console.log(&format!("Step: {}", planned.id));
        match steps::execute_step(run, planned).await {
            Ok(StepOutcome::Passed(outputs)) => {
                run.state
                    .outputs
                    .insert(planned.id.clone(), outputs.clone());
                end_step(run, step, "passed", Some(outputs));
            }
            Ok(StepOutcome::Skipped(reason)) => {
                run.console.log(reason);
                end_step(run, step, "skipped", Some(json!({ "reason": reason })));
            }
            Err(failure) => {
                let reason = sanitize(run, &failure.reason);
                end_step(run, step, "failed", Some(json!({ "reason": reason })));
                result = Err(failure);
                break;
            }
        }
    }
    for planned in steps {
        let step = step(&planned.id, &planned.kind, "skipped", clock::now());
        run.progress.report_step(step);
    }
    result
}

/// Reports the start of a step. A step started inside an open step becomes its child.
pub(crate) fn begin_step(run: &mut RunContext, id: &str, kind: &str) -> StepRecord {
    let mut step = step(id, kind, "running", clock::now());
    step.parent_step_id = run.open_steps.last().map(|outer| outer.id.clone());
    run.open_steps.push(step.clone());
    run.progress.report_step(step.clone());
    step
}

/// Reports the end of a step.
pub(crate) fn end_step(
    run: &mut RunContext,
    mut step: StepRecord,
    status: &str,
    outputs: Option<Value>,
) {
    let now = clock::now();
    let started = Timestamp::parse(&step.started_at).unwrap_or(now);
    step.status = status.to_owned();
    step.ended_at = Some(now.to_string());
    step.elapsed_ms = u64::try_from(now.since(started).as_millis()).ok();
    step.outputs = outputs.map(|value| redacted(run, value));
    run.open_steps.retain(|open| open.id != step.id);
    run.progress.report_step(step);
}

/// Ends every open step of an interrupted run.
pub(crate) fn end_open_steps(run: &mut RunContext, status: &str, reason: &str) {
    while let Some(step) = run.open_steps.last().cloned() {
        end_step(run, step, status, Some(json!({ "reason": reason })));
    }
}

/// Returns a text without secrets and invisible characters, cut at the maximum length of a reason.
pub(crate) fn sanitize(run: &RunContext, text: &str) -> String {
    text::truncate(&run.console.sanitize(text), MAX_REASON)
}

fn redacted(run: &RunContext, value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(sanitize(run, &text)),
        Value::Array(values) => values
            .into_iter()
            .map(|value| redacted(run, value))
            .collect(),
        Value::Object(fields) => fields
            .into_iter()
            .map(|(name, value)| (name, redacted(run, value)))
            .collect(),
        plain => plain,
    }
}

fn step(id: &str, kind: &str, status: &str, started: Timestamp) -> StepRecord {
    StepRecord {
        id: id.to_owned(),
        kind: kind.to_owned(),
        status: status.to_owned(),
        started_at: started.to_string(),
        ended_at: None,
        elapsed_ms: None,
        parent_step_id: None,
        outputs: None,
        logs_url: None,
    }
}
