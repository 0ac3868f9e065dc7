use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::effect::LogLabel;
use crate::ids::{IssueId, IssueKey, JobId, Repo, TeamKey};
use crate::issue::{IssueRef, System};
use crate::job::JobKind;
use crate::report::{FailureCode, RunOutcome};
use crate::report::{RunComment, RunPhase};

const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);

fn job(kind: JobKind, runner: RunnerKind, state: JobState) -> Job {
    let dispatched = state != JobState::Reserved;
    Job {
        id: JobId::from("01JOB"),
        group: JobId::from("01JOB"),
        kind,
        issue: IssueRef {
            system: System::Linear,
            id: IssueId::from("uuid-1"),
            key: IssueKey::from("ENG-1"),
            title: "Title".into(),
            url: "https://tickets/ENG-1".into(),
            marker_field: None,
        },
        team: TeamKey::from("ENG"),
        repo: Repo::new("acme", "shop"),
        runner,
        shadow: false,
        session_image: None,
        dispatch_number: 1,
        attempt: Some(1),
        branch: "agent-implement/eng-1-title".into(),
        has_callbacks: true,
        timeout_minutes: 90,
        state,
        run: dispatched.then(ci_run),
        pull: None,
        conclusion: None,
        cancellation: None,
        start_refusal_status: None,
        reserved_at: NOW - Duration::from_secs(60),
        dispatched_at: dispatched.then_some(NOW - Duration::from_secs(50)),
        started_at: None,
        run_ended_at: None,
        finished_at: None,
        usage: None,
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
        result_accepted: false,
        unconfirmed_result: None,
        refused_hosts: Vec::new(),
    }
}

fn ci_run() -> RunHandle {
    RunHandle::Ci {
        id: 5,
        url: "https://host/run/5".into(),
    }
}

fn report(outcome: RunOutcome) -> ResultReport {
    ResultReport {
        phase: RunPhase::Implementation,
        outcome,
        pr_url: Some("https://host/acme/shop/pull/7".into()),
        comments: vec![],
        failure_reason: Some("it broke".into()),
        failure_code: None,
        last_agent_message: None,
        retry_at: None,
        unresolved: vec![],
        usage: None,
        agent: None,
        model: None,
        agents_with_credentials: vec![],
        next_agent: None,
        awaits_approval: false,
        merge: None,
        patch: None,
        questions: Vec::new(),
        patch_dropped: false,
        run_id: None,
    }
}

fn markers(planned: &PlannedEffects) -> Vec<Stage> {
    let stage = |effect: &Effect| match effect {
        Effect::SetMarker { stage, .. } => Some(*stage),
        _ => None,
    };
    planned.effects.iter().filter_map(stage).collect()
}

fn labels(planned: &PlannedEffects) -> Vec<LogLabel> {
    let label = |effect: &Effect| match effect {
        Effect::LogExcerpt { label, .. } => Some(*label),
        _ => None,
    };
    planned.effects.iter().filter_map(label).collect()
}

/// Returns the headline of a failure comment.
fn headline(body: &str) -> String {
    let (headline, _) = body
        .split_once("\n\n**What to do:** ")
        .unwrap_or((body, ""));
    headline.to_owned()
}

fn ticket_comments(planned: &PlannedEffects) -> Vec<String> {
    let body = |effect: &Effect| match effect {
        Effect::TicketComment { body, .. } => Some(headline(body)),
        _ => None,
    };
    planned.effects.iter().filter_map(body).collect()
}

fn running(kind: JobKind) -> Job {
    job(kind, RunnerKind::Ci, JobState::Running)
}

#[test]
fn a_started_run_sets_the_marker_and_notifies_chat() {
    for (kind, stage) in [
        (JobKind::Planning, Stage::Planning),
        (JobKind::Implementation, Stage::Implementing),
    ] {
        let next = apply_event(
            &job(kind, RunnerKind::Ci, JobState::Reserved),
            JobEvent::Started { run: None },
            NOW,
        )
        .unwrap();
        assert_eq!(next.job.state, JobState::Dispatched);
        assert_eq!(next.job.dispatched_at, Some(NOW));
        assert_eq!(markers(&next.planned), [stage]);
        assert!(
            next.planned
                .effects
                .iter()
                .any(|effect| matches!(effect, Effect::Chat { .. }))
        );
    }
}

#[test]
fn each_end_sets_marker_comments_and_dedup() {
    let failure = || JobEvent::ResultReported {
        report: report(RunOutcome::Failure),
    };
    let success = || JobEvent::ResultReported {
        report: report(RunOutcome::Success),
    };
    let blocked = || JobEvent::ResultReported {
        report: ResultReport {
            unresolved: vec!["a race".into()],
            ..report(RunOutcome::Success)
        },
    };
    let late = || JobEvent::Tick;
    let link = "Pull request opened: [#7](https://host/acme/shop/pull/7)";
    let draft =
        "The pull request stays a draft: its review left blocking findings open.\n\n- a race";
    let budget = "the run exceeded its time budget of 90 minutes";
    let rows = [
        (
            JobKind::Planning,
            success(),
            "completed",
            vec![Stage::PlanComplete],
            vec![],
            DedupUpdate::Clear,
        ),
        (
            JobKind::Planning,
            failure(),
            "failed",
            vec![Stage::PlanningFailed],
            vec!["Planning failed: it broke".to_owned()],
            DedupUpdate::Clear,
        ),
        (
            JobKind::Planning,
            late(),
            "timed_out",
            vec![Stage::PlanningFailed],
            vec![format!("Planning failed: {budget}")],
            DedupUpdate::Clear,
        ),
        (
            JobKind::Implementation,
            success(),
            "completed",
            vec![Stage::PrOpened],
            vec![link.to_owned()],
            DedupUpdate::Keep,
        ),
        (
            JobKind::Implementation,
            blocked(),
            "review_failed",
            vec![Stage::PrOpened],
            vec![link.to_owned(), draft.to_owned()],
            DedupUpdate::Keep,
        ),
        (
            JobKind::Implementation,
            failure(),
            "failed",
            vec![Stage::ImplementationFailed],
            vec!["Implementation failed: it broke".to_owned()],
            DedupUpdate::Clear,
        ),
        (
            JobKind::Implementation,
            late(),
            "timed_out",
            vec![Stage::ImplementationFailed],
            vec![format!("Implementation failed: {budget}")],
            DedupUpdate::Clear,
        ),
        (
            JobKind::GapFill,
            success(),
            "completed",
            vec![],
            vec![],
            DedupUpdate::Keep,
        ),
        (
            JobKind::GapFill,
            failure(),
            "failed",
            vec![],
            vec![],
            DedupUpdate::Keep,
        ),
        (
            JobKind::FollowUp,
            late(),
            "timed_out",
            vec![],
            vec![],
            DedupUpdate::Keep,
        ),
    ];
    for (kind, event, status, stages, comments, dedup) in rows {
        let late = NOW + Duration::from_secs(2 * 60 * 60);
        let next = apply_event(&running(kind), event.clone(), late).unwrap();
        assert_eq!(next.job.state.status(), status, "{kind:?} {event:?}");
        assert_eq!(next.job.finished_at, Some(late));
        assert_eq!(markers(&next.planned), stages, "{kind:?} {event:?}");
        assert_eq!(
            ticket_comments(&next.planned),
            comments,
            "{kind:?} {event:?}"
        );
        assert_eq!(next.planned.dedup, dedup, "{kind:?} {event:?}");
    }
}

#[test]
fn reports_failed_work_on_the_pull_request() {
    let pull_comments = |planned: &PlannedEffects| {
        let comment = |effect: &Effect| match effect {
            Effect::PullComment { number, body, .. } => Some((*number, headline(body))),
            _ => None,
        };
        planned
            .effects
            .iter()
            .filter_map(comment)
            .collect::<Vec<_>>()
    };
    let end = |event: JobEvent| {
        let mut job = running(JobKind::GapFill);
        job.pull = PullRequestRef::from_url("https://host/acme/shop/pull/4");
        apply_event(&job, event, NOW + Duration::from_secs(2 * 60 * 60)).unwrap()
    };
    let reported = |outcome| JobEvent::ResultReported {
        report: report(outcome),
    };
    let failed = end(reported(RunOutcome::Failure));
    assert_eq!(
        pull_comments(&failed.planned),
        [(4, "Gap fill failed: it broke".to_owned())]
    );
    assert_eq!(
        failed.job.pull.map(|pull| pull.number),
        Some(4),
        "a run cannot change the pull request that it works on"
    );
    let budget = "Gap fill failed: the run exceeded its time budget of 90 minutes";
    assert_eq!(
        pull_comments(&end(JobEvent::Tick).planned),
        [(4, budget.to_owned())]
    );
    assert_eq!(
        pull_comments(&end(reported(RunOutcome::Success)).planned),
        []
    );
    let ticket = apply_event(
        &running(JobKind::Implementation),
        reported(RunOutcome::Failure),
        NOW,
    );
    assert_eq!(pull_comments(&ticket.unwrap().planned), []);
}

#[test]
fn posts_run_comments_in_order_after_the_marker() {
    let comments = ["first", "second"]
        .map(|body| RunComment { body: body.into() })
        .to_vec();
    let report = ResultReport {
        comments,
        ..report(RunOutcome::Success)
    };
    let next = apply_event(
        &running(JobKind::Planning),
        JobEvent::ResultReported { report },
        NOW,
    )
    .unwrap();
    assert!(matches!(
        next.planned.effects[0],
        Effect::SetMarker {
            stage: Stage::PlanComplete,
            ..
        }
    ));
    assert_eq!(ticket_comments(&next.planned), ["first", "second"]);
    assert_eq!(next.planned.plan, PlanUpdate::Replace);
}

#[test]
fn sanitizes_and_limits_run_comments() {
    let mut comments = vec![RunComment { body: " ".into() }];
    comments.extend((0..40).map(|_| RunComment {
        body: "@everyone".into(),
    }));
    let report = ResultReport {
        comments,
        ..report(RunOutcome::Failure)
    };
    let next = apply_event(
        &running(JobKind::Planning),
        JobEvent::ResultReported { report },
        NOW,
    )
    .unwrap();
    let posted = ticket_comments(&next.planned);
    assert_eq!(
        posted.len(),
        limits::MAX_RUN_COMMENTS + 1,
        "and the failure"
    );
    assert!(posted.iter().all(|body| !body.contains("@everyone")));
    assert_eq!(
        next.planned.plan,
        PlanUpdate::Keep,
        "a failed run leaves no plan"
    );
}

#[test]
fn judges_an_unreported_end_after_the_grace() {
    let ended = |conclusion: &str, pull: Option<PullRequestRef>| JobEvent::RunEnded {
        run: ci_run(),
        conclusion: conclusion.into(),
        pull: pull.map(|pull| (pull, DraftState::Ready)),
        report: MissingReport::NotArrived,
    };
    let recorded = apply_event(
        &running(JobKind::Implementation),
        ended("success", None),
        NOW,
    )
    .unwrap();
    assert_eq!(recorded.job.state, JobState::Running);
    assert!(recorded.planned.effects.is_empty());
    assert_eq!(
        apply_event(
            &recorded.job,
            ended("success", None),
            NOW + Duration::from_secs(119)
        ),
        Err(EventRejection::NoChange)
    );

    let later = NOW + limits::REPORT_GRACE;
    let pull = PullRequestRef::from_url("https://host/acme/shop/pull/7");
    let found = apply_event(&recorded.job, ended("success", pull), later).unwrap();
    assert_eq!(found.job.state, JobState::Completed);
    let none = apply_event(&recorded.job, ended("success", None), later).unwrap();
    assert_eq!(none.job.state.status(), "failed");
    assert_eq!(labels(&none.planned), [LogLabel::PrNotFound]);
    for (conclusion, status) in [
        ("timed_out", "timed_out"),
        ("cancelled", "failed"),
        ("startup_failure", "failed"),
    ] {
        let next = apply_event(&recorded.job, ended(conclusion, None), later).unwrap();
        assert_eq!(next.job.state.status(), status, "{conclusion}");
    }
}

#[test]
fn judges_the_end_at_once_if_the_report_was_refused() {
    for (kind, conclusion, reason) in [
        (
            JobKind::Implementation,
            "success",
            "the run ended without opening a pull request",
        ),
        (
            JobKind::Planning,
            "success",
            "the run ended without reporting a plan",
        ),
        (
            JobKind::Planning,
            "failure",
            "the run ended with conclusion failure and reported no result",
        ),
    ] {
        let event = JobEvent::RunEnded {
            run: ci_run(),
            conclusion: conclusion.into(),
            pull: None,
            report: MissingReport::Refused("its signature is wrong".into()),
        };
        let refused = " The report that it left as an artifact was refused: its signature is wrong";
        assert_eq!(
            apply_event(&running(kind), event, NOW).unwrap().job.state,
            JobState::Failed {
                code: None,
                reason: format!("{reason}.{refused}")
            }
        );
    }
}

#[test]
fn a_session_without_a_report_fails_with_its_exit_or_the_problem_of_its_machine() {
    let problem = |kind| RunConclusion::MachineProblem {
        message: "its pod was not scheduled: Unschedulable".to_owned(),
        kind,
    };
    let of_machine = "the session failed: its pod was not scheduled: Unschedulable";
    for (conclusion, expected, breaker) in [
        (
            RunConclusion::from("exit code 3"),
            "the session ended with exit code 3 and reported no result",
            BreakerUpdate::CountFailure,
        ),
        (
            problem(FailureKind::Permanent),
            of_machine,
            BreakerUpdate::CountFailure,
        ),
        (
            problem(FailureKind::Transient),
            of_machine,
            BreakerUpdate::Keep,
        ),
    ] {
        let mut job = running(JobKind::Implementation);
        job.runner = RunnerKind::Kubernetes;
        job.run_ended_at = Some(NOW - limits::REPORT_GRACE);
        let text = conclusion.as_str().to_owned();
        let event = JobEvent::RunEnded {
            run: ci_run(),
            conclusion,
            pull: None,
            report: MissingReport::NotArrived,
        };
        let next = apply_event(&job, event, NOW).unwrap();
        assert_eq!(next.job.conclusion, Some(text));
        let failed = JobState::Failed {
            code: None,
            reason: expected.to_owned(),
        };
        assert_eq!(next.job.state, failed);
        assert_eq!(next.planned.breaker, breaker);
    }
}

#[test]
fn an_unreported_draft_failed_its_review() {
    let mut job = running(JobKind::Implementation);
    job.run_ended_at = Some(NOW - limits::REPORT_GRACE);
    let pull = PullRequestRef::from_url("https://host/acme/shop/pull/7");
    for (conclusion, draft, status) in [
        ("success", DraftState::Draft, "review_failed"),
        ("success", DraftState::Ready, "completed"),
        ("failure", DraftState::Draft, "failed"),
    ] {
        let event = JobEvent::RunEnded {
            conclusion: conclusion.into(),
            pull: pull.clone().zip(Some(draft)),
            report: MissingReport::NotArrived,
            run: ci_run(),
        };
        let next = apply_event(&job, event, NOW).unwrap();
        assert_eq!(next.job.state.status(), status, "{conclusion} {draft:?}");
        let posted = ticket_comments(&next.planned);
        let has_draft_comment = posted.iter().any(|body| body.contains("stays a draft"));
        assert_eq!(has_draft_comment, status == "review_failed", "{posted:?}");
    }
}

#[test]
fn restores_the_issue_after_a_provider_limit() {
    let until = NOW + Duration::from_secs(3600);
    let limit_reached = |retry_at| JobEvent::ResultReported {
        report: ResultReport {
            failure_code: Some(FailureCode::ProviderLimit),
            retry_at,
            pr_url: None,
            ..report(RunOutcome::Failure)
        },
    };
    let rows = [
        (JobKind::Planning, None, Stage::Triggered),
        (
            JobKind::Implementation,
            Some(Stage::Triggered),
            Stage::Triggered,
        ),
        (
            JobKind::Implementation,
            Some(Stage::PlanComplete),
            Stage::PlanComplete,
        ),
    ];
    for (kind, trigger_stage, restored) in rows {
        let job = Job {
            trigger_stage,
            ..running(kind)
        };
        let Transition { job, planned } =
            apply_event(&job, limit_reached(Some(until)), NOW).unwrap();
        assert_eq!(
            (job.state.status(), job.resumes_at),
            ("failed", Some(until))
        );
        assert_eq!(markers(&planned), [restored]);
        assert_eq!(
            (planned.breaker, planned.dedup),
            (BreakerUpdate::Keep, DedupUpdate::Clear)
        );
        assert_eq!(ticket_comments(&planned).len(), 1, "{planned:?}");
        assert!(labels(&planned).is_empty(), "no log excerpt is posted");
    }
    // A session also comments once, and its machine is destroyed.
    let machine = Job {
        run: Some(RunHandle::Machine {
            id: "m1".into(),
            log_url: None,
        }),
        ..job(JobKind::Implementation, RunnerKind::Vm, JobState::Running)
    };
    let next = apply_event(&machine, limit_reached(Some(until)), NOW).unwrap();
    assert_eq!(ticket_comments(&next.planned).len(), 1);
    let is_destroyed = |effect: &Effect| matches!(effect, Effect::DestroyMachine { .. });
    assert!(next.planned.effects.iter().any(is_destroyed));
    // Without a retry time it is a plain failure that does not count.
    let next = apply_event(&running(JobKind::Implementation), limit_reached(None), NOW).unwrap();
    assert_eq!(next.job.resumes_at, None);
    assert_eq!(markers(&next.planned), [Stage::ImplementationFailed]);
    assert_eq!(next.planned.breaker, BreakerUpdate::Keep);
    // For a pull request, the comment is posted there.
    let pull = PullRequestRef::from_url("https://host/acme/shop/pull/7");
    let follow_up = Job {
        pull,
        ..running(JobKind::FollowUp)
    };
    let next = apply_event(&follow_up, limit_reached(Some(until)), NOW).unwrap();
    let is_pause_comment = |effect: &Effect| match effect {
        Effect::PullComment { body, .. } => body.starts_with("Follow-up paused"),
        _ => false,
    };
    assert!(
        next.planned.effects.iter().any(is_pause_comment),
        "{:?}",
        next.planned
    );
}

#[test]
fn transient_failures_and_cancellations_do_not_count_against_the_breaker() {
    let rejected = |kind| JobEvent::StartRejected {
        kind,
        status: Some(422),
        reason: "no".into(),
    };
    let fresh = job(JobKind::Implementation, RunnerKind::Ci, JobState::Reserved);
    assert_eq!(
        apply_event(&fresh, rejected(FailureKind::Permanent), NOW)
            .unwrap()
            .planned
            .breaker,
        BreakerUpdate::CountFailure
    );
    assert_eq!(
        apply_event(&fresh, rejected(FailureKind::Transient), NOW)
            .unwrap()
            .planned
            .breaker,
        BreakerUpdate::Keep
    );
    let down = ResultReport {
        failure_code: Some(FailureCode::ProviderUnavailable),
        ..report(RunOutcome::Failure)
    };
    let next = apply_event(
        &running(JobKind::Implementation),
        JobEvent::ResultReported { report: down },
        NOW,
    )
    .unwrap();
    assert_eq!(next.planned.breaker, BreakerUpdate::Keep);
    let destroyed = apply_event(
        &running(JobKind::Implementation),
        JobEvent::Cancelled {
            by: "ann".into(),
            then: AfterCancel::Release,
        },
        NOW,
    )
    .unwrap();
    assert_eq!(
        (destroyed.planned.breaker, destroyed.planned.dedup),
        (BreakerUpdate::Keep, DedupUpdate::Clear)
    );
    assert_eq!(
        markers(&destroyed.planned),
        [Stage::Triggered],
        "the marker returns to the trigger"
    );
}

fn cancelled(job: &Job, then: AfterCancel) -> Transition {
    let by = "admin@10.0.0.7".to_owned();
    apply_event(job, JobEvent::Cancelled { by, then }, NOW).unwrap()
}

#[test]
fn a_cancellation_sets_the_markers_that_its_consequence_requires() {
    let planned_first = Job {
        trigger_stage: Some(Stage::PlanComplete),
        ..running(JobKind::Implementation)
    };
    for (job, then, stages, comment_count) in [
        (
            running(JobKind::Planning),
            AfterCancel::Stop,
            vec![Stage::Cancelled],
            1,
        ),
        (
            running(JobKind::Implementation),
            AfterCancel::Retry,
            vec![Stage::Retriggered],
            0,
        ),
        (
            planned_first.clone(),
            AfterCancel::Retry,
            vec![Stage::Retriggered, Stage::PlanComplete],
            0,
        ),
        (
            planned_first,
            AfterCancel::Release,
            vec![Stage::Triggered],
            0,
        ),
    ] {
        let next = cancelled(&job, then);
        assert_eq!(markers(&next.planned), stages, "{then:?}");
        assert_eq!(ticket_comments(&next.planned).len(), comment_count);
        assert_eq!(next.job.conclusion.as_deref(), Some("cancelled"));
        let JobState::Failed { code, reason } = &next.job.state else {
            panic!("{:?}", next.job.state);
        };
        assert_eq!(*code, Some(FailureCode::Cancelled));
        assert!(reason.ends_with(" by an operator"), "{reason}");
        assert_eq!(
            (next.planned.breaker, next.planned.dedup),
            (BreakerUpdate::Keep, DedupUpdate::Clear)
        );
        let stops = |effect: &&Effect| matches!(effect, Effect::StopRun { .. });
        assert_eq!(next.planned.effects.iter().filter(stops).count(), 1);
        assert!(labels(&next.planned).is_empty(), "no log excerpt is posted");
        let by = "x".to_owned();
        let again = apply_event(&next.job, JobEvent::Cancelled { by, then }, NOW);
        assert_eq!(again, Err(EventRejection::AlreadyEnded));
    }
    let next = cancelled(&running(JobKind::Implementation), AfterCancel::Stop);
    let comment = next.planned.effects.iter().find_map(|effect| match effect {
        Effect::TicketComment { body, .. } => Some(body.as_str()),
        _ => None,
    });
    assert_eq!(
        comment,
        Some(
            "Implementation cancelled by an operator.\n\n**What to do:** To try \
             again, set the label `Agent-Implement` again. Or select **Retry** in the panel."
        )
    );
}

#[test]
fn a_cancellation_wins_over_an_unconfirmed_result() {
    let reported = JobEvent::UnconfirmedResultReported {
        report: report(RunOutcome::Success),
    };
    let held = apply_event(&running(JobKind::Implementation), reported, NOW).unwrap();
    assert!(held.job.is_active());
    let next = cancelled(&held.job, AfterCancel::Stop);
    assert_eq!(markers(&next.planned), [Stage::Cancelled]);
    assert_eq!(next.job.pull, None, "nobody confirmed that it is ours");
    let confirmed = JobEvent::ResultReported {
        report: report(RunOutcome::Success),
    };
    let late = apply_event(&next.job, confirmed, NOW);
    assert_eq!(late, Err(EventRejection::AlreadyEnded));
}

#[test]
fn a_start_that_becomes_known_after_the_cancellation_is_stopped_once() {
    for runner in [
        RunnerKind::Ci,
        RunnerKind::Vm,
        RunnerKind::Local,
        RunnerKind::Kubernetes,
    ] {
        let reserved = job(JobKind::Implementation, runner, JobState::Reserved);
        let next = cancelled(&reserved, AfterCancel::Stop);
        let effects = next.planned.effects.iter();
        let effects: Vec<&str> = effects.map(Effect::name).collect();
        assert_eq!(
            effects,
            ["move marker", "comment on ticket", "chat message"],
            "there is no run to stop"
        );
        let looks_up = |transition: &Transition| {
            matches!(
                transition.planned.effects[..],
                [Effect::StopRun { run: None, .. }]
            )
        };
        let nameless = JobEvent::Started { run: None };
        let started = apply_event(&next.job, nameless.clone(), NOW).unwrap();
        assert!(looks_up(&started), "{started:?}");
        let again = apply_event(&started.job, nameless, NOW);
        assert_eq!(again, Err(EventRejection::AlreadyEnded));
        let unknown = apply_event(&next.job, JobEvent::StartUnknown, NOW).unwrap();
        assert!(looks_up(&unknown), "{unknown:?}");
        let found = JobEvent::RunFound {
            run: ci_run(),
            activity: RunActivity::Queued,
        };
        let found = apply_event(&unknown.job, found, NOW).unwrap();
        assert_eq!(found.job.run, Some(ci_run()));
        let known = apply_event(&found.job, JobEvent::StartUnknown, NOW);
        assert_eq!(known, Err(EventRejection::AlreadyEnded));
    }
}

#[test]
fn a_cancelled_run_on_a_pull_request_comments_there_and_changes_no_ticket() {
    for (then, expected) in [
        (
            AfterCancel::Stop,
            "Follow-up cancelled by an operator. The feedback that it worked on is \
             given up.",
        ),
        (
            AfterCancel::Retry,
            "Follow-up cancelled by an operator. It starts again.",
        ),
        (
            AfterCancel::Release,
            "Follow-up failed: stopped by an operator",
        ),
    ] {
        let mut job = running(JobKind::FollowUp);
        job.pull = PullRequestRef::from_url("https://host/acme/shop/pull/4");
        let next = cancelled(&job, then);
        assert!(markers(&next.planned).is_empty());
        assert!(ticket_comments(&next.planned).is_empty());
        let comment = next.planned.effects.iter().find_map(|effect| match effect {
            Effect::PullComment { body, .. } => Some(headline(body)),
            _ => None,
        });
        assert_eq!(comment.as_deref(), Some(expected));
    }
}

#[test]
fn a_cancelled_shadow_run_only_ends_its_own_run() {
    for then in [AfterCancel::Stop, AfterCancel::Retry, AfterCancel::Release] {
        let mut shadow = running(JobKind::Implementation);
        shadow.shadow = true;
        let next = cancelled(&shadow, then);
        assert!(matches!(next.planned.effects[..], [Effect::StopRun { .. }]));
        assert_eq!(next.planned.dedup, DedupUpdate::Keep);
    }
}

#[test]
fn stops_a_run_found_after_the_end_once() {
    let mut gone = job(
        JobKind::Implementation,
        RunnerKind::Ci,
        JobState::TimedOut {
            reason: TimeoutReason::RunNotFound,
        },
    );
    gone.run = None;
    let seen = || JobEvent::RunFound {
        run: RunHandle::Ci {
            id: 9,
            url: "u".into(),
        },
        activity: RunActivity::InProgress,
    };
    let next = apply_event(&gone, seen(), NOW).unwrap();
    assert_eq!(next.job.state, gone.state);
    assert!(matches!(next.planned.effects[..], [Effect::StopRun { .. }]));
    assert_eq!(
        apply_event(&next.job, seen(), NOW),
        Err(EventRejection::AlreadyEnded)
    );
}

#[test]
fn a_shadow_run_only_ends_its_own_run() {
    let mut shadow = job(JobKind::Implementation, RunnerKind::Vm, JobState::Running);
    shadow.shadow = true;
    shadow.run = Some(RunHandle::Machine {
        id: "m1".into(),
        log_url: None,
    });
    let next = apply_event(
        &shadow,
        JobEvent::ResultReported {
            report: report(RunOutcome::Failure),
        },
        NOW,
    )
    .unwrap();
    assert!(matches!(
        next.planned.effects[..],
        [Effect::DestroyMachine { issue: None, .. }]
    ));
    assert_eq!(
        (next.planned.dedup, next.planned.breaker),
        (DedupUpdate::Keep, BreakerUpdate::Keep)
    );
}

#[test]
fn a_session_comments_and_its_log_is_read_before_its_machine_is_destroyed() {
    let reserved = job(JobKind::Implementation, RunnerKind::Vm, JobState::Reserved);
    let run = RunHandle::Machine {
        id: "m1".into(),
        log_url: Some("https://log".into()),
    };
    let started = JobEvent::Started { run: Some(run) };
    let next = apply_event(&reserved, started, NOW).unwrap();
    let posted = ticket_comments(&next.planned);
    assert!(
        posted[0].starts_with("Session machine created. "),
        "{posted:?}"
    );
    assert!(posted[0].ends_with("[log](https://log)"), "{posted:?}");

    let hour = Duration::from_secs(u64::from(reserved.timeout_minutes) * 60);
    let later = NOW + hour;
    let next = apply_event(&next.job, JobEvent::Tick, later).unwrap();
    let order: Vec<&str> = next.planned.effects.iter().map(Effect::name).collect();
    assert_eq!(
        order,
        [
            "comment on ticket",
            "move marker",
            "comment on ticket",
            "log excerpt on ticket",
            "end run",
            "chat message",
            "destroy machine",
        ]
    );
    let queue_keys: Vec<String> = next.planned.effects.iter().map(Effect::queue_key).collect();
    assert_eq!(queue_keys[3], queue_keys[6], "one waits for the other");
    assert_ne!(queue_keys[3], queue_keys[4], "the run is stopped at once");
    assert_ne!(
        queue_keys[3], queue_keys[2],
        "the ticket's next run waits for neither"
    );

    let gone = apply_event(&next.job, JobEvent::MachineDestroyed, later).unwrap();
    let posted = ticket_comments(&gone.planned);
    assert_eq!(posted.len(), 1);
    assert!(posted[0].starts_with("Session machine cleaned up. Duration: "));
    let again = apply_event(&gone.job, JobEvent::MachineDestroyed, later);
    assert_eq!(again, Err(EventRejection::NoChange));
}

#[test]
fn does_not_repeat_a_failure_reported_by_the_session() {
    for (failure_reported, count) in [(false, 2), (true, 1)] {
        let mut job = job(
            JobKind::Implementation,
            RunnerKind::Local,
            JobState::Running,
        );
        job.run = Some(RunHandle::Container { id: "c1".into() });
        job.failure_reported = failure_reported;
        let event = JobEvent::ResultReported {
            report: report(RunOutcome::Failure),
        };
        let next = apply_event(&job, event, NOW).unwrap();
        assert_eq!(ticket_comments(&next.planned).len(), count);
    }
}

#[test]
fn a_reported_timeout_times_out_the_job() {
    for (runner, reason, label) in [
        (
            RunnerKind::Ci,
            TimeoutReason::TimedOut,
            LogLabel::SessionFailed,
        ),
        (
            RunnerKind::Vm,
            TimeoutReason::MachineTimeout,
            LogLabel::MachineTimeout,
        ),
        (
            RunnerKind::Local,
            TimeoutReason::ContainerTimeout,
            LogLabel::ContainerTimeout,
        ),
    ] {
        let event = JobEvent::ResultReported {
            report: ResultReport {
                failure_code: Some(FailureCode::TimedOut),
                pr_url: None,
                ..report(RunOutcome::Failure)
            },
        };
        let job = job(JobKind::Implementation, runner, JobState::Running);
        let next = apply_event(&job, event, NOW).unwrap();
        assert_eq!(next.job.state, JobState::TimedOut { reason });
        assert_eq!(labels(&next.planned), [label]);
        let posted = ticket_comments(&next.planned);
        assert!(
            posted
                .last()
                .unwrap()
                .ends_with("time budget of 90 minutes"),
            "{posted:?}"
        );
        assert_eq!(
            posted
                .iter()
                .any(|body| body.contains("Session timed out: ")),
            runner != RunnerKind::Ci
        );
        let is_stop = |effect: &Effect| matches!(effect, Effect::StopRun { .. });
        assert!(
            !next.planned.effects.iter().any(is_stop),
            "the run ends on its own"
        );
    }
}

#[test]
fn a_run_stopped_by_its_host_at_the_limit_has_timed_out() {
    const MINUTE: Duration = Duration::from_secs(60);
    let reported = JobEvent::ResultReported {
        report: ResultReport {
            failure_code: Some(FailureCode::Cancelled),
            pr_url: None,
            ..report(RunOutcome::Failure)
        },
    };
    let ended = JobEvent::RunEnded {
        conclusion: "cancelled".into(),
        pull: None,
        report: MissingReport::Refused("it is damaged".into()),
        run: ci_run(),
    };
    for (minutes, status) in [(30, "failed"), (87, "failed"), (89, "timed_out")] {
        for event in [&reported, &ended] {
            let job = Job {
                started_at: Some(NOW - MINUTE * minutes),
                ..running(JobKind::Implementation)
            };
            let next = apply_event(&job, event.clone(), NOW).unwrap();
            assert_eq!(next.job.state.status(), status, "{minutes} {event:?}");
        }
    }
}

#[test]
fn a_signal_that_nobody_sent_to_a_pod_came_from_outside() {
    for (runner, expected) in [
        (
            RunnerKind::Kubernetes,
            "the run was stopped from outside, for example by a drain of its node, a preemption or the deletion of its pod",
        ),
        (RunnerKind::Local, "the run was stopped by a signal"),
        (RunnerKind::Vm, "the run was stopped by a signal"),
        (RunnerKind::Ci, "the run was stopped by a signal"),
    ] {
        let mut job = running(JobKind::Implementation);
        job.runner = runner;
        let report = ResultReport {
            failure_code: Some(FailureCode::Cancelled),
            failure_reason: Some("the run was stopped by a signal".to_owned()),
            pr_url: None,
            ..report(RunOutcome::Failure)
        };
        let next = apply_event(&job, JobEvent::ResultReported { report }, NOW).unwrap();
        let failed = JobState::Failed {
            code: Some(FailureCode::Cancelled),
            reason: expected.to_owned(),
        };
        assert_eq!(next.job.state, failed);
        assert_eq!(next.planned.breaker, BreakerUpdate::Keep);
        let posted = ticket_comments(&next.planned);
        let headline = format!("Implementation failed: {expected}");
        assert_eq!(posted.last(), Some(&headline), "{posted:?}");
    }
}

#[test]
fn a_plan_ignores_unresolved_findings() {
    let unresolved = vec!["a question".to_owned()];
    let open = |outcome, failure_code| JobEvent::ResultReported {
        report: ResultReport {
            unresolved: unresolved.clone(),
            failure_code,
            ..report(outcome)
        },
    };
    let unapproved = Some(FailureCode::ReviewUnapproved);
    for (event, status, stage) in [
        (
            open(RunOutcome::Success, None),
            "completed",
            Stage::PlanComplete,
        ),
        (
            open(RunOutcome::Failure, unapproved),
            "failed",
            Stage::PlanningFailed,
        ),
    ] {
        let next = apply_event(&running(JobKind::Planning), event, NOW).unwrap();
        assert_eq!(next.job.state.status(), status);
        assert_eq!(markers(&next.planned), [stage]);
    }
}

fn any_state() -> impl Strategy<Value = JobState> {
    prop_oneof![
        Just(JobState::Reserved),
        Just(JobState::Dispatched),
        Just(JobState::Running),
        Just(JobState::Completed),
        Just(JobState::ReviewFailed {
            unresolved: vec!["x".into()]
        }),
        Just(JobState::Failed {
            code: None,
            reason: "r".into()
        }),
        Just(JobState::TimedOut {
            reason: TimeoutReason::MachineTimeout
        }),
    ]
}

fn any_job() -> impl Strategy<Value = Job> {
    let kinds = prop_oneof![
        Just(JobKind::Planning),
        Just(JobKind::Implementation),
        Just(JobKind::GapFill),
        Just(JobKind::FollowUp)
    ];
    let runners = prop_oneof![
        Just(RunnerKind::Ci),
        Just(RunnerKind::Vm),
        Just(RunnerKind::Local),
        Just(RunnerKind::Kubernetes)
    ];
    (
        kinds,
        runners,
        any_state(),
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
    )
        .prop_map(|(kind, runner, state, shadow, callbacks, linked)| {
            let mut job = job(kind, runner, state);
            job.shadow = shadow;
            job.has_callbacks = callbacks;
            if !linked {
                job.run = None;
            }
            job
        })
}

fn any_event() -> impl Strategy<Value = JobEvent> {
    let run = RunHandle::Ci {
        id: 9,
        url: "u".into(),
    };
    let pull = PullRequestRef::from_url("https://host/acme/shop/pull/8");
    const CONCLUSIONS: [&str; 6] = [
        "success",
        "failure",
        "cancelled",
        "timed_out",
        "neutral",
        "gone",
    ];
    const CODES: [Option<FailureCode>; 5] = [
        None,
        Some(FailureCode::TimedOut),
        Some(FailureCode::SensitiveFilesBlocked),
        Some(FailureCode::ReviewUnapproved),
        Some(FailureCode::ProviderUnavailable),
    ];
    prop_oneof![
        prop_oneof![Just(None), Just(Some(run.clone()))].prop_map(|run| JobEvent::Started { run }),
        prop_oneof![Just(FailureKind::Permanent), Just(FailureKind::Transient)].prop_map(|kind| {
            JobEvent::StartRejected {
                kind,
                status: None,
                reason: "no".into(),
            }
        }),
        prop_oneof![Just(RunActivity::Queued), Just(RunActivity::InProgress)].prop_map(
            move |activity| JobEvent::RunFound {
                run: run.clone(),
                activity
            }
        ),
        Just(JobEvent::StepReported),
        (
            any::<bool>(),
            any::<bool>(),
            prop::sample::select(&CODES[..]),
            any::<bool>()
        )
            .prop_map(|(good, opened, failure_code, blocked)| {
                let outcome = if good {
                    RunOutcome::Success
                } else {
                    RunOutcome::Failure
                };
                let mut report = report(outcome);
                report.pr_url = report.pr_url.filter(|_| opened);
                report.failure_code = failure_code;
                report.unresolved = if blocked { vec!["b".into()] } else { vec![] };
                JobEvent::ResultReported { report }
            }),
        (
            prop::sample::select(&CONCLUSIONS[..]),
            any::<bool>(),
            any_draft()
        )
            .prop_map(move |(conclusion, opened, draft)| {
                JobEvent::RunEnded {
                    run: ci_run(),
                    conclusion: conclusion.into(),
                    pull: pull.clone().filter(|_| opened).zip(Some(draft)),
                    report: MissingReport::NotArrived,
                }
            }),
        Just(JobEvent::RunMissing),
        Just(JobEvent::MachineDestroyed),
        Just(JobEvent::Tick),
        prop::sample::select(&[AfterCancel::Stop, AfterCancel::Retry, AfterCancel::Release][..])
            .prop_map(|then| JobEvent::Cancelled {
                by: "op".into(),
                then
            }),
        Just(JobEvent::StartUnknown),
        Just(JobEvent::IssueClosed),
    ]
}

fn any_draft() -> impl Strategy<Value = DraftState> {
    prop_oneof![Just(DraftState::Draft), Just(DraftState::Ready)]
}

fn rank(state: &JobState) -> u8 {
    match state {
        JobState::Reserved => 0,
        JobState::Dispatched => 1,
        JobState::Running => 2,
        _ => 3,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    /// Applies any event in any state.
    #[test]
    fn one_event_keeps_the_invariants(job in any_job(), event in any_event(), seconds in 0u64..10_000) {
        let now = NOW + Duration::from_secs(seconds);
        let Ok(next) = apply_event(&job, event.clone(), now) else { return Ok(()) };
        prop_assert!(rank(&next.job.state) >= rank(&job.state), "a job never returns to an earlier state");
        if event == JobEvent::MachineDestroyed {
            prop_assert_eq!(&next.job.state, &job.state, "the state of the run does not change");
            prop_assert!(next.planned.effects.len() <= 1);
            return Ok(());
        }
        if !job.is_active() {
            prop_assert_eq!(&next.job.state, &job.state, "a terminal state never changes");
            let only_stops = next.planned.effects.iter().all(|effect| matches!(effect, Effect::StopRun { .. } | Effect::DestroyMachine { .. }));
            prop_assert!(only_stops);
        }
        prop_assert_eq!(next.job.finished_at.is_some(), job.finished_at.is_some() || (job.is_active() && !next.job.is_active()));
        // The trigger is set before the plan that it is about.
        let is_retry = next.job.after_cancel() == Some(AfterCancel::Retry);
        prop_assert!(markers(&next.planned).len() <= 1 + usize::from(is_retry));
        if job.kind.phase().is_none() || job.shadow {
            prop_assert!(markers(&next.planned).is_empty());
            prop_assert_eq!(next.planned.dedup, DedupUpdate::Keep);
        }
        let failed = matches!(next.job.state, JobState::Failed { .. } | JobState::TimedOut { .. });
        if job.is_active() && failed && job.kind.phase().is_some() && !job.shadow {
            prop_assert_eq!(next.planned.dedup, DedupUpdate::Clear, "a failed run clears the dedup entry");
        }
    }

    /// Applies any events in any order.
    #[test]
    fn a_job_ends_at_most_once(job in any_job(), events in prop::collection::vec((any_event(), 0u64..4_000), 1..30)) {
        let mut job = job;
        let mut now = NOW;
        let mut ends = u32::from(!job.is_active());
        for (event, seconds) in events {
            now = now + Duration::from_secs(seconds);
            if let Ok(next) = apply_event(&job, event, now) {
                ends += u32::from(job.is_active() && !next.job.is_active());
                job = next.job;
            }
        }
        prop_assert!(ends <= 1);
    }
}
