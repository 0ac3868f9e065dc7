//! `/api/mappings`: project mappings. The validation rules are in `domain::mapping`.

use std::collections::BTreeMap;

use bytes::Bytes;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};
use warp::http::header::{ETAG, HeaderValue, IF_MATCH};
use warp::reply::Response;

use crate::error::{AdminApiError, ApiError};
use crate::routing::{ApiResult, FromRequest, PathSegment, Request, Route, ok, parse_json};
use domain::audit::Actor;
use domain::ids::TeamKey;
use domain::mapping::{
    Mapping, MappingError, MappingInput, MappingPatch, MappingPrecondition, MappingProblem,
    MappingView, MappingWarning,
};
use engine::admin::mapping_check;
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
        Route::post("/api/mappings/check", "checkMapping", check)
            .body()
            .returns::<CheckView>(),
        Route::get("/api/mappings/:teamKey", "showMapping", show).returns::<MappingView<'_>>(),
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

/// Result of checking a mapping that is not stored.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "MappingCheck")]
struct CheckView {
    /// Whether there is no problem.
    ok: bool,
    problems: Vec<MappingProblem>,
    warnings: Vec<MappingWarning>,
}

async fn check(body: Bytes, app: App) -> ApiResult {
    let body = parse_json(&body).ok_or(MappingError::InvalidBody)?;
    let found = mapping_check::check(&app, body).await?;
    Ok(ok(&CheckView {
        ok: found.problems.is_empty(),
        problems: found.problems,
        warnings: found.warnings,
    }))
}

async fn show(PathSegment(key): PathSegment, app: App) -> ApiResult {
    let key = TeamKey::new(key);
    let stored = app.core.store().read(|tx| store::mappings::get(tx, &key))?;
    let stored = stored.ok_or(AdminApiError::TeamNotFound)?;
    Ok(with_etag(ok(&MappingView::from_mapping(&stored)), &stored))
}

/// The header `If-Match`.
impl FromRequest for MappingPrecondition {
    fn from_request(request: &mut Request) -> Result<Self, ApiError> {
        let values = request.headers.get_all(IF_MATCH).iter();
        let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
        Ok(MappingPrecondition::parse(values.map(text)))
    }
}

/// Adds the version of the stored mapping.
fn with_etag(mut response: Response, stored: &Mapping) -> Response {
    if let Ok(etag) = HeaderValue::from_str(&stored.etag()) {
        response.headers_mut().insert(ETAG, etag);
    }
    response
}

async fn save(by: Actor, precondition: MappingPrecondition, body: Bytes, app: App) -> ApiResult {
    let body = parse_json(&body).ok_or(MappingError::InvalidBody)?;
    let saved = mappings::save(&app, by, MappingInput::read(body)?, precondition).await?;
    let response = json!(MappingView::from_mapping(&saved.mapping));
    let response = ok(&with_warnings(&saved, response));
    Ok(with_etag(response, &saved.mapping))
}

/// Adds the warnings about a mapping to the response of a write.
fn with_warnings(saved: &SavedMapping, mut response: Value) -> Value {
    if !saved.warnings.is_empty() {
        response["warnings"] = json!(saved.warnings);
    }
    response
}

async fn change(
    PathSegment(key): PathSegment,
    by: Actor,
    precondition: MappingPrecondition,
    body: Bytes,
    app: App,
) -> ApiResult {
    let body = parse_json(&body).ok_or(MappingError::InvalidBody)?;
    let key = TeamKey::new(key);
    let patch = MappingPatch::read(body, &key)?;
    let changed = mappings::change(&app, by, key, patch.clone(), precondition).await?;
    let mut response = json!({"updated": true});
    if patch.has_field("paused") {
        response["paused"] = json!(changed.mapping.paused);
    }
    if patch.has_field("maxInProgressAiIssues") {
        response["maxInProgressAiIssues"] = json!(changed.mapping.max_in_progress);
    }
    let response = ok(&with_warnings(&changed, response));
    Ok(with_etag(response, &changed.mapping))
}

async fn remove(
    PathSegment(key): PathSegment,
    by: Actor,
    precondition: MappingPrecondition,
    app: App,
) -> ApiResult {
    match mappings::remove(&app.core, by, TeamKey::new(key), precondition).await? {
        true => Ok(ok(&json!({"deleted": true}))),
        false => Err(AdminApiError::NothingDeleted.into()),
    }
}
