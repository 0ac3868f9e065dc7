//! How much a run may use. (spec: *Limits*)

use std::time::Duration;

use super::mapping::ModelProvider;

/// Model turns of one implement pass, when the mapping sets none.
pub const DEFAULT_MAX_TURNS: u32 = 50;

/// Minutes of a CI job, when the mapping sets none.
pub const DEFAULT_JOB_MINUTES: u32 = 90;

/// Minutes of a session machine or container, when the mapping sets none.
pub const DEFAULT_SESSION_MINUTES: u32 = 60;

/// Most minutes of a session, whatever the mapping sets: a machine of four hours is destroyed, and its
/// run is to end by its own time-out before that.
pub const MAX_SESSION_MINUTES: u32 = 230;

/// How long past its own time-out may a CI run be before we cancel it?
pub const JOB_TIMEOUT_GRACE: Duration = Duration::from_secs(5 * 60);

/// How long do tokens outlive the deadline of their run, so that a late report still counts?
pub const TOKEN_GRACE: Duration = Duration::from_secs(15 * 60);

/// How long may a dispatch stay without a run before it counts as lost?
pub const RUN_LOOKUP_TIMEOUT: Duration = Duration::from_secs(10 * 60);

/// How late is the start of a run noticed, at most?
pub const MAX_START_DETECTION_DELAY: Duration = Duration::from_secs(2 * 60);

/// How long after a run's end may its report still arrive before we judge without it?
pub const REPORT_GRACE: Duration = Duration::from_secs(2 * 60);

/// How long after a run's end may what it left behind be refused to us before we judge without it?
pub const OUTCOME_LOOKUP_TIMEOUT: Duration = Duration::from_secs(24 * 60 * 60);

/// Issues of one mapping in progress at a time, when the mapping sets no cap.
pub const DEFAULT_MAX_IN_PROGRESS: u32 = 3;

/// Comments that one run may post on its ticket.
pub const MAX_RUN_COMMENTS: usize = 10;

/// Progress comments that one session may cause on its ticket.
pub const MAX_SESSION_COMMENTS: usize = 30;

/// Bytes of one such comment; what is over is cut, with a mark.
pub const MAX_COMMENT_BYTES: usize = 20_000;

/// Bytes of a patch that goes with a result.
pub const MAX_PATCH_BYTES: usize = 200_000;

/// Bytes of what an operator asks of a run on a pull request; what is over is cut, with a mark. The
/// description of the ticket gives way to it in a dispatch, so it must leave room.
pub const MAX_INSTRUCTION_BYTES: usize = 10_000;

/// Bytes of one piece of feedback on a pull request, as a run is told it; what is over is cut, with a
/// mark.
pub const MAX_FINDING_BYTES: usize = 4_000;

/// Bytes of all feedback that one run is told; the rest waits for the next run. As with an
/// instruction, the description of the ticket gives way to it.
pub const MAX_FINDINGS_BYTES: usize = 16_000;

/// Follow-ups that may fail over one piece of feedback before it is left to people.
pub const MAX_FINDING_ATTEMPTS: u32 = 4;

/// For how long may the webhook and the repository's workflow tell of the same comment, one after the
/// other?
pub const COMMAND_DEDUP_WINDOW: Duration = Duration::from_secs(15 * 60);

/// For how long is a webhook's delivery known? The host lets people redeliver for three days.
pub const WEBHOOK_DEDUP_WINDOW: Duration = Duration::from_secs(4 * 24 * 60 * 60);

/// Bytes of the plan that an implementation run is shown.
pub const MAX_PLANNING_CONTEXT_BYTES: usize = 40_000;

/// Cycles of implementing and reviewing, when the mapping sets none.
pub fn default_max_iterations(provider: &ModelProvider) -> u32 {
    match provider {
        ModelProvider::Direct => 3,
        ModelProvider::Cloud { .. } => 2,
    }
}
