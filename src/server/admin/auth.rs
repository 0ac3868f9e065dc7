//! `/api/auth`: sign-in with the access code, and sign-out.
//!
//! A sign-in returns the token to programs, and sets it as a cookie for the panel.

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::json;

use super::access_code_throttle::{AccessCodeCheck, AccessCodeThrottle};
use crate::error::AdminApiError;
use crate::routing::{Access, AdminCredential, ApiResult, Route, ok, parse_json};
use crate::session_cookie::{CookieWriter, SameOrigin};
use domain::audit::Actor;
use domain::crypto::admin_token::constant_time_eq;
use engine::admin::sign_in::{self, SignInFailure};
use engine::app::App;

/// Routes of `/api/auth`.
pub(super) fn routes() -> Vec<Route> {
    let throttle = Arc::new(AccessCodeThrottle::default());
    let sign_in = move |same_origin: SameOrigin,
                        from: IpAddr,
                        cookie: CookieWriter,
                        body: Bytes,
                        app: App| {
        sign_in(same_origin, from, cookie, body, Arc::clone(&throttle), app)
    };
    vec![
        Route::get("/api/auth", "showSession", show),
        Route::post("/api/auth", "signIn", sign_in)
            .access(Access::Public)
            .body(),
        Route::post("/api/auth/logout", "signOut", sign_out),
    ]
}

async fn show(credential: AdminCredential, app: App) -> ApiResult {
    let expires_at = sign_in::session_end(&app.core, credential.tokens())?;
    Ok(ok(&json!({"signedIn": true, "expiresAt": expires_at})))
}

async fn sign_in(
    _: SameOrigin,
    from: IpAddr,
    cookie: CookieWriter,
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
    let body = json!({"token": issued.token.expose(), "expiresAt": issued.expires_at});
    let mut response = ok(&body);
    cookie.set(&mut response, &issued.token);
    Ok(response)
}

async fn sign_out(
    by: Actor,
    credential: AdminCredential,
    cookie: CookieWriter,
    app: App,
) -> ApiResult {
    sign_in::sign_out(&app.core, by, credential.tokens()).await?;
    let mut response = ok(&json!({"loggedOut": true}));
    cookie.clear(&mut response);
    Ok(response)
}
