//! `/api/pipelines-steps`: active pipelines and steps with their errors. See
//! docs/repository-settings.md#custom-pipelines-and-steps.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;

use crate::routing::{ApiResult, Route, ok, run_blocking};
use engine::app::App;
use pipeline::DefinitionError;
use pipeline::{CustomizationStatus, PipelineStep, PipelineSummary, StepSummary};

/// Routes of `/api/pipelines-steps`.
pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::get("/api/pipelines-steps", "listPipelines", list)
            .mentions::<ModuleView>()
            .mentions::<PipelineView>(),
    ]
}

async fn list(app: App) -> ApiResult {
    let root = app.core.config.custom_dir.clone();
    let root_path = root.display().to_string();
    let load = move || {
        Ok((
            pipeline::list_pipelines(&root)?,
            pipeline::list_steps(&root)?,
        ))
    };
    let (pipelines, steps) = run_blocking(&root_path, load).await?;
    let pipelines: Vec<PipelineView> = pipelines.into_iter().map(Into::into).collect();
    let steps: Vec<ModuleView> = steps.into_iter().map(Into::into).collect();
    Ok(ok(&json!({"pipelines": pipelines, "steps": steps})))
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Pipeline")]
struct PipelineView {
    id: String,
    file: String,
    status: CustomizationStatus,
    steps: Vec<StepView>,
    /// All errors in one text, one per line.
    error: Option<String>,
    /// The same errors, structured.
    errors: Vec<ErrorView>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "PipelineStep")]
struct StepView {
    id: String,
    #[serde(rename = "type")]
    kind: String,
    module: Option<String>,
    status: CustomizationStatus,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "PipelineError")]
struct ErrorView {
    file: String,
    step: Option<String>,
    reason: String,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "StepModule")]
struct ModuleView {
    id: String,
    builtin_path: Option<String>,
    custom_path: Option<String>,
    status: CustomizationStatus,
    error: Option<String>,
}

impl From<PipelineSummary> for PipelineView {
    fn from(pipeline: PipelineSummary) -> Self {
        let messages: Vec<String> = pipeline
            .errors
            .iter()
            .map(DefinitionError::to_string)
            .collect();
        Self {
            id: pipeline.id,
            file: pipeline.file,
            status: pipeline.status,
            steps: pipeline.steps.into_iter().map(Into::into).collect(),
            error: (!messages.is_empty()).then(|| messages.join("\n")),
            errors: pipeline.errors.into_iter().map(Into::into).collect(),
        }
    }
}

impl From<PipelineStep> for StepView {
    fn from(step: PipelineStep) -> Self {
        Self {
            id: step.id,
            kind: step.kind,
            module: step.module,
            status: step.status,
        }
    }
}

impl From<DefinitionError> for ErrorView {
    fn from(error: DefinitionError) -> Self {
        Self {
            file: error.file,
            step: error.step,
            reason: error.reason,
        }
    }
}

impl From<StepSummary> for ModuleView {
    fn from(step: StepSummary) -> Self {
        Self {
            id: step.id,
            builtin_path: step.source_path,
            custom_path: step.custom_path,
            status: step.status,
            error: step.error,
        }
    }
}
