//! Implement and review passes, shared by the feedback loop and the review after the push.

use serde::Deserialize;
use serde_json::json;

use super::agent_pass::run_agent_pass;
use super::question;
use crate::agent::{AgentAnswer, AgentRole};
use crate::blocking_finding::BlockingFinding;
use crate::context::{RunContext, TreeReview};
use crate::failure::RunFailure;
use crate::git::staging::StagedTree;
use crate::prompts::{self, PromptMaterial};
use domain::sanitize;

/// Maximum length of the diff in a review prompt, in bytes.
const MAX_DIFF: usize = 300_000;

/// Result of a review pass.
#[derive(Debug, Deserialize, PartialEq, Eq)]
struct ReviewResult {
    approved: bool,
    #[serde(default)]
    blocking: Vec<BlockingFinding>,
}

/// Runs an implement pass and stages the work tree; `findings` are to be fixed.
pub(super) async fn implement(
    run: &mut RunContext,
    id: &str,
    findings: &[BlockingFinding],
) -> Result<StagedTree, RunFailure> {
    let step = run.reporting.begin_step(id, "implement");
    let findings: Vec<String> = findings.iter().map(BlockingFinding::prompt_text).collect();
    let material = PromptMaterial::of(run);
    let prompt = prompts::implement(&material, &run.change.plan, &findings.join("\n\n"));
    let answer = match run_agent_pass(run, AgentRole::Implement, prompt).await {
        Ok(answer) => answer,
        Err(failure) => {
            run.reporting.fail_step(step, &failure.reason);
            return Err(failure);
        }
    };
    run.change.summary = answer.text;
    let staged = run.workspace.stage_work_tree().await?;
    let questions = question::questions_of_pass(run);
    let outputs = json!({ "tree": staged.tree });
    run.reporting.end_step(step, "passed", Some(outputs));
    match questions.is_empty() {
        true => Ok(staged),
        false => Err(question::ask(run, questions, Some(&staged)).await),
    }
}

/// Reviews a tree and stores the result. A failed or unreadable review is a finding: the change is
/// kept, but it is not approved.
pub(super) async fn review(
    run: &mut RunContext,
    id: &str,
    tree: &str,
) -> Result<Vec<BlockingFinding>, RunFailure> {
    let step = run.reporting.begin_step(id, "review");
    let from = run.checkout()?.review_base();
    let diff = run
        .workspace
        .git
        .diff(from, tree, MAX_DIFF)
        .await
        .map_err(RunFailure::other)?;
    let diff = sanitize::reveal_invisible(&diff);
    let diff = sanitize::truncate(diff, MAX_DIFF, sanitize::ELLIPSIS);
    let prompt = prompts::review(&PromptMaterial::of(run), &diff);
    let findings = match run_agent_pass(run, AgentRole::Review, prompt).await {
        Ok(answer) => findings(&answer),
        Err(failure) => vec![BlockingFinding::unfixable(
            "The review failed",
            &failure.reason,
        )],
    };
    let lines: Vec<String> = findings.iter().map(BlockingFinding::summary_line).collect();
    for line in &lines {
        run.reporting.log(&format!("Review: {line}"));
    }
    let details: Vec<_> = findings.iter().map(BlockingFinding::output).collect();
    let outputs =
        json!({ "approved": findings.is_empty(), "blocking": lines, "findings": details });
    run.reporting.end_step(step, "passed", Some(outputs));
    run.review.last = Some(TreeReview {
        tree: tree.to_owned(),
        findings: findings.clone(),
    });
    Ok(findings)
}

/// Returns the findings in a review's answer.
fn findings(answer: &AgentAnswer) -> Vec<BlockingFinding> {
    let result = answer
        .structured
        .as_ref()
        .and_then(|value| ReviewResult::deserialize(value).ok())
        .or_else(|| serde_json::from_slice(strip_code_fence(&answer.text).as_bytes()).ok());
    match result {
        Some(ReviewResult {
            approved: true,
            blocking,
        }) if blocking.is_empty() => Vec::new(),
        Some(ReviewResult {
            approved: false,
            blocking,
        }) if blocking.is_empty() => vec![BlockingFinding::unfixable(
            "The review did not approve",
            "it gave no reason",
        )],
        Some(ReviewResult { blocking, .. }) => blocking,
        None => vec![BlockingFinding::unfixable(
            "The review could not be read",
            "its answer does not match the schema",
        )],
    }
}

/// Removes a code fence around JSON, which models add despite the instructions.
fn strip_code_fence(text: &str) -> &str {
    let text = text.trim();
    text.strip_prefix("```json")
        .or_else(|| text.strip_prefix("```"))
        .and_then(|text| text.strip_suffix("```"))
        .unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(text: &str) -> AgentAnswer {
        AgentAnswer {
            text: text.to_owned(),
            structured: None,
        }
    }

    #[test]
    fn approves_only_on_a_clear_approval() {
        assert!(findings(&answer(r#"{"approved":true,"blocking":[]}"#)).is_empty());
        assert!(findings(&answer("```json\n{\"approved\":true,\"blocking\":[]}\n```")).is_empty());
        for (unclear, is_fixable) in [
            ("", false),
            ("Looks good to me!", false),
            (r#"{"approved":"yes"}"#, false),
            (r#"{"blocking":[]}"#, false),
            (r#"{"approved":false,"blocking":[]}"#, false),
            (r#"{"approved":true,"blocking":[{"title":"a race"}]}"#, true),
        ] {
            let found = findings(&answer(unclear));
            assert_eq!(found.len(), 1, "{unclear}");
            assert_eq!(found[0].is_fixable(), is_fixable, "{unclear}");
        }
    }

    #[test]
    fn prefers_the_structured_answer() {
        let both = AgentAnswer {
            text: r#"{"approved":true,"blocking":[]}"#.to_owned(),
            structured: Some(json!({"approved": false, "blocking": [
                {"title": "A race", "location": "a.rs:3", "problem": "two writers", "requiredFix": "lock"}
            ]})),
        };
        let findings = findings(&both);
        assert_eq!(findings[0].summary_line(), "A race (a.rs:3): two writers");
        assert!(findings[0].prompt_text().ends_with("Required fix: lock"));
    }
}
