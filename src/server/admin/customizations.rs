//! `/api/customizations`: the operator's own files.

use serde::Serialize;
use serde_json::json;
use warp::http::Method;
use warp::{Filter, path};

use crate::routing::{
    ApiResult, Routes, ok, one_of, reject_other_methods, require_admin, run_blocking, with_app,
};
use domain::time::Timestamp;
use engine::app::App;
use pipeline::{Customization, CustomizationCategory, CustomizationStatus};

/// Routes of `/api/customizations`.
pub fn routes(app: &App) -> Routes {
    let all = path!("api" / "customizations").boxed();
    one_of([
        all.clone()
            .and(require_admin(app, Method::GET))
            .and(with_app(app))
            .then(list)
            .boxed(),
        reject_other_methods(&all, [Method::GET]),
    ])
}

async fn list(app: App) -> ApiResult {
    let root = app.config.custom_dir.clone();
    let shown = root.display().to_string();
    let found = run_blocking(&shown, move || pipeline::list_customizations(&root)).await?;
    let views: Vec<CustomizationView> = found.into_iter().map(Into::into).collect();
    Ok(ok(&json!({"root": shown, "customizations": views})))
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CustomizationView {
    path: String,
    category: CustomizationCategory,
    status: Option<CustomizationStatus>,
    upstream_path: Option<String>,
    size: u64,
    modified_at: Timestamp,
}

impl From<Customization> for CustomizationView {
    fn from(found: Customization) -> Self {
        Self {
            path: found.path,
            category: found.category,
            status: found.status,
            upstream_path: found.upstream,
            size: found.size,
            modified_at: found.modified_at,
        }
    }
}
