//! `/api/admin/template-status`: status of the workflow files in each target repository. See
//! docs/behaviour.md#workflow-templates.

use schemars::JsonSchema;
use serde::Serialize;

use crate::routing::{ApiResult, Route, ok};
use domain::ids::TeamKey;
use domain::templates::TemplateFileStatus;
use engine::app::App;
use engine::template_status::{self, ProjectTemplateStatus};

/// Routes of `/api/admin/template-status`.
pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::get("/api/admin/template-status", "templateStatus", show)
            .returns::<Vec<StatusView>>(),
    ]
}

async fn show(app: App) -> ApiResult {
    let projects = template_status::all(&app).await?.into_iter();
    Ok(ok(&projects.map(StatusView::from).collect::<Vec<_>>()))
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "TemplateStatus")]
struct StatusView {
    team_key: TeamKey,
    owner: String,
    repo: String,
    planning: TemplateFileStatus,
    implementation: TemplateFileStatus,
    files: Vec<FileView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    /// Reason why the repository could not be read.
    #[schemars(with = "String")]
    error: Option<String>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "TemplateFile")]
struct FileView {
    path: String,
    status: TemplateFileStatus,
}

impl From<ProjectTemplateStatus> for StatusView {
    fn from(project: ProjectTemplateStatus) -> Self {
        let files = project.files.into_iter();
        Self {
            team_key: project.mapping.team_key,
            owner: project.mapping.owner,
            repo: project.mapping.repo,
            planning: project.planning,
            implementation: project.implementation,
            files: files
                .map(|(path, status)| FileView { path, status })
                .collect(),
            error: project.error,
        }
    }
}
