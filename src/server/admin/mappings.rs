//! `/api/mappings`: project mappings. The validation rules are in `domain::mapping`.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::{Value, json};

use crate::error::AdminApiError;
use crate::routing::{ApiResult, PathSegment, Route, ok, parse_json};
use domain::audit::Actor;
use domain::ids::TeamKey;
use domain::mapping::{MappingError, MappingInput, MappingPatch, MappingView};
use engine::admin::mappings::{self, SavedMapping};
use engine::app::App;

/// Routes of `/api/mappings`.
pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::get("/api/mappings", "listMappings", list)
            .returns::<BTreeMap<String, MappingView<'_>>>(),
        Route::post("/api/mappings", "saveMapping", save)
            .body()
            .returns::<MappingView<'_>>(),
        Route::patch("/api/mappings/:teamKey", "changeMapping", change).body(),
        Route::delete("/api/mappings/:teamKey", "deleteMapping", remove),
    ]
}

async fn list(app: App) -> ApiResult {
    let all = app.core.store().read(store::mappings::all)?;
    let by_key: BTreeMap<&str, MappingView<'_>> = all
        .iter()
        .map(|mapping| {
            (
                mapping.team_key.as_str(),
                MappingView::from_mapping(mapping),
            )
        })
        .collect();
    Ok(ok(&by_key))
}

async fn save(by: Actor, body: Bytes, app: App) -> ApiResult {
    let body = parse_json(&body).ok_or(MappingError::InvalidBody)?;
    let saved = mappings::save(&app, by, MappingInput::read(body)?).await?;
    let response = json!(MappingView::from_mapping(&saved.mapping));
    Ok(ok(&with_warnings(&saved, response)))
}

/// Adds the warnings about a mapping to the response of a write.
fn with_warnings(saved: &SavedMapping, mut response: Value) -> Value {
    if !saved.warnings.is_empty() {
        response["warnings"] = json!(saved.warnings);
    }
    response
}

async fn change(PathSegment(key): PathSegment, by: Actor, body: Bytes, app: App) -> ApiResult {
    let body = parse_json(&body).ok_or(MappingError::InvalidBody)?;
    let key = TeamKey::new(key);
    let patch = MappingPatch::read(body, &key)?;
    let changed = mappings::change(&app, by, key, patch.clone()).await?;
    let mut response = json!({"updated": true});
    if patch.has_field("paused") {
        response["paused"] = json!(changed.mapping.paused);
    }
    if patch.has_field("maxInProgressAiIssues") {
        response["maxInProgressAiIssues"] = json!(changed.mapping.max_in_progress);
    }
    Ok(ok(&with_warnings(&changed, response)))
}

async fn remove(PathSegment(key): PathSegment, by: Actor, app: App) -> ApiResult {
    match mappings::remove(&app.core, by, TeamKey::new(key)).await? {
        true => Ok(ok(&json!({"deleted": true}))),
        false => Err(AdminApiError::NothingDeleted.into()),
    }
}
