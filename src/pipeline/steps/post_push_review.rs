//! Says what the review left open, once the pull request is there.
//!
//! The pull request is a draft then, and the result carries the findings. Reviewers outside of the
//! run are not asked here.

use serde_json::json;

use crate::pipeline::run::{Failure, Run, StepOutcome};

pub(super) async fn perform(run: &mut Run) -> Result<StepOutcome, Failure> {
    let unresolved = &run.found.unresolved;
    for finding in unresolved {
        run.console.say(&format!("left open: {finding}"));
    }
    Ok(StepOutcome::Passed(json!({
        "approved": unresolved.is_empty(),
        "unresolved": unresolved,
    })))
}
