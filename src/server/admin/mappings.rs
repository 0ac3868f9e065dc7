//! `/api/mappings`: project mappings. The validation rules are in `domain::mapping`.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::{Value, json};
use warp::http::Method;
use warp::{Filter, path};

use crate::error::AdminApiError;
use crate::routing::{
    ApiResult, MAX_BODY, PathSegment, Routes, body, ok, one_of, operator, parse_json,
    reject_other_methods, require_admin, with_app, without_param,
};
use domain::audit::Actor;
use domain::ids::TeamKey;
use domain::mapping::{MappingError, MappingInput, MappingPatch, MappingView};
use engine::admin::mappings::{self, SavedMapping};
use engine::app::App;

/// Routes of `/api/mappings`.
pub(super) fn routes(app: &App) -> Routes {
    let all = path!("api" / "mappings").boxed();
    let each = path!("api" / "mappings" / PathSegment).boxed();
    let (app_, operator) = (with_app(app), operator(app));
    one_of([
        all.clone()
            .and(require_admin(app, Method::GET))
            .and(app_.clone())
            .then(list)
            .boxed(),
        all.clone()
            .and(require_admin(app, Method::POST))
            .and(operator.clone())
            .and(body(MAX_BODY))
            .and(app_.clone())
            .then(save)
            .boxed(),
        each.clone()
            .and(require_admin(app, Method::PATCH))
            .and(operator.clone())
            .and(body(MAX_BODY))
            .and(app_.clone())
            .then(change)
            .boxed(),
        each.clone()
            .and(require_admin(app, Method::DELETE))
            .and(operator)
            .and(app_)
            .then(remove)
            .boxed(),
        reject_other_methods(&all, [Method::GET, Method::POST]),
        reject_other_methods(&without_param(&each), [Method::PATCH, Method::DELETE]),
    ])
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
    match mappings::remove(&app, by, TeamKey::new(key)).await? {
        true => Ok(ok(&json!({"deleted": true}))),
        false => Err(AdminApiError::NothingDeleted.into()),
    }
}
