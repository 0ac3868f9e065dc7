//! Polling, dispatch, outbox worker, run monitoring and reconciliation.
//!
//! The modules in the order in which a ticket passes through them:
//!
//! 1. [`poll`] runs periodically or when notified; [`ticket_webhooks`] notifies it of ticketing
//!    events.
//! 2. The poll reads the store, then requests all flagged issues, once per ticketing account.
//! 3. `domain::decision` decides about each issue; decisions that changed are stored in the
//!    dispatch log.
//! 4. [`dispatch`] reserves a run: job, dedup entry and the effect *start run* in one transaction,
//!    which checks again what the poll decided outside of it.
//! 5. [`outbox_worker`] takes the effect from the head of its queue key and starts the run.
//! 6. The run posts its steps and one result to [`run_reports`]. Sessions also post events to
//!    [`session_events`], which update the ticket.
//! 7. `domain::transition` computes the new job and its effects.
//! 8. [`job_events`] stores both in one transaction; only then is the run's request answered.
//! 9. [`outbox_worker`] moves the marker, posts comments and chat messages: each at least once, in
//!    order per queue key, and idempotently. An implementation run reads the posted plan from
//!    [`planning_context`].
//! 10. [`run_monitor`] applies timeouts and missed events through the same transition.
//!     `closed_issues` cancels the runs of closed issues. [`reap`] destroys machines that are no
//!     longer needed. [`probe`] reports which connections fail, and [`doctor`] checks the whole
//!     setup.
//!
//! [`control`] cancels and retries runs on request of an operator. [`take_over`] records that a person continues an
//! issue by hand, and [`take_over_guide`] collects what the person needs.
//!
//! [`pull_requests`] starts runs for feedback and commands on open pull requests.
//!
//! Administration: [`admin`] stores the changes that operators make, [`workflow_sync`] and
//! [`template_status`] update the workflows of a repository, [`maintenance`] records refused
//! sign-ins and daily facts in the audit, and [`liveness`] finds what blocks the service.
//!
//! [`standby`] writes what another machine needs to go on, and lets the outbox worker perform effects only while no other
//! service does.
//!
//! [`run_logs`] and [`evidence`] keep what runs leave for people.
//!
//! [`runner_image`] builds the image of local containers, and `git_mirrors` keeps mirrors of their repositories.
//!
//! [`budget`] enforces the monthly budget of a mapping, and [`provider_limit`] the usage limit of a
//! model provider. The poll and every reservation check both.
//!
//! The poll reads the store *before* it requests the issues. An issue whose run ends in between
//! still counts as busy, because the markers in the response are older than that end.

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod admin;
pub mod app;
mod artifact_reports;
pub mod budget;
pub mod choices;
pub mod clock;
mod closed_issues;
pub mod config;
pub mod control;
pub mod conversation;
pub mod dispatch;
pub mod doctor;
pub mod egress;
pub mod evidence;
mod git_mirrors;
pub mod github_app;
pub mod github_token;
pub mod incidents;
pub mod job_events;
pub mod liveness;
pub mod local_image;
pub mod maintenance;
pub mod outbox_worker;
pub mod planning_context;
pub mod poll;
pub mod probe;
pub mod program;
pub mod provider_limit;
pub mod pull_requests;
pub mod reap;
pub mod run_logs;
pub mod run_monitor;
pub mod run_reports;
pub mod runner_image;
pub mod session_events;
pub mod standby;
pub mod take_over;
pub mod take_over_guide;
pub mod template_status;
pub mod ticket_webhooks;
pub mod workflow_sync;

mod digest;
mod effects;
mod periodic_task;
mod permissions;
mod repo_image;
mod repo_settings;
mod repository_load;
mod run_contexts;
mod ticket_wait_comments;
mod time_zones;
mod trigger_trust;

pub use periodic_task::ShutdownSignal;

use std::pin::Pin;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinSet;

use store::StoreResult;

use crate::app::{App, Notifiers};

/// Interval of [`maintenance::run_once`].
const MAINTENANCE_INTERVAL: Duration = Duration::from_secs(10 * 60);

/// Runs all tasks of the engine until shutdown is requested, then waits for the work in progress.
///
/// # Panics
/// Panics if a task panics outside of its cycles, so that the service ends and is restarted.
pub async fn run(app: App, stop: ShutdownSignal) {
    let timings = app.core.timings;
    let poll_interval = app.core.config.poll_interval;
    let mut tasks = Tasks {
        set: JoinSet::new(),
        app,
        stop,
    };
    tasks.spawn_periodic(
        "poll",
        poll_interval,
        |all| &all.poll,
        |app| Box::pin(async move { poll::run_once(&app).await }),
    );
    tasks.spawn_periodic(
        "run-monitor",
        timings.run_monitor_interval,
        |all| &all.run_monitor,
        |app| Box::pin(async move { run_monitor::run_once(&app).await }),
    );
    tasks.spawn_periodic(
        "reap",
        timings.reap_interval,
        |all| &all.reap,
        |app| Box::pin(async move { reap::run_once(&app).await }),
    );
    tasks.spawn_periodic(
        "follow-up",
        timings.run_monitor_interval,
        |all| &all.follow_up,
        |app| Box::pin(async move { pull_requests::follow_up::run_once(&app).await }),
    );
    tasks.spawn_periodic(
        "reconcile",
        timings.reconcile_interval,
        |all| &all.reconcile,
        |app| Box::pin(async move { pull_requests::reconcile::run_once(&app).await }),
    );
    tasks.spawn_periodic(
        "maintenance",
        MAINTENANCE_INTERVAL,
        |all| &all.maintenance,
        |app| Box::pin(async move { maintenance::run_once(&app).await }),
    );
    tasks.spawn(outbox_worker::run);
    tasks.spawn(ticket_webhooks::run);
    tasks.spawn(git_mirrors::run);
    while let Some(ended) = tasks.set.join_next().await {
        if let Err(error) = ended
            && let Ok(panic) = error.try_into_panic()
        {
            std::panic::resume_unwind(panic);
        }
    }
}

/// Future of a cycle of a periodic task. Boxed, so that the loop around it is compiled once.
type Cycle = Pin<Box<dyn Future<Output = StoreResult<()>> + Send>>;

/// Spawned tasks of the engine.
struct Tasks {
    set: JoinSet<()>,
    app: App,
    stop: ShutdownSignal,
}

impl Tasks {
    fn spawn<F>(&mut self, task: impl FnOnce(App, ShutdownSignal) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let task = task(self.app.clone(), self.stop.clone());
        self.set.spawn(tasks::boxed(task));
    }

    fn spawn_periodic(
        &mut self,
        name: &'static str,
        period: Duration,
        notify: fn(&Notifiers) -> &Notify,
        work: fn(App) -> Cycle,
    ) {
        self.spawn(|app, stop| async move {
            let cycle = || work(app.latest());
            let notify = notify(&app.live.notifiers);
            periodic_task::run_periodic(name, period, notify, &app.live.heartbeats, stop, cycle)
                .await;
        });
    }
}
