use proptest::prelude::*;

use super::*;
use crate::feedback::{FeedbackAuthor, PullRequestChecks, PullRequestReadiness};
use std::time::Duration;

const HEAD: &str = "1a2b3c4d5e6f7a8b9c0d1a2b3c4d5e6f7a8b9c0d";

fn person(login: &str) -> FeedbackAuthor {
    FeedbackAuthor::Person {
        login: login.into(),
    }
}

fn app(slug: &str) -> FeedbackAuthor {
    FeedbackAuthor::App { slug: slug.into() }
}

fn review(author: FeedbackAuthor, opinion: ReviewOpinion) -> HeadReview {
    HeadReview {
        author,
        opinion,
        commit: HEAD.into(),
        may_write: true,
    }
}

fn check(name: &str, outcome: CheckOutcome) -> MergeCheck {
    MergeCheck {
        name: name.into(),
        outcome,
    }
}

fn file(path: &str) -> ChangedFile {
    ChangedFile {
        path: path.into(),
        lines: 5,
        ..ChangedFile::default()
    }
}

fn policy() -> MergePolicy {
    MergePolicy {
        mode: MergeMode::Auto,
        max_files: Some(3),
        max_lines: Some(100),
        forbid_paths: vec!["src/auth/".into()],
        ..MergePolicy::default()
    }
}

/// Facts of a pull request that is merged.
fn facts() -> MergeFacts {
    MergeFacts {
        head: HEAD.into(),
        base: "main".into(),
        is_from_own_repo: true,
        is_draft: false,
        is_mergeable: Some(true),
        checks: vec![
            check("test", CheckOutcome::Passed),
            check("lint", CheckOutcome::Skipped),
        ],
        required_checks: Vec::new(),
        author: Some(app("agent-implement")),
        own_login: "agent-implement[bot]".into(),
        reviews: vec![review(person("mia"), ReviewOpinion::Approves)],
        unresolved_threads: 0,
        is_incomplete: false,
        changed_files: 1,
        changed_lines: 5,
        files: vec![file("src/cart.rs")],
    }
}

fn decided(change: impl FnOnce(&mut MergePolicy, &mut LocalState, &mut MergeFacts)) -> String {
    let (mut policy, mut local, mut facts) = (policy(), LocalState::default(), facts());
    change(&mut policy, &mut local, &mut facts);
    match decide(&policy, "main", &local, &facts) {
        MergeDecision::Merge(grant) => format!("merge {}", grant.approvers.join(",")),
        MergeDecision::Refused(refusal) => {
            assert!(refusal.message.starts_with(refusal.rule.name()));
            assert_eq!(refusal.head, facts.head);
            refusal.message
        }
    }
}

#[test]
fn a_head_that_meets_all_rules_is_merged() {
    assert_eq!(decided(|_, _, _| ()), "merge mia");
    let MergeDecision::Merge(grant) = decide(&policy(), "main", &LocalState::default(), &facts())
    else {
        panic!("refused");
    };
    assert_eq!((grant.head.as_str(), grant.checks_passed), (HEAD, 1));
    assert_eq!(
        decided(|_, _, facts| facts.is_mergeable = None),
        "merge mia"
    );
    assert_eq!(decided(|_, _, facts| facts.checks.clear()), "merge mia");
}

#[test]
fn each_rule_refuses_with_its_name_and_value() {
    type Change = fn(&mut MergePolicy, &mut LocalState, &mut MergeFacts);
    let cases: Vec<(Change, &str)> = vec![
        (
            |policy, _, _| policy.mode = MergeMode::Never,
            "merge.mode: people merge in this project",
        ),
        (
            |_, local, _| local.is_paused = true,
            "paused: the project is paused",
        ),
        (
            |_, local, _| {
                local.taken_over = Some("Taken over by Kim since 15 Jan 08:00 UTC".into())
            },
            "takenOver: Taken over by Kim since 15 Jan 08:00 UTC",
        ),
        (
            |_, local, _| local.is_busy = true,
            "activeRun: a run works on the branch",
        ),
        (
            |_, local, _| local.open_feedback = 2,
            "openFeedback: 2 pieces of feedback wait for a run",
        ),
        (
            |_, _, facts| facts.base = "dev".into(),
            "base: it targets dev, the project merges into main",
        ),
        (
            |_, _, facts| facts.is_from_own_repo = false,
            "fork: its branch is in another repository",
        ),
        (|_, _, facts| facts.is_draft = true, "draft: it is a draft"),
        (
            |_, _, facts| facts.is_mergeable = Some(false),
            "conflict: it is in conflict with its base branch",
        ),
        (
            |_, _, facts| {
                facts
                    .checks
                    .push(check("test (linux)\n", CheckOutcome::Failed))
            },
            "checks: not successful: test (linux)",
        ),
        (
            |_, _, facts| {
                facts.checks.push(check("e2e", CheckOutcome::Pending));
                facts.checks.push(check("load", CheckOutcome::Pending));
            },
            "checks: not ended: e2e and 1 more",
        ),
        (
            |_, _, facts| {
                facts.checks.clear();
                facts.required_checks = vec!["test".into()];
            },
            "checks: the head has none, and main requires test",
        ),
        (
            |_, _, facts| {
                facts
                    .reviews
                    .push(review(person("kim"), ReviewOpinion::RequestsChanges))
            },
            "changesRequested: kim requests changes",
        ),
        (
            |_, _, facts| facts.reviews.clear(),
            "merge.requireApprovals: 0 of 1 approvals of 1a2b3c4 by people with write permission",
        ),
        (
            |policy, _, _| policy.require_approvals = 2,
            "merge.requireApprovals: 1 of 2 approvals of 1a2b3c4 by people with write permission",
        ),
        (
            |_, _, facts| facts.unresolved_threads = 1,
            "conversations: 1 conversation is unresolved",
        ),
        (
            |_, _, facts| facts.is_incomplete = true,
            "conversations: there are more reviews or conversations than can be checked (100)",
        ),
        (
            |_, _, facts| facts.changed_files = 14,
            "merge.maxFiles: 14 files are changed, 3 are allowed",
        ),
        (
            |policy, _, facts| {
                policy.max_files = None;
                facts.changed_files = 412;
            },
            "files: 412 files are changed, 300 can be checked",
        ),
        (
            |_, _, facts| facts.changed_lines = 101,
            "merge.maxLines: 101 lines are changed, 100 are allowed",
        ),
        (
            |_, _, facts| facts.files[0].lines = 101,
            "merge.maxLines: 101 lines are changed, 100 are allowed",
        ),
        (
            |_, _, facts| facts.files[0].path = "web/package-lock.json".into(),
            "lockFiles: web/package-lock.json is changed",
        ),
        (
            |_, _, facts| facts.files[0].path = ".GitHub/Workflows/ci.yml".into(),
            "controlFiles: .GitHub/Workflows/ci.yml is changed, which controls CI, agents or reviews",
        ),
        (
            |_, _, facts| facts.files[0].previous_path = Some("CLAUDE.md".into()),
            "controlFiles: CLAUDE.md is changed, which controls CI, agents or reviews",
        ),
        (
            |_, _, facts| facts.files[0].is_submodule = true,
            "submodules: src/cart.rs is changed",
        ),
        (
            |_, _, facts| facts.files[0].path = "SRC/auth/login.rs".into(),
            "merge.forbidPaths: SRC/auth/login.rs is changed, which matches src/auth/",
        ),
        (
            |_, _, facts| facts.files[0].previous_path = Some("src/auth/login.rs".into()),
            "merge.forbidPaths: src/auth/login.rs is changed, which matches src/auth/",
        ),
    ];
    for (change, expected) in cases {
        assert_eq!(decided(change), expected);
    }
}

#[test]
fn approvals_that_do_not_count_are_explained() {
    let refused = |review: HeadReview| decided(|_, _, facts| facts.reviews = vec![review]);
    let begin =
        "merge.requireApprovals: 0 of 1 approvals of 1a2b3c4 by people with write permission";
    let approves = |author| review(author, ReviewOpinion::Approves);
    for (review, why) in [
        (
            approves(person("Agent-Implement")),
            "Agent-Implement is the account of this service",
        ),
        (
            approves(app("agent-implement")),
            "agent-implement is the account of this service",
        ),
        (approves(app("coderabbitai")), "coderabbitai is an App"),
        (
            HeadReview {
                may_write: false,
                ..approves(person("guest"))
            },
            "guest may not write",
        ),
        (
            HeadReview {
                commit: "0".repeat(40),
                ..approves(person("mia"))
            },
            "mia approved an older commit",
        ),
        (
            HeadReview {
                commit: String::new(),
                ..approves(person("mia"))
            },
            "mia approved an older commit",
        ),
    ] {
        assert_eq!(refused(review), format!("{begin} ({why})"));
    }
    let by_author = decided(|_, _, facts| facts.author = Some(person("mia")));
    assert_eq!(by_author, format!("{begin} (mia is the author)"));
    let own_token = decided(|_, _, facts| facts.own_login = "mia".into());
    assert_eq!(
        own_token,
        format!("{begin} (mia is the account of this service)")
    );
}

#[test]
fn only_permitted_people_block_with_a_request_for_changes() {
    for (author, may_write) in [(app("coderabbitai"), true), (person("guest"), false)] {
        let merged = decided(|_, _, facts| {
            facts.reviews.push(HeadReview {
                may_write,
                ..review(author, ReviewOpinion::RequestsChanges)
            });
        });
        assert_eq!(merged, "merge mia");
    }
}

#[test]
fn a_new_head_waits_for_its_review_and_its_first_check() {
    let approved = PullRequestReadiness {
        approvals: 1,
        ..PullRequestReadiness::default()
    };
    let minute = Duration::from_secs(60);
    let expected = |readiness: &PullRequestReadiness, age| {
        expected_event(readiness, age).map(|(rule, _)| rule)
    };
    let none = PullRequestReadiness::default();
    assert_eq!(expected(&none, minute), Some(MergeRule::RequireApprovals));
    assert_eq!(
        expected(&approved, Duration::from_secs(59)),
        Some(MergeRule::Checks)
    );
    assert_eq!(expected(&approved, minute), None);
    let checked = PullRequestReadiness {
        checks: Some(PullRequestChecks {
            state: crate::feedback::ChecksState::Success,
            failed: 0,
            total: 1,
        }),
        ..approved
    };
    assert_eq!(expected(&checked, Duration::ZERO), None);
}

#[test]
fn each_rule_of_a_head_enters_the_audit_once() {
    let refusal = |head: &str, rule| MergeRefusal::new(head, rule, "no");
    let mut record = MergeRecord::default();
    assert!(record.refuse(refusal("a", MergeRule::Checks)));
    assert!(record.refuse(refusal("a", MergeRule::MaxFiles)));
    assert!(!record.refuse(refusal("a", MergeRule::Checks)));
    assert!(record.refuse(refusal("b", MergeRule::Checks)));
    let progress = Some(MergeProgress::Refused(refusal("b", MergeRule::Checks)));
    assert_eq!(record.progress, progress);
}

/// Conditions of a merge, each of which can be violated.
const CONDITIONS: [fn(&mut MergePolicy, &mut LocalState, &mut MergeFacts); 22] = [
    |policy, _, _| policy.mode = MergeMode::Never,
    |policy, _, facts| policy.require_approvals = u32::try_from(facts.reviews.len() + 1).unwrap(),
    |_, local, _| local.is_paused = true,
    |_, local, _| local.taken_over = Some("Taken over by Kim".into()),
    |_, local, _| local.is_busy = true,
    |_, local, _| local.open_feedback += 1,
    |_, _, facts| facts.base = "dev".into(),
    |_, _, facts| facts.is_from_own_repo = false,
    |_, _, facts| facts.is_draft = true,
    |_, _, facts| facts.is_mergeable = Some(false),
    |_, _, facts| facts.checks.push(check("x", CheckOutcome::Failed)),
    |_, _, facts| facts.checks.push(check("x", CheckOutcome::Pending)),
    |_, _, facts| facts.reviews.clear(),
    |_, _, facts| {
        facts.reviews = vec![review(app("robot"), ReviewOpinion::Approves)];
    },
    |_, _, facts| {
        for review in &mut facts.reviews {
            review.commit = "0".repeat(40);
        }
    },
    |_, _, facts| {
        facts
            .reviews
            .push(review(person("kim"), ReviewOpinion::RequestsChanges));
    },
    |_, _, facts| facts.unresolved_threads += 1,
    |policy, _, facts| policy.max_files = Some(facts.changed_files - 1),
    |policy, _, facts| policy.max_lines = Some(facts.changed_lines.max(1) - 1),
    |_, _, facts| {
        facts.files.push(file("Cargo.lock"));
        facts.changed_files += 1;
    },
    |_, _, facts| {
        facts.files.push(file(".claude/settings.json"));
        facts.changed_files += 1;
    },
    |_, _, facts| {
        facts.files.push(file("src/auth/a/b.rs"));
        facts.changed_files += 1;
    },
];

prop_compose! {
    /// Facts that meet all rules of a policy without bounds.
    fn granted()(
        files in 1u32..40,
        lines in 1u32..50,
        approvers in 1usize..4,
        passed in 0usize..4,
        skipped in 0usize..3,
        queue in any::<bool>(),
    ) -> (MergePolicy, MergeFacts) {
        let checks = |count, outcome| (0..count).map(move |at| check(&format!("c{at}"), outcome));
        let policy = MergePolicy {
            mode: if queue { MergeMode::Queue } else { MergeMode::Auto },
            require_approvals: u32::try_from(approvers).unwrap(),
            forbid_paths: vec!["src/auth/**".into()],
            ..MergePolicy::default()
        };
        let facts = MergeFacts {
            checks: checks(passed, CheckOutcome::Passed)
                .chain(checks(skipped, CheckOutcome::Skipped))
                .collect(),
            reviews: (0..approvers)
                .map(|at| review(person(&format!("p{at}")), ReviewOpinion::Approves))
                .collect(),
            changed_files: files,
            changed_lines: files * lines,
            files: (0..files)
                .map(|at| ChangedFile { lines, ..file(&format!("src/f{at}.rs")) })
                .collect(),
            ..facts()
        };
        (policy, facts)
    }
}

proptest! {
    #[test]
    fn nothing_is_merged_if_a_single_condition_is_false(
        (policy, facts) in granted(),
        violated in proptest::sample::subsequence((0..CONDITIONS.len()).collect::<Vec<_>>(), 0..4),
    ) {
        let (mut policy, mut local, mut facts) = (policy, LocalState::default(), facts);
        for condition in &violated {
            CONDITIONS[*condition](&mut policy, &mut local, &mut facts);
        }
        match decide(&policy, "main", &local, &facts) {
            MergeDecision::Merge(grant) => {
                prop_assert!(violated.is_empty(), "{violated:?}");
                prop_assert_eq!(grant.head, facts.head);
                prop_assert!(grant.approvers.len() >= policy.require_approvals as usize);
            }
            MergeDecision::Refused(refusal) => {
                prop_assert!(!violated.is_empty(), "{}", refusal.message);
                let begin = format!("{}: ", refusal.rule.name());
                prop_assert!(refusal.message.starts_with(&begin));
            }
        }
    }
}
