//! Judging what reviewers outside of the run say about a commit. Nothing here talks to the host.
//!
//! Whatever is no clear word of the right App stands in the way: a reviewer that did not come, has
//! not ended, or ended in another way than reviewers do. (facts of the hosts: a managed review ends
//! as `neutral` whatever it found, and tells how bad it is in a marker; what stands in a text
//! otherwise is no verdict)

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use crate::repo_config::{ExternalReviewConfig, ReviewCheck};
use crate::steps::review::BlockingFinding;
use domain::external_reviewers::CLAUDE_APP;
use domain::feedback::is_marked_blocking;
use vendors::scm::{CheckRun, PullRequestReview, ReviewThread};

/// The managed review of Claude Code: its check run.
const CLAUDE_CHECK: &str = "Claude Code Review";

/// Stands before the numbers in the last line of its check run.
const SEVERITY: &str = "<!-- bughunter-severity:";

/// Somebody whose word is waited for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExternalReviewer {
    Check(ReviewCheck),
    ClaudeCodeReview,
}

/// Everybody who is waited for.
pub fn expected_reviewers(reviewers: &ExternalReviewConfig) -> Vec<ExternalReviewer> {
    let checks = reviewers
        .checks
        .iter()
        .cloned()
        .map(ExternalReviewer::Check);
    let claude = reviewers
        .claude_code_review
        .then_some(ExternalReviewer::ClaudeCodeReview);
    checks.chain(claude).collect()
}

impl ExternalReviewer {
    pub fn name(&self) -> &str {
        match self {
            ExternalReviewer::Check(check) => &check.name,
            ExternalReviewer::ClaudeCodeReview => CLAUDE_CHECK,
        }
    }

    fn is_told_by(&self, run: &CheckRun) -> bool {
        run.name == self.name()
            && match self {
                ExternalReviewer::Check(check) => check.accepts_app(&run.app_slug),
                ExternalReviewer::ClaudeCodeReview => run.app_slug == CLAUDE_APP,
            }
    }

    /// What its check runs on the commit say.
    fn judge(&self, runs: &[CheckRun]) -> Vec<BlockingFinding> {
        let own: Vec<&CheckRun> = runs.iter().filter(|run| self.is_told_by(run)).collect();
        if own.is_empty() {
            let others = runs.iter().filter(|run| run.name == self.name());
            let others: Vec<&str> = others.map(|run| run.app_slug.as_str()).collect();
            let problem = match others[..] {
                [] => "no check run of it came for this commit in time".to_owned(),
                _ => format!(
                    "the check run of this name is reported by {}, which does not count",
                    others.join(", ")
                ),
            };
            let title = format!("{} did not review", self.name());
            return vec![BlockingFinding::unfixable(&title, &problem)];
        }
        own.into_iter()
            .filter_map(|run| self.judge_one(run))
            .collect()
    }

    fn judge_one(&self, run: &CheckRun) -> Option<BlockingFinding> {
        let name = self.name();
        match (self, run.conclusion.as_deref()) {
            (_, None) => Some(BlockingFinding::unfixable(
                &format!("{name} has not ended"),
                "it was still running when the time to wait was over",
            )),
            (ExternalReviewer::Check(_), Some("success" | "neutral")) => None,
            (ExternalReviewer::Check(_), Some("failure")) => {
                let said = [&run.title, &run.summary, &run.text].map(|text| text.trim());
                let said: Vec<&str> = said.into_iter().filter(|text| !text.is_empty()).collect();
                let said = match said[..] {
                    [] => "it said no more".to_owned(),
                    _ => said.join("\n"),
                };
                Some(BlockingFinding::fixable(
                    &format!("{name} failed"),
                    "",
                    &said,
                ))
            }
            (ExternalReviewer::ClaudeCodeReview, Some("success" | "neutral")) => {
                judge_severity(run)
            }
            (_, Some(other)) => Some(BlockingFinding::unfixable(
                &format!("{name} gave no verdict"),
                &format!("it ended as {other}"),
            )),
        }
    }
}

#[derive(Deserialize)]
struct Severity {
    /// What must be mended.
    normal: u64,
}

fn judge_severity(run: &CheckRun) -> Option<BlockingFinding> {
    let severity = run.text.rsplit_once(SEVERITY).and_then(|(_, rest)| {
        let (numbers, _) = rest.split_once("-->")?;
        serde_json::from_str(numbers.trim()).ok()
    });
    match severity {
        Some(Severity { normal: 0 }) => None,
        Some(Severity { normal }) => {
            let title = format!("{CLAUDE_CHECK} found what must be mended ({normal})");
            let (said, _) = run.text.rsplit_once(SEVERITY).unwrap_or_default();
            Some(BlockingFinding::fixable(
                &title,
                "",
                &format!("{}\n{said}", run.summary),
            ))
        }
        None => Some(BlockingFinding::unfixable(
            &format!("{CLAUDE_CHECK} could not be read"),
            "its severity is missing in its check run",
        )),
    }
}

/// Whether somebody has not said a word yet, or not the last one.
pub fn is_pending(reviewers: &[ExternalReviewer], runs: &[CheckRun]) -> bool {
    reviewers.iter().any(|reviewer| {
        let mut own = runs
            .iter()
            .filter(|run| reviewer.is_told_by(run))
            .peekable();
        own.peek().is_none() || own.any(|run| run.conclusion.is_none())
    })
}

/// What stands in the way of a commit, by all that reviewers have said about it.
pub fn evaluate(
    reviewers: &[ExternalReviewer],
    commit: &str,
    runs: &[CheckRun],
    reviews: &[PullRequestReview],
    threads: &[ReviewThread],
) -> Vec<BlockingFinding> {
    let apps = apps(reviewers, runs);
    let said_at_lines = judge_threads(&apps, threads);
    let claude_said = threads
        .iter()
        .any(|thread| thread.app_slug.as_deref() == Some(CLAUDE_APP) && stands(&apps, thread));
    let mut findings = Vec::new();
    for reviewer in reviewers {
        let mut own = reviewer.judge(runs);
        if *reviewer == ExternalReviewer::ClaudeCodeReview && claude_said {
            // What it found stands at the lines; the number of it says nothing more.
            own.retain(|finding| !finding.is_fixable());
        }
        findings.extend(own);
    }
    findings.extend(judge_reviews(&apps, commit, reviews));
    findings.extend(said_at_lines);
    findings
}

/// The Apps whose reviews and remarks count: those whose check runs do.
fn apps(reviewers: &[ExternalReviewer], runs: &[CheckRun]) -> BTreeSet<String> {
    let told = runs
        .iter()
        .filter(|run| reviewers.iter().any(|reviewer| reviewer.is_told_by(run)));
    told.map(|run| run.app_slug.clone()).collect()
}

/// The last verdict of each App, if it is about this commit. A comment is none, and leaves the one
/// before in force; a review that was dismissed is one no more.
fn judge_reviews(
    apps: &BTreeSet<String>,
    commit: &str,
    reviews: &[PullRequestReview],
) -> Vec<BlockingFinding> {
    let mut latest: BTreeMap<&str, &PullRequestReview> = BTreeMap::new();
    for review in reviews {
        let is_verdict = ["APPROVED", "CHANGES_REQUESTED", "DISMISSED"];
        if let Some(app) = review.app_slug.as_deref().filter(|app| apps.contains(*app))
            && is_verdict.contains(&review.state.as_str())
        {
            latest.insert(app, review);
        }
    }
    latest
        .into_iter()
        .filter(|(_, review)| review.state == "CHANGES_REQUESTED" && review.commit == commit)
        .map(|(app, review)| {
            BlockingFinding::fixable(&format!("{app} requests changes"), "", &review.body)
        })
        .collect()
}

fn judge_threads(apps: &BTreeSet<String>, threads: &[ReviewThread]) -> Vec<BlockingFinding> {
    let standing = threads.iter().filter(|thread| stands(apps, thread));
    standing
        .map(|thread| {
            let app = thread.app_slug.as_deref().unwrap_or_default();
            let line = thread.line.map(|line| format!(":{line}"));
            let place = format!("{}{}", thread.path, line.unwrap_or_default());
            BlockingFinding::fixable(&format!("Remark of {app}"), &place, &thread.body)
        })
        .collect()
}

/// Whether a remark is in the way. One at a line that has changed since is for its author to make
/// anew.
fn stands(apps: &BTreeSet<String>, thread: &ReviewThread) -> bool {
    !thread.is_resolved
        && !thread.is_outdated
        && thread
            .app_slug
            .as_ref()
            .is_some_and(|app| apps.contains(app))
        && is_marked_blocking(&thread.body)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reviewers(names: &[&str], claude: bool) -> Vec<ExternalReviewer> {
        let inputs = serde_json::json!({
            "reviewCheckNames": names,
            "reviewProviders": if claude { vec!["github-claude-code-review"] } else { vec![] },
        });
        let inputs = serde_json::from_value(inputs).unwrap();
        expected_reviewers(&ExternalReviewConfig::default().with_overrides(&inputs))
    }

    fn run(name: &str, app: &str, conclusion: Option<&str>, text: &str) -> CheckRun {
        CheckRun {
            name: name.into(),
            app_slug: app.into(),
            conclusion: conclusion.map(str::to_owned),
            title: String::new(),
            summary: String::new(),
            text: text.into(),
        }
    }

    fn lines(findings: &[BlockingFinding]) -> Vec<String> {
        findings.iter().map(BlockingFinding::summary_line).collect()
    }

    #[test]
    fn every_end_of_a_check_but_the_good_ones_stands_in_the_way() {
        let lint = reviewers(&["lint"], false);
        for (conclusion, said) in [
            (Some("success"), ""),
            (Some("neutral"), ""),
            (Some("failure"), "lint failed: line 3"),
            (
                Some("cancelled"),
                "lint gave no verdict: it ended as cancelled",
            ),
            (
                Some("timed_out"),
                "lint gave no verdict: it ended as timed_out",
            ),
            (Some("skipped"), "lint gave no verdict: it ended as skipped"),
            (Some("stale"), "lint gave no verdict: it ended as stale"),
            (
                Some("action_required"),
                "lint gave no verdict: it ended as action_required",
            ),
            (
                None,
                "lint has not ended: it was still running when the time to wait was over",
            ),
        ] {
            let runs = [run("lint", "lint-app", conclusion, "line 3")];
            let found = evaluate(&lint, "c", &runs, &[], &[]);
            assert_eq!(lines(&found).concat(), said, "{conclusion:?}");
            let is_mendable = found.iter().any(BlockingFinding::is_fixable);
            assert_eq!(is_mendable, conclusion == Some("failure"));
            assert_eq!(is_pending(&lint, &runs), conclusion.is_none());
        }
    }

    #[test]
    fn a_name_is_no_proof_of_who_speaks() {
        let both = reviewers(&["lint", "deep@deep-app"], true);
        let severity = r#"<!-- bughunter-severity: {"normal":0} -->"#;
        let wrong = [
            run("lint", "github-actions", Some("success"), ""),
            run("deep", "lint-app", Some("success"), ""),
            run(
                "Claude Code Review",
                "github-actions",
                Some("neutral"),
                severity,
            ),
        ];
        assert!(is_pending(&both, &wrong));
        let found = lines(&evaluate(&both, "c", &wrong, &[], &[]));
        assert_eq!(found.len(), 3, "{found:?}");
        assert_eq!(
            found[0],
            "lint did not review: the check run of this name is reported by github-actions, which does not count"
        );
        let right = [
            run("lint", "lint-app", Some("success"), ""),
            run("deep", "deep-app", Some("success"), ""),
            run("Claude Code Review", "claude", Some("neutral"), severity),
        ];
        assert!(!is_pending(&both, &right));
        assert_eq!(evaluate(&both, "c", &right, &[], &[]), []);
        // The right one passed; another that may speak, too, has not.
        let doubled = [&right[..], &[run("lint", "other", None, "")]].concat();
        assert!(is_pending(&both, &doubled));
        assert_eq!(evaluate(&both, "c", &doubled, &[], &[]).len(), 1);
    }

    #[test]
    fn a_managed_review_is_judged_by_its_severity() {
        let claude = reviewers(&[], true);
        let of = |conclusion: &str, text: &str| {
            let runs = [run("Claude Code Review", "claude", Some(conclusion), text)];
            evaluate(&claude, "c", &runs, &[], &[])
        };
        let marked = |normal: &str| {
            format!(
                "Text\n<!-- bughunter-severity: {{\"normal\":{normal},\"nit\":1,\"pre_existing\":0}} -->"
            )
        };
        assert_eq!(of("neutral", &marked("0")), []);
        let two = of("neutral", &marked("2"));
        assert!(
            two[0].is_fixable() && two[0].summary_line().contains("(2)"),
            "{two:?}"
        );
        // A quoted marker does not speak for the last one.
        let quoted = [marked("0"), marked("1")].join("\n");
        assert_eq!(of("neutral", &quoted).len(), 1);
        for unreadable in ["", "No issues!", &marked("\"none\""), &marked("-1")] {
            let found = of("neutral", unreadable);
            assert!(!found[0].is_fixable(), "{unreadable}: {found:?}");
        }
        assert!(!of("failure", &marked("0"))[0].is_fixable());
    }

    #[test]
    fn the_last_verdict_of_each_app_counts_on_this_commit() {
        let lint = reviewers(&["lint"], false);
        let runs = [run("lint", "lint-app", Some("success"), "")];
        let review = |app: Option<&str>, state: &str, commit: &str| PullRequestReview {
            app_slug: app.map(str::to_owned),
            state: state.into(),
            body: "Rename it.".into(),
            commit: commit.into(),
        };
        let own = |state: &str| review(Some("lint-app"), state, "c");
        let blocked =
            |reviews: &[PullRequestReview]| !evaluate(&lint, "c", &runs, reviews, &[]).is_empty();
        assert!(blocked(&[own("CHANGES_REQUESTED")]));
        assert!(blocked(&[own("CHANGES_REQUESTED"), own("COMMENTED")]));
        assert!(blocked(&[own("APPROVED"), own("CHANGES_REQUESTED")]));
        assert!(!blocked(&[own("CHANGES_REQUESTED"), own("APPROVED")]));
        assert!(!blocked(&[own("DISMISSED")]));
        let earlier = review(Some("lint-app"), "CHANGES_REQUESTED", "b");
        let others = review(Some("else"), "CHANGES_REQUESTED", "c");
        assert!(!blocked(&[
            earlier,
            others,
            review(None, "CHANGES_REQUESTED", "c")
        ]));
    }

    #[test]
    fn a_remark_stands_until_it_is_resolved_or_its_line_has_changed() {
        let claude = reviewers(&[], true);
        let text = r#"<!-- bughunter-severity: {"normal":1} -->"#;
        let runs = [run("Claude Code Review", "claude", Some("neutral"), text)];
        let thread = ReviewThread {
            app_slug: Some("claude".into()),
            path: "a.rs".into(),
            line: Some(7),
            body: "🔴 **Important**: off by one".into(),
            is_resolved: false,
            is_outdated: false,
        };
        let found = evaluate(&claude, "c", &runs, &[], std::slice::from_ref(&thread));
        assert_eq!(
            lines(&found),
            ["Remark of claude (a.rs:7): 🔴 **Important**: off by one"],
            "the number beside it says nothing more"
        );
        for (is_resolved, is_outdated, app) in [
            (true, false, Some("claude")),
            (false, true, Some("claude")),
            (false, false, Some("else")),
            (false, false, None),
        ] {
            let other = ReviewThread {
                is_resolved,
                is_outdated,
                app_slug: app.map(str::to_owned),
                ..thread.clone()
            };
            let found = evaluate(&claude, "c", &runs, &[], &[other]);
            assert!(lines(&found)[0].starts_with("Claude Code Review found"));
        }
    }

    #[test]
    fn only_a_mark_in_the_first_line_blocks() {
        for (body, blocks) in [
            ("🔴 Important", true),
            ("\n_⚠️ Potential issue_ | _🔴 Critical_\n\nText", true),
            ("_⚠️ Potential issue_ | _🟠 Major_", true),
            ("**Blocking:** this leaks", true),
            ("Severity: **High**", true),
            ("**Severity**: critical", true),
            ("**Severity**: low", false),
            ("Severity: minor, not critical", false),
            ("🟡 Nit", false),
            ("Not blocking: rename this", false),
            ("Rename this\n\n🔴", false),
            ("", false),
        ] {
            assert_eq!(is_marked_blocking(body), blocks, "{body}");
        }
    }
}
