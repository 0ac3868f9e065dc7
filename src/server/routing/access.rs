//! Access to routes: who may send a request, checked before its body is read.

use super::request::{Peer, Request};
use crate::error::{AdminApiError, ApiError, RunnerApiError, TriggerApiError};
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
    /// An admin token, or the control socket.
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
            Self::Admin if is_admin(app, &RequestAuth::of(request))? => Ok(()),
            Self::Admin => Err(AdminApiError::Unauthorized.into()),
            Self::Run(audience) => {
                let claims = verify_run_token(app, request.authorization(), audience)?;
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

    /// Returns the name of the security scheme in the OpenAPI document; `None` for public routes.
    pub(crate) fn security_scheme(self) -> Option<&'static str> {
        match self {
            Self::Admin => Some("admin"),
            Self::Run(TokenAudience::Result) => Some("resultToken"),
            Self::Run(TokenAudience::Progress) => Some("progressToken"),
            Self::TriggerSecret => Some("triggerSecret"),
            Self::Webhook(source) => Some(source.security_scheme()),
            Self::Public => None,
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

/// Credentials of a request, not verified yet.
#[derive(Debug, Clone, Default)]
pub(crate) struct RequestAuth {
    is_owner: bool,
    authorization: Option<String>,
}

impl RequestAuth {
    /// Creates the credentials of a network client with this Authorization header.
    pub(crate) fn with_authorization(authorization: &str) -> Self {
        Self {
            is_owner: false,
            authorization: Some(authorization.to_owned()),
        }
    }

    pub(super) fn of(request: &Request) -> Self {
        Self {
            is_owner: matches!(request.peer, Peer::ControlSocket),
            authorization: request.authorization().map(str::to_owned),
        }
    }
}

/// Whether the request comes from the control socket or has a valid admin token.
///
/// # Errors
/// When the store cannot be read.
pub(crate) fn is_admin(app: &App, auth: &RequestAuth) -> StoreResult<bool> {
    if auth.is_owner {
        return Ok(true);
    }
    match auth.authorization.as_deref().and_then(bearer_token) {
        Some(token) => sign_in::is_valid_token(&app.core, token),
        None => Ok(false),
    }
}

/// Verifies the Authorization header of a run.
///
/// # Errors
/// In this order: `RUNNER_TOKEN_SECRET` not set, no bearer token, invalid token.
pub(crate) fn verify_run_token(
    app: &App,
    header: Option<&str>,
    audience: TokenAudience,
) -> Result<RunClaims, RunnerApiError> {
    let tokens = app
        .secrets
        .run_tokens
        .as_ref()
        .ok_or(RunnerApiError::NotConfigured)?;
    let token = header
        .and_then(bearer_token)
        .ok_or(RunnerApiError::MissingBearer)?;
    tokens
        .verify(token, audience, app.core.now())
        .map_err(RunnerApiError::Token)
}

/// Adds the job id to all log lines of the current request.
pub(crate) fn record_job_id(job: &JobId) {
    tracing::Span::current().record("job_id", job.as_str());
}
