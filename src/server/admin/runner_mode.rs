//! `/api/runner-mode`: global override of where runs execute. See docs/behaviour.md#runner-modes.

use bytes::Bytes;
use schemars::JsonSchema;
use serde::Serialize;

use crate::error::AdminApiError;
use crate::routing::{ApiResult, Route, ok, parse_json};
use domain::audit::Actor;
use domain::ids::TeamKey;
use domain::runner_mode::{RunnerMode, choose_placement};
use engine::admin::runner_mode;
use engine::app::App;
use store::{ReadableTx, StoreResult, mappings, settings};

/// Routes of `/api/runner-mode`.
pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::get("/api/runner-mode", "showRunnerMode", show).mentions::<ModeView>(),
        Route::post("/api/runner-mode", "setRunnerMode", save).body(),
    ]
}

async fn show(app: App) -> ApiResult {
    Ok(ok(&app.core.store().read(|tx| ModeView::of(tx, &app))?))
}

/// Stores the runner mode, even if the environment overrides it.
async fn save(by: Actor, body: Bytes, app: App) -> ApiResult {
    let body = parse_json(&body).filter(|body| body.is_object());
    let body = body.ok_or(AdminApiError::InvalidBody)?;
    let mode = body["mode"].as_str().and_then(RunnerMode::parse);
    let mode = mode.ok_or(AdminApiError::InvalidMode)?;
    runner_mode::set(&app, by, mode).await?;
    match app.core.config.runner_mode {
        Some(effective) => Err(AdminApiError::ModeOverridden(effective).into()),
        None => show(app).await,
    }
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "RunnerMode")]
struct ModeView {
    /// Mode in effect.
    #[schemars(with = "RunnerMode")]
    mode: &'static str,
    /// Where the mode in effect comes from.
    #[schemars(extend("enum" = ["env", "stored", "default"]))]
    source: &'static str,
    #[schemars(with = "Option<RunnerMode>")]
    stored: Option<&'static str>,
    /// Mode from the environment, which takes precedence over the stored one.
    #[schemars(with = "Option<RunnerMode>")]
    env: Option<&'static str>,
    ineligible: Vec<Ineligible>,
}

/// Mapping whose runs cannot execute in the current mode.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "IneligibleMapping")]
struct Ineligible {
    team_key: TeamKey,
    reason: String,
}

impl ModeView {
    fn of(tx: &impl ReadableTx, app: &App) -> StoreResult<Self> {
        let stored = settings::runner_mode(tx)?;
        let source = match (app.core.config.runner_mode, stored) {
            (Some(_), _) => "env",
            (None, Some(_)) => "stored",
            (None, None) => "default",
        };
        let mode = app.core.runner_mode(tx)?;
        let ineligible = mappings::all(tx)?.into_iter().filter_map(|mapping| {
            let reason = choose_placement(mode, &mapping, app.available_runners()).err()?;
            let team_key = mapping.team_key;
            Some(Ineligible { team_key, reason })
        });
        Ok(Self {
            mode: mode.as_str(),
            source,
            stored: stored.map(RunnerMode::as_str),
            env: app.core.config.runner_mode.map(RunnerMode::as_str),
            ineligible: ineligible.collect(),
        })
    }
}
