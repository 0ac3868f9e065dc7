//! Making, stopping and taking down the machines of sessions.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::app::App;
use domain::crypto::sha256_hex;
use domain::effect::RunSpec;
use domain::ids::JobId;
use domain::job::{Job, RunHandle};
use domain::machine::{
    EnvVarMap, HostKind, Machine, MachineLabels, MachinePhase, MachineRef, MachineSpec,
    machine_name, session_environment,
};
use domain::mapping::extra_env::partition_permitted;
use domain::transition::{FailureKind, JobEvent};
use store::jobs;
use store::outbox::OutboxEntry;
use vendors::scm::WorkflowRunLog;
use vendors::session_hosts::{MachineStartOutcome, SessionHostError};

use super::{EffectFailure, EffectOutcome, github, run_config, start_refused_event};

/// How long is a host without room asked again before its people are told?
const NO_ROOM_PATIENCE: Duration = Duration::from_secs(30 * 60);

impl From<SessionHostError> for EffectFailure {
    fn from(error: SessionHostError) -> Self {
        match error {
            SessionHostError::NotConfigured(_) => Self::permanent(&error.to_string()),
            SessionHostError::Vendor(error) => error.into(),
        }
    }
}

/// Makes the job's machine, unless an earlier try may have: then it is looked for by its stamp. One
/// that was made and not started goes through its making again: its name keeps a second one from
/// being made.
pub(super) async fn start(
    app: &App,
    errand: &OutboxEntry,
    job: &Job,
    brief: &RunSpec,
    host: HostKind,
) -> Result<EffectOutcome, EffectFailure> {
    if errand.outcome_unknown_since.is_some()
        && let Some(machine) = app.sessions.find(host, &job.id).await?
        && machine.state.phase() != MachinePhase::Starting
    {
        return Ok(started(job, &machine));
    }
    let spec = spec(app, job, brief).await?;
    let refused = |cause, status, why: &str| {
        let event = start_refused_event(cause, status, why);
        Ok(EffectOutcome::JobEvent(job.id.clone(), event))
    };
    match app.sessions.start(host, &spec).await? {
        MachineStartOutcome::Started(machine) => Ok(started(job, &machine)),
        MachineStartOutcome::Refused { status, reason } => {
            refused(FailureKind::Permanent, status, &reason)
        }
        MachineStartOutcome::NoCapacity(said) => {
            let why = format!("the host has no room for the machine: {said}");
            let waited = app.now().since(errand.pushed_at);
            if waited >= NO_ROOM_PATIENCE {
                return refused(FailureKind::Transient, None, &why);
            }
            Err(EffectFailure::transient(&why))
        }
    }
}

/// The machine of a job whose run spoke before we heard of its making: it is known from now on, and
/// goes when its job is over.
pub(super) async fn adopt(
    app: &App,
    job: &Job,
    host: HostKind,
) -> Result<EffectOutcome, EffectFailure> {
    let machine = app.sessions.find(host, &job.id).await?;
    Ok(machine.map_or(EffectOutcome::Done, |machine| started(job, &machine)))
}

fn started(job: &Job, machine: &Machine) -> EffectOutcome {
    let run = Some(machine.run_handle());
    EffectOutcome::JobEvent(job.id.clone(), JobEvent::Started { run })
}

/// The machine of a job. The hash of its nonce is stored before anybody can show it.
async fn spec(app: &App, job: &Job, brief: &RunSpec) -> Result<MachineSpec, EffectFailure> {
    let session = brief.session.as_ref().ok_or_else(|| {
        EffectFailure::permanent("the dispatch does not say what machine it needs")
    })?;
    let image = job.session_image.clone();
    let image =
        image.ok_or_else(|| EffectFailure::permanent("no image is configured for sessions"))?;
    let ours = ours(app, job, brief).await?;
    let secrets = secrets(app, job)?;
    let (extra_env, refused) = partition_permitted(&session.extra_env);
    if !refused.is_empty() {
        let names = refused.join(",");
        tracing::warn!(job_id = %job.id, team = %job.team, names, "Dropped extraEnv variables that change which programs a run executes.");
    }
    Ok(MachineSpec {
        name: machine_name(&job.id),
        image,
        cpus: session.cpus,
        memory_mb: session.memory_mb,
        environment: session_environment(ours, &extra_env, secrets),
        labels: MachineLabels::for_job(job, app.sessions.instance(), app.now()),
    })
}

/// What every session is told: its run, how to ask for repository access, where the repository is,
/// and the model's credentials.
async fn ours(app: &App, job: &Job, brief: &RunSpec) -> Result<EnvVarMap, EffectFailure> {
    let tokens = app
        .run_tokens
        .as_ref()
        .ok_or_else(|| EffectFailure::permanent("sessions need runs that report"))?;
    let nonce = tokens.session_nonce(&job.id);
    keep_nonce(app, job, sha256_hex(nonce.expose())).await?;
    let github = github(app)?;
    let inputs = run_config(app, job, brief).to_inputs();
    let run_config = serde_json::to_string(&inputs)
        .map_err(|error| EffectFailure::permanent(&format!("writing the run's inputs: {error}")))?;
    let named = [
        ("RUN_CONFIG", run_config),
        ("SESSION_NONCE", nonce.expose().to_owned()),
        ("GITHUB_REPOSITORY", job.repo.to_string()),
        ("GITHUB_REF_NAME", brief.git_ref.clone()),
        ("GITHUB_API_URL", github.api_url().to_owned()),
        ("GITHUB_SERVER_URL", github.server_url()),
    ];
    let keys = app.config.model_keys.iter();
    let keys = keys.map(|(name, key)| (*name, key.expose().to_owned()));
    Ok(named
        .into_iter()
        .chain(keys)
        .map(|(name, value)| (name.to_owned(), value))
        .collect())
}

async fn keep_nonce(app: &App, job: &Job, hash: String) -> Result<(), EffectFailure> {
    if job.nonce_hash.as_ref() == Some(&hash) {
        return Ok(());
    }
    let id = job.id.clone();
    let kept = app.store.write(move |tx| {
        let Some(mut job) = jobs::get(tx, &id)? else {
            return Ok(());
        };
        job.nonce_hash = Some(hash.clone());
        jobs::put(tx, &job)
    });
    kept.await
        .map_err(|error| EffectFailure::transient(&error.to_string()))
}

/// The operators' secrets for the job's team, in the clear: they leave for the machine at once.
fn secrets(app: &App, job: &Job) -> Result<EnvVarMap, EffectFailure> {
    let read = app
        .store
        .read(|tx| Ok(app.vault.session_secrets(tx, &job.team)))
        .map_err(|error| EffectFailure::transient(&error.to_string()))?;
    let opened = read.map_err(|error| EffectFailure::permanent(&error.to_string()))?;
    let clear: BTreeMap<String, String> = opened
        .into_iter()
        .map(|(name, value)| (name, value.expose().to_owned()))
        .collect();
    Ok(clear)
}

pub(super) async fn stop(app: &App, machine: &MachineRef) -> Result<EffectOutcome, EffectFailure> {
    app.sessions.stop(machine).await?;
    Ok(EffectOutcome::Done)
}

pub(super) async fn destroy(
    app: &App,
    machine: &MachineRef,
    job: Option<&JobId>,
) -> Result<EffectOutcome, EffectFailure> {
    app.sessions.destroy(machine).await?;
    Ok(match job {
        Some(job) => EffectOutcome::JobEvent(job.clone(), JobEvent::MachineDestroyed),
        None => EffectOutcome::Done,
    })
}

/// The end of a session's log, while its machine is there.
pub(super) async fn read_log(app: &App, run: &RunHandle) -> Result<WorkflowRunLog, EffectFailure> {
    let Some(machine) = run.machine() else {
        return Ok(WorkflowRunLog::Empty);
    };
    let log = app.sessions.log_tail(&machine).await?;
    Ok(log.map_or(WorkflowRunLog::Empty, WorkflowRunLog::Excerpt))
}
