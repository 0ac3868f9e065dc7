//! Chat notifications. The chat client escapes their untrusted text.

use std::collections::BTreeMap;

use super::run_kind_name;
use crate::effect::ChatMessage;
use crate::job::{Job, JobState};
use crate::mapping::Mapping;
use crate::reaper::ReaperRule;
use crate::report::FailureCode;
use crate::sanitize;
use crate::usage::{BudgetLevel, BudgetUsage};

/// Maximum length of a failure reason, in characters.
const MAX_REASON: usize = 500;

/// Returns the notification about a started run.
pub(crate) fn chat_dispatched(job: &Job) -> ChatMessage {
    chat(
        job,
        format!(
            "{} started for {}: {}",
            run_kind_name(job.kind),
            job.issue.key,
            job.issue.title
        ),
    )
}

/// Returns the notification about an ended run.
pub(crate) fn chat_ended(job: &Job) -> ChatMessage {
    let run = run_kind_name(job.kind);
    let outcome = match &job.state {
        JobState::Completed => "finished",
        JobState::ReviewFailed { .. } => "finished with unresolved review findings",
        JobState::Failed {
            code: Some(FailureCode::NeedsInput),
            ..
        } => "waits for an answer",
        JobState::Failed { .. } if job.resumes_at.is_some() => "paused",
        JobState::Failed { .. } if job.cancellation.is_some() => "cancelled",
        JobState::Failed { .. } => "failed",
        JobState::TimedOut { .. } => "timed out",
        JobState::Reserved | JobState::Dispatched | JobState::Running => "is in progress",
    };
    let mut message = chat(
        job,
        format!("{run} {outcome} for {}: {}", job.issue.key, job.issue.title),
    );
    if let Some(pull) = &job.pull {
        message
            .facts
            .push(("Pull request".to_owned(), pull.url.clone()));
    }
    message.text = match &job.state {
        JobState::Failed { reason, .. } => {
            sanitize::truncate_chars(reason, MAX_REASON, sanitize::ELLIPSIS).into_owned()
        }
        JobState::TimedOut { reason } => reason.message(job.timeout_minutes),
        JobState::ReviewFailed { unresolved } => unresolved.join("\n"),
        JobState::Completed | JobState::Reserved | JobState::Dispatched | JobState::Running => {
            String::new()
        }
    };
    message
}

/// Returns the notification about a parked ticket.
pub fn chat_parked(job: &Job, failures: u32) -> ChatMessage {
    chat(
        job,
        format!(
            "{} is parked after {failures} failures: {}",
            job.issue.key, job.issue.title
        ),
    )
}

/// Returns the notification about a monthly budget that is used up, or almost used up.
pub fn chat_budget(mapping: &Mapping, usage: &BudgetUsage) -> ChatMessage {
    let team = &mapping.team_key;
    let is_exhausted = usage.level() == BudgetLevel::Exhausted;
    let title = match is_exhausted {
        true => format!("{team} has used up its budget for {}", usage.month),
        false => format!(
            "{team} has used {}% of its budget for {}",
            usage.percent(),
            usage.month
        ),
    };
    let text = match is_exhausted {
        true => format!(
            "No new runs start until {}, or until the budget is raised. Active runs continue.",
            usage.month.end().date_text()
        ),
        false => "At 100%, no new runs start.".to_owned(),
    };
    ChatMessage {
        title,
        facts: vec![
            ("Repository".to_owned(), mapping.target_repo().to_string()),
            ("Used".to_owned(), usage.spent.to_string()),
            ("Budget".to_owned(), usage.budget.to_string()),
        ],
        text,
        ..ChatMessage::default()
    }
}

/// Returns the notification about a sweep that destroyed many machines.
pub fn chat_reaped(counts: &BTreeMap<ReaperRule, usize>) -> ChatMessage {
    let total: usize = counts.values().sum();
    let fact = |(rule, count): (&ReaperRule, &usize)| (rule.label().to_owned(), count.to_string());
    ChatMessage {
        title: format!("The reaper destroyed {total} machines in one sweep"),
        facts: counts.iter().map(fact).collect(),
        ..ChatMessage::default()
    }
}

fn chat(job: &Job, title: String) -> ChatMessage {
    ChatMessage {
        title,
        title_url: Some(job.issue.url.clone()).filter(|url| !url.is_empty()),
        facts: vec![
            ("Repository".to_owned(), job.repo.to_string()),
            ("Team".to_owned(), job.team.to_string()),
        ],
        text: String::new(),
    }
}
