//! `/api/pulls`: pull requests opened by runs. See docs/behaviour.md#pull-requests.

use schemars::JsonSchema;
use serde::Serialize;

use crate::routing::{ApiResult, Route, ok};
use domain::feedback::{
    PullRequestChecks, PullRequestId, PullRequestRecord, PullRequestStatus, ReviewDecision,
    ReviewFindingState,
};
use domain::ids::{IssueKey, JobId, TeamKey};
use domain::job::{Job, JobState};
use domain::time::Timestamp;
use engine::app::{App, ReconciliationStats};
use engine::pull_requests::merge::{self, MergeView};
use store::{ReadableTx, StoreResult, jobs, pull_feedback, take_overs};

/// Maximum number of pull requests listed, those with the latest runs first.
const MAX_PULLS: usize = 500;

/// Routes of `/api/pulls`.
pub(super) fn routes() -> Vec<Route> {
    vec![Route::get("/api/pulls", "listPulls", list).returns::<PullsView>()]
}

async fn list(app: App) -> ApiResult {
    let now = app.core.now();
    let pulls = app.core.store().read_long(move |tx| read(tx, now)).await?;
    let reconciliation = ReconciliationView::from(app.live.reconciliation.stats());
    Ok(ok(&PullsView {
        pulls,
        reconciliation,
    }))
}

fn read(tx: &impl ReadableTx, now: Timestamp) -> StoreResult<Vec<PullView>> {
    let mut views = Vec::new();
    for pull in jobs::latest_pulls(tx, MAX_PULLS)? {
        views.extend(view(tx, &pull, now)?);
    }
    Ok(views)
}

/// Loads a pull request; `None` if no job knows it.
pub(super) fn view(
    tx: &impl ReadableTx,
    pull: &PullRequestId,
    now: Timestamp,
) -> StoreResult<Option<PullView>> {
    let of_pull = jobs::of_pull(tx, &pull.repo, pull.number)?;
    let Some((job, pull_ref)) = of_pull
        .last()
        .and_then(|job| Some((job, job.pull.as_ref()?)))
    else {
        return Ok(None);
    };
    let record = pull_feedback::get_pull(tx, pull)?;
    let take_over = take_overs::get(tx, &job.issue.id)?;
    let take_over = take_over.filter(|_| record.status == PullRequestStatus::Open);
    let waiting = pull_feedback::unresolved(tx, pull)?;
    let waiting = waiting
        .iter()
        .filter(|(_, finding)| !matches!(finding.state, ReviewFindingState::InProgress { .. }));
    Ok(Some(PullView {
        pr_url: pull_ref.url.clone(),
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
        draft: is_draft(&record, job),
        pr_state: record.is_reported().then(|| record.status.as_str()),
        state: record.status.as_str(),
        checks: ChecksView::of(&record),
        review_decision: record.readiness.review_decision,
        mergeable: record.readiness.mergeable,
        taken_by: take_over.as_ref().map(|one| one.by.clone()),
        taken_at: take_over.map(|one| one.at),
        created_at: record.created_at,
        findings_waiting: waiting.count(),
        merge: merge::view(tx, pull, job, record, now)?.into(),
    }))
}

/// Returns the status of the last run, reduced to the four values of this route.
fn status(state: &JobState) -> &'static str {
    match state {
        JobState::Reserved | JobState::Dispatched | JobState::Running => "running",
        JobState::Completed => "completed",
        JobState::ReviewFailed { .. } => "review_failed",
        JobState::Failed { .. } | JobState::TimedOut { .. } => "failed",
    }
}

/// Whether the pull request is a draft: as the last run left it or, without an ended run, as GitHub last
/// reported.
fn is_draft(row: &PullRequestRecord, job: &Job) -> bool {
    match job.state {
        JobState::ReviewFailed { .. } => true,
        JobState::Completed => false,
        _ => row.draft.unwrap_or_default(),
    }
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Pulls")]
struct PullsView {
    #[schemars(length(max = MAX_PULLS))]
    pulls: Vec<PullView>,
    #[serde(rename = "healing")]
    /// Reconciliation that finds feedback missed by webhooks, counted since the start of the service.
    reconciliation: ReconciliationView,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Pull")]
pub(super) struct PullView {
    pr_url: String,
    #[schemars(range(min = 1))]
    pr_number: u64,
    repo: String,
    team_key: TeamKey,
    issue_identifier: IssueKey,
    issue_title: String,
    issue_url: String,
    /// Status of the last run.
    #[schemars(extend("enum" = ["running", "completed", "failed", "review_failed"]))]
    job_status: &'static str,
    /// Number of runs on this pull request.
    #[schemars(range(min = 1))]
    iterations: usize,
    last_dispatched_at: Timestamp,
    /// Id of the last run.
    job_id: JobId,
    draft: bool,
    /// `open`, `merged` or `closed`, as last reported by GitHub. `None` if GitHub has not reported it yet.
    #[schemars(extend("enum" = ["open", "merged", "closed", null]))]
    pr_state: Option<&'static str>,
    /// As `prState`; `open` if GitHub has not reported it yet.
    #[schemars(extend("enum" = ["open", "merged", "closed"]))]
    state: &'static str,
    /// Checks of the last commit, as last reported by GitHub. `None` if it has none.
    checks: Option<ChecksView>,
    /// Decision of the reviewers, as last reported by GitHub. `None` without a review and without required reviews.
    review_decision: Option<ReviewDecision>,
    /// Whether it has no merge conflict, as last reported by GitHub. `None` if that is not known.
    mergeable: Option<bool>,
    /// Merge by the policy of the project.
    merge: PullMergeView,
    /// Person who continues the work by hand.
    taken_by: Option<String>,
    /// Time since when the person has it.
    taken_at: Option<Timestamp>,
    /// Creation time. `None` if GitHub has not reported it yet.
    created_at: Option<Timestamp>,
    /// Number of review findings that wait for a follow-up run.
    findings_waiting: usize,
}

/// Merge of a pull request by policy. All fields are empty if people merge.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "PullMerge")]
struct PullMergeView {
    /// `refused`: a rule refuses the merge. `armed`: GitHub merges once its own requirements are met. `queued`: in
    /// GitHub's merge queue. `merged`: merged by policy. `None` if nothing is decided.
    #[schemars(extend("enum" = ["refused", "armed", "queued", "merged", null]))]
    state: Option<&'static str>,
    /// Name of the rule that refuses, or that has granted, the merge.
    rule: Option<&'static str>,
    /// Sentence. Of a refusal, it begins with the name of the rule.
    message: Option<String>,
    /// SHA of the head commit that the decision is about.
    head: Option<String>,
    /// Logins of the people whose approvals of that head counted.
    approved_by: Vec<String>,
}

impl From<MergeView> for PullMergeView {
    fn from(view: MergeView) -> Self {
        let MergeView {
            state,
            rule,
            message,
            head,
            approved_by,
        } = view;
        Self {
            state,
            rule,
            message,
            head,
            approved_by,
        }
    }
}

/// Checks of the head commit of a pull request.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Checks")]
struct ChecksView {
    #[serde(flatten)]
    counts: PullRequestChecks,
    /// What is done about failing checks, e.g. `CI is red: test (linux), attempt 1 of 2`. `None` if none fails, or if
    /// that was not looked at yet.
    message: Option<String>,
}

impl ChecksView {
    fn of(record: &PullRequestRecord) -> Option<Self> {
        let is_open = record.status == PullRequestStatus::Open;
        Some(Self {
            counts: record.readiness.checks?,
            message: record.ci.message().filter(|_| is_open),
        })
    }
}

/// Statistics since the start of the reconciliation that finds feedback missed by webhooks.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Reconciliation")]
struct ReconciliationView {
    sweeps: u64,
    last_swept_at: Option<Timestamp>,
    #[serde(rename = "looks")]
    pulls_checked: u64,
    #[serde(rename = "found")]
    missed_events: u64,
}

impl From<ReconciliationStats> for ReconciliationView {
    fn from(stats: ReconciliationStats) -> Self {
        let ReconciliationStats {
            sweeps,
            last_swept_at,
            pulls_checked,
            missed_events,
        } = stats;
        Self {
            sweeps,
            last_swept_at,
            pulls_checked,
            missed_events,
        }
    }
}
