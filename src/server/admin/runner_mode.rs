//! `/api/runner-mode`: the global override of where runs execute. (spec: *Runner modes*)

use bytes::Bytes;
use serde::Serialize;
use warp::http::Method;
use warp::{Filter, path};

use crate::error::AdminFault;
use crate::parts::{
    ApiResult, BODY, Routes, body, json, ok, one_of, only, operator, signed_in, with,
};
use domain::audit::{Action, Actor};
use domain::ids::TeamKey;
use domain::runner_mode::{RunnerMode, place};
use engine::app::App;
use store::{Rows, StoreResult, audit, mappings, settings};

/// Routes of `/api/runner-mode`.
pub fn routes(app: &App) -> Routes {
    let mode = path!("api" / "runner-mode").boxed();
    one_of([
        mode.clone()
            .and(signed_in(app, Method::GET))
            .and(with(app))
            .then(show)
            .boxed(),
        mode.clone()
            .and(signed_in(app, Method::POST))
            .and(operator(app))
            .and(body(BODY))
            .and(with(app))
            .then(save)
            .boxed(),
        only(&mode, [Method::GET, Method::POST]),
    ])
}

async fn show(app: App) -> ApiResult {
    Ok(ok(&app.store.read(|tx| ModeView::of(tx, &app))?))
}

/// A mode that the environment overrides is stored all the same.
async fn save(by: Actor, body: Bytes, app: App) -> ApiResult {
    let body = json(&body).filter(|body| body.is_object());
    let body = body.ok_or(AdminFault::InvalidBody)?;
    let mode = body["mode"].as_str().and_then(RunnerMode::parse);
    let mode = mode.ok_or(AdminFault::ModeUnknown)?;
    let (deed, now) = (by.did(Action::RunnerModeSet, mode.as_str()), app.now());
    let put = app.store.write(move |tx| {
        settings::put_runner_mode(tx, mode)?;
        audit::append(tx, &deed, now)
    });
    put.await?;
    // Issues that could not run in the mode before may run now.
    app.bells.poll.notify_one();
    match app.config.runner_mode {
        Some(in_force) => Err(AdminFault::ModeOverridden(in_force).into()),
        None => show(app).await,
    }
}

#[derive(Serialize)]
struct ModeView {
    mode: &'static str,
    source: &'static str,
    stored: Option<&'static str>,
    ineligible: Vec<Ineligible>,
}

/// A mapping whose runs cannot execute where the mode wants them.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Ineligible {
    team_key: TeamKey,
    reason: String,
}

impl ModeView {
    fn of(tx: &impl Rows, app: &App) -> StoreResult<Self> {
        let stored = settings::runner_mode(tx)?;
        let source = match (app.config.runner_mode, stored) {
            (Some(_), _) => "env",
            (None, Some(_)) => "stored",
            (None, None) => "default",
        };
        let mode = app.runner_mode(tx)?;
        let ineligible = mappings::all(tx)?.into_iter().filter_map(|mapping| {
            let reason = place(mode, &mapping, app.available()).err()?;
            let team_key = mapping.team_key;
            Some(Ineligible { team_key, reason })
        });
        Ok(Self {
            mode: mode.as_str(),
            source,
            stored: stored.map(RunnerMode::as_str),
            ineligible: ineligible.collect(),
        })
    }
}
