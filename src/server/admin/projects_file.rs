//! `/api/projects-file`: projects, settings and the runner mode as one file.

use bytes::Bytes;
use serde_json::Value;

use super::paging::invalid;
use crate::error::AdminApiError;
use crate::routing::{ApiResult, Route, ok, parse_json};
use domain::audit::Actor;
use engine::admin::projects_file::{
    self, AppliedFile, ApplyError, ApplyOptions, FileProblem, ProjectsFile,
};
use engine::app::App;

/// Routes of `/api/projects-file`.
pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::get("/api/projects-file", "exportProjects", export),
        Route::post("/api/projects-file", "applyProjects", apply)
            .body()
            .returns::<AppliedFile>()
            .mentions::<FileProblem>(),
    ]
}

async fn export(app: App) -> ApiResult {
    Ok(ok(&app.core.store().read(projects_file::export)?))
}

async fn apply(by: Actor, body: Bytes, app: App) -> ApiResult {
    let Some(Value::Object(mut body)) = parse_json(&body) else {
        return Err(AdminApiError::InvalidBody.into());
    };
    let flag = |name: &str| match body.get(name) {
        None => Ok(false),
        Some(value) => value
            .as_bool()
            .ok_or_else(|| invalid(&format!("{name} must be a boolean"))),
    };
    let options = ApplyOptions {
        prune: flag("prune")?,
        dry_run: flag("dryRun")?,
    };
    let file = body.remove("file");
    let file = file.ok_or_else(|| invalid("file is required"))?;
    let file = ProjectsFile::read(file).map_err(ApplyError::Invalid)?;
    Ok(ok(&projects_file::apply(&app, by, file, options).await?))
}
