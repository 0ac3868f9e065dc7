//! The comment about a run that failed, in the order in which people need it: what happened, what to
//! do next, what the agent said last, where to look, and the end of the log.

use super::{
    fenced, run_kind_name, sanitize_markdown, sanitize_plain_text, strip_invisible_chars, truncate,
};
use crate::effect::LogLabel;
use crate::issue::System;
use crate::job::{Job, JobKind, JobState, RunHandle, TimeoutReason};
use crate::report::FailureCode;

/// Heads the comment of a push that the sensitive-file guard blocked.
pub const GUARDRAIL_HEADING: &str = "🔒 Blocked by security guardrail";

/// Longest repeat of what the agent said last, in bytes.
const MAX_WORDS: usize = 2_000;

/// Commands of the CI host that are no output: what they hide, and what they silence.
const HOST_COMMANDS: [&str; 2] = ["::add-mask::", "::stop-commands::"];

/// `Planning failed: {reason}`, `Implementation failed: {reason}` and so on, or the guardrail's own
/// words.
pub fn failure_headline(kind: JobKind, code: Option<FailureCode>, reason: &str) -> String {
    let reason = sanitize_plain_text(reason);
    if code == Some(FailureCode::SensitiveFilesBlocked) {
        let details = reason.trim_start_matches(GUARDRAIL_HEADING).trim_start();
        return format!("{GUARDRAIL_HEADING}\n\n{details}");
    }
    format!("{} failed: {reason}", run_kind_name(kind))
}

/// The whole comment, but for the log.
pub fn failure_comment(
    job: &Job,
    code: Option<FailureCode>,
    reason: &str,
    last_words: Option<&str>,
) -> String {
    let mut parts = vec![
        failure_headline(job.kind, code, reason),
        format!("**What to do:** {}", next_step(job)),
    ];
    // Around the names of blocked files, the agent may have said what is in them.
    let words = last_words.filter(|words| {
        !words.trim().is_empty() && code != Some(FailureCode::SensitiveFilesBlocked)
    });
    if let Some(words) = words {
        let words = truncate(&sanitize_markdown(words), MAX_WORDS, " […]");
        let quoted: Vec<String> = words.lines().map(|line| format!("> {line}")).collect();
        parts.push(format!(
            "**The agent's last words:**\n\n{}",
            quoted.join("\n")
        ));
    }
    let run = job.run.as_ref().and_then(RunHandle::log_url);
    let run = run.map(|url| format!("[Run]({url})"));
    let pull = job.pull.as_ref();
    let pull = pull.map(|pull| format!("[Pull request #{}]({})", pull.number, pull.url));
    let links: Vec<String> = [run, pull].into_iter().flatten().collect();
    if !links.is_empty() {
        parts.push(links.join(" · "));
    }
    parts.join("\n\n")
}

/// What the people of a ticket can do about a run that failed.
pub fn next_step(job: &Job) -> String {
    let again = match (job.kind.phase(), job.issue.system) {
        (None, _) => "comment `/agent-implement` on the pull request",
        (Some(_), System::Linear) => "set the label `Agent-Implement` again",
        (Some(_), System::Jira) => "set `Agent-Implement Status` to `Ready` again",
    };
    match remedy(&job.state) {
        Some(remedy) => format!("{remedy} Then {again}."),
        None => format!("To try again, {again}."),
    }
}

fn remedy(state: &JobState) -> Option<&'static str> {
    let code = match state {
        JobState::Failed { code, .. } => (*code)?,
        JobState::TimedOut {
            reason: TimeoutReason::RunNotFound,
        } => {
            return Some(
                "Check that GitHub Actions is enabled and that the workflow is on the default branch.",
            );
        }
        JobState::TimedOut { .. } => FailureCode::TimedOut,
        _ => return None,
    };
    match code {
        FailureCode::MaxTurnsExhausted => {
            Some("Raise `maxTurns` of the project, or split the ticket.")
        }
        FailureCode::NoChanges => Some("Say in the ticket what is to be changed."),
        FailureCode::SensitiveFilesBlocked => Some(
            "Nothing was pushed. Keep secrets out of these files, or allow the files in \
             `.agent-implement/config.yml` of the repository.",
        ),
        FailureCode::InstallFailed => Some("Fix the installation of dependencies."),
        FailureCode::SetupFailed => Some("Fix the repository's settings or its `setup` script."),
        FailureCode::VerifyFailed => Some(
            "Look at the pull request: the `verify` script fails on it. Fix the script or say more in the ticket.",
        ),
        FailureCode::CloneFailed => {
            Some("Check the name of the repository, and that the GitHub App may read it.")
        }
        FailureCode::PushRejected => {
            Some("Check branch protection and the permissions of the GitHub App.")
        }
        FailureCode::ProviderUnavailable => Some("Wait until the model provider answers again."),
        FailureCode::ProviderLimit => Some("Wait until the usage limit of the model is reset."),
        FailureCode::TimedOut => Some("Raise `maxJobMinutes` of the project, or split the ticket."),
        FailureCode::ReviewUnapproved | FailureCode::Cancelled => None,
    }
}

/// The comment with the end of the log folded away below it.
pub fn with_log_excerpt(comment: &str, label: LogLabel, excerpt: &str) -> String {
    format!(
        "{comment}\n\n+++ Log excerpt ({})\n\n{}\n\n+++",
        label.as_str(),
        fenced(&readable(excerpt))
    )
}

/// The end of a run's log under its label.
pub fn log_excerpt(label: LogLabel, excerpt: &str) -> String {
    format!(
        "Log excerpt (`{}`):\n\n{}",
        label.as_str(),
        fenced(&readable(excerpt))
    )
}

/// A log without invisible characters and without the commands that were for its host.
fn readable(log: &str) -> String {
    let silenced = |line: &str| Some(line.split_once("::stop-commands::")?.1.trim().to_owned());
    let resumes: Vec<String> = log
        .lines()
        .filter_map(silenced)
        .filter(|token| !token.is_empty())
        .map(|token| format!("::{token}::"))
        .collect();
    let is_command = |line: &&str| {
        let commands = HOST_COMMANDS
            .into_iter()
            .chain(resumes.iter().map(String::as_str));
        commands.into_iter().any(|command| line.contains(command))
    };
    let lines: Vec<&str> = log.lines().filter(|line| !is_command(line)).collect();
    strip_invisible_chars(&lines.join("\n"))
}
