//! State of this process, which a restart loses.

use crate::git_mirrors::GitMirrors;
use crate::pull_requests::BaseChecks;
use crate::run_contexts::LabelChoices;
use std::pin::pin;
use std::sync::Arc;

use tokio::sync::Notify;

use super::{
    CommentReads, FormLookups, Heartbeats, IgnoredDeliveries, LogTails, MergeChecks, Metrics,
    PermissionCache, PollSnapshots, ProbeCache, Reconciliation, RunLogLimiter, RunWatches,
    SignInLimiter, StreamSubscribers,
};
use crate::standby::Standby;
use domain::time::Timestamp;

/// State of this process, which a restart loses.
pub struct LiveState {
    /// Wake-ups of the engine's tasks.
    pub notifiers: Notifiers,
    /// Heartbeats of the engine's tasks.
    pub heartbeats: Heartbeats,
    /// Issues of the latest polls.
    pub poll_snapshots: PollSnapshots,
    /// Latest results of connection probes.
    pub probe_cache: ProbeCache,
    /// Lookups at vendors for the forms of operators.
    pub form_lookups: FormLookups,
    /// Repository permissions of commenters.
    pub permission_cache: PermissionCache,
    /// Agents and models that labels choose.
    pub(crate) label_choices: LabelChoices,
    /// How far comments on tickets were read.
    pub comment_reads: CommentReads,
    /// State of reconciliation sweeps.
    pub reconciliation: Reconciliation,
    /// Which facts about merges were read, and when.
    pub merge_checks: MergeChecks,
    /// Failing checks of base branches.
    pub base_checks: BaseChecks,
    /// Webhook deliveries that were ignored last.
    pub ignored_deliveries: IgnoredDeliveries,
    /// Last lines of each run's output.
    pub log_tails: LogTails,
    /// When the CI runs of each repository are listed next.
    pub run_watches: RunWatches,
    /// Updates of the mirrors of repositories.
    pub(crate) git_mirrors: GitMirrors,
    /// Rate limit of the logs that runs send.
    pub run_log_limiter: RunLogLimiter,
    /// Clients of event streams.
    pub stream_subscribers: StreamSubscribers,
    /// Rate limits of audit entries about failed sign-ins.
    pub sign_in_limiter: SignInLimiter,
    /// Metrics of the process.
    pub metrics: Metrics,
    /// Standby, if one is configured.
    pub standby: Option<Standby>,
}

impl LiveState {
    /// Creates the state of a process that starts now.
    pub(super) fn new(now: Timestamp, standby: Option<Standby>) -> Self {
        Self {
            notifiers: Notifiers::default(),
            heartbeats: Heartbeats::default(),
            poll_snapshots: PollSnapshots::default(),
            probe_cache: ProbeCache::default(),
            form_lookups: FormLookups::default(),
            permission_cache: PermissionCache::default(),
            label_choices: LabelChoices::default(),
            comment_reads: CommentReads::default(),
            reconciliation: Reconciliation::default(),
            merge_checks: MergeChecks::default(),
            base_checks: BaseChecks::default(),
            ignored_deliveries: IgnoredDeliveries::default(),
            log_tails: LogTails::default(),
            run_watches: RunWatches::default(),
            git_mirrors: GitMirrors::default(),
            run_log_limiter: RunLogLimiter::default(),
            stream_subscribers: StreamSubscribers::default(),
            sign_in_limiter: SignInLimiter::default(),
            metrics: Metrics::new(now),
            standby,
        }
    }
}

/// Wake-ups of the engine's tasks before their interval has passed.
#[derive(Default)]
pub struct Notifiers {
    /// Wakes the poll.
    pub poll: Arc<Notify>,
    /// Signals a ticketing event that the poll must handle.
    pub ticket_event: Notify,
    /// Signals a ticketing event of a system whose search index may lag behind.
    pub delayed_ticket_event: Notify,
    /// Wakes the run monitor.
    pub run_monitor: Notify,
    /// Wakes the reaper.
    pub reap: Notify,
    /// Wakes the follow-up task.
    pub follow_up: Notify,
    /// Wakes reconciliation.
    pub reconcile: Notify,
    /// Wakes maintenance.
    pub maintenance: Notify,
    /// Notifies all waiters after the outcome of an outbox entry is recorded.
    pub effect_settled: Notify,
}

impl Notifiers {
    /// Calls `read` now and after the outcome of each outbox entry is recorded, until it returns a
    /// value.
    ///
    /// # Errors
    /// The first error of `read`.
    pub(crate) async fn await_effects<T, E>(
        &self,
        mut read: impl FnMut() -> Result<Option<T>, E>,
    ) -> Result<T, E> {
        loop {
            let mut settled = pin!(self.effect_settled.notified());
            // Registers before the read, so that no notification is missed.
            settled.as_mut().enable();
            if let Some(found) = read()? {
                return Ok(found);
            }
            settled.await;
        }
    }
}
