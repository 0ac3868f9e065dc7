//! Lifecycle events of sessions.
//!
//! An event proves that the run is active, and becomes a comment on its ticket. Both are stored in
//! one transaction, once per event even if it is repeated. Events of shadow runs and of runs on
//! open pull requests are not posted.

use crate::app::App;
use domain::comments;
use domain::crypto::sha256_hex;
use domain::effect::Effect;
use domain::job::{Job, RunHandle};
use domain::session_event::SessionEvent;
use domain::transition::JobEvent;
use store::{ReadableTx, StoreResult, jobs, outbox, session_events};
use vendors::http::run_blocking_if_large;

use super::job_events::{self, BreakerPolicy, EventOutcome};

/// Returns the active job whose session has this nonce.
///
/// # Errors
/// Fails if the store cannot be read.
pub fn job_by_nonce(tx: &impl ReadableTx, nonce: &str) -> StoreResult<Option<Job>> {
    let job = jobs::of_nonce(tx, &sha256_hex(nonce))?;
    Ok(job.filter(Job::is_active))
}

/// Records an event of the session with this nonce. `identity` distinguishes it from other events
/// of the job. Returns `false` if no active job has the nonce.
///
/// # Errors
/// Fails if the store cannot be written.
pub async fn record(
    app: &App,
    nonce: &str,
    event: SessionEvent,
    identity: String,
) -> StoreResult<bool> {
    let (nonce, identity) = (nonce.to_owned(), sha256_hex(&identity));
    let name = event.name();
    let is_failure = matches!(event, SessionEvent::Error { .. });
    let (now, policy) = (app.core.now(), BreakerPolicy::from_config(&app.core.config));
    let Some(job) = app.core.store.read(|tx| job_by_nonce(tx, &nonce))? else {
        return Ok(false);
    };
    let sentence = event.ticket_message(|number| app.vendors.pull_url(&job.repo, number));
    let redactor = app.secrets.redactor.clone();
    let sentence =
        run_blocking_if_large(sentence.len(), move || redactor.redact_owned(sentence)).await;
    let recorded = app.core.store.write(move |tx| {
        let Some(job) = job_by_nonce(tx, &nonce)? else {
            return Ok(None);
        };
        let id = job.id.clone();
        let mut job = match job_events::apply(tx, policy, &id, JobEvent::StepReported, now)? {
            EventOutcome::Advanced(job) | EventOutcome::Refused(job, _) => *job,
            EventOutcome::JobNotFound => return Ok(None),
        };
        let is_posted = job.kind.phase().is_some() && !job.shadow;
        if session_events::record(tx, &id, &identity)? && is_posted {
            let log_url = job.run.as_ref().and_then(RunHandle::log_url);
            let body = comments::session_comment(&sentence, now, log_url);
            let issue = job.issue.clone();
            outbox::push(tx, &Effect::TicketComment { issue, body }, now)?;
            if is_failure {
                job.failure_reported = true;
                jobs::put(tx, &job)?;
            }
        }
        Ok(Some(id))
    });
    let recorded = recorded.await?;
    if let Some(job) = &recorded {
        tracing::info!(job_id = %job, event = name, "Recorded a session event.");
    }
    Ok(recorded.is_some())
}
