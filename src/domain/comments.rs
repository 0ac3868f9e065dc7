//! Texts of ticket comments, pull request comments and chat notifications. See
//! docs/behaviour.md#comments-and-messages.
//!
//! Untrusted text (such as the failure reason of a run or a finding of a model) passes
//! [`sanitize_plain_text`] or [`sanitize_markdown`], so that it cannot mention people, close issues
//! or hide content.

mod failure;

use std::collections::BTreeMap;
use std::time::Duration;

use super::decision::{Decision, advice};
use super::effect::ChatMessage;
use super::job::{Job, JobKind, JobState, PullRequestRef};
use super::limits;
use super::mapping::Mapping;
use super::reaper::ReaperRule;
use super::time::Timestamp;
use super::usage::{BudgetLevel, BudgetUsage};

pub(crate) use failure::{GUARDRAIL_HEADING, failure_comment, failure_headline, next_step};
pub use failure::{log_excerpt, with_log_excerpt};

/// Invisible character. Inserted into a mention or command, it turns the mention or command into
/// plain text.
const WORD_JOINER: char = '\u{2060}';

/// Start of the comment on a ticket that waits.
const WAITING_PREFIX: &str = "Not started yet: ";

/// End of a truncated comment.
const TRUNCATION_MARK: &str = "\n\n[… truncated: too long for a comment]";

/// Maximum length of a failure reason in a comment, in characters.
const MAX_REASON: usize = 4_000;

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
        .map(|finding| format!("- {}", sanitize_plain_text(finding)))
        .collect();
    let body = format!("{HEADLINE}\n\n{}", findings.join("\n"));
    truncate(&body, limits::MAX_COMMENT_BYTES, TRUNCATION_MARK)
}

/// Returns a progress comment of a session: a sentence, its time and a link to the log.
pub fn session_comment(sentence: &str, at: Timestamp, log_url: Option<&str>) -> String {
    match log_url {
        Some(url) => format!("{sentence}\n\n{at} · [log]({url})"),
        None => format!("{sentence}\n\n{at}"),
    }
}

/// Progress comment: the session machine was created.
pub(crate) const SESSION_CREATED: &str =
    "Session machine created. Cloning repo and running setup...";

/// Returns the progress comment about a destroyed session machine.
pub(crate) fn session_cleaned_up(lifetime: Duration) -> String {
    format!(
        "Session machine cleaned up. Duration: {}",
        format_duration(lifetime)
    )
}

/// Returns the progress comment about a failed session.
pub(crate) fn session_failed(reason: &str) -> String {
    format!(
        "Session failed: {}. Machine will be cleaned up.",
        first_line(reason)
    )
}

/// Returns the progress comment about a session that timed out.
pub(crate) fn session_timed_out(reason: &str) -> String {
    format!(
        "Session timed out: {}. Machine will be cleaned up.",
        first_line(reason)
    )
}

/// Returns the first line of a reason without its full stop, for use inside a sentence. The failure
/// comment contains the whole reason.
fn first_line(reason: &str) -> String {
    let line = reason.lines().find(|line| !line.trim().is_empty());
    let line = sanitize_plain_text(line.unwrap_or_default().trim());
    line.trim_end_matches(['.', ':']).to_owned()
}

/// Formats a format_duration, such as `3m 20s`.
fn format_duration(span: Duration) -> String {
    let seconds = span.as_secs();
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match (hours, minutes) {
        (0, 0) => format!("{seconds}s"),
        (0, _) => format!("{minutes}m {seconds}s"),
        _ => format!("{hours}h {minutes}m {seconds}s"),
    }
}

/// Progress comment: the repository is cloned and set up.
pub(crate) const SESSION_READY: &str = "Environment ready. Implementation is running...";

/// Progress comment: the verification script started.
pub(crate) const VERIFY_RUNNING: &str = "Running verification script...";

/// Progress comment: the verification script succeeded.
pub(crate) const VERIFY_PASSED: &str = "Verification passed";

/// Returns the progress comment about a failed verification script.
pub(crate) fn verify_failed(summary: &str) -> String {
    format!("Verification failed: {}", sanitize_plain_text(summary))
}

/// Returns the progress comment about the opened pull request.
pub(crate) fn session_finished(number: u64, url: &str) -> String {
    format!("Finished. PR #{number} opened: {url}")
}

/// Returns the comment about a ticket that waits: the reason and the advice.
pub fn waiting(decision: &Decision) -> String {
    let mut body = format!("{WAITING_PREFIX}{}", sanitize_plain_text(&decision.message));
    if let Some(advice) = advice(decision) {
        body.push_str("\n\n**What to do:** ");
        body.push_str(advice);
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
        "Reached the limit of {limit} automatic follow-ups per day. New feedback will be processed after {until}. To start a run at once, comment `/agent-implement`."
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

/// Returns the failure reason of a run whose work is dispatched again at `until`.
pub(crate) fn paused_failure_reason(reason: &str, until: Timestamp) -> String {
    format!(
        "{}. It resumes automatically at {until}.",
        reason.trim_end_matches('.')
    )
}

/// Returns the comment about a run that reached the usage limit of the model provider.
pub fn paused(kind: JobKind, until: Timestamp) -> String {
    format!(
        "{} paused: the usage limit of the model provider is reached. It resumes automatically at {until}.",
        run_kind_name(kind)
    )
}

/// Returns the reply to a command while the usage limit of the model provider is reached.
pub fn command_delayed(until: Timestamp) -> String {
    format!(
        "The usage limit of the model provider is reached. The requested run starts automatically at {until}."
    )
}

/// Returns the reply to a command that the budget does not allow.
pub fn command_refused(budget: &str) -> String {
    format!(
        "Cannot start a run: {} Then comment again.",
        sanitize_plain_text(budget)
    )
}

/// Returns the comment about follow-up runs that wait because the budget is used up.
pub fn follow_ups_over_budget(budget: &str) -> String {
    format!(
        "Automatic follow-ups are paused: {} Feedback is kept until then.",
        sanitize_plain_text(budget)
    )
}

/// Returns the failure reason, or a default text if the run reported none.
pub(crate) fn reason_or_default(reason: Option<&str>) -> String {
    match reason.map(str::trim).filter(|reason| !reason.is_empty()) {
        Some(reason) => reason.to_owned(),
        None => "the run gave no reason".to_owned(),
    }
}

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
        JobState::Failed { .. } if job.resumes_at.is_some() => "paused",
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
        JobState::Failed { reason, .. } => reason.chars().take(500).collect(),
        JobState::TimedOut { reason } => reason.as_str().to_owned(),
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
            usage.month.end()
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
    let fact = |(rule, count): (&ReaperRule, &usize)| (rule.as_str().to_owned(), count.to_string());
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

/// Returns the name of a kind of run, as used at the start of a sentence.
pub(crate) fn run_kind_name(kind: JobKind) -> &'static str {
    match kind {
        JobKind::Planning => "Planning",
        JobKind::Implementation => "Implementation",
        JobKind::GapFill => "Gap fill",
        JobKind::FollowUp => "Follow-up",
    }
}

/// Escapes untrusted plain text for use in Markdown. The result contains no mention, image, HTML,
/// issue-closing reference, command or marker of the service. It is truncated to 4,000
/// characters.
pub fn sanitize_plain_text(text: &str) -> String {
    let text = strip_invisible_chars(text);
    let mut safe = String::with_capacity(text.len());
    let mut previous = '\n';
    for character in text.chars().take(MAX_REASON) {
        match character {
            '<' => safe.push_str("&lt;"),
            '@' | '#' => {
                safe.push(character);
                safe.push(WORD_JOINER);
            }
            '!' => {
                safe.push('!');
                safe.push(WORD_JOINER);
            }
            '/' | '+' if previous == '\n' => {
                safe.push(WORD_JOINER);
                safe.push(character);
            }
            other => safe.push(other),
        }
        previous = character;
    }
    if text.chars().nth(MAX_REASON).is_some() {
        safe.push_str(" […]");
    }
    safe
}

/// Escapes untrusted Markdown for use as a comment. Formatting is kept. The result contains no
/// mention, reference by number, image, HTML, command or marker of the service. It is truncated to
/// [`limits::MAX_COMMENT_BYTES`].
pub fn sanitize_markdown(text: &str) -> String {
    let text = strip_invisible_chars(text);
    let mut safe = String::with_capacity(text.len());
    let mut is_line_start = true;
    let mut characters = text.trim().chars().peekable();
    while let Some(character) = characters.next() {
        let next = characters.peek().copied().unwrap_or('\n');
        if character == '/' && is_line_start {
            safe.push(WORD_JOINER);
        }
        safe.push(character);
        let has_meaning = match character {
            '<' => next.is_ascii_alphabetic() || matches!(next, '/' | '!' | '?'),
            '@' => next.is_alphanumeric() || next == '_',
            '#' => next.is_ascii_digit(),
            '!' => next == '[',
            _ => false,
        };
        if has_meaning {
            safe.push(WORD_JOINER);
        }
        is_line_start = character == '\n' || (is_line_start && character.is_whitespace());
    }
    truncate(&safe, limits::MAX_COMMENT_BYTES, TRUNCATION_MARK)
}

/// Truncates text to at most `max` bytes at a character boundary. Truncated text ends with `mark`.
pub fn truncate(text: &str, max: usize, mark: &str) -> String {
    if text.len() <= max {
        return text.to_owned();
    }
    let max_kept = max.saturating_sub(mark.len());
    let end = (0..=max_kept).rev().find(|at| text.is_char_boundary(*at));
    format!("{}{mark}", &text[..end.unwrap_or_default()])
}

/// Removes control characters, and the invisible and bidirectional characters that make text look
/// different from its content.
pub fn strip_invisible_chars(text: &str) -> String {
    text.chars()
        .filter(|character| *character == '\n' || *character == '\t' || is_visible(*character))
        .collect()
}

/// Returns whether a character is visible.
pub(super) fn is_visible(character: char) -> bool {
    !character.is_control()
        && !matches!(
            character,
            '\u{00AD}'
                | '\u{061C}'
                | '\u{180E}'
                | '\u{200B}'..='\u{200F}'
                | '\u{202A}'..='\u{202E}'
                | '\u{2060}'..='\u{206F}'
                | '\u{FEFF}'
                | '\u{FFF9}'..='\u{FFFB}'
                | '\u{E0000}'..='\u{E007F}'
        )
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
    use crate::effect::LogLabel;
    use crate::report::FailureCode;

    #[test]
    fn failure_headlines_have_the_specified_wording() {
        assert_eq!(
            failure_headline(JobKind::Planning, None, "no plan"),
            "Planning failed: no plan"
        );
        assert_eq!(
            failure_headline(JobKind::Implementation, None, "it broke"),
            "Implementation failed: it broke"
        );
        assert_eq!(
            failure_headline(JobKind::GapFill, None, "@all"),
            format!("Gap fill failed: @{WORD_JOINER}all")
        );
        let blocked = "🔒 Blocked by security guardrail\n\nPush blocked: 1 sensitive file(s) would be committed:\n- .env: environment and config file";
        assert_eq!(
            failure_headline(
                JobKind::Implementation,
                Some(FailureCode::SensitiveFilesBlocked),
                blocked
            ),
            blocked
        );
    }

    #[test]
    fn session_comments_have_the_specified_wording() {
        let rows = [
            (
                session_cleaned_up(Duration::from_secs(3)),
                "Session machine cleaned up. Duration: 3s",
            ),
            (
                session_cleaned_up(Duration::from_secs(200)),
                "Session machine cleaned up. Duration: 3m 20s",
            ),
            (
                session_cleaned_up(Duration::from_secs(3_600)),
                "Session machine cleaned up. Duration: 1h 0m 0s",
            ),
            (
                session_failed("\ngit clone failed (exit 128): no.\nmore"),
                "Session failed: git clone failed (exit 128): no. Machine will be cleaned up.",
            ),
            (
                session_timed_out("the run exceeded its time budget of 60 minutes"),
                "Session timed out: the run exceeded its time budget of 60 minutes. Machine will be cleaned up.",
            ),
        ];
        for (comment, expected) in rows {
            assert_eq!(comment, expected);
        }
        let at = Timestamp::parse("2026-11-21T16:00:00Z").unwrap();
        assert_eq!(
            session_comment(SESSION_CREATED, at, Some("https://log")),
            "Session machine created. Cloning repo and running setup...\n\n2026-11-21T16:00:00.000Z · [log](https://log)"
        );
    }

    #[test]
    fn sanitized_plain_text_contains_no_mention_or_command() {
        let text = sanitize_plain_text(
            "@everyone fixes #1 ![x](http://evil) <!-- agent-implement-meta -->\n/agent-implement do\u{202E}it",
        );
        for bad in [
            "@everyone",
            "#1",
            "![",
            "<!--",
            "\n/agent-implement",
            "\u{202E}",
        ] {
            assert!(!text.contains(bad), "{bad:?} in {text}");
        }
        assert!(sanitize_plain_text(&"x".repeat(9_000)).chars().count() < 4_100);
    }

    #[test]
    fn sanitized_markdown_keeps_formatting_without_mentions_or_commands() {
        let plan =
            "# Plan\n\n1. Make `Vec<u8>` of it; a < b\n2. Ask nobody\n\n```rust\n#[test]\n```";
        let sanitized = sanitize_markdown(plan);
        assert_eq!(sanitized.replace(WORD_JOINER, ""), plan);
        assert!(sanitized.contains("# Plan\n\n1. Make") && sanitized.contains("a < b"));
        let malicious = sanitize_markdown(
            "@everyone see #1 ![x](http://evil) <!-- agent-implement-meta --> </ticket>\n  /agent-implement do\u{202E}it",
        );
        for bad in [
            "@everyone",
            "#1",
            "![",
            "<!--",
            "</ticket>",
            "\n  /agent-implement",
            "\u{202E}",
        ] {
            assert!(!malicious.contains(bad), "{bad:?} in {malicious}");
        }
        let long = sanitize_markdown(&"ä".repeat(limits::MAX_COMMENT_BYTES));
        assert!(long.len() <= limits::MAX_COMMENT_BYTES && long.ends_with(TRUNCATION_MARK));
        let many = review_unresolved(&vec!["x".repeat(3_000); 20]);
        assert!(many.len() <= limits::MAX_COMMENT_BYTES && many.ends_with(TRUNCATION_MARK));
    }

    #[test]
    fn fence_is_longer_than_any_fence_inside() {
        let comment = log_excerpt(LogLabel::PrNotFound, "a\n````\nb");
        assert!(comment.starts_with("Log excerpt (`pr_not_found`):\n\n`````\n"));
        assert!(comment.ends_with("\n`````"));
    }

    #[test]
    fn log_excerpt_omits_workflow_commands() {
        let log = "one\n::add-mask::topsecret\n::stop-commands::t0k3n\ntwo\n::t0k3n::\n2026-11-23T04:00:00Z ::add-mask::x\nthree";
        assert_eq!(
            with_log_excerpt("It failed.", LogLabel::ContainerFailed, log),
            "It failed.\n\n+++ Log excerpt (container_failed)\n\n```\none\ntwo\nthree\n```\n\n+++"
        );
    }
}
