//! `/api/global-secrets` and `/api/mappings/:teamKey/secrets`: secrets for the environment of sessions.
//! Values are write-only. See docs/configuration.md#secret-scopes.

use bytes::Bytes;
use serde::Serialize;
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
use domain::session_secrets::{SecretScope, variable_from_stored_name};
use domain::time::Timestamp;
use engine::admin::secrets;
use engine::app::App;
use store::secrets::SealedSecretRow;

/// Routes of global and team secrets.
pub(super) fn routes(app: &App) -> Routes {
    one_of([global_routes(app), team_routes(app)])
}

fn global_routes(app: &App) -> Routes {
    let all = path!("api" / "global-secrets").boxed();
    let each = path!("api" / "global-secrets" / PathSegment).boxed();
    let (app_, operator) = (with_app(app), operator(app));
    one_of([
        all.clone()
            .and(require_admin(app, Method::GET))
            .and(app_.clone())
            .then(|app| list(SecretScope::Global, app))
            .boxed(),
        all.clone()
            .and(require_admin(app, Method::POST))
            .and(operator.clone())
            .and(body(MAX_BODY))
            .and(app_.clone())
            .then(|by, body, app| save(SecretScope::Global, by, body, app))
            .boxed(),
        each.clone()
            .and(require_admin(app, Method::DELETE))
            .and(operator)
            .and(app_)
            .then(|name, by, app| remove(SecretScope::Global, name, by, app))
            .boxed(),
        reject_other_methods(&all, [Method::GET, Method::POST]),
        reject_other_methods(&without_param(&each), [Method::DELETE]),
    ])
}

fn team_routes(app: &App) -> Routes {
    let all = path!("api" / "mappings" / PathSegment / "secrets").boxed();
    let each = path!("api" / "mappings" / PathSegment / "secrets" / PathSegment).boxed();
    let (app_, operator) = (with_app(app), operator(app));
    one_of([
        all.clone()
            .and(require_admin(app, Method::GET))
            .and(app_.clone())
            .then(|team, app| list(team_scope(team), app))
            .boxed(),
        all.clone()
            .and(require_admin(app, Method::POST))
            .and(operator.clone())
            .and(body(MAX_BODY))
            .and(app_.clone())
            .then(|team, by, body, app| save(team_scope(team), by, body, app))
            .boxed(),
        each.clone()
            .and(require_admin(app, Method::DELETE))
            .and(operator)
            .and(app_)
            .then(|team, name, by, app| remove(team_scope(team), name, by, app))
            .boxed(),
        reject_other_methods(&without_param(&all), [Method::GET, Method::POST]),
        reject_other_methods(&each.map(|_, _| ()).untuple_one().boxed(), [Method::DELETE]),
    ])
}

fn team_scope(PathSegment(team): PathSegment) -> SecretScope {
    SecretScope::Team(TeamKey::new(team))
}

async fn list(scope: SecretScope, app: App) -> ApiResult {
    let rows = secrets::list(&app, &scope)?;
    let shown: Vec<SecretView<'_>> = rows
        .iter()
        .filter_map(|row| SecretView::of(&scope, row))
        .collect();
    Ok(ok(&shown))
}

async fn save(scope: SecretScope, by: Actor, body: Bytes, app: App) -> ApiResult {
    secrets::require_sessions(&app)?;
    let body = parse_json(&body).filter(Value::is_object);
    let body = body.ok_or(AdminApiError::InvalidBody)?;
    secrets::require_team(&app, &scope)?;
    let text = |field: &str| body[field].as_str().filter(|text| !text.is_empty());
    let name = text("name").map(str::trim).filter(|name| !name.is_empty());
    let (Some(name), Some(value)) = (name, text("value")) else {
        return Err(AdminApiError::NameAndValueRequired.into());
    };
    let variable = secrets::set(&app, by, scope, name, value).await?;
    Ok(ok(&json!({ "name": variable })))
}

async fn remove(
    scope: SecretScope,
    PathSegment(name): PathSegment,
    by: Actor,
    app: App,
) -> ApiResult {
    secrets::remove(&app, by, scope, &name).await?;
    Ok(ok(&json!({"deleted": true})))
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SecretView<'a> {
    /// Name of the variable in a session.
    name: &'a str,
    updated_at: Timestamp,
}

impl<'a> SecretView<'a> {
    fn of(scope: &SecretScope, row: &'a SealedSecretRow) -> Option<Self> {
        Some(Self {
            name: variable_from_stored_name(scope, &row.stored_name)?,
            updated_at: row.secret.updated_at,
        })
    }
}
