//! `/api/admin/template-status`: status of the workflow files in each target repository. See
//! docs/behaviour.md#workflow-templates.

use serde::Serialize;
use warp::http::Method;
use warp::{Filter, path};

use crate::routing::{
    ApiResult, Routes, ok, one_of, reject_other_methods, require_admin, with_app,
};
use domain::ids::TeamKey;
use domain::templates::TemplateFileStatus;
use engine::app::App;
use engine::template_status::{self, ProjectTemplateStatus};

/// Routes of `/api/admin/template-status`.
pub(super) fn routes(app: &App) -> Routes {
    let status = path!("api" / "admin" / "template-status").boxed();
    one_of([
        status
            .clone()
            .and(require_admin(app, Method::GET))
            .and(with_app(app))
            .then(show)
            .boxed(),
        reject_other_methods(&status, [Method::GET]),
    ])
}

async fn show(app: App) -> ApiResult {
    let projects = template_status::all(&app).await?.into_iter();
    Ok(ok(&projects.map(StatusView::from).collect::<Vec<_>>()))
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct StatusView {
    team_key: TeamKey,
    owner: String,
    repo: String,
    planning: TemplateFileStatus,
    implementation: TemplateFileStatus,
    files: Vec<FileView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

#[derive(Serialize)]
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
