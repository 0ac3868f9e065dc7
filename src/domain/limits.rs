//! Limits of runs and their inputs. See docs/behaviour.md#limits.

use std::time::Duration;

use super::mapping::ModelProvider;

/// Default number of model turns per implement pass.
pub const DEFAULT_MAX_TURNS: u32 = 50;

/// Default time budget of a CI job, in minutes.
pub const DEFAULT_JOB_MINUTES: u32 = 90;

/// Default time budget of a session machine or container, in minutes.
pub const DEFAULT_SESSION_MINUTES: u32 = 60;

/// Maximum time budget of a session, in minutes. The reaper destroys machines after 4 hours, and
/// the run must time out before.
pub const MAX_SESSION_MINUTES: u32 = 230;

/// Time after the time budget of a CI run until the service cancels it.
pub(crate) const JOB_TIMEOUT_GRACE: Duration = Duration::from_secs(5 * 60);

/// Time for which tokens stay valid after the time budget of their run, so that a late report is
/// accepted.
pub const TOKEN_GRACE: Duration = Duration::from_secs(15 * 60);

/// Time after a dispatch until a missing run counts as lost.
pub const RUN_LOOKUP_TIMEOUT: Duration = Duration::from_secs(10 * 60);

/// Maximum delay until the start of a run is detected.
pub(crate) const MAX_START_DETECTION_DELAY: Duration = Duration::from_secs(2 * 60);

/// Time after the end of a run until it is judged without a report.
pub const REPORT_GRACE: Duration = Duration::from_secs(2 * 60);

/// Time after the end of a run until it is judged without the outcome that its host refuses to
/// return.
pub const OUTCOME_LOOKUP_TIMEOUT: Duration = Duration::from_secs(24 * 60 * 60);

/// Default number of issues in progress at a time per mapping.
pub(crate) const DEFAULT_MAX_IN_PROGRESS: u32 = 3;

/// Maximum number of comments that one run may post on its ticket.
pub const MAX_RUN_COMMENTS: usize = 10;

/// Maximum number of progress comments that one session may post on its ticket.
pub const MAX_SESSION_COMMENTS: usize = 30;

/// Maximum size of a comment, in bytes. Longer text is truncated and marked.
pub const MAX_COMMENT_BYTES: usize = 20_000;

/// Maximum size of a patch in a result, in bytes.
pub const MAX_PATCH_BYTES: usize = 200_000;

/// Maximum size of an instruction on a pull request, in bytes. Longer text is truncated and marked.
/// The description of the ticket is truncated first, so the limit must leave room in a dispatch.
pub const MAX_INSTRUCTION_BYTES: usize = 10_000;

/// Maximum size of one review finding in the inputs of a run, in bytes. Longer text is truncated
/// and marked.
pub(crate) const MAX_FINDING_BYTES: usize = 4_000;

/// Maximum size of all review findings in the inputs of one run, in bytes. Further findings wait
/// for the next run. As with an instruction, the description of the ticket is truncated first.
pub(crate) const MAX_FINDINGS_BYTES: usize = 16_000;

/// Maximum number of failed follow-up runs per review finding. After that, the finding is left to
/// people.
pub(crate) const MAX_FINDING_ATTEMPTS: u32 = 4;

/// Time within which the webhook and the repository's workflow may report the same comment.
pub(crate) const COMMAND_DEDUP_WINDOW: Duration = Duration::from_secs(15 * 60);

/// Time for which webhook deliveries are remembered. The host allows redelivery for three days.
pub const WEBHOOK_DEDUP_WINDOW: Duration = Duration::from_secs(4 * 24 * 60 * 60);

/// Maximum size of the plan in the inputs of an implementation run, in bytes.
pub(crate) const MAX_PLANNING_CONTEXT_BYTES: usize = 40_000;

/// Returns the default number of implement and review cycles.
pub fn default_max_iterations(provider: &ModelProvider) -> u32 {
    match provider {
        ModelProvider::Direct => 3,
        ModelProvider::Cloud { .. } => 2,
    }
}

/// Age of an issue's last change from which no other change has the same time. GitHub counts in seconds.
pub const CHANGE_SETTLED_AFTER: Duration = Duration::from_secs(10);
