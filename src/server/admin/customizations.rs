//! `/api/customizations`: the operator's customization files.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;

use crate::routing::{ApiResult, Route, ok, run_blocking};
use domain::time::Timestamp;
use engine::app::App;
use pipeline::{Customization, CustomizationCategory, CustomizationStatus};

/// Routes of `/api/customizations`.
pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::get("/api/customizations", "listCustomizations", list)
            .mentions::<CustomizationView>(),
    ]
}

async fn list(app: App) -> ApiResult {
    let root = app.core.config.custom_dir.clone();
    let root_path = root.display().to_string();
    let found = run_blocking(&root_path, move || pipeline::list_customizations(&root)).await?;
    let views: Vec<CustomizationView> = found.into_iter().map(Into::into).collect();
    Ok(ok(&json!({"root": root_path, "customizations": views})))
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Customization")]
struct CustomizationView {
    path: String,
    category: CustomizationCategory,
    #[schemars(with = "Option<CustomizationStatus>")]
    status: Option<CustomizationStatus>,
    /// Built-in file that this file replaces.
    upstream_path: Option<String>,
    /// Size in bytes.
    size: u64,
    modified_at: Timestamp,
}

impl From<Customization> for CustomizationView {
    fn from(file: Customization) -> Self {
        Self {
            path: file.path,
            category: file.category,
            status: file.status,
            upstream_path: file.upstream,
            size: file.size,
            modified_at: file.modified_at,
        }
    }
}
