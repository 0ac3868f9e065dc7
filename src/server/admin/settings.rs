//! `/api/settings`: settings stored by the service. Changes take effect after a restart. See
//! docs/configuration.md#settings-stored-by-the-service.

use bytes::Bytes;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::error::AdminApiError;
use crate::routing::{ApiResult, Route, ok, parse_json};
use domain::audit::Actor;
use engine::admin::settings::{self, SettingChange};
use engine::app::{App, DEFAULT_REGION};
use store::settings::OperatorSetting;
use store::{ReadableTx, StoreResult};

/// Routes of `/api/settings`.
pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::get("/api/settings", "showSettings", show).mentions::<SettingsView>(),
        Route::post("/api/settings", "changeSettings", save).body(),
    ]
}

async fn show(app: App) -> ApiResult {
    Ok(ok(&app
        .core
        .store()
        .read(|tx| SettingsView::of(tx, &app))?))
}

/// Stores settings. An omitted setting is kept; an empty string clears it.
async fn save(by: Actor, body: Bytes, app: App) -> ApiResult {
    let body = parse_json(&body).filter(Value::is_object);
    let body = body.ok_or(AdminApiError::InvalidBody)?;
    let mut changes = Vec::new();
    for setting in [
        OperatorSetting::VmSessionsApp,
        OperatorSetting::VmSessionsRegion,
    ] {
        changes.extend(parse_setting(&body, setting)?);
    }
    settings::change(&app.core, by, changes).await?;
    show(app).await
}

/// Parses a setting; `None` if it is omitted.
fn parse_setting(
    body: &Value,
    setting: OperatorSetting,
) -> Result<Option<SettingChange>, AdminApiError> {
    let change = match &body[setting.name()] {
        Value::Null => return Ok(None),
        Value::String(text) => SettingChange::new(setting, text.trim()),
        _ => Err(SettingChange::rule(setting)),
    };
    change.map(Some).map_err(AdminApiError::Invalid)
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Settings")]
struct SettingsView {
    vm_sessions_app: SettingView,
    vm_sessions_region: SettingView,
    /// Whether a restart would change an effective value.
    restart_required: bool,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Setting")]
struct SettingView {
    /// Value in effect since the last start.
    runtime_value: Option<String>,
    stored_value: Option<String>,
    env_value: Option<String>,
    overridden_by_env: bool,
    /// Origin of the value in effect; null if there is no value.
    source: Option<SettingSource>,
    /// Whether a restart would change the effective value.
    restart_required: bool,
}

/// Origin of the value of a setting.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
enum SettingSource {
    /// Environment of the service.
    Env,
    /// Stored by an operator before the last start.
    Stored,
    /// Default of the service.
    Default,
}

impl SettingView {
    fn of(tx: &impl ReadableTx, app: &App, setting: OperatorSetting) -> StoreResult<Self> {
        let (env, started, default) = match setting {
            OperatorSetting::VmSessionsApp => (
                &app.core.config.vm_sessions.app,
                &app.core.startup_settings.vm_sessions_app,
                None,
            ),
            OperatorSetting::VmSessionsRegion => (
                &app.core.config.vm_sessions.region,
                &app.core.startup_settings.vm_sessions_region,
                Some(DEFAULT_REGION),
            ),
        };
        let effective = |stored: &Option<String>| {
            let chosen = env.as_ref().or(stored.as_ref()).cloned();
            chosen.or_else(|| default.map(str::to_owned))
        };
        let source = match (env, started) {
            (Some(_), _) => Some(SettingSource::Env),
            (None, Some(_)) => Some(SettingSource::Stored),
            (None, None) => default.map(|_| SettingSource::Default),
        };
        let stored_value = store::settings::get(tx, setting)?;
        let runtime_value = effective(started);
        Ok(Self {
            source,
            restart_required: runtime_value != effective(&stored_value),
            runtime_value,
            stored_value,
            env_value: env.clone(),
            overridden_by_env: env.is_some(),
        })
    }
}

impl SettingsView {
    fn of(tx: &impl ReadableTx, app: &App) -> StoreResult<Self> {
        let vm_sessions_app = SettingView::of(tx, app, OperatorSetting::VmSessionsApp)?;
        let vm_sessions_region = SettingView::of(tx, app, OperatorSetting::VmSessionsRegion)?;
        Ok(Self {
            restart_required: vm_sessions_app.restart_required
                || vm_sessions_region.restart_required,
            vm_sessions_app,
            vm_sessions_region,
        })
    }
}
