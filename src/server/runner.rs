//! `/runner/*`: what runs report, and what they ask. (spec: *Runner and session endpoints*)
//!
//! Every check runs before anything is stored, so that no refused report spends its token. That a
//! result counts once is decided in the commit that stores it, not here.

use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};
use warp::http::Method;
use warp::{Filter, path};

use super::error::{ApiError, RunnerFault};
use super::parts::{
    ApiResult, BODY, Routes, body, json, method, ok, one_of, only, run_token, with,
};
use domain::ids::JobId;
use domain::job::{Job, PullRef};
use domain::keys::run_token::{Audience, RunClaims, TokenError};
use domain::report::{Outcome, ProgressReport, ResultReport, RunPhase, Step, Usage};
use engine::app::App;
use engine::{context, report};
use store::jobs;

/// Routes of `/runner`.
pub fn routes(app: &App) -> Routes {
    let result = path!("runner" / "result").boxed();
    let progress = path!("runner" / "progress").boxed();
    let planned = path!("runner" / "planning-context").boxed();
    let (post, app_) = (method(Method::POST), with(app));
    one_of([
        progress
            .clone()
            .and(post.clone())
            .and(run_token(app, Audience::Progress))
            .and(body(BODY))
            .and(app_.clone())
            .then(report_progress)
            .boxed(),
        result
            .clone()
            .and(post)
            .and(run_token(app, Audience::Result))
            .and(body(BODY))
            .and(app_.clone())
            .then(report_result)
            .boxed(),
        planned
            .clone()
            .and(method(Method::GET))
            .and(run_token(app, Audience::Progress))
            .and(app_)
            .then(planning_context)
            .boxed(),
        only(&progress, [Method::POST]),
        only(&result, [Method::POST]),
        only(&planned, [Method::GET]),
    ])
}

async fn report_progress(claims: RunClaims, body: Bytes, app: App) -> ApiResult {
    let bytes = body.len();
    let mut body = json(&body)
        .filter(Value::is_object)
        .ok_or(RunnerFault::InvalidBody)?;
    let report = ProgressReport {
        step: Step::parse(body.get_mut("step").map(Value::take)).map_err(RunnerFault::Step)?,
        run_id: body["runId"].as_u64(),
        usage: Usage::deserialize(&body["usage"]).ok(),
        log: body["log"].as_str().map(str::to_owned),
    };
    report::progress(&app, &claims.job, report, bytes).await?;
    Ok(ok(&json!({"acknowledged": true})))
}

async fn report_result(claims: RunClaims, body: Bytes, app: App) -> ApiResult {
    let job = known_job(&app, &claims.job)?;
    let (bytes, body) = (body.len(), json(&body).unwrap_or(Value::Null));
    let (report, mut warnings) = ResultReport::parse(&body).map_err(RunnerFault::Result)?;
    if report.phase != claims.phase {
        return Err(RunnerFault::PhaseMismatch.into());
    }
    let opened = (report.phase, report.outcome) == (RunPhase::Implementation, Outcome::Success);
    if opened && !names_its_work(&job, &report) {
        return Err(RunnerFault::MissingPrUrl.into());
    }
    warnings.extend(report::result(&app, &claims.job, report, bytes).await?);
    Ok(ok(&json!({"acknowledged": true, "warnings": warnings})))
}

async fn planning_context(claims: RunClaims, app: App) -> ApiResult {
    let job = known_job(&app, &claims.job)?;
    let context = context::planning(&app, &job).await?;
    let related = context.related;
    Ok(ok(&json!({
        "planningContext": context.plan,
        "parent": related.parent,
        "siblings": related.siblings,
        "dependencies": related.dependencies,
    })))
}

/// Whether it says where its work is: a pull request, or the branch of a shadow, which opens none.
fn names_its_work(job: &Job, report: &ResultReport) -> bool {
    let url = report.pr_url.as_deref();
    url.is_some_and(|url| job.shadow || PullRef::from_url(url).is_some())
}

/// A good token of a job we do not know was not made for us.
fn known_job(app: &App, id: &JobId) -> Result<Job, ApiError> {
    let job = app.store.read(|tx| jobs::get(tx, id))?;
    job.ok_or_else(|| RunnerFault::Token(TokenError::Malformed).into())
}
