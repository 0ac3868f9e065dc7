//! Runs as workflow runs of the repository host.

use crate::http::VendorError;
use crate::scm::{DispatchError, GitHub, WorkflowRun, WorkflowRunRef};
use domain::ids::{JobId, Repo};
use domain::run_config::RunConfig;
use domain::time::Timestamp;

/// Result of an accepted workflow dispatch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DispatchedRun {
    /// Workflow run that the dispatch created. `None` with older hosts, which accept a dispatch without
    /// returning the run; [`find`] then finds it by its name.
    pub run: Option<WorkflowRunRef>,
}

/// Input with the options of a run. See [`domain::run_options`].
const OPTIONS_INPUT: &str = "options";

/// Dispatches a workflow with the run's configuration as its inputs. A workflow that does not declare the input
/// of the options, because it was synced by an older version, is dispatched without them if its image must
/// contain the program anyway.
///
/// # Errors
/// [`DispatchError::Refused`] if the host rejects the dispatch. After an ambiguous
/// [`DispatchError::Vendor`] the run may exist: call [`find`] before dispatching again.
pub async fn start(
    github: &GitHub,
    repo: &Repo,
    workflow: &str,
    git_ref: &str,
    run_config: &RunConfig,
) -> Result<DispatchedRun, DispatchError> {
    let mut inputs = run_config.to_inputs();
    let mut dispatched = github
        .dispatch_workflow(repo, workflow, git_ref, &inputs)
        .await;
    if let Err(refused) = &dispatched
        && refused.is_unexpected_input(OPTIONS_INPUT)
        && run_config.options.only_name_the_program()
    {
        inputs.remove(OPTIONS_INPUT);
        dispatched = github
            .dispatch_workflow(repo, workflow, git_ref, &inputs)
            .await;
    }
    Ok(DispatchedRun { run: dispatched? })
}

/// Finds the workflow run with this dispatch id in its name, among those created at `since` or later.
///
/// # Errors
/// Fails if the list of workflow runs cannot be read.
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

/// Returns whether a workflow run's name contains the dispatch id as a whole word.
pub fn has_dispatch_id(run_name: &str, dispatch_id: &JobId) -> bool {
    run_name
        .split(|c: char| !c.is_ascii_alphanumeric() && c != '-' && c != '_')
        .any(|word| word == dispatch_id.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_only_the_whole_dispatch_id() {
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
