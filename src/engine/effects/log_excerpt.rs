//! Log excerpts of failed runs on their ticket.

use super::{
    EffectFailure, EffectOutcome, account, github, post_ticket_comment, session_machine,
    treat_not_found_as_gone,
};
use crate::app::App;
use domain::comments;
use domain::effect::LogLabel;
use domain::ids::Repo;
use domain::issue::IssueRef;
use domain::job::RunHandle;
use domain::plan::PostedComment;
use domain::transition::FailureKind;
use store::outbox::OutboxEntry;
use vendors::scm::{LOG_READ_TIMEOUT, WorkflowRunLog};

/// Reads the end of the log, or returns the outcome of an attempt without one.
pub(super) async fn read(
    app: &App,
    entry: &OutboxEntry,
    repo: &Repo,
    run: &RunHandle,
) -> Result<Result<String, EffectOutcome>, EffectFailure> {
    const NOT_COMPLETED: &str = "the run is not over yet";
    // The destruction of the run's machine waits for this effect.
    let waited = app.core.now().since(entry.pushed_at);
    let read = match run {
        RunHandle::Ci { id, .. } => github(&app.vendors)?
            .log_excerpt(repo, *id, waited)
            .await
            .map_err(EffectFailure::from),
        RunHandle::Machine { .. }
        | RunHandle::Container { .. }
        | RunHandle::KubernetesJob { .. } => session_machine::read_log(&app.vendors, run).await,
    };
    let is_late = waited >= LOG_READ_TIMEOUT;
    let outcome = match read {
        Ok(WorkflowRunLog::Excerpt(log)) => return Ok(Ok(log)),
        Ok(WorkflowRunLog::Empty) => EffectOutcome::Gone("the run has no log".to_owned()),
        Ok(WorkflowRunLog::NotReady) if is_late => EffectOutcome::Gone(NOT_COMPLETED.to_owned()),
        Ok(WorkflowRunLog::NotReady) => EffectOutcome::Postponed(NOT_COMPLETED),
        Err(failure) if is_late || failure.cause == FailureKind::Permanent => {
            EffectOutcome::Gone(failure.error)
        }
        Err(failure) => return Err(failure),
    };
    Ok(Err(outcome))
}

/// Adds the excerpt to the comment about the failure.
pub(super) async fn publish(
    app: &App,
    entry: &OutboxEntry,
    issue: &IssueRef,
    label: LogLabel,
    comment: Option<&PostedComment>,
    excerpt: &str,
) -> Result<EffectOutcome, EffectFailure> {
    let Some(comment) = comment else {
        let body = comments::log_excerpt(label, excerpt);
        return post_ticket_comment(app, entry, issue, &entry.idempotency_key(), &body).await;
    };
    let account = account(&app.vendors, issue)?;
    let body = comments::with_log_excerpt(&comment.body, label, excerpt);
    treat_not_found_as_gone(account.edit_comment(issue, &comment.effect_id, &body).await)
}
