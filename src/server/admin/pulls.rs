//! `/api/pulls`: the pull requests that our runs have opened.

use serde::Serialize;
use warp::http::Method;
use warp::{Filter, path};

use crate::routing::{
    ApiResult, Routes, ok, one_of, reject_other_methods, require_admin, with_app,
};
use domain::feedback::{PullRequestId, PullRequestRecord, ReviewFindingState};
use domain::ids::{IssueKey, JobId, TeamKey};
use domain::job::{Job, JobState};
use domain::time::Timestamp;
use engine::app::{App, ReconciliationStats};
use store::{ReadableTx, StoreResult, jobs, pull_feedback};

/// How many are told; those with the latest runs.
const TOLD: usize = 500;

/// Routes of `/api/pulls`.
pub fn routes(app: &App) -> Routes {
    let all = path!("api" / "pulls").boxed();
    one_of([
        all.clone()
            .and(require_admin(app, Method::GET))
            .and(with_app(app))
            .then(list)
            .boxed(),
        reject_other_methods(&all, [Method::GET]),
    ])
}

async fn list(app: App) -> ApiResult {
    let pulls = app.store.read_long(read).await?;
    let healing = HealingView::from(app.reconciliation.stats());
    Ok(ok(&PullsView { pulls, healing }))
}

fn read(tx: &impl ReadableTx) -> StoreResult<Vec<PullView>> {
    let mut views = Vec::new();
    for pull in jobs::latest_pulls(tx, TOLD)? {
        views.extend(view(tx, &pull)?);
    }
    Ok(views)
}

fn view(tx: &impl ReadableTx, pull: &PullRequestId) -> StoreResult<Option<PullView>> {
    let of_pull = jobs::of_pull(tx, &pull.repo, pull.number)?;
    let Some((job, opened)) = of_pull
        .last()
        .and_then(|job| Some((job, job.pull.as_ref()?)))
    else {
        return Ok(None);
    };
    let row = pull_feedback::get_pull(tx, pull)?;
    let waiting = pull_feedback::unresolved(tx, pull)?;
    let waiting = waiting
        .iter()
        .filter(|(_, one)| !matches!(one.state, ReviewFindingState::InProgress { .. }));
    Ok(Some(PullView {
        pr_url: opened.url.clone(),
        pr_number: pull.number,
        repo: pull.repo.to_string(),
        team_key: job.team.clone(),
        issue_identifier: job.issue.key.clone(),
        issue_title: job.issue.title.clone(),
        issue_url: job.issue.url.clone(),
        job_status: status(&job.state),
        iterations: of_pull.len(),
        last_dispatched_at: job.dispatched_at.unwrap_or(job.reserved_at),
        job_id: job.id.clone(),
        draft: is_draft(&row, job),
        state: row.status.as_str(),
        findings_waiting: waiting.count(),
    }))
}

/// The spec knows four words here. (spec: *Other records*)
fn status(state: &JobState) -> &'static str {
    match state {
        JobState::Reserved | JobState::Dispatched | JobState::Running => "running",
        JobState::Completed => "completed",
        JobState::ReviewFailed { .. } => "review_failed",
        JobState::Failed { .. } | JobState::TimedOut { .. } => "failed",
    }
}

/// As the last run left it; without one that has ended, as the host told last.
fn is_draft(row: &PullRequestRecord, job: &Job) -> bool {
    match job.state {
        JobState::ReviewFailed { .. } => true,
        JobState::Completed => false,
        _ => row.draft.unwrap_or_default(),
    }
}

#[derive(Serialize)]
struct PullsView {
    pulls: Vec<PullView>,
    healing: HealingView,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PullView {
    pr_url: String,
    pr_number: u64,
    repo: String,
    team_key: TeamKey,
    issue_identifier: IssueKey,
    issue_title: String,
    issue_url: String,
    job_status: &'static str,
    /// Runs that this pull request has had.
    iterations: usize,
    last_dispatched_at: Timestamp,
    job_id: JobId,
    draft: bool,
    /// `open`, `merged` or `closed`, as the host told last.
    state: &'static str,
    /// Feedback that waits for a follow-up.
    findings_waiting: usize,
}

/// Looks for what no webhook told, since the start.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct HealingView {
    sweeps: u64,
    last_swept_at: Option<Timestamp>,
    looks: u64,
    found: u64,
}

impl From<ReconciliationStats> for HealingView {
    fn from(healed: ReconciliationStats) -> Self {
        let ReconciliationStats {
            sweeps,
            last_swept_at,
            pulls_checked: looks,
            missed_events: found,
        } = healed;
        Self {
            sweeps,
            last_swept_at,
            looks,
            found,
        }
    }
}
