//! Questions to people: the agent ends a pass by leaving a question file, and the run ends with its work as a patch.
//! See docs/behaviour.md#questions.

use super::push;
use crate::context::RunContext;
use crate::failure::RunFailure;
use crate::git::staging::StagedTree;
use crate::patch;
use crate::scratch;
use domain::question::Question;
use domain::report::FailureCode;

/// Returns the questions that the agent left in its last pass. Its processes must be killed before.
pub(super) fn questions_of_pass(run: &RunContext) -> Vec<Question> {
    let log = |line: &str| run.reporting.log(line);
    match scratch::read_questions(&run.workspace.folders.scratch()) {
        Ok(None) => Vec::new(),
        Ok(Some(questions)) if run.may_ask() => questions,
        Ok(Some(_)) => {
            log("Ignored the questions of the agent: this run may not ask any");
            Vec::new()
        }
        Err(error) => {
            log(&format!("Ignored the question file of the agent: {error}"));
            Vec::new()
        }
    }
}

/// Keeps the questions, and the staged work as a patch. Returns the failure that ends the run.
pub(super) async fn ask(
    run: &mut RunContext,
    questions: Vec<Question>,
    staged: Option<&StagedTree>,
) -> RunFailure {
    if let Some(staged) = staged {
        run.publication.patch = match keep_work(run, staged).await {
            Ok(patch) => patch,
            Err(reason) => {
                run.reporting.log(&format!(
                    "The work before the question is not kept: {reason}"
                ));
                None
            }
        };
    }
    let reason = format!("the run asked {} question(s)", questions.len());
    run.publication.questions = questions;
    RunFailure::new(FailureCode::NeedsInput, reason)
}

/// Returns the staged work as a patch; `None` if nothing changed.
///
/// # Errors
/// The reason why the work cannot be kept.
async fn keep_work(run: &RunContext, staged: &StagedTree) -> Result<Option<String>, String> {
    let report = push::check_tree(run, staged)
        .await
        .map_err(|error| error.to_string())?;
    if let Some(hit) = report.blocked.first() {
        return Err(format!("the guard blocks {hit}"));
    }
    let checkout = run.checkout().map_err(|error| error.to_string())?;
    let (git, start) = (&run.workspace.git, &checkout.head_commit);
    let changes = git.changes(start, &staged.tree).await;
    if changes.map_err(|error| error.to_string())?.is_empty() {
        return Ok(None);
    }
    let redact = |text: &str| run.reporting.console.redact(text);
    patch::of_unfinished_work(git, start, &staged.tree, redact)
        .await
        .map(Some)
}
