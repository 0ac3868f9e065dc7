//! Runs as workflows of the repository host.

use crate::http::VendorError;
use crate::scm::{DispatchError, GitHub, WorkflowRun, WorkflowRunRef};
use domain::ids::{JobId, Repo};
use domain::run_config::RunConfig;
use domain::time::Timestamp;

/// What the host told when it took a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DispatchedRun {
    /// Older hosts accept a dispatch without naming the run; it is then found by its name.
    pub run: Option<WorkflowRunRef>,
}

/// Dispatches a workflow with everything the run needs.
///
/// # Errors
/// [`DispatchError::Refused`] when the host's copy of the workflow does not take it. An ambiguous
/// [`DispatchError::Vendor`] may have started the run: look with [`find`] before asking again.
pub async fn start(
    github: &GitHub,
    repo: &Repo,
    workflow: &str,
    git_ref: &str,
    run_config: &RunConfig,
) -> Result<DispatchedRun, DispatchError> {
    let run = github
        .dispatch_workflow(repo, workflow, git_ref, &run_config.to_inputs())
        .await?;
    Ok(DispatchedRun { run })
}

/// The run that carries this dispatch id in its name, among those created at `since` or later.
///
/// # Errors
/// What the host's list of runs failed with.
pub async fn find(
    github: &GitHub,
    repo: &Repo,
    dispatch_id: &JobId,
    since: Timestamp,
) -> Result<Option<WorkflowRun>, VendorError> {
    let runs = github.workflow_runs_since(repo, since).await?;
    Ok(runs
        .into_iter()
        .find(|run| has_dispatch_id(&run.name, dispatch_id)))
}

/// Whether a run's name carries the dispatch id as a whole word.
pub fn has_dispatch_id(run_name: &str, dispatch_id: &JobId) -> bool {
    run_name
        .split(|c: char| !c.is_ascii_alphanumeric() && c != '-' && c != '_')
        .any(|word| word == dispatch_id.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_known_by_the_whole_id_only() {
        let id = JobId::from("01JABC");
        for name in [
            "ENG-1 [01JABC]",
            "01JABC",
            "Implement ENG-1 (01JABC): title",
        ] {
            assert!(has_dispatch_id(name, &id), "{name}");
        }
        for name in ["", "01JABCD", "x01JABC", "01JABC-shadow", "ENG-1"] {
            assert!(!has_dispatch_id(name, &id), "{name}");
        }
    }
}
