//! `/api/pipelines-steps`: the pipelines and steps in force, and what is wrong with any.

use serde::Serialize;
use serde_json::json;
use warp::http::Method;
use warp::{Filter, path};

use crate::parts::{ApiResult, Routes, off_thread, ok, one_of, only, signed_in, with};
use engine::app::App;
use pipeline::Fault;
use pipeline::{Pipeline, PipelineStep, Status, StepModule};

/// Routes of `/api/pipelines-steps`.
pub fn routes(app: &App) -> Routes {
    let all = path!("api" / "pipelines-steps").boxed();
    one_of([
        all.clone()
            .and(signed_in(app, Method::GET))
            .and(with(app))
            .then(list)
            .boxed(),
        only(&all, [Method::GET]),
    ])
}

async fn list(app: App) -> ApiResult {
    let root = app.config.custom_dir.clone();
    let shown = root.display().to_string();
    let look = move || Ok((pipeline::pipelines(&root)?, pipeline::steps(&root)?));
    let (pipelines, steps) = off_thread(&shown, look).await?;
    let pipelines: Vec<PipelineView> = pipelines.into_iter().map(Into::into).collect();
    let steps: Vec<ModuleView> = steps.into_iter().map(Into::into).collect();
    Ok(ok(&json!({"pipelines": pipelines, "steps": steps})))
}

#[derive(Serialize)]
struct PipelineView {
    id: String,
    file: String,
    status: Status,
    steps: Vec<StepView>,
    /// All that is wrong, in one text.
    error: Option<String>,
    /// The same, one by one.
    errors: Vec<FaultView>,
}

#[derive(Serialize)]
struct StepView {
    id: String,
    #[serde(rename = "type")]
    kind: String,
    module: Option<String>,
    status: Status,
}

#[derive(Serialize)]
struct FaultView {
    file: String,
    step: Option<String>,
    reason: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ModuleView {
    id: String,
    builtin_path: Option<String>,
    custom_path: Option<String>,
    status: Status,
    error: Option<String>,
}

impl From<Pipeline> for PipelineView {
    fn from(pipeline: Pipeline) -> Self {
        let told: Vec<String> = pipeline.faults.iter().map(Fault::to_string).collect();
        Self {
            id: pipeline.id,
            file: pipeline.file,
            status: pipeline.status,
            steps: pipeline.steps.into_iter().map(Into::into).collect(),
            error: (!told.is_empty()).then(|| told.join("\n")),
            errors: pipeline.faults.into_iter().map(Into::into).collect(),
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

impl From<Fault> for FaultView {
    fn from(fault: Fault) -> Self {
        Self {
            file: fault.file,
            step: fault.step,
            reason: fault.reason,
        }
    }
}

impl From<StepModule> for ModuleView {
    fn from(step: StepModule) -> Self {
        Self {
            id: step.id,
            builtin_path: step.source,
            custom_path: step.custom,
            status: step.status,
            error: step.error,
        }
    }
}
