//! Effect "start run": the lookup of an earlier attempt, the image, the configuration and the tokens of the run.

use domain::crypto::run_token::TokenAudience;
use domain::effect::RunSpec;
use domain::ids::JobId;
use domain::job::Job;
use domain::job::JobKind;
use domain::job::RunHandle;
use domain::job::RunnerKind;
use domain::limits;
use domain::mapping::SessionMode;
use domain::run_config::RunCallback;
use domain::run_config::RunConfig;
use domain::run_socket;
use domain::runner_image::RequestedImage;
use domain::time::Timestamp;
use domain::transition::FailureKind;
use domain::transition::JobEvent;
use store::jobs;
use store::outbox::OutboxEntry;
use vendors::scm::DispatchError;
use vendors::session_hosts::ci;

use super::super::conversation;
use super::super::dispatch;
use super::super::planning_context;
use super::super::program;
use super::super::repo_image;
use super::EffectFailure;
use super::EffectOutcome;
use super::github;
use super::session_machine;
use super::unconfirmed;
use crate::app::App;

/// Starts the run. If an earlier attempt may have started it, the run is first looked up by name,
/// and a second run is started only after the first had time to appear.
pub(super) async fn start_run(
    app: &App,
    entry: &OutboxEntry,
    id: &JobId,
    spec: &RunSpec,
) -> Result<EffectOutcome, EffectFailure> {
    let job = match app.core.store.read(|tx| jobs::get(tx, id)) {
        Ok(Some(job)) => job,
        Ok(None) => {
            return Ok(EffectOutcome::Gone("its job no longer exists".to_owned()));
        }
        Err(error) => {
            return Err(EffectFailure::transient(&error.to_string()));
        }
    };
    if job.dispatched_at.is_some() || !job.is_active() {
        return unconfirmed::adopt(app, entry, &job).await;
    }
    let (job, spec) = match resolve_missing_image(app, job, spec).await? {
        Ok(known) => known,
        Err(reason) => {
            return Ok(EffectOutcome::job_event(
                id,
                start_refused_event(FailureKind::Permanent, None, &reason),
            ));
        }
    };
    if let Some(host) = job.runner.host() {
        return session_machine::start(app, entry, &job, &spec, host).await;
    }
    let github = github(&app.vendors)?;
    if let Some(tried_at) = entry.outcome_unknown_since
        && let Some(run) = unconfirmed::find_run(app, &job, tried_at).await?
    {
        return Ok(unconfirmed::run_started(&job, run));
    }
    let run_config = ci_run_config(app, &job, &spec).await?;
    let run_config = RunConfig {
        options: program::with_program(&app.core, run_config.options).await,
        ..run_config
    };
    match ci::start(
        github,
        &job.repo,
        &spec.workflow_file,
        &spec.git_ref,
        &run_config,
    )
    .await
    {
        Ok(started) => {
            let run = started.run.map(|run| RunHandle::Ci {
                id: run.id,
                url: run.url,
            });
            Ok(EffectOutcome::job_event(id, JobEvent::Started { run }))
        }
        // GitHub can respond with a rate limit although it accepted the dispatch.
        Err(DispatchError::Vendor(error)) if error.is_rate_limited() => Err(EffectFailure {
            is_outcome_unknown: true,
            ..error.into()
        }),
        Err(DispatchError::Vendor(error)) if !error.is_permanent() || error.is_unauthorized() => {
            Err(error.into())
        }
        Err(refused) => Ok(EffectOutcome::job_event(
            id,
            start_refused_event(
                FailureKind::Permanent,
                refused.status(),
                &refused.to_string(),
            ),
        )),
    }
}

/// Resolves the image named by the repository if that failed when the run was reserved. Returns the
/// reason if the image is invalid.
async fn resolve_missing_image(
    app: &App,
    job: Job,
    spec: &RunSpec,
) -> Result<Result<(Job, RunSpec), String>, EffectFailure> {
    if !spec.image_lookup_failed {
        return Ok(Ok((job, spec.clone())));
    }
    let image = match repo_image::fetch(app, &job.repo, &spec.git_ref).await {
        Ok(RequestedImage::LookupFailed) => {
            let reason = "the image named by the repository could not be read";
            return Err(EffectFailure::transient(reason));
        }
        Ok(image) => image,
        Err(reason) => return Ok(Err(reason)),
    };
    let session_image = dispatch::resolve_image(&app.core, job.runner, &job.repo, image);
    let spec = RunSpec {
        runner_image: session_image.clone(),
        image_lookup_failed: false,
        ..spec.clone()
    };
    let job = Job {
        session_image,
        ..job
    };
    let resolved = job.clone();
    app.core
        .store
        .write(move |tx| match jobs::get(tx, &resolved.id)? {
            Some(stored) => jobs::put(
                tx,
                &Job {
                    session_image: resolved.session_image.clone(),
                    ..stored
                },
            ),
            None => Ok(()),
        })
        .await
        .map_err(|error| EffectFailure::transient(&error.to_string()))?;
    Ok(Ok((job, spec)))
}

/// Event of a run that cannot start.
pub(crate) fn start_refused_event(
    cause: FailureKind,
    status: Option<u16>,
    reason: &str,
) -> JobEvent {
    JobEvent::StartRejected {
        kind: cause,
        status,
        reason: format!("the run could not be dispatched: {reason}"),
    }
}

/// Configuration of a CI run. A run that cannot fetch its plan and the texts of its ticket from the service gets them
/// with the dispatch.
async fn ci_run_config(app: &App, job: &Job, spec: &RunSpec) -> Result<RunConfig, EffectFailure> {
    let mut config = run_config(app, job, spec);
    if config.callback.is_none() {
        config.report_key = Some(app.secrets.run_tokens.report_key(&job.id));
        if job.kind == JobKind::Implementation {
            let context = planning_context::load(app, job).await;
            let context = context.map_err(|error| EffectFailure::transient(&error.to_string()))?;
            config.options.plan = Some(context.plan).filter(|plan| !plan.is_empty());
        }
        let context = conversation::context::load(app, job).await;
        let context = context.map_err(|error| EffectFailure::transient(&error.to_string()))?;
        let context = Some(context.for_dispatch()).filter(|context| !context.is_empty());
        config.options.context = context.map(Box::new);
    }
    Ok(config)
}

pub(super) fn run_config(app: &App, job: &Job, spec: &RunSpec) -> RunConfig {
    RunConfig {
        dispatch_id: job.id.clone(),
        issue_id: job.issue.id.clone(),
        issue_key: job.issue.key.clone(),
        issue_title: job.issue.title.clone(),
        issue_description: spec.description.clone(),
        phase: job.kind.run_phase(),
        pr_number: spec.pr_number,
        branch: job.branch.clone(),
        instruction: spec.instruction.clone(),
        findings: spec.findings.clone(),
        related: spec.related.clone(),
        provider: spec.provider.clone(),
        runner_image: spec.runner_image.clone(),
        max_turns: spec.max_turns,
        max_iterations: spec.max_iterations,
        job_timeout_minutes: spec.job_timeout_minutes,
        session_mode: match &spec.session {
            // No person attends a shadow run.
            Some(_) if job.shadow => Some(SessionMode::Autonomous),
            Some(session) => Some(session.mode),
            None => None,
        },
        shadow: job.shadow,
        options: spec.options.clone(),
        runs_on: spec.runs_on.clone(),
        callback: callback(app, job),
        report_key: None,
    }
}

/// Credentials for the run's requests to this service. Tokens expire after the last possible
/// report, counted from this start, because an effect may have waited out a long outage.
fn callback(app: &App, job: &Job) -> Option<RunCallback> {
    let (tokens, url) = (&app.secrets.run_tokens, callback_url(app, job)?);
    let now: Timestamp = app.core.now();
    let expires = now + job.timeout() + limits::RUN_LOOKUP_TIMEOUT + limits::TOKEN_GRACE;
    let token = |audience| tokens.issue(&job.id, audience, job.kind.run_phase(), now, expires);
    Some(RunCallback {
        url,
        run_token: token(TokenAudience::Result),
        progress_token: token(TokenAudience::Progress),
    })
}

/// Returns the address that a run reports to: that of the service, else its socket for a container.
/// `None` for a CI run without an address, which leaves its report as an artifact.
fn callback_url(app: &App, job: &Job) -> Option<String> {
    let config = &app.core.config;
    match job.runner {
        RunnerKind::Local if config.isolates_containers() => Some(run_socket::callback_url()),
        _ if config.has_callbacks() => config.callback_base_url.clone(),
        RunnerKind::Local => Some(run_socket::callback_url()),
        RunnerKind::Ci | RunnerKind::Vm | RunnerKind::Kubernetes => None,
    }
}
