//! Usage limits of model providers: time at which affected runs resume.
//!
//! A limit applies to an account, so all runs with the same credentials wait together. CI runs use
//! the secrets of their repository; machines and containers use the credentials of the service, or
//! those of the team if it has its own. Two repositories may share an account unnoticed; then a run
//! of each meets the limit. Each agent has an account of its own; an agent that the repository chooses has the account
//! of the repository's agent until a run reports its name.
//!
//! While the limit of an agent is in force, the fallback agents of the mapping work instead, if they have credentials.
//! The service knows those of machines and containers; a CI run reports them with the limit.
//!
//! The time that a run reports is not trusted: it is clamped to a range, and an issue whose runs
//! repeatedly meet limits fails in the end.

use std::time::Duration;

use crate::app::App;
use domain::agent::AgentName;
use domain::agent_choice::AgentChoice;
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

/// Variables in which a team may provide its own model credentials, in place of those of the service. The credentials
/// of Claude Code cannot be replaced.
pub(crate) const TEAM_CREDENTIALS: [&str; 4] = [
    "OPENAI_API_KEY",
    "CODEX_API_KEY",
    "GEMINI_API_KEY",
    "ANTHROPIC_BASE_URL",
];

/// Completes a report about a usage limit: clamps its retry time, removes it unless the run resumes after the limit,
/// and names the agent that continues the work.
///
/// # Errors
/// Fails if the store cannot be read.
pub(crate) fn resolve_report(
    tx: &impl ReadableTx,
    app: &App,
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
    let next_agent = match retry_at {
        Some(_) => next_agent(tx, app, job, &report, now)?,
        None => None,
    };
    Ok(ResultReport {
        retry_at,
        next_agent,
        ..report
    })
}

/// Returns the first fallback agent that can continue the work of a job.
fn next_agent(
    tx: &impl ReadableTx,
    app: &App,
    job: &Job,
    report: &ResultReport,
    now: Timestamp,
) -> StoreResult<Option<AgentName>> {
    let Some(mapping) = mappings::get(tx, &job.team)? else {
        return Ok(None);
    };
    let name = report.agent.as_deref().or(job.agent.as_deref());
    let used = [job.agents.choice.agent, name.and_then(AgentName::parse)];
    let account = account(tx, job.runner, &job.repo, &job.team, Some(&mapping))?;
    for agent in mapping.fallback_agents.iter().copied() {
        let is_usable = match job.runner {
            RunnerKind::Ci => report.agents_with_credentials.contains(&agent),
            RunnerKind::Vm | RunnerKind::Local | RunnerKind::Kubernetes => {
                has_credential(tx, app, &mapping, agent)?
            }
        };
        if !used.contains(&Some(agent))
            && is_usable
            && provider_limits::current(tx, &agent_account(&account, Some(agent)), now)?.is_none()
        {
            return Ok(Some(agent));
        }
    }
    Ok(None)
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
                with_credentials: job.agents.with_credentials.clone(),
            };
            let mapping = mappings::get(tx, &job.team)?;
            let account = account(tx, job.runner, &job.repo, &job.team, mapping.as_ref())?;
            let chosen = agent_account(&account, job.agents.choice.agent);
            provider_limits::record(tx, &chosen, &limit)?;
            let reported = job.agent.as_deref().and_then(AgentName::parse);
            if reported.is_some() {
                provider_limits::record(tx, &agent_account(&account, reported), &limit)?;
            }
            phase.map_or(Ok(()), |phase| {
                provider_limits::count_hit(tx, &job.issue.id, phase)
            })
        }
        (None, Some(phase)) => provider_limits::reset_hits(tx, &job.issue.id, phase),
        (None, None) => Ok(()),
    }
}

/// Agent and model of the next run of a mapping, where `labels` is the choice of the ticket's labels: the chosen agent,
/// or a fallback agent while its usage limit is reached. The error is the time at which the first of these limits ends.
/// A mapping without `resume_after_limit` is never limited.
///
/// # Errors
/// Fails if the store cannot be read.
pub(crate) fn available_choice(
    tx: &impl ReadableTx,
    app: &App,
    mapping: &Mapping,
    labels: &AgentChoice,
    now: Timestamp,
) -> StoreResult<Result<AgentChoice, Timestamp>> {
    let choice = labels.for_mapping(mapping);
    if !mapping.resume_after_limit {
        return Ok(Ok(choice));
    }
    let mode = app.core.runner_mode(tx)?;
    let Ok(placement) = runner_mode::choose_placement(mode, mapping, app.available_runners())
    else {
        return Ok(Ok(choice));
    };
    let (repo, team, runner) = (mapping.target_repo(), &mapping.team_key, placement.runner());
    let account = account(tx, runner, &repo, team, Some(mapping))?;
    let current = |agent| provider_limits::current(tx, &agent_account(&account, agent), now);
    let Some(limit) = current(choice.agent)? else {
        return Ok(Ok(choice));
    };
    let mut until = limit.until;
    let others = mapping.fallback_agents.iter().copied();
    for agent in others.filter(|agent| choice.agent != Some(*agent)) {
        let is_usable = match runner {
            RunnerKind::Ci => limit.with_credentials.contains(&agent),
            RunnerKind::Vm | RunnerKind::Local | RunnerKind::Kubernetes => {
                has_credential(tx, app, mapping, agent)?
            }
        };
        match current(Some(agent))? {
            _ if !is_usable => {}
            Some(other) => until = until.min(other.until),
            None => {
                let agent = Some(agent);
                return Ok(Ok(AgentChoice { agent, model: None }));
            }
        }
    }
    Ok(Err(until))
}

/// Whether sessions of a mapping have a credential of an agent.
fn has_credential(
    tx: &impl ReadableTx,
    app: &App,
    mapping: &Mapping,
    agent: AgentName,
) -> StoreResult<bool> {
    let of_service = app
        .vendors
        .credentials
        .model_keys
        .iter()
        .map(|(name, _)| *name);
    let in_env = mapping.extra_env.keys().map(String::as_str);
    if agent.has_credential(of_service.chain(in_env)) {
        return Ok(true);
    }
    for scope in [
        SecretScope::Global,
        SecretScope::Team(mapping.team_key.clone()),
    ] {
        let stored = secrets::of_scope(tx, &scope)?;
        let names = stored
            .iter()
            .filter_map(|row| variable_from_stored_name(&scope, &row.stored_name));
        if agent.has_credential(names) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Name of the credentials of an agent. `None` is the agent that the repository chooses.
fn agent_account(account: &str, agent: Option<AgentName>) -> String {
    match agent {
        Some(agent) => format!("{account} {}", agent.as_str()),
        None => account.to_owned(),
    }
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
