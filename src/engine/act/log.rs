//! The end of a run's log on its ticket.

use super::{Acted, Failure, account, github, gone_is_done, session, ticket_comment};
use crate::app::App;
use domain::comments;
use domain::effect::LogLabel;
use domain::ids::Repo;
use domain::issue::IssueRef;
use domain::job::RunHandle;
use domain::plan::PlanComment;
use domain::transition::Cause;
use store::outbox::Errand;
use vendors::scm::{LOG_READ_WITHIN, RunLog};

/// The end of the log, or what comes of a try without one.
pub(super) async fn read(
    app: &App,
    errand: &Errand,
    repo: &Repo,
    run: &RunHandle,
) -> Result<Result<String, Acted>, Failure> {
    const RUNS: &str = "the run is not over yet";
    // The destruction of the run's machine waits behind this.
    let waited = app.now().since(errand.pushed_at);
    let read = match run {
        RunHandle::Ci { id, .. } => github(app)?
            .log_excerpt(repo, *id, waited)
            .await
            .map_err(Failure::from),
        RunHandle::Machine { .. } | RunHandle::Container { .. } => session::log(app, run).await,
    };
    let is_late = waited >= LOG_READ_WITHIN;
    let without = match read {
        Ok(RunLog::Excerpt(log)) => return Ok(Ok(log)),
        Ok(RunLog::Empty) => Acted::Gone("the run has no log".to_owned()),
        Ok(RunLog::Unfinished) if is_late => Acted::Gone(RUNS.to_owned()),
        Ok(RunLog::Unfinished) => Acted::NotYet(RUNS),
        Err(failure) if is_late || failure.cause == Cause::Lasting => Acted::Gone(failure.error),
        Err(failure) => return Err(failure),
    };
    Ok(Err(without))
}

/// Adds it to the comment about the failure.
pub(super) async fn publish(
    app: &App,
    errand: &Errand,
    issue: &IssueRef,
    label: LogLabel,
    comment: Option<&PlanComment>,
    excerpt: &str,
) -> Result<Acted, Failure> {
    let Some(comment) = comment else {
        let body = comments::log_excerpt(label, excerpt);
        return ticket_comment(app, errand, issue, &errand.stamp(), &body).await;
    };
    let account = account(app, issue)?;
    let body = comments::with_log(&comment.body, label, excerpt);
    gone_is_done(account.edit_comment(issue, &comment.effect, &body).await)
}
