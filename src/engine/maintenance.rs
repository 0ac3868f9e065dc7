//! Noting who was refused at the door, and keeping the audit's end where it can be found again.
//!
//! Refusals are a stranger's to cause, so only a few an hour get an entry of their own; the rest are
//! counted and told as one.

use std::net::IpAddr;

use crate::app::App;
use domain::audit::{Action, Actor, AuditEvent};
use domain::time::Timestamp;
use store::{StoreResult, audit};

/// How somebody was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SignInFailure {
    /// The access code was wrong.
    WrongCode,
    /// There were too many wrong ones before.
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

/// Notes a refused sign-in.
///
/// # Errors
/// When it cannot be stored.
pub async fn record_sign_in_failure(
    app: &App,
    refusal: SignInFailure,
    from: IpAddr,
) -> StoreResult<()> {
    let now = app.now();
    let action = refusal.action();
    let (is_told, withheld) = app.sign_in_limiter.record_failure(action, now);
    let mut deeds = Vec::new();
    deeds.extend(withheld.map(|count| summary(refusal, count)));
    if is_told {
        deeds.push(Actor::admin(from).audit_event(action, ""));
    }
    note(app, deeds, now).await
}

fn summary(refusal: SignInFailure, count: u64) -> AuditEvent {
    let told = format!("{count} more within an hour");
    Actor::service()
        .audit_event(refusal.action(), "")
        .with_detail(told)
}

async fn note(app: &App, deeds: Vec<AuditEvent>, now: Timestamp) -> StoreResult<()> {
    if deeds.is_empty() {
        return Ok(());
    }
    let noted = app.store.write(move |tx| {
        deeds
            .iter()
            .try_for_each(|deed| audit::append(tx, deed, now))
    });
    noted.await
}

/// Tells of the refusals that were only counted, and once a day prints where the audit ends: what is
/// in the log, nobody can take back who has only the store.
pub async fn run_once(app: &App) -> StoreResult<()> {
    let now = app.now();
    let over = SignInFailure::ALL.into_iter().filter_map(|refusal| {
        let count = app
            .sign_in_limiter
            .take_suppressed_count(refusal.action(), now)?;
        Some(summary(refusal, count))
    });
    note(app, over.collect(), now).await?;
    if app.sign_in_limiter.is_new_day(now) {
        let head = app.store.read(audit::head)?;
        tracing::info!(
            audit_entries = head.seq,
            audit_head = head.hash,
            "The audit ends here."
        );
    }
    Ok(())
}
