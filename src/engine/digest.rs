//! Daily chat message about what waits for people: reviews, questions, plans, parked tickets and red checks.
//!
//! The message is stored as an effect in the commit that records it, so that a restart neither repeats nor loses it.

use crate::app::App;
use crate::repository_load;
use domain::digest::{Digest, DigestRecord, WaitingItem};
use domain::effect::Effect;
use domain::feedback::ChecksState;
use domain::issue::IssueRef;
use domain::plan_approval::PlanGate;
use domain::time::Timestamp;
use store::{
    ReadableTx, StoreResult, digest_record, dispatch_breaker, open_questions, outbox, plan_gates,
};

/// Enqueues the digest of the day if it is due and something waits.
///
/// # Errors
/// Fails if the store cannot be read or written.
pub(crate) async fn enqueue_if_due(app: &App) -> StoreResult<()> {
    let (Some(hour), Some(_)) = (app.core.config.digest_hour, &app.vendors.chat) else {
        return Ok(());
    };
    let now = app.core.now();
    let before = app.core.store.read(digest_record::get)?;
    let Some(due_at) = before.due(hour, now) else {
        return Ok(());
    };
    let handle = app.clone();
    let digest = app.core.store.read_long(move |tx| read(tx, &handle, now));
    let message = digest.await?.message(now);
    let record = DigestRecord {
        due_at,
        sent_at: match message {
            Some(_) => now,
            None => before.sent_at,
        },
    };
    let write = app.core.store.write(move |tx| {
        if digest_record::get(tx)? != before {
            return Ok(());
        }
        digest_record::put(tx, &record)?;
        match message.clone() {
            Some(message) => outbox::push(tx, &Effect::Chat { message }, now).map(drop),
            None => Ok(()),
        }
    });
    write.await
}

/// Returns what waits for people.
fn read(tx: &impl ReadableTx, app: &App, now: Timestamp) -> StoreResult<Digest> {
    let mut digest = Digest::default();
    for pull in repository_load::open_pulls(tx, app, now)? {
        let item = WaitingItem {
            pull: Some(format!("{}#{}", pull.id.repo, pull.id.number)),
            ..item(&pull.job.issue, pull.opened_at)
        };
        let checks = pull.record.readiness.checks;
        if checks.is_some_and(|checks| checks.state == ChecksState::Failure) {
            digest.red.push(item.clone());
        }
        if pull.awaits_review {
            digest.reviews.push(item);
        }
    }
    let questions = open_questions::all(tx)?.into_iter();
    digest.questions = questions
        .map(|question| item(&question.issue, question.asked_at))
        .collect();
    let plans = plan_gates::all(tx)?
        .into_iter()
        .filter(PlanGate::is_waiting);
    digest.approvals = plans
        .map(|gate| item(&gate.issue, gate.planned_at))
        .collect();
    let parked = dispatch_breaker::all(tx)?.into_iter();
    digest.parked = parked
        .map(|parked| item(&parked.issue, parked.parked_at))
        .collect();
    Ok(digest)
}

fn item(issue: &IssueRef, since: Timestamp) -> WaitingItem {
    WaitingItem {
        key: issue.key.to_string(),
        title: issue.title.clone(),
        pull: None,
        since,
    }
}
