//! What a session says of itself on the way.
//!
//! An event proves that the run runs, and becomes a comment on its ticket: both in one commit, once
//! for each event however often it is told. A shadow run is told to nobody.

use crate::app::App;
use crate::domain::comments;
use crate::domain::effect::Effect;
use crate::domain::job::{Job, RunHandle};
use crate::domain::session_event::SessionEvent;
use crate::domain::transition::Event;
use crate::keys::sha256_hex;
use crate::store::{Rows, StoreResult, jobs, outbox, session_events};

use super::commit::{self, Policy};

/// The active job whose session was started with this nonce.
pub fn job_of(tx: &impl Rows, nonce: &str) -> StoreResult<Option<Job>> {
    let job = jobs::of_nonce(tx, &sha256_hex(nonce))?;
    Ok(job.filter(Job::is_active))
}

/// Takes an event of the session of this nonce. `identity` tells it from the others of its job.
/// False when the nonce is none of an active job.
pub async fn tell(
    app: &App,
    nonce: &str,
    event: SessionEvent,
    identity: String,
) -> StoreResult<bool> {
    let (nonce, identity) = (nonce.to_owned(), sha256_hex(&identity));
    let is_failure = matches!(event, SessionEvent::Error { .. });
    let (now, policy) = (app.now(), Policy::of(&app.config));
    let sentence = app.redactor.redact(&event.sentence());
    let told = app.store.write(move |tx| {
        let Some(job) = job_of(tx, &nonce)? else {
            return Ok(None);
        };
        commit::happen(tx, policy, &job.id, Event::StepReported, now)?;
        let is_news = session_events::note(tx, &job.id, &identity)?;
        if is_news && !job.shadow && job.kind.phase().is_some() {
            if is_failure && let Some(job) = jobs::get(tx, &job.id)? {
                // Its end need not say it again.
                let failure_told = true;
                jobs::put(
                    tx,
                    &Job {
                        failure_told,
                        ..job
                    },
                )?;
            }
            let log = job.run.as_ref().and_then(RunHandle::log_url);
            let body = comments::session_progress(&sentence, now, log);
            let issue = job.issue.clone();
            outbox::push(tx, &Effect::TicketComment { issue, body }, now)?;
        }
        Ok(Some(job.id))
    });
    let told = told.await?;
    if let Some(job) = &told {
        tracing::info!(job.id = %job, event = event.name(), "The session told how far it is.");
    }
    Ok(told.is_some())
}
