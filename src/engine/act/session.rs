//! Making, stopping and taking down the machines of sessions.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::app::App;
use domain::effect::RunBrief;
use domain::ids::JobId;
use domain::job::{Job, RunHandle};
use domain::keys::sha256_hex;
use domain::machine::{
    HostKind, Machine, MachineRef, MachineSpec, Stage, Stamps, Variables, machine_name,
    session_environment,
};
use domain::mapping::extra_env::permitted;
use domain::transition::{Cause, Event};
use store::jobs;
use store::outbox::Errand;
use vendors::scm::RunLog;
use vendors::session_hosts::{SessionError, Start};

use super::{Acted, Failure, github, refusal, run_config};

/// How long is a host without room asked again before its people are told?
const NO_ROOM_PATIENCE: Duration = Duration::from_secs(30 * 60);

impl From<SessionError> for Failure {
    fn from(error: SessionError) -> Self {
        match error {
            SessionError::NotConfigured(_) => Self::lasting(&error.to_string()),
            SessionError::Vendor(error) => error.into(),
        }
    }
}

/// Makes the job's machine, unless an earlier try may have: then it is looked for by its stamp. One
/// that was made and not started goes through its making again: its name keeps a second one from
/// being made.
pub(super) async fn start(
    app: &App,
    errand: &Errand,
    job: &Job,
    brief: &RunBrief,
    host: HostKind,
) -> Result<Acted, Failure> {
    if errand.unsure_since.is_some()
        && let Some(machine) = app.sessions.find(host, &job.id).await?
        && machine.state.stage() != Stage::Coming
    {
        return Ok(started(job, &machine));
    }
    let spec = spec(app, job, brief).await?;
    let refused = |cause, status, why: &str| {
        let event = refusal(cause, status, why);
        Ok(Acted::Told(job.id.clone(), event))
    };
    match app.sessions.start(host, &spec).await? {
        Start::Made(machine) => Ok(started(job, &machine)),
        Start::Refused { status, reason } => refused(Cause::Lasting, status, &reason),
        Start::NoRoom(said) => {
            let why = format!("the host has no room for the machine: {said}");
            let waited = app.now().since(errand.pushed_at);
            if waited >= NO_ROOM_PATIENCE {
                return refused(Cause::Passing, None, &why);
            }
            Err(Failure::passing(&why))
        }
    }
}

/// The machine of a job whose run spoke before we heard of its making: it is known from now on, and
/// goes when its job is over.
pub(super) async fn adopt(app: &App, job: &Job, host: HostKind) -> Result<Acted, Failure> {
    let machine = app.sessions.find(host, &job.id).await?;
    Ok(machine.map_or(Acted::Done, |machine| started(job, &machine)))
}

fn started(job: &Job, machine: &Machine) -> Acted {
    let run = Some(machine.handle());
    Acted::Told(job.id.clone(), Event::Started { run })
}

/// The machine of a job. The hash of its nonce is stored before anybody can show it.
async fn spec(app: &App, job: &Job, brief: &RunBrief) -> Result<MachineSpec, Failure> {
    let session = brief
        .session
        .as_ref()
        .ok_or_else(|| Failure::lasting("the dispatch does not say what machine it needs"))?;
    let image = job.session_image.clone();
    let image = image.ok_or_else(|| Failure::lasting("no image is configured for sessions"))?;
    let ours = ours(app, job, brief).await?;
    let secrets = secrets(app, job)?;
    let (extra_env, refused) = permitted(&session.extra_env);
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
        stamps: Stamps::of(job, app.sessions.instance(), app.now()),
    })
}

/// What every session is told: its run, how to ask for repository access, where the repository is,
/// and the model's credentials.
async fn ours(app: &App, job: &Job, brief: &RunBrief) -> Result<Variables, Failure> {
    let tokens = app
        .run_tokens
        .as_ref()
        .ok_or_else(|| Failure::lasting("sessions need runs that report"))?;
    let nonce = tokens.nonce(&job.id);
    keep_nonce(app, job, sha256_hex(nonce.expose())).await?;
    let github = github(app)?;
    let inputs = run_config(app, job, brief).to_inputs();
    let run_config = serde_json::to_string(&inputs)
        .map_err(|error| Failure::lasting(&format!("writing the run's inputs: {error}")))?;
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

async fn keep_nonce(app: &App, job: &Job, hash: String) -> Result<(), Failure> {
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
        .map_err(|error| Failure::passing(&error.to_string()))
}

/// The operators' secrets for the job's team, in the clear: they leave for the machine at once.
fn secrets(app: &App, job: &Job) -> Result<Variables, Failure> {
    let read = app
        .store
        .read(|tx| Ok(app.vault.of_session(tx, &job.team)))
        .map_err(|error| Failure::passing(&error.to_string()))?;
    let opened = read.map_err(|error| Failure::lasting(&error.to_string()))?;
    let clear: BTreeMap<String, String> = opened
        .into_iter()
        .map(|(name, value)| (name, value.expose().to_owned()))
        .collect();
    Ok(clear)
}

pub(super) async fn stop(app: &App, machine: &MachineRef) -> Result<Acted, Failure> {
    app.sessions.stop(machine).await?;
    Ok(Acted::Done)
}

pub(super) async fn destroy(
    app: &App,
    machine: &MachineRef,
    job: Option<&JobId>,
) -> Result<Acted, Failure> {
    app.sessions.destroy(machine).await?;
    Ok(match job {
        Some(job) => Acted::Told(job.clone(), Event::MachineGone),
        None => Acted::Done,
    })
}

/// The end of a session's log, while its machine is there.
pub(super) async fn log(app: &App, run: &RunHandle) -> Result<RunLog, Failure> {
    let Some(machine) = run.machine() else {
        return Ok(RunLog::Empty);
    };
    let log = app.sessions.log_tail(&machine).await?;
    Ok(log.map_or(RunLog::Empty, RunLog::Excerpt))
}
