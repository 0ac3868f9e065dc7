//! A pass that makes the change, and a pass that judges it: what the feedback loop and the review
//! after the push have in common.

use serde::Deserialize;
use serde_json::json;

use super::run_agent_pass;
use crate::agent::{AgentAnswer, AgentPass, AgentRole};
use crate::context::{RunContext, RunFailure, TreeReview};
use crate::executor::{begin_step, end_step};
use crate::git::staging::StagedTree;
use crate::prompts;
use crate::text;
use domain::limits;

/// Turns of one review pass.
const REVIEW_TURNS: u32 = 40;

/// How much of a difference does a review read?
const MAX_DIFF: usize = 300_000;

/// How much of a finding is kept?
const MAX_FINDING: usize = 2000;

/// A review's answer.
#[derive(Debug, Deserialize, PartialEq, Eq)]
struct Verdict {
    approved: bool,
    #[serde(default)]
    blocking: Vec<BlockingFinding>,
}

/// What stands in the way of a change.
#[derive(Debug, Clone, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct BlockingFinding {
    title: String,
    #[serde(default)]
    location: String,
    #[serde(default)]
    problem: String,
    #[serde(default)]
    required_fix: String,
    /// Whether somebody looked at the change and found it wrong. No change mends a reviewer that
    /// did not come.
    #[serde(skip, default = "yes")]
    is_mendable: bool,
}

fn yes() -> bool {
    true
}

/// Lets the agent change the work tree; `findings` are what must be mended.
pub(super) async fn implement(
    run: &mut RunContext,
    id: &str,
    findings: &[BlockingFinding],
) -> Result<StagedTree, RunFailure> {
    let step = begin_step(run, id, "implement");
    let told: Vec<String> = findings.iter().map(BlockingFinding::told).collect();
    let pass = AgentPass {
        role: AgentRole::Implement,
        max_turns: run.config.max_turns.unwrap_or(limits::DEFAULT_MAX_TURNS),
        system: prompts::system(run),
        prompt: prompts::implement(run, &told.join("\n\n")),
    };
    let answer = match run_agent_pass(run, &pass).await {
        Ok(answer) => answer,
        Err(failure) => {
            end_step(
                run,
                step,
                "failed",
                Some(json!({ "reason": failure.reason })),
            );
            return Err(failure);
        }
    };
    run.state.summary = answer.text;
    let staged = run.stage_work_tree().await?;
    end_step(run, step, "passed", Some(json!({ "tree": staged.tree })));
    Ok(staged)
}

/// Reviews a tree and remembers the verdict. A review that cannot be read, or did not come about, is
/// a finding: the change is there and must not be lost, but nobody has approved it.
pub(super) async fn review(
    run: &mut RunContext,
    id: &str,
    tree: &str,
) -> Result<Vec<BlockingFinding>, RunFailure> {
    let step = begin_step(run, id, "review");
    let diff = run
        .git
        .diff(&run.state.fork_point, tree, MAX_DIFF)
        .await
        .map_err(RunFailure::other)?;
    let pass = AgentPass {
        role: AgentRole::Review,
        max_turns: REVIEW_TURNS,
        system: prompts::system(run),
        prompt: prompts::review(run, &diff),
    };
    let findings = match run_agent_pass(run, &pass).await {
        Ok(answer) => findings(&answer),
        Err(failure) => vec![BlockingFinding::unfixable(
            "The review did not come about",
            &failure.reason,
        )],
    };
    let lines: Vec<String> = findings.iter().map(BlockingFinding::summary_line).collect();
    for line in &lines {
        run.console.log(&format!("review: {line}"));
    }
    end_step(
        run,
        step,
        "passed",
        Some(json!({ "approved": findings.is_empty(), "blocking": lines })),
    );
    run.state.last_review = Some(TreeReview {
        tree: tree.to_owned(),
        findings: findings.clone(),
    });
    Ok(findings)
}

/// What must be mended, by a review's answer.
fn findings(answer: &AgentAnswer) -> Vec<BlockingFinding> {
    let read = answer
        .structured
        .as_ref()
        .and_then(|value| Verdict::deserialize(value).ok())
        .or_else(|| serde_json::from_str(unfenced(&answer.text)).ok());
    match read {
        Some(Verdict {
            approved: true,
            blocking,
        }) if blocking.is_empty() => Vec::new(),
        Some(Verdict {
            approved: false,
            blocking,
        }) if blocking.is_empty() => vec![BlockingFinding::unfixable(
            "The review did not approve",
            "it named no reason",
        )],
        Some(Verdict { blocking, .. }) => blocking,
        None => vec![BlockingFinding::unfixable(
            "The review could not be read",
            "its answer is not of the form that was asked for",
        )],
    }
}

/// JSON that a model put into a code fence after all.
fn unfenced(text: &str) -> &str {
    let text = text.trim();
    text.strip_prefix("```json")
        .or_else(|| text.strip_prefix("```"))
        .and_then(|text| text.strip_suffix("```"))
        .unwrap_or(text)
}

impl BlockingFinding {
    /// What a reviewer found wrong, where.
    pub(super) fn fixable(title: &str, location: &str, problem: &str) -> Self {
        Self {
            title: title.to_owned(),
            location: location.to_owned(),
            problem: problem.to_owned(),
            required_fix: String::new(),
            is_mendable: true,
        }
    }

    /// A verdict that is missing: nobody has approved, and no change of ours brings it about.
    pub(super) fn unfixable(title: &str, problem: &str) -> Self {
        Self {
            is_mendable: false,
            ..Self::fixable(title, "", problem)
        }
    }

    pub(super) fn is_fixable(&self) -> bool {
        self.is_mendable
    }

    /// One line, for people.
    pub(super) fn summary_line(&self) -> String {
        let place = match self.location.trim() {
            "" => String::new(),
            place => format!(" ({place})"),
        };
        let line = format!("{}{place}: {}", self.title.trim(), self.problem.trim());
        text::truncate(
            &text::strip_invisible(&line).replace('\n', " "),
            MAX_FINDING,
        )
    }

    /// All of it, for the next implement pass.
    fn told(&self) -> String {
        match self.required_fix.trim() {
            "" => format!("- {}", self.summary_line()),
            fix => format!("- {}\n  Required fix: {fix}", self.summary_line()),
        }
    }
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
    fn only_a_clear_approval_approves() {
        assert!(findings(&answer(r#"{"approved":true,"blocking":[]}"#)).is_empty());
        assert!(findings(&answer("```json\n{\"approved\":true,\"blocking\":[]}\n```")).is_empty());
        for (unclear, is_mendable) in [
            ("", false),
            ("Looks good to me!", false),
            (r#"{"approved":"yes"}"#, false),
            (r#"{"blocking":[]}"#, false),
            (r#"{"approved":false,"blocking":[]}"#, false),
            (r#"{"approved":true,"blocking":[{"title":"a race"}]}"#, true),
        ] {
            let found = findings(&answer(unclear));
            assert_eq!(found.len(), 1, "{unclear}");
            assert_eq!(found[0].is_fixable(), is_mendable, "{unclear}");
        }
    }

    #[test]
    fn the_structured_answer_counts_before_the_text() {
        let both = AgentAnswer {
            text: r#"{"approved":true,"blocking":[]}"#.to_owned(),
            structured: Some(json!({"approved": false, "blocking": [
                {"title": "A race", "location": "a.rs:3", "problem": "two writers", "requiredFix": "lock"}
            ]})),
        };
        let findings = findings(&both);
        assert_eq!(findings[0].summary_line(), "A race (a.rs:3): two writers");
        assert!(findings[0].told().ends_with("Required fix: lock"));
    }
}
