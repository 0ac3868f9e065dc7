//! What runs and GitHub have reported: steps, logs, and the state of pull requests.

use std::fmt::Write as _;
use std::time::Duration;

use domain::feedback::{
    ChecksState, PullRequestChecks, PullRequestId, PullRequestReadiness, PullRequestStatus,
    ReviewDecision,
};
use domain::ids::JobId;
use domain::job::Job;
use domain::report::StepRecord;
use domain::time::Timestamp;
use serde_json::{Value, json};
use store::run_logs::NewLines;
use store::{StoreResult, WriteTx, jobs, pull_feedback, run_logs, steps};

use super::fixtures::RUNNING_JOB_ID;
use super::take_over::put_evidence;

/// ID of a job that failed with steps and a log.
pub const FAILED_JOB_ID: &str = "01M68989";

/// Commit that closed the merged pull requests.
const MERGE_COMMIT: &str = "9fceb02d0ae598e95dc970b74767f19372d61af8";

/// Inserts the steps and logs of two jobs, and the state of all pull requests.
pub fn insert(tx: &WriteTx<'_>, jobs: &[Job], now: Timestamp) -> StoreResult<()> {
    for job in jobs {
        match job.id.as_str() {
            FAILED_JOB_ID => {
                insert_failed_run(tx, job)?;
                put_evidence(tx, &job.id, now)?;
            }
            RUNNING_JOB_ID => {
                let from = job.started_at.unwrap_or(job.reserved_at);
                append_log(tx, &job.id, &log(from, &[("clone", 12), ("install", 40)]))?;
            }
            _ => {}
        }
    }
    let with_pull = jobs.iter().filter(|job| job.pull.is_some());
    with_pull
        .enumerate()
        .try_for_each(|(n, job)| update_pull(tx, job, n, now))
}

fn insert_failed_run(tx: &WriteTx<'_>, job: &Job) -> StoreResult<()> {
    let refused = [
        "registry.npmjs.org:443",
        "169.254.169.254:80",
        "a-cache-with-a-very-long-name.artifacts.eu-central-1.internal.example.com:8443",
    ];
    let job = &Job {
        refused_hosts: refused.map(str::to_owned).into(),
        ..job.clone()
    };
    jobs::put(tx, job)?;
    let from = job.started_at.unwrap_or(job.reserved_at);
    let rows = failed_steps();
    for (order, (id, status, offset, seconds, outputs)) in (0..).zip(rows) {
        let parent = id.contains('.').then_some("feedback-loop");
        let kind = id.split('.').next();
        let step = json!({
            "id": id, "type": kind, "status": status, "parent_step_id": parent,
            "started_at": from + Duration::from_secs(offset), "elapsed_ms": seconds * 1000,
            "outputs": outputs,
        });
        let step = StepRecord::parse(Some(step)).unwrap();
        steps::put(tx, &job.id, &step, order)?;
    }
    let sections = [
        ("clone", 14),
        ("install", 60),
        ("implement.1", 240),
        ("verify.1", 90),
        ("review.1", 30),
        ("implement.2", 80),
        ("push", 3),
    ];
    let mut text = log(from, &sections);
    let last = (from + Duration::from_secs(376)).to_string();
    let refusal =
        "\u{1b}[31mError: push blocked: 1 sensitive file would be committed (.env)\u{1b}[0m";
    writeln!(text, "{last} {refusal}").ok();
    append_log(tx, &job.id, &text)
}

/// Steps of a failed run: id, status, offset and length in seconds, and outputs.
fn failed_steps() -> [(&'static str, &'static str, u64, u64, Value); 9] {
    let pass = |number: u64, turns: u64, cost: f64, seconds: u64| json!({"pass": number, "promptBytes": 18_400 + 900 * number, "turns": turns, "costUsd": cost, "durationMs": seconds * 1000});
    let mut planned = pass(1, 23, 0.41, 140);
    planned["plan"] = json!(
        "1. Read how orders are listed in src/orders.\n2. Add an exporter that streams rows as CSV.\n3. Cover it with tests, and link it from the list of orders."
    );
    let finding = json!({"severity": "blocking", "file": "src/orders/export.rs", "line": 41, "text": "The total is rounded twice."});
    let mut reviewed = pass(2, 6, 0.09, 38);
    reviewed["blocking"] = json!(["The total is rounded twice. (src/orders/export.rs:41)"]);
    reviewed["findings"] = json!([finding]);
    let guard = json!([{"path": ".env", "line": 3, "rule": "environment-file", "text": "Environment files hold credentials.", "blocking": true}]);
    [
        ("clone", "passed", 0, 2, Value::Null),
        ("install", "passed", 2, 31, Value::Null),
        (
            "setup",
            "skipped",
            33,
            0,
            json!({"reason": "The repository has no setup script."}),
        ),
        ("feedback-loop", "passed", 33, 340, Value::Null),
        ("implement.1", "passed", 33, 140, planned),
        (
            "verify.1",
            "passed",
            173,
            64,
            json!({"command": "cargo test", "exitCode": 0}),
        ),
        ("review.1", "passed", 237, 38, reviewed),
        ("implement.2", "passed", 275, 98, pass(3, 9, 0.17, 98)),
        (
            "push",
            "failed",
            373,
            3,
            json!({"reason": "Push blocked: 1 sensitive file would be committed: .env", "guard": guard}),
        ),
    ]
}

/// Log with a number of lines per step, as a run sends it.
fn log(from: Timestamp, sections: &[(&str, u64)]) -> String {
    let mut text = String::new();
    let mut at = from;
    for (step, lines) in sections {
        writeln!(text, "{at} ##[step] {step}").ok();
        for line in 0..*lines {
            at = at + Duration::from_millis(640);
            let message =
                match line % 5 {
                    0 => format!("$ cargo test --package orders -- case_{line}"),
                    1 => "   \u{1b}[1;32mCompiling\u{1b}[0m orders v0.4.2 (/home/dev/orders)"
                        .to_owned(),
                    2 => format!("running {} tests", line + 3),
                    3 => format!("test cart::keeps_items_{line} ... \u{1b}[32mok\u{1b}[0m"),
                    _ => "test result: ok. 42 passed; 0 failed; 1 ignored; finished in 0.31s"
                        .to_owned(),
                };
            writeln!(text, "{at} {message}").ok();
        }
    }
    text
}

/// Appends whole lines to the log of a job.
pub fn append_log(tx: &WriteTx<'_>, job: &JobId, text: &str) -> StoreResult<()> {
    let before = run_logs::get(tx, job)?;
    let known = before.clone().unwrap_or_default();
    let lines = NewLines {
        text,
        received: known.received + text.len() as u64,
        private_key: known.private_key,
        step_marks: known.step_marks,
        last_line_at: known.updated_at,
        now: known.updated_at,
    };
    let prepared = run_logs::prepare(tx, job, before, lines)?;
    assert!(run_logs::append(tx, job, &prepared)?);
    Ok(())
}

/// Reports the state of the pull request of a job, of every kind in turn.
fn update_pull(tx: &WriteTx<'_>, job: &Job, n: usize, now: Timestamp) -> StoreResult<()> {
    let Some(pull) = &job.pull else { return Ok(()) };
    let pull = PullRequestId::new(&job.repo, pull.number);
    let opened = job.finished_at.unwrap_or(now);
    let merged_at = opened + Duration::from_secs(5400 + 1200 * n as u64);
    let status = match n % 5 {
        2 | 3 if merged_at < now => PullRequestStatus::Merged {
            commit: MERGE_COMMIT.to_owned(),
            at: merged_at,
        },
        4 if n > 5 => PullRequestStatus::Closed,
        _ => PullRequestStatus::Open,
    };
    let failed = u64::from(n % 3 == 1) * 2;
    let checks = PullRequestChecks {
        state: match n % 3 {
            0 => ChecksState::Success,
            1 => ChecksState::Failure,
            _ => ChecksState::Pending,
        },
        failed,
        total: 7,
    };
    let review_decision = match n % 4 {
        0 => ReviewDecision::Approved,
        1 => ReviewDecision::ChangesRequested,
        _ => ReviewDecision::ReviewRequired,
    };
    let mut record = pull_feedback::get_pull(tx, &pull)?;
    record.status = status;
    record.draft = Some(false);
    record.created_at = Some(opened);
    record.human_commits = Some(n as u32 % 3);
    record.readiness = PullRequestReadiness {
        checks: Some(checks),
        review_decision: Some(review_decision),
        mergeable: Some(true),
        ..PullRequestReadiness::default()
    };
    pull_feedback::put_pull(tx, &pull, &record)
}
