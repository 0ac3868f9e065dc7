//! Texts of ticket comments, pull request comments and chat notifications. See
//! docs/behaviour.md#comments-and-messages.
//!
//! Untrusted text (such as the failure reason of a run or a finding of a model) passes
//! [`sanitize`], so that it cannot mention people, close issues or hide content.

mod cancellation;
mod chat;
mod checks;
mod conflict;
mod conversation;
mod failure;
mod merge;
mod session;
mod take_over;

use super::agent::AgentName;
use super::decision::{Decision, advice};
use super::job::{JobKind, PullRequestRef};
use super::limits;
use super::sanitize;
use super::time::Timestamp;

pub(crate) use cancellation::{cancelled, cancelled_on_pull_request};
pub use chat::{chat_budget, chat_parked, chat_reaped};
pub(crate) use chat::{chat_dispatched, chat_ended};
pub use checks::{checks_on_pull, checks_on_ticket, repairs_limit_reached};
pub(crate) use conflict::with_conflicts;
pub use conflict::{conflict_limit_reached, conflict_with_other_base};
pub(crate) use conversation::question_reason;
pub use conversation::{
    answered, approval_outdated, approver_refused, chat_plan_waits, command_help, command_reply,
    fresh_start, no_plan, plan_approved, plan_estimate, plan_rejected, plan_reminder, plan_waits,
    question_reminder, questions, replanning,
};
pub(crate) use failure::{
    GUARDRAIL_HEADING, failure_comment, failure_headline, next_step, retry_advice,
};
pub use failure::{log_excerpt, with_log_excerpt};
pub use merge::{merge_reasons, merged_after_push, merged_by_policy};
pub use session::session_comment;
pub(crate) use session::{
    MACHINE_PROBLEM, SESSION_CREATED, SESSION_READY, STOPPED_FROM_OUTSIDE, VERIFY_PASSED,
    VERIFY_RUNNING, session_cleaned_up, session_failed, session_finished, session_timed_out,
    verify_failed,
};
pub use take_over::{given_back, taken_over, ticket_given_back, ticket_taken_over};

/// Start of the comment on a ticket that waits.
const WAITING_PREFIX: &str = "Not started yet: ";

/// End of a truncated comment.
pub(crate) const TRUNCATION_MARK: &str = "\n\n[… truncated: too long for a comment]";

/// Returns the comment about an opened pull request.
pub(crate) fn pull_request_opened(pull: &PullRequestRef) -> String {
    format!("Pull request opened: [#{}]({})", pull.number, pull.url)
}

/// Returns the comment about a review that left blocking findings open. Without findings in the
/// report, it refers to the pull request.
pub(crate) fn review_unresolved(unresolved: &[String]) -> String {
    const HEADLINE: &str =
        "The pull request stays a draft: its review left blocking findings open.";
    if unresolved.is_empty() {
        return format!("{HEADLINE} See the pull request for the list.");
    }
    let findings: Vec<String> = unresolved
        .iter()
        .map(|finding| format!("- {}", sanitize::plain_text(finding)))
        .collect();
    let body = format!("{HEADLINE}\n\n{}", findings.join("\n"));
    sanitize::truncate(body, limits::MAX_COMMENT_BYTES, TRUNCATION_MARK).into_owned()
}

/// Returns the comment about a ticket that waits: the reason and the advice.
pub fn waiting(decision: &Decision) -> String {
    let mut body = format!(
        "{WAITING_PREFIX}{}",
        sanitize::plain_text(&decision.message)
    );
    if let Some(advice) = advice(decision) {
        body.push_str("\n\n**What to do:** ");
        body.push_str(&advice);
    }
    body.push_str("\n\nThis comment is removed when the ticket no longer waits.");
    body
}

/// Returns the comment about a parked ticket.
pub fn parked(failures: u32) -> String {
    format!(
        "Parked after {failures} failures in a row. No new run starts until an operator unparks it in the panel."
    )
}

/// Returns the pull request comment about the limit of automatic follow-up runs.
pub fn follow_up_limit_reached(limit: usize, until: Timestamp) -> String {
    format!(
        "Reached the limit of {limit} automatic follow-ups per day. New feedback will be processed after {}. To start a run at once, comment `/agent-implement`.",
        until.date_text()
    )
}

/// Returns the pull request comment about feedback that several follow-up runs could not resolve.
pub fn feedback_abandoned(count: usize) -> String {
    let subject = match count {
        1 => "One piece of feedback".to_owned(),
        many => format!("{many} pieces of feedback"),
    };
    format!(
        "{subject} could not be resolved by several follow-ups. No more start automatically for it. To start one, comment `/agent-implement`."
    )
}

/// Returns the failure reason of a run whose work is dispatched again at `until`, or at once with another agent.
pub(crate) fn paused_failure_reason(
    reason: &str,
    until: Timestamp,
    next: Option<AgentName>,
) -> String {
    let reason = reason.trim_end_matches('.');
    format!("{reason}. {}", resumption(until, next))
}

fn resumption(until: Timestamp, next: Option<AgentName>) -> String {
    match next {
        Some(agent) => format!(
            "It continues with {} until the limit resets at {}.",
            agent.named().product,
            until.date_text()
        ),
        None => format!("It resumes automatically at {}.", until.date_text()),
    }
}

/// Returns the comment about a run that reached the usage limit of the model provider.
pub fn paused(kind: JobKind, until: Timestamp, next: Option<AgentName>) -> String {
    format!(
        "{} paused: the usage limit of the model provider is reached. {}",
        run_kind_name(kind),
        resumption(until, next)
    )
}

/// Returns the reply to a command while the usage limit of the model provider is reached.
pub fn command_delayed(until: Timestamp) -> String {
    format!(
        "The usage limit of the model provider is reached. The requested run starts automatically at {}.",
        until.date_text()
    )
}

/// Returns the reply to a command that the budget does not allow.
pub fn command_refused(budget: &str) -> String {
    format!(
        "Cannot start a run: {} Then comment again.",
        sanitize::plain_text(budget)
    )
}

/// Returns the comment about follow-up runs that wait because the budget is used up.
pub fn follow_ups_over_budget(budget: &str) -> String {
    format!(
        "Automatic follow-ups are paused: {} Feedback is kept until then.",
        sanitize::plain_text(budget)
    )
}

/// Returns the failure reason, or a default text if the run reported none.
pub(crate) fn reason_or_default(reason: Option<&str>) -> String {
    match reason.map(str::trim).filter(|reason| !reason.is_empty()) {
        Some(reason) => reason.to_owned(),
        None => "the run gave no reason".to_owned(),
    }
}

/// Returns the name of a kind of run, as used at the start of a sentence.
pub fn run_kind_name(kind: JobKind) -> &'static str {
    match kind {
        JobKind::Planning => "Planning",
        JobKind::Implementation => "Implementation",
        JobKind::GapFill => "Gap fill",
        JobKind::FollowUp => "Follow-up",
        JobKind::CiFix => "CI fix",
        JobKind::Conflict => "Conflict resolution",
    }
}

/// Returns a code block. Its fence is longer than any fence inside.
fn fenced(text: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    format!("{fence}\n{}\n{fence}", text.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comment_of_many_findings_is_truncated() {
        let many = review_unresolved(&vec!["x".repeat(3_000); 20]);
        assert!(many.len() <= limits::MAX_COMMENT_BYTES && many.ends_with(TRUNCATION_MARK));
    }
}
