//! Audit entries about failed sign-ins, and the daily log line with the head of the audit.
//!
//! Anyone on the network can cause failed sign-ins, so only a few per hour get an entry of their
//! own. The rest are counted and summarized in one entry.

use std::net::IpAddr;

use crate::app::App;
use domain::audit::{Action, Actor, AuditEvent};
use domain::time::Timestamp;
use store::{StoreResult, audit};

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
pub async fn record_sign_in_failure(
    app: &App,
    failure: SignInFailure,
    from: IpAddr,
) -> StoreResult<()> {
    let now = app.now();
    let action = failure.action();
    let (is_recorded, suppressed) = app.sign_in_limiter.record_failure(action, now);
    let mut events = Vec::new();
    events.extend(suppressed.map(|count| summary(failure, count)));
    if is_recorded {
        events.push(Actor::admin(from).audit_event(action, ""));
    }
    append(app, events, now).await
}

fn summary(failure: SignInFailure, count: u64) -> AuditEvent {
    let detail = format!("{count} more within an hour");
    Actor::service()
        .audit_event(failure.action(), "")
        .with_detail(detail)
}

async fn append(app: &App, events: Vec<AuditEvent>, now: Timestamp) -> StoreResult<()> {
    if events.is_empty() {
        return Ok(());
    }
    let appended = app.store.write(move |tx| {
        events
            .iter()
            .try_for_each(|event| audit::append(tx, event, now))
    });
    appended.await
}

/// Records the summaries of suppressed audit entries. Once a day it logs the head of the audit: the
/// log proves a later truncation of the audit in the store.
///
/// # Errors
/// Fails if the store cannot be read or written.
pub async fn run_once(app: &App) -> StoreResult<()> {
    let now = app.now();
    let summaries = SignInFailure::ALL.into_iter().filter_map(|failure| {
        let count = app
            .sign_in_limiter
            .take_suppressed_count(failure.action(), now)?;
        Some(summary(failure, count))
    });
    append(app, summaries.collect(), now).await?;
    if app.sign_in_limiter.is_new_day(now) {
        let head = app.store.read(audit::head)?;
        tracing::info!(
            audit_entries = head.seq,
            audit_head = head.hash,
            "Daily audit head."
        );
    }
    Ok(())
}
