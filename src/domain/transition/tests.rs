use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::effect::LogLabel;
use crate::ids::{IssueId, IssueKey, JobId, Repo, TeamKey};
use crate::issue::{IssueRef, System};
use crate::job::JobKind;
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
        branch: "agent-implement/eng-1-title".into(),
        has_callbacks: true,
        timeout_minutes: 90,
        state,
        run: dispatched.then(ci_run),
        pull: None,
        conclusion: None,
        start_refusal_status: None,
        reserved_at: NOW - Duration::from_secs(60),
        dispatched_at: dispatched.then_some(NOW - Duration::from_secs(50)),
        started_at: None,
        run_ended_at: None,
        finished_at: None,
        usage: None,
        nonce_hash: None,
        failure_reported: false,
        machine_destroyed_at: None,
        trigger_stage: None,
        resumes_at: None,
        result_accepted: false,
        unconfirmed_result: None,
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
        patch: None,
        run_id: None,
    }
}

fn markers(owed: &PlannedEffects) -> Vec<Stage> {
    let stage = |effect: &Effect| match effect {
        Effect::SetMarker { stage, .. } => Some(*stage),
        _ => None,
    };
    owed.effects.iter().filter_map(stage).collect()
}

fn labels(owed: &PlannedEffects) -> Vec<LogLabel> {
    let label = |effect: &Effect| match effect {
        Effect::LogExcerpt { label, .. } => Some(*label),
        _ => None,
    };
    owed.effects.iter().filter_map(label).collect()
}

/// What happened, of a comment about a failure.
fn happened(body: &str) -> String {
    let (happened, _) = body
        .split_once("\n\n**What to do:** ")
        .unwrap_or((body, ""));
    happened.to_owned()
}

fn ticket_says(owed: &PlannedEffects) -> Vec<String> {
    let body = |effect: &Effect| match effect {
        Effect::TicketComment { body, .. } => Some(happened(body)),
        _ => None,
    };
    owed.effects.iter().filter_map(body).collect()
}

fn running(kind: JobKind) -> Job {
    job(kind, RunnerKind::Ci, JobState::Running)
}

#[test]
fn a_started_run_shows_on_the_ticket_and_in_the_chat() {
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
fn each_end_leaves_the_ticket_as_the_lifecycle_says() {
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
    for (kind, event, status, stages, said, dedup) in rows {
        let late = NOW + Duration::from_secs(2 * 60 * 60);
        let next = apply_event(&running(kind), event.clone(), late).unwrap();
        assert_eq!(next.job.state.status(), status, "{kind:?} {event:?}");
        assert_eq!(next.job.finished_at, Some(late));
        assert_eq!(markers(&next.planned), stages, "{kind:?} {event:?}");
        assert_eq!(ticket_says(&next.planned), said, "{kind:?} {event:?}");
        assert_eq!(next.planned.dedup, dedup, "{kind:?} {event:?}");
    }
}

#[test]
fn failed_work_on_a_pull_request_is_told_there() {
    let said = |owed: &PlannedEffects| {
        let comment = |effect: &Effect| match effect {
            Effect::PullComment { number, body, .. } => Some((*number, happened(body))),
            _ => None,
        };
        owed.effects.iter().filter_map(comment).collect::<Vec<_>>()
    };
    let ends = |event: JobEvent| {
        let mut works = running(JobKind::GapFill);
        works.pull = PullRequestRef::from_url("https://host/acme/shop/pull/4");
        apply_event(&works, event, NOW + Duration::from_secs(2 * 60 * 60)).unwrap()
    };
    let reported = |outcome| JobEvent::ResultReported {
        report: report(outcome),
    };
    let failed = ends(reported(RunOutcome::Failure));
    assert_eq!(
        said(&failed.planned),
        [(4, "Gap fill failed: it broke".to_owned())]
    );
    assert_eq!(
        failed.job.pull.map(|pull| pull.number),
        Some(4),
        "a run has no say in which pull request it works on"
    );
    let budget = "Gap fill failed: the run exceeded its time budget of 90 minutes";
    assert_eq!(
        said(&ends(JobEvent::Tick).planned),
        [(4, budget.to_owned())]
    );
    assert_eq!(said(&ends(reported(RunOutcome::Success)).planned), []);
    let ticket = apply_event(
        &running(JobKind::Implementation),
        reported(RunOutcome::Failure),
        NOW,
    );
    assert_eq!(said(&ticket.unwrap().planned), []);
}

#[test]
fn what_the_run_says_is_posted_in_order_after_the_marker() {
    let said = ["first", "second"]
        .map(|body| RunComment { body: body.into() })
        .to_vec();
    let report = ResultReport {
        comments: said,
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
    assert_eq!(ticket_says(&next.planned), ["first", "second"]);
    assert_eq!(next.planned.plan, PlanUpdate::Replace);
}

#[test]
fn what_a_run_says_is_harmless_and_no_flood() {
    let mut said = vec![RunComment { body: " ".into() }];
    said.extend((0..40).map(|_| RunComment {
        body: "@everyone".into(),
    }));
    let report = ResultReport {
        comments: said,
        ..report(RunOutcome::Failure)
    };
    let next = apply_event(
        &running(JobKind::Planning),
        JobEvent::ResultReported { report },
        NOW,
    )
    .unwrap();
    let says = ticket_says(&next.planned);
    assert_eq!(says.len(), limits::MAX_RUN_COMMENTS + 1, "and the failure");
    assert!(says.iter().all(|said| !said.contains("@everyone")));
    assert_eq!(
        next.planned.plan,
        PlanUpdate::Keep,
        "what failed is no plan"
    );
}

#[test]
fn an_end_without_report_is_judged_after_the_grace_by_conclusion_and_pull_request() {
    let ended = |conclusion: &str, pull: Option<PullRequestRef>| JobEvent::RunEnded {
        run: ci_run(),
        conclusion: conclusion.into(),
        pull: pull.map(|pull| (pull, DraftState::Ready)),
    };
    let noted = apply_event(
        &running(JobKind::Implementation),
        ended("success", None),
        NOW,
    )
    .unwrap();
    assert_eq!(noted.job.state, JobState::Running);
    assert!(noted.planned.effects.is_empty());
    assert_eq!(
        apply_event(
            &noted.job,
            ended("success", None),
            NOW + Duration::from_secs(119)
        ),
        Err(EventRejection::NoChange)
    );

    let later = NOW + limits::REPORT_GRACE;
    let pull = PullRequestRef::from_url("https://host/acme/shop/pull/7");
    let found = apply_event(&noted.job, ended("success", pull), later).unwrap();
    assert_eq!(found.job.state, JobState::Completed);
    let none = apply_event(&noted.job, ended("success", None), later).unwrap();
    assert_eq!(none.job.state.status(), "failed");
    assert_eq!(labels(&none.planned), [LogLabel::PrNotFound]);
    for (conclusion, status) in [
        ("timed_out", "timed_out"),
        ("cancelled", "failed"),
        ("startup_failure", "failed"),
    ] {
        let next = apply_event(&noted.job, ended(conclusion, None), later).unwrap();
        assert_eq!(next.job.state.status(), status, "{conclusion}");
    }
}

#[test]
fn without_callbacks_the_end_is_judged_at_once() {
    let mut silent = running(JobKind::Implementation);
    silent.has_callbacks = false;
    let event = JobEvent::RunEnded {
        run: ci_run(),
        conclusion: "success".into(),
        pull: None,
    };
    assert_eq!(
        apply_event(&silent, event, NOW).unwrap().job.state.status(),
        "failed"
    );
}

#[test]
fn a_draft_without_a_report_was_not_approved() {
    let mut silent = running(JobKind::Implementation);
    silent.has_callbacks = false;
    let pull = PullRequestRef::from_url("https://host/acme/shop/pull/7");
    for (conclusion, draft, status) in [
        ("success", DraftState::Draft, "review_failed"),
        ("success", DraftState::Ready, "completed"),
        ("failure", DraftState::Draft, "failed"),
    ] {
        let event = JobEvent::RunEnded {
            conclusion: conclusion.into(),
            pull: pull.clone().zip(Some(draft)),
            run: ci_run(),
        };
        let next = apply_event(&silent, event, NOW).unwrap();
        assert_eq!(next.job.state.status(), status, "{conclusion} {draft:?}");
        let says = ticket_says(&next.planned);
        let told = says.iter().any(|said| said.contains("stays a draft"));
        assert_eq!(told, status == "review_failed", "{says:?}");
    }
}

#[test]
fn a_run_that_met_the_providers_limit_leaves_its_issue_as_it_found_it() {
    let until = NOW + Duration::from_secs(3600);
    let met = |retry_at| JobEvent::ResultReported {
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
    for (kind, asked_at, back) in rows {
        let job = Job {
            trigger_stage: asked_at,
            ..running(kind)
        };
        let Transition { job, planned: owed } = apply_event(&job, met(Some(until)), NOW).unwrap();
        assert_eq!(
            (job.state.status(), job.resumes_at),
            ("failed", Some(until))
        );
        assert_eq!(markers(&owed), [back]);
        assert_eq!(
            (owed.breaker, owed.dedup),
            (BreakerUpdate::Keep, DedupUpdate::Clear)
        );
        assert_eq!(ticket_says(&owed).len(), 1, "{owed:?}");
        assert!(labels(&owed).is_empty(), "its log says no more");
    }
    // A session's ticket hears it once as well, and its machine goes.
    let machine = Job {
        run: Some(RunHandle::Machine {
            id: "m1".into(),
            log_url: None,
        }),
        ..job(JobKind::Implementation, RunnerKind::Vm, JobState::Running)
    };
    let next = apply_event(&machine, met(Some(until)), NOW).unwrap();
    assert_eq!(ticket_says(&next.planned).len(), 1);
    let is_taken_down = |effect: &Effect| matches!(effect, Effect::DestroyMachine { .. });
    assert!(next.planned.effects.iter().any(is_taken_down));
    // Without a time it is a failure like any other, and nobody's fault.
    let next = apply_event(&running(JobKind::Implementation), met(None), NOW).unwrap();
    assert_eq!(next.job.resumes_at, None);
    assert_eq!(markers(&next.planned), [Stage::ImplementationFailed]);
    assert_eq!(next.planned.breaker, BreakerUpdate::Keep);
    // On a pull request it is told there.
    let pull = PullRequestRef::from_url("https://host/acme/shop/pull/7");
    let follow_up = Job {
        pull,
        ..running(JobKind::FollowUp)
    };
    let next = apply_event(&follow_up, met(Some(until)), NOW).unwrap();
    let told = |effect: &Effect| match effect {
        Effect::PullComment { body, .. } => body.starts_with("Follow-up paused"),
        _ => false,
    };
    assert!(next.planned.effects.iter().any(told), "{:?}", next.planned);
}

#[test]
fn passing_causes_and_cancelled_runs_do_not_count_against_the_breaker() {
    let refused = |cause| JobEvent::StartRejected {
        kind: cause,
        status: Some(422),
        reason: "no".into(),
    };
    let fresh = job(JobKind::Implementation, RunnerKind::Ci, JobState::Reserved);
    assert_eq!(
        apply_event(&fresh, refused(FailureKind::Permanent), NOW)
            .unwrap()
            .planned
            .breaker,
        BreakerUpdate::CountFailure
    );
    assert_eq!(
        apply_event(&fresh, refused(FailureKind::Transient), NOW)
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
        JobEvent::Cancelled { by: "ann".into() },
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
        "the in-progress marker goes, the trigger stays"
    );
}

#[test]
fn a_run_found_after_the_end_is_owed_its_end_once() {
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
fn a_shadow_run_owes_nothing_but_its_own_end() {
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
fn a_session_tells_its_ticket_and_its_log_is_read_before_its_machine_goes() {
    let begun = job(JobKind::Implementation, RunnerKind::Vm, JobState::Reserved);
    let run = RunHandle::Machine {
        id: "m1".into(),
        log_url: Some("https://log".into()),
    };
    let started = JobEvent::Started { run: Some(run) };
    let next = apply_event(&begun, started, NOW).unwrap();
    let said = ticket_says(&next.planned);
    assert!(said[0].starts_with("Session machine created. "), "{said:?}");
    assert!(said[0].ends_with("[log](https://log)"), "{said:?}");

    let hour = Duration::from_secs(u64::from(begun.timeout_minutes) * 60);
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
    let lanes: Vec<String> = next.planned.effects.iter().map(Effect::queue_key).collect();
    assert_eq!(lanes[3], lanes[6], "one waits for the other");
    assert_ne!(lanes[3], lanes[4], "it is stopped at once");
    assert_ne!(
        lanes[3], lanes[2],
        "the ticket's next run waits for neither"
    );

    let gone = apply_event(&next.job, JobEvent::MachineDestroyed, later).unwrap();
    let said = ticket_says(&gone.planned);
    assert_eq!(said.len(), 1);
    assert!(said[0].starts_with("Session machine cleaned up. Duration: "));
    let again = apply_event(&gone.job, JobEvent::MachineDestroyed, later);
    assert_eq!(again, Err(EventRejection::NoChange));
}

#[test]
fn a_failure_that_the_session_told_is_not_told_again() {
    for (failure_told, count) in [(false, 2), (true, 1)] {
        let mut job = job(
            JobKind::Implementation,
            RunnerKind::Local,
            JobState::Running,
        );
        job.run = Some(RunHandle::Container { id: "c1".into() });
        job.failure_reported = failure_told;
        let event = JobEvent::ResultReported {
            report: report(RunOutcome::Failure),
        };
        let next = apply_event(&job, event, NOW).unwrap();
        assert_eq!(ticket_says(&next.planned).len(), count);
    }
}

#[test]
fn a_run_that_says_its_time_was_used_up_has_timed_out() {
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
        let work = job(JobKind::Implementation, runner, JobState::Running);
        let next = apply_event(&work, event, NOW).unwrap();
        assert_eq!(next.job.state, JobState::TimedOut { reason });
        assert_eq!(labels(&next.planned), [label]);
        let says = ticket_says(&next.planned);
        assert!(
            says.last().unwrap().ends_with("time budget of 90 minutes"),
            "{says:?}"
        );
        assert_eq!(
            says.iter().any(|said| said.contains("Session timed out: ")),
            runner != RunnerKind::Ci
        );
        let stopped = |effect: &Effect| matches!(effect, Effect::StopRun { .. });
        assert!(
            !next.planned.effects.iter().any(stopped),
            "it ends by itself"
        );
    }
}

#[test]
fn a_run_that_its_host_cut_off_has_timed_out() {
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
        run: ci_run(),
    };
    for (minutes, status) in [(30, "failed"), (87, "failed"), (89, "timed_out")] {
        for (event, callbacks) in [(&reported, true), (&ended, false)] {
            let work = Job {
                started_at: Some(NOW - MINUTE * minutes),
                has_callbacks: callbacks,
                ..running(JobKind::Implementation)
            };
            let next = apply_event(&work, event.clone(), NOW).unwrap();
            assert_eq!(next.job.state.status(), status, "{minutes} {event:?}");
        }
    }
}

#[test]
fn a_plan_is_done_whatever_its_report_leaves_open() {
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
        Just(RunnerKind::Local)
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
    const WORDS: [&str; 6] = [
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
                let mut said = report(outcome);
                said.pr_url = said.pr_url.filter(|_| opened);
                said.failure_code = failure_code;
                said.unresolved = if blocked { vec!["b".into()] } else { vec![] };
                JobEvent::ResultReported { report: said }
            }),
        (prop::sample::select(&WORDS[..]), any::<bool>(), any_draft()).prop_map(
            move |(word, opened, draft)| {
                JobEvent::RunEnded {
                    run: ci_run(),
                    conclusion: word.into(),
                    pull: pull.clone().filter(|_| opened).zip(Some(draft)),
                }
            }
        ),
        Just(JobEvent::RunMissing),
        Just(JobEvent::MachineDestroyed),
        Just(JobEvent::Tick),
        Just(JobEvent::Cancelled { by: "op".into() }),
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

    /// One step, from every state by every event.
    #[test]
    fn one_step_keeps_the_rules(job in any_job(), event in any_event(), seconds in 0u64..10_000) {
        let now = NOW + Duration::from_secs(seconds);
        let Ok(next) = apply_event(&job, event.clone(), now) else { return Ok(()) };
        prop_assert!(rank(&next.job.state) >= rank(&job.state), "a job never goes back");
        if event == JobEvent::MachineDestroyed {
            prop_assert_eq!(&next.job.state, &job.state, "it says nothing about the run");
            prop_assert!(next.planned.effects.len() <= 1);
            return Ok(());
        }
        if !job.is_active() {
            prop_assert_eq!(&next.job.state, &job.state, "a terminal state never changes");
            let only_its_end = next.planned.effects.iter().all(|effect| matches!(effect, Effect::StopRun { .. } | Effect::DestroyMachine { .. }));
            prop_assert!(only_its_end);
        }
        prop_assert_eq!(next.job.finished_at.is_some(), job.finished_at.is_some() || (job.is_active() && !next.job.is_active()));
        prop_assert!(markers(&next.planned).len() <= 1);
        if job.kind.phase().is_none() || job.shadow {
            prop_assert!(markers(&next.planned).is_empty());
            prop_assert_eq!(next.planned.dedup, DedupUpdate::Keep);
        }
        let failed = matches!(next.job.state, JobState::Failed { .. } | JobState::TimedOut { .. });
        if job.is_active() && failed && job.kind.phase().is_some() && !job.shadow {
            prop_assert_eq!(next.planned.dedup, DedupUpdate::Clear, "a failed run frees its issue");
        }
    }

    /// A life: whatever comes in whatever order, a job ends at most once.
    #[test]
    fn a_life_ends_once(job in any_job(), events in prop::collection::vec((any_event(), 0u64..4_000), 1..30)) {
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
