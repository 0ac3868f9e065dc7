//! FLOOR 5: the verbs, in the order a ticket meets them.
//!
//! 1. A bell or the clock rings [`poll`]; events of the ticketing systems come by way of [`wake`].
//! 2. It looks at the store, then asks each ticketing account once for every flagged issue.
//! 3. `domain::decision` gives each issue its one decision; the ledger keeps it.
//! 4. [`dispatch`] reserves what is to run: job, dedup entry and the effect *start run*, in one
//!    commit that checks again what was decided outside of it.
//! 5. [`deliver`] finds the effect at the head of its lane and asks the runner to start.
//! 6. The run reports its steps and one result to [`report`].
//!    A session says on the way how far it is: [`session`] has the ticket told.
//! 7. `domain::transition` answers the new job and what is owed for it.
//! 8. [`commit`] stores both in one transaction; only then is the run answered.
//! 9. [`deliver`] moves the marker, comments, tells the chat: each at least once, in lane order,
//!    and each so that twice is once.
//!    An implementation asks [`context`] for the plan that was posted before it.
//! 10. [`watch`] looks at what should have happened by now and feeds the same transition; [`closed`]
//!     ends the runs of issues that people have closed.
//!     Machines that nobody needs any more are taken down by [`reap`].
//!     An operator who wonders why nothing happens is told by [`probe`] who does not answer, and by
//!     [`doctor`] what is wrong with the whole set-up.
//!
//! A person who comments on the pull request asks [`gap_fill`] for more work on its branch: reserved
//! and delivered like any other run, and without a word to the ticket. What the repository host tells
//! of a pull request becomes part of the ledger in [`feedback`]; once it is quiet, [`follow_up`]
//! starts a run for it. [`heal`] looks for what the host did not tell.
//!
//! An operator who finds one of them stuck has it tried again, or drops it: [`errands`].
//! An operator who has a project's workflows synced waits for an errand like any other: [`sync`];
//! [`template_status`] tells who needs it.
//! Whoever is refused at the door is noted by [`doorkeeping`].
//!
//! What a mapping may cost in a month is watched by [`budget`], and when what met a model provider's
//! usage limit goes on by [`limit`]; the poll and every reservation ask both.
//!
//! The store is looked at *before* the ticketing systems are asked: an issue whose run ends while
//! they answer still counts as busy, because the markers in their answer are older than that end.

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod app;
pub mod budget;
pub mod clock;
mod closed_issues;
pub mod config;
pub mod dispatch;
pub mod doctor;
pub mod feedback;
pub mod follow_up;
pub mod gap_fill;
pub mod github_token;
pub mod job_events;
pub mod maintenance;
pub mod mapping_check;
pub mod outbox_admin;
pub mod outbox_worker;
pub mod planning_context;
pub mod poll;
pub mod probe;
pub mod provider_limit;
pub mod reap;
pub mod reconcile;
pub mod run_monitor;
pub mod run_reports;
pub mod session_events;
pub mod template_status;
pub mod ticket_webhooks;
pub mod workflow_sync;

mod effects;
mod periodic_task;
mod pull_ownership;
mod pull_run;
mod pull_wait_comments;
mod repo_image;
mod ticket_wait_comments;

pub use periodic_task::ShutdownSignal;

use std::time::Duration;

use crate::app::App;

/// How often is looked at what the audit has still to be told?
const DOORKEEPING: Duration = Duration::from_secs(10 * 60);

/// Runs the engine until it is told to stop, then waits for what is in the middle of something.
pub async fn run(app: App, stop: ShutdownSignal) {
    let polling = periodic_task::run_periodic(
        "poll",
        app.config.poll_interval,
        &app.notifiers.poll,
        &app.heartbeats,
        stop.clone(),
        || poll::run_once(&app),
    );
    let watching = periodic_task::run_periodic(
        "watch",
        app.timings.run_monitor_interval,
        &app.notifiers.run_monitor,
        &app.heartbeats,
        stop.clone(),
        || run_monitor::run_once(&app),
    );
    let reaping = periodic_task::run_periodic(
        "reap",
        app.timings.reap_interval,
        &app.notifiers.reap,
        &app.heartbeats,
        stop.clone(),
        || reap::run_once(&app),
    );
    let following_up = periodic_task::run_periodic(
        "follow-up",
        app.timings.run_monitor_interval,
        &app.notifiers.follow_up,
        &app.heartbeats,
        stop.clone(),
        || follow_up::run_once(&app),
    );
    let healing = periodic_task::run_periodic(
        "heal",
        app.timings.reconcile_interval,
        &app.notifiers.reconcile,
        &app.heartbeats,
        stop.clone(),
        || reconcile::run_once(&app),
    );
    let doorkeeping = periodic_task::run_periodic(
        "doorkeeping",
        DOORKEEPING,
        &app.notifiers.maintenance,
        &app.heartbeats,
        stop.clone(),
        || maintenance::run_once(&app),
    );
    let delivering = outbox_worker::run(app.clone(), stop.clone());
    let waking = ticket_webhooks::run(&app, stop.clone());
    tokio::join!(
        polling,
        waking,
        watching,
        reaping,
        following_up,
        healing,
        doorkeeping,
        delivering
    );
}
