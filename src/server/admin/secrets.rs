//! `/api/global-secrets` and `/api/mappings/:teamKey/secrets`: secrets for the environment of sessions.
//! Values are write-only. See docs/configuration.md#secret-scopes.

use bytes::Bytes;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use crate::error::AdminApiError;
use crate::routing::{ApiResult, PathSegment, Route, ok, parse_json};
use domain::audit::Actor;
use domain::ids::TeamKey;
use domain::session_secrets::{SecretScope, variable_from_stored_name};
use domain::time::Timestamp;
use engine::admin::secrets;
use engine::app::App;
use store::secrets::SealedSecretRow;

/// Routes of global and team secrets.
pub(super) fn routes() -> Vec<Route> {
    const GLOBAL: SecretScope = SecretScope::Global;
    let list_global = |app: App| list(GLOBAL, app);
    let save_global = |by: Actor, body: Bytes, app: App| save(GLOBAL, by, body, app);
    let remove_global = |name: PathSegment, by: Actor, app: App| remove(GLOBAL, name, by, app);
    let list_of_team = |team: PathSegment, app: App| list(team_scope(team), app);
    let save_of_team =
        |team: PathSegment, by: Actor, body: Bytes, app: App| save(team_scope(team), by, body, app);
    let remove_of_team = |team: PathSegment, name: PathSegment, by: Actor, app: App| {
        remove(team_scope(team), name, by, app)
    };
    let (global, of_team) = ("/api/global-secrets", "/api/mappings/:teamKey/secrets");
    let (each_global, each_of_team) = (
        "/api/global-secrets/:name",
        "/api/mappings/:teamKey/secrets/:name",
    );
    vec![
        Route::get(global, "listGlobalSecrets", list_global).mentions::<SecretView<'_>>(),
        Route::post(global, "setGlobalSecret", save_global).body(),
        Route::delete(each_global, "deleteGlobalSecret", remove_global),
        Route::get(of_team, "listTeamSecrets", list_of_team),
        Route::post(of_team, "setTeamSecret", save_of_team).body(),
        Route::delete(each_of_team, "deleteTeamSecret", remove_of_team),
    ]
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
    secrets::require_team(&app.core, &scope)?;
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

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "StoredSecret")]
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
