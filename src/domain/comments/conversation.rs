//! Comments about questions of runs, plans that wait for an approval, and commands on tickets.

use super::TRUNCATION_MARK;
use crate::effect::ChatMessage;
use crate::issue::{IssueRef, Phase};
use crate::limits;
use crate::plan_approval::{Approval, ApprovalSource};
use crate::question::{AnswerSource, Exchange, OpenQuestion, Question};
use crate::sanitize;
use crate::ticket_command::COMMAND_PREFIX;

/// Returns the reason of a job that ended with questions.
pub(crate) fn question_reason(questions: &[Question]) -> String {
    let texts: Vec<&str> = questions
        .iter()
        .map(|question| question.text.as_str())
        .collect();
    match &texts[..] {
        [one] => format!("The run asks: {one}"),
        many => format!("The run asks: {}", many.join(" / ")),
    }
}

/// Returns the comment with the questions of a run.
pub fn questions(open: &OpenQuestion) -> String {
    let (work, what) = match open.phase {
        Phase::Planning => ("The plan", "planning"),
        Phase::Implementation => ("The implementation", "the implementation"),
    };
    let noun = if open.questions.len() == 1 {
        "an answer"
    } else {
        "answers"
    };
    let mut body = format!("{work} needs {noun} from you:\n\n");
    for (at, question) in open.questions.iter().enumerate() {
        body.push_str(&format!(
            "{}. {}\n",
            at + 1,
            sanitize::plain_text(&question.text)
        ));
        for (choice, letter) in question.choices.iter().zip('a'..) {
            body.push_str(&format!(
                "   - {letter}) {}\n",
                sanitize::plain_text(choice)
            ));
        }
        if let Some(default) = &question.default {
            body.push_str(&format!(
                "   - Without an answer: {}\n",
                sanitize::plain_text(default)
            ));
        }
    }
    body.push_str(
        "\n**How to answer:** write one comment below. It counts one minute after your last edit.",
    );
    match open.expires_at {
        Some(at) => body.push_str(&format!(
            " Without an answer, {what} goes on with the defaults at {}.",
            at.date_text()
        )),
        None => body.push_str(&format!(" Until then, {what} waits.")),
    }
    sanitize::truncate(body, limits::MAX_COMMENT_BYTES, TRUNCATION_MARK).into_owned()
}

/// Returns the comment about an answer that counts.
pub fn answered(exchange: &Exchange) -> String {
    match exchange.source {
        AnswerSource::Comment => "Thanks. The work goes on with this answer.".to_owned(),
        AnswerSource::Operator => format!(
            "Answered by {}: {}\n\nThe work goes on with this answer.",
            sanitize::plain_text(&exchange.answered_by),
            sanitize::plain_text(&exchange.answer)
        ),
        AnswerSource::Timeout => format!(
            "Nobody answered in time. The work goes on with the defaults:\n\n{}",
            sanitize::markdown(&exchange.answer, limits::MAX_COMMENT_BYTES, TRUNCATION_MARK)
        ),
    }
}

/// Returns the comment about work of an earlier run that does not apply any more.
pub fn fresh_start() -> String {
    "The work before the question no longer fits the branch. The run starts over, with your answer."
        .to_owned()
}

/// Returns the reminder of an open question.
pub fn question_reminder(open: &OpenQuestion) -> String {
    let mut body =
        "Reminder: the question above still waits for an answer. Write one comment to answer it."
            .to_owned();
    if let Some(at) = open.expires_at {
        body.push_str(&format!(
            " Without one, the work goes on with the defaults at {}.",
            at.date_text()
        ));
    }
    body
}

/// Returns the comment about a plan that waits for an approval.
pub fn plan_waits(objection: Option<&str>) -> String {
    let why = match objection {
        Some(objection) => format!(" {}", sanitize::plain_text(objection)),
        None => String::new(),
    };
    format!(
        "The plan waits for approval.{why}\n\nTo start the implementation, comment `{COMMAND_PREFIX} approve`. To plan \
         again, comment `{COMMAND_PREFIX} replan` and what to change. To stop, comment `{COMMAND_PREFIX} reject`."
    )
}

/// Returns the reminder of a plan that waits for an approval.
pub fn plan_reminder() -> String {
    format!(
        "Reminder: the plan above still waits for approval. To start the implementation, comment `{COMMAND_PREFIX} approve`."
    )
}

/// Returns the comment about an approved plan.
pub fn plan_approved(approval: &Approval) -> String {
    match approval.source {
        ApprovalSource::Auto => "The plan is inside the bounds of the project and needs no approval. The implementation starts.".to_owned(),
        _ => format!(
            "Plan approved by {}. The implementation starts.",
            sanitize::plain_text(&approval.by)
        ),
    }
}

/// Returns the comment about an approval of a ticket that changed after it was planned.
pub fn approval_outdated(changed: &str) -> String {
    format!("Not approved: {changed} changed after the plan was made. The plan is made again.")
}

/// Returns the comment about the marker of a plan on a ticket that has none.
pub fn no_plan() -> String {
    "Not approved: the ticket has no plan yet. It is planned when its trigger is set.".to_owned()
}

/// Returns the comment about an approval by somebody who may not approve.
pub fn approver_refused(name: &str) -> String {
    format!(
        "Not approved: {} may not approve plans of this project.",
        sanitize::plain_text(name)
    )
}

/// Returns the comment about a rejected plan.
pub fn plan_rejected(by: &str) -> String {
    format!(
        "Plan rejected by {}. Nothing more happens until the trigger is set again.",
        sanitize::plain_text(by)
    )
}

/// Returns the comment about a plan that is made again.
pub fn replanning(by: &str) -> String {
    format!(
        "The plan is made again, as {} asked.",
        sanitize::plain_text(by)
    )
}

/// Returns the reply to a command with this outcome.
pub fn command_reply(text: &str) -> String {
    sanitize::plain_text(text)
}

/// Returns the reply to an unknown command.
pub fn command_help() -> String {
    format!(
        "Commands: `{COMMAND_PREFIX} status`, `cancel`, `retry`, `approve`, `reject`, `replan <what to change>`."
    )
}

/// Returns the notification about a plan that waits for an approval.
pub fn chat_plan_waits(issue: &IssueRef) -> ChatMessage {
    ChatMessage {
        title: format!("Plan waits for approval for {}: {}", issue.key, issue.title),
        title_url: Some(issue.url.clone()).filter(|url| !url.is_empty()),
        ..ChatMessage::default()
    }
}

/// Returns the estimate below a plan, from earlier implementation runs of the project: their number, the median
/// time in minutes, and the median cost if it is known.
pub fn plan_estimate(runs: usize, minutes: u64, cost_usd: Option<f64>) -> String {
    let cost = cost_usd
        .map(|cost| format!(", ${cost:.2}"))
        .unwrap_or_default();
    let runs = if runs == 1 {
        "the last run".to_owned()
    } else {
        format!("the last {runs} runs")
    };
    format!(
        "**Estimate** (median of {runs} of this project): {} min{cost}.",
        minutes.max(1)
    )
}
