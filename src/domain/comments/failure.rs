//! Comment about a failed run: what happened, what to do next, the last message of the agent,
//! links, and the end of the log.

use std::borrow::Cow;

use super::{fenced, run_kind_name};
use crate::effect::LogLabel;
use crate::issue::System;
use crate::job::{Job, JobKind, JobState, RunHandle, TimeoutReason};
use crate::report::FailureCode;
use crate::sanitize;

/// Heading of the comment about a push that the sensitive-file guard blocked.
pub(crate) const GUARDRAIL_HEADING: &str = "🔒 Blocked by security guardrail";

/// Maximum length of the agent's last message in the comment, in bytes.
const MAX_LAST_MESSAGE_BYTES: usize = 2_000;

/// Workflow commands of GitHub Actions that are removed from logs: they contain masked values or
/// stop tokens.
const WORKFLOW_COMMANDS: [&str; 2] = ["::add-mask::", "::stop-commands::"];

/// Returns the headline: `Planning failed: {reason}`, `Implementation failed: {reason}` and so on,
/// or the report of the sensitive-file guard.
pub(crate) fn failure_headline(kind: JobKind, code: Option<FailureCode>, reason: &str) -> String {
    let reason = sanitize::plain_text(reason);
    if code == Some(FailureCode::SensitiveFilesBlocked) {
        let details = reason.trim_start_matches(GUARDRAIL_HEADING).trim_start();
        return format!("{GUARDRAIL_HEADING}\n\n{details}");
    }
    format!("{} failed: {reason}", run_kind_name(kind))
}

/// Returns the whole comment without the log excerpt.
pub(crate) fn failure_comment(
    job: &Job,
    code: Option<FailureCode>,
    reason: &str,
    last_agent_message: Option<&str>,
) -> String {
    let mut parts = vec![
        failure_headline(job.kind, code, reason),
        format!("**What to do:** {}", next_step(job)),
    ];
    // If the guard blocked the push, the message may quote the contents of the blocked files.
    let message = last_agent_message.filter(|message| {
        !message.trim().is_empty() && code != Some(FailureCode::SensitiveFilesBlocked)
    });
    if let Some(message) = message {
        let message = sanitize::markdown(message, MAX_LAST_MESSAGE_BYTES, " […]");
        let quoted: Vec<String> = message.lines().map(|line| format!("> {line}")).collect();
        parts.push(format!(
            "**Last message of the agent:**\n\n{}",
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

/// Returns what people can do about a failed run.
pub(crate) fn next_step(job: &Job) -> String {
    let retry = retry_in_ticket(job);
    match remedy(job) {
        Some(remedy) => format!("{remedy} Then {retry}."),
        None => format!("To try again, {retry}."),
    }
}

/// Returns what operators can do about a failed run of an issue.
pub(crate) fn retry_advice(job: &Job) -> String {
    let remedy = remedy(job).map(|remedy| format!("{remedy} "));
    format!(
        "{}To retry, {}, select Retry in the panel, or run `agent-implement retry {}`.",
        remedy.unwrap_or_default(),
        retry_in_ticket(job),
        job.issue.key
    )
}

/// Returns how people retry a run in the ticket or the pull request.
fn retry_in_ticket(job: &Job) -> &'static str {
    match (job.kind.phase(), job.issue.system) {
        (None, _) if job.kind == JobKind::Conflict => {
            "merge the base branch into the branch by hand, or select Retry in the panel"
        }
        (None, _) => "comment `/agent-implement` on the pull request",
        (Some(_), System::Linear | System::GitHub) => "set the label `Agent-Implement` again",
        (Some(_), System::Jira) => "set `Agent-Implement Status` to `Ready` again",
    }
}

fn remedy(job: &Job) -> Option<Cow<'static, str>> {
    let code = match &job.state {
        JobState::Failed { code, .. } => (*code)?,
        JobState::TimedOut {
            reason: TimeoutReason::RunNotFound,
        } => {
            return Some(
                "Check that GitHub Actions is enabled and that the workflow is on the default branch.".into(),
            );
        }
        JobState::TimedOut { .. } => FailureCode::TimedOut,
        _ => return None,
    };
    let raise = |field| {
        format!(
            "Raise \"{field}\" of project {} in the panel (Projects, Edit), or split the ticket.",
            job.team
        )
    };
    let remedy = match code {
        FailureCode::MaxTurnsExhausted => return Some(raise("Model turns").into()),
        FailureCode::TimedOut => return Some(raise("Job timeout").into()),
        FailureCode::NoChanges => "Describe in the ticket what to change.",
        FailureCode::SensitiveFilesBlocked => {
            "Nothing was pushed. Keep secrets out of these files, or allow the files in \
             `.agent-implement/config.yml` of the repository."
        }
        FailureCode::InstallFailed => "Fix the installation of dependencies.",
        FailureCode::SetupFailed => "Fix the repository's settings or its `setup` script.",
        FailureCode::VerifyFailed => {
            "Check the pull request: the `verify` script fails on it. Fix the script, or add details to the ticket."
        }
        FailureCode::CloneFailed => {
            "Check the name of the repository, and that the GitHub App may read it."
        }
        FailureCode::PushRejected => {
            "Check branch protection and the permissions of the GitHub App."
        }
        FailureCode::ProviderUnavailable => "Wait until the model provider responds again.",
        FailureCode::ProviderLimit => "Wait until the usage limit of the model is reset.",
        FailureCode::ReviewUnapproved | FailureCode::Cancelled | FailureCode::NeedsInput => {
            return None;
        }
    };
    Some(remedy.into())
}

/// Returns the comment with the log excerpt in a collapsed section below it.
pub fn with_log_excerpt(comment: &str, label: LogLabel, excerpt: &str) -> String {
    format!(
        "{comment}\n\n+++ Log excerpt ({})\n\n{}\n\n+++",
        label.as_str(),
        fenced(&readable(excerpt))
    )
}

/// Returns the log excerpt as a separate comment.
pub fn log_excerpt(label: LogLabel, excerpt: &str) -> String {
    format!(
        "Log excerpt (`{}`):\n\n{}",
        label.as_str(),
        fenced(&readable(excerpt))
    )
}

/// Removes invisible characters and workflow commands from a log.
fn readable(log: &str) -> String {
    let stop_token = |line: &str| Some(line.split_once("::stop-commands::")?.1.trim().to_owned());
    let resume_commands: Vec<String> = log
        .lines()
        .filter_map(stop_token)
        .filter(|token| !token.is_empty())
        .map(|token| format!("::{token}::"))
        .collect();
    let is_command = |line: &&str| {
        let commands = WORKFLOW_COMMANDS
            .into_iter()
            .chain(resume_commands.iter().map(String::as_str));
        commands.into_iter().any(|command| line.contains(command))
    };
    let lines: Vec<&str> = log.lines().filter(|line| !is_command(line)).collect();
    sanitize::strip_invisible(&lines.join("\n")).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

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
            "Gap fill failed: @\u{2060}all"
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
