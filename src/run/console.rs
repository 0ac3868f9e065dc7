//! Log of a run: redacted lines on standard output, with CI workflow commands disabled.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use super::print::print_line;
use super::run_log::RunLog;
use domain::run_log;
use vendors::http::{LineRedactor, Redactor};

/// Prefix of lines printed by a child.
const CHILD_MARK: &str = "  | ";

/// Number of bytes that children may print. The host of the run keeps them on its disk.
const MAX_CHILD_BYTES: u64 = 64 << 20;

/// Log of a run. Clones share redaction state and log tail.
#[derive(Clone)]
pub struct Console {
    redactor: Redactor,
    lines: Arc<Mutex<LineRedactor>>,
    log: RunLog,
    /// Number of bytes that children have printed.
    child_bytes: Arc<AtomicU64>,
    /// Keeps workflow commands disabled until the last clone is dropped.
    _stop_commands: Arc<StopCommands>,
    /// Last lines, quoted in failure reasons.
    tail: Arc<RwLock<Vec<String>>>,
}

/// Guard that disables workflow commands in the CI log and enables them again on drop.
struct StopCommands(Option<String>);

impl Drop for StopCommands {
    fn drop(&mut self) {
        if let Some(token) = &self.0 {
            print_line(&format!("::{token}::"));
        }
    }
}

/// Number of lines quoted in a failure reason.
const TAIL_LINES: usize = 12;

impl Console {
    /// Creates a console for CI. Workflow commands stay disabled until `token`, which no child can
    /// know, is printed again.
    pub fn for_ci(redactor: Redactor, log: RunLog, token: String) -> Self {
        print_line(&format!("::stop-commands::{token}"));
        Self::with(redactor, log, StopCommands(Some(token)))
    }

    /// Creates a console outside CI.
    pub fn plain(redactor: Redactor, log: RunLog) -> Self {
        Self::with(redactor, log, StopCommands(None))
    }

    fn with(redactor: Redactor, log: RunLog, stop_commands: StopCommands) -> Self {
        Self {
            lines: Arc::new(Mutex::new(redactor.line_redactor())),
            redactor,
            log,
            child_bytes: Arc::default(),
            _stop_commands: Arc::new(stop_commands),
            tail: Arc::default(),
        }
    }

    /// Logs a line of the run itself.
    pub fn log(&self, line: &str) {
        print_line(&self.record("", line));
    }

    /// Logs a line printed by a child.
    pub fn log_child(&self, line: &str) {
        let text = self.record(CHILD_MARK, line);
        let bytes = text.len() as u64 + 1;
        let before = self.child_bytes.fetch_add(bytes, Ordering::Relaxed);
        if before < MAX_CHILD_BYTES {
            print_line(&text);
            if before + bytes >= MAX_CHILD_BYTES {
                self.log("Programs have printed 64 MiB; what they print from here on is left out");
            }
        }
    }

    /// Marks the beginning of a step in the log of the run. The mark is not printed: CI would obey it.
    pub(crate) fn begin_step(&self, id: &str) {
        self.log.begin_step(&self.redactor.redact(id));
    }

    /// Adds a line to the log that the service shows, and to the tail. Returns it as it may be printed.
    fn record(&self, prefix: &str, line: &str) -> String {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let redacted = lines.redact_output(line);
        drop(lines);
        // CI also obeys the older command prefix `##[` anywhere in a line.
        let line = run_log::escape_marks(&redacted.plain);
        let printed = format!("{prefix}{line}");
        let shown = match line == redacted.plain {
            true => &redacted.styled,
            false => &line,
        };
        self.log.add_line(&format!("{prefix}{shown}"));
        if let Ok(mut tail) = self.tail.write() {
            let surplus = (tail.len() + 1).saturating_sub(TAIL_LINES);
            tail.drain(..surplus);
            tail.push(line);
        }
        printed
    }

    /// Replaces secrets in a text that leaves the run.
    pub fn redact(&self, text: &str) -> String {
        self.redactor.redact(text)
    }

    /// Replaces secrets and removes invisible characters, which could split a secret.
    pub fn sanitize(&self, text: &str) -> String {
        self.redactor.sanitize(text)
    }

    /// Whether a text contains a secret of the run.
    pub fn contains_secret(&self, text: &[u8]) -> bool {
        self.redactor.contains_known_secret(text)
    }

    /// Whether a change adds a secret of the run to a content that did not hold it.
    pub fn adds_secret(&self, before: &[u8], after: &[u8]) -> bool {
        self.redactor.adds_known_secret(before, after)
    }

    /// Clears the log tail, so that [`Console::tail`] returns only later lines.
    pub fn clear_tail(&self) {
        if let Ok(mut tail) = self.tail.write() {
            tail.clear();
        }
    }

    /// Returns the last lines since [`Console::clear_tail`].
    pub fn tail(&self) -> String {
        self.tail
            .read()
            .map(|tail| tail.join("\n"))
            .unwrap_or_default()
    }
}
