//! Periodic audit entries about failed sign-ins, removal of old logs and evidence of runs and of expired dedup entries,
//! ends of take-overs of closed tickets, the daily digest, and the daily log line with the head of the audit.

use crate::admin::sign_in;
use crate::app::App;
use crate::digest;
use crate::evidence;
use crate::run_logs;
use crate::take_over;
use store::{ReadTx, StoreResult, audit, dedup};

/// Records the summaries of suppressed audit entries, removes old logs and evidence of runs and expired dedup entries,
/// and ends take-overs of closed tickets. Once a day it sends the digest of what waits for people, and logs the head of
/// the audit: the log proves a later truncation of the audit in the store.
///
/// # Errors
/// Fails if the store cannot be read or written.
pub async fn run_once(app: &App) -> StoreResult<()> {
    sign_in::record_suppressed_failures(app).await?;
    run_logs::remove_old(app).await?;
    evidence::remove_old(app).await?;
    remove_expired_dedup_entries(app).await?;
    take_over::end_of_closed_tickets(app).await?;
    digest::enqueue_if_due(app).await?;
    if app.live.sign_in_limiter.is_new_day(app.core.now()) {
        let head = app.core.store.read(audit::head)?;
        tracing::info!(
            audit_entries = head.seq,
            audit_head = head.hash,
            "Daily audit head."
        );
    }
    Ok(())
}

/// Removes the entries of dispatches that block no other one any more.
async fn remove_expired_dedup_entries(app: &App) -> StoreResult<()> {
    let now = app.core.now();
    let Some(window) = app.core.config.dedup_window else {
        return Ok(());
    };
    let find = move |tx: &ReadTx| dedup::expired(tx, window, now);
    let expired = app.core.store.read_long(find).await?;
    if expired.is_empty() {
        return Ok(());
    }
    let write = app
        .core
        .store
        .write(move |tx| dedup::remove_expired(tx, &expired, window, now));
    write.await
}
