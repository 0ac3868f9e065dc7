//! The run's own log: lines on standard output, redacted, with nothing that CI takes for a command.

use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use super::progress::ProgressReporter;
use super::text;
use vendors::http::{LineRedactor, Redactor};

/// Stands before whatever a child printed.
const CHILD_MARK: &str = "  | ";

/// Where the run speaks. Clones speak with one voice.
#[derive(Clone)]
pub struct Console {
    redactor: Redactor,
    lines: Arc<Mutex<LineRedactor>>,
    progress: ProgressReporter,
    /// Held open so that CI takes no line for a command until the run is over.
    _silence: Arc<Silence>,
    /// The last lines, for a failure's reason.
    tail: Arc<RwLock<Vec<String>>>,
}

/// Tells CI to take no commands from the log; ends with the last console.
struct Silence(Option<String>);

impl Drop for Silence {
    fn drop(&mut self) {
        if let Some(word) = &self.0 {
            print_line(&format!("::{word}::"));
        }
    }
}

/// How many lines does a failure's reason quote?
const TAIL: usize = 12;

impl Console {
    /// A console whose lines CI must not obey: `word` is a secret that no child can print.
    pub fn for_ci(redactor: Redactor, progress: ProgressReporter, word: String) -> Self {
        print_line(&format!("::stop-commands::{word}"));
        Self::with(redactor, progress, Silence(Some(word)))
    }

    pub fn plain(redactor: Redactor, progress: ProgressReporter) -> Self {
        Self::with(redactor, progress, Silence(None))
    }

    fn with(redactor: Redactor, progress: ProgressReporter, silence: Silence) -> Self {
        Self {
            lines: Arc::new(Mutex::new(redactor.line_redactor())),
            redactor,
            progress,
            _silence: Arc::new(silence),
            tail: Arc::default(),
        }
    }

    /// A line of the run itself.
    pub fn log(&self, line: &str) {
        self.print("", line);
    }

    /// A line that a child printed.
    pub fn log_child(&self, line: &str) {
        self.print(CHILD_MARK, line);
    }

    fn print(&self, mark: &str, line: &str) {
        // Once more without what cannot be seen: that may have cut a secret in two.
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let line = text::sanitize_log_line(&lines.redact(line));
        drop(lines);
        let line = self.redactor.redact_owned(line);
        // An older spelling of commands counts anywhere in a line.
        let line = line.replace("##[", "## [");
        self::print_line(&format!("{mark}{line}"));
        self.progress.report_log_line(&line);
        if let Ok(mut tail) = self.tail.write() {
            let surplus = (tail.len() + 1).saturating_sub(TAIL);
            tail.drain(..surplus);
            tail.push(line);
        }
    }

    /// Takes secrets out of a text that leaves the run.
    pub fn redact(&self, text: &str) -> String {
        self.redactor.redact(text)
    }

    /// The same of a text for people, who cannot see everything that may cut a secret in two.
    pub fn sanitize(&self, text: &str) -> String {
        self.redactor
            .redact_owned(text::strip_invisible(&self.redactor.redact(text)))
    }

    /// Whether one of the run's secrets stands in a text.
    pub fn contains_secret(&self, text: &[u8]) -> bool {
        self.redactor.contains_known_secret(text)
    }

    /// Forgets earlier lines, so that [`Console::tail`] tells of what comes now.
    pub fn clear_tail(&self) {
        if let Ok(mut tail) = self.tail.write() {
            tail.clear();
        }
    }

    /// The last lines since [`Console::mark`].
    pub fn tail(&self) -> String {
        self.tail
            .read()
            .map(|tail| tail.join("\n"))
            .unwrap_or_default()
    }
}

/// Prints a line. Nobody may read any more, and the run goes on all the same.
pub fn print_line(text: &str) {
    let _ = writeln!(std::io::stdout().lock(), "{text}");
}
