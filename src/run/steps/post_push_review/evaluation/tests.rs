//! Check runs, reviews and threads of external reviewers, and the findings in them.

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
        id: 1,
        name: name.into(),
        app_slug: app.into(),
        conclusion: conclusion.map(str::to_owned),
        title: String::new(),
        summary: String::new(),
        text: text.into(),
        details_url: None,
        suite: None,
        completed_at: None,
    }
}

fn lines(findings: &[BlockingFinding]) -> Vec<String> {
    findings.iter().map(BlockingFinding::summary_line).collect()
}

#[test]
fn accepts_only_success_and_neutral_conclusions() {
    let lint = reviewers(&["lint"], false);
    for (conclusion, expected) in [
        (Some("success"), ""),
        (Some("neutral"), ""),
        (Some("failure"), "lint failed: line 3"),
        (
            Some("cancelled"),
            "lint gave no result: its conclusion is cancelled",
        ),
        (
            Some("timed_out"),
            "lint gave no result: its conclusion is timed_out",
        ),
        (
            Some("skipped"),
            "lint gave no result: its conclusion is skipped",
        ),
        (
            Some("stale"),
            "lint gave no result: its conclusion is stale",
        ),
        (
            Some("action_required"),
            "lint gave no result: its conclusion is action_required",
        ),
        (
            None,
            "lint did not finish: it was still running when the wait timed out",
        ),
    ] {
        let runs = [run("lint", "lint-app", conclusion, "line 3")];
        let found = evaluate(&lint, "c", &runs, &[], &[]);
        assert_eq!(lines(&found).concat(), expected, "{conclusion:?}");
        let is_fixable = found.iter().any(BlockingFinding::is_fixable);
        assert_eq!(is_fixable, conclusion == Some("failure"));
        assert_eq!(is_pending(&lint, &runs), conclusion.is_none());
    }
}

#[test]
fn rejects_check_runs_of_other_apps() {
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
        "lint did not review: the check run of this name was reported by github-actions, which is not accepted"
    );
    let right = [
        run("lint", "lint-app", Some("success"), ""),
        run("deep", "deep-app", Some("success"), ""),
        run("Claude Code Review", "claude", Some("neutral"), severity),
    ];
    assert!(!is_pending(&both, &right));
    assert_eq!(evaluate(&both, "c", &right, &[], &[]), []);
    // The expected reviewer passed; a second accepted App has not finished.
    let doubled = [&right[..], &[run("lint", "other", None, "")]].concat();
    assert!(is_pending(&both, &doubled));
    assert_eq!(evaluate(&both, "c", &doubled, &[], &[]).len(), 1);
}

#[test]
fn evaluates_a_managed_review_by_its_severity() {
    let claude = reviewers(&[], true);
    let findings = |conclusion: &str, text: &str| {
        let runs = [run("Claude Code Review", "claude", Some(conclusion), text)];
        evaluate(&claude, "c", &runs, &[], &[])
    };
    let marked = |normal: &str| {
        format!(
            "Text\n<!-- bughunter-severity: {{\"normal\":{normal},\"nit\":1,\"pre_existing\":0}} -->"
        )
    };
    assert_eq!(findings("neutral", &marked("0")), []);
    let two = findings("neutral", &marked("2"));
    assert!(
        two[0].is_fixable() && two[0].summary_line().contains("found 2 important"),
        "{two:?}"
    );
    // Only the last marker counts, not a quoted one.
    let quoted = [marked("0"), marked("1")].join("\n");
    assert_eq!(findings("neutral", &quoted).len(), 1);
    for unreadable in ["", "No issues!", &marked("\"none\""), &marked("-1")] {
        let found = findings("neutral", unreadable);
        assert!(!found[0].is_fixable(), "{unreadable}: {found:?}");
    }
    assert!(!findings("failure", &marked("0"))[0].is_fixable());
}

#[test]
fn uses_the_last_review_of_each_app_on_this_commit() {
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
fn blocks_on_a_thread_until_it_is_resolved_or_outdated() {
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
        ["Review comment by claude (a.rs:7): 🔴 **Important**: off by one"],
        "the count is not repeated"
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
fn only_a_marker_in_the_first_line_blocks() {
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
