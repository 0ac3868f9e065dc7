//! Execution of a pipeline's steps, with a progress report for each.

use serde_json::json;

use crate::context::{RunContext, StepOutcome};
use crate::failure::RunFailure;
use crate::steps;
use domain::report::RunPhase;
use domain::session_event::SessionEvent;
use pipeline::PipelineDefinition;

/// Executes every step in order. After a failure the remaining steps are skipped.
pub(crate) async fn execute(
    run: &mut RunContext,
    definition: &PipelineDefinition,
) -> Result<(), RunFailure> {
    let mut steps = definition.steps.iter();
    let mut result = Ok(());
    let mut skip_reason = String::new();
    let mut is_ready = run.dispatch.config.phase == RunPhase::Planning;
    for planned in steps.by_ref() {
        if !is_ready && !planned.implementation.is_preparation() {
            run.reporting
                .status_reporter
                .report(&SessionEvent::SetupComplete);
            is_ready = true;
        }
        let step = run.reporting.begin_step(&planned.id, &planned.kind);
        run.reporting.log(&format!("Step: {}", planned.id));
        match steps::execute_step(run, planned).await {
            Ok(StepOutcome::Passed(outputs)) => {
                run.outputs.insert(planned.id.clone(), outputs.clone());
                run.reporting.end_step(step, "passed", Some(outputs));
            }
            Ok(StepOutcome::Skipped(reason)) => {
                run.reporting.log(reason);
                let outputs = json!({ "reason": reason });
                run.reporting.end_step(step, "skipped", Some(outputs));
            }
            Err(failure) if failure.is_question() => {
                let questions = run.publication.questions.iter();
                let questions: Vec<_> = questions.map(|question| &question.text).collect();
                let outputs = json!({ "questions": questions });
                run.reporting.end_step(step, "passed", Some(outputs));
                skip_reason = "The run asked questions".to_owned();
                result = Err(failure);
                break;
            }
            Err(failure) => {
                run.reporting.fail_step(step, &failure.reason);
                skip_reason = format!("Step {} failed", planned.id);
                result = Err(failure);
                break;
            }
        }
    }
    for planned in steps {
        run.reporting
            .skip_step(&planned.id, &planned.kind, &skip_reason);
    }
    result
}
