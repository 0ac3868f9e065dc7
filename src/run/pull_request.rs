//! What the pull request says. What the model says in it is made harmless first, and secrets are looked
//! for once more in the end: what was taken out may have stood in the middle of one.

use std::fmt::Display;

use serde_json::json;

use super::context::{PreflightCheck, PreflightOutcome, RunContext};
use super::git::changes::TreeChange;
use super::guard;
use super::headings;
use super::text::{self, sanitize_markdown};
use domain::report::Usage;

/// How much may the agent say?
const MAX_SUMMARY: usize = 20_000;

/// How much of one finding of a review is told?
const MAX_FINDING: usize = 1000;

/// How many paths are named one by one?
const MAX_NAMED: usize = 30;

/// The title: the ticket's key, and its title on one line.
pub fn title(run: &RunContext) -> String {
    let title =
        sanitize_markdown(&run.console.sanitize(&run.config.issue_title), 200).replace('\n', " ");
    format!("{}: {title}", run.config.issue_key)
}

/// The commit message. The trailer is how a later attempt of this dispatch finds its own work.
pub fn commit_message(run: &RunContext) -> String {
    format!(
        "{}\n\nAgent-Implement-Issue: {}\n{}\n",
        title(run),
        run.config.issue_key,
        trailer(run)
    )
}

/// The message of a commit that mends what a review found.
pub fn fix_commit_message(run: &RunContext) -> String {
    format!(
        "{}: Mend what the review found\n\nAgent-Implement-Issue: {}\n{}\n",
        run.config.issue_key,
        run.config.issue_key,
        trailer(run)
    )
}

/// The line that marks commits of this dispatch.
pub fn trailer(run: &RunContext) -> String {
    format!("{TRAILER} {}", run.config.dispatch_id)
}

/// Begins the line that marks our commits.
pub const TRAILER: &str = "Agent-Implement-Dispatch:";

/// The body of the pull request of a ticket.
pub fn body(run: &RunContext, changes: &[TreeChange]) -> String {
    let mut body = sections(run, changes);
    body.push_str(&format!("\nFixes {}\n", run.config.issue_key));
    body.push_str(&closing_lines(run));
    body.push_str(&format!("\n{}\n", meta(run)));
    run.console.redact(&body)
}

/// The comment on a pull request that more work was put into.
pub fn follow_up_comment(run: &RunContext, changes: &[TreeChange]) -> (String, String) {
    let marker = format!(
        "<!-- agent-implement-follow-up {} -->",
        run.config.dispatch_id
    );
    let body = format!("{marker}\n{}{}", sections(run, changes), closing_lines(run));
    (marker, run.console.redact(&body))
}

/// Marks the one comment that tells how the review of a pull request stands.
const GAP_ANALYSIS: &str = "<!-- agent-implement-gap-analysis -->";

/// The comment on what the review of a commit left open. (spec: *Ticket comments posted*)
pub fn gap_analysis_comment(
    run: &RunContext,
    reviewed: &ReviewStatus<'_>,
    changes: &[TreeChange],
) -> (String, String) {
    let commit = reviewed.commit.get(..12).unwrap_or(reviewed.commit);
    let mut body = format!("{GAP_ANALYSIS}\n## Review of {commit}\n\n");
    match reviewed.unresolved {
        [] => body.push_str("Nothing is left open.\n"),
        unresolved => {
            body.push_str("Left open, and the pull request is a draft until it is settled:\n\n");
            for finding in unresolved {
                let finding = run.console.redact(finding);
                body.push_str(&list_item(&finding, MAX_FINDING));
            }
        }
    }
    if reviewed.fix_count > 0 {
        let commits = match reviewed.fix_count {
            1 => "one more commit".to_owned(),
            more => format!("{more} more commits"),
        };
        body.push_str(&format!(
            "\nEarlier findings were worked on in {commits}.\n"
        ));
        body.push_str(&watched(changes));
    }
    body.push_str(&cost_line(run));
    (GAP_ANALYSIS.to_owned(), run.console.redact(&body))
}

/// How a review stands.
pub struct ReviewStatus<'a> {
    pub commit: &'a str,
    pub unresolved: &'a [String],
    /// Times that findings were mended and pushed.
    pub fix_count: u32,
}

/// The sections of a body, as they are named.
const SUMMARY: &str = "Summary";
const CHECKS: &str = "Checks";
const SUSPICIOUS: &str = "Might hold a secret";
const WATCHED: &str = "Please look closely";
const SETTINGS: &str = "Settings without effect";

fn sections(run: &RunContext, changes: &[TreeChange]) -> String {
    let summary = sanitize_markdown(&run.console.redact(&run.state.summary), MAX_SUMMARY);
    let ours = [SUMMARY, CHECKS, SUSPICIOUS, WATCHED, SETTINGS];
    let summary = headings::normalize(&summary, &ours);
    let mut body = if summary.is_empty() {
        format!("## {SUMMARY}\n\nThe agent gave no summary.\n")
    } else {
        format!("## {SUMMARY}\n\n{summary}\n")
    };
    body.push_str(&format!("\n## {CHECKS}\n\n"));
    if run.state.preflight_checks.is_empty() {
        body.push_str("No checks of this repository were found.\n");
    }
    for check in &run.state.preflight_checks {
        body.push_str(&check_line(check));
    }
    body.push_str(&watched(changes));
    let suspicious = &run.state.guard_warnings;
    if !suspicious.is_empty() {
        body.push_str(&format!(
            "\n## {SUSPICIOUS}\n\nNothing that is surely one; please check:\n\n"
        ));
        body.push_str(&named(suspicious));
    }
    let unknown = &run.state.repo_config.unknown_settings;
    if !unknown.is_empty() {
        body.push_str(&format!("\n## {SETTINGS}\n\n"));
        body.push_str(&named(unknown));
    }
    body
}

/// Names the changed files that deserve a person's look.
fn watched(changes: &[TreeChange]) -> String {
    let watched = guard::watched_paths(changes);
    if watched.is_empty() {
        return String::new();
    }
    format!(
        "\n## {WATCHED}\n\nThis changes files that steer CI, agents or reviews:\n\n{}",
        named(&watched)
    )
}

/// A list of what is worth a look, a line each.
fn named(things: &[impl Display]) -> String {
    let lines = things
        .iter()
        .take(MAX_NAMED)
        .map(|thing| list_item(&thing.to_string().replace('`', ""), 300));
    let rest = things.len().saturating_sub(MAX_NAMED);
    let more = (rest > 0).then(|| format!("- … and {rest} more\n"));
    lines.chain(more).collect()
}

fn list_item(text: &str, max: usize) -> String {
    format!("- {}\n", sanitize_markdown(text, max).replace('\n', " "))
}

fn check_line(check: &PreflightCheck) -> String {
    let ended = match check.outcome {
        PreflightOutcome::Passed => "passed",
        PreflightOutcome::Failed => "failed",
        PreflightOutcome::TimedOut => "did not end in time",
        PreflightOutcome::Unavailable => "could not be run: its program is not installed",
    };
    format!("- `{}`: {ended}\n", check.name.replace('`', ""))
}

fn closing_lines(run: &RunContext) -> String {
    let mut lines = String::new();
    if run.state.workflow_token_used {
        lines.push_str(
            "\nThe orchestrator could not be asked for access, so this was pushed with the workflow's own token: \
             the host starts no checks for it. Push an empty commit, or close and reopen, to start them.\n",
        );
    }
    lines.push_str(&cost_line(run));
    lines
}

fn cost_line(run: &RunContext) -> String {
    let link = run.run_url.as_ref().map(|url| format!(" · [run]({url})"));
    let cost = cost(&run.progress.usage_meter().total());
    format!("\n{cost}{}\n", link.unwrap_or_default())
}

fn cost(usage: &Usage) -> String {
    let money = usage
        .cost_usd
        .map(|cost| format!("${cost:.2} · "))
        .unwrap_or_default();
    format!(
        "Cost: {money}{} turns · {} tokens in · {} tokens out",
        usage.turns, usage.input_tokens, usage.output_tokens
    )
}

/// The hidden block by which the orchestrator knows its pull request.
fn meta(run: &RunContext) -> String {
    let config = &run.config;
    let meta = json!({
        "issueId": config.issue_id,
        "identifier": config.issue_key,
        "dispatchId": config.dispatch_id,
        "jobId": config.dispatch_id,
    });
    // An issue id that ended the comment would spill the rest.
    let meta = text::strip_invisible(&meta.to_string()).replace("--", "\\u002d\\u002d");
    format!("<!-- agent-implement-meta {meta} -->")
}
