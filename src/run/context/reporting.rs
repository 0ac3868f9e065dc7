//! Reporting: log, progress and session events of a run.

use serde_json::{Value, json};

use crate::clock;
use crate::console::Console;
use crate::progress::ProgressReporter;
use crate::status_reporter::StatusReporter;
use domain::report::{StepRecord, Usage};
use domain::sanitize;
use domain::time::Timestamp;

/// Maximum length of a step's reason, in bytes.
const MAX_REASON: usize = 4000;

/// Channels to the orchestrator and to people.
pub(crate) struct Reporting {
    /// Log of the run.
    pub console: Console,
    /// Progress reporter.
    pub progress: ProgressReporter,
    /// Reporter of session events.
    pub status_reporter: StatusReporter,
    /// Steps that started and did not end, outermost first.
    open_steps: Vec<StepRecord>,
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
            open_steps: Vec::new(),
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
        step.parent_step_id = self.open_steps.last().map(|outer| outer.id.clone());
        self.open_steps.push(step.clone());
        self.progress.report_step(step.clone());
        step
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
        self.open_steps.retain(|open| open.id != step.id);
        self.progress.report_step(step);
    }

    /// Reports the failure of a step.
    pub(crate) fn fail_step(&mut self, step: StepRecord, reason: &str) {
        self.end_step(step, "failed", Some(json!({ "reason": reason })));
    }

    /// Reports the failure of every open step of an interrupted run.
    pub(crate) fn fail_open_steps(&mut self, reason: &str) {
        while let Some(step) = self.open_steps.last().cloned() {
            self.fail_step(step, reason);
        }
    }

    /// Reports a step that is not started.
    pub(crate) fn skip_step(&self, id: &str, kind: &str) {
        self.progress.report_step(step(id, kind, "skipped"));
    }

    /// Returns a text without secrets and invisible characters, truncated to the maximum length of
    /// a reason.
    pub(crate) fn sanitize(&self, text: &str) -> String {
        sanitize::truncate(self.console.sanitize(text), MAX_REASON, sanitize::ELLIPSIS).into_owned()
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
