//! `/api/global-secrets` and `/api/mappings/:teamKey/secrets`: secrets for the environment of sessions.
//! Values are write-only. See docs/configuration.md#secret-scopes.

use bytes::Bytes;
use serde::Serialize;
use serde_json::{Value, json};
use warp::http::Method;
use warp::{Filter, path};

use crate::error::{AdminApiError, ApiError};
use crate::routing::{
    ApiResult, MAX_BODY, PathSegment, Routes, body, ok, one_of, operator, parse_json,
    reject_other_methods, require_admin, with_app, without_param,
};
use domain::audit::{Action, Actor, AuditEvent};
use domain::ids::TeamKey;
use domain::runner_mode::RunnerMode;
use domain::secret::Secret;
use domain::session_secrets::{SecretName, SecretScope, variable_from_stored_name};
use domain::time::Timestamp;
use engine::app::App;
use store::secrets::SealedSecretRow;
use store::{ReadableTx, StoreResult, audit, mappings, secrets};

/// Maximum size of a value, in bytes. Below the limit of machines and containers for one variable.
const MAX_VALUE: usize = 32 << 10;

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
    require_sessions(&app)?;
    let rows = app.store.read(|tx| {
        if !exists(tx, &scope)? {
            return Ok(None);
        }
        secrets::of_scope(tx, &scope).map(Some)
    });
    let rows = rows?.ok_or(AdminApiError::TeamNotFound)?;
    let shown: Vec<SecretView<'_>> = rows
        .iter()
        .filter_map(|row| SecretView::of(&scope, row))
        .collect();
    Ok(ok(&shown))
}

async fn save(scope: SecretScope, by: Actor, body: Bytes, app: App) -> ApiResult {
    require_sessions(&app)?;
    let body = parse_json(&body).filter(Value::is_object);
    let body = body.ok_or(AdminApiError::InvalidBody)?;
    if !app.store.read(|tx| exists(tx, &scope))? {
        return Err(AdminApiError::TeamNotFound.into());
    }
    let text = |field: &str| body[field].as_str().filter(|text| !text.is_empty());
    let name = text("name").map(str::trim).filter(|name| !name.is_empty());
    let (Some(name), Some(value)) = (name, text("value")) else {
        return Err(AdminApiError::NameAndValueRequired.into());
    };
    let name = SecretName::parse(scope, name)?;
    check_value(value)?;
    let sealed = app.vault.seal(&name, &Secret::new(value), app.now());
    let sealed = sealed.map_err(|error| AdminApiError::Vendor(error.to_string()))?;
    let variable = name.variable().to_owned();
    let (event, now) = (audit_event(&by, Action::SecretSet, &name), app.now());
    let stored = app.store.write(move |tx| {
        if !exists(tx, name.scope())? {
            return Ok(Err(AdminApiError::TeamNotFound.into()));
        }
        let teams = mappings::all(tx)?;
        let allowed = name.check_allowed(teams.iter().map(|mapping| &mapping.team_key));
        if let Err(error) = allowed {
            return Ok(Err(ApiError::from(error)));
        }
        secrets::put(tx, &name, &sealed)?;
        audit::append(tx, &event, now).map(Ok)
    });
    stored.await??;
    Ok(ok(&json!({ "name": variable })))
}

async fn remove(
    scope: SecretScope,
    PathSegment(name): PathSegment,
    by: Actor,
    app: App,
) -> ApiResult {
    require_sessions(&app)?;
    if !app.store.read(|tx| exists(tx, &scope))? {
        return Err(AdminApiError::TeamNotFound.into());
    }
    // An invalid name cannot belong to a stored secret.
    let name = SecretName::parse(scope, &name).map_err(|_| AdminApiError::SecretNotFound)?;
    let (event, now) = (audit_event(&by, Action::SecretDeleted, &name), app.now());
    let removed = app.store.write(move |tx| {
        let removed = secrets::remove(tx, &name)?;
        if removed {
            audit::append(tx, &event, now)?;
        }
        Ok(removed)
    });
    if removed.await? {
        Ok(ok(&json!({"deleted": true})))
    } else {
        Err(AdminApiError::SecretNotFound.into())
    }
}

/// Builds the audit event, which contains the name but never the value.
fn audit_event(by: &Actor, action: Action, name: &SecretName) -> AuditEvent {
    let scope = match name.scope() {
        SecretScope::Global => "of every team".to_owned(),
        SecretScope::Team(team) => format!("of team {team}"),
    };
    by.audit_event(action, name.variable()).with_detail(scope)
}

/// Rejects the request if no sessions are in use, because secrets are passed to sessions only.
fn require_sessions(app: &App) -> Result<(), ApiError> {
    let mode = app.store.read(|tx| app.runner_mode(tx))?;
    if app.available_runners().vm || mode == RunnerMode::Local {
        Ok(())
    } else {
        Err(AdminApiError::SessionsNotConfigured.into())
    }
}

fn exists(tx: &impl ReadableTx, scope: &SecretScope) -> StoreResult<bool> {
    match scope {
        SecretScope::Global => Ok(true),
        SecretScope::Team(team) => Ok(mappings::get(tx, team)?.is_some()),
    }
}

/// Checks that a value can be an environment variable.
fn check_value(value: &str) -> Result<(), ApiError> {
    let rule = if value.contains('\0') {
        "value must not contain NUL".to_owned()
    } else if value.len() > MAX_VALUE {
        format!("value must be at most {} KiB", MAX_VALUE >> 10)
    } else {
        return Ok(());
    };
    Err(AdminApiError::Invalid(rule).into())
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
