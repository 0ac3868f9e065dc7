//! The usage limits of model providers: when runs go on that have met one.
//!
//! A limit belongs to an account, so everything that would use the same credentials waits with the
//! run that met it: for a run in CI these are the secrets of its repository; for machines and
//! containers the service's own, or those of the team where it has any. Whether two repositories
//! share an account cannot be seen from here; then each finds out by one run.
//!
//! What a run tells is not trusted. A time that has passed is a short wait, one far away is a long
//! one, and an issue whose runs do nothing but meet limits fails in the end like any other.

use std::time::Duration;

use crate::app::App;
use domain::ids::{Repo, TeamKey};
use domain::job::{Job, RunnerKind};
use domain::mapping::Mapping;
use domain::report::{FailureCode, ResultReport, RunOutcome};
use domain::runner_mode;
use domain::session_secrets::{SecretScope, variable_from_stored_name};
use domain::time::Timestamp;
use store::provider_limits::ProviderLimit;
use store::{ReadableTx, StoreResult, WriteTx, mappings, provider_limits, secrets};

/// How soon may anything go on at the earliest? Clocks differ, and a provider may take its time.
const SHORTEST: Duration = Duration::from_secs(60);

/// How long is anything held back at most? The longest limits that providers have are a week.
const LONGEST: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// How many runs in a row of one issue may meet a limit before it fails like any other? A task that
/// is too large for what a limit allows would go on for ever.
const MOST_IN_A_ROW: u32 = 5;

/// Variables that a team may bring model credentials of its own in; those of the service itself
/// cannot be replaced.
const OWN_KEYS: [&str; 4] = [
    "OPENAI_API_KEY",
    "CODEX_API_KEY",
    "GEMINI_API_KEY",
    "ANTHROPIC_BASE_URL",
];

/// The report as it counts: it says when to go on exactly if the run is to be taken up again then.
pub fn clamp_retry_at(
    tx: &impl ReadableTx,
    job: &Job,
    report: ResultReport,
    now: Timestamp,
) -> StoreResult<ResultReport> {
    let retry_at = match report.retry_at {
        Some(told) if is_taken_up_again(tx, job, &report)? => {
            Some(told.clamp(now + SHORTEST, now + LONGEST))
        }
        _ => None,
    };
    Ok(ResultReport { retry_at, ..report })
}

fn is_taken_up_again(tx: &impl ReadableTx, job: &Job, report: &ResultReport) -> StoreResult<bool> {
    let met = (RunOutcome::Failure, Some(FailureCode::ProviderLimit));
    if (report.outcome, report.failure_code) != met || job.shadow {
        return Ok(false);
    }
    let mapping = mappings::get(tx, &job.team)?;
    if mapping.is_none_or(|mapping| !mapping.resume_after_limit) {
        return Ok(false);
    }
    match job.kind.phase() {
        Some(phase) => Ok(provider_limits::hits(tx, &job.issue.id, phase)? < MOST_IN_A_ROW),
        // Work on a pull request has a budget of its own, or a person who asks for it.
        None => Ok(true),
    }
}

/// Notes what the end of a job says about limits.
pub fn record(tx: &WriteTx<'_>, job: &Job) -> StoreResult<()> {
    let phase = job.kind.phase().filter(|_| !job.shadow);
    match (job.resumes_at, phase) {
        (Some(until), phase) => {
            let limit = ProviderLimit {
                until,
                job: job.id.clone(),
            };
            let extra = mappings::get(tx, &job.team)?;
            let account = account(tx, job.runner, &job.repo, &job.team, extra.as_ref())?;
            provider_limits::record(tx, &account, &limit)?;
            phase.map_or(Ok(()), |phase| {
                provider_limits::count_hit(tx, &job.issue.id, phase)
            })
        }
        (None, Some(phase)) => provider_limits::reset_hits(tx, &job.issue.id, phase),
        (None, None) => Ok(()),
    }
}

/// Until when runs of this mapping would meet a limit that is known; none when they may start. One
/// that does not wait for limits is not held back by any.
pub fn limited_until(
    tx: &impl ReadableTx,
    app: &App,
    mapping: &Mapping,
    now: Timestamp,
) -> StoreResult<Option<Timestamp>> {
    if !mapping.resume_after_limit {
        return Ok(None);
    }
    let mode = app.runner_mode(tx)?;
    let Ok(placement) = runner_mode::choose_placement(mode, mapping, app.available_runners())
    else {
        return Ok(None);
    };
    let (repo, team) = (mapping.target_repo(), &mapping.team_key);
    let account = account(tx, placement.runner(), &repo, team, Some(mapping))?;
    provider_limits::until(tx, &account, now)
}

/// The name of the credentials that a run would reach its model with.
fn account(
    tx: &impl ReadableTx,
    runner: RunnerKind,
    repo: &Repo,
    team: &TeamKey,
    mapping: Option<&Mapping>,
) -> StoreResult<String> {
    if runner == RunnerKind::Ci {
        // The host does not care for case.
        return Ok(format!("repository {repo}").to_lowercase());
    }
    let is_key = |name: &str| OWN_KEYS.contains(&name);
    let in_env = mapping.is_some_and(|mapping| mapping.extra_env.keys().any(|name| is_key(name)));
    let scope = SecretScope::Team(team.clone());
    let mut stored = secrets::of_scope(tx, &scope)?.into_iter();
    let in_secrets =
        stored.any(|row| variable_from_stored_name(&scope, &row.stored_name).is_some_and(is_key));
    Ok(match in_env || in_secrets {
        true => format!("team {team}"),
        false => "service".to_owned(),
    })
}
