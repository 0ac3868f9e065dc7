use std::time::Duration;

use super::*;
use crate::job::{AfterCancel, Cancellation, Job, JobKind, JobState, RunnerKind};
use crate::limits;
use crate::take_over::TakeOver;

const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);

fn person() -> FeedbackAuthor {
    FeedbackAuthor::from_account("ann", false)
}

fn comment(source: FeedbackSource, author: FeedbackAuthor, body: &str) -> ReviewComment {
    ReviewComment {
        source,
        id: 7,
        author,
        review_state: (source == FeedbackSource::Review).then_some(ReviewState::Commented),
        path: (source == FeedbackSource::ReviewComment).then(|| "src/a.rs".to_owned()),
        line: (source == FeedbackSource::ReviewComment).then_some(3),
        body: body.to_owned(),
        created_at: NOW,
    }
}

fn classify_text(source: FeedbackSource, body: &str) -> FeedbackClass {
    classify(&comment(source, person(), body))
}

#[test]
fn line_comments_request_changes_unless_optional() {
    let requests = [
        "Maybe you should use more emoji on this line.",
        "This panics when the list is empty.",
        "Nitrogen is misspelt.",
        "Optional arguments are mishandled.",
        "Minor versions are compared as text.",
        "not good",
        "Why is this here?",
        "Done? It still fails.",
        "fix this",
        "```suggestion\nlet a = 1;\n```",
        "LGTM, but rename `x`",
        "> nit: quoted\n\nThis one matters.",
        "issue (blocking): it leaks",
    ];
    for body in requests {
        assert_eq!(
            classify_text(FeedbackSource::ReviewComment, body),
            FeedbackClass::ChangeRequest,
            "{body}"
        );
    }
    let nits = [
        "nit: rename this",
        "Nit: rename this",
        "**nit:** rename this",
        "[nit] rename this",
        "nit rename this",
        "nitpick (style): x",
        "optional: use a map",
        "Optional: use a map",
        "(optional) use a map",
        "optional - use a map",
        "minor: a typo",
        "suggestion (non-blocking): use a map",
        "non-blocking: use a map",
        "praise: very clear",
        "🟡 Nit: naming",
        "🟣 Pre-existing",
        "thought: one day",
    ];
    for body in nits {
        let class = classify_text(FeedbackSource::ReviewComment, body);
        assert_eq!(class, FeedbackClass::Ignored(IgnoreReason::Nit), "{body}");
    }
    for body in [
        "LGTM",
        "Nice!",
        "👍",
        "Great work, thanks!",
        "Good catch",
        "Looks good to me :+1:",
        "ok",
        "🎉🎉",
        "I love this approach",
    ] {
        let class = classify_text(FeedbackSource::ReviewComment, body);
        assert_eq!(
            class,
            FeedbackClass::Ignored(IgnoreReason::Praise),
            "{body}"
        );
    }
    let empty = classify_text(FeedbackSource::ReviewComment, " \n");
    assert_eq!(empty, FeedbackClass::Ignored(IgnoreReason::Empty));
}

#[test]
fn comments_request_changes_by_structure_and_not_by_words() {
    let requests = [
        "- [ ] handle the empty input",
        "Two things:\n\n* [ ] a test\n* [x] done already",
        "## Blocking\n\nThe migration loses rows.",
        "### Must-fix (2)\n1. a\n2. b",
        "**Required changes:**\n\n- a",
        "Blocking: the migration loses rows.",
        "Some words.\n- 🔴 the migration loses rows",
        "issue (blocking): it leaks",
        "[blocking] it leaks",
        "Please address these:\n- the leak\n- the test",
        "This needs to change before we merge:\n\n1. the leak",
    ];
    for body in requests {
        assert_eq!(
            classify_text(FeedbackSource::IssueComment, body),
            FeedbackClass::ChangeRequest,
            "{body}"
        );
        assert_eq!(
            classify_text(FeedbackSource::Review, body),
            FeedbackClass::ChangeRequest,
            "{body}"
        );
    }
    let ignored = [
        "This is not blocking, and it must not be; fix it some day.",
        "Please review, @bob.",
        "I must say: changes required? No.",
        "## Blocking\n\nNone.\n\n## Nits\n\n- a name",
        "Blocking: none",
        "not blocking: a name",
        "- [x] handled",
        "- [ ] nit: a name",
        "> - [ ] quoted",
        "```\n- [ ] code\n```",
        "<!--\n- [ ] hidden\n-->",
        "You could optionally fix:\n- a name",
        "Things I like:\n- the tests",
        "suggestion (non-blocking): x",
        "LGTM",
        "",
    ];
    for body in ignored {
        let class = classify_text(FeedbackSource::IssueComment, body);
        assert!(
            matches!(class, FeedbackClass::Ignored(_)),
            "{body}: {class:?}"
        );
        let class = classify_text(FeedbackSource::Review, body);
        assert!(
            matches!(class, FeedbackClass::Ignored(_)),
            "{body}: {class:?}"
        );
    }
}

#[test]
fn review_decisions_count_regardless_of_text() {
    let review = |state, body: &str| {
        classify(&ReviewComment {
            review_state: Some(state),
            ..comment(FeedbackSource::Review, person(), body)
        })
    };
    for body in ["", "LGTM", "nit: x", "Handle the empty input."] {
        assert_eq!(
            review(ReviewState::ChangesRequested, body),
            FeedbackClass::ChangeRequest
        );
    }
    for state in [ReviewState::Approved, ReviewState::Dismissed] {
        let class = review(state, "## Blocking\n\nEverything.");
        assert_eq!(
            class,
            FeedbackClass::Ignored(IgnoreReason::NoChangesRequested)
        );
    }
    assert_eq!(
        ReviewState::parse("CHANGES_REQUESTED"),
        Some(ReviewState::ChangesRequested)
    );
    assert_eq!(ReviewState::parse("pending"), None);
}

#[test]
fn apps_request_changes_only_by_severity_marks() {
    let app = || FeedbackAuthor::from_account("coderabbitai[bot]", true);
    for source in [
        FeedbackSource::ReviewComment,
        FeedbackSource::IssueComment,
        FeedbackSource::Review,
    ] {
        let class = |body: &str| classify(&comment(source, app(), body));
        assert_eq!(
            class("🔴 Important: it leaks"),
            FeedbackClass::ChangeRequest
        );
        assert_eq!(
            class("**Blocking:** it leaks"),
            FeedbackClass::ChangeRequest
        );
        assert_eq!(class("Severity: Major"), FeedbackClass::ChangeRequest);
        for body in [
            "it leaks",
            "- [ ] run the tests",
            "not blocking: x",
            "/agent-implement",
        ] {
            assert_eq!(
                class(body),
                FeedbackClass::Ignored(IgnoreReason::NotActionable),
                "{body}"
            );
        }
    }
    let own = classify_text(
        FeedbackSource::IssueComment,
        "- [ ] a\n\n<!-- agent-implement:17-3 -->",
    );
    assert_eq!(own, FeedbackClass::Ignored(IgnoreReason::OwnComment));
}

#[test]
fn parses_a_command_only_as_the_first_word() {
    for (body, instruction) in [
        ("/agent-implement", None),
        ("/agent-implement  \n", None),
        ("/agent-implement do it\nwell ", Some("do it\nwell")),
        ("/agent-implement\ndo it", Some("do it")),
    ] {
        let expected = FeedbackClass::Command(instruction.map(str::to_owned));
        assert_eq!(
            classify_text(FeedbackSource::IssueComment, body),
            expected,
            "{body}"
        );
    }
    for body in [
        "/agent-implementation",
        " /agent-implement",
        "x /agent-implement",
        "/Agent-implement",
    ] {
        let class = classify_text(FeedbackSource::IssueComment, body);
        assert_eq!(
            class,
            FeedbackClass::Ignored(IgnoreReason::NotActionable),
            "{body}"
        );
    }
}

#[test]
fn same_text_at_the_same_place_has_the_same_fingerprint() {
    let key = |source, line, body: &str, id| {
        let comment = ReviewComment {
            line,
            id,
            ..comment(source, person(), body)
        };
        comment.fingerprint_input()
    };
    let known = key(FeedbackSource::ReviewComment, Some(3), "it  leaks\n", 1);
    assert_eq!(
        known,
        key(FeedbackSource::ReviewComment, Some(3), " it leaks", 2)
    );
    assert_ne!(
        known,
        key(FeedbackSource::ReviewComment, Some(4), "it leaks", 1)
    );
    assert_ne!(known, key(FeedbackSource::Review, Some(3), "it leaks", 1));
    assert_ne!(
        key(FeedbackSource::Review, None, "", 1),
        key(FeedbackSource::Review, None, "", 2)
    );
}

#[test]
fn parses_the_meta_block() {
    let body = r#"Text <!-- agent-implement-meta {"issueId":"i-1","identifier":"ENG-1","dispatchId":"01J","jobId":"01J"} --> more"#;
    let meta = PullRequestMeta {
        issue_id: "i-1".into(),
        job_id: "01J".into(),
    };
    assert_eq!(PullRequestMeta::from_body(body), Some(meta));
    for none in [
        "",
        "<!-- agent-implement-meta -->",
        "<!-- agent-implement-meta {} -->",
        "<!-- agent-implement-meta {\"issueId\":\"a\"",
        "agent-implement-meta {\"issueId\":\"a\",\"jobId\":\"b\"}",
    ] {
        assert_eq!(PullRequestMeta::from_body(none), None, "{none}");
    }
}

fn job(kind: JobKind, ended: Option<(JobState, Timestamp)>, reserved_at: Timestamp) -> Job {
    let finished_at = ended.as_ref().map(|(_, at)| *at);
    Job {
        id: "01J".into(),
        group: "01J".into(),
        kind,
        issue: crate::issue::IssueRef {
            system: crate::issue::System::Linear,
            id: "i".into(),
            key: "ENG-1".into(),
            title: String::new(),
            url: String::new(),
            marker_field: None,
        },
        team: "ENG".into(),
        repo: Repo::new("acme", "shop"),
        runner: RunnerKind::Ci,
        shadow: false,
        session_image: None,
        dispatch_number: 1,
        attempt: Some(1),
        branch: "b".into(),
        has_callbacks: true,
        timeout_minutes: 90,
        state: ended.map_or(JobState::Running, |(state, _)| state),
        run: None,
        pull: None,
        conclusion: None,
        cancellation: None,
        start_refusal_status: None,
        reserved_at,
        dispatched_at: None,
        started_at: None,
        run_ended_at: None,
        finished_at,
        usage: None,
        result_accepted: false,
        unconfirmed_result: None,
        refused_hosts: Vec::new(),
        agent: None,
        model: None,
        labels: Vec::new(),
        triggered_at: None,
        nonce_hash: None,
        failure_reported: false,
        machine_destroyed_at: None,
        trigger_stage: None,
        agents: Default::default(),
        resumes_at: None,
        merge: None,
    }
}

fn secs(count: u64) -> Duration {
    Duration::from_secs(count)
}

fn seen(ago: u64) -> ReviewFinding {
    ReviewFinding::new(
        comment(FeedbackSource::IssueComment, person(), "- [ ] x"),
        NOW - secs(ago),
    )
}

fn failed() -> JobState {
    JobState::Failed {
        code: None,
        reason: String::new(),
    }
}

fn next_run(jobs: &[Job], findings: &[ReviewFinding]) -> NextPullRequestRun {
    next_pull_request_run(
        &FollowUpPolicy::default(),
        false,
        jobs,
        findings,
        &[],
        None,
        NOW,
    )
}

#[test]
fn a_follow_up_starts_after_the_quiet_period() {
    assert_eq!(next_run(&[], &[]), NextPullRequestRun::NotDue);
    assert_eq!(next_run(&[], &[seen(29)]), NextPullRequestRun::NotDue);
    assert_eq!(next_run(&[], &[seen(30)]), NextPullRequestRun::FollowUp);
    assert_eq!(
        next_run(&[], &[seen(60), seen(5)]),
        NextPullRequestRun::NotDue
    );
    assert_eq!(
        next_run(&[], &[seen(300), seen(5)]),
        NextPullRequestRun::FollowUp,
        "the maximum wait is over"
    );
    let busy = next_pull_request_run(
        &FollowUpPolicy::default(),
        true,
        &[],
        &[seen(60)],
        &[],
        None,
        NOW,
    );
    assert_eq!(busy, NextPullRequestRun::NotDue);
    let done = ReviewFinding {
        state: ReviewFindingState::Resolved { job: "01J".into() },
        ..seen(60)
    };
    assert_eq!(next_run(&[], &[done]), NextPullRequestRun::NotDue);
}

#[test]
fn retries_a_failed_follow_up_after_the_backoff_and_within_the_limit() {
    let ended = |state: JobState, ago: u64| {
        job(
            JobKind::FollowUp,
            Some((state, NOW - secs(ago))),
            NOW - secs(ago),
        )
    };
    assert_eq!(
        next_run(&[ended(failed(), 599)], &[seen(60)]),
        NextPullRequestRun::NotDue
    );
    assert_eq!(
        next_run(&[ended(failed(), 600)], &[seen(60)]),
        NextPullRequestRun::FollowUp
    );
    assert_eq!(
        next_run(&[ended(JobState::Completed, 1)], &[seen(60)]),
        NextPullRequestRun::FollowUp
    );
    let day = 24 * 60 * 60;
    let four: Vec<Job> = [day - 1, 7_200, 3_600, 1_800]
        .map(|ago| ended(failed(), ago))
        .into();
    assert_eq!(
        next_run(&four, &[seen(60)]),
        NextPullRequestRun::LimitReached(NOW + secs(1))
    );
    assert_eq!(
        next_run(&four[1..], &[seen(60)]),
        NextPullRequestRun::FollowUp
    );
    let gap_fills: Vec<Job> = four
        .iter()
        .map(|job| Job {
            kind: JobKind::GapFill,
            ..job.clone()
        })
        .collect();
    assert_eq!(
        next_run(&gap_fills, &[seen(60)]),
        NextPullRequestRun::FollowUp,
        "commands do not count against the limit"
    );
    let command = CommentCommand {
        comment_id: Some(1),
        author: None,
        instruction: None,
        requested_at: NOW,
        reported_by_workflow: false,
        state: CommentCommandState::Waiting,
    };
    let commanded = next_pull_request_run(
        &FollowUpPolicy::default(),
        false,
        &four,
        &[],
        &[command],
        None,
        NOW,
    );
    assert_eq!(commanded, NextPullRequestRun::Command);
}

#[test]
fn only_people_start_runs_while_a_person_has_the_issue() {
    let kim = TakeOver {
        issue: job(JobKind::FollowUp, None, NOW).issue,
        by: "Kim".into(),
        at: NOW,
    };
    let command = CommentCommand {
        comment_id: Some(1),
        author: None,
        instruction: None,
        requested_at: NOW,
        reported_by_workflow: false,
        state: CommentCommandState::Waiting,
    };
    let next = |finding: ReviewFinding, commands: &[CommentCommand], by| {
        let policy = FollowUpPolicy::default();
        next_pull_request_run(&policy, false, &[], &[finding], commands, by, NOW)
    };
    use NextPullRequestRun::{Command, FollowUp, NotDue};
    assert_eq!(next(seen(60), &[], None), FollowUp);
    assert_eq!(next(seen(60), &[], Some(&kim)), NotDue);
    let commands = std::slice::from_ref(&command);
    assert_eq!(next(seen(60), commands, Some(&kim)), Command);
    assert_eq!(next(seen(60).retried(), &[], Some(&kim)), FollowUp);
}

#[test]
fn findings_are_resolved_by_success_and_abandoned_after_the_last_attempt() {
    let in_progress = |attempts| ReviewFinding {
        state: ReviewFindingState::InProgress { job: "01J".into() },
        attempts,
        ..seen(60)
    };
    let after = |attempts, state| {
        let job = job(JobKind::FollowUp, Some((state, NOW)), NOW);
        in_progress(attempts).with_follow_up_result(&job).state
    };
    let resolved = ReviewFindingState::Resolved { job: "01J".into() };
    assert_eq!(after(4, JobState::Completed), resolved);
    assert_eq!(after(1, failed()), ReviewFindingState::Open);
    let draft = JobState::ReviewFailed { unresolved: vec![] };
    assert_eq!(after(1, draft), ReviewFindingState::Open);
    assert_eq!(
        after(limits::MAX_FINDING_ATTEMPTS, failed()),
        ReviewFindingState::Abandoned
    );
    // A reached usage limit is not an attempt.
    let limited = Job {
        resumes_at: Some(NOW),
        ..job(JobKind::FollowUp, Some((failed(), NOW)), NOW)
    };
    let kept = in_progress(limits::MAX_FINDING_ATTEMPTS).with_follow_up_result(&limited);
    let attempts = limits::MAX_FINDING_ATTEMPTS - 1;
    assert_eq!(
        (kept.state, kept.attempts),
        (ReviewFindingState::Open, attempts)
    );
}

#[test]
fn a_cancelled_follow_up_gives_up_its_findings_or_starts_at_once_again() {
    let last = |then| Job {
        cancellation: Some(Cancellation {
            by: "owner".into(),
            then,
        }),
        ..job(JobKind::FollowUp, Some((failed(), NOW)), NOW)
    };
    let next = |finding: &ReviewFinding, then| {
        next_pull_request_run(
            &FollowUpPolicy::default(),
            false,
            &[last(then)],
            std::slice::from_ref(finding),
            &[],
            None,
            NOW,
        )
    };
    let taken = seen(0).taken_by(&"01J".into());
    assert_eq!(taken.last_job, Some("01J".into()));
    let after = |then| taken.clone().with_follow_up_result(&last(then));
    let given_up = after(AfterCancel::Stop);
    assert_eq!(given_up.state, ReviewFindingState::Abandoned);
    assert_eq!(
        next(&given_up, AfterCancel::Stop),
        NextPullRequestRun::NotDue
    );
    let retried = after(AfterCancel::Retry);
    assert_eq!(
        (&retried.state, retried.attempts),
        (&ReviewFindingState::Open, 0)
    );
    assert_eq!(
        next(&retried, AfterCancel::Retry),
        NextPullRequestRun::FollowUp,
        "neither the quiet time nor the pause after a failure applies"
    );
    assert!(!retried.taken_by(&"01K".into()).is_retried);
    let released = after(AfterCancel::Release);
    assert_eq!(
        next(&released, AfterCancel::Release),
        NextPullRequestRun::NotDue
    );
}

#[test]
fn findings_that_do_not_fit_wait_for_the_next_follow_up() {
    let long = |letter: &str| {
        ReviewFinding::new(
            comment(
                FeedbackSource::ReviewComment,
                person(),
                &letter.repeat(9_000),
            ),
            NOW,
        )
    };
    let many: Vec<ReviewFinding> = ["a", "b", "ä", "d", "e", "f"].map(long).into();
    let (text, count) = format_findings(&many.iter().collect::<Vec<_>>());
    assert!(count < many.len() && count >= 3, "{count}");
    assert!(text.len() <= limits::MAX_FINDINGS_BYTES);
    assert!(
        text.starts_with("1. By ann, at src/a.rs:3:\naaa"),
        "{}",
        &text[..40]
    );
    assert!(text.contains("\n\n2. By ann") && text.contains("[… truncated]"));
    let (alone, count) = format_findings(&[&seen(1)]);
    assert_eq!((alone.as_str(), count), ("1. By ann:\n- [ ] x", 1));
}

#[test]
fn recognizes_the_second_report_of_a_command() {
    let command = CommentCommand {
        comment_id: Some(1),
        author: Some("ann".into()),
        instruction: Some("rename it  now".into()),
        requested_at: NOW,
        reported_by_workflow: false,
        state: CommentCommandState::Started { job: "01J".into() },
    };
    assert!(command.is_same_request(Some("rename it\nnow"), NOW + secs(60)));
    assert!(!command.is_same_request(Some("rename it"), NOW));
    assert!(!command.is_same_request(Some("rename it now"), NOW + secs(3_600)));
}
