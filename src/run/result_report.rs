//! Result of a run, as the orchestrator receives it.

use crate::context::{EarlierWork, RunContext};
use crate::failure::RunFailure;
use domain::limits;
use domain::merge_report::MergeReport;
use domain::question::Question;
use domain::report::{FailureCode, ResultReport, RunComment, RunOutcome, RunPhase};
use domain::sanitize;

/// Maximum length of the agent's last message in the result, in bytes.
const MAX_LAST_MESSAGE: usize = 4_000;

/// Returns the result of a run whose pipeline was executed. The failure must be sanitized already.
pub(crate) fn of_run(run: &RunContext, failure: Option<&RunFailure>) -> ResultReport {
    let phase = run.dispatch.config.phase;
    let report = match failure {
        None => succeeded(run),
        Some(failure) => ResultReport {
            last_agent_message: last_agent_message(run),
            ..failed(phase, failure)
        },
    };
    let (reporting, publication) = (&run.reporting, &run.publication);
    let sanitize_question =
        |question: &Question| question.map_texts(|text| reporting.console.sanitize(text));
    let (agent, model) = reporting.progress.usage_meter().agent();
    let patch = publication.patch.as_ref();
    let unresolved = run.review.unresolved.iter();
    let is_limited = report.failure_code == Some(FailureCode::ProviderLimit);
    ResultReport {
        agents_with_credentials: match is_limited {
            true => run.agent.named_agents_with_credentials(),
            false => Vec::new(),
        },
        usage: Some(reporting.usage()),
        agent,
        model,
        patch: patch.map(|patch| reporting.console.redact(patch)),
        pr_url: publication.url(),
        merge: merge_report(run).map(Box::new),
        questions: publication
            .questions
            .iter()
            .map(sanitize_question)
            .collect(),
        patch_dropped: run.ticket.earlier_work == EarlierWork::Dropped,
        unresolved: unresolved
            .map(|finding| reporting.sanitize(finding))
            .collect(),
        ..report
    }
}

/// Returns the result of a run that failed. The failure must be sanitized already.
pub(crate) fn failed(phase: RunPhase, failure: &RunFailure) -> ResultReport {
    ResultReport {
        phase,
        outcome: RunOutcome::Failure,
        pr_url: None,
        comments: Vec::new(),
        failure_reason: Some(failure.reason.clone()),
        failure_code: failure.code,
        last_agent_message: None,
        retry_at: failure.retry_at,
        unresolved: Vec::new(),
        usage: None,
        agent: None,
        model: None,
        agents_with_credentials: Vec::new(),
        next_agent: None,
        awaits_approval: false,
        merge: None,
        questions: Vec::new(),
        patch_dropped: false,
        patch: None,
        run_id: None,
    }
}

fn succeeded(run: &RunContext) -> ResultReport {
    let unapproved = !run.review.unresolved.is_empty();
    ResultReport {
        phase: run.dispatch.config.phase,
        outcome: RunOutcome::Success,
        pr_url: None,
        comments: comments(run),
        failure_reason: None,
        failure_code: unapproved.then_some(FailureCode::ReviewUnapproved),
        last_agent_message: None,
        retry_at: None,
        unresolved: Vec::new(),
        usage: None,
        agent: None,
        model: None,
        agents_with_credentials: Vec::new(),
        next_agent: None,
        awaits_approval: false,
        merge: None,
        questions: Vec::new(),
        patch_dropped: false,
        patch: None,
        run_id: None,
    }
}

/// Returns the outcome of merging the base branch, with sanitized names of files.
fn merge_report(run: &RunContext) -> Option<MergeReport> {
    let merge = run.checkout.as_ref()?.merge.as_ref()?;
    let conflicts = merge.merged.conflicts.iter();
    Some(MergeReport::new(
        conflicts.map(|conflict| run.reporting.sanitize(&conflict.path)),
    ))
}

/// Returns the sanitized ticket comments.
fn comments(run: &RunContext) -> Vec<RunComment> {
    let console = &run.reporting.console;
    let comment = |body: &String| RunComment {
        body: sanitize::truncate(
            console.sanitize(body),
            limits::MAX_COMMENT_BYTES,
            sanitize::ELLIPSIS,
        )
        .into_owned(),
    };
    run.publication
        .ticket_comments
        .iter()
        .map(comment)
        .collect()
}

/// Returns the sanitized last message of the agent.
fn last_agent_message(run: &RunContext) -> Option<String> {
    let message = run.reporting.console.sanitize(&run.change.summary);
    let message = sanitize::truncate(message, MAX_LAST_MESSAGE, sanitize::ELLIPSIS).into_owned();
    Some(message).filter(|message| !message.trim().is_empty())
}
