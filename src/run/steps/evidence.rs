//! Evidence of the verify step: collected, sent to the orchestrator and named in the pull request.
//!
//! Evidence serves people and decides nothing: whatever fails here is logged, and the run continues.

use std::path::Path;
use std::time::Duration;

use serde_json::json;

use crate::context::{Evidence, RunContext};
use crate::evidence;
use crate::failure::RunFailure;
use crate::pull_request;
use crate::retry::retry;
use domain::report::RunPhase;
use vendors::scm::GitHub;

/// Maximum time to retry naming the files in the pull request.
const RETRY_TIMEOUT: Duration = Duration::from_secs(60);

/// Publishes the files that a run of the verify script left in a folder.
pub(super) async fn publish(run: &mut RunContext, folder: &Path) {
    if let Err(failure) = run.workspace.kill_orphan_processes().await {
        return run.reporting.log(&format!("Left out evidence: {failure}"));
    }
    let collected = match evidence::collect(folder, &run.reporting.console) {
        Ok(collected) => collected,
        Err(error) => {
            return run.reporting.log(&format!("Left out evidence: {error}"));
        }
    };
    for reason in &collected.refused {
        run.reporting.log(&format!("Left out evidence {reason}"));
    }
    let files = collected.files;
    if files.is_empty() && run.publication.evidence.names.is_empty() {
        return;
    }
    let names: Vec<String> = files.iter().map(|file| file.name.clone()).collect();
    run.reporting
        .log(&format!("Evidence: {}", names.join(", ")));
    run.reporting.add_output("evidence", json!(names));
    let is_kept = match run.connections.orchestrator.report_evidence(&files).await {
        None => {
            // The report file of the run carries it, if it fits.
            run.reporting.evidence.put(files);
            true
        }
        Some(Ok(warnings)) => {
            for warning in warnings {
                run.reporting.log(&format!("Evidence: {warning}"));
            }
            true
        }
        Some(Err(error)) => {
            run.reporting
                .log(&format!("The service does not keep the evidence: {error}"));
            false
        }
    };
    run.publication.evidence = Evidence { names, is_kept };
    if let Err(failure) = name_in_pull(run).await {
        run.reporting.log(&format!(
            "Failed to name the evidence in the pull request: {failure}"
        ));
    }
}

/// Names the files in the text about the change: the description of the pull request, or the comment of a follow-up.
async fn name_in_pull(run: &mut RunContext) -> Result<(), RunFailure> {
    let Some(number) = run.publication.pull.as_ref().map(|pull| pull.number) else {
        return Ok(());
    };
    let checkout = run.checkout()?;
    let changes = run
        .workspace
        .git
        .changes(&checkout.fork_point, &checkout.head_commit);
    let changes = changes.await.map_err(RunFailure::other)?;
    let access = run.connections.fetch_repo_access(&run.workspace).await?;
    let github: GitHub = run.connections.github_client(&access)?;
    let (repo, log) = (&run.dispatch.repo, |line: &str| run.reporting.log(line));
    let result = retry(&log, RETRY_TIMEOUT, async || {
        if run.dispatch.config.phase == RunPhase::GapAnalysis {
            let (marker, body) = pull_request::follow_up_comment(run, &changes);
            let updated = github.upsert_comment(repo, number, &marker, &body);
            return updated.await.map(drop);
        }
        // People may have edited the description since.
        let pull = github.pull(repo, number).await?;
        let body = pull_request::with_evidence(&pull.body, &run.publication.evidence);
        match body == pull.body {
            true => Ok(()),
            false => {
                let updated = github.update_pull(repo, number, &pull.title, &body);
                updated.await.map(drop)
            }
        }
    });
    result.await.map_err(RunFailure::other)
}
