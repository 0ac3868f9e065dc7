//! Guide for a person who takes over an issue: branch, pull request, last run, open findings and kept patch.

use std::time::Duration;

use tokio::time::timeout;

use crate::app::App;
use crate::take_over::{KnownIssue, Named, TakeOverError};
use domain::feedback::{PullRequestId, PullRequestStatus, ReviewFindingState};
use domain::ids::Repo;
use domain::job::{Job, JobState, RunHandle};
use domain::mapping::Mapping;
use domain::run_details::{RunDetails, RunFindingState};
use domain::take_over_guide::{
    MAX_FINDINGS, TakeOverFinding, TakeOverGuide, TakeOverGuidePatch, TakeOverPull, TakeOverRun,
    branch_commands, limited,
};
use store::{
    ReadableTx, StoreResult, decisions, jobs, mappings, patches, pull_feedback, steps, take_overs,
};

/// Timeout of the question whether a branch exists.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum length of a failure reason, in bytes.
const MAX_REASON: usize = 4_000;

/// Collects what a person needs to continue an issue by hand, whether or not somebody has it.
///
/// # Errors
/// Fails if the issue or pull request is not known, or if the store cannot be read.
pub async fn load(app: &App, named: &Named) -> Result<TakeOverGuide, TakeOverError> {
    let target = named.clone();
    let read = app.core.store.read_long(move |tx| match read(tx, &target) {
        Err(TakeOverError::Store(error)) => Err(error),
        read => Ok(read),
    });
    let (mut guide, unknown_branch) = read.await??;
    if let Some((repo, branch)) = unknown_branch {
        guide.branch_exists = branch_exists(app, &repo, &branch).await;
    }
    let base = guide.base_branch.as_deref();
    let base = base.or_else(|| guide.branch_exists.then_some(""));
    if let (Some(branch), Some(base)) = (&guide.branch, base) {
        guide.commands = branch_commands(branch, base, guide.branch_exists);
    }
    Ok(guide)
}

/// Asks the repository host whether a branch exists. True if it does not answer: then `git fetch` says so.
async fn branch_exists(app: &App, repo: &Repo, branch: &str) -> bool {
    let Some(github) = &app.vendors.github else {
        return true;
    };
    match timeout(LOOKUP_TIMEOUT, github.branch_sha(repo, branch)).await {
        Ok(Ok(found)) => found.is_some(),
        Ok(Err(error)) => {
            tracing::warn!(%repo, branch, %error, "Failed to look up the branch of an issue that a person takes over.");
            true
        }
        Err(_) => true,
    }
}

/// Branch whose existence the store does not know.
type UnknownBranch = Option<(Repo, String)>;

fn read(
    tx: &impl ReadableTx,
    named: &Named,
) -> Result<(TakeOverGuide, UnknownBranch), TakeOverError> {
    let known = KnownIssue::find(tx, named)?;
    let take_over = take_overs::get(tx, &known.issue.id)?;
    let mapping = mapping_of(tx, &known)?;
    let pull = known.pull.clone();
    let last = known.jobs.last();
    let repo = last.map(|job| job.repo.clone());
    let repo = repo.or_else(|| Some(mapping.as_ref()?.target_repo()));
    let branch = last.map(|job| job.branch.clone());
    let branch = branch.filter(|branch| !branch.is_empty());
    let unknown_branch = match (&pull, &repo, &branch) {
        (None, Some(repo), Some(branch)) => Some((repo.clone(), branch.clone())),
        _ => None,
    };
    let details = match last {
        Some(job) => RunDetails::from_steps(&steps::of_job(tx, &job.id)?),
        None => RunDetails::default(),
    };
    let guide = TakeOverGuide {
        taken: take_over.is_some(),
        taken_by: take_over.as_ref().map(|take_over| take_over.by.clone()),
        taken_at: take_over.as_ref().map(|take_over| take_over.at),
        issue_identifier: known.issue.key.clone(),
        issue_title: known.issue.title.clone(),
        issue_url: known.issue.url.clone(),
        repo: repo.map(|repo| repo.to_string()),
        branch,
        branch_exists: pull.is_some(),
        base_branch: mapping.map(|mapping| mapping.default_branch),
        commands: Vec::new(),
        pull_request: match &pull {
            Some(pull) => view_of_pull(tx, pull)?,
            None => None,
        },
        findings: findings(tx, pull.as_ref(), last, &details)?,
        last_run: match last {
            Some(job) => Some(view_of_run(tx, job, &known.jobs, &details)?),
            None => None,
        },
        patch: kept_patch(tx, &known)?,
    };
    Ok((guide, unknown_branch))
}

/// Mapping of the issue: that of its last run, else of the latest decision.
fn mapping_of(tx: &impl ReadableTx, known: &KnownIssue) -> StoreResult<Option<Mapping>> {
    let team = match known.jobs.last() {
        Some(job) => Some(job.team.clone()),
        None => decisions::get(tx, &known.issue.key)?
            .and_then(|history| Some(history.current()?.team_key.clone())),
    };
    team.map_or(Ok(None), |team| mappings::get(tx, &team))
}

fn view_of_pull(tx: &impl ReadableTx, pull: &PullRequestId) -> StoreResult<Option<TakeOverPull>> {
    let of_pull = jobs::of_pull(tx, &pull.repo, pull.number)?;
    let row = pull_feedback::get_pull(tx, pull)?;
    let url = of_pull.into_iter().rev().find_map(|job| job.pull);
    Ok(url.map(|named| TakeOverPull {
        url: named.url,
        number: pull.number,
        state: row.status.as_str().to_owned(),
        checks: row
            .readiness
            .checks
            .filter(|_| row.status == PullRequestStatus::Open),
        review_decision: row.readiness.review_decision,
    }))
}

fn view_of_run(
    tx: &impl ReadableTx,
    job: &Job,
    all: &[Job],
    details: &RunDetails,
) -> StoreResult<TakeOverRun> {
    let failure_reason = match &job.state {
        JobState::Failed { reason, .. } => Some(limited(reason, MAX_REASON)),
        _ => None,
    };
    let mut summary = details.summary.clone();
    // A run that changed nothing, or was not started, has none.
    let mut earlier = all.iter().rev().skip(1);
    while summary.is_none()
        && let Some(job) = earlier.next()
    {
        summary = RunDetails::from_steps(&steps::of_job(tx, &job.id)?).summary;
    }
    Ok(TakeOverRun {
        job_id: job.id.clone(),
        kind: job.kind,
        active: job.is_active(),
        status: job.state.status().to_owned(),
        failure_reason: failure_reason.filter(|reason| !reason.is_empty()),
        summary,
        url: match &job.run {
            Some(RunHandle::Ci { url, .. }) => Some(url.clone()).filter(|url| !url.is_empty()),
            _ => None,
        },
    })
}

/// Findings of people that no run has resolved, then those that the last review left open.
fn findings(
    tx: &impl ReadableTx,
    pull: Option<&PullRequestId>,
    last: Option<&Job>,
    details: &RunDetails,
) -> StoreResult<Vec<TakeOverFinding>> {
    let mut findings = Vec::new();
    if let Some(pull) = pull {
        // A finding that several runs could not resolve is left to people.
        let is_open = |state: &ReviewFindingState| {
            !matches!(
                state,
                ReviewFindingState::Resolved { .. } | ReviewFindingState::Withdrawn
            )
        };
        let mut of_people = pull_feedback::findings_of_pull(tx, pull)?;
        of_people.sort_by_key(|(_, finding)| (finding.seen_at, finding.comment.id));
        let of_people = of_people.iter().map(|(_, finding)| finding);
        findings.extend(of_people.filter(|one| is_open(&one.state)).map(|one| {
            let comment = &one.comment;
            let author = Some(comment.author.name());
            TakeOverFinding::new(author, comment.path.as_deref(), comment.line, &comment.body)
        }));
    }
    let open = details.review_findings.iter();
    let mut open: Vec<TakeOverFinding> = open
        .filter(|finding| finding.state == RunFindingState::Open)
        .map(|one| TakeOverFinding::new(None, one.file.as_deref(), one.line, &one.text))
        .collect();
    if let (true, Some(JobState::ReviewFailed { unresolved })) =
        (open.is_empty(), last.map(|job| &job.state))
    {
        open.extend(
            unresolved
                .iter()
                .map(|line| TakeOverFinding::new(None, None, None, line)),
        );
    }
    findings.extend(open);
    findings.truncate(MAX_FINDINGS);
    Ok(findings)
}

/// Patch of the latest run that kept one. A run that pushed its work makes earlier patches obsolete.
fn kept_patch(tx: &impl ReadableTx, known: &KnownIssue) -> StoreResult<Option<TakeOverGuidePatch>> {
    for job in known.jobs.iter().rev() {
        if let Some(patch) = patches::get(tx, &job.id)? {
            let (issue, id) = (&known.issue.key, job.id.clone());
            return Ok(Some(TakeOverGuidePatch::new(issue, id, patch.len())));
        }
        if matches!(
            job.state,
            JobState::Completed | JobState::ReviewFailed { .. }
        ) {
            break;
        }
    }
    Ok(None)
}
