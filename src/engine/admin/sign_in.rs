//! Sign-in to the panel with the access code, and its audit entries.
//!
//! Anyone on the network can cause failed sign-ins, so only a few per hour get an audit entry of
//! their own. The rest are counted and summarized in one entry.

use std::net::IpAddr;
use std::time::Duration;

use crate::app::{App, Core};
use domain::audit::{Action, Actor, AuditEvent};
use domain::crypto::admin_token::{generate_token, hash_token};
use domain::secret::Secret;
use domain::time::Timestamp;
use store::admin_tokens::{self, AdminToken};
use store::{StoreError, StoreResult, audit};

/// Lifetime of an admin token. See docs/behaviour.md#limits.
pub const TOKEN_LIFETIME: Duration = Duration::from_secs(24 * 3600);

/// New admin token.
#[derive(Debug)]
pub struct IssuedToken {
    /// The token, which is stored as a hash only.
    pub token: Secret,
    /// End of its lifetime.
    pub expires_at: Timestamp,
}

/// Reason why no admin token was issued.
#[derive(Debug, thiserror::Error)]
pub enum SignInError {
    /// No access code is configured.
    #[error("no access code is configured")]
    NoAccessCode,
    /// The operating system provides no random bytes.
    #[error("{0}")]
    Random(String),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Issues an admin token to a client that gave the access code.
///
/// # Errors
/// Fails if no access code is configured, or if the token cannot be generated or stored.
pub async fn sign_in(core: &Core, from: IpAddr) -> Result<IssuedToken, SignInError> {
    let token = generate_token().map_err(SignInError::Random)?;
    let hashed = hash(core, token.expose()).ok_or(SignInError::NoAccessCode)?;
    let now = core.now();
    let expires_at = now + TOKEN_LIFETIME;
    let event = Actor::admin(from).audit_event(Action::SignedIn, "");
    let stored = core.store.write(move |tx| {
        admin_tokens::put(tx, &hashed, &AdminToken { expires_at }, now)?;
        audit::append(tx, &event, now)
    });
    stored.await?;
    Ok(IssuedToken { token, expires_at })
}

/// Invalidates admin tokens.
///
/// # Errors
/// Fails if the store cannot be written.
pub async fn sign_out(core: &Core, actor: Actor, tokens: &[String]) -> StoreResult<()> {
    let hashed: Vec<String> = tokens
        .iter()
        .filter_map(|token| hash(core, token))
        .collect();
    let (event, now) = (actor.audit_event(Action::SignedOut, ""), core.now());
    let removed = core.store.write(move |tx| {
        for hashed in &hashed {
            admin_tokens::remove(tx, hashed)?;
        }
        audit::append(tx, &event, now)
    });
    removed.await
}

/// Returns the expiry of the first of these tokens that was issued for the current access code and has not
/// expired; `None` if none is valid.
///
/// # Errors
/// Fails if the store cannot be read.
pub fn session_end(core: &Core, tokens: &[String]) -> StoreResult<Option<Timestamp>> {
    let now = core.now();
    for hashed in tokens.iter().filter_map(|token| hash(core, token)) {
        let stored = core.store.read(|tx| admin_tokens::get(tx, &hashed))?;
        let end = stored.map(|stored| stored.expires_at);
        if end.is_some_and(|end| end > now) {
            return Ok(end);
        }
    }
    Ok(None)
}

/// Returns the hash under which a token is stored; `None` if no access code is configured.
fn hash(core: &Core, token: &str) -> Option<String> {
    let code = core.config.admin_access_code.as_ref()?;
    Some(hash_token(token, code))
}

/// Reason of a failed sign-in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SignInFailure {
    /// The access code was wrong.
    WrongCode,
    /// There were too many failed attempts before.
    Throttled,
}

impl SignInFailure {
    const ALL: [Self; 2] = [Self::WrongCode, Self::Throttled];

    fn action(self) -> Action {
        match self {
            SignInFailure::WrongCode => Action::SignInRefused,
            SignInFailure::Throttled => Action::SignInThrottled,
        }
    }
}

/// Records a failed sign-in in the audit.
///
/// # Errors
/// Fails if the audit entry cannot be stored.
pub async fn record_failure(app: &App, failure: SignInFailure, from: IpAddr) -> StoreResult<()> {
    let now = app.core.now();
    let action = failure.action();
    let (is_recorded, suppressed) = app.live.sign_in_limiter.record_failure(action, now);
    let mut events = Vec::new();
    events.extend(suppressed.map(|count| summary(failure, count)));
    if is_recorded {
        events.push(Actor::admin(from).audit_event(action, ""));
    }
    append(&app.core, events, now).await
}

fn summary(failure: SignInFailure, count: u64) -> AuditEvent {
    let detail = format!("{count} more within an hour");
    Actor::service()
        .audit_event(failure.action(), "")
        .with_detail(detail)
}

async fn append(core: &Core, events: Vec<AuditEvent>, now: Timestamp) -> StoreResult<()> {
    if events.is_empty() {
        return Ok(());
    }
    let appended = core.store.write(move |tx| {
        events
            .iter()
            .try_for_each(|event| audit::append(tx, event, now))
    });
    appended.await
}

/// Records the summaries of failed sign-ins that have no audit entry of their own.
///
/// # Errors
/// Fails if the store cannot be written.
pub(crate) async fn record_suppressed_failures(app: &App) -> StoreResult<()> {
    let now = app.core.now();
    let summaries = SignInFailure::ALL.into_iter().filter_map(|failure| {
        let count = app
            .live
            .sign_in_limiter
            .take_suppressed_count(failure.action(), now)?;
        Some(summary(failure, count))
    });
    append(&app.core, summaries.collect(), now).await
}
