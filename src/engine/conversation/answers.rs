//! Answers to questions of runs.

use crate::app::App;
use domain::audit::{Action, Actor};
use domain::comments;
use domain::effect::Effect;
use domain::issue::Phase;
use domain::question::{AnswerSource, Exchange, OpenQuestion};
use domain::stage::Stage;
use domain::time::Timestamp;
use store::crash_injection::CrashPoint;
use store::{StoreError, StoreResult, WriteTx, audit, issue_contexts, open_questions, outbox};

/// Reason why an answer does not count.
#[derive(Debug, thiserror::Error)]
pub enum AnswerError {
    /// The answer is blank.
    #[error("the answer is blank")]
    Blank,
    /// No question of this issue is open.
    #[error("no question is open")]
    NoOpenQuestion,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Answers the open question of the issue with this id or key. The next poll dispatches the work again.
///
/// # Errors
/// Fails if the answer is blank, if no question is open, or if the store cannot be written.
pub async fn answer(app: &App, actor: Actor, named: &str, text: &str) -> Result<(), AnswerError> {
    let text = app.secrets.redactor.sanitize(text);
    if text.trim().is_empty() {
        return Err(AnswerError::Blank);
    }
    let (named, now) = (named.trim().to_owned(), app.core.now());
    let answered = commit(app, move |tx| {
        let all = open_questions::all(tx)?;
        let found = all.iter().find(|one| one.issue.matches_id_or_key(&named));
        let Some(question) = found else {
            return Ok(false);
        };
        let by = actor.display_name().to_owned();
        let exchange = question.answered(&text, by, AnswerSource::Operator, now);
        resume(tx, &actor, question, exchange, now)?;
        Ok(true)
    });
    match answered.await? {
        true => {
            app.live.notifiers.poll.notify_one();
            Ok(())
        }
        false => Err(AnswerError::NoOpenQuestion),
    }
}

/// Commits a change of a wait for an answer. Returns whether the question is answered, as the change does.
pub(super) async fn commit(
    app: &App,
    change: impl FnMut(&WriteTx<'_>) -> StoreResult<bool> + Send + 'static,
) -> StoreResult<bool> {
    let is_answered = app.core.store.write(change).await?;
    if is_answered {
        app.core
            .crash_plan
            .crash_if_planned(CrashPoint::AnswerStored);
    }
    Ok(is_answered)
}

/// Ends the wait for an answer: the work is dispatched again with this exchange.
pub(super) fn resume(
    tx: &WriteTx<'_>,
    actor: &Actor,
    question: &OpenQuestion,
    exchange: Exchange,
    now: Timestamp,
) -> StoreResult<()> {
    let issue = &question.issue;
    open_questions::remove(tx, &issue.id)?;
    let event = actor.audit_event(Action::QuestionAnswered, &issue.key);
    let detail = format!("round {} of job {}", question.round, question.job);
    audit::append(tx, &event.with_detail(detail), now)?;
    let reply = Effect::TicketComment {
        issue: issue.clone(),
        body: comments::answered(&exchange),
    };
    issue_contexts::update(tx, &issue.id, |context| {
        context.exchanges.push(exchange);
        if question.phase == Phase::Implementation {
            context.continues = Some(question.job.clone());
        }
    })?;
    let marker = Effect::SetMarker {
        issue: issue.clone(),
        stage: match question.resume_stage {
            Stage::NeedsInput => Stage::Triggered,
            stage => stage,
        },
    };
    outbox::push(tx, &marker, now)?;
    outbox::push(tx, &reply, now).map(drop)
}
