//! Comments about cancelled runs.

use super::{failure_headline, next_step, run_kind_name};
use crate::job::{AfterCancel, Job, JobState};

/// Returns the ticket comment about a cancelled run whose work is given up.
pub(crate) fn cancelled(job: &Job) -> String {
    format!(
        "{}.\n\n**What to do:** {} Or select **Retry** in the panel.",
        headline(job),
        next_step(job)
    )
}

/// Returns the pull request comment about a cancelled run.
pub(crate) fn cancelled_on_pull_request(job: &Job) -> String {
    match job.after_cancel() {
        Some(AfterCancel::Stop) => format!(
            "{}. The feedback that it worked on is given up.\n\n**What to do:** {} Or select **Retry** in the panel.",
            headline(job),
            next_step(job)
        ),
        Some(AfterCancel::Retry) => format!("{}. It starts again.", headline(job)),
        Some(AfterCancel::Release) | None => failure_headline(job.kind, None, reason(job)),
    }
}

/// Returns who cancelled which run.
fn headline(job: &Job) -> String {
    let run = run_kind_name(job.kind);
    let Some(cancellation) = &job.cancellation else {
        return format!("{run} cancelled");
    };
    // Without the address of the operator, which only the audit log names.
    format!("{run} cancelled by {}", cancellation.actor())
}

fn reason(job: &Job) -> &str {
    match &job.state {
        JobState::Failed { reason, .. } => reason,
        _ => "",
    }
}
