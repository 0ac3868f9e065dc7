//! Data in the stores of the benchmarks.

use std::path::Path;
use std::sync::LazyLock;
use std::time::{Duration, SystemTime};

use anyhow::{Result, anyhow};
use domain::effect::Effect;
use domain::feedback::{PullRequestId, PullRequestRecord, PullRequestStatus};
use domain::ids::Repo;
use domain::issue::{IssueRef, System};
use domain::job::{Job, JobKind, JobState, PullRequestRef, RunnerKind};
use domain::mapping::{Mapping, MappingInput};
use domain::report::StepRecord;
use domain::stage::Stage;
use domain::time::Timestamp;
use serde_json::json;
use store::{Store, StoreResult, jobs, outbox, pull_feedback, steps};

/// Id of the running job.
pub const RUNNING_JOB_ID: &str = "01BENCH";

/// Start of the first job in a store: the last of 100,000 jobs started just now.
static FIRST_START: LazyLock<Timestamp> = LazyLock::new(|| {
    let since_epoch = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    Timestamp::EPOCH + since_epoch - Duration::from_secs(60) * 100_000
});

/// Number of projects that the jobs belong to.
const PROJECTS: usize = 20;

/// Number of jobs per commit while a store is filled.
const BATCH: usize = 2_000;

/// Builds the running job.
pub fn running_job() -> Job {
    Job {
        id: RUNNING_JOB_ID.into(),
        group: RUNNING_JOB_ID.into(),
        state: JobState::Running,
        finished_at: None,
        pull: None,
        ..ended_job(0)
    }
}

/// Builds the completed job with this number.
pub fn ended_job(number: usize) -> Job {
    let id = format!("01BENCH{number:019}");
    let began = *FIRST_START + Duration::from_secs(60) * u32::try_from(number).unwrap_or(u32::MAX);
    let pull = 1 + number as u64;
    Job {
        id: id.as_str().into(),
        group: id.as_str().into(),
        kind: JobKind::Implementation,
        issue: IssueRef {
            system: System::Linear,
            id: format!("issue-{number}").as_str().into(),
            key: format!("ENG-{number}").as_str().into(),
            title: "Make the checkout remember the address".into(),
            url: format!("https://tickets.test/ENG-{number}"),
            marker_field: None,
        },
        team: match number % PROJECTS {
            0 => "ENG".into(),
            project => format!("T{project}").as_str().into(),
        },
        repo: Repo::new("acme", "shop"),
        runner: RunnerKind::Ci,
        shadow: false,
        session_image: None,
        dispatch_number: 1,
        attempt: Some(1),
        branch: format!("agent-implement/eng-{number}"),
        has_callbacks: true,
        timeout_minutes: 90,
        state: JobState::Completed,
        run: None,
        pull: PullRequestRef::from_url(&format!("https://github.com/acme/shop/pull/{pull}")),
        conclusion: None,
        cancellation: None,
        start_refusal_status: None,
        reserved_at: began,
        dispatched_at: Some(began),
        started_at: Some(began),
        run_ended_at: None,
        finished_at: Some(began + Duration::from_secs(600)),
        usage: None,
        agent: Some(["claude", "codex"][number % 2].to_owned()),
        model: Some(format!("model-{}", number % 7)),
        labels: vec![format!("area-{}", number % 11)],
        triggered_at: Some(began),
        nonce_hash: None,
        machine_destroyed_at: None,
        trigger_stage: None,
        agents: Default::default(),
        resumes_at: None,
        merge: None,
        failure_reported: false,
        result_accepted: true,
        unconfirmed_result: None,
        refused_hosts: Vec::new(),
    }
}

/// Key of the issue with many runs.
pub const BUSY_ISSUE: &str = "BUSY-1";

/// Adds runs of one issue. They are older than all others.
pub async fn add_busy_issue(store: &Store, runs: usize) -> Result<()> {
    let put = move |tx: &store::WriteTx<'_>| {
        let group = busy_id(0);
        (0..runs).try_for_each(|number| {
            let mut job = ended_job(0);
            (job.id, job.group) = (busy_id(number).as_str().into(), group.as_str().into());
            (job.issue.id, job.issue.key) = ("issue-busy".into(), BUSY_ISSUE.into());
            jobs::put(tx, &job)
        })
    };
    Ok(store.write(put).await?)
}

fn busy_id(number: usize) -> String {
    format!("00BUSY{number:020}")
}

/// Adds updates of the status labels of 1,000 issues to the outbox.
pub async fn add_updates(store: &Store, updates: usize) -> Result<()> {
    let put = move |tx: &store::WriteTx<'_>| {
        (0..updates).try_for_each(|number| {
            let effect = Effect::SetMarker {
                issue: ended_job(number % 1_000).issue,
                stage: Stage::Implementing,
            };
            outbox::push(tx, &effect, *FIRST_START).map(drop)
        })
    };
    Ok(store.write(put).await?)
}

/// Builds a step as runs report it.
pub fn step(number: u64) -> StepRecord {
    StepRecord {
        id: format!("step-{number:08}"),
        kind: "feedback-loop".into(),
        status: "running".into(),
        started_at: "2027-01-15T08:00:00.000Z".into(),
        ended_at: None,
        elapsed_ms: Some(1200),
        parent_step_id: None,
        outputs: Some(json!({"iteration": 1, "findings": ["one", "two"]})),
        logs_url: None,
    }
}

/// Number of jobs per pull request that is still open.
const JOBS_PER_OPEN_PULL: usize = 500;

/// Fills a store with completed jobs of five steps each. Most of their pull requests were merged.
pub async fn fill_store(store: &Store, count: usize) -> Result<()> {
    for first in (0..count).step_by(BATCH) {
        let batch = first..(first + BATCH).min(count);
        let put = move |tx: &store::WriteTx<'_>| {
            for number in batch.clone() {
                let job = ended_job(number);
                jobs::put(tx, &job)?;
                for at in 0..5 {
                    steps::put(tx, &job.id, &step(at), at)?;
                }
                if number % JOBS_PER_OPEN_PULL > 0 {
                    merge_pull(tx, &job)?;
                }
            }
            Ok(())
        };
        store.write(put).await?;
    }
    Ok(())
}

fn merge_pull(tx: &store::WriteTx<'_>, job: &Job) -> StoreResult<()> {
    let Some(PullRequestRef { number, .. }) = job.pull else {
        return Ok(());
    };
    let pull = PullRequestId {
        repo: job.repo.clone(),
        number,
    };
    let status = PullRequestStatus::Merged {
        commit: format!("{number:040x}"),
        at: job.finished_at.unwrap_or_default(),
    };
    let record = PullRequestRecord {
        status,
        ..pull_feedback::get_pull(tx, &pull)?
    };
    pull_feedback::put_pull(tx, &pull, &record)
}

/// Builds the mapping of team `key`.
pub fn mapping(key: &str) -> Result<Mapping> {
    let body = json!({
        "teamKey": key, "owner": "acme", "repo": "shop", "defaultBranch": "main",
        "ticketingProvider": "A", "maxInProgressAiIssues": 50,
    });
    let input = MappingInput::read(body).map_err(|error| anyhow!("{error:?}"))?;
    let valid = input.validate(None, Timestamp::EPOCH);
    valid.map_err(|error| anyhow!("{error:?}"))
}

/// Returns the size of the files in a folder, in MB.
pub fn dir_size_mb(dir: &Path) -> Result<f64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(dir)? {
        bytes += entry?.metadata()?.len();
    }
    Ok(bytes as f64 / 1e6)
}
