//! Whether each ticket of the demo came to the end that its story has.

use domain::decision::{Decision, WaitReason};
use domain::ids::IssueKey;
use domain::job::{Job, JobState, PullRequestRef};
use domain::report::FailureCode;
use engine::app::App;
use fake_vendors::FakeVendors;
use fake_vendors::demo::{DEMO_BLOCKED, DEMO_PLAIN, DEMO_PLANNED, DEMO_SECRET_LEAK};
use store::{ReadableTx, StoreResult, decisions, jobs};

/// What became of a ticket.
struct Outcome {
    /// Its last job.
    job: Option<Job>,
    decision: Option<Decision>,
}

/// What is to be said of each ticket in the end.
///
/// # Errors
/// The first ticket that came to another end, and to which.
pub(super) fn check(app: &App, town: &FakeVendors) -> Result<Vec<String>, String> {
    let outcome = |key| {
        let read = app.store.read(|tx| outcome(tx, key));
        read.map_err(|error| error.to_string())
    };
    Ok(vec![
        pull_request(town, DEMO_PLAIN, &outcome(DEMO_PLAIN)?)?,
        pull_request(town, DEMO_PLANNED, &outcome(DEMO_PLANNED)?)?,
        stopped_by_the_guard(town, DEMO_SECRET_LEAK, &outcome(DEMO_SECRET_LEAK)?)?,
        waiting(DEMO_BLOCKED, &outcome(DEMO_BLOCKED)?)?,
    ])
}

fn outcome(tx: &impl ReadableTx, key: &str) -> StoreResult<Outcome> {
    let latest = jobs::latest(tx, jobs::DISPATCH_LOG_SIZE)?.into_iter();
    let row = decisions::get(tx, &IssueKey::new(key))?;
    Ok(Outcome {
        job: { latest }.find(|job| job.issue.key.as_str() == key),
        decision: row.and_then(|row| row.current().cloned()),
    })
}

fn pull_request(town: &FakeVendors, key: &str, outcome: &Outcome) -> Result<String, String> {
    let job = dispatched(key, outcome)?;
    match (&job.state, &job.pull) {
        (JobState::Completed | JobState::ReviewFailed { .. }, Some(pull)) => {
            Ok(opened(town, job, pull))
        }
        _ => Err(another_end(job)),
    }
}

fn opened(town: &FakeVendors, job: &Job, pull: &PullRequestRef) -> String {
    let repo = town.github().repo(&job.repo.owner, &job.repo.name);
    let mut told = format!(
        "{} has its pull request: {}\n  branch {} of {}",
        job.issue.key, pull.url, job.branch, job.repo
    );
    if let Some(commit) = repo.commits(&job.branch).first() {
        let sha: String = commit.sha.chars().take(10).collect();
        let subject = commit.message.lines().next().unwrap_or_default();
        told.push_str(&format!("\n  commit {sha} {subject}"));
    }
    told
}

fn stopped_by_the_guard(
    town: &FakeVendors,
    key: &str,
    outcome: &Outcome,
) -> Result<String, String> {
    const BLOCKED: Option<FailureCode> = Some(FailureCode::SensitiveFilesBlocked);
    let job = dispatched(key, outcome)?;
    let JobState::Failed {
        code: BLOCKED,
        reason,
    } = &job.state
    else {
        return Err(another_end(job));
    };
    let repo = town.github().repo(&job.repo.owner, &job.repo.name);
    if repo.branch_head(&job.branch).is_some() {
        return Err(format!(
            "{key} was to push nothing, and there is {}",
            job.branch
        ));
    }
    let lines = reason.lines().skip(1).filter(|line| !line.is_empty());
    let files: String = lines.map(|line| format!("\n  {line}")).collect();
    Ok(format!(
        "{key} was kept from pushing a secret, as it should be.{files}"
    ))
}

fn waiting(key: &str, outcome: &Outcome) -> Result<String, String> {
    if let Some(job) = &outcome.job {
        return Err(another_end(job));
    }
    match &outcome.decision {
        Some(decision) if decision.reason == Some(WaitReason::Blocked) => {
            Ok(format!("{key} still waits. {}", decision.message))
        }
        Some(decision) => Err(format!(
            "{key} does not wait to be unblocked: {}",
            decision.message
        )),
        None => Err(format!("{key} was never looked at")),
    }
}

fn dispatched<'o>(key: &str, outcome: &'o Outcome) -> Result<&'o Job, String> {
    outcome.job.as_ref().ok_or_else(|| match &outcome.decision {
        Some(decision) => format!("{key} was not dispatched: {}", decision.message),
        None => format!("{key} was not dispatched"),
    })
}

fn another_end(job: &Job) -> String {
    let (key, kind) = (&job.issue.key, job.kind.as_str());
    match &job.state {
        JobState::Failed { reason, .. } => format!("the {kind} of {key} failed: {reason}"),
        state => format!("the {kind} of {key} is {}", state.status()),
    }
}
