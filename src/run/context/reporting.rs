//! Reporting: log, progress and session events of a run.

use std::time::Instant;

use serde_json::{Map, Value, json};

use crate::clock;
use crate::console::Console;
use crate::evidence::UnsentEvidence;
use crate::progress::ProgressReporter;
use crate::status_reporter::StatusReporter;
use domain::report::{StepRecord, Usage};
use domain::sanitize;
use domain::time::Timestamp;

/// Maximum length of a step's reason, in bytes.
const MAX_REASON: usize = 4000;

/// Maximum length of a text that is added to the outputs of a step, in bytes.
const MAX_ADDED_TEXT: usize = 40_000;

/// Channels to the orchestrator and to people.
pub(crate) struct Reporting {
    /// Log of the run.
    pub console: Console,
    /// Progress reporter.
    pub progress: ProgressReporter,
    /// Reporter of session events.
    pub status_reporter: StatusReporter,
    /// Evidence that the report file is to carry.
    pub evidence: UnsentEvidence,
    /// Steps that started and did not end, outermost first.
    open_steps: Vec<OpenStep>,
    /// Number of passes of the agent that were started.
    passes: u64,
}

/// Step that started and did not end.
struct OpenStep {
    record: StepRecord,
    /// Outputs that the end of the step reports, also if it fails.
    added: Map<String, Value>,
    /// Pass of the agent that is running in the step.
    pass: Option<RunningPass>,
}

/// Pass of the agent that did not end.
struct RunningPass {
    started: Instant,
    usage_before: Usage,
}

impl OpenStep {
    /// Adds the outputs of the running pass, if there is one.
    fn end_pass(&mut self, usage: Usage) {
        let Some(pass) = self.pass.take() else {
            return;
        };
        let before = pass.usage_before;
        let cost = usage
            .cost_usd
            .map(|cost| cost - before.cost_usd.unwrap_or_default());
        let turns = usage.turns.saturating_sub(before.turns);
        let elapsed = u64::try_from(pass.started.elapsed().as_millis()).ok();
        self.added.insert("turns".to_owned(), json!(turns));
        self.added.insert("costUsd".to_owned(), json!(cost));
        self.added.insert("durationMs".to_owned(), json!(elapsed));
    }
}

impl Reporting {
    /// Creates the channels, without an open step.
    pub(crate) fn new(
        console: Console,
        progress: ProgressReporter,
        status_reporter: StatusReporter,
    ) -> Self {
        Self {
            console,
            progress,
            status_reporter,
            evidence: UnsentEvidence::default(),
            open_steps: Vec::new(),
            passes: 0,
        }
    }

    /// Logs a line of the run itself.
    pub(crate) fn log(&self, line: &str) {
        self.console.log(line);
    }

    /// Returns the usage of all agent passes so far.
    pub(crate) fn usage(&self) -> Usage {
        self.progress.usage_meter().total()
    }

    /// Reports the start of a step. A step started inside an open step becomes its child.
    pub(crate) fn begin_step(&mut self, id: &str, kind: &str) -> StepRecord {
        let mut step = step(id, kind, "running");
        step.parent_step_id = self.open_steps.last().map(|outer| outer.record.id.clone());
        self.open_steps.push(OpenStep {
            record: step.clone(),
            added: Map::new(),
            pass: None,
        });
        self.console.begin_step(id);
        self.progress.report_step(step.clone());
        step
    }

    /// Adds an output to the innermost open step.
    pub(crate) fn add_output(&mut self, name: &str, mut value: Value) {
        sanitize::map_strings(&mut value, |text| {
            let text = self.console.sanitize(&text);
            sanitize::truncate(text, MAX_ADDED_TEXT, sanitize::ELLIPSIS).into_owned()
        });
        if let Some(step) = self.open_steps.last_mut() {
            step.added.insert(name.to_owned(), value);
        }
    }

    /// Starts to measure a pass of the agent in the innermost open step.
    pub(crate) fn begin_pass(&mut self, prompt_bytes: usize) {
        self.passes += 1;
        self.add_output("pass", json!(self.passes));
        self.add_output("promptBytes", json!(prompt_bytes));
        let usage_before = self.usage();
        if let Some(step) = self.open_steps.last_mut() {
            step.pass = Some(RunningPass {
                started: Instant::now(),
                usage_before,
            });
        }
    }

    /// Ends the measured pass. A pass that is interrupted ends with its step.
    pub(crate) fn end_pass(&mut self) {
        let usage = self.usage();
        if let Some(step) = self.open_steps.last_mut() {
            step.end_pass(usage);
        }
    }

    /// Reports the end of a step.
    pub(crate) fn end_step(&mut self, mut step: StepRecord, status: &str, outputs: Option<Value>) {
        let now = clock::now();
        let started = Timestamp::parse(&step.started_at).unwrap_or(now);
        step.status = status.to_owned();
        step.ended_at = Some(now.to_string());
        step.elapsed_ms = u64::try_from(now.since(started).as_millis()).ok();
        step.outputs = outputs.map(|mut value| {
            sanitize::map_strings(&mut value, |text| self.sanitize(&text));
            value
        });
        let open = self
            .open_steps
            .iter()
            .rposition(|open| open.record.id == step.id);
        if let Some(mut open) = open.map(|at| self.open_steps.remove(at)) {
            open.end_pass(self.usage());
            add_to(&mut step.outputs, open.added);
        }
        self.progress.report_step(step);
    }

    /// Reports the failure of a step.
    pub(crate) fn fail_step(&mut self, step: StepRecord, reason: &str) {
        self.end_step(step, "failed", Some(json!({ "reason": reason })));
    }

    /// Reports the failure of every open step of an interrupted run.
    pub(crate) fn fail_open_steps(&mut self, reason: &str) {
        while let Some(step) = self.open_steps.last().map(|open| open.record.clone()) {
            self.fail_step(step, reason);
        }
    }

    /// Reports a step that is not started.
    pub(crate) fn skip_step(&self, id: &str, kind: &str, reason: &str) {
        let mut step = step(id, kind, "skipped");
        step.outputs = Some(json!({ "reason": self.sanitize(reason) }));
        self.progress.report_step(step);
    }

    /// Returns a text without secrets and invisible characters, truncated to the maximum length of
    /// a reason.
    pub(crate) fn sanitize(&self, text: &str) -> String {
        sanitize::truncate(self.console.sanitize(text), MAX_REASON, sanitize::ELLIPSIS).into_owned()
    }
}

/// Adds entries to outputs, unless the outputs are no object.
fn add_to(outputs: &mut Option<Value>, added: Map<String, Value>) {
    match outputs {
        Some(Value::Object(fields)) => fields.extend(added),
        None if !added.is_empty() => *outputs = Some(Value::Object(added)),
        Some(_) | None => {}
    }
}

fn step(id: &str, kind: &str, status: &str) -> StepRecord {
    StepRecord {
        id: id.to_owned(),
        kind: kind.to_owned(),
        status: status.to_owned(),
        started_at: clock::now().to_string(),
        ended_at: None,
        elapsed_ms: None,
        parent_step_id: None,
        outputs: None,
        logs_url: None,
    }
}
