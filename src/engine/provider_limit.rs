//! Usage limits of model providers: time at which affected runs resume.
//!
//! A limit applies to an account, so all runs with the same credentials wait together. CI runs use
//! the secrets of their repository; machines and containers use the credentials of the service, or
//! those of the team if it has its own. Two repositories may share an account unnoticed; then a run
//! of each meets the limit.
//!
//! The time that a run reports is not trusted: it is clamped to a range, and an issue whose runs
//! repeatedly meet limits fails in the end.

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

/// Minimum wait. Clocks differ, and a provider may need some time.
const MIN_WAIT: Duration = Duration::from_secs(60);

/// Maximum wait. The longest known limits of providers last a week.
const MAX_WAIT: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// Maximum number of consecutive runs of one issue that may meet a limit. After that the issue
/// fails: its task may be too large for the limit.
const MAX_CONSECUTIVE_HITS: u32 = 5;

/// Variables in which a team may provide its own model credentials. Those of the service cannot be
/// replaced.
const TEAM_CREDENTIALS: [&str; 4] = [
    "OPENAI_API_KEY",
    "CODEX_API_KEY",
    "GEMINI_API_KEY",
    "ANTHROPIC_BASE_URL",
];

/// Clamps the retry time of a report. Removes it unless the run resumes after the limit.
///
/// # Errors
/// Fails if the store cannot be read.
pub(crate) fn clamp_retry_at(
    tx: &impl ReadableTx,
    job: &Job,
    report: ResultReport,
    now: Timestamp,
) -> StoreResult<ResultReport> {
    let retry_at = match report.retry_at {
        Some(reported) if resumes_after_limit(tx, job, &report)? => {
            Some(reported.clamp(now + MIN_WAIT, now + MAX_WAIT))
        }
        _ => None,
    };
    Ok(ResultReport { retry_at, ..report })
}

fn resumes_after_limit(
    tx: &impl ReadableTx,
    job: &Job,
    report: &ResultReport,
) -> StoreResult<bool> {
    let limit_hit = (RunOutcome::Failure, Some(FailureCode::ProviderLimit));
    if (report.outcome, report.failure_code) != limit_hit || job.shadow {
        return Ok(false);
    }
    let mapping = mappings::get(tx, &job.team)?;
    if mapping.is_none_or(|mapping| !mapping.resume_after_limit) {
        return Ok(false);
    }
    match job.kind.phase() {
        Some(phase) => Ok(provider_limits::hits(tx, &job.issue.id, phase)? < MAX_CONSECUTIVE_HITS),
        // A run on a pull request has its own daily limit, or was requested by a person.
        None => Ok(true),
    }
}

/// Records the provider limit of an ended job, or resets the count of consecutive hits.
///
/// # Errors
/// Fails if the store cannot be written.
pub(crate) fn record(tx: &WriteTx<'_>, job: &Job) -> StoreResult<()> {
    let phase = job.kind.phase().filter(|_| !job.shadow);
    match (job.resumes_at, phase) {
        (Some(until), phase) => {
            let limit = ProviderLimit {
                until,
                job: job.id.clone(),
            };
            let mapping = mappings::get(tx, &job.team)?;
            let account = account(tx, job.runner, &job.repo, &job.team, mapping.as_ref())?;
            provider_limits::record(tx, &account, &limit)?;
            phase.map_or(Ok(()), |phase| {
                provider_limits::count_hit(tx, &job.issue.id, phase)
            })
        }
        (None, Some(phase)) => provider_limits::reset_hits(tx, &job.issue.id, phase),
        (None, None) => Ok(()),
    }
}

/// End of the known provider limit of a mapping's runs; `None` if runs may start. A mapping without
/// `resume_after_limit` is never limited.
///
/// # Errors
/// Fails if the store cannot be read.
pub(crate) fn limited_until(
    tx: &impl ReadableTx,
    app: &App,
    mapping: &Mapping,
    now: Timestamp,
) -> StoreResult<Option<Timestamp>> {
    if !mapping.resume_after_limit {
        return Ok(None);
    }
    let mode = app.core.runner_mode(tx)?;
    let Ok(placement) = runner_mode::choose_placement(mode, mapping, app.available_runners())
    else {
        return Ok(None);
    };
    let (repo, team) = (mapping.target_repo(), &mapping.team_key);
    let account = account(tx, placement.runner(), &repo, team, Some(mapping))?;
    provider_limits::until(tx, &account, now)
}

/// Name of the model credentials of a run.
fn account(
    tx: &impl ReadableTx,
    runner: RunnerKind,
    repo: &Repo,
    team: &TeamKey,
    mapping: Option<&Mapping>,
) -> StoreResult<String> {
    if runner == RunnerKind::Ci {
        // GitHub ignores the case of repository names.
        return Ok(format!("repository {repo}").to_lowercase());
    }
    let is_key = |name: &str| TEAM_CREDENTIALS.contains(&name);
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
