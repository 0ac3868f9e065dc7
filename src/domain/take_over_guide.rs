//! Guide for a take-over: what a person needs to continue the work on an issue by hand. See docs/operate.md#take-over.
//!
//! The commands are copied to a shell. Names in them come from tickets and runs: each is one word for the shell, and none
//! is an option for git.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::feedback::{PullRequestChecks, ReviewDecision};
use super::ids::{IssueKey, JobId};
use super::job::JobKind;
use super::sanitize;
use super::time::Timestamp;

/// Maximum number of open findings.
pub const MAX_FINDINGS: usize = 100;

/// Maximum length of a text in a guide, in bytes.
const MAX_TEXT: usize = 4_000;

/// Who has an issue, and what a person needs to continue it by hand.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TakeOverGuide {
    /// Whether a person has the issue.
    pub taken: bool,
    /// Name of the person.
    pub taken_by: Option<String>,
    /// Time since when the person has it.
    pub taken_at: Option<Timestamp>,
    /// Key of the issue.
    #[schemars(example = "ENG-42")]
    pub issue_identifier: IssueKey,
    /// Title of the issue.
    pub issue_title: String,
    /// Address of the ticket.
    pub issue_url: String,
    /// Repository of the project. `None` if no project takes the issue.
    #[schemars(example = "acme/shop")]
    pub repo: Option<String>,
    /// Branch of the work. `None` before the first run.
    pub branch: Option<String>,
    /// Whether the branch exists at the repository host. True if that is not known.
    pub branch_exists: bool,
    /// Branch that the work is merged into.
    pub base_branch: Option<String>,
    /// Commands that put the branch into a clone of the repository.
    pub commands: Vec<String>,
    /// Latest pull request of the issue.
    pub pull_request: Option<TakeOverPull>,
    /// Latest run of the issue.
    pub last_run: Option<TakeOverRun>,
    /// Open findings of people and of the last review.
    #[schemars(length(max = MAX_FINDINGS))]
    pub findings: Vec<TakeOverFinding>,
    /// Work of the latest runs that is not on the branch.
    pub patch: Option<TakeOverGuidePatch>,
}

/// Pull request of an issue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TakeOverPull {
    /// Address.
    pub url: String,
    /// Number in the repository.
    #[schemars(range(min = 1))]
    pub number: u64,
    /// State, as last reported by GitHub.
    #[schemars(extend("enum" = ["open", "merged", "closed"]))]
    pub state: String,
    /// Checks of the last commit, as last reported by GitHub. `None` if it has none.
    pub checks: Option<PullRequestChecks>,
    /// Decision of the reviewers, as last reported by GitHub.
    pub review_decision: Option<ReviewDecision>,
}

/// Latest run of an issue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TakeOverRun {
    /// Id of the run.
    pub job_id: JobId,
    /// Kind of the run.
    pub kind: JobKind,
    /// Whether it is still at work and may push to the branch.
    pub active: bool,
    /// Status of the run, as in `Job`.
    pub status: String,
    /// Reason of its failure.
    pub failure_reason: Option<String>,
    /// Summary that the agent wrote about the latest change.
    pub summary: Option<String>,
    /// Address of the run at its host.
    pub url: Option<String>,
}

/// Open finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TakeOverFinding {
    /// Login of the reviewer. `None` for a finding of the run's own review.
    pub author: Option<String>,
    /// Path of the file.
    pub file: Option<String>,
    /// Line in the file, from 1.
    pub line: Option<u64>,
    /// Text.
    pub text: String,
}

/// Patch with work that is not on the branch: `GET /api/jobs/:jobId/patch`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TakeOverGuidePatch {
    /// Id of the run that left it.
    pub job_id: JobId,
    /// Size in bytes.
    pub bytes: usize,
    /// Name of the file that `command` reads.
    pub file: String,
    /// Command that applies the file in the work tree.
    pub command: String,
}

impl TakeOverFinding {
    /// Creates a finding, with texts within their limits.
    pub fn new(author: Option<&str>, file: Option<&str>, line: Option<u64>, text: &str) -> Self {
        let short = |text: &str| limited(text, MAX_TEXT);
        Self {
            author: author.map(short),
            file: file.map(short),
            line,
            text: limited(text.trim(), MAX_TEXT),
        }
    }
}

impl TakeOverGuidePatch {
    /// Describes the patch of a run of an issue.
    pub fn new(issue: &IssueKey, job_id: JobId, bytes: usize) -> Self {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
        let stem = issue.as_str().replace(|c| !is_plain(c), "_");
        let file = format!("{}.patch", stem.trim_start_matches(['-', '.']));
        Self {
            job_id,
            bytes,
            command: format!("git apply --3way {}", shell_word(&file)),
            file,
        }
    }
}

/// Returns a text without invisible characters, truncated to `max` bytes.
pub fn limited(text: &str, max: usize) -> String {
    sanitize::truncate(sanitize::strip_invisible(text), max, sanitize::ELLIPSIS).into_owned()
}

/// Returns the commands that put a branch into a clone whose remote is named `origin`. A branch that does not exist at
/// the host yet begins at the base branch.
pub fn branch_commands(branch: &str, base: &str, branch_exists: bool) -> Vec<String> {
    let fetched = if branch_exists { branch } else { base };
    let fetch = format!("git fetch origin {}", ref_word(fetched));
    let switch = match (branch_exists, is_option(branch)) {
        (_, true) => "git switch --detach FETCH_HEAD".to_owned(),
        (true, false) => format!("git switch {}", shell_word(branch)),
        (false, false) => format!("git switch --create {} FETCH_HEAD", shell_word(branch)),
    };
    vec![fetch, switch]
}

/// Returns a branch as a word that git does not take for an option or a refspec.
fn ref_word(branch: &str) -> String {
    let is_plain = !is_option(branch) && !branch.starts_with('+') && !branch.contains(':');
    match is_plain {
        true => shell_word(branch),
        false => shell_word(&format!("refs/heads/{branch}")),
    }
}

fn is_option(word: &str) -> bool {
    word.starts_with('-')
}

/// Returns a text as one word for a POSIX shell, without invisible characters and line breaks.
pub fn shell_word(text: &str) -> String {
    let text = sanitize::single_line(text);
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._/@%+=:,".contains(c);
    match !text.is_empty() && text.chars().all(is_plain) {
        true => text.into_owned(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_branch_is_fetched_and_switched_to() {
        assert_eq!(
            branch_commands("agent-implement/eng-42-cart", "main", true),
            [
                "git fetch origin agent-implement/eng-42-cart",
                "git switch agent-implement/eng-42-cart"
            ]
        );
        assert_eq!(
            branch_commands("agent-implement/eng-42-cart", "main", false),
            [
                "git fetch origin main",
                "git switch --create agent-implement/eng-42-cart FETCH_HEAD"
            ]
        );
    }

    #[test]
    fn hostile_names_are_neither_options_nor_refspecs() {
        for (branch, fetch, switch) in [
            (
                "--upload-pack=x",
                "refs/heads/--upload-pack=x",
                "--detach FETCH_HEAD",
            ),
            ("+x:y", "refs/heads/+x:y", "+x:y"),
            ("a b", "'a b'", "'a b'"),
            ("$(x)", "'$(x)'", "'$(x)'"),
        ] {
            let expected = [
                format!("git fetch origin {fetch}"),
                format!("git switch {switch}"),
            ];
            assert_eq!(branch_commands(branch, "main", true), expected);
        }
        assert_eq!(shell_word("it's"), r"'it'\''s'");
        assert_eq!(shell_word("a\u{202e}b\nc"), "'ab c'");
        assert_eq!(shell_word(""), "''");
    }

    #[test]
    fn the_file_of_a_patch_is_a_plain_name() {
        for (key, file) in [
            ("ENG-42", "ENG-42.patch"),
            ("acme/shop#12", "acme_shop_12.patch"),
            ("-x", "x.patch"),
        ] {
            let patch = TakeOverGuidePatch::new(&key.into(), "01J".into(), 1);
            assert_eq!(patch.file, file);
            assert_eq!(patch.command, format!("git apply --3way {file}"));
        }
    }
}
