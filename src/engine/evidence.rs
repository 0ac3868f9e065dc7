//! Evidence of runs: receives, keeps and removes it. See docs/repository-settings.md#evidence.
//!
//! A report replaces the files of the run. Names, contents and limits are checked again here, and texts are redacted
//! again: code of the repository may have read the token of the run.

use std::time::Duration;

use serde_json::Value;
use tokio::sync::Semaphore;

use crate::app::App;
use domain::evidence::{EvidenceFile, EvidenceFiles, EvidenceReportError, MAX_BYTES, parse_report};
use domain::ids::JobId;
use domain::time::Timestamp;
use store::{StoreError, StoreResult, evidence, jobs};
use vendors::http::{Redactor, run_blocking_if_large};

/// Maximum number of reports per run. A run sends one for each run of its `verify` script.
const MAX_REPORTS: u32 = 40;

/// Maximum size of the evidence of all runs as stored, in bytes. Above it, the oldest is removed.
const MAX_ALL_BYTES: u64 = 256 << 20;

/// Maximum size of the evidence of all runs while the disk has no room for more.
const MAX_ALL_BYTES_IF_SHORT: u64 = 16 << 20;

/// Duration of a day.
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Reason why evidence is not kept.
#[derive(Debug, thiserror::Error)]
pub enum EvidenceError {
    /// The job does not exist.
    #[error("no such job")]
    UnknownJob,
    /// The report has another shape.
    #[error(transparent)]
    Report(#[from] EvidenceReportError),
    /// The run has ended.
    #[error("the run has ended")]
    Ended,
    /// The run has sent too many reports.
    #[error("the run has sent {MAX_REPORTS} reports")]
    TooMany,
    /// The service keeps none, as configured or because its disk is short.
    #[error("the service keeps no evidence: LOG_KEEP_DAYS is 0, or its disk is almost full")]
    NotKept,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Reports that are processed at a time: each takes several times its size in memory.
static PROCESSING: Semaphore = Semaphore::const_new(1);

/// Parses and records the body of a report.
///
/// # Errors
/// See [`record`].
pub async fn receive(app: &App, job: &JobId, body: &[u8]) -> Result<Vec<String>, EvidenceError> {
    // The semaphore is never closed.
    let _permit = PROCESSING.acquire().await;
    let body = serde_json::from_slice(body).unwrap_or(Value::Null);
    record(app, job, &body).await
}

/// Stores the files of a report, instead of earlier ones of the run. Returns a sentence about each file that does not
/// count.
///
/// # Errors
/// Fails if the files are not kept, or if the store cannot be written.
pub(crate) async fn record(
    app: &App,
    job: &JobId,
    body: &Value,
) -> Result<Vec<String>, EvidenceError> {
    let found = app.core.store.read(|tx| jobs::run_state(tx, job))?;
    if found.ok_or(EvidenceError::UnknownJob)?.state.is_terminal() {
        return Err(EvidenceError::Ended);
    }
    let reported = parse_report(body)?;
    if app.core.config.log_keep_days == 0 || !app.core.store.has_room_for_logs() {
        return Err(EvidenceError::NotKept);
    }
    let redactor = app.secrets.redactor.clone();
    let bytes = reported.iter().map(|(_, content)| content.len()).sum();
    let checked = run_blocking_if_large(bytes, move || check(reported, &redactor)).await;
    let ((files, refused), id, now) = (checked, job.clone(), app.core.now());
    let write = app.core.store.write(move |tx| {
        // It may have ended since.
        let state = jobs::run_state(tx, &id)?;
        if state.is_none_or(|job| job.state.is_terminal()) {
            return Ok(Err(EvidenceError::Ended));
        }
        let is_stored = evidence::replace(tx, &id, &files, MAX_REPORTS, now)?;
        Ok(is_stored
            .then_some(files.len())
            .ok_or(EvidenceError::TooMany))
    });
    let count = write.await??;
    tracing::info!(job_id = %job, count, refused = refused.len(), "Stored the evidence of a run.");
    Ok(refused)
}

/// Applies the limits and the redaction.
fn check(
    reported: Vec<(String, Vec<u8>)>,
    redactor: &Redactor,
) -> (Vec<EvidenceFile>, Vec<String>) {
    let (mut files, mut refused) = (EvidenceFiles::default(), Vec::new());
    for (name, content) in reported {
        if let Err(reason) = files.add(&name, content, redactor) {
            let name = redactor.excerpt(&name);
            refused.push(format!("{name} is ignored: {reason}"));
        }
    }
    (files.into_files(), refused)
}

/// Removes the evidence of old runs, as their logs, and the oldest if all together is too large.
///
/// # Errors
/// Fails if the store cannot be read or written.
pub(crate) async fn remove_old(app: &App) -> StoreResult<()> {
    let kept = DAY * app.core.config.log_keep_days;
    let kept = u64::try_from(kept.as_millis()).unwrap_or(u64::MAX);
    let keep_since = Timestamp::from_millis(app.core.now().as_millis().saturating_sub(kept));
    let max_bytes = match app.core.store.has_room_for_logs() {
        true => MAX_ALL_BYTES,
        false => MAX_ALL_BYTES_IF_SHORT,
    };
    let find = move |tx: &store::ReadTx| evidence::removable(tx, keep_since, max_bytes);
    let removable = app.core.store.read_long(find).await?;
    let count = removable.len();
    for job in removable {
        // One commit each, so that no other write waits for long.
        let remove = app.core.store.write(move |tx| evidence::remove(tx, &job));
        remove.await?;
    }
    if count > 0 {
        tracing::info!(count, "Removed old evidence of runs.");
    }
    Ok(())
}

const _: () = assert!(MAX_ALL_BYTES_IF_SHORT > 2 * MAX_BYTES as u64);
