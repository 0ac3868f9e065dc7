//! Routes of sessions: `POST /api/token` (repository token of a run), `POST /api/status` and
//! `POST /api/step-report`. They need no admin token. See docs/behaviour.md#session-events.
//!
//! A session authenticates with the nonce that it was started with. For a repository token, a CI run
//! sends its progress token as bearer instead.

use bytes::Bytes;
use serde_json::{Value, json};

use super::error::{AdminApiError, ApiError};
use super::routing::{
    Access, ApiResult, Authorization, Peer, Route, ok, parse_json, record_job_id, verify_run_token,
};
use domain::crypto::run_token::{RunClaims, TokenAudience};
use domain::job::{Job, JobKind};
use domain::report::{ProgressReport, StepRecord};
use domain::session_event::SessionEvent;
use engine::app::App;
use engine::github_token;
use engine::run_reports::{self, ReportError};
use engine::session_events;
use store::{StoreError, jobs};
use vendors::scm::RepoTokenAccess;

/// Routes of sessions.
pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::post("/api/token", "issueRepoToken", issue_token)
            .access(Access::Public)
            .body(),
        Route::post("/api/status", "tellStatus", report_status)
            .access(Access::Public)
            .body(),
        Route::post("/api/step-report", "reportStep", report_step)
            .access(Access::Public)
            .body(),
    ]
}

async fn issue_token(
    Authorization(header): Authorization,
    peer: Peer,
    body: Bytes,
    app: App,
) -> ApiResult {
    let claims = match &header {
        Some(header) => Some(verify_run_token(
            &app,
            peer,
            Some(header),
            TokenAudience::Progress,
        )?),
        None => None,
    };
    let body = parse_json(&body).ok_or(AdminApiError::TokenIssueFailed)?;
    let text = |name: &str| body[name].as_str().filter(|text| !text.is_empty());
    let (owner, nonce) = (text("owner"), text("nonce"));
    let Some(owner) = owner.filter(|_| nonce.is_some() || claims.is_some()) else {
        return Err(AdminApiError::NonceAndOwnerRequired.into());
    };
    let job = session_job(&app, nonce, claims)?.ok_or(AdminApiError::InvalidNonce)?;
    record_job_id(&job.id);
    if !job.repo.owner.eq_ignore_ascii_case(owner) {
        return Err(AdminApiError::OwnerMismatch.into());
    }
    repo_token(&app, &job).await
}

/// Returns the active job of the caller.
fn session_job(
    app: &App,
    nonce: Option<&str>,
    claims: Option<RunClaims>,
) -> Result<Option<Job>, ApiError> {
    if let Some(nonce) = nonce {
        return Ok(app
            .core
            .store()
            .read(|tx| session_events::job_by_nonce(tx, nonce))?);
    }
    let Some(claims) = claims else {
        return Ok(None);
    };
    let job = app.core.store().read(|tx| jobs::get(tx, &claims.job))?;
    Ok(job.filter(Job::is_active))
}

async fn report_status(body: Bytes, app: App) -> ApiResult {
    let body = parse_json(&body).ok_or(AdminApiError::InvalidJson)?;
    let nonce = nonce_of(&body)?;
    let event = SessionEvent::parse(&body).map_err(AdminApiError::Event)?;
    let dedup_key = event.dedup_key(&body);
    let recorded = session_events::record(&app, nonce, event, dedup_key).await;
    if !recorded.map_err(not_stored)? {
        return Err(AdminApiError::InvalidNonce.into());
    }
    Ok(ok(&json!({"ok": true})))
}

async fn report_step(body: Bytes, app: App) -> ApiResult {
    let bytes = body.len();
    let mut body = parse_json(&body).ok_or(AdminApiError::InvalidJson)?;
    let step = StepRecord::parse(body.get_mut("step").map(Value::take));
    let nonce = nonce_of(&body)?;
    let step = step.map_err(AdminApiError::Step)?;
    let job = app
        .core
        .store()
        .read(|tx| session_events::job_by_nonce(tx, nonce));
    let job = job
        .map_err(not_stored)?
        .ok_or(AdminApiError::InvalidNonce)?;
    record_job_id(&job.id);
    let report = ProgressReport {
        step,
        run_id: None,
        usage: None,
        agent: None,
        model: None,
        log: body["log"].as_str().map(str::to_owned),
    };
    drop(body);
    match run_reports::record_progress(&app, &job.id, report, bytes).await {
        Ok(()) => Ok(ok(&json!({"ok": true}))),
        Err(ReportError::Store(error)) => Err(not_stored(error)),
        Err(_) => Err(AdminApiError::InvalidNonce.into()),
    }
}

fn nonce_of(body: &Value) -> Result<&str, ApiError> {
    let nonce = body["nonce"].as_str().filter(|nonce| !nonce.is_empty());
    nonce.ok_or_else(|| AdminApiError::NonceRequired.into())
}

/// Returns 500 for every store error, as required for these routes. See docs/behaviour.md#errors.
fn not_stored(error: StoreError) -> ApiError {
    tracing::error!(%error, "Failed to store a session report.");
    ApiError::internal()
}

async fn repo_token(app: &App, job: &Job) -> ApiResult {
    let github = app
        .vendors
        .github
        .as_ref()
        .ok_or(AdminApiError::TokenIssueFailed)?;
    let access = match job.kind {
        JobKind::Planning => RepoTokenAccess::Read,
        JobKind::Implementation
        | JobKind::GapFill
        | JobKind::FollowUp
        | JobKind::CiFix
        | JobKind::Conflict => RepoTokenAccess::Write,
    };
    let request = async {
        anyhow::ensure!(
            !github_token::is_refused(app).await?,
            github_token::REFUSAL_MESSAGE
        );
        Ok::<_, anyhow::Error>(github.repo_token(&job.repo, access).await?)
    };
    let issued = request.await.map_err(|error| {
        tracing::warn!(job_id = %job.id, issue = %job.issue.key, team = %job.team, repo = %job.repo, %error, "Failed to issue a repository token for a run.");
        AdminApiError::TokenIssueFailed
    })?;
    let token: Value = json!({
        "token": issued.token.expose(),
        "expiresAt": issued.expires_at,
        "repository": job.repo.to_string(),
    });
    Ok(ok(&token))
}
