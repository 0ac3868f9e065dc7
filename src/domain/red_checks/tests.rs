use std::collections::BTreeSet;
use std::time::Duration;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::feedback::{
    COMMIT_EMAIL, ChecksState, HeadCommit, PullRequestChecks, PullRequestReadiness,
};
use crate::ids::JobId;
use crate::time::Timestamp;

const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);

fn settings(value: &serde_json::Value) -> CiSettings {
    CiSettings::read(value).unwrap()
}

fn check(name: &str, conclusion: Option<&str>) -> HeadCheck {
    HeadCheck {
        name: name.to_owned(),
        app: "github-actions".to_owned(),
        outcome: CheckOutcome::of(conclusion),
        url: None,
        job: Some(ActionsJob {
            id: 1,
            run: Some(7),
            suite: None,
            ended_at: None,
        }),
        title: String::new(),
        summary: String::new(),
    }
}

fn keys(names: &[&str]) -> BTreeSet<CheckKey> {
    let key = |name: &&str| ((*name).to_owned(), "github-actions".to_owned());
    names.iter().map(key).collect()
}

#[test]
fn judges_all_checks_together() {
    let ci = settings(&json!({"ignore": ["preview*"]}));
    type Row<'a> = (&'a [(&'a str, Option<&'a str>)], &'a str);
    let rows: &[Row<'_>] = &[
        (&[], "green"),
        (&[("a", Some("success")), ("b", Some("skipped"))], "green"),
        (&[("a", Some("cancelled")), ("b", Some("stale"))], "green"),
        (&[("a", Some("failure"))], "red a"),
        (&[("a", Some("timed_out"))], "red a"),
        (&[("a", Some("error"))], "red a"),
        (&[("a", Some("failure")), ("b", None)], "pending"),
        (&[("a", Some("failure")), ("preview 1", None)], "red a"),
        (&[("preview 2", Some("failure"))], "green"),
        (&[("a", Some("action_required"))], "green"),
        (&[("gate", Some("action_required"))], "red gate"),
        (&[("gate", Some("startup_failure"))], "red gate"),
        (&[("old", Some("failure"))], "red on base old"),
        (
            &[
                ("b", Some("failure")),
                ("old", Some("failure")),
                ("a", Some("failure")),
            ],
            "red a, b on base old",
        ),
        (&[("a", Some("future_conclusion"))], "green"),
    ];
    for (checks, expected) in rows {
        let checks: Vec<HeadCheck> = checks.iter().map(|(name, end)| check(name, *end)).collect();
        let verdict = judge(&checks, &ci, &keys(&["gate"]), &keys(&["old"]));
        let shown = match verdict {
            HeadVerdict::Pending => "pending".to_owned(),
            HeadVerdict::Green => "green".to_owned(),
            HeadVerdict::Red { ours, inherited } => {
                let on_base = match inherited.is_empty() {
                    true => String::new(),
                    false => format!(" on base {}", inherited.join(", ")),
                };
                let ours = names(&ours).join(", ");
                format!("red {ours}{on_base}").replace("red  on", "red on")
            }
        };
        assert_eq!(shown, *expected, "{checks:?}");
    }
}

fn head(sha: &str, email: &str, parents: &[&str]) -> HeadCommit {
    HeadCommit {
        sha: sha.to_owned(),
        author_email: email.to_owned(),
        parents: parents.iter().map(|parent| (*parent).to_owned()).collect(),
    }
}

fn attempt(job: &str, fingerprint: &str) -> CiAttempt {
    CiAttempt {
        job: JobId::from(job),
        fingerprint: fingerprint.to_owned(),
        commit: None,
    }
}

fn record() -> CiRecord {
    CiRecord {
        head: Some("a".to_owned()),
        attempts: vec![attempt("1", "x")],
        stop: Some(CiStop::SameFailure),
        unsettled: Some(JobId::from("1")),
        ..CiRecord::default()
    }
}

#[test]
fn only_the_commit_of_a_person_begins_anew() {
    let rows = [
        (head("a", "mia@example.com", &[]), false, true),
        (head("b", COMMIT_EMAIL, &["a"]), true, true),
        (head("b", "github@example.com", &["a", "main"]), true, true),
        (head("b", "mia@example.com", &["a"]), false, false),
        (head("b", "", &["a", "main"]), false, false),
    ];
    for (head, is_ours, is_continued) in rows {
        let moved = record().at_head(&head, is_ours);
        let is_kept = moved.attempts.len() == 1 && moved.stop.is_some();
        assert_eq!(is_kept, is_continued, "{head:?}");
        assert_eq!(moved.head.as_deref(), Some(head.sha.as_str()));
    }
    let stopped = CiStatus::Stopped {
        checks: Vec::new(),
        reason: CiStop::SameFailure,
    };
    for (status, after) in [
        (CiStatus::Quiet, CiStatus::Quiet),
        (stopped, CiStatus::Unjudged),
    ] {
        let ci = CiRecord { status, ..record() };
        let ci = ci.at_head(&head("b", "mia@example.com", &["a"]), false);
        assert_eq!(ci.status, after);
        // Checks that run stop nothing again.
        let pending = readiness("b", Some(ChecksState::Pending));
        assert_eq!(
            ci.next_step_unread(&pending, None, NOW),
            Some(CiStep::Settle(after))
        );
    }
    let pushed = record().at_head(&head("b", COMMIT_EMAIL, &["a"]), true);
    assert_eq!(pushed.attempts[0].commit.as_deref(), Some("b"));
}

fn run(attempt: u64, is_completed: bool, has_succeeded: bool) -> ActionsRun {
    ActionsRun {
        id: 7,
        attempt,
        is_completed,
        has_succeeded,
    }
}

#[test]
fn decides_step_by_step() {
    let red = HeadVerdict::Red {
        ours: vec![check("test", Some("failure"))],
        inherited: Vec::new(),
    };
    let checks = vec!["test".to_owned()];
    let fresh = || CiRecord {
        head: Some("a".to_owned()),
        ..CiRecord::default()
    };
    let rerun = || CiRecord {
        rerun: Some(CiRerun {
            head: "a".to_owned(),
            runs: vec![7],
            checks: checks.clone(),
            at: NOW - Duration::from_secs(60),
            is_settled: false,
        }),
        ..fresh()
    };
    let repair = |attempt, of| CiStep::Repair {
        checks: checks.clone(),
        attempt,
        of,
    };
    let stopped = |reason| {
        CiStep::Settle(CiStatus::Stopped {
            checks: checks.clone(),
            reason,
        })
    };
    let again = CiStep::Rerun {
        runs: vec![7],
        checks: checks.clone(),
    };
    let (default, off, never) = (json!({}), json!({"rerun": false}), json!({"attempts": 0}));
    let tried = |count: usize| CiRecord {
        attempts: (0..count).map(|at| attempt(&at.to_string(), "x")).collect(),
        ..rerun()
    };
    let first = [run(1, true, false)];
    let second = [run(2, true, false)];
    let rows = [
        (
            "first red",
            fresh(),
            &default,
            &first[..],
            false,
            again.clone(),
        ),
        ("rerun off", fresh(), &off, &first, false, repair(1, 2)),
        (
            "no attempts, but a rerun",
            fresh(),
            &never,
            &first,
            false,
            again,
        ),
        (
            "no attempts",
            rerun(),
            &never,
            &second,
            false,
            stopped(CiStop::Off),
        ),
        (
            "rerun by a person",
            fresh(),
            &default,
            &second,
            false,
            repair(1, 2),
        ),
        (
            "no run of Actions",
            fresh(),
            &default,
            &[],
            false,
            repair(1, 2),
        ),
        (
            "run still going",
            fresh(),
            &default,
            &[run(1, false, false)],
            false,
            CiStep::Wait,
        ),
        (
            "request pending",
            rerun(),
            &default,
            &first,
            true,
            CiStep::Wait,
        ),
        (
            "rerun going",
            rerun(),
            &default,
            &[run(2, false, false)],
            false,
            CiStep::Wait,
        ),
        (
            "old listing",
            rerun(),
            &default,
            &[run(2, true, true)],
            false,
            CiStep::Wait,
        ),
        ("red again", rerun(), &default, &second, false, repair(1, 2)),
        (
            "rerun refused",
            rerun(),
            &default,
            &first,
            false,
            repair(1, 2),
        ),
        (
            "second attempt",
            tried(1),
            &default,
            &second,
            false,
            repair(2, 2),
        ),
        (
            "last attempt",
            tried(2),
            &default,
            &second,
            false,
            stopped(CiStop::AttemptsUsed),
        ),
        (
            "stopped before",
            CiRecord {
                stop: Some(CiStop::SameFailure),
                ..fresh()
            },
            &default,
            &first,
            false,
            stopped(CiStop::SameFailure),
        ),
    ];
    for (name, record, value, runs, is_rerun_pending, expected) in rows {
        let settings = settings(value);
        let situation = CiSituation {
            settings: &settings,
            jobs: &[],
            runs,
            is_rerun_pending,
            now: NOW,
        };
        assert_eq!(record.next_step(&red, &situation), expected, "{name}");
        assert_eq!(
            record.next_step(&HeadVerdict::Pending, &situation),
            CiStep::Wait
        );
        let green = record.next_step(&HeadVerdict::Green, &situation);
        assert_eq!(green, CiStep::Settle(CiStatus::Quiet));
    }
}

fn readiness(sha: &str, state: Option<ChecksState>) -> PullRequestReadiness {
    PullRequestReadiness {
        head: Some(head(sha, COMMIT_EMAIL, &[])),
        checks: state.map(|state| PullRequestChecks {
            state,
            failed: u64::from(state == ChecksState::Failure),
            total: 2,
        }),
        ..PullRequestReadiness::default()
    }
}

#[test]
fn an_unchanged_pull_request_is_not_due() {
    let red = readiness("a", Some(ChecksState::Failure));
    let judged = record().judged(&red, CiStatus::Quiet);
    assert!(record().is_due(&red, NOW) && !judged.is_due(&red, NOW));
    for changed in [
        readiness("b", Some(ChecksState::Failure)),
        readiness("a", Some(ChecksState::Success)),
        readiness("a", None),
        PullRequestReadiness {
            base: Some("main".to_owned()),
            ..red.clone()
        },
    ] {
        assert!(judged.is_due(&changed, NOW), "{changed:?}");
    }
    // A record of an older version has no head commit.
    assert!(!CiRecord::default().is_due(&PullRequestReadiness::default(), NOW));
    let hour = Duration::from_secs(3600);
    let waiting = record().waiting(&red, Some(NOW - hour), NOW);
    assert!(!waiting.is_due(&red, NOW + Duration::from_secs(300)));
    assert!(waiting.is_due(&red, NOW + Duration::from_secs(360)));
    let due = CiStatus::Due {
        checks: Vec::new(),
        attempt: 1,
        of: 2,
    };
    let due = record().judged(&red, due);
    assert!(due.is_due(&red, NOW) && !due.must_be_read(&red, NOW));
}

#[test]
fn success_and_running_checks_need_no_request() {
    let step = |state, age: u64, status| {
        let record = CiRecord { status, ..record() };
        let seen_at = Some(NOW - Duration::from_secs(age));
        record.next_step_unread(&readiness("a", state), seen_at, NOW)
    };
    let red = || CiStatus::Rerunning {
        checks: vec!["test".to_owned()],
    };
    let quiet = Some(CiStep::Settle(CiStatus::Quiet));
    assert_eq!(step(Some(ChecksState::Success), 0, red()), quiet);
    assert_eq!(
        step(Some(ChecksState::Pending), 0, red()),
        Some(CiStep::Settle(red()))
    );
    assert_eq!(step(Some(ChecksState::Failure), 0, red()), None);
    assert_eq!(step(None, 30, red()), Some(CiStep::Wait));
    assert_eq!(step(None, 3600, red()), quiet);
    assert_eq!(step(None, 30, CiStatus::Quiet), quiet);
}

#[test]
fn a_passed_check_of_a_rerun_is_flaky_once() {
    let names =
        |names: &[&str]| -> Vec<String> { names.iter().map(|name| (*name).to_owned()).collect() };
    let rerun = CiRerun {
        head: "a".to_owned(),
        runs: vec![7],
        checks: names(&["lint", "test"]),
        at: NOW,
        is_settled: false,
    };
    let mut ci = CiRecord {
        rerun: Some(rerun.clone()),
        ..record()
    };
    assert_eq!(ci.flaky_checks(&names(&["test"])), names(&["lint"]));
    ci = ci.with_rerun_settled(names(&["lint"]), NOW);
    assert_eq!(ci.flaky_checks(&[]), names(&[]));
    assert_eq!(ci.flakes.len(), 1);
    ci.stop = None;
    assert_eq!(
        ci.message().unwrap(),
        "Flaky: lint passed when it ran again"
    );
    for _ in 0..20 {
        ci.rerun = Some(rerun.clone());
        ci = ci.with_rerun_settled(names(&["lint"]), NOW);
    }
    assert!(ci.flakes.len() <= 5);
}

#[test]
fn names_the_first_check_and_counts_the_others() {
    let status = |names: &[&str]| CiStatus::Repairing {
        checks: names.iter().map(|name| (*name).to_owned()).collect(),
        attempt: 1,
        of: 2,
    };
    for (names, message) in [
        (
            &["test (linux)"][..],
            "CI is red: test (linux), attempt 1 of 2",
        ),
        (&["a", "b", "c"], "CI is red: a and 2 more, attempt 1 of 2"),
    ] {
        assert_eq!(status(names).message().unwrap(), message);
    }
    let hostile = check(&format!("x\n\u{202e}{}", "y".repeat(500)), Some("failure"));
    let shown = names(&[hostile]).remove(0);
    assert!(
        shown.len() <= 130 && !shown.contains(['\n', '\u{202e}']),
        "{shown}"
    );
}

proptest! {
    #[test]
    fn a_stop_lasts_until_a_person_pushes(heads in prop::collection::vec((any::<bool>(), 0_u8..4), 1..20)) {
        let mut ci = record();
        let mut is_stopped = true;
        for (is_of_run, number) in heads {
            let sha = number.to_string();
            let email = if is_of_run { COMMIT_EMAIL } else { "mia@example.com" };
            let is_moved = ci.head.as_deref() != Some(sha.as_str());
            ci = ci.at_head(&head(&sha, email, &[]), is_of_run);
            is_stopped &= is_of_run || !is_moved;
            prop_assert_eq!(ci.stop.is_some(), is_stopped);
        }
    }
}
