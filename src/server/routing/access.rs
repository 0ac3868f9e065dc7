//! Access to routes: who may send a request, checked before its body is read.

use warp::http::HeaderMap;
use warp::http::header::AUTHORIZATION;

use super::request::{Peer, Request};
use crate::error::{AdminApiError, ApiError, RunnerApiError, TriggerApiError};
use crate::session_cookie;
use crate::webhook_source::WebhookSource;
use domain::crypto::run_token::{RunClaims, TokenAudience};
use domain::crypto::signature::{bearer_token, bearer_token_matches};
use domain::ids::JobId;
use engine::admin::sign_in;
use engine::app::App;
use store::StoreResult;

/// Credential that a route requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// An admin token as bearer or in the session cookie, or the control socket.
    Admin,
    /// A run token of this audience.
    Run(TokenAudience),
    /// The secret of the gap-fill trigger.
    TriggerSecret,
    /// The signature of a webhook.
    Webhook(WebhookSource),
    /// None, or one that the handler checks.
    Public,
}

impl Access {
    /// Checks the head of a request, before its body is read.
    ///
    /// # Errors
    /// When the credential is missing or wrong.
    pub(super) fn check_head(self, request: &mut Request) -> Result<(), ApiError> {
        let app = &request.app;
        match self {
            Self::Admin => check_admin(request),
            Self::Run(audience) => {
                let claims =
                    verify_run_token(app, request.peer, request.authorization(), audience)?;
                record_job_id(&claims.job);
                request.claims = Some(claims);
                Ok(())
            }
            Self::TriggerSecret => check_trigger_secret(app, request.authorization()),
            Self::Webhook(source) => Ok(source.check_header(app, &request.headers)?),
            Self::Public => Ok(()),
        }
    }

    /// Checks the body of a request.
    ///
    /// # Errors
    /// When it is not the body that was signed.
    pub(super) fn check_body(self, request: &Request) -> Result<(), ApiError> {
        match self {
            Self::Webhook(source) => {
                Ok(source.check_signature(&request.app, &request.headers, &request.body)?)
            }
            Self::Admin | Self::Run(_) | Self::TriggerSecret | Self::Public => Ok(()),
        }
    }
}

fn check_trigger_secret(app: &App, header: Option<&str>) -> Result<(), ApiError> {
    let secret = app.core.config.gap_fill_trigger_secret.as_ref();
    let secret = secret.ok_or(TriggerApiError::NotConfigured)?;
    match header.is_some_and(|header| bearer_token_matches(header, secret)) {
        true => Ok(()),
        false => Err(TriggerApiError::Unauthorized.into()),
    }
}

fn check_admin(request: &Request) -> Result<(), ApiError> {
    let credential = AdminCredential::of(request.peer, &request.headers);
    if !is_admin(&request.app, &credential)? {
        return Err(AdminApiError::Unauthorized.into());
    }
    // Browsers add cookies to requests of any page.
    let is_forgeable = matches!(credential, AdminCredential::Cookies(_));
    if is_forgeable && !session_cookie::is_from_panel(&request.method, &request.headers) {
        return Err(AdminApiError::CrossSiteRequest.into());
    }
    Ok(())
}

/// Credential of an operator, not verified yet.
#[derive(Debug, Clone)]
pub(crate) enum AdminCredential {
    /// The control socket.
    Owner,
    /// Admin token as bearer. Cookies of the same request do not count.
    Bearer(String),
    /// Values of the session cookie, of which one may be an admin token.
    Cookies(Vec<String>),
}

impl AdminCredential {
    /// Returns the credential of a request.
    pub(crate) fn of(peer: Peer, headers: &HeaderMap) -> Self {
        if matches!(peer, Peer::ControlSocket) {
            return Self::Owner;
        }
        // Another scheme is meant for a reverse proxy in front of the service.
        let authorization = headers.get(AUTHORIZATION).and_then(|one| one.to_str().ok());
        match authorization.and_then(bearer_token) {
            Some(token) => Self::Bearer(token.to_owned()),
            None => Self::Cookies(session_cookie::values(headers)),
        }
    }

    /// Returns the tokens to try.
    pub(crate) fn tokens(&self) -> &[String] {
        match self {
            Self::Owner => &[],
            Self::Bearer(token) => std::slice::from_ref(token),
            Self::Cookies(values) => values,
        }
    }
}

/// Whether the request comes from the control socket or has a valid admin token.
///
/// # Errors
/// When the store cannot be read.
pub(crate) fn is_admin(app: &App, credential: &AdminCredential) -> StoreResult<bool> {
    if matches!(credential, AdminCredential::Owner) {
        return Ok(true);
    }
    Ok(sign_in::session_end(&app.core, credential.tokens())?.is_some())
}

/// Verifies the Authorization header of a run.
///
/// # Errors
/// In this order: not the socket of runs and `RUNNER_TOKEN_SECRET` not set, no bearer token, invalid token.
pub(crate) fn verify_run_token(
    app: &App,
    peer: Peer,
    header: Option<&str>,
    audience: TokenAudience,
) -> Result<RunClaims, RunnerApiError> {
    let is_run_socket = matches!(peer, Peer::RunSocket);
    if !is_run_socket && app.core.config.runner_token_secret.is_none() {
        return Err(RunnerApiError::NotConfigured);
    }
    let token = header
        .and_then(bearer_token)
        .ok_or(RunnerApiError::MissingBearer)?;
    app.secrets
        .run_tokens
        .verify(token, audience, app.core.now())
        .map_err(RunnerApiError::Token)
}

/// Adds the job id to all log lines of the current request.
pub(crate) fn record_job_id(job: &JobId) {
    tracing::Span::current().record("job_id", job.as_str());
}
