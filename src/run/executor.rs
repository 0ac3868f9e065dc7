//! Goes through a pipeline's steps and tells of each how it goes.

use serde_json::{Value, json};

use super::run::{Failure, Run, StepOutcome};
use super::steps;
use super::text;
use domain::report::{RunPhase, Step};
use domain::session_event::SessionEvent;
use domain::time::Timestamp;
use pipeline::Definition;

/// How much of a reason stands in a step?
const MAX_REASON: usize = 4000;

/// Performs every step in order. After a failure the rest is skipped.
pub async fn execute(run: &mut Run, definition: &Definition) -> Result<(), Failure> {
    let mut steps = definition.steps.iter();
    let mut ended = Ok(());
    let mut is_ready = run.config.phase == RunPhase::Planning;
    for planned in steps.by_ref() {
        if !is_ready && !planned.work.prepares() {
            run.herald.tell(&SessionEvent::SetupComplete);
            is_ready = true;
        }
        let step = begin(run, &planned.id, &planned.kind);
        run.console.say(&format!("step {}", planned.id));
        match steps::perform(run, planned).await {
            Ok(StepOutcome::Passed(outputs)) => {
                run.found
                    .outputs
                    .insert(planned.id.clone(), outputs.clone());
                end(run, step, "passed", Some(outputs));
            }
            Ok(StepOutcome::Skipped(reason)) => {
                run.console.say(reason);
                end(run, step, "skipped", Some(json!({ "reason": reason })));
            }
            Err(failure) => {
                let reason = shown(run, &failure.reason);
                end(run, step, "failed", Some(json!({ "reason": reason })));
                ended = Err(failure);
                break;
            }
        }
    }
    for planned in steps {
        let step = step(&planned.id, &planned.kind, "skipped", Run::now());
        run.progress.step(step);
    }
    ended
}

/// Reports that a step begins. Inside another step it becomes that one's part.
pub fn begin(run: &mut Run, id: &str, kind: &str) -> Step {
    let mut step = step(id, kind, "running", Run::now());
    step.parent_step_id = run.open_steps.last().map(|outer| outer.id.clone());
    run.open_steps.push(step.clone());
    run.progress.step(step.clone());
    step
}

/// Reports how a step ended.
pub fn end(run: &mut Run, mut step: Step, status: &str, outputs: Option<Value>) {
    let now = Run::now();
    let begun = Timestamp::parse(&step.started_at).unwrap_or(now);
    step.status = status.to_owned();
    step.ended_at = Some(now.to_string());
    step.elapsed_ms = u64::try_from(now.since(begun).as_millis()).ok();
    step.outputs = outputs.map(|value| redacted(run, value));
    run.open_steps.retain(|open| open.id != step.id);
    run.progress.step(step);
}

/// Ends whatever was open when the run was cut short.
pub fn end_open(run: &mut Run, status: &str, reason: &str) {
    while let Some(step) = run.open_steps.last().cloned() {
        end(run, step, status, Some(json!({ "reason": reason })));
    }
}

/// A text as it may leave the run.
pub fn shown(run: &Run, text: &str) -> String {
    text::cut(&run.console.shown(text), MAX_REASON)
}

fn redacted(run: &Run, value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(shown(run, &text)),
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

fn step(id: &str, kind: &str, status: &str, started: Timestamp) -> Step {
    Step {
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
