//! Detection of session machines that have started, stopped or disappeared.

use futures_util::future::join_all;

use crate::app::App;
use domain::job::{Job, RunHandle};
use domain::machine::{HostKind, Machine, MachinePhase};
use domain::transition::{JobEvent, MissingReport, RunActivity, RunConclusion};
use store::StoreResult;

use super::{apply_event, opened_pull};

/// Conclusion of a run whose machine no longer exists.
const MACHINE_GONE: &str = "its machine gone";

/// Checks every job that runs on a session machine, with one list call per host.
pub(super) async fn check_machines(app: &App, active: &[Job]) -> StoreResult<()> {
    let checks = HostKind::ALL.into_iter().map(|host| {
        let jobs = active.iter().filter(|job| job.runner.host() == Some(host));
        check_host(app, host, jobs.collect())
    });
    let checked: StoreResult<Vec<()>> = join_all(checks).await.into_iter().collect();
    checked.map(drop)
}

async fn check_host(app: &App, host: HostKind, jobs: Vec<&Job>) -> StoreResult<()> {
    if jobs.is_empty() {
        return Ok(());
    }
    let machines = match app.vendors.sessions.list(host).await {
        Ok(machines) => machines,
        Err(error) => {
            let host = host.as_str();
            tracing::warn!(host, %error, "Could not list session machines; timeouts still apply.");
            return Ok(());
        }
    };
    for job in jobs {
        let event = match machines.iter().find(|machine| is_machine_of(machine, job)) {
            Some(machine) => observed_event(app, job, machine).await,
            None => missing_machine_event(app, job).await,
        };
        if let Some(event) = event {
            apply_event(&app.core, job, event).await?;
        }
    }
    Ok(())
}

fn is_machine_of(machine: &Machine, job: &Job) -> bool {
    match job.run.as_ref().and_then(RunHandle::machine) {
        Some(known) => known == machine.reference(),
        None => machine.labels.job == job.id,
    }
}

/// Event of a machine that its host lists. `None` while the end of the run cannot be determined.
async fn observed_event(app: &App, job: &Job, machine: &Machine) -> Option<JobEvent> {
    let now = app.core.now();
    let is_over = job.exceeded_timeout(now).is_some() || job.run_ended_at.is_some();
    let permanent = match is_over {
        true => machine.problem.as_ref(),
        false => machine.permanent_problem(now),
    };
    let activity = match (machine.state.phase(), permanent) {
        (MachinePhase::Starting, Some(problem)) => {
            return ended_event(app, job, machine.run_handle(), problem.into()).await;
        }
        (MachinePhase::Starting, None) => RunActivity::Queued,
        (MachinePhase::Running, _) => RunActivity::InProgress,
        (MachinePhase::Stopped, _) => return stopped_event(app, job, machine).await,
        (MachinePhase::Destroying, _) => {
            return ended_event(app, job, machine.run_handle(), MACHINE_GONE.into()).await;
        }
    };
    let run = machine.run_handle();
    Some(JobEvent::RunFound { run, activity })
}

/// Event of a stopped machine. The list may lack the exit status, so the machine is inspected.
async fn stopped_event(app: &App, job: &Job, machine: &Machine) -> Option<JobEvent> {
    let inspected = match app.vendors.sessions.inspect(&machine.reference()).await {
        Ok(inspected) => inspected,
        Err(error) => {
            tracing::warn!(job_id = %job.id, issue = %job.issue.key, team = %job.team, %error, "Failed to inspect the stopped machine.");
            return None;
        }
    };
    let conclusion = match inspected {
        Some(machine) => match (machine.exit, machine.problem) {
            (Some(exit), _) => exit.conclusion().into(),
            (None, Some(problem)) => RunConclusion::from(&problem),
            (None, None) => format!("its machine {}", machine.state.as_str()).into(),
        },
        None => MACHINE_GONE.into(),
    };
    ended_event(app, job, machine.run_handle(), conclusion).await
}

/// Event of a machine that the list does not contain. A machine with a known ID may be missing only
/// from the list.
async fn missing_machine_event(app: &App, job: &Job) -> Option<JobEvent> {
    let Some(run) = job.run.clone() else {
        return job.is_lost(app.core.now()).then_some(JobEvent::RunMissing);
    };
    match app.vendors.sessions.inspect(&run.machine()?).await {
        Ok(None) => ended_event(app, job, run, MACHINE_GONE.into()).await,
        Ok(Some(_)) => None,
        Err(error) => {
            tracing::warn!(job_id = %job.id, issue = %job.issue.key, team = %job.team, %error, "Failed to look up the machine.");
            None
        }
    }
}

async fn ended_event(
    app: &App,
    job: &Job,
    run: RunHandle,
    conclusion: RunConclusion,
) -> Option<JobEvent> {
    let report = MissingReport::NotArrived;
    let pull = match &app.vendors.github {
        Some(github) => opened_pull(&app.core, github, job, &report).await?,
        None => None,
    };
    Some(JobEvent::RunEnded {
        run,
        conclusion,
        pull,
        report,
    })
}
