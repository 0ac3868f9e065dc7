//! Sessions whose machine has started, ended or gone.

use futures_util::future::join_all;

use crate::app::App;
use domain::job::{Job, RunHandle};
use domain::machine::{HostKind, Machine, MachinePhase};
use domain::transition::{JobEvent, RunActivity};
use store::StoreResult;

use super::{apply_event, opened_pull};

/// What the end of a run without its machine is called.
const MACHINE_GONE: &str = "its machine gone";

/// Looks at every job that runs in a machine, with one list call per host.
pub(super) async fn check_machines(app: &App, active: &[Job]) -> StoreResult<()> {
    let hosts = [HostKind::Vm, HostKind::Local];
    let looks = hosts.into_iter().map(|host| {
        let jobs = active.iter().filter(|job| job.runner.host() == Some(host));
        look_at(app, host, jobs.collect())
    });
    let looked: StoreResult<Vec<()>> = join_all(looks).await.into_iter().collect();
    looked.map(drop)
}

async fn look_at(app: &App, host: HostKind, jobs: Vec<&Job>) -> StoreResult<()> {
    if jobs.is_empty() {
        return Ok(());
    }
    let machines = match app.sessions.list(host).await {
        Ok(machines) => machines,
        Err(error) => {
            let host = host.as_str();
            tracing::warn!(host, %error, "Machines could not be listed; time budgets hold all the same.");
            return Ok(());
        }
    };
    for job in jobs {
        let event = match machines.iter().find(|machine| is_machine_of(machine, job)) {
            Some(machine) => seen(app, job, machine).await,
            None => missed(app, job).await,
        };
        if let Some(event) = event {
            apply_event(app, job, event).await?;
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

/// None while nothing can be concluded.
async fn seen(app: &App, job: &Job, machine: &Machine) -> Option<JobEvent> {
    let activity = match machine.state.phase() {
        MachinePhase::Starting => RunActivity::Queued,
        MachinePhase::Running => RunActivity::InProgress,
        MachinePhase::Stopped => return over(app, job, machine).await,
        MachinePhase::Destroying => {
            return ended(app, job, machine.run_handle(), MACHINE_GONE.to_owned()).await;
        }
    };
    let run = machine.run_handle();
    Some(JobEvent::RunFound { run, activity })
}

/// A list need not say how a program ended.
async fn over(app: &App, job: &Job, machine: &Machine) -> Option<JobEvent> {
    let inspected = match app.sessions.inspect(&machine.reference()).await {
        Ok(inspected) => inspected,
        Err(error) => {
            tracing::warn!(job_id = %job.id, issue = %job.issue.key, team = %job.team, %error, "The machine could not be looked at.");
            return None;
        }
    };
    let conclusion = match inspected {
        Some(machine) => match machine.exit {
            Some(exit) => exit.conclusion(),
            None => format!("its machine {}", machine.state.as_str()),
        },
        None => MACHINE_GONE.to_owned(),
    };
    ended(app, job, machine.run_handle(), conclusion).await
}

/// A machine that we know by its id may be missing only from the list.
async fn missed(app: &App, job: &Job) -> Option<JobEvent> {
    let Some(run) = job.run.clone() else {
        return job.is_lost(app.now()).then_some(JobEvent::RunMissing);
    };
    match app.sessions.inspect(&run.machine()?).await {
        Ok(None) => ended(app, job, run, MACHINE_GONE.to_owned()).await,
        Ok(Some(_)) => None,
        Err(error) => {
            tracing::warn!(job_id = %job.id, issue = %job.issue.key, team = %job.team, %error, "The machine could not be looked up.");
            None
        }
    }
}

async fn ended(app: &App, job: &Job, run: RunHandle, conclusion: String) -> Option<JobEvent> {
    let pull = match &app.github {
        Some(github) => opened_pull(app, github, job).await?,
        None => None,
    };
    Some(JobEvent::RunEnded {
        run,
        conclusion,
        pull,
    })
}
