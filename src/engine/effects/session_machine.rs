//! Effects on session machines: start, stop, destroy and read the log.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::app::{App, Vendors};
use domain::agent::AgentName;
use domain::crypto::sha256_hex;
use domain::effect::RunSpec;
use domain::git_mirror;
use domain::ids::JobId;
use domain::job::{Job, RunHandle};
use domain::machine::{
    EnvVarMap, HostKind, Machine, MachineLabels, MachinePhase, MachineRef, MachineSpec,
    SESSION_ENDS_AT, machine_name, session_environment,
};
use domain::reserved_variables::partition_permitted;
use domain::run_socket;
use domain::transition::{FailureKind, JobEvent};
use store::jobs;
use store::outbox::OutboxEntry;
use vendors::scm::WorkflowRunLog;
use vendors::session_hosts::{MachineStartOutcome, SessionHostError};

use crate::git_mirrors;
use crate::provider_limit::TEAM_CREDENTIALS;

use super::{EffectFailure, EffectOutcome, github, run_config, start_refused_event};

/// Time for which a start is retried while the host has no capacity. After it the job fails.
const MAX_CAPACITY_WAIT: Duration = Duration::from_secs(30 * 60);

/// Time after the time budget until a host ends a machine by itself. Before that, the service does.
const TIMEOUT_RESERVE: Duration = Duration::from_secs(10 * 60);

impl From<SessionHostError> for EffectFailure {
    fn from(error: SessionHostError) -> Self {
        match error {
            SessionHostError::NotConfigured(_) => Self::permanent(&error.to_string()),
            SessionHostError::Vendor(error) => error.into(),
        }
    }
}

/// Creates the machine of a job. If an earlier attempt may have created it, the machine is first
/// looked up by its labels. A machine that was created but not started is created again: its name
/// makes the call idempotent. One that is being destroyed may have been started, and is not created again.
pub(super) async fn start(
    app: &App,
    entry: &OutboxEntry,
    job: &Job,
    run_spec: &RunSpec,
    host: HostKind,
) -> Result<EffectOutcome, EffectFailure> {
    if entry.outcome_unknown_since.is_some()
        && let Some(machine) = app.vendors.sessions.find(host, &job.id).await?
        && machine.state.phase() != MachinePhase::Starting
    {
        return Ok(started_outcome(job, &machine));
    }
    let spec = spec(app, job, run_spec, host).await?;
    let refused = |cause, status, why: &str| {
        let event = start_refused_event(cause, status, why);
        Ok(EffectOutcome::job_event(&job.id, event))
    };
    let mut started = app.vendors.sessions.start(host, &spec).await?;
    if matches!(started, MachineStartOutcome::Refused { .. }) && spec.mirror_folder.is_some() {
        // The mirror may have been removed, or the engine cannot mount it. The run then fetches everything.
        let spec = MachineSpec {
            mirror_folder: None,
            ..spec
        };
        started = app.vendors.sessions.start(host, &spec).await?;
    }
    match started {
        MachineStartOutcome::Started(machine) => {
            if host == HostKind::Local {
                git_mirrors::update_later(app, &job.repo, &run_spec.git_ref);
            }
            Ok(started_outcome(job, &machine))
        }
        MachineStartOutcome::Refused { status, reason } => {
            refused(FailureKind::Permanent, status, &reason)
        }
        MachineStartOutcome::NoCapacity(detail) => {
            let why = format!("the host has no capacity for the machine: {detail}");
            let waited = app.core.now().since(entry.pushed_at);
            if waited >= MAX_CAPACITY_WAIT {
                return refused(FailureKind::Transient, None, &why);
            }
            Err(EffectFailure::transient(&why))
        }
    }
}

/// Looks up the machine of a job whose run reported before the start was recorded. The machine is
/// recorded, and destroyed when its job is over.
pub(super) async fn adopt(
    vendors: &Vendors,
    job: &Job,
    host: HostKind,
) -> Result<EffectOutcome, EffectFailure> {
    let machine = vendors.sessions.find(host, &job.id).await?;
    Ok(machine.map_or(EffectOutcome::Done, |machine| {
        started_outcome(job, &machine)
    }))
}

fn started_outcome(job: &Job, machine: &Machine) -> EffectOutcome {
    let run = Some(machine.run_handle());
    EffectOutcome::job_event(&job.id, JobEvent::Started { run })
}

/// Specification of the machine of a job. The hash of its nonce is stored before the machine can
/// present it.
async fn spec(
    app: &App,
    job: &Job,
    run_spec: &RunSpec,
    host: HostKind,
) -> Result<MachineSpec, EffectFailure> {
    let session = run_spec
        .session
        .as_ref()
        .ok_or_else(|| EffectFailure::permanent("the dispatch has no machine specification"))?;
    let image = job.session_image.clone();
    let image =
        image.ok_or_else(|| EffectFailure::permanent("no image is configured for sessions"))?;
    let mirror = match host {
        HostKind::Local => git_mirrors::newest(app, &job.repo, session.memory_mb),
        HostKind::Vm | HostKind::Kubernetes => None,
    };
    let mut required = required_environment(app, job, run_spec).await?;
    if mirror.is_some() {
        let (name, path) = (git_mirror::VARIABLE, git_mirror::MOUNT_POINT);
        required.insert(name.to_owned(), path.to_owned());
    }
    let labels = MachineLabels::for_job(job, app.vendors.sessions.instance(), app.core.now());
    // A local container starts when its image is there, and is dispatched then.
    let ends_at = labels.expires_at.filter(|_| host != HostKind::Local);
    required.extend(ends_at.map(|at| (SESSION_ENDS_AT.to_owned(), at.to_string())));
    let secrets = secrets(app, job)?;
    let (extra_env, refused) = partition_permitted(&session.extra_env);
    if !refused.is_empty() {
        let names = refused.join(",");
        tracing::warn!(job_id = %job.id, team = %job.team, names, "Dropped reserved variables of extraEnv.");
    }
    // Credentials of the team precede those of the service.
    required.retain(|name, _| {
        let is_own = secrets.contains_key(name) || extra_env.contains_key(name);
        !(is_own && TEAM_CREDENTIALS.contains(&name.as_str()))
    });
    Ok(MachineSpec {
        name: machine_name(&job.id),
        image,
        cpus: session.cpus,
        memory_mb: session.memory_mb,
        environment: session_environment(required, &extra_env, secrets),
        socket_folder: socket_folder(app, host)?,
        mirror_folder: mirror,
        is_isolated: is_isolated(app, host),
        node_selector: session.node_selector.clone(),
        max_lifetime: job.timeout() + TIMEOUT_RESERVE,
        labels,
    })
}

fn is_isolated(app: &App, host: HostKind) -> bool {
    host == HostKind::Local && app.core.config.isolates_containers()
}

/// Folder with the sockets of a container that has no network or reports through one. `None` if it reports to the
/// address of the service.
fn socket_folder(app: &App, host: HostKind) -> Result<Option<String>, EffectFailure> {
    let config = &app.core.config;
    let needs_sockets = config.isolates_containers() || !config.has_callbacks();
    if host != HostKind::Local || !needs_sockets {
        return Ok(None);
    }
    let folder = config.socket_folder_on_host().map_err(|error| {
        EffectFailure::transient(&format!("resolving the data directory: {error}"))
    })?;
    let folder = folder.into_os_string().into_string();
    folder.map(Some).map_err(|_| {
        EffectFailure::permanent(
            "the path of DATA_DIR is not UTF-8, so that no container can mount its socket",
        )
    })
}

/// Environment of every session: its run configuration, the nonce, the repository, and the model
/// credentials.
async fn required_environment(
    app: &App,
    job: &Job,
    run_spec: &RunSpec,
) -> Result<EnvVarMap, EffectFailure> {
    let nonce = app.secrets.run_tokens.session_nonce(&job.id);
    store_nonce_hash(app, job, sha256_hex(nonce.expose())).await?;
    let github = github(&app.vendors)?;
    let inputs = run_config(app, job, run_spec).to_inputs();
    let run_config = serde_json::to_string(&inputs)
        .map_err(|error| EffectFailure::permanent(&format!("writing the run's inputs: {error}")))?;
    let variables = [
        ("RUN_CONFIG", run_config),
        ("SESSION_NONCE", nonce.expose().to_owned()),
        ("GITHUB_REPOSITORY", job.repo.to_string()),
        ("GITHUB_REF_NAME", run_spec.git_ref.clone()),
        ("GITHUB_API_URL", github.api_url().to_owned()),
        ("GITHUB_SERVER_URL", github.server_url()),
    ];
    let is_isolated = job.runner.host().is_some_and(|host| is_isolated(app, host));
    let proxy = is_isolated.then(|| (run_socket::PROXY_VARIABLE, run_socket::proxy_path()));
    // A chosen agent gets only its own key. If the repository chooses the agent, the run passes on only its own.
    let agent = run_spec.options.agent.as_deref();
    let agent = agent.and_then(AgentName::parse);
    let is_needed = |name| agent.is_none_or(|agent| agent.has_credential(std::iter::once(name)));
    let keys = app.vendors.credentials.model_keys.iter();
    let keys = keys.filter(|(name, _)| is_needed(*name));
    let keys = keys.map(|(name, key)| (*name, key.expose().to_owned()));
    Ok(variables
        .into_iter()
        .chain(proxy)
        .chain(keys)
        .map(|(name, value)| (name.to_owned(), value))
        .collect())
}

/// Stores the hash of a nonce. With a standby, it is at its place before the machine can present the nonce.
async fn store_nonce_hash(app: &App, job: &Job, hash: String) -> Result<(), EffectFailure> {
    if job.nonce_hash.as_ref() == Some(&hash) {
        return Ok(());
    }
    let id = job.id.clone();
    let stored = app.core.store.write(move |tx| {
        let Some(mut job) = jobs::get(tx, &id)? else {
            return Ok(());
        };
        job.nonce_hash = Some(hash.clone());
        jobs::put(tx, &job)
    });
    stored
        .await
        .map_err(|error| EffectFailure::transient(&error.to_string()))?;
    match &app.live.standby {
        Some(standby) => standby.permit().await.map_err(EffectFailure::transient),
        None => Ok(()),
    }
}

/// Decrypted secrets of the job's team, for the environment of its machine.
fn secrets(app: &App, job: &Job) -> Result<EnvVarMap, EffectFailure> {
    let read = app
        .core
        .store
        .read(|tx| Ok(app.secrets.vault.session_secrets(tx, &job.team)))
        .map_err(|error| EffectFailure::transient(&error.to_string()))?;
    let opened = read.map_err(|error| EffectFailure::permanent(&error.to_string()))?;
    let clear: BTreeMap<String, String> = opened
        .into_iter()
        .map(|(name, value)| (name, value.expose().to_owned()))
        .collect();
    Ok(clear)
}

/// Stops a machine.
pub(super) async fn stop(
    vendors: &Vendors,
    machine: &MachineRef,
) -> Result<EffectOutcome, EffectFailure> {
    vendors.sessions.stop(machine).await?;
    Ok(EffectOutcome::Done)
}

/// Destroys a machine.
pub(super) async fn destroy(
    vendors: &Vendors,
    machine: &MachineRef,
    job: Option<&JobId>,
) -> Result<EffectOutcome, EffectFailure> {
    vendors.sessions.destroy(machine).await?;
    Ok(match job {
        Some(job) => EffectOutcome::job_event(job, JobEvent::MachineDestroyed),
        None => EffectOutcome::Done,
    })
}

/// Reads the end of a session's log, if its machine still exists.
pub(super) async fn read_log(
    vendors: &Vendors,
    run: &RunHandle,
) -> Result<WorkflowRunLog, EffectFailure> {
    let Some(machine) = run.machine() else {
        return Ok(WorkflowRunLog::Empty);
    };
    let log = vendors.sessions.log_tail(&machine).await?;
    Ok(log.map_or(WorkflowRunLog::Empty, WorkflowRunLog::Excerpt))
}
