//! Details of a run, read from the outputs of its steps: passes of the agent, prompts, and findings of reviews and of
//! the guard. See docs/behaviour.md#details-of-a-run.
//!
//! Outputs are untrusted: what has another type is left out, and every list and text is bounded.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::evidence::{EvidenceEntry, MAX_FILES};
use super::report::StepRecord;
use super::sanitize;
use super::time::Timestamp;

/// Maximum number of entries per list.
const MAX_ENTRIES: usize = 200;

/// Maximum length of a path or word, in bytes.
const MAX_WORD: usize = 500;

/// Maximum length of a finding's text, in bytes.
const MAX_TEXT: usize = 4_000;

/// Details of a run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunDetails {
    /// Plan that the run wrote or worked by.
    pub plan: Option<String>,
    /// Summary that the agent wrote about its change.
    pub summary: Option<String>,
    /// Prompts, in order.
    pub prompts: Vec<PromptSize>,
    /// Passes of the agent, in order.
    pub passes: Vec<PassUsage>,
    /// Findings of the run's own reviews.
    pub review_findings: Vec<RunReviewFinding>,
    /// Findings of the sensitive-file guard.
    pub guard_findings: Vec<RunGuardFinding>,
    /// What the run was started for.
    pub trigger: Option<RunTrigger>,
    /// Size of the log in bytes, with what was cut from its begin; null if none is kept.
    pub log_bytes: Option<u64>,
    /// Files that the `verify` script left.
    #[schemars(length(max = MAX_FILES))]
    pub evidence: Vec<EvidenceEntry>,
    /// Hosts, with their ports, that the run was not allowed to reach.
    pub refused_hosts: Vec<String>,
}

/// Size of the prompt of one pass.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct PromptSize {
    /// Id of the step.
    pub step: String,
    /// Number of the pass in its run, from 1.
    pub pass: u64,
    /// Size of the prompt in bytes.
    pub bytes: u64,
}

/// Usage of one pass of the agent.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PassUsage {
    /// Id of the step.
    pub step: String,
    /// Number of the pass in its run, from 1.
    pub number: u64,
    /// Model turns.
    pub turns: Option<u64>,
    /// Cost in US dollars.
    pub cost_usd: Option<f64>,
    /// Duration in milliseconds.
    pub duration_ms: Option<u64>,
}

/// Finding of a review by the run itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "RunReviewFinding")]
pub struct RunReviewFinding {
    /// Severity.
    pub severity: String,
    /// Path of the file, if the finding has one.
    pub file: Option<String>,
    /// Line in the file, from 1.
    pub line: Option<u64>,
    /// Text.
    pub text: String,
    /// State.
    pub state: RunFindingState,
}

/// State of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RunFindingState {
    /// The latest review still reports it.
    Open,
    /// A later review does not report it any more.
    Resolved,
}

/// Finding of the sensitive-file guard.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "RunGuardFinding")]
pub struct RunGuardFinding {
    /// Path of the file.
    pub path: String,
    /// Line in the file, from 1.
    pub line: Option<u64>,
    /// Rule that matched.
    pub rule: String,
    /// Reason, as text.
    pub text: String,
    /// Whether it blocked the push.
    pub blocking: bool,
}

/// What a run was started for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RunTrigger {
    /// Login of the person, if it is known.
    pub by: Option<String>,
    /// Source.
    pub source: RunTriggerSource,
    /// Time.
    pub at: Timestamp,
}

/// Source of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RunTriggerSource {
    /// Label or field of the ticket.
    Ticket,
    /// Command in a comment on the pull request.
    Command,
    /// Feedback on the pull request.
    Review,
    /// Failing checks of the pull request.
    Checks,
    /// Conflict of the pull request with its base branch.
    Conflict,
}

impl RunDetails {
    /// Reads the details from the steps of a run, given in the order in which they started. The trigger is not
    /// known to the run.
    pub fn from_steps(steps: &[StepRecord]) -> Self {
        let mut details = Self::default();
        let mut findings = ReviewFindings::default();
        for step in steps {
            let Some(outputs) = &step.outputs else {
                continue;
            };
            details.add_pass(&step.id, outputs);
            findings.add_outputs(outputs);
            let guard = entries(&outputs["guard"]).filter_map(guard_finding);
            details.guard_findings.extend(guard);
            let plan = outputs["plan"].as_str().filter(|plan| !plan.is_empty());
            details.plan = plan.map(str::to_owned).or(details.plan);
            details.summary = text(&outputs["summary"], MAX_TEXT).or(details.summary);
        }
        details.review_findings = findings.into_list();
        details.prompts.truncate(MAX_ENTRIES);
        details.passes.truncate(MAX_ENTRIES);
        details.guard_findings.truncate(MAX_ENTRIES);
        details
    }

    fn add_pass(&mut self, step: &str, outputs: &Value) {
        let Some(number) = outputs["pass"].as_u64() else {
            return;
        };
        if let Some(bytes) = outputs["promptBytes"].as_u64() {
            self.prompts.push(PromptSize {
                step: step.to_owned(),
                pass: number,
                bytes,
            });
        }
        self.passes.push(PassUsage {
            step: step.to_owned(),
            number,
            turns: outputs["turns"].as_u64(),
            cost_usd: outputs["costUsd"].as_f64().filter(|cost| *cost >= 0.0),
            duration_ms: outputs["durationMs"].as_u64(),
        });
    }
}

/// Findings of all reviews of a run.
#[derive(Default)]
struct ReviewFindings {
    /// Findings with the line by which `unresolved` of later steps refers to them. A repeated finding is listed once.
    list: Vec<(String, RunReviewFinding)>,
    /// Lines of the findings that are open.
    open: Vec<String>,
}

impl ReviewFindings {
    /// Adds the findings in the outputs of a review, or of the step that it is a part of.
    fn add_outputs(&mut self, outputs: &Value) {
        let lines_of = |name: &str| -> Option<Vec<String>> {
            let lines = outputs[name].as_array()?.iter().take(MAX_ENTRIES);
            Some(lines.filter_map(|line| text(line, MAX_TEXT)).collect())
        };
        if let Some(lines) = lines_of("blocking") {
            let details = outputs["findings"].as_array();
            for (at, line) in lines.iter().enumerate() {
                let detail = details.and_then(|details| details.get(at));
                self.add(line, detail);
            }
            self.open = lines;
        }
        // The steps around the reviews know also findings of other reviewers.
        if let Some(lines) = lines_of("unresolved") {
            lines.iter().for_each(|line| self.add(line, None));
            self.open = lines;
        }
    }

    fn add(&mut self, line: &str, detail: Option<&Value>) {
        if self.list.len() >= MAX_ENTRIES || self.list.iter().any(|(known, _)| known == line) {
            return;
        }
        let field = |name: &str, max| detail.and_then(|detail| text(&detail[name], max));
        let finding = RunReviewFinding {
            severity: field("severity", MAX_WORD).unwrap_or_else(|| "blocking".to_owned()),
            file: field("file", MAX_WORD),
            line: detail.and_then(|detail| detail["line"].as_u64()),
            text: field("text", MAX_TEXT).unwrap_or_else(|| line.to_owned()),
            state: RunFindingState::Resolved,
        };
        self.list.push((line.to_owned(), finding));
    }

    fn into_list(self) -> Vec<RunReviewFinding> {
        let Self { list, open } = self;
        let with_state = |(line, finding): (String, RunReviewFinding)| RunReviewFinding {
            state: match open.contains(&line) {
                true => RunFindingState::Open,
                false => RunFindingState::Resolved,
            },
            ..finding
        };
        list.into_iter().map(with_state).collect()
    }
}

fn guard_finding(entry: &Value) -> Option<RunGuardFinding> {
    Some(RunGuardFinding {
        path: text(&entry["path"], MAX_WORD)?,
        line: entry["line"].as_u64(),
        rule: text(&entry["rule"], MAX_WORD).unwrap_or_default(),
        text: text(&entry["text"], MAX_TEXT).unwrap_or_default(),
        blocking: entry["blocking"].as_bool().unwrap_or_default(),
    })
}

fn entries(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten().take(MAX_ENTRIES)
}

fn text(value: &Value, max: usize) -> Option<String> {
    let text = value.as_str().filter(|text| !text.is_empty())?;
    Some(sanitize::truncate(text, max, sanitize::ELLIPSIS).into_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn step(id: &str, outputs: &Value) -> StepRecord {
        let body = json!({"id": id, "type": "t", "status": "passed", "started_at": "t", "outputs": outputs});
        StepRecord::parse(Some(body)).unwrap()
    }

    #[test]
    fn reads_passes_and_prompts() {
        let pass = |number: u64| json!({"pass": number, "promptBytes": 900, "turns": 3, "costUsd": 0.25, "durationMs": 7});
        let steps = [
            step("implement.1", &pass(1)),
            step("push", &json!({"commit": "c"})),
            step(
                "review.1",
                &json!({"pass": 2, "turns": "many", "costUsd": -1}),
            ),
        ];
        let details = RunDetails::from_steps(&steps);
        assert_eq!(
            json!(details.passes),
            json!([
                {"step": "implement.1", "number": 1, "turns": 3, "costUsd": 0.25, "durationMs": 7},
                {"step": "review.1", "number": 2, "turns": null, "costUsd": null, "durationMs": null},
            ])
        );
        assert_eq!(
            json!(details.prompts),
            json!([{"step": "implement.1", "pass": 1, "bytes": 900}])
        );
    }

    #[test]
    fn a_finding_is_open_until_a_later_review_does_not_report_it() {
        let race = json!({"severity": "blocking", "file": "a.rs", "line": 3, "text": "A race: two writers"});
        let review = |lines: Value, findings: Value| json!({"approved": false, "blocking": lines, "findings": findings});
        let states = |steps: &[StepRecord]| -> Vec<(String, RunFindingState)> {
            let found = RunDetails::from_steps(steps).review_findings.into_iter();
            found.map(|one| (one.text, one.state)).collect()
        };
        let mut steps = vec![step(
            "review.1",
            &review(json!(["A race (a.rs:3): two writers", "B"]), json!([race])),
        )];
        let first = RunDetails::from_steps(&steps).review_findings;
        assert_eq!(
            (first[0].file.as_deref(), first[0].line),
            (Some("a.rs"), Some(3))
        );
        let (race, other) = ("A race: two writers".to_owned(), "B".to_owned());
        use RunFindingState::{Open, Resolved};
        assert_eq!(
            states(&steps),
            [(race.clone(), Open), (other.clone(), Open)]
        );
        steps.push(step("review.2", &review(json!(["B"]), json!([]))));
        assert_eq!(
            states(&steps),
            [(race.clone(), Resolved), (other.clone(), Open)]
        );
        steps.push(step(
            "post-push-review",
            &json!({"unresolved": ["C of a person"]}),
        ));
        let last = ("C of a person".to_owned(), Open);
        assert_eq!(states(&steps), [(race, Resolved), (other, Resolved), last]);
    }

    #[test]
    fn reads_findings_of_the_guard_and_the_plan() {
        let finding =
            json!({"path": ".env", "line": 2, "rule": "file name", "text": "t", "blocking": true});
        let steps = [
            step("plan", &json!({"plan": "1. Do it"})),
            step("feedback-loop", &json!({"summary": "I did it."})),
            step(
                "push",
                &json!({"guard": [finding, {"line": 1}, 7], "summary": ""}),
            ),
        ];
        let details = RunDetails::from_steps(&steps);
        assert_eq!(details.summary.as_deref(), Some("I did it."));
        assert_eq!(json!(details.guard_findings), json!([finding]));
        assert_eq!(details.plan.as_deref(), Some("1. Do it"));
    }

    #[test]
    fn bounds_hostile_outputs() {
        let long = "x".repeat(50_000);
        let many: Vec<Value> = (0..5_000).map(|n| json!(format!("{n} {long}"))).collect();
        let guard: Vec<Value> = (0..5_000).map(|_| json!({"path": long})).collect();
        let outputs =
            json!({"blocking": many, "findings": "none", "guard": guard, "pass": 1, "plan": 3});
        let steps = [step("a", &outputs), step("b", &outputs)];
        let details = RunDetails::from_steps(&steps);
        assert_eq!(details.review_findings.len(), MAX_ENTRIES);
        assert_eq!(details.guard_findings.len(), MAX_ENTRIES);
        assert!(json!(details).to_string().len() < 2 * MAX_ENTRIES * (MAX_TEXT + MAX_WORD));
        assert_eq!(details.plan, None);
        for odd in [
            json!(null),
            json!("text"),
            json!([1]),
            json!({"blocking": {}}),
        ] {
            let details = RunDetails::from_steps(&[step("odd", &odd)]);
            assert_eq!(details, RunDetails::default());
        }
    }
}
