//! Random histories of jobs, pull requests and decisions.

use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Value, json};

use domain::decision::Decision;
use domain::feedback::{PullRequestRecord, PullRequestStatus};
use domain::issue::IssueRef;
use domain::job::{Job, JobKind, JobState};
use domain::time::Timestamp;

/// Start of the histories: in the middle of a month.
const BEGIN: &str = "2026-09-17T22:10:00Z";

/// Length of the histories, in minutes: ends of months and years are within.
pub(super) const MINUTES: u32 = 130 * 24 * 60;

pub(super) fn minute(minute: u32) -> Timestamp {
    Timestamp::parse(BEGIN).unwrap() + Duration::from_secs(60) * minute
}

/// Course of a job.
#[derive(Debug, Clone)]
pub(super) struct Course {
    /// Courses of one issue are attempts at it: a retry follows a failed or cancelled run.
    issue: u64,
    kind: JobKind,
    end: &'static str,
    team: &'static str,
    agent: Option<&'static str>,
    labels: Vec<&'static str>,
    pull: Option<u64>,
    cost: Option<f64>,
    is_shadow: bool,
    /// Minutes of the request, and until dispatch and end.
    trigger: u32,
    dispatch: u32,
    end_after: u32,
    /// Whether usage and agent arrive after the end.
    is_late: bool,
}

fn courses() -> impl Strategy<Value = Course> {
    let ends = vec![
        "completed",
        "review",
        "failed",
        "no-changes",
        "cancelled",
        "timed-out",
        "active",
    ];
    let facts = (
        0_u64..3,
        prop::sample::select(JobKind::ALL.to_vec()),
        prop::sample::select(ends),
        prop::sample::select(vec!["ENG", "OPS"]),
        prop::option::of(prop::sample::select(vec!["claude", "codex"])),
        prop::sample::subsequence(vec!["bug", "ui", "api"], 0..3),
        prop::option::of(1_u64..4),
        prop::option::of((0_u32..500).prop_map(|cents| f64::from(cents) / 100.0)),
        prop::bool::weighted(0.15),
    );
    let times = (0..MINUTES, 0_u32..3000, 1_u32..5000, any::<bool>());
    (facts, times).prop_map(
        |(
            (issue, kind, end, team, agent, labels, pull, cost, is_shadow),
            (trigger, dispatch, end_after, is_late),
        )| Course {
            issue,
            kind,
            end,
            team,
            agent,
            labels,
            pull,
            cost,
            is_shadow,
            trigger,
            dispatch,
            end_after,
            is_late,
        },
    )
}

impl Course {
    /// Rows of the job, one after the other.
    pub(super) fn rows(&self, number: usize) -> Vec<Job> {
        let id = format!("01J{number:04}");
        let at = |after: u32| minute(self.trigger + after);
        let row = json!({
            "id": id, "group": id, "kind": self.kind, "team": self.team, "runner": "ci", "shadow": self.is_shadow,
            "issue": issue(self.issue),
            "repo": {"owner": "acme", "name": "shop"}, "dispatchNumber": 1, "branch": "b",
            "callbacks": true, "minutes": 90, "state": {"status": "unknown"}, "labels": self.labels,
            "reservedAt": at(0), "triggeredAt": at(0),
        });
        let reserved: Job = serde_json::from_value(row).unwrap();
        let mut dispatched = reserved.clone();
        dispatched.state = JobState::Dispatched;
        dispatched.dispatched_at = Some(at(self.dispatch));
        // Work on an open pull request names it from the begin.
        let works_on_pull = self.kind.phase().is_none();
        let pull: Option<Value> = self
            .pull
            .map(|number| json!({"number": number, "url": "u"}));
        let pull = serde_json::from_value(json!(pull)).unwrap();
        let mut rows = vec![reserved, dispatched];
        if works_on_pull {
            rows.iter_mut().for_each(|row| row.pull.clone_from(&pull));
        }
        let Some(state) = self.state() else {
            return rows;
        };
        let mut ended = rows[1].clone();
        ended.state = state;
        ended.pull = pull.filter(|_| self.kind != JobKind::Planning);
        ended.finished_at = Some(at(self.dispatch + self.end_after));
        if self.end == "cancelled" {
            let then = ["stop", "retry"][number % 2];
            let cancellation = json!({"by": "owner", "then": then});
            ended.cancellation = serde_json::from_value(cancellation).unwrap();
        }
        let mut reported = ended.clone();
        reported.agent = self.agent.map(str::to_owned);
        reported.model = self.agent.map(|agent| format!("{agent}-1"));
        reported.usage = self
            .cost
            .map(|cost| serde_json::from_value(json!({"costUsd": cost})).unwrap());
        if self.is_late {
            rows.push(ended);
        }
        rows.push(reported);
        rows
    }

    fn state(&self) -> Option<JobState> {
        let state = match self.end {
            "completed" => json!({"status": "completed"}),
            "review" => json!({"status": "review_failed", "unresolved": []}),
            "failed" => json!({"status": "failed", "code": null, "reason": "r"}),
            "no-changes" => json!({"status": "failed", "code": "NO_CHANGES", "reason": "r"}),
            "cancelled" => json!({"status": "failed", "code": "CANCELLED", "reason": "r"}),
            "timed-out" => json!({"status": "timed_out", "reason": "run_not_found"}),
            _ => return None,
        };
        Some(serde_json::from_value(state).unwrap())
    }
}

/// Change of a pull request that the host reports.
#[derive(Debug, Clone)]
pub(super) enum HostReport {
    Closed,
    Merged(u32),
    Reopened,
    Opened(u32),
    Commits(u32),
}

fn host_reports() -> impl Strategy<Value = (u64, HostReport)> {
    let report = prop_oneof![
        Just(HostReport::Closed),
        (0..MINUTES).prop_map(HostReport::Merged),
        Just(HostReport::Reopened),
        (0..MINUTES).prop_map(HostReport::Opened),
        (0_u32..9).prop_map(HostReport::Commits),
    ];
    (1_u64..4, report)
}

impl HostReport {
    pub(super) fn apply(&self, record: &mut PullRequestRecord) {
        match self {
            HostReport::Closed => record.status = PullRequestStatus::Closed,
            HostReport::Reopened => record.status = PullRequestStatus::Open,
            HostReport::Merged(at) => {
                record.status = PullRequestStatus::Merged {
                    commit: "c".to_owned(),
                    at: minute(*at),
                }
            }
            HostReport::Opened(at) => record.created_at = Some(minute(*at)),
            HostReport::Commits(count) => record.human_commits = Some(*count),
        }
    }
}

/// Reference to an issue of the histories.
pub(super) fn issue(number: u64) -> IssueRef {
    let id = format!("issue-{number}");
    let row =
        json!({"system": "A", "id": id, "key": format!("ENG-{number}"), "title": "t", "url": "u"});
    serde_json::from_value(row).unwrap()
}

fn decisions() -> impl Strategy<Value = (u64, Decision)> {
    let outcomes = vec![
        ("waiting", Some("concurrency")),
        ("waiting", Some("blocked")),
        ("dispatched", None),
        ("in-progress", None),
    ];
    let parts = (
        0_u64..3,
        prop::sample::select(outcomes),
        prop::sample::select(vec![None, Some("planning"), Some("implementation")]),
        prop::sample::select(vec!["ENG", "OPS"]),
        0..MINUTES,
    );
    parts.prop_map(|(issue, (outcome, reason), phase, team, at)| {
        let row = json!({"at": minute(at), "issueIdentifier": format!("ENG-{issue}"), "teamKey": team,
            "outcome": outcome, "reason": reason, "message": format!("at {at}"), "phase": phase});
        (issue, serde_json::from_value(row).unwrap())
    })
}

#[derive(Debug, Clone)]
pub(super) enum Event {
    /// The next row of the job with this number.
    Job(usize),
    /// A report about the pull request with this number.
    Host(u64, HostReport),
    /// A decision about the issue with this number.
    Decision(u64, Decision),
    /// The service stops, and starts on the same file.
    Restart,
}

/// Jobs, and the events of a history in a random order.
pub(super) fn histories() -> impl Strategy<Value = (Vec<Course>, Vec<Event>)> {
    let parts = (
        prop::collection::vec(courses(), 0..14),
        prop::collection::vec(host_reports(), 0..14),
        prop::collection::vec(decisions(), 0..10),
        0_usize..3,
    );
    parts.prop_flat_map(|(courses, reports, decisions, restarts)| {
        let rows = courses.iter().enumerate();
        let of_jobs =
            rows.flat_map(|(number, course)| vec![Event::Job(number); course.rows(number).len()]);
        let of_host = reports
            .into_iter()
            .map(|(pull, report)| Event::Host(pull, report));
        let of_decisions = decisions
            .into_iter()
            .map(|(issue, decision)| Event::Decision(issue, decision));
        let others = of_host.chain(of_decisions);
        let others = others.chain(vec![Event::Restart; restarts]);
        let events: Vec<Event> = of_jobs.chain(others).collect();
        (Just(courses), Just(events).prop_shuffle())
    })
}
