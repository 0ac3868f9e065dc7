//! Texts of the pull request: title, body, comments and commit messages. Agent output is sanitized
//! first. Secrets are redacted again at the end, because sanitizing can join the halves of a secret.

use std::fmt::Display;

use serde_json::json;

use crate::console::Console;
use crate::context::{Dispatch, Evidence, PreflightCheck, PreflightOutcome, Reporting, RunContext};
use crate::git::changes::TreeChange;
use crate::guard;
use crate::headings;
use domain::ids::IssueKey;
use domain::report::Usage;
use domain::run_options::PullRequestTask;
use domain::sanitize::{ELLIPSIS, markdown, single_line, strip_invisible};

/// Maximum length of the agent's summary, in bytes.
const MAX_SUMMARY: usize = 20_000;

/// Maximum length of one review finding, in bytes.
const MAX_FINDING: usize = 1000;

/// Maximum number of paths listed.
const MAX_LISTED: usize = 30;

/// Returns the title: issue key, then the issue title on one line.
pub(crate) fn title(dispatch: &Dispatch, console: &Console) -> String {
    let title = console.sanitize(&dispatch.config.issue_title);
    let title = markdown(&single_line(&title), 200, ELLIPSIS);
    format!("{}: {title}", dispatch.config.issue_key)
}

/// Returns the commit message. The trailer lets a later attempt of this dispatch find its own work.
pub(crate) fn commit_message(dispatch: &Dispatch, console: &Console) -> String {
    match dispatch.config.options.task {
        Some(PullRequestTask::CiFix) => {
            let key = &dispatch.config.issue_key;
            message(dispatch, &format!("{key}: Repair failing checks"))
        }
        Some(PullRequestTask::Conflict) | None => message(dispatch, &title(dispatch, console)),
    }
}

/// Returns the message of the commit that merges the base branch.
pub(crate) fn merge_commit_message(dispatch: &Dispatch) -> String {
    let (key, base) = (&dispatch.config.issue_key, &dispatch.base_branch);
    let subject = format!("{key}: Merge {base} into {}", dispatch.branch());
    message(dispatch, &subject)
}

/// Returns the message of a commit that addresses review findings.
pub(crate) fn fix_commit_message(dispatch: &Dispatch) -> String {
    let key = &dispatch.config.issue_key;
    message(dispatch, &format!("{key}: Address review findings"))
}

fn message(dispatch: &Dispatch, subject: &str) -> String {
    let (key, trailer) = (&dispatch.config.issue_key, trailer(dispatch));
    format!("{subject}\n\nAgent-Implement-Issue: {key}\n{trailer}\n")
}

/// Returns the trailer that marks commits of this dispatch.
pub(crate) fn trailer(dispatch: &Dispatch) -> String {
    format!("{TRAILER} {}", dispatch.config.dispatch_id)
}

/// Key of the trailer that marks commits of the service.
pub(crate) const TRAILER: &str = "Agent-Implement-Dispatch:";

/// Returns the line that closes the issue when the pull request is merged. An issue of GitHub is in the
/// repository of the pull request.
fn closing_line(key: &IssueKey) -> String {
    match key.repo_and_number() {
        Some((_, _, number)) => format!("Fixes #{number}"),
        None => format!("Fixes {key}"),
    }
}

/// Returns the body of an issue's pull request.
pub(crate) fn body(run: &RunContext, changes: &[TreeChange]) -> String {
    let mut body = sections(run, changes);
    body.push_str(&format!(
        "\n{}\n",
        closing_line(&run.dispatch.config.issue_key)
    ));
    body.push_str(&closing_lines(run));
    body.push_str(&format!("\n{}\n", meta(&run.dispatch)));
    run.reporting.console.redact(&body)
}

/// Returns marker and text of the comment about follow-up work on a pull request.
pub(crate) fn follow_up_comment(run: &RunContext, changes: &[TreeChange]) -> (String, String) {
    let marker = format!(
        "<!-- agent-implement-follow-up {} -->",
        run.dispatch.config.dispatch_id
    );
    let body = format!("{marker}\n{}{}", sections(run, changes), closing_lines(run));
    (marker, run.reporting.console.redact(&body))
}

/// Marker of the comment about the review after the push.
const GAP_ANALYSIS: &str = "<!-- agent-implement-gap-analysis -->";

/// Returns marker and text of the comment about the review of a commit. See
/// docs/behaviour.md#pull-request-comments.
pub(crate) fn gap_analysis_comment(
    dispatch: &Dispatch,
    reporting: &Reporting,
    status: &ReviewStatus<'_>,
    changes: &[TreeChange],
) -> (String, String) {
    let console = &reporting.console;
    let commit = status.commit.get(..12).unwrap_or(status.commit);
    let mut body = format!("{GAP_ANALYSIS}\n## Review of {commit}\n\n");
    match status.unresolved {
        [] => body.push_str("No open findings.\n"),
        unresolved => {
            body.push_str("The pull request stays a draft until these findings are resolved:\n\n");
            for finding in unresolved {
                let finding = console.redact(finding);
                body.push_str(&list_item(&finding, MAX_FINDING));
            }
        }
    }
    if status.fix_count > 0 {
        let commits = match status.fix_count {
            1 => "one more commit".to_owned(),
            more => format!("{more} more commits"),
        };
        body.push_str(&format!(
            "\nEarlier findings were addressed in {commits}.\n"
        ));
        body.push_str(&control_files(changes));
    }
    body.push_str(&cost_line(dispatch, reporting));
    (GAP_ANALYSIS.to_owned(), console.redact(&body))
}

/// State of the review after the push.
pub(crate) struct ReviewStatus<'a> {
    /// Reviewed commit.
    pub commit: &'a str,
    /// Findings that are still open.
    pub unresolved: &'a [String],
    /// Number of fix commits pushed.
    pub fix_count: u32,
}

/// Headings of the sections.
const SUMMARY: &str = "Summary";
const CHECKS: &str = "Checks";
const SUSPECTS: &str = "Might hold a secret";
const CONTROL_FILES: &str = "Please look closely";
const SETTINGS: &str = "Settings without effect";
const LFS: &str = "Not in Git LFS";
const EVIDENCE: &str = "Evidence";

/// Markers around the section about evidence.
const EVIDENCE_START: &str = "<!-- agent-implement-evidence -->";
const EVIDENCE_END: &str = "<!-- agent-implement-evidence-end -->";

/// Returns the section about evidence. Empty without evidence.
fn evidence_section(evidence: &Evidence) -> String {
    if evidence.names.is_empty() {
        return String::new();
    }
    let place = match evidence.is_kept {
        true => "The page of the run shows them:",
        false => "The service does not keep them:",
    };
    let names = evidence.names.iter();
    let names: String = names.map(|name| format!("- `{name}`\n")).collect();
    format!(
        "{EVIDENCE_START}\n\n## {EVIDENCE}\n\nThe verify script left these files. {place}\n\n{names}\n{EVIDENCE_END}"
    )
}

/// Returns the body of a pull request with the section about this evidence, instead of an earlier one. A new section
/// stands before the metadata block.
pub(crate) fn with_evidence(body: &str, evidence: &Evidence) -> String {
    let section = evidence_section(evidence);
    let earlier = body.split_once(EVIDENCE_START);
    let earlier =
        earlier.and_then(|(before, rest)| Some((before, rest.split_once(EVIDENCE_END)?.1)));
    match earlier {
        Some((before, after)) => format!("{before}{section}{after}"),
        None if section.is_empty() => body.to_owned(),
        None => {
            let (before, after) = body.split_at(body.rfind(META_START).unwrap_or(body.len()));
            format!("{}\n\n{section}\n\n{after}", before.trim_end())
        }
    }
}

fn sections(run: &RunContext, changes: &[TreeChange]) -> String {
    let summary = markdown(
        &run.reporting.console.redact(&run.change.summary),
        MAX_SUMMARY,
        ELLIPSIS,
    );
    let own_sections = [
        SUMMARY,
        CHECKS,
        SUSPECTS,
        CONTROL_FILES,
        LFS,
        SETTINGS,
        EVIDENCE,
    ];
    let summary = headings::normalize(&summary, &own_sections);
    let mut body = if summary.is_empty() {
        format!("## {SUMMARY}\n\nThe agent wrote no summary.\n")
    } else {
        format!("## {SUMMARY}\n\n{summary}\n")
    };
    body.push_str(&format!("\n## {CHECKS}\n\n"));
    if run.change.preflight_checks.is_empty() {
        body.push_str("No checks were found in this repository.\n");
    }
    for check in &run.change.preflight_checks {
        body.push_str(&check_line(check));
    }
    body.push_str(&control_files(changes));
    let suspicious = &run.change.guard_warnings;
    if !suspicious.is_empty() {
        body.push_str(&format!(
            "\n## {SUSPECTS}\n\nNot certain enough to block the push. Please check:\n\n"
        ));
        body.push_str(&list(suspicious));
    }
    let missing_in_lfs = &run.change.missing_in_lfs;
    if !missing_in_lfs.is_empty() {
        body.push_str(&format!(
            "\n## {LFS}\n\nThese files belong into Git LFS, and are committed themselves. To move them, check out the \
             branch with Git LFS, run `git add --renormalize .`, commit and push:\n\n"
        ));
        body.push_str(&list(missing_in_lfs));
    }
    let unknown = &run.repo_config.unknown_settings;
    if !unknown.is_empty() {
        body.push_str(&format!("\n## {SETTINGS}\n\n"));
        body.push_str(&list(unknown));
    }
    let evidence = evidence_section(&run.publication.evidence);
    if !evidence.is_empty() {
        body.push_str(&format!("\n{evidence}\n"));
    }
    body
}

/// Returns the section about changed files that control CI, agents or reviews.
fn control_files(changes: &[TreeChange]) -> String {
    let paths = guard::watched_paths(changes);
    if paths.is_empty() {
        return String::new();
    }
    format!(
        "\n## {CONTROL_FILES}\n\nThis pull request changes files that control CI, agents or reviews:\n\n{}",
        list(&paths)
    )
}

/// Returns a Markdown list of at most [`MAX_LISTED`] items.
fn list(items: &[impl Display]) -> String {
    let lines = items
        .iter()
        .take(MAX_LISTED)
        .map(|item| list_item(&item.to_string().replace('`', ""), 300));
    let rest = items.len().saturating_sub(MAX_LISTED);
    let more = (rest > 0).then(|| format!("- … and {rest} more\n"));
    lines.chain(more).collect()
}

fn list_item(text: &str, max: usize) -> String {
    format!("- {}\n", markdown(&single_line(text), max, ELLIPSIS))
}

fn check_line(check: &PreflightCheck) -> String {
    let outcome = match check.outcome {
        PreflightOutcome::Passed => "passed",
        PreflightOutcome::Failed => "failed",
        PreflightOutcome::TimedOut => "timed out",
        PreflightOutcome::Unavailable => "not run: its program is not installed",
    };
    format!("- `{}`: {outcome}\n", check.name.replace('`', ""))
}

fn closing_lines(run: &RunContext) -> String {
    let mut lines = String::new();
    if run.connections.workflow_token_used() {
        lines.push_str(
            "\nThe orchestrator could not be reached, so this was pushed with the workflow's own token. \
             GitHub starts no checks for it. Push an empty commit, or close and reopen the pull request, \
             to start them.\n",
        );
    }
    lines.push_str(&cost_line(&run.dispatch, &run.reporting));
    lines
}

fn cost_line(dispatch: &Dispatch, reporting: &Reporting) -> String {
    let link = dispatch
        .run_url
        .as_ref()
        .map(|url| format!(" · [run]({url})"));
    let cost = cost(&reporting.usage());
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

/// Start of the hidden metadata block.
const META_START: &str = "<!-- agent-implement-meta ";

/// Returns the hidden metadata block by which the orchestrator identifies its pull request.
fn meta(dispatch: &Dispatch) -> String {
    let config = &dispatch.config;
    let meta = json!({
        "issueId": config.issue_id,
        "identifier": config.issue_key,
        "dispatchId": config.dispatch_id,
        "jobId": config.dispatch_id,
    });
    // An issue id must not close the HTML comment.
    let meta = strip_invisible(&meta.to_string()).replace("--", "\\u002d\\u002d");
    format!("{META_START}{meta} -->")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn evidence(names: &[&str], is_kept: bool) -> Evidence {
        Evidence {
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            is_kept,
        }
    }

    #[test]
    fn evidence_is_named_once_and_edits_stay() {
        let body = "## Summary\n\nEdited.\n\nFixes ENG-1\n\n<!-- agent-implement-meta {} -->\n";
        assert_eq!(with_evidence(body, &Evidence::default()), body);
        let first = with_evidence(body, &evidence(&["shot.png"], true));
        let expected = "## Summary\n\nEdited.\n\nFixes ENG-1\n\n<!-- agent-implement-evidence -->\n\n## Evidence\n\n\
            The verify script left these files. The page of the run shows them:\n\n- `shot.png`\n\n\
            <!-- agent-implement-evidence-end -->\n\n<!-- agent-implement-meta {} -->\n";
        assert_eq!(first, expected);
        assert_eq!(with_evidence(&first, &evidence(&["shot.png"], true)), first);
        // GitHub's editor ends lines with CRLF.
        let edited = first.replace('\n', "\r\n");
        let second = with_evidence(&edited, &evidence(&["a.txt", "b.txt"], false));
        assert!(second.contains("- `a.txt`\n- `b.txt`\n") && second.contains("does not keep"));
        assert_eq!(second.matches("## Evidence").count(), 1);
        assert!(!second.contains("shot.png"), "{second}");
        assert!(!with_evidence(&second, &Evidence::default()).contains("Evidence"));
        let plain = with_evidence("text", &evidence(&["a.txt"], true));
        assert!(
            plain.starts_with("text\n\n<!-- agent-implement-evidence"),
            "{plain}"
        );
    }
}
