use std::time::Duration;

use super::*;
use crate::job::{Job, JobKind, JobState, RunnerKind};
use crate::limits;

const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);

fn person() -> FeedbackAuthor {
    FeedbackAuthor::from_account("ann", false)
}

fn remark(source: FeedbackSource, author: FeedbackAuthor, body: &str) -> ReviewComment {
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

fn by(source: FeedbackSource, body: &str) -> FeedbackClass {
    classify(&remark(source, person(), body))
}

#[test]
fn a_remark_at_a_line_asks_unless_it_may_be_left_alone() {
    let asks = [
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
    for body in asks {
        assert_eq!(
            by(FeedbackSource::ReviewComment, body),
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
        let judged = by(FeedbackSource::ReviewComment, body);
        assert_eq!(judged, FeedbackClass::Ignored(IgnoreReason::Nit), "{body}");
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
        let judged = by(FeedbackSource::ReviewComment, body);
        assert_eq!(
            judged,
            FeedbackClass::Ignored(IgnoreReason::Praise),
            "{body}"
        );
    }
    let empty = by(FeedbackSource::ReviewComment, " \n");
    assert_eq!(empty, FeedbackClass::Ignored(IgnoreReason::Empty));
}

#[test]
fn a_comment_asks_by_how_it_is_built_and_not_by_its_words() {
    let asks = [
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
    for body in asks {
        assert_eq!(
            by(FeedbackSource::IssueComment, body),
            FeedbackClass::ChangeRequest,
            "{body}"
        );
        assert_eq!(
            by(FeedbackSource::Review, body),
            FeedbackClass::ChangeRequest,
            "{body}"
        );
    }
    let silent = [
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
    for body in silent {
        let judged = by(FeedbackSource::IssueComment, body);
        assert!(
            matches!(judged, FeedbackClass::Ignored(_)),
            "{body}: {judged:?}"
        );
        let judged = by(FeedbackSource::Review, body);
        assert!(
            matches!(judged, FeedbackClass::Ignored(_)),
            "{body}: {judged:?}"
        );
    }
}

#[test]
fn a_verdict_is_a_verdict_whatever_it_says() {
    let review = |verdict, body: &str| {
        classify(&ReviewComment {
            review_state: Some(verdict),
            ..remark(FeedbackSource::Review, person(), body)
        })
    };
    for body in ["", "LGTM", "nit: x", "Handle the empty input."] {
        assert_eq!(
            review(ReviewState::ChangesRequested, body),
            FeedbackClass::ChangeRequest
        );
    }
    for verdict in [ReviewState::Approved, ReviewState::Dismissed] {
        let judged = review(verdict, "## Blocking\n\nEverything.");
        assert_eq!(
            judged,
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
fn a_program_asks_by_marks_alone_and_commands_nothing() {
    let app = || FeedbackAuthor::from_account("coderabbitai[bot]", true);
    for source in [
        FeedbackSource::ReviewComment,
        FeedbackSource::IssueComment,
        FeedbackSource::Review,
    ] {
        let by = |body: &str| classify(&remark(source, app(), body));
        assert_eq!(by("🔴 Important: it leaks"), FeedbackClass::ChangeRequest);
        assert_eq!(by("**Blocking:** it leaks"), FeedbackClass::ChangeRequest);
        assert_eq!(by("Severity: Major"), FeedbackClass::ChangeRequest);
        for body in [
            "it leaks",
            "- [ ] run the tests",
            "not blocking: x",
            "/agent-implement",
        ] {
            assert_eq!(
                by(body),
                FeedbackClass::Ignored(IgnoreReason::NotActionable),
                "{body}"
            );
        }
    }
    let own = by(
        FeedbackSource::IssueComment,
        "- [ ] a\n\n<!-- agent-implement:17-3 -->",
    );
    assert_eq!(own, FeedbackClass::Ignored(IgnoreReason::OwnComment));
}

#[test]
fn a_command_stands_at_the_beginning_and_is_a_word() {
    for (body, instruction) in [
        ("/agent-implement", None),
        ("/agent-implement  \n", None),
        ("/agent-implement do it\nwell ", Some("do it\nwell")),
        ("/agent-implement\ndo it", Some("do it")),
    ] {
        let expected = FeedbackClass::Command(instruction.map(str::to_owned));
        assert_eq!(by(FeedbackSource::IssueComment, body), expected, "{body}");
    }
    for body in [
        "/agent-implementation",
        " /agent-implement",
        "x /agent-implement",
        "/Agent-implement",
    ] {
        let judged = by(FeedbackSource::IssueComment, body);
        assert_eq!(
            judged,
            FeedbackClass::Ignored(IgnoreReason::NotActionable),
            "{body}"
        );
    }
}

#[test]
fn the_same_words_at_the_same_place_are_the_same_feedback() {
    let key = |source, line, body: &str, id| {
        let remark = ReviewComment {
            line,
            id,
            ..remark(source, person(), body)
        };
        remark.fingerprint_input()
    };
    let known = key(FeedbackSource::ReviewComment, Some(3), "it  leaks\n", 1);
    assert_eq!(known, key(FeedbackSource::ReviewComment, Some(3), " it leaks", 2));
    assert_ne!(known, key(FeedbackSource::ReviewComment, Some(4), "it leaks", 1));
    assert_ne!(known, key(FeedbackSource::Review, Some(3), "it leaks", 1));
    assert_ne!(key(FeedbackSource::Review, None, "", 1), key(FeedbackSource::Review, None, "", 2));
}

#[test]
fn the_block_of_ours_is_read_or_is_none() {
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
        branch: "b".into(),
        has_callbacks: true,
        timeout_minutes: 90,
        state: ended.map_or(JobState::Running, |(state, _)| state),
        run: None,
        pull: None,
        conclusion: None,
        start_refusal_status: None,
        reserved_at,
        dispatched_at: None,
        started_at: None,
        run_ended_at: None,
        finished_at,
        usage: None,
        result_accepted: false,
        unconfirmed_result: None,
        nonce_hash: None,
        failure_reported: false,
        machine_destroyed_at: None,
        trigger_stage: None,
        resumes_at: None,
    }
}

fn secs(count: u64) -> Duration {
    Duration::from_secs(count)
}

fn seen(ago: u64) -> ReviewFinding {
    ReviewFinding::new(
        remark(FeedbackSource::IssueComment, person(), "- [ ] x"),
        NOW - secs(ago),
    )
}

fn failed() -> JobState {
    JobState::Failed {
        code: None,
        reason: String::new(),
    }
}

fn whose(jobs: &[Job], findings: &[ReviewFinding]) -> NextPullRequestRun {
    next_pull_request_run(&FollowUpPolicy::default(), false, jobs, findings, &[], NOW)
}

#[test]
fn a_follow_up_comes_when_it_is_quiet() {
    assert_eq!(whose(&[], &[]), NextPullRequestRun::NotDue);
    assert_eq!(whose(&[], &[seen(29)]), NextPullRequestRun::NotDue);
    assert_eq!(whose(&[], &[seen(30)]), NextPullRequestRun::FollowUp);
    assert_eq!(whose(&[], &[seen(60), seen(5)]), NextPullRequestRun::NotDue);
    assert_eq!(
        whose(&[], &[seen(300), seen(5)]),
        NextPullRequestRun::FollowUp,
        "however much is said"
    );
    let busy = next_pull_request_run(&FollowUpPolicy::default(), true, &[], &[seen(60)], &[], NOW);
    assert_eq!(busy, NextPullRequestRun::NotDue);
    let done = ReviewFinding {
        state: ReviewFindingState::Resolved { job: "01J".into() },
        ..seen(60)
    };
    assert_eq!(whose(&[], &[done]), NextPullRequestRun::NotDue);
}

#[test]
fn a_failed_follow_up_is_tried_again_after_a_pause_and_within_the_budget() {
    let ended = |state: JobState, ago: u64| {
        job(
            JobKind::FollowUp,
            Some((state, NOW - secs(ago))),
            NOW - secs(ago),
        )
    };
    assert_eq!(
        whose(&[ended(failed(), 599)], &[seen(60)]),
        NextPullRequestRun::NotDue
    );
    assert_eq!(
        whose(&[ended(failed(), 600)], &[seen(60)]),
        NextPullRequestRun::FollowUp
    );
    assert_eq!(
        whose(&[ended(JobState::Completed, 1)], &[seen(60)]),
        NextPullRequestRun::FollowUp
    );
    let day = 24 * 60 * 60;
    let four: Vec<Job> = [day - 1, 7_200, 3_600, 1_800]
        .map(|ago| ended(failed(), ago))
        .into();
    assert_eq!(
        whose(&four, &[seen(60)]),
        NextPullRequestRun::LimitReached(NOW + secs(1))
    );
    assert_eq!(whose(&four[1..], &[seen(60)]), NextPullRequestRun::FollowUp);
    let asked: Vec<Job> = four
        .iter()
        .map(|job| Job {
            kind: JobKind::GapFill,
            ..job.clone()
        })
        .collect();
    assert_eq!(
        whose(&asked, &[seen(60)]),
        NextPullRequestRun::FollowUp,
        "what people ask for counts against nothing"
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
        NOW,
    );
    assert_eq!(commanded, NextPullRequestRun::Command);
}

#[test]
fn feedback_is_resolved_by_success_alone_and_given_up_at_last() {
    let taken = |attempts| ReviewFinding {
        state: ReviewFindingState::InProgress { job: "01J".into() },
        attempts,
        ..seen(60)
    };
    let after = |attempts, state| {
        let job = job(JobKind::FollowUp, Some((state, NOW)), NOW);
        taken(attempts).with_follow_up_result(&job).state
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
    // What the model's provider had no room for says nothing about the feedback.
    let limited = Job {
        resumes_at: Some(NOW),
        ..job(JobKind::FollowUp, Some((failed(), NOW)), NOW)
    };
    let kept = taken(limits::MAX_FINDING_ATTEMPTS).with_follow_up_result(&limited);
    let attempts = limits::MAX_FINDING_ATTEMPTS - 1;
    assert_eq!(
        (kept.state, kept.attempts),
        (ReviewFindingState::Open, attempts)
    );
}

#[test]
fn what_does_not_fit_waits_for_the_next_follow_up() {
    let long = |letter: &str| {
        ReviewFinding::new(
            remark(
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
    assert!(text.contains("\n\n2. By ann") && text.contains("[… cut here]"));
    let (alone, count) = format_findings(&[&seen(1)]);
    assert_eq!((alone.as_str(), count), ("1. By ann:\n- [ ] x", 1));
}

#[test]
fn two_messengers_of_one_comment_are_told_apart_from_two_comments() {
    let command = CommentCommand {
        comment_id: Some(1),
        author: Some("ann".into()),
        instruction: Some("say it  louder".into()),
        requested_at: NOW,
        reported_by_workflow: false,
        state: CommentCommandState::Started { job: "01J".into() },
    };
    assert!(command.is_same_request(Some("say it\nlouder"), NOW + secs(60)));
    assert!(!command.is_same_request(Some("say it"), NOW));
    assert!(!command.is_same_request(Some("say it louder"), NOW + secs(3_600)));
}
