//! `/runner/*`: reports and requests of runs. See docs/behaviour.md#requests-of-runs-and-hosts.
//!
//! All checks run before anything is stored, so that a rejected report does not consume its token. A
//! second result is rejected in the transaction that stores the first, not here.

use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};

use super::error::{ApiError, RunnerApiError};
use super::routing::{Access, ApiResult, PathSegment, Route, binary, ok, parse_json};
use domain::agent_identity::parse_agent_name;
use domain::crypto::run_token::{RunClaims, RunTokenError, TokenAudience};
use domain::evidence::MAX_REPORT_BYTES;
use domain::ids::JobId;
use domain::job::Job;
use domain::report::{ProgressReport, StepRecord, Usage};
use domain::run_log::{LogReceipt, LogReport};
use domain::ticket_context::TicketContext;
use engine::app::App;
use engine::conversation::context;
use engine::{evidence, planning_context, run_logs, run_reports};
use store::jobs;

/// Routes of `/runner`.
pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::post("/runner/progress", "reportProgress", report_progress)
            .access(Access::Run(TokenAudience::Progress))
            .body(),
        Route::post("/runner/log", "reportLog", report_log)
            .access(Access::Run(TokenAudience::Progress))
            .body()
            .returns::<LogReceipt>(),
        Route::post("/runner/evidence", "reportEvidence", report_evidence)
            .access(Access::Run(TokenAudience::Progress))
            .body_of(MAX_REPORT_BYTES),
        Route::post("/runner/result", "reportResult", report_result)
            .access(Access::Run(TokenAudience::Result))
            .body(),
        Route::get(
            "/runner/planning-context",
            "planningContext",
            planning_context,
        )
        .access(Access::Run(TokenAudience::Progress)),
        Route::get("/runner/ticket-context", "ticketContext", ticket_context)
            .access(Access::Run(TokenAudience::Progress))
            .returns::<TicketContext>(),
        Route::get(
            "/runner/attachments/:attachmentId",
            "attachment",
            attachment,
        )
        .access(Access::Run(TokenAudience::Progress)),
    ]
}

async fn report_progress(claims: RunClaims, body: Bytes, app: App) -> ApiResult {
    let bytes = body.len();
    let mut body = parse_json(&body)
        .filter(Value::is_object)
        .ok_or(RunnerApiError::InvalidBody)?;
    let report = ProgressReport {
        step: StepRecord::parse(body.get_mut("step").map(Value::take))
            .map_err(RunnerApiError::Step)?,
        run_id: body["runId"].as_u64(),
        usage: Usage::deserialize(&body["usage"]).ok(),
        agent: body["agent"].as_str().and_then(parse_agent_name),
        model: body["model"].as_str().and_then(parse_agent_name),
        log: body["log"].as_str().map(str::to_owned),
    };
    // Values take many times the memory of the text, and the commit may take long.
    drop(body);
    run_reports::record_progress(&app, &claims.job, report, bytes).await?;
    Ok(ok(&json!({"acknowledged": true})))
}

async fn report_log(claims: RunClaims, body: Bytes, app: App) -> ApiResult {
    let report = LogReport::parse(parse_json(&body).unwrap_or(Value::Null));
    let report = report.map_err(RunnerApiError::Log)?;
    Ok(ok(&run_logs::append(&app, &claims.job, report).await?))
}

async fn report_evidence(claims: RunClaims, body: Bytes, app: App) -> ApiResult {
    let warnings = evidence::receive(&app, &claims.job, &body).await?;
    Ok(ok(&json!({"acknowledged": true, "warnings": warnings})))
}

async fn report_result(claims: RunClaims, body: Bytes, app: App) -> ApiResult {
    let job = known_job(&app, &claims.job)?;
    let (bytes, body) = (body.len(), parse_json(&body).unwrap_or(Value::Null));
    let recorded = run_reports::record_result_body(&app, &job, claims.phase, body, bytes);
    let warnings = recorded.await?;
    Ok(ok(&json!({"acknowledged": true, "warnings": warnings})))
}

async fn planning_context(claims: RunClaims, app: App) -> ApiResult {
    let job = known_job(&app, &claims.job)?;
    let context = planning_context::load(&app, &job).await?;
    let related = context.related;
    Ok(ok(&json!({
        "planningContext": context.plan,
        "parent": related.parent,
        "siblings": related.siblings,
        "dependencies": related.dependencies,
    })))
}

async fn ticket_context(claims: RunClaims, app: App) -> ApiResult {
    let job = known_job(&app, &claims.job)?;
    Ok(ok(&context::load(&app, &job).await?))
}

async fn attachment(PathSegment(id): PathSegment, claims: RunClaims, app: App) -> ApiResult {
    let job = known_job(&app, &claims.job)?;
    let content = context::attachment(&app, &job, &id).await?;
    Ok(binary(content))
}

/// Returns the job of a token. A valid token of an unknown job was not issued by this service.
fn known_job(app: &App, id: &JobId) -> Result<Job, ApiError> {
    let job = app.core.store().read(|tx| jobs::get(tx, id))?;
    job.ok_or_else(|| RunnerApiError::Token(RunTokenError::Malformed).into())
}
