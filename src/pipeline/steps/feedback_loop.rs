//! Implementing and reviewing, in turns, until the review has nothing to mend or the turns are used
//! up. What the last review left open goes with the pull request.

use serde::Deserialize;
use serde_json::json;

use super::ask;
use crate::domain::caps;
use crate::domain::report::{FailureCode, RunPhase};
use crate::pipeline::agent::{Answer, Pass, Role};
use crate::pipeline::executor::{begin, end};
use crate::pipeline::git::import::Import;
use crate::pipeline::prompts;
use crate::pipeline::run::{Failure, Run, StepOutcome};
use crate::pipeline::text;

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
    blocking: Vec<Finding>,
}

#[derive(Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
struct Finding {
    title: String,
    #[serde(default)]
    location: String,
    #[serde(default)]
    problem: String,
    #[serde(default)]
    required_fix: String,
}

pub(super) async fn perform(run: &mut Run) -> Result<StepOutcome, Failure> {
    run.settle().await?;
    fetch_plan(run).await;
    // What install and setup made is not the agent's work.
    run.git.ignore_present().await.map_err(Failure::other)?;
    let mut staged = run.import().await?;
    let untouched = staged.tree.clone();
    let rounds = run
        .config
        .max_iterations
        .unwrap_or_else(|| caps::default_max_iterations(&run.config.provider));
    let mut findings: Vec<Finding> = Vec::new();
    for round in 1..=rounds {
        run.found.iterations = round;
        let before = staged.tree.clone();
        staged = implement(run, round, &findings).await?;
        if staged.tree == untouched && staged.blocked.is_empty() {
            return Err(Failure::new(
                FailureCode::NoChanges,
                "Nothing to commit: no file changes in the working tree",
            ));
        }
        if round > 1 && staged.tree == before {
            run.console.say("the agent mended nothing more");
            break;
        }
        findings = review(run, round, &staged).await?;
        if findings.is_empty() {
            break;
        }
    }
    run.found.unresolved = findings.iter().map(Finding::line).collect();
    run.found.staged = Some(staged);
    Ok(StepOutcome::Passed(json!({
        "iterations": run.found.iterations,
        "approved": findings.is_empty(),
        "unresolved": run.found.unresolved,
        "usage": run.found.usage,
    })))
}

/// The plan that was posted on the ticket before. Work on an open pull request is past it.
async fn fetch_plan(run: &mut Run) {
    if run.config.phase != RunPhase::Implementation {
        return;
    }
    match run.access.plan().await {
        Ok(plan) => run.found.plan = plan,
        Err(error) => run
            .console
            .say(&format!("going on without the plan: {error}")),
    }
}

async fn implement(run: &mut Run, round: u32, findings: &[Finding]) -> Result<Import, Failure> {
    let step = begin(run, &format!("implement.{round}"), "implement");
    let told: Vec<String> = findings.iter().map(Finding::told).collect();
    let pass = Pass {
        role: Role::Implement,
        max_turns: run.config.max_turns.unwrap_or(caps::DEFAULT_MAX_TURNS),
        system: prompts::system(run),
        prompt: prompts::implement(run, &told.join("\n\n")),
    };
    let answer = match ask(run, &pass).await {
        Ok(answer) => answer,
        Err(failure) => {
            end(
                run,
                step,
                "failed",
                Some(json!({ "reason": failure.reason })),
            );
            return Err(failure);
        }
    };
    run.found.summary = answer.text;
    let staged = run.import().await?;
    end(run, step, "passed", Some(json!({ "tree": staged.tree })));
    Ok(staged)
}

/// Reviews what is staged. A review that cannot be read, or did not come about, is a finding: the
/// change is there and must not be lost, but nobody has approved it.
async fn review(run: &mut Run, round: u32, staged: &Import) -> Result<Vec<Finding>, Failure> {
    let step = begin(run, &format!("review.{round}"), "review");
    let diff = run
        .git
        .diff(&run.found.fork_point, &staged.tree, MAX_DIFF)
        .await
        .map_err(Failure::other)?;
    let pass = Pass {
        role: Role::Review,
        max_turns: REVIEW_TURNS,
        system: prompts::system(run),
        prompt: prompts::review(run, &diff),
    };
    let findings = match ask(run, &pass).await {
        Ok(answer) => findings(&answer),
        Err(failure) => vec![Finding::about(
            "The review did not come about",
            &failure.reason,
        )],
    };
    let lines: Vec<String> = findings.iter().map(Finding::line).collect();
    for line in &lines {
        run.console.say(&format!("review: {line}"));
    }
    end(
        run,
        step,
        "passed",
        Some(json!({ "approved": findings.is_empty(), "blocking": lines })),
    );
    Ok(findings)
}

/// What must be mended, by a review's answer.
fn findings(answer: &Answer) -> Vec<Finding> {
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
        }) if blocking.is_empty() => vec![Finding::about(
            "The review did not approve",
            "it named no reason",
        )],
        Some(Verdict { blocking, .. }) => blocking,
        None => vec![Finding::about(
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

impl Finding {
    fn about(title: &str, problem: &str) -> Self {
        Self {
            title: title.to_owned(),
            location: String::new(),
            problem: problem.to_owned(),
            required_fix: String::new(),
        }
    }

    /// One line, for people.
    fn line(&self) -> String {
        let place = match self.location.trim() {
            "" => String::new(),
            place => format!(" ({place})"),
        };
        let line = format!("{}{place}: {}", self.title.trim(), self.problem.trim());
        text::cut(&text::visible(&line).replace('\n', " "), MAX_FINDING)
    }

    /// All of it, for the next implement pass.
    fn told(&self) -> String {
        format!("- {}\n  Required fix: {}", self.line(), self.required_fix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(text: &str) -> Answer {
        Answer {
            text: text.to_owned(),
            structured: None,
        }
    }

    #[test]
    fn only_a_clear_approval_approves() {
        assert!(findings(&answer(r#"{"approved":true,"blocking":[]}"#)).is_empty());
        assert!(findings(&answer("```json\n{\"approved\":true,\"blocking\":[]}\n```")).is_empty());
        for unclear in [
            "",
            "Looks good to me!",
            r#"{"approved":"yes"}"#,
            r#"{"blocking":[]}"#,
            r#"{"approved":false,"blocking":[]}"#,
            r#"{"approved":true,"blocking":[{"title":"a race"}]}"#,
        ] {
            assert_eq!(findings(&answer(unclear)).len(), 1, "{unclear}");
        }
    }

    #[test]
    fn the_structured_answer_counts_before_the_text() {
        let both = Answer {
            text: r#"{"approved":true,"blocking":[]}"#.to_owned(),
            structured: Some(json!({"approved": false, "blocking": [
                {"title": "A race", "location": "a.rs:3", "problem": "two writers", "requiredFix": "lock"}
            ]})),
        };
        let findings = findings(&both);
        assert_eq!(findings[0].line(), "A race (a.rs:3): two writers");
        assert!(findings[0].told().ends_with("Required fix: lock"));
    }
}
