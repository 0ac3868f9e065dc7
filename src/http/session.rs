//! `POST /api/token`: the repository credential of a run. It needs no administrator.
//!
//! A run shows either the nonce it was started with or its progress token as bearer.

use bytes::Bytes;
use serde_json::{Value, json};
use warp::http::Method;
use warp::{Filter, path};

use super::error::{AdminFault, ApiError};
use super::parts::{
    ADMIN_BODY, ApiResult, Routes, authorization, body, json, method, ok, one_of, only, run_claims,
    with,
};
use crate::app::App;
use crate::domain::job::{Job, JobKind};
use crate::keys::run_token::{Audience, RunClaims};
use crate::scm::RepoPurpose;
use crate::store::jobs;

/// Routes of sessions.
pub fn routes(app: &App) -> Routes {
    let token = path!("api" / "token").boxed();
    one_of([
        token
            .clone()
            .and(method(Method::POST))
            .and(authorization())
            .and(body(ADMIN_BODY))
            .and(with(app))
            .then(issue_token)
            .boxed(),
        only(&token, [Method::POST]),
    ])
}

async fn issue_token(header: Option<String>, body: Bytes, app: App) -> ApiResult {
    let claims = match &header {
        Some(header) => Some(run_claims(&app, Some(header), Audience::Progress)?),
        None => None,
    };
    let body = json(&body).ok_or(AdminFault::TokenFailed)?;
    let text = |name: &str| body[name].as_str().filter(|text| !text.is_empty());
    let (owner, nonce) = (text("owner"), text("nonce"));
    let Some(owner) = owner.filter(|_| nonce.is_some() || claims.is_some()) else {
        return Err(AdminFault::NonceAndOwnerRequired.into());
    };
    let job = session_job(&app, nonce, claims)?.ok_or(AdminFault::NonceUnknown)?;
    if !job.repo.owner.eq_ignore_ascii_case(owner) {
        return Err(AdminFault::OwnerMismatch.into());
    }
    repo_token(&app, &job).await
}

/// The active job that the caller belongs to.
fn session_job(
    app: &App,
    nonce: Option<&str>,
    claims: Option<RunClaims>,
) -> Result<Option<Job>, ApiError> {
    // No runner that is started with a nonce exists yet, so none can match.
    let Some(claims) = claims.filter(|_| nonce.is_none()) else {
        return Ok(None);
    };
    let job = app.store.read(|tx| jobs::get(tx, &claims.job))?;
    Ok(job.filter(Job::is_active))
}

async fn repo_token(app: &App, job: &Job) -> ApiResult {
    let github = app.github.as_ref().ok_or(AdminFault::TokenFailed)?;
    let purpose = match job.kind {
        JobKind::Planning => RepoPurpose::Read,
        JobKind::Implementation | JobKind::GapFill | JobKind::FollowUp => RepoPurpose::Change,
    };
    let issued = github.repo_token(&job.repo, purpose).await.map_err(|error| {
        tracing::warn!(job.id = %job.id, repo = %job.repo, %error, "A run got no repository token.");
        AdminFault::TokenFailed
    })?;
    let token: Value = json!({
        "token": issued.token.expose(),
        "expiresAt": issued.expires_at,
        "repository": job.repo.to_string(),
    });
    Ok(ok(&token))
}
