//! `/api/auth`: sign-in with the access code, and sign-out.

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::json;

use super::access_code_throttle::{AccessCodeCheck, AccessCodeThrottle};
use crate::error::AdminApiError;
use crate::routing::{Access, ApiResult, Authorization, Route, ok, parse_json};
use domain::audit::Actor;
use domain::crypto::admin_token::constant_time_eq;
use domain::crypto::signature::bearer_token;
use engine::admin::sign_in::{self, SignInFailure};
use engine::app::App;

/// Routes of `/api/auth`.
pub(super) fn routes() -> Vec<Route> {
    let throttle = Arc::new(AccessCodeThrottle::default());
    let sign_in =
        move |from: IpAddr, body: Bytes, app: App| sign_in(from, body, Arc::clone(&throttle), app);
    vec![
        Route::post("/api/auth", "signIn", sign_in)
            .access(Access::Public)
            .body(),
        Route::post("/api/auth/logout", "signOut", sign_out),
    ]
}

async fn sign_in(
    from: IpAddr,
    body: Bytes,
    throttle: Arc<AccessCodeThrottle>,
    app: App,
) -> ApiResult {
    let body = parse_json(&body).ok_or(AdminApiError::InvalidBody)?;
    let code = body["code"].as_str().ok_or(AdminApiError::InvalidBody)?;
    let now = app.core.now();
    let expected = app.core.config.admin_access_code.as_ref();
    let is_correct = || expected.is_some_and(|expected| constant_time_eq(code, expected));
    match throttle.check(from, now, is_correct) {
        AccessCodeCheck::Correct => {}
        AccessCodeCheck::Wrong => {
            tracing::warn!(%from, "Rejected a sign-in: wrong access code.");
            sign_in::record_failure(&app, SignInFailure::WrongCode, from).await?;
            return Err(AdminApiError::InvalidAccessCode.into());
        }
        AccessCodeCheck::RetryAfter(time) => {
            sign_in::record_failure(&app, SignInFailure::Throttled, from).await?;
            return Err(AdminApiError::TooManyAttempts(time).into());
        }
    }
    let issued = sign_in::sign_in(&app.core, from).await?;
    Ok(ok(
        &json!({"token": issued.token.expose(), "expiresAt": issued.expires_at}),
    ))
}

async fn sign_out(by: Actor, Authorization(header): Authorization, app: App) -> ApiResult {
    let token = header.as_deref().and_then(bearer_token);
    sign_in::sign_out(&app.core, by, token).await?;
    Ok(ok(&json!({"loggedOut": true})))
}
