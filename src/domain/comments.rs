//! Every sentence we ever post on a ticket, and every notification. (spec: *Ticket comments posted*)
//!
//! Text that comes from outside (a run's failure, a model's finding) passes [`neutral`] on its way
//! in, so that it can mention nobody, close nothing and hide nothing.

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

pub use failure::{
    GUARDRAIL_HEADING, failure_comment, failure_headline, log_excerpt, next_step, with_log_excerpt,
};

/// Stands between two characters and shows nothing; a mention broken by it is only text.
const WORD_JOINER: char = '\u{2060}';

/// Begins a comment about a ticket that waits.
const WAITS: &str = "Not started yet: ";

/// Ends a text that was cut.
const CUT_MARK: &str = "\n\n[… cut here: it is longer than a comment may be]";

/// Longest reason we repeat in a comment, in characters.
const MAX_REASON: usize = 4_000;

pub fn pull_request_opened(pull: &PullRequestRef) -> String {
    format!("Pull request opened: [#{}]({})", pull.number, pull.url)
}

/// Findings that nobody reported stand in the pull request alone.
pub fn review_unresolved(unresolved: &[String]) -> String {
    const HEADLINE: &str =
        "The pull request stays a draft: its review left blocking findings open.";
    if unresolved.is_empty() {
        return format!("{HEADLINE} It lists them.");
    }
    let findings: Vec<String> = unresolved
        .iter()
        .map(|finding| format!("- {}", sanitize_plain_text(finding)))
        .collect();
    let body = format!("{HEADLINE}\n\n{}", findings.join("\n"));
    truncate(&body, limits::MAX_COMMENT_BYTES, CUT_MARK)
}

/// What a session tells on its ticket: the sentence, when it was so, and where its log is.
pub fn session_comment(sentence: &str, at: Timestamp, log_url: Option<&str>) -> String {
    match log_url {
        Some(url) => format!("{sentence}\n\n{at} · [log]({url})"),
        None => format!("{sentence}\n\n{at}"),
    }
}

pub const SESSION_CREATED: &str = "Session machine created. Cloning repo and running setup...";

pub fn session_cleaned_up(lived: Duration) -> String {
    format!("Session machine cleaned up. Duration: {}", duration(lived))
}

pub fn session_failed(reason: &str) -> String {
    format!(
        "Session failed: {}. Machine will be cleaned up.",
        clause(reason)
    )
}

pub fn session_timed_out(reason: &str) -> String {
    format!(
        "Session timed out: {}. Machine will be cleaned up.",
        clause(reason)
    )
}

/// A reason as a part of a sentence: its first line, without the full stop. All of it stands in the
/// comment that tells the outcome.
fn clause(reason: &str) -> String {
    let line = reason.lines().find(|line| !line.trim().is_empty());
    let line = sanitize_plain_text(line.unwrap_or_default().trim());
    line.trim_end_matches(['.', ':']).to_owned()
}

/// How long something took, as people say it.
fn duration(span: Duration) -> String {
    let seconds = span.as_secs();
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match (hours, minutes) {
        (0, 0) => format!("{seconds}s"),
        (0, _) => format!("{minutes}m {seconds}s"),
        _ => format!("{hours}h {minutes}m {seconds}s"),
    }
}

/// Clone and install of a session are done.
pub const SESSION_READY: &str = "Environment ready. Implementation is running...";

pub const VERIFY_RUNNING: &str = "Running verification script...";

pub const VERIFY_PASSED: &str = "Verification passed";

pub fn verify_failed(summary: &str) -> String {
    format!("Verification failed: {}", sanitize_plain_text(summary))
}

pub fn session_finished(number: u64, url: &str) -> String {
    format!("Finished. PR #{number} opened: {url}")
}

/// Why a ticket waits, and what helps.
pub fn waiting(decision: &Decision) -> String {
    let mut body = format!("{WAITS}{}", sanitize_plain_text(&decision.message));
    if let Some(advice) = advice(decision) {
        body.push_str("\n\n**What helps:** ");
        body.push_str(advice);
    }
    body.push_str("\n\nThis comment goes away when the wait is over.");
    body
}

pub fn parked(failures: u32) -> String {
    format!(
        "Parked after {failures} failures in a row. It is not dispatched again until an operator unparks it in the admin panel."
    )
}

/// No more follow-ups come by themselves for a while.
pub fn follow_up_limit_reached(budget: usize, until: Timestamp) -> String {
    format!(
        "This pull request has had its {budget} automatic follow-ups of a day. What was said since waits until {until}; a comment that begins with `/agent-implement` starts a run at once."
    )
}

/// What several follow-ups could not do.
pub fn feedback_abandoned(count: usize) -> String {
    let what = match count {
        1 => "One piece of feedback".to_owned(),
        many => format!("{many} pieces of feedback"),
    };
    format!(
        "{what} could not be worked in after several follow-ups, and no more are started for it. A comment that begins with `/agent-implement` starts one."
    )
}

/// Why a run ended that is taken up again.
pub fn paused_failure_reason(reason: &str, until: Timestamp) -> String {
    format!(
        "{}. It goes on by itself at {until}.",
        reason.trim_end_matches('.')
    )
}

/// A run met the usage limit of the model's provider, and is taken up again.
pub fn paused(kind: JobKind, until: Timestamp) -> String {
    format!(
        "{} paused: the usage limit of the model provider is reached. It goes on by itself at {until}.",
        run_kind_name(kind)
    )
}

/// A comment asks for a run that would meet the usage limit of the model's provider.
pub fn command_delayed(until: Timestamp) -> String {
    format!(
        "The usage limit of the model provider is reached. The run that was asked for starts by itself at {until}."
    )
}

/// A comment asks for a run that the budget does not allow.
pub fn command_refused(budget: &str) -> String {
    format!(
        "No run is started: {} Then comment again.",
        sanitize_plain_text(budget)
    )
}

/// No follow-ups come by themselves while the budget is used up.
pub fn follow_ups_over_budget(budget: &str) -> String {
    format!(
        "Automatic follow-ups wait: {} What was said is kept until then.",
        sanitize_plain_text(budget)
    )
}

/// A person may not be able to run again what failed for want of a reason, so there always is one.
pub fn reason_or_default(reason: Option<&str>) -> String {
    match reason.map(str::trim).filter(|reason| !reason.is_empty()) {
        Some(reason) => reason.to_owned(),
        None => "the run gave no reason".to_owned(),
    }
}

pub fn chat_dispatched(job: &Job) -> ChatMessage {
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

pub fn chat_ended(job: &Job) -> ChatMessage {
    let what = run_kind_name(job.kind);
    let how = match &job.state {
        JobState::Completed => "finished",
        JobState::ReviewFailed { .. } => "finished with unresolved review findings",
        JobState::Failed { .. } if job.resumes_at.is_some() => "paused",
        JobState::Failed { .. } => "failed",
        JobState::TimedOut { .. } => "timed out",
        JobState::Reserved | JobState::Dispatched | JobState::Running => "goes on",
    };
    let mut message = chat(
        job,
        format!("{what} {how} for {}: {}", job.issue.key, job.issue.title),
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

pub fn chat_parked(job: &Job, failures: u32) -> ChatMessage {
    chat(
        job,
        format!(
            "{} is parked after {failures} failures: {}",
            job.issue.key, job.issue.title
        ),
    )
}

/// A mapping has used up its budget of the month, or most of it.
pub fn chat_budget(mapping: &Mapping, spending: &BudgetUsage) -> ChatMessage {
    let team = &mapping.team_key;
    let is_over = spending.level() == BudgetLevel::Exhausted;
    let title = match is_over {
        true => format!("{team} has used up its budget for {}", spending.month),
        false => format!(
            "{team} has used {} % of its budget for {}",
            spending.percent(),
            spending.month
        ),
    };
    let text = match is_over {
        true => format!(
            "Nothing new is started until {}, or until the budget is raised. Runs under way go on.",
            spending.month.end()
        ),
        false => "At 100 % nothing new is started.".to_owned(),
    };
    ChatMessage {
        title,
        facts: vec![
            ("Repository".to_owned(), mapping.target_repo().to_string()),
            ("Used".to_owned(), spending.spent.to_string()),
            ("Budget".to_owned(), spending.budget.to_string()),
        ],
        text,
        ..ChatMessage::default()
    }
}

/// Many machines were destroyed at once.
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

/// What a run of this kind is called in a sentence.
pub fn run_kind_name(kind: JobKind) -> &'static str {
    match kind {
        JobKind::Planning => "Planning",
        JobKind::Implementation => "Implementation",
        JobKind::GapFill => "Gap fill",
        JobKind::FollowUp => "Follow-up",
    }
}

/// Untrusted text made harmless in Markdown: no mention, no image, no HTML, no closing word that
/// acts, no command or marker of ours; cut to a length people read.
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

/// What a run wants said, as a comment of ours: its Markdown stays as it is, but it mentions nobody,
/// refers to nothing by number, loads no image, holds no HTML and no marker or command of ours.
pub fn sanitize_markdown(text: &str) -> String {
    let text = strip_invisible_chars(text);
    let mut safe = String::with_capacity(text.len());
    let mut line_begins = true;
    let mut characters = text.trim().chars().peekable();
    while let Some(character) = characters.next() {
        let next = characters.peek().copied().unwrap_or('\n');
        if character == '/' && line_begins {
            safe.push(WORD_JOINER);
        }
        safe.push(character);
        let means_more = match character {
            '<' => next.is_ascii_alphabetic() || matches!(next, '/' | '!' | '?'),
            '@' => next.is_alphanumeric() || next == '_',
            '#' => next.is_ascii_digit(),
            '!' => next == '[',
            _ => false,
        };
        if means_more {
            safe.push(WORD_JOINER);
        }
        line_begins = character == '\n' || (line_begins && character.is_whitespace());
    }
    truncate(&safe, limits::MAX_COMMENT_BYTES, CUT_MARK)
}

/// At most `max` bytes, at a character's boundary, with `mark` at the end of what was cut.
pub fn truncate(text: &str, max: usize, mark: &str) -> String {
    if text.len() <= max {
        return text.to_owned();
    }
    let room = max.saturating_sub(mark.len());
    let end = (0..=room).rev().find(|at| text.is_char_boundary(*at));
    format!("{}{mark}", &text[..end.unwrap_or_default()])
}

/// Without control characters and without the invisible and bidirectional ones that make text read
/// differently from what it is.
pub fn strip_invisible_chars(text: &str) -> String {
    text.chars()
        .filter(|character| *character == '\n' || *character == '\t' || is_visible(*character))
        .collect()
}

/// Whether a reader sees a character.
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

/// A code block whose fence is longer than any inside.
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
    fn failures_read_as_the_spec_words_them() {
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
    fn sessions_speak_in_the_specs_words() {
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
        for (told, expected) in rows {
            assert_eq!(told, expected);
        }
        let at = Timestamp::parse("2026-11-21T16:00:00Z").unwrap();
        assert_eq!(
            session_comment(SESSION_CREATED, at, Some("https://log")),
            "Session machine created. Cloning repo and running setup...\n\n2026-11-21T16:00:00.000Z · [log](https://log)"
        );
    }

    #[test]
    fn untrusted_text_mentions_nobody_and_runs_nothing() {
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
    fn what_a_run_says_keeps_its_form_and_loses_its_teeth() {
        let plan =
            "# Plan\n\n1. Make `Vec<u8>` of it; a < b\n2. Ask nobody\n\n```rust\n#[test]\n```";
        let told = sanitize_markdown(plan);
        assert_eq!(told.replace(WORD_JOINER, ""), plan);
        assert!(told.contains("# Plan\n\n1. Make") && told.contains("a < b"));
        let hostile = sanitize_markdown(
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
            assert!(!hostile.contains(bad), "{bad:?} in {hostile}");
        }
        let long = sanitize_markdown(&"ä".repeat(limits::MAX_COMMENT_BYTES));
        assert!(long.len() <= limits::MAX_COMMENT_BYTES && long.ends_with(CUT_MARK));
        let many = review_unresolved(&vec!["x".repeat(3_000); 20]);
        assert!(many.len() <= limits::MAX_COMMENT_BYTES && many.ends_with(CUT_MARK));
    }

    #[test]
    fn a_fence_is_longer_than_any_inside() {
        let comment = log_excerpt(LogLabel::PrNotFound, "a\n````\nb");
        assert!(comment.starts_with("Log excerpt (`pr_not_found`):\n\n`````\n"));
        assert!(comment.ends_with("\n`````"));
    }

    #[test]
    fn a_folded_log_is_without_the_hosts_own_commands() {
        let log = "one\n::add-mask::topsecret\n::stop-commands::t0k3n\ntwo\n::t0k3n::\n2026-11-23T04:00:00Z ::add-mask::x\nthree";
        assert_eq!(
            with_log_excerpt("It failed.", LogLabel::ContainerFailed, log),
            "It failed.\n\n+++ Log excerpt (container_failed)\n\n```\none\ntwo\nthree\n```\n\n+++"
        );
    }
}
