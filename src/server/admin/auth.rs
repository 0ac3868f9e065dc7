//! `/api/auth`: signing in with the access code, and out again.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::json;
use warp::http::Method;
use warp::{Filter, path};

use super::throttle::{Throttle, Verdict};
use crate::error::{AdminFault, ApiError};
use crate::parts::{
    ApiResult, BODY, Routes, authorization, body, client, hashed, json, method, ok, one_of, only,
    operator, signed_in, with,
};
use domain::audit::{Action, Actor};
use domain::keys::admin_token::{access_code_matches, fresh};
use domain::keys::signature::bearer;
use engine::app::App;
use engine::doorkeeping::{self, Refusal};
use store::admin_tokens::{self, AdminToken};
use store::audit;

/// How long is somebody signed in? (spec: *Limits*)
const TOKEN_LIFE: Duration = Duration::from_secs(24 * 3600);

/// Routes of `/api/auth`.
pub fn routes(app: &App) -> Routes {
    let auth = path!("api" / "auth").boxed();
    let logout = path!("api" / "auth" / "logout").boxed();
    let throttle = Arc::new(Throttle::default());
    one_of([
        auth.clone()
            .and(method(Method::POST))
            .and(client(app))
            .and(body(BODY))
            .and(warp::any().map(move || Arc::clone(&throttle)).boxed())
            .and(with(app))
            .then(sign_in)
            .boxed(),
        logout
            .clone()
            .and(signed_in(app, Method::POST))
            .and(operator(app))
            .and(authorization())
            .and(with(app))
            .then(sign_out)
            .boxed(),
        only(&auth, [Method::POST]),
        only(&logout, [Method::POST]),
    ])
}

async fn sign_in(from: IpAddr, body: Bytes, throttle: Arc<Throttle>, app: App) -> ApiResult {
    let body = json(&body).ok_or(AdminFault::InvalidBody)?;
    let code = body["code"].as_str().ok_or(AdminFault::InvalidBody)?;
    let now = app.now();
    let expected = app.config.admin_access_code.as_ref();
    let is_right = || expected.is_some_and(|expected| access_code_matches(code, expected));
    match throttle.guess(from, now, is_right) {
        Verdict::Right => {}
        Verdict::Wrong => {
            tracing::warn!(%from, "Somebody sent a wrong access code.");
            doorkeeping::refused(&app, Refusal::Wrong, from).await?;
            return Err(AdminFault::InvalidAccessCode.into());
        }
        Verdict::Wait(time) => {
            doorkeeping::refused(&app, Refusal::Throttled, from).await?;
            return Err(AdminFault::TooManyCodes(time).into());
        }
    }
    let token = fresh().map_err(|cause| {
        tracing::error!(%cause, "No admin token could be made.");
        ApiError::internal()
    })?;
    let hashed = hashed(&app, token.expose()).ok_or(AdminFault::InvalidAccessCode)?;
    let expires_at = now + TOKEN_LIFE;
    let deed = Actor::admin(from).did(Action::SignedIn, "");
    let stored = app.store.write(move |tx| {
        admin_tokens::put(tx, &hashed, &AdminToken { expires_at }, now)?;
        audit::append(tx, &deed, now)
    });
    stored.await?;
    Ok(ok(
        &json!({"token": token.expose(), "expiresAt": expires_at}),
    ))
}

async fn sign_out(by: Actor, header: Option<String>, app: App) -> ApiResult {
    let token = header.as_deref().and_then(bearer);
    let hashed = token.and_then(|token| hashed(&app, token));
    let (deed, now) = (by.did(Action::SignedOut, ""), app.now());
    let removed = app.store.write(move |tx| {
        if let Some(hashed) = &hashed {
            admin_tokens::remove(tx, hashed)?;
        }
        audit::append(tx, &deed, now)
    });
    removed.await?;
    Ok(ok(&json!({"loggedOut": true})))
}
